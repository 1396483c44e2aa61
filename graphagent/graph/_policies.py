"""Policies of a node: values that wrap its execution, in the order in which they were added."""

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
    """Cancel the execution, and raise TimeoutError, after some seconds."""

    seconds: float

    def __post_init__(self) -> None:
        if not self.seconds > 0:
            raise ValueError(f"timeout({self.seconds}) must be more than 0 seconds")


Policy = Retry | Timeout


@dataclass(frozen=True, slots=True)
class Setting:
    """The model, tools and budgets of a strategy that is used as a node; None means those of its parent."""

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
