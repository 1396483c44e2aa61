"""How what DeleteAll removed leaves the files of a SqliteStore: a mark, the file written anew, the log emptied.

Zeroing what is deleted (`secure_delete`) is not enough: where SQLite shifts rows from page to page, copies of them stay in the
free space of the pages that it took them from. VACUUM leaves nothing but what is there. The mark is in the file from the
deletion on until this is done, so whoever opens a store after a crash knows of it. It is the upper 23 bits of `user_version`,
another number each time: only the mark that was there before the file was written anew is taken away.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path

from graphagent.errors import DamagedStoreError
from graphagent.store.sqlite._file import BUSY_SECONDS, CACHE_KIBIBYTES, FORMAT, FORMAT_BITS, Connection, is_sound

_MARKS = 2 ** (31 - FORMAT_BITS) - 1
_CHECKPOINT_PAUSE_SECONDS = 0.01
_LONGEST_WAIT_SECONDS = 600
_REWRITING_KIBIBYTES = 32 * 1024
"""So much of the new file is made in memory. What is more SQLite puts into a nameless file in the system's temporary folder."""


def alone(connection: Connection, statement: str) -> None:
    """Execute a statement that waits until no one else writes; while a file is written anew, that may be long."""
    import apsw

    deadline = time.monotonic() + _LONGEST_WAIT_SECONDS
    while True:
        try:
            connection.execute(statement).fetchall()
        except apsw.BusyError:
            if time.monotonic() >= deadline or not marked(connection):
                raise
        else:
            return


def mark(connection: Connection) -> None:
    """Note, in a transaction that deletes, that what it deletes has not yet left the file."""
    import secrets

    number = (marked(connection) or secrets.randbelow(_MARKS)) % _MARKS + 1
    connection.execute(f"PRAGMA user_version={number << FORMAT_BITS | FORMAT}").fetchall()


def marked(connection: Connection) -> int:
    """Give the mark, 0 where there is none."""
    [(version,)] = connection.execute("PRAGMA user_version").fetchall()
    return version >> FORMAT_BITS if isinstance(version, int) else 0


def unmark(connection: Connection, number: int) -> None:
    """Take the mark away, unless it is another one by now."""
    alone(connection, "BEGIN IMMEDIATE")
    if marked(connection) == number:
        connection.execute(f"PRAGMA user_version={FORMAT}").fetchall()
    connection.execute("COMMIT")


def rewrite(connection: Connection, path: Path) -> None:
    """Write the whole file anew, into the log.

    Raises:
        DamagedStoreError: the file is damaged. It would look sound when written anew, with what is left.
    """
    if not is_sound(path):
        raise DamagedStoreError(os.fspath(path), "SQLite's own check failed")
    connection.execute(f"PRAGMA cache_size=-{_REWRITING_KIBIBYTES}").fetchall()
    try:
        alone(connection, "VACUUM")
    except Exception:
        with suppress(Exception):  # what is wrong is raised in any case
            empty_log(connection, 0)  # the unfinished file may have filled the disk
        raise
    connection.execute(f"PRAGMA cache_size=-{CACHE_KIBIBYTES}").fetchall()


def empty_log(connection: Connection, wait_seconds: float) -> bool:
    """Move all pages from the log to the file and empty the log. Gives False where someone is in the way longer than that."""
    deadline = time.monotonic() + wait_seconds
    try:
        while True:
            connection.set_busy_timeout(max(0, int((deadline - time.monotonic()) * 1000)))
            [(busy, *_)] = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
            if not busy or time.monotonic() >= deadline:
                return not busy
            time.sleep(_CHECKPOINT_PAUSE_SECONDS)  # SQLite waits for who reads, but not for who does the same as this
    finally:
        connection.set_busy_timeout(BUSY_SECONDS * 1000)
