"""All notes of a store: kept, found and removed, with the tables and the vectors by which they are found."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol, runtime_checkable

import orjson
from anyio import to_thread

from graphagent._concurrency import Gate, turn
from graphagent.errors import ConflictError, DamagedStoreError, StoreError
from graphagent.memory._byte_cache import Recent
from graphagent.memory.notes.index import _fts, _storage
from graphagent.memory.notes.index._backend import host_of
from graphagent.memory.notes.index._chunks import worded
from graphagent.memory.notes.index._embeddings import AGAIN, OWNER_BYTES, Embedding, Maker, changes_of
from graphagent.store import Delete, DeleteAll, Put

if TYPE_CHECKING:
    from graphagent.memory.notes._types import Record
    from graphagent.memory.notes.index._backend import Connection
    from graphagent.memory.notes.index._matrix import Floats, Matrix
    from graphagent.memory.notes.index._storage import Pending
    from graphagent.protocols import Embedder, NoteIndex, Store
    from graphagent.store import Change, Item

_MANY = 500
"""From how many notes on they are read together."""
_NAME_BYTES = 100
"""About what a name takes in memory, beside its letters."""


@runtime_checkable
class _Verifying(Protocol):
    async def verify(self) -> int: ...


@dataclass(slots=True)
class _Known:
    """What tables in memory have of an owner's notes."""

    changes: int = 0
    """How many changes there had been when they were made like the store."""
    own: int = 0
    """How many changes were made since, here, in the store and in the tables."""
    reading: int = 0
    """How often it was begun or ended to make them like the store."""
    busy: Counter[str] = field(default_factory=Counter[str])
    """The notes that are being changed here."""
    values: dict[str, int] = field(default_factory=dict[str, int])
    """Of each note, the hash of its bytes."""


class Book:
    """All notes of a store. One serves all owners and views, and holds what owners used last in memory, within `cache_bytes`."""

    def __init__(
        self,
        store: Store,
        embedder: Embedder | None,
        index: NoteIndex | None = None,
        on_progress: Callable[[int, int], object] | None = None,
        *,
        cache_bytes: int,
    ) -> None:
        self.store = store
        self.embedder = embedder
        self.index = index
        self.host = host_of(store, on_progress)
        self._embedding = Embedding(store, self.host, embedder, cache_bytes - cache_bytes // 16)
        self._opened = False
        self._opening, self._reading, self._filling = Gate(), Gate(), Gate()
        self._known: dict[str, _Known] = {}
        """Of each owner of notes, where the tables are in memory, which hold all owners; else none."""
        self._speakers: Recent[str, tuple[int, Sequence[str]]] = Recent(cache_bytes // 16)
        """Of each owner, with how many changes there had been when they were read."""

    # ---- opened, kept up to date

    async def open(self) -> None:
        """Make the tables where they are not there.

        Raises:
            StoreError: the store cannot be read.
        """
        while not self._opened:
            if await self._opening.entered():
                try:
                    await self.host.open(self._everything)
                    self._opened = True
                finally:
                    self._opening.leave()

    async def _everything(self) -> list[Record]:
        found: list[Record] = []
        async for item in self.store.scan((_storage.ROOM,)):
            if item.key[2] == _storage.NOTES:
                found.append(_storage.unpack(item))
            if self.host.shared:
                continue
            known = self._of(str(item.key[1]))
            if item.key[2:] == (_storage.STATE, "changes"):
                known.changes = (
                    item.version
                )  # it is read before the notes, so that no change is taken for one that was seen
            elif item.key[2] == _storage.NOTES:
                known.values[found[-1].id] = hash(item.value)
        return found

    def _of(self, owner: str) -> _Known:
        return self._known.setdefault(owner, _Known())

    async def catch_up(self, owner: str) -> int:
        """See what others changed, and give how many changes there were.

        Raises:
            StoreError: the store cannot be read.
        """
        await self.open()
        if self.host.shared or owner not in self._known:
            changes = await changes_of(self.store, owner)
            if self.host.shared or not changes:
                return changes
            await self.open()  # the tables may be made anew meanwhile
        known = self._of(owner)
        while True:
            changes = await changes_of(self.store, owner)
            if known.changes == changes:
                return changes
            if changes == known.changes + known.own:  # all that happened since happened here
                known.changes, known.own = changes, 0
            elif await self._reading.entered():
                try:
                    await self._read_again(owner, known)
                finally:
                    self._reading.leave()

    async def _read_again(self, owner: str, known: _Known) -> None:
        changes = await changes_of(self.store, owner)
        known.reading += 1
        try:
            values: dict[str, int] = {}
            changed: list[Record] = []
            async for item in self.store.scan(_storage.notes_key(owner)):
                id_ = str(item.key[3])
                values[id_] = hash(item.value)
                if known.values.get(id_) != values[id_]:
                    changed.append(_storage.unpack(item))

            def change(connection: Connection) -> None:
                gone = set(_fts.all_rows(connection, owner).values()) - values.keys()
                _fts.remove(connection, owner, gone)
                _fts.add(connection, ((record, worded(record)) for record in changed))

            await self.host.commit((), change)
            known.values, known.changes = values, changes
        finally:
            known.reading += 1
            known.own = (
                0  # what was changed here meanwhile may have been overwritten in the tables, and is read once more
            )

    # ---- read

    async def get(self, owner: str, id_: str) -> Record | None:
        """Give a note, or None."""
        item = await self.store.get(_storage.note_key(owner, id_))
        return None if item is None else _storage.unpack(item)

    async def ids(self, owner: str, function: Callable[[Connection], Sequence[str]]) -> list[Record]:
        """Give the notes whose ids a function finds in the tables."""
        await self.catch_up(owner)
        ids = await self.host.read(function)
        if len(ids) > _MANY:  # one by one would hold up whatever else there is to do
            records = {
                str(item.key[3]): _storage.unpack(item) async for item in self.store.scan(_storage.notes_key(owner))
            }
            return [records[id_] for id_ in ids if id_ in records]
        found: list[Record] = []
        for number, id_ in enumerate(ids, 1):
            await turn(number)
            record = await self.get(owner, id_)
            if record is not None:
                found.append(record)
        return found

    async def same(self, owner: str, numbers: Sequence[int]) -> list[Record]:
        """Give the notes that have one of these numbers, which notes share that are the same; the oldest first."""
        return await self.ids(owner, lambda connection: _fts.same(connection, owner, numbers))

    async def last_place(self, owner: str, session: str) -> int:
        """Give the place of the last turn of a conversation; 0 where there is none."""
        await self.catch_up(owner)
        return await self.host.read(lambda connection: _fts.last_place(connection, owner, session))

    async def speakers(self, owner: str) -> Sequence[str]:
        """Give who speaks in what an owner has.

        Raises:
            StoreError: the store cannot be read.
        """
        changes = await self.catch_up(owner)
        held = self._speakers.get(owner)
        if held is not None and held[0] == changes:
            return held[1]
        found = await self.host.read(lambda connection: _fts.speakers(connection, owner))
        size = OWNER_BYTES + len(owner) + sum(_NAME_BYTES + len(name) for name in found)
        self._speakers.put(owner, (changes, found), size)
        return found

    async def owners(self) -> list[str]:
        """Return all owners that have notes, in alphabetical order.

        Raises:
            StoreError: the store cannot be read.
        """
        found = {str(item.key[1]) async for item in self.store.scan((_storage.ROOM,)) if item.key[2] == _storage.NOTES}
        return sorted(found)

    async def history(self, owner: str, id_: str) -> list[tuple[Record, str]]:
        """Give what a note was before each change, the last first, each with what was done then."""
        return [_past(item, owner) async for item in self.store.scan(_storage.history_key(owner, id_), reverse=True)]

    async def pending(self, owner: str) -> list[Pending]:
        """Give what a model is still to do for notes, the oldest first."""
        prefix = (_storage.ROOM, owner, _storage.PENDING)
        return sorted(
            [_storage.unpack_pending(item) async for item in self.store.scan(prefix)], key=lambda each: each.id
        )

    # ---- changed

    async def add(
        self,
        owner: str,
        records: Sequence[Record],
        *,
        pending: Sequence[Pending | None] = (),
        past: Mapping[str, Sequence[tuple[Record, str]]] | None = None,
        beside: Sequence[Change] = (),
        tell: Callable[[int], object] = lambda done: None,
    ) -> None:
        """Keep new notes, all or none, with what is still to be inferred of each, and what some were before, the first first.

        `tell` is called with how many have their vectors.

        Raises:
            ConflictError: there is a note with such an id.
            EmbedderError: their vectors could not be made.
            StoreError: they could not be kept.
        """
        changes: list[Change] = [*beside]
        added: list[Record] = []
        for number, record in enumerate(records, 1):
            await turn(number)
            before = (past or {}).get(record.id, ())
            for version, (old, action) in enumerate(before, 1):
                was = orjson.dumps({"record": _storage.to_json(old), "action": action})
                changes.append(Put(_storage.note_key(owner, record.id), _storage.pack(old), expected=version - 1))
                changes.append(Put((*_storage.history_key(owner, record.id), version), was))
            changes.append(Put(_storage.note_key(owner, record.id), _storage.pack(record), expected=len(before)))
            added.append(record if record.version == len(before) + 1 else replace(record, version=len(before) + 1))
        changes += [
            Put(_storage.pending_key(owner, record.id), _storage.pack_pending(each))
            for record, each in zip(records, pending, strict=False)
            if each is not None
        ]
        await self._change(owner, changes, add=added, tell=tell)

    async def replace(
        self, owner: str, old: Record, new: Record, action: str, *, settled: bool = False, beside: Sequence[Change] = ()
    ) -> Record:
        """Change a note, provided that it is what it was, and keep what it was. Gives the note as it is kept now.

        Raises:
            ConflictError: it was changed meanwhile.
            EmbedderError: its vectors could not be made.
            StoreError: it could not be kept.
        """
        before = orjson.dumps({"record": _storage.to_json(old), "action": action})
        changes: list[Change] = [
            Put(_storage.note_key(owner, new.id), _storage.pack(new), expected=old.version),
            Put((*_storage.history_key(owner, old.id), old.version), before),
            *beside,
        ]
        if settled:
            changes.append(Delete(_storage.pending_key(owner, new.id)))
        kept = replace(new, version=old.version + 1)
        await self._change(owner, changes, add=[kept], same=old.content == new.content)
        return kept

    async def retire(self, owner: str, record: Record, action: str, into: str) -> None:
        """Take a note away for another one, and keep what it was in its history, until the other one is forgotten.

        Raises:
            ConflictError: it was changed meanwhile.
            StoreError: it could not be done.
        """
        changes = [*_retiring(owner, record, action, into), *await self._embedding.dropped(owner, [record.id])]
        await self._change(owner, changes, remove=[record.id])

    async def restore(self, owner: str, record: Record) -> Record:
        """Give back a note that was taken away, as it was, behind all versions of it that there were.

        Raises:
            ConflictError: there is a note with its id.
            EmbedderError: its vectors could not be made.
            StoreError: it could not be kept.
        """
        data = _storage.pack(record)
        puts = [Put(_storage.note_key(owner, record.id), data, expected=before) for before in range(record.version + 1)]
        kept = replace(record, version=record.version + 1)
        await self._change(owner, puts, add=[kept])
        return kept

    async def retired(self, owner: str) -> list[Record]:
        """Give the notes that were taken away, each as it was last."""
        found: dict[str, Record] = {}
        async for item in self.store.scan(_storage.histories_key(owner)):
            id_ = str(item.key[3])
            if id_ not in found or found[id_].version < int(item.key[4]):
                found[id_] = _past(item, owner)[0]
        return [record for id_, record in found.items() if await self.store.get(_storage.note_key(owner, id_)) is None]

    async def instead(self, owner: str, id_: str) -> Record | None:
        """Give the note that is there for one that was taken away, at once or in the end; None where there is none."""
        passed: set[str] = set()
        while id_ not in passed:
            passed.add(id_)
            last = self.store.scan(_storage.history_key(owner, id_), limit=1, reverse=True)
            into = [orjson.loads(item.value).get("into") async for item in last]
            if not into or into[0] is None:
                return None
            id_ = str(into[0])
            record = await self.get(owner, id_)
            if record is not None:
                return record
        return None

    async def forget(self, owner: str, ids: Sequence[str]) -> None:
        """Remove notes for good, with their vectors, history and words.

        Raises:
            NotErasedError: it is done, but bytes of it may still be on the disk.
            StoreError: it could not be done.
        """
        ids = await self._with_retired(owner, ids)
        changes = await self._embedding.forgotten(owner, ids)
        for number, id_ in enumerate(ids, 1):
            await turn(number)
            changes += [
                DeleteAll(_storage.note_key(owner, id_)),
                DeleteAll(_storage.history_key(owner, id_)),
                DeleteAll(_storage.pending_key(owner, id_)),
            ]
        await self._change(owner, changes, remove=ids, purge=True)

    async def _with_retired(self, owner: str, ids: Sequence[str]) -> list[str]:
        """Give notes with those that were taken away for them, which said the same."""
        taken: dict[str, list[str]] = {}
        async for item in self.store.scan(_storage.histories_key(owner)):
            id_, into = str(item.key[3]), orjson.loads(item.value).get("into")
            if into and await self.store.get(_storage.note_key(owner, id_)) is None:
                taken.setdefault(into, []).append(id_)
        found = dict.fromkeys(ids)
        left = list(ids)
        while left:
            more = [id_ for id_ in taken.get(left.pop(), ()) if id_ not in found]
            found.update(dict.fromkeys(more))
            left += more
        return list(found)

    async def settled(self, owner: str, id_: str) -> None:
        """Note that nothing more is to be inferred of a note."""
        await self.store.commit(Delete(_storage.pending_key(owner, id_)))

    async def _change(
        self,
        owner: str,
        changes: Sequence[Change],
        *,
        add: Sequence[Record] = (),
        remove: Sequence[str] = (),
        same: bool = False,
        purge: bool = False,
        tell: Callable[[int], object] = lambda done: None,
    ) -> None:
        """Make changes in the store, the tables and the vectors. With `same`, the vectors of what is added are there already."""
        await self.open()
        vectors: list[bytes] = []
        dimensions = 0
        if self.embedder is not None and add and not same:
            maker = await self._embedding.fitting_maker(owner)
            vectors, dimensions = await self._embedding.packed(add, maker.dimensions if maker is not None else 0, tell)

        def along(connection: Connection) -> None:
            _fts.remove(connection, owner, remove)
            _fts.add(connection, ((record, worded(record)) for record in add))
            if purge:
                _fts.purge(connection)

        for again in range(AGAIN):
            expected: int | None = None
            if vectors:
                beside = await self._embedding.kept(owner, add, vectors, dimensions)
            elif purge:
                before = await changes_of(self.store, owner)
                beside = await self._embedding.released(owner, remove)
                expected = before if beside else None
            elif same or not add:
                beside = []
            else:  # who has no embedder leaves no vectors behind of what a note said before
                beside = await self._embedding.dropped(owner, [record.id for record in add])
            counted = Put(_storage.changes_key(owner), b"", expected=expected)
            try:
                await self._commit(owner, [*changes, *beside, counted], along, add, remove)
            except ConflictError as error:
                if again == AGAIN - 1 or error.key[3:4] not in (("embedder",), ("generation",), ("changes",)):
                    raise
            else:
                break
        if self.index is not None:
            if remove:
                await self.index.remove(owner, remove)
            if add:
                await self.index.add(add)

    async def _commit(
        self,
        owner: str,
        changes: Sequence[Change],
        along: Callable[[Connection], None],
        add: Sequence[Record],
        remove: Sequence[str],
    ) -> None:
        if self.host.shared:
            await self.host.commit(changes, along)
            return
        known, kept = self._of(owner), dict[str, int]()
        for number, record in enumerate(add, 1):
            await turn(number)
            kept[record.id] = hash(_storage.pack(record))
        ids = {*remove, *(record.id for record in add)}
        reading, making, alone = known.reading, self.host.making, known.busy.keys().isdisjoint(ids)
        known.busy.update(ids)
        try:
            await self.host.commit(changes, along)
        finally:
            alone = alone and all(known.busy[id_] == 1 for id_ in ids)
            known.busy.subtract(ids)
            known.busy = +known.busy
        for id_ in ids:
            known.values.pop(id_, None)
        same = making is not None and self.host.making is making
        if (
            alone and same and known.reading == reading
        ):  # else it may stand in the tables in another order than in the store
            known.own += 1
            known.values.update(kept)

    # ---- vectors

    async def maker(self, owner: str) -> Maker | None:
        """Give who made the vectors of an owner's notes; None where there are none."""
        return await self._embedding.maker(owner)

    async def fitting_maker(self, owner: str) -> Maker | None:
        """Give who made the vectors, who is the embedder of this book.

        Raises:
            EmbedderChangedError: it is another one.
        """
        return await self._embedding.fitting_maker(owner)

    async def embedded(self, texts: Sequence[str], dimensions: int = 0) -> Floats:
        """Give the vectors of texts, checked; `dimensions`: how many numbers each must have, where that is known.

        Raises:
            EmbedderError: the embedder failed, or gave something else than such a vector for each.
        """
        return await self._embedding.embedded(texts, dimensions)

    async def matrix(self, owner: str) -> Matrix | None:
        """Give the vectors of all notes as they are now; None where there are none.

        Raises:
            EmbedderChangedError: they were made by another embedder.
            StoreError: they cannot be read.
        """
        while True:
            changes = await self.catch_up(owner)
            matrix = self._embedding.filled(owner, changes)
            if matrix is not None:
                return matrix
            maker = await self._embedding.fitting_maker(owner)
            if maker is None:
                count = await self.host.read(lambda connection: _fts.count(connection, owner))
                self._embedding.tell_missing(owner, count, count)
                return None
            if await self._filling.entered():
                try:
                    return await self._embedding.fill(owner, maker, changes)
                finally:
                    self._filling.leave()

    def renumbered(self, owner: str) -> None:
        """Have the vectors of all notes read again, whose rows have other numbers since the tables were made anew."""
        self._embedding.empty(owner)

    async def reembed(self, owner: str, on_progress: Callable[[int, int], object]) -> int:
        """Make all vectors anew, as a generation of their own, which counts when it is whole. Gives of how many notes."""
        await self.open()
        return await self._embedding.reembed(owner, on_progress)

    async def reindex(self, owner: str) -> int:
        """Make the tables of all notes anew, and tell a search engine of its own of all of an owner's. Gives how many these are."""
        await self.open()
        await self.host.drop()
        self._opened = False
        self._known.clear()
        self._speakers.clear()
        await self.open()
        records = [_storage.unpack(item) async for item in self.store.scan(_storage.notes_key(owner))]
        if self.index is not None:
            await self.index.add(records)
        return len(records)

    # ---- checked

    async def verify(self, owner: str) -> int:
        """Read all notes, and see that the tables have each as it is. Gives how many there are.

        Raises:
            DamagedStoreError: they have not, or the store is damaged.
        """
        if isinstance(self.store, _Verifying):
            await self.store.verify()
        for _ in range(AGAIN):
            changes = await self.catch_up(owner)
            records = {
                str(item.key[3]): _storage.unpack(item) async for item in self.store.scan(_storage.notes_key(owner))
            }
            there = await self.host.read(lambda connection: _fts.whole(connection, owner))
            wrong = await to_thread.run_sync(_wrong, records, there)
            if wrong is None:
                return len(records)
            if changes == await changes_of(self.store, owner):
                raise DamagedStoreError(
                    f"the index of note {wrong!r}",
                    "it is not what the notes say",
                    remedy="Make it anew: reindex().",
                )
        raise StoreError("the notes were changed all the time while they were verified; try it again")


def _wrong(records: Mapping[str, Record], there: Mapping[str, tuple[object, ...]]) -> str | None:
    """Give the id of a note that the tables have otherwise than it is; None where there is none."""
    for id_, record in records.items():
        if there.get(id_) != _fts.told(record, len(worded(record))):
            return id_
    return next(iter(there.keys() - records.keys()), None)


def _retiring(owner: str, record: Record, action: str, into: str) -> list[Change]:
    before = orjson.dumps({"record": _storage.to_json(record), "action": action, "into": into})
    return [
        Delete(_storage.note_key(owner, record.id), expected=record.version),
        Put((*_storage.history_key(owner, record.id), record.version), before),
        Delete(_storage.pending_key(owner, record.id)),
    ]


def _past(item: Item, owner: str) -> tuple[Record, str]:
    try:
        data = orjson.loads(item.value)
        return _storage.from_json(data["record"], owner, int(item.key[4])), str(data["action"])
    except (ValueError, KeyError, TypeError):
        raise DamagedStoreError(f"the history of note {item.key[3]!r}", "it is not what was written") from None
