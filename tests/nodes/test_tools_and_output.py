"""Forced tools, required tools, and structured output together with tools, over HTTP and in whatever way servers answer."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from graphagent import END, START, Agent, Strategy, tool
from graphagent.errors import NodeFailedError, OutputError
from graphagent.llm import Message, ModelResponse, Text, ToolCall, ToolCalls
from graphagent.llm.openai import OpenAIModel
from graphagent.nodes import execute_tools, llm_request, task
from graphagent.store import MemoryStore
from graphagent.testing import RawResponse, ScriptedModel, openai_server
from tests.nodes.test_model_nodes import check_sendable

OSLO = {"city": "Oslo", "days": 3}

protocols = pytest.mark.parametrize("protocol", ["chat", "responses"])
streamed = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])


@dataclass(frozen=True)
class Trip:
    city: str
    days: int


@tool
async def look(word: str) -> str:
    """Look a word up."""
    return f"{word} is in Norway"


@tool
async def count(word: str) -> int:
    """Count the letters of a word."""
    return len(word)


def call(name="look", word="Oslo", number=1):
    return ToolCall(name, {"word": word}, f"c{number}")


def with_tools():
    """Structured output together with tools, in a loop."""
    ask, act = llm_request(output=Trip, tools=True), execute_tools()
    return Strategy("s", START >> ask, ask.on(ToolCalls) >> act >> ask, ask.on(Trip) >> END)


def first(ask):
    """Ask once in a special way, and then as usual."""
    act, then = execute_tools(), llm_request(name="then")
    return Strategy("s", START >> ask >> act >> then, then.on(ToolCalls) >> act, then.on(str) >> END)


async def run(strategy, replies, protocol, *, stream=False, strict=None, **settings):
    """Run a strategy against a real server; return its output and what the server was sent."""
    async with openai_server(replies, strict=strict) as server:
        model = OpenAIModel("m", protocol=protocol, base_url=server.base_url, api_key="k", max_retries=0)
        agent = Agent(strategy, model=model, tools=[look, count], **settings)
        if stream:
            async with agent.stream("Where is Oslo?") as events:
                async for _ in events:
                    pass
            return events.result.output, server.requests
        return (await agent.run("Where is Oslo?")).output, server.requests


def choices(requests):
    """Return what the server was told about the choice of tools: a name, a word, or None."""
    found = []
    for body in requests:
        choice = body.get("tool_choice")
        named = choice if not isinstance(choice, dict) else choice.get("name") or choice["function"]["name"]
        found.append(named)
    return found


def formats(requests):
    """Return whether each request had a format of the answer, and tools."""
    return [("response_format" in body or "text" in body, "tools" in body) for body in requests]


# ---- a forced tool, and a required one


@protocols
@streamed
async def test_a_forced_tool_is_forced_once(protocol, stream):
    """The server is offered it alone, and the requests that follow are free."""
    strategy = first(llm_request(force=count))
    output, requests = await run(strategy, [call("count"), call(number=2), "In Norway."], protocol, stream=stream)
    assert output == "In Norway."
    assert choices(requests) == ["required", None, None]
    assert [len(body["tools"]) for body in requests] == [1, 2, 2]


@protocols
@streamed
async def test_a_server_may_choose_which_tool_is_called(protocol, stream):
    """`required` is what the server is told, and both tools are offered."""
    output, requests = await run(first(llm_request(tools="required")), [call(), "In Norway."], protocol, stream=stream)
    assert output == "In Norway."
    assert choices(requests) == ["required", None]
    assert len(requests[0]["tools"]) == 2


@protocols
@pytest.mark.parametrize(
    ("ask", "ignored", "said"),
    [
        (llm_request(force=count), "Oslo has four letters.", "the tool 'count' was to be called, and text came"),
        (llm_request(force=count), call("look"), "the tool 'count' was to be called, and not 'look'"),
        (llm_request(tools="required"), "Oslo has four letters.", "a tool was to be called, and text came"),
    ],
)
async def test_a_server_that_ignores_the_choice_is_told_so_once(protocol, ask, ignored, said):
    """It is asked once more with the reason, and then it is an OutputError; a run that is resumed asks again."""
    output, requests = await run(first(ask), [ignored, call("count", number=2), "Four."], protocol)
    assert output == "Four."
    assert f"{said}. Answer again."[1:] in str(requests[1])

    store = MemoryStore()
    with pytest.raises(NodeFailedError) as failed:
        await Agent(first(ask), model=ScriptedModel([ignored, ignored]), tools=[look, count], store=store).run(
            "x", run_id="r"
        )
    assert isinstance(failed.value.__cause__, OutputError)
    again = ScriptedModel([call("count"), "Four."])
    assert (await Agent(first(ask), model=again, tools=[look, count], store=store).resume("r")).output == "Four."
    check_sendable(again)


async def test_a_required_call_needs_tools():
    """An agent without tools is told what to write, before the first node."""
    message = r"'llm_request' requires a tool call, and no tools are offered; write Agent\(…, tools=\[…\]\)"
    with pytest.raises(ValueError, match=message):
        await Agent(first(llm_request(tools="required")), model=ScriptedModel(["x"])).run("x")


def test_a_required_call_has_no_other_output():
    """What would be the output of such a node is refused when it is made."""
    with pytest.raises(TypeError, match="forces a tool call"):
        llm_request(tools="required", output=Trip)
    with pytest.raises(TypeError, match="forces a tool call"):
        llm_request(tools="required", force=look, output=Trip)


# ---- structured output together with tools


@protocols
@streamed
async def test_tools_are_called_until_there_is_a_value(protocol, stream):
    """Every request has the schema and the tools; text of a model beside its calls is not read as the value."""
    beside = ModelResponse(Message("assistant", (Text('{"city": "Rome", "days": 9}'), call())))
    replies = [beside, [call("count", number=2), call(number=3)], OSLO]
    output, requests = await run(with_tools(), replies, protocol, stream=stream)
    assert output == Trip("Oslo", 3)
    assert formats(requests) == [(True, True)] * 3


@protocols
@streamed
@pytest.mark.parametrize(
    "said",
    [
        'Of course! {"city": "Oslo", "days": 3} Have a good trip.',
        '```json\n{"city": "Oslo", "days": 3}\n```',
        '<think>{"city": "Rome"}</think>{"city": "Oslo", "days": "3"}',
    ],
)
async def test_a_value_is_found_where_a_server_ignores_the_schema(protocol, stream, said):
    """In prose, in a fence, after thoughts, and with a number as text."""
    output, requests = await run(with_tools(), [call(), said], protocol, stream=stream)
    assert output == Trip("Oslo", 3)
    assert len(requests) == 2


@protocols
@pytest.mark.parametrize("wrong", ["Three days in Oslo.", '{"city": "Oslo"}', '{"city": "Oslo", "days": 3', "null"])
async def test_what_is_no_value_is_asked_for_once_more(protocol, wrong):
    """With the reason, and with the tools: the model may look something up before it answers again."""
    output, requests = await run(with_tools(), [call(), wrong, call("count", number=2), OSLO], protocol)
    assert output == Trip("Oslo", 3)
    ignored = wrong == "Three days in Oslo."  # then the schema is in the prompt, as where it is refused
    assert formats(requests) == [(True, True)] * 2 + [(not ignored, True)] * 2
    assert "Answer again with nothing but JSON that fits this schema: {" in str(requests[2])
    assert "Answer again" not in str(requests[3])


@protocols
async def test_a_tool_that_does_not_exist_and_arguments_that_do_not_fit_do_not_end_the_loop(protocol):
    """The model sees both errors, and goes on to the value."""
    broken = [ToolCall("fly", {"word": "Oslo"}, "c1"), ToolCall("look", {"wort": "Oslo"}, "c2")]
    output, requests = await run(with_tools(), [broken, OSLO], protocol)
    assert output == Trip("Oslo", 3)
    assert "unknown tool 'fly'" in str(requests[1])
    assert "the arguments of 'look' do not fit" in str(requests[1])


async def test_a_server_without_schemas_gets_the_schema_in_the_prompt_with_the_tools():
    """It refuses the format; from then on the schema is in the prompt, and the tools are offered as before."""
    refusal = RawResponse(
        400,
        {"content-type": "application/json"},
        '{"error": {"message": "response_format is not supported with tools"}}',
    )
    output, requests = await run(with_tools(), [refusal, call(), OSLO], "chat")
    assert output == Trip("Oslo", 3)
    assert formats(requests) == [(True, True), (False, True), (False, True)]
    assert '"days"' in str(requests[1]["messages"])


@pytest.mark.parametrize(("protocol", "strict"), [("responses", "openai"), ("chat", "mistral")])
@streamed
async def test_strict_servers_take_all_of_it(protocol, strict, stream):
    """Structured output with tools, a task with a typed finish, and a forced tool, on servers that refuse what is not exact."""
    output, _ = await run(with_tools(), [call(), OSLO], protocol, stream=stream, strict=strict)
    assert output == Trip("Oslo", 3)
    finish = ToolCall("finish", OSLO, "f")
    output, _ = await run(task(output=Trip), [call(), "Three days.", finish], protocol, stream=stream, strict=strict)
    assert output == Trip("Oslo", 3)
    output, _ = await run(
        first(llm_request(force=count)), [call("count"), "Four."], protocol, stream=stream, strict=strict
    )
    assert output == "Four."


@protocols
async def test_a_loop_of_tools_and_output_is_recorded_once(protocol):
    """A run of it that was stopped by a broken server is resumed after the calls that were made."""
    store, made = MemoryStore(), []

    @tool
    async def remember(word: str) -> str:
        """Remember a word."""
        made.append(word)
        return "noted"

    down = RawResponse(500, {"content-type": "application/json"}, "{}")
    strategy = with_tools()
    async with openai_server([call("remember"), down, OSLO]) as server:
        model = OpenAIModel("m", protocol=protocol, base_url=server.base_url, api_key="k", max_retries=0)
        agent = Agent(strategy, model=model, tools=[remember], store=store)
        with pytest.raises(NodeFailedError, match="500"):
            await agent.run("x", run_id="r")
        assert (await agent.resume("r")).output == Trip("Oslo", 3)
    assert made == ["Oslo"]
