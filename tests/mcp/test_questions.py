"""Questions that MCP servers ask during calls: they stop the run, which continues with the answers, also in another process."""

from __future__ import annotations

import json
import os
import sys
from contextlib import contextmanager
from pathlib import Path

import anyio
import pytest

from graphagent.errors import AnswerError
from graphagent.llm import Deny, ToolCall, ToolCalls
from graphagent.mcp import MCPServer
from graphagent.store import MemoryStore, SqliteStore
from tests.mcp.asks import SCHEMA
from tests.mcp.test_http import pytestmark, serving  # noqa: F401  what the client leaves unfinished
from tests.mcp.test_stdio import agent, results

HERE = Path(__file__).parent
ACCEPTED = {"action": "accept", "content": {"sure": True, "note": "-"}}
BROKEN = "broken off, and nobody knows whether it took effect"
either = pytest.mark.parametrize("kind", ["form", "rounds"])


def asks(kind, log=None, **options):
    env = {"PYTHONPATH": os.environ["PYTHONPATH"], **({"LOG": str(log)} if log else {})}
    return MCPServer.stdio(sys.executable, str(HERE / "asks.py"), kind, env=env, name="shop", **options)


def answers(running):
    return [json.loads(each.content)[0] for each in results(running)]


async def stopped(kind, call, store=None, log=None, **options):
    """Return an agent whose run has stopped to ask, and the question; the process is that of its server."""
    running = agent(asks(kind, log, **options), call, store=store)
    result = await running.run("try", run_id="r")
    assert result.status == "waiting"
    return running, result.pending


@either
@pytest.mark.every_loop
async def test_a_question_is_answered_in_another_process(kind, tmp_path):
    """The run stops with the schema of the server; the call is made again, and the recorded answer is for the same question."""
    store, log = SqliteStore(tmp_path / "runs.db"), tmp_path / "log"
    first, question = await stopped(kind, ToolCall("tool", {}, "c1"), store, log)
    assert (question.question, question.kind) == ("The tool server 'shop' asks: Sure?", "question")
    assert (question.json_schema, question.call.name) == (SCHEMA, "tool")
    await first.aclose()
    async with agent(asks(kind, log), store=store) as later:
        assert (await later.resume("r", answer={"sure": True})).output == "done"
        assert answers(later) == [ACCEPTED]
    assert log.read_text().count("{}") == 2


@pytest.mark.parametrize("elsewhere", [False, True])
async def test_an_answer_is_of_the_schema_or_a_refusal(elsewhere, tmp_path):
    """One that does not fit is refused by any process, and `Deny` tells the server that the user declines."""
    store = SqliteStore(tmp_path / "runs.db")
    first, question = await stopped("form", ToolCall("tool", {}, "c1"), store)
    async with first, agent(asks("form"), store=store) as later:
        running = later if elsewhere else first
        with pytest.raises(AnswerError, match="does not fit: .*sure: must be of type boolean" if elsewhere else "sure"):
            await running.resume("r", answers={question.id: {"sure": "yes"}})
        with pytest.raises(AnswerError, match="note: must have at most 5 characters"):
            await running.resume("r", answer={"sure": True, "note": "too long"})
        await running.resume("r", answer=Deny("no"))
        assert answers(running) == [{"action": "decline"}]


@either
@pytest.mark.every_loop
async def test_a_call_that_may_not_be_repeated_waits_in_its_process(kind, tmp_path):
    """The run is continued with the answer while the call is still being made, so the server hears of it once."""
    log = tmp_path / "log"
    running, question = await stopped(kind, ToolCall("once", {}, "c1"), SqliteStore(tmp_path / "runs.db"), log)
    async with running:
        with pytest.raises(AnswerError, match=f"question '{question.id}'.*sure: is|'sure' is a required property"):
            running.last.answer({})
        running.last.answer({"sure": True})
        assert (await running.last.finish()).output == "done"
        assert answers(running) == [ACCEPTED]
    assert log.read_text().splitlines().count("{}") == 1


async def test_a_call_that_may_not_be_repeated_is_not_made_again_elsewhere(tmp_path):
    """Another process cannot continue it: the model is told that nobody knows, and the server is not asked again."""
    store, log = SqliteStore(tmp_path / "runs.db"), tmp_path / "log"
    first, _ = await stopped("form", ToolCall("once", {}, "c1"), store, log)
    async with first, agent(asks("form", log), store=store) as later:
        await later.resume("r", answer={"sure": True})
        assert BROKEN in results(later)[0].content
    assert log.read_text().splitlines().count("{}") == 1


@pytest.mark.every_loop
async def test_a_call_waits_as_long_as_it_may_take(tmp_path):
    """`timeout=` ends the wait of a call that may not be repeated, and the server is told."""
    log = tmp_path / "log"
    running, _ = await stopped("form", ToolCall("once", {}, "c1"), None, log, timeout=1)
    async with running:
        while "cancelled" not in log.read_text():  # noqa: ASYNC110  another process writes it
            await anyio.sleep(0.01)
        running.last.answer({"sure": True})
        await running.last.finish()
        assert BROKEN in results(running)[0].content


@pytest.mark.every_loop
async def test_the_end_of_the_agent_ends_calls_that_wait(tmp_path):
    """The server is told, and its process ends; an answer that comes later finds the call broken off."""
    log = tmp_path / "log"
    running, _ = await stopped("form", ToolCall("once", {}, "c1"), None, log)
    await running.aclose()
    assert "cancelled" in log.read_text()
    async with running:
        running.last.answer({"sure": True})
        await running.last.finish()
    assert results(running)[0].content == f"Error: this call was {BROKEN}"


@pytest.mark.every_loop
async def test_a_call_that_waits_is_of_its_owner_alone():
    """The run of another one, which happens to have the same id, makes a call of its own."""
    with serving(program="asks.py") as url:
        server, store = MCPServer.http(url, name="shop"), MemoryStore()
        said = {}
        for owner in ("ada", "bob"):
            said[owner] = agent(server, ToolCall("once", {"message": f"{owner}?"}, "c1"), store=store)
            result = await said[owner].run("try", run_id="r", owner=owner)
            assert result.pending.question == f"The tool server 'shop' asks: {owner}?"
        for owner, running in said.items():
            await running.resume("r", owner=owner, answer={"sure": owner == "ada"})
            assert answers(running)[0]["content"]["sure"] == (owner == "ada")
        await server.aclose()


async def test_an_answer_is_for_the_same_question_alone(tmp_path):
    """If the server asks something else when the call is made again, or asks twice, that is another question."""
    other = ToolCall("tool", {"message": "Sure {}?"}, "c1")
    twice = ToolCall("tool", {"times": 2}, "c1")
    for number, (call, second) in enumerate([(other, "Sure 2?"), (twice, "Sure?")]):
        running, first = await stopped("form", call, SqliteStore(tmp_path / f"{number}.db"), tmp_path / f"log{number}")
        async with running:
            question = (await running.resume("r", answer={"sure": True})).pending
            assert question.question == f"The tool server 'shop' asks: {second}"
            assert question.id != first.id


async def test_an_address_is_shown():
    """The user visits it and says so; a no is told to the server."""
    for answer, action in ((True, "accept"), (Deny("too much"), "decline")):
        running, question = await stopped("url", ToolCall("once", {}, "c1"))
        async with running:
            text = "The tool server 'shop' asks you to visit https://example.org/pay: Sure?"
            assert (question.question, question.kind, question.about) == (text, "approval", "https://example.org/pay")
            running.last.answer(answer)
            await running.last.finish()
            assert answers(running) == [{"action": action}]


async def test_a_call_is_made_again_after_the_visit_that_it_needs(tmp_path):
    """The server refuses the call until the user has visited an address, which the error names."""
    for answer, content in ((True, "paid"), (False, "Error: the tool server 'shop' refused: pay first")):
        log = tmp_path / f"log{answer}"
        running, question = await stopped("visit", ToolCall("once", {}, "c1"), log=log)
        async with running:
            assert "https://example.org/pay: First pay." in question.question
            running.last.answer(answer)
            await running.last.finish()
            assert results(running)[0].content == content


@pytest.mark.parametrize("name", ["tool", "once"])
@pytest.mark.every_loop
async def test_questions_over_http_are_those_of_their_calls(name):
    """Each comes on the stream of its call, so that of one user never reaches another."""
    with serving(program="asks.py") as url:
        server = MCPServer.http(url, name="shop")
        calls = [ToolCall(name, {"message": message}, message) for message in ("Ada?", "Bob?")]
        async with agent(server, ToolCalls(calls), limit=2) as running:
            result = await running.run("try", run_id="r")
            said = {each.id: {"sure": each.call.id == "Ada?"} for each in result.questions}
            assert [each.question[-4:] for each in result.questions] == [each.call.id for each in result.questions]
            running.last.answer(answers=said)
            await running.last.finish()
            assert [each["content"]["sure"] for each in answers(running)] == [True, False]


@pytest.mark.every_loop
async def test_a_question_of_which_nobody_knows_the_call_is_refused():
    """Over stdio, a question does not say its call, so while there are several nobody is asked."""
    calls = [ToolCall("once", {"with_next": True}) for _ in range(2)]
    async with agent(asks("form"), ToolCalls(calls), limit=2) as running:
        assert (await running.run("try")).status == "waiting"  # the second asks when the first has ended
        running.last.answer({"sure": True})
        await running.last.finish()
        said = answers(running)
    refusal = "2 calls are being made, and it is unknown to which of them this belongs; make them one after the other"
    assert sorted(said, key=str) == sorted([refusal, ACCEPTED], key=str)


async def test_a_call_outside_of_a_run_asks_nobody():
    """The server is told so."""
    server = asks("form")
    tool, _ = server.tools_from(await server.list_tools())
    assert json.loads((await tool.call({})).content) == ["the call is not made by a run, so no person can be asked"]
    await server.aclose()


async def test_a_server_does_not_get_answers_of_the_model():
    """A request for sampling is refused, and the server is told so."""
    async with agent(asks("sampling"), ToolCall("tool")) as running:
        assert (await running.run("try")).output == "done"
        assert answers(running) == ["Sampling not supported"]


async def test_a_server_that_always_asks_again_is_given_up():
    """After ten questions in one call, the model sees that."""
    running, _ = await stopped("endless", ToolCall("once", {}, "c1"))
    async with running:
        for _ in range(10):
            running.last.answer({"sure": True})
            result = await running.last.finish()
        assert result.output == "done"
        assert "asks for input again and again when 'once' was called; use another tool" in results(running)[0].content


@contextmanager
def eliciting(over, log, **options):
    """A server of the package mcp itself, whose tools call `ctx.elicit`."""
    if over == "http":
        with serving(program="elicits.py", LOG=str(log)) as url:
            yield MCPServer.http(url, name="shop", **options)
    else:
        env = {"PYTHONPATH": os.environ["PYTHONPATH"], "LOG": str(log)}
        yield MCPServer.stdio(sys.executable, str(HERE / "elicits.py"), "stdio", env=env, name="shop", **options)


over_both = pytest.mark.parametrize("over", ["stdio", "http"])


@over_both
async def test_a_tool_that_cannot_ask_is_called_on_a_connection_that_can(over, tmp_path):
    """A call that may be made again is; of another the model hears why it failed, and its next call asks."""
    log = tmp_path / "log"
    with eliciting(over, log) as server:
        async with agent(server, ToolCall("again"), ToolCall("once")) as running:
            assert (await running.run("try")).pending.question == "The tool server 'shop' asks: Sure?"
            running.last.answer({"sure": True})
            assert (await running.last.finish()).status == "waiting"
            running.last.answer(Deny("no"))
            await running.last.finish()
            assert [each.content for each in results(running)] == ["accept True", "decline"]
    assert log.read_text().split() == ["again"] * 3 + ["once"]
    with eliciting(over, log) as server:
        async with agent(server, ToolCall("once"), ToolCall("once")) as running:
            assert (await running.run("try")).status == "waiting"
            running.last.answer({"sure": True})
            await running.last.finish()
            [refused, answered] = results(running)
            assert "could not ask the user in the middle of the call" in refused.content
            assert answered.content == "accept True"


@over_both
async def test_a_server_can_be_connected_so_that_its_tools_can_ask(over, tmp_path):
    """With `protocol="legacy"`, the first call asks, and a call that may not be repeated is made once."""
    log = tmp_path / "log"
    with eliciting(over, log, protocol="legacy") as server:
        async with agent(server, ToolCall("once")) as running:
            assert (await running.run("try")).status == "waiting"
            running.last.answer({"sure": False})
            await running.last.finish()
            assert [each.content for each in results(running)] == ["accept False"]
    assert log.read_text().split() == ["once"]
    with pytest.raises(ValueError, match="protocol='old' is not known; there are 'auto' and 'legacy'"):
        MCPServer.stdio("x", protocol="old")
