"""The stems of words in other languages than English, which the tokenizer of the index has a stemmer for.

Texts have them after each sentence, in its order, so that a word is found as it is written and by its stem. Questions are searched for both.
"""

from __future__ import annotations

import re
from functools import lru_cache
from importlib import import_module
from typing import cast

from graphagent.memory.notes.index._languages import (
    ENGLISH,
    is_plain,
    languages,
    script_of,
    sentences,
    stopwords,
    words_of,
)
from graphagent.memory.notes.index._words import WORD, folded

_WORD = re.compile(WORD)
_LONGEST = 64
"""How many characters a word has at most that is taken for one of a language."""
_SURE = 2
"""How many function words a sentence has at least whose language is not that of the whole text."""
_HEBREW_PREFIXES = "הובלמשכ"
_HEBREW_REST = 3
"""How many letters are left at least of a Hebrew word without its prefixes."""
_BEFORE_ARTICLE = re.compile("^[وفه](?=ال..)")
"""The conjunctions before an Arabic article, which Snowball's stemmer knows only without one, and the article of Syria and Lebanon."""


def with_stems(text: str) -> str:
    """Return a text in which the stems of the words of each sentence follow it, if it is not in English."""
    if is_plain(text):
        return text
    whole = languages(words_of(text))
    parts: list[str] = []
    is_stemmed = False
    for sentence in sentences(text):
        spoken = languages(words_of(sentence), _SURE) or whole
        left_out = stopwords(spoken)
        words = [word for word in _WORD.findall(sentence) if folded(word) not in left_out]
        found = [stems_of(word, spoken) or (word.casefold(),) for word in words]
        parts.append(sentence)
        if any(stems != (word.casefold(),) for word, stems in zip(words, found, strict=True)):
            parts += [stem for stems in found for stem in stems]
            is_stemmed = True
    return " ".join(parts) if is_stemmed else text


def stems_of(word: str, spoken: tuple[str, ...]) -> tuple[str, ...]:
    """Return the stems of a word in the languages of its text, or in that of its script; none if they have no stemmer."""
    return () if len(word) > _LONGEST or word.isdigit() else _known_stems(word.casefold(), spoken)


@lru_cache(maxsize=16_384)
def _known_stems(word: str, spoken: tuple[str, ...]) -> tuple[str, ...]:
    # It has short words alone, since a cache is bounded by their number and not by their size.
    script = script_of(word)
    if script:
        spoken = (script,)
    elif not word.isascii() and not word[0] <= "\u024f":
        return ()
    return tuple(dict.fromkeys(stem for name in spoken for stem in _stems(word, name)))


def _stems(word: str, name: str) -> tuple[str, ...]:
    if name == ENGLISH:
        return ()
    if name == "hebrew":
        return _hebrew(word)
    return (_snowball(_BEFORE_ARTICLE.sub("", word) if name == "arabic" else word, name),)


def _snowball(word: str, name: str) -> str:
    # A stemmer has a state, so each thread needs its own. The module itself would return that of another package if that is installed.
    module = import_module(f"snowballstemmer.{name}_stemmer")
    return cast(str, getattr(module, f"{name.title()}Stemmer")().stemWord(word))


def _hebrew(word: str) -> tuple[str, ...]:
    """Return the word without each number of letters that may be prefixes: which of them are is not known without a dictionary."""
    found = [word]
    while len(word) > _HEBREW_REST and word[0] in _HEBREW_PREFIXES:
        word = word[1:]
        found.append(word)
    return tuple(found)
