"""OpenAIEmbedder against a real HTTP server on this machine, on both loops."""

from __future__ import annotations

import json
import pickle
import socket

import numpy as np
import pytest

from graphagent.embed import checked
from graphagent.embed.openai import OpenAIEmbedder
from graphagent.errors import EmbedderError
from graphagent.testing import RawResponse, openai_server

KEY = "sk-topsecret-key"


@pytest.fixture
def server():
    with openai_server([]) as running:
        yield running


class Answering:
    """A server whose answer to embeddings is what a test says."""

    def __init__(self, server, answer):
        self.serve, server.serve = server.serve, self
        self.answer = answer

    def __call__(self, path, body, headers):
        self.serve(path, body, headers)
        return self.answer


def answered(server, value, status=200):
    Answering(server, RawResponse(status, {"content-type": "application/json"}, json.dumps(value)))


async def test_vectors_come_in_the_order_of_the_texts(server):
    """Texts go in batches, and texts that share words come back near one another."""
    texts = ["the staging port", "a cat sleeps", "the staging port is open", "dogs bark", "the port"]
    async with OpenAIEmbedder("m", base_url=server.base_url, batch=2) as embedder:
        rows = await checked(embedder, texts)
    assert [each["input"] for each in server.requests] == [texts[:2], texts[2:4], texts[4:]]
    assert {each["model"] for each in server.requests} == {"m"}
    assert rows[0] @ rows[2] > rows[0] @ rows[1] + 0.3


async def test_nothing_is_asked_for_no_texts(server):
    """An empty list is answered here."""
    assert await OpenAIEmbedder("m", base_url=server.base_url).embed([]) == []
    assert server.requests == []


async def test_settings_go_along(server):
    """Dimensions, parameters, headers and the query are sent; dimensions are part of the name."""
    embedder = OpenAIEmbedder(
        "m", base_url=server.base_url, dimensions=7, headers={"x-team": "a"}, query={"v": "1"}, input_type="document"
    )
    async with embedder:
        [vector] = await embedder.embed(["text"])
    assert (embedder.name, len(vector)) == ("m/7", 7)
    assert server.requests == [{"model": "m", "dimensions": 7, "input_type": "document", "input": ["text"]}]
    assert server.headers[0]["x-team"] == "a"


async def test_a_key_goes_where_it_was_meant_to(server, monkeypatch):
    """The key of the environment is not sent to a server that is named; one that is given is; none is no header."""
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    async with OpenAIEmbedder("m", base_url=server.base_url) as embedder:
        await embedder.embed(["a"])
    async with OpenAIEmbedder("m", base_url=server.base_url, api_key="own") as embedder:
        await embedder.embed(["a"])
    monkeypatch.setenv("OPENAI_BASE_URL", server.base_url)
    async with OpenAIEmbedder("m") as embedder:
        await embedder.embed(["a"])
    assert [each.get("authorization") for each in server.headers] == [None, "Bearer own", f"Bearer {KEY}"]


async def test_a_server_of_the_environment_without_keys(server, monkeypatch):
    """With OPENAI_BASE_URL and no key the request goes there without one."""
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    monkeypatch.setenv("OPENAI_BASE_URL", server.base_url)
    async with OpenAIEmbedder("m") as embedder:
        assert len(await embedder.embed(["a"])) == 1
    assert "authorization" not in server.headers[0]


async def test_what_cannot_be_sent_is_told(server):
    """A key that was copied with an ellipsis, and half a surrogate pair in a parameter, are named and not shown."""
    for settings, said in (
        (
            {"api_key": f"{KEY}…"},
            "the key or a header for embedder 'm' at .* contains a character that HTTP does not allow",
        ),
        ({"user": "topsecret \udcff"}, "what is to be sent to embedder 'm' at .* contains half a surrogate pair"),
    ):
        async with OpenAIEmbedder("m", base_url=server.base_url, **settings) as embedder:
            with pytest.raises(EmbedderError, match=said) as raised:
                await embedder.embed(["a"])
        assert "topsecret" not in f"{raised.value!r} {vars(raised.value)} {embedder!r}"
    assert server.requests == []


async def test_making_one_needs_no_key(monkeypatch):
    """The key is missed at the first use, with what to do."""
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    embedder = OpenAIEmbedder("m")
    with pytest.raises(EmbedderError, match="needs a key: set OPENAI_API_KEY"):
        await embedder.embed(["a"])


@pytest.mark.parametrize(
    ("status", "advice"), [(401, "check the key"), (404, "base_url"), (429, "quota"), (503, "the server failed")]
)
async def test_a_refusal_says_why_and_keeps_secrets(server, status, advice):
    """The status, the server's codes and advice are told, and neither the text nor the key."""
    said = {"error": {"message": f"no: topsecret text, {KEY}", "type": "invalid", "code": "c_1"}}
    answered(server, said, status)
    async with OpenAIEmbedder("m", base_url=server.base_url, api_key=KEY, max_retries=0) as embedder:
        with pytest.raises(
            EmbedderError, match=rf"embedder 'm' at 127.0.0.1:\d+ answered {status} \(c_1, invalid\): .*{advice}"
        ) as raised:
            await embedder.embed(["topsecret text"])
    shown = f"{raised.value!r} {vars(raised.value)} {embedder!r}"
    assert "topsecret" not in shown
    assert str(pickle.loads(pickle.dumps(raised.value))) == str(raised.value)


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ({"choices": []}, "something else than vectors"),
        ({"data": [{"index": 0}]}, "something else than vectors"),
        ({"data": {"a": 1}}, "something else than vectors"),
        ({"data": [{"index": 0, "embedding": None}, {"index": 1, "embedding": "AAAA"}]}, "something else than vectors"),
        ([1], "something else than vectors"),
        ({"data": [{"index": 0, "embedding": [1.0]}]}, "1 vector for 2 texts"),
    ],
)
async def test_another_answer_is_no_vectors(server, value, said):
    """What is no answer of the protocol raises and says what to check."""
    answered(server, value)
    async with OpenAIEmbedder("m", base_url=server.base_url) as embedder:
        with pytest.raises(EmbedderError, match=said):
            await embedder.embed(["a", "b"])


async def test_the_order_is_that_of_the_numbers(server):
    """A server may answer in any order that it numbers; one that numbers nothing keeps that of the texts."""
    answered(server, {"data": [{"index": 1, "embedding": [2.0]}, {"index": 0, "embedding": [1.0]}]})
    async with OpenAIEmbedder("m", base_url=server.base_url) as embedder:
        assert await embedder.embed(["a", "b"]) == [[1.0], [2.0]]
        server.serve.answer = RawResponse(
            200,
            {"content-type": "application/json"},
            json.dumps({"data": [{"index": None, "embedding": [each]} for each in (3.0, 1.0)]}),
        )
        assert await embedder.embed(["a", "b"]) == [[3.0], [1.0]]


async def test_a_page_is_no_vectors(server):
    """An answer that is not JSON says so."""
    Answering(server, RawResponse(200, {"content-type": "text/html"}, "<html>topsecret</html>"))
    async with OpenAIEmbedder("m", base_url=server.base_url) as embedder:
        with pytest.raises(EmbedderError, match="check base_url"):
            await embedder.embed(["a"])


async def test_a_server_that_is_not_there_is_told():
    """A port where nobody listens is no server."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    async with OpenAIEmbedder("m", base_url=f"http://127.0.0.1:{port}/v1", max_retries=0) as embedder:
        with pytest.raises(EmbedderError, match="cannot be reached"):
            await embedder.embed(["a"])


async def test_an_answer_that_comes_too_late_is_told():
    """A server that accepts and says nothing is out of time."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        place = f"http://127.0.0.1:{silent.getsockname()[1]}/v1"
        async with OpenAIEmbedder("m", base_url=place, timeout=0.2, max_retries=0) as embedder:
            with pytest.raises(EmbedderError, match="did not answer in time"):
                await embedder.embed(["a"])


def test_wrong_settings_are_refused_at_once():
    """An address that is none, and numbers below 1."""
    with pytest.raises(ValueError, match="base_url is not an address"):
        OpenAIEmbedder("m", base_url="localhost:1")
    with pytest.raises(ValueError, match="1 or more"):
        OpenAIEmbedder("m", batch=0)


def test_the_official_client_reads_the_test_server(server):
    """As numbers, and as base64, which is what it asks for by itself."""
    from openai import OpenAI

    with OpenAI(base_url=server.base_url, api_key="k") as client:
        plain = client.embeddings.create(model="m", input="a b", encoding_format="float").data[0].embedding
        packed = client.embeddings.create(model="m", input=["a b"]).data[0].embedding
    assert np.allclose(plain, packed, atol=1e-6)
    assert np.isclose(np.linalg.norm(plain), 1)
