"""A clock and ids that a test knows beforehand."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from itertools import count

from graphagent._clock import clock, ids, ticks, timer

NEW_YEAR_2025 = 1_735_689_600_000


@contextmanager
def fixed_clock(start_ms: int = NEW_YEAR_2025, step_ms: int = 1) -> Generator[None]:
    """Within it, time begins at `start_ms` (milliseconds UTC since 1970) and advances by `step_ms` at each look.

    Durations, such as `result.seconds`, are differences of these times; what waits still waits as long as it takes.
    """
    latest = start_ms - step_ms
    ahead = ticks() - latest * 1_000_000

    def look() -> int:
        nonlocal latest
        latest += step_ms
        return latest

    token = clock.set(look)
    measured = timer.set(lambda: ahead + latest * 1_000_000)
    try:
        yield
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
