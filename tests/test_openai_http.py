"""What models, embedders and rerankers behind the OpenAI protocol share, against a real HTTP server, on both loops."""

from __future__ import annotations

import asyncio
import base64
import gc
import logging
import socket
import threading
import time
import traceback
import warnings
import weakref

import anyio
import pytest

from graphagent import _openai_http
from graphagent.embed.openai import OpenAIEmbedder
from graphagent.errors import EmbedderError, ModelRequestError, RerankerError
from graphagent.llm import Message, ModelRequest
from graphagent.llm.openai import OpenAIModel
from graphagent.rerank.openai import OpenAIReranker
from graphagent.testing import RawResponse, openai_server

KEY = "sk-topsecret"
ERRORS = {OpenAIModel: ModelRequestError, OpenAIEmbedder: EmbedderError, OpenAIReranker: RerankerError}
UNKEYED = {OpenAIModel: "Bearer none", OpenAIEmbedder: None, OpenAIReranker: None}


@pytest.fixture
def server():
    with openai_server(lambda request: "Hi.") as running:
        yield running


@pytest.fixture(params=ERRORS)
def kind(request):
    return request.param


@pytest.fixture
def warned():
    """What Python warned of; what it would warn of later is collected before this is looked at."""
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        yield lambda: (gc.collect(), [str(each.message) for each in seen])[1]


async def ask(asked, streaming=False):
    if isinstance(asked, OpenAIEmbedder):
        return await asked.embed(["a text"])
    if isinstance(asked, OpenAIReranker):
        return await asked.rerank("a text", ["a text"])
    return await asked.respond(ModelRequest((Message.user("Hello"),)), [].append if streaming else None)


def connected(server, count):
    """Say whether so many connections are open, as the server's threads learn it within a moment."""
    until = time.monotonic() + 600
    while len(server._http.connections) != count and time.monotonic() < until:
        time.sleep(0.01)
    return len(server._http.connections) == count


class Held:
    """Keeps the server's answers to embeddings back until it is told to give them."""

    def __init__(self, server):
        self.serve, server.serve = server.serve, self
        self.arrived, self.release = threading.Event(), threading.Event()

    def __call__(self, path, body, headers):
        answer = self.serve(path, body, headers)
        self.arrived.set()
        assert self.release.wait(600)
        return answer


# Clients


@pytest.mark.parametrize("streaming", [False, True])
def test_what_nobody_closes_is_closed_with_its_event_loop(server, kind, streaming, warned):
    """One object is asked in loop after loop; none leaves a connection or a warning, whoever holds the object."""
    asked = kind("m", base_url=server.base_url)
    for backend in ("asyncio", "trio", "asyncio", "trio"):
        anyio.run(ask, asked, streaming, backend=backend)
        assert connected(server, 0)
    assert warned() == []
    assert len(_openai_http._loops) == 0


async def test_what_is_closed_opens_again(server, kind):
    """`aclose` frees the connection, may be called twice and before the first request, and a later request works."""
    asked = kind("m", base_url=server.base_url)
    await asked.aclose()
    for _ in range(2):
        async with asked:
            await ask(asked)
            assert connected(server, 1)
        assert connected(server, 0)
        await asked.aclose()


async def test_a_client_of_one_that_is_gone_is_closed(server, kind, warned):
    """Objects that were dropped unclosed leave no warning, and no more than the last one's connection."""
    for _ in range(5):
        await ask(kind("m", base_url=server.base_url))
        gc.collect()
    assert connected(server, 1)
    async with kind("m", base_url=server.base_url) as last:
        await ask(last)
    assert connected(server, 0)
    assert warned() == []


@pytest.mark.parametrize("cancelled", [False, True])
async def test_closing_waits_for_what_is_being_asked(server, cancelled):
    """A request under way when its embedder is closed gets its answer; then, or when it is cancelled, its connection is closed."""
    held, embedder, found = Held(server), OpenAIEmbedder("m", base_url=server.base_url), []

    async def embed():
        found.append(await embedder.embed(["a"]))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(embed)
        assert await anyio.to_thread.run_sync(held.arrived.wait, 600)
        await embedder.aclose()
        assert connected(server, 1)
        if cancelled:
            tasks.cancel_scope.cancel()
        held.release.set()
    assert len(found) == (0 if cancelled else 1)
    assert connected(server, 0)


def test_a_loop_that_is_closed_without_its_generators_is_let_go(server, kind):
    """Where nobody shut the generators of a loop down, its client goes when the next loop is used."""
    asked, loop = kind("m", base_url=server.base_url), asyncio.new_event_loop()
    gone = weakref.ref(loop)
    loop.run_until_complete(ask(asked))
    loop.close()
    del loop
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # nobody closed the connection, and Python says so
        anyio.run(ask, asked)
        gc.collect()
    assert gone() is None
    assert connected(server, 0)


def test_one_that_is_dropped_after_its_loop_troubles_no_later_one(server, kind, warned):
    """A client whose loop has ended starts nothing in the loop that happens to run when it is collected."""
    trouble, kept = [], []

    async def use():
        kept.append(kind("m", base_url=server.base_url))
        await ask(kept[0])

    async def collect():
        asyncio.get_running_loop().set_exception_handler(lambda loop, context: trouble.append(context["message"]))
        kept.clear()
        gc.collect()
        await anyio.sleep(0.01)
        gc.collect()

    anyio.run(use)
    anyio.run(collect)
    assert (trouble, warned()) == ([], [])


def test_loops_in_threads_do_not_meet(server, kind, warned):
    """One object is asked in many loops at the same time."""
    asked, answers = kind("m", base_url=server.base_url), []

    def work(backend):
        for _ in range(5):
            answers.append(anyio.run(ask, asked, backend=backend))

    threads = [threading.Thread(target=work, args=(["asyncio", "trio"][each % 2],)) for each in range(6)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert len(answers) == 30
    assert connected(server, 0)
    assert warned() == []


# Keys


async def test_a_server_that_is_named_gets_nothing_that_is_meant_for_another(server, kind, monkeypatch):
    """The key, the organisation, the project and the headers of the environment may be secret; its own key and headers arrive."""
    for name in ("OPENAI_API_KEY", "OPENAI_ADMIN_KEY", "OPENAI_ORG_ID", "OPENAI_PROJECT_ID"):
        monkeypatch.setenv(name, KEY)
    monkeypatch.setenv("OPENAI_CUSTOM_HEADERS", f"x-team: {KEY}\nauthorization: Bearer {KEY}\nX-Gateway: {KEY}")
    for settings in ({}, {"api_key": "own"}, {"api_key": "own", "headers": {"X-Team": "mine"}}):
        async with kind("m", base_url=server.base_url, **settings) as asked:
            await ask(asked)
    assert KEY not in str(server.headers)
    assert [each.get("authorization") for each in server.headers] == [UNKEYED[kind], "Bearer own", "Bearer own"]
    assert [each.get("x-team") for each in server.headers] == [None, None, "mine"]


async def test_the_server_of_the_environment_gets_its_key_and_headers(server, kind, monkeypatch):
    """OPENAI_BASE_URL, OPENAI_API_KEY, OPENAI_ORG_ID and OPENAI_CUSTOM_HEADERS belong together; a key may be missing."""
    monkeypatch.setenv("OPENAI_BASE_URL", server.base_url)
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setenv("OPENAI_ORG_ID", "org-1")
    monkeypatch.setenv("OPENAI_CUSTOM_HEADERS", "x-team: mine")
    for _ in range(2):
        async with kind("m") as asked:
            await ask(asked)
        monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    assert [each.get("authorization") for each in server.headers] == [f"Bearer {KEY}", UNKEYED[kind]]
    assert {(each["openai-organization"], each["x-team"]) for each in server.headers} == {("org-1", "mine")}


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"api_key": f"{KEY}…"}, "the key or a header for {} contains a character that HTTP does not allow"),
        ({"api_key": f"{KEY}\n"}, "the key or a header for {} .* such as a trailing line break"),
        ({"user": "topsecret \udcff"}, "the request to {} contains half a surrogate pair"),
    ],
    ids=["ellipsis", "line break", "surrogate"],
)
async def test_what_cannot_be_sent_is_told(server, kind, settings, said):
    """A key that was copied with an ellipsis or a line break, and half a surrogate pair, are named and not shown."""
    async with kind("m", base_url=server.base_url, max_retries=0, **settings) as asked:
        with pytest.raises(ERRORS[kind], match=said.format(r"\w+ 'm' at 127\.0\.0\.1:\d+")) as raised:
            await ask(asked)
    assert "topsecret" not in f"{raised.value!r} {vars(raised.value)} {asked!r}"
    assert "topsecret" not in "".join(traceback.format_exception(raised.value))
    assert server.requests == []


@pytest.mark.parametrize("place", ["base_url", "OPENAI_BASE_URL"])
async def test_a_password_of_the_address_is_sent_and_not_logged(server, kind, place, monkeypatch, caplog):
    """It goes along as a header, and the address that the HTTP client logs does not hold it. A header of one's own wins."""
    caplog.set_level(logging.INFO)
    address = server.base_url.replace("http://", "http://me:top%20secret@")
    settings = {"base_url": address} if place == "base_url" else {}
    monkeypatch.setenv("OPENAI_BASE_URL", address)
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    for headers in ({}, {"authorization": "own"}):
        async with kind("m", **settings, headers=headers) as asked:
            await ask(asked)
    login = base64.b64encode(b"me:top secret").decode()
    assert [each["authorization"] for each in server.headers] == [f"Basic {login}", "own"]
    assert "HTTP Request: POST" in caplog.text
    assert "secret" not in f"{caplog.text}{asked!r}"


async def test_the_advice_names_the_key_that_is_sent(kind, monkeypatch):
    """OPENAI_API_KEY is no remedy for a server that was named, since it is not sent there."""
    refusal = RawResponse(401, {"content-type": "application/json"}, "{}")
    with openai_server([refusal] * 2) as server:
        server.serve = lambda path, body, headers: refusal
        monkeypatch.setenv("OPENAI_BASE_URL", server.base_url)
        for named, advice in (({"base_url": server.base_url}, "api_key="), ({}, "api_key=, or set OPENAI_API_KEY")):
            async with kind("m", **named) as asked:
                with pytest.raises(ERRORS[kind], match=rf" answered 401: check the key: pass {advice}$"):
                    await ask(asked)


@pytest.mark.parametrize("address", ["localhost:11434/v1", "http://[::1", "a.example.org", "me:topsecret@localhost"])
async def test_an_address_of_the_environment_that_is_none(kind, address, monkeypatch):
    """It is named, and not shown."""
    monkeypatch.setenv("OPENAI_BASE_URL", address)
    with pytest.raises(ERRORS[kind], match=r"^OPENAI_BASE_URL is not an address such as"):
        await ask(kind("m"))


async def test_a_server_that_does_not_answer_is_an_error(kind):
    """One that accepts and says nothing is out of time; at a port where nobody listens is none."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"http://127.0.0.1:{silent.getsockname()[1]}/v1"
        async with kind("m", base_url=address, timeout=0.2, max_retries=0) as asked:
            with pytest.raises(ERRORS[kind], match="did not answer in time"):
                await ask(asked)
    async with kind("m", base_url=address, max_retries=0) as asked:
        with pytest.raises(ERRORS[kind], match=r"cannot be reached .* check base_url, and that the server is running"):
            await ask(asked)


def test_fewer_attempts_than_one_are_refused(kind):
    """`max_retries` below 0 is found at once."""
    with pytest.raises(ValueError, match="max_retries must be at least 0"):
        kind("m", max_retries=-1)
