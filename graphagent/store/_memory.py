"""MemoryStore: a store that lasts as long as its object."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator, Iterable
from types import TracebackType
from typing import Self

from graphagent._concurrency import turn
from graphagent.errors import SealedStoreError
from graphagent.store._bulk import Scan
from graphagent.store._fork_safety import in_use
from graphagent.store._items import (
    Change,
    Delete,
    DeleteAll,
    Item,
    Key,
    Put,
    bounds,
    check_before,
    check_change,
    check_expected,
    checked_limit,
    encode_key,
    version_after,
)
from graphagent.store._sealed_detection import KEYS_PLACE, MAGIC, is_plain, sealed_after
from graphagent.store._sorted_dict import SortedDict

_CHUNK = 256


class MemoryStore:
    """A store in memory, for tests and for data that need not last. It behaves as the stores on disk do.

    Once an EncryptedStore has sealed it, it belongs to that store alone, as a SqliteStore does.
    """

    def __init__(self) -> None:
        self._items: SortedDict[Item] = SortedDict()
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return "MemoryStore()"

    async def get(self, key: Key) -> Item | None:
        """Return the item under a key, or None.

        Raises:
            SealedStoreError: the store is sealed, and this is not the key of a sealed row.
        """
        place = encode_key(key)
        self._check_plain(key)
        return self._items.get(place)

    async def get_many(self, keys: Iterable[Key]) -> dict[Key, Item]:
        """Return the items under `keys`, in their order, without those that do not exist.

        Raises:
            SealedStoreError: the store is sealed, and one of the keys is not that of a sealed row.
        """
        found: dict[Key, Item] = {}
        for number, key in enumerate(keys, 1):
            await turn(number)
            item = await self.get(key)
            if item is not None:
                found[key] = item
        return found

    def scan(
        self, prefix: Key, *, after: Key | None = None, limit: int | None = None, reverse: bool = False
    ) -> AsyncIterator[Item]:
        """Return the items whose keys begin with `prefix`, in order. Changes made meanwhile after the last item are seen.

        Raises:
            SealedStoreError: the store is sealed, and these are not keys of sealed rows.
        """
        left = checked_limit(limit)
        low, high = bounds(prefix, after, reverse=reverse)

        async def more() -> list[Item]:
            nonlocal low, high, left
            if prefix:
                self._check_plain(prefix)
            with in_use(), self._lock:
                places = self._items.chunk(low, high, min(left, _CHUNK), reverse=reverse)
                found = [item for place in places if (item := self._items.get(place)) is not None]
            if places:
                low, high = (low, places[-1]) if reverse else (places[-1] + b"\0", high)
            left -= len(places)
            return found

        return Scan(more)

    async def commit(self, *changes: Change) -> None:
        """Make all changes or none.

        Raises:
            ConflictError: an item does not have the version that a change expects, or does not exist.
            SealedStoreError: the store is sealed, and a change is not one of a sealed row.
        """
        places = [check_change(change) for change in changes]
        with in_use(), self._lock:
            sealed_after(changes, repr(self), sealed=self._is_sealed(), has_rows=lambda: len(self._items) > 0)
            staged: dict[bytes, Item | None] = {}
            added = SortedDict[Item]()
            for change, place in zip(changes, places, strict=True):
                self._stage(staged, added, change, place)
            self._items.remove([place for place, item in staged.items() if item is None])
            self._items.update({place: item for place, item in staged.items() if item is not None})

    def _is_sealed(self) -> bool:
        keys = self._items.get(KEYS_PLACE)
        return keys is not None and keys.value.startswith(MAGIC)

    def _check_plain(self, key: Key) -> None:
        if is_plain(key) and self._is_sealed():
            raise SealedStoreError(repr(self))

    def _stage(self, staged: dict[bytes, Item | None], added: SortedDict[Item], change: Change, place: bytes) -> None:
        """Make a change of a commit in `staged`; `added` has the items that the commit puts."""
        if isinstance(change, DeleteAll):
            staged.update(dict.fromkeys(self._items.between(place, place + b"\xff")))
            staged.update(dict.fromkeys(added.between(place, place + b"\xff")))
            return
        known = staged[place] if place in staged else self._items.get(place)
        version = known.version if known else 0
        check_expected(change, version)
        if isinstance(change, Put) and known is not None:
            check_before(change, known)
        if isinstance(change, Put):
            item = staged[place] = Item(change.key, change.value, version_after(change, version))
            added.put(place, item)
        elif isinstance(change, Delete):
            staged[place] = None

    async def verify(self) -> int:
        """Return the number of items; nothing in memory could be damaged."""
        return len(self._items)

    async def aclose(self) -> None:
        """Do nothing; the items stay."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        await self.aclose()
