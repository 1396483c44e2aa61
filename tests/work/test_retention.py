"""Runs that are over are kept as long as their agent says, and removed by workers."""

from __future__ import annotations

from datetime import timedelta

import anyio
import pytest

from graphagent import END, START, Agent, Context, Strategy, _clock, node
from graphagent.errors import NodeFailedError
from graphagent.history import prune_runs
from graphagent.log._header import header_key
from graphagent.run import list_runs
from graphagent.store import EncryptedStore, MemoryStore, Put
from graphagent.testing import fixed_clock
from graphagent.work import Worker, _finding, _retention
from graphagent.work._execute import execute
from graphagent.work._retention import remove_expired


@node
async def answer(ctx: Context, task: str) -> str:
    if task == "ask":
        return str(await ctx.ask("Well?", str))
    if task == "fail":
        raise LookupError("not there")
    return task.upper()


STRATEGY = Strategy("kept", START >> answer >> END)
DAY = 24 * 3600 * 1000


def ids(heads):
    return sorted(head.run_id for head in heads)


async def test_runs_that_are_over_go_when_their_time_has_passed_and_others_stay():
    """Done, failed and ended runs go, of every owner; what waits, and what another agent keeps for ever, stays."""
    with fixed_clock():
        store = EncryptedStore(MemoryStore(), bytes(32))
        agent = Agent(STRATEGY, store=store, retention=timedelta(days=30))
        await agent.run("a", run_id="done", owner="ada")
        with pytest.raises(NodeFailedError):
            await agent.run("fail", run_id="failed", owner="ada")
        await agent.run("ask", run_id="waits", owner="ada")
        await agent.run("ask", run_id="ended", owner="bo")
        await agent.end("ended", owner="bo")
        await Agent(STRATEGY, store=store).run("b", run_id="kept", owner="bo")
        now = (await list_runs(store, owner="bo"))[0].updated
        assert await remove_expired(store, {"kept"}, now + 29 * DAY) == 0
        assert await remove_expired(store, {"another"}, now + 31 * DAY) == 0
        assert await remove_expired(store, {"kept"}, now + 31 * DAY) == 3
        assert ids(await list_runs(store, owner="ada")) == ["waits"]
        assert ids(await list_runs(store, owner="bo")) == ["kept"]
        assert await remove_expired(store, {"kept"}, now + 31 * DAY) == 0


async def test_a_run_that_ends_while_a_worker_looks_is_kept():
    """What was due, when the worker looked, was that it is executed; it is removed by another look or never."""

    class Meanwhile(MemoryStore):
        meanwhile = None

        async def get_many(self, keys):
            act, self.meanwhile = self.meanwhile, None
            if act is not None:
                await act()
            return await super().get_many(keys)

    store = Meanwhile()
    for kept in (None, timedelta(days=1)):
        agent = Agent(Strategy("loud", START >> answer >> END), store=store, retention=kept)
        handle = await agent.submit("x")
        store.meanwhile = lambda agent=agent, handle=handle: execute(agent, "", handle.run_id)
        assert await remove_expired(store, ["loud"], _clock.now()) == 0
        assert (await handle.result()).status == "done"


@pytest.mark.parametrize("way", ["by its retention", "by its status"])
async def test_a_run_that_goes_on_while_it_is_removed_is_kept(way):
    """It was chosen since it had failed; resumed meanwhile, it is done, and its new time counts."""
    attempts = []

    @node
    async def second(ctx: Context, task: str) -> str:
        attempts.append(task)
        if len(attempts) == 1:
            raise LookupError
        return task

    class Meanwhile(MemoryStore):
        meanwhile = None

        async def commit(self, *changes):
            act, self.meanwhile = self.meanwhile, None
            if act is not None:
                await act()
            await super().commit(*changes)

    store = Meanwhile()
    agent = Agent(Strategy("kept", START >> second >> END), store=store, retention=timedelta(days=1))
    with pytest.raises(NodeFailedError):
        await agent.run("a", run_id="r")
    store.meanwhile = lambda: agent.resume("r")
    if way == "by its retention":
        with fixed_clock(_clock.now() + 2 * DAY):
            assert await remove_expired(store, {"kept"}, _clock.now()) == 0
    else:
        assert (await prune_runs(store, status=["failed"])).runs == 0
    assert (await agent.read("r")).output == "a"


async def test_runs_that_cannot_be_removed_are_in_the_way_of_none(monkeypatch):
    """Behind as many runs of others and damaged ones as are looked at together, those that have expired are found."""
    monkeypatch.setattr(_retention, "_TOGETHER", 2)
    with fixed_clock():
        store = MemoryStore()
        for name, strategy in (
            ("damaged", STRATEGY),
            ("other", Strategy("other", START >> answer >> END)),
            ("gone", STRATEGY),
        ):
            for number in range(5):
                await Agent(strategy, store=store, retention=timedelta(days=1)).run("a", run_id=f"{name}{number}")
        damaged = [header_key("", f"damaged{number}") for number in range(5)]
        await store.commit(*(Put(key, b"?") for key in damaged))
        gone = 0
        while more := await remove_expired(store, {"kept"}, _clock.now() + 2 * DAY):
            assert more <= 2
            gone += more
        assert gone == 5
        assert len(await store.get_many(damaged)) == 5


async def test_a_worker_removes_them_all_and_executes_what_is_due_behind_them(monkeypatch):
    """Nothing has to be called: a worker of the agent looks by itself, and those that it has not removed hide no run."""
    monkeypatch.setattr(_retention, "_TOGETHER", 1)
    monkeypatch.setattr(_finding, "_MOST", 1)
    store = MemoryStore()
    agent = Agent(STRATEGY, store=store, retention=timedelta(milliseconds=1))
    for number in range(4):
        await agent.run("a", run_id=f"done{number}")
    await anyio.sleep(0.01)  # their time has passed at the first look, and the next look but for more is a minute later
    await Agent(STRATEGY, store=store).submit("b")
    async with Worker(agent, sweep=0.01):
        while await list_runs(store):  # noqa: ASYNC110  the worker is waited for
            await anyio.sleep(0.005)


@pytest.mark.parametrize(
    ("given", "text"),
    [(30, "a length of time"), (timedelta(0), "would keep nothing"), (timedelta(days=1), "there is none")],
)
def test_a_wrong_retention_is_refused(given, text):
    """It is a positive length of time, and needs a store."""
    store = None if given == timedelta(days=1) else MemoryStore()
    with pytest.raises((TypeError, ValueError), match=text):
        Agent(STRATEGY, store=store, retention=given)
