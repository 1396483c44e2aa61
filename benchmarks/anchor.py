"""What an anchor costs: a fact saved in an encrypted store, without an anchor and with one in a file.

The stores take turns, so that they meet the same disk and the same other processes. Wall time; the files are made where TMPDIR says.
"""

from __future__ import annotations

import functools
import random
import tempfile
import time
from pathlib import Path

import anyio

from benchmarks.measure import figure, micro, table, times
from graphagent.memory import Concept, Scope, SingleFact, StoreMemoryProvider, Subject
from graphagent.store import EncryptedStore, SqliteStore, new_key

SAVES = 3_000
SUBJECT, SCOPE = Subject("ada"), Scope.agent("benchmark")
VALUE = "prefers the terminal, dark, with a large font, and wants to be asked before anything is deleted. "
KINDS = (("FULL", 0.0, "1.25 ×"), ("NORMAL", 1.0, "1.05 ×"))
"""How durable a commit is, how many seconds the anchor may be behind, and the target."""


def report(*, quick: bool) -> str:
    """Measure saves with and without an anchor. Gives a Markdown table."""
    return anyio.run(functools.partial(_report, quick=quick))


async def _report(*, quick: bool) -> str:
    rows: list[list[str]] = []
    for synchronous, every, target in KINDS:
        with tempfile.TemporaryDirectory() as folder:
            without, anchored = await _measured(Path(folder), synchronous, every, 20 if quick else SAVES)
        found = figure(anchored, without)
        when = f"every {every:.0f} s" if every else "with each commit"
        rows.append(
            [f"{synchronous}, anchor {when}", micro(found.bare), micro(found.seconds), times(found.ratio), target]
        )
    return table(["commits", "a saved fact", "with an anchor", "ratio", "target"], rows)


async def _measured(folder: Path, synchronous: str, every: float, count: int) -> tuple[list[float], list[float]]:
    key = new_key()
    stores = [
        EncryptedStore(SqliteStore(folder / "without.db", synchronous=synchronous), key),
        EncryptedStore(
            SqliteStore(folder / "anchored.db", synchronous=synchronous),
            key,
            anchor=folder / "elsewhere.anchor",
            anchor_every=every,
        ),
    ]
    providers = [StoreMemoryProvider(store) for store in stores]
    took: list[list[float]] = [[], []]
    for number in range(count):
        fact = SingleFact(Concept(f"keyword-{number % 50}"), f"{VALUE} {number}")
        for which in random.sample((0, 1), 2):
            began = time.perf_counter()
            await providers[which].save(fact, SUBJECT, SCOPE, owner="ada")
            took[which].append(time.perf_counter() - began)
    for store in stores:
        await store.aclose()
    return took[0], took[1]
