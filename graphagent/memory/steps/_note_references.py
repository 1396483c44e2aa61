"""Notes in runs: references to the stored notes, in the place of their texts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from graphagent.codec._dataclasses import DataclassCodec
from graphagent.codec._errors import as_int, as_str
from graphagent.memory._blocks import FORGOTTEN, KnownNote
from graphagent.memory.facts._references import UNREAD, objects

if TYPE_CHECKING:
    from graphagent.codec._values import Json

NoteName = tuple[str, int]
"""A reference to a note: id, version."""

_FIELDS = ("id", "version", "content", "scope", "source", "speaker", "date", "trust", "forgotten", "kept", "cut")
_NOTE = DataclassCodec(KnownNote, {name: name for name in _FIELDS}, always=("version",), defaults={"content": ""})


def note_name(known: KnownNote) -> NoteName:
    """Return the id and the version of a note."""
    return known.id, known.version


def forgotten_note(known: KnownNote) -> KnownNote:
    """Return the replacement of a forgotten note: only its id and its trust."""
    return KnownNote(known.id, FORGOTTEN, known.version, trust=known.trust, forgotten=True, kept=known.kept)


def shortened_note(known: KnownNote, most: int) -> KnownNote:
    """Return a note with the part of its text that was shown."""
    if len(known.content) <= most:
        return known
    return replace(known, content=known.content[:most].rstrip() + " […]", cut=most)


def note_json(known: KnownNote, *, values: bool) -> Json:
    """Return a note as JSON data: as a reference if the note can be looked up again and `values` is false, else with its text.

    A reference has the note's id, version and trust, and how many characters were shown.
    """
    if known.kept and not values:
        return {"noted": [known.id, known.version, known.trust, known.cut]}
    return _NOTE.write(known)


def read_note_json(data: Mapping[str, Json], found: Mapping[NoteName, KnownNote] | None = None) -> KnownNote:
    """Return the note that `note_json` wrote. A reference gets its text from the notes that were `found`."""
    if "noted" in data:
        known = _reference(data)
        there = (found or {}).get(note_name(known))
        if there is None or there.forgotten:
            return known if there is None else forgotten_note(known)
        whole = replace(there, kept=True, cut=0)
        return shortened_note(whole, known.cut) if known.cut else whole
    return _NOTE.read(data)


def note_references(data: Json) -> Iterator[KnownNote]:
    """Yield the references to notes anywhere in JSON data, without their texts."""
    return map(_reference, objects(data, lambda each: "noted" in each))


def _reference(data: Mapping[str, Json]) -> KnownNote:
    id_, version, trust, cut = data["noted"]
    return KnownNote(as_str(id_), UNREAD, as_int(version), trust=as_str(trust), kept=True, cut=as_int(cut))
