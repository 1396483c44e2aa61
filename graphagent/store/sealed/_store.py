"""Encryption as a store around a store."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, NoReturn, Self

from graphagent._article import kind_of
from graphagent.store._fork_safety import OwnLock
from graphagent.store.sealed._key_sources import HeldKey, KeySource

if TYPE_CHECKING:
    from graphagent.protocols import Store
    from graphagent.store._items import Change, Item, Key
    from graphagent.store.sealed._operations import SealedStore

_DOMAINS = {"facts": 5, "runs": 4, "notes": 2}
"""Of the rooms that graphagent itself keeps: facts are forgotten by owner, scope (kind and name) and subject, runs one by one."""


class EncryptedStore:
    """A store that keeps everything sealed in another one, which it has to itself.

    Values are encrypted, text segments of keys are blinded, ints stay. Each domain has a random key of its own, which is
    destroyed with it, and an account of what it holds: what was changed, exchanged, put back, taken away or added by someone
    without the key is refused as damaged. That an old copy of the whole store, or of a whole domain, was put in its place
    cannot be seen from within. `docs/format.md` specifies the format and says what still shows.

    A domain is what is forgotten together: the items whose keys begin with the same first n segments. `domains` gives n for
    a room of one's own, such as `{"documents": 3}`; it is 5 for `facts`, 4 for `runs`, 2 for others, and stays what it was
    when the room was first used. The first use of a domain reads it in full; from then on no operation costs more the more there is. `key` is
    32 bytes, or one of the other forms of `KeySource`.

    What is known of domains is kept in memory, about `cache_bytes` in all: 300 bytes for each item. Beyond that, the domains
    that were not used for longest are let go, and are read in full again at their next use. Let go with them is the knowledge
    which versions they had. What the last used domain and a commit under way need is kept in any case. `aclose` lets go of all.

    Any number of tasks, threads and processes may use one store, of which a process forked after the first use makes its own
    EncryptedStore. `async with` closes the store within. Once it is sealed, a
    SqliteStore or a MemoryStore refuses whoever would use it without the key (SealedStoreError); one that holds something
    in plain is never sealed (PlainStoreError).

    Raises:
        TypeError: `store` is no store.
        ValueError: `key` is no key, a depth in `domains` is not 1 to 255, or `cache_bytes` is no number of bytes. No key is shown.
    """

    def __init__(
        self,
        store: Store,
        key: KeySource,
        *,
        domains: Mapping[str, int] | None = None,
        cache_bytes: int = 64 * 2**20,
    ) -> None:
        if isinstance(store, type) or not callable(getattr(store, "commit", None)):
            raise TypeError(
                f"an EncryptedStore is made around a store: EncryptedStore(SqliteStore(path), key); {kind_of(store)} "
                f"is not a store"
            )
        for room, depth in (domains or {}).items():
            if not 1 <= depth <= 255:
                raise ValueError(
                    f"domains={{{room!r}: {depth}}}: a domain is made of the first 1 to 255 segments of a key"
                )
        if type(cache_bytes) is not int or cache_bytes < 0:
            raise ValueError(f"cache_bytes={cache_bytes!r} is no number of bytes; it is an int of 0 or more")
        self._store = store
        self._cache_bytes = cache_bytes
        self._key = HeldKey(key)
        self._depths = {**_DOMAINS, **(domains or {})}
        self._opened: SealedStore | None = None
        self._opening = OwnLock()

    def __repr__(self) -> str:
        return f"EncryptedStore({self._store!r})"

    def __reduce__(self) -> NoReturn:
        raise TypeError("an EncryptedStore holds a key and cannot be pickled")

    async def get(self, key: Key) -> Item | None:
        """Give the item under a key, or None.

        Raises:
            WrongKeyError: the store was sealed with another key.
            PlainStoreError: the store within was never sealed, and holds something.
            DamagedStoreError: the item, or what speaks of it, is not what was put there last.
            StoreError: the store within cannot be read.
        """
        return (await self._sealed().get_many((key,))).get(key)

    async def get_many(self, keys: Iterable[Key]) -> dict[Key, Item]:
        """Return the items under `keys`, in their order, without those that do not exist.

        Raises:
            WrongKeyError: the store was sealed with another key.
            PlainStoreError: the inner store was never sealed and is not empty.
            DamagedStoreError: an item, or what authenticates it, is not what was stored last.
            StoreError: the inner store cannot be read.
        """
        return await self._sealed().get_many(keys)

    def scan(
        self, prefix: Key, *, after: Key | None = None, limit: int | None = None, reverse: bool = False
    ) -> AsyncIterator[Item]:
        """Give the items whose keys begin with the segments of `prefix`, those equal up to an int in its order.

        Raises:
            WrongKeyError: the store was sealed with another key.
            PlainStoreError: the store within was never sealed, and holds something.
            DamagedStoreError: what is there is not what was put there last.
            StoreError: the store within cannot be read.
        """
        return self._sealed().scan(prefix, after=after, limit=limit, reverse=reverse)

    async def commit(self, *changes: Change) -> None:
        """Make all changes or none; they are as durable as the store within makes them when this returns.

        Raises:
            ConflictError: an item is not at the version that a change expects, or not there where one must be.
            WrongKeyError: the store was sealed with another key.
            PlainStoreError: the store within was never sealed, and holds something.
            DamagedStoreError: what is to be changed is not what was put there last.
            NotErasedError: all changes are made, but bytes of what DeleteAll removed may still be on the disk.
            StoreError: the store within cannot be written.
        """
        await self._sealed().commit(*changes)

    async def verify(self) -> int:
        """Read everything, here and in the store within, and check it. Gives the number of items.

        Raises:
            WrongKeyError: the store was sealed with another key.
            PlainStoreError: the store within was never sealed, and holds something.
            DamagedStoreError: something is not what was put there last.
            StoreError: the store within cannot be read, or others keep writing to it.
        """
        return await self._sealed().verify()

    async def aclose(self) -> None:
        """Close the store within, if it can be closed, and forget what was read of it."""
        self._opened = None
        close = getattr(self._store, "aclose", None)
        if close is not None:
            await close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        await self.aclose()

    def _sealed(self) -> SealedStore:
        opened = self._opened
        if opened is None:
            from graphagent.store.sealed._operations import SealedStore

            with self._opening:
                if self._opened is None:
                    where = str(getattr(self._store, "path", self._store))
                    self._opened = SealedStore(
                        self._store, self._key, self._depths, where, cache_bytes=self._cache_bytes
                    )
                return self._opened
        return opened
