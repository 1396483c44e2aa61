"""A clock and ids that a test knows beforehand."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from datetime import timedelta
from itertools import count
from typing import final

from graphagent._clock import clock, ids, ticks, timer

NEW_YEAR_2025 = 1_735_689_600_000


@final
class FixedClock:
    """The clock of a test."""

    def __init__(self, move: Callable[[int], None]) -> None:
        self._move = move

    def move(self, by: timedelta) -> None:
        """Have it show another time, such as that at which a run that sleeps can be resumed."""
        self._move(by // timedelta(milliseconds=1))


@contextmanager
def fixed_clock(start_ms: int = NEW_YEAR_2025, step_ms: int = 1) -> Generator[FixedClock]:
    """Within it, time begins at `start_ms` (milliseconds UTC since 1970) and advances by `step_ms` at each look.

    Durations, such as `result.seconds`, are differences of these times; code that waits still waits for real time. A run that sleeps is
    suspended, however short that is, since no waiting moves this clock: `clock.move(timedelta(hours=8))` does.
    """
    latest = start_ms - step_ms
    ahead = ticks() - latest * 1_000_000

    def look() -> int:
        nonlocal latest
        latest += step_ms
        return latest

    def move(by: int) -> None:
        nonlocal latest
        latest += by

    token = clock.set(look)
    measured = timer.set(lambda: ahead + latest * 1_000_000)
    try:
        yield FixedClock(move)
    finally:
        timer.reset(measured)
        clock.reset(token)


@contextmanager
def fixed_ids(prefix: str = "id") -> Generator[None]:
    """Within it, fresh ids are `id-000001`, `id-000002` … with that prefix."""
    numbers = count(1)
    token = ids.set(lambda: f"{prefix}-{next(numbers):06d}")
    try:
        yield
    finally:
        ids.reset(token)
