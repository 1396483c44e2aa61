"""A commit, and making its changes within a transaction."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from graphagent.errors import ConflictError, DamagedStoreError, PlainStoreError, SealedStoreError
from graphagent.store._items import (
    Change,
    Delete,
    DeleteAll,
    Exists,
    Item,
    Put,
    check_before,
    check_expected,
    version_after,
)
from graphagent.store._sealed_detection import sealed_after, seals
from graphagent.store.sqlite._file import SEALED_ID, SHORT, Connection, as_store_error, sum_of

if TYPE_CHECKING:
    from graphagent._concurrency import Reply

QUICK_CHANGES, QUICK_BYTES = 32, 2**16
"""The most that is written, or overwritten, by the thread that asks for it."""


_VALUE = (
    "SELECT coalesce(items.value, apart.value) FROM items LEFT JOIN apart ON apart.id = items.apart WHERE items.key=?"
)


@dataclass(eq=False, slots=True)
class Job:
    """A commit."""

    changes: list[tuple[Change, bytes]]
    """Each with its encoded key or prefix."""
    along: Callable[[Any], object] | None = None
    """Changes other tables in the same transaction."""
    reply: Reply | None = None
    """Wakes up the task that waits for a commit that was queued."""
    size: int = 0
    """How many bytes are written, as far as `is_quick` had to count them."""
    abandoned: bool = False
    """No one waits for the commit any more, so it need not be begun."""
    done: bool = False
    error: BaseException | None = None
    """Why nothing was committed, if it is done."""

    def answer(self, error: BaseException | None = None) -> None:
        """Take note that the commit was made, or that it failed."""
        self.error, self.done = error, True
        if self.reply is not None:
            self.reply.send(error)

    def has(self, kind: type[Change]) -> bool:
        """Return whether one of the changes is of a kind."""
        return any(isinstance(change, kind) for change, _ in self.changes)

    def is_quick(self) -> bool:
        """Return whether the changes are few and short, and delete nothing, which would have to leave the file later."""
        if self.along is not None or len(self.changes) > QUICK_CHANGES:
            return False
        for change, _ in self.changes:
            if isinstance(change, Put):
                self.size += len(change.value)
            elif not isinstance(change, Exists):
                return False
        return self.size <= QUICK_BYTES


class SlowError(Exception):
    """A change turned out to take long, because it overwrites a long value."""


def make_all(
    connection: Connection, batch: list[Job], path: Path, *, sealed: bool, quick: bool = False
) -> tuple[dict[Job, Exception], bool, bool]:
    """Make the changes of all commits that can be made, within the present transaction.

    Args:
        connection: The connection, in a transaction.
        batch: The commits.
        path: The file, for errors.
        sealed: Whether the file is sealed before.
        quick: Whether to give up if it would take long.

    Returns:
        The commits that are not made, with the reasons: a conflict, a refusal, or an error of `along`; whether a DeleteAll has
        removed anything; and whether the file is sealed afterwards.

    Raises:
        SlowError: with `quick`, a long value would be overwritten. The transaction has to be rolled back.
    """
    conflicts: dict[Job, Exception] = {}
    removed = False
    # A savepoint makes SQLite copy old pages, so a single commit does without: much that is deleted would get into temporary files.
    begin, back, end = (
        ("SAVEPOINT job", "ROLLBACK TO job", "RELEASE job") if len(batch) > 1 else ("", "ROLLBACK; BEGIN", "")
    )
    for job in batch:
        if begin:
            connection.execute(begin)
        try:
            sealed_then = _sealed_after(connection, job, path, sealed=sealed)
            removes = _make(connection, job, path, quick=quick, summed=not sealed_then)
            if sealed_then and not sealed:
                connection.execute(f"PRAGMA application_id={SEALED_ID}").fetchall()
            if job.along is not None:
                try:
                    job.along(connection)
                except Exception as error:  # noqa: BLE001 - raised where `along` was passed in
                    damaged = isinstance(error, UnicodeDecodeError)  # the driver decodes values
                    conflicts[job] = as_store_error(error, path) if damaged else error
                    connection.execute(back)
                    removes = False
            removed, sealed = removed or removes, sealed_then
        except (ConflictError, SealedStoreError, PlainStoreError) as error:
            conflicts[job] = error
            connection.execute(back)
        if end:
            connection.execute(end)
    return conflicts, removed, sealed


def _sealed_after(connection: Connection, job: Job, path: Path, *, sealed: bool) -> bool:
    changes = [change for change, _ in job.changes]
    if not sealed and not seals(changes):
        return False
    where = os.fspath(path)
    if sealed and job.along is not None:
        raise SealedStoreError(where)
    return sealed_after(
        changes,
        where,
        sealed=sealed,
        has_rows=lambda: connection.execute("SELECT 1 FROM items LIMIT 1").fetchall() != [],
    )


def _make(connection: Connection, job: Job, path: Path, *, quick: bool, summed: bool) -> bool:
    """Make the changes of a commit; return whether a DeleteAll has removed anything."""
    removed = False
    for change, place in job.changes:
        if isinstance(change, DeleteAll):
            among = (place, place + b"\xff")
            connection.execute("DELETE FROM apart WHERE id IN (SELECT apart FROM items WHERE key>=? AND key<?)", among)
            connection.execute("DELETE FROM items WHERE key>=? AND key<?", among)
            removed = removed or connection.changes() > 0
        else:
            _apply(connection, change, place, path, quick=quick, summed=summed)
    return removed


def _apply(
    connection: Connection, change: Put | Delete | Exists, place: bytes, path: Path, *, quick: bool, summed: bool
) -> None:
    if (
        isinstance(change, Put)
        and change.expected == 0
        and _insert(connection, place, change.value, version_after(change, 0), summed=summed)
    ):
        return
    version, apart = _find(connection, place, path)
    check_expected(change, version)
    if isinstance(change, Exists):
        return
    if quick and apart is not None and _length(connection, apart) > QUICK_BYTES:
        raise SlowError
    if isinstance(change, Put) and change.before is not None:
        check_before(change, Item(change.key, _value(connection, place), version))
    if isinstance(change, Delete):
        if apart is not None:
            connection.execute("DELETE FROM apart WHERE id=?", (apart,))
        connection.execute("DELETE FROM items WHERE key=?", (place,))
        return
    version, value = version_after(change, version), change.value
    sum_ = sum_of(place, version, value) if summed else None
    if len(value) > SHORT:
        connection.execute("REPLACE INTO apart VALUES (?, ?)", (apart, value))
        connection.execute("REPLACE INTO items VALUES (?, ?, NULL, last_insert_rowid(), ?)", (place, version, sum_))
        return
    if apart is not None:
        connection.execute("DELETE FROM apart WHERE id=?", (apart,))
    connection.execute("REPLACE INTO items VALUES (?, ?, ?, NULL, ?)", (place, version, value, sum_))


def _insert(connection: Connection, place: bytes, value: bytes, version: int, *, summed: bool) -> bool:
    """Add an item, as most commits do, without looking for it before; return False if its key is in use.

    The commit is rolled back then, with the value that may have been stored apart.
    """
    sum_ = sum_of(place, version, value) if summed else None
    if len(value) > SHORT:
        connection.execute("INSERT INTO apart VALUES (NULL, ?)", (value,))
        connection.execute(
            "INSERT OR IGNORE INTO items VALUES (?, ?, NULL, last_insert_rowid(), ?)", (place, version, sum_)
        )
    else:
        connection.execute("INSERT OR IGNORE INTO items VALUES (?, ?, ?, NULL, ?)", (place, version, value, sum_))
    return connection.changes() > 0


def _value(connection: Connection, place: bytes) -> bytes:
    [(value,)] = connection.execute(_VALUE, (place,)).fetchall() or [(b"",)]
    return value if isinstance(value, bytes) else b""


def _length(connection: Connection, apart: int) -> int:
    # SQLite knows the length of a value without reading it.
    [(length,)] = connection.execute("SELECT length(value) FROM apart WHERE id=?", (apart,)).fetchall() or [(0,)]
    return length if isinstance(length, int) else 0


def _find(connection: Connection, place: bytes, path: Path) -> tuple[int, int | None]:
    """Return the version of the item under a key, 0 if it does not exist, and the id of its value if that is stored apart."""
    rows = connection.execute("SELECT version, apart FROM items WHERE key=?", (place,)).fetchall()
    if not rows:
        return 0, None
    version, apart = rows[0]
    if isinstance(version, int) and version > 0 and (apart is None or isinstance(apart, int)):
        return version, apart
    raise DamagedStoreError(os.fspath(path), "a row is not one that a store writes")
