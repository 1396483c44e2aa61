"""Runs with the tools of MCP servers, that are resumed, forked and executed again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import anyio
import pytest

from graphagent import END, START, Agent, Strategy
from graphagent.errors import ToolServerError
from graphagent.graph import select_tools
from graphagent.llm import ToolCall
from graphagent.mcp import MCPServer
from graphagent.store import SqliteStore
from graphagent.testing import ScriptedModel
from graphagent_strategies import single_run
from tests import forkserver
from tests.mcp.test_stdio import agent, raw, results, stdio

HERE = Path(__file__).parent


def process(*arguments):
    return forkserver.Popen([sys.executable, HERE / "run.py", *arguments], stdout=subprocess.PIPE, text=True)


def test_a_run_is_continued_in_another_process(tmp_path):
    """After `kill -9` during a call, what was done is not done again, and what was in flight is not repeated blindly."""
    log = tmp_path / "log"
    first = process(tmp_path / "runs.db", log, "begin")
    while not log.exists() or "slow" not in log.read_text():
        assert first.poll() is None
        time.sleep(0.01)
    os.kill(first.pid, signal.SIGKILL)
    first.communicate()
    said, _ = process(tmp_path / "runs.db", log, "resume").communicate()
    done, added, broken = said.splitlines()
    assert (done, added) == ("done", "3")
    assert "broken off, and nobody knows whether it took effect" in broken
    assert log.read_text().splitlines().count("add 1 2") == 1
    assert log.read_text().splitlines().count("slow") == 1


async def test_a_run_keeps_the_tools_that_it_began_with(tmp_path):
    """They are in its journal: a run that waits is offered them again, without a connection, whatever the server has now."""
    store, log = SqliteStore(tmp_path / "runs.db"), tmp_path / "log"
    first = agent(stdio(approve=["add"]), ToolCall("add", {"a": 1, "b": 2}, "c1"), store=store)
    async with first:
        assert (await first.run("add", run_id="r")).status == "waiting"
    entries = [each for each in await first.history("r") if each.kind == "tools"]
    assert [each.data["server"] for each in entries] == ["tests"]
    gone = MCPServer.stdio("no-such-program", name="tests", approve=["add"])
    later = agent(gone, store=store)
    assert (await later.resume("r", answer=False)).output == "done"
    assert [each.name for each in later.model.requests[0].tools] == [
        each.name for each in first.model.requests[0].tools
    ]
    assert [each.content for each in results(later)] == ["Error: a person refused this call"]
    assert not log.exists()


async def test_a_call_of_a_run_that_was_resumed_connects_again(tmp_path):
    """A tool that the server does not have any more is an error that the model sees."""
    store = SqliteStore(tmp_path / "runs.db")
    async with agent(stdio(approve=["add"]), ToolCall("add", {"a": 1, "b": 2}, "c1"), store=store) as first:
        await first.run("add", run_id="r")
    raw = MCPServer.stdio(sys.executable, str(HERE / "raw.py"), "refuses", name="tests", approve=["add"])
    async with agent(raw, store=store) as later:
        assert (await later.resume("r", answer=True)).output == "done"
    assert "the tool server 'tests' refused: unknown tool" in results(later)[0].content


async def test_a_run_is_executed_again_without_the_server(tmp_path):
    """`rerun` takes the list and the results from the journal."""
    store = SqliteStore(tmp_path / "runs.db")
    async with agent(stdio(), ToolCall("add", {"a": 1, "b": 2}, "c1"), store=store) as first:
        await first.run("add", run_id="r")
    gone = agent(MCPServer.stdio("no-such-program", name="tests"), store=store)
    assert (await gone.rerun("r", new_id="again")).output == "done"
    assert [each.kind for each in await gone.history("again")] == [each.kind for each in await first.history("r")]


async def test_a_server_that_is_added_later_is_asked_when_the_run_is_resumed(tmp_path):
    """An agent with one more server continues the run, which then has the tools of both."""
    store = SqliteStore(tmp_path / "runs.db")
    async with agent(stdio(approve=["add"]), ToolCall("add", {"a": 1, "b": 2}, "c1"), store=store) as first:
        await first.run("add", run_id="r")
    more = stdio(name="more", prefix="more_", only=["pid"])
    async with agent(stdio(approve=["add"]), store=store, tools=[more]) as later:
        await later.resume("r", answer=True)
    assert "more_pid" in [each.name for each in later.model.requests[0].tools]
    assert results(later)[0].content == "3"


async def test_settings_that_do_not_fit_the_list_of_a_run_are_named(tmp_path):
    """A prefix that makes a name too long is an error of whoever resumes the run, and changes nothing."""
    store = SqliteStore(tmp_path / "runs.db")
    async with agent(stdio(approve=["add"]), ToolCall("add", {"a": 1, "b": 2}, "c1"), store=store) as first:
        await first.run("add", run_id="r")
    with pytest.raises(ToolServerError, match="give it another name by rename="):
        await agent(stdio(prefix="p" * 64), store=store).resume("r", answer=True)
    async with agent(stdio(approve=["add"]), store=store) as later:
        assert (await later.resume("r", answer=True)).output == "done"


async def test_a_fork_has_the_tools_of_its_origin_and_a_thread_asks_for_them_in_each_run(tmp_path):
    """A fork is the same run up to a point; each run of a thread is one of its own."""
    store, log = SqliteStore(tmp_path / "runs.db"), tmp_path / "log"
    async with agent(stdio(log, approve=["add"]), ToolCall("add", {"a": 1, "b": 2}, "c1"), store=store) as first:
        await first.run("add", run_id="r")
    gone = MCPServer.stdio("no-such-program", name="tests", approve=["add"])
    forked = agent(gone, store=store)
    result = await forked.fork("r", before="execute_tools", run_id="f")
    assert result.status == "waiting"
    assert (await forked.resume("f", answer=False)).output == "done"
    async with agent(stdio(log), "one", store=store) as talking:
        for name in "ab":
            await talking.run("hello", thread="t", run_id=name)
            assert [each.kind for each in await talking.history(name)].count("tools") == 1
    with pytest.raises(ToolServerError):
        await agent(gone, store=store).run("hello", thread="t")


async def test_a_model_chooses_among_the_tools_of_a_server(tmp_path):
    """`select_tools()` knows the tools of servers, and the choice holds when the run is resumed."""
    store, log = SqliteStore(tmp_path / "runs.db"), tmp_path / "log"
    outer = Strategy("outer", START >> single_run(name="inner").using(tools=select_tools(max_tools=1)) >> END)
    asking = ScriptedModel(['["add"]', ToolCall("add", {"a": 1, "b": 2}, "c1")])
    async with Agent(outer, model=asking, tools=[stdio(log, approve=["add"])], store=store) as first:
        assert (await first.run("add", run_id="r")).status == "waiting"
    assert [each.name for each in asking.requests[1].tools] == ["add"]
    answering = ScriptedModel(["done"])
    async with Agent(outer, model=answering, tools=[stdio(log, approve=["add"])], store=store) as later:
        assert (await later.resume("r", answer=True)).output == "done"
    assert [each.name for each in answering.requests[0].tools] == ["add"]


async def test_a_call_that_is_made_again_has_the_same_idempotency_key(tmp_path):
    """The server is told it in `_meta`, and can recognise the call after a restart of the run."""
    store, log = SqliteStore(tmp_path / "runs.db"), tmp_path / "log"
    log.touch()
    async with agent(raw("keys", log, in_flight="retry"), ToolCall("tool"), store=store) as first:
        async with anyio.create_task_group() as group:
            group.start_soon(partial(first.run, "try", run_id="r"))
            while not log.read_text():  # noqa: ASYNC110  another process writes it
                await anyio.sleep(0.01)
            group.cancel_scope.cancel()
        await first.resume("r")
    assert [each.content for each in results(first)] == ["fine"]
    one, other = log.read_text().splitlines()
    assert one == other
    assert one.startswith("r:")
