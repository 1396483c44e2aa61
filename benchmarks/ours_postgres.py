"""Durable runs in graphagent, in a PostgresStore; with `--sealed`, in an EncryptedStore around it."""

from __future__ import annotations

import sys
from contextlib import asynccontextmanager
from functools import reduce
from operator import rshift

import graphagent
from benchmarks import durable_postgres
from graphagent import END, START, Agent, Context, Strategy, node
from graphagent.store import EncryptedStore
from graphagent.store.postgres import PostgresStore

SEALED = "--sealed" in sys.argv


def step(number: int):
    async def act(ctx: Context, value: str) -> str:
        return durable_postgres.text()

    act.__name__ = f"s{number}"
    return node(act)


@asynccontextmanager
async def opened(dsn: str):
    async with PostgresStore(dsn, "bench_sealed" if SEALED else "bench") as plain:
        store = EncryptedStore(plain, bytes(range(32))) if SEALED else plain
        nodes = map(step, range(durable_postgres.STEPS))
        agent = Agent(Strategy("steps", reduce(rshift, nodes, START) >> END), store=store)
        yield lambda: agent.run(durable_postgres.text())


if __name__ == "__main__":
    durable_postgres.serve(f"graphagent{', sealed' if SEALED else ''}", graphagent.__version__, opened)
