"""What the pages of the inspector cost: each beside reading what it shows, in CPU time, and the memory of the process.

Each page of a run is read anew, as by somebody who opens it for the first time. The files are made where TMPDIR says.
"""

from __future__ import annotations

import functools
import subprocess
import sys
import tempfile
from pathlib import Path

import anyio
import httpx2

from benchmarks.listing import OWNER, fill
from benchmarks.measure import QUICK, Rounds, alternate, figure, milli, table, times
from graphagent import END, START, Agent, Context, Strategy, node, tool
from graphagent.history import read_run
from graphagent.inspect import Inspector
from graphagent.llm import ToolCall
from graphagent.run import list_runs
from graphagent.store import SqliteStore
from graphagent.testing import ScriptedModel
from graphagent_strategies import single_run

RUNS = 10_000
ENTRIES = 4_000
BASE = "http://127.0.0.1:8766"


def report(*, quick: bool) -> str:
    """Measure pages of runs with nodes alone, of runs with model turns, and of many runs. Gives a Markdown table."""
    return anyio.run(functools.partial(_report, quick=quick))


async def _report(*, quick: bool) -> str:
    runs, entries, rounds = (20, 40, QUICK) if quick else (RUNS, ENTRIES, Rounds(count=9, seconds=0.0))
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "runs.db")
        async with SqliteStore(file, synchronous="NORMAL") as store:
            await fill(store, runs)
            await _looping(store, entries)
            await _calling(store, entries)
            pages = {"": "/runs", **{each: f"/run?id={each}&owner={OWNER}" for each in ("nodes", "turns")}}
            rows = [await _beside(store, path, run_id, rounds) for run_id, path in pages.items()]
        memory = _memory(file)
    names = [f"{runs:,} runs; runs of {entries:,} entries", "read it", "its page: median", "p90", "ratio"]
    return f"{table(names, rows)}\n\nThe process that has served these pages takes {memory:,.0f} MB."


async def _beside(store: SqliteStore, path: str, run_id: str, rounds: Rounds) -> list[str]:
    async def read() -> object:
        if run_id:
            return await read_run(store, run_id, owner=OWNER)
        return await list_runs(store, owner=OWNER)

    async def show() -> object:
        return await _page(store, path)

    took = await alternate({"read": read, "show": show}, rounds)
    found = figure(took["show"], took["read"])
    name = f"the page of a run of {run_id}" if run_id else "the list of runs"
    return [name, milli(found.bare), milli(found.seconds), milli(found.p90), times(found.ratio)]


async def _page(store: SqliteStore, path: str) -> str:
    transport = httpx2.ASGITransport(Inspector(store).app())  # another one keeps nothing
    async with httpx2.AsyncClient(transport=transport, base_url=BASE) as client:
        answer = await client.get(path)
    answer.raise_for_status()
    return answer.text


async def _looping(store: SqliteStore, entries: int) -> None:
    @node
    async def begin(ctx: Context, task: str) -> int:
        return int(task)

    @node
    async def count(ctx: Context, left: int) -> int:
        return left - 1

    loop = Strategy(
        "loop", START >> begin >> count, count.when(lambda left: left <= 0) >> END, count.otherwise() >> count
    )
    await Agent(loop, store=store, max_nodes=entries).run(str(entries - 4), run_id="nodes", owner=OWNER)


async def _calling(store: SqliteStore, entries: int) -> None:
    @tool
    async def search(query: str) -> str:
        """Search.

        Args:
            query: What for.
        """
        return f"what is known of {query}: " + "lorem ipsum " * 20

    turns = entries // 5
    model = ScriptedModel([*(ToolCall("search", {"query": f"word {number}"}) for number in range(turns)), "Found."])
    agent = Agent(single_run(), model=model, tools=[search], store=store, max_nodes=entries, max_turns=entries)
    await agent.run("Find it.", run_id="turns", owner=OWNER)


def _memory(path: Path) -> float:
    """Return the most memory in MB that a process has when it serves each of the pages."""
    program = f"""
import resource, sys
import anyio
from benchmarks import inspector
from graphagent.store import SqliteStore

async def main():
    async with SqliteStore({str(path)!r}) as store:
        for each in ("/runs", "/run?id=nodes&owner={OWNER}", "/run?id=turns&owner={OWNER}"):
            await inspector._page(store, each)

anyio.run(main)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1 if sys.platform == "darwin" else 1024))
"""
    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    return float(done.stdout) / (1024 * 1024 if sys.platform == "darwin" else 1)
