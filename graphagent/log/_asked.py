"""What others ask of the process that executes a run: an item that it looks for, and removes when it has done so."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from msgspec.msgpack import Decoder, Encoder

from graphagent.log._changes import Changes
from graphagent.log._segments import read_header
from graphagent.store import Delete, Put
from graphagent.store._items import checked, is_intact

if TYPE_CHECKING:
    from graphagent.log._header import RunHeader
    from graphagent.protocols import Store
    from graphagent.store import Key

ASKED = "asked"
"""The room."""


class Wish(msgspec.Struct, frozen=True, array_like=True):
    """The request that a process stop a run."""

    token: str
    """The claim of the process: another one that has the run later is not asked."""
    ends: bool
    """Whether the run is to end where it is; else it is to pause."""
    reason: str
    """Why, for people."""


def asked_key(owner: str, run_id: str) -> Key:
    """Return the key of the item."""
    return (ASKED, owner, run_id)


async def ask(store: Store, owner: str, run_id: str, reason: str, *, ends: bool) -> None:
    """Ask the worker that executes a run to pause or end it, and wait until no process executes it.

    If this is cancelled, the request stands.

    Raises:
        RunNotFoundError: the run does not exist.
        RunClaimedError: the process that executes the run is not a worker, and does not look for requests.
        StoreError: the store cannot be read or written.
    """
    asked, changes, key = "", Changes(store, owner, run_id, "header"), asked_key(owner, run_id)
    while (header := (await read_header(store, owner, run_id))[0]).running:
        if not header.queue:
            header.check_free()
        if header.claim is not None and header.claim.token != asked:
            asked = header.claim.token
            await store.commit(Put(key, checked(_encoder.encode(Wish(asked, ends, reason)))))
        await changes.next()
    if asked and await store.get(key) is not None:
        await store.commit(Delete(key))  # the worker stopped the run before it looked for requests


async def read_asked(store: Store, header: RunHeader) -> Wish | None:
    """Return the request for the process that has a run, or None. A damaged item counts as no request.

    Raises:
        StoreError: the store cannot be read.
    """
    item = await store.get(asked_key(header.owner, header.run_id))
    if item is None or not is_intact(item.value) or header.claim is None:
        return None
    asked = _decoder.decode(memoryview(item.value)[4:])
    return asked if asked.token == header.claim.token else None


_encoder, _decoder = Encoder(), Decoder(Wish)
