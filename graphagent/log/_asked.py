"""What others ask of the process that executes a run: an item that it looks for, and removes when it has done so."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from msgspec.msgpack import Decoder, Encoder

from graphagent.store import Put
from graphagent.store._items import checked, is_intact

if TYPE_CHECKING:
    from graphagent.log._header import RunHeader
    from graphagent.protocols import Store
    from graphagent.store import Key

ASKED = "asked"
"""The room."""


class Wish(msgspec.Struct, frozen=True, array_like=True):
    """What is asked of a process."""

    token: str
    """The claim of the process: another one that has the run later is not asked."""
    ends: bool
    """Whether the run is to end where it is; else it is to pause."""
    reason: str
    """Why, for people."""


def asked_key(owner: str, run_id: str) -> Key:
    """Return the key of the item."""
    return (ASKED, owner, run_id)


async def ask(store: Store, header: RunHeader, reason: str, *, ends: bool) -> None:
    """Ask the process that has a run to pause or end it.

    Raises:
        StoreError: the store cannot be written.
    """
    assert header.claim is not None
    asked = Wish(header.claim.token, ends, reason)
    await store.commit(Put(asked_key(header.owner, header.run_id), checked(_encoder.encode(asked))))


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
