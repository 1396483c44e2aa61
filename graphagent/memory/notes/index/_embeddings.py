"""The vectors of notes: stored with each note, searched in memory or in tables, and replaced by those of another embedder.

All vectors that are compared were made by one embedder and belong to one generation. A generation has an item of its own as long as
vectors may be added to it, and each commit that adds some requires this item. So nothing is added to a generation that has been
replaced. The file is long because storing, replacing and loading vectors must agree on generations.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import orjson
from anyio import to_thread

from graphagent._article import counted
from graphagent._concurrency import turn
from graphagent._raised import awaited
from graphagent.errors import (
    ConflictError,
    DamagedStoreError,
    EmbedderChangedError,
    EmbedderError,
    MissingExtraError,
    StoreError,
)
from graphagent.memory._byte_cache import ByteCache
from graphagent.memory.notes.index import _matrix, _storage
from graphagent.memory.notes.index._chunks import pieces
from graphagent.memory.notes.index._vector_bytes import PackedVectors, pack, without_words
from graphagent.protocols import WordEmbedder
from graphagent.store import Delete, DeleteAll, Exists, Put
from graphagent.store._bulk import get_many
from graphagent.store._items import unchecked

if TYPE_CHECKING:
    from graphagent.memory._note_values import Record
    from graphagent.memory.notes.index._backend import IndexBackend
    from graphagent.memory.notes.index._matrix import Floats
    from graphagent.memory.notes.index._tables import NoteTables
    from graphagent.memory.notes.index._vectors import NoteVectors
    from graphagent.protocols import Embedder, Store
    from graphagent.store import Change, Item

Along = Callable[["NoteTables"], None]
"""An operation on the tables, in the transaction of a commit."""

_log = logging.getLogger("graphagent.memory")

ATTEMPTS = 20
"""How often a change is tried if other writers change the same notes."""
_BATCH = 500
"""How many notes are embedded with one call."""
OWNER_BYTES = 800
"""About how much memory an owner takes in a cache, besides the cached values."""
_VERSION_BITS = 64
"""How many bits of a number of changes are the version of the item that counts them."""
_FEW, _INLINE = 64, 100_000
"""Up to how many notes and characters are divided on the calling thread; more are divided in a worker thread."""


@dataclass(frozen=True, slots=True)
class VectorInfo:
    """The stored state of the vectors of an owner's notes."""

    name: str
    """The name of the embedder that made them."""
    dimensions: int
    generation: int
    version: int
    """The version of the item that contains this."""
    words: bool = False
    """Whether there are also vectors of the notes' words. A generation begins with or without them, and stays so."""


@dataclass(slots=True)
class _Loaded:
    """The vectors of an owner, in memory if the tables have none."""

    vectors: NoteVectors
    generation: int
    stamp: tuple[int, int] = (-1, -1)
    """The number of the owner's changes that they include, and how often rows of the owner had been changed in the index."""
    highest: int = 0
    """The highest row that was read."""
    count: int = 0
    """How many rows existed when they were read."""


class VectorStore:
    """The vectors of all notes of a store. Those of the owners used last are held in memory, within `cache_bytes`."""

    def __init__(
        self,
        store: Store,
        backend: IndexBackend,
        embedder: Embedder | None,
        cache_bytes: int,
        late_interaction: bool,
    ) -> None:
        self.embedder = embedder
        self._late_interaction = late_interaction
        self._store = store
        self._backend = backend
        warned = cache_bytes // 16
        # The owner used last is held whatever its size; else each question would read all of that owner's vectors again.
        self._loaded: ByteCache[str, _Loaded] = ByteCache(cache_bytes - warned, at_least=1)
        self._warned: ByteCache[tuple[str, str], bool] = ByteCache(warned, at_least=1)
        """The owners for whom it was logged that notes have no vectors, and the kind of vectors."""

    async def info(self, owner: str) -> VectorInfo | None:
        """Return the stored information about the vectors of an owner's notes; None without vectors.

        Raises:
            DamagedStoreError: the information is not readable.
        """
        item = await self._store.get(_storage.embedder_key(owner))
        return None if item is None else info_of(item)

    async def checked_info(self, owner: str) -> VectorInfo | None:
        """Return the stored information about the vectors, which the current embedder must have made; None without vectors."""
        info = await self.info(owner)
        if info is not None and self.embedder is not None and info.name != self.embedder.name:
            raise EmbedderChangedError(self.embedder.name, info.name, info.dimensions)
        return info

    async def embedded_question(self, text: str, dimensions: int, *, words: bool) -> tuple[Floats, Floats | None]:
        """Return the vector of a question and, if asked for, a row for each of its words, which are computed together.

        Raises:
            EmbedderError: the embedder failed, or did not return vectors of so many dimensions.
        """
        vectors, of_words = await self._embedded([text], dimensions, words=words and self.makes_words)
        return vectors[0], of_words[0] if of_words else None

    @property
    def makes_words(self) -> bool:
        """Whether vectors of words are made: with late interaction, if the embedder makes them."""
        return self._late_interaction and isinstance(self.embedder, WordEmbedder)

    async def _embedded(self, texts: Sequence[str], dimensions: int, *, words: bool) -> tuple[Floats, list[Floats]]:
        """Return the vectors of texts and, if asked for, those of the words of each text."""
        from graphagent.embed import checked, checked_words

        assert self.embedder is not None
        name = self.embedder.name
        of_words: list[Floats] = []
        try:
            if words and isinstance(self.embedder, WordEmbedder):
                found, of_words = await awaited(checked_words(self.embedder, texts), f"embedder {name!r}")
            else:
                found = await awaited(checked(self.embedder, texts), f"embedder {name!r}")
        except (EmbedderError, MissingExtraError):
            raise
        except Exception as error:
            raise EmbedderError(f"embedder {name!r} failed: {type(error).__name__}, which is its cause") from error
        if dimensions and len(found) and len(found[0]) != dimensions:
            raise EmbedderError(
                f"embedder {name!r} gave {counted(len(found[0]), 'number')} for a text, and {dimensions} for those kept before: it is "
                "another model by now; give it a name of its own, then make the vectors anew: reembed()"
            )
        return found, of_words

    async def vectors_for(
        self, owner: str, records: Sequence[Record], report: Callable[[int], object]
    ) -> tuple[list[PackedVectors], int]:
        """Return the vectors of notes to add to those of an owner, as `vectors_of` does.

        Raises:
            EmbedderError: the embedder failed, or did not return such a vector for each text.
        """
        info = await self.checked_info(owner)
        words = self.makes_words and (info is None or info.words)
        return await self.vectors_of(records, info.dimensions if info is not None else 0, words=words, report=report)

    async def vectors_of(
        self,
        records: Sequence[Record],
        dimensions: int = 0,
        *,
        words: bool,
        report: Callable[[int], object] = lambda done: None,
    ) -> tuple[list[PackedVectors], int]:
        """Return the vectors of notes as bytes, and how many numbers each has, which is `dimensions` if that is given.

        With `words`, those of their words too. `report` is called with how many notes have their vectors.

        Raises:
            EmbedderError: the embedder failed, or did not return such a vector for each text.
        """
        found: list[PackedVectors] = []
        for start in range(0, len(records), _BATCH):
            some = records[start : start + _BATCH]
            is_much = len(some) > _FEW or sum(len(record.content) for record in some) > _INLINE
            texts = await to_thread.run_sync(_pieces, some) if is_much else _pieces(some)
            flat = [text for each in texts for text in each]
            vectors, of_words = await self._embedded(flat, dimensions, words=words)
            dimensions = len(vectors[0])
            given = [len(each) for each in texts], vectors, of_words
            found += await to_thread.run_sync(pack, *given) if is_much else pack(*given)
            report(len(found))
        return found, dimensions

    async def added(
        self, owner: str, records: Sequence[Record], vectors: Sequence[PackedVectors], dimensions: int
    ) -> tuple[list[Change], Along]:
        """Return the changes that store the vectors of notes, and the operation that stores them in the tables."""
        assert self.embedder is not None
        info = await self.checked_info(owner)
        if info is not None:
            generation, words = info.generation, info.words
            changes: list[Change] = [Exists(_storage.generation_key(owner, generation))]
        else:
            generation, words = max(await self._generations(owner), default=0) + 1, self.makes_words
            changes = [
                Put(_storage.embedder_key(owner), self._packed_info(dimensions, generation, words), expected=0),
                Put(_storage.generation_key(owner, generation), b"", expected=0),
            ]
        prefix = _storage.vectors_key(owner, generation)
        values: list[tuple[str, bytes]] = []
        for number, (record, packed) in enumerate(zip(records, vectors, strict=True), 1):
            await turn(number)
            values.append((record.id, packed.joined(words)))
            changes.append(Put((*prefix, record.id), values[-1][1]))
        return changes, partial(_along, owner, generation, dimensions, values, words)

    async def removed(self, owner: str, ids: Sequence[str]) -> list[Change]:
        """Return the changes that remove the vectors of notes."""
        generations = await self._generations(owner)
        return await _of_each(generations, ids, lambda each, id_: Delete(_storage.vectors_key(owner, each, id_)))

    async def forgotten(self, owner: str, ids: Sequence[str]) -> list[Change]:
        """Return the changes that erase the vectors of notes."""
        generations = await self._generations(owner)
        # Another process may have begun the next generation, and added vectors of these notes to it, since this was read.
        generations.append(max(generations, default=0) + 1)
        return await _of_each(generations, ids, lambda each, id_: DeleteAll(_storage.vectors_key(owner, each, id_)))

    async def _generations(self, owner: str) -> list[int]:
        return [int(item.key[4]) async for item in self._store.scan(_storage.generation_key(owner))]

    def _packed_info(self, dimensions: int, generation: int, words: bool) -> bytes:
        assert self.embedder is not None
        data = {"name": self.embedder.name, "dimensions": dimensions, "generation": generation}
        return orjson.dumps({**data, "words": True} if words else data)

    # Embedding all notes again

    async def reembed(self, owner: str, on_progress: Callable[[int, int], object]) -> int:
        """Make the vectors of all notes as a new generation, which replaces the old one when it is complete.

        Returns the number of notes. `on_progress` is called with how many are done, and of how many.

        Raises:
            EmbedderError: no embedder is given, or it failed.
        """
        if self.embedder is None:
            raise EmbedderError("no embedder is given to make vectors; give Notes(…, embedder=…)")
        generation = await self._begin_generation(owner)
        made = await self._backend.read(lambda tables: tables.made())
        done: dict[str, int] = {}
        dimensions, words = 0, self.makes_words
        for _ in range(ATTEMPTS):
            try:
                info = await self.info(owner)
                changes = await changes_of(self._store, owner)
                records = [_storage.unpack(item) async for item in self._store.scan(_storage.notes_key(owner))]
                gone = done.keys() - {record.id for record in records}
                left = [record for record in records if done.get(record.id) != record.version]
                for start in range(0, len(left), _BATCH):
                    some = left[start : start + _BATCH]
                    vectors, dimensions = await self.vectors_of(some, dimensions, words=words)
                    values = [(each.id, packed.joined(words)) for each, packed in zip(some, vectors, strict=True)]
                    put: list[Change] = [
                        Exists(_storage.generation_key(owner, generation)),
                        *(Exists(_storage.note_key(owner, record.id)) for record in some),
                        *(Put(_storage.vectors_key(owner, generation, id_), value) for id_, value in values),
                    ]
                    await self._backend.commit(put, partial(_along, owner, generation, dimensions, values, words))
                    done.update((record.id, record.version) for record in some)
                    on_progress(len(done), len(records))
                finish: list[Change] = [
                    Exists(_storage.generation_key(owner, generation)),
                    Put(_storage.changes_key(owner), b"", expected=version_of(changes)),
                    *(Delete(_storage.vectors_key(owner, generation, id_)) for id_ in gone),
                ]
                if records:
                    data = self._packed_info(dimensions, generation, words)
                    finish.append(Put(_storage.embedder_key(owner), data, expected=info.version if info else 0))
                elif info is not None:
                    finish.append(Delete(_storage.embedder_key(owner), expected=info.version))
                if info is not None:
                    finish.append(Delete(_storage.generation_key(owner, info.generation)))
                    finish.append(DeleteAll(_storage.vectors_key(owner, info.generation)))
                await self._backend.commit(finish, partial(_unchanged, made))
            except ConflictError:
                if await self._store.get(_storage.generation_key(owner, generation)) is None:
                    raise StoreError("the vectors are being made anew by another one too; wait for that") from None
            else:
                return len(records)
        raise StoreError("the notes were changed all the time while their vectors were made; try it again")

    async def _begin_generation(self, owner: str) -> int:
        """Begin a generation, and remove generations that others began and did not complete."""
        while True:
            info = await self.info(owner)
            generations = await self._generations(owner)
            generation = max(generations, default=0) + 1
            begin: list[Change] = [Put(_storage.generation_key(owner, generation), b"", expected=0)]
            for each in generations:
                if info is None or each != info.generation:
                    begin += [
                        Delete(_storage.generation_key(owner, each)),
                        DeleteAll(_storage.vectors_key(owner, each)),
                    ]
            if info is not None:
                begin.append(Exists(_storage.generation_key(owner, info.generation)))
            try:
                await self._backend.commit(begin, lambda tables: None)
            except ConflictError:
                continue
            return generation

    # In memory

    def loaded(self, owner: str, stamp: tuple[int, int]) -> NoteVectors | None:
        """Return the vectors that were loaded; None if there are none with this stamp."""
        loaded = self._loaded.get(owner)
        return loaded.vectors if loaded is not None and loaded.stamp == stamp else None

    def unload(self, owner: str) -> None:
        """Have all vectors of an owner read again."""
        self._loaded.take(owner)

    async def load(self, owner: str, info: VectorInfo, stamp: tuple[int, int]) -> NoteVectors:
        """Return all vectors of an owner. Where the tables have none, those of new notes are read, and those of gone ones removed."""
        loaded, words = self._loaded.get(owner), info.words and self.makes_words
        # Rows have other numbers in rebuilt tables, and vectors of another generation cannot be compared with these.
        made = await self._backend.read(lambda tables: tables.made())
        if loaded is not None and (loaded.generation, loaded.vectors.dimensions, loaded.vectors.made) != (
            info.generation, info.dimensions, made
        ):  # fmt: skip
            loaded = None
        known = None if loaded is None else loaded.vectors
        stored, count = await self._backend.read(partial(_stored, owner, info, words, known))
        if stored is not None:
            self._told(owner, stored, count)
            self._loaded.put(owner, _Loaded(stored, info.generation, stamp), OWNER_BYTES + len(owner))
            return stored
        if known is None or loaded is None or not isinstance(known, _matrix.Matrix):
            known = _matrix.Matrix(info.dimensions, made, words=words)
            loaded = _Loaded(known, info.generation)
        matrix, highest = copy(known), loaded.highest  # a copy, for others may search it, and this may fail
        new, count = await self._backend.read(lambda tables: tables.since(owner, highest))
        if count - len(new) != loaded.count:  # rows are only ever added at the end, so some are gone
            there = await self._backend.read(lambda tables: tables.all_rows(owner))
            matrix.remove(set(matrix.rows.tolist()) - there.keys())
        vectors = await self._read(owner, info.generation, new)
        if info.words and not self.makes_words:
            vectors = [(row, id_, without_words(data, info.dimensions)) for row, id_, data in vectors]
        await to_thread.run_sync(matrix.add, vectors) if len(new) > _BATCH else matrix.add(vectors)
        highest = new[-1][0] if new else highest
        self._told(owner, matrix, count)
        loaded = _Loaded(matrix, info.generation, stamp, highest, count)
        self._loaded.put(owner, loaded, OWNER_BYTES + len(owner) + matrix.size)
        return matrix

    def _told(self, owner: str, vectors: NoteVectors, count: int) -> None:
        """Log once which of so many notes have no vectors."""
        self.warn_missing(owner, count - vectors.notes, count)
        if self.makes_words and vectors.notes_without_words:
            self._warn(
                (owner, "words"),
                "%d of %d notes have no vectors of their words, so late interaction is not used; make them: reembed()",
                vectors.notes_without_words,
                vectors.notes,
            )

    def warn_missing(self, owner: str, missing: int, of: int) -> None:
        """Log once that notes have no vectors."""
        if missing > 0:
            self._warn(
                (owner, "texts"),
                "%d of %d notes have no vectors, so they are found by their words alone; make them: reembed()",
                missing,
                of,
            )

    def _warn(self, about: tuple[str, str], message: str, *numbers: int) -> None:
        """Log a message about an owner's notes once."""
        if not self._warned.get(about):
            self._warned.put(about, True, OWNER_BYTES + len(about[0]))
            _log.warning(message, *numbers)

    async def wrong(self, owner: str) -> str | None:
        """Return the id of a note whose vectors in the tables differ from the stored ones; None without such a note.

        Raises:
            DamagedStoreError: the stored vectors are not readable.
        """
        info = await self.info(owner)
        if info is None:
            return None
        items = [item async for item in self._store.scan(_storage.vectors_key(owner, info.generation))]

        def compared(tables: NoteTables) -> str | None:
            if tables.vectors is None:
                return None
            there = tables.vectors.whole(owner, info.generation)
            for item in items:
                id_ = str(item.key[4])
                should = tables.vectors.expected(id_, item.value, info.dimensions, words=info.words)
                if there.pop(id_, []) != should:
                    return id_
            return next(iter(there), None)

        return await self._backend.read(compared)

    async def _read(self, owner: str, generation: int, new: Sequence[tuple[int, str]]) -> list[tuple[int, str, bytes]]:
        if len(new) > _BATCH:
            rows = {id_: row for row, id_ in new}
            return sorted(
                [
                    (row, str(item.key[4]), item.value)
                    async for item in self._store.scan(_storage.vectors_key(owner, generation))
                    if (row := rows.get(str(item.key[4]))) is not None
                ]
            )
        keys = {_storage.vectors_key(owner, generation, id_): (row, id_) for row, id_ in new}
        items = await get_many(self._store, list(keys))
        return [(row, id_, items[key].value) for key, (row, id_) in keys.items() if key in items]


def info_of(item: Item) -> VectorInfo:
    """Return the state of the vectors of an owner's notes from an item.

    Raises:
        DamagedStoreError: it is not readable.
    """
    try:
        data = orjson.loads(item.value)
        words = data.get("words", False) is True
        return VectorInfo(str(data["name"]), int(data["dimensions"]), int(data["generation"]), item.version, words)
    except (ValueError, KeyError, TypeError, AttributeError):
        raise DamagedStoreError("who made the vectors of the notes", "it is not what was written") from None


def _along(
    owner: str, generation: int, dimensions: int, values: Sequence[tuple[str, bytes]], words: bool, tables: NoteTables
) -> None:
    """Store vectors in the tables, where these have a place for them."""
    if tables.vectors is not None:
        tables.vectors.put(owner, generation, dimensions, values, words=words)


def _unchanged(made: bytes, tables: NoteTables) -> None:
    """See that the tables have the vectors that were stored so far: only those of complete generations come into new tables."""
    if tables.vectors is not None and tables.made() != made:
        raise StoreError("the index was made anew while vectors were; try it again")


def _stored(
    owner: str, info: VectorInfo, words: bool, known: NoteVectors | None, tables: NoteTables
) -> tuple[NoteVectors | None, int]:
    """Return the vectors in the tables, if they are there, and how many notes they were compared with."""
    if tables.vectors is None:
        return None, 0
    found = tables.vectors.of(owner, info.generation, info.dimensions, words=words, known=known)
    return found, tables.count(owner) if known is None else 0


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
    """Return a number that grows by one with each change of an owner's notes. After all were forgotten, it begins elsewhere."""
    changes, begun = _storage.changes_key(owner), _storage.begun_key(owner)
    found = await get_many(store, (changes, begun))
    return sum(map(counted_as, found.values()))


def counted_as(item: Item) -> int:
    """Return the number that an item adds to the changes.

    Raises:
        DamagedStoreError: it is not what was written.
    """
    if item.key[3] == "changes":
        return item.version
    try:
        return int.from_bytes(unchecked(item.value)) << _VERSION_BITS
    except ValueError as error:
        raise DamagedStoreError("the beginning of an owner's notes", str(error)) from None


def version_of(changes: int) -> int:
    """Return the version that the item of the changes has at a number of changes."""
    return changes & ((1 << _VERSION_BITS) - 1)
