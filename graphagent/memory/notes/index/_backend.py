"""Where the tables of notes stand: in the file of the store, committed with the records, or in memory beside any other store."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast

import anyio.to_thread

from graphagent.memory.notes.index import _fts
from graphagent.memory.notes.index._chunks import worded
from graphagent.store.forks import in_use

if TYPE_CHECKING:
    from graphagent.memory.notes._types import Record
    from graphagent.protocols import Store
    from graphagent.store import Change, SqliteStore

T = TypeVar("T")
Progress = Callable[[int, int], object]
_TOGETHER = 1000
"""Notes that are added before someone is told."""


class Cursor(Protocol):
    """What is used of a cursor of the driver."""

    def __iter__(self) -> Iterator[tuple[Any, ...]]: ...
    def fetchall(self) -> list[tuple[Any, ...]]: ...


class Connection(Protocol):
    """What is used of a connection of the driver."""

    def execute(self, statement: str, bindings: Any = ..., /) -> Cursor: ...
    def last_insert_rowid(self) -> int: ...
    def fts5_tokenizer(self, name: str, args: list[str], /) -> Any: ...


class Host(Protocol):
    """Where the tables stand."""

    shared: bool
    """Whether the tables are changed by whoever changes the store."""
    making: object
    """Another object whenever the tables are made anew; None while they are to be."""

    async def open(self, load: Callable[[], Awaitable[list[Record]]]) -> None:
        """Make the tables of all records where they are not there."""
        ...

    async def drop(self) -> None:
        """Have the tables made anew when they are opened again."""
        ...

    async def read(self, function: Callable[[Connection], T]) -> T:
        """Call a function in a worker thread, with a connection to the tables."""
        ...

    async def commit(self, changes: Sequence[Change], function: Callable[[Connection], None]) -> None:
        """Make changes in the store, and with them those that a function makes in the tables; all or none."""
        ...


def host_of(store: Store, on_progress: Progress | None = None) -> Host:
    """Give where the tables of a store's notes stand. Whoever wants to know is told how many notes are in them, and of how many."""
    from graphagent.store import SqliteStore

    tell = on_progress or _say_nothing
    return FileTables(store, tell) if isinstance(store, SqliteStore) else MemoryTables(store, tell)


def _say_nothing(done: int, of: int) -> None: ...


def _fill(connection: Connection, records: list[Record], tell: Progress) -> None:
    _fts.make(connection)
    for start in range(0, len(records), _TOGETHER):
        # The texts are made here, in the thread of the tables: of long notes that takes a while.
        _fts.add(connection, ((record, worded(record)) for record in records[start : start + _TOGETHER]))
        tell(min(start + _TOGETHER, len(records)), len(records))


class _GoneError(Exception):
    """The tables are not there any more: someone is making them anew, or has ended while doing so."""


class FileTables:
    """Tables in the file of a SqliteStore."""

    shared = True
    making: object = "in the file"

    def __init__(self, store: SqliteStore, tell: Progress) -> None:
        self._store = store
        self._tell = tell
        self._load: Callable[[], Awaitable[list[Record]]] | None = None
        self._schema: int | None = None
        """The number of the file's schema when the tables were there; it changes with every table that comes or goes."""

    async def open(self, load: Callable[[], Awaitable[list[Record]]]) -> None:
        """Make the tables of all records where they are not there, in one transaction."""
        self._load = load
        if await self._store.read(_fts.are_made):
            return
        records = await load()

        def fill(connection: Connection) -> None:
            if not _fts.are_made(connection):  # another process may have been faster
                _fill(connection, records, self._tell)

        await self._store.commit(along=fill)

    async def drop(self) -> None:
        """Remove the tables. What others commit meanwhile makes them anew."""
        await self._store.commit(along=_fts.drop)

    async def read(self, function: Callable[[Connection], T]) -> T:
        """Call a function in a worker thread, with a connection to the tables, which stay as they are meanwhile."""

        def call(connection: Connection) -> T:
            connection.execute("BEGIN")
            try:
                self._see_tables(connection)
                return function(connection)
            finally:
                connection.execute("ROLLBACK")

        return await self._with_tables(lambda: self._store.read(call))

    async def commit(self, changes: Sequence[Change], function: Callable[[Connection], None]) -> None:
        """Make changes in the store, and those of the function, in one transaction."""

        def along(connection: Connection) -> None:
            self._see_tables(connection)
            function(connection)

        await self._with_tables(lambda: self._store.commit(*changes, along=along))

    def _see_tables(self, connection: Connection) -> None:
        [(schema,)] = connection.execute("PRAGMA schema_version").fetchall()
        if schema != self._schema:
            if not _fts.are_made(connection):
                raise _GoneError
            self._schema = schema

    async def _with_tables(self, work: Callable[[], Awaitable[T]]) -> T:
        """Do something with the tables; where they are gone, make them and do it again."""
        while True:
            try:
                return await work()
            except _GoneError:
                assert self._load is not None
                await self.open(self._load)


class MemoryTables:
    """Tables in memory, made of the records when they are opened.

    A fork waits while they are used: SQLite has locks for the whole process, which would never be free in the child.
    """

    shared = False

    def __init__(self, store: Store, tell: Progress) -> None:
        self._store = store
        self._tell = tell
        self._lock = threading.Lock()
        self._connection: Connection | None = None
        self.making: object = None

    async def open(self, load: Callable[[], Awaitable[list[Record]]]) -> None:
        """Make the tables of all records."""
        if self.making is not None:
            return
        records = await load()

        def fill() -> Connection:
            import apsw

            with in_use():
                connection = cast("Connection", apsw.Connection(":memory:"))
                connection.execute("PRAGMA temp_store=MEMORY")  # else much that is sorted would go to a file
                connection.execute("BEGIN")
                _fill(connection, records, self._tell)
                connection.execute("COMMIT")
                return connection

        self._connection = await anyio.to_thread.run_sync(fill)
        self.making = self._connection

    async def drop(self) -> None:
        """Have the tables made anew when they are opened again. Until then they serve those who are under way."""
        self.making = None

    async def read(self, function: Callable[[Connection], T]) -> T:
        """Call a function in a worker thread, with the connection, which it has for itself."""
        return await anyio.to_thread.run_sync(self._call, function)

    def _call(self, function: Callable[[Connection], T]) -> T:
        with in_use(), self._lock:
            return function(self._made())

    def _made(self) -> Connection:
        assert self._connection is not None
        return self._connection

    async def commit(self, changes: Sequence[Change], function: Callable[[Connection], None]) -> None:
        """Make changes in the store; when that is done, those of the function in the tables."""
        with anyio.CancelScope(shield=True):  # the tables must not stay behind what is committed
            if changes:
                await self._store.commit(*changes)
            await anyio.to_thread.run_sync(self._change, function)

    def _change(self, function: Callable[[Connection], None]) -> None:
        with in_use(), self._lock:
            connection = self._made()  # another may take its place meanwhile
            connection.execute("SAVEPOINT change")
            try:
                function(connection)
            except BaseException:
                connection.execute("ROLLBACK TO change")
                raise
            finally:
                connection.execute("RELEASE change")
