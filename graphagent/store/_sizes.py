"""The keys of a store with the sizes of their values, which stores in SQLite and PostgreSQL tell without reading the values."""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator, Callable
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from graphagent._concurrency import turn
from graphagent.errors import DamagedStoreError
from graphagent.store._items import Key, bounds, decode

if TYPE_CHECKING:
    from graphagent.protocols import Store
    from graphagent.store import SqliteStore
    from graphagent.store.postgres import PostgresStore

_Rows: TypeAlias = "list[tuple[bytes, bytes, int]]"
"""Keys in the bytes by which the table sorts them, whole keys, and the sizes of values."""
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
    """Yield the keys that begin with a prefix, with the sizes of their values in bytes. Of a sealed store, the values are read for that.

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
    while rows := await readable.read(partial(page, low, high)):
        for number, (_, key, size) in enumerate(rows, 1):
            await turn(number)
            try:
                yield decode(key), size or 0
            except ValueError:
                raise DamagedStoreError(str(store), "a row has bytes for its key that no key has") from None
        low = rows[-1][0] + b"\0"


_Page: TypeAlias = Callable[[bytes, bytes, Any], "_Rows"]


def _table(store: Store, prefix: Key) -> tuple[SqliteStore | PostgresStore, _Page, tuple[bytes, bytes]] | None:
    """Return a store with a table, how a page of the table is read, and the bounds of the prefix; None for other stores."""
    from graphagent.store import SqliteStore

    if isinstance(store, SqliteStore):
        return store, _sqlite_page, bounds(prefix)
    postgres = sys.modules.get("graphagent.store.postgres")  # a program with such a store has imported it
    if postgres is not None and isinstance(store, postgres.PostgresStore):
        from graphagent.store.postgres._places import bounds_of

        return cast("PostgresStore", store), _postgres_page, bounds_of(prefix, None, reverse=False)
    return None


def _sqlite_page(low: bytes, high: bytes, connection: Any) -> _Rows:
    found: _Rows = connection.execute(_SQLITE, (low, high, _MOST)).fetchall()
    return found


def _postgres_page(low: bytes, high: bytes, connection: Any) -> _Rows:
    return [
        (bytes(place), bytes(key), int(size or 0))
        for place, key, size in connection.execute(_POSTGRES, [low, high, _MOST])
    ]
