"""Checking that the file of a SqliteStore is sound."""

from __future__ import annotations

import os
from pathlib import Path

from graphagent.errors import DamagedStoreError
from graphagent.store.sqlite._file import ROWS, Connection, connect, items

CHUNK_BYTES = 2**22
"""How many bytes of values are read at once."""
_COUNTS = "SELECT count(DISTINCT apart), (SELECT count(*) FROM apart), count(apart) FROM items"


def is_sound(path: Path) -> bool:
    """Return the result of SQLite's own check, over a new connection.

    An older connection may have cached parts of a full-text index that another process has changed since, and report damage.
    """
    connection = connect(path, "FULL", writing=False)
    try:
        return connection.execute("PRAGMA integrity_check(1)").fetchall() == [("ok",)]
    finally:
        connection.close()


def check_whole(connection: Connection, path: Path) -> int:
    """Read and check everything in a file, as far as SQLite can check it. Return the number of items.

    Raises:
        DamagedStoreError: it is damaged.
    """
    if not is_sound(path):
        raise DamagedStoreError(os.fspath(path), "SQLite's own check failed")
    connection.execute("BEGIN")  # so that all statements see one state
    count, rows = 0, connection.execute(ROWS)
    while page := items(rows, path, most_bytes=CHUNK_BYTES):
        count += len(page)
    [counts] = connection.execute(_COUNTS).fetchall()
    if len(set(counts)) > 1:
        raise DamagedStoreError(os.fspath(path), "its items and the values that lie apart do not belong together")
    connection.execute("COMMIT")
    return count
