"""Which nodes a run executed, and which ways it took."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from graphagent.events import NodeStarted, PathTaken, RunStarted

if TYPE_CHECKING:
    from graphagent.agent import Agent


@dataclass(slots=True)
class Taken:
    """What the last run of an agent did, in order; branches as they happened."""

    nodes: list[str] = field(default_factory=list[str])
    """The paths of the nodes that were executed, such as `ask` or `count/words`."""
    paths: list[tuple[str, str, str]] = field(default_factory=list[tuple[str, str, str]])
    """Each choice of an edge: the node, the edge as it is drawn, the name of the next node."""


def record(agent: Agent[Any, Any]) -> Taken:
    """Record what the runs of an agent do; each run replaces the record of the last.

    ```text
    taken = record(agent)
    await agent.run("abc")
    assert taken.nodes == ["read", "upper"]
    ```
    """
    taken = Taken()

    def begin(_: RunStarted) -> None:
        taken.nodes.clear()
        taken.paths.clear()

    agent.on(RunStarted, begin)
    agent.on(NodeStarted, lambda event: taken.nodes.append(event.node))
    agent.on(PathTaken, lambda event: taken.paths.append((event.node, event.path, event.target)))
    return taken
