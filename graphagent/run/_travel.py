"""Time travel: what a run did, how it stood, what it would have done otherwise."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, cast

from graphagent import _clock
from graphagent.errors import RunClaimedError, RunExistsError
from graphagent.graph._internal import is_a, show
from graphagent.memory import RunMemory, TaskStep
from graphagent.run._claim import Claim, Token
from graphagent.run._durable import describe, fingerprint, note_edits, stand
from graphagent.run._facts import look_up
from graphagent.run._head import Head
from graphagent.run._keys import forks_key, head_key
from graphagent.run._log import Log
from graphagent.run._plan import DONE, Plan
from graphagent.run._recording import read_recording
from graphagent.run._restore import resumed
from graphagent.run._run import Run
from graphagent.run._tape import Tape
from graphagent.store import Exists, Put

if TYPE_CHECKING:
    from graphagent.llm import Usage
    from graphagent.run._context import Context
    from graphagent.run._journal import Journal
    from graphagent.run._plan import Slot
    from graphagent.run._recording import Recording
    from graphagent.run._setup import Setup
    from graphagent.run._suspend import Question


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
    _recording: Recording = field(repr=False, compare=False)

    @property
    def value(self) -> Any:
        """The node's output, what was done, or the error that an error path took. None where the entry has none."""
        entry = self._recording.entry(self.number)
        return self._recording.value(self.number) if entry.keys() & {"value", "response", "error"} else None

    @property
    def answers(self) -> dict[str, Any]:
        """What was answered when the run went on, by the keys under which nodes find it."""
        given = self._recording.entry(self.number).get("answers", ())
        return {each["key"]: self._recording.effect(self.number, place, Any) for place, each in enumerate(given)}

    @property
    def data(self) -> Mapping[str, Any]:
        """The entry as it is kept: plain JSON data."""
        return self._recording.entry(self.number)


@dataclass(slots=True)
class Snapshot:
    """How a run stood behind one of its entries."""

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
    """What two runs have in common, and what each did then."""

    a: str
    b: str
    common: int
    """How many entries, from the first on, say the same."""
    only_a: tuple[Entry, ...]
    only_b: tuple[Entry, ...]

    def to_text(self) -> str:
        """Give it for people."""
        lines = [f"{self.common} entries in common"]
        for sign, run_id, entries in (("-", self.a, self.only_a), ("+", self.b, self.only_b)):
            lines.append(f"{sign * 3} {run_id}")
            lines += [
                f"{sign} {entry.number} {entry.kind} {entry.where}{f' {entry.key}' if entry.key else ''}"
                for entry in entries
            ]
        return "\n".join(lines)


def entries(recording: Recording) -> list[Entry]:
    """Give the entries of a recording."""
    return [_entry(recording, number) for number in range(1, recording.last + 1)]


def _entry(recording: Recording, number: int) -> Entry:
    data = recording.entry(number)
    prefix, node = data.get("in", ""), data.get("node", "")
    where = prefix + node if node else ""
    leads = data.get("next")
    return Entry(
        number, data["t"], data["at"], where if data["t"] == "node" else None, where, prefix + leads if leads else "",
        data.get("key", ""), recording,
    )  # fmt: skip


async def _read(setup: Setup, owner: str, run_id: str) -> Recording:
    if setup.store is None:
        from graphagent.errors import RunNotFoundError

        raise RunNotFoundError(run_id, owner)
    recording, _ = await read_recording(setup.store, owner, run_id)
    await look_up(recording, setup.features)
    return recording.read_for(setup.plan, setup.strategy.input_type, setup.strategy.output_type)


async def history(setup: Setup, owner: str, run_id: str) -> list[Entry]:
    """Give the entries of a run."""
    return entries(await _read(setup, owner, run_id))


async def state_at(setup: Setup, owner: str, run_id: str, number: int) -> Snapshot:
    """Give how a run stood behind an entry."""
    recording = await _read(setup, owner, run_id)
    _check_number(recording, number)
    return _snapshot(_open_end(setup, recording.until(number)), number)


def _open_end(setup: Setup, recording: Recording) -> Run[Any]:
    return stand(setup, recording, allow_changed=True)


def _check_number(recording: Recording, number: int) -> None:
    if type(number) is not int:
        raise TypeError(f"an entry is named by its number, such as {recording.last}, and not by {number!r}")
    if not 1 <= number <= recording.last:
        raise ValueError(f"run {recording.head.run_id!r} has the entries 1 to {recording.last}, and no {number}")


def _snapshot(run: Run[Any], number: int, before: str | None = None) -> Snapshot:
    state, result = run.state, run.result
    places = {ctx.node: ctx.at[1] for ctx in _innermost(run.context) if ctx.at is not None and ctx.at[0] is not DONE}
    standing = _standing(run, before)
    value = result.output if result.done else standing.at[1] if standing.at is not None else None
    return Snapshot(
        number, standing.memory, {} if result.done else places, value, run.questions, state.meter.nodes, state.meter.turns,
        state.usage,
    )  # fmt: skip


def _standing(run: Run[Any], before: str | None) -> Context:
    """Give who stands at a node; else the innermost where there is only one, and the outermost where there are several."""
    ends = _innermost(run.context)
    named = [ctx for ctx in ends if before is not None and ctx.node == before]
    return (named or (ends if len(ends) == 1 and not ends[0].branches else [run.context]))[0]


def _innermost(ctx: Context) -> list[Context]:
    return [end for part in ctx.parts.values() for end in _innermost(part)] if ctx.parts else [ctx]


async def fork(
    setup: Setup,
    owner: str,
    origin: str,
    *,
    at: int | None,
    before: str | None,
    after: str | None,
    edit: Callable[[Snapshot], None] | None,
    run_id: str | None,
    allow_changed: bool,
) -> Run[Any]:
    """Make a run that begins as another one did. It is claimed, and goes on with `finish`."""
    if sum(each is not None for each in (at, before, after)) != 1:
        raise ValueError("a fork parts at one place: give one of at=, before= and after=")
    recording = await _read(setup, owner, origin)
    number = _place(recording, at, before, after)
    while recording.entry(number)["t"] == "final":  # a fork of what has ended ends again
        number -= 1
    assert setup.store is not None
    run_id = run_id or _clock.new_id()
    if await setup.store.get(head_key(owner, run_id)) is not None:
        raise RunExistsError(run_id, owner)
    head = recording.head
    source, source_head = origin, head
    while source_head.origin is not None and number <= source_head.origin[1]:
        source = source_head.origin[0]
        source_head = (await read_recording(setup.store, owner, source, until=0))[0].head
    lines = describe(setup.strategy)
    now, token = _clock.now(), Token()
    own = Head(
        run_id, owner, setup.strategy.name, fingerprint(lines), now, now, title=head.title, origin=(source, number),
        claim=Claim.of(token),
    )  # fmt: skip
    earlier = recording.until(number)
    earlier.head = replace(own, fingerprint=head.fingerprint, claim=None)
    run = stand(setup, earlier, allow_changed=allow_changed)
    run.state.questions.clear()
    log = Log(setup.store, own, token.id, last=number)
    log.beside(Exists(head_key(owner, source)), Put(forks_key(owner, source), b""))
    journal = resumed(earlier, log)
    journal.changed = lines if fingerprint(lines) != head.fingerprint else None
    journal.resumed(run.context, ())
    if edit is not None:
        _edit(run, journal, edit, number, before)
    run.state.journal, run.recording = journal, None
    try:
        await journal.commit(head=True)
    except RunClaimedError as error:
        raise RunExistsError(run_id, owner) from error
    run.token, run.held = token, True
    return run


def _edit(run: Run[Any], journal: Journal, edit: Callable[[Snapshot], None], number: int, before: str | None) -> None:
    """Have a fork edited before it goes on, and tell what was changed."""
    recording = run.recording
    assert recording is not None

    def kind_at_end(ctx: Context) -> Any:
        return recording.kind_at(ctx.prefix, "")

    snapshot = _snapshot(run, number, before)
    value, places = snapshot.value, dict(snapshot.places)
    edit(snapshot)
    ends = {ctx.node: ctx for ctx in _innermost(run.context)}
    changed = {path: new for path, new in snapshot.places.items() if new is not places.get(path, _NOTHING)}
    unknown = sorted(changed.keys() - ends.keys())
    if unknown:
        known = ", ".join(map(repr, ends))
        raise ValueError(f"the fork stands at {known}, and the edit sets a value at {unknown[0]!r}")
    if snapshot.value is not value:
        standing = _standing(run, before)
        changed.pop(standing.node, None)
        _put(journal, standing, snapshot.value, kind_at_end(standing))
    for path, new in changed.items():
        _put(journal, ends[path], new, kind_at_end(ends[path]))
    note_edits(run, journal)


def _put(journal: Journal, ctx: Context, value: Any, ends_with: Any) -> None:
    """Have another value stand somewhere. What was done there, and inside, is gone."""
    assert ctx.at is not None
    slot = ctx.at[0]
    ctx.at, ctx.parts, ctx.effects = (slot, value), None, None
    kind = ends_with if slot is DONE else getattr(slot.element, "input_type", Any)
    if not is_a(value, kind):
        where = (
            f"before node {ctx.node!r}" if slot is not DONE else f"at the end of {ctx.prefix[:-1] or 'the strategy'!r}"
        )
        raise ValueError(
            f"the fork stands {where}, where the strategy declares {show(kind)}, and the edit gives a {type(value).__name__}"
        )
    journal.moved(ctx, slot, value, kind)


def _place(recording: Recording, at: int | None, before: str | None, after: str | None) -> int:
    if at is not None:
        _check_number(recording, at)
        return at
    wanted = before if before is not None else after
    assert wanted is not None
    for number in range(recording.last, 0, -1):
        entry = _entry(recording, number)
        if after is not None and entry.node == wanted:
            return number
        moves = before is not None and entry.kind in ("start", "node", "recovered", "edit") and entry.next
        if moves and _begins(recording, entry.next, wanted):
            return number
    known = sorted({entry.node for entry in entries(recording) if entry.node})
    raise ValueError(
        f"run {recording.head.run_id!r} has not come to a node {wanted!r}; it executed: {', '.join(map(repr, known)) or 'none'}"
    )


def _begins(recording: Recording, path: str, wanted: str) -> bool:
    """Tell whether what stands at a path begins with a node: itself, the first of a strategy, or that of a branch."""
    if path == wanted:
        return True
    if not wanted.startswith(f"{path}/"):
        return False
    rest = wanted[len(path) + 1 :].split("/")
    at: Plan | tuple[Slot, ...] | None = recording.slot_at(path)
    while rest and at:
        part = rest.pop(0)
        if isinstance(at, Plan):
            slot = at.first if at.first.name == part else None
        else:
            slot = at[min(int(part), len(at) - 1)] if part.isdecimal() else None
            if slot is not None and rest and rest.pop(0) != slot.name:
                slot = None
        if slot is None:
            return False
        at = slot.inside
    return not rest


async def diff(setup: Setup, owner: str, a: str, b: str) -> Diff:
    """Compare two runs."""
    return compare(await _read(setup, owner, a), await _read(setup, owner, b))


def compare(first: Recording, second: Recording) -> Diff:
    """Compare two recordings."""
    most = min(first.last, second.last)
    common = next((n - 1 for n in range(1, most + 1) if _said(first, n) != _said(second, n)), most)
    return Diff(
        first.head.run_id, second.head.run_id, common,
        tuple(entries(first)[common:]), tuple(entries(second)[common:]),
    )  # fmt: skip


def _said(recording: Recording, number: int) -> dict[str, Any]:
    """Give what an entry says, without when that was and how long it took."""
    entry = {name: value for name, value in recording.entry(number).items() if name not in ("at", "ran")}
    if entry["t"] == "effect" and entry["key"].startswith("call:"):
        entry["value"] = _timeless(entry["value"])
    if "steps" in entry:
        entry["steps"] = _timeless(entry["steps"])
    return entry


def _timeless(data: Any) -> Any:
    """Leave out times of plain data of steps and results of tools, and the hashes of messages that say them too."""
    if isinstance(data, dict):
        kept = cast("dict[str, Any]", data)
        return {
            name: [value[0], len(value[1])] if name == "prompt" and _is_prompt(value) else _timeless(value)
            for name, value in kept.items()
            if name not in ("timing", "seconds")
        }
    return [_timeless(each) for each in cast("list[object]", data)] if isinstance(data, list) else data


def _is_prompt(value: Any) -> bool:
    """Tell whether it says how many messages of the prompt before were sent again, and the hashes of the rest."""
    match value:
        case [int(), [*_]]:
            return True
        case _:
            return False


async def rerun(setup: Setup, owner: str, run_id: str, *, until: int | str | None, new_id: str | None) -> Run[Any]:
    """Give a run that executes another one again, on what that recorded."""
    recording = await _read(setup, owner, run_id)
    number = (
        recording.last
        if until is None
        else _place(recording, until, None, None)
        if isinstance(until, int)
        else _place(recording, None, None, until)
    )
    before = recording.until(1).memory()
    own = next(place for place, step in enumerate(before.steps) if place >= before.begun and isinstance(step, TaskStep))
    task = recording.value(1)
    memory = RunMemory(before.system_prompt.system_prompt, before.steps[: before.begun])
    told = before.steps[own]
    memory.lower(before.floor)
    memory.begin(task, told.task_images if isinstance(told, TaskStep) else ())
    memory.steps.extend(before.steps[own + 1 :])
    run: Run[Any] = Run(setup, memory, task, run_id=new_id or _clock.new_id(), owner=owner)
    run.state.tape = Tape(recording, number, live=until is not None)
    return run
