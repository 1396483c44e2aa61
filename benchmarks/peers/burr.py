"""The tasks in Burr.

A Burr application is one run, so each run makes its own, over a graph that was built before. Nothing is tracked.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from importlib.metadata import version
from itertools import pairwise

from burr.core import ApplicationBuilder, ApplicationContext, State, action, expr
from burr.core.graph import Graph, GraphBuilder
from burr.core.parallelism import MapStates

from benchmarks import tasks


@action(reads=["number"], writes=["number"])
async def add_one(state: State) -> State:
    return state.update(number=state["number"] + 1)


@action(reads=["number"], writes=[])
async def done(state: State) -> State:
    return state


class Forking(MapStates):
    """Adds one in so many copies of the state, and counts them together."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size

    def action(self, state: State, inputs: dict[str, object]):
        return add_one

    async def states(
        self, state: State, context: ApplicationContext, inputs: dict[str, object]
    ) -> AsyncGenerator[State, None]:
        for _ in range(self.size):
            yield state.update(number=0)

    async def reduce(self, state: State, states: AsyncIterator[State]) -> State:
        total = 0
        async for found in states:
            total += found["number"]
        return state.update(number=total)

    @property
    def reads(self) -> list[str]:
        return ["number"]

    @property
    def writes(self) -> list[str]:
        return ["number"]

    def is_async(self) -> bool:
        return True


def loop(size: int) -> Graph:
    graph = GraphBuilder().with_actions(add_one=add_one, done=done)
    return graph.with_transitions(("add_one", "add_one", expr(f"number < {size}")), ("add_one", "done")).build()


def chain(size: int) -> Graph:
    names = [f"n{place}" for place in range(size)]
    graph = GraphBuilder().with_actions(**dict.fromkeys(names, add_one))
    return graph.with_transitions(*pairwise(names)).build()


def fan_out(size: int) -> Graph:
    return GraphBuilder().with_actions(fork=Forking(size), done=done).with_transitions(("fork", "done")).build()


async def count(graph: Graph, first: str, last: str) -> int:
    application = await ApplicationBuilder().with_graph(graph).with_entrypoint(first).with_state(number=0).abuild()
    _, _, state = await application.arun(halt_after=[last])
    return state["number"]


def engine(sizes: tasks.Sizes) -> tasks.Engine:
    looping, chained = loop(sizes.loop), chain(sizes.chain)
    forking, small = fan_out(sizes.fan_out), chain(sizes.run)

    async def runs() -> int:
        return sum(await asyncio.gather(*[count(small, "n0", f"n{sizes.run - 1}") for _ in range(sizes.runs)]))

    return tasks.Engine(
        "Burr",
        version("apache-burr"),
        loop=lambda: count(looping, "add_one", "done"),
        chain=lambda: count(chained, "n0", f"n{sizes.chain - 1}"),
        fan_out=lambda: count(forking, "fork", "done"),
        runs=runs,
        build=lambda: chain(sizes.build),
    )


if __name__ == "__main__":
    tasks.main(engine)
