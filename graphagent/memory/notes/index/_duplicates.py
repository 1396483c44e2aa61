"""Which notes say the same in the same words. That takes no model."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from hashlib import blake2b
from typing import TYPE_CHECKING

from graphagent._concurrency import turn

if TYPE_CHECKING:
    from graphagent.memory.notes._types import Note, Record
    from graphagent.memory.notes.index._repository import Book


_ALIKE = 100
"""Notes with the same words of different kinds that are compared, at most."""


def normal(text: str) -> str:
    """Give a text as it is compared by its words: letters composed and in one case, runs of spaces as one."""
    return " ".join(unicodedata.normalize("NFC", text).casefold().split())


def is_same(one: Record, other: Record) -> bool:
    """Tell whether two notes say the same, letter for letter, of the same kind, and were said at the same time.

    No turn of a conversation is the same as another: what was said twice was said twice.
    """
    return (
        not (one.session or other.session)
        and (one.owner, one.scope, one.source, one.private, one.trust, one.at)
        == (other.owner, other.scope, other.source, other.private, other.trust, other.at)
        and unicodedata.normalize("NFC", one.content) == unicodedata.normalize("NFC", other.content)
    )


def sameness(record: Record) -> int | None:
    """Give a number of 64 bits by which notes that are the same are found; others may have it too. None where none is."""
    if record.session:
        return None
    told = f"{record.scope}\0{record.source}\0{unicodedata.normalize('NFC', record.content)}"
    digest = blake2b(told.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "big", signed=True)


async def kept_already(book: Book, records: Sequence[Record], notes: Sequence[Note]) -> list[Record]:
    """Give for each note that is to be kept the one that is there already, or comes before it; else the note itself.

    Args:
        book: Where they are to be kept.
        records: The notes as they would be kept.
        notes: The same as they were given: what was left out there may be anything in the one that is there.

    Raises:
        StoreError: the store cannot be read.
    """
    there: dict[int, list[Record]] = {}
    numbers: list[int | None] = []
    for place, record in enumerate(records, 1):
        await turn(place)
        numbers.append(number := sameness(record))
        if number is not None:
            there[number] = []
    for place, old in enumerate(await book.same(records[0].owner, list(there)) if there else (), 1):
        await turn(place)
        if (number := sameness(old)) in there:  # else it was changed just now
            there[number].append(old)
    found: list[Record] = []
    for place, (number, record, note) in enumerate(zip(numbers, records, notes, strict=True), 1):
        await turn(place)
        if number is None:
            found.append(record)
            continue
        old = next((old for old in there[number] if is_same(old, record) and _has(old, record, note)), record)
        if old is record and len(there[number]) < _ALIKE:
            there[number].append(record)
        found.append(old)
    return found


def _has(old: Record, record: Record, note: Note) -> bool:
    """Tell whether a note has all that was said of another."""
    return (
        (note.categories is None or set(old.categories) == set(record.categories))
        and (note.importance is None or old.importance == record.importance)
        and all(name in old.metadata and old.metadata[name] == value for name, value in record.metadata.items())
    )
