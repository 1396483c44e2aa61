"""The facts and notes to which the journal of a run refers, looked up by the features that know them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from graphagent._features import implementing
from graphagent.memory._internal import name_of, note_name, note_references, references

if TYPE_CHECKING:
    from graphagent.memory import KnownFact, KnownNote
    from graphagent.memory._internal import Name, NoteName
    from graphagent.protocols import Feature
    from graphagent.run._recording import Recording

_MARK = b'"ref":'
"""Stands in each entry that refers to a fact, and in hardly any other: quotation marks inside of texts are escaped."""


_NOTED = b'"noted":'
"""The same for notes."""


async def look_up(recording: Recording, features: Mapping[type[Any], Feature]) -> None:
    """Have the facts and notes looked up to which the entries refer, so that transcripts show what of them is still there.

    Raises:
        DamagedStoreError: an entry cannot be read.
        StoreError: the facts or the notes could not be read.
    """
    knowing = implementing(features, "look_up")
    found: dict[Name, KnownFact] = {}
    for number, entry in enumerate(recording.entries, 1):
        if knowing and _MARK in entry:
            with recording.reading(number):
                found.update((name_of(known), known) for known in references(recording.entry(number)))
    for feature in knowing if found else ():
        found = dict(zip(found, await feature.look_up(list(found.values()), owner=recording.head.owner), strict=True))
    recording.tell_with(found, await _notes(recording, features))


async def _notes(recording: Recording, features: Mapping[type[Any], Feature]) -> dict[NoteName, KnownNote]:
    knowing = next(iter(implementing(features, "look_up_notes")), None)
    found: dict[NoteName, KnownNote] = {}
    for number, entry in enumerate(recording.entries, 1):
        if knowing is not None and _NOTED in entry:
            with recording.reading(number):
                found.update((note_name(known), known) for known in note_references(recording.entry(number)))
    if knowing is None or not found:
        return found
    return dict(zip(found, await knowing.look_up_notes(list(found.values()), owner=recording.head.owner), strict=True))


def refers_to_notes(features: Mapping[type[Feature], Any]) -> bool:
    """Tell whether a journal may refer to notes: whether there is a feature that can look them up again."""
    return bool(implementing(features, "look_up_notes"))


def refers(features: Mapping[type[Feature], Any]) -> bool:
    """Tell whether a journal may refer to facts: whether there is a feature that can look them up again."""
    return any(feature.refers for feature in implementing(features, "refers"))
