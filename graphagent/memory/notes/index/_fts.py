"""The tables of the search index in SQLite: the words of notes in FTS5, with their scopes as tags, and a row of fields for each note.

They are in the file of a SqliteStore, or in memory. The file is long because every statement about these tables is in it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from graphagent.memory._note_values import stretch
from graphagent.memory.notes.index._connection import BYTES, NUMBER, NUMBER_OR_NONE, TEXT, damage, typed
from graphagent.memory.notes.index._filter import LISTED, condition, entries_of, listed, tags_of, tags_that_fit
from graphagent.memory.notes.index._tables import CHUNKS, Near, Row, batches, fields_of
from graphagent.memory.notes.index._tokens import TOKENIZER, Tokens, bounds_of_alike, most_alike

if TYPE_CHECKING:
    from graphagent.memory._note_values import Filter, Record
    from graphagent.memory.notes.index._connection import IndexConnection
    from graphagent.memory.notes.index._tables import Phrase, Term
    from graphagent.memory.notes.index._vectors import VectorTable

FORMAT = 9
CHECKED = ("notes_rows", "notes_words")
"""The tables of which SQLite can see that they are damaged: one has indexes that repeat it, the other is an index itself."""

SCHEMA = (
    (
        "CREATE VIRTUAL TABLE notes_words USING fts5(text, tags, content='', contentless_delete=1,"
        f' tokenize="{" ".join(map(repr, TOKENIZER))}")'
    ),
    (
        "CREATE TABLE notes_rows (row INTEGER PRIMARY KEY AUTOINCREMENT, owner TEXT NOT NULL, id TEXT NOT NULL,"
        " scope TEXT NOT NULL, session TEXT NOT NULL, place INTEGER NOT NULL, speaker TEXT NOT NULL, role TEXT NOT NULL,"
        " said INTEGER, created INTEGER NOT NULL, importance REAL NOT NULL, source TEXT NOT NULL, private INTEGER NOT NULL,"
        " chunks INTEGER NOT NULL, traits INTEGER NOT NULL, sameness INTEGER,"
        " UNIQUE (owner, id))"
    ),
    "CREATE INDEX notes_by_scope ON notes_rows (owner, scope, created, private, source, said)",
    "CREATE INDEX notes_by_session ON notes_rows (owner, session, place) WHERE session <> ''",
    "CREATE INDEX notes_by_speaker ON notes_rows (owner, speaker) WHERE speaker > ''",
    "CREATE INDEX notes_by_time ON notes_rows (owner, ifnull(said, created), said)",
    "CREATE INDEX notes_same ON notes_rows (owner, sameness) WHERE sameness IS NOT NULL",
    "CREATE INDEX notes_private ON notes_rows (owner, source) WHERE private = 1",
    "CREATE TABLE notes_categories (row INTEGER NOT NULL, category TEXT NOT NULL, PRIMARY KEY (row, category)) WITHOUT ROWID",
    "CREATE TABLE notes_metadata (row INTEGER NOT NULL, entry TEXT NOT NULL, PRIMARY KEY (row, entry)) WITHOUT ROWID",
    "CREATE INDEX notes_by_metadata ON notes_metadata (entry)",
    "CREATE VIRTUAL TABLE notes_vocabulary USING fts5vocab(notes_words, col)",
    "CREATE TABLE notes_state (name TEXT PRIMARY KEY, value) WITHOUT ROWID",
)

_BATCH = 256
"""How many records are added together at most."""
_TIMES = range(-62_135_596_800_000, 253_402_300_800_000)
"""The years 1 to 9999 in milliseconds UTC since 1970. No datetime is outside."""


_ROW_KINDS = (NUMBER, TEXT, TEXT, NUMBER, TEXT, TEXT, NUMBER_OR_NONE, NUMBER, NUMBER, NUMBER)
_ROW = "SELECT row, id, session, place, speaker, role, said, created, chunks, traits FROM notes_rows"


class SqliteTables:
    """The tables in a file of SQLite or in memory, over a connection."""

    vectors: VectorTable | None = None

    def __init__(self, connection: IndexConnection) -> None:
        self.connection = connection
        self.tokens = Tokens(connection)

    # Creating and filling

    def drop(self) -> None:
        """Remove the tables."""
        for name in (
            "notes_vocabulary",
            "notes_words",
            "notes_rows",
            "notes_categories",
            "notes_metadata",
            "notes_state",
        ):
            self.connection.execute(f"DROP TABLE IF EXISTS {name}")

    def make(self) -> None:
        """Create the tables, empty."""
        self.drop()
        for statement in SCHEMA:
            self.connection.execute(statement)
        self.connection.execute("INSERT INTO notes_state VALUES ('format', ?)", (FORMAT,))
        self.connection.execute("INSERT INTO notes_state VALUES ('made', randomblob(16))")

    def are_made(self) -> bool:
        """Return whether all tables exist in the format of this version."""
        rows = self.connection.execute("SELECT sql FROM sqlite_schema WHERE name LIKE 'notes!_%' ESCAPE '!'").fetchall()
        there = {sql for (sql,) in rows}
        if not there.issuperset(SCHEMA):
            return False
        return self.connection.execute("SELECT value FROM notes_state WHERE name='format'").fetchall() == [(FORMAT,)]

    def made(self) -> bytes:
        """Return a random stamp of the tables. Rows of tables with another stamp may be other notes."""
        rows = typed(self.connection, "SELECT value FROM notes_state WHERE name='made'", (), BYTES)
        if not rows:
            raise damage(self.connection.filename, "its stamp is missing")
        return bytes(rows[0][0])

    def add(self, records: Iterable[tuple[Record, Sequence[str]]]) -> list[int]:
        """Add or replace records, each with the texts by which it is found, and return their rows."""
        return [row for batch in batches(records, _BATCH) for row in self._add_batch(batch)]

    def _add_batch(self, batch: Mapping[tuple[str, str], tuple[Record, Sequence[str]]]) -> list[int]:
        for owner in {owner for owner, _ in batch}:
            self.remove(owner, self.rows_named(owner, [id_ for of, id_ in batch if of == owner]))
        # One more than any row has ever had, so that no number is used again; the inserts keep the sequence up to date.
        last = "SELECT ifnull(max(seq), 0) + 1 FROM sqlite_sequence WHERE name='notes_rows'"
        [(first,)] = typed(self.connection, last, (), NUMBER)
        rows = list(range(first, first + len(batch)))
        notes, words = list[tuple[object, ...]](), list[tuple[int, str, str]]()
        some, entries = list[tuple[int, str]](), list[tuple[int, str]]()
        known: dict[tuple[object, ...], str] = {}
        for row, (record, texts) in zip(rows, batch.values(), strict=True):
            notes.append((row, record.owner, record.id, *fields_of(record, len(texts))))
            kind = record.owner, record.scope, record.categories, record.source, record.private
            tags = known.get(kind) or known.setdefault(kind, tags_of(record))
            words += [(row * CHUNKS + number, text, tags) for number, text in enumerate(texts)]
            some += [(row, category) for category in record.categories]
            entries += [(row, entry) for entry in entries_of(record.metadata)]
        self.connection.executemany(f"INSERT INTO notes_rows VALUES ({', '.join('?' * 16)})", notes)
        self.connection.executemany("INSERT INTO notes_words(rowid, text, tags) VALUES (?, ?, ?)", words)
        self.connection.executemany("INSERT OR IGNORE INTO notes_categories VALUES (?, ?)", some)
        self.connection.executemany("INSERT INTO notes_metadata VALUES (?, ?)", entries)
        return rows

    def remove(self, owner: str, ids: Iterable[str]) -> None:
        """Remove records; ids without one are ignored."""
        for id_ in ids:
            statement = "SELECT row, chunks FROM notes_rows WHERE owner=? AND id=?"
            for row, chunks in typed(self.connection, statement, (owner, id_), NUMBER, NUMBER):
                for number in range(self._checked_chunks(chunks)):
                    self.connection.execute("DELETE FROM notes_words WHERE rowid=?", (row * CHUNKS + number,))
                self.connection.execute("DELETE FROM notes_categories WHERE row=?", (row,))
                self.connection.execute("DELETE FROM notes_metadata WHERE row=?", (row,))
                self.connection.execute("DELETE FROM notes_rows WHERE row=?", (row,))

    def _checked_chunks(self, chunks: int) -> int:
        if not 0 < chunks <= CHUNKS:
            raise damage(self.connection.filename, "a number of texts is not one that was written")
        return chunks

    def purge(self) -> None:
        """Erase the words of removed records, which FTS5 otherwise keeps until it merges its segments."""
        self.connection.execute("INSERT INTO notes_words(notes_words) VALUES ('optimize')")

    # Finding

    def postings(self, terms: Iterable[Term], fits: Filter, most: int = -1) -> dict[Term, list[int]]:
        """Return the places of the texts that fit and have a term, for each term: at most `most`, or all if that is below 0."""
        if not fits.scopes:
            return {term: [] for term in terms}
        [(first, last, has_private)] = self.connection.execute(
            "SELECT (SELECT min(owner) FROM notes_rows), (SELECT max(owner) FROM notes_rows),"
            " EXISTS (SELECT 1 FROM notes_rows WHERE owner=? AND private=1)",
            (fits.owner,),
        ).fetchall()
        has_others = bool({first, last} - {fits.owner, None})
        wanted = tags_that_fit(fits, has_others=has_others, has_private=has_private)
        tags = " AND ".join(f"({' OR '.join(each)})" for each in wanted)
        said = f" AND rowid / {CHUNKS} IN (SELECT row FROM notes_rows WHERE ifnull(said, created) BETWEEN ? AND ?)"
        timely, times = (said, stretch(fits)) if fits.since is not None or fits.until is not None else ("", ())
        entries = sorted(entries_of(fits.metadata))
        having = f" AND rowid / {CHUNKS} IN (SELECT row FROM notes_metadata WHERE entry=?)" * len(entries)
        statement = f"SELECT rowid FROM notes_words WHERE notes_words MATCH ?{timely}{having} LIMIT ?"
        found: dict[Term, list[int]] = {}
        for term in terms:
            words = " OR ".join(map(_expression, term))
            match = f"(text : ({words})) AND (tags : ({tags}))" if tags else f"text : ({words})"
            found[term] = [place for (place,) in self.connection.execute(statement, (match, *times, *entries, most))]
        return found

    def lengths(self, places: Iterable[int]) -> dict[int, int]:
        """Return the number of words of texts: the first varint of their rows in FTS5's table of sizes, as its file format says."""
        wanted = set(places)
        statement = f"SELECT id, sz FROM notes_words_docsize WHERE id IN {LISTED}"
        found = dict(typed(self.connection, statement, (listed(wanted),), NUMBER, BYTES))
        if found.keys() != wanted or not all(size and size[-1] < 0x80 for size in found.values()):
            raise damage(self.connection.filename, "a text that has words has no length")
        return {place: size[0] if size[0] < 0x80 else _varints(size)[0] for place, size in found.items()}

    def latest(self, fits: Filter, most: int, *, timed: bool) -> list[int]:
        """Return the rows that fit, at most so many, those said last first: of notes with a time, or of those without one."""
        where, values = condition(fits)
        is_timed = "said IS NOT NULL" if timed else "said IS NULL"
        statement = (
            f"SELECT row FROM notes_rows WHERE {where} AND {is_timed} ORDER BY ifnull(said, created) DESC LIMIT ?"
        )
        return [row for (row,) in self.connection.execute(statement, (*values, most))]

    def all_counted_fit(self, fits: Filter) -> bool:
        """Return whether all notes of the store fit, whomever they belong to."""
        if not fits.is_whole:
            return False
        others = "SELECT 1 FROM notes_rows WHERE owner < ?1 UNION ALL SELECT 1 FROM notes_rows WHERE owner > ?1"
        private = "SELECT 1 FROM notes_rows WHERE owner=?1 AND private=1"
        return not self.connection.execute(f"{others} UNION ALL {private} LIMIT 1", (fits.owner,)).fetchall()

    def fitting(self, fits: Filter) -> list[int]:
        """Return all rows that fit."""
        found: list[int] = []
        for scope in fits.scopes:  # one statement for each, because SQLite then reads it from an index alone
            where, values = condition(replace(fits, scopes=(scope,)))
            found += [row for (row,) in self.connection.execute(f"SELECT row FROM notes_rows WHERE {where}", values)]
        return found

    def totals(self, owner: str) -> tuple[int, float]:
        """Return the number of texts and the mean of their lengths in words: from row 1 of FTS5's data table, as its file format says."""
        rows = typed(self.connection, "SELECT block FROM notes_words_data WHERE id=1", (), BYTES)
        numbers = _varints(rows[0][0]) if rows else []
        # The texts may have no words at all, such as a sign or a picture alone.
        return (numbers[0], numbers[1] / numbers[0] or 1.0) if len(numbers) > 1 and numbers[0] else (0, 1.0)

    def rows_named(self, owner: str, ids: Iterable[str]) -> dict[str, int]:
        """Return the rows of records by their ids; ids without one are left out."""
        statement = f"SELECT id, row FROM notes_rows WHERE owner=? AND id IN {LISTED}"
        return dict(typed(self.connection, statement, (owner, listed(ids)), TEXT, NUMBER))

    def same(self, owner: str, numbers: Iterable[int]) -> list[str]:
        """Return the ids of notes that have one of these values of `sameness`, the oldest first."""
        # Unless it is told, SQLite takes the index that has the order, and reads all notes of the owner in it.
        statement = (
            f"SELECT id FROM notes_rows INDEXED BY notes_same WHERE owner=? AND sameness IN {LISTED} ORDER BY id"
        )
        return [id_ for (id_,) in typed(self.connection, statement, (owner, listed(numbers)), TEXT)]

    def rows_of(self, rows: Iterable[int], fits: Filter) -> dict[int, Row]:
        """Return the fields of those of some rows that exist and fit."""
        where, values = condition(fits, rows)
        found = {
            each[0]: Row._make(each) for each in typed(self.connection, f"{_ROW} WHERE {where}", values, *_ROW_KINDS)
        }
        for each in found.values():
            self._checked_chunks(each.chunks)
        return found

    def beside(self, rows: Iterable[Row], fits: Filter) -> dict[int, Row]:
        """Return the two turns before and the two after turns of conversations, as far as they fit."""
        wanted = {(row.session, row.place + step) for row in rows if row.session for step in (-2, -1, 1, 2)}
        if not wanted:
            return {}
        places = "SELECT value->>0, value->>1 FROM json_each(?)"
        found = self.connection.execute(
            f"SELECT row FROM notes_rows WHERE owner=? AND session<>'' AND (session, place) IN ({places})",
            (fits.owner, listed(wanted)),
        )
        return self.rows_of([row for (row,) in found], fits)

    def count(self, owner: str) -> int:
        """Return the number of an owner's notes."""
        [(found,)] = self.connection.execute("SELECT count(*) FROM notes_rows WHERE owner=?", (owner,)).fetchall()
        return int(found)

    def since(self, owner: str, row: int) -> tuple[list[tuple[int, str]], int]:
        """Return the rows after a row, each with its id, and the number of all rows of the owner."""
        statement = "SELECT row, id FROM notes_rows WHERE row>? AND owner=? ORDER BY row"
        rows = typed(self.connection, statement, (row, owner), NUMBER, TEXT)
        return [(row, id_) for row, id_ in rows], self.count(owner)

    def all_rows(self, owner: str) -> dict[int, str]:
        """Return all rows of an owner with their ids."""
        return dict(typed(self.connection, "SELECT row, id FROM notes_rows WHERE owner=?", (owner,), NUMBER, TEXT))

    def whole(self, owner: str) -> dict[str, tuple[object, ...]]:
        """Return the contents of the tables about each note of an owner, except its words, in the form of `expected`."""
        rows = self.connection.execute(
            "SELECT id, scope, session, place, speaker, role, said, created, importance, source, private, chunks, traits, sameness,"
            f" (SELECT count(*) FROM notes_words_docsize WHERE id/{CHUNKS}=notes_rows.row AND id>=notes_rows.row*{CHUNKS}"
            f" AND id<(notes_rows.row+1)*{CHUNKS}), row FROM notes_rows WHERE owner=?",
            (owner,),
        ).fetchall()
        found: dict[str, tuple[object, ...]] = {}
        for id_, *values, row in rows:
            some = self.connection.execute("SELECT category FROM notes_categories WHERE row=?", (row,)).fetchall()
            entries = self.connection.execute("SELECT entry FROM notes_metadata WHERE row=?", (row,)).fetchall()
            found[id_] = (
                *values, frozenset(category for (category,) in some), frozenset(entry for (entry,) in entries)
            )  # fmt: skip
        return found

    def speakers(self, owner: str) -> list[str]:
        """Return the speakers in an owner's notes, in alphabetical order, at most 10,000."""
        statement = (
            "WITH RECURSIVE each(name) AS (SELECT min(speaker) FROM notes_rows WHERE owner=?1 AND speaker>''"
            " UNION ALL SELECT (SELECT min(speaker) FROM notes_rows WHERE owner=?1 AND speaker>'' AND speaker>each.name) FROM each"
            " WHERE each.name IS NOT NULL) SELECT name FROM each WHERE name IS NOT NULL LIMIT 10000"
        )
        return [name for (name,) in typed(self.connection, statement, (owner,), TEXT)]

    def speaking(self, names: Iterable[str], fits: Filter) -> list[str]:
        """Return those of some speakers who have said something that fits."""
        where, values = condition(fits)
        statement = f"SELECT 1 FROM notes_rows WHERE {where} AND speaker>'' AND speaker=? LIMIT 1"
        return [name for name in names if self.connection.execute(statement, (*values, name)).fetchall()]

    def hidden(self, owner: str, asker: str | None) -> list[int]:
        """Return the rows that are private to other sources than the one that asks."""
        rows = self.connection.execute(
            "SELECT row FROM notes_rows WHERE owner=? AND private=1 AND source IS NOT ?", (owner, asker)
        )
        return [row for (row,) in rows]

    def frequencies(self, stems: Iterable[str], owner: str) -> dict[str, int]:
        """Return the number of texts that contain each stem."""
        found: dict[str, int] = {}
        for stem in stems:
            rows = self.connection.execute(
                "SELECT doc FROM notes_vocabulary WHERE term=? AND col='text'", (stem,)
            ).fetchall()
            found[stem] = rows[0][0] if rows else 0
        return found

    def similar(self, stem: str, owner: str) -> dict[str, float]:
        """Return the stems that are spelled most like one, from all notes, whomever they belong to."""
        first, behind, shortest, longest = bounds_of_alike(stem)
        rows = self.connection.execute(
            "SELECT term FROM notes_vocabulary WHERE col='text' AND term>=? AND term<? AND length(term) BETWEEN ? AND ?",
            (first, behind, shortest, longest),
        )
        return most_alike(stem, (term for (term,) in rows))

    # Listing and counting

    def counts(self, fits: Filter) -> dict[str, tuple[int, int, int]]:
        """Return the number of records directly in each scope, and when the first and the last of them were saved."""
        where, values = condition(fits)
        statement = f"SELECT scope, count(*), min(created), max(created) FROM notes_rows WHERE {where} GROUP BY scope"
        rows = typed(self.connection, statement, values, TEXT, NUMBER, NUMBER, NUMBER)
        if not all(oldest in _TIMES and newest in _TIMES for _, _, oldest, newest in rows):
            raise damage(self.connection.filename, "a time is not one that was written")
        return {scope: (count, oldest, newest) for scope, count, oldest, newest in rows}

    def categories(self, fits: Filter) -> dict[str, int]:
        """Return the number of records with each category, in alphabetical order."""
        where, values = condition(fits)
        statement = (
            f"SELECT category, count(*) FROM notes_categories JOIN notes_rows USING (row) WHERE {where} GROUP BY category"
            " ORDER BY category"
        )
        return dict(typed(self.connection, statement, values, TEXT, NUMBER))

    def newest(self, fits: Filter, limit: int, offset: int) -> list[str]:
        """Return the ids of the records that fit, the newest first; all of them if the limit is below 0."""
        where, values = condition(fits)
        statement = f"SELECT id FROM notes_rows WHERE {where} ORDER BY created DESC, id DESC LIMIT ? OFFSET ?"
        return [id_ for (id_,) in typed(self.connection, statement, (*values, limit, offset), TEXT)]

    def ids_named(self, fits: Filter, text: str) -> list[str]:
        """Return the ids that begin or end with a text, of the records that fit, in their order."""
        where, values = condition(fits)
        statement = f"SELECT id FROM notes_rows WHERE {where} AND (substr(id, 1, ?)=? OR substr(id, -?)=?) ORDER BY id"
        return [id_ for (id_,) in typed(self.connection, statement, (*values, len(text), text, len(text), text), TEXT)]

    def last_place(self, owner: str, session: str) -> int:
        """Return the place of the last turn of a conversation; 0 if there is none."""
        statement = "SELECT ifnull(max(place), 0) FROM notes_rows WHERE owner=? AND session=? AND session<>''"
        [(place,)] = typed(self.connection, statement, (owner, session), NUMBER)
        return int(place)


def _expression(term: Phrase | Near) -> str:
    """Return a term as an expression of FTS5."""
    if isinstance(term, Near):
        return f"NEAR({_expression(term.one)} {_expression(term.other)}, 2)"
    words = '"' + term.words.replace('"', '""') + '"'
    return f"{words} *" if term.is_prefix else words


def _varints(block: bytes) -> list[int]:
    """Return the numbers of a block of SQLite's varints, each of which ends with a byte below 128."""
    found: list[int] = []
    number = 0
    for byte in block:
        number = number << 7 | byte & 0x7F
        if byte < 0x80:
            found.append(number)
            number = 0
    return found
