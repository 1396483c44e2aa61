"""What a run may spend, and what it has spent of that."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING

from graphagent.llm import Usage

if TYPE_CHECKING:
    from graphagent.graph._internal import Setting
    from graphagent.run._state import RunState

_UNLIMITED = float("inf")
_NOTHING = Usage()


@dataclass(frozen=True, slots=True)
class Budgets:
    """What a run may take; None means no limit."""

    max_nodes: int | None = None
    max_turns: int | None = None
    max_tokens: int | None = None
    max_cost: Decimal | float | None = None
    max_seconds: float | None = None


_NO_BUDGETS = Budgets()


def check_budgets(**budgets: Decimal | float | None) -> None:
    """See that budgets are some.

    Raises:
        ValueError: one is no number of 0 or more.
    """
    for name, limit in budgets.items():
        is_number = isinstance(limit, int | float) or (isinstance(limit, Decimal) and not limit.is_nan())
        if limit is not None and not (is_number and limit >= 0):
            raise ValueError(f"{name}={limit!r} is no budget; give 0 or more, or None for no limit")


class Meter:
    """Counts what is spent against a budget; a subgraph with a budget of its own counts in its parent's too."""

    __slots__ = (
        "held",
        "max_cost",
        "max_nodes",
        "max_tokens",
        "max_turns",
        "nodes",
        "parent",
        "turns",
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
        """What was spent, by sub-agents too."""
        self.held = _NOTHING
        """Of it: by sub-agents that are being executed, which stands in their own journals until they stop."""
        self.limit(budgets or _NO_BUDGETS)

    def limit(self, budgets: Budgets | Setting) -> None:
        """Set what may be spent in all."""
        nodes, turns, tokens, cost = budgets.max_nodes, budgets.max_turns, budgets.max_tokens, budgets.max_cost
        self.max_nodes: float = _UNLIMITED if nodes is None else nodes
        self.max_turns: float = _UNLIMITED if turns is None else turns
        self.max_tokens: float = _UNLIMITED if tokens is None else tokens
        self.max_cost: Decimal | float = _UNLIMITED if cost is None else cost

    @property
    def tokens(self) -> int:
        """All tokens that were spent."""
        return self.usage.total_tokens

    @property
    def cost(self) -> Decimal:
        """All money that was spent."""
        return self.usage.cost

    @property
    def settled(self) -> Usage:
        """What was spent without what is held."""
        return self.usage - self.held

    @property
    def is_used_up(self) -> bool:
        """Whether all tokens or all money are spent, here or in a strategy around."""
        meter: Meter | None = self
        while meter is not None:
            if meter.tokens >= meter.max_tokens or meter.cost >= _exact(meter.max_cost):
                return True
            meter = meter.parent
        return False

    def count_node(self, state: RunState) -> int:
        """Count a node execution that is about to begin, here and in the parents. Gives how many there were in the run.

        Raises:
            BudgetError: there is none left; nothing is counted.
        """
        self._check("nodes", state)
        meter = self
        meter.nodes += 1
        while meter.parent is not None:
            meter = meter.parent
            meter.nodes += 1
        return meter.nodes

    def forget_node(self) -> None:
        """Count a node execution for nothing: the node waits, and is executed when the run goes on."""
        meter: Meter | None = self
        while meter is not None:
            meter.nodes -= 1
            meter = meter.parent

    def count_turn(self, state: RunState) -> None:
        """Count a model turn that is about to begin.

        Raises:
            BudgetError: there is none left; nothing is counted.
        """
        self._check("turns", state)
        meter: Meter | None = self
        while meter is not None:
            meter.turns += 1
            meter = meter.parent

    def check_turn(self, state: RunState) -> None:
        """Refuse where no model turn is left.

        Raises:
            BudgetError: there is none.
        """
        self._check("turns", state)

    def check_spending(self, state: RunState) -> None:
        """Refuse to ask a model when all tokens or all money are spent.

        Raises:
            BudgetError: they are.
        """
        self._check("tokens", state)
        self._check("cost", state)

    def spend(self, usage: Usage, *, held: bool = False) -> None:
        """Count tokens and money that were spent; `held` where a sub-agent did that is being executed."""
        meter: Meter | None = self
        while meter is not None:
            meter.usage += usage
            if held:
                meter.held += usage
            meter = meter.parent

    def settle(self, usage: Usage) -> None:
        """Take over what was held."""
        meter: Meter | None = self
        while meter is not None:
            meter.held -= usage
            meter = meter.parent

    def _check(self, budget: str, state: RunState) -> None:
        meter: Meter | None = self
        while meter is not None:
            limit: Decimal | float = getattr(meter, f"max_{budget}")
            if getattr(meter, budget) >= (_exact(limit) if budget == "cost" else limit):
                raise state.spent(budget, limit, meter.where)
            meter = meter.parent


def _exact(amount: Decimal | float) -> Decimal:
    """Give an amount of money as it was written: a float of 0.1 is a tenth, and not the binary fraction next to it."""
    return Decimal(str(amount))
