"""How runs of several processes with one store come along: each run has one node, and is committed to a plain and a sealed store.

The variable GRAPHAGENT_BENCH_POSTGRES may have the DSN of a PostgreSQL database, in which schemas are made. Files are made where TMPDIR says.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import anyio

from benchmarks.measure import table, times
from graphagent import END, START, Agent, Context, Strategy, node
from graphagent.store import EncryptedStore, SqliteStore

if TYPE_CHECKING:
    from graphagent.protocols import Store

PROCESSES = (1, 2, 4)
AT_ONCE = 20
"""How many runs each process executes at once."""
DSN = "GRAPHAGENT_BENCH_POSTGRES"
KEY = bytes(range(32))
KINDS = ("plain", "sealed")


def report(*, quick: bool) -> str:
    """Measure each number of processes with both kinds of store in turn. Gives a Markdown table for each engine."""
    seconds, rounds = (0.1, 1) if quick else (3.0, 3)
    tables: list[str] = []
    for engine in ["SqliteStore", *(["PostgresStore"] if os.environ.get(DSN) else [])]:
        rows: list[list[str]] = []
        for count in PROCESSES[:2] if quick else PROCESSES:
            took: dict[str, list[float]] = {kind: [] for kind in KINDS}
            for number in range(rounds):
                for kind in KINDS:
                    took[kind].append(_measured(engine, kind, count, seconds, f"round_{count}_{number}"))
            plain, sealed = (sorted(took[kind])[rounds // 2] for kind in KINDS)
            rows.append([str(count), f"{plain:,.0f}", f"{sealed:,.0f}", times(sealed / plain)])
        tables.append(table([f"{engine}: processes", "plain: runs/s", "sealed: runs/s", "ratio"], rows))
    return "\n\n".join(tables)


def _measured(engine: str, kind: str, count: int, seconds: float, name: str) -> float:
    """Return how many runs a second some processes execute together, in a new store."""
    with tempfile.TemporaryDirectory() as folder:
        place = str(Path(folder, "runs.db")) if engine == "SqliteStore" else f"bench_{kind}_{name}_{os.getpid()}"
        command = [sys.executable, "-m", "benchmarks.processes", engine, kind, place, str(seconds)]
        # The first makes the store, so that the others find it.
        begun: list[subprocess.Popen[str]] = []
        for _ in range(count):
            each = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            begun.append(each)
            assert each.stdout is not None
            each.stdout.readline()
        for each in begun:
            assert each.stdin is not None
            each.stdin.write("\n")
            each.stdin.flush()
        return sum(float(each.communicate()[0]) for each in begun)


def _store(engine: str, kind: str, place: str) -> Store:
    if engine == "SqliteStore":
        store: Store = SqliteStore(place)
    else:
        from graphagent.store.postgres import PostgresStore

        store = PostgresStore(f"env:{DSN}", schema=place)
    return EncryptedStore(store, KEY) if kind == "sealed" else store


@node
async def double(ctx: Context, number: int) -> int:
    return 2 * number


async def _work(engine: str, kind: str, place: str, seconds: float) -> None:
    """Execute runs for a while, once a line is read, and print how many a second."""
    store = _store(engine, kind, place)
    agent = Agent(Strategy("doubles", START >> double >> END), store=store)
    await agent.run(1)
    print("ready", flush=True)
    await anyio.to_thread.run_sync(sys.stdin.readline)
    done, began = 0, time.perf_counter()

    async def runs() -> None:
        nonlocal done
        while time.perf_counter() - began < seconds:
            await agent.run(done)
            done += 1

    async with anyio.create_task_group() as group:
        for _ in range(AT_ONCE):
            group.start_soon(runs)
    print(done / (time.perf_counter() - began), flush=True)


if __name__ == "__main__":
    anyio.run(_work, sys.argv[1], sys.argv[2], sys.argv[3], float(sys.argv[4]))
