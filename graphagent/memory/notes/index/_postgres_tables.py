"""The tables of the search index in PostgreSQL: in the schema of a PostgresStore, with its text search and no extension.

Texts are cut into stems here, as for SQLite, and kept as a `tsvector` of these; so words of any language are found as they are there,
whatever text search configurations the server has. How many texts of an owner have a stem is counted by each commit, since
PostgreSQL does not know it; ranking by BM25 needs nothing else. A commit locks the row of the owner first, so that these counts are
right, and later rows of an owner have higher numbers. The file is long because every statement about these tables is in it.
"""

from __future__ import annotations

import os
import uuid
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, NamedTuple

from graphagent.errors import NewerFormatError
from graphagent.memory._note_values import stretch
from graphagent.memory.notes.index._filter import entries_of, tags_of, tags_that_fit
from graphagent.memory.notes.index._postgres_sql import (
    Statements,
    array,
    as_json,
    condition,
    hash_of,
    plain,
    safe,
    uuid_of,
)
from graphagent.memory.notes.index._postgres_vectors import PGVECTOR, PGVECTOR_USED, PostgresVectors
from graphagent.memory.notes.index._tables import CHUNKS, Near, Row, batches, fields_of
from graphagent.memory.notes.index._tokens import bounds_of_alike, most_alike

if TYPE_CHECKING:
    from graphagent.memory._note_values import Filter, Record
    from graphagent.memory.notes.index._embeddings import VectorInfo
    from graphagent.memory.notes.index._postgres_sql import PostgresConnection
    from graphagent.memory.notes.index._tables import Phrase, Term
    from graphagent.memory.notes.index._tokens import Tokens

MIGRATIONS: Sequence[str] = (
    """
CREATE TABLE {s}.notes_state (name text PRIMARY KEY, value bytea NOT NULL);
CREATE TABLE {s}.notes_owners (
    owner uuid PRIMARY KEY,       -- a hash of the name
    texts bigint NOT NULL,
    words bigint NOT NULL
) WITH (fillfactor = 50);
CREATE TABLE {s}.notes_rows (
    row bigint PRIMARY KEY,
    owner uuid NOT NULL,
    id text COLLATE "C" NOT NULL,
    scope text COLLATE "C" NOT NULL,
    session text COLLATE "C" NOT NULL,
    place bigint NOT NULL,
    speaker text COLLATE "C" NOT NULL,
    role text COLLATE "C" NOT NULL,
    said bigint,                  -- milliseconds UTC, as is created
    created bigint NOT NULL,
    importance double precision NOT NULL,
    source text COLLATE "C" NOT NULL,
    private int NOT NULL,
    chunks bigint NOT NULL,
    traits bigint NOT NULL,
    sameness bigint,
    categories text[] COLLATE "C" NOT NULL,
    entries text[] COLLATE "C" NOT NULL,
    id_hash bigint NOT NULL,      -- an entry of an index has at most 2,704 bytes, which a name may exceed
    session_hash bigint NOT NULL,
    speaker_hash bigint NOT NULL
);
CREATE SEQUENCE {s}.notes_numbers;
CREATE UNIQUE INDEX notes_by_row ON {s}.notes_rows (owner, row);
CREATE INDEX notes_by_id ON {s}.notes_rows (owner, id_hash);
CREATE INDEX notes_by_scope ON {s}.notes_rows (owner, left(scope, 100));
CREATE INDEX notes_by_session ON {s}.notes_rows (owner, session_hash, place) WHERE session <> '';
CREATE INDEX notes_by_speaker ON {s}.notes_rows (owner, speaker_hash) WHERE speaker <> '';
CREATE INDEX notes_by_age ON {s}.notes_rows (owner, created);
CREATE INDEX notes_by_time ON {s}.notes_rows (owner, coalesce(said, created));
CREATE INDEX notes_same ON {s}.notes_rows (owner, sameness) WHERE sameness IS NOT NULL;
CREATE INDEX notes_private ON {s}.notes_rows (owner) WHERE private = 1;
CREATE TABLE {s}.notes_texts (
    place bigint PRIMARY KEY,
    size int NOT NULL,            -- how many words it has
    words tsvector NOT NULL
);
CREATE INDEX notes_words ON {s}.notes_texts USING gin (words) WITH (gin_pending_list_limit = 256);
CREATE TABLE {s}.notes_stems (
    owner uuid,
    stem text COLLATE "C",
    texts bigint NOT NULL,
    PRIMARY KEY (owner, stem)
) WITH (fillfactor = 80);
""",
)
"""The statements that lead from each number of migrations of the tables to the next."""

_BATCH = 256
"""How many records are added together at most."""
_LONG, _BEGINNING = 1000, 200
"""From how many bytes on a stem is kept as so many of its first characters and a hash. A lexeme has at most 2,046 bytes."""
_LEXEMES = 900_000
"""How many bytes the different stems of a text have at most; PostgreSQL has no place for a megabyte, as of a text of nothing but hashes."""
_POSITIONS = 16_383
"""The last position that a tsvector knows."""
_BETWEEN = 2
"""How many words are between two that are near each other, at most."""
_ROW = "SELECT row, id, session, place, speaker, role, said, created, chunks, traits FROM {s}.notes_rows"
_FIELDS = (
    "row bigint, owner uuid, id text, scope text, session text, place bigint, speaker text, role text, said bigint, created bigint,"
    " importance double precision, source text, private int, chunks bigint, traits bigint, sameness bigint, categories text[],"
    " entries text[], id_hash bigint, session_hash bigint, speaker_hash bigint"
)


class _About(NamedTuple):
    """The data of an owner that a search needs, as of the beginning of a transaction that only reads."""

    texts: int
    words: int
    has_others: bool
    """Whether there are notes of other owners."""
    has_private: bool


class GoneError(Exception):
    """The tables do not exist, or are to be built again."""


class PostgresTables:
    """The tables in a schema, over a connection, within a transaction."""

    def __init__(self, connection: PostgresConnection, schema: str, tokens: Tokens) -> None:
        self.tokens = tokens
        self._connection, self._schema = connection, schema
        self._sql = Statements(connection, schema)
        self._rows, self._do = self._sql.rows, self._sql.do
        self._known: dict[str, _About] = {}
        self.vectors: PostgresVectors | None = None
        """The vectors of notes; None if the database has no pgvector, or had none when the tables were filled."""

    # Creating and filling

    def enter(self) -> None:
        """Begin to use the tables, which no other process rebuilds until the transaction ends.

        Raises:
            GoneError: there are none.
        """
        import psycopg

        # The use of an index must not depend on the planner's guesses. All is over before a second process has begun, or a
        # plan is compiled.
        ask = (
            "SELECT set_config('enable_seqscan', 'off', true), set_config('jit', 'off', true),"
            " set_config('max_parallel_workers_per_gather', '0', true),"
            " (SELECT value FROM {s}.notes_state WHERE name = 'made'), (SELECT max(number) FROM {s}.notes_migrations),"
            f" ({PGVECTOR_USED})"
        )
        try:
            [(*_, made, number, pgvector)] = self._rows(ask, [self._sql.named("{s}.notes_vectors")])
        except (psycopg.errors.UndefinedTable, psycopg.errors.InvalidSchemaName):
            raise GoneError from None
        self._check(number or 0)
        if made is None or number != len(MIGRATIONS):
            raise GoneError
        self._made = bytes(made)
        self._use(pgvector)

    def _use(self, pgvector: str | None) -> None:
        if pgvector is not None:
            self.vectors = PostgresVectors(Statements(self._connection, self._schema, v=pgvector), self)

    def _check(self, number: int) -> None:
        if number > len(MIGRATIONS):
            where = f"the index of the notes in schema {self._schema!r}"
            raise NewerFormatError(where, f"with migration {number}, and this one knows {len(MIGRATIONS)}")

    def migrate(self) -> bool:
        """Make or migrate the tables, and return whether they are filled. Others who do it at the same time wait."""
        self._do("SELECT pg_advisory_xact_lock(hashtext('graphagent notes'), hashtext(%s))", [self._schema])
        self._do(
            "CREATE TABLE IF NOT EXISTS {s}.notes_migrations (number int PRIMARY KEY, at timestamptz NOT NULL DEFAULT now())"
        )
        [(number,)] = self._rows("SELECT coalesce(max(number), 0) FROM {s}.notes_migrations")
        self._check(number)
        for each, statements in enumerate(MIGRATIONS[number:], number + 1):
            self._do(statements)
            self._do("INSERT INTO {s}.notes_migrations VALUES (%s)", [each])
        return bool(self._rows("SELECT 1 FROM {s}.notes_state WHERE name = 'made'"))

    def fill(
        self,
        batches: Iterable[Iterable[tuple[Record, Sequence[str]]]],
        vectors: Mapping[str, tuple[VectorInfo, Sequence[tuple[str, bytes]]]],
    ) -> None:
        """Add records to empty tables, which are whole then, and the vectors of each owner's notes, by the ids of these."""
        self._do("DROP INDEX {s}.notes_words")
        for each in batches:
            self.add(each)
        for pgvector in self._rows(PGVECTOR):
            self._use(*pgvector)
        if self.vectors is not None:
            self.vectors.fill(vectors)
        self._do(MIGRATIONS[0][MIGRATIONS[0].index("CREATE INDEX notes_words") :].partition(";")[0])
        for table in ("rows", "texts", "stems", "owners"):
            self._do(f"ANALYZE {{s}}.notes_{table}")
        self._do("INSERT INTO {s}.notes_state VALUES ('made', %s)", [os.urandom(16)])

    def empty(self) -> None:
        """Empty the tables, so that they are filled again. This waits for processes that use them, and processes that want to use them wait."""
        import psycopg

        try:
            # First, in the order of all who use the tables: otherwise one might have the one table and wait for the other.
            self._do("LOCK TABLE {s}.notes_state IN ACCESS EXCLUSIVE MODE")
        except (psycopg.errors.UndefinedTable, psycopg.errors.InvalidSchemaName):
            raise GoneError from None
        self._do("DELETE FROM {s}.notes_state WHERE name = 'made'")
        self._do("TRUNCATE {s}.notes_rows, {s}.notes_texts, {s}.notes_stems, {s}.notes_owners")
        self._do("DROP TABLE IF EXISTS {s}.notes_vectors")

    def made(self) -> bytes:
        """Return a random stamp of the tables. Rows of tables with another stamp may be other notes."""
        return self._made

    def add(self, records: Iterable[tuple[Record, Sequence[str]]]) -> list[int]:
        """Add or replace records, each with the texts by which it is found, and return their rows."""
        return [row for batch in batches(records, _BATCH) if batch for row in self._add_batch(batch)]

    def _add_batch(self, batch: Mapping[tuple[str, str], tuple[Record, Sequence[str]]]) -> list[int]:
        for owner in sorted({owner for owner, _ in batch}, key=uuid_of):
            self.remove(owner, [id_ for of, id_ in batch if of == owner])
        numbers = "SELECT nextval(%s::regclass) FROM generate_series(1, %s::int)"
        rows = [row for (row,) in self._rows(numbers, [self._sql.named("{s}.notes_numbers"), len(batch)])]
        notes, texts = list[dict[str, object]](), list[dict[str, object]]()
        stems, totals = dict[uuid.UUID, Counter[str]](), dict[uuid.UUID, list[int]]()
        known: dict[tuple[object, ...], str] = {}
        names = [name for each in _FIELDS.split(",") for name in each.split()[:1]]
        for row, (record, given) in zip(rows, batch.values(), strict=True):
            whose = uuid_of(record.owner)
            of_owner, total = stems.setdefault(whose, Counter()), totals.setdefault(whose, [0, 0])
            fields = [each if not isinstance(each, str) else safe(each) for each in fields_of(record, len(given))]
            notes.append(dict(zip(names, [
                row, str(whose), safe(record.id), *fields, list(map(safe, record.categories)), sorted(entries_of(record.metadata)),
                hash_of(record.id), hash_of(record.session), hash_of(record.speaker),
            ], strict=True)))  # fmt: skip
            kind = record.owner, record.scope, record.categories, record.source, record.private
            tags = known.get(kind) or known.setdefault(kind, " ".join(f"':{tag}'" for tag in tags_of(record).split()))
            tags = " ".join([tags, *(f"':{entry}'" for entry in entries_of(record.metadata))])
            split = self.tokens.split(given)
            for number, text in enumerate(given):
                vector, found = _vector(split[text])
                of_owner.update(found)
                total[0] += 1
                total[1] += len(split[text])
                texts.append({"place": row * CHUNKS + number, "size": len(split[text]), "words": f"{vector} {tags}"})
        self._do(
            f"INSERT INTO {{s}}.notes_rows SELECT * FROM json_to_recordset(%s::json) AS given({_FIELDS})",
            [as_json(notes)],
        )
        self._do(
            "INSERT INTO {s}.notes_texts SELECT * FROM json_to_recordset(%s::json) AS given(place bigint, size int, words tsvector)",
            [as_json(texts)],
        )
        for whose, counted in stems.items():
            self._do(
                "INSERT INTO {s}.notes_stems AS old SELECT %s, * FROM unnest(%s::text[], %s::bigint[])"
                " ON CONFLICT (owner, stem) DO UPDATE SET texts = old.texts + excluded.texts",
                [whose, list(counted), list(counted.values())],
            )
            self._do(
                "UPDATE {s}.notes_owners SET texts = texts + %s, words = words + %s WHERE owner = %s",
                [*totals[whose], whose],
            )
        return rows

    def remove(self, owner: str, ids: Iterable[str]) -> None:
        """Remove records; ids without one are ignored."""
        ids = list(ids)
        self._do(
            "INSERT INTO {s}.notes_owners AS old VALUES (%s, 0, 0) ON CONFLICT (owner) DO UPDATE SET texts = old.texts",
            [uuid_of(owner)],
        )
        if not ids:
            return
        self._do(
            f"WITH gone AS (DELETE FROM {{s}}.notes_rows WHERE owner = %s AND id_hash = ANY(%s) AND id = ANY(%s) RETURNING row, chunks),"
            f" texts AS (DELETE FROM {{s}}.notes_texts AS texts USING gone, generate_series(0, {CHUNKS - 1}) AS number"
            f" WHERE number < chunks AND texts.place = gone.row * {CHUNKS} + number RETURNING size, words),"
            " stems AS (SELECT stem, count(*) AS texts FROM texts, unnest(tsvector_to_array(words)) AS stem"
            " WHERE left(stem, 1) <> ':' GROUP BY stem),"
            " fewer AS (UPDATE {s}.notes_stems AS old SET texts = old.texts - stems.texts FROM stems"
            " WHERE old.owner = %s AND old.stem = stems.stem AND old.texts > stems.texts),"
            " none AS (DELETE FROM {s}.notes_stems AS old USING stems"
            " WHERE old.owner = %s AND old.stem = stems.stem AND old.texts <= stems.texts)"
            " UPDATE {s}.notes_owners AS old SET texts = old.texts - of.texts, words = old.words - of.words"
            " FROM (SELECT count(*) AS texts, coalesce(sum(size), 0) AS words FROM texts) AS of WHERE old.owner = %s",
            [uuid_of(owner), array(map(hash_of, ids)), list(map(safe, ids)), *[uuid_of(owner)] * 3],
        )

    def purge(self) -> None:
        """Remove the counts of owners without notes. VACUUM erases the removed rows, since a transaction cannot."""
        self._do("DELETE FROM {s}.notes_owners WHERE texts = 0")

    # Finding

    def postings(self, terms: Iterable[Term], fits: Filter, most: int = -1) -> dict[Term, list[int]]:
        """Return the places of the texts that fit and have a term, for each term: at most `most`, or all if that is below 0."""
        given = list(dict.fromkeys(terms))
        found: dict[Term, list[int]] = {term: [] for term in given}
        queries = [(number, query) for number, term in enumerate(given) if (query := self._query(term))]
        if not queries or not fits.scopes:
            return found
        about = self._about(fits.owner)
        wanted = tags_that_fit(fits, has_others=about.has_others, has_private=about.has_private)
        wanted += [[entry] for entry in sorted(entries_of(fits.metadata))]
        tags = "".join(f" & ({' | '.join(_quoted(f':{tag}') for tag in each)})" for each in wanted)
        timely, times = "", list[object]()
        if fits.since is not None or fits.until is not None:
            timely = f" AND place / {CHUNKS} IN (SELECT row FROM {{s}}.notes_rows WHERE owner = %s AND coalesce(said, created) BETWEEN %s AND %s)"
            times = [uuid_of(fits.owner), *stretch(fits)]
        limit = "" if most < 0 else f" LIMIT {int(most)}"
        having = f"SELECT place FROM {{s}}.notes_texts WHERE words @@ %s::tsquery{timely}{limit}"
        one = f"SELECT %s::int, array_agg(place) FROM ({having}) AS its"
        values = [value for number, query in queries for value in (number, f"({query}){tags}", *times)]
        for number, places in self._rows(" UNION ALL ".join([one] * len(queries)), values):
            found[given[number]] = sorted(places or ())
        return found

    def _query(self, term: Term) -> str:
        """Return a term as a tsquery; empty if no text can have it."""
        return " | ".join(filter(None, (self._query_of(each) for each in term)))

    def _query_of(self, term: Phrase | Near) -> str:
        if isinstance(term, Near):
            one, other = self._query_of(term.one), self._query_of(term.other)
            if not one or not other:
                return ""
            apart = range(1, _BETWEEN + 2)
            return " | ".join(f"({a}) <{far}> ({b})" for a, b in ((one, other), (other, one)) for far in apart)
        stems = self.tokens.stems_of([term.words]).get(term.words, "").split()
        lexemes = [_quoted(_lexeme(stem)) for stem in stems]
        if stems and term.is_prefix:
            lexemes[-1] = _quoted(stems[-1][:_BEGINNING]) + ":*"
        return " <-> ".join(lexemes)

    def lengths(self, places: Iterable[int]) -> dict[int, int]:
        """Return the number of words of texts."""
        return dict(self._rows("SELECT place, size FROM {s}.notes_texts WHERE place = ANY(%s)", [array(places)]))

    def totals(self, owner: str) -> tuple[int, float]:
        """Return the number of texts of an owner, and the mean of their lengths in words."""
        about = self._about(owner)
        return about.texts, about.words / about.texts if about.words else 1.0

    def _about(self, owner: str) -> _About:
        if owner not in self._known:
            [found] = self._rows(
                "SELECT coalesce(sum(texts), 0)::bigint, coalesce(sum(words), 0)::bigint,"
                " EXISTS (SELECT FROM {s}.notes_owners WHERE owner <> %s),"
                " EXISTS (SELECT FROM {s}.notes_rows WHERE owner = %s AND private = 1) FROM {s}.notes_owners WHERE owner = %s",
                [uuid_of(owner)] * 3,
            )
            self._known[owner] = _About(*found)
        return self._known[owner]

    def frequencies(self, stems: Iterable[str], owner: str) -> dict[str, int]:
        """Return the number of texts of an owner that contain each stem."""
        found = dict.fromkeys(stems, 0)
        lexemes = {_lexeme(stem): stem for stem in found}
        rows = self._rows(
            "SELECT stem, texts FROM {s}.notes_stems WHERE owner = %s AND stem = ANY(%s)",
            [uuid_of(owner), list(lexemes)],
        )
        return found | {lexemes[stem]: count for stem, count in rows}

    def all_counted_fit(self, fits: Filter) -> bool:
        """Return whether all notes of the owner fit."""
        return fits.is_whole and not self._about(fits.owner).has_private

    def similar(self, stem: str, owner: str) -> dict[str, float]:
        """Return the stems of an owner's texts that are spelled most like one."""
        rows = self._rows(
            "SELECT stem FROM {s}.notes_stems WHERE owner = %s AND stem >= %s AND stem < %s AND length(stem) BETWEEN %s AND %s",
            [uuid_of(owner), *bounds_of_alike(stem)],
        )
        return most_alike(stem, (term for (term,) in rows))

    def latest(self, fits: Filter, most: int, *, timed: bool) -> list[int]:
        """Return the rows that fit, at most so many, those said last first: of notes with a time, or of those without one."""
        where, values = condition(fits)
        is_timed = "said IS NOT NULL" if timed else "said IS NULL"
        statement = f"SELECT row FROM {{s}}.notes_rows WHERE {where} AND {is_timed} ORDER BY coalesce(said, created) DESC, row DESC LIMIT %s"
        return [row for (row,) in self._rows(statement, [*values, most])]

    def fitting(self, fits: Filter) -> list[int]:
        """Return all rows that fit."""
        where, values = condition(fits)
        return [row for (row,) in self._rows(f"SELECT row FROM {{s}}.notes_rows WHERE {where}", values)]

    def hidden(self, owner: str, asker: str | None) -> list[int]:
        """Return the rows that are private to other sources than the one that asks."""
        statement = "SELECT row FROM {s}.notes_rows WHERE owner = %s AND private = 1 AND source IS DISTINCT FROM %s"
        return [row for (row,) in self._rows(statement, [uuid_of(owner), None if asker is None else safe(asker)])]

    def rows_of(self, rows: Iterable[int], fits: Filter) -> dict[int, Row]:
        """Return the fields of those of some rows that exist and fit."""
        where, values = condition(fits)
        found = self._rows(f"{_ROW} WHERE row = ANY(%s) AND {where} ORDER BY row", [array(rows), *values])
        return {each[0]: _row(each) for each in found}

    def beside(self, rows: Iterable[Row], fits: Filter) -> dict[int, Row]:
        """Return the two turns before and the two after turns of conversations, as far as they fit."""
        wanted = {(row.session, row.place + step) for row in rows if row.session for step in (-2, -1, 1, 2)}
        if not wanted:
            return {}
        where, values = condition(fits)
        sessions, places = zip(*wanted, strict=True)
        found = self._rows(
            f"{_ROW} WHERE owner = %s AND session <> '' AND (session_hash, place) IN (SELECT * FROM unnest(%s::bigint[], %s::bigint[]))"
            f" AND {where} ORDER BY row",
            [uuid_of(fits.owner), array(map(hash_of, sessions)), array(places), *values],
        )
        return {each.row: each for each in map(_row, found) if (each.session, each.place) in wanted}

    def rows_named(self, owner: str, ids: Iterable[str]) -> dict[str, int]:
        """Return the rows of records by their ids; ids without one are left out."""
        wanted = set(ids)
        statement = "SELECT id, row FROM {s}.notes_rows WHERE owner = %s AND id_hash = ANY(%s)"
        found = ((plain(id_), row) for id_, row in self._rows(statement, [uuid_of(owner), array(map(hash_of, wanted))]))
        return {id_: row for id_, row in found if id_ in wanted}

    def same(self, owner: str, numbers: Iterable[int]) -> list[str]:
        """Return the ids of notes that have one of these values of `sameness`, the oldest first."""
        statement = "SELECT id FROM {s}.notes_rows WHERE owner = %s AND sameness = ANY(%s) ORDER BY id"
        return [plain(id_) for (id_,) in self._rows(statement, [uuid_of(owner), array(numbers)])]

    def speakers(self, owner: str) -> list[str]:
        """Return the speakers in an owner's notes, in alphabetical order, at most 10,000."""
        one = "SELECT speaker_hash, speaker FROM {s}.notes_rows WHERE owner = %s AND speaker <> ''"
        rows = self._rows(
            f"WITH RECURSIVE each AS (({one} ORDER BY speaker_hash LIMIT 1) UNION ALL SELECT next.* FROM each,"
            f" LATERAL ({one} AND speaker_hash > each.speaker_hash ORDER BY speaker_hash LIMIT 1) AS next)"
            " SELECT speaker FROM each LIMIT 10000",
            [uuid_of(owner)] * 2,
        )
        return sorted(plain(speaker) for (speaker,) in rows)

    def speaking(self, names: Iterable[str], fits: Filter) -> list[str]:
        """Return those of some speakers who have said something that fits."""
        where, values = condition(fits)
        statement = f"SELECT FROM {{s}}.notes_rows WHERE {where} AND speaker <> '' AND speaker_hash = %s AND speaker = %s LIMIT 1"
        return [name for name in names if self._rows(statement, [*values, hash_of(name), safe(name)])]

    # All of an owner

    def count(self, owner: str) -> int:
        """Return the number of an owner's notes."""
        [(found,)] = self._rows("SELECT count(*) FROM {s}.notes_rows WHERE owner = %s", [uuid_of(owner)])
        return int(found)

    def since(self, owner: str, row: int) -> tuple[list[tuple[int, str]], int]:
        """Return the rows after a row, each with its id, and the number of all rows of the owner."""
        rows = self._rows(
            "SELECT row, id FROM {s}.notes_rows WHERE owner = %s AND row > %s ORDER BY row", [uuid_of(owner), row]
        )
        return [(row, plain(id_)) for row, id_ in rows], self.count(owner)

    def all_rows(self, owner: str) -> dict[int, str]:
        """Return all rows of an owner with their ids."""
        rows = self._rows("SELECT row, id FROM {s}.notes_rows WHERE owner = %s", [uuid_of(owner)])
        return {row: plain(id_) for row, id_ in rows}

    def whole(self, owner: str) -> dict[str, tuple[object, ...]]:
        """Return the contents of the tables about each note of an owner, except its words, in the form of `expected`."""
        rows = self._rows(
            "SELECT id, scope, session, place, speaker, role, said, created, importance, source, private, chunks, traits, sameness,"
            f" (SELECT count(*) FROM {{s}}.notes_texts AS texts WHERE texts.place >= row * {CHUNKS} AND texts.place < (row + 1) * {CHUNKS}),"
            " categories, entries FROM {s}.notes_rows WHERE owner = %s",
            [uuid_of(owner)],
        )
        return {
            plain(id_): (*map(plain, values), frozenset(map(plain, some)), frozenset(entries))
            for id_, *values, some, entries in rows
        }

    # Listing and counting

    def counts(self, fits: Filter) -> dict[str, tuple[int, int, int]]:
        """Return the number of records directly in each scope, and when the first and the last of them were saved."""
        where, values = condition(fits)
        statement = (
            f"SELECT scope, count(*), min(created), max(created) FROM {{s}}.notes_rows WHERE {where} GROUP BY scope"
        )
        return {plain(scope): (count, oldest, newest) for scope, count, oldest, newest in self._rows(statement, values)}

    def categories(self, fits: Filter) -> dict[str, int]:
        """Return the number of records with each category, in alphabetical order."""
        where, values = condition(fits)
        statement = f"SELECT category, count(DISTINCT row) FROM {{s}}.notes_rows, unnest(categories) AS category WHERE {where} GROUP BY category"
        return dict(sorted((plain(category), count) for category, count in self._rows(statement, values)))

    def newest(self, fits: Filter, limit: int, offset: int) -> list[str]:
        """Return the ids of the records that fit, the newest first; all of them if the limit is below 0."""
        where, values = condition(fits)
        statement = f"SELECT id FROM {{s}}.notes_rows WHERE {where} ORDER BY created DESC, id DESC LIMIT %s OFFSET %s"
        return [plain(id_) for (id_,) in self._rows(statement, [*values, limit if limit >= 0 else None, offset])]

    def ids_named(self, fits: Filter, text: str) -> list[str]:
        """Return the ids that begin or end with a text, of the records that fit, in their order."""
        where, values = condition(fits)
        statement = (
            f"SELECT id FROM {{s}}.notes_rows WHERE {where} AND (left(id, %s) = %s OR right(id, %s) = %s) ORDER BY id"
        )
        text = safe(text)
        return [plain(id_) for (id_,) in self._rows(statement, [*values, len(text), text, len(text), text])]

    def last_place(self, owner: str, session: str) -> int:
        """Return the place of the last turn of a conversation; 0 if there is none."""
        statement = "SELECT coalesce(max(place), 0) FROM {s}.notes_rows WHERE owner = %s AND session <> '' AND session_hash = %s AND session = %s"
        [(place,)] = self._rows(statement, [uuid_of(owner), hash_of(session), safe(session)])
        return int(place)


def _row(found: tuple[Any, ...]) -> Row:
    """Return the fields of a row of `_ROW`."""
    row, id_, session, place, speaker, role, *rest = found
    return Row(row, plain(id_), plain(session), place, plain(speaker), plain(role), *rest)


def _lexeme(stem: str) -> str:
    """Return the code of a stem: the stem itself, unless it is too long. Words have no colon."""
    if len(stem) * 4 <= _LONG or len(stem.encode()) <= _LONG:
        return stem
    return f"{stem[:_BEGINNING]}:{blake2b(stem.encode(), digest_size=16).hexdigest()}"


def _vector(stems: Sequence[str]) -> tuple[str, list[str]]:
    """Return the stems of a text as a tsvector, and each of them once."""
    places: dict[str, list[str]] = {}
    size = 0
    for number, stem in enumerate(stems, 1):
        lexeme = _lexeme(stem)
        if lexeme not in places:
            size += len(lexeme.encode())
            if size > _LEXEMES:
                break
            places[lexeme] = []
        places[lexeme].append(str(min(number, _POSITIONS)))
    return " ".join(f"{_quoted(lexeme)}:{','.join(at)}" for lexeme, at in places.items()), list(places)


def _quoted(lexeme: str) -> str:
    doubled = lexeme.replace("\\", "\\\\").replace("'", "''")
    return f"'{doubled}'"
