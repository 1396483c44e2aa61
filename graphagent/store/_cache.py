"""Values that expire, in the room `cache` of a store."""

from __future__ import annotations

import math
import struct
from contextlib import suppress
from contextvars import ContextVar
from typing import TYPE_CHECKING, NamedTuple

from graphagent._article import kind_of
from graphagent._clock import now
from graphagent.errors import ConflictError
from graphagent.store._items import DeleteAll, Exists, Key, Put

if TYPE_CHECKING:
    from graphagent.protocols import Store

_HEAD = struct.Struct(">BQ")
"""The format, and when the value expires, in milliseconds UTC since 1970; 0 for never."""
_FORMAT = 1
_LATEST = 2**64 - 1


class Asker(NamedTuple):
    """Who has a model asked."""

    owner: str = ""
    """Whose question it is."""
    store: Store | None = None
    """Where the run is that asks, if one does."""
    header: Key = ()
    """The key of its header there."""


_NOBODY = Asker()
asker: ContextVar[Asker] = ContextVar("graphagent_asker", default=_NOBODY)
"""On whose behalf the model is asked that this task asks: models know neither runs nor owners."""


def cached_of(owner: str) -> Key:
    """Return the prefix of the keys of all cached values of an owner."""
    return ("cache", owner)


async def erase_expired(store: Store, prefix: Key) -> int:
    """Erase the cached values under a prefix that have expired, or that another version wrote, and return how many they were.

    Raises:
        StoreError: the store cannot be read or written.
    """
    time, expired = now(), list[DeleteAll]()
    async for item in store.scan(prefix):
        form, expires = _HEAD.unpack_from(item.value) if len(item.value) >= _HEAD.size else (0, 0)
        if form != _FORMAT or 0 < expires <= time:
            expired.append(DeleteAll(item.key))
    if expired:
        await store.commit(*expired)
    return len(expired)


class Cache:
    """Values under `("cache", owner, kind, …)`, which are found until they expire."""

    def __init__(self, store: Store, kind: str, owner: str, ttl: float | None) -> None:
        """Name the cached values.

        Raises:
            TypeError: `ttl` is not a number.
            ValueError: `ttl` is not above 0, or not finite.
        """
        if ttl is not None:
            if isinstance(ttl, bool) or not isinstance(ttl, int | float):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise TypeError(f"ttl is a number of seconds or None, not {kind_of(ttl)}")
            if not 0 < ttl < math.inf:
                raise ValueError(
                    f"ttl={ttl} is not how long something is kept; it is a number of seconds above 0, or None"
                )
        self.store = store
        self.prefix: Key = (*cached_of(owner), kind)
        self.ttl = ttl

    async def get(self, name: str) -> bytes | None:
        """Return the value of a name; None if there is none, it has expired, or another version of graphagent wrote it.

        Raises:
            StoreError: the store cannot be read.
        """
        item = await self.store.get((*self.prefix, name))
        if item is None or len(item.value) < _HEAD.size:
            return None
        form, expires = _HEAD.unpack_from(item.value)
        return item.value[_HEAD.size :] if form == _FORMAT and (not expires or now() < expires) else None

    async def put(self, name: str, value: bytes, run: Key | None = None) -> None:
        """Store a value, in the place of any other of its name, unless the run whose header has this key was forgotten meanwhile.

        Raises:
            StoreError: the store cannot be written.
        """
        expires = 0 if self.ttl is None else min(now() + round(self.ttl * 1_000), _LATEST)
        put = Put((*self.prefix, name), _HEAD.pack(_FORMAT, expires) + value)
        with suppress(ConflictError):
            await self.store.commit(put, *([Exists(run)] if run else ()))

    async def erase(self, *names: str) -> None:
        """Erase the values of these names, or all without one, together with their bytes.

        Raises:
            StoreError: the store cannot be written.
        """
        prefixes = [(*self.prefix, name) for name in names] if names else [self.prefix]
        await self.store.commit(*map(DeleteAll, prefixes))
