"""What sealing all facts with new keys costs, and what it leaves to a process that saves facts meanwhile.

The rotation is a process of its own, as `graphagent keys rotate --data` is. The writer saves one fact after the other, first alone,
then during the rotation, whose end rewrites the file. Wall time; the files are made where TMPDIR says.
"""

from __future__ import annotations

import functools
import os
import sys
import tempfile
import time
from pathlib import Path

import anyio

from benchmarks.measure import table, times
from graphagent.memory import Concept, EncryptedMemoryProvider, Scope, SingleFact, Subject
from graphagent.store import new_key

SIZES = ((100_000, 1), (100_000, 1_000))
"""How many facts, and how many owners have them."""
SUBJECT = Subject("ada")
SCOPE = Scope.agent("benchmark")
VALUE = "prefers the terminal, dark, with a large font, and wants to be asked before anything is deleted. " * 3
AT_ONCE = 10_000
ALONE_SECONDS = 5.0
PROGRAM = """
import sys, time, anyio
from graphagent.memory import EncryptedMemoryProvider

async def main():
    async with EncryptedMemoryProvider(sys.argv[1], key="env:GRAPHAGENT_BENCHMARK_KEY") as provider:
        began = time.perf_counter()
        await provider.keys.rotate_data()
        print(time.perf_counter() - began)

anyio.run(main)
"""


def report(*, quick: bool) -> str:
    """Measure stores with few and with many owners. Gives a Markdown table."""
    return anyio.run(functools.partial(_report, quick=quick))


async def _report(*, quick: bool) -> str:
    rows: list[list[str]] = []
    for size, owners in ((20, 1), (20, 5)) if quick else SIZES:
        with tempfile.TemporaryDirectory() as folder:
            rows.append(await _row(Path(folder), size, owners, 0.05 if quick else ALONE_SECONDS))
    head = ["facts", "owners", "sealing them anew", "target", "saves a second, alone", "meanwhile", "ratio", "target"]
    return table(head, rows)


async def _row(folder: Path, size: int, owners: int, alone: float) -> list[str]:
    os.environ["GRAPHAGENT_BENCHMARK_KEY"] = new_key()
    async with EncryptedMemoryProvider(folder, key="env:GRAPHAGENT_BENCHMARK_KEY") as provider:
        for start in range(0, size, AT_ONCE):
            await provider.import_([_record(number, owners) for number in range(start, min(start + AT_ONCE, size))])
        saved, measured = 0, False

        async def save() -> None:
            nonlocal saved
            while not measured:
                fact = SingleFact(Concept(f"new-{saved % 1_000}"), VALUE)
                await provider.save(fact, SUBJECT, SCOPE, owner=f"owner {saved % owners}")
                saved += 1

        async with anyio.create_task_group() as group:
            group.start_soon(save)
            await anyio.sleep(alone)  # after the first touch of the owners
            before, began = saved, time.perf_counter()
            await anyio.sleep(alone)
            rate = (saved - before) / (time.perf_counter() - began)
            before, began = saved, time.perf_counter()
            rotated = await anyio.run_process([sys.executable, "-c", PROGRAM, str(folder)], stderr=None)
            meanwhile = (saved - before) / (time.perf_counter() - began)
            measured = True
        if not await provider.verify():
            raise AssertionError("nothing is left")
    took = float(rotated.stdout)
    return [
        f"{size:,}", f"{owners:,}", f"{took:.1f} s", "≤ 60 s", f"{rate:,.0f}", f"{meanwhile:,.0f}",
        times(meanwhile / rate), "≥ 0.5 ×",
    ]  # fmt: skip


def _record(number: int, owners: int) -> dict[str, object]:
    return {
        "owner": f"owner {number % owners}", "scope": {"kind": SCOPE.kind.value, "name": SCOPE.name}, "subject": SUBJECT.name,
        "keyword": f"concept-{number}", "values": [VALUE], "type": "single", "description": "", "timestamp": 1,
        "version": 1, "source": {"run_id": "", "step": None, "origin": "", "trust": ""}, "id": f"{number:032x}",
    }  # fmt: skip
