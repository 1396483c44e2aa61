"""A server that is stopped while browsers are connected, and browsers that leave."""

from __future__ import annotations

import anyio
import pytest

from graphagent import END, START, Agent, Context, Strategy, _web, node
from graphagent.inspect import Inspector
from graphagent.store import MemoryStore

FORM = b"POST /end HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\nform="


@node
async def wait(ctx: Context, text: str) -> str:
    """Wait."""
    await anyio.sleep_forever()
    return text


async def heard(stream):
    """Return what a server sends until it closes the connection."""
    found = b""
    with anyio.fail_after(60):
        async for each in stream:
            found += each
    return found


@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_server_that_is_stopped_ends_what_it_is_answering(anyio_backend, monkeypatch, caplog):
    """Tabs that follow a run at once, a request that is not finished when its time is over; nothing of it is an error, nor is a browser that leaves."""
    monkeypatch.setattr(_web, "_GRACE", 0.1)
    store, serving = MemoryStore(), anyio.CancelScope()
    agent = Agent(Strategy("waits", START >> wait >> END), store=store)

    async def serve(*, task_status):
        with serving:
            await Inspector(store).serve(port=0, hosts=["localhost"], on_started=task_status.started)

    async with anyio.create_task_group() as group:
        run = agent.start("x", run_id="goes-on")
        group.start_soon(run.finish)
        url = await group.start(serve)
        port = int(url.rpartition(":")[2].rstrip("/"))
        async with await anyio.connect_tcp("127.0.0.1", port) as leaves:
            await leaves.send(FORM)
        async with (
            await anyio.connect_tcp("127.0.0.1", port) as slow,
            await anyio.connect_tcp("127.0.0.1", port) as tab,
        ):
            await slow.send(FORM)
            await tab.send(b"GET /follow?id=goes-on HTTP/1.1\r\nHost: localhost\r\n\r\n")
            begun = await tab.receive()
            serving.cancel()
            assert b"text/event-stream" in begun
            assert (await heard(tab)).endswith(b"0\r\n\r\n")
            assert b" 503 " in (await heard(slow))
        group.cancel_scope.cancel()
    assert [each.getMessage() for each in caplog.records if each.name.startswith("uvicorn")] == []
