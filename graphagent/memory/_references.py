"""Facts and notes in runs: references to stored versions, in place of their texts.

A kind of them is one entry in `KINDS`: how it is written, read and found in JSON data. The functions for facts are in
`facts/_references.py`, those for notes here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, cast

from graphagent.codec._dataclasses import DataclassCodec
from graphagent.codec._errors import as_int, as_list, as_str
from graphagent.memory._blocks import (
    FORGOTTEN,
    UNREAD,
    Known,
    KnownFact,
    KnownNote,
    Reference,
    facts_message,
    notes_message,
)
from graphagent.memory.facts._references import fact_json, fact_reference, is_fact_reference, read_fact_json

if TYPE_CHECKING:
    from graphagent.codec._values import Json
    from graphagent.llm import Message

_FIELDS = ("id", "version", "content", "scope", "source", "speaker", "date", "trust", "forgotten", "kept", "cut")
_NOTE = DataclassCodec(KnownNote, {name: name for name in _FIELDS}, always=("version",), defaults={"content": ""})


def note_reference(known: KnownNote) -> Reference:
    """Return the reference to a version of a note."""
    return Reference("note", (known.id,), known.version)


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


def read_note_json(data: Mapping[str, Json], found: Mapping[Reference, Any] | None = None) -> KnownNote:
    """Return the note that `note_json` wrote. A reference gets its text from the notes that were `found`."""
    if is_note_reference(data):
        id_, version, trust, cut = data["noted"]
        known = KnownNote(as_str(id_), UNREAD, as_int(version), trust=as_str(trust), kept=True, cut=as_int(cut))
        there: KnownNote | None = (found or {}).get(note_reference(known))
        if there is None or there.forgotten:
            return known if there is None else forgotten_note(known)
        whole = replace(there, kept=True, cut=0)
        return shortened_note(whole, known.cut) if known.cut else whole
    return _NOTE.read(data)


def is_note_reference(data: Mapping[str, Json]) -> bool:
    """Return whether JSON data is a reference to a note."""
    return "noted" in data


class Kind(NamedTuple):
    """What a log does with facts, or with notes."""

    name: Literal["fact", "note"]
    list_name: str
    """The key of a message of them in JSON data."""
    reference: Callable[[Any], Reference]
    is_reference: Callable[[Mapping[str, Json]], bool]
    """Whether JSON data is a reference."""
    write: Callable[..., Json]
    read: Callable[[Mapping[str, Json], Mapping[Reference, Any] | None], Any]
    message: Callable[[Sequence[Any], int], Message]
    """Return them as one message, which says how many are left out."""


KINDS: Mapping[type[Known], Kind] = {
    KnownFact: Kind("fact", "facts", fact_reference, is_fact_reference, fact_json, read_fact_json, facts_message),
    KnownNote: Kind("note", "notes", note_reference, is_note_reference, note_json, read_note_json, notes_message),
}
ALL_KINDS = tuple(kind.name for kind in KINDS.values())


def reference_to(known: Known) -> Reference:
    """Return the reference to a version of a fact or a note."""
    return KINDS[type(known)].reference(known)


def references_in(data: Json) -> Iterator[Known]:
    """Yield the targets of references anywhere in JSON data, without their texts; for a combined fact, its parts."""
    if isinstance(data, dict):
        found = cast("dict[str, Json]", data)
        for kind in KINDS.values():
            if kind.is_reference(found):
                yield kind.read(found, None)
                return
        data = list(found.values())
    if isinstance(data, list):
        for each in as_list(data):
            yield from references_in(each)
