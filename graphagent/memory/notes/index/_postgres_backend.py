"""The tables of the search index in the schema of a PostgresStore, committed with the records."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar, cast

from anyio import to_thread

from graphagent.memory.notes.index import _storage
from graphagent.memory.notes.index._backend import in_memory
from graphagent.memory.notes.index._chunks import in_parts
from graphagent.memory.notes.index._embeddings import info_of
from graphagent.memory.notes.index._fts import SqliteTables
from graphagent.memory.notes.index._postgres_sql import Statements
from graphagent.memory.notes.index._postgres_tables import GoneError, PostgresTables
from graphagent.memory.notes.index._postgres_vectors import PGVECTOR
from graphagent.memory.notes.index._tokens import Tokens
from graphagent.store._fork_safety import in_use

if TYPE_CHECKING:
    from graphagent.memory._note_values import Record
    from graphagent.memory.notes.index._connection import IndexConnection
    from graphagent.memory.notes.index._embeddings import VectorInfo
    from graphagent.memory.notes.index._tables import NoteTables
    from graphagent.store import Change
    from graphagent.store.postgres import PostgresStore

T = TypeVar("T")


class PostgresIndex:
    """Tables in the schema of a PostgresStore.

    They are made and migrated by whoever writes first, and locked while they are filled.
    """

    shared = True
    built: object = "in the database"

    def __init__(self, store: PostgresStore, report: Callable[[int, int], object]) -> None:
        import apsw

        self._store = store
        self._report = report
        self._load: Callable[[], Awaitable[list[Record]]] | None = None
        # Only to cut texts into words, and for tables that are empty.
        self._sqlite = cast("IndexConnection", apsw.Connection(":memory:"))
        self._tokens = Tokens(self._sqlite, in_use)

    async def open(self, load: Callable[[], Awaitable[list[Record]]]) -> None:
        """Build the tables of all records in one transaction, if there are records and no tables."""
        self._load = load
        await self._build(anyway=False)

    async def _build(self, *, anyway: bool) -> bool:
        """Build the tables, if they do not exist; without any record only `anyway`. Return whether they exist then."""
        try:
            await self._store.read(lambda connection: self._tables(connection).enter())
        except GoneError:
            pass
        else:
            return True
        assert self._load is not None
        records = await self._load()
        if not records and not anyway:
            return False
        vectors = await self._vectors()

        def build(connection: Any) -> None:
            tables = self._tables(connection)
            if not tables.migrate():  # another process may have been faster
                tables.fill(in_parts(records, self._report), vectors)

        await self._store.commit(along=build)
        return True

    async def _vectors(self) -> dict[str, tuple[VectorInfo, list[tuple[str, bytes]]]]:
        """Return the vectors of all notes by their owners, if the database has a place for them."""
        found: dict[str, tuple[VectorInfo, list[tuple[str, bytes]]]] = {}
        if not await self._store.read(lambda connection: Statements(connection, self._store.schema).rows(PGVECTOR)):
            return found
        async for item in self._store.scan((_storage.ROOM,)):
            owner, part, *rest = str(item.key[1]), *item.key[2:]
            if (part, rest) == (_storage.STATE, ["embedder"]):
                found[owner] = info_of(item), []
            elif part == _storage.VECTORS and owner in found and rest[0] == found[owner][0].generation:
                found[owner][1].append((str(rest[1]), item.value))
        return found

    async def drop(self) -> None:
        """Empty the tables. Whoever commits next builds them again."""
        with suppress(GoneError):
            await self._store.commit(along=lambda connection: self._tables(connection).empty())

    def _tables(self, connection: Any) -> PostgresTables:
        return PostgresTables(connection, self._store.schema, self._tokens)

    async def read(self, function: Callable[[NoteTables], T]) -> T:
        """Call a function in a worker thread, with the tables as of one moment.

        Without notes, and so without tables, it gets empty tables in memory: reading alone does not write.
        """

        def call(connection: Any) -> T:
            tables = self._tables(connection)
            tables.enter()
            return function(tables)

        while True:
            try:
                return await self._store.read(call)
            except GoneError:
                if not await self._build(anyway=False):
                    return await to_thread.run_sync(self._read_nothing, function)

    def _read_nothing(self, function: Callable[[NoteTables], T]) -> T:
        connection = in_memory([], self._report)
        with in_use():
            return function(SqliteTables(connection))

    async def commit(self, changes: Sequence[Change], function: Callable[[NoteTables], None]) -> None:
        """Commit changes to the store, and those of the function, in one transaction."""
        crowded: set[int] = set()

        def along(connection: Any) -> None:
            tables = self._tables(connection)
            tables.enter()
            if tables.vectors is not None:
                tables.vectors.erase(changes)
            function(tables)
            if tables.vectors is not None:
                crowded.update(tables.vectors.crowded)

        while True:
            try:
                await self._store.commit(*changes, along=along)
                break
            except GoneError:
                await self._build(anyway=True)
        for dimensions in crowded:
            with suppress(GoneError):
                await self._store.commit(along=partial(self._make_graph, dimensions))

    def _make_graph(self, dimensions: int, connection: Any) -> None:
        tables = self._tables(connection)
        tables.enter()
        if tables.vectors is not None:
            tables.vectors.make_graph(dimensions)
