"""ScriptedModel, and the clock and ids that a test fixes."""

from __future__ import annotations

import pickle

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as some
from pydantic import BaseModel

from graphagent import Agent, tool
from graphagent._clock import new_id, now
from graphagent.errors import ModelRequestError, ScriptError
from graphagent.llm import Message, ModelRequest, ModelResponse, ToolCall, ToolCalls, ToolResult, Usage
from graphagent.testing import ScriptedModel, fixed_clock, fixed_ids
from graphagent_strategies import single_run

HELLO = ModelRequest((Message.system("Be short."), Message.user("Hello there")))
CALL = ToolCall("add", {"a": 1}, "1")


class Pet(BaseModel):
    name: str


async def said(reply):
    return (await ScriptedModel([reply]).respond(HELLO)).message


async def test_every_kind_of_reply():
    """Text, calls, JSON data, models, whole responses and functions each become the message they stand for."""
    assert await said("Hi.") == Message.assistant("Hi.")
    assert await said("") == Message.assistant()
    assert await said(CALL) == await said([CALL]) == await said(ToolCalls([CALL])) == Message.assistant(calls=[CALL])
    assert await said(ToolCalls([CALL], "Well")) == Message.assistant("Well", [CALL])
    assert (await said({"values": ["Ålesund"]})).text == '{"values":["Ålesund"]}'
    assert (await said([1, 2])).text == "[1,2]"
    assert (await said([])).text == "[]"
    assert (await said(Pet(name="Tom"))).text == '{"name":"Tom"}'
    assert await said(lambda request: request.messages[1].text) == Message.assistant("Hello there")
    assert await said(lambda request: lambda request: CALL) == Message.assistant(calls=[CALL])
    assert await said(ModelResponse(Message.assistant("x"))) == Message.assistant("x")


async def test_exceptions_are_raised():
    """A reply that is an exception is a model that fails; the next reply is the next attempt's."""
    model = ScriptedModel([ModelRequestError("busy", status=429), lambda request: ValueError("x"), "Hi."])
    with pytest.raises(ModelRequestError):
        await model.respond(HELLO)
    with pytest.raises(ValueError, match="x"):
        await model.respond(HELLO)
    assert (await model.respond(HELLO)).message.text == "Hi."
    assert len(model.requests) == 3


async def test_requests_are_kept():
    """What the model was asked is there, in order, the very objects."""
    model = ScriptedModel(["a", "b"], name="m")
    requests = [HELLO, ModelRequest(())]
    for request in requests:
        assert (await model.respond(request)).model == model.name == "m"
    assert [kept is request for kept, request in zip(model.requests, requests, strict=True)] == [True, True]


async def test_an_empty_script_says_so():
    """The error counts, is an AssertionError, and is one of graphagent's, so that a run repeats its text."""
    model = ScriptedModel(["a"])
    await model.respond(HELLO)
    with pytest.raises(AssertionError, match="has 1 reply, and this is request 2") as caught:
        await model.respond(HELLO)
    assert isinstance(caught.value, ScriptError)
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


async def test_usage_is_counted_in_words():
    """The same request and reply have the same usage, always."""
    model = ScriptedModel(["Good day to you", CALL])
    assert (await model.respond(HELLO)).usage == Usage(4, 4)
    result = Message.tool(ToolResult("1", "add", "it is two"))
    answer = await model.respond(ModelRequest((Message.assistant("Well", [CALL]), result)))
    assert answer.usage == Usage(7, 3)
    assert answer.finish_reason == "tool_calls"


@given(text=some.text())
def test_streaming_gives_all_of_the_text(text):
    """Whatever the text, its pieces are the text."""
    pieces = []
    response = anyio.run(ScriptedModel([text]).respond, HELLO, pieces.append)
    assert "".join(pieces) == response.message.text == text


async def test_streaming_comes_word_by_word():
    """A listener sees the words one after the other."""
    pieces = []
    await ScriptedModel(["One two\n\nthree "]).respond(HELLO, pieces.append)
    assert pieces == ["One", " two", "\n\nthree", " "]


async def test_a_scripted_model_can_be_cancelled():
    """Asking is a point where a run can be cancelled, as with a real model."""
    model = ScriptedModel(["Hi."])
    with anyio.CancelScope() as scope:
        scope.cancel()
        await model.respond(HELLO)
    assert scope.cancelled_caught
    assert model.requests == []


def test_the_clock_is_fixed_within():
    """Time begins where it is told to, goes on by its step, and is the world's again afterwards."""
    with fixed_clock(1_000, step_ms=5):
        assert [now(), now(), now()] == [1_000, 1_005, 1_010]
        with fixed_clock(7, step_ms=0):
            assert [now(), now()] == [7, 7]
        assert now() == 1_015
    assert now() > 1_600_000_000_000


def test_ids_are_fixed_within():
    """Ids count up, sort in the order of making, and are the world's again afterwards."""
    with fixed_ids("run"):
        made = [new_id() for _ in range(11)]
    assert (made[0], made[10]) == ("run-000001", "run-000011")
    assert made == sorted(made)
    assert new_id() != new_id()


async def test_what_is_fixed_is_fixed_in_tasks():
    """Tasks that are started within share the clock."""
    seen = []

    async def look():
        seen.append(now())

    with fixed_clock(0):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(look)
            tasks.start_soon(look)
    assert sorted(seen) == [0, 1]


async def test_durations_are_fixed_too():
    """Within a fixed clock, a run and the calls of its tools last equally long each time, whatever they wait for."""

    @tool
    async def look(city: str) -> str:
        """Look a city up."""
        await anyio.sleep(0.01)
        return city

    async def once():
        with fixed_clock(), fixed_ids("run"):
            agent = Agent(
                single_run(), model=ScriptedModel([ToolCall("look", {"city": "Oslo"}), "Seen."]), tools=[look]
            )
            result = await agent.run("Oslo?")
            return result.seconds, result.memory.to_json()

    assert await once() == await once()


async def test_a_clock_may_be_fixed_while_a_run_is_stepped_through():
    """What has passed before is not counted by another clock."""
    run = Agent(single_run(), model=ScriptedModel(["Yes."])).start("Well?")
    await run.step()
    with fixed_clock(step_ms=0):
        result = await run.finish()
    assert 0 <= result.seconds < 60
