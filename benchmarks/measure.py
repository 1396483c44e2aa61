"""How everything here is measured: in rounds that alternate with a baseline, of which the medians are told.

The machine may be shared and its clock may change while a measurement runs. So what is compared is measured in turn, in
one process, and a ratio is the median of the ratios of the rounds, not a ratio of medians.
"""

from __future__ import annotations

import gc
import math
import statistics
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

Work = Callable[[], Awaitable[object]]
Clock = Callable[[], float]


@dataclass(frozen=True, slots=True)
class Rounds:
    """How long to measure."""

    count: int = 15
    """How many rounds."""
    seconds: float = 0.03
    """How long a work is repeated in a round, at least."""


QUICK = Rounds(count=2, seconds=0.0)
"""Enough to see that a measurement runs; its figures say nothing."""

UNITS = {"GB": 1e9, "MB": 1e6, "KB": 1e3}


@dataclass(frozen=True, slots=True)
class Figure:
    """What one unit of a work took."""

    seconds: float
    """The median of the rounds."""
    p90: float
    """What nine of ten rounds stayed below."""
    bare: float = math.nan
    """The same of the baseline."""
    ratio: float = math.nan
    """The median of the ratios of the rounds."""


async def alternate(
    works: dict[str, Work], rounds: Rounds, *, clock: Clock = time.process_time
) -> dict[str, list[float]]:
    """Execute works in turn, round after round. Gives the seconds that each took in each round."""
    repeats = {name: await _repeats(work, rounds.seconds) for name, work in works.items()}
    took: dict[str, list[float]] = {name: [] for name in works}
    for number in range(rounds.count):
        for name in sorted(works, reverse=number % 2 == 1):
            work = works[name]
            gc.collect()
            began = clock()
            for _ in range(repeats[name]):
                await work()
            took[name].append((clock() - began) / repeats[name])
    return took


async def _repeats(work: Work, seconds: float) -> int:
    """Give how often a work fits in so many seconds. The first call may make what later ones use, so it does not count."""
    for _ in range(2):
        began = time.process_time()
        await work()
        took = time.process_time() - began
        if took >= seconds:
            return 1
    return math.ceil(seconds / max(took, 1e-9))


def figure(took: Sequence[float], bare: Sequence[float] = (), *, units: int = 1) -> Figure:
    """Sum up the rounds of a work and of its baseline, each of so many units."""
    found = Figure(statistics.median(took) / units, sorted(took)[math.ceil(len(took) * 0.9) - 1] / units)
    if not bare:
        return found
    ratio = statistics.median(mine / theirs for mine, theirs in zip(took, bare, strict=True))
    return Figure(found.seconds, found.p90, statistics.median(bare) / units, ratio)


async def beside(bare: Work, work: Work, rounds: Rounds, *, units: int = 1) -> Figure:
    """Measure the CPU time of a work beside that of bare Python."""
    took = await alternate({"bare": bare, "work": work}, rounds)
    return figure(took["work"], took["bare"], units=units)


async def cpu(work: Callable[[], object], rounds: Rounds) -> Figure:
    """Measure the CPU time of a plain function."""

    async def call() -> None:
        work()

    return figure((await alternate({"work": call}, rounds))["work"])


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Give a Markdown table; every column but the first is set right."""
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def micro(seconds: float) -> str:
    """Write seconds as microseconds."""
    return f"{_digits(seconds * 1e6)} µs"


def milli(seconds: float) -> str:
    """Write seconds as milliseconds."""
    return f"{_digits(seconds * 1e3)} ms"


def weight(count: float) -> str:
    """Write bytes as thousands, millions or thousands of millions of them."""
    unit, size = next((each for each in UNITS.items() if count >= each[1]), ("KB", UNITS["KB"]))
    return f"{_digits(count / size)} {unit}"


def times(ratio: float) -> str:
    """Write a ratio."""
    return f"{_digits(ratio)} ×"


def _digits(number: float) -> str:
    if number >= 100:
        return f"{number:,.0f}"
    return f"{number:.1f}" if number >= 10 else f"{number:.2f}"
