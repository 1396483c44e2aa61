"""Removing runs from a store: pruned, which leaves to later runs what they see, or forgotten, which leaves nothing of the content."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from msgspec import structs

from graphagent import _clock
from graphagent._options import check_store, check_whole
from graphagent.errors import ConflictError, DamagedStoreError, RunNotFoundError, StoreError
from graphagent.history._carried import carried
from graphagent.history._runs import choose_runs, thread_ends, threads_of
from graphagent.log._asked import ASKED, asked_key
from graphagent.log._header import (
    DUE,
    HEADERS,
    LEARNING,
    ROOM,
    SUBMITTED,
    THREADS,
    WAITING,
    RunHeader,
    due_key,
    due_of,
    header_key,
    mark_key,
    place_of,
    rows_key,
    thread_key,
)
from graphagent.log._lease import drop_claims, judged, keys_of_claims
from graphagent.log._segments import list_runs, read_segment, read_segments
from graphagent.log._submitted import removal_of
from graphagent.memory.facts._store_items import is_fact
from graphagent.memory.notes.index._storage import NOTES
from graphagent.run._threads import thread_record
from graphagent.store import Delete, DeleteAll, Put, Receipt
from graphagent.store._bulk import collect, get_many
from graphagent.store._cache import cached_of, erase_expired
from graphagent.store._grants import grants_of

if TYPE_CHECKING:
    from graphagent.protocols import Store
    from graphagent.store import Change, Item, Key

_TOGETHER = 2000
"""How many runs are removed in one commit at least."""
_COMMITS = 4
"""In how many commits the others are removed at most: for each all headers are read, and the store may rewrite its file."""
_FEW = 32
"""For so many runs the headers of those that continue them are looked for; for more, all headers of the owner are read."""
_ATTEMPTS = 20


async def prune_runs(
    store: Store,
    *,
    owner: str = "",
    run_ids: Collection[str] | None = None,
    thread: str | None = None,
    status: Collection[str] | None = None,
    older_than: timedelta | None = None,
    keep: int = 0,
) -> Receipt:
    """Remove runs of an owner, with the runs of sub-agents that are parts of them.

    A run is removed if it meets all the given conditions. Expired cached values of the owner are erased as well. A run that a
    process executes stays, and so does a run that went on since it was chosen. The next run of a thread keeps what it sees of the transcript.

    Args:
        store: Where they are.
        owner: Whose.
        run_ids: Which.
        thread: The thread to which they belong.
        status: Where they are: `done`, `ended`, `failed`, `cancelled`, `paused`, `waiting`, `sleeping`, `queued`, `interrupted`. Runs that
            were submitted and have not begun are only removed if this has `queued`, or `run_ids` names them.
        older_than: For how long nothing happened in them.
        keep: So many of the owner's runs, or of those of the thread, stay in any case, the newest.

    Raises:
        ValueError: nothing says which, or a run is named that is a part of another one.
        RunNotFoundError: a run does not exist.
        RunClaimedError: a process executes a run that is named.
        StoreError: the store cannot be read or written.
    """
    check_whole("keep", keep)
    if keep < 0:
        raise ValueError(f"keep={keep} is not a number of runs; give 0 or more")
    if run_ids is None and thread is None and status is None and older_than is None and not keep:
        raise ValueError(
            "say which runs: by run_ids=, thread=, status=, older_than= or keep=; older_than=timedelta(0) means all"
        )
    chosen = choose_runs(
        await list_runs(store, owner=owner),
        run_ids=run_ids,
        thread=thread,
        status=status,
        older_than=older_than,
        keep=keep,
    )
    states = {head.run_id: (head.last, head.written) for head in chosen}

    def is_as_chosen(head: RunHeader) -> bool:
        return states[head.run_id] == (head.last, head.written)

    gone, size, together = 0, 0, max(_TOGETHER, math.ceil(len(chosen) / _COMMITS))
    for start in range(0, len(chosen), together):
        named = [head.run_id for head in chosen[start : start + together]]
        runs, less = await _remove(store, owner, named, fits=is_as_chosen)
        gone, size = gone + runs, size + less
    await erase_expired(store, cached_of(owner))
    return Receipt(runs=gone, bytes=size)


async def prune_fitting(store: Store, owner: str, run_ids: Iterable[str], fits: Callable[[RunHeader], bool]) -> int:
    """Remove those of some runs whose headers fit when they are removed, and that no process executes. Return how many.

    Raises:
        StoreError: the store cannot be read or written.
    """
    gone, _ = await _remove(store, owner, list(run_ids), fits=fits)
    await erase_expired(store, cached_of(owner))
    return gone


async def forget_runs(store: Store, *, owner: str = "", run_ids: Collection[str] | None = None) -> Receipt:
    """Remove all runs of an owner, or some, from the disk; in a sealed store, with their keys.

    All that was cached for the owner is removed with them: outputs of nodes, results of tools, answers of models; of all runs of an
    owner, also the access to servers that the owner granted, and a run that is executed breaks off. Where some runs are named, those
    that continue them show `[forgotten]` in the place of their steps.

    Raises:
        RunNotFoundError: a run does not exist.
        RunClaimedError: a process executes a run that is named, or one that continues it.
        StoreError: the store cannot be written.
    """
    check_store(store)
    if run_ids is not None:
        runs, size = await _remove(store, owner, list(run_ids), forget=True)
        return Receipt(runs=runs, bytes=size)
    receipt, claims = await counted(store, runs_of(owner)), await keys_of_claims(store, owner)
    await store.commit(*map(DeleteAll, (*runs_of(owner), *await due_of(store, owner))))
    await drop_claims(store, claims)
    return receipt


def runs_of(owner: str) -> tuple[Key, ...]:
    """Return the prefixes of the keys of all data of an owner's runs, and of the data that are forgotten with the runs."""
    return (
        (ROOM, owner),
        (SUBMITTED, owner),
        (ASKED, owner),
        (LEARNING, owner),
        (WAITING, owner),
        cached_of(owner),
        grants_of(owner),
    )


async def counted(store: Store, prefixes: Iterable[Key]) -> Receipt:
    """Return the number of things under some prefixes. Damaged items are not counted, and can be forgotten all the same.

    Raises:
        StoreError: the store cannot be read.
    """
    size, counts = 0, Counter[str]()
    with suppress(DamagedStoreError):
        for prefix in prefixes:
            if prefix[0] in (ASKED, LEARNING, WAITING, DUE):
                continue  # marks, which say nothing that is not in a header
            async for item in store.scan(prefix):
                size += len(item.value)
                counts[_kind(item)] += 1
    return Receipt(counts["facts"], counts["notes"], counts["runs"], counts["threads"], counts["cached"], size)


def _kind(item: Item) -> str:
    """Return as what an item counts in a receipt."""
    match item.key:
        case ("facts", *_) if is_fact(item.key):
            return "facts"
        case ("notes", _, kind, _) if kind == NOTES:
            return "notes"
        case ("runs", _, kind, _, *_) if kind == HEADERS:
            return "runs"
        case ("runs", _, kind, _) if kind == THREADS:
            return "threads"
        case ("cache", *_):
            return "cached"
        case _:
            return ""


async def forget_thread(store: Store, thread: str, *, owner: str = "") -> Receipt:
    """Remove a thread with all its runs, and all that was cached for the owner, in one commit.

    Forks and reruns of its runs are not in the thread, nor are runs that began with `steps=` of one: they keep what was said.

    Raises:
        RunClaimedError: a process executes one of its runs.
        TypeError: the thread is not named by text.
        StoreError: the store cannot be read or written.
    """
    if not isinstance(thread, str) or not thread:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"a thread is named by a text, such as 'alice-7', not by {thread!r}")
    for _ in range(_ATTEMPTS):
        known = await _known(store, owner)
        roots = {head.run_id for head in known.heads.values() if head.thread == thread}
        if not roots and thread not in known.threads:
            await store.commit()  # raises if a thread may come back whose saving failed
            return Receipt()
        for run_id in roots:
            known.heads[run_id].check_free()
        changes, size = await _removal(store, owner, roots, known, forget=False)
        changes.append(DeleteAll(cached_of(owner)))
        if not roots:
            changes.append(DeleteAll(thread_key(owner, thread)))
        try:
            await store.commit(*changes)
        except ConflictError:
            continue  # somebody continued it meanwhile, or resumed one of its runs
        await drop_claims(store, _claimed(roots, known))
        return Receipt(runs=sum(1 + len(known.children.get(each, ())) for each in roots), threads=1, bytes=size)
    raise StoreError("the thread changes faster than it can be removed; try again")


async def clear_cache(store: Store, *, owner: str = "", expired: bool = False) -> int:
    """Erase what was cached for an owner, for nodes, tools and models, and return how many values that were.

    Args:
        store: The store of the runs.
        owner: Whose values.
        expired: Whether only those are erased that have expired.

    Raises:
        StoreError: the store cannot be read or written.
    """
    check_store(store)
    if expired:
        return await erase_expired(store, cached_of(owner))
    count = 0
    with suppress(DamagedStoreError):  # what cannot be read can be erased
        async for _ in store.scan(cached_of(owner)):
            count += 1
    await store.commit(DeleteAll(cached_of(owner)))
    return count


@dataclass(frozen=True, slots=True)
class _Known:
    """The runs of an owner at one moment."""

    heads: dict[str, RunHeader]
    versions: dict[str, int]
    """Of their headers."""
    sizes: dict[str, int]
    """Of their headers, with those of their sub-agents."""
    children: dict[str, list[Key]]
    """The keys of the headers of sub-agents."""
    following: dict[str, list[RunHeader]]
    """The runs that continue each run."""
    threads: dict[str, tuple[str, int]]
    """The last run of each thread, and the version of the item that names it."""


async def _known(store: Store, owner: str) -> _Known:
    known = _Known({}, {}, {}, {}, {}, await thread_ends(store, owner))
    await _add(known, store, (ROOM, owner, HEADERS))
    return await _judged(known, store)


async def _known_of(store: Store, owner: str, roots: list[str]) -> _Known:
    """Return what has to be known for removing some runs, for which few headers are read if these are few and in no thread."""
    heads: dict[str, RunHeader] = {}
    if len(roots) <= _FEW:
        found = await get_many(store, [header_key(owner, run_id) for run_id in roots])
        heads = {str(key[3]): RunHeader.unpack(item.value, str(key[3])) for key, item in found.items()}
    if not heads or any(head.thread for head in heads.values()):
        return await _known(store, owner)
    known = _Known({}, {}, {}, {}, {}, {})
    # A run that continues another one is in the same log.
    together = {head.run_id for head in heads.values()}
    for log in {rows_key(head)[:-1] for head in heads.values()}:
        together.update([str(item.key[4]) async for item in store.scan(log)])
    for run_id in together:
        await _add(known, store, header_key(owner, run_id))
    return await _judged(known, store)


async def _judged(known: _Known, store: Store) -> _Known:
    """Return the same with what the store says of the claims."""
    for head in await judged(store, list(known.heads.values())):
        known.heads[head.run_id] = head
    for head in known.heads.values():
        if head.previous:
            known.following.setdefault(head.previous, []).append(head)
    return known


async def _add(known: _Known, store: Store, headers: Key) -> None:
    for item in await collect(store.scan(headers)):
        run_id = str(item.key[3])
        known.sizes[run_id] = known.sizes.get(run_id, 0) + len(item.value)
        if len(item.key) == 4:
            known.heads[run_id] = RunHeader.unpack(item.value, run_id)
            known.versions[run_id] = item.version
        else:
            known.children.setdefault(run_id, []).append(item.key)


async def _remove(
    store: Store,
    owner: str,
    roots: list[str],
    *,
    forget: bool = False,
    fits: Callable[[RunHeader], bool] = lambda _: True,
) -> tuple[int, int]:
    """Remove runs in one commit, but for those that are executed, or do not fit any more. Return how many, and how many bytes."""
    for _ in range(_ATTEMPTS):
        known = await _known_of(store, owner, roots)
        for run_id in roots if forget else ():
            if run_id not in known.heads:
                raise RunNotFoundError(run_id, owner)
            known.heads[run_id].check_free()
        gone = _removable((each for each in roots if each in known.heads and fits(known.heads[each])), known)
        for run_id in set(roots) - gone if forget else ():
            for each in known.following.get(run_id, ()):
                each.check_free()
        changes, size = await _removal(store, owner, gone, known, forget=forget)
        if forget:
            changes.append(DeleteAll(cached_of(owner)))
        try:
            await store.commit(*changes)
        except ConflictError:
            continue  # somebody claimed or continued one of them meanwhile
        await drop_claims(store, _claimed(gone, known))
        return sum(1 + len(known.children.get(each, ())) for each in gone), size
    raise StoreError("the runs change faster than they can be removed; try again")


def _claimed(run_ids: Iterable[str], known: _Known) -> list[Key]:
    """Return the keys of runs that were claimed in their store: the claim of a process that died is there until somebody ends it."""
    heads = (known.heads[run_id] for run_id in run_ids)
    return [header_key(head.owner, head.run_id) for head in heads if head.fence]


def _removable(roots: Iterable[str], known: _Known) -> set[str]:
    """Return the runs that can be removed: those that no process executes, nor one that continues them."""
    heads = known.heads
    return {
        run_id
        for run_id in roots
        if run_id in heads
        and not heads[run_id].running
        and not any(each.running for each in known.following.get(run_id, ()))
    }


async def _removal(
    store: Store, owner: str, gone: set[str], known: _Known, *, forget: bool
) -> tuple[list[Change], int]:
    """Return the changes that remove runs and leave to others what they see of them, and the number of bytes that they free."""
    heads, changes, size = known.heads, list["Change"](), 0
    for run_id in gone:
        for head in known.following.get(run_id, ()):
            if head.run_id in gone:
                continue
            # It is written at the beginning of the run that continues them, which then is the first of its log.
            before = await read_segments(store, heads[head.previous])
            last = max((await read_segment(store, head)).payloads, default=0)
            row = carried(before, max(last, head.payloads), forgotten=gone if forget else ())
            key = rows_key(head)
            changes.append(Put((*key, 0), row.row, expected=0))
            changes += [Put((*key, 0, number), data) for number, data in row.payloads.items()]
            cut = structs.replace(head, previous="", updated=_clock.now() if forget else head.updated)
            changes.append(Put(header_key(owner, head.run_id), cut.pack(), expected=known.versions[head.run_id]))
            size -= len(row.row) + sum(map(len, row.payloads.values())) + len(cut.pack()) - len(head.pack())
    for run_id in gone:
        async for item in store.scan(rows_key(heads[run_id])):
            size += len(item.value)
        size += known.sizes[run_id]
        changes.append(Delete(header_key(owner, run_id), expected=known.versions[run_id]))
        changes += [Delete(key) for key in known.children.get(run_id, ())]
        changes.append(DeleteAll(rows_key(heads[run_id])))
        changes += await _besides(store, heads[run_id])
    changed = {heads[run_id].thread for run_id in gone}
    for thread, runs in threads_of(head for head in heads.values() if head.thread in changed).items():
        end, version = known.threads.get(thread, ("", 0))
        left = [head for head in runs if head.run_id not in gone]
        if not version or len(left) == len(runs):
            continue
        # The next run continues the last one of the line that is left. The item is put in any case, so that this fails if
        # somebody continues the thread meanwhile.
        line = [head for head in line_of(end, heads) if head.run_id not in gone]
        key = thread_key(owner, thread)
        if left:
            changes.append(Put(key, thread_record((line or left[::-1])[0].run_id), expected=version))
            size += len(thread_record(end)) - len(thread_record((line or left[::-1])[0].run_id))
        else:
            changes += [Delete(key, expected=version), Delete((*key, 0))]
            size += len(thread_record(end)) + len(thread_record(""))
    return changes, size


async def _besides(store: Store, head: RunHeader) -> list[Change]:
    """Return the changes that remove the items by which a run is found, and what it would begin with."""
    changes: list[Change] = []
    if head.unlearned:
        changes.append(Delete(mark_key(LEARNING, head.owner, head.run_id)))
    if head.written == "waiting":
        changes.append(Delete(mark_key(WAITING, head.owner, head.run_id)))
    if not head.begun:
        changes += await removal_of(store, head)
    if head.queue:
        changes.append(DeleteAll(asked_key(head.owner, head.run_id)))
    if head.due:
        changes.append(DeleteAll(due_key(head)))
    if head.first:
        changes.append(Delete(place_of(head)[0]))
    return changes


def line_of(run_id: str, heads: Mapping[str, RunHeader]) -> list[RunHeader]:
    """Return a run and those whose transcript it continues, the last first, as far as they are left."""
    found: list[RunHeader] = []
    head = heads.get(run_id)
    while head is not None:
        found.append(head)
        head = heads.get(head.previous)
    return found
