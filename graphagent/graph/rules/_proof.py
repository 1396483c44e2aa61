"""The proof that no run of a strategy can break its rules.

All rules come down to one question: can a run start one of some nodes (`then`) after it has started another one (`first`, or
START), with no execution of a third one (`between`) that began after that and came to its end? For each node, fork and strategy,
`_ways` computes the shortest ways through it that matter to this question, from the inside out. So it is not necessary to try the
orders in which branches may have their turns: two branches of a fork matter to each other only if one of them starts one of
`first` and the other one of `then`. `docs/rules.md` lists the assumptions about a run.

The file is long because the proof is one recursion, over elements, edges and forks.
"""

from __future__ import annotations

import heapq
import itertools
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from graphagent._details import Problem
from graphagent._policies import Retry
from graphagent.errors import StrategyError
from graphagent.graph import _types
from graphagent.graph._forks import Each, Parallel, Race
from graphagent.graph._node import START, End, Node, Start
from graphagent.graph._outline import Outline
from graphagent.graph._rules import ALIKE, PathRule, RuleNode, are_alike, is_named, is_tool, name_of, reason
from graphagent.graph._strategy import Edge, Element, Strategy, walk

_MANY = 20
"""The largest number of paths that a problem lists."""


@dataclass(frozen=True, slots=True)
class Pattern:
    """A forbidden pattern: starting one of `then` after one of `first`, without executing one of `between` after that."""

    first: frozenset[str]
    """Paths, as `Strategy.walk` has them."""
    between: frozenset[str]
    then: frozenset[str]
    at_start: bool = False
    """Whether START counts as one of `first`."""


def _never(node: RuleNode) -> frozenset[str]:
    return frozenset()


def patterns(
    rule: PathRule,
    places: Sequence[tuple[str, object]],
    calls: Callable[[RuleNode], frozenset[str]] = _never,
) -> list[Pattern] | Problem:
    """Return the pattern that a rule forbids in a strategy with these elements and their paths; or the problem of the rule.

    Args:
        rule: The rule.
        places: The elements.
        calls: Returns the paths of the nodes that may execute something in a call of a tool. They need not.
    """
    found: list[frozenset[str]] = []
    for node in rule.nodes:
        at = frozenset(path for path, element in places if is_named(node, path, getattr(element, "declaration", None)))
        if not at and not is_tool(node):
            return _unknown(rule, node, places)
        twice = min((path for each in found for path in at & each), default="")
        if twice:
            return Problem(twice, f"the rule {rule} names it twice; name different nodes")
        found.append(at)
    may = [each if isinstance(node, str) else each | calls(node) for node, each in zip(rule.nodes, found, strict=True)]
    if not all(may):
        return []
    if rule.kind == "never_together":
        every = frozenset[str]().union(*may)
        return [Pattern(each, frozenset(), every - each) for each in may]
    between = found[0] if rule.kind == "precedes" else found[1]
    if not between:  # a model may decide to call it in time
        return []
    if rule.kind == "precedes":
        return [Pattern(frozenset(), between, may[1], at_start=True)]
    return [Pattern(may[0], between, may[2])]


def check_named(strategy: Strategy[Any, Any] | Outline, rules: Sequence[PathRule]) -> None:
    """Check that a strategy, or an outline by its paths alone, has what rules name."""
    if isinstance(rules, PathRule) or not all(isinstance(each, PathRule) for each in rules):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError("rules= is a list of rules, such as [precedes(approve, send)]")
    places = list(strategy.walk())
    found = [patterns(rule, places) for rule in rules]
    problems = [each for each in found if isinstance(each, Problem)]
    if problems:
        raise StrategyError(strategy.name, problems)


def _unknown(rule: PathRule, node: RuleNode, places: Sequence[tuple[str, object]]) -> Problem:
    name = name_of(node)
    paths = list(dict.fromkeys(path for path, _ in places))
    alike = next((path for path in paths if path.rpartition("/")[2] == name.rpartition("/")[2]), None)
    advice = ""
    if alike is not None and isinstance(node, str):
        advice = f"; name it by its whole path, {alike!r}"
    elif alike is not None and isinstance(dict(places)[alike], Outline):
        advice = f"; of a stored run, only paths are known: name {alike!r}"
    elif alike is not None:
        advice = f"; the node at {alike!r} is declared elsewhere, and no copy of it: name that node, or its path"
    shown = ", ".join(map(repr, paths[:_MANY])) + (", …" if len(paths) > _MANY else "")
    return Problem(name, f"the rule {rule} names it, and it is not in the strategy{advice} (there are: {shown})")


# ---- the shortest ways through an element


@dataclass(frozen=True, slots=True)
class _Via:
    """An edge in a way, as it is drawn."""

    source: str
    """The path of the node that it leaves; empty for the strategy itself."""
    label: str


_MEANWHILE = _Via("", "")
"""In a way: the following nodes are in another branch, at the same time."""


@dataclass(frozen=True, slots=True)
class Way:
    """A way through a strategy: how many nodes it executes, and which of them are worth showing."""

    cost: int
    """The number of nodes and taps that are started; strategies and forks do not count, as in `max_nodes`."""
    parts: tuple[str | _Via | Way, ...]
    """Paths, edges, and ways that were joined."""

    def then(self, *more: Way | _Via | None) -> Way | None:
        """Return the way that continues with others; None if one of them is."""
        ways = [each for each in more if each is not None]
        if len(ways) < len(more):
            return None
        return Way(self.cost + sum(each.cost for each in ways if isinstance(each, Way)), (self, *ways))

    def _flat(self) -> Iterator[str | _Via]:
        left: list[str | _Via | Way] = [self]
        while left:  # a way through a thousand nodes is as deeply nested
            part = left.pop()
            if isinstance(part, Way):
                left.extend(reversed(part.parts))
            else:
                yield part

    @property
    def last(self) -> str:
        """The path of the node where it ends."""
        return [part for part in self._flat() if isinstance(part, str)][-1]

    def __str__(self) -> str:
        text = at = ""
        labels: list[str] = []
        for part in self._flat():
            if part is _MEANWHILE:
                text, at = f"{text}, and at the same time ", ""
            elif isinstance(part, _Via):
                labels += (
                    [part.label if part.source in (at, "") else f"{part.source} {part.label}"] if part.label else []
                )
            else:
                arrow = f" -[{'; '.join(labels)}]-> " if labels else " -> "
                text, at, labels = text + (arrow if at else "") + part, part, []
        return text


def _shortest(*ways: Way | None) -> Way | None:
    return min((way for way in ways if way is not None), key=lambda way: way.cost, default=None)


def _all(ways: Sequence[Way | None], *, shown: Sequence[bool]) -> Way | None:
    """Return the ways of several branches as one that shows some of them; None if one of them is."""
    known = [way for way in ways if way is not None]
    if len(known) < len(ways):
        return None
    parts = [part for way, is_shown in zip(known, shown, strict=True) if is_shown for part in (_MEANWHILE, way)]
    return Way(sum(way.cost for way in known), tuple(parts[1:]))


@dataclass(slots=True)
class _Ways:
    """The shortest ways through an element.

    A run is armed if it has started one of `first`, and executed none of `between` since. A way that breaks a rule in an
    unarmed run breaks it as soon in an armed one, so a way whose end is described as unarmed may also be armed there.
    """

    done: Way | None
    """To its end."""
    armed: Way | None
    """To its end, and armed there, even if not armed before."""
    kept: Way | None
    """To its end, and armed there, if armed before."""
    fails: Way
    """Until it fails, at once."""
    first: Way | None
    """Until one of `first` starts."""
    then: Way | None
    """Until one of `then` starts."""
    broken: tuple[Way | None, Way | None]
    """Until the rule is broken, if not armed before, and if armed before."""
    avoids: bool = False
    """Whether one of `between` is inside, so that a way past it is worth showing."""


def _ways(element: Element, path: str, pattern: Pattern) -> _Ways:
    """Return the ways through an element at a path."""
    whole = Way(0, (path,))
    if isinstance(element, Strategy):
        found = _through(element.edges, f"{path}/", pattern)
    elif isinstance(element, Each | Parallel | Race):
        found = _through_fork(element, path, pattern)
    else:
        whole = Way(1, (path,))
        found = _Ways(whole, None, whole, whole, None, None, (None, None))
    if any(isinstance(each, Retry) and each.attempts > 1 for each in element.policies):
        found.armed, found.broken = _tried_again(found, path)
    # If the inside does not matter, a way shows the element as a whole.
    done, kept = (each and Way(each.cost, (path,)) for each in (found.done, found.kept))
    if path in pattern.first:  # the element begins before everything inside it, and ends after it
        return _Ways(done, done, done, whole, whole, found.then, (found.then, found.then), found.avoids)
    if found.avoids:
        kept = found.kept
    if path in pattern.between:  # the element disarms if none of `first` was started since it began
        kept, found.avoids = found.armed, True
    if path in pattern.then:
        found.then, found.broken = whole, (found.broken[0], whole)
    return replace(found, done=done, kept=kept, fails=whole)


def _tried_again(ways: _Ways, path: str) -> tuple[Way | None, tuple[Way | None, Way | None]]:
    """Return `armed` and `broken` of an element that is tried again when it fails: it may fail right after it was armed."""
    again = ways.first and ways.first.then(_Via(path, "tried again"))
    if again is None:
        return ways.armed, ways.broken
    unarmed, armed = ways.broken
    return _shortest(ways.armed, again.then(ways.kept)), (_shortest(unarmed, again.then(armed)), armed)


def _through(edges: Sequence[Edge], prefix: str, pattern: Pattern, *, refused: bool = False) -> _Ways:
    """Return the ways through a strategy of these edges. The paths of inner elements begin with `prefix`.

    With `refused`, an answer may be refused, and a model be asked again: END leads to each node that asks one.
    """
    leaving: dict[Element | Start, list[Edge]] = defaultdict(list)
    for edge in edges:
        leaving[edge.source].append(edge)
    inside: dict[Element, _Ways] = {}
    asking = [each for each in leaving if isinstance(each, Node) and _asks(each)] if refused else []

    def search(armed: bool) -> tuple[dict[bool, Way], Way | None, Way | None, Way | None]:
        """Return the shortest ways to END, armed there or not, to one of `first`, to one of `then`, and until the rule is broken."""
        ends: dict[bool, Way] = {}
        first = then = broken = None
        order = itertools.count()
        waiting = [(0, next(order), edge.target, armed, Way(0, ())) for edge in leaving[START]]
        seen = set[tuple[Element | End, bool]]()
        while waiting:
            cost, _, at, armed, before = heapq.heappop(waiting)
            if (at, armed) in seen:
                continue
            seen.add((at, armed))
            following: list[tuple[Element | End, bool, Way]] = []
            if isinstance(at, End):
                ends[armed] = before
                again = Way(cost, (before, _Via("", "answer refused")))
                following = [(each, armed, again) for each in asking]
            else:
                if at not in inside:
                    inside[at] = _ways(at, f"{prefix}{at.name}", pattern)
                ways = inside[at]
                first = _shortest(first, before.then(ways.first))
                then = _shortest(then, before.then(ways.then))
                broken = _shortest(broken, before.then(ways.broken[armed]))
                following = [
                    (edge.target, then_armed, passed)
                    for edge in leaving[at]
                    for then_armed, way in _leaving(ways, armed, edge)
                    if (passed := before.then(way, _Via(f"{prefix}{at.name}", edge.label))) is not None
                ]
            for target, then_armed, way in following:
                if (target, then_armed) not in seen:
                    heapq.heappush(waiting, (way.cost, next(order), target, then_armed, way))
        return ends, first, then, broken

    unarmed_ends, first, then, broken = search(armed=False)
    armed_ends, _, _, broken_if_armed = search(armed=True)
    return _Ways(
        unarmed_ends.get(False), unarmed_ends.get(True), armed_ends.get(True), Way(0, ()), first, then, (broken, broken_if_armed),
        any(each.avoids for each in inside.values()),
    )  # fmt: skip


def _leaving(ways: _Ways, armed: bool, edge: Edge) -> list[tuple[bool, Way | None]]:
    """Return the ways through an element up to where an edge leaves it, each with whether the run is armed there."""
    if edge.outlet is not None and any(rule.error for rule in edge.outlet.rules):
        return [(True, ways.fails)] if armed else [(False, ways.fails), (True, ways.first)]
    return [(False, ways.done), (True, ways.kept if armed else ways.armed)]


def _asks(node: Node[Any, Any]) -> bool:
    """Return whether a run may return to a node when its answer is refused: it asks a model, and accepts text."""
    asks = node.asks_model or any(element.asks_model for _, element in walk(node, ""))
    return asks and _types.fits(str, node.input_type)


def _through_fork(fork: Each | Parallel | Race, path: str, pattern: Pattern) -> _Ways:
    """Return the ways through a fork. Its branches may be begun, and have their turns, in any order."""
    if isinstance(fork, Each):
        branches = [_ways(fork.branches[0], f"{path}/{fork.branches[0].name}", pattern)]
    else:
        branches = [_ways(each, f"{path}/{number}/{each.name}", pattern) for number, each in enumerate(fork.branches)]
    # Each branch that may start one of `first`, with each other one; of an `each`, for two items.
    pairs = [
        (one.first, other)
        for one in branches
        if one.first is not None
        for other in branches
        if other is not one or isinstance(fork, Each)
    ]
    # Where failures are collected, a branch may fail instead of coming to its end. A race waits for no branch that fails.
    failure = _Via("", "failure collected") if fork.failures == "collect" and not isinstance(fork, Race) else None
    arms = [_shortest(each.armed, each.first and each.first.then(failure)) for each in branches]
    done: Way | None
    kept: Way | None
    if isinstance(fork, Each):  # there may be no items
        done, kept = Way(0, ()), Way(0, (f"{path} (no items)",))
    elif isinstance(fork, Race):  # the others may be anywhere when one has won
        done, kept = _shortest(*(each.done for each in branches)), _shortest(*(each.kept for each in branches))
        arms += [won.done and Way(won.done.cost + first.cost, (first,)) for first, won in pairs]
    else:
        ends = [_shortest(each.done, each.fails.then(failure)) for each in branches]
        past = [_shortest(each.kept, each.fails.then(failure)) for each in branches]
        done, kept = _all(ends, shown=[False] * len(ends)), _all(past, shown=[each.avoids for each in branches])
        # The branch that arms comes to its end last, so that the elements of the others do not count.
        arms = [
            None if way is None or end is None or done is None else Way(way.cost + done.cost - end.cost, (way,))
            for way, end in zip(arms, ends, strict=True)
        ]
    armed = _shortest(*arms)
    both = [first.then(_MEANWHILE, other.then) for first, other in pairs]
    broken = _shortest(*(each.broken[0] for each in branches), *both)
    return _Ways(
        done,
        armed,
        _shortest(kept, armed),
        fails=Way(0, (path,)),
        first=_shortest(*(each.first for each in branches)),
        then=_shortest(*(each.then for each in branches)),
        broken=(broken, _shortest(broken, *(each.broken[1] for each in branches))),
        avoids=any(each.avoids for each in branches),
    )


# ---- the proof


def check_rules(
    edges: Sequence[Edge], rules: Sequence[PathRule], *, tried_again: bool = False, refused: bool = False,
    calls: Callable[[RuleNode], frozenset[str]] = _never,
) -> list[Problem]:  # fmt: skip
    """Return the problems of some rules, and for each rule that does not hold the shortest path that breaks it.

    Args:
        edges: The edges of the strategy.
        rules: The rules.
        tried_again: Whether the strategy is executed again as a whole when it fails.
        refused: Whether its answers may be refused, and a model be asked again.
        calls: Returns the paths of the nodes that may call a tool that executes something. Of other calls nothing is proven: they are
            checked as they begin.
    """
    if isinstance(rules, PathRule) or not all(isinstance(each, PathRule) for each in rules):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(
            "rules= is a list of rules, such as [precedes(approve, send)]; see precedes, never_together and guarded"
        )
    tops = dict.fromkeys(place for edge in edges for place in (edge.source, edge.target))
    places = [
        each
        for top in tops
        if not isinstance(top, Start | End)
        for each in ((top.name, top), *(walk(top, f"{top.name}/") if isinstance(top, Node) else ()))
    ]
    found: list[Problem] = []
    tools = dict.fromkeys(node for rule in rules for node in rule.nodes if is_tool(node))
    alike = next((one for one, other in itertools.combinations(tools, 2) if are_alike(one, other)), None)
    if alike is not None:
        found.append(Problem(alike.name, f"the rules name {ALIKE.format(alike.name)}"))
    for rule in rules:
        forbidden = patterns(rule, places, calls)
        if isinstance(forbidden, Problem):
            found.append(forbidden)
            continue
        if sum(map(is_tool, rule.nodes)) > 1:  # of two tools, a model decides which it calls first
            continue
        way = _shortest(*(shortest_break(edges, each, tried_again=tried_again, refused=refused) for each in forbidden))
        if way is not None:
            said = f"it breaks the rule {rule} on the path {way}: {_advice(rule)}"
            about = _about_calls(rule, calls, way.last) or _about_copy(rule, way.last)
            found.append(Problem(way.last, said + about))
    return found


def shortest_break(
    edges: Sequence[Edge], pattern: Pattern, *, tried_again: bool = False, refused: bool = False
) -> Way | None:
    """Return the shortest way that matches a forbidden pattern."""
    ways = _through(edges, "", pattern, refused=refused)
    broken = _tried_again(ways, "")[1] if tried_again else ways.broken
    return Way(0, ("START",)).then(broken[pattern.at_start])


def _about_calls(rule: PathRule, calls: Callable[[RuleNode], frozenset[str]], path: str) -> str:
    said = ((node, calls(node)) for node in rule.nodes if not isinstance(node, str))
    return "".join(
        f"; a model may call {node.name!r} in {', '.join(map(repr, sorted(places)))}"
        for node, places in said
        if places and (is_tool(node) or path in places)
    )


def _about_copy(rule: PathRule, path: str) -> str:
    if {path, *path.split("/")} & {name_of(node) for node in rule.nodes}:
        return ""
    return (
        f"; {path!r} executes an element of the rule, and counts as that element; a path as text names one place alone"
    )


def _advice(rule: PathRule) -> str:
    if rule.kind != "never_together":
        where = "first" if rule.kind == "precedes" else "in between"
        return f"{reason(rule, name_of(rule.nodes[0]))}; lead the path through it {where}, or change the rule"
    return "one run executes both; choose one of them with outlets such as .on(…) and .when(…), or change the rule"
