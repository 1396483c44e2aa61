"""What may be asked of a node's execution: values that wrap it, in the order in which they were asked."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from graphagent._retry import Retry

if TYPE_CHECKING:
    from collections.abc import Sequence

    from graphagent.protocols import Model


@dataclass(frozen=True, slots=True)
class Timeout:
    """Give up with a TimeoutError after some time."""

    seconds: float

    def __post_init__(self) -> None:
        if not self.seconds > 0:
            raise ValueError(f"timeout({self.seconds}) must be more than 0 seconds")


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
