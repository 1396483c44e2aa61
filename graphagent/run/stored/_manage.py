"""The runs of a store: listed, measured, pruned, forgotten."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from operator import attrgetter
from typing import TYPE_CHECKING, Literal

from graphagent import _clock
from graphagent.errors import ConflictError, DamagedStoreError, RunClaimedError, RunNotFoundError, StoreError
from graphagent.run.engine._cache import KIND
from graphagent.run.journal._header import RunHeader
from graphagent.run.journal._keys import (
    ENTRIES,
    FORKS,
    HEADS,
    ROOM,
    THREADS,
    check,
    entries_key,
    forks_key,
    head_key,
    run_of,
    thread_key,
    thread_record,
)
from graphagent.run.journal._payloads import payloads_of
from graphagent.store import Delete, DeleteAll, Put, Receipt
from graphagent.store._internal import Cache

if TYPE_CHECKING:
    from graphagent.protocols import Store
    from graphagent.run.state._status import Status
    from graphagent.store import Change

_TOGETHER = 2000
"""Runs that are removed in one commit."""
_ATTEMPTS = 20
_STARTED = attrgetter("started")


@dataclass(frozen=True, slots=True)
class RunSize:
    """How much of a store a run takes."""

    entries: int
    """Entries of its own: those that a fork shares with its origin are the origin's."""
    payloads: int
    """Large values that stand apart."""
    bytes: int
    """All of it, as it is kept; not how much larger the files are."""


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
        StoreError: the store cannot be read.
    """
    ends = {name: last for name, (last, _) in (await _ends(store, owner)).items()}
    found: list[Thread] = []
    for name, runs in threads_of(await list_runs(store, owner=owner)).items():
        last = next((run for run in runs if run.run_id == ends.get(name)), runs[-1])
        updated = max(run.updated for run in runs)
        found.append(Thread(name, len(runs), last, min(run.started for run in runs), updated, runs[0].title))
    return sorted(found, key=lambda thread: thread.updated, reverse=True)


def threads_of(heads: Iterable[RunHeader]) -> dict[str, list[RunHeader]]:
    """Return the runs of each thread in their order, which does not depend on the clocks of those who executed them."""
    found: dict[str, list[RunHeader]] = {}
    for head in sorted(heads, key=_place_in_thread):
        if head.thread:
            found.setdefault(head.thread, []).append(head)
    return found


def _place_in_thread(head: RunHeader) -> tuple[int, int]:
    return head.first, head.started


def line_of(run_id: str, heads: Mapping[str, RunHeader]) -> list[RunHeader]:
    """Return a run and those whose transcript it continues, the last first, as far as they are left."""
    found: list[RunHeader] = []
    head = heads.get(run_id)
    while head is not None:
        found.append(head)
        head = heads.get(head.origin[0]) if head.origin is not None and not head.forked else None
    return found


async def _ends(store: Store, owner: str) -> dict[str, tuple[str, int]]:
    """Return the id of the last run of each thread, and the version of the item that names it."""
    scan = store.scan((ROOM, owner, THREADS))
    return {str(item.key[-1]): (run_of(item.value, str(item.key[-1])), item.version) async for item in scan}


async def restore_threads(store: Store, owner: str, imported: Collection[str]) -> None:
    """Have the threads of imported runs continue after the last of them, unless they continue elsewhere already.

    Raises:
        StoreError: the store cannot be read or written.
    """
    heads = {head.run_id: head for head in await list_runs(store, owner=owner)}
    ends = await _ends(store, owner)
    for thread, runs in threads_of(head for head in heads.values() if head.run_id in imported).items():
        end, version = ends.get(thread, ("", 0))
        last = runs[-1]
        if not version or any(head.run_id == end for head in line_of(last.run_id, heads)):
            with suppress(ConflictError):  # someone continues it already
                record = thread_record(last.run_id)
                await store.commit(Put(thread_key(owner, thread), record, expected=version))


async def list_runs(store: Store, *, owner: str = "", thread: str | None = None) -> list[RunHeader]:
    """Return the headers of an owner's runs, or of those of one thread, the newest first. Damaged ones are the last.

    Raises:
        StoreError: the store cannot be read.
    """
    unpack = RunHeader.unpack
    found: list[RunHeader] = []
    async for item in store.scan((ROOM, owner, HEADS)):
        try:
            found.append(unpack(item.value, item.key[-1]))
        except DamagedStoreError as error:
            found.append(RunHeader(str(item.key[-1]), owner, "", "", 0, 0, damaged=str(error)))
    found.sort(key=_STARTED, reverse=True)
    return found if thread is None else [head for head in found if head.thread == thread]


async def run_owners(store: Store) -> list[str]:
    """Return the owners that have runs. All runs are read for that.

    Raises:
        StoreError: the store cannot be read.
    """
    return sorted({str(item.key[1]) async for item in store.scan((ROOM,))})


async def measure_runs(store: Store, *, owner: str = "", run_id: str | None = None) -> dict[str, RunSize]:
    """Return the size of each run of an owner, or of one of them, by its id. All of their entries are read for that.

    Raises:
        StoreError: the store cannot be read.
    """
    found: dict[str, RunSize] = {}
    for part in (HEADS, ENTRIES):
        async for item in store.scan((ROOM, owner, part) if run_id is None else (ROOM, owner, part, run_id)):
            which, name = str(item.key[3]), item.key[-1] if part == ENTRIES else None
            size = found.get(which, RunSize(0, 0, 0))
            found[which] = RunSize(
                size.entries + isinstance(name, int),
                size.payloads + isinstance(name, str),
                size.bytes + len(item.value),
            )
    return found


def family(heads: Iterable[RunHeader]) -> dict[str, list[RunHeader]]:
    """Return the runs that are parts of each run, by its id and the oldest first; by the empty id those that are no part."""
    known = {head.run_id: head for head in heads}
    found: dict[str, list[RunHeader]] = {}
    for head in sorted(known.values(), key=lambda head: head.started):
        found.setdefault(head.parent if head.parent in known else "", []).append(head)
    return found


def tree_of(run_id: str, parts: Mapping[str, list[RunHeader]]) -> list[str]:
    """Return the ids of a run and of all its parts, with `parts` as `family` returns them."""
    found = [run_id]
    for each in found:
        found += [head.run_id for head in parts.get(each, ()) if head.run_id not in found]
    return found


def choose_runs(
    heads: Iterable[RunHeader],
    *,
    run_ids: Collection[str] | None = None,
    thread: str | None = None,
    status: Collection[Status | Literal["interrupted"]] | None = None,
    older_than: timedelta | None = None,
    keep: int = 0,
) -> list[RunHeader]:
    """Return the runs that `prune_runs` removes for these arguments, the newest first, without their parts."""
    heads = list(heads)
    parts = family(heads)
    known = {head.run_id: head for head in heads}
    for run_id in run_ids or ():
        if run_id not in known:
            raise RunNotFoundError(run_id, heads[0].owner if heads else "")
        if known[run_id].parent in known:
            raise ValueError(f"run {run_id!r} is a part of run {known[run_id].parent!r}, and goes with it")
        for each in tree_of(run_id, parts):
            claim = known[each].claim
            if claim is not None and known[each].running:
                raise RunClaimedError(each, claim.holder)
    since = None if older_than is None else _clock.now() - older_than / timedelta(milliseconds=1)
    whole = sorted(parts.get("", ()), key=lambda head: head.started, reverse=True)
    if thread is not None:
        whole = sorted((head for head in whole if head.thread == thread), key=_place_in_thread, reverse=True)
    return [
        head
        for head in whole[keep:]
        if (run_ids is None or head.run_id in run_ids)
        and (since is None or head.updated <= since)
        and (status is None or head.state in status)
        and not any(known[each].running for each in tree_of(head.run_id, parts))
    ]


async def prune_runs(
    store: Store,
    *,
    owner: str = "",
    run_ids: Collection[str] | None = None,
    thread: str | None = None,
    status: Collection[Status | Literal["interrupted"]] | None = None,
    older_than: timedelta | None = None,
    keep: int = 0,
) -> Receipt:
    """Remove runs of an owner, with the runs of sub-agents that are parts of them.

    Values of cached nodes and tools that have expired are erased as well. What is chosen fits all that is given. A run that a process executes stays, and so does one that has a fork which a process
    executes. Another fork keeps what it shared with its origin, and so does the next run of a thread: it keeps the transcript.

    Args:
        store: Where they are kept.
        owner: Whose.
        run_ids: Which.
        thread: The thread to which they belong.
        status: Where they are: `done`, `failed`, `cancelled`, `paused`, `waiting`, `interrupted`.
        older_than: For how long nothing happened in them.
        keep: So many of the owner's runs, or of those of the thread, stay in any case, the newest.

    Raises:
        ValueError: nothing says which, or a run is named that is a part of another one.
        RunNotFoundError: there is no run of an id.
        RunClaimedError: a process executes a run that is named.
        StoreError: the store cannot be read or written.
    """
    if keep < 0:
        raise ValueError(f"keep={keep} is no number of runs; give 0 or more")
    if run_ids is None and thread is None and status is None and older_than is None and not keep:
        raise ValueError(
            "say which runs: by run_ids=, thread=, status=, older_than= or keep=; older_than=timedelta(0) means all"
        )
    known = await _known(store, owner)
    parts = family(known.heads.values())
    chosen = choose_runs(
        known.heads.values(), run_ids=run_ids, thread=thread, status=status, older_than=older_than, keep=keep
    )
    # Forks first, since less is to be copied then: what a run has of its origin ends before what a fork of it has.
    chosen.sort(key=lambda head: 0 if head.origin is None else head.origin[1], reverse=True)
    gone, size = 0, 0
    while chosen:
        batch: list[str] = []
        count = 0
        while chosen and count < _TOGETHER:
            batch.append(chosen.pop(0).run_id)
            count += len(tree_of(batch[-1], parts))
        runs, less = await _remove(store, owner, batch, known)
        gone, size = gone + runs, size + less
        if chosen:
            known = await _known(store, owner)
    await Cache(store, KIND, owner, None).erase_expired()
    return Receipt(runs=gone, bytes=size)


async def clear_cache(store: Store, *, owner: str = "", expired: bool = False) -> int:
    """Erase what `.cached(…)` nodes and tools have kept for an owner, and return how many values that were.

    Args:
        store: The store of the runs.
        owner: Whose values.
        expired: Whether only those are erased that have expired.

    Raises:
        StoreError: the store cannot be read or written.
    """
    cache = Cache(store, KIND, owner, None)
    if expired:
        return await cache.erase_expired()
    count = 0
    with suppress(DamagedStoreError):  # what cannot be read can be erased
        async for _ in store.scan(cache.prefix):
            count += 1
    await cache.erase()
    return count


async def forget_thread(store: Store, thread: str, *, owner: str = "") -> Receipt:
    """Remove a thread with all its runs, and the runs of sub-agents that are parts of them, in one commit.

    Forks and reruns of its runs are not in the thread, nor are runs that began with `steps=` of one: they keep what was said.

    Raises:
        RunClaimedError: a process executes one of its runs, or a fork of one.
        TypeError: the thread is no name.
        StoreError: the store cannot be read or written.
    """
    if not isinstance(thread, str) or not thread:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"a thread is named by a text, such as 'alice-7', not by {thread!r}")
    for _ in range(_ATTEMPTS):
        known = await _known(store, owner)
        roots = [head.run_id for head in known.heads.values() if head.thread == thread]
        parts = family(known.heads.values())
        trees = {run_id for root in roots for run_id in tree_of(root, parts)}
        gone = _removable(roots, known.heads)
        for head in known.heads.values():
            claim = head.claim
            is_fork = head.origin is not None and head.origin[0] in trees - gone
            if claim is not None and head.running and (head.run_id in trees or is_fork):
                raise RunClaimedError(head.run_id, claim.holder)
        changes, size = await _removal(store, owner, gone, known)
        if not changes:
            return Receipt(runs=0, bytes=0)
        try:
            await store.commit(*changes)
        except ConflictError:
            continue  # someone continued it meanwhile, or resumed one of its runs
        return Receipt(runs=len(gone), bytes=size)
    raise StoreError("the thread changes faster than it can be removed; try again")


async def forget_runs(store: Store, *, owner: str = "") -> Receipt:
    """Remove all runs of an owner from the disk; in a sealed store, with their keys. One that is executed breaks off.

    The values of cached nodes and tools that were kept for the owner are removed with them.

    Raises:
        StoreError: the store cannot be written.
    """
    size, run_ids, cached = 0, set[str](), Cache(store, KIND, owner, None).prefix
    try:
        async for item in store.scan((ROOM, owner)):
            size += len(item.value)
            if item.key[2] == HEADS:
                run_ids.add(str(item.key[3]))
        async for item in store.scan(cached):
            size += len(item.value)
    except DamagedStoreError:
        pass  # what cannot be read can be forgotten; the receipt says what was counted
    await store.commit(DeleteAll((ROOM, owner)), DeleteAll(cached))
    return Receipt(runs=len(run_ids), bytes=size)


@dataclass(frozen=True, slots=True)
class _Known:
    """The runs of an owner at one moment."""

    heads: dict[str, RunHeader]
    versions: dict[str, int]
    """Of their heads."""
    forked: dict[str, int]
    """Of what is put with each fork."""
    threads: dict[str, tuple[str, int]]
    """The last run of each thread, and the version of the item that names it."""


async def _known(store: Store, owner: str) -> _Known:
    # In this order: of a fork that comes between the two the head is seen, or its origin cannot be removed with this version.
    forked = {str(item.key[-1]): item.version async for item in store.scan((ROOM, owner, FORKS))}
    threads = await _ends(store, owner)
    heads: dict[str, RunHeader] = {}
    versions: dict[str, int] = {}
    async for item in store.scan((ROOM, owner, HEADS)):
        head = RunHeader.unpack(item.value, item.key[-1])
        heads[head.run_id], versions[head.run_id] = head, item.version
    return _Known(heads, versions, forked, threads)


async def _remove(store: Store, owner: str, roots: list[str], known: _Known) -> tuple[int, int]:
    """Remove runs with their parts in one commit, but for those that cannot go; give how many, and how many bytes."""
    for _ in range(_ATTEMPTS):
        gone = _removable(roots, known.heads)
        changes, size = await _removal(store, owner, gone, known)
        try:
            await store.commit(*changes)
        except ConflictError:
            known = await _known(store, owner)  # someone claimed or forked one of them meanwhile
            continue
        return len(gone), size
    raise StoreError("the runs change faster than they can be pruned; try again")


def _removable(roots: Iterable[str], heads: Mapping[str, RunHeader]) -> set[str]:
    """Return the runs that can be removed: none that a process executes, and none whose fork a process executes."""
    parts = family(heads.values())
    trees = [tree_of(root, parts) for root in roots if root in heads]
    held = {head.origin[0] for head in heads.values() if head.origin is not None and head.running}
    held |= {run_id for tree in trees for run_id in tree if heads[run_id].running}
    return {run_id for tree in trees if held.isdisjoint(tree) for run_id in tree}


async def _removal(store: Store, owner: str, gone: set[str], known: _Known) -> tuple[list[Change], int]:
    """Return the changes that remove runs and leave their forks whole, and the number of bytes that they free."""
    heads = known.heads
    forks: dict[str, list[tuple[int, RunHeader]]] = {}
    for head in heads.values():
        if head.origin is not None and head.origin[0] in gone and head.run_id not in gone:
            forks.setdefault(head.origin[0], []).append((head.origin[1], head))
    wanted = _ancestors(forks, gone, heads)
    values: dict[str, dict[int | str, bytes]] = {run_id: {} for run_id in wanted}
    changes: list[Change] = []
    size = 0
    for run_id in gone:
        async for item in store.scan(entries_key(owner, run_id)):
            size += len(item.value)
            if run_id in wanted:
                values[run_id][item.key[-1]] = item.value
        size += len(heads[run_id].pack())
        changes.append(Delete(head_key(owner, run_id), expected=known.versions[run_id]))
        changes.append(DeleteAll(entries_key(owner, run_id)))
        changes.append(Delete(forks_key(owner, run_id), expected=known.forked.get(run_id, 0)))
    for thread, runs in threads_of(heads.values()).items():
        end, version = known.threads.get(thread, ("", 0))
        left = [head for head in runs if head.run_id not in gone]
        if not version or len(left) == len(runs):
            continue
        # The next run continues the last one of the line that is left. The item is put in any case, so that this fails if
        # someone continues the thread meanwhile.
        line = [head for head in line_of(end, heads) if head.run_id not in gone]
        key = thread_key(owner, thread)
        if left:
            changes.append(Put(key, thread_record((line or left[::-1])[0].run_id), expected=version))
        else:
            changes.append(Delete(key, expected=version))
    for orphans in forks.values():
        # One of them gets what they had of the origin, and the others have it of that one.
        heir = max(orphans, key=lambda each: each[0])[1]
        copied, before = _inherited(heir, heads, values)
        for name, value in copied.items():
            key = (*entries_key(owner, heir.run_id), name)
            if isinstance(name, int) or await store.get(key) is None:  # a payload of the same name is the same
                size -= len(value)
                changes.append(Put(key, value, expected=0))
        for number, head in orphans:
            moved = replace(head, origin=before if head is heir else (heir.run_id, number)).pack()
            size += len(head.pack()) - len(moved)
            changes.append(Put(head_key(owner, head.run_id), moved, expected=known.versions[head.run_id]))
    return changes, size


def _ancestors(forks: Iterable[str], gone: set[str], heads: Mapping[str, RunHeader]) -> set[str]:
    """Return the runs that are removed and whose entries forks need."""
    found = set[str]()
    for run_id in forks:
        origin: str | None = run_id
        while origin is not None and origin in gone and origin not in found:
            found.add(origin)
            parted = heads[origin].origin
            origin = parted[0] if parted is not None else None
    return found


def _inherited(
    heir: RunHeader, heads: Mapping[str, RunHeader], values: Mapping[str, Mapping[int | str, bytes]]
) -> tuple[dict[int | str, bytes], tuple[str, int] | None]:
    """Return the entries and payloads that a fork has from runs that are removed, and the origin of those before them."""
    found: dict[int | str, bytes] = {}
    origin = heir.origin
    while origin is not None and origin[0] in values:
        run_id, last = origin
        held, above = values[run_id], heads[run_id].origin
        numbers = range(above[1] + 1 if above is not None else 1, last + 1)
        for number in numbers:
            if number not in held:
                raise DamagedStoreError(f"run {run_id!r}", f"its entry {number} is missing")
            check(held[number], f"entry {number} of run {run_id!r}")
            found[number] = held[number]
        found.update(payloads_of((held[number] for number in numbers), held))
        origin = None if above is None else (above[0], min(above[1], last))
    return found, origin
