"""Servers that do things wrong harm neither a run for longer than its limits, nor the other calls of their own connection."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import anyio
import pytest
from mcp import Client

from graphagent.errors import ToolError, ToolServerError, ToolTimeoutError
from graphagent.events import ToolServerSkipped
from graphagent.graph import Retry
from graphagent.llm import ToolCall
from graphagent.mcp import MCPServer
from graphagent.store import SqliteStore
from tests.mcp.test_http import free_port, serving
from tests.mcp.test_stdio import agent, only, results, stdio
from tests.run.test_leaked_cancellations import leak

HERE = Path(__file__).parent
pytestmark = pytest.mark.filterwarnings("ignore:Async generator '(httpx2|httpcore2):ResourceWarning")


def faulty(begin="", log=None, **options):
    env = {"PYTHONPATH": os.environ["PYTHONPATH"], **({"LOG": str(log)} if log else {})}
    return MCPServer.stdio(
        sys.executable, str(HERE / "faults.py"), "stdio", begin, env=env, **{"name": "faults", **options}
    )


@pytest.fixture(params=["stdio", "http"])
async def server(request):
    """A server, reached in each way."""
    if request.param == "stdio":
        found = faulty()
        yield found
        await found.aclose()
    else:
        with serving(program="faults.py") as url:
            found = MCPServer.http(url, name="faults")
            yield found
            await found.aclose()


async def beside(tool, fault):
    """Make a call with a fault while another one is pending, which is answered afterwards. Return what came of it."""
    found = []

    async def wait():
        assert (await tool.call({"fault": "wait"})).content == "waited"

    async with anyio.create_task_group() as group:
        group.start_soon(wait)
        while (await tool.call({"fault": "waits"})).content == "False":  # noqa: ASYNC110  another process knows
            await anyio.sleep(0.01)
        try:
            found.append((await tool.call({"fault": fault})).content)
        except (ToolError, ToolServerError) as error:
            found.append(error)
        await tool.call({"fault": "go"})
    return found[0]


async def test_an_error_of_any_code_is_an_answer(server):
    """Also of those that the client has for the end of a connection: nothing else ends."""
    tool = await only(server)
    before = (await tool.call({})).content
    for code in (-32000, -32700, -32001, -32600, -32603, 0, 17):
        refused = await beside(tool, f"code {code}")
        assert type(refused) is ToolError
        assert str(refused) == "the tool server 'faults' refused: quota exceeded, try tomorrow"
    assert (await tool.call({})).content == before


async def test_an_error_of_the_server_is_not_tried_again(tmp_path):
    """`retry=` is for calls whose connection ended, and not for those that were answered."""
    async with agent(
        faulty(retry=Retry(3, wait=0), log=tmp_path / "log"), ToolCall("tool", {"fault": "code -32000"})
    ) as running:
        await running.run("try")
    assert results(running)[0].content.endswith("refused: quota exceeded, try tomorrow")
    assert (tmp_path / "log").read_text().split() == ["started"]


ENCODINGS = ("utf-16-le", "utf-16-be", "utf-16", "utf-8-sig", "cp1252", "shift_jis", "utf-32-le")


@pytest.mark.parametrize("fault", [*(f"rubbish {each}" for each in ENCODINGS), "large other"])
async def test_rubbish_before_an_answer_is_passed_over(fault):
    """In any encoding, and however large: what is printed before an answer does not hide it."""
    server = faulty()
    tool = await only(server)
    assert (await tool.call({"fault": fault})).content == (await tool.call({})).content
    await server.aclose()


@pytest.mark.parametrize("fault", ["unended", "strangers", "twice", "flood", "asks"])
async def test_what_is_no_answer_to_a_call_is_passed_over(fault):
    """Text without a line break, answers to nothing, an answer that comes twice, and more than anyone reads."""
    server = faulty()
    tool = await only(server)
    before = (await tool.call({})).content
    assert await beside(tool, fault) == before
    assert (await tool.call({})).content == before
    await server.aclose()


@pytest.mark.parametrize("fault", ["large first", "large last"])
async def test_an_answer_that_is_too_large_is_an_error_that_says_so(fault, tmp_path):
    """It is no lost connection: the call is not made again, and others go on."""
    server = faulty(retry=Retry(3, wait=0), log=tmp_path / "log")
    tool = await only(server)
    refused = await beside(tool, fault)
    assert type(refused) is ToolError
    assert "an answer when 'tool' was called that is larger than the limit of 64 MiB; ask it for less" in str(refused)
    assert (tmp_path / "log").read_text().split() == ["started"]
    await server.aclose()


async def test_a_list_that_is_too_large_ends_the_run_before_it_begins():
    """The error says which limit it is."""
    async with agent(faulty("list")) as running:
        with pytest.raises(
            ToolServerError, match="when it was asked for its tools that is larger than the limit of 64 MiB"
        ):
            await running.run("hello")


@pytest.mark.parametrize("fault", ["silent", "deaf"])
async def test_a_call_that_is_not_answered_is_given_up(fault):
    """Also if the server does not even read what it is sent, which is more than fits into a pipe."""
    server = faulty(timeout=0.5)
    tool = await only(server)
    for _ in range(3):
        with pytest.raises(ToolTimeoutError, match=r"'tool' did not return within 0\.5 seconds"):
            await tool.call({"fault": fault, "more": "x" * 1_000_000})
    await server.aclose()


async def test_a_server_that_ended_is_noticed_though_its_child_lives():
    """What the child has inherited keeps the output of the server open; the next call starts another one."""
    server = faulty(timeout=None)
    tool = await only(server)
    with pytest.raises(ToolServerError, match="ended, or the connection to it did, when 'tool' was called"):
        await tool.call({"fault": "orphan"})
    assert (await tool.call({})).content
    await server.aclose()


async def test_a_server_that_knows_only_initialize_is_started_again(tmp_path):
    """It ends at any other first message: the next process gets `initialize`, and later ones get nothing else."""
    log = tmp_path / "log"
    server = faulty("initialize", log)
    for started in (2, 3):
        assert (await (await only(server)).call({})).content
        assert log.read_text().split() == ["started"] * started
        await server.aclose()


async def test_there_are_time_limits_and_none_is_none():
    """Calls have 300 seconds by default; None is no limit of a call, nor of the start."""
    server = faulty()
    assert (await only(server)).timeout == 300
    await server.aclose()
    endless = faulty(timeout=None, start_timeout=None)
    tool = await only(endless)
    assert tool.timeout is None
    assert (await tool.call({})).content
    await endless.aclose()


@pytest.fixture(scope="module")
def url():
    with serving(program="faults.py") as found:
        yield found


@pytest.mark.parametrize(
    ("fault", "kind", "says"),
    [
        ("status 429", ToolServerError, "answered 429 when 'tool' was called"),
        ("status 503", ToolServerError, "answered 503 when 'tool' was called: the server failed"),
        ("status 400", ToolServerError, "answered 400 when 'tool' was called"),
        (
            'status 422 {"error": {"message": "no such unit"}}',
            ToolServerError,
            "answered 422 when 'tool' was called: no such unit",
        ),
        ("redirect", ToolServerError, "answered 307 when 'tool' was called: check the url"),
        ("refusal", ToolServerError, "answered 400 when 'tool' was called"),
        ("refused 404", ToolError, "refused: Unknown document 17"),
        ("refused 400", ToolError, "refused: Unknown document 17"),
        ("none", ToolError, "refused: no id"),
        ("json", ToolError, "larger than the limit of 64 MiB; ask it for less"),
        ("zipped", ToolError, "larger than the limit of 64 MiB; ask it for less"),
        ("event", ToolError, "larger than the limit of 64 MiB; ask it for less"),
        ("half", ToolServerError, "that violates the protocol, or its own schema"),
        ("longer", ToolServerError, "that violates the protocol, or its own schema"),
        ("shorter", ToolServerError, "ended, or the connection to it did, when 'tool' was called; nobody knows"),
        ("garbage", ToolServerError, "ended, or the connection to it did, when 'tool' was called; nobody knows"),
        ("nothing", ToolServerError, "ended, or the connection to it did, when 'tool' was called; nobody knows"),
        ("ended", ToolServerError, "ended, or the connection to it did, when 'tool' was called; nobody knows"),
    ],
)
async def test_a_response_that_is_wrong_is_an_error_of_its_call_alone(url, fault, kind, says):
    """Another call of the same session gets its answer, and so does the next one."""
    server = MCPServer.http(url)
    tool = await only(server)
    error = await beside(tool, fault)
    assert type(error) is kind
    assert says in str(error)
    assert (await tool.call({})).content
    await server.aclose()


async def test_a_response_answers_the_request_that_it_belongs_to(url):
    """Whatever id it has: the call whose id that is gets its own answer."""
    server = MCPServer.http(url)
    tool = await only(server)
    assert await beside(tool, "other") == (await tool.call({})).content
    await server.aclose()


async def test_calls_that_are_given_up_over_http_do_not_delay_others():
    """Even if the server accepts no word of it: what is made next arrives."""
    with serving(program="faults.py") as url:
        server = MCPServer.http(url, timeout=0.5)
        tool = await only(server)

        async def silent():
            with pytest.raises(ToolTimeoutError):
                await tool.call({"fault": "silent"})

        async with anyio.create_task_group() as group:
            for _ in range(3):
                group.start_soon(silent)
        assert (await tool.call({})).content
        await server.aclose()


async def test_a_flood_of_events_ends_with_the_call_that_nobody_waits_for():
    """The server sees that nobody reads it any more, though it is not read to its end."""
    with serving(program="faults.py") as url:
        server = MCPServer.http(url, timeout=1)
        tool = await only(server)
        with pytest.raises(ToolTimeoutError):
            await tool.call({"fault": "endless"})
        while (await tool.call({"fault": "waits over"})).content == "False":  # noqa: ASYNC110  another process knows
            await anyio.sleep(0.01)
        await server.aclose()


async def test_a_call_to_a_server_that_is_gone_was_not_made():
    """Nobody need wonder whether it took effect, and the next one connects again."""
    port = free_port()
    server = MCPServer.http(f"http://127.0.0.1:{port}/mcp")
    with serving(port, "faults.py"):
        tool = await only(server)
    for _ in range(2):
        with pytest.raises(ToolServerError, match=r"at 127\.0\.0\.1 cannot be reached") as caught:
            await tool.call({})
        assert "nobody knows" not in str(caught.value)
    with serving(port, "faults.py"):
        assert (await tool.call({})).content
        await server.aclose()


@pytest.mark.every_loop
async def test_a_cancellation_that_leaks_out_of_the_client_is_an_error_of_the_server(monkeypatch):
    """The call fails, and may have taken effect; a list of tools that is broken off leaves the server out, or ends the run."""

    async def broken(self, *_, **__):
        await leak()

    with monkeypatch.context() as patch:
        server = stdio(only=["pid"])
        tool = await only(server)
        patch.setattr(Client, "call_tool", broken)
        with pytest.raises(ToolServerError, match="nobody knows whether it took effect"):
            await tool.call({})
    assert (await tool.call({})).content
    await server.aclose()
    monkeypatch.setattr(Client, "list_tools", broken)
    for required in (True, False):
        async with agent(stdio(required=required)) as running:
            if required:
                with pytest.raises(ToolServerError):
                    await running.run("hello")
            else:
                assert (await running.run("hello")).output == "done"


async def test_servers_are_asked_at_the_same_time(tmp_path):
    """Each of these answers when both have started."""
    log = tmp_path / "log"
    first, second = (faulty("two", log, name=name, prefix=name, start_timeout=60) for name in "ab")
    async with agent(first, tools=[second]) as running:
        await running.run("hello")
        assert {each.name for each in running.model.requests[0].tools} == {"atool", "btool"}


async def test_a_server_that_is_not_required_is_left_out(tmp_path):
    """The run has none of its tools, also when it is resumed, and an event says why."""
    store, seen = SqliteStore(tmp_path / "runs.db"), []
    gone = MCPServer.stdio("no-such-program", name="gone", required=False)
    call = ToolCall("add", {"a": 1, "b": 2})
    async with agent(stdio(only=["add"], approve=True), call, tools=[gone], store=store) as running:
        running.on(ToolServerSkipped, seen.append)
        assert (await running.run("hello", run_id="r")).status == "waiting"
    assert [(each.run_id, each.server) for each in seen] == [("r", "gone")]
    assert "cannot be started: there is no program 'no-such-program'" in seen[0].reason
    back = faulty(name="gone", required=False)
    async with agent(stdio(only=["add"], approve=True), tools=[back], store=store) as later:
        later.on(ToolServerSkipped, seen.append)
        assert (await later.resume("r", answer=True)).output == "done"
        assert [each.name for each in later.model.requests[0].tools] == ["add"]
    assert len(seen) == 1
    with pytest.raises(TypeError, match="an MCP server: required='no' is neither True nor False"):
        faulty(required="no")
