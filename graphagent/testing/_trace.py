"""Which nodes a run executed, which ways it took, and whether it kept its rules."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from types import EllipsisType
from typing import TYPE_CHECKING, Any

from graphagent.events import (
    NodeFailed,
    NodeFinished,
    NodeStarted,
    PathTaken,
    RunFailed,
    RunFinished,
    RunResumed,
    RunStarted,
    RunSuspended,
)
from graphagent.graph import START, BrokenRule
from graphagent.graph._rules import is_tool
from graphagent.log._executed import Executed
from graphagent.log._visits import TASK, UNSET, Visit

if TYPE_CHECKING:
    from graphagent._agent import Agent
    from graphagent.graph import PathRule, Strategy
    from graphagent.log._executed import RuleScope
    from graphagent.run._ruled import ScopeRules


@dataclass(slots=True)
class Trace:
    """What the last run of an agent did, in order; branches as they happened. The runs of sub-agents are not part of it."""

    nodes: list[str] = field(default_factory=list[str])
    """The paths of the nodes that were executed, such as `ask` or `count/words`."""
    paths: list[tuple[str, str, str]] = field(default_factory=list[tuple[str, str, str]])
    """Each choice of an edge: the node, the edge as it is drawn, the name of the next node."""
    events: list[NodeStarted | NodeFinished | NodeFailed] = field(
        default_factory=list[NodeStarted | NodeFinished | NodeFailed], repr=False
    )
    """When nodes were begun, came to their end, and failed."""
    _strategy: Strategy[Any, Any] | None = field(default=None, repr=False, compare=False)

    def assert_path(self, *nodes: str | EllipsisType) -> None:
        """Check that the run executed these nodes, in this order, and no others; `...` fits any number of nodes, also none.

        Raises:
            AssertionError: it took another path; the text shows where they differ.
        """
        if _fits(nodes, self.nodes):
            return
        expected = ["..." if each is ... else str(each) for each in nodes]
        changes = [line for line in difflib.ndiff(expected, self.nodes) if not line.startswith("?")]
        raise AssertionError("\n".join(["the run took another path (- expected, + taken):", *changes]))

    def assert_visited(self, *nodes: str) -> None:
        """Check that the run executed each of these nodes at least once.

        Raises:
            AssertionError: it did not; the text names those, and the nodes that were executed.
        """
        missing = [each for each in nodes if each not in self.nodes]
        if missing:
            raise AssertionError(
                f"the run did not execute {', '.join(map(repr, missing))}, but {', '.join(map(repr, self.nodes)) or 'nothing'}"
            )

    def assert_edges(self, *edges: tuple[str, str]) -> None:
        """Check which choices the run made: each a node that had one, and the name of the node that came next, or `END`.

        Raises:
            AssertionError: it made others; the text shows where they differ.
        """
        taken = [f"{node} -> {target}" for node, _, target in self.paths]
        expected = [f"{node} -> {target}" for node, target in edges]
        if taken != expected:
            changes = [line for line in difflib.ndiff(expected, taken) if not line.startswith("?")]
            raise AssertionError("\n".join(["the run took other edges (- expected, + taken):", *changes]))

    def broken_rules(self, rules: Sequence[PathRule] | None = None) -> list[BrokenRule]:
        """Return where the run broke rules over paths, each with its index in `nodes`; none if it kept all of them.

        Args:
            rules: The rules; None means those of the agent's strategy, which no run of it can break.

        Raises:
            StrategyError: a rule names a node that is not in the strategy.
            ValueError: this is not the record of an agent, or a rule in `rules` names a tool, whose calls are not recorded here.
        """
        from graphagent.graph.rules._proof import check_named
        from graphagent.run._ruled import scopes_of

        if self._strategy is None:
            raise ValueError("this Trace is not the record of an agent; make it with record(agent)")
        tools = [rule for rule in rules or () if any(map(is_tool, rule.nodes))]
        if tools:
            raise ValueError(
                f"{tools[0]} is about a tool; check the stored run: await broken_rules(store, run_id, strategy, rules=[…])"
            )
        own = [rule for rule in self._strategy.path_rules if not any(map(is_tool, rule.nodes))]
        check_named(self._strategy, own if rules is None else rules)
        run, begun = _Heard(self._strategy, scopes_of(self._strategy, {"": own if rules is None else rules})[""]), 0
        for event in self.events:
            run.hear(event, begun)
            begun += isinstance(event, NodeStarted)
        return run.broken


_WHOLE: RuleScope = ("", 0)


class _Heard:
    """What a run executed, as far as its events say it. They do not say that the strategy of an agent is tried again as a whole."""

    def __init__(self, strategy: Strategy[Any, Any], rules: ScopeRules) -> None:
        self._visits: dict[str, Visit] = {}
        """The visits of frames, by the paths of these. One that has ended is at no node, since that entry."""
        self._executed = Executed(self._visits.get)
        self._elements, self._rules = dict(strategy.walk()), rules
        self._find = cache(strategy.outline.find)
        self._names: dict[str, tuple[str, ...]] = {}
        self._number = 0
        self.broken: list[BrokenRule] = []
        """The nodes that were executed against a rule, in their order."""

    def hear(self, event: NodeStarted | NodeFinished | NodeFailed, index: int) -> None:
        """Note what an event says; `index` is that of a node that it starts."""
        self._number = number = self._number + 1
        executed, node = self._executed, event.node
        at, name = _place(node)
        place, element = self._find(node)
        if at not in self._visits:
            self._enter(at)
        visit, inside = self._visits[at], [each for each in self._visits if each != at and each.startswith(at)]
        if isinstance(event, NodeStarted):
            visit = self._visits[at] = Visit(name, UNSET, TASK, number, number, number)
            names = self._names[node] = self._rules.names(place, self._elements[place].declaration)
            for rule, after in self._rules.broken(names, executed.standing(_WHOLE, number)):
                self.broken.append(BrokenRule(rule, node, after or START.name, index))
            for name_in_rules in names:
                executed.begin(_WHOLE, name_in_rules, node, at, visit, number)
        elif isinstance(event, NodeFailed):
            visit.node = name if element.retried else ""  # it may be tried again
        elif visit.node == name:
            if element.kind == "race":
                branches = {each: self._visits[each] for each in inside if each.count("/") == node.count("/") + 2}
                won = min((each.entered for each in branches.values() if each.outcome), default=0)
                lost = (each for each, branch in branches.items() if not branch.outcome or branch.entered != won)
                executed.take_back([(each, visit.entered) for each in lost])
            for name_in_rules in self._names[node]:
                executed.end(_WHOLE, name_in_rules, node, number)
            self._visits[at] = Visit("", UNSET, TASK, number, number, number, outcome="ended")
        for each in inside:  # what was inside it is over
            del self._visits[each]

    def _enter(self, path: str) -> None:
        """Add a frame. If it is the first one inside a node, what earlier attempts of that had executed is taken back."""
        for node in (path[:-1], path[:-1].rpartition("/")[0]) if path else ():  # a subgraph, or a fork with a branch
            at, name = _place(node)
            outer = self._visits.get(at)
            if (
                outer is not None
                and outer.node == name
                and not any(each.startswith(f"{node}/") for each in self._visits)
            ):
                self._executed.take_back([(f"{node}/", outer.entered)])
        self._visits[path] = Visit("", UNSET, TASK, self._number, self._number, self._number)


def _place(node: str) -> tuple[str, str]:
    """Return the path of the frame of a node, and its name."""
    at, _, name = node.rpartition("/")
    return f"{at}/" if at else "", name


def record(agent: Agent[Any, Any]) -> Trace:
    """Record what the runs of an agent do; each run replaces the record of the last.

    ```text
    taken = record(agent)
    await agent.run("abc")
    taken.assert_path("read", "upper")
    ```
    """
    taken = Trace(_strategy=agent.strategy)
    recorded, running = "", False

    def begin(event: RunStarted | RunResumed) -> None:
        nonlocal recorded, running
        if running and event.run_id.startswith(f"{recorded}/"):
            return  # a sub-agent's
        if isinstance(event, RunStarted) or event.run_id != recorded:
            for each in (taken.nodes, taken.paths, taken.events):
                each.clear()
        recorded, running = event.run_id, True

    def end(event: RunFinished | RunFailed | RunSuspended) -> None:
        nonlocal running
        running = running and event.run_id != recorded

    def note(event: NodeStarted | NodeFinished | NodeFailed) -> None:
        if event.run_id == recorded:
            taken.events.append(event)
            if isinstance(event, NodeStarted):
                taken.nodes.append(event.node)

    def choose(event: PathTaken) -> None:
        if event.run_id == recorded:
            taken.paths.append((event.node, event.path, event.target))

    agent.on(RunStarted, begin)
    agent.on(RunResumed, begin)
    agent.on(RunFinished, end)
    agent.on(RunFailed, end)
    agent.on(RunSuspended, end)
    agent.on(NodeStarted, note)
    agent.on(NodeFinished, note)
    agent.on(NodeFailed, note)
    agent.on(PathTaken, choose)
    return taken


def _fits(pattern: Sequence[str | EllipsisType], nodes: Sequence[str]) -> bool:
    """Return whether nodes fit a pattern, in which `...` is any number of them."""
    reached = {0}
    for each in pattern:
        if each is ...:
            reached = set(range(min(reached), len(nodes) + 1)) if reached else reached
        else:
            reached = {at + 1 for at in reached if at < len(nodes) and nodes[at] == each}
    return len(nodes) in reached
