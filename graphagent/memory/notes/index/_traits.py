"""Traits of a turn by which it may be an answer: whether it asks something, names a time, a number or a name."""

from __future__ import annotations

import re

QUESTION, TIME, NUMBER, NAME = 1, 2, 4, 8

_TIMES = frozenset(
    """yesterday today tonight tomorrow ago last next weekend morning recently just since monday tuesday wednesday thursday friday
    saturday sunday january february march april june july august september october november december week weeks month months year
    years summer winter spring autumn fall""".split()  # noqa: SIM905  a list of so many words is read more easily
)
_NUMBERS = frozenset(
    "one two three four five six seven eight nine ten eleven twelve twenty once twice couple several few first second third dozen half".split()  # noqa: SIM905  it reads better
)
_WORD = re.compile(r"[a-z]+|\d+")
_NAME = re.compile(r"(?<=[a-z,;] )[A-Z][a-z]")
_YEAR = re.compile(r"\b(?:19|20)\d\d\b")


def traits_of(text: str) -> int:
    """Return the traits of a text: the sum of those of QUESTION, TIME, NUMBER and NAME that it has."""
    words = set(_WORD.findall(text.lower()))
    digits = any(map(str.isdigit, words))
    return (
        QUESTION * ("?" in text or "\uff1f" in text)
        + TIME * (not words.isdisjoint(_TIMES) or (digits and _YEAR.search(text) is not None))
        + NUMBER * (digits or not words.isdisjoint(_NUMBERS))
        + NAME * (_NAME.search(text) is not None)
    )
