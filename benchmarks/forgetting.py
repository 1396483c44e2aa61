"""What forgetting costs: the file is written anew, so it is compared with a bare VACUUM of the same file.

Wall time, since the disk has to take as many bytes as there are. The files are made where TMPDIR says, and need two times 1 GB.
"""

from __future__ import annotations

import functools
import tempfile
import time
from pathlib import Path

import anyio
import apsw

from benchmarks.measure import figure, milli, table, times, weight
from graphagent.store import DeleteAll, Put, SqliteStore

SIZES = (1_000_000, 100_000_000, 1_000_000_000)
VALUE = bytes(range(250)) * 4
FORGOTTEN = 100
"""How many values are forgotten at once."""
AT_ONCE = 10_000
PAUSE_SECONDS = 0.002
"""How long the other task waits between two commits."""


def report(*, quick: bool) -> str:
    """Measure stores of several sizes. Gives a Markdown table."""
    return anyio.run(functools.partial(_report, quick=quick))


async def _report(*, quick: bool) -> str:
    rows: list[list[str]] = []
    for size in (10_000, 20_000) if quick else SIZES:
        with tempfile.TemporaryDirectory() as folder:
            rows.append(await _row(Path(folder, "store.db"), size, 1 if quick else 5))
    head = [
        "the file",
        "bare: VACUUM",
        "forgetting 100 KB: median",
        "p90",
        "ratio",
        "another commit meanwhile, at most",
    ]
    return table(head, rows)


async def _row(path: Path, size: int, rounds: int) -> list[str]:
    async with SqliteStore(path) as store:
        count = size // len(VALUE)
        for start in range(0, count, AT_ONCE):
            numbers = range(start, min(start + AT_ONCE, count))
            await store.commit(*(Put(("kept", f"owner {number % 100}", number), VALUE) for number in numbers))
        mine: list[float] = []
        bare: list[float] = []
        longest = 0.0
        for _ in range(rounds):
            await store.commit(*(Put(("forgotten", number), VALUE) for number in range(FORGOTTEN)))
            bare.append(_vacuumed(path))
            seconds, waited = await _forgotten(store)
            mine.append(seconds)
            longest = max(longest, waited)
        if await store.get(("forgotten", 0)) is not None:
            raise AssertionError("what was forgotten is there")
    found = figure(mine, bare)
    weighed = weight(path.stat().st_size)  # noqa: ASYNC240  nothing else goes on in this loop
    return [weighed, milli(found.bare), milli(found.seconds), milli(found.p90), times(found.ratio), milli(longest)]


def _vacuumed(path: Path) -> float:
    """Give the wall time of a bare VACUUM, as durable as a SqliteStore commits, until the log is empty."""
    connection = apsw.Connection(str(path))
    connection.execute("PRAGMA synchronous=FULL").fetchall()
    began = time.perf_counter()
    connection.execute("VACUUM").fetchall()
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    took = time.perf_counter() - began
    connection.close()
    return took


async def _forgotten(store: SqliteStore) -> tuple[float, float]:
    """Give what forgetting took, and the longest that a commit of another task took meanwhile."""
    waited: list[float] = []

    async def others() -> None:
        while True:
            began = time.perf_counter()
            with anyio.CancelScope(shield=True):
                await store.commit(Put(("other", 0), b"v"))
            waited.append(time.perf_counter() - began)
            await anyio.sleep(PAUSE_SECONDS)

    async with anyio.create_task_group() as group:
        group.start_soon(others)
        await anyio.sleep(PAUSE_SECONDS * 5)
        began = time.perf_counter()
        await store.commit(DeleteAll(("forgotten",)))
        took = time.perf_counter() - began
        group.cancel_scope.cancel()
    return took, max(waited)
