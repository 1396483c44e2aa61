"""Policies of nodes, tools and requests to servers: how often something is tried again after an error, and how long its value is kept."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TypeVar

import anyio

from graphagent._article import counted, kind_of
from graphagent._options import check_number, check_whole


@dataclass(frozen=True, slots=True)
class CachePolicy:
    """Use the value that an earlier execution with the same input returned, for as long as that value is kept.

    Raises:
        TypeError: `ttl` is not a number, `key` is not text, or `version` is neither text nor a whole number.
        ValueError: `ttl` is not above 0.
    """

    ttl: float | None = None
    """Seconds for which a value is kept; None keeps it as long as the store."""
    key: str = ""
    """The name under which values are kept. By default they belong to one node of one strategy, or to one tool."""
    version: str | int = ""
    """Values that were kept under another version are not used. Change the version when the code computes something else."""

    def __post_init__(self) -> None:
        if self.ttl is not None:
            if isinstance(self.ttl, bool) or not isinstance(self.ttl, float | int):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise TypeError(f"ttl is a number of seconds, or None to keep values for ever, not {kind_of(self.ttl)}")
            if not 0 < self.ttl < math.inf:
                raise ValueError(f"ttl={self.ttl} must be more than 0 seconds, or None to keep values for ever")
        if not isinstance(self.key, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"key is the name under which values are kept, not {kind_of(self.key)}")
        if isinstance(self.version, bool) or not isinstance(self.version, str | int):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"version is text or a whole number, not {kind_of(self.version)}")


def cache_policy(given: CachePolicy | float | None) -> CachePolicy | None:
    """Return a policy as it is, a number of seconds as a policy, or None.

    Raises:
        TypeError, ValueError: as CachePolicy.
    """
    return given if given is None or isinstance(given, CachePolicy) else CachePolicy(given)


T = TypeVar("T")

_PASSING = (None, 408, 409, 425, 429)
"""HTTP statuses of temporary errors, besides 500 and above. None: the server could not be reached, or broke off."""
is_repeated: ContextVar[bool] = ContextVar("is_repeated", default=False)
"""Whether a wrapper repeats the request, so that the model itself does not."""
pausing: ContextVar[Callable[[float], Awaitable[None]] | None] = ContextVar("pausing", default=None)
"""How a rate limiter waits a number of seconds before another request for the same answer."""


@dataclass(frozen=True, slots=True)
class Retry:
    """Execute again after an error.

    Raises:
        TypeError: `attempts` is not a whole number, a wait is not a number, or `errors` is not a tuple of subclasses of Exception.
        ValueError: `attempts` is less than 1, or a wait is below zero.
    """

    attempts: int
    """The maximum number of attempts, including the first."""
    wait: float = 1.0
    """Seconds before the second attempt. If the error has a longer `retry_after`, that is used instead."""
    factor: float = 2.0
    """The factor by which each further wait is longer."""
    max_wait: float = 60.0
    """The maximum wait in seconds. An error with a longer `retry_after` is not tried again, and a note of the error says so."""
    errors: tuple[type[Exception], ...] = (Exception,)
    """The errors that are tried again; any other error is final."""

    def __post_init__(self) -> None:
        check_whole("retry: attempts", self.attempts)
        if self.attempts < 1:
            raise ValueError(f"retry(attempts={self.attempts}) must allow at least one attempt")
        for name in ("wait", "factor", "max_wait"):
            check_number(f"retry: {name}", getattr(self, name))
            if not getattr(self, name) >= 0:
                raise ValueError(f"retry({name}={getattr(self, name)}) must be 0 or more")
        if not isinstance(self.errors, tuple):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"retry(errors=) takes a tuple of errors, such as (TimeoutError,), not {self.errors!r}")
        for kind in self.errors:
            check_errors("retry(errors=)", kind)

    def pause(self, attempt: int, error: Exception) -> float | None:
        """Return how many seconds to wait after an attempt that raised an error; the first attempt is 1.

        Return None, and add a note to the error, if a server asked for a longer wait than `max_wait`: the next attempt would be
        too early.
        """
        asked = getattr(error, "retry_after", None) or 0.0
        if asked > self.max_wait:
            error.add_note(
                f"not tried again: the server asked to wait {counted(asked, 'second')}, and max_wait={self.max_wait:g}"
            )
            return None
        return max(min(self.wait * self.factor ** (attempt - 1), self.max_wait), asked)


async def repeated(attempt: Callable[[], Awaitable[T]], retry: Retry, may_help: Callable[[Exception], bool]) -> T:
    """Make attempts, repeated as a Retry says, and return the result of the one that succeeds.

    Args:
        attempt: Makes an attempt.
        retry: How often an attempt is made, after which errors, and with which waits.
        may_help: Whether another attempt may help after an error.
    """
    number = 1
    while True:
        try:
            return await attempt()
        except retry.errors as error:
            pause = retry.pause(number, error) if number < retry.attempts and may_help(error) else None
            if pause is None:
                raise
        number += 1
        await before_another(pause)


async def before_another(seconds: float = 0) -> None:
    """Wait before another request for the same answer, which counts in the limits of the wrappers."""
    pause = pausing.get()
    await (anyio.sleep(seconds) if pause is None else pause(seconds))


def may_pass(status: int | None, *, is_final: bool) -> bool:
    """Return whether a request that failed with this status may succeed a little later."""
    return not is_final and (status in _PASSING or (status or 0) >= 500)


def check_errors(what: str, kind: object) -> None:
    """Check that an object is a class of errors.

    Raises:
        TypeError: `kind` is not a subclass of Exception.
    """
    if not (isinstance(kind, type) and issubclass(kind, Exception)):
        raise TypeError(f"{what} takes a subclass of Exception, not {kind!r}")
