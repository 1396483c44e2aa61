"""Which runs a worker finds: also those whose process died though nobody submitted them, and what is left of runs that are gone."""

from __future__ import annotations

import gc
from datetime import timedelta

import anyio
import pytest

from graphagent import END, START, Agent, Context, Strategy, node
from graphagent.llm import Message
from graphagent.memory import MessageStep
from graphagent.store import DeleteAll, EncryptedStore, MemoryStore, new_key
from graphagent.store.postgres import PostgresStore
from graphagent.testing import fixed_clock
from graphagent.work import Worker, _finding
from tests.store.leased import Leased


@node
async def begin(ctx: Context, text: str) -> str:
    await ctx.add(MessageStep(Message.user(text)))
    return text


@node
async def count(ctx: Context[int], text: str) -> str:
    return f"{text}{ctx.deps}"


@node
async def shout(ctx: Context, text: str) -> str:
    return text.upper()


plain = Strategy("plain", START >> begin >> shout >> END)
needing = Strategy("needing", START >> begin >> count >> END)


@pytest.fixture(params=["leased", "postgres", "sealed"])
def store(request, tmp_path):
    if request.param == "leased":
        return Leased(MemoryStore(), tmp_path / "claims.db")
    opened = PostgresStore(request.getfixturevalue("postgres_dsn"))
    return EncryptedStore(opened, new_key()) if request.param == "sealed" else opened


async def die(strategy, store, run_id, **options):
    """Begin a run, and keep nothing of it, so that its claim is not renewed."""
    run = Agent(strategy, store=store).start("x", run_id=run_id, **options)
    assert await run.step() is not None
    del run
    gc.collect()


async def lapsed(store):
    return {claimed.key[3] for claimed in await store.claims.lapsed("runs", 100)}


async def test_workers_take_up_runs_whose_process_died_though_nobody_submitted_them(store, monkeypatch):
    """Those that they can execute; others stay, in nobody's way, and what is left of the claims of runs that are at rest is removed."""
    monkeypatch.setattr(_finding, "_MOST", 1)
    other = Strategy("other", START >> begin >> shout >> END)
    with fixed_clock(step_ms=0) as clock:
        await die(other, store, "other")
        await die(needing, store, "deps", deps=1)
        clock.move(timedelta(seconds=1))
        for run_id in ("gone", "ended", "a", "b"):
            await die(plain, store, run_id)
        clock.move(timedelta(minutes=1))
        agent = Agent(plain, store=store)
        await agent.end("ended")
        await store.commit(DeleteAll(("runs", "", 0, "gone")))
        async with Worker([agent, Agent(needing, store=store)], sweep=0.01):
            for run_id in ("a", "b"):
                assert (await agent.handle(run_id).wait()).output == "X"
            while await lapsed(store) != {"other", "deps"}:  # noqa: ASYNC110  another task is waited for
                await anyio.sleep(0.01)
        assert {await agent.handle(run_id).status() for run_id in ("other", "deps")} == {"interrupted"}
        able = Agent(needing, store=store, deps_factory=lambda: 7)
        async with Worker(able, sweep=0.01):
            assert (await able.handle("deps").wait()).output == "x7"


async def test_what_is_due_for_a_run_that_is_gone_is_removed():
    """Whether it is gone before a worker has seen it, or afterwards."""
    store, gate, entered = MemoryStore(), anyio.Event(), anyio.Event()

    @node
    async def wait(ctx: Context, text: str) -> str:
        entered.set()
        await gate.wait()
        return text

    async def remove(run_id):
        await store.commit(DeleteAll(("runs", "", 0, run_id)))
        while run_id in [item.key[4] async for item in store.scan(("due",))]:  # noqa: ASYNC110  another task is waited for
            await anyio.sleep(0.01)

    agent = Agent(Strategy("waiting", START >> wait >> END), store=store)
    async with Worker(agent, sweep=0.01):
        handle = await agent.submit("x", thread="t")
        await entered.wait()
        await agent.submit("x", run_id="held", thread="t")
        await anyio.sleep(0.05)
        await remove("held")
        gate.set()
        await handle.wait()
    await agent.submit("x", run_id="not seen")
    async with Worker(agent, sweep=0.01):
        await remove("not seen")
