"""The runs that a worker could execute, and which of them comes next."""

from __future__ import annotations

import random
from bisect import insort
from collections.abc import Callable, Iterable
from typing import NamedTuple, TypeAlias

import anyio

Name: TypeAlias = tuple[str, str]
"""The owner and the id of a run."""
_TOGETHER = 8
"""From so many runs that come next, workers with one store choose, to collide seldom."""


class Found(NamedTuple):
    """A run that is due."""

    order: tuple[int, int]
    """Those with the lowest come first: of the highest priority, then of the earliest time."""
    name: Name
    strategy: str
    queue: str


class Backlog:
    """Runs that are due, as the last look into the store found them, and those of which word came since."""

    def __init__(self, *, shared: bool) -> None:
        self._found: list[Found] = []
        self._put_off: dict[Name, tuple[float, float]] = {}
        """Until when each is left alone, and for how long that is."""
        self.claimed: set[Name] = set()
        """Runs that were found to be executed elsewhere; to be looked up again."""
        self._together = _TOGETHER if shared else 1
        self._changed = anyio.Event()

    def add(self, found: Found) -> None:
        """Add a run of which word came."""
        self.hurry(found.name)
        if all(each.name != found.name for each in self._found):
            insort(self._found, found)
        self.changed()

    def replace(self, found: Iterable[Found]) -> None:
        """Replace all runs by those that are due."""
        self._found = sorted(found)
        names = {each.name for each in self._found}
        self._put_off = {name: until for name, until in self._put_off.items() if name in names}
        self.claimed &= names
        self.changed()

    def put_off(self, name: Name, seconds: float, most: float) -> None:
        """Leave a run alone for a while, and for twice as long each time, up to `most` seconds."""
        _, before = self._put_off.get(name, (0.0, 0.0))
        pause = min(max(seconds, 2 * before), most)
        self._put_off[name] = anyio.current_time() + pause, pause

    def hurry(self, name: Name) -> None:
        """Leave a run alone no more."""
        self._put_off.pop(name, None)
        self.claimed.discard(name)

    def next(self, may: Callable[[Found], bool]) -> Found | None:
        """Return the next run that may be executed; None without one."""
        now, some = anyio.current_time(), list[Found]()
        for each in self._found:
            if some and (len(some) == self._together or each.order[0] != some[0].order[0]):
                break
            is_put_off = each.name in self.claimed or self._put_off.get(each.name, (0.0, 0.0))[0] > now
            if not is_put_off and may(each):
                some.append(each)
        return random.choice(some) if some else None

    def remove(self, found: Found) -> None:
        """Remove a run, which is executed."""
        self._found.remove(found)

    def changed(self) -> None:
        """Wake all who wait for a change, also of the runs that they may execute."""
        self._changed.set()
        self._changed = anyio.Event()

    async def change(self) -> None:
        """Wait for a change."""
        await self._changed.wait()
