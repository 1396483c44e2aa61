"""Policies of a node: retry, timeout, and in which order they wrap."""

from __future__ import annotations

import traceback

import anyio
import pytest

from graphagent import END, START, Agent, Context, Strategy, each, node, parallel, race, tool
from graphagent.errors import BudgetError, ModelRequestError, NodeFailedError
from graphagent.events import NodeFailed, NodeFinished, NodeStarted
from graphagent.llm import ToolCall, ToolCalls
from graphagent.memory import ActionStep
from graphagent.nodes import execute_tools, llm_request, passthrough
from graphagent.store import MemoryStore
from graphagent.testing import ScriptedModel
from tests.run.executors import both_executors  # noqa: F401  a fixture


def failing(times, error=ConnectionError, name="flaky"):
    """A node that fails so many times, and then says which attempt it is."""
    attempts = 0

    async def flaky(ctx: Context, _: object) -> int:
        nonlocal attempts
        attempts += 1
        if attempts <= times:
            raise error() if isinstance(error, type) else error
        return attempts

    return node(name=name)(flaky)


def only(step, **options):
    return Agent(Strategy("s", START >> step >> END), **options)


async def test_a_node_is_tried_again_until_it_succeeds(waits):
    """The output is that of the attempt that succeeded, and each attempt counts as a node execution."""
    result = await only(failing(2).retry(attempts=5)).run("x")
    assert (result.output, result.nodes) == (3, 3)


async def test_the_last_attempt_is_final(waits):
    """When all attempts fail, the node fails with the last error, and nobody waits behind the last attempt."""
    with pytest.raises(NodeFailedError) as info:
        await only(failing(9).retry(attempts=3)).run("x")
    assert isinstance(info.value.__cause__, ConnectionError)
    assert len(waits) == 2


async def test_one_attempt_is_no_retry(waits):
    """retry(attempts=1) tries once."""
    with pytest.raises(NodeFailedError):
        await only(failing(1).retry(attempts=1)).run("x")
    assert waits == []


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, [1, 2, 4, 8, 16]),
        ({"wait": 0.5, "factor": 3}, [0.5, 1.5, 4.5, 13.5, 40.5]),
        ({"wait": 10, "max_wait": 25}, [10, 20, 25, 25, 25]),
        ({"wait": 2, "factor": 1}, [2, 2, 2, 2, 2]),
        ({"wait": 0}, [0, 0, 0, 0, 0]),
    ],
)
async def test_waits_grow_by_a_factor_up_to_a_bound(waits, settings, expected):
    """The wait begins at `wait`, grows by `factor`, and never exceeds `max_wait`."""
    await only(failing(5).retry(attempts=6, **settings)).run("x")
    assert waits == expected


async def test_only_the_named_errors_are_tried_again(waits):
    """Errors of other types are final; several types may be named, and subclasses count."""
    for errors in (OSError, (KeyError, ConnectionError)):
        assert (await only(failing(1).retry(attempts=2, errors=errors)).run("x")).output == 2
    with pytest.raises(NodeFailedError):
        await only(failing(1, ValueError).retry(attempts=2, errors=OSError)).run("x")
    assert len(waits) == 2


@pytest.mark.parametrize(
    ("asked", "settings", "expected"),
    [(7.0, {}, [7.0, 7.0]), (1.5, {}, [1.5, 2]), (0.1, {}, [1, 2]), (60.0, {}, [60, 60]), (None, {}, [1, 2])],
    ids=["longer", "between", "shorter", "at the bound", "none"],
)
async def test_what_the_server_asks_to_wait_counts_where_it_is_longer(waits, asked, settings, expected):
    """An error's `retry_after` is waited, if it is longer than the own wait and within `max_wait`."""
    error = ModelRequestError("too many requests", status=429, retry_after=asked)
    await only(failing(2, error).retry(attempts=3, **settings)).run("x")
    assert waits == expected


@pytest.mark.parametrize("policy", ["node", "strategy"])
async def test_a_server_that_asks_for_a_longer_wait_than_the_bound_is_not_asked_too_early(waits, policy):
    """The error is final, and a note of it says why, wherever the policy is."""
    error = ModelRequestError("too many requests", status=429, retry_after=90)
    step = failing(2, error)
    step = step if policy == "node" else Strategy("inner", START >> step >> END)
    with pytest.raises(NodeFailedError) as info:
        await only(step.retry(attempts=3)).run("x")
    notes = [note for each in chain_of(info.value) for note in getattr(each, "__notes__", ())]
    assert (waits, notes) == ([], ["not tried again: the server asked to wait 90 seconds, and max_wait=60"])


def chain_of(error):
    while error is not None:
        yield error
        error = error.__cause__


async def test_what_the_server_asks_is_found_in_the_cause_of_a_subgraphs_failure(waits):
    """A retried strategy honours the `retry_after` of the node that failed inside, and looks at that node's error type."""
    error = ModelRequestError("too many requests", retry_after=9)
    inner = Strategy("inner", START >> failing(1, error) >> END)
    result = await only(inner.retry(attempts=2, errors=ModelRequestError)).run("x")
    assert (result.output, result.nodes, waits) == (2, 2, [9])


async def test_failed_attempts_are_told(waits):
    """NodeFailed is told for every attempt that fails; the node starts and finishes once."""
    told = []
    agent = only(failing(2).retry(attempts=3))
    agent.on(NodeStarted, lambda event: told.append("started"))
    agent.on(NodeFailed, lambda event: told.append(type(event.error).__name__))
    agent.on(NodeFinished, lambda event: told.append("finished"))
    await agent.run("x")
    assert told == ["started", "ConnectionError", "ConnectionError", "finished"]


async def test_a_model_that_is_asked_again_is_asked_the_same(waits):
    """A retried model turn is sent the same messages again; what failed stands in the transcript, for people alone."""
    model = ScriptedModel([ModelRequestError("a"), ModelRequestError("b"), "hello", ModelRequestError("c"), "bye"])
    ask = llm_request(tools=False).retry(attempts=3)
    again = llm_request(tools=False, name="again").retry(attempts=3)
    strategy = Strategy("s", START >> ask, ask.map(lambda said: f"{said}?") >> again >> END)
    result = await Agent(strategy, model=model).run("task")
    sent = [[message.text for message in request.messages] for request in model.requests]
    assert sent == [["task"]] * 3 + [["task", "hello", "hello?"]] * 2
    told = [
        f"{step.error.message} failed" if isinstance(step, ActionStep) and step.error else type(step).__name__
        for step in result.memory.steps
    ]
    assert told == [
        "TaskStep",
        "a failed",
        "b failed",
        "ActionStep",
        "c failed",
        "MessageStep",  # what the attempt had added is taken back, and added again
        "ActionStep",
        "FinalAnswerStep",
    ]
    assert (result.turns, result.nodes) == (5, 5)


async def test_attempts_end_when_the_nodes_are_used_up(waits):
    """A retry goes on to the budget and not beyond; the error is the budget's, and no retry takes it."""
    with pytest.raises(BudgetError) as info:
        await only(failing(99).retry(attempts=50), max_nodes=4).run("x")
    assert (info.value.result.nodes, len(waits)) == (4, 4)


async def test_a_used_up_budget_is_not_tried_again(waits):
    """A strategy whose own budget is used up is not retried, unless BudgetError is named."""
    ok = passthrough(str, name="ok")
    inner = Strategy("inner", START >> ok >> ok.named("b") >> END).using(max_nodes=1)
    with pytest.raises(BudgetError):
        await only(inner.retry(attempts=3)).run("x")
    assert waits == []
    with pytest.raises(BudgetError):
        await only(inner.retry(attempts=3, errors=BudgetError)).run("x")
    assert len(waits) == 2


async def test_a_strategy_is_tried_again_from_its_beginning(waits):
    """A retried strategy executes its nodes anew, each of which counts; the strategy itself does not."""
    ok = passthrough(str, name="ok")
    inner = Strategy("inner", START >> ok >> failing(2) >> END)
    result = await only(inner.retry(attempts=3)).run("x")
    assert (result.output, result.nodes) == (3, 6)


@pytest.mark.parametrize("make", [parallel, race, each], ids=["parallel", "race", "each"])
async def test_a_fork_may_be_tried_again(waits, make):
    """A retried fork runs all its branches anew."""
    fork = make(failing(1)).retry(attempts=2)
    result = await only(fork).run(["x"] if make is each else "x")
    assert result.nodes == 2
    assert 2 in (result.output if isinstance(result.output, tuple | list) else (result.output,))


# ---- timeout


async def test_a_node_that_takes_too_long_is_cancelled():
    """It raises NodeTimeoutError, whose text is in that of the node's failure, and the node sees its cancellation."""
    cancelled = []

    @node
    async def slow(ctx: Context, said: str) -> str:
        try:
            await anyio.sleep_forever()
        except anyio.get_cancelled_exc_class():
            cancelled.append(True)
            raise
        return ""

    with pytest.raises(NodeFailedError) as info:
        await only(slow.timeout(0.005)).run("x")
    assert isinstance(info.value.__cause__, TimeoutError)
    said = "'slow' took longer than 0.005 seconds, its .timeout"
    assert str(info.value) == f"node 'slow' failed with NodeTimeoutError: {said}"
    assert cancelled == [True]


async def test_a_timeout_tells_where_the_node_waited():
    """The context of the TimeoutError is the cancellation, whose traceback ends where the node was."""

    @node
    async def slow(ctx: Context, said: str) -> str:
        await anyio.sleep_forever()
        return ""

    with pytest.raises(NodeFailedError) as info:
        await only(slow.timeout(0.005)).run("x")
    cancellation = info.value.__cause__.__context__
    assert isinstance(cancellation, anyio.get_cancelled_exc_class())
    assert "sleep_forever" in [frame.name for frame in traceback.extract_tb(cancellation.__traceback__)]


def test_a_run_with_timeouts_may_be_continued_in_another_kind_of_event_loop():
    """What the first loop made for the timeouts of the run is not used in the second."""
    for first, second in (("asyncio", "trio"), ("trio", "asyncio")):
        run = only(failing(1).timeout(30), store=None).start("x")
        with pytest.raises(NodeFailedError):
            anyio.run(run.finish, backend=first)
        assert anyio.run(run.finish, backend=second).output == 2


async def test_a_node_that_is_quick_enough_is_not_touched():
    """A timeout that does not come changes nothing."""
    assert (await only(failing(0).timeout(30)).run("x")).output == 1


async def test_a_timeout_of_a_strategy_or_fork_holds_for_all_inside():
    """A strategy or a fork that takes too long is cancelled as a whole."""

    @node
    async def slow(ctx: Context, said: str) -> str:
        await anyio.sleep_forever()
        return ""

    for whole in (Strategy("inner", START >> slow >> END), parallel(slow, slow.named("b")), each(slow)):
        with pytest.raises(NodeFailedError) as info:
            await only(whole.timeout(0.005)).run(["x", "y"] if whole.name == "each" else "x")
        assert info.value.node == whole.name
        assert isinstance(info.value.__cause__, TimeoutError)


async def test_a_timeout_may_be_caught():
    """on_error(TimeoutError) takes it."""

    @node
    async def slow(ctx: Context, said: str) -> str:
        await anyio.sleep_forever()
        return ""

    hasty = slow.timeout(0.005)
    strategy = Strategy("s", START >> hasty, hasty.on_error(TimeoutError).map(lambda _: "late") >> END, hasty >> END)
    assert (await Agent(strategy).run("x")).output == "late"


# ---- order


class Patient:
    """Waits for ever at its first attempts."""

    def __init__(self, slow):
        self.slow, self.attempts = slow, 0

    async def __call__(self, ctx: Context, said: str) -> int:
        self.attempts += 1
        if self.attempts <= self.slow:
            await anyio.Event().wait()
        return self.attempts


async def test_a_retry_around_a_timeout_gives_each_attempt_its_time(waits):
    """`.timeout(…).retry(…)`: the timeout is of one attempt, and is tried again."""
    step = node(name="patient")(Patient(slow=2)).timeout(0.005).retry(attempts=3)
    assert (await only(step).run("x")).output == 3
    assert waits == [1, 2]


async def test_a_timeout_around_a_retry_holds_for_all_attempts():
    """`.retry(…).timeout(…)`: the timeout is of all attempts and waits together."""
    endless = failing(99)
    step = endless.retry(attempts=99, wait=30).timeout(0.01)
    with pytest.raises(NodeFailedError) as info:
        await only(step).run("x")
    assert isinstance(info.value.__cause__, TimeoutError)


async def test_policies_leave_the_node_as_it_was():
    """Each policy gives another node of the same name, and the first stays without."""
    plain = failing(1)
    wrapped = plain.retry(attempts=2, wait=0)
    assert (plain.policies, wrapped.name) == ((), plain.name)
    with pytest.raises(NodeFailedError):
        await only(plain).run("x")


async def test_calls_that_came_to_an_end_before_a_timeout_are_not_made_again():
    """The next attempt of a node that ran out of time finds the results of the turn, and makes only the call that was broken off."""
    made = []

    @tool
    async def pay(name: str) -> str:
        """Pay somebody."""
        made.append(name)
        if name == "slow" and made.count("slow") == 1:
            await anyio.sleep_forever()
        return "paid"

    ask, execute = llm_request(), execute_tools().timeout(2).retry(attempts=2, wait=0)
    strategy = Strategy("s", START >> ask, ask.on(ToolCalls) >> execute >> ask, ask.on(str) >> END)
    calls = [ToolCall("pay", {"name": name}) for name in ("Ada", "slow")]
    agent = Agent(strategy, model=ScriptedModel([calls, "Done."]), tools=[pay], store=MemoryStore())
    assert (await agent.run("Pay.")).output == "Done."
    assert made == ["Ada", "slow", "slow"]
