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


def check_budgets(**budgets: Decimal | float | None) -> None:
    """Check that budgets are numbers of 0 or more, or None.

    Raises:
        ValueError: one is not.
    """
    for name, limit in budgets.items():
        is_number = isinstance(limit, int | float) or (isinstance(limit, Decimal) and not limit.is_nan())
        if limit is not None and not (is_number and limit >= 0):
            raise ValueError(f"{name}={limit!r} is not a budget; it must be 0 or more, or None for no limit")
