"""A dispatcher over a queue of Procrastinate, in a PostgreSQL database. It needs the extra `workers`."""

from __future__ import annotations

import logging
import os
import time
import weakref
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection
from contextlib import asynccontextmanager, suppress
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, cast

import anyio
from anyio.lowlevel import current_token

from graphagent._concurrency import Worker as Thread
from graphagent._options import check_text
from graphagent.errors import MissingExtraError

if TYPE_CHECKING:
    from anyio.abc import TaskGroup

try:
    import psycopg
    from procrastinate import App, PsycopgConnector
    from procrastinate.exceptions import ConnectorException
    from procrastinate.jobs import Job, Status
    from procrastinate.schema import SchemaManager
    from psycopg import sql
    from psycopg_pool import AsyncConnectionPool

    from graphagent.store.postgres._dsn import read_dsn
except ImportError:
    raise MissingExtraError("Procrastinate", "workers") from None

_log = logging.getLogger("graphagent.work")
_TASK = "graphagent.execute"
_VERSION = version("procrastinate")
_LONGEST, _DOWN, _DELETING = 30.0, 5.0, 5.0
"""Seconds between two tries to hear of jobs, at most; for which nothing is told after the server could not be reached; and for the deletion
of a job, at most."""


class Procrastinate:
    """Brings word of runs by a queue of Procrastinate: to a worker that waits, within milliseconds, by NOTIFY.

    A job has the owner and the id of a run, and is deleted when a worker takes it. Its tables are in a schema that has no jobs of
    others, and are made by the first process. Any program tells; on asyncio, workers take. On trio they take nothing, and find
    their runs in the store.

    Behind a pooler in transaction mode, NOTIFY is not passed on: workers ask every `poll` seconds, as they do anyway. `listen=` names
    the server itself for that one connection.

    Args:
        dsn: The database, as PostgresStore takes it: `env:NAME` is a variable that has it.
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
        self._down_until = 0.0

    def __repr__(self) -> str:
        return f"<jobs of Procrastinate in schema {self._schema!r}>"

    async def tell(self, owner: str, run_id: str, *, queue: str, priority: int) -> None:
        """Put a job into the queue."""

        def defer(connection: psycopg.Connection[Any]) -> None:
            job = self._telling.configure_task(_TASK, queue=queue, priority=priority, connection=connection)
            job.defer(owner=owner, run_id=run_id)

        await self._thread.run(lambda: self._with_connection(defer))

    @asynccontextmanager
    async def listening(
        self, queues: Collection[str] | None
    ) -> AsyncGenerator[Callable[[], Awaitable[tuple[str, str]]]]:
        """Connect a worker within the block, which has the function that takes jobs."""
        if not hasattr(current_token().native_token, "create_task"):
            yield _no_job
            return
        await self._thread.run(lambda: self._with_connection(lambda _: None))
        pool, app, bell = _Pool(self._resolved(self._dsn), self._path), App(connector=PsycopgConnector()), _Bell()
        async with app.open_async(pool), pool, anyio.create_task_group() as group:
            for job in await app.job_manager.get_stalled_jobs(
                task_name=_TASK
            ):  # of a worker that died when it had taken it
                await _delete(app, job)
            group.start_soon(self._hear, bell)
            yield partial(self._take, app, bell, group, None if queues is None else list(queues))
            group.cancel_scope.cancel()

    async def _take(self, app: App, bell: _Bell, group: TaskGroup, queues: list[str] | None) -> tuple[str, str]:
        """Wait for a job, have it deleted, and return its run."""
        while True:
            bell.event, job = anyio.Event(), None
            with anyio.CancelScope(shield=True):  # cancelled in between, the job would be lost
                # The owner of a job is not needed, since it is deleted at once.
                job = await app.job_manager.fetch_job(queues, cast(Any, None))
            if job is not None:
                group.start_soon(_delete, app, job)
                return str(job.task_kwargs.get("owner", "")), str(job.task_kwargs.get("run_id", ""))
            with anyio.move_on_after(self._poll):
                await bell.event.wait()

    async def _hear(self, bell: _Bell) -> None:
        """Ring when there is a new job, for ever."""
        pause = self._poll
        while True:
            try:
                pool = AsyncConnectionPool[Any](
                    self._resolved(self._listen), min_size=0, max_size=1, open=False, kwargs=_KWARGS
                )
                app = App(connector=PsycopgConnector())
                async with pool, app.open_async(pool):
                    await app.job_manager.listen_for_jobs(on_notification=bell.ring)
            except Exception as error:  # noqa: BLE001  jobs are asked for meanwhile
                _log.warning(
                    "new jobs are not heard of: %s", type(error).__name__, extra={"error_type": type(error).__name__}
                )
            await anyio.sleep(pause)
            pause = min(pause * 2, _LONGEST)

    def _resolved(self, dsn: str) -> str:
        return read_dsn(dsn, self._schema).dsn

    def _with_connection(self, work: Callable[[psycopg.Connection[Any]], object]) -> None:
        """Call a function in a transaction of the thread's connection, which is made anew if it was cut."""
        for tries_left in (1, 0):
            connection = self._connection()
            try:
                with connection.transaction():
                    connection.execute(self._path)
                    work(connection)
            except (psycopg.OperationalError, ConnectorException):
                connection.close()
                if not tries_left:
                    raise
            else:
                return

    def _connection(self) -> psycopg.Connection[Any]:
        connection = self._connections.get(os.getpid())
        if connection is None or connection.closed:
            if time.monotonic() < self._down_until:
                raise ConnectorException("the server could not be reached a moment ago")
            try:
                connection = psycopg.connect(self._resolved(self._dsn), autocommit=True, **_KWARGS)
            except psycopg.Error:
                self._down_until = time.monotonic() + _DOWN  # a submit waits for this
                raise
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
_KWARGS: dict[str, Any] = {
    "prepare_threshold": None, "application_name": "graphagent", "connect_timeout": 3, "tcp_user_timeout": 5000,
}  # fmt: skip
"""Poolers may give each transaction another connection, which has no statements that were prepared on this one."""


async def _delete(app: App, job: Job) -> None:
    """Delete a job. If that fails, or another process does it, nothing is lost."""
    with anyio.move_on_after(_DELETING, shield=True), suppress(ConnectorException):
        await app.job_manager.finish_job(job, Status.SUCCEEDED, delete_job=True)


async def _no_job() -> NoReturn:
    """Wait for ever."""
    await anyio.sleep_forever()
    raise AssertionError


class _Bell:
    """Rings for a worker when there is a new job."""

    def __init__(self) -> None:
        self.event = anyio.Event()

    async def ring(self, **_: object) -> None:
        self.event.set()


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
