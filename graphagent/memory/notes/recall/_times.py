"""Times that a text names, such as "yesterday", "last Friday", "in early May" or "from March to June 2023".

Phrases that name times are found by rules. The words before a phrase select a part of a period: its end in "late May", all that follows
it in "since May". Two phrases may mean one range.
"""

from __future__ import annotations

import re
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from datetime import date, datetime
from itertools import zip_longest
from typing import TYPE_CHECKING

from graphagent.memory.notes.recall import _time_rules as rules

if TYPE_CHECKING:
    from graphagent.memory.notes.recall._time_rules import Groups, Period, Rule

_DAY_LONG = 86_400_000


@dataclass(frozen=True, slots=True)
class Span:
    """A range of time, in milliseconds UTC, both ends included."""

    since: int
    until: int


@dataclass(frozen=True, slots=True)
class Times:
    """The times that a text names."""

    spans: tuple[Span, ...]
    """The possible meanings of the times, without duplicates."""
    places: tuple[tuple[int, int], ...]
    """Where the parts of the text that name them begin and end, in their order."""


_LEADING = re.compile(
    rf"(?:\b(?:(?:{rules.NUMBER}\s+)?\b{rules.UNIT}s?\s+)?(?P<bound>since|before|after|until|till|from|between)\s+)?(?:the\s+)?"
    r"(?:(?P<part>\b(?:early|mid|middle|late)(?=[\s-])|\b(?:beginning|start|middle|end)(?=\s+of\s))[\s-]+(?:of\s+)?(?:the\s+)?)?$",
    re.IGNORECASE,
)
"""The words before a phrase that modify it."""
_NEAR = 48
"""How many characters before a phrase are read."""
_PARTS = {"early": 0, "beginning": 0, "start": 0, "mid": 1, "middle": 1, "late": 2, "end": 2}
_OPEN = frozenset({"since", "before", "after", "until", "till"})
_LINK = re.compile(r"\s*[-–—/&]\s*|,?\s+(?P<word>to|and|or|until|till|through|before|on)\s+(?:the\s+)?", re.IGNORECASE)
"""The words that link two phrases."""
_LAST = date.max.toordinal()
_MOST = 60
"""How many spans a text names at most."""
_PLAIN = str.maketrans("İıſ\u212a", "IisK")
"""Letters that equal others where case is ignored, but not in a table of names."""


@dataclass(frozen=True, slots=True)
class _Time:
    """A time that was found in a text."""

    start: int
    end: int
    read: Rule
    groups: Groups
    part: str
    """Which part of it is meant, such as "early"."""
    bound: str
    """The word before it that makes another range of it, such as "since"."""
    distance: Groups
    """The count and the unit in "two days before"."""

    periods: list[Period]
    """Its possible meanings today, the likeliest first."""

    def on(self, day: date) -> list[Period]:
        """Return its possible meanings on another day, the likeliest first."""
        return _periods(self.read, self.groups, self.part, day)

    @property
    def is_yearly(self) -> bool:
        """Whether it may be that of any year, such as "in May"."""
        of_year = self.read in (rules.months, rules.dates, rules.stretches)
        return of_year and not (self.groups["year"] or self.groups["which"])


def times_of(text: str, now: datetime, names: AbstractSet[str] = frozenset()) -> Times:
    """Return the times that a text names.

    Args:
        text: The text.
        now: The current time in UTC.
        names: Names of people in lower case; a month of this name counts only after words such as "in", or with a day or a year.
    """
    today, text = now.date(), text.translate(_PLAIN)
    found = _found(text, today, rules.UNSURE | names)
    named: list[list[Period]] = []
    place = 0
    while place < len(found):
        time, after = found[place], found[place + 1] if place + 1 < len(found) else None
        together = _together(time, after, text[time.end : after.start]) if after else []
        named.append(together or _bounded(time, today))
        place += 2 if together else 1
    likeliest_first = [period for each in zip_longest(*named) for period in each if period is not None]
    bounded = [(max(first, 1), min(last, _LAST)) for first, last in likeliest_first]
    spans = dict.fromkeys(_span(first, last) for first, last in bounded if first <= last)
    return Times(tuple(spans)[:_MOST], tuple((time.start, time.end) for time in found))


def _found(text: str, today: date, unsure: AbstractSet[str]) -> list[_Time]:
    """Return the times in their order. Of two that overlap, the one that begins first counts, or else the longer one."""
    words = set(re.findall(r"[a-z]+|[0-9]", text.lower()))
    matches = [
        (match, read)
        for needs, pattern, read in rules.RULES
        if not needs.isdisjoint(words)  # most questions name no time, and the rules take longer to find that out
        for match in pattern.finditer(text)
    ]
    found: list[_Time] = []
    for match, read in sorted(matches, key=lambda each: (each[0].start(), -each[0].end())):
        end = found[-1].end if found else 0
        if match.start() < end:
            continue
        groups, before = _groups(match), text[max(end, match.start() - _NEAR) : match.start()]
        is_linked = bool(found) and _LINK.fullmatch(before) is not None
        if not is_linked and not _is_sure(groups, match, before, unsure):
            continue
        start, said = match.start(), dict[str, str]()
        if leading := _LEADING.search(before):
            said = _groups(leading)
            first = next((leading.start(name) for name in ("count", "unit", "part") if said[name]), len(before))
            start += first - len(before)
        part = said.get("part", "")
        if periods := _periods(read, groups, part, today):
            found.append(_Time(start, match.end(), read, groups, part, said.get("bound", ""), said, periods))
    return found


def _periods(read: Rule, groups: Groups, part: str, today: date) -> list[Period]:
    """Return the possible meanings of a match on a day, the likeliest first; none if the calendar has no such day."""
    try:
        found = read(groups, today)
    except (ValueError, OverflowError):
        return []
    there = [period for period in found if period[0] > 0 and period[1] <= _LAST]
    return [_part(period, _PARTS[part]) for period in there] if part else there


def _groups(match: re.Match[str]) -> Groups:
    plain = {name: re.sub("['’]", "", value or "").casefold() for name, value in match.groupdict().items()}
    return {name: " ".join(value.split()) for name, value in plain.items()}


def _is_sure(groups: Groups, match: re.Match[str], before: str, unsure: AbstractSet[str]) -> bool:
    """Return whether a name such as May or spring is a time here, and no other word."""
    if groups.get("which") == "the":  # "the end of the year", but not "the book of the year"
        return re.search(r"\b(?:beginning|start|middle|end)\s+of\s+$", before, re.IGNORECASE) is not None
    name = groups.get("name", "").rstrip(".")
    if name not in unsure or groups.get("which") or groups.get("year", "").isdecimal():
        return True
    is_capital = match["name"][0].isupper()
    if groups.get("day") and (is_capital or not groups["day"].isdecimal()):  # "which 2 may I take?"
        return True
    lead = re.search(r"(\w+)[\s-]+(?:the\s+)?$", before.casefold())
    if lead is not None and lead[1] in rules.LEADS:
        return True
    is_inside = re.search(r"[^\s.!?:;]\s*$", before) is not None
    is_article = re.search(r"\bthe\s+$", before) is not None and name in rules.MONTHS
    return is_capital and is_inside and (name == "march" or is_article or bool(groups.get("year")))


def _together(first: _Time, second: _Time, between: str) -> list[Period]:
    """Return the meanings of two times together, such as a range; none if each has a meaning of its own."""
    link = _LINK.fullmatch(between)
    if link is None:
        return []
    word = _groups(link)["word"]
    [begin, *_], [end, *_] = first.periods, second.periods
    if word in ("before", "on"):  # "the Friday before 3 May": it may also have been told on that day
        is_relative = first.read in (rules.weekdays, rules.units, rules.weekend)
        is_absolute = second.read in (rules.dates, rules.iso_dates, rules.numeric_dates)
        return [*first.on(date.fromordinal(end[0])), end] if is_relative and is_absolute else []
    if word == "or" or (word == "and" and first.bound not in ("between", "from")):
        return []
    if first.is_yearly and second.is_yearly:  # "from November to March": those of each year
        begins = [(first.on(date.fromordinal(start)), last) for start, last in second.periods]
        return [(periods[0][0], last) for periods, last in begins if periods]
    if first.groups.get("year") and second.groups.get("year") == "":  # "from March 2023 to May": the May after
        [end, *_] = second.on(date.fromordinal(min(begin[0] + 365, _LAST))) or [end]
    elif begin > end:  # "from Friday to Sunday": the Friday before
        [begin, *_] = first.on(date.fromordinal(end[0])) or [begin]
    return [(begin[0], end[1])] if begin[0] <= end[1] else []


def _bounded(time: _Time, today: date) -> list[Period]:
    """Return the meanings of a time after words such as "since" or "two days before"."""
    periods, now = time.periods, today.toordinal()
    first, last = periods[0]
    if time.distance.get("unit") and time.bound in ("before", "after"):  # it may also have been told on the day itself
        before = time.bound == "before"
        return [
            *rules.apart(time.distance, date.fromordinal(first if before else last), 1 if before else -1),
            (first, last),
        ]
    if time.bound == "since":
        return [(first, max(now, last))]
    if time.bound == "before":
        return [(1, first - 1)]
    if time.bound == "after":
        return [(last + 1, now if last < now else _LAST)]
    return [(1, last)] if time.bound in _OPEN else periods


def _part(period: Period, part: int) -> Period:
    """Return a third of a period: the beginning (0), the middle (1) or the end (2)."""
    days = period[1] - period[0] + 1
    third = (days + 2) // 3
    first = period[0] + (days - third) * part // 2
    return first, first + third - 1


def _span(first: int, last: int) -> Span:
    epoch = date(1970, 1, 1).toordinal()
    return Span((first - epoch) * _DAY_LONG, (last + 1 - epoch) * _DAY_LONG - 1)
