"""Erasing data that DeleteAll removed from the files of a SqliteStore: set a mark, rewrite the file, empty the log, remove the mark.

Overwriting deleted rows with zeros (`secure_delete`) is not enough: when SQLite moves rows from page to page, copies of them stay
in the free space of the old pages. VACUUM writes a file that contains nothing but the existing rows. The rewritten pages are
first in the log, so the file is only clean once the log was moved to it and emptied, for which no reader may be in the way.

The mark is set in the transaction that deletes, and removed when all this is done. So a process that opens the store after a crash knows
that it has to be done again. The mark is the upper 23 bits of `user_version`, another number each time: a process removes only
the mark that it saw before it rewrote the file, not that of a deletion which another process has made meanwhile.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path

from graphagent.errors import DamagedStoreError
from graphagent.store.sqlite._file import BUSY_SECONDS, CACHE_KIBIBYTES, FORMAT, FORMAT_BITS, Connection
from graphagent.store.sqlite._soundness import is_sound

_MARKS = 2 ** (31 - FORMAT_BITS) - 1
_CHECKPOINT_PAUSE_SECONDS = 0.01
_LONGEST_WAIT_SECONDS = 600
_REWRITING_KIBIBYTES = 32 * 1024
"""How much of the new file SQLite keeps in memory. The rest goes into a file without a name in the system's temporary folder."""


def wait_and_execute(connection: Connection, statement: str) -> None:
    """Execute a statement that waits until no other process writes, which takes long while another process rewrites the file."""
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
    """Set a new mark, in the transaction that deletes."""
    import secrets

    number = (marked(connection) or secrets.randbelow(_MARKS)) % _MARKS + 1
    connection.execute(f"PRAGMA user_version={number << FORMAT_BITS | FORMAT}").fetchall()


def marked(connection: Connection) -> int:
    """Return the mark, or 0 if there is none."""
    [(version,)] = connection.execute("PRAGMA user_version").fetchall()
    return version >> FORMAT_BITS if isinstance(version, int) else 0


def unmark(connection: Connection, number: int) -> None:
    """Remove the mark, unless it was replaced by another one."""
    wait_and_execute(connection, "BEGIN IMMEDIATE")
    if marked(connection) == number:
        connection.execute(f"PRAGMA user_version={FORMAT}").fetchall()
    connection.execute("COMMIT")


def rewrite(connection: Connection, path: Path) -> None:
    """Rewrite the whole file, into the log.

    Raises:
        DamagedStoreError: the file is damaged. Rewritten, it would look sound, though rows are missing.
    """
    if not is_sound(path):
        raise DamagedStoreError(os.fspath(path), "SQLite's own check failed")
    connection.execute(f"PRAGMA cache_size=-{_REWRITING_KIBIBYTES}").fetchall()
    try:
        wait_and_execute(connection, "VACUUM")
    except Exception:
        with suppress(Exception):  # the first error is raised in any case
            empty_log(connection, 0)  # the unfinished file may have filled the disk
        raise
    connection.execute(f"PRAGMA cache_size=-{CACHE_KIBIBYTES}").fetchall()


def empty_log(connection: Connection, wait_seconds: float) -> bool:
    """Move all pages from the log to the file, and empty the log; return False if a reader is in the way for longer than that."""
    deadline = time.monotonic() + wait_seconds
    try:
        while True:
            connection.set_busy_timeout(max(0, int((deadline - time.monotonic()) * 1000)))
            [(busy, *_)] = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
            if not busy or time.monotonic() >= deadline:
                return not busy
            time.sleep(_CHECKPOINT_PAUSE_SECONDS)  # SQLite waits for readers, but not for others that do the same
    finally:
        connection.set_busy_timeout(BUSY_SECONDS * 1000)
