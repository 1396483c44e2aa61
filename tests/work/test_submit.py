"""Runs that are submitted: in the store entirely or not at all, begun by whoever comes first, in the order of their thread."""

from __future__ import annotations

import os
import signal
from datetime import UTC, datetime, timedelta
from functools import partial

import anyio
import pytest

from graphagent import END, START, Agent, Context, Strategy, node
from graphagent.errors import (
    RunError,
    RunExistsError,
    ThreadBusyError,
    ThreadFullError,
    TooManyDeathsError,
)
from graphagent.history import verify_runs
from graphagent.log._internal import SUBMITTED
from graphagent.nodes import ask_human
from graphagent.run import list_runs
from graphagent.store import EncryptedStore, MemoryStore, SqliteStore, new_key
from graphagent.testing import fixed_clock
from graphagent.work._execute import execute


@node
async def shout(ctx: Context, text: str) -> str:
    return text.upper()


loud = Strategy("loud", START >> shout >> END)


@pytest.fixture(params=["memory", "sqlite", "sealed"])
def store(request, tmp_path):
    """A store of each kind."""
    if request.param == "memory":
        return MemoryStore()
    plain = SqliteStore(tmp_path / "runs.db")
    return plain if request.param == "sqlite" else EncryptedStore(plain, new_key())


async def test_what_is_submitted_is_executed_by_another_agent_over_the_same_store(store):
    """Until then it is queued, in every list; afterwards it is a run as any other one, and nothing of the submission is left."""
    handle = await Agent(loud, store=store).submit("hello", run_id="a", owner="ada")
    assert (handle.run_id, handle.owner, await handle.status()) == ("a", "ada", "queued")
    [head] = await list_runs(store, owner="ada", status=["queued"])
    assert (head.title, head.queue, head.due > 0, head.running) == ("hello", "default", True, False)
    assert (await handle.result()).status == "queued"
    outcome = await execute(Agent(loud, store=store), "ada", "a")
    assert outcome.did == "executed"
    assert (await handle.wait(1)).output == "HELLO"
    assert [item async for item in store.scan((SUBMITTED,))] == []
    assert (await execute(Agent(loud, store=store), "ada", "a")).did == "resting"


@node
async def reply(ctx: Context, text: str) -> str:
    """What was said in the thread so far."""
    said = [step.task for step in ctx.memory.steps if hasattr(step, "task")]
    return " ".join(said)


def talker(store):
    return Agent(Strategy("talk", START >> reply >> END), store=store)


asking = Strategy("asking", START >> ask_human("Sure?", bool) >> END)


async def test_messages_of_a_thread_are_executed_in_order_one_after_the_other(store):
    """Whoever comes first executes the first, and each sees what was said before; one for later holds up nobody."""
    agent, later = talker(store), datetime.now(UTC) + timedelta(hours=1)
    for number, text in enumerate("abcd"):
        await agent.submit(text, thread="t", run_id=str(number), at=later if text == "b" else None)
    assert [(await execute(agent, "", each)).did for each in "321"] == ["held", "held", "early"]
    assert await execute(agent, "", "0") == ("executed", "2", None)
    assert (await execute(agent, "", "3")).did == "held"
    async with anyio.create_task_group() as group:
        for each in "2323":
            group.start_soon(execute, agent, "", each)
    await execute(agent, "", "3")
    with fixed_clock(round(later.timestamp() * 1000)):
        assert (await execute(agent, "", "1")).did == "executed"
    assert [(await agent.read(each)).output for each in "0231"] == ["a", "a c", "a c d", "a c d b"]
    assert await verify_runs(store) == 4


async def test_a_run_that_waits_for_a_person_holds_the_next_of_its_thread_or_is_ended_for_it(store):
    """By default the next waits; it is refused, or ends the one that waits, where that is asked for; and only so many wait."""
    agent = Agent(asking, store=store)
    await agent.submit("a", thread="t", run_id="a", max_queued=2)
    assert (await execute(agent, "", "a")).did == "executed"
    assert (await agent.handle("a").wait(1)).status == "waiting"
    with pytest.raises(ThreadBusyError, match="'a' of thread 't' is waiting"):
        await agent.submit("b", thread="t", if_busy="refuse")
    await agent.submit("b", thread="t", run_id="b", max_queued=2)
    assert (await execute(agent, "", "b")).did == "held"
    with pytest.raises(ThreadBusyError, match="'b' of thread 't' is queued"):
        await agent.submit("c", thread="t", if_busy="refuse")
    await agent.submit("c", thread="t", run_id="c", max_queued=2, if_busy="end")
    with pytest.raises(ThreadFullError, match="2 submitted runs of thread 't' wait already"):
        await agent.submit("d", thread="t", max_queued=2)
    assert [(await execute(agent, "", each)).did for each in "bc"] == ["executed", "executed"]
    assert [head.status for head in await list_runs(store)] == ["waiting", "ended", "ended"]


async def test_the_same_task_under_the_same_id_is_the_same_run(store):
    """Before it was begun and afterwards; another task is an error that changes nothing."""
    agent = talker(store)
    for _ in range(2):
        handle = await agent.submit("x" * 40_000, run_id="a", thread="t")
    assert len(await list_runs(store)) == 1
    with pytest.raises(RunExistsError):
        await agent.submit("other", run_id="a", thread="t")
    with pytest.raises(RunExistsError):
        await agent.submit("x" * 40_000, run_id="a")
    await execute(agent, "", "a")
    again = await agent.submit("x" * 40_000, run_id="a", thread="t")
    assert (await again.wait(1)).output == (await handle.result()).output == "x" * 40_000
    with pytest.raises(RunExistsError):
        await agent.submit("other", run_id="a", thread="t")


async def test_submits_and_workers_that_come_together_lose_and_double_nothing(store):
    """Of ten that submit the same run there is one; of those that execute it one does; a thread has each message once, in some order."""
    agent = talker(store)
    async with anyio.create_task_group() as group:
        for number in range(5):
            group.start_soon(partial(agent.submit, str(number), thread="t", run_id=f"m{number}"))
            group.start_soon(partial(agent.submit, "same", run_id="one"))
    while left := await list_runs(store, status=["queued"]):
        async with anyio.create_task_group() as group:
            for head in left * 2:
                group.start_soon(execute, agent, "", head.run_id)
    last = max([(await agent.read(f"m{number}")).output for number in range(5)], key=len)
    assert (sorted(last.split()), len(await list_runs(store))) == (list("01234"), 6)


@pytest.mark.parametrize("kind", ["async", "plain", "of the run"])
async def test_deps_are_made_where_the_run_is_executed_and_none_are_passed(kind):
    """Once for a run, also of one that is resumed or of a sub-agent; what a caller passes comes first, and a wrong type is an error."""
    made = []

    async def later():
        made.append("async")
        return 7

    def of_run(run):
        made.append(run.run_id)
        return 7

    @node
    async def count(ctx: Context[int], text: str) -> str:
        return f"{text}{ctx.deps}"

    inner = Agent(Strategy("inner", START >> count >> END), name="inner")
    strategy = Strategy("counting", START >> count >> ask_human("Sure?", str) >> inner.as_node() >> END)
    factory = {"async": later, "plain": lambda: made.append("plain") or 7, "of the run": of_run}[kind]
    agent = Agent(strategy, store=MemoryStore(), deps_factory=factory)
    await agent.submit("a", run_id="a")
    await execute(agent, "", "a")
    result = await agent.resume("a", answer="b")
    assert (result.output, made) == ("b7", 2 * [{"of the run": "a"}.get(kind, kind)])
    assert (await agent.run("a", deps=1)).questions[0].about == "a1"
    assert len(made) == 2
    wrong = Agent(strategy, deps_factory=lambda: "text")
    with pytest.raises(TypeError, match=r"takes Context\[int\], and deps= is a str; write Agent\(…, deps_factory=…\)"):
        await wrong.run("a")
    with pytest.raises(TypeError, match=r"deps_factory= is a function of nothing, or of the run.*needs a, b"):
        Agent(strategy, deps_factory=lambda a, b: None)


def _killed(path, how):
    async def submit_or_execute():
        @node
        async def die(ctx: Context, text: str) -> str:
            os.kill(os.getpid(), signal.SIGKILL)
            return text

        agent = Agent(Strategy("loud", START >> die.named("shout") >> END), store=SqliteStore(path))
        if how == "submit":
            await agent.submit("hello", run_id="a")
            os.kill(os.getpid(), signal.SIGKILL)
        await execute(agent, "", "a")

    pid = os.fork()
    if not pid:
        anyio.run(submit_or_execute)
        os._exit(1)
    assert os.waitpid(pid, 0)[1] == signal.SIGKILL


def test_processes_that_die_lose_nothing_and_five_deaths_are_enough(tmp_path):
    """A run that was submitted waits, one whose process died is continued, and after five deaths it fails with the reason."""
    path = tmp_path / "runs.db"
    agent = Agent(loud, store=SqliteStore(path))
    _killed(path, "submit")

    async def status():
        return await agent.handle("a").status()

    assert anyio.run(status) == "queued"
    for _ in range(5):
        _killed(path, "execute")
        assert anyio.run(status) == "interrupted"
    outcome = anyio.run(execute, agent, "", "a")
    assert isinstance(outcome.error, TooManyDeathsError)
    result = anyio.run(agent.handle("a").wait)
    assert (result.status, anyio.run(execute, agent, "", "a").did) == ("failed", "resting")
    with pytest.raises(RunError, match="5 processes died while they executed run 'a'"):
        _ = result.output
    assert anyio.run(agent.resume, "a").output == "HELLO"
