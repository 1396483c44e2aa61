"""The vectors of notes: who made them, kept with each note, and made anew by another embedder.

All vectors that are compared were made by one embedder, and are one generation. A generation has an item of its own as long as
vectors may be added to it, and whoever adds some says so in the commit: nothing is added to one that another has replaced.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING

import orjson
from anyio import to_thread

from graphagent._concurrency import turn
from graphagent.errors import (
    ConflictError,
    DamagedStoreError,
    EmbedderChangedError,
    EmbedderError,
    MissingExtraError,
    StoreError,
)
from graphagent.memory._byte_cache import Recent
from graphagent.memory.notes.index import _fts, _matrix, _storage
from graphagent.memory.notes.index._chunks import pieces
from graphagent.store import Delete, DeleteAll, Exists, Put

if TYPE_CHECKING:
    from graphagent.memory.notes._types import Record
    from graphagent.memory.notes.index._backend import Host
    from graphagent.memory.notes.index._matrix import Floats
    from graphagent.protocols import Embedder, Store
    from graphagent.store import Change

_log = logging.getLogger("graphagent")

AGAIN = 20
"""How often a change is tried whose notes others change meanwhile."""
_TOGETHER = 500
"""Notes whose vectors are made at once."""
OWNER_BYTES = 800
"""About what an owner takes of whom something is held in memory, beside that."""
_FEW, _INLINE = 64, 100_000
"""Notes and characters that are taken apart where they are; for more, another thread is worth its while."""


@dataclass(frozen=True, slots=True)
class Maker:
    """Who made the vectors of an owner's notes."""

    name: str
    dimensions: int
    generation: int
    version: int
    """Of the item that says so."""


@dataclass(slots=True)
class _Filled:
    """The vectors of an owner in memory."""

    matrix: _matrix.Matrix
    generation: int
    changes: int = -1
    """How many changes of the notes it has."""
    highest: int = 0
    """The highest row that was looked at."""
    looked: int = 0
    """How many rows were looked at, and were there."""


class Embedding:
    """The vectors of all notes of a store. Those of owners that were used last are held in memory, within `cache_bytes`."""

    def __init__(self, store: Store, host: Host, embedder: Embedder | None, cache_bytes: int) -> None:
        self.embedder = embedder
        self._store = store
        self._host = host
        told = cache_bytes // 16
        # The last one is held even if it is larger: else each question would read all vectors of that owner again.
        self._filled: Recent[str, _Filled] = Recent(cache_bytes - told, at_least=1)
        self._told: Recent[str, bool] = Recent(told, at_least=1)
        """The owners of whom it was said that notes have no vectors."""

    async def maker(self, owner: str) -> Maker | None:
        """Give who made the vectors of an owner's notes; None where there are none."""
        item = await self._store.get(_storage.embedder_key(owner))
        if item is None:
            return None
        try:
            data = orjson.loads(item.value)
            return Maker(str(data["name"]), int(data["dimensions"]), int(data["generation"]), item.version)
        except (ValueError, KeyError, TypeError):
            raise DamagedStoreError("who made the vectors of the notes", "it is not what was written") from None

    async def fitting_maker(self, owner: str) -> Maker | None:
        """Give who made the vectors, who is the embedder there is now.

        Raises:
            EmbedderChangedError: it is another one.
        """
        maker = await self.maker(owner)
        if maker is not None and self.embedder is not None and maker.name != self.embedder.name:
            raise EmbedderChangedError(self.embedder.name, maker.name, maker.dimensions)
        return maker

    async def embedded(self, texts: Sequence[str], dimensions: int = 0) -> Floats:
        """Give the vectors of texts, checked; `dimensions`: how many numbers each must have, where that is known.

        Raises:
            EmbedderError: the embedder failed, or gave something else than such a vector for each.
        """
        from graphagent.embed import checked

        assert self.embedder is not None
        name = self.embedder.name
        try:
            found = await checked(self.embedder, texts)
        except (EmbedderError, MissingExtraError):
            raise
        except Exception as error:
            raise EmbedderError(f"embedder {name!r} failed: {type(error).__name__}, which is its cause") from error
        if dimensions and len(found) and len(found[0]) != dimensions:
            raise EmbedderError(
                f"embedder {name!r} gave {len(found[0])} numbers for a text, and {dimensions} for those kept before: it is "
                "another model by now; give it a name of its own, then make the vectors anew: reembed()"
            )
        return found

    async def packed(
        self, records: Sequence[Record], dimensions: int = 0, tell: Callable[[int], object] = lambda done: None
    ) -> tuple[list[bytes], int]:
        """Give the vectors of notes, and of how many numbers each is; `dimensions` says it, where it is known already."""
        found: list[bytes] = []
        for start in range(0, len(records), _TOGETHER):
            some = records[start : start + _TOGETHER]
            is_much = len(some) > _FEW or sum(len(record.content) for record in some) > _INLINE
            texts = await to_thread.run_sync(_pieces, some) if is_much else _pieces(some)
            vectors = (await self.embedded([text for each in texts for text in each], dimensions)).astype("<f4")
            dimensions = len(vectors[0])
            place = 0
            for number, each in enumerate(texts, 1):
                await turn(number)
                found.append(vectors[place : place + len(each)].tobytes())
                place += len(each)
            tell(len(found))
        return found, dimensions

    async def kept(
        self, owner: str, records: Sequence[Record], vectors: Sequence[bytes], dimensions: int
    ) -> list[Change]:
        """Give the changes that keep the vectors of notes.

        Raises:
            EmbedderChangedError: those that there are were made by another embedder.
        """
        assert self.embedder is not None
        maker = await self.fitting_maker(owner)
        if maker is not None:
            generation = maker.generation
            changes: list[Change] = [Exists(_storage.generation_key(owner, generation))]
        else:
            generation = max(await self._generations(owner), default=0) + 1
            changes = [
                Put(_storage.embedder_key(owner), self._said(dimensions, generation), expected=0),
                Put(_storage.generation_key(owner, generation), b"", expected=0),
            ]
        for number, (record, data) in enumerate(zip(records, vectors, strict=True), 1):
            await turn(number)
            changes.append(Put(_storage.vectors_key(owner, generation, record.id), data))
        return changes

    async def dropped(self, owner: str, ids: Sequence[str]) -> list[Change]:
        """Give the changes that take the vectors of notes away."""
        generations = await self._generations(owner)
        return await _of_each(generations, ids, lambda each, id_: Delete(_storage.vectors_key(owner, each, id_)))

    async def forgotten(self, owner: str, ids: Sequence[str]) -> list[Change]:
        """Give the changes that take them away for good, also from the generation that someone may begin meanwhile."""
        generations = await self._generations(owner)
        generations.append(max(generations, default=0) + 1)
        return await _of_each(generations, ids, lambda each, id_: DeleteAll(_storage.vectors_key(owner, each, id_)))

    async def released(self, owner: str, ids: Sequence[str]) -> list[Change]:
        """Return the changes that remove who made the vectors, so that any embedder can make the next; none if other notes are left.

        They must be committed before another note is added.
        """
        maker = await self.maker(owner)
        if maker is None:
            return []
        gone = set(ids)
        first = self._store.scan(_storage.notes_key(owner), limit=len(gone) + 1)
        if {str(item.key[3]) async for item in first} - gone:
            return []
        return [
            Delete(_storage.embedder_key(owner), expected=maker.version),
            Delete(_storage.generation_key(owner, maker.generation)),
            DeleteAll(_storage.vectors_key(owner, maker.generation)),
        ]

    async def _generations(self, owner: str) -> list[int]:
        return [int(item.key[4]) async for item in self._store.scan(_storage.generation_key(owner))]

    def _said(self, dimensions: int, generation: int) -> bytes:
        assert self.embedder is not None
        return orjson.dumps({"name": self.embedder.name, "dimensions": dimensions, "generation": generation})

    # ---- made anew

    async def reembed(self, owner: str, on_progress: Callable[[int, int], object]) -> int:
        """Make all vectors anew, as a generation of their own, which counts when it is whole. Gives of how many notes."""
        if self.embedder is None:
            raise EmbedderError("there is no embedder to make vectors with; give Notes(…, embedder=…)")
        generation = await self._begun(owner)
        done: dict[str, int] = {}
        dimensions = 0
        for _ in range(AGAIN):
            try:
                maker = await self.maker(owner)
                changes = await changes_of(self._store, owner)
                records = [_storage.unpack(item) async for item in self._store.scan(_storage.notes_key(owner))]
                gone = done.keys() - {record.id for record in records}
                left = [record for record in records if done.get(record.id) != record.version]
                for start in range(0, len(left), _TOGETHER):
                    some = left[start : start + _TOGETHER]
                    vectors, dimensions = await self.packed(some, dimensions)
                    await self._store.commit(
                        Exists(_storage.generation_key(owner, generation)),
                        *(Exists(_storage.note_key(owner, record.id)) for record in some),
                        *(Put(_storage.vectors_key(owner, generation, record.id), data)
                          for record, data in zip(some, vectors, strict=True)),
                    )  # fmt: skip
                    done.update((record.id, record.version) for record in some)
                    on_progress(len(done), len(records))
                finish: list[Change] = [
                    Exists(_storage.generation_key(owner, generation)),
                    Put(_storage.changes_key(owner), b"", expected=changes),
                    *(Delete(_storage.vectors_key(owner, generation, id_)) for id_ in gone),
                ]
                if records:
                    said = self._said(dimensions, generation)
                    finish.append(Put(_storage.embedder_key(owner), said, expected=maker.version if maker else 0))
                elif maker is not None:
                    finish.append(Delete(_storage.embedder_key(owner), expected=maker.version))
                if maker is not None:
                    finish.append(Delete(_storage.generation_key(owner, maker.generation)))
                    finish.append(DeleteAll(_storage.vectors_key(owner, maker.generation)))
                await self._store.commit(*finish)
            except ConflictError:
                if await self._store.get(_storage.generation_key(owner, generation)) is None:
                    raise StoreError("the vectors are being made anew by another one too; wait for that") from None
            else:
                return len(records)
        raise StoreError("the notes were changed all the time while their vectors were made; try it again")

    async def _begun(self, owner: str) -> int:
        """Begin a generation, and remove those that others began and did not end."""
        while True:
            maker = await self.maker(owner)
            generations = await self._generations(owner)
            generation = max(generations, default=0) + 1
            begin: list[Change] = [Put(_storage.generation_key(owner, generation), b"", expected=0)]
            for each in generations:
                if maker is None or each != maker.generation:
                    begin += [
                        Delete(_storage.generation_key(owner, each)),
                        DeleteAll(_storage.vectors_key(owner, each)),
                    ]
            if maker is not None:
                begin.append(Exists(_storage.generation_key(owner, maker.generation)))
            try:
                await self._store.commit(*begin)
            except ConflictError:
                continue
            return generation

    # ---- held in memory

    def filled(self, owner: str, changes: int) -> _matrix.Matrix | None:
        """Return the vectors of all notes; None where those held do not have these changes, or none are held."""
        filled = self._filled.get(owner)
        return filled.matrix if filled is not None and filled.changes == changes else None

    def empty(self, owner: str) -> None:
        """Have all vectors read again."""
        self._filled.take(owner)

    async def fill(self, owner: str, maker: Maker, changes: int) -> _matrix.Matrix:
        """Read the vectors of what is new, remove those of what is gone, and return all."""
        filled = self._filled.get(owner)
        made = await self._host.read(_fts.made)
        same = filled is not None and (filled.generation, filled.matrix.dimensions) == (
            maker.generation,
            maker.dimensions,
        )
        if filled is None or not same or filled.matrix.made != made:
            filled = _Filled(_matrix.Matrix(maker.dimensions, made), maker.generation)
        matrix, highest = (
            copy(filled.matrix),
            filled.highest,
        )  # the other one may be searched, and is kept if this fails
        new, count = await self._host.read(lambda connection: _fts.since(connection, owner, highest))
        if count - len(new) != filled.looked:  # no row comes to those that were looked at: some are gone
            there = await self._host.read(lambda connection: _fts.all_rows(connection, owner))
            matrix.remove(set(matrix.rows.tolist()) - there.keys())
        vectors = await self._read(owner, maker.generation, new)
        await to_thread.run_sync(matrix.add, vectors) if len(new) > _TOGETHER else matrix.add(vectors)
        highest = new[-1][0] if new else highest
        self.tell_missing(owner, count - matrix.notes, count)
        filled = _Filled(matrix, maker.generation, changes, highest, count)
        self._filled.put(owner, filled, OWNER_BYTES + len(owner) + matrix.size)
        return matrix

    def tell_missing(self, owner: str, missing: int, of: int) -> None:
        """Say once that notes have no vectors."""
        if missing > 0 and not self._told.get(owner):
            self._told.put(owner, True, OWNER_BYTES + len(owner))
            _log.warning(
                "%d of %d notes have no vectors, so they are found by their words alone; make them: reembed()",
                missing,
                of,
            )

    async def _read(self, owner: str, generation: int, new: Sequence[tuple[int, str]]) -> list[tuple[int, str, bytes]]:
        if len(new) > _TOGETHER:
            rows = {id_: row for row, id_ in new}
            return sorted(
                [
                    (row, str(item.key[4]), item.value)
                    async for item in self._store.scan(_storage.vectors_key(owner, generation))
                    if (row := rows.get(str(item.key[4]))) is not None
                ]
            )
        found: list[tuple[int, str, bytes]] = []
        for row, id_ in new:
            item = await self._store.get(_storage.vectors_key(owner, generation, id_))
            if item is not None:
                found.append((row, id_, item.value))
        return found


async def _of_each(
    generations: Sequence[int], ids: Sequence[str], change: Callable[[int, str], Change]
) -> list[Change]:
    changes: list[Change] = []
    for number, id_ in enumerate(ids, 1):
        await turn(number)
        changes += [change(each, id_) for each in generations]
    return changes


def _pieces(records: Sequence[Record]) -> list[list[str]]:
    return [pieces(record.content) for record in records]


async def changes_of(store: Store, owner: str) -> int:
    """Give how many changes of an owner's notes there were."""
    item = await store.get(_storage.changes_key(owner))
    return item.version if item is not None else 0
