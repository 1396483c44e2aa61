"""Checking that the file of a SqliteStore is sound."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import cast
from zlib import crc32

from graphagent.errors import DamagedStoreError
from graphagent.store._items import decode
from graphagent.store.sqlite._file import HEAD_BITS, ROWS, Connection, connect, items

CHUNK_BYTES = 2**22
"""How many bytes of values are read at once."""
CHECKED_BYTES = 2**23
"""The largest file whose pages are checked when it is opened, which takes a millisecond for each megabyte."""
_COUNTS = "SELECT count(DISTINCT apart), (SELECT count(*) FROM apart), count(apart) FROM items"

_BESIDE = (
    "SELECT * FROM (SELECT key, version, sum FROM rows WHERE key<? ORDER BY key DESC LIMIT 1)"
    " UNION ALL SELECT * FROM (SELECT key, version, sum FROM rows WHERE key>=? ORDER BY key LIMIT 1)"
)


def is_sound(path: Path) -> bool:
    """Return the result of SQLite's own check, over a new connection.

    An older connection may have cached parts of a full-text index that another process has changed since, and report damage.
    """
    connection = connect(path, "FULL", writing=False)
    try:
        return connection.execute("PRAGMA integrity_check(1)").fetchall() == [("ok",)]
    finally:
        connection.close()


def check_pages(connection: Connection, path: Path) -> None:
    """Check how the pages of a file belong together, unless the file is large.

    The checksums are those of rows. A page whose head has changed may hide sound rows, or lead to another page. A full-text index of
    others in the file is not checked, since a damaged one can be made anew only in a file that opens.

    Raises:
        DamagedStoreError: they do not belong together.
    """
    if _is_small(connection):
        # A row that breaks a constraint is noticed by who reads it, and hides no other.
        found = connection.execute("PRAGMA ignore_check_constraints=ON; PRAGMA quick_check").fetchall()
        connection.execute("PRAGMA ignore_check_constraints=OFF").fetchall()
        if any(text != "ok" and "fts5" not in str(text).lower() for (text,) in found):
            raise DamagedStoreError(os.fspath(path), "SQLite's own check failed")


def are_sound(connection: Connection, path: Path, tables: Iterable[str]) -> bool | None:
    """Return the result of SQLite's own check of tables and their indexes, as `is_sound` does; True if the file is large.

    The check has a connection of its own, which reads from the disk the data that the given one may have in memory. None: the schema on the disk differs,
    since another process has changed the tables after the transaction of the given one began.
    """
    if not _is_small(connection):
        return True
    fresh = connect(path, "FULL", writing=False)
    try:
        fresh.execute("BEGIN")
        schema = "PRAGMA schema_version"
        if fresh.execute(schema).fetchall() != connection.execute(schema).fetchall():
            return None
        return all(fresh.execute(f"PRAGMA integrity_check({table})").fetchall() == [("ok",)] for table in tables)
    finally:
        fresh.close()


def _is_small(connection: Connection) -> bool:
    [(size,)] = connection.execute("SELECT page_count * page_size FROM pragma_page_count, pragma_page_size").fetchall()
    return cast(int, size) <= CHECKED_BYTES


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


def check_beside(connection: Connection, path: Path, below: bytes, above: bytes) -> None:
    """Check the last row before the key `below` and the first one from `above` on, on both sides of the requested rows.

    A row whose key has changed lies where it was: a search for its old key ends beside it, and a scan ends or begins there.

    Raises:
        DamagedStoreError: one is not as it was written.
    """
    for place, version, sum_ in connection.execute(_BESIDE, (below, above)):
        if not (type(place) is bytes and type(version) is int):
            break
        if sum_ is None:  # a row of before, or one of which not everything is read
            try:
                decode(place)
            except ValueError:
                break
        elif type(sum_) is not int or crc32(place, version & 0xFFFFFFFF) != sum_ >> HEAD_BITS:
            break
    else:
        return
    raise DamagedStoreError(os.fspath(path), "the checksum of a row does not fit its key")
