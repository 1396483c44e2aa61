"""OpenAIModel against a real HTTP server on this machine, on both loops."""

from __future__ import annotations

import contextlib
import json
import logging
import pickle
import threading
import time
import traceback

import anyio
import pytest

from graphagent.errors import ContentFilterError, ModelRequestError, OutputError
from graphagent.llm import (
    Image,
    Message,
    ModelRequest,
    ModelResponse,
    OutputFormat,
    Reasoning,
    Text,
    Tool,
    ToolCall,
    ToolCalls,
    ToolResult,
    Usage,
    structured,
    tool,
)
from graphagent.llm._chat import ChatExchange
from graphagent.llm._endpoint import WireRequest
from graphagent.llm._responses import ResponsesExchange
from graphagent.llm.openai import OpenAIModel
from graphagent.testing import Cut, RawResponse, openai_server

HELLO = ModelRequest((Message.user("Hello, topsecret"),))
KEY = "sk-topsecret-key"


@tool
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool
async def subtract(a: int, b: int) -> int:
    """Subtract the second number from the first."""
    return a - b


def failing(status, message="no", **headers):
    """A refusal that repeats the prompt and the key, as servers do."""
    error = {"error": {"message": f"{message}: Hello, topsecret with {KEY}", "type": "invalid", "code": "c_1"}}
    return RawResponse(status, {"content-type": "application/json", **headers}, json.dumps(error))


async def asked(server, request=HELLO, *, on_text=None, **settings):
    async with OpenAIModel("m", base_url=server.base_url, **({"api_key": KEY} | settings)) as model:
        return await model.respond(request, on_text)


async def refused(server, request=HELLO, **settings):
    """The error that a request ends in; nothing that was sent stands in it."""
    with pytest.raises(ModelRequestError) as caught:
        await asked(server, request, **({"max_retries": 0} | settings))
    shown = "".join(traceback.format_exception(caught.value))
    assert "topsecret" not in shown
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)
    return caught.value


# Asking


async def test_a_text_answer_and_its_usage():
    """Text, usage with cached and reasoning tokens, reason and model are read; the key and parameters are sent."""
    usage = Usage(11, 7, 5, 3)
    answer = ModelResponse(Message("assistant", (Reasoning("hm"), Text("Hi."))), usage, "stop", "m-1")
    async with openai_server([answer]) as server:
        request = ModelRequest(HELLO.messages, parameters={"seed": 2, "top_k": 3})
        assert await asked(server, request, temperature=0, seed=1, headers={"x-title": "t"}) == answer
    assert server.requests == [
        {
            "model": "m",
            "messages": [{"role": "user", "content": "Hello, topsecret"}],
            "stream": False,
            "temperature": 0,
            "seed": 2,
            "top_k": 3,
        }
    ]
    assert server.headers[0]["authorization"] == f"Bearer {KEY}"
    assert server.headers[0]["x-title"] == "t"


async def test_a_streamed_answer_is_the_same_and_comes_in_pieces():
    """With on_text the text comes as it is made, and the response is the same, usage included."""
    answer = ModelResponse(Message("assistant", (Reasoning("hm, so"), Text("One two\nthree."))), Usage(11, 7, 5, 3))
    async with openai_server([answer, answer]) as server:
        pieces = []
        streamed = await asked(server, on_text=pieces.append)
        assert streamed == await asked(server)
    assert pieces == ["One", " two", "\nthree."]
    assert server.requests[0]["stream_options"] == {"include_usage": True}


@pytest.mark.parametrize("streaming", [False, True])
async def test_tool_calls(streaming):
    """Text and several calls come back in one message, in order, whole and streamed alike."""
    calls = (ToolCall("add", {"a": 1, "b": 2**70}, "c1"), ToolCall("add", {"a": 3, "b": 4}, "c2"))
    async with openai_server([ToolCalls(calls, "Let me add.")]) as server:
        request = ModelRequest(HELLO.messages, (add,), "required")
        response = await asked(server, request, on_text=[].append if streaming else None)
    assert response.message == Message.assistant("Let me add.", calls)
    assert response.finish_reason == "tool_calls"
    assert server.requests[0]["tool_choice"] == "required"
    assert server.requests[0]["tools"][0]["function"]["parameters"] == add.parameters


@pytest.mark.parametrize("protocol", ["chat", "responses"])
async def test_images_go_over_the_wire(protocol):
    """Images in messages and in tool results arrive as the same bytes; over Responses those of a tool are within its result."""
    seen = []
    image = Image(bytes(range(256)), "image/jpeg")
    result = ToolResult("1", "look", "(an image)", images=(image,))
    request = ModelRequest(
        (
            Message.user("What is this?", image, Image(url="https://example.org/cat.png")),
            Message.assistant(calls=[ToolCall("look", {}, "1")]),
            Message.tool(result),
        )
    )
    async with openai_server(lambda request: seen.append(request) or "A cat.") as server:
        await asked(server, request, protocol=protocol)
    assert seen[0].messages[:2] == request.messages[:2]
    if protocol == "chat":
        assert (seen[0].messages[2].text, seen[0].messages[3].images) == ("(an image)", (image,))
    else:
        assert seen[0].messages[2:] == request.messages[2:]


async def test_requests_may_run_side_by_side():
    """One model serves many requests at once, and each gets its own answer."""
    async with (
        openai_server(lambda request: request.messages[0].text) as server,
        OpenAIModel("m", base_url=server.base_url) as model,
        anyio.create_task_group() as tasks,
    ):

        async def ask(text):
            answer = await model.respond(ModelRequest((Message.user(text),)), [].append if len(text) % 2 else None)
            assert answer.message.text == text

        for number in range(30):
            tasks.start_soon(ask, "x" * number or "-")


# Structured output


@pytest.mark.parametrize("protocol", ["chat", "responses"])
async def test_structured_output_is_native_where_the_server_has_it(protocol):
    """The server is sent the strict schema."""
    async with (
        openai_server([{"value": [1, 2]}]) as server,
        OpenAIModel("m", protocol=protocol, base_url=server.base_url) as model,
    ):
        assert await structured(model.respond, HELLO.messages, list[int]) == [1, 2]
    [body] = server.requests
    sent = body["response_format"]["json_schema"] if protocol == "chat" else body["text"]["format"]
    assert (sent["strict"], sent["schema"]["required"]) == (True, ["value"])


@pytest.mark.parametrize(
    ("protocol", "field", "status", "said"),
    [
        ("chat", "response_format", 400, "Unknown parameter response_format"),
        ("chat", "response_format", 422, "Unknown parameter response_format"),
        ("responses", "text", 400, "Unknown parameter: 'text.format'"),
    ],
)
@pytest.mark.parametrize("streaming", [False, True])
async def test_a_server_without_formats_gets_the_schema_in_the_prompt(protocol, field, status, said, streaming):
    """The refusal costs one request for each model object, which the response names; after it the schema is in the prompt."""
    request = ModelRequest(HELLO.messages, output=OutputFormat.of(list[int]))
    async with (
        openai_server([failing(status, said), "```json\n[1]\n```", "[2]"]) as server,
        OpenAIModel("m", protocol=protocol, base_url=server.base_url) as model,
    ):
        answers = [await model.respond(request, [].append if streaming else None) for _ in range(2)]
    assert [request.output.parse(each.message.text) for each in answers] == [[1], [2]]
    assert [field in each for each in server.requests] == [True, False, False]
    messages = server.requests[2]["messages" if protocol == "chat" else "input"]
    assert "fits this schema" in messages[0]["content"]
    [failed], none = (each.failed for each in answers)
    assert (failed.model, none) == ("m", ())
    assert "topsecret" not in failed.reason


async def test_one_refused_schema_does_not_end_native_formats():
    """A server that cannot take one schema is asked natively for the next."""
    refusal = failing(400, "Invalid schema for response_format 'x'")
    request = ModelRequest(HELLO.messages, output=OutputFormat.of(list[int]))
    async with openai_server([refusal, "[1]", "[2]"]) as server, OpenAIModel("m", base_url=server.base_url) as model:
        await model.respond(request)
        await model.respond(request)
    assert ["response_format" in each for each in server.requests] == [True, False, True]


@pytest.mark.parametrize("protocol", ["chat", "responses"])
async def test_a_server_that_ignores_a_schema(protocol):
    """It is asked again with the schema in the message. After an answer that is not JSON at all, the prompt has it, also of later requests."""
    field, place = {"chat": ("response_format", "messages"), "responses": ("text", "input")}[protocol]
    replies = ['{"value": 1}', "[1]", "One.", "Two.", "[3]"]
    async with (
        openai_server(replies) as server,
        OpenAIModel("m", protocol=protocol, base_url=server.base_url) as model,
    ):
        assert await structured(model.respond, HELLO.messages, list[int]) == [1]
        with pytest.raises(OutputError) as caught:
            await structured(model.respond, HELLO.messages, list[int])
        assert caught.value.output == "Two."
        assert await structured(model.respond, HELLO.messages, list[int]) == [3]
    said = [
        [(each["role"], "fits this schema: {" in each["content"]) for each in body[place]] for body in server.requests
    ]
    first, repaired, second, repaired_too, third = said
    assert first == second == [("user", False)]
    assert repaired == [("user", False), ("assistant", False), ("user", True)]
    assert repaired_too == [("system", True), *repaired]
    assert third == [("system", True), ("user", False)]
    assert [field in body for body in server.requests] == [True, True, True, False, False]


async def test_a_server_without_stream_options_is_tolerated():
    """It streams without usage, and is not asked for it again."""
    refusal = failing(400, "Unrecognized request argument supplied: stream_options")
    async with openai_server([refusal, "a b", "c d"]) as server, OpenAIModel("m", base_url=server.base_url) as model:
        first = await model.respond(HELLO, [].append)
        second = await model.respond(HELLO, [].append)
    assert (first.message.text, first.usage, second.message.text) == ("a b", Usage(), "c d")
    assert ["stream_options" in each for each in server.requests] == [True, False, False]


async def test_parameters_of_ones_own_are_not_taken_back():
    """A format or stream options that the caller sent by hand are his: their refusal is raised, not tried for ever."""
    for name in ("response_format", "stream_options"):
        async with openai_server(lambda request, name=name: failing(400, name)) as server:
            with pytest.raises(ModelRequestError):
                await asked(server, on_text=[].append, **{name: {}})
        assert len(server.requests) == 1 + (name == "stream_options")


async def test_another_refusal_is_not_asked_around():
    """A 400 for another reason is raised after one request."""
    async with openai_server([failing(400)]) as server:
        await refused(server, ModelRequest(HELLO.messages, output=OutputFormat.of(int)))
    assert len(server.requests) == 1


# Failures


@pytest.mark.parametrize("streaming", [False, True])
async def test_retry_after_is_honoured(streaming):
    """After a 429 the model waits as long as it was told, and then succeeds."""
    async with openai_server([failing(429, **{"retry-after-ms": "500"}), "Hi."]) as server:
        began = time.monotonic()
        response = await asked(server, on_text=[].append if streaming else None)
        assert time.monotonic() - began >= 0.5
    assert response.message.text == "Hi."
    assert len(server.requests) == 2


async def test_a_server_error_is_tried_again():
    """A 500 and a lost connection are gone at the next attempts."""
    async with openai_server([failing(500, **{"retry-after-ms": "10"}), Cut("lost"), "Hi."]) as server:
        assert (await asked(server)).message.text == "Hi."
    assert len(server.requests) == 3


@pytest.mark.parametrize(
    ("headers", "wait"),
    [({"retry-after": "7"}, 7.0), ({"retry-after-ms": "1500"}, 1.5), ({}, None), ({"retry-after": "soon"}, None)],
)
async def test_a_lasting_429_says_how_long_to_wait(headers, wait):
    """The error has the status and the seconds, and the text says what it means."""
    async with openai_server([failing(429, **headers)]) as server:
        error = await refused(server)
    assert (error.status, error.retry_after) == (429, wait)
    assert "rate limit or quota exceeded" in str(error)
    assert "c_1, invalid" in str(error)
    assert "topsecret" in error.detail


async def test_a_date_to_retry_after():
    """Retry-After may be a date; one that is past is no wait."""
    async with openai_server([failing(503, **{"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"})]) as server:
        assert (await refused(server)).retry_after == 0


@pytest.mark.parametrize(
    ("status", "said"),
    [
        (400, "the request is invalid"),
        (401, "check the key"),
        (403, "no access to"),
        (404, "base_url"),
        (422, "the request is invalid"),
        (500, "the server failed"),
    ],
)
@pytest.mark.parametrize("streaming", [False, True])
async def test_a_refusal_says_what_to_do(status, said, streaming):
    """Each status has its advice; the server's own words are only in `.detail`."""
    async with openai_server([failing(status)]) as server:
        with pytest.raises(ModelRequestError, match=said) as caught:
            await asked(server, on_text=[].append if streaming else None, max_retries=0)
    assert caught.value.status == status
    assert "topsecret" not in str(caught.value)


BODIES = {
    "html": RawResponse(200, {"content-type": "text/html"}, "<html>topsecret</html>"),
    "html called json": RawResponse(200, {"content-type": "application/json"}, "<html>topsecret</html>"),
    "empty": RawResponse(200, {"content-type": "application/json"}, ""),
    "no choices": RawResponse(200, {"content-type": "application/json"}, '{"choices": []}'),
    "a list": RawResponse(200, {"content-type": "application/json"}, "[1]"),
    "an error": RawResponse(200, {"content-type": "application/json"}, '{"error": {"message": "topsecret"}}'),
    "html 502": RawResponse(502, {"content-type": "text/html"}, "<html>topsecret</html>"),
}


@pytest.mark.parametrize("body", BODIES)
@pytest.mark.parametrize("streaming", [False, True])
async def test_what_is_not_the_protocol(body, streaming):
    """Another kind of answer is a clear error, whatever the server calls it."""
    async with openai_server([BODIES[body]]) as server:
        with pytest.raises(ModelRequestError, match=r"model 'm' at 127\.0\.0\.1:") as caught:
            await asked(server, on_text=[].append if streaming else None, max_retries=0)
    assert "topsecret" not in "".join(traceback.format_exception(caught.value))


EVENTS = {"content-type": "text/event-stream"}


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("", "broke off"),
        ('data: {"choices": [{"delta": {"content": "x"}}]}\n\n', "broke off"),
        ("data: {topsecret\n\n", "something other than JSON"),
        ('data: {"error": {"message": "topsecret", "code": 503}}\n\n', "with an error"),
        ("data: [DONE]\n\n", "broke off"),
    ],
)
async def test_a_stream_that_is_no_answer(body, said):
    """A stream that ends too early, or holds something else, is an error."""
    async with openai_server([RawResponse(200, EVENTS, body)]) as server:
        with pytest.raises(ModelRequestError, match=said) as caught:
            await asked(server, on_text=[].append, max_retries=0)
    assert "topsecret" not in str(caught.value)


@pytest.mark.parametrize("after", [0, 1, 50])
async def test_a_connection_that_is_lost(after):
    """A connection closed before, at the head of or within an answer is an error that says so."""
    async with openai_server([Cut("Hello.", after)]) as server:
        error = await refused(server)
    assert error.status is None
    assert "cannot be reached" in str(error)


@pytest.mark.parametrize("after", [0, 1, 600])
async def test_a_stream_that_is_lost(after):
    """What was streamed was streamed; the answer is an error all the same."""
    pieces = []
    async with openai_server([Cut("one two three " * 100, after)]) as server:
        with pytest.raises(ModelRequestError, match=r"cannot be reached|broke before"):
            await asked(server, on_text=pieces.append, max_retries=0)
    assert bool(pieces) == (after == 600)


async def test_a_stream_that_is_done_but_not_closed(monkeypatch):
    """After the server said that it is done, the answer does not wait for the connection's end."""
    monkeypatch.setattr("graphagent.llm._endpoint._LAST_WORDS", 0.1)
    body = 'data: {"choices": [{"delta": {"content": "Hi."}, "finish_reason": "stop"}]}\n\ndata: [DONE]\n\n'
    async with openai_server([RawResponse(200, {**EVENTS, "content-length": "9999"}, body), "Hi."]) as server:
        assert (await asked(server, on_text=[].append, timeout=600)).message.text == "Hi."


async def test_a_server_that_does_not_stream_is_understood():
    """Plain JSON in answer to a streaming request is taken as it is."""
    body = json.dumps({"choices": [{"message": {"content": "Hi."}, "finish_reason": "stop"}]})
    pieces = []
    async with openai_server([RawResponse(200, {"content-type": "application/json"}, body)]) as server:
        assert (await asked(server, on_text=pieces.append)).message.text == "Hi."
    assert pieces == ["Hi."]


UNASKED = {
    "chat": """data: {"choices": [{"delta": {"content": "Hi "}}]}

data: {"choices": [{"delta": {"content": "you."}, "finish_reason": "stop"}]}

data: [DONE]

""",
    "responses": """event: response.completed
data: {"type": "response.completed", "response": {"status": "completed", "output": [
data: {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Hi you."}]}]}}
""",
}


@pytest.mark.parametrize("protocol", UNASKED)
async def test_a_server_that_streams_unasked_is_understood(protocol):
    """Events in answer to a request that says `stream: false` are put together; without their end, they broke off."""
    half = RawResponse(200, EVENTS, 'data: {"choices": [{"delta": {"content": "Hi "}}]}\n\n')
    async with openai_server([RawResponse(200, EVENTS, UNASKED[protocol]), half]) as server:
        assert (await asked(server, protocol=protocol)).message.text == "Hi you."
        with pytest.raises(ModelRequestError, match="broke off before its end"):
            await asked(server, protocol=protocol, max_retries=0)
    assert [each["stream"] for each in server.requests] == [False, False]


@pytest.mark.parametrize("protocol", ["chat", "responses"])
async def test_one_tool_that_must_be_called_is_offered_alone(protocol):
    """Some servers take its name for `auto`. What one refuses is left out: first that it keeps to the schema, then the word `required`."""
    request = ModelRequest(HELLO.messages, (add, subtract), "add")
    refusals = [failing(400, "Unknown field 'strict'"), failing(400, "tool_choice must be auto or a function")]
    async with (
        openai_server(["One.", *refusals, "Two.", "Three."]) as server,
        OpenAIModel("m", protocol=protocol, base_url=server.base_url) as model,
    ):
        for _ in range(3):
            await model.respond(request)
    sent = []
    for body in server.requests:
        [offered] = body["tools"]
        sent.append((offered.get("function", offered).get("strict", False), body["tool_choice"] == "required"))
    assert sent == [(True, True), (True, True), (False, True), (False, False), (False, False)]


def test_openai_is_sent_the_name_of_a_tool_and_all_tools():
    """It keeps to a name, and its cache of prompts begins with the tools; a service that is known is not asked to be strict."""
    request = ModelRequest(HELLO.messages, (add, subtract), "add")
    for kind in (ChatExchange, ResponsesExchange):
        own = kind(WireRequest(request, "m", "api.openai.com", {}, None, False)).body(set())
        assert (len(own["tools"]), own["tool_choice"]["type"]) == (2, "function")
        service = kind(WireRequest(request, "m", "api.deepseek.com", {}, None, False)).body(set())
        [offered] = service["tools"]
        assert (offered.get("function", offered).get("strict", False), service["tool_choice"]) == (False, "required")


@pytest.mark.parametrize(
    ("status", "words", "advice"),
    [
        (400, "litellm.BadRequestError: Invalid model name passed in model=gpt", "GET /models lists"),
        (400, "No connected db.", "pass api_key="),
        (400, "max_tokens=9000 cannot be greater than max_model_len=max_total_tokens=512", "allow fewer tokens"),
        (400, "litellm.ContextWindowExceededError: ...", "the prompt is too long"),
    ],
)
async def test_words_of_servers_have_advice(status, words, advice):
    """What LiteLLM and vLLM say of a request that would fail again."""
    async with openai_server([failing(status, words)]) as server:
        assert advice in str(await refused(server))


@pytest.mark.parametrize("streaming", [False, True])
async def test_an_answer_that_is_withheld(streaming):
    """The error says that a content filter objected, over both protocols, and has the tokens that it took."""
    answer = ModelResponse(Message.assistant("Half"), Usage(7, 5), "content_filter")
    async with openai_server([answer] * 2) as server:
        for protocol in ("chat", "responses"):
            with pytest.raises(ContentFilterError, match="content filter objected") as caught:
                await asked(server, on_text=[].append if streaming else None, protocol=protocol)
            assert (caught.value.categories, caught.value.usage) == ((), Usage(7, 5))


CALL = Message.assistant(calls=[ToolCall("add", id="1", malformed='{"a": 1')])


@pytest.mark.parametrize("streaming", [False, True])
@pytest.mark.parametrize("message", [Message.assistant("Half a sen"), Message.assistant(), CALL])
async def test_an_answer_at_its_limit(message, streaming):
    """What was cut off is returned as it came, with its reason and its tokens."""
    async with openai_server([ModelResponse(message, Usage(3, 5), finish_reason="length")]) as server:
        answer = await asked(server, on_text=[].append if streaming else None)
        assert (answer.message, answer.finish_reason, answer.usage) == (message, "length", Usage(3, 5))


@pytest.mark.parametrize("protocol", ["chat", "responses"])
@pytest.mark.parametrize("streaming", [False, True])
async def test_a_parameter_that_is_no_json_is_named(protocol, streaming):
    """A value that JSON does not have, in a parameter of the model or of the request, or in a tool's schema, is named with its place."""
    tool = Tool("look", "Look.", {"type": "object", "topsecret": {1}}, lambda arguments, context: None)
    cases = [
        (HELLO, {"seed": {"topsecret"}}, "'seed' is a set"),
        (ModelRequest(HELLO.messages, parameters={"metadata": {"a": [1, float("nan")]}}), {}, "'metadata.a.1' is nan"),
        (ModelRequest(HELLO.messages, (tool,)), {}, "topsecret' is a set"),
    ]
    async with openai_server(["Hi."]) as server:
        for request, settings, said in cases:
            with pytest.raises(ModelRequestError) as caught:
                await asked(server, request, protocol=protocol, on_text=[].append if streaming else None, **settings)
            assert "the request to model 'm' at " in str(caught.value)
            assert said in str(caught.value)
    assert server.requests == []


async def test_what_on_text_raises_is_raised():
    """A listener's own error is not the server's."""

    def stop(text):
        raise KeyError(text)

    async with openai_server(["one"]) as server, OpenAIModel("m", base_url=server.base_url) as model:
        with pytest.raises(KeyError):
            await model.respond(HELLO, stop)


@pytest.mark.parametrize("streaming", [False, True])
async def test_cancelling_ends_a_request(streaming):
    """A cancelled request is over at once, and the model goes on."""
    arrived, release = threading.Event(), threading.Event()
    ended = []
    replies = [lambda request: arrived.set() or (release.wait(600) and "late"), "Hi."]
    async with openai_server(replies) as server, OpenAIModel("m", base_url=server.base_url) as model:

        async def ask():
            with contextlib.suppress(ModelRequestError):
                ended.append(await model.respond(HELLO, [].append if streaming else None))

        with anyio.fail_after(600):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(ask)
                assert await anyio.to_thread.run_sync(arrived.wait, 600)
                tasks.cancel_scope.cancel()
            release.set()
            assert (await model.respond(HELLO)).message.text == "Hi."
    assert ended == []


async def test_nothing_is_logged_by_us(caplog):
    """Neither prompts nor keys reach a log of graphagent."""
    caplog.set_level(logging.DEBUG, "graphagent")
    async with openai_server(["Hi.", failing(400)]) as server:
        await asked(server)
        await refused(server)
    assert not [each for each in caplog.records if each.name.startswith("graphagent")]


# Keys and clients


@pytest.mark.parametrize("address", ["", " ", None])
async def test_without_an_address_openai_itself_is_asked(address, monkeypatch):
    """Also if that of the environment is empty. A key is needed for it, and the error says how to pass one."""
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    if address is not None:
        monkeypatch.setenv("OPENAI_BASE_URL", address)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    model = OpenAIModel("m")
    assert model.base_url == "https://api.openai.com/v1"
    with pytest.raises(ModelRequestError, match="set OPENAI_API_KEY, pass api_key="):
        await model.respond(HELLO)
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:9")  # the request would go there
    with pytest.raises(ModelRequestError, match="ConnectError"):
        await OpenAIModel("m", api_key=KEY, max_retries=0).respond(HELLO)


ADDRESSES = [
    "localhost:11434/v1",
    "me:topsecret",
    "http://",
    "http://localhost:port/v1",
    "http://me:topsecret",
    "http://[x",
]


@pytest.mark.parametrize("address", ADDRESSES)
def test_an_address_that_is_none(address):
    """A base_url without a scheme or host, or with another port than a number, is found at once, and is not repeated."""
    with pytest.raises(ValueError, match=r"^base_url is not an address such as 'http://localhost:11434/v1'$"):
        OpenAIModel("m", base_url=address)
