"""`graphagent runs`: what is taken along, and what is removed."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Collection, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson
import typer

from graphagent.cli import _screen
from graphagent.cli._places import age_of
from graphagent.cli._private import private_file
from graphagent.cli._runs_opened import found, states, whose, with_store
from graphagent.errors import StoreError
from graphagent.run import durable, list_runs

if TYPE_CHECKING:
    from graphagent.protocols import Store
    from graphagent.run import Head
    from graphagent.store import Receipt


def export_runs(file: Path | None, key: str | None, owner: str | None, which: list[str], out: Path | None) -> None:
    """Write runs to a file, or to standard output."""

    async def write(store: Store) -> tuple[int, int]:
        ids = [await found(store, owner or "", each) for each in which] or None
        runs = size = 0
        with ExitStack() as stack:
            target = stack.enter_context(private_file(out)) if out is not None else sys.stdout.buffer
            async for record in durable.export_runs(store, owner=(owner or "") if ids else owner, run_ids=ids):
                line = orjson.dumps(record) + b"\n"
                target.write(line)
                runs, size = runs + (record["type"] == "run"), size + len(line)
            target.flush()
        return runs, size

    runs, size = with_store(file, key, write)
    if out is not None:
        _screen.aside(f"{_counted(runs)}, {size:,} bytes, written to {out}, readable for you alone, but not sealed.")


def import_runs(file: Path | None, key: str | None, source: Path) -> None:
    """Take over runs from a file, or from standard input."""
    records = list(_lines(source))
    whole = sum(record.get("type") == "run" for record in records)

    async def add(store: Store) -> int:
        return await durable.import_runs(store, records)

    try:
        added = with_store(file, key, add, new=True)
    except ValueError as error:
        raise StoreError(str(error)) from None
    print(f"{added} of {_counted(whole)} {'was' if added == 1 else 'were'} new.")


def _lines(source: Path) -> Iterator[dict[str, Any]]:
    try:
        text = sys.stdin.buffer.read() if str(source) == "-" else source.read_bytes()
    except OSError as error:
        raise StoreError(f"{str(source)!r} cannot be read: {error.strerror}") from None
    for number, line in enumerate(text.split(b"\n"), start=1):
        if line.strip():
            try:
                record: Any = orjson.loads(line)
            except orjson.JSONDecodeError:
                record = None
            if not isinstance(record, dict):
                raise StoreError(f"{str(source)!r}, line {number}, is no JSON object; nothing was imported")
            yield record


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
        _screen.aside(f"No run{whose(owner)} fits, so nothing was removed.")
        return
    more = sum(len(durable.tree_of(head.run_id, parts)) for head in chosen) - len(chosen)
    if not yes:
        kinds = ", ".join(f"{count} {state}" for state, count in Counter(head.state for head in chosen).most_common())
        with_parts = f" with {_counted(more)} of sub-agents" if more else ""
        typer.confirm(f"Remove {_counted(len(chosen))} ({kinds}){with_parts} for good?", abort=True)

    async def remove(store: Store) -> Receipt:
        if ids is None and not yes:  # what a person agreed to, and not what has come since
            agreed: Collection[str] = [head.run_id for head in chosen]
            there = {head.run_id: head for head in await list_runs(store, owner=owner)}
            agreed = [each for each in agreed if each in there and not there[each].running]
            return await durable.prune_runs(store, owner=owner, run_ids=agreed)
        return await durable.prune_runs(store, owner=owner, run_ids=ids, status=wanted, older_than=age, keep=keep)

    receipt = with_store(file, key, remove)
    kept = len(chosen) + more - receipt.runs
    print(f"Removed: {_counted(receipt.runs)}, {receipt.bytes:,} bytes.")
    if kept > 0:
        _screen.aside(f"{_counted(kept)} stayed: a process executes them, or a fork of theirs.")


def forget_runs(file: Path | None, key: str | None, owner: str, *, yes: bool) -> None:
    """Remove all runs of an owner, once a person has agreed."""
    if not yes:

        async def count(store: Store) -> list[Head]:
            return await list_runs(store, owner=owner)

        heads = with_store(file, key, count)
        running = sum(head.running for head in heads)
        named = f" of owner {owner!r}" if owner else " without an owner"
        executed = f", {running} of which are being executed" if running else ""
        typer.confirm(f"Forget all {_counted(len(heads))}{named}{executed} for good?", abort=True)

    async def remove(store: Store) -> Receipt:
        return await durable.forget_runs(store, owner=owner)

    receipt = with_store(file, key, remove)
    if not receipt.runs and not receipt.bytes:
        _screen.complain(f"there are no runs{whose(owner)}, so nothing was forgotten")
        raise typer.Exit(1)
    print(f"Forgotten: {_counted(receipt.runs)}, {receipt.bytes:,} bytes.")


def _counted(number: int) -> str:
    return f"{number:,} run{'' if number == 1 else 's'}"
