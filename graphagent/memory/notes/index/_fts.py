"""The tables by which notes are found: their words in FTS5 with the scope inside, and what is known of each.

They are derived from the records, and stand beside them in the file of a SqliteStore, where each commit writes both; over any
other store they stand in memory. Nothing here waits: every function is given a connection.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from graphagent.memory.notes.index._duplicates import sameness
from graphagent.memory.notes.index._filter import (
    LISTED,
    condition,
    entries_of,
    listed,
    quoted,
    stretch,
    tags_of,
    tags_that_fit,
)
from graphagent.memory.notes.index._storage import milliseconds

if TYPE_CHECKING:
    from graphagent.memory.notes._types import Record
    from graphagent.memory.notes.index._backend import Connection
    from graphagent.memory.notes.index._filter import Filter

FORMAT = 3
TOKENIZER: tuple[str, ...] = ("porter", "unicode61", "remove_diacritics", "2")

SCHEMA = (
    (
        "CREATE VIRTUAL TABLE notes_words USING fts5(text, tags, content='', contentless_delete=1,"
        f" tokenize='{' '.join(TOKENIZER)}')"
    ),
    (
        "CREATE TABLE notes_rows (row INTEGER PRIMARY KEY AUTOINCREMENT, owner TEXT NOT NULL, id TEXT NOT NULL,"
        " scope TEXT NOT NULL, session TEXT NOT NULL, place INTEGER NOT NULL, speaker TEXT NOT NULL, role TEXT NOT NULL,"
        " said INTEGER, created INTEGER NOT NULL, importance REAL NOT NULL, source TEXT NOT NULL, private INTEGER NOT NULL,"
        " chunks INTEGER NOT NULL, sameness INTEGER,"
        " UNIQUE (owner, id))"
    ),
    "CREATE INDEX notes_by_scope ON notes_rows (owner, scope, created, private, source, said)",
    "CREATE INDEX notes_by_session ON notes_rows (owner, session, place) WHERE session <> ''",
    "CREATE INDEX notes_by_speaker ON notes_rows (owner, speaker) WHERE speaker > ''",
    "CREATE INDEX notes_by_time ON notes_rows (owner, ifnull(said, created))",
    "CREATE INDEX notes_same ON notes_rows (owner, sameness) WHERE sameness IS NOT NULL",
    "CREATE INDEX notes_private ON notes_rows (owner, source) WHERE private = 1",
    "CREATE TABLE notes_categories (row INTEGER NOT NULL, category TEXT NOT NULL, PRIMARY KEY (row, category)) WITHOUT ROWID",
    "CREATE TABLE notes_metadata (row INTEGER NOT NULL, entry TEXT NOT NULL, PRIMARY KEY (row, entry)) WITHOUT ROWID",
    "CREATE INDEX notes_by_metadata ON notes_metadata (entry)",
    "CREATE VIRTUAL TABLE notes_vocabulary USING fts5vocab(notes_words, col)",
    "CREATE TABLE notes_state (name TEXT PRIMARY KEY, value) WITHOUT ROWID",
)

POOL = 200
"""How many candidates a search gives at most, to be ranked, where not more are asked for."""
CHUNKS = 1024
"""The most texts by which one record is found. Text n of row r has the number r * CHUNKS + n."""
_AS_QUERY, _AS_DOCUMENT = 1, 4
"""FTS5_TOKENIZE_QUERY and FTS5_TOKENIZE_DOCUMENT, as `sqlite3.h` has them."""


class Row(NamedTuple):
    """What is known of a record where it is ranked."""

    row: int
    id: str
    scope: str
    session: str
    place: int
    speaker: str
    role: str
    said: int | None
    """When it was said, in milliseconds UTC, where that is known."""
    created: int
    importance: float


_ROW = "SELECT row, id, scope, session, place, speaker, role, said, created, importance FROM notes_rows"


# ---- made, filled, emptied


def drop(connection: Connection) -> None:
    """Remove the tables."""
    for name in ("notes_vocabulary", "notes_words", "notes_rows", "notes_categories", "notes_metadata", "notes_state"):
        connection.execute(f"DROP TABLE IF EXISTS {name}")


def make(connection: Connection) -> None:
    """Make the tables, empty."""
    drop(connection)
    for statement in SCHEMA:
        connection.execute(statement)
    connection.execute("INSERT INTO notes_state VALUES ('format', ?)", (FORMAT,))
    connection.execute("INSERT INTO notes_state VALUES ('made', randomblob(16))")


def are_made(connection: Connection) -> bool:
    """Tell whether the tables are there, all of them and in the format of this version."""
    rows = connection.execute("SELECT sql FROM sqlite_schema WHERE name LIKE 'notes!_%' ESCAPE '!'").fetchall()
    there = {sql for (sql,) in rows}
    if not there.issuperset(SCHEMA):
        return False
    return connection.execute("SELECT value FROM notes_state WHERE name='format'").fetchall() == [(FORMAT,)]


def made(connection: Connection) -> bytes:
    """Give what tells this making of the tables from others, in which the same rows are other notes."""
    [(stamp,)] = connection.execute("SELECT value FROM notes_state WHERE name='made'").fetchall()
    return bytes(stamp)


def add(connection: Connection, records: Iterable[tuple[Record, Sequence[str]]]) -> list[int]:
    """Add records, each with the texts by which it is found, and give their rows; those that are there are replaced."""
    added: list[int] = []
    for record, texts in records:
        remove(connection, record.owner, [record.id])
        connection.execute(
            "INSERT INTO notes_rows VALUES (NULL, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                record.owner, record.id, record.scope, record.session, record.place, record.speaker, record.role,
                None if record.at is None else milliseconds(record.at), milliseconds(record.created_at),
                record.importance, record.source, int(record.private), len(texts), sameness(record),
            ),
        )  # fmt: skip
        row = connection.last_insert_rowid()
        tags = tags_of(record)
        for number, text in enumerate(texts):
            place = row * CHUNKS + number
            connection.execute("INSERT INTO notes_words(rowid, text, tags) VALUES (?, ?, ?)", (place, text, tags))
        for category in record.categories:
            connection.execute("INSERT OR IGNORE INTO notes_categories VALUES (?, ?)", (row, category))
        if record.metadata:
            entries = listed(entries_of(record.metadata))
            connection.execute("INSERT INTO notes_metadata SELECT ?, value FROM json_each(?)", (row, entries))
        added.append(row)
    return added


def remove(connection: Connection, owner: str, ids: Iterable[str]) -> None:
    """Remove records; those that are not there are left out."""
    for id_ in ids:
        found = connection.execute("SELECT row, chunks FROM notes_rows WHERE owner=? AND id=?", (owner, id_)).fetchall()
        for row, chunks in found:
            for number in range(chunks):
                connection.execute("DELETE FROM notes_words WHERE rowid=?", (row * CHUNKS + number,))
            connection.execute("DELETE FROM notes_categories WHERE row=?", (row,))
            connection.execute("DELETE FROM notes_metadata WHERE row=?", (row,))
            connection.execute("DELETE FROM notes_rows WHERE row=?", (row,))


def purge(connection: Connection) -> None:
    """Have words of removed records leave the tables: until then they stand, unseen, beside those of others."""
    connection.execute("INSERT INTO notes_words(notes_words) VALUES ('optimize')")


# ---- found


def candidates(connection: Connection, words: Sequence[str], fits: Filter, most: int = POOL) -> dict[int, float]:
    """Give the rows that have some of the words, the best first, with how well: above 0, by BM25 (SQLite's bm25())."""
    if not words:
        return {}
    tags = tags_that_fit(connection, fits)
    match = f"text : ({' OR '.join(map(quoted, words))})"
    match = f"({match}) AND (tags : ({tags}))" if tags else match
    since, until = stretch(fits)
    timely = (
        ""
        if since is None
        else f" AND rowid / {CHUNKS} IN (SELECT row FROM notes_rows WHERE ifnull(said, created) BETWEEN ? AND ?)"
    )
    entries = sorted(entries_of(fits.metadata))
    having = f" AND rowid / {CHUNKS} IN (SELECT row FROM notes_metadata WHERE entry=?)" * len(entries)
    rows = connection.execute(
        "SELECT rowid, rank FROM notes_words WHERE notes_words MATCH ? AND rank MATCH 'bm25(1.0, 0.0)'"
        f"{timely}{having} ORDER BY rank",
        (match, *(() if since is None else (since, until)), *entries),
    )
    found: dict[int, float] = {}
    for place, rank in rows:  # no LIMIT, for many of the best texts may be of one note
        found.setdefault(place // CHUNKS, -rank)
        if len(found) == most:
            break
    return found


def dated(connection: Connection, spans: Iterable[tuple[int, int]], fits: Filter, most: int) -> list[int]:
    """Give rows that fit and were said, or else kept, in one of some stretches of time, of each the newest."""
    found: list[int] = []
    for first, last in spans:
        since = first if fits.since is None else max(first, fits.since)
        until = last if fits.until is None else min(last, fits.until)
        where, values = condition(replace(fits, since=since, until=until))
        rows = connection.execute(
            f"SELECT row FROM notes_rows WHERE {where} ORDER BY ifnull(said, created) DESC LIMIT ?", (*values, most)
        )
        found += [row for (row,) in rows]
    return found


def fitting(connection: Connection, fits: Filter, among: Sequence[int] | None = None) -> list[int]:
    """Give all rows that fit, or those of some."""
    found: list[int] = []
    for scope in fits.scopes:  # one by one, each is read from the index alone
        where, values = condition(replace(fits, scopes=(scope,)), among)
        found += [row for (row,) in connection.execute(f"SELECT row FROM notes_rows WHERE {where}", values)]
    return found


def total(connection: Connection) -> int:
    """Give how many texts there are: the first number of what FTS5 keeps in the row 1 of its data, as its file format says."""
    rows = connection.execute("SELECT block FROM notes_words_data WHERE id=1").fetchall()
    count = 0
    for byte in bytes(rows[0][0]) if rows else b"":
        count = count << 7 | byte & 0x7F
        if byte < 0x80:
            break
    return count


def rows_named(connection: Connection, owner: str, ids: Iterable[str]) -> dict[str, int]:
    """Give the rows of records by their ids; those that are not there are left out."""
    found = connection.execute(f"SELECT id, row FROM notes_rows WHERE owner=? AND id IN {LISTED}", (owner, listed(ids)))
    return dict(found.fetchall())


def same(connection: Connection, owner: str, numbers: Iterable[int]) -> list[str]:
    """Give the ids of notes that have one of these numbers, which notes share that are the same; the oldest first."""
    found = connection.execute(
        f"SELECT id FROM notes_rows WHERE owner=? AND sameness IN {LISTED} ORDER BY id", (owner, listed(numbers))
    )
    return [id_ for (id_,) in found]


def rows_of(connection: Connection, rows: Iterable[int]) -> dict[int, Row]:
    """Give what is known of rows; those that are gone are left out."""
    found = connection.execute(f"{_ROW} WHERE row IN {LISTED}", (listed(rows),))
    return {each[0]: Row._make(each) for each in found}


def beside(connection: Connection, rows: Iterable[Row], owner: str) -> dict[int, Row]:
    """Give the turns before and behind turns of conversations."""
    wanted = {(row.session, place) for row in rows if row.session for place in (row.place - 1, row.place + 1)}
    if not wanted:
        return {}
    places = "SELECT value->>0, value->>1 FROM json_each(?)"
    found = connection.execute(
        f"{_ROW} WHERE owner=? AND session<>'' AND (session, place) IN ({places})", (owner, listed(wanted))
    )
    return {each[0]: Row._make(each) for each in found}


def count(connection: Connection, owner: str) -> int:
    """Give how many notes an owner has."""
    [(found,)] = connection.execute("SELECT count(*) FROM notes_rows WHERE owner=?", (owner,)).fetchall()
    return int(found)


def since(connection: Connection, owner: str, row: int) -> tuple[list[tuple[int, str]], int]:
    """Give the rows behind a row, each with its id, and how many there are in all."""
    rows = connection.execute("SELECT row, id FROM notes_rows WHERE row>? AND owner=? ORDER BY row", (row, owner))
    return [(row, id_) for row, id_ in rows], count(connection, owner)


def all_rows(connection: Connection, owner: str) -> dict[int, str]:
    """Give all rows of an owner with their ids."""
    return dict(connection.execute("SELECT row, id FROM notes_rows WHERE owner=?", (owner,)).fetchall())


def whole(connection: Connection, owner: str) -> dict[str, tuple[object, ...]]:
    """Give all that the tables have of each note of an owner but its words, as `told` gives it; and how many texts have words."""
    rows = connection.execute(
        "SELECT id, scope, session, place, speaker, role, said, created, importance, source, private, chunks, sameness,"
        f" (SELECT count(*) FROM notes_words_docsize WHERE id/{CHUNKS}=notes_rows.row AND id>=notes_rows.row*{CHUNKS}"
        f" AND id<(notes_rows.row+1)*{CHUNKS}), row FROM notes_rows WHERE owner=?",
        (owner,),
    ).fetchall()
    found: dict[str, tuple[object, ...]] = {}
    for id_, *values, row in rows:
        some = connection.execute("SELECT category FROM notes_categories WHERE row=?", (row,)).fetchall()
        entries = connection.execute("SELECT entry FROM notes_metadata WHERE row=?", (row,)).fetchall()
        found[id_] = (
            *values, frozenset(category for (category,) in some), frozenset(entry for (entry,) in entries)
        )  # fmt: skip
    return found


def told(record: Record, texts: int) -> tuple[object, ...]:
    """Give what the tables are to have of a note that is found by so many texts."""
    return (
        record.scope, record.session, record.place, record.speaker, record.role,
        None if record.at is None else milliseconds(record.at), milliseconds(record.created_at), record.importance,
        record.source, int(record.private), texts, sameness(record), texts, frozenset(record.categories),
        entries_of(record.metadata),
    )  # fmt: skip


def speakers(connection: Connection, owner: str) -> list[str]:
    """Give who speaks in what an owner has, in alphabetical order."""
    rows = connection.execute(
        "WITH RECURSIVE each(name) AS (SELECT min(speaker) FROM notes_rows WHERE owner=?1 AND speaker>''"
        " UNION ALL SELECT (SELECT min(speaker) FROM notes_rows WHERE owner=?1 AND speaker>each.name) FROM each"
        " WHERE each.name IS NOT NULL) SELECT name FROM each WHERE name IS NOT NULL LIMIT 1000",
        (owner,),
    )
    return [name for (name,) in rows]


def hidden(connection: Connection, owner: str, asker: str | None) -> list[int]:
    """Give the rows that are private to others than the one who asks."""
    rows = connection.execute(
        "SELECT row FROM notes_rows WHERE owner=? AND private=1 AND source IS NOT ?", (owner, asker)
    )
    return [row for (row,) in rows]


def stems_of(connection: Connection, words: Iterable[str]) -> dict[str, str]:
    """Give how each word is spelled in the index; those that are none there are left out."""
    return {word: stems[0] for word, stems in split(connection, words, _AS_QUERY).items() if stems}


def split(connection: Connection, texts: Iterable[str], reason: int = _AS_DOCUMENT) -> dict[str, list[str]]:
    """Give the words of texts as they are spelled in the index."""
    name, *options = TOKENIZER
    tokens = connection.fts5_tokenizer(name, options)
    return {
        text: tokens(text.encode("utf-8", "replace"), reason, None, include_offsets=False, include_colocated=False)
        for text in texts
    }


def frequencies(connection: Connection, stems: Iterable[str]) -> dict[str, int]:
    """Give in how many records each word is, that is how it is spelled in the index."""
    found: dict[str, int] = {}
    for stem in stems:
        rows = connection.execute("SELECT doc FROM notes_vocabulary WHERE term=? AND col='text'", (stem,)).fetchall()
        found[stem] = rows[0][0] if rows else 0
    return found


# ---- told


def counts(connection: Connection, fits: Filter) -> dict[str, tuple[int, int, int]]:
    """Give, for each scope with records of its own, how many there are, and when the first and the last was kept."""
    where, values = condition(fits)
    rows = connection.execute(
        f"SELECT scope, count(*), min(created), max(created) FROM notes_rows WHERE {where} GROUP BY scope", values
    )
    return {scope: (count, oldest, newest) for scope, count, oldest, newest in rows}


def categories(connection: Connection, fits: Filter) -> dict[str, int]:
    """Give in how many records each category is, in alphabetical order."""
    where, values = condition(fits)
    rows = connection.execute(
        f"SELECT category, count(*) FROM notes_categories JOIN notes_rows USING (row) WHERE {where} GROUP BY category"
        " ORDER BY category",
        values,
    )
    return dict(rows.fetchall())


def newest(connection: Connection, fits: Filter, limit: int, offset: int) -> list[str]:
    """Give the ids of what fits, the newest first."""
    where, values = condition(fits)
    rows = connection.execute(
        f"SELECT id FROM notes_rows WHERE {where} ORDER BY created DESC, id DESC LIMIT ? OFFSET ?",
        (*values, limit, offset),
    )
    return [id_ for (id_,) in rows]


def ids_named(connection: Connection, fits: Filter, text: str) -> list[str]:
    """Return the ids that begin or end with a text, of what fits, in their order."""
    where, values = condition(fits)
    rows = connection.execute(
        f"SELECT id FROM notes_rows WHERE {where} AND (substr(id, 1, ?)=? OR substr(id, -?)=?) ORDER BY id",
        (*values, len(text), text, len(text), text),
    )
    return [id_ for (id_,) in rows]


def last_place(connection: Connection, owner: str, session: str) -> int:
    """Give the place of the last turn of a conversation; 0 where there is none."""
    [(place,)] = connection.execute(
        "SELECT ifnull(max(place), 0) FROM notes_rows WHERE owner=? AND session=? AND session<>''", (owner, session)
    ).fetchall()
    return int(place)
