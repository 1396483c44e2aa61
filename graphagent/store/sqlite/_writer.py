"""Writing to a SqliteStore: by one thread, which commits together what is queued, or at once where that blocks nobody.

Handing a commit to a thread and waking the task afterwards takes three times as long as a small commit itself. So with
`synchronous="NORMAL"`, where a commit waits for no disk, a small one is made by the thread that asks for it. See `commit_here`
for the conditions, without which an event loop might be blocked. Everything else is done by the writer's thread.
"""

from __future__ import annotations

import copy
import os
import queue
import threading
import time
from collections.abc import Callable
from contextlib import suppress
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
from graphagent.store.sqlite._file import (
    BUSY_SECONDS,
    SHORT,
    Connection,
    check_identity,
    connect,
    explained,
    is_sealed,
)

if TYPE_CHECKING:
    from graphagent._concurrency import Reply

_TOGETHER = 256
"""The most commits in one transaction."""
_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 1.0, 300.0
"""How long after a deletion, or after a failed attempt, the file is cleared; attempts that fail again wait twice as long."""
_MOMENT_SECONDS = 0.1
_READERS_SECONDS, _READERS_UNASKED_SECONDS = 5.0, 0.3
"""How long readers are waited for: when a commit waits until deleted bytes have left the file, and when none does."""
_LOG_PAGES = 1000
"""How many pages the log may grow before they are moved to the file; SQLite's own default."""
_QUICK_CHANGES, _QUICK_BYTES = 32, 2**16
"""The most that is written, or overwritten, by the thread that asks for it."""


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
        if self.along is not None or len(self.changes) > _QUICK_CHANGES:
            return False
        for change, _ in self.changes:
            if isinstance(change, Put):
                self.size += len(change.value)
            elif not isinstance(change, Exists):
                return False
        return self.size <= _QUICK_BYTES


@dataclass(eq=False, slots=True)
class _Stop:
    reply: Reply | None


class _SlowError(Exception):
    """A change turned out to take long, because it overwrites a long value."""


class Writer:
    """The connection that writes, and its thread, which outlives event loops and which the end of the process does not wait for."""

    def __init__(self, path: Path, synchronous: str, identity: tuple[int, int], *, sealed: bool) -> None:
        self.sealed = sealed
        """Whether the file is known to be sealed; a sealed file stays sealed."""
        self._path = path
        self._identity = identity
        self._synchronous = synchronous
        self._jobs: queue.SimpleQueue[Job | _Stop | None] = queue.SimpleQueue()
        """None only wakes the thread up."""
        self._lock = threading.Lock()
        """Guards starting and closing."""
        self._running = False
        self._thread: threading.Thread | None = None
        self._closed = False
        self._connection: Connection | None = None
        self._turn = threading.Lock()
        """Held by the thread that uses the connection. Taken inside of `in_use`, so that it is free whenever the process forks."""
        self._thread_waits = False
        """The writer's thread wants its turn: else it might never get it from one that commits again and again."""
        self._sync_due = True
        """With NORMAL: whether the next commit may begin the log anew, for which SQLite waits for the disk."""
        self._data_version = -1
        """What the connection last knew of the file. It differs from what the connection knows now if others have written since."""
        self._log_pages = 0
        self._log_limit = _LOG_PAGES
        """The length of the log at which its pages are to be moved to the file."""
        self._entered: dict[int, list[Job]] = {}
        """What is to be committed by each thread itself, by its number."""
        register(self)
        self._due: float | None = None
        """When the file and the log are to be cleared of what was deleted; None if nothing was."""
        self._pause = _PAUSE_SECONDS
        self._rewritten = 0
        """The mark that the file had when it was rewritten and the log could not be emptied; else 0."""

    def enter(self, job: Job) -> bool:
        """Enter a commit among those to be made by this thread; return False if it is none that may be.

        The task then gives other tasks their turn, which may enter more, and calls `commit_here`.
        """
        if self._synchronous != "NORMAL" or not job.is_quick():
            return False
        self._entered.setdefault(threading.get_ident(), []).append(job)
        return True

    def commit_here(self, job: Job) -> None:
        """Make an entered commit on the calling thread, with others that were entered there, if that cannot block the thread.

        If the commit is not done afterwards, it has to be submitted. A commit on the calling thread, which is that of an event
        loop, blocks it no longer than handing the commit to another thread would, since nothing is waited for:

        - not for the disk: with NORMAL a commit is only written to the system's cache. The exceptions are the first commit after
          the log was begun anew, which syncs its head, and moving the log to the file. Both are left to the writer's thread.
        - not for others: whoever has the connection or the file locked leaves the commit to the writer's thread. So does another
          process that has written since the last commit: it may have begun the log anew, or sealed the file.
        - not for much work: what is written is little, and the length of a value that is overwritten is looked at before.
        """
        if job.done:
            return
        batch, changes, size = [job], len(job.changes), job.size
        others = [each for each in self._entered.pop(threading.get_ident(), ()) if each is not job]
        for number, each in enumerate(others):
            changes, size = changes + len(each.changes), size + each.size
            if changes > _QUICK_CHANGES or size > _QUICK_BYTES:
                self._entered[threading.get_ident()] = others[number:]
                break
            batch.append(each)
        if self._sync_due or self._thread_waits or not self._jobs.empty():
            return
        with in_use():
            if self._turn.acquire(blocking=False):
                try:
                    if self._connection is not None and not self._closed:
                        self._commit_quickly(self._connection, batch)
                finally:
                    self._turn.release()

    def _commit_quickly(self, connection: Connection, batch: list[Job]) -> None:
        import apsw

        batch = [job for job in batch if not job.abandoned]
        try:
            check_identity(self._path, self._identity)
            connection.set_busy_timeout(0)
            try:
                connection.execute("BEGIN IMMEDIATE")
            except apsw.BusyError:
                return
            finally:
                connection.set_busy_timeout(BUSY_SECONDS * 1000)
            if connection.data_version() != self._data_version:
                connection.execute("ROLLBACK")
                return
            try:
                conflicts, _, sealed = _make_all(connection, batch, self._path, sealed=self.sealed, quick=True)
            except _SlowError:
                connection.execute("ROLLBACK")
                return
            connection.execute("COMMIT")
        except Exception as error:  # noqa: BLE001 - a damaged file raises anything; every task raises it
            self._fail(batch, error)
            return
        self.sealed, self._data_version = sealed, connection.data_version()
        for job in batch:
            job.answer(conflicts.get(job))
        if self._log_pages >= self._log_limit:
            self._jobs.put(None)

    def _fail(self, batch: list[Job], error: Exception) -> None:
        # A connection that met an error is closed: what it remembers of the file may be wrong.
        self._close_connection()
        for job in batch:
            failure = copy.copy(explained(error, self._path))
            failure.__cause__ = error.__cause__ if isinstance(error, StoreError) else error
            job.answer(failure)

    def submit(self, job: Job) -> bool:
        """Queue a commit for the writer's thread; return False if the writer is closed."""
        with self._lock:
            if self._closed:
                return False
            self._start()
            self._jobs.put(job)
            return True

    def erase(self) -> None:
        """Have the thread clear the file of what another process has deleted."""
        with self._lock:
            self._due = 0.0
            self._start()

    def _start(self) -> None:
        if not self._running:
            self._thread = threading.Thread(target=self._serve, name="graphagent-sqlite", daemon=True)
            self._thread.start()
            self._running = True

    def close(self, reply: Reply | None) -> bool:
        """Let the thread end after what is queued; return False if there is no thread, and no reply will come."""
        with self._lock:
            if self._closed or not self._running:
                self._closed = True
                return False
            self._closed = True
            self._jobs.put(_Stop(reply))
            return True

    def end(self) -> None:
        """Let the thread end, and wait a moment for it: usually the files are closed then."""
        if self.close(None) and self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(_MOMENT_SECONDS)

    def _serve(self) -> None:
        while True:
            batch, stop = self._next()
            self._thread_waits = True
            with in_use(), self._turn:
                self._thread_waits = False
                if batch:
                    self._commit(batch)
                if self._log_pages >= self._log_limit:
                    self._move_log()
                if self._due is not None and (stop is not None or time.monotonic() >= self._due):
                    self._erase(_READERS_UNASKED_SECONDS)
                if stop is not None:
                    self._close_connection()
            if stop is not None:
                if stop.reply is not None:
                    stop.reply.send()
                return

    def _next(self) -> tuple[list[Job], _Stop | None]:
        """Wait for a commit, at most until something else is due; return all that are queued by then."""
        batch: list[Job] = []
        try:
            job = self._jobs.get(timeout=None if self._due is None else max(0.0, self._due - time.monotonic()))
            while not isinstance(job, _Stop):
                if job is not None:
                    batch.append(job)
                if len(batch) == _TOGETHER:
                    return batch, None
                job = self._jobs.get_nowait()
        except queue.Empty:
            return batch, None
        return batch, job

    def _commit(self, batch: list[Job]) -> None:
        """Make the commits that can be made in one transaction, and answer all of them."""
        import apsw

        batch = [job for job in batch if not job.abandoned]
        try:
            connection = self._connect()
            check_identity(self._path, self._identity)
            alone(connection, "BEGIN IMMEDIATE")
            # Another process may have sealed the file just now.
            others_wrote = connection.data_version() != self._data_version
            sealed = self.sealed or (others_wrote and is_sealed(connection))
            conflicts, removed, sealed = _make_all(connection, batch, self._path, sealed=sealed)
            if removed:
                mark(connection)
            forgetting = {job for job in batch if job not in conflicts and job.has(DeleteAll)}
            if forgetting and not marked(connection):
                forgetting.clear()  # there was nothing to forget
            connection.execute("COMMIT")
            self.sealed, self._data_version, self._sync_due = sealed, connection.data_version(), False
        except Exception as error:  # noqa: BLE001 - a damaged file raises anything; every waiting task raises it
            self._fail(batch, error)
            return
        for job in batch:
            if job not in forgetting:
                raised = conflicts.get(job)
                job.answer(explained(raised, self._path) if isinstance(raised, apsw.Error) else raised)
        if self._due is None and any(job.has(Delete) for job in batch):
            self._due = time.monotonic() + _PAUSE_SECONDS
        if forgetting:
            self._forget(forgetting)

    def _forget(self, forgetting: set[Job]) -> None:
        """Answer commits that were made, once what they delete has left the file."""
        reason = self._erase(_READERS_SECONDS)
        for job in forgetting:
            failure = None
            if reason is not None:
                failure = NotErasedError(os.fspath(self._path), str(reason))
                failure.__cause__ = reason
            job.answer(failure)

    def _erase(self, wait_seconds: float) -> StoreError | None:
        """Clear the file and the log of what was deleted; return what prevents it, and then it is tried again later."""
        try:
            check_identity(self._path, self._identity)
            connection = self._connect()
            alone(connection, "BEGIN IMMEDIATE")  # another process may be about to finish the same
            number = marked(connection)
            connection.execute("COMMIT")
            self._sync_due = True  # the log will be begun anew
            if number not in (0, self._rewritten):
                rewrite(connection, self._path)
                self._rewritten = number
            if empty_log(connection, wait_seconds):
                if number:
                    unmark(connection, number)
                self._due, self._pause, self._rewritten = None, _PAUSE_SECONDS, 0
                return None
            reason = StoreError(f"{self._path}: it is being read all the time; end what reads it that long")
        except Exception as error:  # noqa: BLE001 - a damaged file raises anything; the commit is made in any case
            self._close_connection()
            reason = explained(error, self._path)
        self._due = time.monotonic() + self._pause
        self._pause = min(self._pause * 2, _LONGEST_PAUSE_SECONDS)
        return reason

    def _move_log(self) -> None:
        """Move the pages of the log to the file, as far as no reader needs them, so that the log can begin anew.

        SQLite would do it within a commit, which would wait for the disk then.
        """
        import apsw

        self._sync_due = True
        # If a reader is in the way, the log grows on, and is not tried again at every commit.
        self._log_limit = self._log_pages + _LOG_PAGES
        with suppress(apsw.Error, StoreError):  # as SQLite does: whatever is wrong is raised by the next commit
            self._connect().execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()

    def _log_has(self, _connection: object, _name: str, pages: int) -> int:
        """Take note of the length of the log; called by SQLite within each commit."""
        if pages < self._log_pages:  # it was begun anew
            self._log_limit = _LOG_PAGES
        self._log_pages = pages
        return 0

    def _connect(self) -> Connection:
        if self._connection is None:
            self._connection = connect(self._path, self._synchronous, writing=True)
            self._connection.set_wal_hook(self._log_has)
            self._data_version, self._sync_due = -1, True
        return self._connection

    def _close_connection(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def abandon(self) -> None:
        """Close the connection that a forked process has inherited."""
        self._close_connection()


def _make_all(
    connection: Connection, batch: list[Job], path: Path, *, sealed: bool, quick: bool = False
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
        if begin:
            connection.execute(begin)
        try:
            sealed_then = _sealed_after(connection, job, path, sealed=sealed)
            removes = _make(connection, job, path, quick=quick)
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
        if end:
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


def _make(connection: Connection, job: Job, path: Path, *, quick: bool) -> bool:
    """Make the changes of a commit; says whether a DeleteAll has removed anything."""
    removed = False
    for change, place in job.changes:
        if isinstance(change, DeleteAll):
            among = (place, place + b"\xff")
            connection.execute("DELETE FROM apart WHERE id IN (SELECT apart FROM items WHERE key>=? AND key<?)", among)
            connection.execute("DELETE FROM items WHERE key>=? AND key<?", among)
            removed = removed or connection.changes() > 0
        else:
            _apply(connection, change, place, path, quick=quick)
    return removed


def _apply(connection: Connection, change: Put | Delete | Exists, place: bytes, path: Path, *, quick: bool) -> None:
    version, apart = _find(connection, place, path)
    if isinstance(change, Exists):
        if not version:
            raise ConflictError(change.key, 1, 0)
        return
    if change.expected is not None and change.expected != version:
        raise ConflictError(change.key, change.expected, version)
    if quick and apart is not None and _length(connection, apart) > _QUICK_BYTES:
        raise _SlowError
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


def _length(connection: Connection, apart: int) -> int:
    # SQLite knows the length of a value without reading it.
    [(length,)] = connection.execute("SELECT length(value) FROM apart WHERE id=?", (apart,)).fetchall() or [(0,)]
    return length if isinstance(length, int) else 0


def _find(connection: Connection, place: bytes, path: Path) -> tuple[int, int | None]:
    """Give the version of the item under a key, 0 where there is none, and the id of its value if that lies apart."""
    rows = connection.execute("SELECT version, apart FROM items WHERE key=?", (place,)).fetchall()
    if not rows:
        return 0, None
    version, apart = rows[0]
    if isinstance(version, int) and version > 0 and (apart is None or isinstance(apart, int)):
        return version, apart
    raise DamagedStoreError(os.fspath(path), "a row is not one that a store writes")
