"""The one thread that writes a SqliteStore: what is queued is committed together."""

from __future__ import annotations

import copy
import queue
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from graphagent.errors import ConflictError, StoreError
from graphagent.store._forks import in_use, register
from graphagent.store._items import Change, Delete, DeleteAll, Exists, Put
from graphagent.store._sqlite_file import BUSY_SECONDS, Connection, check_identity, checked_version, connect, explained

if TYPE_CHECKING:
    from graphagent._threads import Reply

_TOGETHER = 256
_SCRUB_SECONDS = 0.05
_SCRUB_PAUSE_SECONDS = 30
_SCRUB_WAIT_MILLISECONDS = 300


@dataclass(eq=False, slots=True)
class Job:
    """A commit that waits for the writer."""

    changes: list[tuple[Change, bytes]]
    reply: Reply
    abandoned: bool = False
    """No one waits for it any more; it need not be begun."""


@dataclass(eq=False, slots=True)
class _Stop:
    reply: Reply | None


class Writer:
    """A thread that outlives event loops, and that the end of the process does not wait for."""

    def __init__(self, path: Path, synchronous: str, identity: tuple[int, int]) -> None:
        self._path = path
        self._identity = identity
        self._synchronous = synchronous
        self._jobs: queue.SimpleQueue[Job | _Stop] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._running = False
        self._closed = False
        self._connection: Connection | None = None
        register(self)
        self._scrub = True
        """Whether the log may hold what was deleted; at first it may, from another process."""
        self._pause = _SCRUB_SECONDS

    def submit(self, job: Job) -> bool:
        """Queue a commit; gives False where the writer is closed."""
        with self._lock:
            if self._closed:
                return False
            if not self._running:
                threading.Thread(target=self._serve, name="graphagent-sqlite", daemon=True).start()
                self._running = True
            self._jobs.put(job)
            return True

    def close(self, reply: Reply | None) -> bool:
        """Let the thread end behind what is queued; gives False where there is none, and no reply will come."""
        with self._lock:
            if self._closed or not self._running:
                self._closed = True
                return False
            self._closed = True
            self._jobs.put(_Stop(reply))
            return True

    def _serve(self) -> None:
        while True:
            batch, stop = self._next()
            with in_use():
                if batch:
                    self._commit(batch)
                elif stop is None:
                    self._checkpoint()
                if stop is not None:
                    self.abandon()
            if stop is not None:
                if stop.reply is not None:
                    stop.reply.send()
                return

    def _next(self) -> tuple[list[Job], _Stop | None]:
        """Wait for a commit and take all that are queued by then; nothing at all means that it has been quiet."""
        batch: list[Job] = []
        try:
            job = self._jobs.get(timeout=self._pause) if self._scrub else self._jobs.get()
            while not isinstance(job, _Stop):
                batch.append(job)
                if len(batch) == _TOGETHER:
                    return batch, None
                job = self._jobs.get_nowait()
        except queue.Empty:
            return batch, None
        return batch, job

    def _commit(self, batch: list[Job]) -> None:
        batch = [job for job in batch if not job.abandoned]
        conflicts: dict[Job, ConflictError] = {}
        try:
            connection = self._connect()
            check_identity(self._path, self._identity)
            connection.execute("BEGIN IMMEDIATE")
            for job in batch:
                connection.execute("SAVEPOINT job")
                try:
                    for change, place in job.changes:
                        _apply(connection, change, place, self._path)
                except ConflictError as error:
                    conflicts[job] = error
                    connection.execute("ROLLBACK TO job")
                connection.execute("RELEASE job")
            connection.execute("COMMIT")
        except Exception as error:  # noqa: BLE001 - a damaged file raises anything; it is told to every waiting task
            # A connection that met an error is given up: what it believes about the file may be wrong.
            self.abandon()
            for job in batch:
                failure = copy.copy(explained(error, self._path))
                failure.__cause__ = error.__cause__ if isinstance(error, StoreError) else error
                job.reply.send(failure)
            return
        kept = [change for job in batch if job not in conflicts for change, _ in job.changes]
        self._scrub = self._scrub or any(isinstance(change, Delete) for change in kept)
        if any(isinstance(change, DeleteAll) for change in kept):
            self._checkpoint()
        for job in batch:
            job.reply.send(conflicts.get(job))

    def _checkpoint(self) -> None:
        """Move all pages from the log to the file and empty the log; where a reader is in the way, try later."""
        self._scrub = True
        try:
            connection = self._connect()
            connection.set_busy_timeout(_SCRUB_WAIT_MILLISECONDS)
            self._scrub = bool(connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()[0][0])
            connection.set_busy_timeout(BUSY_SECONDS * 1000)
        except Exception:  # noqa: BLE001 - the commit stands whether or not the log could be emptied; it is tried again
            self.abandon()
        self._pause = min(self._pause * 2, _SCRUB_PAUSE_SECONDS) if self._scrub else _SCRUB_SECONDS

    def _connect(self) -> Connection:
        if self._connection is None:
            self._connection = connect(self._path, self._synchronous, writing=True)
        return self._connection

    def abandon(self) -> None:
        """Close the connection."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


def _apply(connection: Connection, change: Change, place: bytes, path: Path) -> None:
    if isinstance(change, DeleteAll):
        connection.execute("DELETE FROM items WHERE key>=? AND key<?", (place, place + b"\xff"))
        return
    if isinstance(change, Put) and change.expected is not None and _put(connection, change, change.expected, place):
        return
    found = connection.execute("SELECT version FROM items WHERE key=?", (place,)).fetchall()
    version = checked_version(found[0][0], path) if found else 0
    if isinstance(change, Exists):
        if not version:
            raise ConflictError(change.key, 1, 0)
        return
    if change.expected is not None and change.expected != version:
        raise ConflictError(change.key, change.expected, version)
    if isinstance(change, Delete):
        connection.execute("DELETE FROM items WHERE key=?", (place,))
    else:
        connection.execute("REPLACE INTO items VALUES (?, ?, ?)", (place, version + 1, change.value))


def _put(connection: Connection, change: Put, expected: int, place: bytes) -> bool:
    """Put a value where the item is at the version that it must have; gives False, and does nothing, where it is not."""
    if expected == 0:
        connection.execute("INSERT OR IGNORE INTO items VALUES (?, 1, ?)", (place, change.value))
    else:
        connection.execute(
            "UPDATE items SET version=version+1, value=? WHERE key=? AND version=?", (change.value, place, expected)
        )
    return connection.changes() == 1
