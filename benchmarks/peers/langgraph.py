"""The tasks in LangGraph.

The router is async, since LangGraph sends a sync one to a thread. Nothing is checkpointed.
"""

from __future__ import annotations

import asyncio
import operator
from importlib.metadata import version
from typing import Annotated, TypedDict

from langgraph.graph import END, START, StateGraph

from benchmarks import tasks


class Count(TypedDict):
    number: int


class Counts(TypedDict):
    number: int
    found: Annotated[list[int], operator.add]


async def add_one(state: Count) -> Count:
    return {"number": state["number"] + 1}


async def one(state: Counts) -> dict[str, list[int]]:
    return {"found": [1]}


async def together(state: Counts) -> dict[str, int]:
    return {"number": sum(state["found"])}


def loop(size: int):
    async def onward(state: Count) -> str:
        return "add_one" if state["number"] < size else END

    graph = StateGraph(Count)
    graph.add_node("add_one", add_one)
    graph.add_edge(START, "add_one")
    graph.add_conditional_edges("add_one", onward, ["add_one", END])
    return graph.compile()


def chain(size: int):
    graph = StateGraph(Count)
    before = START
    for place in range(size):
        graph.add_node(f"n{place}", add_one)
        graph.add_edge(before, f"n{place}")
        before = f"n{place}"
    graph.add_edge(before, END)
    return graph.compile()


def fan_out(size: int):
    graph = StateGraph(Counts)
    graph.add_node("together", together)
    names = [f"n{place}" for place in range(size)]
    for name in names:
        graph.add_node(name, one)
        graph.add_edge(START, name)
    graph.add_edge(names, "together")
    graph.add_edge("together", END)
    return graph.compile()


def engine(sizes: tasks.Sizes) -> tasks.Engine:
    looping, chained = loop(sizes.loop), chain(sizes.chain)
    forking, small = fan_out(sizes.fan_out), chain(sizes.run)

    async def count(graph) -> int:
        limit = {"recursion_limit": max(sizes.loop, sizes.chain) + 10}
        return (await graph.ainvoke({"number": 0}, limit))["number"]

    async def join() -> int:
        return (await forking.ainvoke({"number": 0, "found": []}))["number"]

    async def runs() -> int:
        return sum(await asyncio.gather(*[count(small) for _ in range(sizes.runs)]))

    return tasks.Engine(
        "LangGraph",
        version("langgraph"),
        loop=lambda: count(looping),
        chain=lambda: count(chained),
        fan_out=join,
        runs=runs,
        build=lambda: chain(sizes.build),
    )


if __name__ == "__main__":
    tasks.main(engine)
