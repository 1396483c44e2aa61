"""Analysis of a question without a model: its words, the speakers and the times that it names."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime

from graphagent import _clock
from graphagent.memory.notes.index._words import separated
from graphagent.memory.notes.recall._time_rules import MONTH_LEADS, MONTHS
from graphagent.memory.notes.recall._times import Span, times_of

_WORD = re.compile(r"[^\W_]+")
_DAY = re.compile(r"([0-3]?\d)(?:st|nd|rd|th)?")

_ASKS = {
    "time": re.compile(r"\bwhen\b|\b(?:what|which) (?:date|day|month|year|time)\b|\bhow long ago\b", re.IGNORECASE),
    "number": re.compile(r"\bhow (?:many|much|often|long|old|far|big|tall)\b", re.IGNORECASE),
    "name": re.compile(r"\bwhere\b|\bwho(?:se|m)?\b|\bwhich (?:city|country|town|place)\b", re.IGNORECASE),
}

# As in most lists of English stop words, but without those that negate.
STOPWORDS = frozenset(
    """a about above after again all am an and any are as at be because been before being below between both but by can could did
    do does doing down during each few for from further had has have having he her here hers herself him himself his how i if in into
    is it its itself just let me more most my myself of off on once only or other our ours ourselves out over own please same she should
    so some such than that the their theirs them themselves then there these they this those through to too under until up us very was
    we were what when where which while who whom whose why will with would you your yours yourself yourselves s t d ll m re ve
    """.split()  # noqa: SIM905  a list of so many words is read more easily
)


@dataclass(frozen=True, slots=True)
class Query:
    """A question, analysed for a search."""

    text: str
    words: tuple[str, ...]
    """The words to search for, each once, as they were written. If there are only stop words, all of them as one phrase."""
    named: frozenset[str] = frozenset()
    """The speakers that it names, in lower case."""
    spans: tuple[Span, ...] = ()
    """The times that it names."""
    months: frozenset[int] = frozenset()
    """The months that it names without a year, from 1 to 12."""
    timed: frozenset[str] = frozenset()
    """The words that name times, in lower case."""
    asks: str = ""
    """The kind of answer that is asked for: `time`, `number` or `name`, if one of them is."""
    bare: str = ""
    """The text without the names of speakers and without times, because they would dominate its vectors."""


def parse_query(text: str, speakers: Iterable[str] = (), *, now: datetime | None = None) -> Query:
    """Return the analysis of a question.

    Args:
        text: The question.
        speakers: The speakers in the notes to search.
        now: The current time in UTC, for words such as "last week".
    """
    found = [match.group() for match in _WORD.finditer(separated(text))]
    words = dict.fromkeys(word for word in found if word.casefold() not in STOPWORDS and len(word) < 64)
    lower = {word.casefold() for word in found}
    names = {
        name: parts
        for each in speakers
        if (parts := set(_words(separated(name := each.casefold()))))
        and parts <= lower
        and not _is_word_alone(name, text)
    }
    # "Ana Maria" does not name Ana as well.
    named = frozenset(name for name in names if not any(names[name] < parts for parts in names.values()))
    times = times_of(text, now or datetime.fromtimestamp(_clock.now() / 1000, UTC), named)
    return Query(
        text,
        tuple(words or [" ".join(found)]) if found else (),
        named,
        times.spans,
        times.months,
        frozenset(word for phrase in times.phrases for word in _words(separated(phrase))) - STOPWORDS,
        next((kind for kind, asks in _ASKS.items() if asks.search(text)), ""),
        _without(text, named, times.phrases),
    )


def _words(text: str) -> list[str]:
    return [match.group() for match in _WORD.finditer(text.casefold())]


def _is_word_alone(name: str, text: str) -> bool:
    """Return whether a name such as Will or May is only a common word in a text: lower case, first in a sentence, or a month."""
    if name not in STOPWORDS and name not in MONTHS:
        return False
    return not any(
        _is_name(text[: match.start()].rstrip(), match["of"] is not None)
        for match in re.finditer(rf"\b{name.capitalize()}\b(?P<of>['’]s)?", text)
    )


def _is_name(before: str, possessive: bool) -> bool:
    """Return whether a word with a capital letter is a name, judged by the text before it."""
    led = _words(before)[-1:]
    if not before or before[-1] in ".!?:;":
        return possessive
    return possessive or not led or not (led[0] in MONTH_LEADS or _DAY.fullmatch(led[0]))


def _without(text: str, names: frozenset[str], times: Iterable[str]) -> str:
    """Return a text without names and times, unless nothing but common words would be left."""
    parts = {part for name in names for part in _words(name)}
    left = text
    if parts:
        left = re.sub(rf"\b(?:{'|'.join(map(re.escape, sorted(parts)))})(?:['’]s)?\b", " ", left, flags=re.IGNORECASE)
    for phrase in times:
        words = r"\W+".join(map(re.escape, phrase.split()))
        left = re.sub(rf"\b(?:(?:in|on|at|during|of) (?:the )?)?{words}(?!\w)", " ", left, flags=re.IGNORECASE)
    left = " ".join(left.split())
    return left if any(word not in STOPWORDS for word in _words(left)) else text
