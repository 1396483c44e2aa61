"""`graphagent runs`: the commands for whole stores: export, import, prune, forget."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from graphagent._article import counted
from graphagent.cli import _output
from graphagent.cli._jsonl import lines_to, read_lines
from graphagent.cli._options import AnyOwner, Out, Yes, age_of, argument, flag, option, value_of
from graphagent.cli._phrases import were_new, whose
from graphagent.cli._prompts import confirm
from graphagent.cli.runs._completion import run_ids, thread_names
from graphagent.cli.runs._target import InStates, InThread, RunsStore, RunsTarget, plain, run_named, states, with_parts
from graphagent.errors import StoreError

if TYPE_CHECKING:
    from graphagent.history import StoredRun
    from graphagent.protocols import Store
    from graphagent.run import RunHeader
    from graphagent.store import Receipt


async def _named(store: Store, *, owner: str, which: list[str] | None) -> list[str] | None:
    """Return the ids of the named runs, or None if none is named."""
    return [await run_named(store, owner, each) for each in which or ()] or None


def export(
    *,
    which: Annotated[
        list[str] | None,
        argument("RUN…", "Ids of runs, or their beginnings. Default: all runs.", autocompletion=run_ids),
    ] = None,
    target: RunsStore,
    owner: AnyOwner = None,
    out: Out = None,
    readable: Annotated[
        bool, flag("--plain", text="One line for each run, with values as people write them. Cannot be imported.")
    ] = False,
    redact: Annotated[
        bool,
        flag("--redact", text="Write the lengths of texts and values instead of these. Can be imported and looked at."),
    ] = False,
) -> None:
    """Write runs as JSON lines, without loss and not encrypted: every row and every payload."""
    from graphagent.history import export_runs, read_run, redact_runs, run_owners
    from graphagent.run import list_runs

    if readable and redact:
        raise typer.BadParameter("--plain and --redact exclude each other; leave one of them out")

    async def write(store: Store) -> None:
        ids = await _named(store, owner=owner or "", which=which)
        count = 0
        with lines_to(out) as lines:
            if readable:
                for each in [owner or ""] if ids or owner is not None else await run_owners(store):
                    for run_id in ids or [head.run_id for head in reversed(await list_runs(store, owner=each))]:
                        await lines.put(_readable(await read_run(store, run_id, owner=each)))
                        count += 1
            else:
                exported = export_runs(store, owner=(owner or "") if ids else owner, run_ids=ids)
                if redact:
                    for record in redact_runs([each async for each in exported]):
                        await lines.put(record)
                        count += record["type"] == "run"
                async for record in exported:
                    await lines.put(record)
                    count += record["type"] == "run"
        lines.report(counted(count, "run"))

    target.use(write)


def _readable(stored: StoredRun) -> dict[str, object]:
    """Return a run as JSON data for people, which cannot be imported."""
    from graphagent.memory.steps._dump import plain as readable

    entries = [
        {
            "number": each.number,
            "kind": each.kind,
            "node": each.where,
            "next": each.next,
            "key": each.key,
            "at": each.at,
            "value": readable(each.value),
            "error": each.error,
        }
        for each in stored.entries
    ]
    failure = asdict(stored.failure) if stored.failure is not None else None
    return {**plain(stored.head), "failure": failure, "steps": stored.memory.succinct_steps(), "entries": entries}


def import_(
    file: Annotated[Path, argument("FILE", "A file written by `runs export`; - is standard input.")],
    target: RunsStore,
) -> None:
    """Read runs from a file written by `runs export`. Existing runs are skipped."""
    from graphagent.history import import_runs

    records = read_lines(file)
    try:
        added = target.use(lambda store: import_runs(store, records), new=True)
    except ValueError as error:
        raise StoreError(str(error)) from None
    print(were_new(added, sum(record.get("type") == "run" for record in records), "run"))


def prune(
    *,
    which: Annotated[
        list[str] | None, argument("RUN…", "Only these: ids of runs, or their beginnings.", autocompletion=run_ids)
    ] = None,
    target: RunsTarget,
    older_than: Annotated[
        str | None, option("--older-than", "TIME", "Only runs that have not changed for so long: 30d, 12h, 90m.")
    ] = None,
    status: InStates = None,
    thread: InThread = None,
    keep: Annotated[int, option("--keep", "N", "Keep at least this many, the newest.", min=0)] = 0,
    yes: Yes = False,
) -> None:
    """Remove runs permanently, with those of their sub-agents. Runs that a process is executing stay."""
    from graphagent.history import choose_runs, prune_runs
    from graphagent.history._runs import family
    from graphagent.run import list_runs

    owner, wanted, age = target.owner, states(status), age_of(older_than)
    if not which and wanted is None and age is None and thread is None and not keep:
        raise typer.BadParameter("select the runs: name them, or pass --older-than, --status, --thread or --keep")

    async def choose(store: Store) -> tuple[list[str] | None, list[RunHeader], int]:
        ids = await _named(store, owner=owner, which=which)
        heads = await list_runs(store, owner=owner)
        chosen = choose_runs(heads, run_ids=ids, thread=thread, status=wanted, older_than=age, keep=keep)
        parts = family(heads)
        return ids, chosen, sum(1 for head in chosen for _, depth in with_parts(head, parts) if depth)

    with value_of():
        ids, chosen, sub_agents = target.use(choose)
    if not chosen:
        _output.aside(f"No run{whose(owner)} fits, so nothing was removed.")
        return
    if not yes:
        kinds = ", ".join(f"{count} {state}" for state, count in Counter(head.status for head in chosen).most_common())
        beside = f" with {counted(sub_agents, 'run')} of sub-agents" if sub_agents else ""
        confirm(f"Remove {counted(len(chosen), 'run')} ({kinds}){beside} for good?")

    async def remove(store: Store) -> Receipt:
        if ids is None and not yes:  # only the runs that the person agreed to, not those added since
            there = {head.run_id: head for head in await list_runs(store, owner=owner)}
            agreed = [head.run_id for head in chosen if head.run_id in there and not there[head.run_id].running]
            return await prune_runs(store, owner=owner, run_ids=agreed)
        return await prune_runs(
            store, owner=owner, run_ids=ids, thread=thread, status=wanted, older_than=age, keep=keep
        )

    receipt = target.use(remove)
    print(f"Removed: {counted(receipt.runs, 'run')}, {counted(receipt.bytes, 'byte')}.")
    if (stayed := len(chosen) + sub_agents - receipt.runs) > 0:
        _output.aside(f"{counted(stayed, 'run')} stayed: a process executes them, or the run that continues them.")


def clear_cache(
    target: RunsTarget,
    expired: Annotated[bool, flag("--expired", text="Only expired values.")] = False,
) -> None:
    """Remove the values that nodes, tools and models cached for an owner; they are computed again when needed."""
    from graphagent.history import clear_cache

    count = target.use(lambda store: clear_cache(store, owner=target.owner, expired=expired))
    print(f"Removed: {counted(count, 'cached value')}.")


def forget(
    *,
    which: Annotated[
        list[str] | None, argument("RUN…", "Only these: ids of runs, or their beginnings.", autocompletion=run_ids)
    ] = None,
    target: RunsTarget,
    thread: Annotated[
        str | None, option("--thread", "NAME", "Only this thread, with all its runs.", autocompletion=thread_names)
    ] = None,
    yes: Yes = False,
) -> None:
    """Remove all runs of an owner permanently, including those that are being executed; or a thread, or runs that are not.

    A run that continues a forgotten one shows [forgotten] in its place.
    """
    from graphagent.history import forget_runs, forget_thread
    from graphagent.run import list_runs

    owner = target.owner
    if which and thread is not None:
        raise typer.BadParameter("name runs, or give --thread")
    ids = target.use(partial(_named, owner=owner, which=which)) if which else None
    if not yes and ids is not None:
        confirm(f"Forget {counted(len(ids), 'run')}: {', '.join(ids)}?")
    elif not yes:
        heads = target.use(lambda store: list_runs(store, owner=owner, thread=thread))
        running = sum(head.running for head in heads)
        named = (f" of thread {thread!r}" if thread is not None else "") + (whose(owner) or " without an owner")
        executed = f", {running} of which are being executed" if running else ""
        confirm(f"Forget all {counted(len(heads), 'run')}{named}{executed} for good?")
    if thread is None:
        receipt = target.use(lambda store: forget_runs(store, owner=owner, run_ids=ids))
    else:
        receipt = target.use(lambda store: forget_thread(store, thread, owner=owner))
    if not receipt.runs and not receipt.bytes:
        missing = "runs" if thread is None else f"runs of a thread {thread!r}"
        _output.fail(f"there are no {missing}{whose(owner)}, so nothing was forgotten")
    print(f"Forgotten: {counted(receipt.runs, 'run')}, {counted(receipt.bytes, 'byte')}.")
