"""The runs of a store, without their entries: listed, measured, chosen."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING

from graphagent import _clock
from graphagent._article import kind_of
from graphagent._options import check_store
from graphagent.errors import DamagedStoreError, RunNotFoundError
from graphagent.log._header import (
    HEADERS,
    ROOM,
    ROWS,
    THREADS,
    RunHeader,
    check_statuses,
    child_of,
    header_key,
    rows_key,
)
from graphagent.log._segments import list_runs, read_header, read_part
from graphagent.log._submitted import all_submitted, submitted_key
from graphagent.run._threads import run_of
from graphagent.store._bulk import collect
from graphagent.store._sizes import sizes

if TYPE_CHECKING:
    from graphagent.protocols import Store
    from graphagent.store import Key


@dataclass(frozen=True, slots=True)
class RunSize:
    """How much of a store a run takes, with its sub-agents."""

    entries: int
    """Commits."""
    payloads: int
    """Large values, which are stored apart."""
    bytes: int
    """All of it, as it is stored; not how much larger the files are."""


@dataclass(frozen=True, slots=True)
class Thread:
    """A conversation of an owner: runs of which each continues the transcript of the one before."""

    name: str
    """As in `agent.run(…, thread=name)`."""
    runs: int
    """How many runs it has; those that failed or were cancelled are counted too."""
    last: RunHeader
    """The run that was begun last."""
    started: int
    """When its first run was started, in milliseconds UTC; one that was removed does not count."""
    updated: int
    """When something was written last, in milliseconds UTC."""
    title: str = field(repr=False)
    """The beginning of the task of its first run that is left."""


async def list_threads(store: Store, *, owner: str = "") -> list[Thread]:
    """Return the threads of an owner, the one that was continued last first. All headers of the owner are read for that.

    Raises:
        DamagedStoreError: the row of a thread that has runs is missing.
        StoreError: the store cannot be read.
    """
    ends = await thread_ends(store, owner)
    found: list[Thread] = []
    for name, runs in threads_of(await list_runs(store, owner=owner)).items():
        if name not in ends:
            raise DamagedStoreError(f"thread {name!r}", "the row that names its last run is missing")
        last = next((run for run in runs if run.run_id == ends[name][0]), runs[-1])
        updated = max(run.updated for run in runs)
        found.append(Thread(name, len(runs), last, min(run.started for run in runs), updated, runs[0].title))
    return sorted(found, key=lambda thread: thread.updated, reverse=True)


def threads_of(heads: Iterable[RunHeader]) -> dict[str, list[RunHeader]]:
    """Return the runs of each thread in their order, which does not depend on the clocks of those who executed them.

    Those that were submitted and have not begun are not among them.
    """
    found: dict[str, list[RunHeader]] = {}
    for head in sorted(heads, key=place_in_thread):
        if head.thread and head.begun:
            found.setdefault(head.thread, []).append(head)
    return found


def place_in_thread(head: RunHeader) -> tuple[int, int]:
    """Return what runs of a thread are sorted by."""
    return head.place, head.started


async def thread_ends(store: Store, owner: str) -> dict[str, tuple[str, int]]:
    """Return the id of the last run of each thread, and the version of the item that names it."""
    check_store(store)
    found: dict[str, tuple[str, int]] = {}
    async for item in store.scan((ROOM, owner, THREADS)):
        if len(item.key) == 4:
            name = str(item.key[3])
            found[name] = run_of(item.value, name), item.version
    return found


async def run_head(store: Store, run_id: str, *, owner: str = "") -> RunHeader:
    """Return the header of a run, or of that of a sub-agent.

    Raises:
        RunNotFoundError: the run does not exist.
        StoreError: the store cannot be read.
    """
    part = await read_part(store, owner, run_id)
    if part is None:
        return (await read_header(store, owner, run_id))[0]
    child, root = part
    return child_of(child, (await read_header(store, owner, root))[0])


async def run_owners(store: Store) -> list[str]:
    """Return the owners that have runs, for which two items of each owner are read.

    Raises:
        StoreError: the store cannot be read.
    """
    check_store(store)
    found, last = set[str](), None
    while items := await collect(store.scan((ROOM,), after=last, limit=1)):
        owner = str(items[0].key[1])
        found.add(owner)
        ends = await collect(store.scan((ROOM, owner), reverse=True, limit=1))
        last = ends[0].key if ends else items[0].key  # they may have been removed meanwhile
    return sorted(found)


async def measure_runs(store: Store, *, owner: str = "", run_id: str | None = None) -> dict[str, RunSize]:
    """Return the size of each run of an owner, or of one run, by id. In a sealed store, this reads all of their entries.

    Raises:
        DamagedStoreError: the header of that run is not what was written.
        StoreError: the store cannot be read.
    """
    check_store(store)
    prefixes: list[Key] = [(ROOM, owner, HEADERS), (ROOM, owner, ROWS), all_submitted(owner)]
    if run_id is not None:
        item, rest = await store.get(header_key(owner, run_id)), submitted_key(owner, run_id)
        prefixes = [] if item is None else [item.key, rows_key(RunHeader.unpack(item.value, run_id)), rest]
    found: dict[str, RunSize] = {}
    for prefix in prefixes:
        async for key, size in sizes(store, prefix):
            is_row, depth = key[2] == ROWS, len(key)
            which = str(key[4 if is_row else 3])
            before = found.get(which, RunSize(0, 0, 0))
            found[which] = RunSize(
                before.entries + (is_row and depth == 6), before.payloads + (is_row and depth == 7), before.bytes + size
            )
    return found


def family(heads: Iterable[RunHeader]) -> dict[str, list[RunHeader]]:
    """Return the runs that are parts of each run, by its id and the oldest first; by the empty id those that are not parts."""
    known = {head.run_id: head for head in heads}
    found: dict[str, list[RunHeader]] = {}
    for head in sorted(known.values(), key=lambda head: (head.started, head.last if head.parent else 0)):
        found.setdefault(head.parent if head.parent in known else "", []).append(head)
    return found


def choose_runs(
    heads: Iterable[RunHeader],
    *,
    run_ids: Collection[str] | None = None,
    thread: str | None = None,
    status: Collection[str] | None = None,
    older_than: timedelta | None = None,
    keep: int = 0,
) -> list[RunHeader]:
    """Return the runs that `prune_runs` removes for these arguments, the newest first, without their parts."""
    heads = list(heads)
    known = {head.run_id: head for head in heads}
    for run_id in run_ids or ():
        if run_id not in known:
            raise RunNotFoundError(run_id, heads[0].owner if heads else "")
        if known[run_id].parent:
            raise ValueError(f"run {run_id!r} is a part of run {known[run_id].parent!r}, and goes with it")
        known[run_id].check_free()
    if older_than is not None and not isinstance(older_than, timedelta):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"older_than= is an age, such as timedelta(days=30), not {kind_of(older_than)}")
    check_statuses(status)
    since = None if older_than is None else _clock.now() - older_than / timedelta(milliseconds=1)
    named = None if run_ids is None else set(run_ids)
    whole = sorted((head for head in heads if not head.parent), key=lambda head: head.started, reverse=True)
    if thread is not None:
        whole = sorted((head for head in whole if head.thread == thread), key=place_in_thread, reverse=True)
    return [
        head
        for head in whole[keep:]
        if (named is None or head.run_id in named)
        and (since is None or head.updated <= since)
        and (status is None or head.status in status)
        and not head.running
        # What has not begun is not old, whenever it was submitted.
        and (head.begun or head.run_id in (named or ()) or "queued" in (status or ()))
    ]
