"""The tasks that every engine is given, and how bare Python does them. Needs no engine."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass

import anyio

from benchmarks.measure import QUICK, Figure, Rounds, Work, beside, cpu


@dataclass(frozen=True, slots=True)
class Sizes:
    """How large the tasks are."""

    loop: int = 10_000
    """Times that one node is executed."""
    chain: int = 100
    """Nodes one behind the other."""
    fan_out: int = 100
    """Branches at once."""
    runs: int = 1_000
    """Runs at once."""
    run: int = 10
    """Nodes of each of those."""
    build: int = 1_000
    """Nodes that are declared, joined, checked and made ready to run."""


SMALL = Sizes(loop=20, chain=4, fan_out=3, runs=5, run=2, build=10)


@dataclass(frozen=True, slots=True)
class Engine:
    """An engine that can do the tasks. Each gives what it has counted up to."""

    name: str
    version: str
    loop: Work
    chain: Work
    fan_out: Work
    runs: Work
    build: Callable[[], object]


async def add_one(context: object, number: int) -> int:
    """Do what every node does."""
    return number + 1


async def loop(size: int) -> int:
    """Count up to `size`, deciding after each step whether to go on."""
    number = 0
    while True:
        number = await add_one(None, number)
        if not number < size:
            return number


async def fan_out(size: int) -> int:
    """Let so many tasks add one to 0 each, and count them together."""
    found = [0] * size

    async def branch(place: int) -> None:
        found[place] = await add_one(None, 0)

    async with anyio.create_task_group() as group:
        for place in range(size):
            group.start_soon(branch, place)
    return sum(found)


async def runs(count: int, size: int) -> int:
    """Count up to `size` so many times at once."""
    return sum(await asyncio.gather(*[loop(size) for _ in range(count)]))


async def measure(engine: Engine, sizes: Sizes, rounds: Rounds) -> dict[str, Figure]:
    """Measure an engine beside bare Python: a node of the loop and of the chain, a branch, a run, the whole build."""
    counted = {
        "loop": (engine.loop, lambda: loop(sizes.loop), sizes.loop, sizes.loop),
        "chain": (engine.chain, lambda: loop(sizes.chain), sizes.chain, sizes.chain),
        "fan_out": (engine.fan_out, lambda: fan_out(sizes.fan_out), sizes.fan_out, sizes.fan_out),
        "runs": (engine.runs, lambda: runs(sizes.runs, sizes.run), sizes.runs, sizes.runs * sizes.run),
    }
    found: dict[str, Figure] = {}
    for task, (work, bare, units, total) in counted.items():
        for each in (work, bare):
            if (result := await each()) != total:
                raise AssertionError(f"{task} counted to {result!r} and not to {total} in {engine.name} or bare Python")
        found[task] = await beside(bare, work, rounds, units=units)
    found["build"] = await cpu(engine.build, rounds)
    return found


def main(engine_of: Callable[[Sizes], Engine]) -> None:
    """Measure an engine in this process and print what was found, for `python -m benchmarks compare`."""
    quick = "--quick" in sys.argv
    sizes = SMALL if quick else Sizes()
    engine = engine_of(sizes)
    found = asyncio.run(measure(engine, sizes, QUICK if quick else Rounds(count=5)))
    tasks = {task: asdict(each) for task, each in found.items()}
    print(json.dumps({"name": engine.name, "version": engine.version, "tasks": tasks}))
