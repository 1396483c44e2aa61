"""The history of a run: its entries, its state after each, forks of it, and executing it again."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, cast

from graphagent import _clock
from graphagent.errors import RunClaimedError, RunExistsError, RunNotFoundError
from graphagent.graph._internal import is_a, show
from graphagent.memory import RunMemory, TaskStep
from graphagent.run._compiled import DONE, CompiledStrategy
from graphagent.run.engine._driver import RunDriver
from graphagent.run.engine._lifecycle import note_edits, recorder_of
from graphagent.run.engine._recorded import RecordedOutcomes
from graphagent.run.engine._restore import restore
from graphagent.run.engine._tool_servers import listed_in
from graphagent.run.journal._claim import Claim, Token
from graphagent.run.journal._header import RunHeader
from graphagent.run.journal._keys import forks_key, head_key
from graphagent.run.journal._reader import read_header, read_journal
from graphagent.run.journal._references import look_up
from graphagent.run.journal._writer import JournalWriter
from graphagent.run.state._entries import EffectDone, NodeEnded, NodeEntry, Resumed, Started
from graphagent.store import Exists, Put

if TYPE_CHECKING:
    from graphagent.llm import Usage
    from graphagent.run._config import RunConfig
    from graphagent.run.engine._context import LiveFrame
    from graphagent.run.engine._recorder import Recorder
    from graphagent.run.journal._reader import JournalReader
    from graphagent.run.state._questions import Question


_NOTHING = object()


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry of a run's journal."""

    number: int
    """From 1 on, in the order of writing."""
    kind: str
    """`start`, `node`, `effect`, `spent`, `recovered`, `again`, `failed`, `intent`, `said`, `stop`, `resume`, `edit` or `final`."""
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
    _journal: JournalReader = field(repr=False, compare=False)

    @property
    def value(self) -> Any:
        """The node's output, the outcome of an effect, or the error that an error edge took. None if the entry has none."""
        return self._journal.value(self.number) if self._journal.has_value(self.number) else None

    @property
    def answers(self) -> dict[str, Any]:
        """The answers that were given when the run was resumed, by the keys under which nodes find them."""
        entry = self._journal.entry(self.number)
        answers = entry.answers if isinstance(entry, Resumed) else ()
        return {each["key"]: self._journal.effect(self.number, place) for place, each in enumerate(answers)}

    @property
    def data(self) -> Mapping[str, Any]:
        """The entry as it is stored: plain JSON data."""
        return self._journal.data(self.number)


@dataclass(slots=True)
class Snapshot:
    """The state of a run after one of its entries."""

    number: int
    """The entry."""
    memory: RunMemory
    """The transcript."""
    places: dict[str, Any]
    """The paths of the nodes that came next, each with the value that stood there."""
    value: Any
    """The value that stood before the next node, in the innermost place; with several places, the outermost one's."""
    questions: tuple[Question, ...]
    """What it waited for."""
    nodes: int
    """How many nodes had been executed."""
    turns: int
    usage: Usage


@dataclass(frozen=True, slots=True)
class Diff:
    """The entries that two runs have in common, and those of each that follow."""

    a: str
    b: str
    common: int
    """How many entries, from the first on, say the same."""
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


def entries(journal: JournalReader) -> list[Entry]:
    """Return the entries of a journal."""
    return [_entry(journal, number) for number in journal.numbers]


def _entry(journal: JournalReader, number: int) -> Entry:
    entry = journal.entry(number)
    path: str = getattr(entry, "path", "")
    where = entry.path + entry.node if isinstance(entry, NodeEntry) and entry.node else ""
    following: str | None = getattr(entry, "following", None)
    return Entry(
        number, entry.tag, entry.at, where if isinstance(entry, NodeEnded) else None, where,
        path + following if following else "", getattr(entry, "key", ""), journal,
    )  # fmt: skip


async def _read(config: RunConfig, owner: str, run_id: str) -> JournalReader:
    if config.store is None:
        raise RunNotFoundError(run_id, owner)
    journal = await read_journal(config.store, owner, run_id)
    await look_up(journal, config.features)
    return journal.read_for(config.compiled, config.strategy.input_type, config.strategy.output_type)


async def history(config: RunConfig, owner: str, run_id: str) -> list[Entry]:
    """Return the entries of a run."""
    return entries(await _read(config, owner, run_id))


async def state_at(config: RunConfig, owner: str, run_id: str, number: int) -> Snapshot:
    """Return the state of a run after an entry."""
    journal = await _read(config, owner, run_id)
    _check_number(journal, number)
    return _snapshot(restore(config, journal.until(number), allow_changed=True), number)


def _check_number(journal: JournalReader, number: int) -> None:
    if type(number) is not int:
        raise TypeError(f"an entry is named by its number, such as {journal.last}, and not by {number!r}")
    if number not in journal.numbers:
        raise ValueError(
            f"run {journal.header.run_id!r} has the entries {journal.first} to {journal.last}, and no {number}"
        )


def _snapshot(run: RunDriver, number: int, before: str | None = None) -> Snapshot:
    runtime, result = run.runtime, run.result
    places = {frame.node_path: frame.value for frame in _innermost(run.frame) if frame.compiled not in (None, DONE)}
    frame = _frame_at(run, before)
    value = result.output if result.done else frame.value
    return Snapshot(
        number, frame.memory, {} if result.done else places, value, tuple(runtime.questions.values()), runtime.meter.nodes,
        runtime.meter.turns, runtime.usage,
    )  # fmt: skip


def _frame_at(run: RunDriver, before: str | None) -> LiveFrame:
    """Return the frame at a node; else the innermost if there is only one, and the outermost if there are several."""
    ends = _innermost(run.frame)
    named = [frame for frame in ends if before is not None and frame.node_path == before]
    return (named or (ends if len(ends) == 1 and not ends[0].branches else [run.frame]))[0]


def _innermost(frame: LiveFrame) -> list[LiveFrame]:
    return [each for each in frame.live_frames() if not each.inside]


async def fork(
    config: RunConfig,
    owner: str,
    origin: str,
    *,
    at: int | None,
    before: str | None,
    after: str | None,
    edit: Callable[[Snapshot], None] | None,
    run_id: str | None,
    allow_changed: bool,
) -> RunDriver:
    """Return a run that begins as another one did. It is claimed, and continues with `finish`."""
    if sum(each is not None for each in (at, before, after)) != 1:
        raise ValueError("a fork parts at one place: give one of at=, before= and after=")
    journal = await _read(config, owner, origin)
    number = _number(journal, at, before, after)
    while journal.entry(number).tag == "final":  # a fork of a run that ended ends again
        number -= 1
    assert config.store is not None
    run_id = run_id or _clock.new_id()
    if await config.store.get(head_key(owner, run_id)) is not None:
        raise RunExistsError(run_id, owner)
    header = journal.header
    source, source_header = origin, header
    while source_header.origin is not None and number <= source_header.origin[1]:
        source = source_header.origin[0]
        source_header, _ = await read_header(config.store, owner, source)
    now, token = _clock.now(), Token()
    own = RunHeader(
        run_id, owner, config.strategy.name, config.strategy.outline.digest, now, now, title=header.title, origin=(source, number),
        first=header.first, claim=Claim.of(token),
    )  # fmt: skip
    earlier = journal.until(number)
    earlier.header = replace(own, strategy_digest=header.strategy_digest, claim=None)
    run = restore(config, earlier, allow_changed=allow_changed)
    run.runtime.questions.clear()
    writer = JournalWriter(config.store, own, token.id, last=number)
    writer.along(Exists(head_key(owner, source)), Put(forks_key(owner, source), b""))
    recorder = recorder_of(earlier, writer, run.frame)
    if header.strategy_digest != own.strategy_digest:
        recorder.new_strategy = config.strategy.outline
    recorder.resumed(run.frame, ())
    if edit is not None:
        _edit(run, earlier, recorder, edit, number, before)
    run.runtime.journal, run.journal = recorder, None
    try:
        await recorder.commit(header=True)
    except RunClaimedError as error:
        raise RunExistsError(run_id, owner) from error
    run.token, run.claimed = token, True
    return run


def _edit(
    run: RunDriver,
    journal: JournalReader,
    recorder: Recorder,
    edit: Callable[[Snapshot], None],
    number: int,
    before: str | None,
) -> None:
    """Let a function edit a fork before it continues, and record what it changed."""
    snapshot = _snapshot(run, number, before)
    value, places = snapshot.value, dict(snapshot.places)
    edit(snapshot)
    ends = {frame.node_path: frame for frame in _innermost(run.frame)}
    changed = {path: new for path, new in snapshot.places.items() if new is not places.get(path, _NOTHING)}
    unknown = sorted(changed.keys() - ends.keys())
    if unknown:
        known = ", ".join(map(repr, ends))
        raise ValueError(f"the fork stands at {known}, and the edit sets a value at {unknown[0]!r}")
    if snapshot.value is not value:
        frame = _frame_at(run, before)
        changed.pop(frame.node_path, None)
        _put(journal, recorder, frame, snapshot.value)
    for path, new in changed.items():
        _put(journal, recorder, ends[path], new)
    note_edits(run, recorder)


def _put(journal: JournalReader, recorder: Recorder, frame: LiveFrame, value: Any) -> None:
    """Put another value into a frame. The effects of its node, and the frames inside it, are gone."""
    node = frame.compiled
    assert node is not None
    kind = journal.type_before(frame.path, "") if node is DONE else getattr(node.element, "input_type", Any)
    if not is_a(value, kind):
        where = (
            f"before node {frame.node_path!r}"
            if node is not DONE
            else f"at the end of {frame.path[:-1] or 'the strategy'!r}"
        )
        raise ValueError(
            f"the fork stands {where}, where the strategy declares {show(kind)}, and the edit gives a {type(value).__name__}"
        )
    frame.inside = frame.effects = None
    recorder.placed(frame, node, value, kind)


def _number(journal: JournalReader, at: int | None, before: str | None, after: str | None) -> int:
    """Return the number of the entry that is named by itself, or by the node that it led to or ended."""
    if at is not None:
        _check_number(journal, at)
        return at
    wanted = before if before is not None else after
    assert wanted is not None
    for number in reversed(journal.numbers):
        entry = _entry(journal, number)
        if after is not None and entry.node == wanted:
            return number
        if before is not None and entry.next and _begins(journal, entry.next, wanted):
            return number
    known = sorted({entry.node for entry in entries(journal) if entry.node})
    raise ValueError(
        f"run {journal.header.run_id!r} has not come to a node {wanted!r}; it executed: {', '.join(map(repr, known)) or 'none'}"
    )


def _begins(journal: JournalReader, path: str, wanted: str) -> bool:
    """Return whether the node at a path begins with another one: itself, the first of a strategy, or a branch."""
    if path == wanted:
        return True
    if not wanted.startswith(f"{path}/"):
        return False
    rest = wanted[len(path) + 1 :].split("/")
    inside = journal.inside(path)
    while rest and inside:
        part = rest.pop(0)
        if isinstance(inside, CompiledStrategy):
            node = inside.first if inside.first.name == part else None
        else:
            node = inside[min(int(part), len(inside) - 1)] if part.isdecimal() else None
            if node is not None and rest and rest.pop(0) != node.name:
                node = None
        if node is None:
            return False
        inside = node.inside
    return not rest


async def diff(config: RunConfig, owner: str, a: str, b: str) -> Diff:
    """Compare two runs."""
    return compare(await _read(config, owner, a), await _read(config, owner, b))


def compare(first: JournalReader, second: JournalReader) -> Diff:
    """Compare two journals."""
    pairs = list(zip(first.numbers, second.numbers, strict=False))
    common = next((n for n, (a, b) in enumerate(pairs) if _content(first, a) != _content(second, b)), len(pairs))
    return Diff(
        first.header.run_id, second.header.run_id, common,
        tuple(entries(first)[common:]), tuple(entries(second)[common:]),
    )  # fmt: skip


def _content(journal: JournalReader, number: int) -> dict[str, Any]:
    """Return an entry as JSON data, without times."""
    entry = journal.entry(number)
    data = {name: value for name, value in entry.to_json().items() if name not in ("at", "ran")}
    if isinstance(entry, Started):
        data["strategy"] = entry.outline.digest
    if isinstance(entry, EffectDone) and "call:" in entry.key:
        data["value"] = _timeless(data["value"])
    if isinstance(entry, EffectDone) and entry.key.rpartition("/")[2].startswith("sleep:"):
        data.pop("value", None)
    if "steps" in data:
        data["steps"] = _timeless(data["steps"])
    return data


def _timeless(data: Any) -> Any:
    """Return plain data of steps and tool results without times, and without the hashes of messages that contain times."""
    if isinstance(data, dict):
        kept = cast("dict[str, Any]", data)
        return {
            name: [value[0], len(value[1])] if name == "prompt" and _is_prompt(value) else _timeless(value)
            for name, value in kept.items()
            if name not in ("timing", "seconds")
        }
    return [_timeless(each) for each in cast("list[object]", data)] if isinstance(data, list) else data


def _is_prompt(value: Any) -> bool:
    """Return whether data is a prompt: the number of messages as in the prompt before, and the hashes of the rest."""
    match value:
        case [int(), [*_]]:
            return True
        case _:
            return False


async def rerun(
    config: RunConfig, owner: str, run_id: str, *, until: int | str | None, new_id: str | None
) -> RunDriver:
    """Return a run that executes another one again, on the outcomes that it recorded."""
    journal = await _read(config, owner, run_id)
    if until is None:
        number = journal.last
    elif isinstance(until, int):
        number = _number(journal, until, None, None)
    else:
        number = _number(journal, None, None, until)
    before = journal.until(journal.first).memory()
    own = next(place for place, step in enumerate(before.steps) if place >= before.begun and isinstance(step, TaskStep))
    task = journal.value(journal.first)
    memory = RunMemory(before.system_prompt.system_prompt, before.steps[: before.begun])
    step = before.steps[own]
    memory.lower(before.floor)
    memory.begin(task, step.task_images if isinstance(step, TaskStep) else ())
    memory.steps.extend(before.steps[own + 1 :])
    run = RunDriver(config, memory, task, run_id=new_id or _clock.new_id(), owner=owner)
    run.known_tools = listed_in(journal)
    run.runtime.recorded = RecordedOutcomes(journal, number, run.run_id, live=until is not None)
    return run
