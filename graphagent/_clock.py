"""The one source of time and of fresh ids, so that tests can fix both."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextvars import ContextVar


def _wall_clock() -> int:
    return time.time_ns() // 1_000_000


def _random_id() -> str:
    """12 hex digits of milliseconds, then 20 random digits: unique, and within a process in the order of creation."""
    global _last
    time, number = now(), int.from_bytes(os.urandom(10), "big") >> 1
    last, before = _last
    if time == last:
        number = before + 1 + (number >> 40)  # greater than the last id, and still impossible to guess
    _last = time, number
    return f"{time:012x}{number:020x}"


_last = (-1, 0)
"""The milliseconds and the random number of the last id."""


clock: ContextVar[Callable[[], int]] = ContextVar("graphagent_clock", default=_wall_clock)
timer: ContextVar[Callable[[], int]] = ContextVar("graphagent_timer", default=time.perf_counter_ns)
ids: ContextVar[Callable[[], str]] = ContextVar("graphagent_ids", default=_random_id)


def now() -> int:
    """Return the time as integer milliseconds UTC since 1970."""
    return clock.get()()


def is_wall_clock() -> bool:
    """Return whether the clock is the real one, not the clock of a test."""
    return clock.get() is _wall_clock


def ticks() -> int:
    """Return nanoseconds since an arbitrary moment, for measuring durations."""
    return timer.get()()


def seconds_since(began: int) -> float:
    """Return the seconds that have passed since the moment `began`, in ticks."""
    return (timer.get()() - began) / 1_000_000_000


def new_id() -> str:
    """Return a unique id."""
    return ids.get()()
