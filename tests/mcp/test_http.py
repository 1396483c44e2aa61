"""MCP servers over streamable HTTP: a real server, in a process of its own, on loopback."""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
import traceback
from contextlib import contextmanager
from pathlib import Path

import anyio
import pytest

from graphagent.errors import ToolServerError
from graphagent.events import ToolProgressed
from graphagent.llm import ToolCall, ToolCalls
from graphagent.mcp import MCPServer
from graphagent.store import SqliteStore
from tests import forkserver
from tests.mcp.server import PIXEL
from tests.mcp.test_stdio import agent, only, results

HERE = Path(__file__).parent
# The client leaves generators of httpx2 unfinished, which trio alone remarks on.
pytestmark = pytest.mark.filterwarnings("ignore:Async generator '(httpx2|httpcore2):ResourceWarning")


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


@contextmanager
def serving(port=None, program="server.py", mode="http", **env):
    """Run a server, and return its address; it is killed at the end."""
    port = port or free_port()
    process = forkserver.Popen([sys.executable, HERE / program, mode, str(port)], env=os.environ | env)
    try:
        while True:
            assert process.poll() is None
            try:
                socket.create_connection(("127.0.0.1", port)).close()
            except ConnectionRefusedError:
                time.sleep(0.01)
            else:
                break
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        process.kill()
        process.wait()


@pytest.fixture(scope="module")
def url():
    with serving() as found:
        yield found


async def test_a_model_calls_the_tools_of_a_server_over_http(url):
    """Text, numbers, pictures and structured content come as they do from a process of one's own."""
    seen = []
    calls = [ToolCall("add", {"a": 1, "b": 2}), ToolCall("picture"), ToolCall("weather", {"city": "Oslo"})]
    async with agent(MCPServer.http(url), ToolCalls([*calls, ToolCall("slow", {"seconds": 0})]), limit=4) as running:
        running.on(ToolProgressed, seen.append)
        await running.run("try")
    added, picture, weather, slow = results(running)
    assert (added.content, picture.content, slow.content) == ("3", "a pixel", "done")
    assert '"degrees"' in weather.content
    assert [each.data for each in picture.images] == [PIXEL]
    assert [each.message for each in seen] == ["half of it"]


async def test_parallel_runs_share_a_server_over_http(url):
    """Each call gets its own result."""
    server = MCPServer.http(url)
    found = {}

    async def run(number):
        calls = [ToolCall("add", {"a": number, "b": place}) for place in range(5)]
        own = agent(server, ToolCalls(calls), limit=5)
        await own.run("try")
        found[number] = [int(each.content) for each in results(own)]

    async with anyio.create_task_group() as group:
        for number in range(5):
            group.start_soon(run, number)
    assert found == {number: [number + place for place in range(5)] for number in range(5)}
    await server.aclose()


async def test_ten_megabytes_arrive(url):
    """A long result is no error of the connection."""
    async with agent(
        MCPServer.http(url, only=["text"], max_size=None), ToolCall("text", {"size": 10_000_000})
    ) as running:
        await running.run("try")
    assert len(results(running)[0].content) == 10_000_000


async def test_a_time_limit_leaves_the_connection_open(url):
    """A call that takes too long is given up, and the next one is made."""
    calls = [ToolCall("slow", {"seconds": 60}), ToolCall("pid")]
    async with agent(MCPServer.http(url, timeout=0.5), ToolCalls(calls)) as running:
        await running.run("try")
    slow, pid = results(running)
    assert "'slow' did not return within 0.5 seconds" in slow.content
    assert pid.content.isdecimal()


async def test_a_key_is_sent_and_a_wrong_one_is_not_shown(tmp_path):
    """Without the key the run ends before it begins, and says which setting has it; with it, the run is resumed."""
    store = SqliteStore(tmp_path / "runs.db")
    with serving(KEY="Bearer swordfish") as url:
        async with agent(
            MCPServer.http(url, name="s", headers={"Authorization": "Bearer herring"}), store=store
        ) as locked:
            with pytest.raises(ToolServerError, match=r"at 127.0.0.1 answered 401: check headers=") as caught:
                await locked.run("hello", run_id="r")
        assert "herring" not in "".join(traceback.format_exception(caught.value)) + repr(locked.tool_servers)
        server = MCPServer.http(url, name="s", headers={"Authorization": "Bearer swordfish"})
        async with agent(server, store=store) as opened:
            assert (await opened.resume("r")).output == "done"


async def test_a_wrong_address_is_named_by_its_host(url):
    """Nobody there, another path, and no address at all are three errors."""
    with pytest.raises(ToolServerError, match=r"'127.0.0.1' at 127.0.0.1 cannot be reached .*check the url, and that"):
        await MCPServer.http(f"http://127.0.0.1:{free_port()}/mcp").list_tools()
    with pytest.raises(ToolServerError, match=r"at 127.0.0.1 answered 404: check the url \(most end in /mcp\)"):
        await MCPServer.http(url + "/elsewhere").list_tools()
    with pytest.raises(ValueError, match="url is not an address such as") as caught:
        MCPServer.http("swordfish@host")
    assert "swordfish" not in str(caught.value)


async def test_a_server_that_is_killed_during_a_call(tmp_path):
    """Nobody knows whether the call took effect, and the error says so."""
    log = tmp_path / "log"
    with serving(LOG=str(log)) as url:
        server = MCPServer.http(url, only=["slow", "pid"])
        tools = {each.name: each for each in server.tools_from(await server.list_tools())}
        pid = int((await tools["pid"].call({})).content)

        async def kill():
            while "slow" not in log.read_text():  # noqa: ASYNC110  another process writes it
                await anyio.sleep(0.01)
            os.kill(pid, signal.SIGKILL)

        async with anyio.create_task_group() as group:
            group.start_soon(kill)
            with pytest.raises(ToolServerError, match="ended, or the connection to it did, when 'slow' was called"):
                await tools["slow"].call({"seconds": 60})
        await server.aclose()


@pytest.mark.parametrize("program", ["sessions.py", "faults.py"])
async def test_a_session_that_the_server_has_forgotten_is_begun_anew(program):
    """A server that was started again did not see the call, which is therefore made once more, on a new connection.

    It says so with 404; some say 400.
    """
    port = free_port()
    server = MCPServer.http(f"http://127.0.0.1:{port}/mcp")
    with serving(port, program):
        tool = await only(server)
        first = (await tool.call({})).content
    with serving(port, program):
        assert (await tool.call({})).content != first
        await server.aclose()


async def test_a_server_that_does_not_list_its_tools_over_http_is_given_up():
    """`start_timeout` ends the wait of a run that begins, and the connection is closed though the server does not answer that either."""
    with serving(program="sessions.py", HANGS="tools/list") as url:
        async with agent(MCPServer.http(url, start_timeout=1)) as running:
            with pytest.raises(ToolServerError, match=r"did not answer within 1 second.*give it start_timeout="):
                await running.run("hello")
