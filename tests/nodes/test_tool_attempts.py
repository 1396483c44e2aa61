"""Tools with a time limit, and tools that are tried again: what the model sees, how often they are called, what is recorded."""

from __future__ import annotations

import threading

import anyio
import pytest
from anyio.lowlevel import checkpoint

from graphagent import END, START, Agent, Context, Strategy, tool
from graphagent.errors import BudgetError, ModelRequestError, NodeFailedError, ScriptError, ToolError, ToolTimeoutError
from graphagent.events import ToolCalled, ToolReturned
from graphagent.graph import Retry
from graphagent.llm import Message, ModelRequest, ModelResponse, Tool, ToolCall, ToolCalls, Usage
from graphagent.llm._tools import call_tool
from graphagent.nodes import execute_tools, llm_request
from graphagent.store import SqliteStore
from graphagent.testing import ScriptedModel

ask, act = llm_request(), execute_tools()
REACT = Strategy("react", START >> ask, ask.on(ToolCalls) >> act >> ask, ask.on(str) >> END)
SCRIPT = [ToolCall("fetch"), "Done."]


def failing(*errors, **settings):
    """Return a tool that raises these errors, one in each attempt, and then says how often it was called."""
    calls = []

    @tool(**settings)
    async def fetch() -> str:
        """Fetch."""
        calls.append(1)
        if len(calls) <= len(errors):
            raise errors[len(calls) - 1]
        return f"attempt {len(calls)}"

    return fetch


async def called(fetch, context=None):
    result = await call_tool(fetch, ToolCall("fetch"), context=context)
    return result.content, result.is_error


async def test_a_tool_that_raises_is_tried_again(waits):
    """Until it succeeds, with growing waits; the model sees the result alone."""
    assert await called(failing(OSError("a"), ValueError("b"), retry=3)) == ("attempt 3", False)
    assert waits == [1, 2]


async def test_the_last_attempt_is_final(waits):
    """The model sees the last error; a tool without retry= is called once."""
    assert await called(failing(OSError("a"), ValueError("b"), retry=2)) == ("Error: ValueError: b", True)
    assert await called(failing(OSError("a"), retry=1)) == ("Error: OSError: a", True)
    assert await called(failing(OSError("a"))) == ("Error: OSError: a", True)
    assert waits == [1]


async def test_a_retry_says_after_which_errors_and_how_long(waits):
    """Its form is that of a node's retry; what a server asks to wait counts."""
    patient = Retry(4, wait=0.5, factor=4, max_wait=8, errors=(ConnectionError, ModelRequestError))
    refusal = ModelRequestError("too many requests", retry_after=7)
    assert await called(failing(ConnectionError(), refusal, ConnectionError(), retry=patient)) == ("attempt 4", False)
    assert waits == [0.5, 7, 8]
    assert await called(failing(ValueError("b"), retry=patient)) == ("Error: ValueError: b", True)
    later = ModelRequestError("too many requests", retry_after=9)  # asked earlier, it would refuse again
    assert await called(failing(later, retry=patient)) == ("Error: ModelRequestError: too many requests", True)


async def test_what_the_model_has_to_mend_is_not_tried_again(waits):
    """A ToolError is for the model, and arguments that do not fit stay as they are."""
    assert await called(failing(ToolError("no such city"), retry=3)) == ("Error: no such city", True)
    result = await call_tool(failing(retry=3), ToolCall("fetch", {"city": "Oslo"}))
    assert "the arguments of 'fetch' do not fit" in result.content
    assert waits == []


async def test_an_attempt_that_takes_too_long_is_cancelled(waits):
    """The model sees a ToolTimeoutError; with retry=, the tool is tried again, and each attempt has the whole time."""
    cancelled = []

    @tool(timeout=0.001, retry=3)
    async def fetch() -> str:
        """Fetch."""
        if len(cancelled) == 2:
            return "done"
        try:
            await anyio.sleep_forever()
        finally:
            cancelled.append(True)

    assert await called(fetch) == ("done", False)
    cancelled.clear()
    once = Tool("fetch", "Fetch.", fetch.parameters, fetch.run, timeout=0.001)
    result = await call_tool(once, ToolCall("fetch"))
    assert (result.content, result.is_error) == ("Error: 'fetch' did not return within 0.001 seconds", True)
    assert isinstance(result.value, ToolTimeoutError)
    assert isinstance(result.value, TimeoutError)
    assert (result.value.tool, result.value.seconds, cancelled) == ("fetch", 0.001, [True])


async def test_a_time_limit_is_not_taken_for_an_error_of_the_tool():
    """A TimeoutError of the tool's own, and an outer cancellation, stay what they are."""
    assert await called(failing(TimeoutError("of its own"), timeout=60)) == ("Error: TimeoutError: of its own", True)
    begun = anyio.Event()

    @tool(timeout=60, retry=3)
    async def fetch() -> None:
        """Fetch."""
        begun.set()
        await anyio.sleep_forever()

    with anyio.CancelScope() as scope:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(called, fetch)
            await begun.wait()
            scope.cancel()
    assert scope.cancelled_caught


async def test_a_plain_function_runs_on_in_its_thread():
    """Nobody waits for it, and what it returns is dropped."""
    begun, go, ended = threading.Event(), threading.Event(), threading.Event()

    @tool(timeout=0.01)
    def fetch() -> str:
        """Fetch."""
        begun.set()
        go.wait()
        ended.set()
        return "too late"

    try:
        while not begun.is_set():  # the time may be over before a thread was found
            assert await called(fetch) == ("Error: 'fetch' did not return within 0.01 seconds", True)
        assert not ended.is_set()
    finally:
        go.set()
    await anyio.to_thread.run_sync(ended.wait)


async def test_a_method_keeps_its_limit_and_its_retry(waits):
    """They belong to the tool, whichever object it is bound to; a plain method is not waited for either."""

    class Service:
        def __init__(self):
            self.release = threading.Event()

        @tool(timeout=0.001, retry=2)
        def fetch(self) -> str:
            """Fetch."""
            self.release.wait()
            return "too late"

    service = Service()
    try:
        assert await called(service.fetch) == ("Error: 'fetch' did not return within 0.001 seconds", True)
    finally:
        service.release.set()
    assert waits == [1]


async def test_a_call_with_several_attempts_is_one_call(waits):
    """It is told once, has one result, and its idempotency key is the same in every attempt."""
    keys = []

    @tool(retry=3)
    async def fetch(ctx: Context) -> str:
        """Fetch."""
        keys.append(ctx.idempotency_key)
        if len(keys) < 3:
            raise ConnectionError
        return "done"

    told = []
    agent = Agent(REACT, model=ScriptedModel(SCRIPT), tools=[fetch])
    agent.on(ToolCalled, lambda event: told.append("called"))
    agent.on(ToolReturned, lambda event: told.append(event.result.content))
    result = await agent.run("task")
    assert told == ["called", "done"]
    assert len(set(keys)) == 1
    assert result.memory.steps[1].observations == "done"


@pytest.mark.parametrize("settings", [{"retry": 2}, {"timeout": 0.001}])
async def test_a_recorded_result_is_not_tried_again(settings, waits, tmp_path):
    """A run that is resumed has the result, or the error, that was recorded."""
    calls = []

    @tool(**settings)
    async def fetch() -> str:
        """Fetch."""
        calls.append(1)
        if "timeout" in settings:
            await anyio.sleep_forever()
        raise ConnectionError("no")

    store = SqliteStore(tmp_path / "runs.db")
    model = ScriptedModel([ToolCall("fetch"), ModelRequestError("down"), "Done."])
    with pytest.raises(NodeFailedError):
        await Agent(REACT, model=model, tools=[fetch], store=store).run("task", run_id="r")
    made = len(calls)
    result = await Agent(REACT, model=model, tools=[fetch], store=store).resume("r")
    assert (result.output, len(calls)) == ("Done.", made)
    [given] = result.memory.steps[1].results
    assert given.is_error
    assert given.content in ("Error: ConnectionError: no", "Error: 'fetch' did not return within 0.001 seconds")


async def test_a_run_that_is_stopped_between_two_attempts_makes_the_call_again(monkeypatch, tmp_path):
    """With all its attempts, and the same idempotency key."""
    keys = []

    @tool(retry=2)
    async def fetch(ctx: Context) -> str:
        """Fetch."""
        keys.append(ctx.idempotency_key)
        if len(keys) < 3:
            raise ConnectionError
        return "done"

    store = SqliteStore(tmp_path / "runs.db")
    agent = Agent(REACT, model=ScriptedModel(SCRIPT), tools=[fetch], store=store)
    with anyio.CancelScope() as scope:

        async def cancel(seconds):
            scope.cancel()
            await checkpoint()

        with monkeypatch.context() as patched:
            patched.setattr(anyio, "sleep", cancel)
            await agent.run("task", run_id="r")
    assert (scope.cancelled_caught, len(keys)) == (True, 1)

    async def sleep(seconds):
        await checkpoint()

    monkeypatch.setattr(anyio, "sleep", sleep)
    result = await Agent(REACT, model=ScriptedModel(["Done."]), tools=[fetch], store=store).resume("r")
    assert (result.output, len(keys), len(set(keys))) == ("Done.", 3, 1)


async def test_what_the_attempts_spend_counts_and_a_used_up_budget_ends_the_run(waits):
    """The end of the run is not tried again, and no result for the model."""
    tried = []

    @tool(retry=5)
    async def fetch(ctx: Context) -> None:
        """Fetch."""
        tried.append(1)
        await ctx.request(ModelRequest((Message.user("Hello?"),)))
        raise ConnectionError

    calling = ModelResponse(Message.assistant("", [ToolCall("fetch")]), Usage(5, 5))
    model = ScriptedModel([calling, *[ModelResponse(Message.assistant("Hello."), Usage(5, 5))] * 2])
    with pytest.raises(BudgetError) as caught:
        await Agent(REACT, model=model, tools=[fetch], max_tokens=30).run("task")
    assert caught.value.result.usage.total_tokens == 30
    assert (len(tried), len(model.requests)) == (3, 3)


async def test_a_script_that_ends_in_an_attempt_ends_the_test(waits):
    """A ScriptError is nobody's to try again."""
    with pytest.raises(NodeFailedError) as caught:
        await Agent(REACT, model=ScriptedModel(SCRIPT), tools=[failing(ScriptError("over"), retry=3)]).run("task")
    assert isinstance(caught.value.__cause__, ScriptError)
    assert waits == []
