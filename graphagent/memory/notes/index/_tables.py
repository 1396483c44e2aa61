"""The tables of the search index, in any database: their contents, and the questions to them.

They are derived from the records, with which each commit changes them. A note is a row of fields, and one or more texts of which the words are
searched. The tables of SQLite are in `_fts.py`, those of PostgreSQL in `_postgres_tables.py`. All functions are synchronous.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

from graphagent.memory._note_values import milliseconds
from graphagent.memory.notes.index._duplicates import sameness
from graphagent.memory.notes.index._filter import entries_of
from graphagent.memory.notes.index._traits import traits_of

if TYPE_CHECKING:
    from graphagent.memory._note_values import Filter, Record
    from graphagent.memory.notes.index._tokens import Tokens
    from graphagent.memory.notes.index._vectors import VectorTable

POOL = 100
"""How many candidates a search finds at most for ranking, unless more are asked for."""
CHUNKS = 1024
"""The largest number of texts of one record. Text n of row r has the place r * CHUNKS + n."""


class Row(NamedTuple):
    """The fields of a record that ranking uses."""

    row: int
    id: str
    session: str
    place: int
    speaker: str
    role: str
    said: int | None
    """When it was said, in milliseconds UTC, if that is known."""
    created: int
    chunks: int
    """How many texts it has."""
    traits: int
    """Of a turn of a conversation; see `_traits.py`."""


class Phrase(NamedTuple):
    """One word or several that follow one another. They are cut into words, and these into stems, as texts are."""

    words: str
    is_prefix: bool = False
    """Whether words that begin with the last one are found, too."""


class Near(NamedTuple):
    """Two phrases with at most two words between them, in any order."""

    one: Phrase
    other: Phrase


Term = tuple[Phrase | Near, ...]
"""Matches a text that has any of these."""


class NoteTables(Protocol):
    """The tables, over a connection."""

    @property
    def tokens(self) -> Tokens:
        """Cuts texts into the stems of the index."""
        ...

    @property
    def vectors(self) -> VectorTable | None:
        """The table of the vectors of notes; None if these are searched in memory."""
        ...

    def made(self) -> bytes:
        """Return a random stamp of the tables. Rows of tables with another stamp may be other notes."""
        ...

    def add(self, records: Iterable[tuple[Record, Sequence[str]]]) -> list[int]:
        """Add or replace records, each with the texts by which it is found, and return their rows.

        The rows of an owner are higher than all that the owner has had in these tables.
        """
        ...

    def remove(self, owner: str, ids: Iterable[str]) -> None:
        """Remove records; ids without one are ignored."""
        ...

    def purge(self) -> None:
        """Erase data that the index would otherwise keep of removed records, as far as that is possible in a transaction."""
        ...

    # Finding

    def postings(self, terms: Iterable[Term], fits: Filter, most: int = -1) -> dict[Term, list[int]]:
        """Return the places of the texts that fit and have a term, for each term: at most `most`, or all if that is below 0."""
        ...

    def lengths(self, places: Iterable[int]) -> dict[int, int]:
        """Return the number of words of texts."""
        ...

    def totals(self, owner: str) -> tuple[int, float]:
        """Return the number of texts among which the words of an owner's notes are counted, and the mean of their lengths in words."""
        ...

    def frequencies(self, stems: Iterable[str], owner: str) -> dict[str, int]:
        """Return the number of these texts that contain each stem."""
        ...

    def all_counted_fit(self, fits: Filter) -> bool:
        """Return whether all of these texts are of notes that fit."""
        ...

    def similar(self, stem: str, owner: str) -> dict[str, float]:
        """Return the stems of these texts that are spelled most like one, the most similar first, as `most_alike` says."""
        ...

    def latest(self, fits: Filter, most: int, *, timed: bool) -> list[int]:
        """Return the rows that fit, at most so many, those said last first: of notes with a time, or of those without one."""
        ...

    def fitting(self, fits: Filter) -> list[int]:
        """Return all rows that fit."""
        ...

    def hidden(self, owner: str, asker: str | None) -> list[int]:
        """Return the rows that are private to other sources than the one that asks."""
        ...

    def rows_of(self, rows: Iterable[int], fits: Filter) -> dict[int, Row]:
        """Return the fields of those of some rows that exist and fit."""
        ...

    def beside(self, rows: Iterable[Row], fits: Filter) -> dict[int, Row]:
        """Return the two turns before and the two after turns of conversations, as far as they fit."""
        ...

    def rows_named(self, owner: str, ids: Iterable[str]) -> dict[str, int]:
        """Return the rows of records by their ids; ids without one are left out."""
        ...

    def same(self, owner: str, numbers: Iterable[int]) -> list[str]:
        """Return the ids of notes that have one of these values of `sameness`, the oldest first."""
        ...

    def speakers(self, owner: str) -> list[str]:
        """Return the speakers in an owner's notes, in alphabetical order, at most 10,000."""
        ...

    def speaking(self, names: Iterable[str], fits: Filter) -> list[str]:
        """Return those of some speakers who have said something that fits."""
        ...

    # All of an owner

    def count(self, owner: str) -> int:
        """Return the number of an owner's notes."""
        ...

    def since(self, owner: str, row: int) -> tuple[list[tuple[int, str]], int]:
        """Return the rows after a row, each with its id, and the number of all rows of the owner."""
        ...

    def all_rows(self, owner: str) -> dict[int, str]:
        """Return all rows of an owner with their ids."""
        ...

    def whole(self, owner: str) -> dict[str, tuple[object, ...]]:
        """Return the contents of the tables about each note of an owner, except its words, in the form of `expected`."""
        ...

    # Listing and counting

    def counts(self, fits: Filter) -> dict[str, tuple[int, int, int]]:
        """Return the number of records directly in each scope, and when the first and the last of them were saved."""
        ...

    def categories(self, fits: Filter) -> dict[str, int]:
        """Return the number of records with each category, in alphabetical order."""
        ...

    def newest(self, fits: Filter, limit: int, offset: int) -> list[str]:
        """Return the ids of the records that fit, the newest first; all of them if the limit is below 0."""
        ...

    def ids_named(self, fits: Filter, text: str) -> list[str]:
        """Return the ids that begin or end with a text, of the records that fit, in their order."""
        ...

    def last_place(self, owner: str, session: str) -> int:
        """Return the place of the last turn of a conversation; 0 if there is none."""
        ...


def batches(
    records: Iterable[tuple[Record, Sequence[str]]], most: int
) -> Iterable[Mapping[tuple[str, str], tuple[Record, Sequence[str]]]]:
    """Yield records by their owners and ids, at most so many together. One that is given again is in another batch."""
    batch: dict[tuple[str, str], tuple[Record, Sequence[str]]] = {}
    for record, texts in records:
        key = record.owner, record.id
        if len(batch) == most or key in batch:
            yield batch
            batch = {}
        batch[key] = record, texts
    yield batch


def fields_of(record: Record, texts: int) -> tuple[object, ...]:
    """Return the fields of a record, which is found by so many texts, that are in the tables beside its owner and its id."""
    return (
        record.scope, record.session, record.place, record.speaker, record.role,
        None if record.at is None else milliseconds(record.at), milliseconds(record.created_at),
        record.importance, record.source, int(record.private), texts,
        traits_of(record.content) if record.session else 0,  # only turns have features made of them, and it takes time
        sameness(record),
    )  # fmt: skip


def expected(record: Record, texts: int) -> tuple[object, ...]:
    """Return the expected contents of the tables about a note with so many texts."""
    return (*fields_of(record, texts), texts, frozenset(record.categories), entries_of(record.metadata))
