"""The server that speaks the OpenAI protocol, seen by the official client and by plain HTTP."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
import subprocess
import sys
import threading
from urllib.parse import urlsplit

import pytest
from openai import APIConnectionError, BadRequestError, InternalServerError, OpenAI, RateLimitError

from graphagent.errors import ModelRequestError
from graphagent.llm import Message, ModelRequest, ToolCall, ToolCalls
from graphagent.testing import Cut, RawResponse, openai_server

HELLO = [{"role": "user", "content": "Hello"}]


def client(server, **settings):
    return OpenAI(base_url=server.base_url, api_key="k", **({"max_retries": 0} | settings))


def sent(server, body, path="/v1/chat/completions", method="POST"):
    connection = http.client.HTTPConnection(urlsplit(server.base_url).netloc, timeout=600)
    connection.request(method, path, body)
    answer = connection.getresponse()
    found = answer.status, answer.read()
    connection.close()
    return found


def test_the_official_client_reads_it():
    """Text and tool calls are what the official client expects, models are listed."""
    calls = ToolCalls([ToolCall("add", {"a": 1}, "c1")], "Well.")
    with openai_server(["Hi.", calls], model="m-1") as server, client(server) as openai:
        first = openai.chat.completions.create(model="m", messages=HELLO)
        second = openai.chat.completions.create(model="m", messages=HELLO, temperature=0.5)
        assert [each.id for each in openai.models.list()] == ["m-1"]
    assert (first.choices[0].message.content, first.model, first.usage.total_tokens) == ("Hi.", "m-1", 2)
    [call] = second.choices[0].message.tool_calls
    assert (call.id, call.function.name, call.function.arguments) == ("c1", "add", '{"a": 1}')
    assert second.choices[0].finish_reason == "tool_calls"
    assert server.requests == [{"model": "m", "messages": HELLO}, {"model": "m", "messages": HELLO, "temperature": 0.5}]


def test_the_official_client_streams_it():
    """Chunks come as the official client's helper expects them, with usage if it asks for it."""
    calls = ToolCalls([ToolCall("add", {"a": 1}, "c1"), ToolCall("add", {"a": 2}, "c2")], "Well then.")
    with openai_server([calls]) as server, client(server) as openai:
        usages, texts, arguments = [], [], {}
        stream = openai.chat.completions.create(
            model="m", messages=HELLO, stream=True, stream_options={"include_usage": True}
        )
        for chunk in stream:
            usages.append(chunk.usage)
            for choice in chunk.choices:
                texts.append(choice.delta.content or "")
                for call in choice.delta.tool_calls or ():
                    arguments[call.index] = arguments.get(call.index, "") + call.function.arguments
    assert "".join(texts) == "Well then."
    assert arguments == {0: '{"a": 1}', 1: '{"a": 2}'}
    assert [each is not None for each in usages] == [False] * (len(usages) - 1) + [True]


def test_a_function_answers_what_it_is_asked():
    """The function sees the request as a model would, tools and format included."""
    asked = []

    def answer(request):
        asked.append(request)
        return request.messages[-1].text.upper()

    tools = [{"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}]
    form = {"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "object"}}}
    with openai_server(answer) as server, client(server) as openai:
        for text in ("a", "b"):
            said = openai.chat.completions.create(
                model="m", messages=[{"role": "user", "content": text}], tools=tools, response_format=form, seed=1
            )
            assert said.choices[0].message.content == text.upper()
    assert isinstance(asked[0], ModelRequest)
    assert asked[0].messages == (Message.user("a"),)
    assert (asked[0].tools[0].name, asked[0].output.name, asked[0].parameters) == ("add", "n", {"seed": 1})


def test_faults():
    """Refusals with Retry-After, raw responses, lost connections and failing functions are what a client meets."""
    replies = [
        ModelRequestError("busy", status=429, retry_after=2),
        ValueError("broken"),
        RawResponse(500, {"x-own": "1"}, b"\xff\x00"),
        Cut("Hi.", 20),
        Cut("Hi."),
        lambda request: Cut(lambda request: "Hi.", 20),
    ]
    with openai_server(replies) as server, client(server) as openai:
        expected = (RateLimitError, InternalServerError, InternalServerError, *[APIConnectionError] * 3)
        for kind in expected:
            with pytest.raises(kind) as caught:
                openai.chat.completions.create(model="m", messages=HELLO)
            if kind is RateLimitError:
                assert caught.value.response.headers["retry-after"] == "2"
        with pytest.raises(BadRequestError, match="has 6 replies, and this is request 7"):
            openai.chat.completions.create(model="m", messages=HELLO)


@pytest.mark.parametrize("body", ["", "x", "[]", "{}", '{"messages": 1}', '{"messages": [{}]}', '{"messages": ["x"]}'])
def test_a_request_that_is_none_is_refused(body):
    """What is not the protocol is a 400, and the server goes on."""
    with openai_server(["Hi."] * 2) as server:
        assert sent(server, body)[0] == 400
        assert sent(server, json.dumps({"messages": HELLO}))[0] == 200


def test_other_paths_are_missing():
    """Only what is served is there."""
    with openai_server([]) as server:
        assert sent(server, "{}", "/v1/images/generations")[0] == 404
        assert sent(server, None, "/", "GET")[0] == 404


def test_a_server_serves_other_processes():
    """A program in another process, told by the environment, is served and seen."""
    program = (
        "import anyio; from graphagent.llm import Message, ModelRequest; from graphagent.llm.openai import OpenAIModel; "
        "print(anyio.run(OpenAIModel('m').respond, ModelRequest((Message.user('Hello'),))).message.text)"
    )
    with openai_server(["Hi."]) as server:
        told = {"OPENAI_BASE_URL": server.base_url, "OPENAI_API_KEY": "k", "PYTHONPATH": "."}
        ended = subprocess.run([sys.executable, "-c", program], env=told, capture_output=True, text=True, check=True)
    assert ended.stdout == "Hi.\n"
    assert server.requests[0]["messages"] == HELLO


def test_a_server_is_gone_afterwards():
    """Its port is free, its connections are closed and its threads have ended, also those that clients kept open."""
    before = set(threading.enumerate())
    with openai_server(["Hi."]) as server:
        openai = client(server)
        openai.chat.completions.create(model="m", messages=HELLO)
        with pytest.raises(RuntimeError, match="running already"):
            server.__enter__()
    with pytest.raises(APIConnectionError):
        openai.chat.completions.create(model="m", messages=HELLO)
    openai.close()
    with pytest.raises(RuntimeError, match="not running"):
        _ = server.base_url
    for thread in set(threading.enumerate()) - before:
        thread.join(2)
        assert not thread.is_alive()


@pytest.mark.parametrize("failing", [False, True])
async def test_async_with_is_the_same(failing):
    """`async with` starts and stops it as `with` does, whatever happens within."""
    with contextlib.suppress(KeyError):
        async with openai_server(["Hi."]) as server:
            port = urlsplit(server.base_url).port
            if failing:
                raise KeyError
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), 1)


def test_texts_are_moderated_by_their_words():
    """The official client reads which categories a text is flagged with; no reply is taken."""
    flags = {"bomb": "violence", "knife": "violence", "spam": "spam"}
    with openai_server(["Hi."], flags=flags) as server, client(server) as openai:
        first, second = openai.moderations.create(model="m", input=["a bomb", "a rose"]).results
        said = openai.chat.completions.create(model="m", messages=HELLO)
    assert (first.flagged, first.categories.violence, first.categories.model_extra) == (True, True, {"spam": False})
    assert (second.flagged, second.categories.violence) == (False, False)
    assert said.choices[0].message.content == "Hi."


def test_reranking_takes_no_reply_of_the_script():
    """The best text is first; `top_n` limits the results, and `return_documents` adds the texts."""
    body = {"model": "m", "query": "The green tea", "documents": ["Tea!", "coffee", "The tea is green."]}
    with openai_server(["Hi."]) as server, client(server) as openai:
        status, answer = sent(server, json.dumps(body).encode(), "/v1/rerank")
        few = {**body, "top_n": 1, "return_documents": True}
        limited = json.loads(sent(server, json.dumps(few).encode(), "/v1/rerank")[1])
        said = openai.chat.completions.create(model="m", messages=HELLO)
    assert status == 200
    assert json.loads(answer)["results"] == [
        {"index": 2, "relevance_score": 1.0},
        {"index": 0, "relevance_score": 1 / 3},
        {"index": 1, "relevance_score": 0.0},
    ]
    assert limited["results"] == [{"index": 2, "relevance_score": 1.0, "document": {"text": "The tea is green."}}]
    assert said.choices[0].message.content == "Hi."


@pytest.mark.parametrize(
    "body",
    [{}, {"query": "q"}, {"documents": ["a"]}, {"query": 7, "documents": ["a"]}, {"query": "q", "documents": [7]}],
)
def test_a_request_to_rerank_without_texts_is_refused(body):
    """A question and a list of texts belong to it."""
    with openai_server([]) as server:
        assert sent(server, json.dumps(body).encode(), "/v1/rerank")[0] == 400


def test_a_request_for_moderations_without_a_text_is_refused():
    """As the real one does."""
    with openai_server([]) as server:
        assert sent(server, b"{}", "/v1/moderations")[0] == 400
