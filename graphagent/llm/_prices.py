"""What tokens cost: prices, and a model that knows its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING

from graphagent._article import kind_of
from graphagent.llm._messages import MONEY, ModelRequest, ModelResponse, Usage

if TYPE_CHECKING:
    from graphagent.protocols import Model

Amount = Decimal | str | float
"""An amount of money: text such as `"0.15"`, a Decimal, or a number, which is taken as it is written."""

_MILLION = -6
"""Prices are for 10 ** 6 tokens."""


@dataclass(frozen=True, slots=True)
class Prices:
    """What a million tokens cost, in a currency of your choice. Amounts are exact.

    Raises:
        ValueError: an amount is not a number of 0 or more.
    """

    input: Amount
    """A million tokens of input that the server had not cached."""
    output: Amount
    """A million tokens of output."""
    cached: Amount | None = None
    """A million tokens of input from the server's cache; None: as other input."""
    reasoning: Amount | None = None
    """A million tokens of reasoning, which are a part of the output; None: as other output."""

    def __post_init__(self) -> None:
        for each in fields(self):
            amount: Amount | None = getattr(self, each.name)
            if amount is not None or each.name in ("input", "output"):
                object.__setattr__(self, each.name, _amount(each.name, amount))

    def cost(self, usage: Usage) -> Decimal:
        """Return the cost of these tokens."""
        cached = min(usage.cached_tokens, usage.input_tokens)
        reasoning = min(usage.reasoning_tokens, usage.output_tokens)
        parts = (
            (usage.input_tokens - cached, self.input),
            (cached, self.input if self.cached is None else self.cached),
            (usage.output_tokens - reasoning, self.output),
            (reasoning, self.output if self.reasoning is None else self.reasoning),
        )
        total = Decimal(0)
        for tokens, price in parts:
            total = MONEY.add(total, MONEY.multiply(Decimal(tokens), Decimal(price)))
        return MONEY.scaleb(total, _MILLION).normalize(MONEY)


def _amount(name: str, amount: object) -> Decimal:
    # By way of text: the float 0.15 is meant as 0.15, and not as the binary fraction next to it.
    try:
        found = Decimal(str(amount))
    except InvalidOperation:
        found = None
    if found is None or isinstance(amount, bool) or not found.is_finite() or found < 0:
        raise ValueError(f"{name}={amount!r} is no price; give 0 or more for a million tokens, such as {name}='0.15'")
    return found


class PricedModel:
    """A model that says what its answers cost: `PricedModel(model, Prices(input="0.15", output="0.60"))`.

    What the server says itself, such as OpenRouter does, is kept.
    """

    def __init__(self, model: Model, prices: Prices) -> None:
        if (
            isinstance(model, type) or not callable(getattr(model, "respond", None)) or not isinstance(prices, Prices)  # pyright: ignore[reportUnnecessaryIsInstance]
        ):
            raise TypeError(
                f"a PricedModel is made of a model and its prices, not of {kind_of(model)} and {kind_of(prices)}; write "
                f"PricedModel(model, Prices(input='0.15', output='0.60'))"
            )
        self.model = model
        """The model that is asked."""
        self.prices = prices
        """What its tokens cost."""

    @property
    def name(self) -> str:
        """How the model is called."""
        return self.model.name

    async def respond(self, request: ModelRequest, on_text: Callable[[str], None] | None = None) -> ModelResponse:
        """Ask the model.

        Raises:
            ModelRequestError: as the model raises it.
        """
        response = await self.model.respond(request, on_text)
        usage = response.usage
        if usage.cost:
            return response
        return replace(response, usage=replace(usage, cost=self.prices.cost(usage)))

    def __repr__(self) -> str:
        return f"<{self.model!r} with {self.prices!r}>"
