"""The budgets of a run, as they are declared."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal


@dataclass(frozen=True, slots=True)
class Budgets:
    """The budgets of a run; None means no limit."""

    max_nodes: int | None = None
    max_turns: int | None = None
    max_tokens: int | None = None
    max_cost: Decimal | float | None = None
    max_seconds: float | None = None
    allow_unpriced: bool = False
    """Whether models may be asked whose answers do not say what they cost, though there is a `max_cost`."""
