"""A node sleeps until a time that is recorded before it sleeps. Nobody need be there until then, and it never begins anew."""

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
from graphagent.errors import AnswerError, NodeFailedError, NodeTimeoutError, ThreadBusyError
from graphagent.events import RunSuspended
from graphagent.llm import ToolCall, ToolCalls
from graphagent.log._header import read_due
from graphagent.nodes import ask_human, sleep
from graphagent.run import _sleep, list_runs
from graphagent.store import MemoryStore
from graphagent.testing import ScriptedModel, fixed_clock
from graphagent_strategies import single_run
from tests.run.lives import Watched, cut
from tests.store.leased import Leased
from tests.thorough import examples

pytestmark = pytest.mark.every_loop

EVENING = 1_735_761_600_000
"""20:00 on New Year's Day 2025, in milliseconds UTC."""
HOUR = 3_600_000


def at(moment):
    return datetime.fromtimestamp(moment / 1000, UTC)


@pytest.fixture
def clock():
    with fixed_clock(EVENING, 0) as fixed:
        yield fixed


@node
async def sleeper(ctx: Context, text: str) -> str:
    await ctx.sleep(timedelta(hours=1))
    return f"{text}, rested"


def agent_of(store=None, element=sleeper, **options):
    return Agent(Strategy("s", START >> element >> END), store=store, **options)


async def recorded(agent, run_id="r"):
    """Return the times that the journal of a run has, by the keys of the sleeps."""
    return {each.key: each.value for each in await agent.history(run_id) if "sleep:" in each.key}


# ---- suspended


@pytest.mark.parametrize("stored", [False, True])
async def test_a_run_that_sleeps_is_suspended_until_then(clock, stored):
    """It says when; resumed earlier, it does nothing and says the same; and from then on it continues where it was."""
    suspended = []
    agent = agent_of(MemoryStore() if stored else None)
    agent.on(RunSuspended, lambda event: suspended.append(event.reason))
    result = await agent.run("x", run_id="r")
    assert (result.status, result.due, suspended) == ("sleeping", at(EVENING + HOUR), ["sleeping"])
    assert repr(result).startswith("<run 'r': it sleeps until 2025-01-01 21:00:00+00:00")
    if stored:
        ((due, _, found, strategy),) = await read_due(agent.store, EVENING + HOUR, 10)
        assert (due, found, strategy) == (EVENING + HOUR, "r", "s")
        (head,) = await list_runs(agent.store)
        assert (head.status, head.claim, head.due) == ("sleeping", None, EVENING + HOUR)
    go_on = partial(agent.resume, "r") if stored else agent.last.finish
    entries = len(await agent.history("r")) if stored else 0
    clock.move(timedelta(minutes=59))
    result = await go_on()
    assert (result.status, result.due) == ("sleeping", at(EVENING + HOUR))
    assert not stored or len(await agent.history("r")) == entries
    clock.move(timedelta(minutes=1))
    result = await go_on()
    assert (result.output, result.due, result.nodes) == ("x, rested", None, 1)
    assert not stored or await read_due(agent.store, EVENING + 2 * HOUR, 10) == []


async def test_the_clock_of_a_store_judges_where_it_has_one(clock, tmp_path):
    """Processes whose clocks are hours apart agree, on sleeps and on deadlines."""
    store = Leased(MemoryStore(), tmp_path / "claims.db")
    store.claims.late = 5 * HOUR
    agent = agent_of(store, parallel(sleeper, ask_human("Well?", str, deadline=timedelta(hours=2), default="no")))
    assert (await agent.run("x", run_id="r")).due == at(EVENING + 6 * HOUR)
    clock.move(timedelta(hours=-3))  # of another process
    store.claims.late = 9 * HOUR
    assert (await agent.resume("r")).due == at(EVENING + 7 * HOUR)
    store.claims.late = 10 * HOUR
    assert (await agent.resume("r")).output == ("x, rested", "no")


async def test_a_tap_sleeps_and_passes_its_input_on(clock):
    """`sleep` in a strategy: seconds or a timedelta."""
    agent = Agent(
        Strategy("s", START >> sleep(1.5) >> sleeper >> sleep(timedelta(days=1), name="on") >> END), store=MemoryStore()
    )
    dues = [(await agent.run("x", run_id="r")).due]
    for due in (at(EVENING + HOUR + 1500), at(EVENING + HOUR + 86_401_500)):
        clock.move(dues[-1] - at(_clock.now()))
        dues.append((await agent.resume("r")).due)
        assert dues[-1] == due
    clock.move(timedelta(days=1))
    assert (await agent.resume("r")).output == "x, rested"


async def test_nobody_sleeps_until_a_time_that_is_past(clock):
    """Neither until one that is over nor until this very moment; the time is recorded all the same."""

    @node
    async def late(ctx: Context, text: str) -> str:
        await ctx.sleep_until(at(EVENING - 1))
        await ctx.sleep(0)
        return text

    agent = agent_of(MemoryStore(), late)
    assert (await agent.run("x", run_id="r")).done
    assert await recorded(agent) == {"sleep:1": at(EVENING - 1), "sleep:2": at(EVENING)}


@pytest.mark.parametrize(
    "time",
    [
        datetime(2025, 1, 1, 20, 0, 0, 1, tzinfo=UTC),
        datetime(2025, 1, 1, 21, 0, 0, 1, tzinfo=ZoneInfo("Europe/Paris")),
        datetime(2025, 1, 1, 9, 30, 0, 1, tzinfo=timezone(-timedelta(hours=10, minutes=30))),
    ],
)
async def test_a_time_in_any_zone_is_never_cut_short(clock, time):
    """A microsecond after 20:00 is not yet reached at 20:00."""

    @node
    async def waits(ctx: Context, text: str) -> str:
        await ctx.sleep_until(time)
        return text

    agent = agent_of(MemoryStore(), waits)
    assert time <= (await agent.run("x", run_id="r")).due < time + timedelta(milliseconds=1)
    assert (await agent.resume("r")).status == "sleeping"
    clock.move(timedelta(milliseconds=1))
    assert (await agent.resume("r")).done


async def test_the_last_time_of_all_can_be_slept_until_and_shown_in_every_zone(clock):
    """Also as the deadline of a question: whoever writes it means that it never comes."""
    never = datetime.max.replace(tzinfo=UTC)

    @node
    async def waits(ctx: Context, text: str) -> str:
        await (ctx.ask("?", str, deadline=never) if text == "ask" else ctx.sleep_until(never))
        return text

    agent = agent_of(MemoryStore(), waits)
    for text in ("ask", "sleep"):
        assert (await agent.run(text)).due.astimezone(timezone(timedelta(hours=14))).year == 9999


@pytest.mark.parametrize(
    ("wait", "kind", "text"),
    [
        (
            lambda ctx: ctx.sleep_until(at(EVENING).replace(tzinfo=None)),
            ValueError,
            r"node 'waits' sleeps until a datetime without a time zone; write .*UTC",
        ),
        (lambda ctx: ctx.sleep_until(3600), TypeError, r"node 'waits' sleeps until an int; give a datetime"),
        (lambda ctx: ctx.sleep("1h"), TypeError, r"node 'waits': ctx.sleep='1h' is not a number"),
        (lambda ctx: ctx.sleep(timedelta(hours=-1)), ValueError, r"node 'waits': ctx.sleep: -3600.0 seconds are not"),
        (
            lambda ctx: ctx.sleep(float("nan")),
            ValueError,
            r"node 'waits': ctx.sleep: nan seconds are not between 0 and",
        ),
    ],
)
async def test_what_names_no_moment_is_refused(wait, kind, text):
    """The error says what to write; nothing is recorded."""

    @node
    async def waits(ctx: Context, value: str) -> str:
        await wait(ctx)
        return value

    agent = agent_of(MemoryStore(), waits)
    with pytest.raises(NodeFailedError) as caught:
        await agent.run("x", run_id="r")
    assert type(caught.value.__cause__) is kind
    assert re.match(text, str(caught.value.__cause__))
    assert await recorded(agent) == {}


@pytest.mark.parametrize(
    ("seconds", "kind"), [("1h", TypeError), (True, TypeError), (-1, ValueError), (float("inf"), ValueError)]
)
def test_a_tap_that_names_no_span_of_time_is_refused_when_it_is_made(seconds, kind):
    """The error says what to give."""
    with pytest.raises(kind, match="'sleep' sleeps for"):
        sleep(seconds)


async def test_an_answer_and_the_next_message_find_a_run_that_sleeps(clock):
    """It waits for no answer, and its thread is busy until somebody ends it."""
    agent = agent_of(MemoryStore())
    await agent.run("x", run_id="r", thread="t")
    with pytest.raises(AnswerError, match="waits for no answer"):
        await agent.resume("r", answer="yes")
    with pytest.raises(ThreadBusyError, match="is sleeping"):
        await agent.run("y", thread="t")
    assert (await agent.end("r")).status == "ended"
    assert (await agent.read("r")).result.due is None


@settings(max_examples=examples(30, 8))
@given(later=st.lists(st.integers(1, 3 * HOUR), min_size=3, max_size=3))
def test_a_run_that_is_resumed_after_any_entry_keeps_its_times(later):
    """A time that was recorded stays, one that was not is computed anew, and the node ends at the last time or when it is resumed."""
    anyio.run(_keeps_its_times, later)


async def _keeps_its_times(later):
    @node
    async def twice(ctx: Context, text: str) -> str:
        await ctx.sleep(timedelta(hours=1))
        await ctx.sleep_until(at(_clock.now() + HOUR))
        return text

    store, commits = Watched(), []
    with fixed_clock(EVENING, 0) as clock:
        agent = agent_of(store, twice)
        result = await agent.run("x", run_id="r")
        for by in later:
            clock.move(timedelta(milliseconds=by))
            result = await agent.resume("r")
        clock.move(timedelta(hours=2))
        while not (result := await agent.resume("r")).done:
            clock.move(timedelta(hours=1))
        times = await recorded(agent)
        commits = store.commits
    for number in range(1, len(commits)):
        with fixed_clock(EVENING + 9 * HOUR, 0) as clock:
            left = agent_of(await cut(commits[:number]), twice)
            known = await recorded(left)
            result = await left.resume("r")
            while not result.done:
                assert result.due == at(_clock.now() + HOUR)  # of one that was not recorded
                clock.move(timedelta(hours=1))
                result = await left.resume("r")
            found = await recorded(left)
            assert known.items() <= times.items() & found.items()


# ---- in the process


class Pieces:
    """Waiting that takes no time and moves the clock."""

    def __init__(self, clock):
        self.clock, self.waited = clock, []
        self.shown = None
        """By how many seconds each of the next pieces moves the clock, where it is set meanwhile."""

    def move_on_after(self, seconds):
        self.waited.append(seconds)
        self.clock.move(timedelta(seconds=self.shown.pop(0) if self.shown else seconds))
        return anyio.move_on_after(0)


@pytest.fixture
def pieces(clock, monkeypatch):
    found = Pieces(clock)
    monkeypatch.setattr(_sleep, "move_on_after", found.move_on_after)
    return found


class Beside:
    """A node that works until it is told to end, beside one that sleeps."""

    def __init__(self):
        self.begun, self.over = anyio.Event(), anyio.Event()

        @node
        async def work(ctx: Context, text: str) -> str:
            self.begun.set()
            await self.over.wait()
            return "worked"

        @node
        async def waker(ctx: Context, text: str) -> str:
            await ctx.sleep(timedelta(hours=1))
            self.over.set()
            return "woken"

        self.work, self.waker = work, waker


async def test_beside_work_a_branch_sleeps_in_the_process(pieces):
    """In pieces of at most a minute, by the clock: set back, it sleeps on; set forward, it has overslept by no more than a piece."""
    beside = Beside()
    result = await agent_of(MemoryStore(), parallel(beside.work, beside.waker)).run("x")
    assert (result.output, pieces.waited) == (("worked", "woken"), [60] * 60)
    pieces.waited, pieces.shown = [], [-5, 3604.999, 7200]
    beside = Beside()
    assert (await agent_of(None, parallel(beside.work, beside.waker)).run("x")).done
    assert pieces.waited == [60, 60, 0.001]


async def test_the_run_is_suspended_when_the_last_branch_that_works_has_ended(clock):
    """Also one inside another fork, and tasks that a node gathers; what worked is not executed again."""
    worked = []

    @node
    async def work(ctx: Context, text: str) -> str:
        for _ in range(5):
            await anyio.lowlevel.checkpoint()
        worked.append(ctx.node)
        return text

    @node
    async def gathers(ctx: Context, text: str) -> str:
        async def rest(own):
            await own.sleep(timedelta(hours=1))
            return text

        async def busy(own):
            return await own.once("busy", partial(work_once, ctx))

        return "".join(await ctx.gather([rest, busy, rest]))

    async def work_once(ctx):
        await anyio.lowlevel.checkpoint()
        worked.append(ctx.node)
        return "b"

    agent = agent_of(MemoryStore(), parallel(sleeper, parallel(work, sleeper.named("other"), name="inner"), gathers))
    assert (await agent.run("x", run_id="r")).due == at(EVENING + HOUR)
    assert sorted(worked) == ["parallel/1/inner/0/work", "parallel/2/gathers"]
    clock.move(timedelta(hours=1))
    result = await agent.resume("r")
    assert result.output == ("x, rested", ("x", "x, rested"), "xbx")
    assert len(worked) == 2


@pytest.mark.parametrize("stored", [False, True])
async def test_a_race_with_a_time_is_won_by_what_ends_first(pieces, stored):
    """Work that ends earlier, and the time where the work takes longer; what lost is cancelled, and the run goes on."""
    store = MemoryStore() if stored else None

    @node
    async def quick(ctx: Context, text: str) -> str:
        return "worked"

    @node
    async def never(ctx: Context, text: str) -> str:
        await anyio.sleep_forever()
        return text

    assert (await agent_of(store, race(sleeper, quick)).run("x")).output == "worked"
    assert (await agent_of(store, race(never, sleeper)).run("x")).output == "x, rested"
    nested = race(Strategy("first", START >> race(sleeper, quick, name="inner") >> never >> END), sleeper)
    assert (await agent_of(store, nested).run("x")).output == "x, rested"


async def test_a_short_sleep_is_waited_for_in_the_process():
    """Suspending the run would cost more; and a sleep that a time limit would break off is not executed, so it is no matter of that."""
    store = MemoryStore()

    @node
    async def nap(ctx: Context, text: str) -> str:
        await ctx.sleep(0.01)
        return text

    assert (await agent_of(store, parallel(nap, nap.named("other"))).run("x")).output == ("x", "x")
    assert (await agent_of(store, sleeper.timeout(1), max_seconds=1).run("x")).status == "sleeping"


async def test_a_time_limit_ends_work_beside_a_sleep():
    """The limit is for what is executed."""
    beside = Beside()
    with pytest.raises(NodeFailedError) as caught:
        await agent_of(None, parallel(beside.work.timeout(0.01), beside.waker)).run("x")
    assert type(caught.value.__cause__.__cause__ or caught.value.__cause__) is NodeTimeoutError


@pytest.mark.parametrize("stored", [False, True])
@pytest.mark.parametrize("from_thread", [False, True])
async def test_a_pause_wakes_a_branch_that_sleeps(clock, stored, from_thread):
    """From a task or from a thread; what is resumed sleeps until the same time."""
    beside = Beside()
    agent = agent_of(MemoryStore() if stored else None, parallel(sleeper, beside.work))
    run = agent.start("x", run_id="r")
    async with anyio.create_task_group() as group:
        group.start_soon(run.finish)
        await beside.begun.wait()
        await anyio.wait_all_tasks_blocked()
        if from_thread:
            thread = threading.Thread(target=partial(blocking(run).pause, "lunch"))
            thread.start()
            await anyio.to_thread.run_sync(thread.join)
        else:
            run.pause("lunch")
        beside.over.set()
    assert (run.status, run.result.due) == ("paused", None)
    clock.move(timedelta(minutes=59))
    result = await (agent.resume("r") if stored else run.finish())
    assert (result.status, result.due) == ("sleeping", at(EVENING + HOUR))


async def test_a_run_that_is_to_pause_does_not_fall_asleep(clock):
    """It stops before the time is recorded, and computes it anew."""

    @node
    async def tired(ctx: Context, text: str) -> str:
        if not paused:
            paused.append(text)
            run.pause("wait")
        await ctx.sleep(timedelta(hours=1))
        return text

    paused = []
    agent = agent_of(MemoryStore(), tired)
    run = agent.start("x", run_id="r")
    assert (await run.finish()).status == "paused"
    assert await recorded(agent) == {}
    clock.move(timedelta(hours=1))
    assert (await run.finish()).due == at(EVENING + 2 * HOUR)


async def test_a_node_that_is_tried_again_sleeps_anew(clock):
    """What an attempt had recorded is forgotten with it."""

    @node
    async def clumsy(ctx: Context, text: str) -> str:
        await ctx.sleep(timedelta(hours=1))
        if ctx.attempt == 1:
            raise ValueError(text)
        return text

    agent = agent_of(MemoryStore(), clumsy.retry(attempts=2, wait=0))
    await agent.run("x", run_id="r")
    clock.move(timedelta(hours=1))
    assert (await agent.resume("r")).due == at(EVENING + 2 * HOUR)
    clock.move(timedelta(hours=1))
    assert (await agent.resume("r")).done


async def test_a_tool_of_a_sub_agent_sleeps_and_so_does_the_run_around(clock):
    """Its time is recorded under the id of the call, so the call that is made again finds it; the model is not asked again."""

    @tool
    async def nap(ctx: Context) -> str:
        """Nap."""
        await ctx.sleep(timedelta(hours=1))
        return "rested"

    def says(name, arguments, end):
        return ScriptedModel([ToolCalls([ToolCall(name, arguments, "c")]), end])

    suspended = []
    helper = Agent(single_run(), model=says("nap", {}, "helped"), tools=[nap], name="helper", description="Helps.")
    store = MemoryStore()
    agent = Agent(single_run(), model=says("helper", {"task": "t"}, "done"), tools=[helper], store=store)
    agent.on(RunSuspended, lambda event: suspended.append((event.run_id.partition("/")[0], event.reason)))
    result = await agent.run("x", run_id="r")
    assert (result.status, result.due) == ("sleeping", at(EVENING + HOUR))
    assert suspended == [("r", "sleeping"), ("r", "sleeping")]
    (part,) = [head for head in await list_runs(store) if head.parent]
    assert part.status == "sleeping"
    clock.move(timedelta(hours=1))
    assert (await agent.resume("r")).output == "done"
    assert list((await recorded(agent)).values()) == [at(EVENING + HOUR)]


# ---- looking back


async def test_a_rerun_and_a_fork_take_the_recorded_time(clock):
    """They do not sleep until a time that is past."""
    agent = agent_of(MemoryStore())
    await agent.run("x", run_id="r")
    clock.move(timedelta(hours=1))
    await agent.resume("r")
    assert (await agent.rerun("r")).output == "x, rested"
    assert (await agent.fork("r", at=2)).output == "x, rested"


async def test_a_difference_of_runs_tells_nothing_of_when_they_slept(clock):
    """Runs that did the same at other times are the same."""
    agent = agent_of(MemoryStore())
    for run_id in ("a", "b"):
        await agent.run("x", run_id=run_id)
        clock.move(timedelta(hours=1))
        await agent.resume(run_id)
    times = [await recorded(agent, run_id) for run_id in ("a", "b")]
    assert times == [{"sleep:1": at(EVENING + HOUR)}, {"sleep:1": at(EVENING + 2 * HOUR)}]
    diff = await agent.diff("a", "b")
    assert (diff.only_a, diff.only_b) == ((), ())
