"""Durable runs in Burr, with its AsyncSQLitePersister, whose connection is set to WAL."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.metadata import version
from pathlib import Path

from burr.core import Application, ApplicationBuilder, State, action, expr
from burr.core.graph import Graph, GraphBuilder
from burr.integrations.persisters.b_aiosqlite import AsyncSQLitePersister

from benchmarks import durable


@action(reads=["number"], writes=["number", "messages"])
async def say(state: State) -> State:
    return state.append(messages=durable.message(state["number"])).update(number=state["number"] + 1)


@action(reads=["messages"], writes=["seen", "arrived"])
async def look(state: State) -> State:
    return state.update(seen=len(state["messages"]), arrived=time.process_time())


@action(reads=["number"], writes=[])
async def done(state: State) -> State:
    return state


class Runs:
    def __init__(self, persister: AsyncSQLitePersister) -> None:
        self._persister = persister

    def rewriting(self, steps: int, size: int) -> durable.ByName[int]:
        @action(reads=["number"], writes=["number", "text"])
        async def rewrite(state: State) -> State:
            return state.update(number=state["number"] + 1, text=durable.texts(size)[state["number"] % 16])

        graph = GraphBuilder().with_actions(rewrite=rewrite, done=done)
        graph = graph.with_transitions(("rewrite", "rewrite", expr(f"number < {steps}")), ("rewrite", "done")).build()

        async def execute(run: str) -> int:
            application = await self._application(graph, run, "rewrite", number=0, text="")
            _, _, state = await application.arun(halt_before=["done"])
            return state["number"]

        return execute

    def growing(self, steps: int) -> durable.ByName[object]:
        graph = _grown(steps)

        async def execute(run: str) -> None:
            application = await self._application(graph, run, "say", number=0, messages=[])
            await application.arun(halt_before=["look"])

        return execute

    def resuming(self, steps: int) -> durable.ByName[durable.Seen]:
        graph = _grown(steps)

        async def execute(run: str) -> durable.Seen:
            application = await self._application(graph, run, "say")
            _, _, state = await application.arun(halt_after=["look"])
            return durable.Seen(state["seen"], state["arrived"], state["arrived"])

        return execute

    async def _application(self, graph: Graph, run: str, first: str, **state: object) -> Application:
        building = ApplicationBuilder().with_graph(graph).with_identifiers(app_id=run, partition_key="benchmark")
        if state:
            building = building.with_entrypoint(first).with_state(**state)
        else:
            building = building.initialize_from(self._persister, True, {}, first)
        return await building.with_state_persister(self._persister).abuild()


def _grown(steps: int) -> Graph:
    graph = GraphBuilder().with_actions(say=say, look=look)
    return graph.with_transitions(("say", "say", expr(f"number < {steps}")), ("say", "look")).build()


@asynccontextmanager
async def opened(path: Path, synchronous: str) -> AsyncIterator[Runs]:
    async with AsyncSQLitePersister.from_values(str(path)) as persister:
        await persister.connection.execute("PRAGMA journal_mode=WAL")
        await persister.connection.execute(f"PRAGMA synchronous={synchronous}")
        await persister.initialize()
        yield Runs(persister)


if __name__ == "__main__":
    durable.serve("Burr", version("apache-burr"), opened)
