"""Where the tables of the search index are: committed with the records in a SqliteStore or PostgresStore, in memory for any other store."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Awaitable, Callable, Generator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast

import anyio.to_thread

from graphagent.memory.notes.index._chunks import in_parts
from graphagent.memory.notes.index._connection import damage
from graphagent.memory.notes.index._fts import CHECKED, SqliteTables
from graphagent.store._fork_safety import in_use
from graphagent.store.sqlite._soundness import are_sound

if TYPE_CHECKING:
    from graphagent.memory._note_values import Record
    from graphagent.memory.notes.index._connection import IndexConnection
    from graphagent.memory.notes.index._tables import NoteTables
    from graphagent.protocols import Store
    from graphagent.store import Change, SqliteStore
    from graphagent.store.postgres import PostgresStore

T = TypeVar("T")
Progress = Callable[[int, int], object]


class IndexBackend(Protocol):
    """Where the tables are."""

    shared: bool
    """Whether every process that changes the store changes the tables too."""
    built: object
    """Another object whenever the tables were built again; None until they are."""

    async def open(self, load: Callable[[], Awaitable[list[Record]]]) -> None:
        """Build the tables of all records if they do not exist."""
        ...

    async def drop(self) -> None:
        """Have the tables built again when they are opened next."""
        ...

    async def read(self, function: Callable[[NoteTables], T]) -> T:
        """Call a function in a worker thread, with a connection to the tables."""
        ...

    async def commit(self, changes: Sequence[Change], function: Callable[[NoteTables], None]) -> None:
        """Commit changes to the store, together with the changes of a function to the tables."""
        ...


def index_of(store: Store, on_progress: Progress | None = None) -> IndexBackend:
    """Return the index of a store's notes. While it is built, `on_progress` is called with how many notes it has, and of how many."""
    from graphagent.store import SqliteStore

    report: Progress = on_progress or (lambda done, of: None)
    if isinstance(store, SqliteStore):
        return SqliteIndex(store, report)
    postgres = sys.modules.get(
        "graphagent.store.postgres"
    )  # a program with such a store has imported it, and its dependencies
    if postgres is not None and isinstance(store, postgres.PostgresStore):
        from graphagent.memory.notes.index._postgres_backend import PostgresIndex

        return PostgresIndex(cast("PostgresStore", store), report)
    return InMemoryIndex(store, report)


def _build(connection: IndexConnection, records: list[Record], report: Progress) -> None:
    tables = SqliteTables(connection)
    tables.make()
    for part in in_parts(records, report):
        tables.add(part)


def in_memory(records: list[Record], report: Progress) -> IndexConnection:
    """Return a connection to tables in memory."""
    import apsw

    with in_use():
        connection = cast("IndexConnection", apsw.Connection(":memory:"))
        connection.execute("PRAGMA temp_store=MEMORY")  # large sorts would otherwise write plain text to a file
        connection.execute("BEGIN")
        _build(connection, records, report)
        connection.execute("COMMIT")
        return connection


class _GoneError(Exception):
    """The tables do not exist any more: another process is building them again, or ended while it did."""


class SqliteIndex:
    """Tables in the file of a SqliteStore.

    They follow from the notes, and have no checksums. Damage to them is distinguished from damage to the notes: nothing is
    lost with an index, which can be built again.
    """

    shared = True
    built: object = "in the file"

    def __init__(self, store: SqliteStore, report: Progress) -> None:
        self._store = store
        self._report = report
        self._load: Callable[[], Awaitable[list[Record]]] | None = None
        self._schema: int | None = None
        """The version of the file's schema when the tables existed; it changes with every table that is created or dropped."""
        self._sound: int | None = None
        """The one at which SQLite's own check of the tables found nothing."""

    async def open(self, load: Callable[[], Awaitable[list[Record]]]) -> None:
        """Build the tables of all records in one transaction, if there are records and no tables."""
        self._load = load
        await self._build(anyway=False)

    async def _build(self, *, anyway: bool) -> bool:
        """Build the tables, if they do not exist; without any record only `anyway`. Return whether they exist then."""
        if await self._store.read(lambda connection: SqliteTables(connection).are_made()):
            return True
        assert self._load is not None
        records = await self._load()
        if not records and not anyway:
            return False

        def build(connection: IndexConnection) -> None:
            if not SqliteTables(connection).are_made():  # another process may have been faster
                _build(connection, records, self._report)

        await self._store.commit(along=build)
        return True

    async def drop(self) -> None:
        """Remove the tables. The next commit builds them again."""
        await self._store.commit(along=lambda connection: SqliteTables(connection).drop())

    async def read(self, function: Callable[[NoteTables], T]) -> T:
        """Call a function in a worker thread, with a connection to the tables, in one read transaction.

        Without notes, and so without tables, it gets empty tables in memory: reading alone does not write.
        """

        def call(connection: IndexConnection) -> T:
            connection.execute("BEGIN")
            try:
                with self._telling_damage():
                    self._check_tables(connection)
                    self._check_soundness(connection)
                    return function(SqliteTables(connection))
            finally:
                connection.execute("ROLLBACK")

        while True:
            try:
                return await self._store.read(call)
            except _GoneError:
                if not await self._build(anyway=False):
                    return await anyio.to_thread.run_sync(self._read_nothing, function)

    def _read_nothing(self, function: Callable[[NoteTables], T]) -> T:
        connection = in_memory([], self._report)
        with in_use():
            return function(SqliteTables(connection))

    async def commit(self, changes: Sequence[Change], function: Callable[[NoteTables], None]) -> None:
        """Commit changes to the store, and those of the function, in one transaction."""

        def along(connection: IndexConnection) -> None:
            with self._telling_damage():
                self._check_tables(connection)
                function(SqliteTables(connection))

        while True:
            try:
                return await self._store.commit(*changes, along=along)
            except _GoneError:
                await self._build(anyway=True)

    def _check_tables(self, connection: IndexConnection) -> None:
        # One PRAGMA is cheaper than looking at the tables themselves before each use.
        [(schema,)] = connection.execute("PRAGMA schema_version").fetchall()
        if schema != self._schema:
            if not SqliteTables(connection).are_made():
                raise _GoneError
            self._schema = schema

    def _check_soundness(self, connection: IndexConnection) -> None:
        if self._sound != self._schema:
            sound = are_sound(cast("Any", connection), self._store.path, CHECKED)
            if sound is False:
                raise damage(os.fspath(self._store.path), "SQLite's own check failed")
            if sound:  # else the tables were made anew meanwhile, and the next read checks those
                self._sound = self._schema

    @contextmanager
    def _telling_damage(self) -> Generator[None]:
        import apsw

        try:
            yield
        except UnicodeDecodeError as error:  # the driver decodes values
            raise damage(os.fspath(self._store.path), "a text is not UTF-8") from error
        except apsw.CorruptError as error:
            if getattr(error, "extendedresult", 0) != apsw.SQLITE_CORRUPT_VTAB:  # of FTS5; any other is of the file
                raise
            raise damage(os.fspath(self._store.path), "its words are not as FTS5 writes them") from error


class InMemoryIndex:
    """Tables in memory, built from the records when they are opened.

    A fork waits while they are used: SQLite has locks for the whole process, which would never be released in the child.
    """

    shared = False

    def __init__(self, store: Store, report: Progress) -> None:
        self._store = store
        self._report = report
        self._lock = threading.Lock()
        self._connection: IndexConnection | None = None
        self.built: object = None

    async def open(self, load: Callable[[], Awaitable[list[Record]]]) -> None:
        """Build the tables of all records, if that is not done."""
        if self.built is not None:
            return
        records = await load()

        self._connection = await anyio.to_thread.run_sync(in_memory, records, self._report)
        self.built = self._connection

    async def drop(self) -> None:
        """Have the tables built again when they are opened next. Until then, operations that have begun use the old ones."""
        self.built = None

    async def read(self, function: Callable[[NoteTables], T]) -> T:
        """Call a function in a worker thread, with exclusive use of the connection."""
        return await anyio.to_thread.run_sync(self._call, function)

    def _call(self, function: Callable[[NoteTables], T]) -> T:
        with in_use(), self._lock:
            assert self._connection is not None
            return function(SqliteTables(self._connection))

    async def commit(self, changes: Sequence[Change], function: Callable[[NoteTables], None]) -> None:
        """Commit changes to the store, and then make those of the function in the tables."""
        with anyio.CancelScope(shield=True):  # else the tables would lack committed changes
            if changes:
                await self._store.commit(*changes)
            await anyio.to_thread.run_sync(self._change, function)

    def _change(self, function: Callable[[NoteTables], None]) -> None:
        with in_use(), self._lock:
            connection = self._connection  # it is replaced when the tables are built again
            assert connection is not None
            connection.execute("SAVEPOINT change")
            try:
                function(SqliteTables(connection))
            except BaseException:
                connection.execute("ROLLBACK TO change")
                raise
            finally:
                connection.execute("RELEASE change")
