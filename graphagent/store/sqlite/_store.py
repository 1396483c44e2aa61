"""SqliteStore: a store in one SQLite file. SQLite comes with the driver, apsw, so its version is known.

Reading uses up to four connections, each by one thread at a time. Single items and short scans are read by the thread that asks,
which takes less time than asking another thread; everything longer is read by a worker thread. See `_writer.py` for writing.

The file is long because every method has a description and its errors for users.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar, cast

import anyio.to_thread
from anyio.lowlevel import checkpoint

from graphagent._concurrency import Reply, turn
from graphagent._options import check_path, check_word
from graphagent.errors import SealedStoreError, StoreError, StoreNotFoundError
from graphagent.store._bulk import Scan
from graphagent.store._fork_safety import OwnLock, in_use, register
from graphagent.store._items import bounds, check_change, checked_limit, encode, encode_key, only_removes
from graphagent.store._sealed_detection import is_plain
from graphagent.store.sqlite._erasure import marked
from graphagent.store.sqlite._file import (
    ROWS,
    SCHEMA,
    Connection,
    as_store_error,
    check_identity,
    connect,
    exists,
    identity,
    is_sealed,
    is_writable,
    items,
    make,
    make_view,
    remove_leftovers,
    sync_log,
    unlocked_state,
)
from graphagent.store.sqlite._soundness import CHUNK_BYTES, check_beside, check_pages, check_whole
from graphagent.store.sqlite._transaction import Job
from graphagent.store.sqlite._writer import Writer

if TYPE_CHECKING:
    from graphagent.store._items import Change, Item, Key

T = TypeVar("T")

_INLINE_ROWS, _INLINE_BYTES = 32, 2**16
_CHUNK_ROWS = 4096
_READERS_KEPT = 4
_TRIES = 5

_ONE = f"{ROWS} WHERE key=?"
_UP = f"{ROWS} WHERE key>=? AND key<? ORDER BY key LIMIT ?"
_DOWN = f"{ROWS} WHERE key>=? AND key<? ORDER BY key DESC LIMIT ?"


class SqliteStore:
    """A store in a file.

    It opens at the first use. The first commit makes its folder and file, for this user alone; until then nothing is found, and
    reading makes nothing. A file that this process may not write can be read, also where SQLite's files beside it are missing and
    cannot be made, such as a backup on a read-only disk. A commit is on the disk when it returns;
    with `synchronous="NORMAL"` it survives the end of the process at once, and a loss of power a little later. Any number
    of tasks, event loops, threads and processes may use one file; a process that is forked after the first use makes its
    own SqliteStore. Do not open the file of an open store with another SQLite library in the same process, such as Python's
    `sqlite3`: when that closes the file, the system drops the locks of this one. Nothing needs closing; `async with` closes
    early, and a closed store opens again when it is used.

    Data that DeleteAll removes have left the files when the commit returns, with all older copies: the file is rewritten, which
    takes the longer the larger it is, once for all commits that wait. Other commits wait too, while reads continue. If rewriting
    fails, or the process ends meanwhile, a mark in the file makes this store, or the next one that opens the file, do it later.
    Data that Delete removes and Put replaces are overwritten sooner or later, but copies may remain until then.

    A file that an EncryptedStore has sealed belongs to that store alone: reading or writing items without it raises
    SealedStoreError. `scan(())` and `verify()` read its rows as they are.

    Raises:
        TypeError: `path` is not a path.
        ValueError: `path` is the name of a database in memory or a URL, or `synchronous` is not known.
    """

    def __init__(
        self, path: str | os.PathLike[str], *, synchronous: Literal["EXTRA", "FULL", "NORMAL"] = "FULL"
    ) -> None:
        check_word("synchronous", synchronous, ("EXTRA", "FULL", "NORMAL"))
        check_path("path=", path, "'runs.db'")
        self.path: Path = Path(path).absolute()
        """The file. While it is open, there are two more, which belong to it: their names end with `-wal` and `-shm`."""
        self._synchronous = synchronous
        self._opened: _OpenFile | None = None
        self._log_synced = False
        self._opening = OwnLock()

    def __repr__(self) -> str:
        return f"SqliteStore({os.fspath(self.path)!r})"

    async def get(self, key: Key) -> Item | None:
        """Return the item under a key, or None.

        Raises:
            SealedStoreError: the file is sealed, and this is not the key of a sealed row.
            StoreError: the file cannot be read (DamagedStoreError: it is damaged).
        """
        place = encode_key(key)
        return (await self._open(key)).read(lambda connection: _one(connection, key, place, self.path))

    async def get_many(self, keys: Iterable[Key]) -> dict[Key, Item]:
        """Return the items under `keys` as of one moment, in their order, without those that do not exist.

        Raises:
            SealedStoreError: the file is sealed, and one of the keys is not that of a sealed row.
            StoreError: the file cannot be read (DamagedStoreError: it is damaged).
        """
        places: dict[bytes, Key] = {}
        for number, key in enumerate(keys, 1):
            await turn(number)
            places[encode_key(key)] = key
        if not places:
            return {}
        opened = await self._open(*places.values())
        read = partial(_several, places=places, path=self.path)
        return opened.read(read) if len(places) <= _INLINE_ROWS else await anyio.to_thread.run_sync(opened.read, read)

    def scan(
        self, prefix: Key, *, after: Key | None = None, limit: int | None = None, reverse: bool = False
    ) -> AsyncIterator[Item]:
        """Return the items whose keys begin with `prefix`, in order. Changes made meanwhile after the last item are seen.

        Raises:
            SealedStoreError: the file is sealed, and these are not keys of sealed rows.
            StoreError: the file cannot be read (DamagedStoreError: it is damaged).
        """
        low, high = bounds(prefix, after, reverse=reverse)
        return Scan(_ScanPosition(self._open, self.path, prefix, low, high, checked_limit(limit), reverse=reverse).more)

    async def commit(self, *changes: Change, along: Callable[[Any], object] | None = None) -> None:
        """Make all changes or none; they are durable when this returns. If it is cancelled, it has made all or none.

        `along` is called by the thread that writes, after the changes and in the same transaction, with a connection of apsw. So
        data that is derived from items can be stored with them, in tables whose names begin with `notes_`. If it raises, nothing
        is changed, and the exception is raised here.

        A commit that failed, and may have been made all the same, is overwritten before anything later is committed. Without
        changes, nothing else is done.

        Raises:
            ConflictError: an item does not have the version that a change expects, or does not exist.
            SealedStoreError: the file is sealed, and a change is not one of a sealed row.
            NotErasedError: all changes are made, but bytes of data that DeleteAll removed may still be in the file.
            StoreError: the file cannot be written (DamagedStoreError: it is damaged).
        """
        checked: list[tuple[Change, bytes]] = []
        for number, change in enumerate(changes, 1):
            await turn(number)
            checked.append((change, check_change(change)))
        if along is None and only_removes(changes):
            opened = await self._open() if changes else self._opened
            if not isinstance(opened, _OpenFile) or not (changes or opened.writer.in_doubt):
                return
        job = Job(checked, along)
        writer = (await self._open_to_write()).writer
        try:
            if writer.enter(job):
                await checkpoint()  # here other tasks have their turn
                writer.commit_here(job)
            if not job.done:
                job.reply = Reply()
                while not writer.submit(job):  # it was closed in between
                    writer = (await self._open_to_write()).writer
                await job.reply.wait()
        finally:
            job.abandoned = True
        if job.error is not None:
            raise job.error

    async def sync(self) -> None:
        """Make everything durable that was committed, which takes one wait for the disk with `synchronous="NORMAL"`.

        Otherwise, it takes one the first time: the last commits of a killed process may not be in the file yet.

        Raises:
            StoreError: the file cannot be synced.
        """
        if self._synchronous == "NORMAL" or not self._log_synced:
            await anyio.to_thread.run_sync(sync_log, self.path)
            self._log_synced = True

    async def read(self, function: Callable[[Any], T]) -> T:
        """Return the result of a function, which is called in a worker thread with a connection of apsw that no other thread uses meanwhile.

        Raises:
            SealedStoreError: the file is sealed, and contains nothing but sealed rows.
            StoreError: the file cannot be read (DamagedStoreError: it is damaged).
        """
        opened = await self._open(())
        return await anyio.to_thread.run_sync(opened.read_for, function)

    async def verify(self) -> int:
        """Read and check everything, as far as SQLite can check it. Return the number of items.

        Raises:
            StoreNotFoundError: the file does not exist; it is not created.
            DamagedStoreError: the file is damaged.
        """
        await anyio.to_thread.run_sync(self._check_exists)
        opened = await self._open()
        return await anyio.to_thread.run_sync(opened.read, partial(check_whole, path=self.path))

    def _check_exists(self) -> None:
        if self._opened is None and not exists(self.path):
            raise StoreNotFoundError("store", os.fspath(self.path), "give the path of one that exists")

    async def aclose(self) -> None:
        """Close the file and end its thread, after all commits and erasures that were begun."""
        opened, self._opened = self._opened, None
        if opened is not None and opened.pid == os.getpid():
            reply = Reply()
            opened.close_readers()
            if opened.writer.close(reply):
                await reply.outwait()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        await self.aclose()

    async def _open(self, *keys: Key) -> _OpenFile | _NoFile:
        """Return the opened file, if it exists; `keys` are the keys and prefixes that will be read, which a sealed file may refuse."""
        opened: _OpenFile | _NoFile | None = self._opened
        if opened is None:
            opened = await anyio.to_thread.run_sync(partial(self._open_here, new=False))
        if isinstance(opened, _OpenFile):
            self._check_process(opened)
            if opened.writer.sealed and any(map(is_plain, keys)):
                raise SealedStoreError(os.fspath(self.path))
        return opened

    async def _open_to_write(self) -> _OpenFile:
        """Return the opened file, which is made if it does not exist."""
        opened: _OpenFile | _NoFile | None = self._opened
        if opened is None:
            opened = await anyio.to_thread.run_sync(partial(self._open_here, new=True))
        assert isinstance(opened, _OpenFile)
        self._check_process(opened)
        return opened

    def _check_process(self, opened: _OpenFile) -> None:
        if opened.pid != os.getpid():
            raise StoreError(f"{self.path} was opened before this process was forked; make a new SqliteStore here")

    def _open_here(self, *, new: bool) -> _OpenFile | _NoFile:
        with self._opening:
            if self._opened is None:
                with in_use():
                    if not self._find_file(new=new):
                        return _NoFile()
                opened = _OpenFile(self.path, self._synchronous)
                opened.read(partial(check_pages, path=self.path))
                if opened.read(marked) and is_writable(self.path):
                    opened.writer.erase()
                weakref.finalize(self, opened.writer.end).atexit = False
                self._opened = opened
            return self._opened

    def _find_file(self, *, new: bool) -> bool:
        """Return whether there is a file, after making a missing one if it may be `new`."""
        there = exists(self.path)
        if there or new:
            remove_leftovers(self.path.parent)
        if not there and new:
            make(self.path)
        return there or new


class _NoFile:
    """The result of reading a file that does not exist: no items."""

    def __init__(self) -> None:
        import apsw

        self._connection = cast(Connection, apsw.Connection(":memory:"))
        self._connection.execute("; ".join(SCHEMA)).fetchall()
        make_view(self._connection)

    def read(self, function: Callable[[Connection], T]) -> T:
        """Call a function with a connection to an empty store in memory."""
        with in_use():
            return function(self._connection)

    read_for = read


class _OpenFile:
    """An open file: connections that read, and the writer."""

    def __init__(self, path: Path, synchronous: str) -> None:
        self.pid = os.getpid()
        self._path = path
        self._identity = identity(path)
        self._synchronous = synchronous
        self._idle: list[Connection] = []
        self._closed = False
        self._writable = is_writable(path)
        register(self)
        self.writer = Writer(path, synchronous, self._identity, sealed=self.read(is_sealed))

    def read(self, function: Callable[[Connection], T]) -> T:
        """Call a function with a connection that no other thread uses meanwhile."""
        if not self._writable:
            return self._read_unchanged(function)
        with in_use():
            check_identity(self._path, self._identity)
            try:
                connection = self._idle.pop()
            except IndexError:
                connection = connect(self._path, self._synchronous, writing=False)
            try:
                found = function(connection)
            except Exception as error:  # a damaged file makes the driver raise nearly anything
                connection.close()
                raise as_store_error(error, self._path) from error
            if self._closed or len(self._idle) >= _READERS_KEPT:
                connection.close()
            else:
                self._idle.append(connection)
            return found

    def _read_unchanged(self, function: Callable[[Connection], T]) -> T:
        """Do the same for a file that this process may not write: data that were read without locks are read again if they have changed."""
        for _ in range(_TRIES):
            with in_use():
                check_identity(self._path, self._identity)
                before = unlocked_state(self._path)
                connection = connect(self._path, self._synchronous, writing=False)
                try:
                    found = function(connection)
                except Exception as error:  # a damaged file makes the driver raise nearly anything
                    if unlocked_state(self._path) == before:
                        raise as_store_error(error, self._path) from error
                else:
                    if unlocked_state(self._path) == before:
                        return found
                finally:
                    connection.close()
        raise StoreError(f"{self._path} is changed by others all the time, and this process may not lock it; try again")

    def read_for(self, function: Callable[[Connection], T]) -> T:
        """Do the same for a function of the caller: its errors, except those of SQLite, say nothing about the file."""
        import apsw

        raised: Exception | None = None

        def call(connection: Connection) -> T | None:
            nonlocal raised
            try:
                return function(connection)
            except (apsw.Error, UnicodeDecodeError):  # the driver decodes values
                raise
            except Exception as error:  # noqa: BLE001  raised below
                raised = error
                return None

        found = self.read(call)
        if raised is not None:
            raise raised
        return cast(T, found)

    def close_readers(self) -> None:
        """Close the idle connections, and the others as soon as they are returned."""
        self._closed = True
        with in_use():
            self.abandon()

    def abandon(self) -> None:
        """Close the idle connections."""
        while self._idle:
            self._idle.pop().close()


def _one(connection: Connection, key: Key, place: bytes, path: Path) -> Item | None:
    rows = connection.execute(_ONE, (place,)).fetchall()
    if not rows:
        check_beside(connection, path, place, place)
        return None
    return items(rows, path, key, place)[0]


def _several(connection: Connection, places: dict[bytes, Key], path: Path) -> dict[Key, Item]:
    if len(places) == 1:
        [(place, key)] = places.items()
        item = _one(connection, key, place, path)
        return {} if item is None else {key: item}
    # In one transaction, because each statement outside of one locks the file again, which takes longer than finding a row.
    connection.execute("BEGIN")
    rows = connection.executemany(_ONE, [(place,) for place in places]).fetchall()
    if len(rows) < len(places):
        for place in places.keys() - {row[0] for row in rows}:
            check_beside(connection, path, place, place)
    connection.execute("COMMIT")
    found: dict[Key, Item] = {}
    for row in rows:
        place = cast(bytes, row[0])
        [found[places[place]]] = items((row,), path, places[place], place)
    return found


class _ScanPosition:
    """The position of a scan. The first page is short and is read here, so that most scans cost no thread; later ones are long."""

    def __init__(
        self,
        ready: Callable[..., Awaitable[_OpenFile | _NoFile]],
        path: Path,
        prefix: Key,
        low: bytes,
        high: bytes,
        left: int,
        *,
        reverse: bool,
    ) -> None:
        self._ready = ready
        self._path = path
        self._prefix, self._common = tuple(prefix), encode(prefix)
        self._low, self._high, self._left = low, high, left
        self._reverse = reverse
        self._rows, self._bytes = _INLINE_ROWS, _INLINE_BYTES

    async def more(self) -> list[Item]:
        if self._left == 0:
            return []
        # Scanning everything is allowed in a sealed file too.
        opened = await (self._ready(self._prefix) if self._prefix else self._ready())
        if self._rows == _INLINE_ROWS:
            found = opened.read(self._read)
            self._rows, self._bytes = _CHUNK_ROWS, CHUNK_BYTES
        else:
            found = await anyio.to_thread.run_sync(opened.read, self._read)
        return found

    def _read(self, connection: Connection) -> list[Item]:
        rows = min(self._rows, self._left)
        low, high = self._low, self._high
        cursor = connection.execute(_DOWN if self._reverse else _UP, (self._low, self._high, rows))
        found = items(cursor, self._path, self._prefix, self._common, most_bytes=self._bytes)
        at_end = len(found) < rows and next(iter(cursor), None) is None
        cursor.close()
        last = encode(found[-1].key) if found else b""
        # A row that was left out lies beside those that were found, or where they would be.
        if self._reverse:
            check_beside(connection, self._path, last or high, high)
        else:
            check_beside(connection, self._path, low, last + b"\0" if found else low)
        if at_end:
            self._left = 0
        else:
            self._left -= len(found)
            self._low, self._high = (self._low, last) if self._reverse else (last + b"\0", self._high)
        return found
