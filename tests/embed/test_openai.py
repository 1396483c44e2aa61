"""OpenAIEmbedder against a real HTTP server on this machine, on both loops."""

from __future__ import annotations

import json
import pickle

import anyio
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
    """Dimensions, parameters, headers and the query are sent; dimensions and parameters are part of the name."""
    embedder = OpenAIEmbedder(
        "m", base_url=server.base_url, dimensions=7, headers={"x-team": "a"}, query={"v": "1"}, input_type="document"
    )
    async with embedder:
        [vector] = await embedder.embed(["text"])
    assert (embedder.name, len(vector)) == ("m/7/input_type=document", 7)
    assert server.requests == [{"model": "m", "dimensions": 7, "input_type": "document", "input": ["text"]}]
    assert server.headers[0]["x-team"] == "a"


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
        ({"choices": []}, "something other than vectors"),
        ({"data": [{"index": 0}]}, "something other than vectors"),
        ({"data": {"a": 1}}, "something other than vectors"),
        (
            {"data": [{"index": 0, "embedding": None}, {"index": 1, "embedding": "AAAA"}]},
            "something other than vectors",
        ),
        ([1], "something other than vectors"),
        ({"data": [{"index": 0, "embedding": [1.0]}]}, "1 vector for 2 texts"),
    ],
)
async def test_another_answer_is_no_vectors(server, value, said):
    """What is no answer of the protocol raises and says what to check."""
    answered(server, value)
    async with OpenAIEmbedder("m", base_url=server.base_url) as embedder:
        with pytest.raises(EmbedderError, match=said):
            await embedder.embed(["a", "b"])


async def test_vectors_of_another_length_than_was_asked_for_are_refused(server):
    """A server may ignore `dimensions`; its vectors would be kept under a name that is not theirs."""
    answered(server, {"data": [{"index": 0, "embedding": [1.0] * 384}]})
    async with OpenAIEmbedder("m", base_url=server.base_url, dimensions=100) as embedder:
        with pytest.raises(EmbedderError, match=r"vectors of 384 numbers instead of dimensions=100"):
            await embedder.embed(["a"])


@pytest.mark.parametrize(
    ("status", "words", "asked", "advice"),
    [
        (500, "input (600 tokens) is too large to process. increase the physical batch size", 1, "--ubatch-size"),
        (503, "Loading model", 3, "the server failed"),
    ],
)
async def test_only_what_may_pass_is_repeated(server, monkeypatch, status, words, asked, advice):
    """A text that is too long for the batch of llama.cpp fails again, whatever the status says; a server that starts is asked again."""
    waits = []

    async def sleep(seconds):
        waits.append(seconds)

    monkeypatch.setattr(anyio, "sleep", sleep)
    answered(server, {"error": {"code": status, "message": words, "type": "server_error"}}, status)
    async with OpenAIEmbedder("m", base_url=server.base_url) as embedder:
        with pytest.raises(EmbedderError, match=advice):
            await embedder.embed(["a"])
    assert (len(server.requests), len(waits)) == (asked, asked - 1)


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


def test_wrong_settings_are_refused_at_once():
    """An address that is none, and numbers below 1."""
    with pytest.raises(ValueError, match="base_url is not an address"):
        OpenAIEmbedder("m", base_url="localhost:1")
    with pytest.raises(ValueError, match="at least 1"):
        OpenAIEmbedder("m", batch=0)


def test_the_official_client_reads_the_test_server(server):
    """As numbers, and as base64, which is what it asks for by itself."""
    from openai import OpenAI

    with OpenAI(base_url=server.base_url, api_key="k") as client:
        plain = client.embeddings.create(model="m", input="a b", encoding_format="float").data[0].embedding
        packed = client.embeddings.create(model="m", input=["a b"]).data[0].embedding
    assert np.allclose(plain, packed, atol=1e-6)
    assert np.isclose(np.linalg.norm(plain), 1)
