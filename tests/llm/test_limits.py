"""LimitedModel: how many at once, how many a minute, in which order, and what cancellation leaves behind."""

from __future__ import annotations

import contextlib
import random
import threading

import anyio
import pytest
from anyio.lowlevel import checkpoint

from graphagent import Agent
from graphagent._clock import clock
from graphagent.errors import ModelRequestError
from graphagent.graph import Retry
from graphagent.llm import FallbackModel, LimitedModel, Message, ModelRequest, ModelResponse, RetryModel, Usage
from graphagent.llm.openai import OpenAIModel
from graphagent.testing import ScriptedModel, openai_server
from graphagent_strategies import single_run

pytestmark = pytest.mark.every_loop

HELLO = ModelRequest((Message.user("Hello?"),))
START = 1_000_000


class Echo:
    """A model that answers after a few turns of the loop, and notes who was asked when and how many were pending."""

    name = "echo"

    def __init__(self, tokens=10):
        self.begun, self.pending, self.most, self.tokens = [], 0, 0, tokens
        self.lock = threading.Lock()

    async def respond(self, request, on_text=None):
        with self.lock:
            self.begun.append(request.messages[-1].text)
            self.pending += 1
            self.most = max(self.most, self.pending)
        try:
            for _ in range(3):
                await checkpoint()
        finally:
            with self.lock:
                self.pending -= 1
        if on_text is not None:
            on_text("Hello")
        return ModelResponse(Message.assistant("Hello"), Usage(self.tokens))


def says(number):
    return ModelRequest((Message.user(str(number)),))


@pytest.fixture
def time(monkeypatch):
    """A clock that only sleeping advances; the seconds of each sleep are in `slept`."""

    class Time:
        now, slept = START, []

    async def sleep(seconds):
        Time.slept.append(seconds)
        await checkpoint()
        Time.now += round(seconds * 1000)

    Time.slept = []
    monkeypatch.setattr("graphagent.llm._limits.sleep", sleep)
    token = clock.set(lambda: Time.now)
    yield Time
    clock.reset(token)


@pytest.mark.parametrize("concurrency", [1, 2])
async def test_no_more_at_once_than_allowed_and_first_come_first_served(concurrency):
    """Twenty requests that come together are asked a few at a time, in their order: who got a place together may swap."""
    echo = Echo()
    model = LimitedModel(echo, concurrency=concurrency)
    async with anyio.create_task_group() as group:
        for number in range(20):
            group.start_soon(model.respond, says(number))
            await checkpoint()
    assert echo.most == concurrency
    assert all(abs(place - int(number)) < concurrency for place, number in enumerate(echo.begun))


async def test_what_fails_leaves_its_place():
    """A request that raises frees the way for the next."""
    model = LimitedModel(ScriptedModel([ModelRequestError("no"), "yes"]), concurrency=1)
    with pytest.raises(ModelRequestError):
        await model.respond(HELLO)
    assert (await model.respond(HELLO)).message.text == "yes"


async def test_who_is_cancelled_leaves_the_queue():
    """Whether it waits, is asked, or has just got a place that it did not use yet."""
    echo = Echo()
    model = LimitedModel(echo, concurrency=1)
    scopes = {}

    async def ask(number):
        with anyio.CancelScope() as scopes[number]:
            await model.respond(says(number))

    async with anyio.create_task_group() as group:
        for number in range(4):
            group.start_soon(ask, number)
            await checkpoint()
            await checkpoint()
        scopes[1].cancel()  # it waits
        scopes[0].cancel()  # it is being asked, and when it leaves, 2 gets the place
        while model._places._waiting and len(model._places._waiting) > 1:
            await checkpoint()
        scopes[2].cancel()  # it may have got the place and not been resumed yet
    assert echo.begun[-1] == "3"
    assert model._places._free == 1


@pytest.mark.parametrize("seed", range(20))
async def test_no_place_is_lost_whoever_is_cancelled_when(seed):
    """After requests that were cancelled at random moments, as many places are free as before."""
    chance, echo = random.Random(seed), Echo()
    model = LimitedModel(echo, concurrency=3, per_minute=10_000)

    async def ask(scope):
        with scope:
            await model.respond(HELLO)

    async with anyio.create_task_group() as group:
        scopes = [anyio.CancelScope() for _ in range(30)]
        for scope in scopes:
            group.start_soon(ask, scope)
            if chance.random() < 0.4:
                await checkpoint()
            if chance.random() < 0.5:
                chance.choice(scopes).cancel()
    assert echo.most <= 3
    assert model._places._free == 3
    assert model._pace._turn._free == 1


async def test_requests_of_several_event_loops_share_the_limit():
    """Asyncio and trio, each in a thread of its own: never more than two at once, and all are answered."""
    echo = Echo()
    model = LimitedModel(echo, concurrency=2, per_minute=1_000)

    async def many():
        async with anyio.create_task_group() as group:
            for number in range(40):
                group.start_soon(model.respond, says(number))

    threads = [
        threading.Thread(target=anyio.run, args=(many,), kwargs={"backend": each}) for each in ("asyncio", "trio")
    ]
    for thread in threads:
        thread.start()
    await many()
    for thread in threads:
        await anyio.to_thread.run_sync(thread.join)
    assert (len(echo.begun), echo.pending) == (120, 0)
    assert echo.most <= 2


async def test_a_minute_is_any_sixty_seconds(time):
    """Three a minute: the fourth request begins a minute after the first, however they are spread."""
    echo, begun = Echo(), []
    model = LimitedModel(echo, per_minute=3)
    for pause in (0, 10, 20, 0, 0, 0, 100, 0):
        time.now += pause * 1000
        await model.respond(HELLO)
        begun.append((time.now - START) // 1000)
    assert begun == [0, 10, 30, 60, 70, 90, 190, 190]
    assert time.slept == [30.0, 10.0, 20.0]


async def test_waiting_for_the_minute_is_one_sleep_each(time):
    """Nobody looks at the clock again and again; who came first goes first."""
    echo = Echo()
    model = LimitedModel(echo, per_minute=2, concurrency=5)
    async with anyio.create_task_group() as group:
        for number in range(6):
            group.start_soon(model.respond, says(number))
            await checkpoint()
    assert echo.begun == [str(number) for number in range(6)]
    assert time.slept == [60.0, 60.0]


async def test_who_is_cancelled_while_waiting_for_the_minute_does_not_count(time, monkeypatch):
    """The next one gets its time."""
    echo = Echo()
    model = LimitedModel(echo, per_minute=1)
    await model.respond(says(0))
    slept = []

    async def sleep(seconds):
        slept.append(seconds)
        await anyio.sleep_forever()

    with monkeypatch.context() as patch:
        patch.setattr("graphagent.llm._limits.sleep", sleep)
        with anyio.move_on_after(0.01):
            await model.respond(says(1))
    await model.respond(says(2))
    assert echo.begun == ["0", "2"]
    assert slept == time.slept == [60.0]


async def test_tokens_of_the_last_minute(time):
    """A request waits until enough of the tokens of earlier answers are more than a minute old."""
    model = LimitedModel(Echo(tokens=40), tokens_per_minute=100)
    begun = []
    for _ in range(7):
        await model.respond(HELLO)
        begun.append((time.now - START) // 1000)
        time.now += 1000
    assert begun == [0, 1, 2, 60, 61, 62, 120]


@pytest.mark.parametrize("last", ["Hello.", "broken"])
async def test_tokens_of_requests_that_failed_count(time, last):
    """Also of those that a wrapper within the limit makes, whether an answer follows or not."""

    def broken(tokens):
        error = ModelRequestError("it broke off its answer")
        error.usage = Usage(tokens)
        return error

    first = ScriptedModel([broken(60), "Hello."], name="a")
    second = ScriptedModel([ModelResponse(Message.assistant(last), Usage(40)) if last == "Hello." else broken(40)])
    model = LimitedModel(FallbackModel(first, second), tokens_per_minute=100)
    with contextlib.suppress(ModelRequestError):
        await model.respond(HELLO)
    await model.respond(HELLO)
    assert time.slept == [60.0]


BUSY = ModelRequestError("busy", status=429)


@pytest.mark.parametrize(
    "inner",
    [
        lambda: RetryModel(ScriptedModel([BUSY, BUSY, "Hello."]), Retry(3, wait=0)),
        lambda: FallbackModel(*(ScriptedModel([each]) for each in (BUSY, BUSY, "Hello."))),
        lambda: LimitedModel(RetryModel(ScriptedModel([BUSY, BUSY, "Hello."]), Retry(3, wait=0)), concurrency=1),
    ],
)
async def test_each_request_for_an_answer_counts(time, inner):
    """Also within the limit: a wrapper that asks again, or another model, waits for the minute."""
    response = await LimitedModel(inner(), per_minute=1).respond(HELLO)
    assert (response.message.text, time.slept) == ("Hello.", [60.0, 60.0])


async def test_what_waits_for_another_attempt_keeps_no_place():
    """Meanwhile another request has it; who is cancelled then gives back nothing twice."""
    scripted = ScriptedModel([BUSY, "Hello.", BUSY, "Hello."])
    model = LimitedModel(RetryModel(scripted, Retry(2, wait=9_999)), concurrency=1)
    for _ in range(2):
        async with anyio.create_task_group() as group:
            group.start_soon(model.respond, HELLO)
            await anyio.wait_all_tasks_blocked()
            assert (await model.respond(HELLO)).message.text == "Hello."
            group.cancel_scope.cancel()
        assert model._places._free == 1


async def test_a_clock_that_is_set_back_delays_nobody_for_long(time):
    """At the worst a request waits a minute, not until the clock has caught up."""
    model = LimitedModel(Echo(), per_minute=1)
    await model.respond(HELLO)
    time.now -= 3_600_000
    await model.respond(HELLO)
    assert time.slept == [60.0]


async def test_in_runs_over_a_real_server():
    """Runs of one agent that are executed at once ask the server one after the other, streamed or not."""
    with openai_server(["Hello."] * 6) as server:
        async with OpenAIModel("m", base_url=server.base_url) as inner:
            model = LimitedModel(inner, concurrency=1, per_minute=600)
            agent, answers = Agent(single_run(), model=model), []

            async def ask():
                answers.append((await agent.run("Hello?")).output)

            async with anyio.create_task_group() as group:
                for _ in range(6):
                    group.start_soon(ask)
            heard = []
    assert answers == ["Hello."] * 6
    await LimitedModel(ScriptedModel(["One two"]), concurrency=1).respond(HELLO, heard.append)
    assert heard == ["One", " two"]


def test_what_is_no_limit_is_refused():
    """The error names the limit; without one there is nothing to do."""
    inner = ScriptedModel([])
    with pytest.raises(TypeError, match=r"concurrency=, per_minute= or tokens_per_minute="):
        LimitedModel(inner)
    with pytest.raises(ValueError, match="per_minute=0 is invalid"):
        LimitedModel(inner, per_minute=0)
    with pytest.raises(ValueError, match=r"concurrency=1\.5 is invalid"):
        LimitedModel(inner, concurrency=1.5)
    with pytest.raises(TypeError, match="takes a model, not a str"):
        LimitedModel("gpt-5-mini", concurrency=1)
    model = LimitedModel(OpenAIModel("m", base_url="http://h/v1", api_key="s3cret"), concurrency=2, per_minute=9)
    assert repr(model).endswith("with concurrency=2, per_minute=9>")
    assert "s3cret" not in repr(model)
    assert not model.tells_cost
