"""The recipe for a web service, served by a real server on loopback to clients that read, leave and come back."""

from __future__ import annotations

import http.client
import json
import socket
import threading
import time
from contextlib import contextmanager

import anyio
import pytest
import uvicorn

from graphagent import Agent, tool
from graphagent.llm import ToolCall
from graphagent.store import SqliteStore
from graphagent.testing import ScriptedModel
from graphagent_strategies import single_run
from tests.test_docs import PAGES, _blocks, _run, _runnable

PAGE = PAGES["docs/recipes/chat-service.md"]
ANSWER = ("answer", "You have 4A.")


class Held(ScriptedModel):
    """A model that says a word at one of its requests, and then waits until it is let go or cancelled."""

    def __init__(self, replies, at=1):
        super().__init__(replies)
        self.at = at
        self.free = False
        self.cancelled = threading.Event()

    async def respond(self, request, on_text=None):
        if len(self.requests) + 1 == self.at and not self.free:
            on_text("Well,")
            try:
                while not self.free:  # noqa: ASYNC110  let go by another thread, which has no event of this loop
                    await anyio.sleep(0.01)
            except anyio.get_cancelled_exc_class():
                self.cancelled.set()
                raise
        return await super().respond(request, on_text)


@pytest.fixture
def page(tmp_path, monkeypatch):
    """The names of the recipe, whose programs ran in an empty folder."""
    monkeypatch.chdir(tmp_path)
    return _run(_runnable(_blocks(PAGE.read_text("utf-8"))), str(PAGE), monkeypatch)


@contextmanager
def serving(app):
    """Serve an application on loopback, and give its port."""
    server = uvicorn.Server(uvicorn.Config(app, log_config=None))
    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        try:
            yield listening.getsockname()[1]
        finally:
            server.should_exit = server.force_exit = True
            thread.join()


@contextmanager
def sent(port, message, *, number=1, user="ada"):
    """Send a message, and give an iterator over the events; the client leaves at the end of the block."""
    client = http.client.HTTPConnection("127.0.0.1", port)
    body = json.dumps({"thread": "t", "number": number, "message": message})
    client.request("POST", "/chat", body, {"x-user": user})
    response = client.getresponse()
    assert response.headers["content-type"].startswith("text/event-stream")
    try:
        yield _events(response)
    finally:
        response.close()
        client.close()


def _events(response):
    for line in response:
        if line.startswith(b"event: "):
            yield line[7:].decode().strip(), json.loads(response.readline()[6:])


def until(condition):
    """Wait until something is so, as long as that takes."""
    while not condition():
        time.sleep(0.01)


async def status(agent, run_id):
    return (await agent.read(run_id, owner="ada")).status


def test_text_is_read_before_the_model_has_ended(page):
    """A real server passes each piece on while the model still speaks, and the whole answer at the end."""
    model = Held(["Hello there."])
    page["agent"] = Agent(single_run(), model=model, store=SqliteStore("held.db"))
    with serving(page["app"]) as port, sent(port, "hi") as events:
        assert next(events) == ("text", "Well,")
        model.free = True
        assert list(events) == [("text", "Hello"), ("text", " there."), ("answer", "Hello there.")]


def test_a_client_that_leaves_cancels_its_run_and_finds_it_again(page):
    """The request to the model is cancelled, the run is kept, and sent again it goes on without repeating a turn or a tool call."""
    booked = []

    @tool
    async def book(seat: str) -> str:
        """Book a seat."""
        booked.append(seat)
        return f"{seat} is booked"

    model = Held([ToolCall("book", {"seat": "4A"}), "You have 4A."], at=2)
    page["agent"] = agent = Agent(single_run(), model=model, tools=[book], store=SqliteStore("held.db"))
    with serving(page["app"]) as port:
        with sent(port, "Book 4A.") as events:
            assert next(events) == ("text", "Well,")
        assert model.cancelled.wait(60)
        until(lambda: anyio.run(status, agent, "t-1") == "cancelled")
        model.free = True
        for expected in ([("text", "You"), ("text", " have"), ("text", " 4A."), ANSWER], [ANSWER]):
            with sent(port, "Book 4A.") as events:
                assert list(events) == expected
    assert (booked, len(model.requests)) == (["4A"], 2)


def test_a_message_that_is_being_answered_is_busy(page):
    """A second client that sends it does not disturb the first; nor does one that sends the next message of the thread."""
    model = Held(["You have 4A."])
    page["agent"] = Agent(single_run(), model=model, store=SqliteStore("held.db"))
    with serving(page["app"]) as port, sent(port, "Book 4A.") as events:
        assert next(events) == ("text", "Well,")
        for number in (1, 2):
            with sent(port, "Book 4A.", number=number) as others:
                assert list(others) == [("busy", "try again in a moment")]
        model.free = True
        assert list(events)[-1] == ANSWER
    assert not model.cancelled.is_set()


def test_another_user_does_not_find_the_run(page):
    """The same thread and number of another user are another run."""
    page["agent"] = Agent(single_run(), model=ScriptedModel(["one", "two"]), store=SqliteStore("held.db"))
    with serving(page["app"]) as port:
        for user, answer in (("ada", "one"), ("bob", "two"), ("ada", "one")):
            with sent(port, "hi", user=user) as events:
                assert list(events)[-1] == ("answer", answer)


def test_an_error_ends_the_stream_and_the_message_can_be_sent_again(page):
    """The stream breaks off without `answer` or `busy`; sent again, the run goes on."""
    model = ScriptedModel()
    page["agent"] = Agent(single_run(), model=model, store=SqliteStore("held.db"))
    with serving(page["app"]) as port:
        with sent(port, "hi") as events:
            assert list(events) == []
        page["agent"] = Agent(single_run(), model=ScriptedModel(["Hello."]), store=SqliteStore("held.db"))
        with sent(port, "hi") as events:
            assert list(events) == [("text", "Hello."), ("answer", "Hello.")]
