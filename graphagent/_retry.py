"""How often something that raises is tried again: a node, or a call of a tool."""

from __future__ import annotations

from dataclasses import dataclass

from graphagent._article import counted
from graphagent._options import check_number, check_whole


@dataclass(frozen=True, slots=True)
class Retry:
    """Execute again when it raises.

    Raises:
        TypeError: `attempts` is no whole number, a wait is no number, or `errors` is not a tuple of subclasses of Exception.
        ValueError: it allows no attempt, or a wait is below zero.
    """

    attempts: int
    """How often at the most, the first one counted."""
    wait: float = 1.0
    """Seconds before the second attempt. An error's own `retry_after` counts where it is longer."""
    factor: float = 2.0
    """How much longer each further wait is."""
    max_wait: float = 60.0
    """Seconds that no wait exceeds. After an error whose `retry_after` is longer it is not tried again, and a note of the error says so."""
    errors: tuple[type[Exception], ...] = (Exception,)
    """Which errors are tried again; any other is final."""

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

        Return None, and note it in the error, if a server asked for a longer wait than `max_wait`: it would be asked too early.
        """
        asked = getattr(error, "retry_after", None) or 0.0
        if asked > self.max_wait:
            error.add_note(
                f"not tried again: the server asked to wait {counted(asked, 'second')}, and max_wait={self.max_wait:g}"
            )
            return None
        return max(min(self.wait * self.factor ** (attempt - 1), self.max_wait), asked)


def check_errors(what: str, kind: object) -> None:
    """Check that an object is a class of errors.

    Raises:
        TypeError: `kind` is not a subclass of Exception.
    """
    if not (isinstance(kind, type) and issubclass(kind, Exception)):
        raise TypeError(f"{what} takes a subclass of Exception, not {kind!r}")
