"""What a stored run has executed of something that its log does not note, since no rule named it then.

The log has for each node where it is declared, and when it began and ended. So a run can be continued under rules that are newer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from graphagent.log._internal import (
    BranchesJoined,
    BranchFailed,
    EffectRecorded,
    Executions,
    NodeFinished,
    NodeRetried,
    NodeSkipped,
    Placed,
    Started,
    scope_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from graphagent.graph import Outline
    from graphagent.llm import ToolResult
    from graphagent.log._internal import Activation, Entry, Frame, State


@dataclass(slots=True)
class _Past:
    """Something that was executed."""

    path: str
    place: str
    """The path in the strategy; empty in a sub-agent, and for a tool call."""
    name: str
    """The name of its declaration."""
    begun: int
    over: int
    """The last entry before it was over; 0 if it is not."""
    ended: bool
    """Whether it came to its end, and that was not taken back."""


class Past:
    """Collects what a run executed while its log is read."""

    def __init__(self) -> None:
        self._found: list[_Past] = []
        self._skipped = set[tuple[str, int]]()
        self._places: dict[tuple[str, str], str] = {}

    def watch(self, entry: Entry, number: int, state: State, row: bytes, place: int) -> None:
        """Note what an entry says, before it is applied."""
        frame, over = state.frames.get(entry.at), number - 1  # what this entry leads to begins with it
        if isinstance(entry, Started):
            self._found.clear()
        elif frame is None:
            return
        elif isinstance(entry, NodeSkipped):
            self._skipped.add((frame.path, frame.entered))
        elif isinstance(entry, EffectRecorded) and entry.kind == "tool":
            result: ToolResult = entry.held.value
            path = f"{frame.node_path}:{entry.key}"
            self._found.append(_Past(path, "", f"tool {result.name}", number, number, not result.is_error))
        elif isinstance(entry, NodeRetried):
            self._left(frame.frames() if entry.first else _inside(frame), over)
            around, since = (frame.path, frame.born) if entry.first else (f"{frame.node_path}/", frame.since)
            self._take_back(around, since)
        elif isinstance(entry, BranchesJoined) and entry.winner is not None:
            for branch in [each for at, each in enumerate(frame.inside.get("branches", ())) if at != entry.winner]:
                self._left(branch.frames(), over)
                self._take_back(branch.path, branch.born)
        elif isinstance(entry, NodeFinished | BranchFailed | Placed):
            self._left(_inside(frame), over)
            self._note(frame, over, ended=isinstance(entry, NodeFinished) and entry.error is None)

    def _note(self, frame: Frame, over: int, *, ended: bool) -> None:
        if frame.node and (frame.path, frame.entered) not in self._skipped:
            agent = frame.agent
            place, name = self._place(frame, agent)
            place = place if agent.parent is None else ""
            self._found.append(_Past(frame.node_path, place, name, frame.entered, over, ended))

    def _left(self, frames: Iterable[Frame], over: int) -> None:
        for frame in frames:
            self._note(frame, over, ended=False)

    def _take_back(self, around: str, since: int) -> None:
        for each in self._found:
            if each.begun >= since and each.path.startswith(around):
                each.ended = False

    def _place(self, frame: Frame, agent: Activation) -> tuple[str, str]:
        """Return the path of the current node of a frame in its strategy, and the name of its declaration."""
        path = frame.node_path[len(agent.frame.path) :]
        key = (agent.path, path)
        if key not in self._places:
            self._places[key] = place_of(agent.strategy, path)
        place = self._places[key]
        return place, agent.declared.get(place, "")

    def executions(self, state: State, wanted: Iterable[tuple[str, str]]) -> Iterator[tuple[str, str, Executions]]:
        """Yield what was executed of things that rules name, each with the path of the frame of the strategy that has the rules.

        Args:
            state: The state at the end.
            wanted: The names of the things, each with the path of that strategy.
        """
        for around, name in wanted:
            for frame in [*state.frames.values()]:
                agent = frame.agent
                if agent.parent is None and place_of(agent.strategy, frame.path.rstrip("/")) == around:
                    found = self._of(frame, around, name)
                    if found.begun:
                        yield frame.path, name, found

    def _of(self, frame: Frame, around: str, name: str) -> Executions:
        place, since, found = f"{around}/{name[1:]}".lstrip("/"), scope_of(frame)[1], Executions()
        open_ = Past()
        open_._left((each for each in frame.frames() if each is not frame or each.node), 0)
        for each in (*self._found, *open_._found):
            is_it = each.place == place if name.startswith("/") else each.name == name
            if not is_it or each.begun < since or not each.path.startswith(frame.path):
                continue
            if each.begun >= found.begun:
                found.begun, found.node = each.begun, each.path
            found.over = max(found.over, each.over)
            if not each.over:
                at, _, node = each.path.rpartition("/")
                found.running[each.path] = f"{at}/" if at else "", node, each.begun
            if each.ended:
                first, last = found.ended.get(each.path, (each.begun, each.begun))
                found.ended[each.path] = min(first, each.begun), max(last, each.begun)
        return found


def _inside(frame: Frame) -> Iterator[Frame]:
    return (each for each in frame.frames() if each is not frame)


def place_of(strategy: Outline | None, path: str) -> str:
    """Return the path in a strategy of what is at a path in a run; `?` if there is nothing."""
    try:
        return strategy.find(path)[0] if strategy is not None else "?"
    except LookupError:
        return "?"


def new_rules(
    ruled: tuple[tuple[str, str], ...], declared: Mapping[str, str], state: State, past: Past | None
) -> dict[str, Any]:
    """Return the fields of the entry `resumed` that are about rules: what the log did not note so far, and notes from now on.

    Args:
        ruled: What rules name now.
        declared: The names of the declarations of the strategy as it is now.
        state: The state of the run.
        past: What the run executed; None if no rule names anything.
    """
    run = state.run
    missing = [each for each in ruled if each not in run.ruled]
    return {
        "declared": dict(declared) if dict(declared) != run.declared else None,
        "ruled": ruled if ruled != run.ruled else None,
        "executed": tuple(past.executions(state, missing)) if past is not None else (),
    }
