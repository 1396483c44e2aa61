"""What durable runs are asked to do, and how bare sqlite3 does it: one commit for each step. Needs no engine.

Each engine works in a process of its own, which takes orders and gives what they took, a line of JSON each: so orders to
several engines can alternate.
"""

from __future__ import annotations

import asyncio
import gc
import json
import math
import sqlite3
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from random import Random
from typing import NamedTuple, Protocol, TypeVar

T = TypeVar("T")
ByName = Callable[[str], Awaitable[T]]
"""Executes the run of a name."""

MESSAGE = 260
"""Bytes of a message in JSON."""
_ROOM = MESSAGE - len(json.dumps({"role": "user", "content": ""}))
_LETTERS = "".join(Random(1).choices("abcdefghijklmnopqrstuvwxyz     ", k=40_000))


@dataclass(frozen=True, slots=True)
class Order:
    """What is to be measured."""

    work: str
    """One of WORKS."""
    path: str
    """The file, which is not there yet."""
    synchronous: str
    """What SQLite is told: FULL waits for the disk at each commit, NORMAL does not."""
    runs: int
    steps: int
    size: int
    """Bytes of the text that each step keeps."""


@dataclass(frozen=True, slots=True)
class Took:
    """What an order took."""

    wall: float
    """Seconds."""
    cpu: float
    """Seconds, of all threads together."""
    bytes: int = 0
    """The closed file, and whatever stands beside it."""
    resume: float = math.nan
    """CPU seconds from going on with a run that waits to the beginning of its next node."""
    read: float = math.nan
    """The same, until that node has looked at every message."""


class Seen(NamedTuple):
    """What a node saw, and how much CPU time its process had used by then, in seconds."""

    messages: int
    arrived: float
    """When the node began."""
    read: float
    """When it had looked at every message."""


class Runs(Protocol):
    """An engine whose file is open."""

    def rewriting(self, steps: int, size: int) -> ByName[int]:
        """Give a run that keeps another text at each step, and tells how many steps it made."""
        ...

    def growing(self, steps: int) -> ByName[object]:
        """Give a run that keeps one more message at each step, and then waits."""
        ...

    def resuming(self, steps: int) -> ByName[Seen]:
        """Give the rest of such a run: one node, which looks at its messages."""
        ...

    async def heads(self) -> int:
        """Read what is to be known of each run for a list of all, and tell how many there are."""
        ...


Open = Callable[[Path, str], AbstractAsyncContextManager[Runs]]


@cache
def texts(size: int) -> list[str]:
    """Give texts of so many bytes, which steps take in turn."""
    return [_LETTERS[start : start + size] for start in range(0, 16_000, 1_000)]


def message(number: int) -> dict[str, str]:
    """Give a message of MESSAGE bytes."""
    return {"role": "user", "content": f"{number:06d} {_LETTERS[number : number + _ROOM - 7]}"}


async def _rewrite(opened: Open, order: Order) -> Took:
    async with opened(Path(order.path), order.synchronous) as runs:
        run = runs.rewriting(order.steps, order.size)
        made, wall, cpu = await _timed(asyncio.gather(*[run(f"run-{number}") for number in range(order.runs)]))
    _check("steps", sum(made), order.runs * order.steps)
    weight = _weigh(order)
    if weight < order.runs * order.steps * order.size:
        raise AssertionError(f"a file of {weight} bytes cannot hold {order}")
    return Took(wall, cpu, weight)


async def _grow(opened: Open, order: Order) -> Took:
    async with opened(Path(order.path), order.synchronous) as runs:
        _, wall, cpu = await _timed(runs.growing(order.steps)("run"))
    weight = _weigh(order)
    async with opened(Path(order.path), order.synchronous) as runs:
        run = runs.resuming(order.steps)
        gc.collect()
        began = time.process_time()
        seen = await run("run")
    _check("messages", seen.messages, order.steps)
    return Took(wall, cpu, weight, seen.arrived - began, seen.read - began)


async def _heads(opened: Open, order: Order) -> Took:
    async with opened(Path(order.path), order.synchronous) as runs:
        run = runs.rewriting(order.steps, order.size)
        for start in range(0, order.runs, 100):
            await asyncio.gather(*[run(f"run-{number}") for number in range(start, min(start + 100, order.runs))])
    async with opened(Path(order.path), order.synchronous) as runs:
        found, wall, cpu = await _timed(runs.heads())
    _check("runs", found, order.runs)
    return Took(wall, cpu, _weigh(order))


WORKS = {"rewrite": _rewrite, "grow": _grow, "heads": _heads}


async def _timed(work: Awaitable[T]) -> tuple[T, float, float]:
    gc.collect()
    began, cpu = time.perf_counter(), time.process_time()
    found = await work
    return found, time.perf_counter() - began, time.process_time() - cpu


def _check(what: str, found: int, wanted: int) -> None:
    if found != wanted:
        raise AssertionError(f"{found} {what} instead of {wanted}")


def _weigh(order: Order) -> int:
    path = Path(order.path)
    return sum(each.stat().st_size for each in path.parent.iterdir() if each.name.startswith(path.name))


def serve(name: str, version: str, opened: Open) -> None:
    """Tell who this is, and obey orders until there are no more."""
    print(json.dumps({"name": name, "version": version}), flush=True)
    for line in sys.stdin:
        order = Order(**json.loads(line))
        print(json.dumps(asdict(asyncio.run(WORKS[order.work](opened, order)))), flush=True)


class Bare:
    """Bare sqlite3: what a step adds is a row at the end of a table that has no index."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        connection.execute("CREATE TABLE IF NOT EXISTS heads (run TEXT, data TEXT)")
        connection.execute("CREATE TABLE IF NOT EXISTS steps (run TEXT, data TEXT)")

    def _keep(self, table: str, run: str, data: object) -> None:
        self._connection.execute(f"INSERT INTO {table} VALUES (?, ?)", (run, json.dumps(data)))

    def rewriting(self, steps: int, size: int) -> ByName[int]:
        async def execute(run: str) -> int:
            number = 0
            while number < steps:
                self._keep("steps", run, texts(size)[number % 16])
                number += 1
            self._keep("heads", run, {"run": run, "status": "finished", "steps": number})
            return number

        return execute

    def growing(self, steps: int) -> ByName[object]:
        async def execute(run: str) -> None:
            messages: list[dict[str, str]] = []
            while len(messages) < steps:
                messages.append(message(len(messages)))
                self._keep("steps", run, messages[-1])

        return execute

    def resuming(self, steps: int) -> ByName[Seen]:
        async def execute(run: str) -> Seen:
            rows = self._connection.execute("SELECT data FROM steps WHERE run = ? ORDER BY rowid", (run,))
            messages = [json.loads(data) for (data,) in rows]
            read = time.process_time()
            return Seen(len(messages), read, read)

        return execute

    async def heads(self) -> int:
        return len([json.loads(data) for (data,) in self._connection.execute("SELECT data FROM heads")])


@asynccontextmanager
async def bare(path: Path, synchronous: str) -> AsyncIterator[Bare]:
    connection = sqlite3.connect(path, isolation_level=None)  # each statement is a transaction
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute(f"PRAGMA synchronous={synchronous}")
    yield Bare(connection)
    connection.close()


if __name__ == "__main__":
    serve("bare sqlite3", sqlite3.sqlite_version, bare)
