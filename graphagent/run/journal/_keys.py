"""The keys of runs in a store, and the bytes of records.

`("runs", owner, 0, run_id)` is the header of a run. `("runs", owner, 1, run_id, n)` is its entry number n, from 1 on without gaps, and
`("runs", owner, 1, run_id, hash)` a payload that is stored separately. `("runs", owner, 2, run_id)` gets another version with each
fork of the run and each run that continues it, so that nobody removes an origin meanwhile. `("runs", owner, 3, thread)` has the id of
the run that was begun last in a thread. In a sealed store, the header of a run is a domain, and its entries are another one.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Any

import orjson

from graphagent.errors import DamagedStoreError, StoreError

if TYPE_CHECKING:
    from graphagent.store import Key

ROOM = "runs"
HEADS, ENTRIES, FORKS, THREADS = 0, 1, 2, 3


def head_key(owner: str, run_id: str) -> Key:
    """Return the key of a run's header."""
    return (ROOM, owner, HEADS, run_id)


def forks_key(owner: str, run_id: str) -> Key:
    """Return the key of the item that is put with each fork of a run."""
    return (ROOM, owner, FORKS, run_id)


def thread_key(owner: str, thread: str) -> Key:
    """Return the key of the item that has the id of the last run of a thread."""
    return (ROOM, owner, THREADS, thread)


def thread_record(run_id: str) -> bytes:
    """Return the bytes of the item that names the last run of a thread."""
    return pack({"format": 1, "run": run_id}, f"the thread of run {run_id!r}")


def run_of(record: bytes, thread: str) -> str:
    """Return the id of the last run of a thread, of which this is the item.

    Raises:
        DamagedStoreError: the item is not what was written.
    """
    what = f"thread {thread!r}"
    check(record, what)
    return str(parse(record, what).get("run"))


def entries_key(owner: str, run_id: str) -> Key:
    """Return the prefix of the keys of a run's entries and payloads."""
    return (ROOM, owner, ENTRIES, run_id)


def pack(record: dict[str, Any], what: str) -> bytes:
    """Return a record as bytes: eight hex digits of the CRC-32 of its JSON, and the JSON.

    Raises:
        StoreError: it contains something that JSON cannot hold.
    """
    try:
        text = orjson.dumps(record)
    except TypeError as error:
        raise StoreError(f"{what} cannot be written: {type(error).__name__}") from None
    return b"%08x%b" % (zlib.crc32(text), text)


def unpack(value: bytes) -> dict[str, Any] | None:
    """Return the record that `pack` wrote, or None if the bytes are not what was written."""
    text = value[8:]
    record: Any
    try:
        record = orjson.loads(text) if b"%08x" % zlib.crc32(text) == value[:8] else None
    except ValueError:
        return None
    return record if type(record) is dict else None  # pyright: ignore[reportUnknownVariableType]


def is_intact(value: bytes) -> bool:
    """Return whether bytes are what was written."""
    return b"%08x" % zlib.crc32(value[8:]) == value[:8]


def check(value: bytes, what: str) -> None:
    """Check that bytes are what was written.

    Raises:
        DamagedStoreError: they are not.
    """
    if not is_intact(value):
        raise DamagedStoreError(what, "it is not what was written")


def parse(value: bytes, what: str) -> dict[str, Any]:
    """Return the record in bytes that were checked.

    Raises:
        DamagedStoreError: it is no record.
    """
    try:
        record: Any = orjson.loads(value[8:])
    except orjson.JSONDecodeError:
        record = None
    if not isinstance(record, dict):
        raise DamagedStoreError(what, "it is no record")
    return record  # pyright: ignore[reportUnknownVariableType]
