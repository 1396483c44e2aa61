"""Durable runs in LangGraph, with its AsyncSqliteSaver, which is told to wait for each checkpoint.

With `--delta` the messages are in a DeltaChannel, which is in beta; otherwise in a list that `operator.add` adds to.
"""

from __future__ import annotations

import operator
import sys
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, TypedDict

from langgraph.channels.delta import DeltaChannel
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import END, START, StateGraph

from benchmarks import durable

DELTA = "--delta" in sys.argv


def joined(before: list[dict] | None, added: Sequence[list[dict]]) -> list[dict]:
    return [*(before or ()), *(message for each in added for message in each)]


class Page(TypedDict):
    number: int
    text: str


class Talk(TypedDict):
    number: int
    messages: Annotated[list[dict], DeltaChannel(joined) if DELTA else operator.add]
    seen: int
    arrived: float


async def say(state: Talk) -> dict:
    return {"number": state["number"] + 1, "messages": [durable.message(state["number"])]}


async def look(state: Talk) -> dict:
    return {"seen": len(state["messages"]), "arrived": time.process_time()}


class Runs:
    def __init__(self, saver: AsyncSqliteSaver) -> None:
        self._saver = saver

    def rewriting(self, steps: int, size: int) -> durable.ByName[int]:
        async def rewrite(state: Page) -> Page:
            return {"number": state["number"] + 1, "text": durable.texts(size)[state["number"] % 16]}

        async def onward(state: Page) -> str:
            return "rewrite" if state["number"] < steps else END

        graph = StateGraph(Page)
        graph.add_node("rewrite", rewrite)
        graph.add_edge(START, "rewrite")
        graph.add_conditional_edges("rewrite", onward, ["rewrite", END])
        ready = graph.compile(checkpointer=self._saver)

        async def execute(run: str) -> int:
            state = await ready.ainvoke({"number": 0, "text": ""}, _named(run, steps), durability="sync")
            return state["number"]

        return execute

    def _grown(self, steps: int):
        async def onward(state: Talk) -> str:
            return "say" if state["number"] < steps else "look"

        graph = StateGraph(Talk)
        graph.add_node("say", say)
        graph.add_node("look", look)
        graph.add_edge(START, "say")
        graph.add_conditional_edges("say", onward, ["say", "look"])
        graph.add_edge("look", END)
        return graph.compile(checkpointer=self._saver, interrupt_before=["look"])

    def growing(self, steps: int) -> durable.ByName[object]:
        ready = self._grown(steps)
        return lambda run: ready.ainvoke({"number": 0, "messages": []}, _named(run, steps), durability="sync")

    def resuming(self, steps: int) -> durable.ByName[durable.Seen]:
        ready = self._grown(steps)

        async def execute(run: str) -> durable.Seen:
            state = await ready.ainvoke(None, _named(run, steps), durability="sync")
            return durable.Seen(state["seen"], state["arrived"], state["arrived"])

        return execute


def _named(run: str, steps: int) -> dict:
    return {"recursion_limit": steps + 10, "configurable": {"thread_id": run}}


@asynccontextmanager
async def opened(path: Path, synchronous: str) -> AsyncIterator[Runs]:
    async with AsyncSqliteSaver.from_conn_string(str(path)) as saver:
        await saver.setup()  # chooses WAL
        await saver.conn.execute(f"PRAGMA synchronous={synchronous}")
        yield Runs(saver)


if __name__ == "__main__":
    durable.serve("LangGraph, DeltaChannel (beta)" if DELTA else "LangGraph", version("langgraph"), opened)
