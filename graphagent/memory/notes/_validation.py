"""Checks of the arguments of notes. Each returns the value as it is stored, or raises an error that shows a correct value."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from types import MappingProxyType
from typing import Any, cast

import orjson

from graphagent._article import a, kind_of
from graphagent._options import check_number, check_whole, check_zone
from graphagent.errors import NoteError
from graphagent.memory._note_values import Record, milliseconds

LONGEST = 1_000_000
"""The longest note, in characters."""
_CATEGORIES = 100
_METADATA = 1_000_000
_HALF = "has half of a letter (a lone surrogate); decode the text with errors='replace'"
_KEYS = (str, int, float, type(None))
"""The types of keys that JSON turns into texts."""
_DEEPEST = 100
"""How many levels of metadata are searched for the part that JSON cannot represent."""
_NOTHING: Mapping[str, Any] = MappingProxyType({})


def whole(name: str, value: object) -> None:
    """Check that a value is a whole number of at least 0.

    Raises:
        TypeError: the value is not a whole number.
        ValueError: the value is below 0.
    """
    check_whole(name, value)
    if cast("int", value) < 0:
        raise ValueError(f"{name}={value} is below 0")


def fraction(name: str, value: object) -> None:
    """Check that a value is a number from 0 to 1.

    Raises:
        TypeError: the value is not a number.
        ValueError: the value is outside this range.
    """
    check_number(name, value)
    if not 0 <= cast("float", value) <= 1:
        raise ValueError(f"{name}={value!r} is not between 0 and 1")


def one_of(names: Sequence[str]) -> str:
    """Return the allowed values for an error message: `'a', 'b' or 'c'`."""
    *others, last = map(repr, names)
    return f"{', '.join(others)} or {last}" if others else last


def content(value: object) -> str:
    """Return the text of a note without spaces around it.

    Raises:
        NoteError: the value is not a text, blank, too long, or contains a lone surrogate.
    """
    if not isinstance(value, str):
        raise NoteError(f"a note is a text, not {type(value).__name__}")
    text = value.strip()
    if not text:
        raise NoteError("a note has some text; this one is blank")
    if len(text) > LONGEST:
        raise NoteError(f"a note has at most {LONGEST:,} characters, this one has {len(text):,}; keep it in parts")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise NoteError(
            f"character {error.start} of the note is half of a letter (a lone surrogate); decode the text with errors='replace'"
        ) from None
    return text


def name(what: str, value: object, longest: int = 1000) -> str:
    """Return a name, such as that of a source.

    Raises:
        NoteError: the value is not a text, is too long, or contains a lone surrogate.
    """
    if not isinstance(value, str):
        raise NoteError(f"{what}={value!r} is not a text")
    if len(value) > longest:
        raise NoteError(f"{what} has {len(value):,} characters, and may have {longest:,}")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise NoteError(f"{what}={value!r} has half of a letter (a lone surrogate)") from None
    return value


def note_id(value: object) -> str:
    """Return the id of a note.

    Raises:
        TypeError: the value is not a text.
    """
    if not isinstance(value, str):
        given = f"{kind_of(value)}; give its .id" if isinstance(value, Record) else kind_of(value)
        raise TypeError(f"a note is named by its id, a text such as record.id, not by {given}")
    return value


def categories(values: Iterable[str] | None) -> tuple[str, ...]:
    """Return categories without duplicates and without spaces around them.

    Raises:
        NoteError: a category is not a text, is blank or too long, or too many are given.
    """
    given = [values] if isinstance(values, str) else list(values or ())
    found = tuple(dict.fromkeys(name("category", each, 200).strip() for each in given))
    if "" in found:
        raise NoteError("a category has some text; one of these is blank")
    if len(found) > _CATEGORIES:
        raise NoteError(f"a note has at most {_CATEGORIES} categories, this one has {len(found)}")
    return found


def importance(value: object) -> float:
    """Return an importance.

    Raises:
        NoteError: the value is not a number from 0 to 1.
    """
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        raise NoteError(f"importance={value!r} is not between 0 and 1")
    return float(value)


def metadata(given: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return metadata as they will be read back from JSON.

    Raises:
        NoteError: the metadata are not a mapping, contain a value that JSON cannot represent, or are too large.
    """
    if not isinstance(given, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise NoteError(f"metadata= is a dict, such as {{'ticket': 42}}, not {kind_of(given)}")
    if not given:
        return _NOTHING
    found, data = _through_json(given, "metadata", "the metadata of a note cannot be kept")
    if len(data) > _METADATA:
        raise NoteError(
            f"the metadata of a note have at most {_METADATA:,} characters of JSON, these have {len(data):,}"
        )
    return MappingProxyType(found)


def metadata_filter(given: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the metadata that a note must have to be found, as they are read back from JSON.

    Raises:
        NoteError: the argument is not a mapping, or contains a value that metadata cannot have.
    """
    if not isinstance(given, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise NoteError(
            f"metadata_filter= is a dict of keys and values of the metadata, such as {{'ticket': 42}}, not {kind_of(given)}"
        )
    return MappingProxyType(_through_json(given, "metadata_filter", "no note has such metadata")[0])


def _through_json(given: Mapping[str, Any], name: str, refusal: str) -> tuple[dict[str, Any], str]:
    """Return metadata as they are read back from JSON, and the JSON.

    Raises:
        NoteError: they contain something that JSON cannot represent. The message begins with the refusal.
    """
    try:
        data = json.dumps(dict(given), allow_nan=False)
        orjson.dumps(found := json.loads(data))
    except (TypeError, ValueError, RecursionError) as error:
        reason = _misfit(given, name, 0) or f"it is nested too deeply, or within itself ({type(error).__name__})"
        raise NoteError(f"{refusal}: {reason}") from None
    return found, data


def _misfit(value: object, place: str, depth: int) -> str:
    """Describe the part of metadata that JSON cannot represent by its place and type, without its value; empty if there is none."""
    kind = type(value).__name__
    if depth > _DEEPEST:
        return ""
    if isinstance(value, Mapping):
        found = cast("Mapping[object, object]", value)
        for key in found:
            if not isinstance(key, _KEYS):
                return f"a key of {place} is {kind_of(key)}; give a text"
            if isinstance(key, str) and _has_half(key):
                return f"the key {key!r} of {place} {_HALF}"
        parts = ((each, f"{place}[{key!r}]") for key, each in found.items())
        return next(filter(None, (_misfit(each, where, depth + 1) for each, where in parts)), "")
    if isinstance(value, list | tuple):
        parts = ((each, f"{place}[{number}]") for number, each in enumerate(cast("Sequence[object]", value)))
        return next(filter(None, (_misfit(each, where, depth + 1) for each, where in parts)), "")
    if isinstance(value, float) and not math.isfinite(value):
        return f"{place} is a float that is infinite or not a number; give None"
    if isinstance(value, int) and not -(2**63) <= value < 2**64:
        return f"{place} is an int of more than 64 bits; give a text"
    if isinstance(value, str) and _has_half(value):
        return f"{place} {_HALF}"
    if value is None or isinstance(value, str | int | float):
        return ""
    such = {"date": "value.isoformat()", "datetime": "value.isoformat()", "set": "list(value)"}.get(kind, "str(value)")
    return f"{place} is {a(kind)}, for which JSON has no place; give {such}"


def _has_half(text: str) -> bool:
    return any("\ud800" <= each <= "\udfff" for each in text)


def time(value: datetime, what: str = "at") -> datetime:
    """Return a time in UTC.

    Raises:
        NoteError: the value is not a datetime, or not representable in UTC.
        ValueError: the value has no time zone.
    """
    if not isinstance(value, datetime):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise NoteError(_not_a_time(what, value))
    check_zone(what, value)
    try:
        return value.astimezone(UTC)
    except OverflowError:
        raise NoteError(f"{what}={value!r} is not a year from 1 to 9999 in UTC") from None


def bound(what: str, value: datetime | None) -> int | None:
    """Return the time that limits a search, in milliseconds UTC; None without a limit.

    Raises:
        TypeError: the value is not a datetime.
        ValueError: the value has no time zone.
    """
    if value is None:
        return None
    if not isinstance(value, datetime):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(_not_a_time(what, value))
    check_zone(what, value)
    return milliseconds(value)


def _not_a_time(what: str, value: object) -> str:
    such = "datetime.now(UTC) - that" if isinstance(value, timedelta) else "datetime(2025, 3, 4, tzinfo=UTC)"
    if isinstance(value, str):
        try:
            datetime.fromisoformat(value)
        except ValueError:
            pass
        else:
            such = f"datetime.fromisoformat({value!r})"
    given = repr(value) if isinstance(value, str | int | float | date | timedelta) else kind_of(value)
    return f"{what}={given} is not a datetime; give one, such as {such}"


def moment(milliseconds: int) -> datetime:
    """Return the time in UTC of milliseconds since 1970."""
    return datetime.fromtimestamp(milliseconds / 1000, UTC)
