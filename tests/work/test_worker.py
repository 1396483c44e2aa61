"""Workers: which runs they execute, when, and what becomes of these when a worker stops or dies."""

from __future__ import annotations

import logging
from datetime import UTC, datetime, timedelta

import anyio
import pytest

from graphagent import END, START, Agent, Context, Strategy, node, parallel
from graphagent.errors import MissingExtraError, StoreError, StoreUnavailableError
from graphagent.store import EncryptedStore, MemoryStore, Put, SqliteStore, new_key
from graphagent.store.postgres import PostgresStore
from graphagent.testing import fixed_clock
from graphagent.work import Schedule, Worker
from tests.store.leased import SqliteClaims


@node
async def shout(ctx: Context, text: str) -> str:
    return text.upper()


def loud(store, name="loud", **options):
    return Agent(Strategy(name, START >> shout >> END), store=store, **options)


async def test_a_worker_executes_what_is_submitted():
    """Before it works, and while it does; the handle has the result."""
    agent = loud(MemoryStore())
    before = await agent.submit("before")
    async with Worker(agent):
        during = await agent.submit("during")
        assert (await before.wait()).output == "BEFORE"
        assert (await during.wait()).output == "DURING"


async def test_word_of_a_run_reaches_a_worker_that_would_not_look_for_an_hour():
    """The dispatcher within the process brings it."""
    agent = loud(MemoryStore())
    async with Worker(agent, sweep=3600):
        await anyio.wait_all_tasks_blocked()
        assert (await (await agent.submit("now")).wait()).output == "NOW"


async def test_runs_without_an_agent_here_or_of_other_queues_wait_for_another_worker():
    """They do not fail; a worker that has them executes them."""
    store = MemoryStore()
    agent, other = loud(store), loud(store, "other")
    mail, chat, others = await agent.submit("mail", queue="mail"), await agent.submit("chat"), await other.submit("x")
    async with Worker(agent, queues=["mail"], sweep=0.01):
        await mail.wait()
        assert [await chat.status(), await others.status()] == ["queued", "queued"]
        async with Worker([other, agent]):
            assert [(await each.wait()).output for each in (chat, others)] == ["CHAT", "X"]


class Gate:
    """Nodes that wait for a test, and say how many of them are executed."""

    def __init__(self, store, **options):
        self.open, self.inside, self.most, self.seen = anyio.Event(), 0, 0, []
        self.entered, self.five_were = anyio.Event(), anyio.Event()

        @node
        async def wait(ctx: Context, text: str) -> str:
            self.inside += 1
            self.most = max(self.most, self.inside)
            self.seen.append(text)
            self.entered.set()
            if len(self.seen) == 5:
                self.five_were.set()
            await self.open.wait()
            self.inside -= 1
            return text

        self.wait = wait
        self.agent = Agent(Strategy("gate", START >> wait >> shout >> END), store=store, **options)


async def test_limits_hold_for_queues_and_owners():
    """Others go on meanwhile, and higher priorities come first."""
    gate = Gate(MemoryStore())
    handles = [await gate.agent.submit(f"low {number}", queue="slow") for number in range(3)]
    handles.append(await gate.agent.submit("high", queue="slow", priority=9))
    handles += [await gate.agent.submit("ada", owner="ada") for _ in range(3)]
    async with Worker(gate.agent, limits={"slow": 2}, limit_per_owner=4, sweep=0.01):
        await gate.five_were.wait()
        await anyio.sleep(0.05)
        assert sorted(gate.seen) == ["ada"] * 3 + ["high", "low 0"]
        gate.open.set()
        for each in handles:
            assert (await each.wait()).done


async def test_a_worker_that_stops_leaves_its_runs_after_their_node_to_the_next_one():
    """The node in flight ends, and its output is not computed again."""
    store = MemoryStore()
    gate = Gate(store)
    handle = await gate.agent.submit("x")
    async with anyio.create_task_group() as group:
        worker = Worker(gate.agent)
        group.start_soon(worker.run)
        await gate.entered.wait()
        worker.stop()
        await anyio.wait_all_tasks_blocked()
        gate.open.set()
    assert await handle.status() == "interrupted"
    async with Worker(gate.agent):
        assert (await handle.wait()).output == "X"
    assert gate.seen == ["x"]


@pytest.mark.parametrize("by", ["stop", "store"])
async def test_a_run_that_nobody_submitted_is_left_to_the_next_worker_too(caplog, by):
    """It slept when a worker took it up, which stops, or whose store fails."""
    caplog.set_level(logging.CRITICAL)
    store = Failing()
    gate = Gate(store)
    agent = Agent(Strategy("gate", START >> nap >> gate.wait >> shout >> END), store=store)
    with fixed_clock(step_ms=0) as clock:
        assert (await agent.run("x", run_id="x")).status == "sleeping"
        clock.move(timedelta(hours=8))
        async with Worker(agent, sweep=0.01) as worker:
            await gate.entered.wait()
            if by == "stop":
                worker.stop()
            store.fails = by == "store"
            gate.open.set()
            await anyio.sleep(0.1)
            store.fails = False
        clock.move(timedelta(minutes=10))
        async with Worker(agent, sweep=0.01):
            assert (await agent.handle("x").wait()).output == "X"


@pytest.mark.parametrize("begun", [False, True])
async def test_while_deps_cannot_be_made_a_run_stays_as_it_was(caplog, begun):
    """Whatever their function raises: one that was submitted is not begun, and one that sleeps sleeps on, until they can be made."""
    caplog.set_level(logging.CRITICAL)
    tries, tried = [], anyio.Event()

    async def connect():
        tries.append(1)
        if len(tries) == 3:
            tried.set()
        if len(tries) < 5:
            raise MissingExtraError("the driver", "postgres")
        return 7

    @node
    async def use(ctx: Context[int], text: str) -> str:
        return f"{text}{ctx.deps}"

    store = MemoryStore()
    agent = Agent(Strategy("using", START >> nap >> use >> END), store=store, deps_factory=connect)
    with fixed_clock(step_ms=0) as clock:
        if begun:
            await agent.run("x", run_id="x", deps=1)
        else:
            await agent.submit("x", run_id="x")
        clock.move(timedelta(hours=8))
        status = await agent.handle("x").status()
        async with Worker(agent, sweep=0.005):
            await tried.wait()
            assert await agent.handle("x").status() == status
            while len(tries) < 5:  # noqa: ASYNC110  another task is waited for
                await anyio.sleep(0.01)
            clock.move(timedelta(hours=8))
            while (result := await agent.handle("x").result()).status != "done":
                await anyio.sleep(0.01)
                clock.move(timedelta(hours=8))
        assert result.output == "x7"


async def test_runs_of_a_thread_follow_one_another_at_once():
    """The worker that finished one goes on with the next."""
    agent = loud(MemoryStore())
    async with Worker(agent, sweep=3600):
        handles = [await agent.submit(text, thread="ada") for text in ("one", "two", "three")]
        assert [(await each.wait()).output for each in handles] == ["ONE", "TWO", "THREE"]


@node
async def nap(ctx: Context, text: str) -> str:
    await ctx.sleep(timedelta(hours=8))
    return text


async def test_a_run_that_sleeps_is_woken_when_its_time_has_come():
    """By the clock of the store; no worker is kept meanwhile. So is one that nobody submitted."""
    agent = Agent(Strategy("nap", START >> nap >> shout >> END), store=MemoryStore())
    with fixed_clock(step_ms=0) as clock:
        async with Worker(agent, concurrency=1, sweep=0.01):
            handles = [await agent.submit("x"), agent.handle((await agent.run("y")).run_id)]
            for each in handles:
                while await each.status() != "sleeping":  # noqa: ASYNC110  another task is waited for
                    await anyio.sleep(0.01)
            clock.move(timedelta(hours=8))
            assert [(await each.wait()).output for each in handles] == ["X", "Y"]


class Failing(MemoryStore):
    """A store that fails while it is told to."""

    fails = False

    async def commit(self, *changes):
        if self.fails:
            raise StoreError("no connection")
        await super().commit(*changes)

    def scan(self, *args, **options):
        if self.fails:
            raise StoreError("no connection")
        return super().scan(*args, **options)


async def test_a_store_that_fails_for_a_while_fails_no_run(caplog):
    """The run is left where it was, and the worker goes on with it."""
    caplog.set_level(logging.CRITICAL)
    store = Failing()
    gate = Gate(store)
    handle = await gate.agent.submit("x")
    async with Worker(gate.agent, sweep=0.01):
        await gate.entered.wait()
        store.fails = True
        gate.open.set()
        await anyio.sleep(0.1)
        store.fails = False
        assert (await handle.wait()).output == "X"


class Away(MemoryStore):
    """A store whose server comes at the third try."""

    tries = 0

    async def get(self, key):
        self.tries += 1
        if self.tries < 3:
            raise StoreUnavailableError("the store", "connection refused")
        return await super().get(key)


async def test_a_server_that_is_down_at_the_start_is_waited_for_and_a_store_that_cannot_be_opened_ends_the_worker(
    caplog,
):
    """Whoever waits for a variable that is not set waits for ever; the error is that of the store, and not in a group."""
    caplog.set_level(logging.CRITICAL)
    agent = loud(Away())
    async with Worker(agent, sweep=0.01):
        while agent.store.tries < 3:  # noqa: ASYNC110  another task is waited for
            await anyio.sleep(0.01)
        assert (await (await agent.submit("x")).wait()).output == "X"
    key, sealed = new_key(), MemoryStore()
    await EncryptedStore(sealed, key).commit(Put(("a",), b""))
    for store, error in [
        (PostgresStore("env:NO_SUCH_VARIABLE"), "the variable 'NO_SUCH_VARIABLE'"),
        (sealed, "sealed"),
    ]:
        with pytest.raises(StoreError, match=error):
            async with Worker(loud(store)):
                await anyio.sleep_forever()
        with pytest.raises(StoreError, match=error):
            await Worker(loud(store)).run()


class Clock(SqliteClaims):
    """Claims whose clock fails while it is told to."""

    fails_to_tell = False

    async def now(self):
        if self.fails_to_tell:
            raise StoreError("no connection")
        return await super().now()


@pytest.mark.every_loop
@pytest.mark.parametrize("fails", ["commit", "clock"])
async def test_whatever_a_run_makes_of_a_store_that_fails_it_does_not_fail(tmp_path, caplog, fails):
    """One branch holds the error back, so that another one meets a log that is behind; or a node has it in a group with others."""
    caplog.set_level(logging.CRITICAL)
    store, tries = Failing(), []
    store.claims = claims = Clock(tmp_path / "claims.db")
    held, met = anyio.Event(), anyio.Event()

    async def nothing():
        return None

    @node
    async def hold(ctx: Context, text: str) -> str:
        tries.append(text)
        if len(tries) > 1:
            return text
        store.fails, claims.fails_to_tell = fails == "commit", fails == "clock"
        try:
            await (ctx.once("a", nothing) if store.fails else ctx.sleep(60))
        except Exception as error:
            store.fails = claims.fails_to_tell = False
            held.set()
            if fails == "clock":
                raise ExceptionGroup("of several", [error, ValueError("x")]) from None
            with anyio.CancelScope(shield=True):
                await met.wait()
        return text

    @node
    async def meet(ctx: Context, text: str) -> str:
        if fails == "commit" and len(tries) < 2:
            await held.wait()
            met.set()
            await ctx.once("b", nothing)
        return text

    agent = Agent(Strategy("both", START >> parallel(hold, meet) >> END), store=store)
    handle = await agent.submit("x")
    async with Worker(agent, sweep=0.01):
        result = await handle.wait()
    assert (result.status, result.output) == ("done", ("x", "x"))
    assert len(tries) == 2


async def test_schedules_of_several_workers_begin_one_run(tmp_path):
    """At each time, in one file; the id says which."""
    file = tmp_path / "runs.db"
    agents = [loud(SqliteStore(file)) for _ in range(10)]
    schedules = [Schedule("* * * * *", agent, lambda at: f"at {at:%H:%M}", name="report") for agent in agents]
    minute = datetime.now(UTC).replace(second=0, microsecond=0)

    async def nothing(schedule, time):
        pytest.fail("it was not known")

    await schedules[0].begin_due(agents[0].store, minute - timedelta(minutes=5), nothing)
    async with anyio.create_task_group() as group:
        workers = [Worker(agent, schedules=[schedule]) for agent, schedule in zip(agents, schedules, strict=True)]
        for worker in workers:
            group.start_soon(worker.run)
        handle = agents[0].handle(f"report@{minute:%Y%m%dT%H%MZ}")
        while True:
            try:
                assert (await handle.wait()).output == f"AT {minute:%H:%M}"
                break
            except Exception:
                await anyio.sleep(0.01)
        for worker in workers:
            worker.stop()


WRONG = {
    "no store": (lambda: Worker(loud(None)), "agents with one store, and these have none"),
    "two stores": (lambda: Worker([loud(MemoryStore()), loud(MemoryStore())]), "and these have 2"),
    "no agents": (lambda: Worker([]), "and these have none"),
    "not an agent": (lambda: Worker(["loud"]), "not a str"),
    "queues": (lambda: Worker(loud(MemoryStore()), queues="mail"), "is not a list of names"),
    "no queue": (lambda: Worker(loud(MemoryStore()), queues=[]), "is not a list of names"),
    "concurrency": (lambda: Worker(loud(MemoryStore()), concurrency=0), "concurrency=0 is not a limit"),
    "limit": (lambda: Worker(loud(MemoryStore()), limits={"mail": 0}), "mail=0 is not a limit"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_worker_that_could_not_work_is_refused(case):
    """Where it is made."""
    make, said = WRONG[case]
    with pytest.raises((ValueError, TypeError), match=said):
        make()


async def test_a_schedule_that_begins_nothing_is_in_the_way_of_no_run(caplog):
    """Neither one whose task raises nor one whose thread is busy: the run that its thread has is due itself. Another minute, it is tried again."""
    store, times, second = MemoryStore(), [], anyio.Event()
    agent = loud(store)

    def broken(time):
        times.append(time)
        if len(times) > 1:
            second.set()
        raise LookupError("no task")

    schedules = [
        Schedule("* * * * *", agent, "again", name="busy", thread="news", if_busy="refuse"),
        Schedule("* * * * *", agent, broken, name="broken"),
    ]
    with fixed_clock(step_ms=0) as clock:
        async with Worker([], schedules=schedules, sweep=0.01):
            await (await agent.submit("first")).wait()
            later = await agent.submit("later", thread="news", at=datetime(2025, 1, 1, 0, 1, tzinfo=UTC))
            clock.move(timedelta(minutes=1))
            assert (await later.wait()).output == "LATER"
            assert len(times) == 1
            clock.move(timedelta(minutes=1))
            await second.wait()
            assert (await agent.handle("busy@20250101T0002Z").wait()).output == "AGAIN"
    assert "schedule 'broken' begins nothing: LookupError" in caplog.text
    assert "cannot be looked for" not in caplog.text
