"""Durable runs in LangGraph with its savers for PostgreSQL.

`sync` and `async` are the durabilities of the asynchronous saver: whether the next step waits until the last one is committed.
`threads` is the other saver, in a thread for each run.
"""

from __future__ import annotations

import asyncio
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from importlib.metadata import version
from typing import TypedDict

from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.checkpoint.postgres.aio import AsyncPostgresSaver
from langgraph.graph import END, START, StateGraph
from psycopg.rows import dict_row
from psycopg_pool import AsyncConnectionPool, ConnectionPool

from benchmarks.durable_postgres import CONNECTIONS, STEPS, serve, text

WAY = sys.argv[1]
POOL = {
    "min_size": CONNECTIONS, "max_size": CONNECTIONS, "open": False,
    "kwargs": {"autocommit": True, "prepare_threshold": 0, "row_factory": dict_row},
}  # fmt: skip


class State(TypedDict):
    text: str


def made(saver):
    graph = StateGraph(State)
    names = [f"s{number}" for number in range(STEPS)]
    for name in names:
        graph.add_node(name, lambda state: {"text": text()})
    for one, other in zip([START, *names], [*names, END], strict=True):
        graph.add_edge(one, other)
    return graph.compile(checkpointer=saver)


def told():
    return {"text": text()}, {"configurable": {"thread_id": os.urandom(8).hex()}, "recursion_limit": 100}


@asynccontextmanager
async def opened(dsn):
    async with AsyncConnectionPool(dsn, **POOL) as pool:
        saver = AsyncPostgresSaver(pool)
        await saver.setup()
        graph = made(saver)
        yield lambda: graph.ainvoke(*told(), durability=WAY)


@asynccontextmanager
async def opened_in_threads(dsn):
    with ConnectionPool(dsn, **POOL) as pool, ThreadPoolExecutor(50) as threads:
        saver = PostgresSaver(pool)
        saver.setup()
        graph = made(saver)
        loop = asyncio.get_running_loop()
        yield lambda: loop.run_in_executor(threads, lambda: graph.invoke(*told(), durability="sync"))


if __name__ == "__main__":
    serve(
        f"LangGraph, {WAY}", version("langgraph-checkpoint-postgres"), opened_in_threads if WAY == "threads" else opened
    )
