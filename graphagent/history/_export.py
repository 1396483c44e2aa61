"""Runs taken along: out of a store as JSON data without loss, and into another one. And the check of all runs of a store."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from msgspec import structs

from graphagent._article import a
from graphagent.errors import ConflictError, DamagedStoreError, RunNotFoundError, StoreError
from graphagent.history._carried import carried
from graphagent.history._removing import line_of
from graphagent.history._runs import run_owners, thread_ends, threads_of
from graphagent.log._bytes import payloads_in, plain
from graphagent.log._header import (
    HEADERS,
    ROOM,
    ROWS,
    THREADS,
    WAITING,
    RunHeader,
    due_changes,
    header_key,
    mark_key,
    mark_of,
    place_of,
    rows_key,
    thread_key,
)
from graphagent.log._log import check_segments
from graphagent.log._segments import Segment, list_runs, read_header, read_segment, read_segments
from graphagent.log._submitted import Submitted, all_submitted, place_at_end, read_submitted, submitted_key
from graphagent.run._threads import thread_record
from graphagent.store import Put
from graphagent.store._items import is_intact

if TYPE_CHECKING:
    from graphagent.log._submitted import Place
    from graphagent.protocols import Store
    from graphagent.store import Change

_FORMAT = 1
_Record = Mapping[str, object]


async def export_runs(
    store: Store, *, owner: str | None = None, run_ids: Collection[str] | None = None
) -> AsyncIterator[dict[str, object]]:
    """Yield runs as JSON data, a record for each row and payload, without loss and not encrypted.

    Args:
        store: Where they are.
        owner: Whose; None means those of all owners.
        run_ids: Which; None means all. Their sub-agents come along. A run that continues another one which does not has a copy of
            what that left visible.

    Raises:
        RunNotFoundError: a run does not exist.
        DamagedStoreError: something is not what was written.
        StoreError: the store cannot be read.
    """
    for whose in await run_owners(store) if owner is None else [owner]:
        heads = [head for head in await list_runs(store, owner=whose) if not head.parent]
        wanted = list(dict.fromkeys([head.run_id for head in heads][::-1] if run_ids is None else run_ids))
        for run_id in wanted:
            for record in await _exported(store, whose, run_id, set(wanted)):
                yield record


async def _exported(store: Store, owner: str, run_id: str, runs: Collection[str]) -> list[dict[str, object]]:
    header, _ = await read_header(store, owner, run_id)
    if not header.begun:
        found = await read_submitted(store, header)
        if found is None:  # it was begun meanwhile
            return await _exported(store, owner, run_id, runs)
        return _unbegun(header, *found)
    segments = await read_segments(store, header)
    check_segments(segments)
    own = segments[-1]
    rows, payloads = dict(own.rows), dict(own.payloads)
    if header.previous and header.previous not in runs:
        first = carried(segments[:-1], max((header.payloads, *own.payloads)))
        rows[0], header = first.row, structs.replace(header, previous="")
        payloads.update(first.payloads)
    header = structs.replace(header, claim=None)
    record = partial(_record, owner, run_id)
    children = [item async for item in store.scan(header_key(owner, run_id)) if len(item.key) == 5]

    counts = {"rows": len(rows), "payloads": len(payloads), "agents": len(children)}
    return [
        record("run", header.pack(), format=_FORMAT, **counts),
        *(record("row", rows[number], number=number) for number in sorted(rows)),
        *(record("payload", payloads[number], number=number) for number in sorted(payloads)),
        *(
            record("agent", item.value, number=item.key[4])
            for item in sorted(children, key=lambda item: int(item.key[4]))
        ),
    ]


def _unbegun(header: RunHeader, submitted: Submitted, line: Iterable[Place]) -> list[dict[str, object]]:
    """Return the records of a run that was submitted and has not begun."""
    place = next((each for each in line if each.run_id == header.run_id), None)
    record, counts = partial(_record, header.owner, header.run_id), {"rows": 0, "payloads": 0, "agents": 0}
    ends = {} if place is None else {"ends_busy": place.ends_busy}
    number = 0 if place is None else place.number
    return [
        record("run", header.pack(), format=_FORMAT, **counts),
        record("submitted", submitted.pack(header.run_id), number=number, **ends),
    ]


def _record(owner: str, run_id: str, kind: str, data: bytes, **more: object) -> dict[str, object]:
    return {"type": kind, "owner": owner, "run_id": run_id, **more, "data": base64.b64encode(data).decode()}


@dataclass(slots=True)
class _Brought:
    """A run of an export."""

    header: RunHeader
    counts: dict[str, int]
    parts: dict[str, dict[int, bytes]] = field(
        default_factory=lambda: {"row": dict[int, bytes](), "payload": dict[int, bytes](), "agent": dict[int, bytes]()}
    )

    submitted: Submitted | None = None
    """What it begins with, if it has not begun."""
    number: int = 0
    """Its place among those of its thread."""
    ends_busy: bool = False
    """Whether the last run of its thread is ended for it."""

    @property
    def segment(self) -> Segment:
        """The run as a part of a log; of one that has not begun, what it would begin with."""
        if self.submitted is not None:
            return Segment(self.header, [(1, self.submitted.row)], self.submitted.payloads)
        return Segment(self.header, sorted(self.parts["row"].items()), self.parts["payload"])


async def import_runs(store: Store, records: Iterable[_Record]) -> int:
    """Store what `export_runs` returned, without loss. Runs that exist already are left as they are. Return how many were new.

    Raises:
        ValueError: a record is not one of an export, or something is missing or changed; nothing is stored.
        StoreError: the store cannot be read or written.
    """
    runs: dict[tuple[str, str], _Brought] = {}
    for number, record in enumerate(records, start=1):
        try:
            _take(runs, record)
        except (KeyError, TypeError, AttributeError, ValueError, DamagedStoreError) as error:
            reason = str(error) if type(error) is ValueError else "something in it is missing or was changed"
            raise ValueError(
                f"record {number} is not one of an export of runs: {reason}; nothing was imported"
            ) from None
    lines = {place: _line(place, runs) for place in runs}
    new: set[tuple[str, str]] = set()
    # Those first that others continue, and the last ones in the order of their threads.
    for place in sorted(runs, key=lambda place: (not runs[place].header.begun, len(lines[place]), runs[place].number)):
        if await _put(store, runs[place], lines[place], new):
            new.add(place)
    for owner in {owner for owner, _ in new}:
        await _restore_threads(store, owner, {run_id for whose, run_id in new if whose == owner})
    return len(new)


def _take(runs: dict[tuple[str, str], _Brought], record: _Record) -> None:
    """Take up a record.

    Raises:
        ValueError: it is none, or comes twice.
    """
    if not isinstance(record, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ValueError("it is not a JSON object")  # noqa: TRY004  wrong input, as all else here
    data = cast("Mapping[str, Any]", record)
    place, kind = (data["owner"], data["run_id"]), data["type"]
    content = base64.b64decode(data["data"], validate=True)
    if base64.b64encode(content).decode() != data["data"]:  # bits after the last byte, which decoding ignores
        raise ValueError("its data was changed")
    if kind == "run":
        if data["format"] != _FORMAT:
            raise ValueError("its format is not known here")
        header = RunHeader.unpack(content, place[1])
        if (header.owner, header.run_id) != place or header.claim is not None or place in runs:
            raise ValueError("it is about another run, or comes twice")
        runs[place] = _Brought(header, {part: data[f"{part}s"] for part in ("row", "payload", "agent")})
        return
    held, number = runs.get(place), data["number"]
    if held is None:
        raise ValueError("its run was not named before it")
    if kind == "submitted" and held.submitted is None and not held.header.begun:
        held.submitted, held.number = Submitted.unpack(content, place[1]), int(number)
        held.ends_busy = data.get("ends_busy") is True
        return
    if kind not in held.parts or type(number) is not int or number < 0 or number in held.parts[kind]:
        raise ValueError("its type or its number is not known here, or it comes twice")
    if not is_intact(content) or (kind == "agent" and not _is_agent(content, *place, number)):
        raise ValueError("its data was changed")
    held.parts[kind][number] = content


def _is_agent(data: bytes, owner: str, run_id: str, number: int) -> bool:
    """Return whether data is the header of the sub-agent in a run that has a number."""
    header = RunHeader.unpack(data, run_id, child=True)
    return (header.owner, header.last) == (owner, number)


def _line(place: tuple[str, str], runs: Mapping[tuple[str, str], _Brought]) -> list[_Brought]:
    """Return a run with those that it continues, the first one first, after a check that they are whole.

    Raises:
        ValueError: something is missing.
    """
    found = [runs[place]]
    named = f"the export of run {place[1]!r}"
    for part, count in found[0].counts.items():
        if len(found[0].parts[part]) != count:
            raise ValueError(f"{named} lacks {a(part)}; nothing was imported")
    if not found[0].header.begun and found[0].submitted is None:
        raise ValueError(f"{named} lacks what it begins with; nothing was imported")
    while (previous := found[0].header.previous) != "":
        above = runs.get((place[0], previous))
        if above is None or above in found:
            raise ValueError(f"{named} lacks run {previous!r}, which it continues; nothing was imported")
        found.insert(0, above)
    reason = ""
    try:
        check_segments([each.segment for each in found])
    except DamagedStoreError as error:
        reason = str(error)
    if reason:
        raise ValueError(f"{named} is damaged: {reason}; nothing was imported")
    # Nothing else covers the number of a payload.
    own = runs[place].segment
    known = set[int]().union(*(payloads_in(plain(row)) for _, row in own.rows))
    for number in own.payloads.keys() - known:
        raise ValueError(f"{named} has a payload {number} to which none of its rows refers; nothing was imported")
    return found


async def _put(store: Store, brought: _Brought, line: list[_Brought], new: Collection[tuple[str, str]]) -> bool:
    """Store a run, unless it exists already. `new` are those that were stored before it."""
    header, rows, payloads = brought.header, dict(brought.parts["row"]), dict(brought.parts["payload"])
    place, key = header_key(header.owner, header.run_id), rows_key(header)
    if await store.get(place) is not None:
        return False
    if len(line) > 1 and (header.owner, header.previous) not in new and not await _is_there(store, line[-2]):
        first = carried([each.segment for each in line[:-1]], max((header.payloads, *payloads)))
        rows[0], header = first.row, structs.replace(header, previous="")
        payloads.update(first.payloads)
    changes: list[Change] = [Put((*key, number), row, expected=0) for number, row in rows.items()]
    changes += [Put((*key, 0, number), data) for number, data in payloads.items()]
    changes += [Put((*place, number), data) for number, data in brought.parts["agent"].items()]
    changes += [Put(*place_of(header))] if header.first else []
    if header.written == "waiting":
        changes.append(Put(mark_key(WAITING, header.owner, header.run_id), mark_of(header)))
    changes += due_changes(header, 0)
    if brought.submitted is not None:
        changes.append(
            Put(submitted_key(header.owner, header.run_id), brought.submitted.pack(header.run_id), expected=0)
        )
        changes += await place_at_end(store, header, ends_busy=brought.ends_busy)
    try:
        await store.commit(*changes, Put(place, header.pack(), expected=0))
    except ConflictError:
        if await store.get(place) is not None:
            return False  # somebody else brought it meanwhile
        raise StoreError(
            f"entries of run {header.run_id!r} are there without it; graphagent runs forget removes them"
        ) from None
    return True


async def _is_there(store: Store, brought: _Brought) -> bool:
    """Return whether the store has the very run."""
    try:
        header, _ = await read_header(store, brought.header.owner, brought.header.run_id)
        return (await read_segment(store, header)).rows == brought.segment.rows
    except (RunNotFoundError, DamagedStoreError):
        return False


async def _restore_threads(store: Store, owner: str, imported: Collection[str]) -> None:
    """Have the threads of imported runs continue after the last of them, unless they continue elsewhere already."""
    heads = {head.run_id: head for head in await list_runs(store, owner=owner)}
    ends = await thread_ends(store, owner)
    for thread, runs in threads_of(head for head in heads.values() if head.run_id in imported).items():
        end, version = ends.get(thread, ("", 0))
        last, key = runs[-1], thread_key(owner, thread)
        if not version or any(head.run_id == end for head in line_of(last.run_id, heads)):
            try:
                await store.commit(
                    Put(key, thread_record(last.run_id), expected=version), Put((*key, 0), thread_record(""))
                )
            except ConflictError:
                continue  # somebody continues it already


async def verify_runs(store: Store, *, owner: str | None = None) -> int:
    """Read all runs of an owner, or of all owners, and check that nothing is damaged or missing. Return how many there are.

    Raises:
        DamagedStoreError: something is; the error names it.
        StoreError: the store cannot be read.
    """
    count = 0
    for whose in await run_owners(store) if owner is None else [owner]:
        heads: dict[str, RunHeader] = {}
        async for item in store.scan((ROOM, whose, HEADERS)):
            run_id = str(item.key[3])
            if len(item.key) == 4:
                heads[run_id] = RunHeader.unpack(item.value, run_id)
            else:
                RunHeader.unpack(item.value, run_id, child=True)
        async for item in store.scan((ROOM, whose, ROWS)):
            # A run may have begun since the headers were read.
            if item.key[4] not in heads and await store.get(header_key(whose, str(item.key[4]))) is None:
                raise DamagedStoreError(
                    f"the header of run {item.key[4]!r}", "it is missing, and its entries are there"
                )
        for header in heads.values():
            if header.begun:
                check_segments(await read_segments(store, header))
            elif (found := await read_submitted(store, header)) is not None:  # it was not begun since either
                check_segments([Segment(header, [(1, found[0].row)], found[0].payloads)])
            count += 1
        async for item in store.scan(all_submitted(whose)):
            run_id = str(item.key[3])
            if run_id not in heads and await store.get(header_key(whose, run_id)) is None:
                raise DamagedStoreError(
                    f"the header of run {run_id!r}", "it is missing, and what the run begins with is there"
                )
        await _verify_threads(store, whose, heads)
    return count


async def _verify_threads(store: Store, owner: str, heads: Mapping[str, RunHeader]) -> None:
    ends = await thread_ends(store, owner)
    marked = {str(item.key[3]) async for item in store.scan((ROOM, owner, THREADS)) if len(item.key) == 5}
    for thread in {*threads_of(heads.values())} | marked:
        if thread not in ends:
            raise DamagedStoreError(f"thread {thread!r}", "the row that names its last run is missing")
    for thread, (run_id, _) in ends.items():
        if run_id not in heads:
            raise DamagedStoreError(f"thread {thread!r}", f"its run {run_id!r} is missing")
