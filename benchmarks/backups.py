"""What a backup costs, beside reading the same bytes, writing them to another file and syncing that.

Wall time, since the disk has to take as many bytes as there are. The files are made where TMPDIR says, and need three times 300 MB.
"""

from __future__ import annotations

import functools
import os
import tempfile
import time
from pathlib import Path

import anyio

from benchmarks.measure import figure, milli, table, times, weight
from graphagent.store import Put, SqliteStore, backup

SIZES = (1_000_000, 30_000_000, 300_000_000)
VALUE = bytes(range(250)) * 4
AT_ONCE = 10_000
CHUNK = 2**20
PAUSE_SECONDS = 0.002
"""How long the other task waits between two commits."""


def report(*, quick: bool) -> str:
    """Measure stores of several sizes. Gives a Markdown table."""
    return anyio.run(functools.partial(_report, quick=quick))


async def _report(*, quick: bool) -> str:
    rows: list[list[str]] = []
    for size in (100_000, 200_000) if quick else SIZES:
        with tempfile.TemporaryDirectory() as folder:
            rows.append(await _row(Path(folder), size, 1 if quick else 5))
    head = ["the file", "bare: read, write, sync", "backup: median", "p90", "ratio", "a commit meanwhile, at most"]
    return table(head, rows)


async def _row(folder: Path, size: int, rounds: int) -> list[str]:
    path, bare_path, copy = folder / "store.db", folder / "bare.db", folder / "copy.db"
    async with SqliteStore(path) as store:
        count = size // len(VALUE)
        for start in range(0, count, AT_ONCE):
            await store.commit(*(Put(("kept", number), VALUE) for number in range(start, min(start + AT_ONCE, count))))
    mine: list[float] = []
    bare: list[float] = []
    longest = 0.0
    for _ in range(rounds):
        for each in (bare_path, copy):
            each.unlink(missing_ok=True)
        began = time.perf_counter()
        _copied(path, bare_path)
        bare.append(time.perf_counter() - began)
        seconds, waited = await _backed_up(path, copy)
        mine.append(seconds)
        longest = max(longest, waited)
    found = figure(mine, bare)
    weighed = weight(path.stat().st_size)
    return [weighed, milli(found.bare), milli(found.seconds), milli(found.p90), times(found.ratio), milli(longest)]


def _copied(source: Path, target: Path) -> None:
    with source.open("rb") as reading, target.open("wb") as writing:
        while piece := reading.read(CHUNK):
            writing.write(piece)
        writing.flush()
        os.fsync(writing.fileno())


async def _backed_up(path: Path, copy: Path) -> tuple[float, float]:
    """Give what a backup took, and the longest that a commit of another task took meanwhile."""
    took, waited = 0.0, list[float]()

    async def others(store: SqliteStore) -> None:
        while True:
            began = time.perf_counter()
            with anyio.CancelScope(shield=True):
                await store.commit(Put(("other",), b"v"))
            waited.append(time.perf_counter() - began)
            await anyio.sleep(PAUSE_SECONDS)

    async with SqliteStore(path) as store, anyio.create_task_group() as group:
        group.start_soon(others, store)
        await anyio.sleep(PAUSE_SECONDS * 5)
        began = time.perf_counter()
        await backup(path, copy)
        took = time.perf_counter() - began
        group.cancel_scope.cancel()
    return took, max(waited)
