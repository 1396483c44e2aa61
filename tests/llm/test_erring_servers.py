"""Servers of Chat Completions that err in what they send, over HTTP: each answer is understood, or is an error that says what to do."""

from __future__ import annotations

import json
import re

import pytest

from graphagent import END, START, Agent, Strategy, tool
from graphagent.errors import ModelRequestError, NodeFailedError, OutputError
from graphagent.events import TextStreamed
from graphagent.llm import Message, ModelRequest, OutputFormat, Reasoning, Text, ToolCall, ToolResult, Usage
from graphagent.llm.openai import OpenAIModel
from graphagent.nodes import llm_request
from graphagent.store import SqliteStore
from graphagent.testing import RawResponse, openai_server
from graphagent_strategies import single_run

ASK = ModelRequest((Message.user("Hello?"),))
JSON = {"content-type": "application/json"}
BOTH = pytest.mark.parametrize("streaming", [False, True])


@tool
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def stream(*chunks, done=True):
    body = "".join(f"data: {json.dumps(each)}\n\n" for each in chunks)
    return RawResponse(200, {"content-type": "text/event-stream"}, body + ("data: [DONE]\n\n" if done else ""))


def delta(finish_reason=None, usage=None, **fields):
    return {
        "choices": [{"index": 0, "delta": fields, "finish_reason": finish_reason}],
        **({"usage": usage} if usage else {}),
    }


def piece(arguments, index=0, **more):
    return delta(tool_calls=[{"index": index, "function": {"arguments": arguments}, **more}])


def begun(identity, index=0, arguments=""):
    call = {"index": index, "id": identity, "type": "function", "function": {"name": "add", "arguments": arguments}}
    return delta(tool_calls=[call])


def whole(**message):
    body = {"choices": [{"index": 0, "message": {"role": "assistant", **message}, "finish_reason": "stop"}]}
    return RawResponse(200, {"content-type": "application/json"}, json.dumps(body))


async def asked(reply, *, streaming=True):
    async with openai_server([reply]) as server, OpenAIModel("m", base_url=server.base_url, max_retries=0) as model:
        return await model.respond(ASK, [].append if streaming else None)


async def test_text_and_calls_in_one_answer():
    """Both are in the message, in the order of the protocol, however they are mixed in the stream."""
    mixed = stream(delta(content="Let "), begun("c1"), delta(content="me add."), piece("{}"), delta("tool_calls"))
    response = await asked(mixed)
    assert response.message.parts == (Text("Let me add."), ToolCall("add", {}, "c1"))


@pytest.mark.parametrize(
    ("usages", "counted"),
    [([], Usage()), ([(3, 1), (3, 5)], Usage(3, 5)), ([(3, 5), (3, 5)], Usage(3, 5))],
    ids=["never", "growing", "twice"],
)
async def test_usage_that_comes_never_or_twice(usages, counted):
    """The last one counts; where there is none, nothing is counted."""
    said = [{"prompt_tokens": tokens, "completion_tokens": more} for tokens, more in usages]
    chunks = [
        delta(content="Hi.", usage=said[0] if said else None),
        delta("stop"),
        *({"choices": [], "usage": each} for each in said[1:]),
    ]
    response = await asked(stream(*chunks))
    assert (response.message.text, response.usage) == ("Hi.", counted)


@pytest.mark.parametrize("heard", [False, True])
async def test_a_refusal_within_a_stream(heard):
    """What can be left out is left out of another request, unless text was streamed, which would come twice."""
    refusal = {"error": {"code": 400, "message": "response_format is not supported"}}
    refused = stream(*[delta(content="Hi ")] * heard, refusal)
    request = ModelRequest(ASK.messages, output=OutputFormat.of(list[int]))
    pieces = []
    async with openai_server([refused, "[1]"]) as server, OpenAIModel("m", base_url=server.base_url) as model:
        if heard:
            with pytest.raises(ModelRequestError):
                await model.respond(request, pieces.append)
        else:
            assert (await model.respond(request, pieces.append)).message.text == "[1]"
    assert (pieces, len(server.requests)) == ((["Hi "], 1) if heard else (["[1]"], 2))


@pytest.mark.parametrize("done", [False, True])
async def test_half_a_call_and_then_silence(done):
    """A stream that ends within a call is an error; nothing of it is executed, and the node can be tried again."""
    half = stream(begun("c1"), piece('{"a": 1, '), done=done)
    with pytest.raises(ModelRequestError, match="broke off before its end; try again"):
        await asked(half)
    ask = llm_request(tools=False).retry(attempts=2, wait=0, errors=ModelRequestError)
    async with openai_server([half, "Hi."]) as server, OpenAIModel("m", base_url=server.base_url) as model:
        agent = Agent(Strategy("again", START >> ask >> END), model=model)
        agent.on(TextStreamed, lambda event: None)
        assert (await agent.run("Hello?")).output == "Hi."


async def test_half_a_call_that_the_server_takes_for_a_whole():
    """The call is not executed; the model sees why, and can make it again."""
    half = stream(begun("c1"), piece('{"a": 1, '), delta("tool_calls"))
    async with openai_server([half, "Sorry."]) as server, OpenAIModel("m", base_url=server.base_url) as model:
        agent = Agent(single_run(), model=model, tools=[add])
        agent.on(TextStreamed, lambda event: None)
        assert (await agent.run("1 + 2?")).output == "Sorry."
    [result] = [each["content"] for each in server.requests[1]["messages"] if each["role"] == "tool"]
    assert result.startswith("Error: ")


@BOTH
async def test_reasoning_without_an_answer(streaming, tmp_path):
    """After two of them, the run fails with an error that says what to change, and can be resumed."""
    silent = (
        stream(delta(reasoning="Hm. "), delta(reasoning="Well."), delta("stop"))
        if streaming
        else whole(reasoning="Hm.")
    )
    async with openai_server([silent, silent, "Hi."]) as server, OpenAIModel("m", base_url=server.base_url) as model:
        agent = Agent(single_run(), model=model, store=SqliteStore(tmp_path / "runs.db"))
        if streaming:
            agent.on(TextStreamed, lambda event: None)
        with pytest.raises(NodeFailedError, match="reasoned and then neither answered nor called a tool") as caught:
            await agent.run("Hello?", run_id="r")
        assert isinstance(caught.value.__cause__, OutputError)
        assert (await agent.resume("r")).output == "Hi."


async def test_what_the_error_about_reasoning_suggests_works():
    """Its retry asks again."""
    async with (
        openai_server([*[whole(reasoning="Hm.")] * 4, "Hi."]) as server,
        OpenAIModel("m", base_url=server.base_url) as model,
    ):
        once = Strategy("once", START >> llm_request(tools=False) >> END)
        with pytest.raises(NodeFailedError) as caught:
            await Agent(once, model=model).run("Hello?")
        suggested = re.search(r"\.retry\(.*?\)", str(caught.value))
        assert suggested is not None
        again = eval(
            f"llm_request(tools=False){suggested[0]}", {"llm_request": llm_request, "OutputError": OutputError}
        )
        assert (await Agent(Strategy("again", START >> again >> END), model=model).run("Hello?")).output == "Hi."


@BOTH
async def test_an_answer_without_anything(streaming):
    """It is no answer: the error says why the model stopped, and what it took."""
    with pytest.raises(OutputError, match=r"neither answered nor called a tool \(finish_reason 'stop'\)") as caught:
        await asked(stream(delta("stop")) if streaming else whole(content=None), streaming=streaming)
    assert caught.value.usage == Usage()


@BOTH
async def test_a_refusal(streaming):
    """The model's words are the text, and the reason says that they are a refusal."""
    refused = (
        stream(delta(refusal="I will "), delta(refusal="not."), delta("stop"))
        if streaming
        else whole(refusal="I will not.")
    )
    response = await asked(refused, streaming=streaming)
    assert (response.message.text, response.finish_reason) == ("I will not.", "refusal")


async def test_reasoning_in_two_fields_is_read_once():
    """Some servers send it under its old and its new name."""
    response = await asked(stream(delta(reasoning="Hm.", reasoning_content="Hm."), delta("stop", content="Yes.")))
    assert response.message.parts == (Reasoning("Hm."), Text("Yes."))


@BOTH
async def test_more_tokens_than_there_are(streaming):
    """Infinity, which JSON can say, is no number of tokens."""
    body = '{"choices": [{"index": 0, "FIELD": {"content": "Hi."}, "finish_reason": "stop"}], "usage": {"prompt_tokens": 1e999}}'
    reply = RawResponse(200, {"content-type": "application/json"}, body.replace("FIELD", "message"))
    if streaming:
        event = f"data: {body.replace('FIELD', 'delta')}\n\ndata: [DONE]\n\n"
        reply = RawResponse(200, {"content-type": "text/event-stream"}, event)
    response = await asked(reply, streaming=streaming)
    assert (response.message.text, response.usage) == ("Hi.", Usage())


@pytest.mark.parametrize("index", [[0], {}, "0"])
async def test_a_call_whose_index_is_no_number(index):
    """The pieces of the call are joined anyway."""
    response = await asked(stream(begun("c1", index), piece('{"a": 1}', index), delta("tool_calls")))
    assert response.message.tool_calls == (ToolCall("add", {"a": 1}, "c1"),)


@pytest.mark.parametrize(("content", "text"), [("Hi.", "Hi."), (5, ""), ([5], ""), (None, "")])
async def test_content_over_responses_that_is_no_list(content, text):
    """A text is taken for the answer; anything else is nothing, which is no answer."""
    items = [{"type": "reasoning", "summary": content}, {"type": "message", "role": "assistant", "content": content}]
    body = json.dumps({"status": "completed", "output": items})
    async with (
        openai_server([RawResponse(200, {"content-type": "application/json"}, body)]) as server,
        OpenAIModel("m", protocol="responses", base_url=server.base_url) as model,
    ):
        if text:
            assert (await model.respond(ASK)).message.text == text
        else:
            with pytest.raises(OutputError, match="neither answered nor called a tool"):
                await model.respond(ASK)


@pytest.mark.parametrize("protocol", ["chat", "responses"])
@pytest.mark.parametrize(("pieces", "heard"), [(("a ", "\ud83d", "\ude00 b"), "a 😀 b"), (("a \ud83d",), "a ")])
async def test_a_character_that_is_cut_in_two(protocol, pieces, heard):
    """As by servers that count UTF-16: it arrives as one character, and a half at the end is not heard."""
    events = [delta(content=each) for each in pieces] + [delta("stop")]
    if protocol == "responses":
        content = [{"type": "output_text", "text": heard}]
        events = [{"type": "response.output_text.delta", "delta": each} for each in pieces]
        response = {"status": "completed", "output": [{"type": "message", "content": content}]}
        events.append({"type": "response.completed", "response": response})
    async with (
        openai_server([stream(*events)]) as server,
        OpenAIModel("m", protocol=protocol, base_url=server.base_url) as model,
    ):
        response = await model.respond(ASK, (said := []).append)
    assert ("".join(said), response.message.text.removesuffix("\ufffd")) == (heard, heard)
    response.message.text.encode()


HALF = {
    "reasoning": "Hm \ud83d.",
    "content": "a \ude00\ud83d\ude00",
    "tool_calls": [
        {
            "id": "c\ud83d",
            "type": "function",
            "function": {"name": "a\ud83d", "arguments": '{"a": "\\ud83d", "b": "\udc00"}'},
        }
    ],
}
ITEMS = [
    {
        "type": "reasoning",
        "id": "rs_1",
        "summary": [{"type": "summary_text", "text": "Hm \ud83d."}],
        "encrypted_content": "\ud83d",
    },
    {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "a \ude00\ud83d\ude00"}]},
    {
        "type": "function_call",
        "call_id": "c\ud83d",
        "name": "a\ud83d",
        "arguments": HALF["tool_calls"][0]["function"]["arguments"],
    },
]


@pytest.mark.parametrize("protocol", ["chat", "responses"])
@BOTH
async def test_half_a_surrogate_pair_in_an_answer(streaming, protocol, tmp_path):
    """It is read as U+FFFD wherever it is, so the conversation goes on; UTF-8 cannot encode it."""
    if protocol == "chat":
        reply = stream(delta(**HALF), delta("tool_calls")) if streaming else whole(**HALF)
    else:
        done = {"status": "completed", "output": ITEMS}
        body = json.dumps(done)
        reply = stream({"type": "response.completed", "response": done}) if streaming else RawResponse(200, JSON, body)
    async with (
        openai_server([reply, "Well.", "Yes."]) as server,
        OpenAIModel("m", protocol=protocol, base_url=server.base_url) as model,
    ):
        agent = Agent(single_run(), model=model, tools=[add], store=SqliteStore(tmp_path / "runs.db"))
        if streaming:
            agent.on(TextStreamed, lambda event: None)
        result = await agent.run("Hello?", thread="t")
        assert (await agent.run("Sure?", thread="t")).output == "Yes."
    step = result.memory.steps[1]
    [call] = step.tool_calls
    assert (step.model_output, step.model_output_message.reasoning) == ("a \ufffd😀", "Hm \ufffd.")
    assert (call.name, call.id, call.arguments) == ("a\ufffd", "c\ufffd", {"a": "\ufffd", "b": "\ufffd"})
    assert "\ud83d" not in json.dumps(server.requests, ensure_ascii=False)


async def test_half_a_surrogate_pair_in_a_history():
    """One that was recorded, or said by another model, is sent as U+FFFD."""
    said = Message("assistant", (Text("\ud83d"), ToolCall("add", {"a": "\ud83d"}, "c1")))
    result = Message.tool(ToolResult("c1", "add", "3"))
    for protocol in ("chat", "responses"):
        async with (
            openai_server(["Yes."]) as server,
            OpenAIModel("m", protocol=protocol, base_url=server.base_url) as model,
        ):
            assert (await model.respond(ModelRequest((*ASK.messages, said, result)))).message.text == "Yes."
        assert "\ufffd" in json.dumps(server.requests, ensure_ascii=False)
