"""Runs that were submitted and have not begun: what each begins with, and the order of those of a thread."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import msgspec
from msgspec import structs
from msgspec.msgpack import Decoder, Encoder

from graphagent.errors import DamagedStoreError, RunQueuedError, SubmissionSizeError, ThreadFullError
from graphagent.log._header import SUBMITTED, rows_key
from graphagent.log._log import Log
from graphagent.log._segments import read_header
from graphagent.store import DeleteAll, Put
from graphagent.store._items import checked, is_intact

if TYPE_CHECKING:
    from graphagent.log._bytes import Types
    from graphagent.log._header import RunHeader
    from graphagent.log._log import LookUp
    from graphagent.protocols import Store
    from graphagent.store import Change, Key

DEFAULT = "default"
"""The queue of a run that is submitted without a queue."""
LARGEST = 2**26
"""Bytes with which a run may begin that is submitted."""
_ITEMS, _THREADS = 0, 1
"""The third segments of the keys."""


class Submitted(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """What a run begins with."""

    row: bytes
    """A row with the entry with which its log would begin where it was submitted."""
    payloads: dict[int, bytes] = {}
    """The payloads of that row, by their numbers."""

    def pack(self, run_id: str) -> bytes:
        """Return it as bytes."""
        data = _encoder.encode(self)
        if len(data) > LARGEST:
            raise SubmissionSizeError(run_id, len(data), LARGEST)
        return checked(data)

    def opened(self, store: Store | None, header: RunHeader, types: Types | None = None) -> Log:
        """Return a log for a run, which knows the payloads."""
        log = Log(store, header, types=types)
        for number, data in self.payloads.items():
            log.codec.blobs.read(number, data)
        return log

    @staticmethod
    def unpack(value: bytes, run_id: str) -> Submitted:
        """Return the submitted run in some bytes.

        Raises:
            DamagedStoreError: they are not what was written.
        """
        reason = "checksum mismatch"
        if is_intact(value):
            try:
                return _decoder.decode(memoryview(value)[4:])
            except msgspec.MsgspecError as error:
                reason = str(error) if isinstance(error, msgspec.ValidationError) else "not MessagePack"
        raise DamagedStoreError(f"what submitted run {run_id!r} begins with", reason)


class Place(NamedTuple):
    """The place of a run among those that were submitted to a thread and have not begun."""

    key: Key
    run_id: str
    due: int
    """From when on it may begin, in milliseconds UTC. Until then it holds up nobody."""
    ends_busy: bool
    """Whether the last run of the thread is ended, if it is not over and nobody executes it."""

    @property
    def number(self) -> int:
        """The number of the place. Those of lower numbers were submitted before."""
        return int(self.key[-1])


def submitted_key(owner: str, run_id: str) -> Key:
    """Return the key of the item with what a run begins with."""
    return (SUBMITTED, owner, _ITEMS, run_id)


def all_submitted(owner: str) -> Key:
    """Return the prefix of the keys of what the runs of an owner begin with."""
    return (SUBMITTED, owner, _ITEMS)


def line_key(owner: str, thread: str) -> Key:
    """Return the prefix of the keys of the places of a thread, which end with their numbers."""
    return (SUBMITTED, owner, _THREADS, thread)


async def read_line(store: Store, owner: str, thread: str) -> list[Place]:
    """Return the places of a thread, in the order in which the runs were submitted.

    Raises:
        DamagedStoreError: one is not what was written.
        StoreError: they cannot be read.
    """
    found: list[Place] = []
    async for key, value, _ in store.scan(line_key(owner, thread)):
        if not is_intact(value):
            raise DamagedStoreError(f"a submitted run of thread {thread!r}", "checksum mismatch")
        found.append(Place(key, *_place_decoder.decode(memoryview(value)[4:])))
    return found


async def first_in_line(store: Store, owner: str, thread: str, now: int) -> str:
    """Return the run that comes first among those that were submitted to a thread and are due; empty if there is none.

    Raises:
        DamagedStoreError, StoreError: they cannot be read.
    """
    return next((each.run_id for each in await read_line(store, owner, thread) if each.due <= now), "")


async def place_at_end(
    store: Store, header: RunHeader, *, ends_busy: bool = False, most: int | None = None
) -> list[Change]:
    """Return the change that puts a run at the end of those that wait in its thread; none for one that is in no thread.

    Raises:
        DamagedStoreError, StoreError: they cannot be read.
    """
    if not header.thread:
        return []
    line = await read_line(store, header.owner, header.thread)
    if most is not None and len(line) >= most:
        raise ThreadFullError(header.thread, most)
    number = line[-1].number + 1 if line else 1
    record = checked(_encoder.encode((header.run_id, header.due, ends_busy)))
    return [Put((*line_key(header.owner, header.thread), number), record, expected=0)]


async def read_submitted(store: Store, header: RunHeader) -> tuple[Submitted, list[Place]] | None:
    """Return what a run begins with, and the places of its thread; None if it was begun since its header was read.

    Raises:
        RunNotFoundError: it was removed since.
        DamagedStoreError: something is missing, or not what was written.
        StoreError: it cannot be read.
    """
    owner, run_id = header.owner, header.run_id
    item = await store.get(submitted_key(owner, run_id))
    line = await read_line(store, owner, header.thread) if header.thread else []
    if item is None or (header.thread and not any(each.run_id == run_id for each in line)):
        if (await read_header(store, owner, run_id))[0].begun:
            return None
        raise DamagedStoreError(f"submitted run {run_id!r}", "what it begins with is missing")
    return Submitted.unpack(item.value, run_id), line


async def read_unbegun(
    store: Store, owner: str, run_id: str, *, types: Types | None = None, look_up: LookUp | None = None,
    keeps_values: bool = False,
) -> Log | None:  # fmt: skip
    """Return the log of a run that has not begun, as it would begin now, in no thread; None if it was begun meanwhile.

    The next commit with the header begins the run so: for one that ends before it is executed.

    Args:
        store: Where it is.
        owner: Whose run it is.
        run_id: Which run.
        types: Returns declared types of values; without it, values of users' classes are plain data.
        look_up: Looks up the facts and notes to which it refers.
        keeps_values: As in `Log.read`.

    Raises:
        RunNotFoundError: the run does not exist.
        DamagedStoreError: it is not what was written.
        StoreError: it could not be read.
    """
    header, version = await read_header(store, owner, run_id)
    found = None if header.begun else await read_submitted(store, header)
    if found is None:
        return None
    submitted, key = found[0], rows_key(header)
    log = submitted.opened(store, header, types)
    log.is_at(header, version)
    log.codec.keeps_values = keeps_values
    if look_up is not None:
        await look_up(log.codec, [submitted.row])
    log.fold_row(header, 1, submitted.row)
    log.header = structs.replace(header, thread="")
    log.along(*await removal_of(store, header), Put((*key, 1), submitted.row, expected=0))
    log.along(*(Put((*key, 0, number), data) for number, data in submitted.payloads.items()))
    return log


async def read_either(
    store: Store, owner: str, run_id: str, *, types: Types | None = None, look_up: LookUp | None = None,
    keeps_values: bool = False,
) -> Log:  # fmt: skip
    """Return the log of a run, as `Log.read` does; of one that was submitted and has not begun, as `read_unbegun` does.

    Raises:
        RunNotFoundError, DamagedStoreError, StoreError: as `Log.read`.
    """
    while True:
        try:
            return await Log.read(store, owner, run_id, types=types, look_up=look_up, keeps_values=keeps_values)
        except RunQueuedError:
            log = await read_unbegun(store, owner, run_id, types=types, look_up=look_up, keeps_values=keeps_values)
        if log is not None:
            return log


async def removal_of(store: Store, header: RunHeader) -> list[Change]:
    """Return the changes that remove all of a run that has not begun but its header.

    Raises:
        StoreError: it cannot be read.
    """
    line = await read_line(store, header.owner, header.thread) if header.thread else []
    changes: list[Change] = [DeleteAll(submitted_key(header.owner, header.run_id))]
    return changes + [DeleteAll(each.key) for each in line if each.run_id == header.run_id]


_encoder = Encoder()
_decoder = Decoder(Submitted)
_place_decoder = Decoder(tuple[str, int, bool])
