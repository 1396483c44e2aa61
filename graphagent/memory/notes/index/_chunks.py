"""The texts by which a note is found: long ones in pieces, so that no part of them goes under."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from graphagent.errors import NoteError
from graphagent.memory.notes.index._fts import CHUNKS

if TYPE_CHECKING:
    from graphagent.memory.notes._types import Record

LONGEST = 1_000_000
"""The longest note, in characters."""
_WORDS = 80
"""About how many words a piece has."""
_SENTENCE = re.compile(r"(?<=[.!?…。！？])\s+|\n+")


def checked(content: object) -> str:
    """Give the text of a note without spaces around it.

    Raises:
        NoteError: it is no text, blank, too long, or has half letters.
    """
    if not isinstance(content, str):
        raise NoteError(f"a note is a text, not {type(content).__name__}")
    text = content.strip()
    if not text:
        raise NoteError("a note has some text; this one is blank")
    if len(text) > LONGEST:
        raise NoteError(f"a note has at most {LONGEST:,} characters, this one has {len(text):,}; keep it in parts")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise NoteError(
            f"character {error.start} of the note is half of a letter (a lone surrogate); decode the text with errors='replace'"
        ) from None
    return text


def pieces(text: str) -> list[str]:
    """Give a text in pieces of about 80 words, which end with sentences where they can."""
    words = text.split()
    if len(words) <= _WORDS + _WORDS // 2:
        return [text]
    size = max(_WORDS, -(-2 * len(words) // (CHUNKS - 2)))  # two pieces beside one another have more words than that
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
    """Give the texts whose words are searched: with who said it and when, and the categories of the note."""
    said = f"{record.at.day} {record.at:%B %Y} " if record.at is not None else ""
    speaker = f"{record.speaker}: " if record.speaker else ""
    first, *others = pieces(record.content)
    if record.categories:
        first = f"{first} [{', '.join(record.categories)}]"
    return [f"{said}{speaker}{piece}" for piece in (first, *others)]
