"""PostgresStore: a store in a schema of a PostgreSQL database.

Threads with a connection each read, and make commits of any size (`_crew.py`); one more makes the small commits, many in one
transaction (`_writer.py`, `_commits.py`). All of it is synchronous psycopg in threads, so the store is bound to no event loop.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import AsyncIterator, Callable, Iterable
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from anyio.lowlevel import checkpoint_if_cancelled

from graphagent._concurrency import Reply, turn
from graphagent._options import check_limit, check_number, check_text
from graphagent.errors import SealedStoreError, StoreError, StoreNotFoundError
from graphagent.store._bulk import Scan
from graphagent.store._dsn import named_database
from graphagent.store._fork_safety import OwnLock
from graphagent.store._items import check_change, checked_limit, encode_key, only_removes
from graphagent.store._sealed_detection import is_plain
from graphagent.store.postgres._claims import PostgresClaims
from graphagent.store.postgres._commits import Job, job_of, make
from graphagent.store.postgres._crew import Closed, Crew
from graphagent.store.postgres._database import Database
from graphagent.store.postgres._dsn import is_variable, read_dsn
from graphagent.store.postgres._failures import Failure, Lost, error_of
from graphagent.store.postgres._places import bounds_of, place_of
from graphagent.store.postgres._reading import Position, check_whole, read, several
from graphagent.store.postgres._writer import Writer

if TYPE_CHECKING:
    from graphagent.store._items import Change, Item, Key
    from graphagent.store.postgres._connection import Connection
    from graphagent.store.postgres._link import Link

T = TypeVar("T")


class PostgresStore:
    """A store in a schema of a PostgreSQL database, of version 13 or later.

    It opens at the first use. The first commit makes the schema, and migrates one of an earlier graphagent; until then nothing is
    found, and reading makes nothing. A commit is as durable as the server's `synchronous_commit` says: by default, it is on the
    server's disk when it returns. Any number of tasks, event loops, threads, processes and machines may use one schema; a process
    that is forked after the first use makes its own PostgresStore. Nothing needs closing; `async with` closes early, and a closed
    store opens again when it is used. Sessions have no state, so poolers such as PgBouncer may be in between, also those that
    give each transaction another connection.

    A connection that breaks is made again, for up to `timeout` seconds. A commit that was sent meanwhile is made exactly once: a row
    of its writer says whether it was. If the server does not come back in time, the error says that it is not known.

    Items that DeleteAll removes cannot be found any more when the commit returns, but their bytes stay in the files of the database
    until VACUUM frees their place and something else is written there, in its write-ahead log until that is recycled, and in every
    backup and archive of these.

    A schema that an EncryptedStore has sealed belongs to that store alone: reading or writing items without it raises
    SealedStoreError. `scan(())` and `verify()` read its rows as they are.

    Args:
        dsn: Where the database is, as libpq takes it: `postgresql://user@host/database`. `env:NAME` is a variable that has it, which
            is read when the store opens. A password belongs there, or into `.pgpass`.
        schema: The schema, in which nothing else should be. There may be several in one database.
        connections: How many connections this object has at most.
        lease: For how many seconds a run is claimed at a time. A run whose process died is free after that.
        heartbeat: How many seconds after that a claim is renewed, at most a third of the lease.
        timeout: For how many seconds a server is waited for that was there before, or that has no connection left at the moment.

    Raises:
        TypeError: `dsn` or `schema` is not text.
        ValueError: no schema can have this name, the DSN names one as commands take it, or a number is too small.
    """

    def __init__(
        self,
        dsn: str,
        schema: str = "graphagent",
        *,
        connections: int = 8,
        lease: float = 15,
        heartbeat: float = 5,
        timeout: float = 10,
    ) -> None:
        check_text("dsn=", dsn)
        check_text("schema=", schema)
        if named_database(dsn).dsn != dsn:
            raise ValueError(
                "the schema is not a part of the DSN; leave out ?schema=…, and write PostgresStore(dsn, schema='…')"
            )
        if not 0 < len(schema.encode("utf-8", "replace")) <= 63 or "\0" in schema or schema.startswith("pg_"):
            raise ValueError(f"schema={schema!r}: the name of a schema has 1 to 63 bytes and does not begin with pg_")
        check_limit("connections=", connections)
        if connections < 2:
            raise ValueError("connections=1 is too small: one connection writes, and at least one other reads")
        check_number("lease=", lease)
        check_number("heartbeat=", heartbeat)
        if not 0 < heartbeat * 3 <= lease:
            raise ValueError(f"heartbeat={heartbeat} is not above zero and at most a third of lease={lease}")
        check_number("timeout=", timeout)
        if not timeout >= 0:
            raise ValueError(f"timeout={timeout} is below zero")
        self.schema: str = schema
        """The schema."""
        self.claims: PostgresClaims = PostgresClaims(self._run, round(lease * 1000), round(heartbeat * 1000))
        """Who has which run, by the clock of the server."""
        self.dsn: str = dsn
        """Where the database is, as it was given. It may have a password."""
        self._connections, self._timeout = connections, timeout
        self._opened: _Opened | None = None
        self._opening = OwnLock()

    def __repr__(self) -> str:
        return f"PostgresStore({self.dsn if is_variable(self.dsn) else '…'!r}, schema={self.schema!r})"

    async def get(self, key: Key) -> Item | None:
        """Return the item under a key, or None.

        Raises:
            SealedStoreError: the schema is sealed, and this is not the key of a sealed row.
            StoreError: the store cannot be read (StoreUnavailableError: the server cannot be reached).
        """
        encode_key(key)
        return (await self._several({place_of(key): key})).get(key)

    async def get_many(self, keys: Iterable[Key]) -> dict[Key, Item]:
        """Return the items under `keys` as of one moment, in their order, without those that do not exist.

        Raises:
            SealedStoreError: the schema is sealed, and one of the keys is not that of a sealed row.
            StoreError: the store cannot be read (StoreUnavailableError: the server cannot be reached).
        """
        places: dict[bytes, Key] = {}
        for number, key in enumerate(keys, 1):
            await turn(number)
            encode_key(key)
            places[place_of(key)] = key
        return await self._several(places) if places else {}

    async def _several(self, places: dict[bytes, Key]) -> dict[Key, Item]:
        def function(link: Link) -> dict[Key, Item]:
            return read(link, lambda connection: several(connection, link.database, places), {})

        return await self._run(function, *places.values())

    def scan(
        self, prefix: Key, *, after: Key | None = None, limit: int | None = None, reverse: bool = False
    ) -> AsyncIterator[Item]:
        """Return the items whose keys begin with `prefix`, page by page. Changes made meanwhile after the last item are seen.

        They are in the order of their ints, and of their text segments of up to 250 bytes.

        Raises:
            SealedStoreError: the schema is sealed, and these are not keys of sealed rows.
            StoreError: the store cannot be read (StoreUnavailableError: the server cannot be reached).
        """
        low, high = bounds_of(prefix, after, reverse=reverse)
        position = Position(low, high, checked_limit(limit), reverse=reverse)
        keys = (prefix,) if prefix else ()  # scanning everything is allowed in a sealed store, too

        def function(link: Link) -> list[Item]:
            return read(link, lambda connection: position.more(connection, link.database), [])

        async def more() -> list[Item]:
            return await self._run(function, *keys) if position.left else []

        return Scan(more)

    async def commit(self, *changes: Change, along: Callable[[Any], object] | None = None) -> None:
        """Make all changes or none; they are durable when this returns. If it is cancelled, it has made all or none.

        `along` is called after the changes and in the same transaction, in another thread, with a connection of psycopg. So data
        that is derived from items can be stored with them, in tables of the schema whose names begin with `notes_`; names without a
        schema are looked up there. It neither commits nor rolls back. If it raises, nothing is changed, and the exception is raised
        here. It is called again if the connection breaks, or the transaction is broken off in favour of another one.

        Without changes and `along`, nothing is done.

        Raises:
            ConflictError: an item does not have the version that a change expects, or does not exist.
            SealedStoreError: the schema is sealed, and a change is not one of a sealed row.
            ReadOnlyStoreError: the server or the user may only read.
            StoreUnavailableError: the server cannot be reached; the error says whether the commit may have been made.
            StoreError: the store cannot be written.
        """
        for number, change in enumerate(changes, 1):
            await turn(number)
            check_change(change)
        if not changes and along is None:
            return
        job = job_of(changes, along)
        new = along is not None or not only_removes(changes)
        await checkpoint_if_cancelled()
        job.reply = Reply()
        try:
            while not self._submit(job, new=new):
                pass  # it was closed in between
            await job.reply.wait()
        finally:
            job.abandoned = True

    def _submit(self, job: Job, *, new: bool) -> bool:
        opened = self._open()
        job.new = new
        if job.is_quick():
            return opened.writer.submit(job)
        try:
            opened.crew.submit(lambda link: make(link, [job]))
        except Closed:
            return False
        return True

    async def read(self, function: Callable[[Any], T]) -> T:
        """Return the result of a function, which is called in another thread with a connection of psycopg that no other task uses meanwhile.

        It is in a transaction that sees the database as of one moment and can only read. Names without a schema are looked up in the
        schema of the store. It is called again if the connection breaks.

        Raises:
            SealedStoreError: the schema is sealed, and contains nothing but sealed rows.
            StoreError: the store cannot be read (StoreUnavailableError: the server cannot be reached).
        """

        def call(link: Link) -> T:
            return link.read(partial(_in_transaction, link.database, function))

        return await self._run(call)

    async def sync(self) -> None:
        """Do nothing: a commit is durable when it returns."""

    async def verify(self) -> int:
        """Read and check everything, as far as the server and the keys show it. Return the number of items.

        The server checks its own pages where its `data_checksums` are on.

        Raises:
            StoreNotFoundError: the schema does not exist; none is made.
            DamagedStoreError: something is damaged.
            StoreError: the store cannot be read.
        """

        def function(link: Link) -> int:
            return read(link, lambda connection: check_whole(connection, link.database), -1)

        count = await self._run(function)
        if count < 0:
            where = self._open().database.where
            raise StoreNotFoundError(
                "store", self.schema, "give the DSN and the schema of one that exists", where=f" ({where})"
            )
        return count

    async def aclose(self) -> None:
        """Close the connections and end their threads, after all commits that were begun."""
        opened, self._opened = self._opened, None
        if opened is not None and opened.database.pid == os.getpid():
            for close in (opened.crew.close, opened.writer.close):
                reply = Reply()
                if close(reply.send):
                    await reply.outwait()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        await self.aclose()

    async def _run(self, function: Callable[[Link], T], *keys: Key) -> T:
        """Return the result of a function, called in a thread with a connection; `keys` are read, which a sealed store may refuse."""
        while True:
            opened = self._open()

            def call(link: Link) -> T:
                plain = any(map(is_plain, keys))
                if plain and link.database.is_sealed:
                    raise SealedStoreError(link.database.where)
                try:
                    found = function(link)
                except (Failure, Lost) as error:
                    raise error_of(error, link.database.where) from None
                if plain and link.database.is_sealed:  # it was not open before
                    raise SealedStoreError(link.database.where)
                return found

            try:
                return await opened.crew.run(call)
            except Closed:  # in between
                continue

    def _open(self) -> _Opened:
        """Return the open database at once: connections are made in the threads."""
        opened = self._opened or self._open_new()
        if opened.database.pid != os.getpid():
            raise StoreError(
                f"{opened.database.where} was opened before this process was forked; make a new PostgresStore here"
            )
        return opened

    def _open_new(self) -> _Opened:
        with self._opening:
            if self._opened is None:
                database = Database(read_dsn(self.dsn, self.schema), self.schema, self._timeout)
                self._opened = _Opened(database, self._connections)
                weakref.finalize(self, self._opened.end).atexit = False
            return self._opened


class _Opened:
    """An open store: the threads that read, and the writer."""

    def __init__(self, database: Database, connections: int) -> None:
        self.database = database
        self.crew = Crew(database, connections - 1)
        self.writer = Writer(database)

    def end(self) -> None:
        """Let the threads end."""
        self.crew.close()
        self.writer.close()


def _in_transaction(database: Database, function: Callable[[Any], T], connection: Connection) -> T:
    import psycopg

    database.is_ready(connection, new=False)
    if database.is_sealed:
        raise SealedStoreError(database.where)
    connection.script(database.begin_reading)
    try:
        found = function(connection.psycopg)
    except psycopg.Error as error:
        raise connection.failure_of(error) from None
    connection.script(b"COMMIT")
    return found
