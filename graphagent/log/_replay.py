"""What a run executed, replayed by whoever reads its log: for rules that are newer than the run, or are checked after it.

The log has for each node, and each call of a tool, when it began and ended. Of that follows the same as while the run is executed:
`_executed.py` says what.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from graphagent.log._entries import AgentStarted, AgentStopped, EffectRecorded, EffectStarted
from graphagent.log._executed import Executed, continues, name_of_agent, name_of_tool

if TYPE_CHECKING:
    from collections.abc import Callable

    from graphagent.log._executed import RuleScope
    from graphagent.log._log import Applied
    from graphagent.log._state import State
    from graphagent.log._visits import Frame, Visit


class Begun(NamedTuple):
    """Something that begins: a node, a call of a tool, or the run of an agent."""

    frame: Frame
    """The frame whose node it is, or whose node calls it."""
    visit: Visit
    """The visit of that node."""
    path: str
    """Its path."""
    number: int
    """The entry that led to it, or that it made first."""
    last: int
    """The last entry before it did anything."""
    known_as: frozenset[str] = frozenset()
    """The names by which the log knows a tool or an agent; none for a node."""
    called: str = ""
    """How the tool or the agent is called; empty for a node."""
    within: tuple[tuple[RuleScope, str], ...] = ()
    """What the node, or the call of a tool that runs the agent, is noted as: the agent is a part of that."""


class Replay:
    """Follows a run while its log is read. Items of an `each` begin with their first entry.

    Args:
        names: Returns the names under which something is noted that begins.
        skipped: Called with the visit of a node that began, and that middleware did not execute.
    """

    def __init__(
        self,
        names: Callable[[Executed, Begun], list[tuple[RuleScope, str]]],
        skipped: Callable[[str, Visit], None] | None = None,
    ) -> None:
        self.executed: Executed | None = None
        """None before the first entry."""
        self._names_of = names
        self._skipped = skipped
        self._names: dict[str, list[tuple[RuleScope, str]]] = {}
        """The names of what has begun, by its path."""
        self._begun: dict[str, int] = {}
        """The entries with which that began."""
        self._items = set[str]()
        """The frames of items that have no entry yet."""

    def watch(self, applied: Applied) -> None:
        """Note what follows from an entry."""
        entry, number, frame, visit = applied.entry, applied.number, applied.frame, applied.visit
        if self.executed is None:
            self.executed = Executed(applied.state.visit_at)
        item = frame if self._items else None
        while item is not None:
            if item.path in self._items:
                self._begin_node(item, visit if item is frame and visit is not None else item.visit, number, number - 1)
            item = item.parent
        if frame is not None and visit is not None and visit.node:
            path = frame.path + visit.node
            if visit is not frame.visit:
                self._leave(path, visit, number - 1)
            elif isinstance(entry, EffectStarted) and entry.tool:
                known_as = frozenset((name_of_tool(entry.tool), *entry.ruled))
                self._begin(Begun(frame, visit, f"{path}:{entry.key}", number, number - 1, known_as, entry.tool))
            elif isinstance(entry, EffectRecorded) and entry.kind == "tool" and entry.is_ended:
                self._end(f"{path}:{entry.key}", number - 1)
            elif isinstance(entry, AgentStarted):
                known_as = frozenset({name_of_agent(entry.name), entry.declared.get("", "")} - {""})
                path, within = f"{path}/{entry.name}/{number}", self._within(path, entry.key)
                self._begin(Begun(frame, visit, path, number, number - 1, known_as, entry.name, within))
        if isinstance(entry, AgentStopped) and entry.status == "done":
            self._end(entry.at.rstrip("/"), number - 1)
        if self.executed.scopes and frame is not None and visit is not None:
            self.executed.take_back(entry.takes_back(frame, visit))
        for each in applied.begun:
            if each.owns and each.activation is None and each.parent is not None and _is_each(each.parent):
                self._items.add(each.path)
            else:
                self._begin_node(each, each.visit, number, number)

    def begin_items(self, state: State) -> None:
        """Note that the items that have no entry have begun, as they may have."""
        for each in [state.frames[path] for path in self._items if path in state.frames]:
            self._begin_node(each, each.visit, state.number, state.number)

    def _begin_node(self, frame: Frame, visit: Visit, number: int, last: int) -> None:
        self._items.discard(frame.path)
        if visit.node:
            self._begin(Begun(frame, visit, frame.path + visit.node, number, last))

    def _within(self, node: str, key: str) -> tuple[tuple[RuleScope, str], ...]:
        """Return what a node is noted as, and the calls in which an agent begins under a key."""
        at = f"{node}:{key}"
        around = (path for path in self._names if path == node or at.startswith(f"{path}/"))
        return tuple(each for path in around for each in self._names[path])

    def _begin(self, begun: Begun) -> None:
        frame, visit, path = begun.frame, begun.visit, begun.path
        if continues(self._begun.get(path, 0), path == frame.path + (visit.node or ""), visit):
            return  # a call that waited with the run
        assert self.executed is not None
        self._begun[path] = begun.last
        names = self._names[path] = self._names_of(self.executed, begun)
        for scope, name in names:
            self.executed.begin(scope, name, path, frame.path, visit, begun.last)

    def _leave(self, path: str, visit: Visit, last: int) -> None:
        """Note that a node was left. It may have been skipped, or have failed though middleware made something of that."""
        if visit.outcome == "ended":
            self._end(path, last)
        elif visit.outcome == "skipped":
            assert self.executed is not None
            for scope, name in self._names.pop(path, ()):
                self.executed.cancel(scope, name, path)
            if self._skipped is not None:
                self._skipped(path, visit)

    def _end(self, path: str, last: int) -> None:
        assert self.executed is not None
        self._begun.pop(path, None)
        for scope, name in self._names.pop(path, ()):
            self.executed.end(scope, name, path, last)


def _is_each(frame: Frame) -> bool:
    strategy, path = frame.agent.strategy, frame.node_path[len(frame.agent.frame.path) :]
    return strategy is not None and strategy.find(path)[1].kind == "each"
