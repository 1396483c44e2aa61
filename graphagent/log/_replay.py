"""What a run executed, replayed by whoever reads its log: also of things that no rule named then, so that it was not noted.

The log has for each node, and each call of a tool, when it began and ended. Of that follows the same as in a run that notes it:
`_executed.py` says what.
"""

from __future__ import annotations

from itertools import takewhile
from typing import TYPE_CHECKING, NamedTuple

from graphagent.log._entries import (
    AgentStarted,
    AgentStopped,
    BranchesStarted,
    EffectRecorded,
    EffectStarted,
    NodeFinished,
    NodeSkipped,
)
from graphagent.log._executed import began, continues, ended, name_of_agent, name_of_tool, never_began, take_back

if TYPE_CHECKING:
    from collections.abc import Callable

    from graphagent.log._entries import Entry
    from graphagent.log._state import Occurrences, RuleScope, State
    from graphagent.log._visits import Frame


class Called(NamedTuple):
    """A tool that a node calls, or an agent that it runs."""

    name: str
    """How it is called."""
    known_as: frozenset[str]
    """The names by which the log knows it."""
    within: tuple[tuple[RuleScope, str], ...] = ()
    """What the node, or the call of a tool that runs the agent, is noted as: the agent is a part of that."""


class Replay:
    """Follows a run while its log is read. Items of an `each` begin with their first entry.

    Args:
        names: Returns the names under which something is noted that begins with an entry of some number: the node of a frame, or
            what it calls.
        skipped: Called with the frame of a node that began, and that middleware did not execute.
    """

    def __init__(
        self,
        names: Callable[[Replay, Frame, int, Called | None], list[tuple[RuleScope, str]]],
        skipped: Callable[[Frame], None] | None = None,
    ) -> None:
        self.executed: dict[RuleScope, dict[str, Occurrences]] = {}
        """As that of a state."""
        self.frames: dict[str, Frame] = {}
        self.number = 0
        self._names_of = names
        self._skipped = skipped
        self._names: dict[str, list[tuple[RuleScope, str]]] = {}
        """The names of what has begun, by its path."""
        self._begun: dict[str, int] = {}
        """The entries with which that began."""
        self._at, self._key = "", ""
        """The frame of the last entry, and under which key that put frames into it."""
        self._items = set[str]()
        """The frames of items that have no entry yet."""

    def watch(self, entry: Entry, number: int, state: State, row: bytes, place: int) -> None:
        """Note what an entry says, before it is applied."""
        self._follow(state)
        frame = state.frames.get(entry.at)
        item = frame if self._items else None
        while item is not None:
            if item.path in self._items:
                self._begin_node(item, number)
            item = item.parent
        if isinstance(entry, AgentStopped):
            if entry.status == "done":
                self._end(entry.at.rstrip("/"))
        elif frame is None or not frame.visit.node:
            pass
        elif isinstance(entry, NodeFinished) and entry.error is None:
            self._end(frame.node_path)
        elif isinstance(entry, NodeSkipped):
            names = self._names.pop(frame.node_path, ())
            for scope, name in () if entry.failed else names:
                never_began(self, scope, name, frame.node_path)
            if self._skipped is not None and not entry.failed:
                self._skipped(frame)
        elif isinstance(entry, EffectStarted) and entry.tool:
            called = Called(entry.tool, frozenset([name_of_tool(entry.tool)]))
            self._begin(f"{frame.node_path}:{entry.key}", frame, number, called)
        elif isinstance(entry, EffectRecorded) and entry.kind == "tool" and entry.is_ended:
            self._end(f"{frame.node_path}:{entry.key}")
        elif isinstance(entry, AgentStarted):
            known_as = {name_of_agent(entry.name), entry.declared.get("", "")} - {""}
            called = Called(entry.name, frozenset(known_as), self._within(frame, entry.key))
            self._begin(f"{frame.node_path}/{entry.name}/{number}", frame, number, called)
        if self.executed:
            take_back(self, entry.takes_back(state))
        self._at, self._key = entry.at, _key_of(entry)

    def end(self, state: State) -> None:
        """Note what the last entry led to, and all that may have begun."""
        self._follow(state)
        for each in [state.frames[path] for path in self._items if path in state.frames]:
            self._begin_node(each, state.number)

    def _follow(self, state: State) -> None:
        """Note what the last entry led to: the next node, and the frames inside the current one."""
        self.frames, self.number = state.frames, state.number
        frame = state.frames.get(self._at)
        if frame is None:
            return
        if frame.visit.entered == state.number:
            self._begin_node(frame, state.number)
        inside = frame.visit.inside.get(self._key, ())
        for each in [*takewhile(lambda each: each.born == state.number, reversed(inside))][::-1]:
            if each.owns and each.activation is None and _is_each(frame):
                self._items.add(each.path)
            else:
                self._begin_node(each, state.number)

    def _begin_node(self, frame: Frame, number: int) -> None:
        self._items.discard(frame.path)
        if frame.visit.node:
            self._begin(frame.node_path, frame, number)

    def _within(self, frame: Frame, key: str) -> tuple[tuple[RuleScope, str], ...]:
        """Return what the node is noted as, and the calls in which an agent begins under a key."""
        at = f"{frame.node_path}:{key}"
        around = (path for path in self._names if path == frame.node_path or at.startswith(f"{path}/"))
        return tuple(each for path in around for each in self._names[path])

    def _begin(self, path: str, frame: Frame, number: int, called: Called | None = None) -> None:
        if continues(self._begun.get(path, 0), path, frame):  # a call that waited with the run
            return
        self._begun[path] = self.number
        names = self._names[path] = self._names_of(self, frame, number, called)
        for scope, name in names:
            began(self, scope, name, path, frame)

    def _end(self, path: str) -> None:
        self._begun.pop(path, None)
        for scope, name in self._names.pop(path, ()):
            ended(self, scope, name, path)


def _key_of(entry: Entry) -> str:
    """Return the key under which an entry puts frames into the one that it belongs to; empty if it puts none there."""
    if isinstance(entry, AgentStarted):
        return f"agent {entry.key}"
    return "branches" if isinstance(entry, BranchesStarted) else ""


def _is_each(frame: Frame) -> bool:
    strategy, path = frame.agent.strategy, frame.node_path[len(frame.agent.frame.path) :]
    return strategy is not None and strategy.find(path)[1].kind == "each"
