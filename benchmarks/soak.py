"""Memory, open files and threads over time, while many owners use sealed facts, readable facts and durable runs in one process."""

from __future__ import annotations

import argparse
import contextlib
import re
import sys
import tempfile
import threading
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import anyio

from benchmarks.measure import table, weight
from graphagent import END, START, Agent, Context, Strategy, node
from graphagent.memory import Concept, EncryptedMemoryProvider, FileMemoryProvider, Scope, SingleFact, Subject
from graphagent.store import EncryptedStore, SqliteStore
from graphagent.testing import ScriptedModel

KEY = bytes(range(32))
USER, APP, CITY = Subject("user", "the user"), Scope.product("app"), Concept("city", "where they live")
ROWS = 12
"""How many lines the table has, the first one before anything was done."""

Serve = Callable[[int], Awaitable[object]]


@node
async def doubled(ctx: Context, number: int) -> int:
    """Do a little."""
    return number * 2


def options(arguments: list[str]) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks soak", description=__doc__)
    parser.add_argument("--seconds", type=float, default=120.0, help="how long; 120")
    parser.add_argument("--owners", type=int, default=1_000_000, help="how many owners there are; each comes in turn")
    parser.add_argument(
        "--cache-bytes", type=int, default=2**20, help="what each provider and store may remember; 1 MiB"
    )
    parser.add_argument("--quick", action="store_true", help="one second: shows that it runs; the figures say nothing")
    parser.add_argument("--write", action="store_true", help="rewrite the table of the page in docs")
    chosen = parser.parse_args(arguments)
    if chosen.quick and chosen.write:
        parser.error("--quick figures say nothing, so they are not written")
    chosen.seconds = 1.0 if chosen.quick else chosen.seconds
    return chosen


def report(*, seconds: float, owners: int, cache_bytes: int) -> str:
    """Serve owners for so many seconds. Return the table."""
    with tempfile.TemporaryDirectory() as folder:
        lines = anyio.run(_soak, Path(folder), seconds, owners, cache_bytes)
    return table(["after", "owners served", "memory", "open files", "threads"], lines)


async def _soak(folder: Path, seconds: float, owners: int, cache_bytes: int) -> list[list[str]]:
    lines: list[list[str]] = []
    async with contextlib.AsyncExitStack() as stack:
        sealed = await stack.enter_async_context(
            EncryptedMemoryProvider(folder / "sealed", key=KEY, cache_bytes=cache_bytes)
        )
        readable = await stack.enter_async_context(FileMemoryProvider(folder / "readable", cache_bytes=cache_bytes))
        file = SqliteStore(folder / "runs.db", synchronous="NORMAL")
        store = await stack.enter_async_context(EncryptedStore(file, KEY, cache_bytes=cache_bytes))
        strategy = Strategy("soak", START >> doubled >> END)
        agent = Agent(strategy, model=ScriptedModel([]), store=store)
        began, served, told = time.monotonic(), 0, 0
        while True:
            passed = time.monotonic() - began
            if passed >= told * seconds / (ROWS - 1):
                lines.append([f"{passed:.0f} s", f"{served:,}", *_now()])
                print(" | ".join(lines[-1]), file=sys.stderr, flush=True)
                told = int(passed * (ROWS - 1) / seconds) + 1
                if told >= ROWS:
                    return lines
            owner = f"owner {served % owners}"
            for provider in (sealed, readable):
                await provider.save(SingleFact(CITY, f"city {served}"), USER, APP, owner=owner)
                await provider.load_all(USER, APP, owner=owner)
            await agent.run(served, owner=owner)
            served += 1


def _now() -> list[str]:
    """Return the memory, the open files and the threads of this process."""
    status, numbers = Path("/proc/self/status"), Path("/proc/self/fd")
    found = re.search(r"VmRSS:\s+(\d+) kB", status.read_text("ascii")) if status.exists() else None
    files = str(len(list(numbers.iterdir()))) if numbers.exists() else ""
    return [weight(int(found[1]) * 1024) if found else "", files, str(threading.active_count())]
