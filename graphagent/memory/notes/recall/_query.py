"""Analysis of a question without a model: its words, the speakers and the times that it names."""

from __future__ import annotations

import calendar
import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from graphagent import _clock

_WORD = re.compile(r"[^\W_]+(?:['’][^\W_]+)*")
_YEAR = re.compile(r"(?:19|20)\d\d")
_DAY = re.compile(r"([0-3]?\d)(?:st|nd|rd|th)?")
_DAY_LONG = 86_400_000
_ISO = re.compile(r"\b(\d{4})-(\d{1,2})(?:-(\d{1,2}))?\b")
_MONTHS = {
    name: number
    for number in range(1, 13)
    for name in (calendar.month_name[number].lower(), calendar.month_abbr[number].lower())
} | {"sept": 9}
_BEFORE_MONTHS = frozenset("in since until during of last this next by before after early late mid".split())  # noqa: SIM905
_NUMBERS = {"a": 1, "an": 1, "one": 1, "two": 2, "three": 3, "four": 4, "five": 5, "six": 6, "seven": 7, "ten": 10}
_UNITS = {"day": 1, "week": 7, "month": 30, "year": 365}

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
class Span:
    """A range of time, in milliseconds UTC, both ends included."""

    since: int
    until: int


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
    bare: str = ""
    """The text without the names of speakers, because they would dominate its vector."""


def parse_query(text: str, speakers: Iterable[str] = (), *, now: datetime | None = None) -> Query:
    """Return the analysis of a question.

    Args:
        text: The question.
        speakers: The speakers in the notes to search.
        now: The current time in UTC, for words such as "last week".
    """
    found = [match.group() for match in _WORD.finditer(text)]
    words = dict.fromkeys(word for word in found if word.casefold() not in STOPWORDS and len(word) < 64)
    lower = {word.casefold().removesuffix("'s").removesuffix("’s") for word in found}
    named = frozenset(
        name
        for each in speakers
        if (parts := set(_words(name := each.casefold()))) and parts <= lower and not _is_word_alone(name, text)
    )
    spans, months, timed = _times(text, now or datetime.fromtimestamp(_clock.now() / 1000, UTC))
    return Query(
        text,
        tuple(words or [" ".join(found)]) if found else (),
        named,
        tuple(spans),
        frozenset(months),
        timed,
        _without(text, named),
    )


def _words(text: str) -> list[str]:
    return [match.group() for match in _WORD.finditer(text.casefold())]


def _is_word_alone(name: str, text: str) -> bool:
    """Return whether a name such as Will or May is only a common word in a text: lower case, first in a sentence, or a month."""
    if name not in STOPWORDS and name not in _MONTHS:
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
    return possessive or not led or not (led[0] in _BEFORE_MONTHS or _DAY.fullmatch(led[0]))


def _without(text: str, names: frozenset[str]) -> str:
    parts = {part for name in names for part in _words(name)}
    if not parts:
        return text
    left = re.sub(rf"\b(?:{'|'.join(map(re.escape, sorted(parts)))})(?:['’]s)?\b", " ", text, flags=re.IGNORECASE)
    left = " ".join(left.split())
    return left if any(word not in STOPWORDS for word in _words(left)) else text


def _times(text: str, now: datetime) -> tuple[list[Span], set[int], frozenset[str]]:
    words = _words(_ISO.sub(" ", text))
    spans: list[Span] = []
    months: set[int] = set()
    timed: set[str] = set()
    for year, month, day in _ISO.findall(text):
        spans += _span(int(year), int(month), int(day) if day else None)
        timed |= {year, month, day}
    for place, word in enumerate(words):
        if word in _MONTHS and not (word in ("may", "mar") and _is_verb(words, place)):
            around = words[max(0, place - 2) : place] + words[place + 1 : place + 3]
            years = [int(each) for each in around if _YEAR.fullmatch(each)]
            days = [int(match[1]) for each in around if (match := _DAY.fullmatch(each)) and 1 <= int(match[1]) <= 31]
            timed |= {word, *(each for each in around if _YEAR.fullmatch(each) or (years and _DAY.fullmatch(each)))}
            if years:
                spans += _span(years[0], _MONTHS[word], days[0] if days else None)
            else:
                months.add(_MONTHS[word])
        elif _YEAR.fullmatch(word) and not any(each in _MONTHS for each in words[max(0, place - 3) : place + 3]):
            [january], [december] = _span(int(word), 1, None), _span(int(word), 12, None)
            spans.append(Span(january.since, december.until))
            timed.add(word)
    spans += _relative(words, now, timed)
    return spans, months, frozenset(timed)


def _is_verb(words: list[str], place: int) -> bool:
    """Return whether "may" is the verb: no preposition, day or year next to it makes it a month."""
    before = words[place - 1] if place else ""
    behind = words[place + 1] if place + 1 < len(words) else ""
    return not (before in _BEFORE_MONTHS or _DAY.fullmatch(before) or _DAY.fullmatch(behind) or _YEAR.fullmatch(behind))


def _relative(words: list[str], now: datetime, timed: set[str]) -> list[Span]:
    today = now.replace(hour=0, minute=0, second=0, microsecond=0)
    spans: list[Span] = []

    def days(first: int, count: int, *named: str) -> None:
        timed.update(named)
        start = today - timedelta(days=first)
        spans.append(Span(_at(start), _at(start + timedelta(days=count)) - 1))

    for place, word in enumerate(words):
        unit = _UNITS.get(word.removesuffix("s"))
        before = words[place - 1] if place else ""
        if word == "yesterday" and words[max(0, place - 2) : place] == ["day", "before"]:
            days(2, 1, "day", "before", word)
        elif word == "yesterday":
            days(1, 1, word)
        elif word == "today":
            days(0, 1, word)
        elif unit is not None and place + 1 < len(words) and words[place + 1] == "ago":
            count = int(before) if before.isdecimal() and len(before) < 4 else _NUMBERS.get(before, 0)
            if count:
                days(count * unit + unit // 2, max(unit, 1), before, word, "ago")
        elif unit is not None and before in ("last", "past", "this"):
            if before == "this":
                days(unit - 1, unit, word)
            else:
                many = unit if before == "past" else 2 * unit
                days(many, many, before, word)
    return spans


def _span(year: int, month: int, day: int | None) -> list[Span]:
    try:
        first = datetime(year, month, day or 1, tzinfo=UTC)
        last = first if day is not None else first.replace(day=calendar.monthrange(year, month)[1])
    except ValueError:  # there is no such day
        return []
    return [Span(_at(first), _at(last) + _DAY_LONG - 1)]


def _at(time: datetime) -> int:
    return round(time.timestamp() * 1000)
