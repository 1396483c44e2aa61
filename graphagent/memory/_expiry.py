"""How long facts and notes are kept: older ones are not read any more, and are soon erased."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from datetime import timedelta

from graphagent import _clock
from graphagent._article import kind_of
from graphagent.errors import StoreError

_log = logging.getLogger("graphagent.memory")
_PAUSE = 3600.0
"""How many seconds pass between two searches for expired data, unless a reader comes across some."""
_OWNERS = 1000
"""For how many owners the time of the last search is remembered."""


def checked_age(age: timedelta, what: str = "older_than") -> timedelta:
    """Check an age, and return it.

    Raises:
        TypeError: the age is not a timedelta.
        ValueError: the age is not above zero.
    """
    if not isinstance(age, timedelta):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"{what}= is an age, such as timedelta(days=90), not {kind_of(age)}")
    if age <= timedelta(0):
        raise ValueError(f"{what}={age!r} is not above zero: everything would be older")
    return age


class Expiry:
    """How long data is kept. If the clock is set back, expired data stays expired in a process, and nothing is erased early.

    Raises:
        TypeError: `keep_for` is not a timedelta.
        ValueError: `keep_for` is not above zero.
    """

    def __init__(self, keep_for: timedelta) -> None:
        self.keep_for = checked_age(keep_for, "keep_for")
        self._milliseconds = keep_for // timedelta(milliseconds=1)
        self._latest = 0
        self._due: set[str] = set()
        self._swept: dict[str, int] = {}

    def first_kept(self) -> int:
        """Return the earliest time of saving that has not expired, in milliseconds UTC. It never goes back in one process."""
        self._latest = max(self._latest, _clock.now())
        return self._latest - self._milliseconds

    def has_passed(self, saved: int | None, owner: str) -> bool:
        """Return whether an owner's data, saved at this time, has expired. Data without a time never expires."""
        passed = saved is not None and saved < self.first_kept()
        if passed:
            self._due.add(owner)
        return passed

    async def sweep(self, owner: str, erase: Callable[[int], Awaitable[object]]) -> None:
        """Erase an owner's expired data, if a reader came across some, or if the last search is more than an hour ago.

        A failure is logged, and the next call tries again.
        """
        ticks = _clock.ticks()
        if owner not in self._due and owner in self._swept and (ticks - self._swept[owner]) / 1e9 < _PAUSE:
            return
        try:
            await erase(_clock.now() - self._milliseconds)
        except StoreError as error:
            _log.warning(
                "expired data could not be erased: %s", type(error).__name__, extra={"error_type": type(error).__name__}
            )
            return
        self._due.discard(owner)
        self._swept.pop(owner, None)
        self._swept[owner] = ticks
        if len(self._swept) > _OWNERS:
            del self._swept[next(iter(self._swept))]
