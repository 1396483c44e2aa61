"""How texts are cut into stems: by the tokenizer of SQLite's FTS5, wherever the tables are. And which stems are spelled alike."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

from graphagent.memory.notes.index._words import similarities

if TYPE_CHECKING:
    from graphagent.memory.notes.index._connection import IndexConnection

TOKENIZER: tuple[str, ...] = ("porter", "unicode61", "remove_diacritics", "2", "categories", "L* N* Co M*")
"""Marks are parts of words: without them, each vowel sign ends a word of an Indic script."""
_AS_QUERY, _AS_DOCUMENT = 1, 4
"""FTS5_TOKENIZE_QUERY and FTS5_TOKENIZE_DOCUMENT of `sqlite3.h`."""
_ALIKE = 0.3
"""The similarity from which on a word is taken for another spelling of one that no text has."""
_ENDINGS = (
    "able",
    "ance",
    "ated",
    "ating",
    "ation",
    "ations",
    "ative",
    "ator",
    "ement",
    "ence",
    "ing",
    "ition",
    "ity",
    "ive",
    "ment",
    "ness",
)
"""Some of the endings that Porter's stemmer cuts off."""
_BEFORE_ENDING = 4
"""How many letters a stem has at least to which endings are added."""
_ALIKE_WITH_ENDING = 0.5
"""The similarity from which on a word is taken for another spelling of a stem with an ending, which only may be a word."""
_MOST_ALIKE = 200
"""Among how many words another spelling is looked for. Most of them may be in notes of others only."""


class Tokens:
    """Cuts texts into words and these into stems, by any connection of SQLite."""

    def __init__(
        self, connection: IndexConnection, using: Callable[[], AbstractContextManager[None]] = nullcontext
    ) -> None:
        self._connection = connection
        self._using = using
        """Entered while the connection is used."""

    def stems_of(self, words: Iterable[str]) -> dict[str, str]:
        """Return the stem of each word, as the index has it; text that the index does not treat as a word is left out.

        A phrase has those of its words, with spaces between them.
        """
        return {word: " ".join(stems) for word, stems in self.split(words, _AS_QUERY).items() if stems}

    def split(self, texts: Iterable[str], reason: int = _AS_DOCUMENT) -> dict[str, list[str]]:
        """Return the stems of the words of texts, as the index has them."""
        name, *options = TOKENIZER
        with self._using():
            tokens = self._connection.fts5_tokenizer(name, options)
            return {
                text: tokens(
                    text.encode("utf-8", "replace"), reason, None, include_offsets=False, include_colocated=False
                )
                for text in texts
            }

    def word_of(self, stem: str) -> str:
        """Return a word that has a stem.

        A stem is not always the stem of itself: Porter's stemmer makes `databas` of `database`, but `databa` of `databas`.
        """
        words = (stem + end for end in ("", "e", "es", "s", "ed", "y", "ing"))
        return next((word for word in words if self.stems_of([word]).get(word) == stem), stem)


def bounds_of_alike(stem: str) -> tuple[str, str, int, int]:
    """Return the texts between which the stems are that may be spelled like one, without the second, and how long they are."""
    return stem[:2], stem[0] + chr(ord(stem[1]) + 1), len(stem) - 2 - max(map(len, _ENDINGS)), len(stem) + 2


def most_alike(stem: str, others: Iterable[str]) -> dict[str, float]:
    """Return the 200 of other stems that are spelled most like one, the most similar first, with their similarity.

    They begin with the same two letters, and are at most two letters longer or shorter; or they are so with an ending, because the
    stemmer cuts no ending that is misspelt: `separaton` is like `separ`, which it makes of `separation`.
    """
    terms = [term for term in others if term.isalpha()]
    words = {term: term for term in terms if len(term) >= len(stem) - 2}
    for term in terms:
        if len(term) >= _BEFORE_ENDING and term[:_BEFORE_ENDING] == stem[:_BEFORE_ENDING]:
            words |= {term + end: term for end in _ENDINGS if abs(len(term) + len(end) - len(stem)) <= 2}
    near: dict[str, float] = {}
    for word, similarity in similarities(stem, words).items():
        term = words[word]
        if similarity >= (_ALIKE if word == term else _ALIKE_WITH_ENDING):
            near[term] = max(near.get(term, 0.0), similarity)
    return {term: near[term] for term in sorted(near, key=lambda term: -near[term])[:_MOST_ALIKE]}
