"""Rules of English and the calendar: phrases that name times, and the periods that they mean.

Weeks begin on Monday, seasons are those of the northern half of the earth, and days are those of UTC.
"""

from __future__ import annotations

import calendar
import re
from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import date

Period = tuple[int, int]
"""The first and the last day of a period, as ordinals of `datetime.date`."""
Groups = dict[str, str]
"""The named groups of a match, in lower case and without apostrophes; groups that match nothing are empty."""
Rule = Callable[[Groups, date], list[Period]]
"""Returns the possible meanings of a match on a day, the likeliest first. Raises ValueError if the calendar has no such day."""


# Names

_MONTHS = "january february march april may june july august september october november december".split()  # noqa: SIM905  it reads better
MONTHS = {name[:length]: number for number, name in enumerate(_MONTHS, 1) for length in (3, len(name))} | {"sept": 9}
"""The number of each month, by its name in lower case and by its abbreviations."""
MONTH_LEADS = frozenset("in since until during of last this next by before after early late mid".split())  # noqa: SIM905  it reads better
"""The words after which "may" is a month."""
LEADS = (MONTH_LEADS - {"last", "this", "next"}) | {"on", "at", "over", "around", "from", "between", "throughout"}
"""The words after which a name of `UNSURE` is a time."""

_WEEKDAYS = {
    "monday": 0, "tuesday": 1, "wednesday": 2, "thursday": 3, "friday": 4, "saturday": 5, "sunday": 6
}  # fmt: skip
_SHORT = {"mon": 0, "tue": 1, "tues": 1, "wed": 2, "thu": 3, "thur": 3, "thurs": 3, "fri": 4, "sat": 5, "sun": 6}
_DAYS = {
    "day before yesterday": -2, "yesterday": -1, "last night": -1, "today": 0, "tonight": 0, "this morning": 0,
    "this afternoon": 0, "this evening": 0, "tomorrow": 1, "day after tomorrow": 2,
}  # fmt: skip
_STRETCHES = {
    "spring": ((3, 1), (5, 0)), "summer": ((6, 1), (8, 0)), "autumn": ((9, 1), (11, 0)), "fall": ((9, 1), (11, 0)),
    "winter": ((12, 1), (2, 0)), "q1": ((1, 1), (3, 0)), "q2": ((4, 1), (6, 0)), "q3": ((7, 1), (9, 0)), "q4": ((10, 1), (12, 0)),
    "christmas": ((12, 24), (12, 26)), "christmas eve": ((12, 24), (12, 24)), "christmas day": ((12, 25), (12, 25)),
    "boxing day": ((12, 26), (12, 26)), "new year": ((12, 31), (1, 1)), "new years eve": ((12, 31), (12, 31)),
    "new years day": ((1, 1), (1, 1)), "valentines day": ((2, 14), (2, 14)), "halloween": ((10, 31), (10, 31)),
}  # fmt: skip
"""The first and the last day of periods that come once a year, each as month and day; day 0 is the last one of the month."""
_DECADES = {"sixties": 1960, "seventies": 1970, "eighties": 1980, "nineties": 1990}
UNSURE = frozenset({"jan", "mar", "march", "may", "the weekend", *_SHORT, *_STRETCHES}) - {"q1", "q2", "q3", "q4"}
"""Names of times that are also other words or belong to a topic: times only after some words, or with a day or a year."""

_UNITS = {
    "day": (1, 0, 0), "week": (7, 0, 3), "weekend": (7, 0, 3), "fortnight": (14, 0, 3), "month": (0, 1, 15), "quarter": (0, 3, 45),
    "year": (0, 12, 91), "decade": (0, 120, 730),
}  # fmt: skip
"""The days and the months of units, and by how many days "a week ago" may be more or less than a week."""
_COUNTS = {
    "a": (1, 1), "an": (1, 1), "one": (1, 1), "two": (2, 2), "three": (3, 3), "four": (4, 4), "five": (5, 5), "six": (6, 6),
    "seven": (7, 7), "eight": (8, 8), "nine": (9, 9), "ten": (10, 10), "eleven": (11, 11), "twelve": (12, 12), "couple": (2, 3),
    "few": (2, 5), "several": (3, 7),
}  # fmt: skip
"""The least and the greatest number that a word means."""
_HALVES = {"decade": ("year", "5"), "year": ("month", "6"), "month": ("week", "2")}
"""The unit and the count of half of a unit."""
_NTH = {"first": 0, "second": 1, "third": 2, "fourth": 3, "last": -1}
_WHICH = {"last": -1, "previous": -1, "past": -1, "this": 0, "current": 0, "the": 0, "next": 1, "coming": 1}


# Periods


def _day(day: int) -> Period:
    return day, day


def _month(year: int, month: int) -> Period:
    first = date(year, month, 1).toordinal()
    return first, first + calendar.monthrange(year, month)[1] - 1


def _calendar(unit: str, today: date, offset: int) -> Period:
    """Return the period of the calendar that is so many units after the one of today."""
    days, months, _ = _UNITS[unit]
    if months:
        first = ((today.year * 12 + today.month - 1) // months + offset) * months
        last = first + months - 1
        return _month(first // 12, first % 12 + 1)[0], _month(last // 12, last % 12 + 1)[1]
    if unit == "day":
        return _day(today.toordinal() + offset)
    monday = today.toordinal() - today.weekday() + offset * days
    return (monday + 5, monday + 6) if unit == "weekend" else (monday, monday + days - 1)


def _before(today: date, unit: str, count: int) -> int:
    """Return the day that is so many units before today."""
    days, months, _ = _UNITS[unit]
    year, month = divmod(today.year * 12 + today.month - 1 - count * months, 12)
    first, last = _month(year, month + 1)
    return min(first + today.day - 1, last) - count * days


def apart(groups: Groups, today: date, direction: int) -> list[Period]:
    """Return the days that are so many units before today, or after it if the direction is -1; without a number, up to one unit.

    The list is empty if the calendar ends before.
    """
    unit = groups["unit"]
    (least, most), around = (_count(groups), _UNITS[unit][2]) if groups["count"] else ((0, 1), 0)
    try:
        near, far = [_before(today, unit, direction * count) for count in (least, most)]
    except (ValueError, OverflowError):
        return []
    return [(min(near, far) - around, max(near, far) + around)]


def _yearly(make: Callable[[int], Period], groups: Groups, today: date) -> list[Period]:
    """Return the meant periods of something that comes once a year: without a year, those of ten years, the last one first."""
    if year := groups["year"]:
        return [make(int(year) if year.isdecimal() else today.year + _WHICH[year.split()[0]])]
    now, periods = today.toordinal(), list[Period]()
    for each in range(today.year + 1, today.year - 11, -1):
        with suppress(ValueError):  # the 29th of February, or a year that the calendar does not have
            periods.append(make(each))
    which = _which(groups)
    if which is None:
        return [period for period in periods if period[0] <= now][:10]
    if which == 0:
        return [make(today.year)]
    past, future = [each for each in periods if each[1] < now], [each for each in periods if each[0] > now]
    return past[:1] if which < 0 else future[-1:]


def _which(groups: Groups) -> int | None:
    """Return -1 for "last", 0 for "this", 1 for "next", None without such a word."""
    return _WHICH[groups["which"].split()[-1]] if groups["which"] else None


def _count(groups: Groups) -> tuple[int, int]:
    word = groups["count"].removeprefix("a ").removesuffix(" of")
    return (int(word), int(word)) if word.isdecimal() else _COUNTS[word]


# Rules: the meaning of a match


def iso_dates(groups: Groups, today: date) -> list[Period]:
    """Read a date such as 2023-12-24, or a month such as 2023-12."""
    year, month = int(groups["y"]), int(groups["m"].split("-")[0])
    if not groups["d"]:
        return [_month(year, month)]
    return [_day(date(year, month, int(groups["d"])).toordinal())]


def numeric_dates(groups: Groups, today: date) -> list[Period]:
    """Read a date such as 24/12/2023; of one in which day and month could be exchanged, only the year is clear."""
    month, day = sorted((int(groups["a"]), int(groups["b"])))
    return _years(groups, today) if month < day <= 12 else [_day(date(int(groups["y"]), month, day).toordinal())]


def dates(groups: Groups, today: date) -> list[Period]:
    """Read a day of a month, or several, such as "3 May 2023" or "May 3 to 7"."""
    month = MONTHS[groups["name"].rstrip(".")]
    first, last = [int(day.rstrip("stndrh")) for day in (groups["day"], groups["end"] or groups["day"])]
    return _yearly(
        lambda year: (date(year, month, first).toordinal(), date(year, month, last).toordinal()), groups, today
    )


def months(groups: Groups, today: date) -> list[Period]:
    """Read a month, such as "May" or "May 2023"."""
    number = MONTHS[groups["name"].rstrip(".")]
    return _yearly(lambda year: _month(year, number), groups, today)


def _months_of_year(groups: Groups, today: date) -> list[Period]:
    """Read "last year in May"."""
    return months({**groups, "name": groups["month"], "which": ""}, today)


def stretches(groups: Groups, today: date) -> list[Period]:
    """Read the name of a season, a quarter or a holiday."""
    first, last = _STRETCHES[groups["name"]]
    crosses = last < first

    def make(year: int) -> Period:
        end = year + crosses
        return date(year, *first).toordinal(), date(end, *last).toordinal() if last[1] else _month(end, last[0])[1]

    found = _yearly(make, groups, today)
    # The winter of a year is its beginning or its end.
    return [*found, make(date.fromordinal(found[0][0]).year - 1)] if crosses and groups["year"] else found


def _years(groups: Groups, today: date) -> list[Period]:
    year = int(groups["y"])
    return [(_month(year, 1)[0], _month(year, 12)[1])]


def _decades(groups: Groups, today: date) -> list[Period]:
    text = groups["decade"]
    year = _DECADES.get(text) or int(text.rstrip("s"))
    year += 0 if year > 100 else 1900 if year > 20 else 2000
    return [(_month(year, 1)[0], _month(year + 9, 12)[1])]


def weekdays(groups: Groups, today: date) -> list[Period]:
    """Read a weekday, such as "Friday", which is the nearest one that is past, or "next Friday"."""
    number = (_WEEKDAYS | _SHORT)[groups["name"]]
    now, week = today.toordinal(), today.toordinal() - today.weekday() + number
    nearest = now - (today.weekday() - number) % 7
    which = _which(groups)
    if which is None:
        days = [nearest, nearest - 7] if nearest == now else [nearest]
    elif which == 0:
        days = [week]
    elif which < 0:  # on Saturday, last Friday is yesterday, or that of last week
        days = [nearest - 7 if nearest == now else nearest, week - 7]
    else:
        days = [nearest + 7, week + 7]
    return [_day(day) for day in dict.fromkeys(days)]


def _days_of_week(groups: Groups, today: date) -> list[Period]:
    """Read "Monday of last week" and "last week on Monday"."""
    return [_day(_calendar("week", today, _WHICH[groups["week"]])[0] + (_WEEKDAYS | _SHORT)[groups["weekday"]])]


def _weekdays_of_month(groups: Groups, today: date) -> list[Period]:
    """Read "the first Friday in May" and "the last Friday of May 2023"."""
    number, month = _WEEKDAYS[groups["weekday"]], MONTHS[groups["month"].rstrip(".")]

    def make(year: int) -> Period:
        first, last = _month(year, month)
        if groups["nth"] == "last":
            return _day(last - (date.fromordinal(last).weekday() - number) % 7)
        return _day(first + (number - date.fromordinal(first).weekday()) % 7 + 7 * _NTH[groups["nth"]])

    return _yearly(make, {**groups, "which": ""}, today)


def _day_of_month(groups: Groups, today: date) -> list[Period]:
    """Return the nearest such day that is not in the future."""
    for before in range(12):
        first, last = _calendar("month", today, -before)
        day = first + int(groups["day"][:-2]) - 1
        if first <= day <= min(last, today.toordinal()):
            return [_day(day)]
    return []


def _named_days(groups: Groups, today: date) -> list[Period]:
    return [_day(today.toordinal() + _DAYS[groups["days"]])]


def _ago(groups: Groups, today: date) -> list[Period]:
    (least, most), unit = _count(groups), groups["unit"]
    found = apart(groups, today, 1)
    return [*found, _calendar(unit, today, -least)] if least == most and unit != "day" else found


def _half_ago(groups: Groups, today: date) -> list[Period]:
    unit, count = _HALVES[groups["unit"]]
    return apart({"unit": unit, "count": count}, today, 1)


def _hours(groups: Groups, today: date) -> list[Period]:
    """Read "two hours ago" and "the last 24 hours": the days in which these can be, whatever time it is now."""
    most = _count(groups)[1] if groups["count"] else 1
    hours = most if groups["unit"].startswith("hour") else -(-most // 60)
    return [(today.toordinal() + (-hours // 24), today.toordinal())]


def units(groups: Groups, today: date) -> list[Period]:
    """Read "last week", which is one of the calendar, and "the past week" or "the last three weeks", which end today."""
    unit, which, now = groups["unit"], _which(groups) or 0, today.toordinal()
    is_past = groups["which"].endswith("past") and unit != "weekend"
    counted = groups["count"] or ("few" if groups["many"] else "one" if is_past else "")
    if counted and which:
        last = _before(today, unit, -which * _count({"count": counted})[1])
        return [(min(now, last), max(now, last))]
    if unit == "day" or counted:
        return []
    found = _calendar(unit, today, which)
    # "This weekend" is the coming one, or the last one.
    return [_calendar(unit, today, -1), found] if unit == "weekend" and which == 0 and found[0] > now else [found]


def _before_last(groups: Groups, today: date) -> list[Period]:
    return [_calendar(groups["unit"], today, -2)]


def weekend(groups: Groups, today: date) -> list[Period]:
    return [_calendar("weekend", today, 0 if today.weekday() > 4 else -1)]


def _any(names: Iterable[str]) -> str:
    """Return the pattern of some names; between their words may be any white space, and before an s an apostrophe."""
    longest_first = sorted(names, key=lambda name: -len(name))
    return "|".join(name.replace("s ", "['’]?s ").replace(" ", r"\s+") for name in longest_first)


_DAY = r"[0-3]?[0-9](?:st|nd|rd|th)?"
_YEAR = r"(?:19|20)[0-9]{2}"
_MONTH = rf"(?P<name>(?:{_any(MONTHS)})\b\.?)"
_OF_YEAR = rf"(?:(?:,\s*|\s+)(?:(?:of|in)\s+)?(?P<year>{_YEAR}|(?:last|this|next)\s+year)\b)?"
_TO = r"(?:\s*[-–—]\s*|\s+(?:to|until|till|through|and|or)\s+)(?:the\s+)?"
_ENDS = rf"(?P<day>{_DAY})(?:{_TO}(?P<end>{_DAY}))?"
_WEEKDAY = rf"(?:(?:{_any(_WEEKDAYS)}),?\s+(?:the\s+)?)?"
_WHICHEVER = r"(?:this\s+)?(?:last|previous|past)|this|next|coming"
_SOME = rf"(?:(?P<which>{_WHICHEVER})\s+)?"
NUMBER = rf"(?P<count>[0-9]{{1,3}}|(?:a\s+)?(?:couple(?:\s+of)?|few)|{_any(_COUNTS)})"
UNIT = rf"(?P<unit>{_any(_UNITS)})"


def _not_after(words: str) -> str:
    return "".join(rf"(?<!\b{word}\s)" for word in words.split())


_NOT_NUMBERED = _not_after("room port flight number no code pin ticket order version model invoice case gate train bus")
_YEAR_ALONE = (
    rf"{_NOT_NUMBERED}(?:(?<![\w.,:$€£#/-])|(?<=\bmid-)|(?<=\b[12][0-9]{{3}}-))"
    rf"(?P<y>{_YEAR})(?![\w%]|[.,:][0-9]|[-/](?!{_YEAR}\b)\w)"
)
"""Four digits that are not part of an identifier, an amount or a version."""


def _needs(*names: Iterable[str]) -> frozenset[str]:
    """Return the last words of some names, without digits: a text with none of them has none of the names."""
    return frozenset(name.split()[-1].rstrip("1234") for each in names for name in each)


_DIGITS = frozenset("0123456789")
_UNIT_WORDS = _needs(_UNITS, [f"{unit}s" for unit in _UNITS])

RULES: tuple[tuple[frozenset[str], re.Pattern[str], Rule], ...] = tuple(
    (needs, re.compile(pattern, re.IGNORECASE), read)
    for needs, pattern, read in (
        (
            _DIGITS,
            r"(?<![\w/.-])(?P<y>[0-9]{4})-(?P<m>[0-9]{2}(?![0-9-])|[0-9]{1,2}-(?P<d>[0-9]{1,2}))(?![0-9-])",
            iso_dates,
        ),
        (
            _DIGITS,
            rf"(?<![\w/.-])(?P<a>[0-9]{{1,2}})[/.](?P<b>[0-9]{{1,2}})[/.](?P<y>{_YEAR})(?![\w/-])",
            numeric_dates,
        ),
        (_DIGITS, rf"\b{_WEEKDAY}{_ENDS}(?:\s+of)?\s+{_MONTH}{_OF_YEAR}(?P<which>)", dates),
        (_DIGITS, rf"\b{_WEEKDAY}{_MONTH}\s+(?:the\s+)?{_ENDS}\b{_OF_YEAR}(?P<which>)", dates),
        (
            _needs(MONTHS),
            rf"\b(?P<year>(?:last|this|next)\s+year),?\s+in\s+(?P<month>(?:{_any(MONTHS)})\b\.?)",
            _months_of_year,
        ),
        (
            _needs(MONTHS),
            rf"\b(?P<nth>{_any(_NTH)})\s+(?P<weekday>{_any(_WEEKDAYS)})\s+(?:in|of)\s+(?P<month>(?:{_any(MONTHS)})\b\.?){_OF_YEAR}",
            _weekdays_of_month,
        ),
        (
            frozenset({"week"}),
            rf"\b(?P<weekday>{_any(_WEEKDAYS)}),?\s+(?:of\s+)?(?:the\s+)?(?P<week>last|previous|this|next|coming)\s+week\b",
            _days_of_week,
        ),
        (
            frozenset({"week"}),
            rf"\b(?P<week>last|previous|this|next|coming)\s+week,?\s+(?:on\s+)?(?P<weekday>{_any(_WEEKDAYS)})\b",
            _days_of_week,
        ),
        (_needs(MONTHS), rf"\b(?!(?-i:[Tt]his\s+may)){_SOME}{_MONTH}{_OF_YEAR}", months),
        (_needs(_STRETCHES), rf"\b{_SOME}(?P<name>{_any(_STRETCHES)})\b{_OF_YEAR}", stretches),
        (_DIGITS, _YEAR_ALONE, _years),
        (_DIGITS, r"(?P<decade>\b(?:19|20)[0-9]0['’]?s|(?<=\bthe\s)['’]?[0-9]0['’]?s)\b", _decades),
        (_needs(_DECADES), rf"(?<=\bthe\s)(?P<decade>{_any(_DECADES)})\b", _decades),
        (
            _needs(_WEEKDAYS, _SHORT),
            rf"\b{_not_after('every each any good black ash cyber')}{_SOME}(?P<name>{_any(_WEEKDAYS)}|(?-i:{_any(_SHORT).title()}))\b(?!\.\w)",
            weekdays,
        ),
        (
            _DIGITS,
            r"(?<=\bon\sthe\s)(?P<day>[0-3]?[0-9](?:st|nd|rd|th))(?=\s*(?:$|[?.!,;:)]|\s(?:and|at|in|or|when|with)\b))",
            _day_of_month,
        ),
        (_needs(_DAYS), rf"\b(?P<days>{_any(_DAYS)})\b", _named_days),
        (frozenset({"ago"}), rf"(?<![0-9][.,])\b{NUMBER}\s+{UNIT}s?\s+ago\b", _ago),
        (frozenset({"ago"}), r"\bhalf\s+an?\s+(?P<unit>year|decade|month)\s+ago\b", _half_ago),
        (frozenset({"ago"}), rf"(?<![0-9][.,])\b{NUMBER}\s+(?P<unit>(?:hour|minute)s?)\s+ago\b", _hours),
        (
            frozenset({"hour", "hours", "minute", "minutes"}),
            rf"\b(?:this\s+)?(?:last|past)\s+(?:{NUMBER}\s+)?(?P<unit>(?:hour|minute)s?)\b(?!\s+of\b)",
            _hours,
        ),
        (
            _UNIT_WORDS,
            rf"\b(?P<which>{_WHICHEVER}|current|(?<=\bof\s)the)\s+(?:{NUMBER}\s+)?{UNIT}(?P<many>s)?\b(?!\s+of\b)",
            units,
        ),
        (_UNIT_WORDS, rf"\b{UNIT}\s+before\s+last\b", _before_last),
        (frozenset({"weekend"}), r"\b(?P<name>the\s+weekend)\b(?!\s+of\b)", weekend),
    )
)
"""Words or digits that a text must have for a rule to apply, the pattern of a phrase, and its meaning."""
