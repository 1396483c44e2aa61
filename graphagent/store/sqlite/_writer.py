"""Writing to a SqliteStore: by one thread, which commits queued changes together, or at once if that blocks no one.

Handing a commit to a thread and waking the task afterwards takes three times as long as a small commit itself. So with
`synchronous="NORMAL"`, where a commit waits for no disk, a small one is made by the thread that asks for it. See `commit_here`
for the conditions, without which an event loop might be blocked. Everything else is done by the writer's thread.
"""

from __future__ import annotations

import copy
import os
import queue
import sys
import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from graphagent.errors import (
    NotErasedError,
    StoreError,
)
from graphagent.store._fork_safety import in_use, register
from graphagent.store._items import Delete, DeleteAll
from graphagent.store.sqlite._erasure import empty_log, mark, marked, rewrite, unmark, wait_and_execute
from graphagent.store.sqlite._file import (
    BUSY_SECONDS,
    Connection,
    as_store_error,
    check_identity,
    connect,
    is_sealed,
)
from graphagent.store.sqlite._transaction import QUICK_BYTES, QUICK_CHANGES, Job, SlowError, make_all

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


@dataclass(eq=False, slots=True)
class _Stop:
    reply: Reply | None


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
        """With NORMAL: whether the next commit may restart the log, for which SQLite waits for the disk."""
        self._data_version = -1
        """The state of the file that the connection knew last. It differs from the present state if others have written since."""
        self._log_pages = 0
        """How long the log is, in pages."""
        self._log_limit = _LOG_PAGES
        """The length of the log at which its pages are to be moved to the file."""
        self._moved_pages = sys.maxsize
        """The length of the log when they were moved. It restarts at the next commit, unless a reader still uses it."""
        self._entered: dict[int, list[Job]] = {}
        """The commits that each thread makes itself, by its number."""
        register(self)
        self._due: float | None = None
        """When the file and the log are to be cleared of deleted data; None without such data."""
        self._pause = _PAUSE_SECONDS
        self._rewritten = 0
        """The mark that the file had when it was rewritten and the log could not be emptied; else 0."""
        self.in_doubt = False
        """Whether the log may end with a commit that failed after all of it was written, which the next opening would take for made."""

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

        - not for the disk: with NORMAL a commit is only written to the system's cache. The exceptions are the commit that
          restarts the log, which syncs its head, and moving the log to the file. Both are left to the writer's thread.
        - not for others: if another holds the lock of the connection or the file, the commit is left to the writer's thread. So does another
          process that has written since the last commit: it may have restarted the log, or sealed the file.
        - not for much work: little is written, and the length of a value that is overwritten is looked at before.
        """
        if job.done:
            return
        batch, changes, size = [job], len(job.changes), job.size
        others = [each for each in self._entered.pop(threading.get_ident(), ()) if each is not job]
        for number, each in enumerate(others):
            changes, size = changes + len(each.changes), size + each.size
            if changes > QUICK_CHANGES or size > QUICK_BYTES:
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
                conflicts, _, sealed = make_all(connection, batch, self._path, sealed=self.sealed, quick=True)
            except SlowError:
                connection.execute("ROLLBACK")
                return
            self._end_transaction(connection)
        except Exception as error:  # noqa: BLE001 - a damaged file raises anything; every task raises it
            self._close_connection()
            self._fail(batch, error, unsure=self.in_doubt)
            self._jobs.put(None)  # a commit in doubt is overwritten by the writer's thread
            return
        self.sealed, self._data_version = sealed, connection.data_version()
        for job in batch:
            job.answer(conflicts.get(job))
        if self._log_pages >= self._log_limit:
            self._jobs.put(None)

    def _end_transaction(self, connection: Connection) -> None:
        self.in_doubt = True
        connection.execute("COMMIT")
        self.in_doubt = False

    def _overwrite(self, connection: Connection) -> None:
        """Overwrite a commit in doubt at the end of the log, by one that changes nothing, so that it cannot come back."""
        wait_and_execute(connection, "BEGIN IMMEDIATE")
        [(version,)] = connection.execute("PRAGMA user_version").fetchall()
        connection.execute(f"PRAGMA user_version={version}").fetchall()  # written in any case
        self._end_transaction(connection)

    def _settle(self) -> None:
        """Close a connection that met an error, and overwrite a commit in doubt, if the disk lets it."""
        # The connection's cache of the file may be wrong.
        failed, self._connection = self._connection, None
        connection: Connection | None = None
        with suppress(Exception):  # the next commit tries it again, and raises what prevents it
            if self.in_doubt:
                check_identity(self._path, self._identity)
                # Opened before the other one is closed: the first connection to a file takes all of the log for made.
                connection = self._connect()
        if failed is not None:
            failed.close()
        try:
            if connection is not None:
                self._overwrite(connection)
        except Exception:  # noqa: BLE001 - as above
            self._close_connection()

    def _fail(self, batch: list[Job], error: Exception, *, unsure: bool = False) -> None:
        for job in batch:
            failure = copy.copy(as_store_error(error, self._path))
            if unsure:
                failure = StoreError(f"{failure}. The commit may be there all the same when the file is opened again")
            failure.__cause__ = error.__cause__ if isinstance(error, StoreError) else error
            job.answer(failure)

    def submit(self, job: Job) -> bool:
        """Queue a commit for the writer's thread; return False if the writer is closed."""
        with self._lock:
            if self._closed:
                return False
            if not self._running:
                self._start()
            self._jobs.put(job)
            return True

    def erase(self) -> None:
        """Have the thread clear the file of data that another process has deleted."""
        with self._lock:
            self._due = 0.0
            if not self._running:
                self._start()

    def _start(self) -> None:
        self._thread = threading.Thread(target=self._serve, name="graphagent-sqlite", daemon=True)
        self._thread.start()
        self._running = True

    def close(self, reply: Reply | None) -> bool:
        """Let the thread end after the queued work; return False without a thread: no reply will come."""
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
                elif self.in_doubt:
                    self._settle()
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

        batch, ending = [job for job in batch if not job.abandoned], False
        try:
            connection = self._connect()
            check_identity(self._path, self._identity)
            if self.in_doubt:
                self._overwrite(connection)
            wait_and_execute(connection, "BEGIN IMMEDIATE")
            # Another process may have sealed the file just now.
            others_wrote = connection.data_version() != self._data_version
            sealed = self.sealed or (others_wrote and is_sealed(connection))
            conflicts, removed, sealed = make_all(connection, batch, self._path, sealed=sealed)
            if removed:
                mark(connection)
            forgetting = {job for job in batch if job not in conflicts and job.has(DeleteAll)}
            if forgetting and not marked(connection):
                forgetting.clear()  # there was nothing to forget
            ending = True
            self._end_transaction(connection)
            self.sealed, self._data_version = sealed, connection.data_version()
            self._sync_due = self._sync_due and self._log_pages >= self._moved_pages
        except Exception as error:  # noqa: BLE001 - a damaged file raises anything; every waiting task raises it
            self._settle()
            self._fail(batch, error, unsure=ending and self.in_doubt)
            return
        for job in batch:
            if job not in forgetting:
                raised = conflicts.get(job)
                job.answer(
                    as_store_error(raised, self._path)
                    if isinstance(raised, apsw.Error | UnicodeDecodeError)
                    else raised
                )
        if self._due is None and any(job.has(Delete) for job in batch):
            self._due = time.monotonic() + _PAUSE_SECONDS
        if forgetting:
            self._forget(forgetting)

    def _forget(self, forgetting: set[Job]) -> None:
        """Answer commits that were made, once the deleted data have left the file."""
        reason = self._erase(_READERS_SECONDS)
        for job in forgetting:
            failure = None
            if reason is not None:
                failure = NotErasedError(os.fspath(self._path), str(reason))
                failure.__cause__ = reason
            job.answer(failure)

    def _erase(self, wait_seconds: float) -> StoreError | None:
        """Clear the file and the log of deleted data; return the obstacle if that fails, and try again later."""
        try:
            check_identity(self._path, self._identity)
            connection = self._connect()
            wait_and_execute(connection, "BEGIN IMMEDIATE")  # another process may be about to finish the same
            number = marked(connection)
            connection.execute("COMMIT")
            self._sync_due, self._moved_pages = True, sys.maxsize  # the log will be restarted
            if number not in (0, self._rewritten):
                rewrite(connection, self._path)
                self._rewritten = number
            if empty_log(connection, wait_seconds):
                if number:
                    unmark(connection, number)
                self._due, self._pause, self._rewritten = None, _PAUSE_SECONDS, 0
                return None
            reason = StoreError(
                f"{self._path}: it is being read all the time; end the processes that read it that long"
            )
        except Exception as error:  # noqa: BLE001 - a damaged file raises anything; the commit is made in any case
            self._close_connection()
            reason = as_store_error(error, self._path)
        self._due = time.monotonic() + self._pause
        self._pause = min(self._pause * 2, _LONGEST_PAUSE_SECONDS)
        return reason

    def _move_log(self) -> None:
        """Move the pages of the log to the file, as far as no reader needs them, so that the log can restart.

        SQLite would do it within a commit, which would wait for the disk then.
        """
        import apsw

        # If a reader is in the way, the log keeps growing, and this is not tried again at every commit.
        self._log_limit = self._log_pages + _LOG_PAGES
        with suppress(apsw.Error, StoreError):  # as SQLite does: whatever is wrong is raised by the next commit
            [(_, pages, moved)] = self._connect().execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
            if pages == moved:
                self._sync_due, self._moved_pages = True, self._log_pages

    def _log_has(self, _connection: object, _name: str, pages: int) -> int:
        """Take note of the length of the log; called by SQLite within each commit."""
        if pages < self._log_pages:  # it was restarted
            self._log_limit = _LOG_PAGES
        self._log_pages = pages
        return 0

    def _connect(self) -> Connection:
        if self._connection is None:
            self._connection = connect(self._path, self._synchronous, writing=True)
            self._connection.set_wal_hook(self._log_has)
            self._data_version, self._sync_due, self._moved_pages = -1, True, sys.maxsize
        return self._connection

    def _close_connection(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def abandon(self) -> None:
        """Close the connection that a forked process has inherited."""
        self._close_connection()
