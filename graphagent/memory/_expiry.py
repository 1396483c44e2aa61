"""For how long facts and notes are kept: what is older is not read any more, and is erased before long."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from datetime import timedelta

from graphagent import _clock
from graphagent._article import kind_of
from graphagent.errors import StoreError

_log = logging.getLogger("graphagent")
_PAUSE = 3600.0
"""For how many seconds what has expired is not looked for again, unless somebody came across some of it."""
_OWNERS = 1000
"""Of how many owners it is remembered when they were looked through."""


def checked_age(age: timedelta, what: str = "older_than") -> timedelta:
    """Return an age above zero.

    Raises:
        TypeError: it is no timedelta.
        ValueError: it is not above zero.
    """
    if not isinstance(age, timedelta):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"{what}= is an age, such as timedelta(days=90), not {kind_of(age)}")
    if age <= timedelta(0):
        raise ValueError(f"{what}={age!r} is not above zero: everything would be older")
    return age


class Expiry:
    """How long something is kept, by a clock that may be set back: what has expired for a process stays so, and nothing is erased early.

    Raises:
        TypeError: `keep_for` is no timedelta.
        ValueError: it is not above zero.
    """

    def __init__(self, keep_for: timedelta) -> None:
        self.keep_for = checked_age(keep_for, "keep_for")
        self._milliseconds = keep_for // timedelta(milliseconds=1)
        self._latest = 0
        self._due: set[str] = set()
        self._swept: dict[str, int] = {}

    def first_kept(self) -> int:
        """Return when what is still read was saved at the earliest, in milliseconds UTC. It never goes back in one process."""
        self._latest = max(self._latest, _clock.now())
        return self._latest - self._milliseconds

    def has_passed(self, saved: int | None, owner: str) -> bool:
        """Return whether what was saved then, for an owner, has expired. What has no time never does."""
        passed = saved is not None and saved < self.first_kept()
        if passed:
            self._due.add(owner)
        return passed

    async def sweep(self, owner: str, erase: Callable[[int], Awaitable[object]]) -> None:
        """Have erased what an owner saved before a time, if some of it was come across, or none was looked for in the last hour.

        A failure is logged, and it is tried again the next time.
        """
        ticks = _clock.ticks()
        if owner not in self._due and owner in self._swept and (ticks - self._swept[owner]) / 1e9 < _PAUSE:
            return
        try:
            await erase(_clock.now() - self._milliseconds)
        except StoreError as error:
            _log.warning("what has expired could not be erased: %s", type(error).__name__)
            return
        self._due.discard(owner)
        self._swept.pop(owner, None)
        self._swept[owner] = ticks
        if len(self._swept) > _OWNERS:
            del self._swept[next(iter(self._swept))]
