"""Copying everything from one store into another, of any kind and under any key: with the versions of the items, and only entirely.

The items that a copy still lacks are found by comparing the two stores, so a copy that was interrupted is continued by copying again. Until it is
complete, the target has an item that says so, and no other copy may use it.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import TYPE_CHECKING

from graphagent._options import check_can
from graphagent.errors import DamagedStoreError, StoreError, StoreExistsError
from graphagent.store._bulk import get_many
from graphagent.store._items import Change, Delete, Item, Key, Put

if TYPE_CHECKING:
    from graphagent.protocols import Store

_COPYING: Key = ("copying",)
"""The key of the item that a target has until the copy is complete."""
_ITEMS, _BYTES = 512, 2**20
"""How much is copied at once."""
_PASSES = 5


async def copy_store(source: Store, target: Store) -> int:
    """Copy everything in a store into an empty one: runs, threads, facts, notes, whatever it has. Return the number of items.

    The stores may be of different kinds, and encrypted with different keys. So this also replaces the keys of an encrypted store that
    `keys.rotate` leaves, which hide names. All items keep their versions. The source is not written.
    Others may write it meanwhile: the copy has everything that was committed before this began, and what was committed since as far
    as it was seen. A copy that failed, or was cancelled, is continued by calling this again. The search index of notes is built when
    the notes are opened.

    Raises:
        StoreExistsError: the target is not empty, and has neither a copy that was interrupted nor a complete one.
        SealedStoreError: one of them is sealed, and was opened without its key.
        DamagedStoreError: the source is damaged; or the target, once it was read again, does not have the copied items.
        StoreError: one of them cannot be read or written; or the source is a copy that was interrupted, or is changed all the time.
    """
    for each in (source, target):
        check_can("commit", each, "copy_store takes two stores", "copy_store(SqliteStore('a.db'), MemoryStore())")
    if source is target:
        raise ValueError("copy_store takes two stores, and this is one and the same")
    if await source.get(_COPYING) is not None:
        raise StoreError(f"{source!r} is a copy that was interrupted; copy into it again from where it was copied")
    await _begin(source, target)
    for _ in range(_PASSES):
        count, changed = await _bring(source, target)
        if await _count(target) != count:
            changed += await _clear(source, target)
        if not changed:
            break
    else:
        raise StoreError(f"{source!r} is changed by others all the time; copy it when it is at rest")
    verify = getattr(target, "verify", None)
    if verify is not None:
        await verify()
    await target.commit(Delete(_COPYING))
    return count


async def _begin(source: Store, target: Store) -> None:
    if await target.get(_COPYING) is not None:
        return
    if [item async for item in target.scan((), limit=1)] and not await _is_copy(source, target):
        where = str(getattr(target, "path", repr(target)))
        raise StoreExistsError(where, "a copy needs an empty store; give another one")
    await target.commit(Put(_COPYING, b"", expected=0))


async def _is_copy(source: Store, target: Store) -> bool:
    """Return whether a store is a complete copy, whose caller was interrupted before it took note of that."""
    count = 0
    async with aclosing(_pages(source)) as pages:
        async for items in pages:
            if await get_many(target, [item.key for item in items]) != {item.key: item for item in items}:
                return False
            count += len(items)
    return await _count(target) == count


async def _bring(source: Store, target: Store) -> tuple[int, int]:
    """Make the items of the target those of the source. Return how many there are, and how many were others before."""
    count, changed = 0, 0
    async with aclosing(_pages(source)) as pages:
        async for items in pages:
            there = await get_many(target, [item.key for item in items])
            changes: list[Change] = []
            for item in items:
                count += 1
                known = there.get(item.key)
                if known == item:
                    continue
                if known is not None:
                    changes.append(Delete(item.key))
                changes.append(Put(item.key, item.value, expected=0, version=item.version))
                changed += 1
            if changes:
                await target.commit(*changes)
    if changed and count:
        await _check(source, target)
    return count, changed


async def _check(source: Store, target: Store) -> None:
    """Check that a store keeps the versions of items."""
    for item in [item async for item in source.scan((), limit=1)]:
        found = await target.get(item.key)
        if found is not None and (found.value, found.version) == (item.value, item.version):
            return
        if await source.get(item.key) == item:
            raise DamagedStoreError(
                str(getattr(target, "path", repr(target))), "an item differs from the copied one",
                remedy="A store keeps Put(…, version=)"
            )  # fmt: skip


async def _clear(source: Store, target: Store) -> int:
    """Remove items from the target that the source does not have any more. Return their number."""
    removed = 0
    async with aclosing(_pages(target)) as pages:
        async for items in pages:
            there = await get_many(source, [item.key for item in items])
            gone = [Delete(item.key) for item in items if item.key not in there]
            if gone:
                await target.commit(*gone)
            removed += len(gone)
    return removed


async def _count(store: Store) -> int:
    return sum([len(items) async for items in _pages(store)])


async def _pages(store: Store) -> AsyncGenerator[list[Item]]:
    page: list[Item] = []
    size = 0
    async for item in store.scan(()):
        if item.key == _COPYING:
            continue
        page.append(item)
        size += len(item.value)
        if len(page) >= _ITEMS or size >= _BYTES:
            yield page
            page, size = [], 0
    if page:
        yield page
