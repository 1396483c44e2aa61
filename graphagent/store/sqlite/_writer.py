"""The one thread that writes a SqliteStore: what is queued is committed together."""

from __future__ import annotations

import copy
import os
import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from graphagent.errors import (
    ConflictError,
    DamagedStoreError,
    NotErasedError,
    PlainStoreError,
    SealedStoreError,
    StoreError,
)
from graphagent.store._fork_safety import in_use, register
from graphagent.store._items import Change, Delete, DeleteAll, Exists, Put
from graphagent.store._sealed_detection import sealed_after
from graphagent.store.sqlite._erasure import alone, empty_log, mark, marked, rewrite, unmark
from graphagent.store.sqlite._file import SHORT, Connection, check_identity, connect, explained, is_sealed

if TYPE_CHECKING:
    from graphagent._concurrency import Reply

_TOGETHER = 256
_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 1.0, 300.0
_MOMENT_SECONDS = 0.1
_READERS_SECONDS, _READERS_UNASKED_SECONDS = 5.0, 0.3
"""How long readers are waited for: where a commit waits for what it deletes to leave the file, and where none does."""


@dataclass(eq=False, slots=True)
class Job:
    """A commit that waits for the writer."""

    changes: list[tuple[Change, bytes]]
    reply: Reply
    along: Callable[[Any], object] | None = None
    """Changes other tables in the same transaction."""
    abandoned: bool = False
    """No one waits for it any more; it need not be begun."""

    def has(self, kind: type[Change]) -> bool:
        """Say whether one of the changes is of a kind."""
        return any(isinstance(change, kind) for change, _ in self.changes)


@dataclass(eq=False, slots=True)
class _Stop:
    reply: Reply | None


class Writer:
    """A thread that outlives event loops, and that the end of the process does not wait for."""

    def __init__(self, path: Path, synchronous: str, identity: tuple[int, int], *, sealed: bool) -> None:
        self.sealed = sealed
        """Whether the file is known to be sealed; it never ceases to be."""
        self._path = path
        self._identity = identity
        self._synchronous = synchronous
        self._jobs: queue.SimpleQueue[Job | _Stop] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._running = False
        self._thread: threading.Thread | None = None
        self._closed = False
        self._connection: Connection | None = None
        register(self)
        self._due: float | None = None
        """When the file and the log are to be cleared of what was deleted; None where nothing was."""
        self._pause = _PAUSE_SECONDS
        self._rewritten = 0
        """The mark that the file had when it was written anew and the log could not be emptied; else 0."""

    def submit(self, job: Job) -> bool:
        """Queue a commit; gives False where the writer is closed."""
        with self._lock:
            if self._closed:
                return False
            self._start()
            self._jobs.put(job)
            return True

    def erase(self) -> None:
        """Have what another process has deleted leave the file, soon."""
        with self._lock:
            self._due = 0.0
            self._start()

    def _start(self) -> None:
        if not self._running:
            self._thread = threading.Thread(target=self._serve, name="graphagent-sqlite", daemon=True)
            self._thread.start()
            self._running = True

    def close(self, reply: Reply | None) -> bool:
        """Let the thread end behind what is queued; gives False where there is none, and no reply will come."""
        with self._lock:
            if self._closed or not self._running:
                self._closed = True
                return False
            self._closed = True
            self._jobs.put(_Stop(reply))
            return True

    def end(self) -> None:
        """Let the thread end, and give it a moment: most often the files are closed then."""
        if self.close(None) and self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(_MOMENT_SECONDS)

    def _serve(self) -> None:
        while True:
            batch, stop = self._next()
            with in_use():
                if batch:
                    self._commit(batch)
                if self._due is not None and (stop is not None or time.monotonic() >= self._due):
                    self._erase(_READERS_UNASKED_SECONDS)
                if stop is not None:
                    self.abandon()
            if stop is not None:
                if stop.reply is not None:
                    stop.reply.send()
                return

    def _next(self) -> tuple[list[Job], _Stop | None]:
        """Wait for a commit, at most until something else is due, and take all that are queued by then."""
        batch: list[Job] = []
        try:
            job = self._jobs.get(timeout=None if self._due is None else max(0.0, self._due - time.monotonic()))
            while not isinstance(job, _Stop):
                batch.append(job)
                if len(batch) == _TOGETHER:
                    return batch, None
                job = self._jobs.get_nowait()
        except queue.Empty:
            return batch, None
        return batch, job

    def _commit(self, batch: list[Job]) -> None:
        import apsw

        batch = [job for job in batch if not job.abandoned]
        try:
            connection = self._connect()
            check_identity(self._path, self._identity)
            alone(connection, "BEGIN IMMEDIATE")
            # Another process may have sealed the file just now.
            sealed = self.sealed or is_sealed(connection)
            conflicts, removed, sealed = _make_all(connection, batch, self._path, sealed=sealed)
            if removed:
                mark(connection)
            forgetting = {job for job in batch if job not in conflicts and job.has(DeleteAll)}
            if forgetting and not marked(connection):
                forgetting.clear()  # there was nothing to forget
            connection.execute("COMMIT")
            self.sealed = sealed
        except Exception as error:  # noqa: BLE001 - a damaged file raises anything; it is told to every waiting task
            # A connection that met an error is given up: what it believes about the file may be wrong.
            self.abandon()
            for job in batch:
                failure = copy.copy(explained(error, self._path))
                failure.__cause__ = error.__cause__ if isinstance(error, StoreError) else error
                job.reply.send(failure)
            return
        for job in batch:
            if job not in forgetting:
                raised = conflicts.get(job)
                job.reply.send(explained(raised, self._path) if isinstance(raised, apsw.Error) else raised)
        if self._due is None and any(job.has(Delete) for job in batch):
            self._due = time.monotonic() + _PAUSE_SECONDS
        if forgetting:
            self._forget(forgetting)

    def _forget(self, forgetting: set[Job]) -> None:
        """Answer those whose commits are made, once what these delete has left the file."""
        reason = self._erase(_READERS_SECONDS)
        for job in forgetting:
            failure = None
            if reason is not None:
                failure = NotErasedError(os.fspath(self._path), str(reason))
                failure.__cause__ = reason
            job.reply.send(failure)

    def _erase(self, wait_seconds: float) -> StoreError | None:
        """Have what was deleted leave the file and the log; gives what is in the way, and then it is tried again."""
        try:
            check_identity(self._path, self._identity)
            connection = self._connect()
            alone(connection, "BEGIN IMMEDIATE")  # another process may be about to end the same
            number = marked(connection)
            connection.execute("COMMIT")
            if number not in (0, self._rewritten):
                rewrite(connection, self._path)
                self._rewritten = number
            if empty_log(connection, wait_seconds):
                if number:
                    unmark(connection, number)
                self._due, self._pause, self._rewritten = None, _PAUSE_SECONDS, 0
                return None
            reason = StoreError(f"{self._path}: it is being read all the time; end what reads it that long")
        except Exception as error:  # noqa: BLE001 - a damaged file raises anything; the commit stands in any case
            self.abandon()
            reason = explained(error, self._path)
        self._due = time.monotonic() + self._pause
        self._pause = min(self._pause * 2, _LONGEST_PAUSE_SECONDS)
        return reason

    def _connect(self) -> Connection:
        if self._connection is None:
            self._connection = connect(self._path, self._synchronous, writing=True)
        return self._connection

    def abandon(self) -> None:
        """Close the connection."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


def _make_all(
    connection: Connection, batch: list[Job], path: Path, *, sealed: bool
) -> tuple[dict[Job, Exception], bool, bool]:
    """Make the changes of all commits that can be made; `sealed` says whether the file is sealed before.

    Gives those that meet a conflict, are refused, or whose `along` fails, with what it raised; whether a DeleteAll has removed
    anything; and whether the file is sealed then.
    """
    conflicts: dict[Job, Exception] = {}
    removed = False
    # A savepoint has SQLite copy old pages, so a single commit goes without: much that is deleted would get into temporary files.
    begin, back, end = (
        ("SAVEPOINT job", "ROLLBACK TO job", "RELEASE job") if len(batch) > 1 else ("", "ROLLBACK; BEGIN", "")
    )
    for job in batch:
        connection.execute(begin)
        try:
            sealed_then = _sealed_after(connection, job, path, sealed=sealed)
            removes = _make(connection, job, path)
            if job.along is not None:
                try:
                    job.along(connection)
                except Exception as error:  # noqa: BLE001  it is for the one who gave it
                    conflicts[job] = error
                    connection.execute(back)
                    removes = False
            removed, sealed = removed or removes, sealed_then
        except (ConflictError, SealedStoreError, PlainStoreError) as error:
            conflicts[job] = error
            connection.execute(back)
        connection.execute(end)
    return conflicts, removed, sealed


def _sealed_after(connection: Connection, job: Job, path: Path, *, sealed: bool) -> bool:
    where = os.fspath(path)
    if sealed and job.along is not None:
        raise SealedStoreError(where)
    return sealed_after(
        [change for change, _ in job.changes],
        where,
        sealed=sealed,
        has_rows=lambda: connection.execute("SELECT 1 FROM items LIMIT 1").fetchall() != [],
    )


def _make(connection: Connection, job: Job, path: Path) -> bool:
    """Make the changes of a commit; says whether a DeleteAll has removed anything."""
    removed = False
    for change, place in job.changes:
        if isinstance(change, DeleteAll):
            among = (place, place + b"\xff")
            connection.execute("DELETE FROM apart WHERE id IN (SELECT apart FROM items WHERE key>=? AND key<?)", among)
            connection.execute("DELETE FROM items WHERE key>=? AND key<?", among)
            removed = removed or connection.changes() > 0
        else:
            _apply(connection, change, place, path)
    return removed


def _apply(connection: Connection, change: Put | Delete | Exists, place: bytes, path: Path) -> None:
    version, apart = _find(connection, place, path)
    if isinstance(change, Exists):
        if not version:
            raise ConflictError(change.key, 1, 0)
        return
    if change.expected is not None and change.expected != version:
        raise ConflictError(change.key, change.expected, version)
    if isinstance(change, Put) and len(change.value) > SHORT:
        connection.execute("REPLACE INTO apart VALUES (?, ?)", (apart, change.value))
        connection.execute("REPLACE INTO items VALUES (?, ?, NULL, last_insert_rowid())", (place, version + 1))
        return
    if apart is not None:
        connection.execute("DELETE FROM apart WHERE id=?", (apart,))
    if isinstance(change, Put):
        connection.execute("REPLACE INTO items VALUES (?, ?, ?, NULL)", (place, version + 1, change.value))
    else:
        connection.execute("DELETE FROM items WHERE key=?", (place,))


def _find(connection: Connection, place: bytes, path: Path) -> tuple[int, int | None]:
    """Give the version of the item under a key, 0 where there is none, and the id of its value if that lies apart."""
    rows = connection.execute("SELECT version, apart FROM items WHERE key=?", (place,)).fetchall()
    if not rows:
        return 0, None
    version, apart = rows[0]
    if isinstance(version, int) and version > 0 and (apart is None or isinstance(apart, int)):
        return version, apart
    raise DamagedStoreError(os.fspath(path), "a row is not one that a store writes")
