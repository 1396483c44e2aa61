"""Runs for which something is to be done at a time: each has an item in a room that is read in the order of the times, over all owners.

The item is put, moved and removed in the commit of the header that says the time, by whatever writes headers.
"""

from __future__ import annotations

import logging
import zlib
from typing import TYPE_CHECKING, NamedTuple

from msgspec import structs
from msgspec.msgpack import Decoder, Encoder

from graphagent import _clock
from graphagent.store import Delete, Put
from graphagent.store._bulk import collect
from graphagent.store._checksum import checked, is_intact
from graphagent.store._claims import claims_of

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from graphagent.log._header import RunHeader
    from graphagent.protocols import Store
    from graphagent.store import Change, Key

_log = logging.getLogger("graphagent")
DUE = "due"
"""The room."""
_BUCKETS = 16
"""Parts of the room. In a sealed store each is a domain of its own, or all processes would write the same row."""

_encoder, _decoder = Encoder(), Decoder(str)


class Due(NamedTuple):
    """A run for which something is to be done."""

    at: int
    """When, in milliseconds UTC by the clock of the store."""
    owner: str
    run_id: str
    strategy: str
    """The name of its strategy, whose agents have the run."""


def due_key(header: RunHeader) -> Key:
    """Return the key of the item by which a run is found whose header has a time at which something is due."""
    bucket = zlib.crc32(header.run_id.encode("utf-8", "surrogatepass")) % _BUCKETS
    return (DUE, bucket, header.due, header.owner, header.run_id)


def due_changes(header: RunHeader, before: int) -> list[Change]:
    """Return what becomes of the item when a header is written in the place of one that had the time `before`; 0 is none."""
    if header.due == before:
        return []
    changes: list[Change] = []
    if before:
        changes.append(Delete(due_key(structs.replace(header, due=before))))
    if header.due:
        changes.append(Put(due_key(header), checked(_encoder.encode(header.strategy))))
    return changes


async def time_of(store: Store) -> int:
    """Return the current time for judging deadlines, in milliseconds UTC: by the clock of the store, or else of this process.

    Raises:
        StoreError: the store cannot be read.
    """
    claims = claims_of(store)
    return _clock.now() if claims is None else await claims.now()


async def read_due(store: Store, until: int, limit: int) -> list[Due]:
    """Return the runs, of all owners, for which something is due up to a time, the earliest first.

    A damaged item is logged and left out, since the runs of all others do not depend on it.

    Args:
        store: Where they are.
        until: In milliseconds UTC, by the clock of the store, where it has one.
        limit: At most so many.

    Raises:
        StoreError: the store cannot be read.
    """
    return sorted([each async for each in all_due(store, until, limit)])[:limit]


async def all_due(store: Store, until: int, limit: int | None = None) -> AsyncGenerator[Due]:
    """Yield the runs, of all owners, for which something is due up to a time, as `read_due` finds them, in no order.

    With a `limit`, there are all of the first so many, and perhaps more.

    Raises:
        StoreError: the store cannot be read.
    """
    for bucket in range(_BUCKETS):
        async for item in store.scan((DUE, bucket), limit=limit):
            _, _, at, owner, run_id = item.key
            if int(at) > until:
                break
            if not is_intact(item.value):
                _log.warning("run %r is left alone: the item that something is due for it is damaged", run_id)
                continue
            yield Due(int(at), str(owner), str(run_id), _decoder.decode(memoryview(item.value)[4:]))


async def due_of(store: Store, owner: str) -> list[Key]:
    """Return the keys of the items of an owner's runs. Those of all owners are read for that.

    Raises:
        StoreError: the store cannot be read.
    """
    return [item.key for item in await collect(store.scan((DUE,))) if item.key[3] == owner]
