"""The texts by which a note is found: a long note is divided, so that no part of it is lost among the others."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from graphagent.memory.notes.index._fts import CHUNKS
from graphagent.memory.notes.index._words import separated, with_parts

if TYPE_CHECKING:
    from graphagent.memory.notes._types import Record

_WORDS = 60
"""About how many words a piece has."""
_LONG = 100
"""From how many words on a text is divided."""
_SENTENCE = re.compile(r"(?<=[.!?…。！？])\s+|\n+")


def pieces(text: str) -> list[str]:
    """Return a text in pieces of about 60 words, which end with sentences if possible."""
    words = text.split()
    if len(words) < _LONG:
        return [text]
    size = max(_WORDS, -(-2 * len(words) // (CHUNKS - 2)))  # of two consecutive pieces, one is at least half full
    found: list[list[str]] = [[]]
    for sentence in _SENTENCE.split(text):
        left = sentence.split()
        if found[-1] and len(found[-1]) + len(left) > size:
            found.append([])
        while len(found[-1]) + len(left) > size:
            room = size - len(found[-1])
            found[-1] += left[:room]
            left = left[room:]
            found.append([])
        found[-1] += left
    return [" ".join(each) for each in found if each]


def worded(record: Record) -> list[str]:
    """Return the texts whose words are searched. They include the speaker, the time and the categories of the note."""
    said = f"{record.at.day} {record.at:%B %Y} " if record.at is not None else ""
    speaker = f"{record.speaker}: " if record.speaker else ""
    first, *others = pieces(record.content)
    if record.categories:
        first = f"{first} [{', '.join(record.categories)}]"
    return [separated(with_parts(f"{said}{speaker}{piece}")) for piece in (first, *others)]
