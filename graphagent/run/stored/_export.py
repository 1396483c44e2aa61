"""Runs taken along: out of a store as plain JSON data, and into another one."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator, Collection, Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any, cast

from graphagent.codec._internal import hash_of
from graphagent.errors import ConflictError, DamagedStoreError, RunNotFoundError, StoreError
from graphagent.run.journal._header import RunHeader
from graphagent.run.journal._keys import entries_key, forks_key, head_key, pack, parse, unpack
from graphagent.run.journal._payloads import check_payloads, payloads_of
from graphagent.run.journal._reader import read_header, read_journal, read_own_entries
from graphagent.run.stored._manage import family, list_runs, restore_threads, run_owners, tree_of
from graphagent.store import Exists, Put

if TYPE_CHECKING:
    from graphagent.protocols import Store
    from graphagent.store import Change

_FORMAT = 1
_Record = Mapping[str, object]


async def export_runs(
    store: Store, *, owner: str | None = None, run_ids: Collection[str] | None = None
) -> AsyncIterator[dict[str, object]]:
    """Yield runs as plain JSON data, a record for each entry and payload, without loss and in the clear.

    Args:
        store: Where they are kept.
        owner: Whose; None means those of all owners.
        run_ids: Which; None means all. The runs of sub-agents that are parts of them come along, and a fork whose origin does
            not has all entries itself.

    Raises:
        RunNotFoundError: there is no run of an id.
        DamagedStoreError: something is not what was written.
        StoreError: the store cannot be read.
    """
    for whose in await run_owners(store) if owner is None else [owner]:
        heads = {head.run_id: head for head in await list_runs(store, owner=whose)}
        parts = family(heads.values())
        wanted = (
            list(heads)[::-1] if run_ids is None else [each for run_id in run_ids for each in tree_of(run_id, parts)]
        )
        for run_id in dict.fromkeys(wanted):
            if run_id not in heads:
                raise RunNotFoundError(run_id, whose)
            async for record in _exported(store, whose, run_id, set(wanted)):
                yield record


async def _exported(store: Store, owner: str, run_id: str, runs: Collection[str]) -> AsyncIterator[dict[str, object]]:
    """Yield the records of a run; of a fork whose origin is exported too, without the shared entries."""
    head, _ = await read_header(store, owner, run_id)
    if head.origin is not None and head.origin[0] in runs:
        first = head.origin[1] + 1
        entries, blobs = await read_own_entries(store, owner, run_id, first)
        if first + len(entries) <= head.last:
            raise DamagedStoreError(f"run {run_id!r}", f"its entry {first + len(entries)} is missing")
        check_payloads(run_id, entries, blobs)
    else:
        journal = await read_journal(store, owner, run_id)
        first, entries, blobs = 1, journal.packed, journal.blobs.held
        head = replace(journal.header, origin=None)
    head = replace(head, claim=None)
    named = {"owner": head.owner, "run_id": head.run_id}
    payloads = payloads_of(entries, blobs)
    packed = head.pack()
    yield {
        "type": "run", "format": _FORMAT, **named, "first": first, "last": first + len(entries) - 1,
        "payloads": len(payloads), "head": unpack(packed), "crc": packed[:8].decode(),
    }  # fmt: skip
    for number, value in enumerate(entries, first):
        entry = parse(value, f"entry {number} of run {run_id!r}")
        yield {"type": "entry", **named, "number": number, "entry": entry, "crc": value[:8].decode()}
    for name, data in sorted(payloads.items()):  # a sealed store has them in any order
        yield {"type": "payload", **named, "name": name, "data": base64.b64encode(data).decode()}


async def import_runs(store: Store, records: Iterable[_Record]) -> int:
    """Keep what `export_runs` gave, without loss. Runs that are there already are left as they are. Gives how many were new.

    Raises:
        ValueError: a record is not one of an export, or something is missing or changed; nothing is kept.
        StoreError: the store cannot be read or written.
    """
    runs: dict[tuple[str, str], _Brought] = {}
    for number, record in enumerate(records, start=1):
        try:
            _take(runs, record)
        except (KeyError, TypeError, AttributeError, ValueError, DamagedStoreError) as error:
            reason = str(error) if type(error) is ValueError else "it lacks something, or something in it was changed"
            raise ValueError(
                f"record {number} is not one of an export of runs: {reason}; nothing was imported"
            ) from None
    for brought in runs.values():
        brought.check(runs)
    new = set[tuple[str, str]]()
    # Origins first: what a run has of its origin ends before what a fork of it has.
    for brought in sorted(runs.values(), key=lambda each: 0 if each.head.origin is None else each.head.origin[1]):
        if await _put(store, brought, runs, new):
            new.add((brought.head.owner, brought.head.run_id))
    for owner in {owner for owner, _ in new}:
        await restore_threads(store, owner, {run_id for whose, run_id in new if whose == owner})
    return len(new)


@dataclass(slots=True)
class _Brought:
    """A run of an export."""

    head: RunHeader
    first: int
    last: int
    count: int
    """Of its payloads."""
    entries: dict[int, bytes] = field(default_factory=dict[int, bytes])
    payloads: dict[str, bytes] = field(default_factory=dict[str, bytes])

    def check(self, runs: Mapping[tuple[str, str], _Brought]) -> None:
        """See that it is whole.

        Raises:
            ValueError: it is not.
        """
        named = f"the export of run {self.head.run_id!r}"
        for number in range(self.first, self.last + 1):
            if number not in self.entries:
                raise ValueError(f"{named} lacks entry {number}; nothing was imported")
        if len(self.payloads) != self.count:
            raise ValueError(f"{named} lacks a payload; nothing was imported")
        if self.head.origin is not None and self.line(runs)[-1].first != 1:
            raise ValueError(f"{named} lacks the run that it was forked from; nothing was imported")

    def line(self, runs: Mapping[tuple[str, str], _Brought]) -> list[_Brought]:
        """Return the run and those from which it was forked, as far as the export has them, itself first."""
        found: list[_Brought] = [self]
        seen = {self.head.run_id}
        while (origin := found[-1].head.origin) is not None:
            above = runs.get((self.head.owner, origin[0]))
            if above is None or origin[0] in seen or not above.first <= origin[1] <= above.last:
                break
            seen.add(origin[0])
            found.append(above)
        return found

    def until(self, number: int, runs: Mapping[tuple[str, str], _Brought]) -> tuple[list[bytes], dict[str, bytes]]:
        """Return its entries from the first on, with those of its origins, and the payloads to which they refer."""
        entries: list[bytes] = []
        payloads: dict[str, bytes] = {}
        line = self.line(runs)
        for place, each in enumerate(line):
            below = line[place - 1].head.origin if place else None
            last = number if below is None else min(number, below[1])
            own = [each.entries[n] for n in range(each.first, last + 1)]
            entries = own + entries
            payloads |= payloads_of(own, each.payloads)
        return entries, payloads


def _take(runs: dict[tuple[str, str], _Brought], record: _Record) -> None:
    """Take up a record.

    Raises:
        ValueError: it is none, or comes twice.
    """
    if not isinstance(record, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ValueError("it is no JSON object")  # noqa: TRY004  wrong input, as all else here
    data = cast("Mapping[str, Any]", record)
    place, kind = (data["owner"], data["run_id"]), data["type"]
    if kind == "run":
        if data["format"] != _FORMAT:
            raise ValueError("it is of a format that is not known here")
        head = RunHeader.unpack(_packed(data, "head"), place[1])
        if (head.owner, head.run_id) != place or head.claim is not None or place in runs or not _is_sound(head):
            raise ValueError("it speaks of another run, or comes twice")
        brought = _Brought(head, data["first"], data["last"], data["payloads"])
        if brought.first != (1 if head.origin is None else head.origin[1] + 1) or brought.last < max(head.last, 1):
            raise ValueError("it does not say which entries there are")
        runs[place] = brought
        return
    held = runs.get(place)
    if held is None:
        raise ValueError("its run was not named before it")
    if kind == "entry":
        number = data["number"]
        if type(number) is not int or not held.first <= number <= held.last or number in held.entries:
            raise ValueError("it is an entry that its run does not have, or comes twice")
        if type(data["entry"]["t"]) is not str or type(data["entry"]["at"]) is not int:
            raise ValueError("its entry is none")
        held.entries[number] = _packed(data, "entry")
    elif kind == "payload":
        payload = base64.b64decode(data["data"], validate=True)
        if hash_of(payload) != data["name"]:
            raise ValueError("its payload was changed")
        held.payloads[data["name"]] = payload
    else:
        raise ValueError("it is of a type that is not known here")


def _packed(data: Mapping[str, Any], name: str) -> bytes:
    if not isinstance(data[name], dict):
        raise ValueError(f"its {name} is no JSON object")  # noqa: TRY004  wrong input, as all else here
    value = pack(data[name], name)
    if value[:8].decode() != data["crc"]:
        raise ValueError(f"its {name} was changed")
    return value


def _is_sound(head: RunHeader) -> bool:
    """Tell whether what a head says is of the right types."""
    said: dict[str, Any] = vars(head)
    if not said.keys() <= {each.name for each in fields(RunHeader)}:
        return False
    texts = ("run_id", "owner", "strategy", "strategy_digest", "status", "reason", "title", "cost", "parent", "thread")
    numbers = ("started", "updated", "first", "last", "turns", "tokens")
    origin: Any = said.get("origin")
    try:
        Decimal(said.get("cost", "0"))
    except InvalidOperation:
        return False
    return (
        all(isinstance(said.get(name, ""), str) for name in texts)
        and all(type(said.get(name, 0)) is int for name in numbers)
        and isinstance(said.get("seconds", 0.0), int | float)
        and (origin is None or (isinstance(origin[0], str) and type(origin[1]) is int and origin[1] > 0))
    )


async def _put(
    store: Store, brought: _Brought, runs: Mapping[tuple[str, str], _Brought], new: Collection[tuple[str, str]]
) -> bool:
    """Store a run, unless it exists already. `new` are those that were stored before it."""
    head = brought.head
    if await store.get(head_key(head.owner, head.run_id)) is not None:
        return False
    first, entries = brought.first, [brought.entries[number] for number in range(brought.first, brought.last + 1)]
    payloads = brought.payloads
    is_new = head.origin is not None and (head.owner, head.origin[0]) in new
    if not is_new and not await _is_there(store, brought, runs):
        entries, payloads = brought.until(brought.last, runs)
        payloads |= brought.payloads
        first, head = 1, replace(head, origin=None)
    key = entries_key(head.owner, head.run_id)
    changes: list[Change] = [
        Put((*key, number), value, expected=0) for number, value in enumerate(entries, start=first)
    ]
    changes += [Put((*key, name), value) for name, value in payloads.items()]
    if head.origin is not None:
        origin = head.origin[0]
        changes += [Exists(head_key(head.owner, origin)), Put(forks_key(head.owner, origin), b"")]
    try:
        await store.commit(*changes, Put(head_key(head.owner, head.run_id), head.pack(), expected=0))
    except ConflictError:
        if await store.get(head_key(head.owner, head.run_id)) is not None:
            return False  # someone else brought it meanwhile
        raise StoreError(
            f"entries of run {head.run_id!r} are there without it; graphagent runs forget removes them"
        ) from None
    return True


async def _is_there(store: Store, brought: _Brought, runs: Mapping[tuple[str, str], _Brought]) -> bool:
    """Tell whether the store has what a fork shares with its origin."""
    owner, origin = brought.head.owner, brought.head.origin
    if origin is None:
        return True
    try:
        there = await read_journal(store, owner, origin[0], until=origin[1])
    except (RunNotFoundError, DamagedStoreError):
        return False
    shared, _ = runs[owner, origin[0]].until(origin[1], runs)
    return there.packed == shared
