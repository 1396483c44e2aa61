"""The facts and notes to which the journal of a run refers, looked up by the features that have them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from graphagent._features import implementing
from graphagent.memory._internal import name_of, note_name, note_references, references

if TYPE_CHECKING:
    from graphagent.memory import KnownFact, KnownNote
    from graphagent.memory._internal import Name, NoteName
    from graphagent.protocols import Feature
    from graphagent.run.journal._reader import JournalReader

_FACT = b'"ref":'
"""Occurs in each entry that refers to a fact, and in hardly any other: quotation marks inside of texts are escaped."""
_NOTE = b'"noted":'
"""The same for notes."""


async def look_up(journal: JournalReader, features: Mapping[type[Any], Feature]) -> None:
    """Look up the facts and notes to which the entries refer, so that transcripts show those that still exist.

    Raises:
        DamagedStoreError: an entry cannot be read.
        StoreError: the facts or the notes could not be read.
    """
    with_facts = implementing(features, "look_up")
    found: dict[Name, KnownFact] = {}
    for number in _numbers(journal, _FACT) if with_facts else ():
        with journal.reading(number):
            found.update((name_of(known), known) for known in references(journal.data(number)))
    for feature in with_facts if found else ():
        found = dict(zip(found, await feature.look_up(list(found.values()), owner=journal.header.owner), strict=True))
    journal.show_with(found, await _notes(journal, features))


async def _notes(journal: JournalReader, features: Mapping[type[Any], Feature]) -> dict[NoteName, KnownNote]:
    feature = next(iter(implementing(features, "look_up_notes")), None)
    found: dict[NoteName, KnownNote] = {}
    for number in _numbers(journal, _NOTE) if feature is not None else ():
        with journal.reading(number):
            found.update((note_name(known), known) for known in note_references(journal.data(number)))
    if feature is None or not found:
        return found
    return dict(zip(found, await feature.look_up_notes(list(found.values()), owner=journal.header.owner), strict=True))


def _numbers(journal: JournalReader, mark: bytes) -> Iterator[int]:
    return (number for number, packed in enumerate(journal.packed, 1) if mark in packed)


def refers_to_notes(features: Mapping[type[Any], Feature]) -> bool:
    """Return whether a journal may refer to notes: whether a feature can look them up again."""
    return bool(implementing(features, "look_up_notes"))


def refers_to_facts(features: Mapping[type[Any], Feature]) -> bool:
    """Return whether a journal may refer to facts: whether a feature can look them up again."""
    return any(feature.refers for feature in implementing(features, "refers"))
