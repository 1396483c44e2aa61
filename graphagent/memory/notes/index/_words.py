"""The words of a text in the form in which they are searched: parts of identifiers, and pairs of characters where no spaces divide words.

FTS5's tokenizer keeps `E4021` and a whole Chinese sentence as one word each. So texts and questions are divided further before it
sees them, in the same way: between letters and digits, and each run of Chinese, Japanese or Korean characters into its overlapping
pairs, as Lucene's CJKBigramFilter does. Texts, but not questions, also have the parts of words such as `getUserName`.
"""

from __future__ import annotations

import re

_IDENTIFIER = re.compile(r"[^\W\d_]\d|\d[^\W\d_]")
_PARTS = re.compile(r"(?<=[^\W\d_])(?=\d)|(?<=\d)(?=[^\W\d_])")
_WORD = re.compile(r"[^\W_]+")
_CAMEL = re.compile(r"(?<=[a-z])(?=[A-Z])")
_CJK = re.compile(
    "[\u3005-\u3007\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff\uff66-\uff9f]+"
)


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


def is_character(word: str) -> bool:
    """Return whether a word is one Chinese, Japanese or Korean character, which is found as the first or the last of a pair."""
    return len(word) == 1 and _CJK.match(word) is not None


def _and_last(match: re.Match[str]) -> str:
    # Each character but the last one of a run begins a pair.
    return f"{match.group()} {match.group()[-1]}"


def _and_parts(match: re.Match[str]) -> str:
    word = match.group()
    parts = _CAMEL.sub(" ", word)
    return word if parts == word else f"{word} {parts}"


def _pairs(match: re.Match[str]) -> str:
    run = match.group()
    pairs = [run[place : place + 2] for place in range(len(run) - 1)] or [run]
    return f" {' '.join(pairs)} "


def similarity(first: str, second: str) -> float:
    """Return the share of trigrams that two words have in common, from 0 to 1, as PostgreSQL's pg_trgm defines it."""
    one, other = _trigrams(first), _trigrams(second)
    return len(one & other) / len(one | other)


def _trigrams(word: str) -> set[str]:
    filled = f"  {word} "
    return {filled[place : place + 3] for place in range(len(filled) - 2)}
