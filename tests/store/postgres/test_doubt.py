"""What becomes of a commit whose connection breaks."""

from __future__ import annotations

import itertools
import threading

import anyio
import psycopg
import pytest

from graphagent.errors import ConflictError, StoreUnavailableError
from graphagent.store import Delete, DeleteAll, Put
from graphagent.store.postgres import PostgresStore
from graphagent.store.postgres._connection import Connection
from graphagent.store.postgres._failures import Failure

CUT = (
    "SELECT count(pg_terminate_backend(pid)) FROM (SELECT pid FROM pg_stat_activity WHERE application_name = 'graphagent'"
    " AND datname = current_database() AND state <> 'idle' ORDER BY random() LIMIT 1) AS one"
)


@pytest.mark.every_loop
async def test_no_commit_is_lost_or_made_twice_when_connections_are_cut(postgres_dsn):
    """Puts without a condition count the commits, small and large ones, beside some that conflict; nobody is left in doubt."""
    ended = threading.Event()
    cut = 0

    def cutter():
        nonlocal cut
        with psycopg.connect(postgres_dsn, autocommit=True, application_name="cutter") as connection:
            while cut < 50 and not ended.wait(0.02):  # what is cut again and again would never end
                cut += connection.execute(CUT).fetchone()[0]

    async with PostgresStore(postgres_dsn, timeout=60) as store:
        await store.commit(along=lambda connection: connection.execute("CREATE TABLE notes_n (task int)"))

        async def count(task):
            for number in range(8):
                counter = Put(("count", task), b"%d" % number)
                if task % 4 == 0:
                    with pytest.raises(ConflictError):
                        await store.commit(counter, Put(("none",), b"", expected=1))
                    await store.commit(counter)
                elif task % 4 == 1:
                    await store.commit(counter, DeleteAll(("gone", task)))
                elif task % 4 == 2:
                    await store.commit(counter, along=insert)
                else:
                    await store.commit(
                        counter,
                        Delete(("gone", task)),
                        Put(("large", task), bytes(2_000_000 if number % 5 == 0 else 9)),
                    )

        def insert(connection):
            connection.execute("INSERT INTO notes_n VALUES (1)")

        thread = threading.Thread(target=cutter)
        thread.start()
        try:
            async with anyio.create_task_group() as group:
                for task in range(12):
                    group.start_soon(count, task)
        finally:
            ended.set()
            thread.join()
        assert [item.version async for item in store.scan(("count",))] == [8] * 12
        assert await store.read(lambda connection: connection.execute("SELECT count(*) FROM notes_n").fetchone()) == (
            24,
        )
    assert cut > 0


@pytest.mark.parametrize("made", [True, False])
async def test_a_commit_whose_answer_is_lost_is_settled(postgres_dsn, made, monkeypatch):
    """Whether the server had made it or not, it is made once; the one that did not arrive can never be made later."""
    zombies = []
    run = Connection.run

    def cut(self, statement, parameters=()):
        if b"commit_here" in statement and not zombies:
            zombies.append((statement, parameters := list(parameters)))
            if made:
                run(self, statement, parameters)
            self.close()
            raise self._lost("cut")
        return run(self, statement, parameters)

    monkeypatch.setattr(Connection, "run", cut)
    async with PostgresStore(postgres_dsn) as store:
        await store.commit(Put(("a",), b"1"))
        assert (await store.get(("a",))).version == 1
        [(statement, parameters)] = zombies
        late = Connection(store._open().database.target, 9)
        with pytest.raises(Failure, match="fenced off"):
            run(late, statement, parameters)
        late.close()
        await store.commit(Put(("a",), b"2"))
        assert (await store.get(("a",))).version == 2


async def test_a_server_that_does_not_come_back_leaves_a_doubt(postgres_dsn, monkeypatch):
    """The error says whether the commit may have been made; once the server is there, the next commit settles it first."""
    async with PostgresStore(postgres_dsn, timeout=0.1) as store:
        await store.commit(Put(("a",), b"1"))
        run = Connection.run

        def lose(self, statement, parameters=()):
            if b"commit_here" in statement:
                self.close()
                raise self._lost("cut")
            return run(self, statement, parameters)

        def refuse(*_, **__):
            raise psycopg.OperationalError("connection refused")

        monkeypatch.setattr(Connection, "run", lose)
        monkeypatch.setattr(psycopg, "connect", refuse)
        for doubt in (True, False):
            with pytest.raises(StoreUnavailableError) as caught:
                await store.commit(Put(("a",), b"2"))
            assert caught.value.in_doubt == doubt
        monkeypatch.undo()
        await store.commit(Put(("a",), b"3", expected=1))


async def test_a_read_whose_connection_breaks_each_time_fails_in_the_end(postgres_dsn):
    """As where it takes more memory than the server has: it is not repeated for ever, and the next one succeeds."""
    calls = itertools.count()

    def break_it(connection):
        assert next(calls) < 1000, "it would be repeated for ever"
        connection.execute("SELECT pg_terminate_backend(pg_backend_pid())")

    async with PostgresStore(postgres_dsn, timeout=0.2) as store:
        await store.commit(Put(("a",), b"1"))
        with pytest.raises(StoreUnavailableError):
            await store.read(break_it)
        assert (await store.get(("a",))).value == b"1"
