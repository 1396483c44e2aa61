"""The words of a text in the form in which they are searched: parts of identifiers, and pairs of characters where no spaces divide words.

FTS5's tokenizer keeps `E4021` and a whole Chinese sentence as one word each. So texts and questions are divided further before it
sees them, in the same way: between letters and digits, and each run of Chinese, Japanese or Korean characters into its overlapping
pairs, as Lucene's CJKBigramFilter does. Texts, but not questions, also have the parts of words such as `getUserName`. What is written
in several ways in Unicode becomes one: `é` in one character or two, full-width letters, Hebrew and Arabic with vowel points or without.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable

_IDENTIFIER = re.compile(r"[^\W\d_]\d|\d[^\W\d_]")
_PARTS = re.compile(r"(?<=[^\W\d_])(?=\d)|(?<=\d)(?=[^\W\d_])")
_WORD = re.compile(r"[^\W_]+")
_CAMEL = re.compile(r"(?<=[a-z])(?=[A-Z])")
_CHARACTERS = "\u3005-\u3007\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff\uff66-\uff9f"
_CJK = re.compile(f"[{_CHARACTERS}]+")
_PLACE = re.compile(rf"[{_CHARACTERS}]{{1,2}}|[^\s{_CHARACTERS}]+")
_POINTS = re.compile(
    "[\u0591-\u05bd\u05bf\u05c1\u05c2\u05c4\u05c5\u05c7\u0610-\u061a\u0640\u064b-\u065f\u0670\u06d6-\u06dc\u06df-\u06e8\u06ea-\u06ed]"
)
"""The vowel points and other marks of Hebrew and Arabic, and the line that stretches Arabic words: most texts are without them."""
_ACCENTS = re.compile("[\u0300-\u036f]")


def normal(text: str) -> str:
    """Return a text in the form NFKC of Unicode, without the vowel points of Hebrew and Arabic."""
    return text if text.isascii() else _POINTS.sub("", unicodedata.normalize("NFKC", text))


def folded(text: str) -> str:
    """Return a normal text in lower case and without accents, by which names are compared."""
    if not text.isascii():
        text = unicodedata.normalize("NFC", _ACCENTS.sub("", unicodedata.normalize("NFD", text)))
    return text.casefold()


def words_of_name(name: str) -> list[str]:
    """Return the words of a name, in lower case and without accents."""
    return _WORD.findall(separated(folded(normal(name))))


def separated(text: str) -> str:
    """Return a text in which a space divides the parts of identifiers, and pairs of Chinese, Japanese and Korean characters."""
    if _IDENTIFIER.search(text):
        text = _PARTS.sub(" ", text)
    return text if text.isascii() else _CJK.sub(_pairs, text)


def with_parts(text: str) -> str:
    """Return a text in which the parts of words such as `getUserName` follow them, and runs of Chinese characters their last one.

    The words themselves stay, because many are written otherwise too: `GitHub` is `github`, and `PostgreSQL` is `postgresql`.
    """
    if _CAMEL.search(text):
        text = _WORD.sub(_and_parts, text)
    return text if text.isascii() else _CJK.sub(_and_last, text)


def parts_of(word: str) -> str:
    """Return the parts of a word such as `getUserName`, divided by spaces."""
    return _CAMEL.sub(" ", word)


def has_characters(text: str) -> bool:
    """Return whether a text has Chinese, Japanese or Korean characters, which no spaces divide into words."""
    return not text.isascii() and _CJK.search(text) is not None


def is_character(word: str) -> bool:
    """Return whether a word is one Chinese, Japanese or Korean character, which is found as the first or the last of a pair."""
    return len(word) == 1 and _CJK.match(word) is not None


def word_places(text: str) -> list[tuple[int, int]]:
    """Return where the words of a text begin and end: what spaces divide, and every two Chinese, Japanese or Korean characters."""
    return [match.span() for match in _PLACE.finditer(text)]


def word_list(text: str) -> list[str]:
    """Return the words of a text: runs of letters and digits, and single Chinese, Japanese and Korean characters."""
    return _WORD.findall(text if text.isascii() else _CJK.sub(lambda match: f" {' '.join(match.group())} ", text))


def _and_last(match: re.Match[str]) -> str:
    # Each character but the last one of a run begins a pair.
    return f"{match.group()} {match.group()[-1]}"


def _and_parts(match: re.Match[str]) -> str:
    word = match.group()
    parts = parts_of(word)
    return word if parts == word else f"{word} {parts}"


def _pairs(match: re.Match[str]) -> str:
    run = match.group()
    pairs = [run[place : place + 2] for place in range(len(run) - 1)] or [run]
    return f" {' '.join(pairs)} "


def similarities(word: str, others: Iterable[str]) -> dict[str, float]:
    """Return the share of trigrams that each of other words has in common with a word, from 0 to 1, as PostgreSQL's pg_trgm defines it."""
    own = _trigrams(word)
    return {other: len(own & each) / len(own | each) for other in others for each in (_trigrams(other),)}


def _trigrams(word: str) -> set[str]:
    filled = f"  {word} "
    return {filled[place : place + 3] for place in range(len(filled) - 2)}
