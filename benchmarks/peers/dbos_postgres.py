"""Durable runs in DBOS: a workflow of steps."""

from __future__ import annotations

from contextlib import asynccontextmanager
from importlib.metadata import version

from dbos import DBOS

from benchmarks.durable_postgres import CONNECTIONS, STEPS, serve, text


@asynccontextmanager
async def opened(dsn):
    DBOS(
        config={
            "name": "bench", "system_database_url": dsn, "log_level": "ERROR", "sys_db_pool_size": CONNECTIONS,
            "application_version": "1",
        }
    )  # fmt: skip

    @DBOS.step()
    async def step(value: str) -> str:
        return text()

    @DBOS.workflow()
    async def flow(value: str) -> str:
        for _ in range(STEPS):
            value = await step(value)
        return value

    DBOS.launch()
    yield lambda: flow(text())
    DBOS.destroy()


if __name__ == "__main__":
    serve("DBOS", version("dbos"), opened)
