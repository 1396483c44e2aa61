"""Workers as processes: killed, told to stop, and told twice."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import nullcontext

import anyio
import pytest

from tests.forkserver import Popen
from tests.postgres import database

PROGRAM = """
import os
from functools import partial
from pathlib import Path

import anyio

from graphagent import END, START, Agent, Context, Strategy, node
from graphagent.store import SqliteStore
from graphagent.store.postgres import PostgresStore
from graphagent.work import Schedule

HERE = Path(__file__).parent


async def act(number):
    with (HERE / "effects.log").open("a") as log:
        log.write(f"{number}\\n")


@node
async def first(ctx: Context, text: str) -> str:
    for number in range(3):
        await ctx.once(f"effect {number}", partial(act, number))
    (HERE / "entered").touch()
    while not (HERE / "go").exists():
        await anyio.sleep(0.01)
    return text


@node
async def second(ctx: Context, text: str) -> str:
    for number in range(3, 6):
        await ctx.once(f"effect {number}", partial(act, number))
    return text.upper()


dsn = os.environ.get("DSN")
store = SqliteStore(HERE / "runs.db") if dsn is None else PostgresStore("env:DSN", lease=1, heartbeat=0.3)
agent = Agent(Strategy("steps", START >> first >> second >> END), store=store)


def work():
    return [agent]




@node
async def make(ctx: Context, at: str) -> str:
    return at


scheduled = [Schedule("* * * * *", Agent(Strategy("report", START >> make >> END), store=store), "{at:%H:%M}".format, name="report")]
"""


class Place:
    """A folder with the program, and the workers that a test starts."""

    def __init__(self, folder, dsn):
        self.folder, self.workers = folder, []
        self.env = os.environ | ({} if dsn is None else {"DSN": dsn})
        (folder / "app.py").write_text(PROGRAM)

    def worker(self, *options, name="app.py:work"):
        command = [sys.executable, "-m", "graphagent", "worker", name, *options]
        started = Popen(command, cwd=self.folder, env=self.env, stderr=subprocess.PIPE)
        self.workers.append(started)
        return started

    def wait_for(self, name):
        while not (self.folder / name).exists():
            assert self.workers[-1].poll() is None, self.workers[-1].stderr.read()
            time.sleep(0.01)

    def hear(self, worker, word):
        """Wait for a line of a worker."""
        assert any(line.startswith(word) for line in worker.stderr)

    def effects(self):
        return (self.folder / "effects.log").read_text().split()


@pytest.fixture(params=["sqlite", "postgres"])
def place(request, tmp_path, monkeypatch):
    with database() if request.param == "postgres" else nullcontext() as dsn:
        if dsn is not None:
            monkeypatch.setenv("DSN", dsn)
        made = Place(tmp_path, dsn)
        yield made
        end(made)


def end(made):
    for each in made.workers:
        each.kill()
        each.wait()
        each.stderr.close()


def in_store(place, work):
    """Await a function with an agent of the program that has the store."""

    async def main():
        namespace = {"__file__": str(place.folder / "app.py"), "__name__": "app"}
        exec(PROGRAM, namespace)
        async with namespace["store"]:
            return await work(namespace["agent"])

    return anyio.run(main)


def test_what_a_killed_worker_began_another_one_finishes(place):
    """Each effect that was recorded is done once."""
    in_store(place, lambda agent: agent.submit("x", run_id="x-1"))
    one = place.worker()
    place.wait_for("entered")
    one.kill()
    one.wait()
    (place.folder / "go").touch()
    place.worker()
    result = in_store(place, lambda agent: agent.handle("x-1").wait())
    assert result.output == "X"
    assert place.effects() == ["0", "1", "2", "3", "4", "5"]


def test_a_worker_that_is_told_to_stop_finishes_its_node_and_ends(place):
    """It leaves the rest to the next one, and takes its health file along."""
    in_store(place, lambda agent: agent.submit("x", run_id="x-1"))
    one = place.worker("--health-file", "health", "--limit", "default=1", "--concurrency", "3", "--queue", "default")
    place.wait_for("entered")
    place.wait_for("health")
    one.send_signal(signal.SIGTERM)
    place.hear(one, b"Stopping")
    (place.folder / "go").touch()
    assert one.wait() == 0
    assert not (place.folder / "health").exists()
    assert place.effects() == ["0", "1", "2"]
    assert in_store(place, lambda agent: agent.handle("x-1").status()) == "interrupted"
    place.worker()
    assert in_store(place, lambda agent: agent.handle("x-1").wait()).output == "X"
    assert place.effects() == ["0", "1", "2", "3", "4", "5"]


def test_a_second_signal_ends_a_worker_at_once(place):
    """Whatever its runs are doing."""
    in_store(place, lambda agent: agent.submit("x", run_id="x-1"))
    one = place.worker()
    place.wait_for("entered")
    one.send_signal(signal.SIGINT)
    place.hear(one, b"Stopping")
    one.send_signal(signal.SIGTERM)
    assert one.wait() == 128 + signal.SIGTERM
