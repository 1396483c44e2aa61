"""A node sleeps until a time that is recorded before it sleeps: whatever stops the run, it sleeps until that time and no longer."""

from __future__ import annotations

import re
import threading
from datetime import UTC, datetime, timedelta, timezone
from functools import partial
from zoneinfo import ZoneInfo

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphagent import END, START, Agent, Context, Strategy, _clock, blocking, node, parallel, race, tool
from graphagent.errors import BudgetError, NodeFailedError, NodeTimeoutError
from graphagent.llm import ToolCall, ToolCalls
from graphagent.log._claim import LEASE
from graphagent.run import _heartbeat, _runtime, list_runs
from graphagent.store import MemoryStore, SqliteStore
from graphagent.testing import ScriptedModel
from graphagent_strategies import single_run
from tests.run.lives import Watched, cut
from tests.run.test_claims import Process, forks
from tests.run.test_heartbeat import Beats, much_later
from tests.thorough import examples

pytestmark = pytest.mark.every_loop

EVENING = 1_735_761_600_000
"""20:00 on New Year's Day 2025, in milliseconds UTC."""
HOUR = 3_600_000


def at(moment):
    return datetime.fromtimestamp(moment / 1000, UTC)


class Night:
    """A wall clock that shows what a test says, and sleeps that take no time but move it."""

    def __init__(self, now=EVENING):
        self.now = now
        self.slept = []
        """How many seconds each piece of a sleep was to last."""
        self.shown = None
        """What the clock shows after each of the next pieces, where it is set meanwhile."""

    def move_on_after(self, seconds):
        self.slept.append(seconds)
        self.now = self.shown.pop(0) if self.shown else self.now + round(seconds * 1000)
        return anyio.move_on_after(0)

    def install(self, patch):
        patch.setattr(_clock, "now", lambda: self.now)
        patch.setattr(_runtime, "move_on_after", self.move_on_after)
        return self


class Endless(Night):
    """A night in which nobody wakes up by himself."""

    def __init__(self, now=EVENING):
        super().__init__(now)
        self.asleep = anyio.Event()

    def move_on_after(self, seconds):
        self.slept.append(seconds)
        self.asleep.set()
        return anyio.CancelScope()


@pytest.fixture
def night(monkeypatch):
    return Night().install(monkeypatch)


@node
async def sleeper(ctx: Context, text: str) -> str:
    await ctx.sleep_until(at(_clock.now() + HOUR))
    return f"{text}, rested"


def agent_of(store=None, element=sleeper, **options):
    return Agent(Strategy("s", START >> element >> END), store=store, **options)


async def recorded(agent, run_id="r"):
    """Return the times that the journal of a run has, by the keys of the sleeps."""
    return {each.key: each.value for each in await agent.history(run_id) if "sleep:" in each.key}


async def asleep(night, run, then):
    """Finish a run in a task, and do something once it sleeps; return what the run raised."""
    raised = []

    async def finish():
        try:
            await run.finish()
        except Exception as error:
            raised.append(error)

    async with anyio.create_task_group() as group:
        group.start_soon(finish)
        await night.asleep.wait()
        await then()
    return raised


# ---- the clock


@pytest.mark.parametrize("stored", [False, True])
async def test_a_node_sleeps_until_the_time(night, stored):
    """With a store and without one, in pieces of at most a minute."""
    run = agent_of(MemoryStore() if stored else None).start("x", run_id="r")
    await run.finish()
    assert run.output == "x, rested"
    assert night.now == EVENING + HOUR
    assert night.slept == [60] * 60


async def test_nobody_sleeps_until_a_time_that_is_past(night):
    """Neither until one that is over nor until this very moment; the time is recorded all the same."""

    @node
    async def late(ctx: Context, text: str) -> str:
        await ctx.sleep_until(at(EVENING - 1))
        await ctx.sleep_until(at(EVENING))
        return text

    agent = agent_of(MemoryStore(), late)
    await agent.run("x", run_id="r")
    assert night.slept == []
    assert await recorded(agent) == {"sleep:1": at(EVENING - 1), "sleep:2": at(EVENING)}


async def test_a_clock_that_is_set_wakes_nobody_early(night):
    """Set back, the node sleeps on; set forward, it has overslept by no more than a piece."""
    night.shown = [EVENING - 5000, EVENING + HOUR - 1, EVENING + 2 * HOUR]
    run = agent_of().start("x")
    await run.finish()
    assert night.slept == [60, 60, 0.001]


@pytest.mark.parametrize(
    "time",
    [
        datetime(2025, 1, 1, 20, 0, 0, 1, tzinfo=UTC),
        datetime(2025, 1, 1, 21, 0, 0, 1, tzinfo=ZoneInfo("Europe/Paris")),
        datetime(2025, 1, 1, 9, 30, 0, 1, tzinfo=timezone(-timedelta(hours=10, minutes=30))),
    ],
)
async def test_a_time_in_any_zone_is_never_cut_short(night, time):
    """A microsecond after 20:00 is not yet reached at 20:00."""

    @node
    async def waits(ctx: Context, text: str) -> str:
        await ctx.sleep_until(time)
        return text

    agent = agent_of(MemoryStore(), waits)
    await agent.run("x", run_id="r")
    assert night.slept == [0.001]
    assert time <= (await recorded(agent))["sleep:1"] < time + timedelta(milliseconds=1)


@pytest.mark.parametrize(
    ("time", "kind", "text"),
    [
        (
            at(EVENING).replace(tzinfo=None),
            ValueError,
            r"node 'waits' sleeps until a datetime without a time zone; write .*UTC",
        ),
        (timedelta(hours=1), TypeError, r"node 'waits' sleeps until a timedelta; give a datetime, such as .*UTC"),
        (3600, TypeError, r"node 'waits' sleeps until an int; give a datetime"),
    ],
)
async def test_what_names_no_moment_is_refused(night, time, kind, text):
    """The error says what to write; nothing is recorded."""

    @node
    async def waits(ctx: Context, value: str) -> str:
        await ctx.sleep_until(time)
        return value

    agent = agent_of(MemoryStore(), waits)
    with pytest.raises(NodeFailedError) as caught:
        await agent.run("x", run_id="r")
    assert type(caught.value.__cause__) is kind
    assert re.match(text, str(caught.value.__cause__))
    assert await recorded(agent) == {}


# ---- interruptions


async def sleeps(here, folder):
    """Start run `r`, and say when it is asleep."""
    with pytest.MonkeyPatch.context() as patch:
        night = Endless().install(patch)
        await asleep(night, agent_of(SqliteStore(folder / "runs.db")).start("x", run_id="r"), partial(says_so, here))


async def says_so(here):
    here.say("asleep")
    await anyio.sleep_forever()


async def sleeps_on(here, folder, now):
    """Resume run `r` at another time; say for how many seconds it slept, and what it came to."""
    with pytest.MonkeyPatch.context() as patch:
        night = Night(now).install(patch)
        result = await agent_of(SqliteStore(folder / "runs.db")).resume("r")
        here.say(sum(night.slept), result.output)


@forks
@pytest.mark.parametrize(("later", "rest"), [(HOUR // 4, 2700), (HOUR, 0), (30 * HOUR, 0)])
def test_a_process_that_is_killed_asleep_is_resumed_for_the_remainder(tmp_path, later, rest):
    """The node computes its hour again, and sleeps until the time that the first process recorded."""
    process = Process(sleeps, tmp_path)
    assert process.says() == ["asleep"]
    process.kill()
    other = Process(sleeps_on, tmp_path, EVENING + later)
    assert other.says() == [rest, "x, rested"]
    assert other.end() == 0


@settings(max_examples=examples(30, 8))
@given(later=st.integers(LEASE, 3 * HOUR))
def test_a_run_that_is_resumed_after_any_entry_keeps_its_times(later):
    """A time that was recorded stays, one that was not is computed anew, and the node ends at its last time or when it is resumed."""
    anyio.run(_keeps_its_times, later)


async def _keeps_its_times(later):
    @node
    async def twice(ctx: Context, text: str) -> str:
        await ctx.sleep_until(at(_clock.now() + HOUR))
        await ctx.sleep_until(at(_clock.now() + HOUR))
        return text

    with pytest.MonkeyPatch.context() as patch:
        night = Night().install(patch)
        store = Watched()
        whole = agent_of(store, twice)
        await whole.run("x", run_id="r")
        times = await recorded(whole)
        assert times == {"sleep:1": at(EVENING + HOUR), "sleep:2": at(EVENING + 2 * HOUR)}
        for number in range(1, 4):  # the run began, the first sleep, the second one
            left = agent_of(await cut(store.commits[:number]), twice)
            known = await recorded(left)
            assert len(known) == number - 1
            night.now = now = EVENING + later
            assert (await left.resume("r")).done
            found = await recorded(left)
            first, second = [round(each.timestamp() * 1000) for each in found.values()]
            assert known.items() <= times.items() & found.items()
            assert number > 1 or first == now + HOUR
            assert number > 2 or second == max(now, first) + HOUR
            assert night.now == max(now, second)


@pytest.mark.parametrize("stored", [False, True])
@pytest.mark.parametrize("from_thread", [False, True])
async def test_a_pause_wakes_a_node_that_sleeps(monkeypatch, stored, from_thread):
    """From a task or from a thread; what is resumed sleeps until the same time."""
    night = Endless().install(monkeypatch)
    agent = agent_of(MemoryStore() if stored else None)
    run = agent.start("x", run_id="r")

    async def pause():
        if from_thread:
            thread = threading.Thread(target=partial(blocking(run).pause, "lunch"))
            thread.start()
            await anyio.to_thread.run_sync(thread.join)
        else:
            run.pause("lunch")

    assert await asleep(night, run, pause) == []
    assert run.status == "paused"
    morning = Night(EVENING + HOUR - 30_000).install(monkeypatch)
    result = await (agent.resume("r") if stored else run.finish())
    assert result.output == "x, rested"
    assert morning.slept == [30]
    assert result.nodes == 1


async def test_a_run_that_is_to_pause_does_not_fall_asleep(monkeypatch):
    """It stops before the time is recorded, and computes it anew."""

    @node
    async def tired(ctx: Context, text: str) -> str:
        if not paused:
            paused.append(text)
            run.pause("wait")
        await ctx.sleep_until(at(_clock.now() + HOUR))
        return text

    paused = []
    night = Night().install(monkeypatch)
    agent = agent_of(MemoryStore(), tired)
    run = agent.start("x", run_id="r")
    assert (await run.finish()).status == "paused"
    assert (night.slept, await recorded(agent)) == ([], {})
    night.now += HOUR
    await run.finish()
    assert await recorded(agent) == {"sleep:1": at(EVENING + 2 * HOUR)}


async def test_a_run_that_is_cancelled_asleep_is_cancelled(monkeypatch):
    """It is let go at once, and resumed for the remainder."""
    night, store = Endless().install(monkeypatch), MemoryStore()
    run = agent_of(store).start("x", run_id="r")
    with anyio.CancelScope() as scope:
        async with anyio.create_task_group() as group:
            group.start_soon(run.finish)
            await night.asleep.wait()
            scope.cancel()
    (head,) = await list_runs(store)
    assert (head.status, head.claim) == ("cancelled", None)
    morning = Night(EVENING + HOUR - 1).install(monkeypatch)
    assert (await agent_of(store).resume("r")).done
    assert morning.slept == [0.001]


async def test_the_budget_of_seconds_ends_a_sleep(monkeypatch):
    """The time asleep counts; with more of it the run sleeps until the same time."""
    Endless().install(monkeypatch)
    store = MemoryStore()
    with pytest.raises(BudgetError, match="seconds"):
        await agent_of(store, max_seconds=1).run("x", run_id="r")
    morning = Night(EVENING + 2 * HOUR).install(monkeypatch)
    assert (await agent_of(store, max_seconds=600).resume("r")).done
    assert morning.slept == []


async def test_a_time_limit_ends_a_sleep(monkeypatch):
    """`.timeout` of the node raises in it as in any other call."""
    Endless().install(monkeypatch)
    with pytest.raises(NodeFailedError) as caught:
        await agent_of(element=sleeper.timeout(0.01)).run("x")
    assert type(caught.value.__cause__) is NodeTimeoutError


async def test_the_claim_is_renewed_during_a_sleep(monkeypatch):
    """Another machine cannot take a run that sleeps for longer than a lease."""
    night, beats, store = Endless().install(monkeypatch), Beats(), MemoryStore()
    monkeypatch.setattr(_heartbeat, "sleep", beats.sleep)
    run = agent_of(store).start("x", run_id="r")

    async def beat():
        with much_later():
            await beats.beat()
            (head,) = await list_runs(store)
            assert head.claim.until == _clock.now() + LEASE
        run.pause()

    assert await asleep(night, run, beat) == []
    beats.close()


# ---- where nodes sleep


async def test_a_node_that_is_tried_again_sleeps_anew(night):
    """What an attempt had recorded is forgotten with it."""

    @node
    async def clumsy(ctx: Context, text: str) -> str:
        await ctx.sleep_until(at(_clock.now() + HOUR))
        if ctx.attempt == 1:
            raise ValueError(text)
        return text

    agent = agent_of(MemoryStore(), clumsy.retry(attempts=2, wait=0))
    await agent.run("x", run_id="r")
    assert night.now == EVENING + 2 * HOUR


async def test_branches_sleep_at_once_and_a_pause_wakes_all(monkeypatch):
    """Each has a time of its own, recorded in its branch."""
    night = Endless().install(monkeypatch)
    agent = agent_of(MemoryStore(), parallel(sleeper, sleeper.named("other")))
    run = agent.start("x", run_id="r")

    async def pause():
        while len(night.slept) < 2:
            await anyio.lowlevel.checkpoint()
        run.pause()

    assert await asleep(night, run, pause) == []
    assert run.status == "paused"
    morning = Night(EVENING + HOUR).install(monkeypatch)
    assert (await agent.resume("r")).output == ("x, rested", "x, rested")
    assert morning.slept == []


async def test_a_race_with_a_node_that_sleeps_ends_when_the_other_is_done(monkeypatch):
    """The sleeping branch is cancelled."""
    night = Endless().install(monkeypatch)

    @node
    async def work(ctx: Context, text: str) -> str:
        await night.asleep.wait()
        return "worked"

    assert (await agent_of(MemoryStore(), race(sleeper, work)).run("x")).output == "worked"


def napping(store):
    """An agent with a helper whose tool sleeps."""

    @tool
    async def nap(ctx: Context) -> str:
        """Nap."""
        await ctx.sleep_until(at(_clock.now() + HOUR))
        return "rested"

    def says(name, arguments, end):
        return ScriptedModel([ToolCalls([ToolCall(name, arguments, "c")]), end])

    helper = Agent(single_run(), model=says("nap", {}, "helped"), tools=[nap], name="helper", description="Helps.")
    return Agent(single_run(), model=says("helper", {"task": "t"}, "done"), tools=[helper], store=store)


async def test_a_tool_of_a_sub_agent_sleeps_and_a_pause_of_the_run_around_wakes_it(monkeypatch):
    """Its time is recorded under the id of the call, so the call that is made again finds it."""
    night, store = Endless().install(monkeypatch), MemoryStore()
    agent = napping(store)
    run = agent.start("x", run_id="r")

    async def pause():
        run.pause()

    assert await asleep(night, run, pause) == []
    assert run.status == "paused"
    morning = Night(EVENING + HOUR - 1000).install(monkeypatch)
    assert (await run.finish()).output == "done"
    assert morning.slept == [1]
    (part,) = [head.run_id for head in await list_runs(store) if head.parent]
    assert part.startswith("r/helper/")
    assert list((await recorded(agent)).values()) == [at(EVENING + HOUR)]


# ---- looking back


async def test_a_rerun_takes_the_recorded_time(night):
    """It does not sleep until a time that is past, and says the same."""
    agent = agent_of(MemoryStore())
    await agent.run("x", run_id="r")
    night.slept.clear()
    assert (await agent.rerun("r")).output == "x, rested"
    assert night.slept == []


async def test_a_difference_of_runs_tells_nothing_of_when_they_slept(night):
    """Runs that did the same at other times are the same."""
    agent = agent_of(MemoryStore())
    await agent.run("x", run_id="a")
    await agent.run("x", run_id="b")
    times = [await recorded(agent, run_id) for run_id in ("a", "b")]
    assert times == [{"sleep:1": at(EVENING + HOUR)}, {"sleep:1": at(EVENING + 2 * HOUR)}]
    diff = await agent.diff("a", "b")
    assert (diff.only_a, diff.only_b) == ((), ())
