"""What may be asked of a node's execution: values that wrap it, in the order in which they were asked."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from graphagent.protocols import Model


@dataclass(frozen=True, slots=True)
class Retry:
    """Execute again when it raises."""

    attempts: int
    """How often at the most, the first one counted."""
    wait: float
    """Seconds before the second attempt. An error's own `retry_after` counts where it is longer."""
    factor: float
    """How much longer each further wait is."""
    max_wait: float
    """Seconds that no wait exceeds, the server's wish included."""
    errors: tuple[type[Exception], ...]
    """Which errors are tried again; any other is final."""

    def __post_init__(self) -> None:
        if self.attempts < 1:
            raise ValueError(f"retry(attempts={self.attempts}) must allow at least one attempt")
        for name in ("wait", "factor", "max_wait"):
            if not getattr(self, name) >= 0:
                raise ValueError(f"retry({name}={getattr(self, name)}) must be 0 or more")
        for kind in self.errors:
            check_errors("retry(errors=)", kind)


@dataclass(frozen=True, slots=True)
class Timeout:
    """Give up with a TimeoutError after some time."""

    seconds: float

    def __post_init__(self) -> None:
        if not self.seconds > 0:
            raise ValueError(f"timeout({self.seconds}) must be more than 0 seconds")


def check_errors(what: str, kind: object) -> None:
    """Refuse what is no class of errors.

    Raises:
        TypeError: `kind` is not a subclass of Exception.
    """
    if not (isinstance(kind, type) and issubclass(kind, Exception)):
        raise TypeError(f"{what} takes a subclass of Exception, not {kind!r}")


Policy = Retry | Timeout


@dataclass(frozen=True, slots=True)
class Setting:
    """What a strategy used as a node has of its own; None means its parent's."""

    model: Model | None = None
    tools: Sequence[Any] | None = None
    max_nodes: int | None = None
    max_turns: int | None = None
    max_tokens: int | None = None
    max_cost: Decimal | float | None = None

    @property
    def limited(self) -> bool:
        """Whether it has a budget."""
        return (self.max_nodes, self.max_turns, self.max_tokens, self.max_cost) != (None, None, None, None)
