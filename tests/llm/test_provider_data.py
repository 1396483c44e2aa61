"""What servers attach to their answers on Chat Completions and want back, over HTTP to servers that refuse requests without it."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from graphagent import Agent, tool
from graphagent.errors import ModelRequestError, NodeFailedError
from graphagent.events import ModelRequestFailed, TextStreamed
from graphagent.llm import (
    MODEL_FAMILIES,
    Message,
    ModelFamily,
    ModelRequest,
    ProviderData,
    Reasoning,
    Text,
    ToolCall,
    ToolResult,
)
from graphagent.llm._chat_answer import from_body
from graphagent.llm._chat_messages import chat_messages
from graphagent.llm._families import family_named, family_of
from graphagent.llm.openai import OpenAIModel
from graphagent.store import SqliteStore
from graphagent.testing import RawResponse, openai_server
from graphagent_strategies import single_run

JSON = {"content-type": "application/json"}
EVENTS = {"content-type": "text/event-stream"}
BOTH = pytest.mark.parametrize("streaming", [False, True])


@tool
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def refusal(message, status=400, **more):
    error = {"message": message, "type": "invalid_request_error", "param": None, "code": None, **more}
    return RawResponse(status, JSON, json.dumps({"error": error}))


def calling(number, **more):
    call = {"id": f"c{number}", "type": "function", "function": {"name": "add", "arguments": '{"a": 1, "b": 2}'}}
    return {**call, **more}


def message(streaming, *calls, **fields):
    """A server's answer of any fields: whole, or streamed in pieces of which each field is in the first."""
    reason = "tool_calls" if calls else "stop"
    if not streaming:
        said = {"role": "assistant", **fields, **({"tool_calls": list(calls)} if calls else {})}
        return RawResponse(200, JSON, json.dumps({"choices": [{"message": said, "finish_reason": reason}]}))
    deltas = []
    for name, value in fields.items():
        if isinstance(value, str) and len(value) > 3:
            deltas += [{name: value[:3]}, {name: value[3:]}]
        else:
            deltas.append({name: value})
    for call in calls:
        function = call["function"]
        deltas.append({"tool_calls": [{**call, "function": {**function, "arguments": ""}}]})
        deltas.append({"tool_calls": [{"function": {"arguments": function["arguments"]}}]})
    chunks = [{"choices": [{"delta": each}]} for each in deltas]
    chunks.append({"choices": [{"delta": {}, "finish_reason": reason}]})
    body = "".join(f"data: {json.dumps(each)}\n\n" for each in chunks) + "data: [DONE]\n\n"
    return RawResponse(200, EVENTS, body)


class Strict:
    """A server that refuses a request in which `check` finds something wrong, and otherwise answers from a script."""

    def __init__(self, check, *replies):
        self.check, self.replies = check, iter(replies)
        self.server = openai_server(lambda request: self.answer())
        self.requests = self.server.requests

    def answer(self):
        return self.check(self.requests[-1]["messages"]) or next(self.replies)

    async def __aenter__(self):
        await self.server.__aenter__()
        return self

    async def __aexit__(self, *error):
        await self.server.__aexit__(*error)

    def model(self, name, **settings):
        return OpenAIModel(name, base_url=self.server.base_url, max_retries=0, **settings)


def deepseek(messages):
    """Refuses calls without reasoning, as api.deepseek.com does."""
    if any(each.get("tool_calls") and not each.get("reasoning_content") for each in messages):
        return refusal("The `reasoning_content` in the thinking mode must be passed back to the API.")
    return None


def kimi(messages):
    """Refuses calls without reasoning, as api.moonshot.ai does."""
    for place, each in enumerate(messages):
        if each.get("tool_calls") and not each.get("reasoning_content"):
            return refusal(
                f"thinking is enabled but reasoning_content is missing in assistant tool call message at index {place}"
            )
    return None


def gemini(messages):
    """Refuses a turn whose first call has no signature, as Gemini 3 does."""
    for each in messages:
        for call in (each.get("tool_calls") or ())[:1]:
            if not call.get("extra_content", {}).get("google", {}).get("thought_signature"):
                return refusal("Function call is missing a thought_signature in functionCall parts.")
    return None


def mistral(messages):
    """Refuses every field that its schema lacks, as api.mistral.ai does."""
    for each in messages:
        unknown = each.keys() - {"role", "content", "tool_calls", "tool_call_id", "name", "prefix"}
        if unknown or any(call.keys() - {"id", "type", "function", "index"} for call in each.get("tool_calls") or ()):
            return refusal(f"extra_forbidden: Extra inputs are not permitted: {sorted(unknown)}", 422)
    return None


async def conversation(model, streaming, store, tasks=("1 + 2?", "Thanks.")):
    """Two runs of a thread, in two agents, so that the second has what the first one stored."""
    for task in tasks:
        agent = Agent(single_run(), model=model, tools=[add], store=SqliteStore(store))
        if streaming:
            async for _ in agent.stream(task, thread="t"):
                pass
        else:
            await agent.run(task, thread="t")


def assistants(sent):
    return [each for each in sent["messages"] if each["role"] == "assistant"]


# Servers that want it back


@BOTH
@pytest.mark.parametrize(
    ("name", "check"),
    [("deepseek-v4-flash", deepseek), ("kimi-k2.6", kimi), ("zai-org/GLM-4.7", deepseek), ("MiniMax-M2.7", deepseek)],
)
async def test_reasoning_returns_to_the_server_that_gave_it(name, check, streaming, tmp_path):
    """In the tool loop and in the next turn, which another agent takes up from the journal; also an empty one."""
    replies = (
        message(streaming, calling(1), content="", reasoning_content="Let me add."),
        message(streaming, content="Three.", reasoning_content="It is three."),
        message(streaming, content="You are welcome.", reasoning_content=""),
    )
    async with Strict(check, *replies) as server, server.model(name) as model:
        await conversation(model, streaming, tmp_path / "runs.db")
    first, second = assistants(server.requests[-1])
    assert (first["reasoning_content"], second["reasoning_content"]) == ("Let me add.", "It is three.")
    assert [len(assistants(each)) for each in server.requests] == [0, 1, 2]


@BOTH
async def test_signatures_return_with_their_calls_and_texts(streaming, tmp_path):
    """Gemini signs the first of several calls, and the text of an answer."""

    def signed(text):
        return {"extra_content": {"google": {"thought_signature": text}}}

    replies = (
        message(streaming, calling(1, **signed("AB")), calling(2)),
        message(streaming, content="Three.", **signed("CD")),
        message(streaming, content="You are welcome."),
    )
    async with Strict(gemini, *replies) as server, server.model("gemini-3.1-pro") as model:
        await conversation(model, streaming, tmp_path / "runs.db")
    calls, text = assistants(server.requests[-1])
    assert [each.get("extra_content") for each in calls["tool_calls"]] == [signed("AB")["extra_content"], None]
    assert text == {"role": "assistant", "content": "Three.", **signed("CD")}


@BOTH
@pytest.mark.parametrize("family", ["openrouter", "minimax"])
async def test_details_return_unmodified(family, streaming, tmp_path):
    """A list, of which streamed pieces are joined and encrypted ones stay as they are; its text is the reasoning."""
    text = {"type": "reasoning.text", "index": 0, "format": "anthropic-claude-v1"}
    secret = {"type": "reasoning.encrypted", "index": 1, "data": "gAAA", "id": "rs_1"}
    details = [{**text, "text": "Let me add.", "signature": "AB"}, secret]
    pieces = [{**text, "text": "Let me"}, {**text, "text": " add."}, {**text, "signature": "AB"}, secret]
    plain = {"reasoning": "Let me add."} if family == "openrouter" else {}
    first = message(streaming, calling(1), content="", **plain, reasoning_details=pieces if streaming else details)
    replies = (first, message(streaming, content="Three."), message(streaming, content="You are welcome."))
    async with Strict(lambda messages: None, *replies) as server, server.model("x", family=family) as model:
        await conversation(model, streaming, tmp_path / "runs.db")
    assert assistants(server.requests[-1])[0]["reasoning_details"] == details
    assert "reasoning" not in assistants(server.requests[-1])[0]


@BOTH
@pytest.mark.parametrize("field", ["reasoning", "reasoning_content"])
async def test_open_models_have_their_reasoning_until_the_final_answer(field, streaming, tmp_path):
    """In the field that the server itself uses, and only within a tool loop."""
    replies = (
        message(streaming, calling(1), **{field: "Let me add."}),
        message(streaming, content="Three.", **{field: "It is three."}),
        message(streaming, content="You are welcome."),
    )
    async with Strict(lambda messages: None, *replies) as server, server.model("openai/gpt-oss-120b") as model:
        await conversation(model, streaming, tmp_path / "runs.db")
    assert assistants(server.requests[1])[0][field] == "Let me add."
    assert all(field not in each for each in assistants(server.requests[2]))


# Servers that do not


@BOTH
@pytest.mark.parametrize("name", ["mistral-medium", "qwen3-32b", "llama3.2", "gpt-4o"])
async def test_unknown_servers_are_sent_nothing(name, streaming, tmp_path):
    """Whatever they attached: a server of no family, or of one that wants nothing back, gets text and calls."""
    extra = {"google": {"thought_signature": "AB"}}
    first = message(
        streaming, calling(1, extra_content=extra), reasoning_content="Hm.", reasoning_details=[{"text": "Hm."}]
    )
    replies = (first, message(streaming, content="Three.", reasoning="Hm."), message(streaming, content="Yes."))
    async with Strict(mistral, *replies) as server, server.model(name) as model:
        await conversation(model, streaming, tmp_path / "runs.db")
    assert len(server.requests) == 3


@BOTH
async def test_a_server_that_refuses_its_own_data_is_sent_none(streaming, tmp_path):
    """A server whose name misleads costs one request for each model object, which is reported."""
    replies = (
        message(streaming, calling(1), reasoning_content="Hm."),
        message(streaming, content="Three.", reasoning_content="Hm."),
        message(streaming, content="Yes."),
    )
    async with Strict(mistral, *replies) as server, server.model("deepseek-r1-distill") as model:
        await conversation(model, streaming, tmp_path / "runs.db")
    assert ["reasoning_content" in str(each["messages"]) for each in server.requests] == [False, True, False, False]


# A conversation that moves


async def test_data_of_one_protocol_are_not_sent_by_the_other():
    """Items of Responses stay out of Chat Completions, and fields of those stay out of items."""
    parts = (
        Reasoning("Hm.", provider=ProviderData("deepseek", {"reasoning_content": None})),
        Reasoning(
            "", provider=ProviderData("openai", {"type": "reasoning", "id": "rs_1", "encrypted_content": "gAAA"})
        ),
        ToolCall("add", {}, "c1", provider=ProviderData("google", {"extra_content": {"google": {}}})),
    )
    request = ModelRequest((Message.user("?"), Message("assistant", parts), Message.tool(ToolResult("c1", "add", "3"))))
    async with openai_server(["Hi."] * 3) as server:
        for model in (
            OpenAIModel("m", protocol="chat", base_url=server.base_url, family="openai"),
            OpenAIModel("m", protocol="responses", base_url=server.base_url),
        ):
            async with model:
                await model.respond(request)
    call = {"type": "function", "id": "c1", "function": {"name": "add", "arguments": "{}"}}
    assert server.requests[0]["messages"][1] == {"role": "assistant", "content": None, "tool_calls": [call]}
    assert server.requests[1]["input"][1] == {
        "type": "function_call",
        "call_id": "c1",
        "name": "add",
        "arguments": "{}",
    }


# Tools and reasoning effort


EFFORT = {
    "gpt-5.4": "Function tools with reasoning_effort are not supported for gpt-5.4 in /v1/chat/completions. Please use "
    "/v1/responses instead.",
    "gpt-5.6-terra": "Function tools with reasoning_effort are not supported for gpt-5.6-terra in /v1/chat/completions. To use "
    "function tools, use /v1/responses or set reasoning_effort to 'none'.",
}


@BOTH
@pytest.mark.parametrize("name", EFFORT)
@pytest.mark.parametrize("parameters", [{}, {"reasoning_effort": "high"}])
async def test_tools_that_are_refused_because_of_the_effort(name, parameters, streaming):
    """One more request with the effort `none`, remembered for requests with tools, and reported as an event."""
    refused = refusal(EFFORT[name], param="reasoning_effort")
    replies = [
        refused,
        message(streaming, calling(1)),
        message(streaming, content="Three."),
        message(streaming, content="Yes."),
    ]
    heard = []
    async with openai_server(replies) as server, OpenAIModel(name, base_url=server.base_url, **parameters) as model:
        agent = Agent(single_run(), model=model, tools=[add])
        agent.on(ModelRequestFailed, heard.append)
        if streaming:
            agent.on(TextStreamed, lambda event: None)
        result = await agent.run("1 + 2?")
        await model.respond(ModelRequest((Message.user("Without tools"),)), [].append if streaming else None)
    given = parameters.get("reasoning_effort")
    assert [each.get("reasoning_effort") for each in server.requests] == [given, "none", "none", given]
    assert result.output == "Three."
    [event] = heard
    assert event.model == name
    assert "(invalid_request_error, reasoning_effort)" in event.reason


@pytest.mark.parametrize(
    ("message", "tools"),
    [
        ("Unsupported value: 'reasoning_effort' does not support 'xhigh' with this model.", [add]),
        (EFFORT["gpt-5.4"], []),
    ],
)
async def test_another_refusal_of_the_effort_is_an_error(message, tools):
    """An effort that the model does not know is not replaced; the error names the parameter."""
    async with (
        openai_server([refusal(message, param="reasoning_effort")]) as server,
        OpenAIModel("m", base_url=server.base_url, reasoning_effort="xhigh") as model,
    ):
        with pytest.raises(ModelRequestError, match="it refuses the parameter 'reasoning_effort': leave it out"):
            await model.respond(ModelRequest((Message.user("?"),), tuple(tools)))
    assert len(server.requests) == 1


async def test_an_effort_of_none_that_is_refused_is_an_error():
    """It is tried once."""
    async with (
        openai_server([refusal(EFFORT["gpt-5.4"], param="reasoning_effort")] * 3) as server,
        OpenAIModel("m", base_url=server.base_url) as model,
    ):
        with pytest.raises(NodeFailedError):
            await Agent(single_run(), model=model, tools=[add]).run("?")
    assert [each.get("reasoning_effort") for each in server.requests] == [None, "none"]


# Families


def test_families_are_known_by_host_and_otherwise_by_model():
    """The host of a maker decides; the models of many makers are served by others too."""
    found = {
        ("api.deepseek.com", "any"): "deepseek",
        ("api.moonshot.ai", "kimi-k2.6"): "moonshot",
        ("generativelanguage.googleapis.com", "models/gemini-3-pro"): "google",
        ("europe-west1-aiplatform.googleapis.com", "google/gemini-3-pro"): "google",
        ("openrouter.ai", "deepseek/deepseek-v4"): "openrouter",
        ("api.mistral.ai", "deepseek"): "mistral",
        ("localhost", "deepseek-ai/DeepSeek-V4"): "deepseek",
        ("localhost", "moonshotai/Kimi-K2-Thinking"): "moonshot",
        ("localhost", "zai-org/GLM-4.7"): "zai",
        ("localhost", "MiniMaxAI/MiniMax-M2.7"): "minimax",
        ("api.groq.com", "openai/gpt-oss-120b"): "gpt-oss",
        ("localhost", "Qwen/Qwen3-8B"): "qwen",
    }
    for (host, model), name in found.items():
        family = family_of(host, model)
        assert family is not None
        assert (family.name, family_named(name)) == (name, family)
    for host, model in (("localhost", "llama3.2"), ("deepseek.com.example.org", "llama3.2"), ("", "gpt-4o")):
        assert family_of(host, model) is None


def test_the_table_of_families_is_consistent():
    """Names are unique; what is returned has a field, and what is not has none."""
    assert len({family.name for family in MODEL_FAMILIES}) == len(MODEL_FAMILIES)
    for family in MODEL_FAMILIES:
        assert bool(family.reasoning or family.signature) == (family.returned != "never")
        # GPUStack is on any host and serves any model: it is known by its answers, or chosen by name.
        assert family.hosts or family.models or family.name == "gpustack"


async def test_a_family_of_ones_own():
    """Its field is kept and returned, to its own name alone."""
    family = ModelFamily("acme", "always", reasoning=("thoughts", "reasoning"))
    async with openai_server([message(False, calling(1), reasoning="Hm."), "Three.", "Three."]) as server:
        async with OpenAIModel("m", base_url=server.base_url, family=family) as model:
            result = await Agent(single_run(), model=model, tools=[add]).run("1 + 2?")
        messages = tuple(result.memory.to_messages())
        async with OpenAIModel("m", base_url=server.base_url, family=replace(family, name="other")) as model:
            await model.respond(ModelRequest(messages))
    assert assistants(server.requests[1])[0]["reasoning"] == "Hm."
    assert "reasoning" not in assistants(server.requests[2])[0]


def test_reasoning_is_kept_once():
    """The text of reasoning is not stored a second time as data; other data are stored as they came."""
    family = family_named("deepseek")
    answer = from_body({"choices": [{"message": {"reasoning_content": "Hm.", "content": "Yes."}}]}, "s", family)
    assert answer.message.parts == (
        Reasoning("Hm.", provider=ProviderData("deepseek", {"reasoning_content": None})),
        Text("Yes."),
    )
    assert chat_messages([answer.message], family) == [
        {"role": "assistant", "content": "Yes.", "reasoning_content": "Hm."}
    ]


def test_what_is_missing_is_filled_in_on_demand():
    """Only for calls, and only where there is nothing of the family."""
    said = [Message.assistant("Hi."), Message.assistant(calls=[ToolCall("add", {}, "1"), ToolCall("add", {}, "2")])]
    text, calls = chat_messages(said, family_named("deepseek"), fill=True)
    assert "reasoning_content" not in text
    assert calls["reasoning_content"] == " "
    text, calls = chat_messages(said, family_named("google"), fill=True)
    assert "extra_content" not in text
    assert ["extra_content" in each for each in calls["tool_calls"]] == [True, False]
    assert all("extra_content" not in str(each) for each in chat_messages(said, family_named("google")))


def test_details_show_their_text():
    """MiniMax sends the text of its reasoning in its details alone."""
    said = {"content": "Yes.", "reasoning_details": [{"type": "reasoning.text", "text": "Hm."}]}
    assert from_body({"choices": [{"message": said}]}, "s").message.parts == (Reasoning("Hm."), Text("Yes."))
