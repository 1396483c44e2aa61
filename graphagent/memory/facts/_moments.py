"""Moments: datetimes with a time zone, from users and from records."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

from graphagent._article import kind_of

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def checked_moment(name: str, moment: datetime) -> datetime:
    """Return a moment with its offset from UTC instead of its time zone, so that it is unchanged when it is read again.

    Raises:
        TypeError: the moment is not a datetime.
        ValueError: the moment has no time zone.
    """
    offset = _offset(moment, name)
    return moment.replace(tzinfo=timezone(offset) if offset else UTC, fold=0)


def microseconds(moment: datetime, name: str = "a moment") -> int:
    """Return a moment as microseconds UTC since 1970; errors contain its `name`.

    Raises:
        TypeError: the moment is not a datetime.
        ValueError: the moment has no time zone.
    """
    try:
        return (moment - _EPOCH) // _MICROSECOND
    except TypeError:
        _offset(moment, name)
        raise


def _offset(moment: datetime, name: str) -> timedelta:
    if not isinstance(moment, datetime):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(
            f"{name} is a datetime with a time zone, such as datetime(2026, 5, 1, tzinfo=UTC), not {kind_of(moment)}"
        )
    offset = moment.utcoffset()
    if offset is None:
        raise ValueError(
            f"{name} has no time zone; write datetime(2026, 5, 1, tzinfo=UTC) or tzinfo=ZoneInfo('Europe/Oslo'), or add "
            f".astimezone() if it is in the time zone of this machine"
        )
    return offset


def read_moment(text: object) -> datetime | None:
    """Return the moment in a text that `isoformat` returned; None without a text.

    Raises:
        ValueError: the value is not such a text.
    """
    if text is None:
        return None
    if not isinstance(text, str):
        raise ValueError("a time of a fact must be text")  # noqa: TRY004  it is data from outside
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        moment = None
    if moment is None or moment.utcoffset() is None:
        raise ValueError("a time of a fact must be a date and a time with an offset from UTC")
    return moment


def day_of(time: int | None) -> str | None:
    """Return the day of a time in milliseconds UTC, such as `2026-03-31`; None without a time, or for one beyond the calendar."""
    if time is None:
        return None
    try:
        return datetime.fromtimestamp(time / 1000, UTC).date().isoformat()
    except (ValueError, OverflowError, OSError):
        return None
