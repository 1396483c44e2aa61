"""Every run that a small strategy allows, by brute force: nodes return or raise as they like, branches have their turns in any order."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from typing import Any

from hypothesis import assume
from hypothesis import strategies as st

from graphagent.graph import (
    END,
    START,
    Node,
    PathRule,
    Retry,
    Strategy,
    each,
    guarded,
    never_together,
    parallel,
    precedes,
    race,
)
from graphagent.graph._forks import Each, Parallel, Race
from graphagent.graph.rules._proof import patterns
from tests.graph.parts import steps

ITEMS = 2
"""The largest number of items of an `each`."""


# ---- small strategies


@st.composite
def _elements(draw: st.DrawFn, leaves: dict[str, Any], perhaps: Any, depth: int, name: str) -> Node[Any, Any]:
    kinds = ("leaf", "leaf", "strategy", "parallel", "each", "race") if depth else ("leaf",)
    kind, failures = draw(st.sampled_from(kinds)), draw(st.sampled_from(("cancel", "collect")))
    made: Any
    if kind == "leaf":
        return leaves[draw(st.sampled_from(list(leaves)))]
    if kind == "strategy":
        made = draw(_strategies(leaves, perhaps, depth - 1, name))
    elif kind == "each":
        made = each(draw(_elements(leaves, perhaps, depth - 1, f"{name}i")), failures=failures, name=name)
    else:
        branches = [draw(_elements(leaves, perhaps, depth - 1, f"{name}{n}")) for n in range(draw(st.integers(1, 2)))]
        made = race(*branches, name=name) if kind == "race" else parallel(*branches, failures=failures, name=name)
    return made.retry(attempts=2, wait=0) if draw(st.integers(0, 3)) == 0 else made


@st.composite
def _strategies(draw: st.DrawFn, leaves: dict[str, Any], perhaps: Any, depth: int, name: str) -> Strategy[Any, Any]:
    """Make a chain with edges that leave it, forwards and backwards, for outputs and for errors."""
    drawn = [draw(_elements(leaves, perhaps, depth, f"{name}{number}")) for number in range(draw(st.integers(1, 3)))]
    chain = list({each.name: each for each in drawn}.values())
    paths: list[Any] = [START >> chain[0]]
    for number, one in enumerate(chain):
        targets = st.sampled_from([*chain, END])
        heads = [one.when(perhaps)] * draw(st.integers(0, 1)) + [one.on_error(OSError)] * draw(st.integers(0, 1))
        paths += [head.map(_anything) >> draw(targets) for head in heads]
        paths.append(one.map(_anything) >> [*chain, END][number + 1])
    return Strategy(name, *paths)


def _anything(value: Any) -> Any:
    return value


@st.composite
def small_strategies(draw: st.DrawFn, leaves: list[Any] | None = None, perhaps: Any = bool) -> Strategy[Any, Any]:
    """Make a strategy with subgraphs, forks, loops, error edges and retries, of a few nodes that may occur at several places."""
    return draw(_strategies({leaf.name: leaf for leaf in leaves or steps("a b c d")}, perhaps, 2, "s"))


@st.composite
def rules_of(draw: st.DrawFn, strategy: Strategy[Any, Any]) -> PathRule:
    """Make a rule about nodes of a strategy."""
    places = dict(strategy.walk())
    kind = draw(st.sampled_from(("precedes", "never_together", "guarded", "guarded")))
    size = 3 if kind == "guarded" else draw(st.integers(2, 3)) if kind == "never_together" else 2
    assume(len(places) >= size)
    names = draw(st.lists(st.sampled_from(sorted(places)), min_size=size, max_size=size, unique=True))
    nodes = [places[name] if draw(st.booleans()) else name for name in names]
    assume(len({id(node) for node in nodes}) == size)
    makers = {"precedes": precedes, "never_together": never_together}
    rule = guarded(nodes[0], by=nodes[1], before=nodes[2]) if kind == "guarded" else makers[kind](*nodes)
    assume(isinstance(patterns(rule, list(strategy.walk())), list))  # it may name a place twice
    return rule


# ---- all that can happen


@dataclass(frozen=True)
class Event:
    """Something that happens in a run."""

    kind: str
    """`start`, `end`, `fail`, or `again`: what is inside is left, and begun anew."""
    at: str
    """The path in the run, such as `each/1/a`."""
    place: str
    """The path in the strategy, such as `each/a`."""


@dataclass(frozen=True)
class State:
    """An element that is being executed."""

    element: Any
    at: str
    place: str
    attempts: int = 1
    node: Any = None
    """The current node of a strategy, or END."""
    inside: tuple[Any, ...] = ()
    """The states of what is inside: None has not begun, "ended" and "failed" are over."""


def begin(element: Any, at: str = "", place: str = "") -> State:
    """Return an element as it is when it has just started."""
    if isinstance(element, Strategy):
        first = next(edge.target for edge in element.edges if edge.source is START)
        return State(element, at, place, node=first, inside=(None,))
    if isinstance(element, Parallel | Race):
        return State(element, at, place, inside=(None,) * len(element.branches))
    return State(element, at, place, inside=(None,) * (ITEMS if isinstance(element, Each) else 0))


def _begin_inside(state: State, number: int) -> State:
    element = state.element
    if isinstance(element, Strategy):
        prefix = (f"{state.at}/", f"{state.place}/") if state.at else ("", "")
        return begin(state.node, prefix[0] + state.node.name, prefix[1] + state.node.name)
    branch = element.branches[0 if isinstance(element, Each) else number]
    place = branch.name if isinstance(element, Each) else f"{number}/{branch.name}"
    return begin(branch, f"{state.at}/{number}/{branch.name}", f"{state.place}/{place}")


def steps_of(state: State, asking: Collection[str] = ()) -> Iterator[tuple[tuple[Event, ...], Any]]:
    """Yield all that can happen next: events, and the state after them, "ended" or "failed".

    If an answer is refused, the run continues at one of its own nodes that are `asking` a model.
    """
    element = state.element

    def event(kind: str) -> tuple[Event]:
        return (Event(kind, state.at, state.place),)

    yield event("fail"), "failed"
    if state.attempts < max((each.attempts for each in element.policies if isinstance(each, Retry)), default=1):
        yield event("again"), replace(begin(element, state.at, state.place), attempts=state.attempts + 1)
    if type(element) is Node or (isinstance(element, Strategy) and state.node is END):
        yield event("end"), "ended"
        for name in asking if state.at == "" else ():
            yield (), replace(state, node=element.elements_by_name[name], inside=(None,))
        return
    for number, inner in enumerate(state.inside):
        if inner is None:
            child = _begin_inside(state, number)
            yield (Event("start", child.at, child.place),), _with(state, number, child)
        elif isinstance(inner, State):
            for events, after in steps_of(inner):
                for more, following in _after(state, number, after):
                    yield (*events, *more), following
    if isinstance(element, Parallel | Each):
        settled = ["ended", *(["failed"] if element.failures == "collect" else [])]
        if all(inner in settled or (inner is None and isinstance(element, Each)) for inner in state.inside):
            yield event("end"), "ended"


def _with(state: State, number: int, inner: Any) -> State:
    return replace(state, inside=(*state.inside[:number], inner, *state.inside[number + 1 :]))


def _after(state: State, number: int, inner: Any) -> Iterator[tuple[tuple[Event, ...], Any]]:
    """Yield how an element may continue when something inside it is in another state."""
    if isinstance(state.element, Strategy) and not isinstance(inner, State):
        for edge in state.element.edges:
            on_error = edge.outlet is not None and any(rule.error for rule in edge.outlet.rules)
            if edge.source is state.node and on_error == (inner == "failed"):
                yield (), replace(state, node=edge.target, inside=(None,))
    elif isinstance(state.element, Race) and inner == "ended":
        yield (Event("end", state.at, state.place),), "ended"
    else:
        yield (), _with(state, number, inner)


def shortest(
    strategy: Strategy[Any, Any],
    first: frozenset[str],
    between: frozenset[str],
    then: frozenset[str],
    *,
    at_start: bool,
    most: int,
    asking: Collection[str] = (),
) -> int | None:
    """Return how many nodes the shortest run executes that starts one of `then` against the rule.

    None means that no run does; -1, that there are more than `most` states. The whole history of a run would be too much to
    tell states apart. What counts of it: whether the run is armed, what is being executed of `first`, and which executions of
    `between` began after all of these.
    """
    leaves = {path for path, element in strategy.walk() if type(element) is Node}
    order = itertools.count()
    waiting: list[Any] = [(0, next(order), begin(strategy), at_start, frozenset(), frozenset())]
    seen = set[Any]()
    while waiting:
        cost, _, state, *watched = heapq.heappop(waiting)
        if state == "broken":
            return cost
        if (state, *watched) in seen:
            continue
        seen.add((state, *watched))
        if len(seen) > most:
            return -1
        for events, after in steps_of(state, asking):
            armed, active, guards = watched
            now = cost
            for event in events:
                inside = f"{event.at}/" if event.at else ""
                if event.kind == "start":
                    now += event.place in leaves
                    if event.place in then and armed:
                        heapq.heappush(waiting, (now, next(order), "broken"))
                        break
                    if event.place in first:
                        armed, active, guards = True, active | {event.at}, frozenset()
                    if event.place in between and not active:
                        guards |= {event.at}
                    continue
                left = {at for at in active if at.startswith(inside) or (at == event.at and event.kind != "again")}
                if left:
                    armed, active, guards = True, active - left, frozenset()
                if event.kind == "end" and event.at in guards:
                    armed = False
                guards = frozenset(
                    at for at in guards if not at.startswith(inside) and (at != event.at or event.kind == "again")
                )
            else:
                if isinstance(after, State):
                    heapq.heappush(waiting, (now, next(order), after, armed, active, guards))
    return None
