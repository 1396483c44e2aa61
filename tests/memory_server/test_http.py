"""Memory servers over streamable HTTP: who is let in, and how they end."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from contextlib import contextmanager

import anyio
import httpx2
import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from graphagent.memory_server import MemoryServer
from graphagent.store import MemoryStore
from tests import forkserver
from tests.memory_server.test_tools import call

TOKEN = "plum-quarry-ledger-ninety"
# The client leaves generators of httpx2 unfinished, which trio alone remarks on.
pytestmark = pytest.mark.filterwarnings("ignore:Async generator '(httpx2|httpcore2):ResourceWarning")
HEADERS = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}
INITIALIZE = {
    "jsonrpc": "2.0", "id": 1, "method": "initialize",
    "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}},
}  # fmt: skip


@contextmanager
def serving(tmp_path, *words):
    """Run a server at a free port, and return its address; SIGTERM ends it well."""
    command = [sys.executable, "-m", "graphagent", "mcp", "--store", tmp_path / "data", "--http", "0", *words]
    process = forkserver.Popen(command, stderr=subprocess.PIPE, env={**os.environ, "MEMORY_TOKEN": TOKEN}, text=True)
    try:
        said = process.stderr.readline()
        yield re.search(r"http://\S+/mcp", said)[0]
        process.terminate()
        _, rest = process.communicate(timeout=60)
        assert process.returncode == 0, rest
        assert "Traceback" not in rest
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_clients_of_both_eras_connect_over_http(mode, tmp_path):
    """Several at once, to one server on this machine."""
    with serving(tmp_path) as url:
        async with Client(url, mode=mode) as first, Client(url, mode=mode) as second:
            note = await call(first, "remember", text="We chose PostgreSQL.")
            found = await call(second, "recall", query="PostgreSQL")
    assert [each["id"] for each in found["notes"]] == [note["id"]]


async def test_a_client_that_leaves_in_the_middle_of_a_request_is_no_error(tmp_path):
    """Others are served, and the log has nothing of it."""
    with serving(tmp_path) as url:
        port = httpx2.URL(url).port
        async with await anyio.connect_tcp("127.0.0.1", port) as leaves:
            head = "".join(f"{name}: {value}\r\n" for name, value in HEADERS.items())
            await leaves.send(
                f'POST /mcp HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n{head}Content-Length: 99\r\n\r\n{{"json'.encode()
            )
        async with Client(url) as client:
            assert (await call(client, "remember", text="We chose PostgreSQL."))["id"]


async def test_a_request_that_is_not_from_here_is_refused(tmp_path):
    """A foreign `Host` or `Origin`, as when a web page is led to this machine, gets nothing; neither does one without the token."""
    with serving(
        tmp_path, "--token", "env:MEMORY_TOKEN", "--host", "memory.example", "--origin", "https://pages.example"
    ) as url:
        given = {**HEADERS, "Authorization": f"Bearer {TOKEN}"}
        async with httpx2.AsyncClient() as client:

            async def status(**headers):
                answer = await client.post(url, json=INITIALIZE, headers={**given, **headers})
                assert "graphagent-memory" in answer.text or answer.status_code != 200
                return answer.status_code

            assert await status() == 200
            assert await status(Host="memory.example") == 200
            assert await status(Origin="https://pages.example") == 200
            assert await status(Host="evil.example") == 421
            assert await status(Host="127.0.0.1.evil.example:80") == 421
            assert await status(Origin="https://evil.example") == 403
            assert await status(Origin="null") == 403
            assert await status(Authorization="") == 401
            assert await status(Authorization=f"Bearer {TOKEN}x") == 401
            asked = {"Origin": "https://pages.example", "Access-Control-Request-Method": "POST"}
            assert (await client.options(url, headers=asked)).status_code == 200
            asked["Origin"] = "https://evil.example"
            assert (await client.options(url, headers=asked)).status_code == 400
        async with (
            httpx2.AsyncClient(headers={"Authorization": f"Bearer {TOKEN}"}) as http,
            Client(streamable_http_client(url, http_client=http)) as client,
        ):
            assert (await call(client, "notes"))["notes"] == []


async def test_other_machines_are_served_with_a_token_alone():
    """What is wrong with an address is said before anything is listened at."""
    server = MemoryServer(runs=MemoryStore())
    for host, token, said in (
        ("0.0.0.0", None, "other machines can reach '0.0.0.0'; give a token, or listen at 127.0.0.1"),
        ("192.0.2.1", None, "other machines can reach"),
        ("0.0.0.0", TOKEN, "is every address of this machine; name the hosts"),
        ("127.0.0.1", "short", "at least 16 printable ASCII characters"),
    ):
        with pytest.raises(ValueError, match=said):
            await server.serve_http(host, 0, token=token)


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_program_serves_until_it_is_cancelled(anyio_backend):
    """It learns the address, and the port is free afterwards."""
    server, urls = MemoryServer(runs=MemoryStore()), []
    for _ in range(2):
        async with anyio.create_task_group() as group:

            async def started(url):
                async with Client(url) as client:
                    assert (await call(client, "questions"))["questions"] == []
                group.cancel_scope.cancel()

            def soon(url):
                urls.append(url)
                group.start_soon(started, url)

            port = int(urls[0].rpartition(":")[2].partition("/")[0]) if urls else 0
            await server.serve_http(port=port, on_started=soon)
    assert urls[0] == urls[1]
