"""Threads: conversations whose runs are in one log. A run continues the transcript of the last one that ended."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from msgspec import DecodeError
from msgspec.msgpack import Decoder, Encoder

from graphagent.errors import DamagedStoreError, RunClaimedError, RunExistsError, RunNotFoundError, ThreadBusyError
from graphagent.log._bytes import payloads_in, plain
from graphagent.log._header import OVER, RunHeader, header_key, rows_key, thread_key
from graphagent.log._log import Log
from graphagent.log._segments import read_header, read_segment
from graphagent.memory.transcript._transcript import Item, Transcript
from graphagent.run._ending import ended_here
from graphagent.run._reading import look_up_references, read_log
from graphagent.store import Exists, Put
from graphagent.store._items import checked, is_intact

if TYPE_CHECKING:
    from graphagent.protocols import Store
    from graphagent.run._agent_run import AgentRun
    from graphagent.run._session import Beginning
    from graphagent.store import Change

NEXT_CAME = "the next message of its thread came"
"""Why a run ended that was not over when the next one of its thread began."""
_BUSY = ("running", "queued", "waiting", "paused", "sleeping")
_encoder, _decoder = Encoder(), Decoder(dict[str, str])


class Continued(NamedTuple):
    """The run whose transcript a new one continues."""

    header: RunHeader | None
    """Its header; None if the thread has no transcript yet."""
    transcript: Transcript
    changes: tuple[Change, ...]
    """The changes that are committed with the beginning of the new run."""
    payloads: int = 0
    """The highest number of a payload to which the transcript may refer."""
    ended: str = ""
    """The id of the run that is ended by these changes."""


def thread_record(run_id: str) -> bytes:
    """Return the bytes of the item that names the last run of a thread."""
    return checked(_encoder.encode({"run": run_id}))


def run_of(record: bytes, thread: str) -> str:
    """Return the id of the last run of a thread.

    Raises:
        DamagedStoreError: the item is not what was written.
    """
    if not is_intact(record):
        raise DamagedStoreError(f"thread {thread!r}", "checksum mismatch")
    try:
        return _decoder.decode(memoryview(record)[4:])["run"]
    except (DecodeError, LookupError):
        raise DamagedStoreError(f"thread {thread!r}", "it has the content of another item") from None


async def thread_after(store: Store, owner: str, thread: str, run_id: str) -> tuple[str, tuple[Change, ...]]:
    """Return the last run of a thread, empty if it has not begun, and what makes another one its last.

    Raises:
        DamagedStoreError: what names the last run is missing, or not what was written.
        StoreError: the store cannot be read.
    """
    key = thread_key(owner, thread)
    item = await store.get(key)
    changes: tuple[Change, ...] = (Put(key, thread_record(run_id), expected=0 if item is None else item.version),)
    if item is not None:
        return run_of(item.value, thread), changes
    # Without the second row, nobody could tell a thread whose row was lost from one that has not begun.
    if await store.get((*key, 0)) is not None:
        raise DamagedStoreError(f"thread {thread!r}", "the row that names its last run is missing")
    return "", (*changes, Put((*key, 0), thread_record("")))


async def continued(run: AgentRun, store: Store) -> Continued:
    """Return what the run continues: the last run of its thread that is over. Those that failed or were cancelled are left out.

    Raises:
        DamagedStoreError: the earlier run is not what was written, or the row that names the last run is missing.
        StoreError: the store cannot be read.
    """
    owner, thread, config = run.owner, run.session.thread, run.config
    last, changes = await thread_after(store, owner, thread, run.run_id)
    if last == run.run_id:
        raise RunExistsError(run.run_id, owner)  # begun before, whether it still runs or not
    if last and run.session.beginning is not None and run.session.beginning.ends_busy:
        ended = await _ended_for(run, last)
        if ended is not None:
            log = ended.log
            changes = (*changes, *await log.handed_over())
            return Continued(log.header, ended.frame.transcript, changes, log.codec.blobs.last, last)
    header = await _last_over(store, owner, last, thread) if last else None
    if header is not None and header.status not in OVER:
        return await _carried(run, store, header, changes)
    if header is None:
        return Continued(None, Transcript(config.system_prompt), changes)
    # Not kept in memory: runs before this one may have been forgotten, of which its header says nothing.
    transcript = (await read_log(config, owner, header.run_id)).state.root.transcript
    return Continued(header, transcript, (*changes, Exists(header_key(owner, header.run_id))), header.payloads)


async def continued_by_steps(run: AgentRun, beginning: Beginning, store: Store) -> Continued | None:
    """Return what a run continues that was given the steps of a stored one; None if it has a copy of them.

    Raises:
        DamagedStoreError: the stored run is not what was written.
        StoreError: the store cannot be read.
    """
    earlier, begun = beginning.earlier, beginning.log.state.root.transcript
    if earlier is None or begun.items[: begun.begun] != [Item(number, number) for number in range(begun.begun)]:
        return None  # the steps were changed since
    own = earlier.log.header
    try:
        header, _ = await read_header(store, run.owner, own.run_id)
    except RunNotFoundError:
        return None  # it was removed since
    if (header.started, header.last, header.previous) != (own.started, own.last, own.previous):
        return None  # another run has its id now, or what was before it was pruned
    transcript = (await read_log(run.config, run.owner, header.run_id)).state.root.transcript
    if transcript.prompt()[0] != earlier.frame.transcript.prompt()[0]:
        return None  # what it says was forgotten since
    return Continued(header, transcript, (Exists(header_key(run.owner, header.run_id)),), header.payloads)


async def _carried(run: AgentRun, store: Store, header: RunHeader, changes: tuple[Change, ...]) -> Continued:
    """Return what runs that were pruned left to one that failed; the new run takes a copy."""
    config, segment = run.config, await read_segment(store, header)
    row = next((row for first, row in segment.rows if not first), None)
    if row is None:
        return Continued(None, Transcript(config.system_prompt), changes)
    log = Log(store, header, types=config.kind_of_step)
    for number, data in segment.payloads.items():
        log.codec.blobs.read(number, data)
    await look_up_references(config.features_at, run.owner, log.codec, [row])
    log.fold_row(header, 0, row)
    key, names = rows_key(RunHeader(run_id=run.run_id, owner=run.owner)), payloads_in(plain(row))
    changes += (
        Put((*key, 0), row),
        *(Put((*key, 0, name), segment.payloads[name]) for name in names & segment.payloads.keys()),
    )
    return Continued(None, log.state.root.transcript, changes, log.codec.blobs.last)


async def _ended_for(run: AgentRun, last: str) -> AgentRun | None:
    """Return the last run of a thread with its end, which is committed with the beginning of a run; None if it is over already.

    Raises:
        DamagedStoreError: it is not what was written.
    """
    try:
        ended = await ended_here(run.config, run.owner, last, NEXT_CAME)
    except RunClaimedError:
        raise ThreadBusyError(run.session.thread, last, "running", run.owner) from None
    except RunNotFoundError:
        raise DamagedStoreError(f"thread {run.session.thread!r}", f"its run {last!r} is missing") from None
    return None if ended.log.state.number == ended.log.committed else ended


async def _last_over(store: Store, owner: str, run_id: str, thread: str) -> RunHeader | None:
    """Return the header of the last run that is over, from this one on backwards; else of the first one, which may have what was pruned."""
    while run_id:
        try:
            header, _ = await read_header(store, owner, run_id)
        except RunNotFoundError:
            raise DamagedStoreError(f"thread {thread!r}", f"its run {run_id!r} is missing") from None
        if header.status in OVER:
            return header
        # A worker continues what was submitted, also if it was interrupted.
        if header.status in _BUSY or (header.status == "interrupted" and header.queue):
            raise ThreadBusyError(thread, header.run_id, header.status, header.owner)
        if not header.previous:
            return header
        run_id = header.previous
    return None
