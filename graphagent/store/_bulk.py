"""Reading many items at once, from stores that can and from stores that cannot."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from typing import TYPE_CHECKING

from graphagent._concurrency import turn
from graphagent.store._paging import Scan

if TYPE_CHECKING:
    from graphagent.protocols import Store
    from graphagent.store._items import Item, Key


async def get_many(store: Store, keys: Iterable[Key]) -> dict[Key, Item]:
    """Return the items under `keys`, in their order, without those that do not exist.

    A store without a `get_many` of its own is asked for one item after the other.

    Raises:
        StoreError: the store cannot be read.
    """
    own: Callable[[Iterable[Key]], Awaitable[dict[Key, Item]]] | None = getattr(store, "get_many", None)
    if own is not None:  # a BatchStore; isinstance would take longer than the reading
        return await own(keys)
    found: dict[Key, Item] = {}
    for number, key in enumerate(dict.fromkeys(keys), 1):
        await turn(number)
        item = await store.get(key)
        if item is not None:
            found[key] = item
    return found


async def collect(scan: AsyncIterator[Item]) -> list[Item]:
    """Return all items of a scan. For the stores of graphagent this costs a third of `async for`, which takes turns.

    Raises:
        StoreError: the store cannot be read.
    """
    return await scan.rest() if isinstance(scan, Scan) else [item async for item in scan]
