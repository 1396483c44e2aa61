"""`graphagent runs`: what is taken along, and what is removed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from graphagent.cli import _output
from graphagent.cli._jsonl import lines_to, read_lines
from graphagent.cli._options import age_of
from graphagent.cli._phrases import counted, were_new, whose
from graphagent.cli._prompts import confirm
from graphagent.cli.runs._target import found, plain, states, with_store
from graphagent.errors import StoreError
from graphagent.memory._internal import plain as readable
from graphagent.run import durable, list_runs

if TYPE_CHECKING:
    from graphagent.protocols import Store
    from graphagent.run import Head
    from graphagent.run.durable import StoredRun
    from graphagent.store import Receipt


def export_runs(file: Path | None, key: str | None, owner: str | None, which: list[str], out: Path | None) -> None:
    """Write runs to a file, or to standard output."""

    async def write(store: Store) -> None:
        ids = [await found(store, owner or "", each) for each in which] or None
        count = 0
        with lines_to(out) as lines:
            async for record in durable.export_runs(store, owner=(owner or "") if ids else owner, run_ids=ids):
                await lines.put(record)
                count += record["type"] == "run"
        lines.tell(counted(count, "run"))

    with_store(file, key, write)


def export_plain(file: Path | None, key: str | None, owner: str | None, which: list[str], out: Path | None) -> None:
    """Write runs for people and their programs to a file, or to standard output: a line for each, with values as people write them."""

    async def write(store: Store) -> None:
        ids = [await found(store, owner or "", each) for each in which]
        count = 0
        with lines_to(out) as lines:
            for whose in [owner or ""] if ids or owner is not None else await durable.run_owners(store):
                for run_id in ids or [head.run_id for head in reversed(await list_runs(store, owner=whose))]:
                    await lines.put(_as_written(await durable.read_run(store, run_id, owner=whose)))
                    count += 1
        lines.tell(counted(count, "run"))

    with_store(file, key, write)


def _as_written(stored: StoredRun) -> dict[str, object]:
    """Return a run as plain JSON data, which cannot be imported again."""
    entries = [
        {
            "number": each.number, "kind": each.kind, "node": each.where, "next": each.next, "key": each.key, "at": each.at,
            "value": readable(each.value), "answers": readable(each.answers),
        }
        for each in stored.entries
    ]  # fmt: skip
    failure = asdict(stored.failure) if stored.failure is not None else None
    return {**plain(stored.head), "failure": failure, "steps": stored.memory.succinct_steps(), "entries": entries}


def import_runs(file: Path | None, key: str | None, source: Path) -> None:
    """Take over runs from a file, or from standard input."""
    records = read_lines(source)
    whole = sum(record.get("type") == "run" for record in records)

    async def add(store: Store) -> int:
        return await durable.import_runs(store, records)

    try:
        added = with_store(file, key, add, new=True)
    except ValueError as error:
        raise StoreError(str(error)) from None
    print(were_new(added, whole, "run"))


def prune_runs(
    file: Path | None, key: str | None, owner: str, which: list[str], older_than: str | None, status: list[str] | None,
    keep: int, *, yes: bool,
) -> None:  # fmt: skip
    """Remove runs, once a person has agreed."""
    wanted, age = states(status), age_of(older_than)
    if not which and wanted is None and age is None and not keep:
        raise typer.BadParameter("say which runs: name them, or give --older-than, --status or --keep")

    async def choose(store: Store) -> tuple[list[str] | None, list[Head], dict[str, list[Head]]]:
        ids = [await found(store, owner, each) for each in which] or None
        heads = await list_runs(store, owner=owner)
        chosen = durable.choose_runs(heads, run_ids=ids, status=wanted, older_than=age, keep=keep)
        return ids, chosen, durable.family(heads)

    try:
        ids, chosen, parts = with_store(file, key, choose)
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    if not chosen:
        _output.aside(f"No run{whose(owner)} fits, so nothing was removed.")
        return
    more = sum(len(durable.tree_of(head.run_id, parts)) for head in chosen) - len(chosen)
    if not yes:
        kinds = ", ".join(f"{count} {state}" for state, count in Counter(head.state for head in chosen).most_common())
        with_parts = f" with {counted(more, 'run')} of sub-agents" if more else ""
        confirm(f"Remove {counted(len(chosen), 'run')} ({kinds}){with_parts} for good?")

    async def remove(store: Store) -> Receipt:
        if ids is None and not yes:  # what a person agreed to, and not what has come since
            agreed: Collection[str] = [head.run_id for head in chosen]
            there = {head.run_id: head for head in await list_runs(store, owner=owner)}
            agreed = [each for each in agreed if each in there and not there[each].running]
            return await durable.prune_runs(store, owner=owner, run_ids=agreed)
        return await durable.prune_runs(store, owner=owner, run_ids=ids, status=wanted, older_than=age, keep=keep)

    receipt = with_store(file, key, remove)
    kept = len(chosen) + more - receipt.runs
    print(f"Removed: {counted(receipt.runs, 'run')}, {receipt.bytes:,} bytes.")
    if kept > 0:
        _output.aside(f"{counted(kept, 'run')} stayed: a process executes them, or a fork of theirs.")


def forget_runs(file: Path | None, key: str | None, owner: str, *, yes: bool) -> None:
    """Remove all runs of an owner, once a person has agreed."""
    if not yes:

        async def count(store: Store) -> list[Head]:
            return await list_runs(store, owner=owner)

        heads = with_store(file, key, count)
        running = sum(head.running for head in heads)
        named = f" of owner {owner!r}" if owner else " without an owner"
        executed = f", {running} of which are being executed" if running else ""
        confirm(f"Forget all {counted(len(heads), 'run')}{named}{executed} for good?")

    async def remove(store: Store) -> Receipt:
        return await durable.forget_runs(store, owner=owner)

    receipt = with_store(file, key, remove)
    if not receipt.runs and not receipt.bytes:
        _output.fail(f"there are no runs{whose(owner)}, so nothing was forgotten")
    print(f"Forgotten: {counted(receipt.runs, 'run')}, {receipt.bytes:,} bytes.")
