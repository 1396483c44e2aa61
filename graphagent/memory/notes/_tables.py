"""The tables by which notes are found: their words in FTS5 with the scope inside, and what is known of each.

They are derived from the records, and stand beside them in the file of a SqliteStore, where each commit writes both; over any
other store they stand in memory. Nothing here waits: every function is given a connection.

Scopes, owners, sources and categories are words of a column of their own, so that a search reads only what it may find. Such a
word ends with a digit, which no stemmer changes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import orjson

from graphagent.memory.notes._sameness import sameness
from graphagent.memory.notes._scopes import ROOT, lineage

if TYPE_CHECKING:
    from graphagent.memory.notes._types import Record

FORMAT = 2
PREFIX = "notes_"
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
    "CREATE VIRTUAL TABLE notes_vocabulary USING fts5vocab(notes_words, col)",
    "CREATE TABLE notes_state (name TEXT PRIMARY KEY, value) WITHOUT ROWID",
)

POOL = 200
"""How many candidates a search gives at most, to be ranked, where not more are asked for."""
CHUNKS = 1024
"""The most texts by which one record is found. Text n of row r has the number r * CHUNKS + n."""
_AS_QUERY, _AS_DOCUMENT = 1, 4
"""FTS5_TOKENIZE_QUERY and FTS5_TOKENIZE_DOCUMENT, as `sqlite3.h` has them."""
_LISTED = "(SELECT value FROM json_each(?))"
"""Where a list of values is bound, as `_list` gives it."""


class Cursor(Protocol):
    """What is used of a cursor of the driver."""

    def __iter__(self) -> Iterator[tuple[Any, ...]]: ...
    def fetchall(self) -> list[tuple[Any, ...]]: ...


class Connection(Protocol):
    """What is used of a connection of the driver."""

    def execute(self, statement: str, bindings: Any = ..., /) -> Cursor: ...
    def executemany(self, statement: str, bindings: Any, /) -> Cursor: ...
    def last_insert_rowid(self) -> int: ...
    def fts5_tokenizer(self, name: str, args: list[str], /) -> Any: ...


@dataclass(frozen=True, slots=True)
class Filter:
    """What a search may find."""

    owner: str
    scopes: tuple[str, ...] = (ROOT,)
    """None of them within another."""
    categories: tuple[frozenset[str], ...] = ()
    """Of each of these sets a record has at least one."""
    asker: str | None = None
    """Who asks: of private records only those of this source are found."""
    source: str | None = None
    """Whose records alone are found."""
    since: int | None = None
    until: int | None = None
    """Records that were said, or else kept, from one time to another; in milliseconds UTC."""
    private: bool = False
    """Whether private records are found, whosoever they are."""

    @property
    def is_whole(self) -> bool:
        """Whether all that an owner has fits, but for what is private."""
        return self.scopes == (ROOT,) and (self.source, self.since, self.until) == (None,) * 3 and not self.categories


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
    for name in ("notes_vocabulary", "notes_words", "notes_rows", "notes_categories", "notes_state"):
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
        tags = _tags(record)
        for number, text in enumerate(texts):
            place = row * CHUNKS + number
            connection.execute("INSERT INTO notes_words(rowid, text, tags) VALUES (?, ?, ?)", (place, text, tags))
        for category in record.categories:
            connection.execute("INSERT OR IGNORE INTO notes_categories VALUES (?, ?)", (row, category))
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
            connection.execute("DELETE FROM notes_rows WHERE row=?", (row,))


def purge(connection: Connection) -> None:
    """Have words of removed records leave the tables: until then they stand, unseen, beside those of others."""
    connection.execute("INSERT INTO notes_words(notes_words) VALUES ('optimize')")


# ---- found


def candidates(connection: Connection, words: Sequence[str], fits: Filter, most: int = POOL) -> dict[int, float]:
    """Give the rows that have some of the words, the best first, with how well: above 0, by BM25 (SQLite's bm25())."""
    if not words:
        return {}
    tags = _filter(connection, fits)
    match = f"text : ({' OR '.join(map(_quoted, words))})"
    match = f"({match}) AND (tags : ({tags}))" if tags else match
    since, until = _times(fits)
    timely = (
        ""
        if since is None
        else f" AND rowid / {CHUNKS} IN (SELECT row FROM notes_rows WHERE ifnull(said, created) BETWEEN ? AND ?)"
    )
    rows = connection.execute(
        "SELECT rowid, rank FROM notes_words WHERE notes_words MATCH ? AND rank MATCH 'bm25(1.0, 0.0)'"
        f"{timely} ORDER BY rank",
        (match, *(() if since is None else (since, until))),
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
        where, values = _where(replace(fits, since=since, until=until))
        rows = connection.execute(
            f"SELECT row FROM notes_rows WHERE {where} ORDER BY ifnull(said, created) DESC LIMIT ?", (*values, most)
        )
        found += [row for (row,) in rows]
    return found


def fitting(connection: Connection, fits: Filter, among: Sequence[int] | None = None) -> list[int]:
    """Give all rows that fit, or those of some."""
    found: list[int] = []
    for scope in fits.scopes:  # one by one, each is read from the index alone
        where, values = _where(replace(fits, scopes=(scope,)), among)
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
    found = connection.execute(f"SELECT id, row FROM notes_rows WHERE owner=? AND id IN {_LISTED}", (owner, _list(ids)))
    return dict(found.fetchall())


def same(connection: Connection, owner: str, numbers: Iterable[int]) -> list[str]:
    """Give the ids of notes that have one of these numbers, which notes share that are the same; the oldest first."""
    found = connection.execute(
        f"SELECT id FROM notes_rows WHERE owner=? AND sameness IN {_LISTED} ORDER BY id", (owner, _list(numbers))
    )
    return [id_ for (id_,) in found]


def rows_of(connection: Connection, rows: Iterable[int]) -> dict[int, Row]:
    """Give what is known of rows; those that are gone are left out."""
    found = connection.execute(f"{_ROW} WHERE row IN {_LISTED}", (_list(rows),))
    return {each[0]: Row._make(each) for each in found}


def beside(connection: Connection, rows: Iterable[Row], owner: str) -> dict[int, Row]:
    """Give the turns before and behind turns of conversations."""
    wanted = {(row.session, place) for row in rows if row.session for place in (row.place - 1, row.place + 1)}
    if not wanted:
        return {}
    places = "SELECT value->>0, value->>1 FROM json_each(?)"
    found = connection.execute(
        f"{_ROW} WHERE owner=? AND session<>'' AND (session, place) IN ({places})", (owner, _list(wanted))
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
        found[id_] = (*values, frozenset(category for (category,) in some))
    return found


def told(record: Record, texts: int) -> tuple[object, ...]:
    """Give what the tables are to have of a note that is found by so many texts."""
    return (
        record.scope, record.session, record.place, record.speaker, record.role,
        None if record.at is None else milliseconds(record.at), milliseconds(record.created_at), record.importance,
        record.source, int(record.private), texts, sameness(record), texts, frozenset(record.categories),
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
    where, values = _where(fits)
    rows = connection.execute(
        f"SELECT scope, count(*), min(created), max(created) FROM notes_rows WHERE {where} GROUP BY scope", values
    )
    return {scope: (count, oldest, newest) for scope, count, oldest, newest in rows}


def categories(connection: Connection, fits: Filter) -> dict[str, int]:
    """Give in how many records each category is, in alphabetical order."""
    where, values = _where(fits)
    rows = connection.execute(
        f"SELECT category, count(*) FROM notes_categories JOIN notes_rows USING (row) WHERE {where} GROUP BY category"
        " ORDER BY category",
        values,
    )
    return dict(rows.fetchall())


def newest(connection: Connection, fits: Filter, limit: int, offset: int) -> list[str]:
    """Give the ids of what fits, the newest first."""
    where, values = _where(fits)
    rows = connection.execute(
        f"SELECT id FROM notes_rows WHERE {where} ORDER BY created DESC, id DESC LIMIT ? OFFSET ?",
        (*values, limit, offset),
    )
    return [id_ for (id_,) in rows]


def last_place(connection: Connection, owner: str, session: str) -> int:
    """Give the place of the last turn of a conversation; 0 where there is none."""
    [(place,)] = connection.execute(
        "SELECT ifnull(max(place), 0) FROM notes_rows WHERE owner=? AND session=? AND session<>''", (owner, session)
    ).fetchall()
    return int(place)


# ---- words of the filter


def milliseconds(time: datetime) -> int:
    """Give a time in milliseconds UTC; one without a zone is UTC."""
    return round((time if time.tzinfo is not None else time.replace(tzinfo=UTC)).timestamp() * 1000)


def _tag(kind: str, text: str) -> str:
    """Name something in a word that no tokenizer takes apart and no stemmer changes."""
    return f"{kind}{hashlib.blake2b(text.encode('utf-8', 'surrogatepass'), digest_size=10).hexdigest()}0"


def _tags(record: Record) -> str:
    kinds = [
        _tag("o", record.owner),
        *(_tag("s", f"{record.owner}\n{path}") for path in lineage(record.scope)),
        *(_tag("c", each) for each in record.categories),
        _tag("f", record.source),
        _tag("p", record.source) if record.private else "visible0",
    ]
    return " ".join(kinds)


def _filter(connection: Connection, fits: Filter) -> str:
    """Give the words of the tags that fit, as FTS5 wants them, without those that all texts have: they cost the most."""
    wanted = [
        [] if fits.scopes == (ROOT,) and _is_alone(connection, fits.owner) else
        [_tag("s", f"{fits.owner}\n{scope}") for scope in fits.scopes],
        *([_tag("c", each) for each in sorted(some)] for some in fits.categories),
        [] if fits.private or not _has_private(connection, fits.owner) else
        ["visible0", *([] if fits.asker is None else [_tag("p", fits.asker)])],
        [] if fits.source is None else [_tag("f", fits.source)],
    ]  # fmt: skip
    return " AND ".join(f"({' OR '.join(each)})" for each in wanted if each)


def _is_alone(connection: Connection, owner: str) -> bool:
    """Tell whether no one else has a record."""
    [(first, last)] = connection.execute(
        "SELECT (SELECT min(owner) FROM notes_rows), (SELECT max(owner) FROM notes_rows)"
    ).fetchall()
    return first in (owner, None) and last in (owner, None)


def _has_private(connection: Connection, owner: str) -> bool:
    rows = connection.execute("SELECT 1 FROM notes_rows WHERE owner=? AND private=1 LIMIT 1", (owner,))
    return bool(rows.fetchall())


def _where(fits: Filter, among: Iterable[int] | None = None) -> tuple[str, list[Any]]:
    """Give the same for SQL, for all rows or some. A plus keeps SQLite from an index where the rows are told."""
    parts: list[str] = ["owner=?" if among is None else "+owner=?"]
    values: list[Any] = [fits.owner]
    if among is not None:
        parts.append(f"row IN {_LISTED}")
        values.append(_list(among))
    if ROOT not in fits.scopes:
        # What begins with a path stands together, for a 0 stands next behind a slash; between may be others, such as /a-b in /a.
        within = "(scope>=? AND scope<? AND (scope=? OR scope>?))"
        parts.append(f"({' OR '.join([within] * len(fits.scopes))})")
        for scope in fits.scopes:
            values += [scope, f"{scope}0", scope, f"{scope}/"]
    for some in fits.categories:
        parts.append(f"row IN (SELECT row FROM notes_categories WHERE category IN {_LISTED})")
        values.append(_list(some))
    if not fits.private:
        parts.append("private=0" if fits.asker is None else "(private=0 OR source=?)")
        values += [] if fits.asker is None else [fits.asker]
    if fits.source is not None:
        parts.append("source=?")
        values.append(fits.source)
    since, until = _times(fits)
    if since is not None:
        parts.append("ifnull(said, created) BETWEEN ? AND ?")
        values += [since, until]
    return " AND ".join(parts), values


def _times(fits: Filter) -> tuple[int | None, int | None]:
    if fits.since is None and fits.until is None:
        return None, None
    return fits.since if fits.since is not None else -(2**62), fits.until if fits.until is not None else 2**62


def _quoted(word: str) -> str:
    return '"' + word.replace('"', '""') + '"'


def _list(values: Iterable[int | str | tuple[str, int]]) -> str:
    """Give values as one that is bound: a statement for each number of them would have to be prepared each time."""
    return orjson.dumps(list(values)).decode()
