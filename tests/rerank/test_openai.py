"""OpenAIReranker against a real HTTP server on this machine, on both loops."""

from __future__ import annotations

import json
import pickle

import pytest

from graphagent.errors import RerankerError
from graphagent.rerank.openai import OpenAIReranker
from graphagent.testing import RawResponse, openai_server

KEY = "sk-topsecret-key"
TEXTS = ["dogs bark", "the staging port is 8080", "the port"]


@pytest.fixture
def server():
    with openai_server([]) as running:
        yield running


def answered(server, content, status=200, kind="application/json"):
    """Make a server answer every request to rerank with something else."""
    serve = server.serve
    body = content if isinstance(content, str) else json.dumps(content)

    def answer(path, sent, headers):
        serve(path, sent, headers)
        return RawResponse(status, {"content-type": kind}, body)

    server.serve = answer


async def test_scores_come_in_the_order_of_the_texts(server):
    """A server returns them the best first; each is returned in the place of its text."""
    async with OpenAIReranker("m", base_url=server.base_url) as reranker:
        assert await reranker.rerank("the staging port", TEXTS) == [0, 1, 2 / 3]
    assert server.requests == [{"model": "m", "query": "the staging port", "documents": TEXTS}]


async def test_text_embeddings_inference_has_its_own_names(server):
    """`field` names the texts of a request; the response is a bare list of scores that are called `score`."""
    async with OpenAIReranker("m", base_url=server.base_url, field="texts", truncate=True) as reranker:
        assert await reranker.rerank("the staging port", TEXTS) == [0, 1, 2 / 3]
    assert server.requests == [{"model": "m", "query": "the staging port", "texts": TEXTS, "truncate": True}]


async def test_texts_go_in_batches(server):
    """No request has more texts than `batch`; no texts are no request."""
    async with OpenAIReranker("m", base_url=server.base_url, batch=2) as reranker:
        assert await reranker.rerank("the staging port", TEXTS) == [0, 1, 2 / 3]
        assert await reranker.rerank("the staging port", []) == []
    assert [each["documents"] for each in server.requests] == [TEXTS[:2], TEXTS[2:]]


@pytest.mark.parametrize(
    "content",
    [
        {"results": [{"index": 1, "relevance_score": 7.74}, {"index": 0, "relevance_score": -11}]},
        {"data": [{"index": 1, "relevance_score": 7.74}, {"index": 0, "relevance_score": -11}]},
        {"results": [{"index": 1, "score": 7.74, "document": None}, {"index": 0, "score": -11}], "meta": None},
        [{"index": 0, "score": -11}, {"index": 1, "score": 7.74, "text": "b"}],
    ],
    ids=["cohere", "voyage", "mixed", "inference"],
)
async def test_the_forms_of_servers_are_read(server, content):
    """Scores outside of 0 to 1 are returned as they are."""
    answered(server, content)
    async with OpenAIReranker("m", base_url=server.base_url) as reranker:
        assert await reranker.rerank("q", ["a", "b"]) == [-11, 7.74]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ({"choices": []}, "something other than scores; check base_url"),
        ({"results": None}, "something other than scores"),
        ({"results": {"index": 0}}, "something other than scores"),
        ({"results": [{"index": 0}]}, "something other than scores"),
        ({"results": [{"relevance_score": 1.0}, {"relevance_score": 0.5}]}, "something other than scores"),
        ({"results": [{"index": "0", "relevance_score": 1.0}]}, "something other than scores"),
        ({"results": ["topsecret", "b"]}, "something other than scores"),
        ([1, 2], "something other than scores"),
        (None, "something other than scores"),
        ("<html>topsecret</html>", "something other than JSON; check base_url"),
        ({"results": [{"index": 0, "relevance_score": 1.0}]}, "1 score, for 1 of 2 texts; .* top_n"),
        ({"results": []}, "0 scores, for 0 of 2 texts"),
        ([{"index": 0, "score": 1}, {"index": 0, "score": 2}], "2 scores, for 1 of 2 texts"),
        ([{"index": 0, "score": 1}, {"index": 2, "score": 2}], "2 scores, for 1 of 2 texts"),
        ([{"index": -1, "score": 1}, {"index": 0, "score": 2}], "2 scores, for 1 of 2 texts"),
        ([{"index": 0, "score": 1}, {"index": 1, "score": None}], "NoneType instead of a number for text 2 of 2"),
        ([{"index": 0, "score": 1}, {"index": 1, "score": "topsecret"}], "str instead of a number for text 2 of 2"),
        ([{"index": 0, "score": float("nan")}, {"index": 1, "score": 1}], r"an infinite number or NaN for text 1 of 2"),
    ],
)
async def test_another_answer_is_no_scores(server, content, said):
    """What is not one finite number for each text is an error that says which reranker, and nothing of what was sent."""
    answered(server, content, kind="text/html" if isinstance(content, str) else "application/json")
    async with OpenAIReranker("m", base_url=server.base_url, api_key=KEY) as reranker:
        with pytest.raises(RerankerError, match=rf"reranker 'm' at 127.0.0.1:\d+ .*{said}") as raised:
            await reranker.rerank("topsecret", ["topsecret a", "b"])
    assert "topsecret" not in f"{raised.value!r} {vars(raised.value)}"


@pytest.mark.parametrize(
    ("status", "advice"),
    [
        (400, "batch="),
        (401, "check the key: pass api_key="),
        (404, "to which /rerank is added"),
        (413, "truncate=True"),
        (422, 'field="texts"'),
        (429, "quota"),
        (503, "the server failed"),
    ],
)
async def test_a_refusal_says_what_to_do_and_keeps_secrets(server, status, advice):
    """The status, the server's codes and advice are in the error, and neither a text nor the key."""
    answered(server, {"error": {"message": f"no: topsecret text, {KEY}", "type": "invalid", "code": "c_1"}}, status)
    async with OpenAIReranker("m", base_url=server.base_url, api_key=KEY, max_retries=0) as reranker:
        with pytest.raises(
            RerankerError, match=rf"'m' at 127.0.0.1:\d+ answered {status} \(c_1, invalid\): .*{advice}"
        ) as raised:
            await reranker.rerank("topsecret", ["topsecret text"])
    assert "topsecret" not in f"{raised.value!r} {vars(raised.value)} {reranker!r}"
    assert str(pickle.loads(pickle.dumps(raised.value))) == str(raised.value)


async def test_openai_itself_is_never_asked(monkeypatch):
    """It has no reranker, so without an address nothing is sent."""
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    with pytest.raises(RerankerError, match=r"reranker 'm' needs base_url=, such as .* or OPENAI_BASE_URL"):
        await OpenAIReranker("m").rerank("q", ["a"])


async def test_what_cannot_be_sent_is_refused(server):
    """One text instead of a list, and half a surrogate pair."""
    async with OpenAIReranker("m", base_url=server.base_url) as reranker:
        with pytest.raises(TypeError, match=r"rerank\(query, \[text\]\)"):
            await reranker.rerank("q", "text")
        with pytest.raises(RerankerError, match="half a surrogate pair"):
            await reranker.rerank("q", ["topsecret \udcff"])
    assert server.requests == []


def test_wrong_settings_are_refused_at_once():
    """An address that is none, and a batch of no texts."""
    with pytest.raises(ValueError, match="base_url is not an address"):
        OpenAIReranker("m", base_url="localhost:1")
    with pytest.raises(ValueError, match="at least 1"):
        OpenAIReranker("m", batch=0)
