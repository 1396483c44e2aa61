"""The search index, kept in step with the store for changes of any process.

In a SqliteStore, each commit changes notes and index together. An index in memory is changed after each commit of this process, and
learns of those of others by the version of the item "changes", which each of them increments. Which notes these were of is said by an
item that each of them puts, so only these notes are read. If not all of the items are there, since they are of older builds, or were
removed because newer ones are many or notes were forgotten, all notes are read.
"""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from graphagent._concurrency import Gate, turn
from graphagent.memory.notes.index import _storage
from graphagent.memory.notes.index._chunks import worded
from graphagent.memory.notes.index._embeddings import changes_of, counted_as, version_of
from graphagent.store import Delete, DeleteAll, Put
from graphagent.store._bulk import get_many

if TYPE_CHECKING:
    from graphagent.memory._note_values import Record
    from graphagent.memory.notes.index._backend import IndexBackend
    from graphagent.memory.notes.index._tables import NoteTables
    from graphagent.protocols import Store
    from graphagent.store import Change, Item


_Row = tuple[int, int]
"""The place and the random number of an item that lists changes."""
_TOLD = 32
"""How many of the last changes of an owner say of which notes they were."""
_TRIES = 3
"""How often these are read while others go on."""


@dataclass(slots=True)
class _OwnerState:
    """The notes of an owner in an index in memory."""

    changes: int = 0
    """The number of the owner's changes when the index was last compared with the store."""
    own: int = 0
    """How many changes were made since by this process, in the store and in the index."""
    reading: int = 0
    """How often a comparison with the store began or ended."""
    edits: int = 0
    """How often rows of the owner were changed, which may give notes other rows although nothing has changed in the store."""
    busy: Counter[str] = field(default_factory=Counter[str])
    """The ids of notes that are being changed here."""
    values: dict[str, int] = field(default_factory=dict[str, int])
    """The hash of each note's bytes, by its id."""
    told: set[_Row] = field(default_factory=set["_Row"])
    """The last items of changes that the index has."""
    floor: _Row = (-1, -1)
    """The highest of such items that `told` has no more."""
    outdated: list[_Row] = field(default_factory=list["_Row"])
    """Some of these, which the next commit removes."""

    def shorten(self) -> None:
        """Keep the last items alone."""
        gone = sorted(self.told)[:-_TOLD]
        if gone:
            self.told.difference_update(gone)
            self.floor = max(self.floor, gone[-1])
            self.outdated = [*self.outdated, *gone][-_TOLD:]


class IndexSync:
    """Keeps the index of a store's notes up to date."""

    def __init__(self, store: Store, backend: IndexBackend) -> None:
        self._store = store
        self._backend = backend
        self._is_open = False
        self._opening, self._reading = Gate(), Gate()
        self._owners: dict[str, _OwnerState] = {}
        """The state of each owner with notes, if the index is in memory; else empty."""

    async def open(self) -> None:
        """Build the index if there is none."""
        while not self._is_open:
            if await self._opening.entered():
                try:
                    await self._backend.open(self._load)
                    self._is_open = True
                finally:
                    self._opening.leave()

    async def rebuild(self) -> None:
        """Build the index again."""
        await self.open()
        await self._backend.drop()
        self._is_open = False
        self._owners.clear()
        await self.open()

    async def _load(self) -> list[Record]:
        """Return the notes of all owners."""
        found: list[Record] = []
        async for item in self._store.scan((_storage.ROOM,)):
            if item.key[2] == _storage.NOTES:
                found.append(_storage.unpack(item))
            if self._backend.shared:
                continue
            state = self._of(str(item.key[1]))
            if item.key[2:] in ((_storage.STATE, "changes"), (_storage.STATE, "begun")):
                # These keys are read before those of the notes, so a change in between is noticed, and read again.
                state.changes += counted_as(item)
            elif item.key[2] == _storage.NOTES:
                state.values[found[-1].id] = hash(item.value)
            elif item.key[2] == _storage.CHANGED:
                state.told.add(_row(item))
        for state in self._owners.values():
            state.shorten()
        return found

    def _of(self, owner: str) -> _OwnerState:
        return self._owners.setdefault(owner, _OwnerState())

    async def catch_up(self, owner: str) -> int:
        """Bring the index up to date with what others changed. Return the number of the owner's changes."""
        await self.open()
        if self._backend.shared or owner not in self._owners:
            changes = await changes_of(self._store, owner)
            if self._backend.shared or not changes:
                return changes
            await self.open()  # another task may have had the index built again meanwhile
        state = self._of(owner)
        while True:
            changes = await changes_of(self._store, owner)
            if state.changes == changes:
                return changes
            if changes == state.changes + state.own:  # all changes since were made here, and are in the index
                state.changes, state.own = changes, 0
            elif await self._reading.entered():
                try:
                    await self._read_again(owner, state)
                finally:
                    self._reading.leave()

    async def _read_again(self, owner: str, state: _OwnerState) -> None:
        """Read what others changed: the notes that their changes name, or all."""
        state.reading += 1
        before = replace(state, told=set(state.told))
        try:
            changes, told, ids = await self._told(owner, before)
            prefix = _storage.notes_key(owner)
            if ids is None:
                items = [item async for item in self._store.scan(prefix)]
                gone = state.values.keys() - {str(item.key[3]) for item in items}
            else:
                items = list((await get_many(self._store, [(*prefix, id_) for id_ in ids])).values())
                gone = ids - {str(item.key[3]) for item in items}
            values, changed = dict[str, int](), list["Record"]()
            for number, item in enumerate(items, 1):
                await turn(number)
                id_ = str(item.key[3])
                values[id_] = hash(item.value)
                if state.values.get(id_) != values[id_]:
                    changed.append(_storage.unpack(item))

            def change(tables: NoteTables) -> None:
                more = set(tables.all_rows(owner).values()) - values.keys() if ids is None else set[str]()
                tables.remove(owner, gone | more)
                tables.add((record, worded(record)) for record in changed)

            await self._backend.commit((), change)
            if ids is None:
                state.values = values
            else:
                state.values = {id_: value for id_, value in state.values.items() if id_ not in gone} | values
            state.changes = changes
            state.told = before.told | told
            state.shorten()
        finally:
            state.reading += 1
            state.edits += 1
            # What this process changed meanwhile may have been overwritten in the index by older data; it is read once more.
            state.own = 0

    async def _told(self, owner: str, before: _OwnerState) -> tuple[int, set[_Row], set[str] | None]:
        """Return the number of the owner's changes, which items say so of those that are missing, and the ids of the notes.

        The ids are None if a change lacks such an item, or if an item is about too many notes.
        """
        for tries_left in reversed(range(_TRIES)):
            changes = await changes_of(self._store, owner)
            missing = changes - before.changes - before.own
            told, ids = set[_Row](), set[str]()
            is_named = tries_left > 0 and missing <= _TOLD
            async for item in self._store.scan(_storage.changed_key(owner), reverse=True):
                row = _row(item)
                if row <= before.floor or (is_named and len(told) == missing):
                    break
                if row not in before.told:
                    told.add(row)
                    named = _storage.unpack_changed(item)
                    is_named = is_named and named is not None
                    ids.update(named or ())
            if not is_named or len(told) != missing:
                return changes, told, None
            # Only if nobody made a change since, these are the items of the changes that are missing, and not of later ones.
            if changes == await changes_of(self._store, owner):
                return changes, told, ids
        raise AssertionError("the last try is of all notes")

    def edits(self, owner: str) -> int:
        """Return how often the rows of an owner were changed in an index in memory; 0 for one that is in the file."""
        return self._owners[owner].edits if owner in self._owners else 0

    async def commit(
        self,
        owner: str,
        changes: Sequence[Change],
        along: Callable[[NoteTables], None],
        add: Sequence[Record],
        remove: Sequence[str],
        *,
        erase: bool = False,
    ) -> None:
        """Commit changes to the store, and those that `along` makes in the index, which add and remove these notes, or erase them.

        Raises:
            ConflictError: an item is not at its expected version; nothing is changed.
        """
        if self._backend.shared:
            await self._backend.commit(changes, along)
            return
        state, added = self._of(owner), dict[str, int]()
        row, outdated = (version_of(state.changes) + state.own, secrets.randbits(62)), state.outdated
        told: Change = Put(
            _storage.changed_key(owner, row), _storage.pack_changed({*remove, *(each.id for each in add)})
        )
        if erase:  # nothing may name what was forgotten
            told = DeleteAll(_storage.changed_key(owner))
        changes = [*changes, told, *(Delete(_storage.changed_key(owner, each)) for each in outdated if not erase)]
        for number, record in enumerate(add, 1):
            await turn(number)
            added[record.id] = hash(_storage.pack(record))
        ids = {*remove, *(record.id for record in add)}
        reading, built, alone = state.reading, self._backend.built, state.busy.keys().isdisjoint(ids)
        state.busy.update(ids)
        try:
            await self._backend.commit(changes, along)
        finally:
            alone = alone and all(state.busy[id_] == 1 for id_ in ids)
            state.edits += 1
            state.busy.subtract(ids)
            state.busy = +state.busy
        state.outdated = [each for each in state.outdated if each not in outdated]
        for id_ in ids:
            state.values.pop(id_, None)
        # If anything else changed these notes or the index meanwhile, the index may have the changes in another order than the
        # store. Then they do not count as known here, and the next `catch_up` reads these notes again.
        if alone and built is not None and self._backend.built is built and state.reading == reading:
            state.own += 1
            state.values.update(added)
            if not erase:
                state.told.add(row)
                state.shorten()


def _row(item: Item) -> _Row:
    return int(item.key[3]), int(item.key[4])
