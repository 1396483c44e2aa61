"""Analysis of a question without a model: its words, the speakers and the times that it names."""

from __future__ import annotations

import re
from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from datetime import UTC, datetime

from graphagent import _clock
from graphagent.memory.notes.index._words import folded, has_characters, normal, separated
from graphagent.memory.notes.recall._time_rules import MONTH_LEADS, MONTHS
from graphagent.memory.notes.recall._times import Span, times_of

_WORD = re.compile(r"[^\W_]+")
_POSSESSIVE = re.compile(r"(?P<word>[^\W_]+)(?:['’]s\b)?")
_LOWER = re.compile(r"(?<!\w)[a-z]")
_CAPITAL = re.compile(r"\b(?P<name>[A-Z][A-Za-z]+)\b(?P<of>['’]s)?")
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
_NAMES = frozenset({"will", "it", "us"})
"""The stop words that are searched for where they are written as names: Will, IT and US."""
_SAYING = frozenset(
    """ask asked discuss discussed happen happened happening know mention mentioned note noted remember say said says talk talked tell
    think thinks thought told write wrote""".split()  # noqa: SIM905  a list of so many words is read more easily
)
"""Words of questions about anything that someone said or that happened at a time."""


@dataclass(frozen=True, slots=True)
class Query:
    """A question, analysed for a search."""

    text: str
    words: tuple[str, ...]
    """The words to search for, each once, as they were written. If there are only stop words, all of them as one phrase."""
    is_phrase: bool = False
    """Whether it has only stop words."""
    speakers: tuple[str, ...] = ()
    """The speakers that it names, as they were given."""
    named: frozenset[str] = frozenset()
    """The names of these speakers, in lower case and without accents."""
    spans: tuple[Span, ...] = ()
    """The times that it names."""
    months: frozenset[int] = frozenset()
    """The months that it names without a year, from 1 to 12."""
    timed: frozenset[str] = frozenset()
    """The words that name times, in lower case."""
    asks: str = ""
    """The kind of answer that is asked for: `time`, `number` or `name`, if one of them is."""
    bare: str = ""
    """The text without the names of speakers and without times, because they would dominate its vectors; the whole text if the rest is
    only common words that ask for an answer, such as "where", and empty if these say nothing."""


def parse_query(text: str, speakers: Iterable[str] = (), *, now: datetime | None = None) -> Query:
    """Return the analysis of a question.

    Args:
        text: The question.
        speakers: The speakers in the notes to search.
        now: The current time in UTC, for words such as "last week".
    """
    plain = normal(text)
    found = [match.group() for match in _WORD.finditer(separated(plain))]
    meant = _capitals(plain)
    spoken = _named(speakers, plain, {folded(word) for word in found}, meant)
    named = frozenset(spoken)
    kept = (meant & _NAMES).union(*(_words(separated(name)) for name in named))
    words = dict.fromkeys(
        word for word in found if (word.casefold() not in STOPWORDS or folded(word) in kept) and len(word) < 64
    )
    times = times_of(plain, now or datetime.fromtimestamp(_clock.now() / 1000, UTC), named)
    asks = next((kind for kind, asks in _ASKS.items() if asks.search(plain)), "")
    return Query(
        text,
        tuple(words or [" ".join(found)]) if found else (),
        not words,
        tuple(speaker for given in spoken.values() for speaker in given),
        named,
        times.spans,
        times.months,
        frozenset(word for phrase in times.phrases for word in _words(separated(phrase))) - STOPWORDS,
        asks,
        _bare(plain, named, times.phrases, kept) or (text if asks or not (named or times.phrases) else ""),
    )


def _named(
    speakers: Iterable[str], text: str, words: AbstractSet[str], meant: AbstractSet[str]
) -> dict[str, list[str]]:
    """Return the speakers that a text with these words names, by their names in lower case and without accents."""
    parts: dict[str, frozenset[str]] = {}
    given: dict[str, list[str]] = {}
    for speaker in speakers:
        name = folded(normal(speaker))
        of_name = frozenset(_words(separated(name)))
        if not of_name or not of_name <= words:
            continue
        is_common = (name in STOPWORDS or name in MONTHS) and name not in meant
        if not is_common or f"{name.capitalize()}," in text:
            parts[name] = of_name
            given.setdefault(name, []).append(speaker)
    # "Ana Maria" does not name Ana as well.
    return {name: each for name, each in given.items() if not any(parts[name] < other for other in parts.values())}


def _words(text: str) -> list[str]:
    return [match.group() for match in _WORD.finditer(text.casefold())]


def _capitals(text: str) -> frozenset[str]:
    """Return the common words and months that are names in a text, such as Will and May, in lower case.

    They have a capital letter though they are not the first word of a sentence, or are followed by `'s`. After "in" and the like, and
    after a day, May is a month. Nothing is known of a text in which all words have capital letters.
    """
    if not _LOWER.search(text):
        return frozenset()
    found: set[str] = set()
    for match in _CAPITAL.finditer(text):
        name, before = match["name"].casefold(), text[: match.start()].rstrip(" ")
        if match["of"] is None and (not before or before[-1] in '.!?:;\n"“(-'):
            continue
        led = _words(before)[-1:] if match["of"] is None and name in MONTHS else []
        if (name in STOPWORDS or name in MONTHS) and not (led and (led[0] in MONTH_LEADS or _DAY.fullmatch(led[0]))):
            found.add(name)
    return frozenset(found)


def _bare(text: str, names: Iterable[str], times: Iterable[str], kept: AbstractSet[str]) -> str:
    """Return a text without names and times; empty if nothing but common words is left."""
    parts = {part for name in names for part in _words(name)}
    left = text
    for part in parts:
        if has_characters(part):
            left = left.replace(part, " ")
    if parts:
        left = _POSSESSIVE.sub(lambda match: " " if folded(match["word"]) in parts else match[0], left)
    for phrase in times:
        words = r"\W+".join(map(re.escape, phrase.split()))
        left = re.sub(rf"\b(?:(?:in|on|at|during|of) (?:the )?)?{words}(?!\w)", " ", left, flags=re.IGNORECASE)
    left = " ".join(left.split())
    return left if any(word not in STOPWORDS | _SAYING or word in kept for word in _words(left)) else ""
