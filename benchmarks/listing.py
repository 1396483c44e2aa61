"""What it costs to list the runs of an owner and to forget one: a sealed store beside a plain one, in CPU time.

In a sealed store the header of each run lies in a row with a key of its own. The files are made where TMPDIR says.
"""

from __future__ import annotations

import functools
import os
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING

import anyio

from benchmarks.measure import figure, milli, table, times
from graphagent.history import forget_runs
from graphagent.log._header import RunHeader, header_key, rows_key
from graphagent.run import list_runs
from graphagent.store import EncryptedStore, Put, SqliteStore, new_key
from graphagent.store._items import checked

if TYPE_CHECKING:
    from graphagent.protocols import Store

RUNS = 20_000
AT_ONCE = 500
OWNER = "ada"
BEGAN = 1_700_000_000_000


def report(*, quick: bool) -> str:
    """Measure one store of each kind with the same runs. Gives a Markdown table."""
    return anyio.run(functools.partial(_report, quick=quick))


async def _report(*, quick: bool) -> str:
    count, rounds = (20, 2) if quick else (RUNS, 7)
    with tempfile.TemporaryDirectory() as folder:
        plain, sealed = SqliteStore(Path(folder, "plain.db")), SqliteStore(Path(folder, "sealed.db"))
        async with plain, EncryptedStore(sealed, new_key()) as encrypted:
            for store in (plain, encrypted):
                await fill(store, count)
            rows: list[list[str]] = []
            for name, work in (
                ("list all runs", _listed),
                ("list the 20 that wait", _waiting),
                ("forget one", _forget),
            ):
                took: dict[bool, list[float]] = {False: [], True: []}
                for number in range(rounds):
                    for store in (plain, encrypted):
                        took[store is encrypted].append(await _timed(work, store, number))
                found = figure(took[True], took[False])
                rows.append([name, milli(found.bare), milli(found.seconds), milli(found.p90), times(found.ratio)])
    return table([f"{count:,} runs", "plain", "sealed: median", "p90", "ratio"], rows)


async def fill(store: Store, count: int) -> None:
    """Store so many runs that are over, one of a thousand of which waits."""
    for start in range(0, count, AT_ONCE):
        changes: list[Put] = []
        for number in range(start, min(start + AT_ONCE, count)):
            head = RunHeader(
                run_id=f"run-{number:06d}", owner=OWNER, strategy="chat", started=BEGAN + number, updated=BEGAN + number,
                last=3, written="done" if number % 1000 else "waiting", title=f"The task with the number {number}", turns=1, tokens=100,
            )  # fmt: skip
            row = checked(os.urandom(1_200))
            changes += [Put(header_key(OWNER, head.run_id), head.pack()), Put((*rows_key(head), 1), row)]
        await store.commit(*changes)


async def _listed(store: Store, number: int) -> None:
    await list_runs(store, owner=OWNER)


async def _waiting(store: Store, number: int) -> None:
    await list_runs(store, owner=OWNER, status=["waiting"], limit=20)


async def _forget(store: Store, number: int) -> None:
    await forget_runs(store, owner=OWNER, run_ids=[f"run-{number + 1:06d}"])


async def _timed(work: Callable[[Store, int], Awaitable[None]], store: Store, number: int) -> float:
    began = time.process_time()
    await work(store, number)
    return time.process_time() - began
