"""A cancellation that nobody asked for is an error where it came from; one that somebody asked for stays a cancellation."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import math

import anyio
import pytest
from anyio.lowlevel import checkpoint
from hypothesis import given, settings
from hypothesis import strategies as st

from graphagent import END, START, Agent, Context, Strategy, each, node, parallel, race, tool
from graphagent._raised import awaited
from graphagent.errors import (
    HandlerError,
    LeakedCancellationError,
    ModelRequestError,
    NodeFailedError,
    NodeTimeoutError,
    ToolTimeoutError,
)
from graphagent.graph import Retry
from graphagent.llm import FallbackModel, Message, ModelResponse, RetryModel, ToolCall, ToolCalls, ToolResult, Usage
from graphagent.memory import ActionStep  # noqa: TC001  its annotation chooses the steps
from graphagent.nodes import llm_request
from graphagent.protocols import Feature
from graphagent.run import RunStream, list_runs
from graphagent.store import MemoryStore
from graphagent.testing import ScriptedModel
from graphagent_strategies import single_run
from tests.thorough import examples

pytestmark = pytest.mark.every_loop


async def leak() -> None:
    """Raise a cancellation that was asked for elsewhere: as a shared task does on asyncio, as a kept outcome does on trio."""
    if anyio.get_cancelled_exc_class() is asyncio.CancelledError:
        task = asyncio.ensure_future(asyncio.sleep(9))
        task.cancel()
        await task
    kept: list[BaseException] = []
    with anyio.CancelScope() as scope:
        scope.cancel()
        try:
            await checkpoint()
        except BaseException as error:
            kept.append(error)
            raise
    raise kept.pop()


class Shared:
    """A request that several tasks wait for: who is cancelled cancels it for all."""

    def __init__(self) -> None:
        self._asked: asyncio.Task[None] | None = None
        self._ended, self._raised = anyio.Event(), None

    async def get(self) -> str:
        if anyio.get_cancelled_exc_class() is asyncio.CancelledError:
            self._asked = self._asked or asyncio.ensure_future(asyncio.sleep(9))
            await self._asked
        elif self._asked is None:
            self._asked = True
            try:
                await anyio.sleep(9)
            except BaseException as error:
                self._raised = error
                raise
            finally:
                self._ended.set()
        else:
            await self._ended.wait()
            raise self._raised
        return "got"


@node
async def step(ctx: Context, said: str) -> str:
    await leak()
    return "unreached"


@node
async def other(ctx: Context, said: str) -> str:
    for _ in range(20):
        await checkpoint()
    return "other"


def only(element, store=None):
    return Agent(Strategy("s", START >> element >> END), store=store)


def leaked(error):
    """Return the leak at the bottom of an error."""
    while not isinstance(error, LeakedCancellationError):
        error = error.__cause__
    assert isinstance(error.__cause__, anyio.get_cancelled_exc_class())
    return error


# ---- nodes and forks


@pytest.mark.parametrize("durable", [False, True], ids=["memory", "store"])
@pytest.mark.parametrize(
    ("element", "given"),
    [
        (step, "x"),
        (parallel(step, other), "x"),
        (parallel(other, step, limit=1), "x"),
        (each(step), ["a", "b", "c", "d"]),
    ],
    ids=["no fork", "parallel", "limited", "each"],
)
async def test_a_leak_fails_the_node_that_it_came_from(element, given, durable):
    """The error names the node, its cause is the cancellation, and the run is recorded as failed and not as cancelled."""
    agent = only(element, MemoryStore() if durable else None)
    with pytest.raises(NodeFailedError, match="LeakedCancellationError") as raised:
        await agent.run(given, run_id="r") if durable else await agent.run(given)
    assert leaked(raised.value).where.endswith("step'")
    if durable:
        [run] = await list_runs(agent.store)
        assert (run.status, "LeakedCancellationError" in run.reason) == ("failed", True)
        assert not [each for each in await agent.history("r") if each.kind == "NodeFailed" and each.entry.cancelled]


@pytest.mark.parametrize("store", [None, MemoryStore()], ids=["memory", "store"])
async def test_forks_take_a_leak_as_any_error(store):
    """A fork that collects failures has it in its place, also when the run is read again; the sound branch of a race wins."""
    agent = only(parallel(step, other, failures="collect"), store)
    failed, sound = (await agent.run("x")).output
    assert (type(failed), sound) == (NodeFailedError, "other")
    assert failed.reason.startswith("LeakedCancellationError: node ")
    items = (await only(each(step, failures="collect"), store).run(["a", "b"])).output
    assert [type(item) for item in items] == [NodeFailedError] * 2
    assert (await only(race(step, other), store).run("x")).output == "other"
    with pytest.raises(NodeFailedError) as raised:
        await only(race(step, step), store).run("x")
    assert leaked(raised.value)


@pytest.mark.parametrize("store", [None, MemoryStore()], ids=["memory", "store"])
async def test_a_request_that_two_branches_share_is_cancelled_by_one(store):
    """The branch with the time limit has a timeout, and the other one a leak: neither has a result that nobody computed."""
    shared = Shared()

    @node(name="first")
    async def first(ctx: Context, said: str) -> str:
        return await shared.get()

    @node(name="second")
    async def second(ctx: Context, said: str) -> str:
        return await shared.get()

    fork = parallel(first.timeout(0.1), second.timeout(60), failures="collect")
    with anyio.fail_after(600):
        failed = (await only(fork, store).run("x")).output
    assert [each.reason.partition(":")[0] for each in failed] == ["NodeTimeoutError", "LeakedCancellationError"]


async def test_retries_and_error_edges_take_a_leak():
    """A node that leaked is tried again, and an edge for every error takes what is left."""
    tries: list[int] = []

    @node
    async def unsteady(ctx: Context, said: str) -> str:
        tries.append(1)
        if len(tries) < 3:
            await leak()
        return "third"

    assert (await only(unsteady.retry(attempts=3, wait=0)).run("x")).output == "third"

    @node
    async def told(ctx: Context, error: Exception) -> str:
        return type(error).__name__

    strategy = Strategy("s", START >> step >> END, step.on_error(Exception) >> told >> END)
    assert (await Agent(strategy).run("x")).output == "LeakedCancellationError"


@pytest.mark.parametrize("limit", [None, 1, 2])
async def test_what_a_node_gathers_leaks(limit):
    """An error comes out of `ctx.gather`, however many are executed at once, and the node can take it."""

    async def work(ctx: Context) -> str:
        await leak()
        return "unreached"

    async def sound(ctx: Context) -> str:
        return "sound"

    @node
    async def gathers(ctx: Context, said: str) -> str:
        return " ".join(await ctx.gather([sound, work, sound], limit=limit))

    with pytest.raises(NodeFailedError) as raised:
        await only(gathers).run("x")
    assert leaked(raised.value)


async def cancel_own_task():
    """Cancel the task that this is executed in, as the timer of a library does that is too late."""
    task = asyncio.current_task()
    task.cancel()
    await asyncio.sleep(0)


@node
async def cancels(ctx: Context, said: str) -> str:
    await cancel_own_task()
    return "unreached"


@node
async def gathers_cancels(ctx: Context, said: str) -> str:
    async def work(ctx: Context) -> str:
        await cancel_own_task()
        return "unreached"

    return " ".join(await ctx.gather([work, work]))


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.parametrize("store", [None, MemoryStore()], ids=["memory", "store"])
async def test_a_library_that_cancels_the_task_of_a_branch_fails_the_branch(store):
    """A group of tasks would end as if all had returned; the limit of one branch at a time does not pass it on to the next."""
    for element, value in ((parallel(cancels, other), "x"), (each(cancels), ["a", "b"]), (race(cancels, cancels), "x")):
        with pytest.raises(NodeFailedError) as raised:
            await only(element, store).run(value)
        assert leaked(raised.value).where.endswith("/cancels'")
    with pytest.raises(NodeFailedError) as raised:
        await only(gathers_cancels, store).run("x")
    assert leaked(raised.value).where == "task 1 of 2"
    fork = parallel(cancels, other, cancels, other, failures="collect", limit=1)
    output = (await only(fork, store).run("x")).output
    assert [each if isinstance(each, str) else type(each) for each in output] == [NodeFailedError, "other"] * 2
    assert (await only(race(cancels, other), store).run("x")).output == "other"


def cancelling_others():
    """Return a node that cancels all tasks that are younger than it, except its own."""
    older = asyncio.all_tasks()

    @node
    async def cancels_others(ctx: Context, said: str) -> str:
        for task in asyncio.all_tasks() - older - {asyncio.current_task()}:
            task.cancel()
        await asyncio.sleep(0.01)
        return "done"

    return cancels_others


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.filterwarnings("ignore:.*was never awaited", "ignore::pytest.PytestUnraisableExceptionWarning")
async def test_a_library_that_cancels_a_task_before_it_begins_fails_the_fork():
    """No code is in that task yet that could tell."""
    with pytest.raises(NodeFailedError) as raised:
        await only(parallel(cancelling_others(), other)).run("x")
    error = raised.value.__cause__
    assert (type(error), error.where) == (LeakedCancellationError, "one of 2 tasks")
    gc.collect()  # asyncio warns of that task


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_library_that_cancels_the_task_of_a_stream_fails_the_stream():
    """The loop over its events does not end as if the run had."""
    with pytest.raises(LeakedCancellationError, match=r"^the stream"):
        [event async for event in only(cancels).stream("x")]


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_library_that_cancels_the_task_of_the_heartbeat_does_not_end_a_run():
    """The claim of a run in a store is renewed in a task of its own, which goes on."""
    agent = Agent(Strategy("s", START >> other >> cancelling_others() >> END), store=MemoryStore())
    assert (await agent.run("x")).output == "done"


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
@pytest.mark.parametrize("store", [None, MemoryStore()], ids=["memory", "store"])
async def test_a_library_that_cancels_its_task_and_catches_that_does_not_end_the_run(store):
    """As timers of older libraries do, without `uncancel`: nothing that graphagent cancels itself is taken for it."""

    @node
    async def catches(ctx: Context, said: str) -> str:
        with contextlib.suppress(asyncio.CancelledError):
            await cancel_own_task()
        return "caught"

    run = asyncio.ensure_future(only(catches, store).run("x"))
    assert (await run).output == "caught"


# ---- tools, middleware, callbacks, models


@tool
async def fetch(name: str) -> str:
    """Fetch something."""
    await leak()
    return "unreached"


def asking(*calls, tools=(fetch,), **more):
    return Agent(
        single_run(parallel_tools=len(calls)),
        model=ScriptedModel([ToolCalls(list(calls)), "done"]),
        tools=list(tools),
        **more,
    )


@pytest.mark.parametrize("store", [None, MemoryStore()], ids=["memory", "store"])
async def test_a_tool_that_leaks_gives_an_error_result(store):
    """The model sees which tool it was, of one call and of several at once."""
    for number in (1, 3):
        agent = asking(*(ToolCall("fetch", {"name": str(each)}) for each in range(number)), store=store)
        assert (await agent.run("x")).output == "done"
        parts = [part for message in agent.model.requests[-1].messages for part in message.parts]
        results = [part for part in parts if isinstance(part, ToolResult)]
        assert [each.is_error for each in results] == [True] * number
        assert all(each.content.startswith("Error: LeakedCancellationError: tool 'fetch'") for each in results)


async def test_a_plain_tool_whose_own_event_loop_leaks_gives_an_error_result():
    """Its cancellation is that of asyncio, also where the loop of the run is another one."""

    @tool
    def scrape() -> str:
        """Fetch something."""

        async def main():
            task = asyncio.ensure_future(asyncio.sleep(9))
            task.cancel()
            await task

        asyncio.run(main())
        return "unreached"

    agent = asking(ToolCall("scrape", {}), tools=[scrape])
    assert (await agent.run("x")).output == "done"
    assert "LeakedCancellationError: tool 'scrape'" in str(agent.model.requests[-1].messages[-1])


async def test_a_tool_that_leaked_is_tried_again():
    """`retry=` takes a leak as any error."""
    tries: list[int] = []

    @tool(retry=Retry(2, wait=0), timeout=60)
    async def unsteady() -> str:
        """Fetch something, at the second time."""
        tries.append(1)
        if len(tries) == 1:
            await leak()
        return "second"

    assert await unsteady.call({}) == "second"


class Leaky(Feature):
    """Leaks in one of its methods."""

    def __init__(self, method: str) -> None:
        self.method = method

    async def begin(self, ctx):
        await self._leak("begin")

    async def ended(self, ctx, output):
        await self._leak("ended")

    async def around_tool(self, ctx, call, proceed):
        await self._leak("around_tool")
        return await proceed(call)

    async def around_model(self, ctx, request, proceed):
        await self._leak("around_model")
        return await proceed(request)

    async def around_node(self, ctx, value, proceed):
        await self._leak("around_node")
        return await proceed(value)

    async def _leak(self, method):
        if method == self.method:
            await leak()


@pytest.mark.parametrize("method", ["begin", "ended", "around_tool", "around_model", "around_node"])
@pytest.mark.parametrize("store", [None, MemoryStore()], ids=["memory", "store"])
async def test_a_feature_that_leaks_fails_with_its_name(method, store):
    """Each method of a feature is named by the error, whoever called it."""

    @tool
    async def sound() -> str:
        """Work."""
        return "sound"

    agent = asking(ToolCall("sound", {}), tools=[sound], store=store)
    agent.install(Leaky, method)
    with pytest.raises((NodeFailedError, LeakedCancellationError)) as raised:
        await agent.run("x")
    assert leaked(raised.value).where == f"Leaky.{method}"


async def test_a_callback_that_leaks_is_a_handler_that_failed():
    """It ends the run as any error of a callback does."""

    async def save(step: ActionStep) -> None:
        await leak()

    with pytest.raises(HandlerError) as raised:
        await asking(ToolCall("fetch", {"name": "a"}), step_callbacks=[save]).run("x")
    assert leaked(raised.value).where == "the function 'save'"


class Breaking:
    """A model whose connection ends, as often as it is told."""

    name = "breaking"

    def __init__(self, times: float = math.inf) -> None:
        self.times = times

    async def respond(self, request, on_text=None):
        """Answer."""
        self.times -= 1
        if self.times >= 0:
            await leak()
        return ModelResponse(Message.assistant("answered"), Usage())


@pytest.mark.parametrize("stream", [False, True])
async def test_a_model_that_leaks_is_a_server_that_broke_off(stream):
    """It is asked again, or the next one is; otherwise the node fails with the error of a request."""

    async def answer(model):
        agent = Agent(Strategy("s", START >> llm_request() >> END), model=model)
        return "".join([text async for text in agent.stream("x").text()]) if stream else (await agent.run("x")).output

    if not stream:
        assert await answer(FallbackModel(Breaking(), ScriptedModel(["second"]))) == "second"
        assert await answer(RetryModel(Breaking(1), Retry(2, wait=0))) == "answered"
    with pytest.raises(NodeFailedError) as raised:
        await answer(Breaking())
    assert isinstance(raised.value.__cause__, ModelRequestError)
    assert leaked(raised.value).where == "model 'breaking'"


async def test_a_stream_of_a_run_that_cannot_be_read_raises_it():
    """The loop over the events does not end as if nothing had happened."""

    async def read():
        await leak()

    with pytest.raises(LeakedCancellationError):
        [event async for event in RunStream(read)]


async def test_learning_in_the_background_that_leaks_is_raised_by_settle():
    """The run keeps its answer, and what was not learned stays due."""

    class Learner(Leaky):
        background = True

    store = MemoryStore()
    agent = Agent(Strategy("s", START >> other >> END), store=store)
    agent.install(Learner, "ended")
    assert (await agent.run("x")).output == "other"
    with pytest.raises(LeakedCancellationError, match=r"^Learner\.ended raised"):
        await agent.settle()
    [run] = await list_runs(store)
    assert run.status == "done"


# ---- cancellations that somebody asked for


async def cancelled_by(kind, agent):
    """Cancel a run as a caller does, and return what came out."""
    if kind == "scope":
        with anyio.move_on_after(0.05) as scope:
            await agent.run("x", run_id="r")
        return scope.cancelled_caught
    if kind == "timeout":
        try:
            async with asyncio.timeout(0.05):
                await agent.run("x", run_id="r")
        except TimeoutError:
            return asyncio.current_task().cancelling() == 0
    if kind == "wait_for":
        try:
            await asyncio.wait_for(agent.run("x", run_id="r"), 0.05)
        except TimeoutError:
            return asyncio.current_task().cancelling() == 0
    task = asyncio.ensure_future(agent.run("x", run_id="r"))
    await asyncio.sleep(0.05)
    task.cancel()
    try:
        await task
    except asyncio.CancelledError:
        return task.cancelled()
    return False


@node
async def waits(ctx: Context, said: str) -> str:
    """Waits, and while it is cancelled awaits a task that is cancelled too."""
    try:
        await anyio.sleep(60)
    finally:
        await leak()
    return ""


@pytest.mark.parametrize(
    "element", [waits, parallel(waits, waits), race(waits, waits), waits.retry(attempts=3, wait=0)]
)
async def test_a_caller_cancels_a_run(element, anyio_backend):
    """It is recorded as cancelled, also where a leak comes at the same time, and the caller's own limit takes it."""
    for kind in ("scope", "timeout", "wait_for", "task") if anyio_backend == "asyncio" else ("scope",):
        store = MemoryStore()
        assert await cancelled_by(kind, only(element, store))
        [run] = await list_runs(store)
        assert run.status == "cancelled"


async def ended(fork, moments, cancel_at, by):
    """Return what a run gave or raised, None if it was cancelled, and its status in the store.

    Each branch takes some moments, and then leaks if that number is even. After `cancel_at` moments its caller cancels it.
    """

    async def work(number: int) -> str:
        for _ in range(moments[number]):
            await checkpoint()
        if moments[number] % 2 == 0:
            await leak()
        return f"done {number}"

    def branch(number):
        @node(name=f"branch{number}")
        async def call(ctx: Context, said: str) -> str:
            return await work(number)

        return call

    @node
    async def item(ctx: Context, number: int) -> str:
        return await work(number)

    branches = [branch(number) for number in range(len(moments))]
    element, given = {
        "each": (each(item, failures="collect"), list(range(len(moments)))),
        "parallel": (parallel(*branches, failures="collect"), "x"),
        "race": (race(*branches), "x"),
    }[fork]
    agent, found = only(element, MemoryStore()), []

    async def run() -> None:
        try:
            found.append((await agent.run(given, run_id="r")).output)
        except NodeFailedError as error:
            found.append(error)

    if by == "task":
        task = asyncio.ensure_future(run())
        for _ in range(cancel_at):
            await checkpoint()
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled() == (not found)
    else:
        async with anyio.create_task_group() as group:
            with anyio.CancelScope() as scope:
                group.start_soon(_after, cancel_at, scope.cancel)
                await run()
        assert scope.cancelled_caught == (not found)
    return found[0] if found else None, [each.status for each in await list_runs(agent.store)]


async def _after(moments, call):
    for _ in range(moments):
        await checkpoint()
    call()


def says_leak(error):
    return isinstance(error, NodeFailedError) and error.reason.startswith("LeakedCancellationError: node ")


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
@given(
    fork=st.sampled_from(["each", "parallel", "race"]), moments=st.lists(st.integers(0, 12), min_size=2, max_size=4),
    cancel_at=st.integers(0, 80), by=st.sampled_from(["scope", "task"]),
)  # fmt: skip
@settings(max_examples=examples(300, 60))
def test_a_leak_is_neither_an_output_nor_a_cancellation(backend, fork, moments, cancel_at, by):
    """Whenever branches leak and a caller cancels, an output is of what was done, and a run is cancelled by its caller alone."""
    found, statuses = anyio.run(
        ended, fork, moments, cancel_at, by if backend == "asyncio" else "scope", backend=backend
    )
    sound = [f"done {number}" if each % 2 else None for number, each in enumerate(moments)]
    if found is None:
        assert statuses in ([], ["interrupted"], ["cancelled"])  # before it began, while it began, or later
    elif fork == "race":
        assert found in sound if any(sound) else says_leak(found)
        assert statuses == ["done" if any(sound) else "failed"]
    else:
        for output, right in zip(found, sound, strict=True):
            assert output == right if right else says_leak(output)
        assert statuses == ["done"]


async def test_a_scope_that_is_cancelled_in_the_moment_of_a_leak_is_left():
    """A cancellation that was asked for, and is not delivered yet, wins."""
    with anyio.CancelScope() as scope:

        @node
        async def both(ctx: Context, said: str) -> str:
            try:
                await leak()
            finally:
                scope.cancel()
            return ""

        await only(both, MemoryStore()).run("x")
    assert scope.cancelled_caught


async def test_time_limits_are_theirs():
    """Limits of nodes and tools that run out are their errors, also where what they cancel raises a cancellation of its own."""
    with pytest.raises(NodeFailedError) as raised:
        await only(waits.timeout(0.05)).run("x")
    assert isinstance(raised.value.__cause__, NodeTimeoutError)

    @tool(timeout=0.05)
    async def slow() -> str:
        """Wait."""
        try:
            await anyio.sleep(60)
        finally:
            await leak()
        return ""

    with pytest.raises(ToolTimeoutError):
        await slow.call({})


async def test_scopes_and_groups_of_a_node_are_its_own():
    """What a node cancels itself does not get out, and leaves nothing behind that would hide a later leak."""

    @node
    async def own(ctx: Context, said: str) -> str:
        with anyio.move_on_after(0.01) as scope:
            await anyio.sleep(60)
        async with anyio.create_task_group() as group:
            group.start_soon(anyio.sleep, 60)
            group.cancel_scope.cancel()
        if anyio.get_cancelled_exc_class() is asyncio.CancelledError:
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.01):
                    await asyncio.sleep(60)
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(asyncio.sleep(60)).cancel()
        return str(scope.cancelled_caught)

    assert (await only(own).run("x")).output == "True"
    strategy = Strategy("s", START >> own >> step >> END)
    with pytest.raises(NodeFailedError, match="LeakedCancellationError"):
        await Agent(strategy).run("x")


def test_a_coroutine_is_closed_where_no_event_loop_is_running():
    """That is not a cancellation, and the coroutine ends in silence."""

    class Waiting:
        def __await__(self):
            yield

    coroutine = awaited(Waiting(), "it")
    coroutine.send(None)
    coroutine.close()
