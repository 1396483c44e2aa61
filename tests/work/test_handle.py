"""The handle of a run that others execute: it is followed, answered, paused and ended from any process."""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from typing import ClassVar

import anyio
import anyio.lowlevel
import pytest

from graphagent import END, START, Agent, Context, Strategy, blocking, node
from graphagent.errors import AnswerError, RunClaimedError, RunEndedError, RunExistsError, RunNotFoundError
from graphagent.history import forget_runs
from graphagent.log import _changes as waiting
from graphagent.nodes import ask_human
from graphagent.run import _session as heartbeat
from graphagent.run import list_runs
from graphagent.store import EncryptedStore, MemoryStore, SqliteStore, new_key
from graphagent.store.postgres import PostgresStore
from graphagent.work import Worker
from graphagent.work._execute import execute

asking = Strategy("asking", START >> ask_human("Sure?", bool) >> END)


@node
async def tick(ctx: Context, count: int) -> int:
    """Count on for ever, and let others look."""
    await anyio.sleep(0.01)
    return count + 1


ticking = Strategy("ticking", START >> tick, tick.when(lambda count: count > 10_000) >> END, tick.otherwise() >> tick)


@pytest.fixture(params=["memory", "sqlite", "sealed"])
def stores(request, tmp_path):
    """Return a function that opens the same store anew, as another process does."""
    if request.param == "memory":
        store = MemoryStore()
        return lambda: store
    key = new_key()
    plain = lambda: SqliteStore(tmp_path / "runs.db")
    return plain if request.param == "sqlite" else lambda: EncryptedStore(plain(), key)


@pytest.fixture(autouse=True)
def soon(monkeypatch):
    """Have processes look for what is asked of them more often."""
    monkeypatch.setattr(heartbeat, "LOOK", 0.01)


async def _until(handle, status):
    found = ""
    while found != status:
        await anyio.lowlevel.checkpoint()
        with suppress(RunNotFoundError):
            found = await handle.status()


async def test_an_answer_is_recorded_and_a_worker_continues_the_run(stores):
    """Whoever answers executes nothing. An answer that does not fit changes nothing, and one that is late is an error."""
    agent, worker = Agent(asking, store=stores()), Agent(asking, store=stores())
    handle = await agent.submit("Go.", run_id="a")
    await execute(worker, "", "a")
    assert (await handle.wait()).questions[0].question == "Sure?"
    with pytest.raises(AnswerError, match="asks for bool"):
        await handle.answer("maybe")
    assert await handle.status() == "waiting"
    await handle.answer(True)
    assert (await handle.status(), (await handle.result()).status) == ("queued", "queued")
    assert await agent.questions() == []
    with pytest.raises(AnswerError, match="waits for no answer"):
        await handle.answer(True)
    assert (await execute(worker, "", "a")).did == "executed"
    assert (await handle.wait()).output is True
    started = await agent.run("Go.", run_id="b")
    await agent.handle("b").answer(answers={started.questions[0].id: False})
    assert [(head.run_id, head.queue) for head in await list_runs(agent.store, status=["queued"])] == [("b", "default")]
    assert (await execute(worker, "", "b")).did == "executed"


@pytest.mark.every_loop
async def test_a_run_that_a_worker_executes_is_paused_and_ended_by_its_handle(stores):
    """The worker stops before its next node. What was paused is continued by whoever resumes it, and can be ended where it is."""
    agent, worker = Agent(ticking, store=stores(), max_nodes=None), Agent(ticking, store=stores(), max_nodes=None)
    handle = await agent.submit(0, run_id="a")
    async with anyio.create_task_group() as group:
        group.start_soon(execute, worker, "", "a")
        await _until(handle, "running")
        paused = await handle.pause("lunch")
    assert (paused.status, paused.nodes > 0) == ("paused", True)
    assert (await execute(worker, "", "a")).did == "resting"
    async with anyio.create_task_group() as group:
        group.start_soon(agent.resume, "a")
        await _until(handle, "running")
        ended = await handle.end("enough")
    assert (ended.status, ended.output) == ("ended", None)
    assert (await handle.end()).status == "ended"
    with pytest.raises(RunEndedError, match="it was ended: enough"):
        await worker.resume("a")
    assert [item async for item in agent.store.scan(("asked",))] == []
    queued = await agent.submit(0)
    assert ((await queued.pause()).status, (await queued.end()).status) == ("queued", "ended")


async def test_a_fork_waits_for_a_worker(stores):
    """It is not begun here; its worker continues it from the entry on, with what was edited. Nothing is written of one that cannot be."""
    agent = Agent(asking, store=stores())
    await agent.run("x", run_id="a")
    await agent.resume("a", answer=True)
    handle = await agent.handle("a").fork(
        before="ask_human", edit=lambda shown: setattr(shown, "value", "y"), run_id="b"
    )
    assert (handle.run_id, await handle.status()) == ("b", "queued")
    for wrong, error in (({"run_id": "b"}, RunExistsError), ({"before": "x"}, ValueError)):
        with pytest.raises(error):
            await agent.handle("a").fork(**{"before": "ask_human", **wrong})
    assert [each.run_id for each in await list_runs(stores())] == ["b", "a"]
    assert (await execute(Agent(asking, store=stores()), "", "b")).did == "executed"
    assert (await handle.wait()).pending.about == "y"


async def test_word_is_brought_of_what_an_answer_or_an_end_makes_due():
    """To a worker that would not look for an hour: the run that was answered, and the next one of the thread of one that was ended."""
    agent = Agent(asking, store=MemoryStore())
    async with Worker(agent, sweep=3600):
        await anyio.wait_all_tasks_blocked()
        handles = [await agent.submit("Go.", thread="t") for _ in range(3)]
        assert (await handles[0].wait()).status == "waiting"
        await handles[0].end()
        assert (await handles[1].wait()).status == "waiting"
        await handles[1].answer(True)
        assert (await handles[2].wait()).status == "waiting"


@pytest.mark.parametrize("sealed", [False, True])
async def test_a_handle_works_over_postgresql_beside_a_worker(postgres_dsn, sealed):
    """Each has a store of its own: entries, an answer, a pause and an end reach the other one."""
    key = new_key()
    store = lambda: EncryptedStore(PostgresStore(postgres_dsn), key) if sealed else PostgresStore(postgres_dsn)
    strategies = [asking, ticking]
    here, there = ([Agent(each, store=own, max_nodes=None) for each in strategies] for own in (store(), store()))
    async with Worker(there, sweep=0.05):
        handle = await here[0].submit("Go.")
        assert (await handle.wait()).questions[0].question == "Sure?"
        await handle.answer(True)
        kinds = [entry.kind async for entry in handle.events()]
        assert ((await handle.wait()).output, kinds) == (
            True,
            [entry.kind for entry in await here[0].history(handle.run_id)],
        )
        endless = await here[1].submit(0)
        await _until(endless, "running")
        assert (await endless.pause("lunch")).status == "paused"
        assert (await endless.end("enough")).status == "ended"


async def test_a_run_that_no_worker_executes_is_not_ended_by_its_handle():
    """Its process does not look for what others ask."""
    agent = Agent(ticking, store=MemoryStore(), max_nodes=None)
    async with anyio.create_task_group() as group:
        group.start_soon(lambda: agent.run(0, run_id="a"))
        await _until(agent.handle("a"), "running")
        for asking_it in (agent.handle("a").end, agent.handle("a").pause):
            with pytest.raises(RunClaimedError):
                await asking_it()
        group.cancel_scope.cancel()


@pytest.mark.every_loop
async def test_entries_are_read_while_another_process_commits_them(stores):
    """From the first one on, each once, until the run waits; large values are among them. A reader may leave at any time."""

    @node
    async def grow(ctx: Context, text: str) -> str:
        await anyio.sleep(0.01)
        return text * 20_000

    strategy = Strategy("growing", START >> grow >> ask_human("Sure?", bool) >> END)
    agent, worker = Agent(strategy, store=stores()), Agent(strategy, store=stores())
    handle, read = await agent.submit("x", run_id="a"), []

    async def follow():
        read.extend([entry async for entry in handle.events()])

    async with anyio.create_task_group() as group:
        group.start_soon(follow)
        await anyio.sleep(0.02)
        await execute(worker, "", "a")
    known = await agent.history("a")
    assert [(entry.number, entry.kind) for entry in read] == [(entry.number, entry.kind) for entry in known]
    assert next(entry.value for entry in read if entry.node == "grow") == "x" * 20_000
    async for _ in handle.events():
        break
    await forget_runs(agent.store, run_ids=["a"])
    for method in (handle.status, handle.result, handle.wait, handle.answer, handle.end, handle.pause):
        with pytest.raises(RunNotFoundError):
            await method()


@pytest.mark.every_loop
async def test_who_follows_a_run_is_woken_by_a_commit_in_the_process(stores, monkeypatch):
    """Whoever would look again in an hour has each entry, and the result, as soon as they are committed."""
    monkeypatch.setattr(waiting, "_FIRST", 3600.0)
    agent, worker = Agent(asking, store=stores()), Agent(asking, store=stores())
    handle, read = await agent.submit("Go.", run_id="a"), []

    async def follow():
        read.extend([entry.number async for entry in handle.events(after=2)])
        read.append((await handle.wait()).status)

    async with anyio.create_task_group() as group:
        group.start_soon(follow)
        await anyio.wait_all_tasks_blocked()
        await execute(worker, "", "a")
    known = [entry.number for entry in await agent.history("a")]
    assert read == [*known[2:], "waiting"]
    assert [entry.number async for entry in handle.events(after=known[-1])] == []
    for wrong in (-1, "3", None):
        with pytest.raises((TypeError, ValueError), match="after="):
            handle.events(after=wrong)


async def test_while_nothing_happens_a_look_is_one_read(monkeypatch):
    """Of two items, and of one where the result is waited for."""

    class Counted(MemoryStore):
        reads: ClassVar[Counter[str]] = Counter()

        async def get(self, key):
            self.reads["get"] += 1
            return await super().get(key)

        async def get_many(self, keys):
            keys = list(keys)
            found = await super().get_many(keys)
            self.reads["get"] -= len(keys)  # by which it is made
            self.reads[f"get_many {len(keys)}"] += 1
            return found

        def scan(self, *args, **options):
            self.reads["scan"] += 1
            return super().scan(*args, **options)

    @node
    async def nap(ctx: Context, text: str) -> str:
        await ctx.sleep(3600)
        return text

    monkeypatch.setattr(waiting, "_LONGEST", 0.01)
    agent = Agent(Strategy("napping", START >> nap >> END), store=Counted())
    await agent.run("x", run_id="a")
    handle = agent.handle("a")
    entries = handle.events()
    for _ in await agent.history("a"):
        await anext(entries)
    agent.store.reads.clear()
    with anyio.move_on_after(0.1):
        await anext(entries)
    assert set(+agent.store.reads) == {"get_many 2"}
    agent.store.reads.clear()
    with anyio.move_on_after(0.1):
        await handle.wait()
    assert set(agent.store.reads) == {"get"}


def test_a_run_is_submitted_and_followed_where_nothing_is_async():
    """Each method of the handle blocks until it is done."""
    agent = Agent(asking, store=MemoryStore())
    handle = blocking(agent).submit("Go.", run_id="a")
    assert (handle.run_id, handle.status()) == ("a", "queued")
    blocking(execute)(agent, "", "a")
    handle.answer(True)
    blocking(execute)(agent, "", "a")
    assert (handle.wait(5).output, next(entry.kind for entry in handle.events())) == (True, "started")


async def test_who_waits_gets_no_result_of_a_run_that_somebody_else_continues_meanwhile():
    """It waits for a person when it is looked at, and is answered before it is read."""

    class Store(MemoryStore):
        meanwhile = None

        async def get(self, key):
            found = await super().get(key)
            if self.meanwhile is not None:
                work, self.meanwhile = self.meanwhile, None
                await work()
            return found

    agent = Agent(asking, store=(store := Store()))
    await agent.run("x", run_id="x-1")
    handle, answered, results = agent.handle("x-1"), anyio.Event(), []

    async def answer():
        await handle.answer(True)
        answered.set()

    async def wait():
        results.append(await handle.wait())

    store.meanwhile = answer
    async with anyio.create_task_group() as group:
        group.start_soon(wait)
        await answered.wait()
        await anyio.wait_all_tasks_blocked()
        await execute(agent, "", "x-1")
    assert results[0].output is True
