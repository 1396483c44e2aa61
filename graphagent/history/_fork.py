"""Forks: runs that begin as another one did, and continue from one of its entries."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from msgspec import structs

from graphagent import _clock
from graphagent._options import check_name
from graphagent.errors import RunClaimedError, RunExistsError, RunNotFoundError
from graphagent.graph._types import is_a, show
from graphagent.history._carried import carried
from graphagent.history._entries import check_number, frame_at, innermost, read_for, results_of, snapshot
from graphagent.llm import ToolResult
from graphagent.log._bytes import cut, payloads_in, plain
from graphagent.log._claim import Token
from graphagent.log._entries import EffectRecorded, LibraryObject, Placed, Resumed
from graphagent.log._header import RunHeader, header_key, rows_key, time_of
from graphagent.log._log import Log
from graphagent.log._replay import Replay
from graphagent.log._segments import Segment, read_header, read_segments
from graphagent.log._visits import PLACED
from graphagent.memory.transcript._memory import RunMemory
from graphagent.run._answering import begin_features
from graphagent.run._effects import RunEditor
from graphagent.run._reading import look_up_references, run_over
from graphagent.store import Exists, Put

if TYPE_CHECKING:
    from graphagent.history._entries import Entry, Snapshot
    from graphagent.log._visits import Frame
    from graphagent.run._agent_run import AgentRun
    from graphagent.run._config import RunConfig

_NOTHING = object()


class Fork(NamedTuple):
    """Where a fork parts from its origin, and the changes in it."""

    at: int | None = None
    before: str | None = None
    after: str | None = None
    edit: Callable[[Snapshot], None] | None = None
    run_id: str | None = None
    """Its id; None: a new one."""
    allow_changed: bool = False


async def fork(config: RunConfig, owner: str, origin: str, wanted: Fork) -> AgentRun:
    """Return a run that begins as another one did. It is claimed, and continues with `finish`.

    It has its own copies of the entries up to that point. If the other run continues a transcript, what was visible of that is
    copied too.
    """
    run, token = await _forked(config, owner, origin, wanted), Token()
    await _write(run, origin, lambda: run.log.claim(token))
    run.session.token, run.session.claimed = token, True
    await begin_features(run)
    return run


async def fork_for_workers(config: RunConfig, owner: str, origin: str, wanted: Fork, queue: str) -> RunHeader:
    """Write a run that begins as another one did, and waits in a queue for a worker. Return its header."""
    run = await _forked(config, owner, origin, wanted)
    log, due = run.log, await time_of(config.runs)
    log.header = structs.replace(log.header, written="queued", queue=queue, due=due)
    await _write(run, origin, lambda: log.commit(header=True))
    return log.header


async def _write(run: AgentRun, origin: str, write: Callable[[], Awaitable[None]]) -> None:
    """Write a fork.

    Raises:
        RunExistsError: a run with its id exists already.
        RunNotFoundError: its origin was removed.
    """
    try:
        await write()
    except RunClaimedError as error:
        if await run.config.runs.get(header_key(run.owner, origin)) is None:
            raise RunNotFoundError(origin, run.owner) from error
        raise RunExistsError(run.run_id, run.owner) from error


async def _forked(config: RunConfig, owner: str, origin: str, wanted: Fork) -> AgentRun:
    """Return a run that begins as another one did. It is not written."""
    if sum(each is not None for each in (wanted.at, wanted.before, wanted.after)) != 1:
        raise ValueError("a fork parts at one place: give one of at=, before= and after=")
    if wanted.run_id is not None:
        check_name("run_id", wanted.run_id, "'order-7-again', or None for a new one")
    entries = (await read_for(config, owner, origin)).entries
    number = number_at(origin, entries, wanted.at, wanted.before, wanted.after)
    store, run_id = config.runs, _clock.new_id() if wanted.run_id is None else wanted.run_id
    if await store.get(header_key(owner, run_id)) is not None:
        raise RunExistsError(run_id, owner)
    header, _ = await read_header(store, owner, origin)
    now = _clock.now()
    *earlier, own = await read_segments(store, header)
    new = RunHeader(
        run_id=run_id, owner=owner, strategy=config.strategy.name, strategy_digest=config.strategy.outline.digest,
        version=config.named_version, started=now, updated=now, title=header.title, origin=(origin, number),
    )  # fmt: skip
    copied = _copied(new, own, number)
    if earlier:
        first = carried(earlier, max(own.payloads, default=0))
        copied.rows.insert(0, (0, first.row))
        copied.payloads.update(first.payloads)
    begun = structs.replace(new, strategy_digest=header.strategy_digest, version=header.version)
    log = Log(store, begun, types=config.kind_of_step)
    await look_up_references(config.features_at, owner, log.codec, [row for _, row in copied.rows])
    replay = Replay(config.ruled_in)
    log.fold([copied], watch=replay.watch)
    log.past = replay.executed
    log.codec.blobs.last = max((log.codec.blobs.last, *own.payloads))
    log.codec.refers_at[""] = config.refers
    run = run_over(config, log, allow_changed=wanted.allow_changed)
    log.header, key = new, rows_key(new)
    log.note_agents()
    log.along(Exists(header_key(owner, origin)))
    log.along(*(Put((*key, first), row, expected=0) for first, row in copied.rows))
    log.along(*(Put((*key, 0, name), data) for name, data in copied.payloads.items()))
    outline = config.strategy.outline
    changed = outline if outline.digest != header.strategy_digest else None
    log.append(Resumed(forked=True, strategy=changed, declared=config.declared_since(log.state.run)))
    if wanted.edit is not None:
        _edit(run, wanted.edit, number, wanted.before)
    return run


def _copied(header: RunHeader, own: Segment, number: int) -> Segment:
    """Return the rows of a run up to one of its entries, and the payloads to which they refer."""
    copied = Segment(header, [], {})
    named: set[int] = set()
    for first, row in own.rows:
        if first <= number:
            copied.rows.append((first, cut(row, number - first + 1) if first else row))
            named |= payloads_in(plain(copied.rows[-1][1]))
    copied.payloads.update((name, own.payloads[name]) for name in sorted(named & own.payloads.keys()))
    return copied


def number_at(run_id: str, entries: Sequence[Entry], at: int | None, before: str | None, after: str | None) -> int:
    """Return the number of the entry that is named by itself, or by the node that it led to or ended.

    The end of a run does not count: what continues after it ends again.

    Raises:
        ValueError: the entry does not exist.
    """
    wanted = before if before is not None else after
    if at is not None:
        check_number(run_id, at, entries)
        number = at
    else:
        number = next(
            (
                entry.number
                for entry in reversed(entries)
                if (wanted in entry.begins if before is not None else entry.node == wanted)
            ),
            0,
        )
    if not number:
        known = ", ".join(map(repr, sorted({entry.node for entry in entries if entry.node}))) or "none"
        raise ValueError(f"run {run_id!r} has not come to a node {wanted!r}; it executed: {known}")
    # What was learned later stands after the end.
    return min((number, *(entry.number - 1 for entry in entries if entry.ends_run)))


def _edit(run: AgentRun, edit: Callable[[Snapshot], None], number: int, before: str | None) -> None:
    """Let a function edit a fork before it continues, and record what it changed."""
    config, log, root = run.config, run.log, run.log.state.root
    frame, shown = frame_at(root, before), snapshot(config, log, number, before)
    shown.memory = memory = RunMemory(editor=RunEditor(run, frame))
    value, places, results = shown.value, dict(shown.places), dict(shown.results)
    edit(shown)
    if shown.memory is not memory:
        memory.system_prompt, memory.steps = shown.memory.system_prompt, shown.memory.steps
    ends = {each.node_path: each for each in innermost(root)}
    changed = {path: new for path, new in shown.places.items() if new is not places.get(path, _NOTHING)}
    unknown = sorted(changed.keys() - ends.keys())
    if unknown:
        known = ", ".join(map(repr, ends))
        raise ValueError(f"the fork is at {known}, and the edit sets a value at {unknown[0]!r}")
    for id_, result in shown.results.items():
        if result is not results.get(id_):
            _put_result(log, id_, result)
    if shown.value is not value:
        changed.pop(frame.node_path, None)
        _put(config, log, frame, shown.value)
    for path, new in changed.items():
        _put(config, log, ends[path], new)


def _put_result(log: Log, id_: str, result: ToolResult) -> None:
    """Put another result of a tool call in the place of the recorded one."""
    found = results_of(log.state)
    if id_ not in found:
        known = ", ".join(map(repr, found)) or "none"
        raise ValueError(f"the edit sets a result of call {id_!r}, and these have one at the fork: {known}")
    if not isinstance(result, ToolResult) or result.call_id != id_:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ValueError(
            f"the result of call {id_!r} is a ToolResult of that call: replace(results[{id_!r}], content=…)"
        )
    frame, key, _ = found[id_]
    log.append(EffectRecorded(at=frame.path, kind="tool", key=key, held=LibraryObject(result)))


def _put(config: RunConfig, log: Log, frame: Frame, value: Any) -> None:
    """Put another value into a frame. The effects of its node, and the frames inside it, are gone."""
    node = frame.visit.node or ""
    kind = config.kind_of(frame.path + node, PLACED)
    if not is_a(value, kind):
        where = f"before node {frame.node_path!r}" if node else f"at the end of {frame.path[:-1] or 'the strategy'!r}"
        raise ValueError(
            f"the fork is {where}, where the strategy declares {show(kind)}, and the edit gives a {type(value).__name__}"
        )
    log.append(Placed(at=frame.path, to=node, value=log.keep(value, kind)))
