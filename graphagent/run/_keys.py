"""Where runs stand in a store.

`("runs", owner, 0, run_id)` is the head of a run: what can be said of it at a glance. `("runs", owner, 1, run_id, n)` is its entry
number n, from 1 on without holes, and `("runs", owner, 1, run_id, hash)` a payload that stands apart. `("runs", owner, 2, run_id)` gets
another version with each fork of the run, so that nobody removes an origin in the moment in which it is forked. The head of a
sealed run and its entries are a domain each.
"""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Any

import orjson

from graphagent.errors import DamagedStoreError, StoreError

if TYPE_CHECKING:
    from graphagent.store import Key

ROOM = "runs"
HEADS, ENTRIES, FORKS = 0, 1, 2


def head_key(owner: str, run_id: str) -> Key:
    """Give where a run's head stands."""
    return (ROOM, owner, HEADS, run_id)


def forks_key(owner: str, run_id: str) -> Key:
    """Give what is put with each fork of a run."""
    return (ROOM, owner, FORKS, run_id)


def entries_key(owner: str, run_id: str) -> Key:
    """Give the prefix of a run's entries and payloads."""
    return (ROOM, owner, ENTRIES, run_id)


def pack(record: dict[str, Any], what: str) -> bytes:
    """Give a record as bytes: eight hex digits of the CRC-32 of its JSON, and the JSON.

    Raises:
        StoreError: it holds something that JSON has no place for.
    """
    try:
        text = orjson.dumps(record)
    except TypeError as error:
        raise StoreError(f"{what} cannot be written: {type(error).__name__}") from None
    return b"%08x%b" % (zlib.crc32(text), text)


def unpack(value: bytes) -> dict[str, Any] | None:
    """Give the record of `pack`; None where the bytes are not what was written."""
    text = value[8:]
    record: Any
    try:
        record = orjson.loads(text) if b"%08x" % zlib.crc32(text) == value[:8] else None
    except ValueError:
        return None
    return record if type(record) is dict else None  # pyright: ignore[reportUnknownVariableType]


def check(value: bytes, what: str) -> None:
    """See that bytes are what was written.

    Raises:
        DamagedStoreError: they are not.
    """
    if b"%08x" % zlib.crc32(value[8:]) != value[:8]:
        raise DamagedStoreError(what, "it is not what was written")


def parse(value: bytes, what: str) -> dict[str, Any]:
    """Give the record of bytes that were checked.

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
