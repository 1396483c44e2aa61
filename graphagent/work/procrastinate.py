"""A dispatcher over a queue of Procrastinate, in a PostgreSQL database. It needs the extra `workers`."""

from __future__ import annotations

import logging
import os
import weakref
from collections.abc import AsyncGenerator, Callable, Collection
from contextlib import asynccontextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any, cast

import anyio
from anyio.lowlevel import current_token

from graphagent._concurrency import Worker as Thread
from graphagent._options import check_text
from graphagent.errors import MissingExtraError

try:
    import psycopg
    from procrastinate import App, PsycopgConnector
    from procrastinate.jobs import Status
    from procrastinate.schema import SchemaManager
    from psycopg import sql
    from psycopg_pool import AsyncConnectionPool
except ImportError:
    raise MissingExtraError("Procrastinate", "workers") from None

_log = logging.getLogger("graphagent")
_TASK = "graphagent.execute"
_VERSION = version("procrastinate")


class Procrastinate:
    """Brings word of runs by a queue of Procrastinate: to a worker that waits, within milliseconds, by NOTIFY.

    A job has the owner and the id of a run, and is deleted when a worker takes it. Its tables are in a schema that has no jobs of
    others, and are made by whoever comes first. Any program tells; on asyncio, workers take. On trio they take nothing, and find
    their runs in the store.

    Behind a pooler in transaction mode, NOTIFY reaches nobody: workers ask every `poll` seconds, as they do anyway. `listen=` names
    the server itself for that one connection.

    Args:
        dsn: The database, as psycopg takes it.
        schema: The schema of the tables.
        poll: Seconds after which a worker asks for jobs, if it has heard of none.
        listen: The DSN of a connection that hears of new jobs, if it is not to be `dsn`.

    Raises:
        MissingExtraError: `graphagent.work.procrastinate` is imported without the extra `workers`.
    """

    def __init__(
        self, dsn: str, *, schema: str = "graphagent_jobs", poll: float = 1.0, listen: str | None = None
    ) -> None:
        check_text("schema=", schema)
        self._dsn, self._listen, self._poll = dsn, dsn if listen is None else listen, poll
        self._schema = schema
        self._path = sql.SQL("SET LOCAL search_path TO {}").format(sql.Identifier(schema))
        self._thread = Thread()
        self._telling = App(connector=PsycopgConnector())  # never opened: it is passed its connection
        self._connections: dict[int, psycopg.Connection[Any]] = {}
        weakref.finalize(self, _close, self._connections)
        self._taking: App | None = None
        self._woken = anyio.Event()

    def __repr__(self) -> str:
        return f"<jobs of Procrastinate in schema {self._schema!r}>"

    async def tell(self, owner: str, run_id: str, *, queue: str, priority: int) -> None:
        """Put a job into the queue."""

        def defer(connection: psycopg.Connection[Any]) -> None:
            job = self._telling.configure_task(_TASK, queue=queue, priority=priority, connection=connection)
            job.defer(owner=owner, run_id=run_id)

        await self._thread.run(lambda: self._with_connection(defer))

    @asynccontextmanager
    async def listening(self) -> AsyncGenerator[object]:
        """Connect a worker within the block."""
        if not hasattr(current_token().native_token, "create_task"):
            yield None
            return
        await self._thread.run(lambda: self._with_connection(lambda _: None))
        pool = _Pool(self._dsn, self._path)
        app = App(connector=PsycopgConnector())
        async with app.open_async(pool), pool, anyio.create_task_group() as group:
            self._taking = app
            group.start_soon(self._hear)
            try:
                yield app
            finally:
                self._taking = None
                group.cancel_scope.cancel()

    async def take(self, queues: Collection[str] | None) -> tuple[str, str]:
        """Wait for a job, delete it, and return what it is about."""
        if self._taking is None:
            await anyio.sleep_forever()
        jobs = cast(App, self._taking).job_manager
        while True:
            self._woken, job = anyio.Event(), None
            with anyio.CancelScope(shield=True):  # cancelled in between, the job would be lost
                # Nobody needs to know whose a job is, which is deleted at once.
                job = await jobs.fetch_job(None if queues is None else list(queues), cast(Any, None))
                if job is not None:
                    await jobs.finish_job(job, Status.SUCCEEDED, delete_job=True)
            if job is not None:
                return str(job.task_kwargs.get("owner", "")), str(job.task_kwargs.get("run_id", ""))
            with anyio.move_on_after(self._poll):
                await self._woken.wait()

    async def _hear(self) -> None:
        """Wake `take` when there is a new job, for ever."""
        pause = self._poll
        while True:
            listener = App(connector=PsycopgConnector())
            try:
                pool = AsyncConnectionPool[Any](self._listen, min_size=0, open=False, kwargs=_KWARGS)
                async with pool, listener.open_async(pool):
                    await listener.job_manager.listen_for_jobs(on_notification=self._notified)
            except Exception as error:  # noqa: BLE001  jobs are asked for meanwhile
                _log.warning("new jobs are not heard of: %s", type(error).__name__)
            await anyio.sleep(pause)
            pause = min(pause * 2, 30.0)

    async def _notified(self, **_: object) -> None:
        self._woken.set()

    def _with_connection(self, work: Callable[[psycopg.Connection[Any]], object]) -> None:
        """Call a function in a transaction of the thread's connection, which is made anew if it was cut."""
        for tries_left in (1, 0):
            connection = self._connection()
            try:
                with connection.transaction():
                    connection.execute(self._path)
                    work(connection)
            except psycopg.OperationalError:
                connection.close()
                if not tries_left:
                    raise
            else:
                return

    def _connection(self) -> psycopg.Connection[Any]:
        connection = self._connections.get(os.getpid())
        if connection is None or connection.closed:
            connection = psycopg.connect(self._dsn, autocommit=True, **_KWARGS)
            try:
                self._prepare(connection)
            except BaseException:
                connection.close()
                raise
            self._connections[os.getpid()] = connection
        return connection

    def _prepare(self, connection: psycopg.Connection[Any]) -> None:
        """Make the tables, or bring them to the version of Procrastinate that is installed, one process at a time."""
        table = sql.Identifier(self._schema, "procrastinate_jobs")

        def known() -> str:
            found = connection.execute(_KNOWN, [self._schema]).fetchone()
            return "" if found is None else found[0] or "0"

        if _numbers(known()) >= _numbers(_VERSION):
            return
        with connection.transaction():
            connection.execute("SELECT pg_advisory_xact_lock(hashtext('procrastinate'), hashtext(%s))", [self._schema])
            there = known()
            if _numbers(there) >= _numbers(_VERSION):
                return
            connection.execute(sql.SQL("CREATE SCHEMA IF NOT EXISTS {}").format(sql.Identifier(self._schema)))
            connection.execute(self._path)
            if there:
                files = sorted(Path(SchemaManager.get_migrations_path()).glob("*.sql"))
                scripts = [
                    each.read_text("utf-8") for each in files if _numbers(each.name.split("_")[0]) > _numbers(there)
                ]
            else:
                scripts = [SchemaManager.get_schema()]
            for script in scripts:
                connection.execute(cast(Any, script))
            connection.execute(sql.SQL("COMMENT ON TABLE {} IS {}").format(table, sql.Literal(_VERSION)))


_KNOWN = """
SELECT obj_description(c.oid, 'pg_class') FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = %s AND c.relname = 'procrastinate_jobs'"""
"""The version of the tables. `to_regclass` would remember within the transaction that there are none."""
_KWARGS: dict[str, Any] = {"prepare_threshold": None, "application_name": "graphagent"}
"""Poolers may give each transaction another connection, which has no statements that were prepared on this one."""


class _Pool(AsyncConnectionPool[Any]):
    """Connections on which each transaction finds the tables. They are not checked before use, which may take seconds."""

    def __init__(self, dsn: str, path: sql.Composed) -> None:
        super().__init__(dsn, min_size=1, max_size=2, open=False, kwargs=_KWARGS, timeout=10.0)
        self._search_path = path

    @asynccontextmanager
    async def connection(self, timeout: float | None = None) -> AsyncGenerator[Any]:  # noqa: ASYNC109  as in the class
        async with super().connection(timeout) as connection:
            await connection.execute(self._search_path)
            yield connection


def _numbers(text: str) -> tuple[int, ...]:
    """Return the numbers of a version."""
    return tuple(int(part) for part in text.split(".") if part.isdigit())


def _close(connections: dict[int, psycopg.Connection[Any]]) -> None:
    """Close the connection of this process: one that was forked has those of its parent, too."""
    if (connection := connections.pop(os.getpid(), None)) is not None:
        connection.close()
