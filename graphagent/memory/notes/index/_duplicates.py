"""Notes that are the same, letter for letter. No model is needed to find them."""

from __future__ import annotations

import unicodedata
from collections.abc import Awaitable, Callable, Sequence
from hashlib import blake2b
from typing import TYPE_CHECKING

from graphagent._concurrency import turn

if TYPE_CHECKING:
    from graphagent.memory._note_values import Note, Record

_ALIKE = 100
"""Of notes with the same text that differ in other fields, how many are compared at most."""


def normal(text: str) -> str:
    """Return a text for comparison by its words: composed (NFC), casefolded, with single spaces."""
    return " ".join(unicodedata.normalize("NFC", text).casefold().split())


def is_same(one: Record, other: Record) -> bool:
    """Return whether two notes have the same text, letter for letter, and the same scope, source, privacy, trust and time.

    Turns of conversations are never the same: the same words twice are two turns.
    """
    return (
        not (one.session or other.session)
        and (one.owner, one.scope, one.source, one.private, one.trust, one.at)
        == (other.owner, other.scope, other.source, other.private, other.trust, other.at)
        and unicodedata.normalize("NFC", one.content) == unicodedata.normalize("NFC", other.content)
    )


def sameness(record: Record) -> int | None:
    """Return a 64-bit hash that notes for which `is_same` holds share; None for a turn of a conversation."""
    if record.session:
        return None
    told = f"{record.scope}\0{record.source}\0{unicodedata.normalize('NFC', record.content)}"
    digest = blake2b(told.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "big", signed=True)


async def without_duplicates(
    same: Callable[[str, list[int]], Awaitable[list[Record]]], records: Sequence[Record], notes: Sequence[Note]
) -> list[Record]:
    """Return for each new record the same one that is stored already, or precedes it; else the record itself.

    Args:
        same: Returns the stored records of an owner that have one of these values of `sameness`.
        records: The new records, all of one owner.
        notes: The notes from which these were made. A field that was left out there may have any value in the stored record.
    """
    there: dict[int, list[Record]] = {}
    numbers: list[int | None] = []
    for place, record in enumerate(records, 1):
        await turn(place)
        numbers.append(number := sameness(record))
        if number is not None:
            there[number] = []
    for place, old in enumerate(await same(records[0].owner, list(there)) if there else (), 1):
        await turn(place)
        if (number := sameness(old)) in there:  # else it was changed since the index was read
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
    """Return whether a stored record has all that was given for a new one."""
    return (
        (note.categories is None or set(old.categories) == set(record.categories))
        and (note.importance is None or old.importance == record.importance)
        and all(name in old.metadata and old.metadata[name] == value for name, value in record.metadata.items())
    )
