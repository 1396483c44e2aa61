"""What the engine costs over bare Python that awaits the same coroutine: CPU time, side by side in one process."""

from __future__ import annotations

import asyncio
import statistics

import networkx  # noqa: F401  a strategy's check imports it at first use, which is not what is measured here

from benchmarks import ours, tasks
from benchmarks.measure import QUICK, Figure, Rounds, Work, alternate, beside, cpu, micro, milli, table, times
from graphagent import Agent
from graphagent.events import Event, NodeFinished, NodeStarted
from graphagent.telemetry import OpenTelemetry

LENGTHS = (10, 100, 1_000, 10_000)


def report(*, quick: bool) -> str:
    """Measure the engine. Gives two Markdown tables."""
    sizes = tasks.SMALL if quick else tasks.Sizes()
    rounds = QUICK if quick else Rounds()
    return f"{asyncio.run(_engine(sizes, rounds))}\n\n{asyncio.run(_lengths(rounds))}"


async def _engine(sizes: tasks.Sizes, rounds: Rounds) -> str:
    size = sizes.loop
    loops = {
        "a loop: budget, errors and routing; per node": (_looping(size), "≤ 6 ×"),
        "… with one listener to the start and end of nodes": (_looping(size, NodeStarted, NodeFinished), "≤ 20 ×"),
        "… with one listener to everything": (_looping(size, Event), ""),
        "… with OpenTelemetry, and nothing that exports": (_reporting(size), "≤ 7.5 ×"),
        "… with a timeout and a retry of the node": (_guarded(size), "≤ 60 ×"),
    }
    rows: list[list[str]] = []
    for name, (work, target) in loops.items():
        rows.append(_row(name, await beside(lambda: tasks.loop(size), work, rounds, units=size), target))
    done = await tasks.measure(ours.engine(sizes), sizes, rounds)
    rows.append(_row("a path of 100 nodes; per node", done["chain"], "≤ 8 ×"))
    rows.append(_row("a fan-out of 100 and the join; per branch", done["fan_out"], "≤ 1.25 ×"))
    rows.append(_row("1,000 runs of 10 nodes at once; per run", done["runs"], "≤ 7 ×"))
    named = await cpu(lambda: ours.ready(ours.chain(sizes.build)), rounds)
    rows.append(["1,000 nodes of one function, joined, checked, made ready", "", milli(named.seconds), "", "≤ 25 ms"])
    rows.append(["1,000 functions decorated, joined, checked, made ready", "", milli(done["build"].seconds), "", ""])
    return table(["what", "bare Python", "graphagent", "ratio", "target"], rows)


def _row(name: str, found: Figure, target: str) -> list[str]:
    return [name, micro(found.bare), micro(found.seconds), times(found.ratio), target]


def _looping(size: int, *kinds: type[Event]) -> Work:
    agent = Agent(ours.loop(ours.add_one, size), max_nodes=size)
    for kind in kinds:
        agent.on(kind, _listener)
    return lambda: ours.count(agent)


def _reporting(size: int) -> Work:
    agent = Agent(ours.loop(ours.add_one, size), max_nodes=size)
    agent.install(OpenTelemetry)
    return lambda: ours.count(agent)


def _listener(event: Event) -> None:
    pass


def _guarded(size: int) -> Work:
    agent = Agent(ours.loop(ours.add_one.timeout(60).retry(attempts=2), size), max_nodes=size)
    return lambda: ours.count(agent)


async def _lengths(rounds: Rounds) -> str:
    """Tell what a further node costs in paths of several lengths: the run's own beginning and end are taken away."""
    agents = {length: Agent(ours.chain(length), max_nodes=length) for length in (1, *LENGTHS)}
    works: dict[str, Work] = {f"{length}": _counting(agent) for length, agent in agents.items()}
    took = await alternate({"bare": lambda: tasks.loop(LENGTHS[-1]), **works}, rounds)
    bare = statistics.median(took["bare"]) / LENGTHS[-1]
    rows = [["one run of 1 node", micro(statistics.median(took["1"])), ""]]
    for length in LENGTHS:
        pairs = zip(took[f"{length}"], took["1"], strict=True)
        further = statistics.median((whole - one) / (length - 1) for whole, one in pairs)
        rows.append([f"each further node in a path of {length:,}", micro(further), times(further / bare)])
    return table(["what", "graphagent", "ratio to bare Python"], rows)


def _counting(agent: Agent[int, int]) -> Work:
    return lambda: ours.count(agent)
