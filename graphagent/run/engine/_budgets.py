"""Budgets, and the meters that count what is spent against them."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Protocol

from graphagent.llm import Usage

if TYPE_CHECKING:
    from graphagent.errors import BudgetError
    from graphagent.graph._internal import Setting

_UNLIMITED = float("inf")
_NOTHING = Usage()


@dataclass(frozen=True, slots=True)
class Budgets:
    """The budgets of a run; None means no limit."""

    max_nodes: int | None = None
    max_turns: int | None = None
    max_tokens: int | None = None
    max_cost: Decimal | float | None = None
    max_seconds: float | None = None


_NO_BUDGETS = Budgets()


def check_budgets(**budgets: Decimal | float | None) -> None:
    """Check that budgets are numbers of 0 or more, or None.

    Raises:
        ValueError: one is not.
    """
    for name, limit in budgets.items():
        is_number = isinstance(limit, int | float) or (isinstance(limit, Decimal) and not limit.is_nan())
        if limit is not None and not (is_number and limit >= 0):
            raise ValueError(f"{name}={limit!r} is no budget; give 0 or more, or None for no limit")


class LimitedRun(Protocol):
    """A run as its meters see it: a `Runtime`."""

    def budget_error(self, budget: str, limit: Decimal | float, where: str = "") -> BudgetError:
        """Return the error of a budget that is used up: the run's own, or that of the strategy at a path."""
        ...


class Meter:
    """Counts what is spent against budgets. A subgraph that has its own budgets has its own meter, and counts in its parent's too."""

    __slots__ = (
        "max_cost",
        "max_nodes",
        "max_tokens",
        "max_turns",
        "nodes",
        "parent",
        "turns",
        "unsettled",
        "usage",
        "where",
    )

    def __init__(
        self, parent: Meter | None = None, budgets: Budgets | Setting | None = None, *, where: str = ""
    ) -> None:
        self.parent = parent
        self.where = where
        self.nodes = self.turns = 0
        self.usage = _NOTHING
        """The tokens and money that were spent, by sub-agents too."""
        self.unsettled = _NOTHING
        """The part of it that sub-agents spent which are being executed: it is in their journals until they stop."""
        self.limit(budgets or _NO_BUDGETS)

    def limit(self, budgets: Budgets | Setting) -> None:
        """Set the budgets."""
        nodes, turns, tokens, cost = budgets.max_nodes, budgets.max_turns, budgets.max_tokens, budgets.max_cost
        self.max_nodes: float = _UNLIMITED if nodes is None else nodes
        self.max_turns: float = _UNLIMITED if turns is None else turns
        self.max_tokens: float = _UNLIMITED if tokens is None else tokens
        self.max_cost: Decimal | float = _UNLIMITED if cost is None else cost

    @property
    def tokens(self) -> int:
        """The tokens that were spent."""
        return self.usage.total_tokens

    @property
    def cost(self) -> Decimal:
        """The money that was spent."""
        return self.usage.cost

    @property
    def settled(self) -> Usage:
        """What was spent, without the unsettled part."""
        # Asked for at each node, and most runs have no sub-agents.
        return self.usage if self.unsettled is _NOTHING else self.usage - self.unsettled

    @property
    def is_used_up(self) -> bool:
        """Whether all tokens or all money are spent, here or in an enclosing strategy."""
        meter: Meter | None = self
        while meter is not None:
            if meter.tokens >= meter.max_tokens or meter.cost >= _exact(meter.max_cost):
                return True
            meter = meter.parent
        return False

    def count_node(self, run: LimitedRun) -> int:
        """Count a node execution that is about to begin, here and in the parents, and return how many there were in the run.

        Raises:
            BudgetError: there is none left; nothing is counted.
        """
        self._check("nodes", run)
        meter = self
        meter.nodes += 1
        while meter.parent is not None:
            meter = meter.parent
            meter.nodes += 1
        return meter.nodes

    def forget_node(self) -> None:
        """Uncount a node execution: the node was suspended, and is executed again when the run is resumed."""
        meter: Meter | None = self
        while meter is not None:
            meter.nodes -= 1
            meter = meter.parent

    def count_turn(self, run: LimitedRun) -> None:
        """Count a model turn that is about to begin.

        Raises:
            BudgetError: there is none left; nothing is counted.
        """
        self._check("turns", run)
        meter: Meter | None = self
        while meter is not None:
            meter.turns += 1
            meter = meter.parent

    def check_turn(self, run: LimitedRun) -> None:
        """Check that a model turn is left.

        Raises:
            BudgetError: none is left.
        """
        self._check("turns", run)

    def check_spending(self, run: LimitedRun) -> None:
        """Check that tokens and money are left to ask a model.

        Raises:
            BudgetError: all are spent.
        """
        self._check("tokens", run)
        self._check("cost", run)

    def spend(self, usage: Usage, *, unsettled: bool = False) -> None:
        """Count tokens and money that were spent; `unsettled` for a sub-agent that is being executed."""
        meter: Meter | None = self
        while meter is not None:
            meter.usage += usage
            if unsettled:
                meter.unsettled += usage
            meter = meter.parent

    def settle(self, usage: Usage) -> None:
        """Settle what was unsettled."""
        meter: Meter | None = self
        while meter is not None:
            meter.unsettled -= usage
            meter = meter.parent

    def _check(self, budget: str, run: LimitedRun) -> None:
        meter: Meter | None = self
        while meter is not None:
            limit: Decimal | float = getattr(meter, f"max_{budget}")
            if getattr(meter, budget) >= (_exact(limit) if budget == "cost" else limit):
                raise run.budget_error(budget, limit, meter.where)
            meter = meter.parent


def _exact(amount: Decimal | float) -> Decimal:
    """Return an amount of money as it was written: a float of 0.1 is a tenth, and not the binary fraction next to it."""
    return Decimal(str(amount))
