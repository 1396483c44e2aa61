"""What durable runs in PostgreSQL are asked to do, and how one row for each step does it. Needs psycopg, and no engine.

Each engine works in a process of its own, which takes numbers of runs to execute at once, a line each, and gives the seconds that
they took: so several engines can be asked in turn, and what else the machine does hits all alike.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import string
import sys
import time
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

STEPS = 20
ROW = 330
"""About the bytes of a step of graphagent: its entry, and its value of 200 characters."""
CONNECTIONS = 20

Opened = Callable[[str], AbstractAsyncContextManager[Callable[[], Awaitable[object]]]]
"""Gives the work that executes one run, for the DSN of a database."""


def text() -> str:
    """Return the value of a step."""
    return "".join(random.choices(string.ascii_letters, k=200))


def serve(name: str, version: str, opened: Opened) -> None:
    """Tell who this is, and execute runs until nothing more is asked."""
    asyncio.run(_serve(name, version, opened, sys.argv[-1]))
    sys.stdout.flush()
    os._exit(0)  # some engines have threads that would not end


async def _serve(name: str, version: str, opened: Opened, dsn: str) -> None:
    async with opened(dsn) as run:
        await run()
        print(json.dumps({"name": name, "version": version}), flush=True)
        while line := await asyncio.to_thread(sys.stdin.readline):
            began = time.perf_counter()
            await asyncio.gather(*(run() for _ in range(int(line))))
            print(json.dumps(time.perf_counter() - began), flush=True)


@asynccontextmanager
async def bare(dsn: str):
    """One INSERT for each step, each a transaction of its own."""
    from psycopg_pool import AsyncConnectionPool

    options = {"autocommit": True}
    async with AsyncConnectionPool(dsn, min_size=CONNECTIONS, max_size=CONNECTIONS, open=False, kwargs=options) as pool:
        async with pool.connection() as connection:
            await connection.execute(
                "CREATE TABLE IF NOT EXISTS bare (place bytea PRIMARY KEY, version bigint, value bytea)"
            )

        async def run() -> None:
            name = os.urandom(40)
            for number in range(STEPS):
                row = (name + number.to_bytes(8, "big"), os.urandom(ROW))
                async with pool.connection() as connection:
                    await connection.execute("INSERT INTO bare VALUES (%b, 1, %b)", row)

        yield run


if __name__ == "__main__":
    serve("one INSERT a step", "", bare)
