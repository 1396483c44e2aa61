"""What happened in a run, entry by entry, where it was after each, and where two runs differ."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from graphagent.graph._forks import Each
from graphagent.llm import ToolResult
from graphagent.log._bytes import plain
from graphagent.log._entries import (
    Asked,
    EffectRecorded,
    EffectStarted,
    Ended,
    Expired,
    Stopped,
)
from graphagent.log._header import OVER
from graphagent.log._log import Log
from graphagent.log._segments import root_of
from graphagent.log._visits import PLACED, UNSET, Source, name_of_effect
from graphagent.memory.transcript._memory import Detached, RunMemory
from graphagent.run._compiled import items_of
from graphagent.run._questions import Question, answer_type, open_question, stored_answer_type
from graphagent.run._reading import read_log

if TYPE_CHECKING:
    from graphagent.llm import Usage
    from graphagent.log._entries import Entry as LogEntry
    from graphagent.log._log import Applied
    from graphagent.log._state import OpenQuestion, QuestionKind, State
    from graphagent.log._visits import Frame, Visit
    from graphagent.protocols import Store
    from graphagent.run._config import RunConfig

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_TASKS = re.compile(r"\b\d+\.\d+/")
"""What tells apart the keys of tasks that a node gathers."""
_TIMES = ("asked", "began", "deadline", "due", "wait")
"""The fields of entries that differ whenever two runs do the same."""
_UNTIMED = ("timing", "seconds")
"""The parts of steps and results that do; so does the time of a verdict."""


class _Passed(NamedTuple):
    """A value that a node passed on."""

    value: Any
    """As it is stored."""
    source: Source
    places: tuple[int, ...] = ()
    """The places of an item in it, from the outermost `each` on, if that is what was passed on."""


class _Stored(NamedTuple):
    """What the value of an entry is read from."""

    reader: Reader
    entry: LogEntry
    passed: _Passed | None
    row: bytes
    place: int
    """Its place in the row."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry of a run."""

    number: int
    """From 1 on, in the order of writing."""
    kind: str
    """What happened, such as `started`, `finished`, `effect`, `retried`, `resumed` or `stopped`."""
    at: int
    """When it was written, in milliseconds UTC."""
    node: str | None
    """The path of the node that ended here; None in all other entries."""
    where: str
    """The path of the node that it belongs to, where it belongs to one."""
    next: str
    """The path of the node that comes next, where this entry led somewhere; END is the empty path."""
    key: str
    """What was done, in an effect, such as `model:1` or `call:<id>`."""
    edge: int | None
    """The number of the edge that was taken, where there was a choice."""
    error: tuple[str, str] | None
    """The type and the text of the error with which something failed."""
    begins: tuple[str, ...] = field(repr=False)
    """The paths of the nodes that come next: several where branches begin."""
    _stored: _Stored = field(repr=False, compare=False)

    @property
    def value(self) -> Any:
        """The output of the node, the outcome of the effect, or the step of a model turn. None if the entry has none.

        Raises:
            DamagedStoreError: what was stored of it is missing, or is not what was written.
        """
        entry, reader, passed = self._stored.entry, self._stored.reader, self._stored.passed
        if isinstance(entry, EffectRecorded):
            if entry.step is not None or entry.held is not None:
                return entry.step if entry.held is None else entry.held.value
            if entry.kind == "sleep":
                return _EPOCH + timedelta(milliseconds=reader.value(entry.value))
            return reader.value(entry.value, reader.outcome_type(entry, self.where))
        if isinstance(entry, Expired):
            return reader.value(entry.value, reader.answer_type(self.where)) if entry.has_default else None
        if isinstance(entry, Stopped):
            return getattr(entry.step, "output", None)
        if passed is not None:
            value = reader.value(passed.value, reader.kind_of(passed.source))
            for place in passed.places:
                value = items_of(value)[place]
            return value
        value = getattr(entry, "value", None)
        return None if value is None else reader.value(value)

    @property
    def effect(self) -> str:
        """The kind of an effect, such as `turn`, `tool` or `answer`; empty in other entries."""
        entry = self._stored.entry
        return entry.kind if isinstance(entry, EffectRecorded | EffectStarted) else ""

    @property
    def tool(self) -> str:
        """The name of the tool, where a call of it began; empty in other entries."""
        return getattr(self._stored.entry, "tool", "")

    @property
    def begun_at(self) -> str:
        """The path of the frame in which it happened."""
        return self._stored.entry.at

    @property
    def ends_run(self) -> bool:
        """Whether it is the end of the run."""
        entry = self._stored.entry
        return isinstance(entry, Ended) or (isinstance(entry, Stopped) and entry.status == "done")

    @property
    def data(self) -> Mapping[str, Any]:
        """The entry as it is stored."""
        return self._stored.reader.data(self._stored.row)[self._stored.place]

    @property
    def content(self) -> Any:
        """The entry as it is stored, without times."""
        beside = (*_TIMES, "value") if self.kind in ("effect", "kept") else _TIMES
        data = {name: value for name, value in self.data.items() if name not in beside}
        if isinstance(self._stored.entry, EffectRecorded) and self._stored.entry.kind != "sleep":
            data["value"] = self.data.get("value")
        return _timeless(data)


class Reader:
    """Makes entries for people of those of a log, while that is folded."""

    def __init__(self, config: RunConfig | None) -> None:
        self.config = config
        """The agent's configuration, which knows the types of values; None: they are read as plain data."""
        self.entries: list[Entry] = []
        self.log: Log
        """The log, which is set when it has been read."""
        self._asked: dict[tuple[str, str], QuestionKind] = {}
        """The kinds of questions, by the frames that asked and the keys of the answers."""
        self._shown: tuple[bytes, Sequence[Mapping[str, Any]]] = b"", ()
        """The row whose entries were shown last, and these as they are stored."""

    def watch(self, applied: Applied) -> None:
        """Note an entry, with the node in which it happened and those to which it led."""
        entry, number, state, frame, visit, row, place = applied
        where = frame.path + (visit.node or "") if frame is not None and visit is not None else ""
        where = "" if entry.of_run else where.rstrip("/")
        begins = tuple(each.node_path for each in applied.begun if each.visit.node)
        is_left = frame is not None and visit is not None and frame.visit is not visit and bool(visit.outcome)
        error: tuple[str, str] | None = getattr(entry, "error", None)
        there, value, passed = state.frames.get(entry.at), getattr(entry, "value", None), None
        if frame is not None and visit is not None and getattr(entry, "tap", False):
            passed = _input_of(frame, visit)
        elif value is not None and there is not None and there.visit.entered == number:
            passed = _Passed(value, there.visit.source)
        key = getattr(entry, "key", "")
        if "/" in key:
            key = _TASKS.sub("", key)
        if isinstance(entry, EffectRecorded | EffectStarted):
            key = name_of_effect(entry.kind, key)
        if isinstance(entry, Asked):
            self._asked[entry.at, entry.key] = entry.kind
        self.entries.append(
            Entry(
                number, entry.tag_name, state.time, where if is_left and error is None else None, where,
                begins[0] if len(begins) == 1 else "", key, getattr(entry, "edge", None), error, begins,
                _Stored(self, entry, passed, row, place),
            )
        )  # fmt: skip

    def data(self, row: bytes) -> Sequence[Mapping[str, Any]]:
        """Return the entries of a row as they are stored. Those of one row are asked for one after the other."""
        if self._shown[0] is not row:
            self._shown = row, plain(row)[2]
        return self._shown[1]

    def value(self, stored: Any, kind: Any = Any) -> Any:
        """Return a value of an entry: as plain data, if its declared type is not known."""
        return self.log.take_if_fits(stored, kind)

    def kind_of(self, source: Source) -> Any:
        """Return the declared type of a value by its origin."""
        if self.config is None:
            return Any
        if source.edge is None and source.path:
            return self.config.kind_of_step(source.path, "output")
        return self.config.kind_of(source.path, source.edge)

    def outcome_type(self, entry: EffectRecorded, where: str) -> Any:
        """Return the declared type of the outcome of an effect."""
        if self.config is None:
            return Any
        node = self.config.find(where)
        if entry.kind == "cached":
            return Any if node is None else getattr(node.element, "output_type", Any)
        if entry.kind == "answer":
            kind = self._asked.get((entry.at, entry.key), "question")
            return stored_answer_type(kind, self.answer_type(where))
        return Any

    def answer_type(self, where: str) -> Any:
        """Return the declared type of the answers that a node asks for."""
        node = None if self.config is None else self.config.find(where)
        return answer_type(None if node is None else node.element)


def _input_of(frame: Frame, visit: Visit) -> _Passed:
    """Return the input of a visit of a frame."""
    places: list[int] = []
    while visit.input is UNSET and frame.parent is not None:
        inside, frame = frame, frame.parent
        visit, strategy = frame.visit, frame.agent.strategy
        path = frame.node_path[len(frame.agent.frame.path) :]
        with suppress(LookupError):
            if strategy is not None and strategy.find(path)[1].kind == "each":
                places.insert(0, inside.place)
    return _Passed(visit.input, visit.source, tuple(places))


@dataclass(slots=True)
class Snapshot:
    """The state of a run after one of its entries."""

    number: int
    """The entry."""
    memory: RunMemory
    """The transcript."""
    places: dict[str, Any]
    """The paths of the nodes that came next, each with its input."""
    value: Any
    """The input of the node that came next, in the innermost place; with several places, the outermost one's."""
    questions: tuple[Question, ...]
    """What it waited for."""
    nodes: int
    """How many nodes had been executed."""
    turns: int
    usage: Usage
    types: Mapping[str, Any] = field(default_factory=lambda: dict[str, Any](), repr=False)
    """The declared types of the values in `places`."""
    value_type: Any = field(default=Any, repr=False)
    """The declared type of `value`."""
    results: dict[str, ToolResult] = field(default_factory=lambda: dict[str, ToolResult]())
    """The results of tool calls by the ids of the calls, of nodes that had not ended, as long as the transcript has not all of them."""


@dataclass(frozen=True, slots=True)
class Diff:
    """The entries that two runs have in common, and those of each that follow."""

    a: str
    b: str
    common: int
    """How many entries, from the first on, are the same."""
    only_a: tuple[Entry, ...]
    only_b: tuple[Entry, ...]

    def to_text(self) -> str:
        """Return it as text."""
        lines = [f"{self.common} entries in common"]
        for sign, run_id, entries in (("-", self.a, self.only_a), ("+", self.b, self.only_b)):
            lines.append(f"{sign * 3} {run_id}")
            lines += [
                f"{sign} {entry.number} {entry.kind} {entry.where}{f' {entry.key}' if entry.key else ''}"
                for entry in entries
            ]
        return "\n".join(lines)


async def read_for(config: RunConfig, owner: str, run_id: str, *, until: int | None = None) -> Reader:
    """Return the entries of a run, and its log, up to an entry.

    Raises:
        RunNotFoundError: the run does not exist.
        DamagedStoreError: it is not what was written.
    """
    reader = Reader(config)
    reader.log = await read_log(config, owner, run_id, until=until, watch=reader.watch)
    return reader


async def history(config: RunConfig, owner: str, run_id: str) -> list[Entry]:
    """Return the entries of a run, or of that of a sub-agent in it."""
    root = await root_of(config.runs, owner, run_id)
    reader = await read_for(config, owner, root)
    if root == run_id:
        return reader.entries
    agent = next(each for each in reader.log.state.activations() if f"{root}/{each.path}" == run_id)
    return [each for each in reader.entries if each.begun_at.startswith(agent.frame.path)]


async def state_at(config: RunConfig, owner: str, run_id: str, number: int) -> Snapshot:
    """Return the state of a run after an entry.

    Raises:
        RunNotFoundError: the run does not exist.
        ValueError: it has no such entry.
    """
    check_number(run_id, number, (await read_for(config, owner, run_id)).entries)
    return snapshot(config, (await read_for(config, owner, run_id, until=number)).log, number)


def check_number(run_id: str, number: object, entries: Sequence[Entry]) -> None:
    """Check that a run has an entry.

    Raises:
        TypeError: it is not a number.
        ValueError: the run has no such entry.
    """
    if type(number) is not int:
        raise TypeError(f"an entry is named by its number, such as {len(entries)}, and not by {number!r}")
    if not 1 <= number <= len(entries):
        raise ValueError(f"run {run_id!r} has the entries 1 to {len(entries)}, and no {number}")


def snapshot(config: RunConfig, log: Log, number: int, before: str | None = None) -> Snapshot:
    """Return the state of a log for people."""
    state = log.state
    ends = innermost(state.root)
    frame = frame_at(state.root, before)
    items: dict[Frame, Sequence[Any]] = {}
    places = {each.node_path: input_of(config, log, each, items) for each in ends if each.visit.node}
    places = {} if state.status in OVER else places
    return Snapshot(
        number, RunMemory(editor=Detached(frame.transcript)), places, input_of(config, log, frame, items), questions_of(log, config),
        state.root.nodes, state.root.turns, state.root.usage, {path: config.kind_of(path, PLACED) for path in places},
        config.kind_of(frame.node_path, PLACED), {id_: result for id_, (_, _, result) in results_of(state).items()},
    )  # fmt: skip


def results_of(state: State) -> dict[str, tuple[Frame, str, ToolResult]]:
    """Return the results of tool calls by the ids of the calls, each with its frame and its key, as long as the transcript has not all of them."""
    return {
        effect.value.call_id: (frame, key, effect.value)
        for frame in state.frames.values()
        if not any(kind == "results" for kind, _ in frame.visit.effects)
        for (kind, key), effect in frame.visit.effects.items()
        if kind == "tool" and isinstance(effect.value, ToolResult)
    }


def innermost(frame: Frame) -> list[Frame]:
    """Return the frames of a strategy that contain no others. Those of sub-agents belong to the node that called them."""
    inside = frame.visit.inside.get("branches", ())
    return [each for one in inside for each in innermost(one)] if inside else [frame]


def frame_at(root: Frame, before: str | None) -> Frame:
    """Return the frame at a node; otherwise the innermost one if there is only one, and the outermost if there are several."""
    ends = innermost(root)
    named = [frame for frame in ends if before is not None and frame.node_path == before]
    return (named or (ends if len(ends) == 1 else [root]))[0]


def input_of(config: RunConfig, log: Log, frame: Frame, items: dict[Frame, Sequence[Any]]) -> Any:
    """Return the input of the current node of a frame. What an `each` has as its input is read once, into `items`."""
    if frame.visit.input is not UNSET:
        return log.take(frame.visit.input, config.kind_of(*frame.visit.source))
    parent = frame.parent
    assert parent is not None
    node = config.find(parent.node_path)
    if node is None or not isinstance(node.element, Each):
        return input_of(config, log, parent, items)
    if parent not in items:
        items[parent] = items_of(input_of(config, log, parent, items))
    return items[parent][frame.place]


def questions_of(log: Log, config: RunConfig | None = None) -> tuple[Question, ...]:
    """Return the open questions of a log; without a configuration, the types of their answers are not known."""

    def opened(each: OpenQuestion) -> Question:
        node = None if config is None else config.find(each.node)
        element = None if node is None else node.element
        input_type = getattr(element, "input_type", Any)
        return open_question(log, log.header.run_id, each, answer_type(element), input_type)

    return tuple(map(opened, log.state.questions.values()))


async def diff(config: RunConfig, owner: str, a: str, b: str) -> Diff:
    """Compare two runs."""
    first, second = await read_for(config, owner, a), await read_for(config, owner, b)
    return compare(a, first.entries, b, second.entries)


async def compare_runs(store: Store, a: str, b: str, *, owner: str = "") -> Diff:
    """Compare two runs without their agent: what they have in common, and what each did then.

    Raises:
        RunNotFoundError: the run does not exist.
        StoreError: the store cannot be read.
    """
    first, second = [await read_stored(store, owner, each) for each in (a, b)]
    return compare(a, first.entries, b, second.entries)


async def read_stored(store: Store, owner: str, run_id: str, **options: Any) -> Reader:
    """Return the entries of a run, and its log, without its agent."""
    reader = Reader(None)
    reader.log = await Log.read(store, owner, run_id, watch=reader.watch, **options)
    return reader


def compare(a: str, first: Sequence[Entry], b: str, second: Sequence[Entry]) -> Diff:
    """Compare the entries of two runs."""
    pairs = list(zip(first, second, strict=False))
    common = next((n for n, (one, two) in enumerate(pairs) if one.content != two.content), len(pairs))
    return Diff(a, b, common, tuple(first[common:]), tuple(second[common:]))


def _timeless(data: Any) -> Any:
    if isinstance(data, dict):
        kept = cast("dict[str, Any]", data)
        untimed = (*_UNTIMED, "at") if kept.get("$") in ("approve", "deny") else _UNTIMED
        return {name: _timeless(value) for name, value in kept.items() if name not in untimed}
    return [_timeless(each) for each in cast("list[object]", data)] if isinstance(data, list) else data
