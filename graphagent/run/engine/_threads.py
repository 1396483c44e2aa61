"""Continuing the transcript of an earlier run by reference: the last run of a thread, or the one whose transcript is `steps=`.

The entries of such a run follow those of the earlier one, as those of a fork do, and begin with a `start` of their own. So
nothing that was said before is written again, and removing the earlier run leaves this one whole.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from graphagent.errors import RunExistsError, RunNotFoundError, ThreadBusyError
from graphagent.memory import RunMemory
from graphagent.run.journal._keys import forks_key, head_key, run_of, thread_key, thread_record
from graphagent.run.journal._reader import read_header, read_journal
from graphagent.run.journal._references import look_up
from graphagent.store import Exists, Put

if TYPE_CHECKING:
    from graphagent.protocols import Store
    from graphagent.run.engine._driver import RunDriver
    from graphagent.run.journal._header import RunHeader
    from graphagent.store import Change

_MOST = 32
"""Transcripts of threads that an agent keeps in memory."""


@dataclass(frozen=True, slots=True)
class StoredTranscript:
    """Where a store has the transcript of a run that has ended."""

    store: Store
    header: RunHeader
    """The header of the run when it had ended."""
    identity: object
    """Identifies the journal in the steps that are stored in it."""

    def is_of(self, header: RunHeader) -> bool:
        """Return whether a run is this very one, unchanged: another one may have got its id after it was removed."""
        own = self.header
        return (own.run_id, own.last, own.started, own.updated) == (
            header.run_id, header.last, header.started, header.updated,
        )  # fmt: skip


class Continued(NamedTuple):
    """The run whose transcript a new one continues."""

    origin: tuple[str, int] | None = None
    """The run, and its last entry; None: there is none."""
    identity: object = None
    """Identifies its journal in the steps that are stored in it."""
    changes: tuple[Change, ...] = ()
    """What is to be committed with the first entry of the new run."""


def keep(run: RunDriver) -> None:
    """Keep the transcript of a run that ended in memory, so that its process does not read again what it wrote itself."""
    held, key = run.config.threads, (run.runtime.owner, run.thread)
    held.pop(key, None)
    held[key] = run.runtime.memory
    if len(held) > _MOST:
        del held[next(iter(held))]


async def continued(run: RunDriver, store: Store) -> Continued:
    """Return what the run continues, whose steps are put before its own.

    Raises:
        ThreadBusyError: the last run of its thread has not ended.
        RunExistsError: that is this very run.
        DamagedStoreError: the earlier run is not what was written.
        StoreError: the store cannot be read.
    """
    if run.thread:
        return await _thread(run, store)
    stored = run.earlier
    if stored is None:
        return Continued()
    header = await _header(store, stored.header.owner, stored.header.run_id)
    if header is None or not stored.is_of(header):
        run.runtime.memory.detach()  # it was removed, so this run has to have its steps itself
        return Continued()
    return _after(header.owner, (header.run_id, header.last), stored.identity)


def _after(owner: str, origin: tuple[str, int], identity: object, *changes: Change) -> Continued:
    """Return what a run continues; the commit that begins it fails if the earlier run is removed meanwhile."""
    guards = Exists(head_key(owner, origin[0])), Put(forks_key(owner, origin[0]), b"")
    return Continued(origin, identity, (*guards, *changes))


async def _thread(run: RunDriver, store: Store) -> Continued:
    """Return the last run of a thread that has ended. Those that failed, were cancelled or interrupted are left out."""
    runtime, config, thread = run.runtime, run.config, run.thread
    owner, key = runtime.owner, thread_key(runtime.owner, thread)
    item = await store.get(key)
    change = Put(key, thread_record(runtime.run_id), expected=item.version if item is not None else 0)
    head = None if item is None else await _header(store, owner, run_of(item.value, thread))
    if head is not None and head.run_id == runtime.run_id:
        raise RunExistsError(runtime.run_id, owner)  # begun before, whether it still runs or not
    origin = None if head is None else _end(head, thread)
    if head is None or origin is None:
        runtime.memory.follow(RunMemory(), known=False)  # an attempt that failed may have found something
        return Continued(changes=(change,))
    memory = config.threads.get((owner, thread))
    stored: StoredTranscript | None = memory.stored if memory is not None and memory.is_stored else None
    if memory is None or stored is None or origin != (head.run_id, head.last) or not stored.is_of(head):
        reader = await read_journal(store, owner, origin[0], until=origin[1])
        await look_up(reader, config.features)
        if reader.header.strategy_digest == config.strategy.outline.digest:  # else its values are of other types
            reader.read_for(config.compiled, config.strategy.input_type, config.strategy.output_type)
        memory, identity = reader.memory(), reader.identity
    else:
        identity = stored.identity
    runtime.memory.follow(memory, known=True)
    return _after(owner, origin, identity, change)


async def _header(store: Store, owner: str, run_id: str) -> RunHeader | None:
    """Return the header of a run, or None if it was removed.

    Raises:
        DamagedStoreError: it is not what was written.
    """
    try:
        return (await read_header(store, owner, run_id))[0]
    except RunNotFoundError:
        return None


def _end(head: RunHeader, thread: str) -> tuple[str, int] | None:
    """Return the entry with which the part of a thread ends that counts; None if there is nothing yet.

    Raises:
        ThreadBusyError: its last run has not ended.
    """
    if head.state == "done":
        return head.run_id, head.last
    if head.state in ("running", "waiting", "paused"):
        raise ThreadBusyError(thread, head.run_id, head.state, head.owner)
    if head.origin is not None and not head.forked and head.origin[1] == head.first - 1:
        return head.origin
    return (head.run_id, head.first - 1) if head.first > 1 else None
