"""What a run did when, as spans of time: the executions of nodes, and the model turns, tool calls and waits in them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from graphagent.llm import ToolResult

if TYPE_CHECKING:
    from graphagent.history import Entry

SpanKind: TypeAlias = Literal["node", "model", "tool", "person", "sleep"]
_EFFECTS: dict[str, SpanKind] = {
    "turn": "model",
    "decision": "model",
    "tool": "tool",
    "answer": "person",
    "sleep": "sleep",
}
"""The kinds of effects that take time, and those of their spans."""
_ATTEMPTS = ("retried", "failed", "branch failed")
"""The kinds of entries with which an attempt of a node fails."""
WAITS = ("person", "sleep")


@dataclass(frozen=True, slots=True)
class Span:
    """Something that took time."""

    kind: SpanKind
    path: str
    """The path of the node."""
    label: str
    began: int
    """In milliseconds UTC."""
    ended: int
    entry: int
    """The number of the entry that ended it; 0 where it has not ended."""
    problem: str = ""
    """The type of the error with which it failed, or another word for what went wrong."""
    inside: int = 0
    """How many spans are inside of it."""

    @property
    def depth(self) -> int:
        """How many strategies, forks and nodes it is inside of."""
        return self.path.count("/") + (self.kind != "node")

    @property
    def seconds(self) -> float:
        """How long it took."""
        return (self.ended - self.began) / 1000


@dataclass(slots=True)
class _Open:
    """A node that is being executed."""

    began: int
    latest: int
    """When something in it ended last."""
    inside: int = 0
    asked: int = 0
    """When it asked a person."""


class _Spans:
    def __init__(self) -> None:
        self.found: list[Span] = []
        self._open: dict[str, _Open] = {}

    def add(self, entry: Entry) -> None:
        """Note what an entry ended and began."""
        where, now = entry.where, entry.at
        visit = self._open.get(where)
        if entry.kind == "asked" and visit is not None:
            visit.asked = now
        elif entry.kind == "effect" and (kind := _EFFECTS.get(entry.data.get("kind", ""))) is not None:
            self._effect(entry, kind, visit)
        elif entry.kind in _ATTEMPTS and entry.error is not None:
            self._close(where, entry, entry.error[0])
            if entry.kind == "retried":
                self._open[where] = _Open(now, now)
        if entry.node is not None:
            self._close(entry.node, entry, "" if entry.error is None else entry.error[0])
        elif entry.kind == "finished" and entry.error is not None:
            self._close(where, entry, entry.error[0])
        for path in entry.begins:
            if path:
                self._open[path] = _Open(now, now)

    def end(self, now: int) -> list[Span]:
        """Return all spans, those that are open until a time, in the order in which they began."""
        for path, visit in self._open.items():
            if visit.asked:
                self.found.append(Span("person", path, "waits for an answer", visit.asked, now, 0))
                visit.inside += 1
            self.found.append(Span("node", path, _name(path), visit.began, now, 0, inside=visit.inside))
        return sorted(self.found, key=lambda span: (span.began, span.depth, span.kind != "node", -span.ended))

    def _close(self, path: str, entry: Entry, problem: str) -> None:
        visit = self._open.pop(path, None)
        if visit is not None:
            span = Span("node", path, _name(path), visit.began, entry.at, entry.number, problem, visit.inside)
            self.found.append(span)
        for inner in [each for each in self._open if each.startswith(f"{path}/")]:  # it went with the node around it
            del self._open[inner]

    def _effect(self, entry: Entry, kind: SpanKind, visit: _Open | None) -> None:
        value, now = entry.value, entry.at
        began = now if visit is None else visit.latest
        label, problem = entry.key, "" if entry.error is None else entry.error[0]
        timing: Any = getattr(value, "timing", None)
        if timing is not None:
            began = timing.started
        if kind == "model":
            label = f"turn {number}" if (number := getattr(value, "step_number", 0)) else "model"
        if isinstance(value, ToolResult):
            began, label = now - round(value.seconds * 1000), value.name
            problem = problem or ("error" if value.is_error else "")
        elif kind == "person" and visit is not None:
            began, visit.asked, label = visit.asked or began, 0, "answer"
        self.found.append(Span(kind, entry.where, label, min(began, now), now, entry.number, problem))
        if visit is not None:
            visit.latest, visit.inside = now, visit.inside + 1


def _name(path: str) -> str:
    return path.rpartition("/")[2]


def spans_of(entries: Sequence[Entry], now: int) -> list[Span]:
    """Return what a run did, in the order in which it began. What has not ended lasts until `now`, in milliseconds UTC."""
    spans = _Spans()
    for entry in entries:
        spans.add(entry)
    return spans.end(now)
