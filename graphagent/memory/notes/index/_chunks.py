"""The texts by which a note is found: a long note is divided, so that no part of it is lost among the others."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from graphagent.memory.notes.index._stems import with_stems
from graphagent.memory.notes.index._tables import CHUNKS
from graphagent.memory.notes.index._words import normal, separated, with_parts, word_places

if TYPE_CHECKING:
    from graphagent.memory._note_values import Record

_WORDS = 60
"""About how many words a piece has."""
_TOGETHER = 1000
"""After how many notes progress is reported."""
_LONG = 100
"""From how many words on a text is divided."""
_END = re.compile(r"(?<=[.!?…])\s+|(?<=[。！？])|\n+")
"""The end of a sentence."""


def pieces(text: str) -> list[str]:
    """Return a text in pieces of about 60 words, which end with sentences if possible. Two Chinese characters are about a word."""
    if text.isascii() and len(text.split()) < _LONG:
        return [text]
    words = word_places(text)
    if len(words) < _LONG:
        return [text]
    size = max(_WORDS, -(-2 * len(words) // (CHUNKS - 2)))  # of two consecutive pieces, one is at least half full
    begins = [begin for begin, _ in words]
    firsts, done = [0], 0
    for end in [*(bisect_left(begins, match.end()) for match in _END.finditer(text)), len(words)]:
        if done > firsts[-1] and end - firsts[-1] > size:
            firsts.append(done)
        while end - firsts[-1] > size:
            firsts.append(firsts[-1] + size)
        done = end
    return [text[words[first][0] : words[last - 1][1]] for first, last in pairwise([*firsts, len(words)])]


def worded(record: Record) -> list[str]:
    """Return the texts whose words are searched. They include the speaker and the categories of the note."""
    speaker = f"{record.speaker}: " if record.speaker else ""
    first, *others = pieces(record.content)
    if record.categories:
        first = f"{first} [{', '.join(record.categories)}]"
    return [separated(with_stems(with_parts(normal(f"{speaker}{piece}")))) for piece in (first, *others)]


def in_parts(
    records: Sequence[Record], report: Callable[[int, int], object]
) -> Iterator[Iterator[tuple[Record, list[str]]]]:
    """Yield records with their texts, some at a time, and report after each time how many were taken, and of how many.

    The texts are made as they are taken, in the thread that does so, because dividing long notes takes time.
    """
    for start in range(0, len(records), _TOGETHER):
        yield ((record, worded(record)) for record in records[start : start + _TOGETHER])
        report(min(start + _TOGETHER, len(records)), len(records))
