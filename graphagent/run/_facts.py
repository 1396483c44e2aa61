"""The facts to which the journal of a run refers, looked up by the features that know them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from graphagent.memory.saving import name_of, references
from graphagent.protocols import FactFeature

if TYPE_CHECKING:
    from graphagent.memory import KnownFact
    from graphagent.memory.saving import Name
    from graphagent.protocols import Feature
    from graphagent.run._recording import Recording

_MARK = b'"ref":'
"""Stands in each entry that refers to a fact, and in hardly any other: quotation marks inside of texts are escaped."""


async def look_up(recording: Recording, features: Mapping[type[Feature], Feature]) -> None:
    """Have the facts looked up to which the entries refer, so that transcripts show them as far as they are still there.

    Raises:
        DamagedStoreError: an entry cannot be read.
        StoreError: the facts could not be read.
    """
    knowing = [feature for feature in features.values() if isinstance(feature, FactFeature)]
    found: dict[Name, KnownFact] = {}
    for number, entry in enumerate(recording.entries, 1):
        if knowing and _MARK in entry:
            with recording.reading(number):
                found.update((name_of(known), known) for known in references(recording.entry(number)))
    for feature in knowing if found else ():
        found = dict(zip(found, await feature.look_up(list(found.values()), owner=recording.head.owner), strict=True))
    recording.tell_with(found)


def refers(features: Mapping[type[Feature], Any]) -> bool:
    """Tell whether a journal may refer to facts: whether there is a feature that can look them up again."""
    return any(isinstance(feature, FactFeature) and feature.refers for feature in features.values())
