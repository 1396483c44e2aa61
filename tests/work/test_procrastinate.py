"""The queue of Procrastinate as a dispatcher: jobs are brought once, their tables are made once, and cut connections are made anew."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import anyio
import psycopg
import pytest

from graphagent.work.procrastinate import Procrastinate
from tests.postgres import database


@pytest.fixture
def dsn():
    with database() as found:
        yield found


def left(dsn):
    """Return how many jobs there are."""
    with psycopg.connect(dsn) as connection:
        return connection.execute("SELECT count(*) FROM agents.procrastinate_jobs").fetchone()[0]


def cut(dsn):
    """Cut all connections of graphagent."""
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'graphagent'"
        )


def test_ten_that_begin_at_once_make_the_tables_once(dsn):
    """And a job of each is there."""

    def tell(number):
        async def main():
            await Procrastinate(dsn, schema="agents").tell("ada", f"a-{number}", queue="mail", priority=0)

        anyio.run(main)

    with ThreadPoolExecutor(10) as pool:
        list(pool.map(tell, range(10)))
    assert left(dsn) == 10


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_job_is_brought_to_one_worker_and_deleted(dsn):
    """Of waiting jobs, those of a higher priority come first, and only those of the queues of a worker."""
    one, other = Procrastinate(dsn, schema="agents"), Procrastinate(dsn, schema="agents")
    async with one.listening(["mail"]) as take, other.listening(None) as take_any:
        for name, queue, priority in (("second", "mail", 1), ("first", "mail", 5), ("chat", "chat", 9)):
            await one.tell("ada", name, queue=queue, priority=priority)
        assert [await take(), await take()] == [("ada", "first"), ("ada", "second")]
        assert await take_any() == ("ada", "chat")
    assert left(dsn) == 0


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_after_its_connections_were_cut_a_worker_gets_jobs(dsn):
    """The one that tells connects again, and so does the one that takes."""
    dispatcher = Procrastinate(dsn, schema="agents", poll=0.05)
    async with dispatcher.listening(None) as take:
        await dispatcher.tell("", "a-1", queue="mail", priority=0)
        assert await take() == ("", "a-1")
        cut(dsn)
        await dispatcher.tell("", "a-2", queue="mail", priority=0)
        for _ in range(9):
            try:
                assert await take() == ("", "a-2")
                break
            except Exception:
                pass
        else:
            pytest.fail("no job came")


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_worker_that_waits_is_woken_by_a_job(dsn):
    """It would not ask by itself for an hour."""
    dispatcher, taken = Procrastinate(dsn, schema="agents", poll=3600), []
    async with dispatcher.listening(None) as take, anyio.create_task_group() as group:

        async def first():
            taken.append(await take())
            group.cancel_scope.cancel()

        group.start_soon(first)
        with psycopg.connect(dsn, autocommit=True) as connection:
            listening = "SELECT 1 FROM pg_stat_activity WHERE query LIKE 'LISTEN%'"
            while connection.execute(listening).fetchone() is None:  # noqa: ASYNC110  another process is waited for
                await anyio.sleep(0.01)
        await dispatcher.tell("ada", "a-1", queue="mail", priority=0)
        await anyio.sleep_forever()
    assert taken == [("ada", "a-1")]
