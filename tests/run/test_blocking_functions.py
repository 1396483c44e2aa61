"""Functions that block: what ends the waiting for them does so at once, and their threads are abandoned."""

from __future__ import annotations

import time
from contextlib import contextmanager
from threading import Event

import anyio
import pytest

from graphagent import END, START, Agent, Context, Strategy, node, parallel, race, tool
from graphagent._functions import MOST_ABANDONED
from graphagent.embed import CallableEmbedder
from graphagent.errors import AbandonedThreadsError, BudgetError, NodeFailedError, ToolTimeoutError
from graphagent.events import ThreadAbandoned
from graphagent.llm import ToolCall, ToolCalls
from graphagent.llm._tools import call_tool
from graphagent.memory import NoteMemory
from graphagent.memory.notes import Notes
from graphagent.nodes import execute_tools, llm_request
from graphagent.store import MemoryStore, SqliteStore
from graphagent.testing import ScriptedModel

pytestmark = pytest.mark.every_loop


@contextmanager
def blocking_tool(**options):
    """Yield a tool that returns only when the block is left, an event that it was called, and the list of what returned."""
    release, called, returned = Event(), Event(), list[str]()

    @tool(**options)
    def pay(amount: int) -> str:
        """Pay."""
        called.set()
        release.wait(60)
        returned.append("paid")
        return "paid"

    try:
        yield pay, called, returned
    finally:
        release.set()


async def until(condition):
    while not condition():  # noqa: ASYNC110  a thread changes it
        await anyio.sleep(0.001)


def paying(model, pay, acting, *, on_error=None, **options):
    ask = llm_request(name="ask")
    act = acting(execute_tools(name="act"))
    paths = [START >> ask, ask.on(ToolCalls) >> act >> ask, ask.on(str) >> END]
    if on_error is not None:
        paths.append(act.on_error(TimeoutError).map(lambda _: on_error) >> ask)
    return Agent(Strategy("payer", *paths), model=model, tools=[pay], **options)


@pytest.mark.parametrize("store", [None, MemoryStore])
async def test_a_time_limit_of_a_node_lets_go_of_a_plain_tool_and_the_model_sees_that_its_outcome_is_unknown(store):
    heard, seconds = [], 0.02
    with blocking_tool() as (pay, called, returned):
        while not called.is_set():  # on a machine that is busy, a short time may end before the thread has begun
            model = ScriptedModel([ToolCall("pay", {"amount": 5}), "Unknown."])
            agent = paying(
                model, pay, lambda act, seconds=seconds: act.timeout(seconds), on_error="What happened?",
                store=None if store is None else store(),
            )  # fmt: skip
            agent.on(ThreadAbandoned, heard.append)
            result = await agent.run("Pay.")
            seconds *= 2
        assert (result.status, result.output, returned) == ("done", "Unknown.", [])
        [event] = heard
        assert (event.run_id, event.node, event.function) == (result.run_id, "act", "pay")
        assert event.seconds > 0
        shown = "\n".join(part.content for part in model.requests[1].messages[-2].tool_results)
        assert "nobody knows whether it took effect" in shown


@pytest.mark.parametrize("store", [None, MemoryStore])
async def test_max_seconds_of_a_run_and_of_a_subgraph_let_go_of_a_plain_tool(store):
    with blocking_tool() as (pay, _, returned):
        given = None if store is None else store()
        inner = paying(ScriptedModel([]), pay, lambda act: act).strategy.using(max_seconds=0.05)
        for strategy, options in (
            (inner, {}),
            (paying(ScriptedModel([]), pay, lambda act: act).strategy, {"max_seconds": 0.05}),
        ):
            model = ScriptedModel([ToolCall("pay", {"amount": 5})])
            agent = Agent(Strategy("outer", START >> strategy >> END), model=model, tools=[pay], store=given, **options)
            with pytest.raises(BudgetError, match="seconds"):
                await agent.run("Pay.")
        assert returned == []


async def test_the_loser_of_a_race_and_the_branch_beside_a_failed_one_let_go_of_plain_tools():
    with blocking_tool() as (pay, called, returned):

        @node
        async def calls(ctx: Context, text: str) -> str:
            return (await ctx.call_tool(pay, ToolCall("pay", {"amount": 5}))).content

        @node
        async def wins(ctx: Context, text: str) -> str:
            await until(called.is_set)
            return "first"

        @node
        async def fails(ctx: Context, text: str) -> str:
            await until(called.is_set)
            raise ConnectionError("no line")

        heard = []
        agent = Agent(Strategy("s", START >> race(calls, wins) >> END))
        agent.on(ThreadAbandoned, heard.append)
        assert (await agent.run("x")).output == "first"
        called.clear()
        agent = Agent(Strategy("s", START >> parallel(calls, fails) >> END))
        agent.on(ThreadAbandoned, heard.append)
        with pytest.raises(NodeFailedError, match="ConnectionError"):
            await agent.run("x")
        assert [event.function for event in heard] == ["pay", "pay"]
        assert returned == []


async def test_a_cancelled_run_is_at_rest_at_once_and_makes_the_call_again_when_it_is_resumed():
    with blocking_tool() as (pay, called, returned):
        store = MemoryStore()
        model = ScriptedModel([ToolCall("pay", {"amount": 5}), "Paid."])
        agent = paying(model, pay, lambda act: act, store=store)
        async with anyio.create_task_group() as group:
            group.start_soon(lambda: agent.run("Pay.", run_id="r"))
            await until(called.is_set)
            group.cancel_scope.cancel()
        assert returned == []
        assert agent.last.status == "cancelled"
    await until(lambda: returned)
    assert (await agent.resume("r")).output == "Paid."
    assert returned == ["paid", "paid"]


async def test_an_error_of_a_handler_that_hears_of_an_abandoned_thread_replaces_no_cancellation():
    def raises(event):
        raise LookupError("handler")

    with blocking_tool() as (pay, called, _):
        agent = paying(ScriptedModel([ToolCall("pay", {"amount": 5})]), pay, lambda act: act)
        agent.on(ThreadAbandoned, raises)
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as group:
                group.start_soon(lambda: agent.run("Pay."))
                await until(called.is_set)
                scope.cancel()
        assert scope.cancelled_caught


async def test_with_as_many_abandoned_threads_as_there_may_be_blocking_tools_fail_until_some_end(tmp_path):
    with blocking_tool() as (pay, called, returned):
        for _ in range(MOST_ABANDONED):
            called.clear()
            async with anyio.create_task_group() as group:
                group.start_soon(call_tool, pay, ToolCall("pay", {"amount": 5}))
                await until(called.is_set)
                group.cancel_scope.cancel()
        result = await call_tool(pay, ToolCall("pay", {"amount": 5}))
        assert isinstance(result.value, AbandonedThreadsError)
        assert result.value.functions == {"pay": MOST_ABANDONED}
        assert f"'pay' ({MOST_ABANDONED})" in result.content
        # What needs threads itself goes on.
        async with SqliteStore(tmp_path / "runs.db") as store:
            assert [item async for item in store.scan(())] == []
    await until(lambda: len(returned) == MOST_ABANDONED)

    @tool
    def add(a: int) -> int:
        """Add."""
        return a + 1

    while (value := (await call_tool(add, ToolCall("add", {"a": 1}))).value) != 2:
        assert isinstance(value, AbandonedThreadsError)
        await anyio.sleep(0.001)


async def test_a_lost_race_lets_go_of_a_blocking_embedder_too():
    release, called = Event(), Event()

    def embed(texts):
        if texts == ["Ada likes tea."]:  # and not what is learned at the end of the run
            called.set()
            release.wait(60)
        return [[1.0, 0.0] for _ in texts]

    @node
    async def keeps(ctx: Context, text: str) -> str:
        await ctx.feature(NoteMemory).remember(text)
        return text

    @node
    async def waits(ctx: Context, text: str) -> str:
        await until(called.is_set)
        return text

    heard = []
    try:
        notes = Notes(MemoryStore(), embedder=CallableEmbedder(embed, name="slow-1"))
        agent = Agent(Strategy("s", START >> race(keeps, waits, name="first") >> END))
        agent.install(NoteMemory, notes)
        agent.on(ThreadAbandoned, heard.append)
        await agent.run("Ada likes tea.")
        assert [(event.node, event.function.rpartition(".")[2]) for event in heard] == [("first", "embed")]
    finally:
        release.set()


@pytest.mark.parametrize("store", [None, MemoryStore])
async def test_what_blocks_the_event_loop_until_after_its_limit_has_exceeded_it(store):
    @node
    async def blocks(ctx: Context, text: str) -> str:
        time.sleep(0.02)  # noqa: ASYNC251  it blocks the event loop
        return "done"

    @tool(timeout=0.001)
    async def naps() -> str:
        """Nap."""
        time.sleep(0.02)  # noqa: ASYNC251  it blocks the event loop
        return "rested"

    given = None if store is None else store()
    limited = blocks.timeout(0.001)
    result = await Agent(
        Strategy("s", START >> limited >> END, limited.on_error(TimeoutError).map(str) >> END), store=given
    ).run("x")
    assert result.output == "'blocks' took longer than 0.001 seconds, its .timeout"
    plain = Strategy("s", START >> blocks >> END)
    with pytest.raises(BudgetError):
        await Agent(plain, store=given, max_seconds=0.001).run("x")
    with pytest.raises(BudgetError):
        await Agent(Strategy("o", START >> plain.using(max_seconds=0.001) >> END), store=given).run("x")
    assert isinstance((await call_tool(naps, ToolCall("naps", {}))).value, ToolTimeoutError)
