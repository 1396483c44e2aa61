"""The work of a run as spans of time: the executions of nodes with their attempts, and in them model turns, tool calls, sub-agents and waits."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from graphagent.inspect._errors import problem_of_tool
from graphagent.llm import ToolResult
from graphagent.memory import ActionStep, FactsStep, NotesStep

if TYPE_CHECKING:
    from graphagent.history import Entry, StoredRun

SpanKind: TypeAlias = Literal["node", "memory", "model", "tool", "agent", "person", "sleep"]
_EFFECTS: dict[str, SpanKind] = {
    "turn": "model",
    "decision": "model",
    "tool": "tool",
    "answer": "person",
    "sleep": "sleep",
}
"""The kinds of effects that take time, and those of their spans."""
_LEARNS = ("facts:", "notes:")
"""The beginnings of the keys of effects that save learnt facts and notes."""
WAITS = ("person", "sleep")


@dataclass(slots=True)
class Attempt:
    """A part of a span with work: one of several tries, or the time after a pause."""

    began: int
    """In milliseconds UTC."""
    ended: int = 0
    """0 while it lasts."""
    problem: str = ""
    """The type of the error with which it failed, or another word for the failure."""


@dataclass(slots=True, eq=False)
class Span:
    """Something that took time."""

    kind: SpanKind
    path: str
    """The path of the node."""
    label: str
    begun: int
    """The number of the entry that began it, or of its first one."""
    attempts: list[Attempt]
    about: str = ""
    """The turn, the tool or the wait, where the label is the name of the node."""
    entry: int = 0
    """The number of the entry that ended it; 0 where it has not ended."""
    tokens: int = 0
    """Of a model turn."""
    depth: int = 0
    """How many spans it is inside of."""
    turn: ActionStep | None = None
    """The model turn, and the one before it in the same strategy."""
    turn_before: ActionStep | None = None
    key: str = ""
    """Which it is, as long as the run goes on."""
    inside: list[Span] = field(default_factory=lambda: list[Span](), repr=False)

    @property
    def names(self) -> tuple[str, str]:
        """Its name and its second name, which may be empty: a turn and a tool say more than their node."""
        return (self.about, self.label) if self.about and self.kind not in WAITS else (self.label, self.about)

    @property
    def began(self) -> int:
        """When its first attempt began."""
        return self.attempts[0].began

    @property
    def ended(self) -> int:
        """When its last attempt ended."""
        return self.attempts[-1].ended

    @property
    def seconds(self) -> float:
        """How long its attempts took."""
        return sum(each.ended - each.began for each in self.attempts) / 1000

    @property
    def problem(self) -> str:
        """With which error it failed; empty if another attempt succeeded."""
        return self.attempts[-1].problem

    @property
    def numbers(self) -> tuple[int, int, int]:
        """The numbers of the entries that ended it, that began it, and that began the node that is one span with it."""
        return self.entry, self.begun, int(self.key.partition(":")[0] or 0)

    @property
    def failures(self) -> int:
        """How many attempts failed."""
        return sum(bool(each.problem) for each in self.attempts)

    @property
    def is_busy(self) -> bool:
        """Whether something was done in it that is not in the spans inside of it."""
        return self.kind not in WAITS and not any(
            each.kind in ("node", "memory", "agent", *WAITS) or each.inside for each in self.inside
        )

    def walk(self) -> Iterator[Span]:
        """Yield it and the spans inside of it, each before those that it contains. A node that did one thing is one span with it."""
        span = self._alone() or self
        span.depth = self.depth
        yield span
        for each in span.inside:
            each.depth = span.depth + 1
            yield from each.walk()

    def _alone(self) -> Span | None:
        if self.kind not in ("node", "memory") or len(self.inside) != 1 or self.failures:
            return None
        (one,) = self.inside
        if one.kind in ("node", "memory", "agent") or one.inside:
            return None
        return Span(
            one.kind, self.path, self.label, one.begun, one.attempts, one.about or one.label, one.entry or self.entry, one.tokens, turn=one.turn, turn_before=one.turn_before, key=self.key
        )  # fmt: skip


class Spans:
    """Makes spans of entries, as they are read."""

    def __init__(self, began: int) -> None:
        self._found: list[Span] = []
        self._lasting: list[Attempt] = []
        """Attempts that were shown as if they had ended."""
        self._open: dict[str, Span] = {}
        """Nodes that have not come to their end, and sub-agents, by their paths."""
        self._calls: dict[tuple[str, str], Span] = {}
        """Calls and questions without an outcome, and sleeps that are not over, by the path of the node and the key."""
        self._due: dict[tuple[str, str], int] = {}
        """When these sleeps are over."""
        self._turns: dict[str, ActionStep] = {}
        """The last model turn of each frame."""
        self._began, self._last, self._kind = began, began, ""

    def add(self, entry: Entry) -> None:
        """Add the spans that an entry began, and end those that it ended."""
        while self._lasting:
            self._lasting.pop().ended = 0
        where, now = entry.where, entry.at
        self._wake(now)
        if entry.kind == "effect":
            self._effect(entry)
        elif entry.kind == "effect started" and entry.effect == "tool":
            self._call("tool", entry, entry.key, entry.tool)
        elif entry.kind in ("asked", "expired"):
            self._question(entry)
        elif entry.kind == "agent started" and entry.begins:
            self._agent(entry)
        elif entry.kind in ("stopped", "ended", "resumed"):
            self._rest(now if entry.kind != "resumed" else self._last, goes_on=entry.kind == "resumed", at=now)
        elif entry.kind == "retried" and entry.error is not None:
            self._retry(entry, entry.error[0])
        elif entry.kind in ("failed", "branch failed"):
            self._end(
                where, entry, "failed" if entry.error is None else entry.error[0], for_good=entry.kind != "failed"
            )
        elif entry.kind == "finished":
            self._end(where, entry, "" if entry.error is None else entry.error[0])
        elif entry.kind == "agent stopped" and where in self._open:
            self._end(where, entry, "failed" if entry.data.get("status") == "failed" else "")
        for path in entry.begins:
            if path and path not in self._open and entry.kind != "retried":
                self._open[path] = self._begin("node", path, path.rpartition("/")[2], entry, inside=path.rpartition("/")[0])  # fmt: skip
        self._last, self._kind = now, entry.kind

    def until(self, now: int) -> list[Span]:
        """Return all spans, each before the spans inside of it. Spans that have not ended last until a time."""
        self._wake(now)
        for span in [*self._open.values(), *self._calls.values()]:
            last = span.attempts[-1]
            if not last.ended:
                self._lasting.append(last)
            last.ended = last.ended or max(now, last.began)
        return [each for span in self._found for each in span.walk()]

    def _begin(self, kind: SpanKind, path: str, label: str, entry: Entry, *, inside: str, began: int | None = None) -> Span:  # fmt: skip
        """Return a new span inside of the node or sub-agent around it."""
        span = Span(
            kind,
            path,
            label,
            entry.number,
            [Attempt(entry.at if began is None else began)],
            key=f"{entry.number}:{path}",
        )
        while inside and inside not in self._open:
            inside = inside.rpartition("/")[0]
        (self._open[inside].inside if inside else self._found).append(span)
        return span

    def _visit(self, entry: Entry) -> Span:
        """Return the node of an entry; of the run of a sub-agent alone, the first entry is in a node that was begun before."""
        where = entry.where
        if where not in self._open:
            self._open[where] = self._begin("node", where, where.rpartition("/")[2], entry, inside=where.rpartition("/")[0], began=self._began)  # fmt: skip
        return self._open[where]

    def _agent(self, entry: Entry) -> None:
        """Begin a sub-agent: the call of a tool that it is, where it is one."""
        path = entry.begins[0].rpartition("/")[0]
        for (where, key), call in self._calls.items():
            if where == entry.where and f"/{key.removeprefix('call:')}/" in f"/{entry.key}/":
                call.kind, self._open[path] = "agent", call
                return
        name = path.removeprefix(f"{entry.where}/").rpartition("/")[0]
        self._open[path] = self._begin("agent", path, name, entry, inside=entry.where)

    def _call(self, kind: SpanKind, entry: Entry, key: str, label: str) -> None:
        """Begin a call or a question, unless it has begun: that is made again whose process died."""
        if (entry.where, key) not in self._calls:
            self._calls[entry.where, key] = self._begin(kind, entry.where, label, entry, inside=entry.where)

    def _question(self, entry: Entry) -> None:
        """Begin a wait for an answer, or end one whose deadline passed."""
        key = f"answer:{entry.key}"
        if entry.kind == "asked":
            self._call("person", entry, key, "waits for an answer")
        elif (span := self._calls.pop((entry.where, key), None)) is not None:
            span.label, span.entry, span.attempts[-1].ended = "expired", entry.number, entry.at

    def _effect(self, entry: Entry) -> None:
        visit = self._visit(entry)
        kind = _EFFECTS.get(entry.effect)
        if kind is None:
            if visit.kind == "node" and (isinstance(entry.value, FactsStep | NotesStep) or entry.key.startswith(_LEARNS)):  # fmt: skip
                visit.kind = "memory"
            return
        value: Any = entry.value
        if kind == "sleep":
            self._calls[entry.where, entry.key] = self._begin(kind, entry.where, "sleep", entry, inside=entry.where)
            self._due[entry.where, entry.key] = round(value.timestamp() * 1000)
            return
        span = self._calls.pop((entry.where, entry.key), None)
        if span is None:
            latest = max((each.ended for each in visit.inside), default=0)
            began = entry.at if isinstance(value, ToolResult) else max(visit.attempts[-1].began, latest)
            span = self._begin(kind, entry.where, entry.key.partition(":")[2], entry, inside=entry.where, began=began)
        last, span.entry = span.attempts[-1], entry.number
        last.ended, last.problem = entry.at, "" if entry.error is None else entry.error[0]
        if (timing := getattr(value, "timing", None)) is not None:
            last.began = timing.started
        if isinstance(value, ToolResult):
            last.began = min(last.began, entry.at - round(value.seconds * 1000))
            span.label, last.problem = (
                value.name,
                last.problem or (problem_of_tool(value).type or "error" if value.is_error else ""),
            )
        elif kind == "model":
            self._turn(span, entry.begun_at, value)
        elif kind == "person":
            span.label = "answer"
        last.began = min(last.began, last.ended)

    def _turn(self, span: Span, frame: str, value: Any) -> None:
        if isinstance(value, ActionStep):
            span.label = f"turn {value.step_number}" if value.step_number else span.label
            span.tokens = 0 if value.token_usage is None else value.token_usage.total_tokens
            span.turn, span.turn_before = value, self._turns.get(frame)
            self._turns[frame] = value

    def _retry(self, entry: Entry, problem: str) -> None:
        span, now = self._visit(entry), entry.at
        span.attempts[-1].ended, span.attempts[-1].problem = now, problem
        span.attempts.append(Attempt(now + round(float(entry.data.get("wait", 0)) * 1000)))
        self._leave(entry.where, now)
        for path in entry.begins:
            if path != entry.where:  # the whole strategy begins again
                self._open[path] = self._begin("node", path, path.rpartition("/")[2], entry, inside=path.rpartition("/")[0])  # fmt: skip

    def _end(self, path: str, entry: Entry, problem: str, *, for_good: bool = True) -> None:
        """End a node or sub-agent. A failed one is tried again when the run is resumed."""
        if not path:
            return
        span = self._open[path] if path in self._open else self._visit(entry)
        last, span.entry = span.attempts[-1], entry.number
        if not last.ended or problem:
            last.ended, last.problem = max(last.ended or entry.at, last.began), problem
        if for_good:
            del self._open[path]
        self._leave(path, entry.at)

    def _leave(self, path: str, now: int) -> None:
        """End the spans inside of a node that was left, and its calls and questions."""
        inside = [self._open.pop(each) for each in [*self._open] if each.startswith(f"{path}/")]
        calls = [each for each, call in self._calls.items() if f"{each[0]}/".startswith(f"{path}/") and call.kind != "agent"]  # fmt: skip
        for span in inside + [self._calls.pop(each) for each in calls]:
            last = span.attempts[-1]
            last.ended = last.ended or max(now, last.began)
            span.entry = span.entry or (span.begun if span.kind == "sleep" else 0)
        self._due = {key: due for key, due in self._due.items() if key in self._calls}

    def _wake(self, now: int) -> None:
        """End the sleeps that are over."""
        for key in [each for each, due in self._due.items() if due <= now]:
            span, due = self._calls.pop(key), self._due.pop(key)
            span.entry, span.attempts[-1].ended = span.begun, max(due, span.began)

    def _rest(self, since: int, *, goes_on: bool, at: int) -> None:
        """End the attempts that are going on when the run stops, and begin the next ones when it is resumed."""
        for span in [*self._open.values(), *(each for each in self._calls.values() if each.kind not in WAITS)]:
            last = span.attempts[-1]
            if goes_on and self._kind == "resumed" and last.began == self._last:
                last.began = at  # it was said to be resumed, and is executed only now
                continue
            last.ended = last.ended or max(since, last.began)
            if goes_on:
                span.attempts.append(Attempt(at))


def spans_of_run(stored: StoredRun, now: int) -> list[Span]:
    """Return the spans of a run, or of a sub-agent. Spans that have not ended last until a time, in milliseconds UTC."""
    spans = Spans(stored.head.started)
    for entry in stored.entries:
        spans.add(entry)
    return spans.until(now)
