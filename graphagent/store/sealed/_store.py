"""EncryptedStore: encryption as a store around a store."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, NoReturn, Self

from graphagent._options import check_can
from graphagent.store._claims import claims_of
from graphagent.store._fork_safety import OwnLock
from graphagent.store.sealed._anchor_sources import HeldAnchor, checked_interval
from graphagent.store.sealed._key_sources import HeldKey, KeySource
from graphagent.store.sealed._keys import StoreKeys

if TYPE_CHECKING:
    from graphagent.protocols import Anchor, Claims, Store
    from graphagent.store._items import Change, Item, Key
    from graphagent.store.sealed._keys import RotationProgress
    from graphagent.store.sealed._operations import SealedStore
    from graphagent.store.sealed._session import SealedSession

_DOMAINS = {"facts": 5, "runs": 5, "notes": 2, "cache": 4, "waiting": 3, "submitted": 4, "asked": 3}
"""The depths of the rooms that graphagent itself uses: facts are forgotten by owner, scope (kind, name) and subject; runs, their marks and cached values singly."""


class EncryptedStore:
    """A store that encrypts everything and stores it in another store, the inner one, which must contain nothing else.

    Values are encrypted, text segments of keys are blinded, ints are stored as they are. Each domain has a random key of its own,
    which is destroyed with it, and a record of its items: whatever someone without the key changes, exchanges, puts back, removes
    or adds is refused as damage. An old copy of the whole store, put in its place, is a sound store: with `anchor`, it is refused too
    (RolledBackError). `docs/format.md` specifies the format and says what remains visible.

    A domain is the unit of forgetting: the items whose keys begin with the same n segments. `domains` contains n for rooms of
    your own, such as `{"documents": 3}`; it is 5 for `facts` and `runs`, 4 for `cache`, 3 for `waiting` and 2 for others, and cannot
    be changed once the room has been used. The first use of a domain reads all of it; after that no operation gets slower as the
    store grows. `key` is 32 bytes, or one of the other forms of `KeySource`.

    Knowledge of the domains is cached in about `cache_bytes` of memory, at 300 bytes for each item. Beyond that, the domains that
    were not used for longest are dropped, with the knowledge which versions they had, and are read in full at their next use. The
    domain that was used last and those of a commit under way stay in any case. `aclose` drops all.

    `anchor` is kept elsewhere, out of reach for anyone who can write to the store: the path of a file, `keyring:SERVICE/NAME`, or an
    object with `read` and `write` (`graphagent.protocols.Anchor`). The first commit with it anchors the store. From then on, every
    commit of every process counts, and the anchor is written after each, or at most `anchor_every` seconds later.

    Any number of tasks, threads and processes may use one store; a process that is forked after the first use makes its own
    EncryptedStore. `async with` asks for the key, and closes the inner store at the end. Once a SqliteStore or a MemoryStore is sealed, it refuses everyone who
    uses it without the key (SealedStoreError). One that contains plain items is never sealed (PlainStoreError).

    Raises:
        TypeError: `store` is not a store.
        KeySourceError: the variable or the file that `key` names has no key.
        MissingExtraError: `key` names an entry of a keyring, and the extra `keyring` is not installed.
        ValueError: `key` is not a key, a depth in `domains` is not 1 to 255, `cache_bytes` is not a number of bytes, `anchor` is not a
            place of an anchor, or `anchor_every` is not a number of seconds. No key is shown.
    """

    def __init__(
        self,
        store: Store,
        key: KeySource,
        *,
        domains: Mapping[str, int] | None = None,
        cache_bytes: int = 64 * 2**20,
        anchor: str | os.PathLike[str] | Anchor | None = None,
        anchor_every: float = 0.0,
    ) -> None:
        check_can("commit", store, "an EncryptedStore takes a store", "EncryptedStore(SqliteStore(path), key)")
        for room, depth in (domains or {}).items():
            if not 1 <= depth <= 255:
                raise ValueError(
                    f"domains={{{room!r}: {depth}}}: a domain is made of the first 1 to 255 segments of a key"
                )
        if type(cache_bytes) is not int or cache_bytes < 0:
            raise ValueError(f"cache_bytes={cache_bytes!r} is not a number of bytes; it is an int of 0 or more")
        self._store = store
        self._cache_bytes = cache_bytes
        self._where = str(getattr(store, "path", store))
        self._key = HeldKey(key)
        self._anchor = None if anchor is None else HeldAnchor(anchor)
        self._anchor_every = checked_interval(anchor, anchor_every)
        self._depths = {**_DOMAINS, **(domains or {})}
        self._opened: SealedStore | None = None
        self._opening = OwnLock()
        self._claims: Claims | None = None

    def __repr__(self) -> str:
        return f"EncryptedStore({self._store!r})"

    def __reduce__(self) -> NoReturn:
        raise TypeError("an EncryptedStore holds a key and cannot be pickled")

    @property
    def inner(self) -> Store:
        """The store that has the sealed rows."""
        return self._store

    @property
    def keys(self) -> StoreKeys:
        """The keys that open the store: list, add, remove, rotate and destroy them."""
        return StoreKeys(self._store, self._key, self._where, self._ready, self._rotate_data)

    @property
    def claims(self) -> Claims | None:
        """The claims of the inner store, with blinded keys and sealed notes; None if it has none."""
        inner = claims_of(self._store)
        if self._claims is None and inner is not None:
            from graphagent.store.sealed._claims import SealedClaims

            self._claims = SealedClaims(inner, self._ready)
        return self._claims

    async def get(self, key: Key) -> Item | None:
        """Return the item under a key, or None.

        Raises:
            WrongKeyError: the store was sealed with another key.
            PlainStoreError: the inner store was never sealed and is not empty.
            DamagedStoreError: the item, or a row that authenticates it, is not as it was stored last.
            StoreError: the inner store cannot be read.
        """
        return (await self._sealed().get_many((key,))).get(key)

    async def get_many(self, keys: Iterable[Key]) -> dict[Key, Item]:
        """Return the items under `keys`, in their order, without those that do not exist.

        Raises:
            WrongKeyError: the store was sealed with another key.
            PlainStoreError: the inner store was never sealed and is not empty.
            DamagedStoreError: an item, or a row that authenticates it, is not as it was stored last.
            StoreError: the inner store cannot be read.
        """
        return await self._sealed().get_many(keys)

    def scan(
        self, prefix: Key, *, after: Key | None = None, limit: int | None = None, reverse: bool = False
    ) -> AsyncIterator[Item]:
        """Return the items whose keys begin with `prefix`; keys that are equal up to an int come in the order of that int.

        Raises:
            WrongKeyError: the store was sealed with another key.
            PlainStoreError: the inner store was never sealed and is not empty.
            DamagedStoreError: the stored data are not the ones that were stored last.
            StoreError: the inner store cannot be read.
        """
        return self._sealed().scan(prefix, after=after, limit=limit, reverse=reverse)

    async def commit(self, *changes: Change) -> None:
        """Make all changes or none; when this returns, they are as durable as the inner store makes them.

        Raises:
            ConflictError: an item does not have the version that a change expects, or does not exist.
            WrongKeyError: the store was sealed with another key.
            PlainStoreError: the inner store was never sealed and is not empty.
            DamagedStoreError: the data to be changed are not the ones that were stored last.
            NotErasedError: all changes are made, but bytes of data that DeleteAll removed may still be on the disk.
            StoreError: the inner store cannot be written.
        """
        await self._sealed().commit(*changes)

    async def verify(self) -> int:
        """Read and check everything, also in the inner store. Return the number of items.

        Raises:
            StoreNotFoundError: the inner store is a file that does not exist.
            WrongKeyError: the store was sealed with another key.
            PlainStoreError: the inner store was never sealed and is not empty.
            DamagedStoreError: a row is not as it was stored last.
            StoreError: the inner store cannot be read, or others keep writing to it.
        """
        return await self._sealed().verify()

    async def is_anchored(self) -> bool:
        """Return whether older copies of the store are found, after comparing it with its anchor if it has one.

        Raises:
            RolledBackError: it is older than its anchor, or a part of it is older than the rest.
            AnchorError: its anchor is missing, damaged or of another store.
            StoreError: it cannot be opened or read.
        """
        session = await self._sealed().ready()
        return session is not None and session.writers.anchored

    async def reset_anchor(self) -> None:
        """Accept the store as it is, even if it is older than its anchor, and write the anchor anew.

        Data stored since the older copy was made are lost, unless the newer one is put back. Single domains may be older than the
        others, but none may be missing. Commits of other processes that have the store open continue.

        Raises:
            ValueError: the store has no `anchor`.
            AnchorError: the anchor cannot be written.
            DamagedStoreError: the store is not sound.
            StoreError: the inner store cannot be written, or others keep writing to it.
        """
        if self._anchor is None:
            raise ValueError("the store has no anchor; give EncryptedStore(…, anchor=PATH)")
        await self._sealed().anchor_anew()

    async def aclose(self) -> None:
        """Close the inner store, if it can be closed, and drop its cache. The anchor knows of all commits then."""
        opened, self._opened = self._opened, None
        if opened is not None:
            await opened.aclose()
        close = getattr(self._store, "aclose", None)
        if close is not None:
            await close()

    async def __aenter__(self) -> Self:
        await (
            self._key.read()
        )  # a keyring that is locked and a function that fails are noticed here, not at the first request
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
                    self._opened = SealedStore(
                        self._store, self._key, self._depths, self._where, cache_bytes=self._cache_bytes,
                        anchor=self._anchor, anchor_every=self._anchor_every,
                    )  # fmt: skip
                return self._opened
        return opened

    async def _ready(self, *, make: bool = False) -> SealedSession | None:
        return await self._sealed().ready(make=make)

    async def _rotate_data(self, report: Callable[[RotationProgress], object] | None) -> None:
        await self._sealed().rotate_data(report)
