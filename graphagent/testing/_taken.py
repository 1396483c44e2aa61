"""Which nodes a run executed, which ways it took, and whether it kept its rules."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass, field
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

if TYPE_CHECKING:
    from graphagent._agent import Agent
    from graphagent.graph import BrokenRule, PathRule, Strategy


@dataclass(slots=True)
class Taken:
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
            ValueError: this is not the record of an agent.
        """
        from graphagent.graph.rules._internal import RunWatch

        if self._strategy is None:
            raise ValueError("this Taken is not the record of an agent; make it with record(agent)")
        watch = RunWatch(self._strategy, self._strategy.path_rules if rules is None else rules)
        begun = 0
        for event in self.events:
            if isinstance(event, NodeStarted):
                watch.begun(event.node, begun)
                begun += 1
            elif isinstance(event, NodeFinished):
                watch.ended(event.node)
            else:
                watch.failed(event.node)
        return watch.broken


def record(agent: Agent[Any, Any]) -> Taken:
    """Record what the runs of an agent do; each run replaces the record of the last.

    ```text
    taken = record(agent)
    await agent.run("abc")
    taken.assert_path("read", "upper")
    ```
    """
    taken = Taken(_strategy=agent.strategy)
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
