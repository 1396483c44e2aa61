"""The keys of a store with the sizes of their values, which SQLite and PostgreSQL know without reading the values."""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator, Callable
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from graphagent.errors import DamagedStoreError
from graphagent.store._items import Key, bounds, decode

if TYPE_CHECKING:
    from graphagent.protocols import Store
    from graphagent.store import SqliteStore
    from graphagent.store.postgres import PostgresStore

_Sizes: TypeAlias = "list[tuple[Key, int]]"
_Page: TypeAlias = Callable[[bytes, bytes, Any], tuple[_Sizes, bytes]]
"""Reads a page between two bounds with a connection, and returns it with the bound where the next one begins."""
_MOST = 4096
_SQLITE = (
    "SELECT key, key, ifnull(length(items.value), length(apart.value)) FROM items LEFT JOIN apart ON id = apart"
    " WHERE key >= ? AND key < ? ORDER BY key LIMIT ?"
)
_POSTGRES = (
    "SELECT place, coalesce(key, place), CASE WHEN pages IS NULL THEN octet_length(value)"
    " ELSE (SELECT sum(octet_length(data)) FROM pages WHERE id = items.pages) END"
    " FROM items WHERE place >= %s AND place < %s ORDER BY place LIMIT %s"
)


async def sizes(store: Store, prefix: Key) -> AsyncGenerator[tuple[Key, int]]:
    """Yield the keys that begin with a prefix, with the sizes of their values in bytes. In a sealed store, this reads the values.

    Raises:
        SealedStoreError: the store is sealed, and was opened without its key.
        StoreError: the store cannot be read (DamagedStoreError: a key is damaged; values are not checked).
    """
    table = _table(store, prefix)
    if table is None:
        async for item in store.scan(prefix):
            yield item.key, len(item.value)
        return
    readable, page, (low, high) = table
    while True:
        found, low = await readable.read(partial(page, low, high))
        if not found:
            return
        for each in found:
            yield each


def _table(store: Store, prefix: Key) -> tuple[SqliteStore | PostgresStore, _Page, tuple[bytes, bytes]] | None:
    """Return a store with a table, the function that reads a page of it, and the bounds of the prefix; None for other stores."""
    from graphagent.store import SqliteStore

    if isinstance(store, SqliteStore):
        return store, _sqlite_page, bounds(prefix)
    postgres = sys.modules.get("graphagent.store.postgres")  # a program with such a store has imported it
    if postgres is not None and isinstance(store, postgres.PostgresStore):
        from graphagent.store.postgres._places import bounds_of

        return cast("PostgresStore", store), _postgres_page, bounds_of(prefix, None, reverse=False)
    return None


def _sqlite_page(low: bytes, high: bytes, connection: Any) -> tuple[_Sizes, bytes]:
    return _decoded(connection.execute(_SQLITE, (low, high, _MOST)).fetchall(), low)


def _postgres_page(low: bytes, high: bytes, connection: Any) -> tuple[_Sizes, bytes]:
    return _decoded(connection.execute(_POSTGRES, [low, high, _MOST]).fetchall(), low)


def _decoded(rows: list[tuple[bytes, bytes, int | None]], low: bytes) -> tuple[_Sizes, bytes]:
    """Return the keys and sizes in rows, and the bound after the last row."""
    try:
        found = [(decode(bytes(key)), int(size or 0)) for _, key, size in rows]
    except ValueError:
        raise DamagedStoreError("a key", "it has bytes that no key has") from None
    return found, bytes(rows[-1][0]) + b"\0" if rows else low
