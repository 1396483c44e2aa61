"""An answer that does not fit, or has nothing in it, is asked for once more."""

from __future__ import annotations

import pytest

from graphagent import END, START, Agent, Strategy, tool
from graphagent.errors import NodeFailedError, OutputError
from graphagent.events import TextStreamed
from graphagent.llm import (
    CachedModel,
    FallbackModel,
    Message,
    ModelRequest,
    ModelResponse,
    Reasoning,
    Text,
    ToolCall,
    Usage,
    structured,
)
from graphagent.llm.openai import OpenAIModel
from graphagent.nodes import llm_choices
from graphagent.store import MemoryStore, SqliteStore
from graphagent.testing import RecordedModel, ScriptedModel, openai_server
from graphagent_strategies import single_run

ASK = (Message.user("Hello?"),)


@tool
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def empty(*parts):
    return ModelResponse(Message("assistant", parts), Usage(7, 3))


EMPTY = {"nothing": empty(), "blank": empty(Text(" \n")), "reasoning": empty(Reasoning("Hm."), Text("\n\n"))}


@pytest.mark.parametrize("protocol", ["chat", "responses"])
@pytest.mark.parametrize("streaming", [False, True])
@pytest.mark.parametrize("kind", EMPTY)
async def test_an_empty_answer_after_a_tool(kind, streaming, protocol):
    """The model is asked once more, without a message that has nothing in it; what the first answer took counts, and it is not a step."""
    replies = [ToolCall("add", {"a": 1, "b": 2}), EMPTY[kind], "Three."]
    async with (
        openai_server(replies) as server,
        OpenAIModel("m", protocol=protocol, base_url=server.base_url) as model,
    ):
        agent = Agent(single_run(), model=model, tools=[add])
        if streaming:
            agent.on(TextStreamed, lambda event: None)
        result = await agent.run("1 + 2?")
    assert result.output == "Three."
    *_, before, again = [body["messages" if protocol == "chat" else "input"] for body in server.requests]
    assert again[:-2] == before
    assert [(each["role"], each["content"]) for each in again[-2:]] == [
        ("assistant", "(nothing)"),
        ("user", "The answer is empty. Answer again, with text or a tool call."),
    ]
    first, second = result.memory.steps[1:3]
    assert first.token_usage + second.token_usage == result.usage
    assert second.token_usage.output_tokens == 3 + 1
    assert result.turns == 3


async def test_a_second_empty_answer_ends_the_run(tmp_path):
    """The error is of the second; neither is recorded as an answer, so a resumed run asks once more, and goes on."""
    store = SqliteStore(tmp_path / "runs.db")
    model = ScriptedModel([EMPTY["blank"], EMPTY["reasoning"], "Hi."])
    agent = Agent(single_run(), model=model, store=store)
    with pytest.raises(NodeFailedError, match="reasoned and then neither answered nor called a tool") as caught:
        await agent.run("Hello?", run_id="r")
    assert isinstance(caught.value.__cause__, OutputError)
    assert (await agent.read("r")).result.usage == Usage(14, 6)
    assert (await agent.resume("r")).output == "Hi."


async def test_a_run_that_stopped_after_an_empty_answer(tmp_path):
    """A resumed run finds it, and asks as it did: once more."""
    store = SqliteStore(tmp_path / "runs.db")
    first = ScriptedModel([EMPTY["nothing"], OSError("the network is down")])
    with pytest.raises(NodeFailedError):
        await Agent(single_run(), model=first, store=store).run("Hello?", run_id="r")
    again = ScriptedModel(["Hi."])
    assert (await Agent(single_run(), model=again, store=store).resume("r")).output == "Hi."
    assert again.requests[0].messages == first.requests[1].messages


@pytest.mark.parametrize("kind", EMPTY)
async def test_every_request_that_is_answered_with_nothing(kind):
    """Also a decision, a value outside of a run, and one of several answers."""
    strategy = Strategy("s", START >> llm_choices(1) >> END)
    choices = Agent(strategy, model=ScriptedModel([EMPTY[kind], "One."]))
    assert (await choices.run("Some?")).output == ["One."]
    async with (
        openai_server([EMPTY[kind], [1], EMPTY[kind], EMPTY[kind]]) as server,
        OpenAIModel("m", base_url=server.base_url) as model,
    ):
        assert await structured(model.respond, ASK, list[int]) == [1]
        with pytest.raises(OutputError, match="neither answered nor called a tool"):
            await structured(model.respond, ASK, list[int])


async def test_models_around_models_and_empty_answers(tmp_path):
    """A fallback may take them for failures, a cache does not store them, and a recording has them, so that it can be replayed."""
    async with (
        openai_server([EMPTY["nothing"]] * 2 + ["Hi."]) as server,
        OpenAIModel("m", base_url=server.base_url) as model,
    ):
        either = FallbackModel(model, ScriptedModel(["It is me."]), on=OutputError)
        assert (await either.respond(ModelRequest(ASK))).message.text == "It is me."
        cached = CachedModel(ScriptedModel([EMPTY["blank"], "Hi."]), MemoryStore())
        said = [(await cached.respond(ModelRequest(ASK))).message.text for _ in range(3)]
        assert said == [" \n", "Hi.", "Hi."]
        path = tmp_path / "recorded.json"
        await Agent(single_run(), model=RecordedModel(path, model, record=True)).run("Hello?")
    assert (await Agent(single_run(), model=RecordedModel(path, record=False)).run("Hello?")).output == "Hi."
