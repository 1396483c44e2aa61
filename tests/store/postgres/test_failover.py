"""A replica that lagged becomes the primary: what had been acknowledged is gone."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import anyio
import psycopg
import pytest

from graphagent import END, START, Agent, Context, Strategy, node
from graphagent.errors import JournalError
from graphagent.store import EncryptedStore, Put, new_key
from graphagent.store.postgres import PostgresStore
from tests import postgres


class Pair:
    """A primary server and its replica, and the DSN of whichever may be written."""

    def __init__(self, primary, replica):
        self.primary, self.replica = primary, replica
        hosts = ",".join(str(postgres.place_of(each)) for each in (primary, replica))
        self.dsn = f"{primary.partition('?')[0]}?host={hosts}&target_session_attrs=read-write"

    def lag(self):
        """Have the replica receive nothing more."""
        with psycopg.connect(self.primary) as connection:
            [position] = connection.execute("SELECT pg_current_wal_lsn()").fetchone()
        with psycopg.connect(self.replica, autocommit=True) as connection:
            self._until(connection, f"SELECT pg_last_wal_replay_lsn() >= '{position}'")
            connection.execute("ALTER SYSTEM SET primary_conninfo = ''")
            connection.execute("SELECT pg_reload_conf()")
            self._until(connection, "SELECT NOT EXISTS (SELECT FROM pg_stat_wal_receiver)")

    def fail_over(self):
        """Kill the primary, and make the replica one."""
        told = Path(postgres.place_of(self.primary), "data", "postmaster.pid")
        os.kill(int(told.read_text().split()[0]), signal.SIGQUIT)
        while told.exists():
            time.sleep(0.01)
        with psycopg.connect(self.replica, autocommit=True) as connection:
            connection.execute("SELECT pg_promote()")

    @staticmethod
    def _until(connection, question):
        while not connection.execute(question).fetchone()[0]:
            time.sleep(0.01)


@pytest.fixture
def pair():
    with postgres.served() as primary, postgres.served(primary=primary) as replica:
        yield Pair(primary, replica)


@pytest.mark.thorough
@pytest.mark.parametrize("sealed", [False, True], ids=["plain", "sealed"])
async def test_a_run_whose_last_entries_are_gone_continues_from_what_is_there(pair, sealed):
    """The process that executes it is told at its next commit, and writes nothing behind the gap; resumed, it does the rest."""
    done, meanwhile = [], {1: pair.lag, 3: pair.fail_over}

    @node
    async def work(ctx: Context, task: str) -> str:
        for number in range(6):

            async def act(number=number):
                done.append(number)
                return number

            await ctx.once(f"step {number}", act)
            if number in meanwhile:
                await anyio.to_thread.run_sync(meanwhile.pop(number))
        return "done"

    key = new_key()

    def opened():
        store = PostgresStore(pair.dsn, timeout=60)
        return EncryptedStore(store, key) if sealed else store

    async with opened() as store:
        agent = Agent(Strategy("works", START >> work >> END), store=store)
        with pytest.raises(JournalError, match="older than it was" if sealed else "was rolled back"):
            await agent.run("go", run_id="r")
        assert done == [0, 1, 2, 3, 4]
        if not sealed:
            await store.commit(Put(("more",), b"v"))
    async with opened() as store:
        assert (await Agent(Strategy("works", START >> work >> END), store=store).resume("r")).output == "done"
        assert done == [0, 1, 2, 3, 4, 2, 3, 4, 5]
        await store.verify()
