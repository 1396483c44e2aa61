"""Runs that are answered, resumed, paused and ended by programs that have their store alone; a worker has the agent."""

from __future__ import annotations

import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from typing import Annotated, ClassVar

import anyio
import anyio.to_thread
import pytest
from pydantic import AfterValidator

from graphagent import END, START, Agent, Context, Strategy, node, parallel, tool
from graphagent.errors import AnswerError, NodeFailedError, RunClaimedError, RunEndedError, RunError, RunNotFoundError
from graphagent.history import answer_run, end_run, list_questions, pause_run, read_run, resume_run
from graphagent.llm import Approve, Deny, Message, ToolCall
from graphagent.memory import Step
from graphagent.nodes import Denied, approval, ask_human, passthrough
from graphagent.run import _session as heartbeat
from graphagent.store import EncryptedStore, MemoryStore, SqliteStore, new_key
from graphagent.store.postgres import PostgresStore
from graphagent.testing import ScriptedModel
from graphagent.work import Worker
from graphagent.work._execute import execute
from graphagent_strategies import single_run
from tests import forkserver


@dataclass
class Seat:
    """An answer of a type of the program with the agent."""

    row: int
    window: bool = False


@dataclass
class Mood(Step):
    """A step of a user."""

    kind: ClassVar[str] = "mood of a test"
    mood: str

    def to_messages(self) -> list[Message]:
        """Return it as the model reads it."""
        return [Message.user(self.mood)]


def even(number: int) -> int:
    """Return a number; the schema of the type does not say that it must be even."""
    if number % 2:
        raise ValueError("it is odd")
    return number


sign = approval("Sign it?", name="sign")
asking = Strategy(
    "asking",
    START >> parallel(ask_human("Which seat?", Seat, name="seat"), sign, name="both") >> END,
)


@node
async def note(ctx: Context, sure: bool) -> str:
    """Return what was answered."""
    return f"sure: {sure}"


@tool(approve=True)
def pay(euros: int) -> str:
    """Pay an amount."""
    return f"paid {euros}"


@tool(deferred=True)
def courier(order: str) -> str:  # type: ignore[empty-body]
    """Ask the courier."""


@pytest.fixture(params=["memory", "sqlite", "sealed", "postgres"])
def stores(request, tmp_path):
    """Return a function that opens the same store anew, as another process does."""
    if request.param == "memory":
        store = MemoryStore()
        return lambda: store
    if request.param == "postgres":
        dsn = request.getfixturevalue("postgres_dsn")
        return lambda: PostgresStore(dsn)
    key = new_key()
    plain = lambda: SqliteStore(tmp_path / "runs.db")
    return plain if request.param == "sqlite" else lambda: EncryptedStore(plain(), key)


async def test_a_run_is_answered_by_its_store_alone_and_a_worker_continues_it(stores):
    """What the schemas do not allow is refused, and nothing is written; the rest is recorded, with who decided, and read by its type."""
    agent, store = Agent(asking, store=stores()), stores()
    async with Worker(Agent(asking, store=stores()), sweep=0.05):
        handle = await agent.submit("the contract", run_id="a", owner="ann")
        await handle.wait()
        ids = {each.question.node: each.question.id for each in await list_questions(store)}
        seat, verdict = ids["both/0/seat"], ids["both/1/sign"]
        for wrong in (
            {seat: {"row": "x"}},
            {verdict: "ok"},
            {seat: {"row": 3}, verdict: Approve(arguments={})},
            {"no": 1},
        ):
            with pytest.raises(AnswerError) as refused:
                await answer_run(store, "a", answers=wrong, owner="ann")
            assert refused.value.run_id == "a"
        with pytest.raises(AnswerError, match="waits for several answers"):
            await answer_run(store, "a", True, owner="ann")
        assert (await read_run(store, "a", owner="ann")).head.status == "waiting"
        given = {seat: {"row": 3}, verdict: Approve(by="Ada")}
        assert (await answer_run(store, "a", answers=given, owner="ann")).status == "queued"
        taken, signed = (await handle.wait()).output
    assert (taken, signed.by, signed.at is not None) == (Seat(3), "Ada", True)
    with pytest.raises(AnswerError, match="'a' has ended and waits for no answer"):
        await answer_run(store, "a", True, owner="ann")
    for missing, owner in (("a", ""), ("b", "ann")):
        with pytest.raises(RunNotFoundError):
            await answer_run(store, missing, True, owner=owner)
    with pytest.raises(TypeError, match="no answer was given"):
        await answer_run(store, "a", owner="ann")


async def test_calls_of_tools_are_approved_declined_and_answered_by_their_store_alone():
    """Arguments may be changed: the model is told of those that the tool does not take, and the tool is not called."""
    calls = [
        ToolCall("pay", {"euros": 5}, id="p"),
        ToolCall("pay", {"euros": 6}, id="q"),
        ToolCall("pay", {"euros": 7}, id="r"),
        ToolCall("courier", {"order": "lamp"}, id="c"),
    ]
    agent = Agent(single_run(), model=ScriptedModel([*calls, "Done."]), tools=[pay, courier], store=MemoryStore())
    result = await agent.run("Go.", run_id="a")
    for answer in (Approve(arguments={"euros": 50}), Approve(arguments={"euros": "much"}), Deny("too much")):
        await answer_run(agent.store, "a", answer)
        await agent.resume("a")
    with pytest.raises(AnswerError, match="no open question 'd'; open are: 'c'"):
        await answer_run(agent.store, "a", results={"d": "on Friday"})
    await answer_run(agent.store, "a", results={"c": "on Friday"})
    result = await agent.resume("a")
    told = [each.content for message in result.memory.to_messages() for each in message.tool_results]
    assert (told[0], told[3], result.output) == ("paid 50", "on Friday", "Done.")
    assert ("euros" in told[1], "too much" in told[2]) == (True, True)


@pytest.mark.parametrize("how", ["node", "ctx.ask"])
async def test_an_answer_that_the_type_refuses_is_asked_again(how):
    """A schema does not say what a validator does. The run is not lost: whoever continues it waits with the same question again."""
    Even = Annotated[int, AfterValidator(even)]

    @node
    async def count(ctx: Context, text: str) -> int:
        """Ask within a node, of whose type the process that answers knows nothing."""
        return await ctx.ask("How many?", Even)

    strategy = Strategy("even", START >> (count if how == "ctx.ask" else ask_human("How many?", Even)) >> END)
    agent = Agent(strategy, store=MemoryStore())
    await agent.submit("x", run_id="a")
    await execute(agent, "", "a")
    [first] = await list_questions(agent.store)
    await answer_run(agent.store, "a", 3)
    await execute(agent, "", "a")
    [again] = await list_questions(agent.store)
    assert (again.question.id, again.question.json_schema) == (first.question.id, {"type": "integer"})
    await answer_run(agent.store, "a", 4)
    await execute(agent, "", "a")
    assert (await agent.handle("a").result()).output == 4


@pytest.mark.every_loop
async def test_of_two_people_who_answer_one_question_the_second_is_told(stores):
    """Whether they have the agent or not: one answer is recorded, and the other one is an error that says so."""
    agent = Agent(Strategy("sure", START >> ask_human("Sure?", bool) >> END), store=stores())
    await agent.run("x", run_id="a")
    [waiting] = await list_questions(agent.store)
    told: list[Exception] = []
    recorded: list[bool] = []

    async def answer(given: bool) -> None:
        answers = {waiting.question.id: given}
        try:
            if given:
                await answer_run(stores(), "a", answers=answers)
            else:
                await Agent(agent.strategy, store=stores()).handle("a").answer(answers=answers)
        except AnswerError as error:
            told.append(error)
        else:
            recorded.append(given)

    async with anyio.create_task_group() as group:
        for given in (True, False, True):
            group.start_soon(answer, given)
    assert (len(recorded), {str(each) for each in told}) == (
        1,
        {f"run 'a' has no open question '{waiting.question.id}'; open are: none"},
    )
    assert (await agent.resume("a")).output is recorded[0]


async def test_two_people_can_answer_two_questions_of_a_run_at_once(stores):
    """Neither answer is lost, although both write to the same run."""
    agent = Agent(asking, store=stores())
    await agent.run("the contract", run_id="a")
    ids = {each.question.node: each.question.id for each in await list_questions(agent.store)}
    async with anyio.create_task_group() as group:
        group.start_soon(lambda: answer_run(stores(), "a", answers={ids["both/0/seat"]: {"row": 1}}))
        group.start_soon(lambda: answer_run(stores(), "a", answers={ids["both/1/sign"]: False}))
    seat, signed = (await agent.resume("a")).output
    assert (seat, type(signed)) == (Seat(1), Denied)


async def test_a_run_that_does_not_wait_is_not_answered():
    """One that has not begun, that a process executes, that was ended, or that is a part of another one: each with its error."""
    inside = anyio.Event()

    @node
    async def hold(ctx: Context, text: str) -> str:
        """Execute for ever once it has an answer."""
        await ctx.ask("Hold?", id="hold")
        inside.set()
        await anyio.sleep_forever()
        return text

    held = Strategy("held", START >> parallel(hold, ask_human("Sure?", bool, name="sure"), name="both") >> END)
    agent = Agent(held, store=MemoryStore())
    await agent.submit("x", run_id="queued")
    with pytest.raises(AnswerError, match="waits for no answer"):
        await answer_run(agent.store, "queued", True)
    await end_run(agent.store, "queued", "enough")
    with pytest.raises(RunEndedError, match="enough"):
        await answer_run(agent.store, "queued", True)
    asked = {each.node: each.id for each in (await agent.run("x", run_id="held")).questions}
    async with anyio.create_task_group() as group:
        group.start_soon(lambda: agent.resume("held", answers={"hold": "yes"}))
        await inside.wait()
        with pytest.raises(RunClaimedError):
            await answer_run(agent.store, "held", answers={asked["both/1/sure"]: True})
        group.cancel_scope.cancel()
    desk = Strategy("desk", START >> Agent(Strategy("sure", START >> ask_human("Sure?", bool) >> END)).as_node() >> END)
    outer = Agent(desk, store=agent.store)
    run = await outer.run("x", run_id="whole")
    with pytest.raises(RunError, match="is a part of run 'whole'"):
        await answer_run(agent.store, run.questions[0].run_id, True)
    await answer_run(agent.store, "whole", True)
    assert (await outer.resume("whole")).output is True


@pytest.mark.parametrize("how", ["handle", "store"])
async def test_a_run_that_has_stopped_is_taken_up_by_a_worker(stores, how):
    """One that was paused, failed or was cancelled: whoever resumes it executes nothing. Others stay as they are."""
    trouble = {"failed"}

    @node
    async def work(ctx: Context, what: str) -> str:
        """Do what the test says, and the second time what was asked for."""
        if what in trouble:
            raise ConnectionError("the server is away")
        if what == "cancelled" and what not in done:
            done.append(what)
            await anyio.sleep_forever()
        done.append(what)
        return what

    done: list[str] = []
    begin = passthrough(str, name="begin")
    strategy = Strategy("work", START >> begin >> work >> END)
    agent, worker = Agent(strategy, store=stores()), Agent(strategy, store=stores())
    paused = agent.start("paused", run_id="paused")
    paused.pause("lunch")
    await paused.finish()
    with pytest.raises(NodeFailedError):
        await agent.run("failed", run_id="failed")
    with anyio.move_on_after(0.05):
        await agent.run("cancelled", run_id="cancelled")
    trouble.clear()
    waiting = Agent(Strategy("sure", START >> ask_human("Sure?", bool) >> END), store=agent.store)
    await waiting.run("x", run_id="waiting")
    resume = (
        (lambda run_id: agent.handle(run_id).resume())
        if how == "handle"
        else lambda run_id: resume_run(stores(), run_id)
    )
    async with Worker(worker, sweep=0.05):
        for run_id in ("paused", "failed", "cancelled"):
            assert (await agent.handle(run_id).status()) == run_id
            await resume(run_id)
            assert (await agent.handle(run_id).wait()).output == run_id
    for run_id, status in (("paused", "done"), ("waiting", "waiting")):
        await resume(run_id)
        assert (await agent.handle(run_id).status()) == status
    assert sorted(done) == ["cancelled", "cancelled", "failed", "paused"]
    await end_run(agent.store, "waiting", "enough")
    with pytest.raises(RunEndedError, match="enough"):
        await resume("waiting")


@pytest.mark.every_loop
async def test_a_run_that_a_worker_executes_is_paused_and_ended_by_its_store_alone(stores, monkeypatch):
    """The worker stops before its next node, and has word of the next run of the thread. A process that is no worker hears nobody."""
    monkeypatch.setattr(heartbeat, "LOOK", 0.01)

    @node
    async def tick(ctx: Context, count: int) -> int:
        """Count on for ever, and let others look."""
        await anyio.sleep(0.01)
        return count + 1

    def agent():
        return Agent(strategy, store=stores(), max_nodes=None)

    strategy = Strategy(
        "ticking", START >> tick, tick.when(lambda count: count > 10_000) >> END, tick.otherwise() >> tick
    )
    here, store = agent(), stores()
    first = await here.submit(0, thread="t", owner="ann")
    second = await here.submit(0, thread="t", owner="ann")

    async def until(handle, status):
        found = ""
        while found != status:
            await anyio.sleep(0.01)
            with suppress(RunNotFoundError):
                found = await handle.status()

    assert (await pause_run(store, second.run_id, owner="ann")).status == "queued"
    async with Worker(agent(), sweep=0.05):
        await until(first, "running")
        paused = await pause_run(store, first.run_id, "lunch", owner="ann")
        assert (paused.status, paused.reason) == ("paused", "it was paused: lunch")
        await resume_run(store, first.run_id, owner="ann")
        await until(first, "running")
        ended = await end_run(store, first.run_id, "enough", owner="ann")
        assert (ended.status, ended.reason) == ("ended", "it was ended: enough")
        await until(second, "running")
        assert (await end_run(store, second.run_id, owner="ann")).status == "ended"
    async with anyio.create_task_group() as group:
        group.start_soon(lambda: here.run(0, run_id="held"))
        await until(here.handle("held"), "running")
        for stop in (pause_run, end_run):
            with pytest.raises(RunClaimedError):
                await stop(store, "held")
        group.cancel_scope.cancel()


async def test_a_run_with_steps_of_unknown_types_is_listed_answered_and_ended(monkeypatch):
    """A program without the agent has not imported them. They stay as they are stored, and the agent reads them."""

    @node
    async def feel(ctx: Context, text: str) -> str:
        """Add a step."""
        await ctx.add(Mood(text))
        return text

    agent = Agent(Strategy("moods", START >> feel >> ask_human("Sure?", bool) >> END), store=MemoryStore())
    await agent.run("fine", run_id="a")
    await agent.run("tired", run_id="b", thread="t")
    kinds = dict(Step.kinds)
    del kinds[Mood.kind]
    with monkeypatch.context() as patched:
        patched.setattr(Step, "kinds", kinds)
        assert [each.run_id for each in await list_questions(agent.store)] == ["a", "b"]
        await answer_run(agent.store, "a", True)
        await end_run(agent.store, "b")
    result = await agent.resume("a")
    after = await agent.run("again", thread="t")
    moods = [[each.mood for each in run.memory.steps if isinstance(each, Mood)] for run in (result, after)]
    assert (result.output, moods) == (True, [["fine"], ["tired", "again"]])


PROGRAM = """
from pathlib import Path

from graphagent import END, START, Agent, Context, Strategy, node
from graphagent.nodes import ask_human
from graphagent.store import SqliteStore


@node
async def note(ctx: Context, sure: bool) -> str:
    return f"sure: {sure}"


agent = Agent(Strategy("asking", START >> ask_human("Sure?", bool) >> note >> END), store=SqliteStore("runs.db"))
"""
ANSWER = """
import sys

import anyio

from graphagent.history import answer_run
from graphagent.errors import AnswerError, RunClaimedError
from graphagent.store import SqliteStore


async def main():
    for number in range(int(sys.argv[1])):
        try:
            await answer_run(SqliteStore("runs.db"), f"run-{number}", sys.argv[2] == "yes")
            print(f"run-{number}")
        except (AnswerError, RunClaimedError):
            pass


anyio.run(main)
"""


async def test_a_worker_continues_what_two_processes_answer_at_once(tmp_path):
    """Neither has the agent. Of each run one of the answers is recorded, and the worker's result is that one."""
    count = 8
    (tmp_path / "app.py").write_text(PROGRAM)
    (tmp_path / "answer.py").write_text(ANSWER)
    agent = Agent(
        Strategy("asking", START >> ask_human("Sure?", bool) >> note >> END), store=SqliteStore(tmp_path / "runs.db")
    )
    for number in range(count):
        await agent.submit("x", run_id=f"run-{number}")
    worker = forkserver.Popen(
        [sys.executable, "-m", "graphagent", "worker", "app.py:agent"], cwd=tmp_path, stderr=subprocess.DEVNULL
    )
    try:
        for number in range(count):
            await agent.handle(f"run-{number}").wait()
        answering = {
            word: forkserver.Popen(
                [sys.executable, "answer.py", str(count), word], cwd=tmp_path, stdout=subprocess.PIPE, text=True
            )
            for word in ("yes", "no")
        }
        recorded = {
            word: (await anyio.to_thread.run_sync(each.communicate))[0].split() for word, each in answering.items()
        }
        assert sorted(recorded["yes"] + recorded["no"]) == [f"run-{number}" for number in range(count)]
        for number in range(count):
            output = (await agent.handle(f"run-{number}").wait()).output
            assert output == f"sure: {f'run-{number}' in recorded['yes']}"
    finally:
        worker.terminate()
        await anyio.to_thread.run_sync(worker.wait)
