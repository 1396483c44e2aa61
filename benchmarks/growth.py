"""How the time of everything that can be done grows with the number of steps, calls, runs, notes and so on.

Each program of `benchmarks.growing` is executed with a number and with eight times that number, in fresh processes. An exponent of 1 means
that eight times as many take eight times as long, 2 that they take 64 times as long.
"""

from __future__ import annotations

import math
import multiprocessing
import statistics
import tempfile
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import anyio

from benchmarks.growing import PROGRAMS, Stopwatch, Taken
from benchmarks.measure import milli, table

FACTOR = 8
"""How many times as many there are the second time."""
FEW = 4
"""How many there are when a program is executed without being measured: what is imported first does not count."""
LARGE = ("networkx", "graphagent.memory.notes", "cryptography.hazmat.primitives.ciphers.aead")
"""The modules that take longest to import, which the processes share."""
ROUNDS = 3
MOST = 1.15
"""The largest exponent of what is done with all of them."""
MOST_ALONE = 0.3
"""The largest exponent of what is done with one beside all others: trees get deeper, and caches smaller than what they cache."""
LEAST_SECONDS = 0.001
"""What takes less than this with the larger number is not judged: it is mostly the stopwatch."""
EXPLAINED = {
    ("messages of a thread", "all messages"): "each reads the thread",
    ("messages of a thread", "one more message"): "each reads the thread",
}
"""What grows more, with the reason, which the page of figures says in full."""
HEAD = ["of so many", "what is done", "CPU", "CPU, 8 times as many", "exponent", "remark"]


def report(*, quick: bool) -> str:
    """Measure all programs, and print a line for each thing that they do. Return the table of what grows most in each."""
    print(f"| {' | '.join(HEAD)} |\n| --- | --- | ---: | ---: | ---: | --- |", flush=True)
    most: list[list[str]] = []
    for name, (_, size) in PROGRAMS.items():
        sizes = (FEW, FEW * FACTOR) if quick else (size, size * FACTOR)
        rows = _rows(name, sizes, quick=quick)
        for row in rows:
            print(f"| {' | '.join(row)} |", flush=True)
        most += [row for row in rows if row[-1]] or [max(rows, key=lambda row: float(row[-2]))]
    print(flush=True)
    return table(HEAD, most)


def _rows(name: str, sizes: tuple[int, int], *, quick: bool) -> list[list[str]]:
    took = [_executed_anew(name, sizes, 1 if quick else ROUNDS, 1)]
    rows = _told(name, sizes, took)
    if not quick and any(row[-1].startswith("**") for row in rows):  # the machine may have been busy
        took += [_executed_anew(name, sizes, ROUNDS, ROUNDS - 1)]
        rows = _told(name, sizes, took)
    return rows


def _executed_anew(name: str, sizes: tuple[int, int], few: int, many: int) -> tuple[list[dict[str, Taken]], ...]:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["benchmarks.growing", *LARGE])
    with ProcessPoolExecutor(1, context, max_tasks_per_child=1) as processes:
        return tuple(
            [processes.submit(_executed, name, size).result() for _ in range(count)]
            for size, count in zip(sizes, (few, many), strict=True)
        )


def _executed(name: str, size: int) -> dict[str, Taken]:
    took = Stopwatch()
    for count in (FEW, size):
        with tempfile.TemporaryDirectory() as folder:
            anyio.run(PROGRAMS[name][0], count, Path(folder), took)
    return took.taken


def _told(name: str, sizes: tuple[int, int], took: list[tuple[list[dict[str, Taken]], ...]]) -> list[list[str]]:
    few, many = ([each for part in took for each in part[place]] for place in (0, 1))
    rows: list[list[str]] = []
    for what, (_, alone) in few[0].items():
        small, large = (statistics.median(each[what].seconds for each in taken) for taken in (few, many))
        exponent = math.log(large / small) / math.log(sizes[1] / sizes[0])
        limit = MOST_ALONE if alone else MOST
        remark = ""
        if large >= LEAST_SECONDS and exponent > limit:
            reason = EXPLAINED.get((name, what))
            remark = f"explained: {reason}" if reason else f"**above {limit:.2f}**"
        rows.append([f"{sizes[0]:,} {name}", what, milli(small), milli(large), f"{exponent:.2f}", remark])
    return rows
