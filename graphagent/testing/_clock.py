"""A clock and ids that a test knows beforehand."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from itertools import count

from graphagent._clock import clock, ids

NEW_YEAR_2025 = 1_735_689_600_000


@contextmanager
def fixed_clock(start_ms: int = NEW_YEAR_2025, step_ms: int = 1) -> Generator[None]:
    """Within it, time begins at `start_ms` (milliseconds UTC since 1970) and advances by `step_ms` at each look."""
    times = count(start_ms, step_ms)
    token = clock.set(lambda: next(times))
    try:
        yield
    finally:
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
