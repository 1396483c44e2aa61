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
from graphagent.llm.openai import OpenAIModel
from graphagent.testing import Cut, RawResponse, openai_server

HELLO = ModelRequest((Message.user("Hello, topsecret"),))
KEY = "sk-topsecret-key"


@tool
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


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


@pytest.mark.parametrize("streaming", [False, True])
async def test_malformed_arguments_are_kept_as_they_came(streaming):
    """A call with broken arguments is a call, not a failure."""
    async with openai_server([ToolCall("add", id="1", malformed='{"a": 1, "b"')]) as server:
        response = await asked(server, on_text=[].append if streaming else None)
    assert response.message.tool_calls == (ToolCall("add", {}, "1", malformed='{"a": 1, "b"'),)


async def test_images_go_over_the_wire():
    """Images in messages and in tool results arrive as the same bytes."""
    seen = []
    image = Image(bytes(range(256)), "image/jpeg")
    request = ModelRequest(
        (
            Message.user("What is this?", image, Image(url="https://example.org/cat.png")),
            Message.assistant(calls=[ToolCall("look", {}, "1")]),
            Message.tool(ToolResult("1", "look", "(an image)", images=(image,))),
        )
    )
    async with openai_server(lambda request: seen.append(request) or "A cat.") as server:
        await asked(server, request)
    assert seen[0].messages[0] == request.messages[0]
    assert seen[0].messages[2].text == "(an image)"
    assert seen[0].messages[3].images == (image,)


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


async def test_structured_output_is_native_where_the_server_has_it():
    """The server is sent the strict schema."""
    async with openai_server([{"value": [1, 2]}]) as server, OpenAIModel("m", base_url=server.base_url) as model:
        assert await structured(model.respond, HELLO.messages, list[int]) == [1, 2]
    sent = server.requests[0]["response_format"]["json_schema"]
    assert (sent["strict"], sent["schema"]["required"]) == (True, ["value"])


@pytest.mark.parametrize("status", [400, 422])
@pytest.mark.parametrize("streaming", [False, True])
async def test_a_server_without_formats_gets_the_schema_in_the_prompt(status, streaming):
    """The refusal costs one request for each model object; after it the schema is in the prompt."""
    request = ModelRequest(HELLO.messages, output=OutputFormat.of(list[int]))
    refusal = failing(status, "Unknown parameter response_format")
    async with (
        openai_server([refusal, "```json\n[1]\n```", "[2]"]) as server,
        OpenAIModel("m", base_url=server.base_url) as model,
    ):
        for number in (1, 2):
            answer = await model.respond(request, [].append if streaming else None)
            assert request.output.parse(answer.message.text) == [number]
    assert ["response_format" in each for each in server.requests] == [True, False, False]
    assert "fits this schema" in server.requests[2]["messages"][0]["content"]


async def test_one_refused_schema_does_not_end_native_formats():
    """A server that cannot take one schema is asked natively for the next."""
    refusal = failing(400, "Invalid schema for response_format 'x'")
    request = ModelRequest(HELLO.messages, output=OutputFormat.of(list[int]))
    async with openai_server([refusal, "[1]", "[2]"]) as server, OpenAIModel("m", base_url=server.base_url) as model:
        await model.respond(request)
        await model.respond(request)
    assert ["response_format" in each for each in server.requests] == [True, False, True]


async def test_asking_again_over_the_wire():
    """A server that ignores the format is asked again, and then it is an error."""
    async with openai_server(["One.", "Two."]) as server, OpenAIModel("m", base_url=server.base_url) as model:
        with pytest.raises(OutputError) as caught:
            await structured(model.respond, HELLO.messages, list[int])
    assert caught.value.output == "Two."
    assert [each["role"] for each in server.requests[1]["messages"]] == ["user", "assistant", "user"]


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
    """After a 429 the client waits as long as it was told, and then succeeds."""
    async with openai_server([failing(429, **{"retry-after-ms": "300"}), "Hi."]) as server:
        began = time.monotonic()
        response = await asked(server, on_text=[].append if streaming else None)
        assert time.monotonic() - began >= 0.3
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
            await asked(server, on_text=[].append)
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


async def test_a_server_that_is_not_there():
    """The error names the place to look at."""
    async with openai_server([]) as server:
        gone = server.base_url
    model = OpenAIModel("m", base_url=gone, max_retries=0)
    with pytest.raises(ModelRequestError, match="check base_url, and that the server is running"):
        await model.respond(HELLO)
    await model.aclose()


async def test_a_server_that_is_slow():
    """After `timeout` seconds an attempt is over."""
    async with openai_server(lambda request: time.sleep(1) or "late") as server:
        assert "in time" in str(await refused(server, timeout=0.1))


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


async def test_a_key_that_cannot_be_sent():
    """A key that was copied with an ellipsis is named without being shown."""
    async with openai_server(["Hi."]) as server:
        assert "the key or a header" in str(await refused(server, api_key="sk-topsecret…"))


async def test_text_that_cannot_be_sent():
    """Half a surrogate pair is named before anything is sent."""
    async with openai_server(["Hi."]) as server:
        assert "surrogate" in str(await refused(server, ModelRequest((Message.user("topsecret \udcff"),))))
    assert server.requests == []


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
            assert "what is to be sent to model 'm' at " in str(caught.value)
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


async def test_a_server_without_keys_gets_a_placeholder(monkeypatch):
    """With a base_url no key is needed, and a key that was meant for OpenAI is not sent elsewhere."""
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setenv("OPENAI_ADMIN_KEY", KEY)
    async with openai_server(["Hi."]) as server, OpenAIModel("m", base_url=server.base_url) as model:
        await model.respond(HELLO)
    assert server.headers[0]["authorization"] == "Bearer none"


@pytest.mark.parametrize("settings", [{}, {"api_key": "k"}, {"api_key": "k", "headers": {"X-Team": "mine"}}])
async def test_a_named_server_gets_no_header_of_the_environment(settings, monkeypatch):
    """The organisation, the project and the headers that are meant for OpenAI may be secret; its own key and headers arrive."""
    monkeypatch.setenv("OPENAI_ORG_ID", "topsecret")
    monkeypatch.setenv("OPENAI_PROJECT_ID", "topsecret")
    monkeypatch.setenv("OPENAI_CUSTOM_HEADERS", f"x-team: topsecret\nauthorization: Bearer {KEY}\nX-Gateway: topsecret")
    async with openai_server(["Hi."]) as server, OpenAIModel("m", base_url=server.base_url, **settings) as model:
        await model.respond(HELLO)
    [sent] = server.headers
    assert "topsecret" not in str(sent)
    assert sent["authorization"] == f"Bearer {settings.get('api_key', 'none')}"
    assert sent.get("x-team") == settings.get("headers", {}).get("X-Team")


async def test_the_server_of_the_environment_gets_its_headers(monkeypatch):
    """OPENAI_BASE_URL, OPENAI_ORG_ID and OPENAI_CUSTOM_HEADERS belong together."""
    async with openai_server(["Hi."]) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.base_url)
        monkeypatch.setenv("OPENAI_ORG_ID", "org-1")
        monkeypatch.setenv("OPENAI_CUSTOM_HEADERS", "x-team: mine")
        async with OpenAIModel("m") as model:
            await model.respond(HELLO)
    assert (server.headers[0]["openai-organization"], server.headers[0]["x-team"]) == ("org-1", "mine")


@pytest.mark.parametrize("address", ["localhost:11434/v1", "http://[::1", "models.example.org"])
async def test_an_address_of_the_environment_that_is_none(address, monkeypatch):
    """The error names the variable."""
    monkeypatch.setenv("OPENAI_BASE_URL", address)
    with pytest.raises(ModelRequestError, match="OPENAI_BASE_URL is not an address such as"):
        await OpenAIModel("m", api_key=KEY).respond(HELLO)


@pytest.mark.parametrize("address", ["", " "])
async def test_an_empty_address_of_the_environment_is_none(address, monkeypatch):
    """OpenAI itself is asked then, for which a key is needed."""
    monkeypatch.setenv("OPENAI_BASE_URL", address)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    model = OpenAIModel("m")
    assert model.base_url == "https://api.openai.com/v1"
    with pytest.raises(ModelRequestError, match="set OPENAI_API_KEY, pass api_key="):
        await model.respond(HELLO)
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:9")  # the request would go there
    with pytest.raises(ModelRequestError, match="ConnectError"):
        await OpenAIModel("m", api_key=KEY, max_retries=0).respond(HELLO)


async def test_a_key_with_a_line_break():
    """As one that was read from a file: the error says so, and shows the key neither in its text nor in its detail."""
    async with openai_server([]) as server:
        with pytest.raises(ModelRequestError, match="such as a trailing line break") as caught:
            await OpenAIModel("m", base_url=server.base_url, api_key=f"{KEY}\n", max_retries=0).respond(HELLO)
    assert KEY not in "".join(traceback.format_exception(caught.value)) + caught.value.detail


async def test_the_environment_names_server_and_key(monkeypatch):
    """OPENAI_BASE_URL and OPENAI_API_KEY belong together."""
    async with openai_server(["Hi."] * 2) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.base_url)
        monkeypatch.setenv("OPENAI_API_KEY", KEY)
        async with OpenAIModel("m") as model:
            await model.respond(HELLO)
        monkeypatch.delenv("OPENAI_API_KEY")
        async with OpenAIModel("m") as model:
            await model.respond(HELLO)
    assert [each["authorization"] for each in server.headers] == [f"Bearer {KEY}", "Bearer none"]


async def test_no_key_and_no_server(monkeypatch):
    """Without either, the error says which to give."""
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    with pytest.raises(ModelRequestError, match="set OPENAI_API_KEY, pass api_key="):
        await OpenAIModel("m").respond(HELLO)


def test_a_model_shows_no_secret():
    """Neither the key nor a password in the address stands in the repr."""
    model = OpenAIModel("m", base_url="http://me:topsecret@localhost:1/v1", api_key=KEY)
    assert repr(model) == "<OpenAIModel: model 'm' at localhost:1>"


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


def test_one_model_serves_several_loops():
    """A model may be used in one event loop after the other, of either kind."""
    with openai_server(lambda request: "Hi.") as server:
        model = OpenAIModel("m", base_url=server.base_url)

        async def ask():
            async with model:
                for on_text in (None, [].append):
                    assert (await model.respond(HELLO, on_text)).message.text == "Hi."

        for backend in ("asyncio", "trio", "asyncio"):
            anyio.run(ask, backend=backend)
    assert len(server.requests) == 6
