"""Runs as a store has them: lists of headers; and headers, rows and payloads, each with those whose transcript it continues."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Collection
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from graphagent._options import check_store, check_text
from graphagent.errors import DamagedStoreError, RunError, RunNotFoundError, RunQueuedError
from graphagent.log._header import (
    HEADERS,
    ROOM,
    RunHeader,
    Status,
    check_statuses,
    child_of,
    header_key,
    place_of,
    rows_key,
)
from graphagent.log._lease import judged
from graphagent.store._bulk import collect, get_many
from graphagent.store._items import checked_limit

if TYPE_CHECKING:
    from graphagent.protocols import Store
    from graphagent.store import Key


class Segment(NamedTuple):
    """A run in a log, as the store has it."""

    header: RunHeader
    rows: list[tuple[int, bytes]]
    """The rows by the numbers of their first entries; 0 for what earlier runs left visible that are not there any more."""
    payloads: dict[int, bytes]


_DIGITS = 16
"""The numbers of entries have fewer."""
_Parts: TypeAlias = tuple[list[tuple[int, bytes]], dict[int, bytes]]
"""The rows and the payloads of a segment."""


async def read_header(store: Store, owner: str, run_id: str) -> tuple[RunHeader, int]:
    """Return the header of a run, with what the store says of its claim, and its version in the store.

    Raises:
        RunNotFoundError, RunError, DamagedStoreError: as `read_written`.
    """
    written, version = await read_written(store, owner, run_id)
    (header,) = await judged(store, [written])
    return header, version


async def read_written(store: Store, owner: str, run_id: str) -> tuple[RunHeader, int]:
    """Return the header of a run as it was written, and its version in the store. Whether its process is alive is not asked.

    Raises:
        RunNotFoundError: the run does not exist.
        DamagedStoreError: it is not what was written.
    """
    check_store(store)
    key, missing = header_key(owner, run_id), RunHeader(run_id=run_id, owner=owner)
    item = await store.get(key)
    if item is None:
        if not (await store.get(place_of(missing)[0]) or await collect(store.scan(rows_key(missing), limit=1))):
            part = await read_part(store, owner, run_id)
            raise RunNotFoundError(run_id, owner) if part is None else is_part(run_id, part[1], owner)
        item = await store.get(key)  # another process may have begun the run meanwhile
    if item is None:
        raise DamagedStoreError(f"the header of run {run_id!r}", "it is missing, and its entries are there")
    return RunHeader.unpack(item.value, run_id), item.version


async def read_part(store: Store, owner: str, run_id: str) -> tuple[RunHeader, str] | None:
    """Return the header of the run of a sub-agent, and the id of the run of which it is a part; None if the run does not exist.

    Raises:
        DamagedStoreError: it is not what was written.
    """
    check_text("run_id=", run_id)
    *around, number = run_id.split("/")
    if number.isdecimal() and len(number) < _DIGITS:
        for place in range(1, len(around)):
            root = "/".join(around[:place])
            item = await store.get((*header_key(owner, root), int(number)))
            if item is not None:
                header = RunHeader.unpack(item.value, root, child=True)
                if header.run_id == run_id:
                    return header, root
    return None


async def root_of(store: Store, owner: str, run_id: str) -> str:
    """Return the id of the run of which the run of a sub-agent is a part; the same id of any other run.

    Raises:
        DamagedStoreError: the header of the sub-agent's run is not what was written.
    """
    check_text("run_id=", run_id)
    if "/" not in run_id or await store.get(header_key(owner, run_id)) is not None:
        return run_id
    part = await read_part(store, owner, run_id)
    return run_id if part is None else part[1]


def is_part(run_id: str, root: str, owner: str) -> RunError:
    """Return the error of something that can be done with whole runs alone, and was to be done with that of a sub-agent."""
    whose = f", owner={owner!r}" if owner else ""
    error = RunError(
        f"run {run_id!r} is a part of run {root!r}, which is continued, forked and ended as a whole: agent.resume({root!r}{whose})"
    )
    error.run_id = run_id
    return error


async def read_segments(store: Store, header: RunHeader) -> list[Segment]:
    """Return a run with those whose transcript it continues, the first one first.

    Raises:
        RunNotFoundError: it was removed meanwhile.
        DamagedStoreError: something is missing.
        StoreError: it could not be read.
    """
    if not header.previous:
        return [await read_segment(store, header)]
    async with unless_removed(store, header):
        runs = await _runs(store, rows_key(header)[:-1])
        headers = await get_many(store, [header_key(header.owner, each) for each in runs])
        found = [_segment(header, runs)]
        while previous := found[-1].header.previous:
            item = headers.get(header_key(header.owner, previous))
            if item is None:
                where = f"the log of run {found[-1].header.run_id!r}"
                raise DamagedStoreError(where, f"run {previous!r}, which it continues, is missing")
            found.append(_segment(RunHeader.unpack(item.value, previous), runs))
        return found[::-1]


@asynccontextmanager
async def unless_removed(store: Store, header: RunHeader) -> AsyncGenerator[None]:
    """Raise RunNotFoundError instead of DamagedStoreError for a run that was removed while it was read.

    Raises:
        RunNotFoundError: it was removed.
    """
    try:
        yield
    except DamagedStoreError:
        if await store.get(header_key(header.owner, header.run_id)) is None:
            raise RunNotFoundError(header.run_id, header.owner) from None
        raise


async def read_segment(store: Store, header: RunHeader) -> Segment:
    """Return the rows and payloads of a run.

    Raises:
        RunQueuedError: it has not begun.
        RunNotFoundError: it was removed meanwhile.
        DamagedStoreError: it has none.
        StoreError: they could not be read.
    """
    async with unless_removed(store, header):
        return _segment(header, await _runs(store, rows_key(header)))


async def _runs(store: Store, prefix: Key) -> dict[Any, _Parts]:
    """Return the rows and payloads of runs, by the ids of the runs."""
    found: dict[Any, _Parts] = {}
    for key, value, _ in await collect(store.scan(prefix)):
        rows, payloads = found.get(key[4]) or found.setdefault(key[4], ([], {}))
        if len(key) == 6:
            rows.append((int(key[5]), value))
        else:
            payloads[int(key[6])] = value
    return found


def _segment(header: RunHeader, runs: dict[Any, _Parts]) -> Segment:
    """Return a run with what was found of it."""
    rows, payloads = runs.pop(header.run_id, ([], {}))
    if not (rows or header.begun):
        raise RunQueuedError(header.run_id, header.due)
    if not rows:
        raise DamagedStoreError(f"run {header.run_id!r}", "its entries are missing")
    rows.sort()  # a row 0 comes after the payloads, which are below the same number
    return Segment(header, rows, payloads)


async def list_runs(
    store: Store,
    *,
    owner: str = "",
    thread: str | None = None,
    status: Collection[Status] | None = None,
    limit: int | None = None,
) -> list[RunHeader]:
    """Return the headers of an owner's runs, the newest first. Damaged ones are the last.

    Runs of sub-agents are among them: they have a `parent`. All headers of the owner are read.

    Args:
        store: Where they are.
        owner: Whose.
        thread: Only the runs of this thread.
        status: Only runs that are there, such as `["waiting", "interrupted"]`.
        limit: At most so many.

    Raises:
        ValueError: a status is not known, or the limit is below 0.
        StoreError: the store cannot be read.
    """
    check_store(store)
    check_statuses(status)
    most = checked_limit(limit)
    found: dict[str, RunHeader] = {}
    children: list[RunHeader] = []
    for item in await collect(store.scan((ROOM, owner, HEADERS))):
        run_id = str(item.key[3])
        try:
            if len(item.key) == 4:
                found[run_id] = RunHeader.unpack(item.value, run_id)
            else:
                children.append(RunHeader.unpack(item.value, run_id, child=True))
        except DamagedStoreError as error:
            found[run_id] = RunHeader(run_id=run_id, owner=owner, damaged=str(error))
    found.update((head.run_id, head) for head in await judged(store, list(found.values())))
    for child in children:
        found[child.run_id] = child_of(child, found.get(child.run_id.partition("/")[0]))
    heads = sorted(found.values(), key=lambda head: head.started, reverse=True)
    if thread is not None or status is not None:
        heads = [head for head in heads if thread in (None, head.thread) and (status is None or head.status in status)]
    return heads[:most]
