"""What recall over PostgreSQL costs, beside SQLite: over all notes of one owner, and over those of one of many owners.

Each question is asked of every store in turn, with the texts and vectors of `notes`. In PostgreSQL the vectors are in a table with
pgvector, or searched in memory as those in SQLite are. GRAPHAGENT_BENCH_POSTGRES may have the DSN of a database of a server, whose
administrator one is, as for `postgres`.
"""

from __future__ import annotations

import functools
import random
import statistics
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path

import anyio
import psycopg

from benchmarks.measure import table, times
from benchmarks.notes import Adding, Words, both, interleaved
from benchmarks.postgres import served
from graphagent.memory import Notes
from graphagent.store import SqliteStore
from graphagent.store.postgres import PostgresStore

SQLITE, PGVECTOR, PLAIN = "SQLite", "PostgreSQL with pgvector", "PostgreSQL, vectors in memory"


def report(*, quick: bool) -> str:
    """Measure. Return a Markdown table."""
    return anyio.run(functools.partial(_report, quick=quick))


async def _report(*, quick: bool) -> str:
    count, owners, questions = (80, 4, 5) if quick else (100_000, 1_000, 200)
    words = Words()
    texts = [words.text() for _ in range(count)]
    asked = [words.question(text) for text in random.Random(7).sample(texts[::owners], min(questions, count // owners))]
    columns = [await _asked(texts, each, asked) for each in (1, owners)]
    rows = [
        [name, *[cell for took in columns for cell in (both(took[name]), _ratio(took, name))]] for name in columns[0]
    ]
    head = [
        "recall, p50 / p95",
        f"{count:,} notes of one owner",
        "÷ SQLite",
        f"one of {owners:,} owners of them",
        "÷ SQLite",
    ]
    return table(head, rows)


def _ratio(took: dict[str, list[float]], name: str) -> str:
    return times(statistics.median(took[name]) / statistics.median(took[SQLITE]))


async def _asked(texts: Sequence[str], owners: int, questions: Sequence[str]) -> dict[str, list[float]]:
    """Return the seconds that each question takes each store, of the first of so many owners."""
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        server = stack.enter_context(served())
        with psycopg.connect(server(f"vectors{owners}")) as connection:
            connection.execute("CREATE EXTENSION vector")
            with_vectors = connection.info.dsn
        stores: dict[str, SqliteStore | PostgresStore] = {
            SQLITE: SqliteStore(folder / "notes.db"), PGVECTOR: PostgresStore(with_vectors), PLAIN: PostgresStore(server(f"plain{owners}")),
        }  # fmt: skip
        asks: dict[str, Callable[[str], Awaitable[object]]] = {}
        for name, store in stores.items():
            notes = Notes(await stack.enter_async_context(store), owner="owner0", embedder=Adding())
            asks[name] = notes.recall
            for number in range(owners):
                each = notes if not number else Notes(store, owner=f"owner{number}", embedder=Adding())
                some = texts[number::owners]
                for start in range(0, len(some), 10_000):
                    await each.remember_many(some[start : start + 10_000])
        return await interleaved(asks, questions)
