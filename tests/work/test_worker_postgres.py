"""Workers over PostgreSQL: limits of all together, and leases of those that are gone."""

from __future__ import annotations

from contextlib import AsyncExitStack

import anyio
import pytest

from graphagent import END, START, Agent, Context, Strategy, node
from graphagent.store import EncryptedStore, new_key
from graphagent.store.postgres import PostgresStore
from graphagent.work import Worker
from tests.postgres import database


@pytest.fixture
def dsn():
    with database() as found:
        yield found


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.parametrize("kind", ["plain", "sealed"])
async def test_limits_hold_for_all_workers_together(dsn, kind):
    """However many there are, each with a store of its own; every run is executed once, by one of them."""
    key, inside, most, seen = new_key(), 0, 0, []

    @node
    async def work(ctx: Context, number: int) -> int:
        nonlocal inside, most
        inside, most = inside + 1, max(most, inside + 1)
        seen.append(number)
        await anyio.sleep(0.02)
        inside -= 1
        return number

    strategy = Strategy("work", START >> work >> END)
    async with AsyncExitStack() as opened:
        agents = []
        for _ in range(3):
            plain = await opened.enter_async_context(PostgresStore(dsn))
            agents.append(Agent(strategy, store=plain if kind == "plain" else EncryptedStore(plain, key)))
        handles = [await agents[0].submit(number, queue="slow") for number in range(12)]
        for agent in agents:
            await opened.enter_async_context(Worker(agent, limits={"slow": 2}, sweep=0.05))
        assert [(await each.wait()).output for each in handles] == list(range(12))
    assert sorted(seen) == list(range(12))
    assert most <= 2
