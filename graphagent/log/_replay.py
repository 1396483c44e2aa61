"""What a run executed, replayed by whoever reads its log: also of things that no rule named then, so that it was not noted.

The log has for each node when it began and ended. Of that follows the same as in a run that notes it: `_executed.py` says what.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from graphagent.log._entries import EffectRecorded, NodeFinished, NodeSkipped
from graphagent.log._executed import began, ended, never_began, take_back

if TYPE_CHECKING:
    from graphagent.log._entries import Entry
    from graphagent.log._state import Executions, Frame, Scope, State


class Replay:
    """Follows a run while its log is read. Items of an `each` begin with their first entry."""

    def __init__(self) -> None:
        self.executed: dict[Scope, dict[str, Executions]] = {}
        """As that of a state."""
        self.frames: dict[str, Frame] = {}
        self.number = 0
        self._names: dict[str, list[tuple[Scope, str]]] = {}
        """The names of nodes that have begun, by their paths."""
        self._at = ""
        """The frame of the last entry."""
        self._items = set[str]()
        """The frames of items that have no entry yet."""

    def begins(self, frame: Frame, number: int, tool: str = "") -> list[tuple[Scope, str]]:
        """Return what is noted of the node of a frame, or of a tool that it calls, which begins with an entry: its names."""
        raise NotImplementedError

    def never_began(self, frame: Frame) -> None:
        """Note that middleware did not execute the node of a frame."""
        for scope, name in self._names.pop(frame.node_path, ()):
            never_began(self, scope, name, frame.node_path)

    def watch(self, entry: Entry, number: int, state: State, row: bytes, place: int) -> None:
        """Note what an entry says, before it is applied."""
        self._follow(state)
        frame = state.frames.get(entry.at)
        item = frame if self._items else None
        while item is not None:
            if item.path in self._items:
                self._begin(item, number)
            item = item.parent
        if frame is None or not frame.node:
            pass
        elif isinstance(entry, NodeFinished) and entry.error is None:
            for scope, name in self._names.pop(frame.node_path, ()):
                ended(self, scope, name, frame.node_path)
        elif isinstance(entry, NodeSkipped):
            self.never_began(frame)
        elif isinstance(entry, EffectRecorded) and entry.kind == "tool":
            path = f"{frame.node_path}:{entry.key}"
            for scope, name in self.begins(frame, number, entry.held.value.name):
                began(self, scope, name, path, frame)
                if not entry.held.value.is_error:
                    ended(self, scope, name, path)
        if self.executed:
            take_back(self, entry.takes_back(state))
        self._at = entry.at

    def end(self, state: State) -> None:
        """Note what the last entry led to, and all that may have begun."""
        self._follow(state)
        for each in [state.frames[path] for path in self._items if path in state.frames]:
            self._begin(each, state.number)

    def _follow(self, state: State) -> None:
        """Note what the last entry led to: the next node, and what is inside the current one."""
        self.frames, self.number = state.frames, state.number
        frame = state.frames.get(self._at)
        if frame is None:
            return
        if frame.entered == state.number:
            self._begin(frame, state.number)
        for each in [each for inside in frame.inside.values() for each in inside if each.born == state.number]:
            if each.owns and each.activation is None and _is_each(frame):
                self._items.add(each.path)
            else:
                self._begin(each, state.number)

    def _begin(self, frame: Frame, number: int) -> None:
        self._items.discard(frame.path)
        if frame.node:
            names = self._names[frame.node_path] = self.begins(frame, number)
            for scope, name in names:
                began(self, scope, name, frame.node_path, frame)


def _is_each(frame: Frame) -> bool:
    strategy, path = frame.agent.strategy, frame.node_path[len(frame.agent.frame.path) :]
    return strategy is not None and strategy.find(path)[1].kind == "each"
