"""All notes of a store: saved, read and removed, together with the index and the vectors by which they are found.

The file is long because records, index and vectors change together, in the methods of one class.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from anyio import to_thread

from graphagent import _clock
from graphagent._concurrency import Gate, turn
from graphagent.errors import ConflictError, DamagedStoreError, StoreError
from graphagent.memory._byte_cache import ByteCache
from graphagent.memory._note_values import FormerNote, Record
from graphagent.memory.notes._validation import moment
from graphagent.memory.notes.index import _storage
from graphagent.memory.notes.index._backend import index_of
from graphagent.memory.notes.index._chunks import worded
from graphagent.memory.notes.index._embeddings import ATTEMPTS, OWNER_BYTES, Along, VectorStore, changes_of, version_of
from graphagent.memory.notes.index._engine import asked
from graphagent.memory.notes.index._index_sync import IndexSync
from graphagent.memory.notes.index._tables import expected
from graphagent.memory.notes.index._vector_bytes import PackedVectors
from graphagent.memory.notes.index._words import words_of_name
from graphagent.store import Delete, DeleteAll, Exists, Put
from graphagent.store._bulk import get_many
from graphagent.store._cache import cached_of
from graphagent.store._items import checked

if TYPE_CHECKING:
    from graphagent.memory._note_values import Filter
    from graphagent.memory.notes.index._storage import Pending
    from graphagent.memory.notes.index._tables import NoteTables
    from graphagent.memory.notes.index._vectors import NoteVectors
    from graphagent.protocols import Embedder, NoteIndex, Store
    from graphagent.store import Change

_MANY = 500
"""From how many notes on all notes of the owner are read in one scan."""
_OUTDATED = (("embedder",), ("generation",), ("changes",), ("begun",))
"""The keys of an owner's state of which another process may have made others since they were read."""
_NAME_BYTES = 100
"""About how much memory a name takes, besides its letters."""


class NoteRepository:
    """All notes of a store. All owners and views share one; it caches data of the owners used last, within `cache_bytes`."""

    def __init__(
        self,
        store: Store,
        embedder: Embedder | None,
        note_index: NoteIndex | None = None,
        on_progress: Callable[[int, int], object] | None = None,
        *,
        cache_bytes: int,
        late_interaction: bool,
    ) -> None:
        self.store = store
        self.embedder = embedder
        self.note_index = note_index
        """The search engine to ask instead of the tables; None if there is none."""
        self.backend = index_of(store, on_progress)
        self.vectors = VectorStore(store, self.backend, embedder, cache_bytes - cache_bytes // 16, late_interaction)
        self._sync = IndexSync(store, self.backend)
        self._loading = Gate()
        self._speakers: ByteCache[str, tuple[int, Mapping[str, Sequence[str]]]] = ByteCache(cache_bytes // 16)
        """The speakers of each owner's notes by the first words of their names, with the number of changes when they were read."""

    async def open(self) -> None:
        """Build the index if there is none."""
        await self._sync.open()

    async def catch_up(self, owner: str) -> int:
        """Bring the index up to date with changes of others. Return the number of the owner's changes."""
        return await self._sync.catch_up(owner)

    # Reading

    async def get(self, owner: str, id_: str) -> Record | None:
        """Return a note, or None."""
        item = await self.store.get(_storage.note_key(owner, id_))
        return None if item is None else _storage.unpack(item)

    async def get_many(self, owner: str, ids: Iterable[str]) -> dict[str, Record]:
        """Return notes by their ids, in the order of these; ids without a note are left out."""
        items = await get_many(self.store, [_storage.note_key(owner, id_) for id_ in ids])
        found: dict[str, Record] = {}
        for number, item in enumerate(items.values(), 1):
            await turn(number)
            record = _storage.unpack(item)
            found[record.id] = record
        return found

    async def all(self, owner: str) -> list[Record]:
        """Return all notes of an owner, in the order of their ids, which is mostly the order of saving."""
        return [_storage.unpack(item) async for item in self.store.scan(_storage.notes_key(owner))]

    async def find(self, owner: str, function: Callable[[NoteTables], Sequence[str]]) -> list[Record]:
        """Return the notes whose ids a function finds in the index, in the same order."""
        await self.catch_up(owner)
        ids = await self.backend.read(function)
        if len(ids) > _MANY:
            records = {record.id: record for record in await self.all(owner)}
            return [records[id_] for id_ in ids if id_ in records]
        return list((await self.get_many(owner, ids)).values())

    async def newest(self, fits: Filter, limit: int = -1, offset: int = 0) -> list[Record]:
        """Return the notes that fit, the newest first; all of them if the limit is below 0."""
        found: list[Record] = []
        if not fits.scopes:
            return found
        records = await self.find(fits.owner, lambda tables: tables.newest(fits, limit, offset))
        for number, record in enumerate(records, 1):
            await turn(number)
            if fits.matches(record):
                found.append(record)
        return found

    async def same(self, owner: str, numbers: Sequence[int]) -> list[Record]:
        """Return the notes that have one of these values of `sameness`, the oldest first."""
        return await self.find(owner, lambda tables: tables.same(owner, numbers))

    async def last_place(self, owner: str, session: str) -> int:
        """Return the place of the last turn of a conversation; 0 if there is none."""
        await self.catch_up(owner)
        return await self.backend.read(lambda tables: tables.last_place(owner, session))

    async def speakers(self, owner: str, changes: int) -> Mapping[str, Sequence[str]]:
        """Return the speakers in an owner's notes, of at most 10,000, by the first words of their names, as `words_of_name` has them.

        The index is up to date with so many changes of the owner.
        """
        cached = self._speakers.get(owner)
        if cached is not None and cached[0] == changes:
            return cached[1]
        names = await self.backend.read(lambda tables: tables.speakers(owner))
        found: dict[str, list[str]] = {}
        for name in names:
            for word in words_of_name(name)[:1]:
                found.setdefault(word, []).append(name)
        size = OWNER_BYTES + len(owner) + sum(_NAME_BYTES + len(name) for name in names)
        self._speakers.put(owner, (changes, found), size)
        return found

    async def owners(self) -> list[str]:
        """Return all owners that have notes, in alphabetical order."""
        found = {str(item.key[1]) async for item in self.store.scan((_storage.ROOM,)) if item.key[2] == _storage.NOTES}
        return sorted(found)

    async def history(self, owner: str, id_: str) -> list[FormerNote]:
        """Return the former versions of a note, the last first."""
        former = self.store.scan(_storage.history_key(owner, id_), reverse=True)
        return [_storage.unpack_former(item) async for item in former]

    async def pending(self, owner: str) -> list[Pending]:
        """Return the pending tasks of a model for notes, the oldest first."""
        prefix = (_storage.ROOM, owner, _storage.PENDING)
        found = [_storage.unpack_pending(item) async for item in self.store.scan(prefix)]
        return sorted(found, key=lambda each: each.id)

    async def vectors_of(self, owner: str, changes: int) -> NoteVectors | None:
        """Return the vectors of all notes; None if there are none. The index is up to date with so many changes of the owner."""
        while True:
            stamp = (changes, self._sync.edits(owner))
            found = self.vectors.loaded(owner, stamp)
            if found is not None:
                return found
            info = await self.vectors.checked_info(owner)
            if info is None:
                count = await self.backend.read(lambda tables: tables.count(owner))
                self.vectors.warn_missing(owner, count, count)
                return None
            if await self._loading.entered():
                try:
                    return await self.vectors.load(owner, info, stamp)
                finally:
                    self._loading.leave()

    # Consolidated notes

    async def retired(self, owner: str) -> list[Record]:
        """Return the notes that were consolidated into others, each in its last version."""
        last: dict[str, Record] = {}
        async for item in self.store.scan(_storage.histories_key(owner)):
            id_ = str(item.key[3])
            if id_ not in last or last[id_].version < int(item.key[4]):
                last[id_] = _storage.unpack_former(item).record
        stored = await get_many(self.store, [_storage.note_key(owner, id_) for id_ in last])
        return [record for id_, record in last.items() if _storage.note_key(owner, id_) not in stored]

    async def replacement(self, owner: str, id_: str) -> Record | None:
        """Return the note into which a note was consolidated, directly or through others; None if there is none."""
        passed: set[str] = set()
        while id_ not in passed:
            passed.add(id_)
            last = self.store.scan(_storage.history_key(owner, id_), limit=1, reverse=True)
            into = [_storage.replaced_by(item) async for item in last]
            if not into or into[0] is None:
                return None
            id_ = into[0]
            record = await self.get(owner, id_)
            if record is not None:
                return record
        return None

    async def _with_retired(self, owner: str, ids: Sequence[str]) -> list[str]:
        """Return ids with those of the notes that were consolidated into these, directly or through others."""
        former = [(str(item.key[3]), into) async for item in self.store.scan(_storage.histories_key(owner))
                  if (into := _storage.replaced_by(item))]  # fmt: skip
        stored = await get_many(self.store, [_storage.note_key(owner, id_) for id_, _ in former])
        taken: dict[str, list[str]] = {}
        for id_, into in former:
            if _storage.note_key(owner, id_) not in stored:
                taken.setdefault(into, []).append(id_)
        found = dict.fromkeys(ids)
        left = list(ids)
        while left:
            more = [id_ for id_ in taken.get(left.pop(), ()) if id_ not in found]
            found.update(dict.fromkeys(more))
            left += more
        return list(found)

    # Changing

    async def add(
        self,
        owner: str,
        records: Sequence[Record],
        *,
        pending: Sequence[Pending | None] = (),
        former: Mapping[str, Sequence[FormerNote]] | None = None,
        also: Sequence[Change] = (),
        report: Callable[[int], object] = lambda done: None,
    ) -> None:
        """Save new notes, all or none.

        Args:
            owner: The owner.
            records: The notes.
            pending: The tasks of a model for each of them.
            former: The former versions of some by their ids, the first first.
            also: Changes to commit with them.
            report: Called with how many have their vectors.

        Raises:
            ConflictError: a note with one of these ids exists.
            EmbedderError: their vectors could not be made.
        """
        changes: list[Change] = [*also]
        added: list[Record] = []
        for number, record in enumerate(records, 1):
            await turn(number)
            before = (former or {}).get(record.id, ())
            for version, each in enumerate(before, 1):
                was, old = _storage.pack_former(each), _storage.pack(each.record)
                changes.append(Put(_storage.note_key(owner, record.id), old, expected=version - 1))
                changes.append(Put((*_storage.history_key(owner, record.id), version), was))
            changes.append(Put(_storage.note_key(owner, record.id), _storage.pack(record), expected=len(before)))
            added.append(record if record.version == len(before) + 1 else replace(record, version=len(before) + 1))
        changes += [
            Put(_storage.pending_key(owner, record.id), _storage.pack_pending(each))
            for record, each in zip(records, pending, strict=False)
            if each is not None
        ]
        await self._change(owner, changes, add=added, report=report)

    async def replace(
        self, owner: str, old: Record, new: Record, action: str, *, settled: bool = False, also: Sequence[Change] = ()
    ) -> Record:
        """Change a note if it is still the old one, keep that in its history, and return the note as it is saved.

        With `settled`, nothing is left to infer about it. `also` are changes to commit with it.

        Raises:
            ConflictError: it was changed meanwhile.
            EmbedderError: its vectors could not be made.
        """
        changes: list[Change] = [
            Put(_storage.note_key(owner, new.id), _storage.pack(new), expected=old.version),
            _former(owner, FormerNote(old, action, moment(_clock.now()))),
            *also,
        ]
        if settled:
            changes.append(Delete(_storage.pending_key(owner, new.id)))
        saved = replace(new, version=old.version + 1)
        await self._change(owner, changes, add=[saved], keep_vectors=old.content == new.content)
        return saved

    async def retire(self, owner: str, record: Record, action: str, into: str) -> None:
        """Remove a note that is consolidated into another one. It stays in the history until the other one is forgotten.

        Raises:
            ConflictError: it was changed meanwhile.
        """
        changes = [
            Delete(_storage.note_key(owner, record.id), expected=record.version),
            _former(owner, FormerNote(record, action, moment(_clock.now()), into)),
            Delete(_storage.pending_key(owner, record.id)),
            *await self.vectors.removed(owner, [record.id]),
        ]
        await self._change(owner, changes, remove=[record.id])

    async def restore(self, owner: str, record: Record) -> Record:
        """Save a note again that was consolidated into another one, with the version after its last one.

        Raises:
            ConflictError: a note with its id exists.
            EmbedderError: its vectors could not be made.
        """
        # The store counts the versions of a deleted item from 1 again, so the item is put once for each former version.
        data = _storage.pack(record)
        puts = [Put(_storage.note_key(owner, record.id), data, expected=before) for before in range(record.version + 1)]
        saved = replace(record, version=record.version + 1)
        await self._change(owner, puts, add=[saved])
        return saved

    async def forget(self, owner: str, ids: Sequence[str]) -> None:
        """Erase notes, with their vectors, history and words, and the notes that were consolidated into them.

        With the last note of an owner, all rows that have the owner's name are erased, except rows that say from which runs notes
        were learned: a run that is asked for again must not bring them back.
        """
        ids = await self._with_retired(owner, ids)
        changes = [*await self.vectors.forgotten(owner, ids), DeleteAll(cached_of(owner))]  # which may repeat them
        for number, id_ in enumerate(ids, 1):
            await turn(number)
            changes += [
                DeleteAll(_storage.note_key(owner, id_)),
                DeleteAll(_storage.history_key(owner, id_)),
                DeleteAll(_storage.pending_key(owner, id_)),
            ]
        await self._change(owner, changes, remove=ids, erase=True)

    async def forget_owner(self, owner: str, also: Sequence[Change]) -> None:
        """Erase all that the store has of an owner's notes, and make other changes in the same commit."""
        await self.open()
        while True:
            before = version_of(await changes_of(self.store, owner))
            ids = [str(item.key[3]) async for item in self.store.scan(_storage.notes_key(owner))]
            changes = [
                Delete(_storage.changes_key(owner), expected=before), DeleteAll(_storage.room_of(owner)), *also
            ]  # fmt: skip
            try:
                await self._sync.commit(owner, changes, partial(_erased, owner, ids), (), ids, erase=True)
            except ConflictError as error:
                if error.key != _storage.changes_key(owner):
                    raise
                continue  # notes were changed meanwhile
            break
        self._speakers.take(owner)
        self.vectors.unload(owner)
        if self.note_index is not None and ids:
            await asked(self.note_index, "remove", lambda index: index.remove(owner, ids))

    async def settle(self, owner: str, id_: str) -> None:
        """Record that nothing is left to infer about a note."""
        await self.store.commit(Delete(_storage.pending_key(owner, id_)))

    async def _change(
        self,
        owner: str,
        changes: Sequence[Change],
        *,
        add: Sequence[Record] = (),
        remove: Sequence[str] = (),
        keep_vectors: bool = False,
        erase: bool = False,
        report: Callable[[int], object] = lambda done: None,
    ) -> None:
        """Commit changes of notes, with those of the index and of the vectors that follow from the notes added and removed."""
        await self.open()
        vectors, dimensions = list[PackedVectors](), 0
        if self.embedder is not None and add and not keep_vectors:
            vectors, dimensions = await self.vectors.vectors_for(owner, add, report)

        def along(with_vectors: Along, tables: NoteTables) -> None:
            tables.remove(owner, remove)
            tables.add((record, worded(record)) for record in add)
            with_vectors(tables)
            if erase:
                tables.purge()

        begun = True
        for attempt in range(1, ATTEMPTS + 1):
            of_vectors: list[Change] = []
            with_vectors: Along = _nothing
            if vectors:
                of_vectors, with_vectors = await self.vectors.added(owner, add, vectors, dimensions)
            elif add and not keep_vectors:  # without an embedder, the vectors of the former text must not stay
                of_vectors = await self.vectors.removed(owner, [record.id for record in add])
            counting = await self._left_by(owner, remove) if erase else _counting(owner, begun=begun)
            try:
                every = [*changes, *of_vectors, *counting]
                await self._sync.commit(owner, every, partial(along, with_vectors), add, remove, erase=erase)
            except ConflictError as error:
                # Another process began or completed a generation of vectors, or changed notes: the read data are outdated.
                if attempt == ATTEMPTS or error.key[3:4] not in _OUTDATED:
                    raise
                begun ^= error.key[3] == "begun"
            else:
                break
        if self.note_index is not None:
            if remove:
                await asked(self.note_index, "remove", lambda index: index.remove(owner, remove))
            if add:
                await asked(self.note_index, "add", lambda index: index.add(add))

    async def _left_by(self, owner: str, ids: Sequence[str]) -> list[Change]:
        """Return the changes that count the removal of notes, or, if no other is left, erase the items that all have in common."""
        before, gone = version_of(await changes_of(self.store, owner)), set(ids)
        first = self.store.scan(_storage.notes_key(owner), limit=len(gone) + 1)
        if {str(item.key[3]) async for item in first} - gone:
            return [Put(_storage.changes_key(owner), b"")]
        # No note may be added between seeing that none is left and this.
        return [
            Delete(_storage.changes_key(owner), expected=before),
            *map(DeleteAll, _storage.left_behind(owner)),
        ]

    # Rebuilding and verifying

    async def reindex(self, owner: str) -> int:
        """Build the index again, and add an owner's notes to a search engine of its own. Return the number of these notes."""
        await self._sync.rebuild()
        self._speakers.clear()
        records = await self.all(owner)
        if self.note_index is not None:
            await asked(self.note_index, "add", lambda index: index.add(records))
        return len(records)

    async def reembed(self, owner: str, on_progress: Callable[[int, int], object]) -> int:
        """Make the vectors of all notes of an owner anew, as `VectorStore.reembed` does. Return the number of these notes.

        Raises:
            EmbedderError: no embedder is given, or it failed.
        """
        await self.open()
        return await self.vectors.reembed(owner, on_progress)

    async def verify(self, owner: str) -> int:
        """Read all notes of an owner, and check that the index fits them. Return their number.

        Raises:
            DamagedStoreError: it does not, or the store is damaged.
        """
        verify: Callable[[], Awaitable[int]] | None = getattr(self.store, "verify", None)
        if verify is not None:
            try:
                await verify()
            except DamagedStoreError:
                if self.backend.shared:  # the index may be all that is damaged, which reading it tells
                    await self.backend.read(lambda tables: tables.made())
                raise
        for _ in range(ATTEMPTS):
            changes = await self.catch_up(owner)
            records = {record.id: record for record in await self.all(owner)}
            indexed = await self.backend.read(lambda tables: tables.whole(owner))
            wrong = await to_thread.run_sync(_wrong, records, indexed) or await self.vectors.wrong(owner)
            if wrong is None:
                return len(records)
            if changes == await changes_of(self.store, owner):
                raise DamagedStoreError(
                    f"the index of note {wrong!r}",
                    "it is not what the notes say",
                    remedy="Make it anew: reindex().",
                )
        raise StoreError("the notes were changed all the time while they were verified; try it again")


def _counting(owner: str, *, begun: bool) -> list[Change]:
    """Return the changes that count a change of an owner's notes, of which there are some or, without `begun`, none so far."""
    key = _storage.begun_key(owner)
    return [
        Put(_storage.changes_key(owner), b""),
        Exists(key) if begun else Put(key, checked(os.urandom(8)), expected=0),
    ]


def _nothing(tables: NoteTables) -> None:
    """Do nothing."""


def _erased(owner: str, ids: Sequence[str], tables: NoteTables) -> None:
    """Erase notes from the index."""
    tables.remove(owner, ids)
    tables.purge()


def _wrong(records: Mapping[str, Record], indexed: Mapping[str, tuple[object, ...]]) -> str | None:
    """Return the id of a note that the index does not fit; None if it fits all."""
    for id_, record in records.items():
        if indexed.get(id_) != expected(record, len(worded(record))):
            return id_
    return next(iter(indexed.keys() - records.keys()), None)


def _former(owner: str, former: FormerNote) -> Put:
    record = former.record
    return Put((*_storage.history_key(owner, record.id), record.version), _storage.pack_former(former))
