"""The vectors of notes in a table of PostgreSQL, where the database has pgvector: searched there, with the same filters as in memory.

The items of the store are authoritative; the table is derived from them, by each commit that changes them. Vectors are compared one by
one, up to so many. Among more, the nearest ones are found by a graph (HNSW), of which there is one for each number of dimensions, for
all owners. If the graph has too few fitting vectors, they are compared one by one after all, so rare notes are found too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import orjson

from graphagent.memory.notes.index import _storage
from graphagent.memory.notes.index._matrix import Matrix, numpy, vectors_of_texts
from graphagent.memory.notes.index._postgres_sql import array, as_json, condition, hash_of, plain, safe, uuid_of
from graphagent.memory.notes.index._vector_bytes import counts_of_words
from graphagent.memory.notes.index._vectors import LateScores, Nearest, RebuiltError, deviation, deviation_of
from graphagent.store import Delete, DeleteAll

if TYPE_CHECKING:
    from graphagent.memory._note_values import Filter
    from graphagent.memory.notes.index._embeddings import VectorInfo
    from graphagent.memory.notes.index._postgres_sql import Statements
    from graphagent.memory.notes.index._tables import NoteTables
    from graphagent.memory.notes.index._vectors import Floats, NoteVectors, VectorSearch
    from graphagent.store import Change

PGVECTOR = (
    "SELECT nspname FROM pg_extension JOIN pg_namespace AS its ON its.oid = extnamespace"
    " WHERE extname = 'vector' AND (string_to_array(extversion, '.')::int[])[:2] >= ARRAY[0, 8]"
)
"""Finds the schema of pgvector, if the database has a version with iterative scans."""
PGVECTOR_USED = (
    "SELECT nspname FROM pg_attribute JOIN pg_type AS its ON its.oid = atttypid JOIN pg_namespace AS place ON place.oid = typnamespace"
    " WHERE attrelid = to_regclass(%s) AND attname = 'e' AND NOT attisdropped"
)
"""Finds the schema of pgvector, if the table exists."""
_TABLE = """
CREATE TABLE {s}.notes_vectors (
    owner uuid NOT NULL,
    generation bigint NOT NULL,
    id_hash bigint NOT NULL,
    id text COLLATE "C" NOT NULL,
    number int NOT NULL,          -- of the text in the note
    dimensions int NOT NULL,
    wordless boolean NOT NULL,    -- whether the words of a text of the note have no vectors
    words bytea,                  -- those of the words of all texts of the note, beside its first text
    e {v}.vector NOT NULL
);
ALTER TABLE {s}.notes_vectors ALTER words SET STORAGE EXTERNAL, ALTER e SET STORAGE MAIN; -- each comparison reads e, which else is apart
CREATE INDEX notes_vectors_by_id ON {s}.notes_vectors (owner, generation, id_hash, number);
CREATE INDEX notes_wordless ON {s}.notes_vectors (owner, generation) WHERE wordless;
"""
_FIELDS = "generation bigint, id_hash bigint, id text, number int, dimensions int, wordless boolean, words bytea, e {v}.vector"

_EXACT = 10_000
"""How many vectors are compared one by one, at most, if there is a graph of them."""
_SAMPLE = 400
"""Of how many cosines the deviation is told that of all."""
_MOST, _MOST_IN_GRAPH = 16_000, 4_000
"""How many dimensions pgvector has a place for, and how many in a graph of numbers of half the precision."""
_TOGETHER = 256
"""The vectors of how many notes are stored by one statement."""
_LOOKED_AT = 1000
"""The highest value of `hnsw.ef_search`."""


class StoredVectors(NamedTuple):
    """The vectors of an owner's notes in the table."""

    owner: str
    generation: int
    dimensions: int
    made: bytes
    """The stamp of the tables."""
    is_empty: bool
    has_words: bool
    notes: int
    notes_without_words: int
    size: int = 0
    """Their share of this program's memory."""

    def over(self, tables: NoteTables) -> VectorSearch:
        """Return an object that searches the vectors together with the tables."""
        table = tables.vectors
        if tables.made() != self.made or not isinstance(table, PostgresVectors):
            raise RebuiltError
        return _Search(table, self)


class PostgresVectors:
    """The table of vectors, over a connection, within a transaction."""

    def __init__(self, sql: Statements, tables: NoteTables) -> None:
        self.sql = sql
        self.tables = tables
        self.crowded: set[int] = set()
        """Of how many dimensions vectors have no graph, and became so many that they are to have one."""

    # Changing

    def fill(self, vectors: Mapping[str, tuple[VectorInfo, Sequence[tuple[str, bytes]]]]) -> None:
        """Create the table, with the vectors of each owner's notes, by the ids of these."""
        self.sql.do(_TABLE)
        for owner, (info, notes) in vectors.items():
            self.put(owner, info.generation, info.dimensions, notes, words=info.words)
        self.sql.do("ANALYZE {s}.notes_vectors")
        for dimensions in self.crowded:
            self.make_graph(dimensions)

    def put(
        self, owner: str, generation: int, dimensions: int, notes: Sequence[tuple[str, bytes]], *, words: bool
    ) -> None:
        """Store the vectors of notes, as `VectorTable.put` says.

        Raises:
            DamagedStoreError: such a value is not one of vectors of these dimensions.
        """
        for start in range(0, len(notes), _TOGETHER):
            some = dict(notes[start : start + _TOGETHER])
            self._remove(owner, generation, list(some))
            rows: list[dict[str, object]] = []
            for id_, packed in some.items():
                vectors, of_words, is_wordless = _divided(id_, packed, dimensions, words=words)
                for number, vector in enumerate(vectors):
                    rows.append({
                        "generation": generation, "id_hash": hash_of(id_), "id": safe(id_), "number": number, "dimensions": dimensions,
                        "wordless": is_wordless, "words": f"\\x{of_words.hex()}" if of_words and not number else None,
                        "e": _written(vector),
                    })  # fmt: skip
            self.sql.do(
                f"INSERT INTO {{s}}.notes_vectors SELECT %s::uuid, * FROM json_to_recordset(%s::json) AS given({_FIELDS})",
                [uuid_of(owner), as_json(rows)],
            )
        if self._lacks_graph(owner, dimensions):
            self.crowded.add(dimensions)

    def erase(self, changes: Iterable[Change]) -> None:
        """Remove the vectors of which changes remove the items."""
        named: dict[tuple[str, int], list[str]] = {}
        for change in changes:
            if not isinstance(change, Delete | DeleteAll):
                continue
            room, *rest = change.key if isinstance(change, Delete) else change.prefix
            if room != _storage.ROOM:
                continue
            match rest:
                case [owner] | [owner, _storage.VECTORS]:
                    self.sql.do("DELETE FROM {s}.notes_vectors WHERE owner = %s", [uuid_of(str(owner))])
                case [owner, _storage.VECTORS, generation]:
                    statement = "DELETE FROM {s}.notes_vectors WHERE owner = %s AND generation = %s"
                    self.sql.do(statement, [uuid_of(str(owner)), generation])
                case [owner, _storage.VECTORS, generation, id_]:
                    named.setdefault((str(owner), int(generation)), []).append(str(id_))
                case _:
                    pass
        for (owner, generation), ids in named.items():
            self._remove(owner, generation, ids)

    def _remove(self, owner: str, generation: int, ids: Sequence[str]) -> None:
        self.sql.do(
            "DELETE FROM {s}.notes_vectors WHERE owner = %s AND generation = %s AND id_hash = ANY(%s) AND id = ANY(%s)",
            [uuid_of(owner), generation, array(map(hash_of, ids)), list(map(safe, ids))],
        )

    # The graph

    def _lacks_graph(self, owner: str, dimensions: int) -> bool:
        """Return whether an owner has more texts than are compared one by one, and a graph of so many dimensions is missing."""
        many = dimensions <= _MOST_IN_GRAPH and self.tables.totals(owner)[0] > _EXACT
        return many and not self.has_graph(dimensions)

    def has_graph(self, dimensions: int) -> bool:
        """Return whether there is a graph of vectors of so many dimensions."""
        name = self.sql.named(f"{{s}}.notes_near_{dimensions}")
        return bool(self.sql.rows("SELECT to_regclass(%s) IS NOT NULL", [name])[0][0])

    def make_graph(self, dimensions: int) -> None:
        """Make the graph of vectors of so many dimensions. Until the transaction ends, others write no vectors."""
        self.sql.do(
            f"CREATE INDEX IF NOT EXISTS notes_near_{dimensions} ON {{s}}.notes_vectors"
            f" USING hnsw ((e::{{v}}.halfvec({dimensions})) {{v}}.halfvec_cosine_ops) WHERE dimensions = {dimensions}"
        )

    # Reading

    def of(
        self, owner: str, generation: int, dimensions: int, *, words: bool, known: NoteVectors | None
    ) -> NoteVectors | None:
        """Return the vectors of a generation, as `VectorTable.of` says."""
        if dimensions > _MOST:
            return None
        where, values = "FROM {s}.notes_vectors WHERE owner = %s AND generation = %s", [uuid_of(owner), generation]
        [(there, is_wordless)] = self.sql.rows(
            f"SELECT EXISTS (SELECT {where}), EXISTS (SELECT {where} AND wordless)", values * 2
        )
        if known is None or is_wordless:
            [(notes, without)] = self.sql.rows(
                f"SELECT (SELECT count(*) {where} AND number = 0), (SELECT count(*) {where} AND wordless AND number = 0)",
                values * 2,
            )
        else:
            notes, without = known.notes, known.notes_without_words
        has_words = words and there and not is_wordless
        made = self.tables.made()
        return StoredVectors(owner, generation, dimensions, made, not there, has_words, notes, without)

    def whole(self, owner: str, generation: int) -> dict[str, list[bytes]]:
        """Return the contents of the table for each note of a generation, in the form of `expected`."""
        found: dict[str, list[bytes]] = {}
        for id_, vector, words in self.sql.rows(
            "SELECT id, {v}.vector_send(e), words FROM {s}.notes_vectors WHERE owner = %s AND generation = %s ORDER BY id, number",
            [uuid_of(owner), generation],
        ):
            found.setdefault(plain(id_), []).extend(each for each in (vector, words) if each is not None)
        return found

    def expected(self, id_: str, packed: bytes, dimensions: int, *, words: bool) -> list[bytes]:
        """Return the expected contents of the table for a note; none if it has no place for its vectors.

        Raises:
            DamagedStoreError: the bytes are not vectors of these dimensions.
        """
        vectors, of_words, _ = _divided(id_, packed, dimensions, words=words)
        head = dimensions.to_bytes(2, "big") + bytes(2)
        sent = [head + vector.astype(">f4").tobytes() for vector in vectors]
        return [*sent[:1], *([of_words] if of_words and sent else []), *sent[1:]]


class _Search:
    """Searches the vectors of an owner in the table."""

    def __init__(self, table: PostgresVectors, vectors: StoredVectors) -> None:
        self._sql, self._tables, self._table = table.sql, table.tables, table
        self._vectors = vectors
        self._mine: list[object] = [uuid_of(vectors.owner), vectors.generation]

    def nearest(self, vector: Floats, most: int, fits: Filter) -> Nearest:
        """Return the rows that fit nearest to a vector."""
        if not most or not fits.scopes or not vector.any():
            return Nearest({}, deviation(()))
        where, values = ("", list[object]()) if self._tables.all_counted_fit(fits) else condition(fits)
        found = self._by_graph(vector, most, where, values) if self._are_many(where, values) else None
        return self._one_by_one(vector, most, where, values) if found is None else found

    def _are_many(self, where: str, values: Sequence[object]) -> bool:
        """Whether more than `_EXACT` fit, and there is a graph of them."""
        owner, dimensions = self._vectors.owner, self._vectors.dimensions
        if self._tables.totals(owner)[0] <= _EXACT or not self._table.has_graph(dimensions):
            return False
        if not where:
            return True
        fitting = f"SELECT count(*) FROM (SELECT FROM {{s}}.notes_rows WHERE {where} LIMIT {_EXACT + 1}) AS fitting"
        return bool(self._sql.rows(fitting, values)[0][0] > _EXACT)

    def _one_by_one(self, vector: Floats, most: int, where: str, values: Sequence[object]) -> Nearest:
        source = "{s}.notes_vectors AS v WHERE v.owner = %s AND v.generation = %s"
        if where:
            source = f"(SELECT id, id_hash FROM {{s}}.notes_rows WHERE {where} OFFSET 0) AS its {_OF_NOTE}"
        found = self._best(
            f"found AS MATERIALIZED (SELECT v.id_hash, v.id, {_COSINE} AS cosine FROM {source})",
            "found",
            [_written(vector), *values, *self._mine],
            most,
        )
        if not found.cosines:
            self._check()
        return found

    def _by_graph(self, vector: Floats, most: int, where: str, values: Sequence[object]) -> Nearest | None:
        """Return the same as far as the graph tells, with the deviation of some cosines; None if it has not enough that fit."""
        dimensions, asked = self._vectors.dimensions, _written(vector)
        fits = f"v.dimensions = {dimensions} AND v.owner = %s AND v.generation = %s"
        if where:
            its = "its.id_hash = v.id_hash AND its.id = v.id"
            fits += f" AND EXISTS (SELECT FROM {{s}}.notes_rows AS its WHERE {its} AND {where} OFFSET 0)"
        self._sql.rows(
            f"SELECT {_PLAN.format('off')}, set_config('hnsw.iterative_scan', 'strict_order', true), set_config('hnsw.ef_search', %s, true)",
            [str(min(_LOOKED_AT, 2 * most))],
        )
        # Of several texts of a note, the best one counts. Rows in the order of an index need not be sorted: hashes of ids are in a
        # random order.
        half = f"{{v}}.halfvec({dimensions})"
        one = f"SELECT v.id_hash, v.id, {_COSINE} AS cosine FROM {{s}}.notes_vectors AS v WHERE {fits} ORDER BY"
        found = self._best(
            f"found AS MATERIALIZED ({one} (v.e::{half}) OPERATOR({{v}}.<=>) %s::{half} LIMIT %s),"
            f" sample AS MATERIALIZED ({one} v.owner, v.generation, v.id_hash, v.number LIMIT {_SAMPLE}),"
            " compared AS (SELECT cosine FROM sample UNION ALL SELECT max(cosine) FROM found)",
            "compared",
            [asked, *self._mine, *values, asked, 2 * most, asked, *self._mine, *values],
            most,
        )
        self._sql.rows(f"SELECT {_PLAN.format('on')}")
        return found if len(found.cosines) == most else None

    def _best(self, parts: str, compared: str, values: Sequence[object], most: int) -> Nearest:
        """Return the best of the part `found` of a statement, and the deviation of the cosines of another part of it."""
        found = self._sql.rows(
            f"WITH {parts}, best AS MATERIALIZED"
            " (SELECT id_hash, id, max(cosine) AS cosine FROM found GROUP BY id_hash, id ORDER BY 3 DESC LIMIT %s),"
            f" every AS MATERIALIZED (SELECT count(*), sum(cosine), sum(cosine * cosine), max(cosine) FROM {compared})"
            f" SELECT row, cosine, every.* FROM every CROSS JOIN best {_ROW_OF} ORDER BY cosine DESC, row",
            [*values, most, self._mine[0]],
        )
        if not found:
            return Nearest({}, deviation(()))
        return Nearest({row: cosine for row, cosine, *_ in found}, deviation_of(*found[0][2:]))

    def _check(self) -> None:
        """Raise RebuiltError if the vectors of this generation do not exist any more."""
        there = "SELECT EXISTS (SELECT FROM {s}.notes_vectors AS v WHERE v.owner = %s AND v.generation = %s)"
        if not self._sql.rows(there, self._mine)[0][0]:
            raise RebuiltError

    def cosines(self, vector: Floats, among: Sequence[int]) -> dict[int, float]:
        """Return the cosines of rows, for each that of its nearest text."""
        if not among or not vector.any():
            return {}
        found = self._sql.rows(
            f"SELECT its.row, max({_COSINE}) {_AMONG} GROUP BY its.row ORDER BY 2 DESC, row",
            [_written(vector), array(among), *self._mine],
        )
        return dict(found)

    def late(self, words: Floats, among: Sequence[int]) -> LateScores:
        """Return how well the words of rows fit those of a question."""
        found = self._sql.rows(
            f"SELECT its.row, v.words {_AMONG} WHERE v.words IS NOT NULL ORDER BY its.row",
            [array(among), *self._mine],
        )
        return Matrix.of_words(self._vectors.dimensions, found).late(words, among)


_COSINE = "1 - (v.e OPERATOR({v}.<=>) %s::{v}.vector)"
# The join must not depend on the planner's guesses about tables that were just filled: OFFSET 0 leaves it no choice.
_OF_NOTE = (
    "CROSS JOIN LATERAL (SELECT * FROM {s}.notes_vectors AS one WHERE one.owner = %s AND one.generation = %s"
    " AND one.id_hash = its.id_hash AND one.id = its.id OFFSET 0) AS v"
)
_PLAN = "set_config('enable_sort', '{0}', true), set_config('enable_incremental_sort', '{0}', true)"
"""Lets the planner put rows into another order, or not."""
_AMONG = f"FROM (SELECT row, id, id_hash FROM {{s}}.notes_rows WHERE row = ANY(%s) OFFSET 0) AS its {_OF_NOTE}"
_ROW_OF = (
    "CROSS JOIN LATERAL (SELECT row FROM {s}.notes_rows AS one WHERE one.owner = %s"
    " AND one.id_hash = best.id_hash AND one.id = best.id OFFSET 0) AS its"
)


def _divided(id_: str, packed: bytes, dimensions: int, *, words: bool) -> tuple[Sequence[Floats], bytes, bool]:
    """Return the vectors of a note's texts, the bytes of those of its words, and whether the words of some text have none.

    There are none for which the table has no place, or of which one has no direction.
    """
    counts = counts_of_words(packed, dimensions) if words else None
    vectors = vectors_of_texts(id_, packed, dimensions, counts)
    if dimensions > _MOST or not vectors.any(axis=1).all():
        return [], b"", False
    return list(vectors), packed[vectors.nbytes :], counts is None or -1 in counts


def _written(vector: Floats) -> str:
    """Return a vector as pgvector reads it."""
    return orjson.dumps(numpy().asarray(vector, numpy().float32), option=orjson.OPT_SERIALIZE_NUMPY).decode()
