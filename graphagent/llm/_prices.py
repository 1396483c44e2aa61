"""Prices of tokens, and a model that knows its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any, cast

from graphagent._article import kind_of
from graphagent._clock import now
from graphagent._details import MONEY, FailedRequest, Usage
from graphagent.errors import MissingExtraError, ModelError
from graphagent.llm._attempts import failures
from graphagent.llm._messages import Message, ModelRequest, ModelResponse
from graphagent.llm._wrappers import check_model, inner_models

if TYPE_CHECKING:
    from genai_prices.types import ModelInfo

    from graphagent.protocols import Model

Amount = Decimal | str | float
"""An amount of money: text such as `"0.15"`, a Decimal, or a number, which is taken as it is written."""

_FREE = Decimal(0)
_NOTHING = Message.assistant()
_MILLION = -6
"""Prices are for 10 ** 6 tokens."""


@dataclass(frozen=True, slots=True)
class Prices:
    """Prices per million tokens, in a currency of your choice. Amounts are exact.

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
        total = _FREE
        for tokens, price in parts:
            if tokens:
                total = MONEY.fma(tokens, cast("Decimal", price), total)
        return MONEY.scaleb(total, _MILLION).normalize(MONEY)


def _amount(name: str, amount: object) -> Decimal:
    # By way of text: the float 0.15 is meant as 0.15, and not as the binary fraction next to it.
    try:
        found = Decimal(str(amount))
    except InvalidOperation:
        found = None
    if found is None or isinstance(amount, bool) or not found.is_finite() or found < 0:
        raise ValueError(f"{name}={amount!r} is not a price; pass 0 or more per million tokens, such as {name}='0.15'")
    return found


class PricedModel:
    """A model that adds the cost to its answers: `PricedModel(model, Prices(input="0.15", output="0.60"))`.

    A cost that the server states itself, as OpenRouter does, is kept.
    """

    tells_cost = True
    """Its answers say what they cost."""

    def __init__(self, model: Model, prices: Prices | Mapping[str, Prices] | None = None) -> None:
        """Wrap a model.

        Args:
            model: The model that is asked.
            prices: The prices; or those of several models by their names, of which the model that answered counts, as its server
                names it or as it was asked; or None for the prices of the package `genai-prices`, in US dollars.

        Raises:
            MissingExtraError: `prices` is None, and `genai-prices` is not installed.
            TypeError: `model` is not a model, or `prices` are not prices.
            ValueError: the model, or one of the models in it, has no price.
        """
        example = "PricedModel(model, Prices(input='0.15', output='0.60'))"
        check_model("a PricedModel", model, example)
        table = prices.values() if isinstance(prices, Mapping) else [prices] if prices is not None else []
        for each in table:
            if not isinstance(each, Prices):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise TypeError(
                    f"a PricedModel is made of a model and its prices, not of {kind_of(each)}; write {example}"
                )
        self.model = model
        """The model that is asked."""
        self.prices = prices
        """The prices of its tokens; None means those of `genai-prices`."""
        self._table: _OwnPrices | _PublishedPrices | None = None
        if prices is None:
            self._table = _PublishedPrices(model)
        elif not isinstance(prices, Prices):
            self._table = _OwnPrices(model, prices)

    @property
    def name(self) -> str:
        """The name of the model."""
        return self.model.name

    async def respond(self, request: ModelRequest, on_text: Callable[[str], None] | None = None) -> ModelResponse:
        """Ask the model.

        Raises:
            ModelRequestError: as the model raises it.
        """
        try:
            response = await self.model.respond(request, on_text)
        except ModelError as error:
            error.failed = self._priced_failures(failures(self.model, error))
            if error.usage is not None:
                error.usage = error.failed[-1].usage
            raise
        return replace(response, usage=self._priced(response), failed=self._priced_failures(response.failed))

    def _priced_failures(self, failed: tuple[FailedRequest, ...]) -> tuple[FailedRequest, ...]:
        return tuple(
            each
            if each.usage is None
            else replace(each, usage=self._priced(ModelResponse(_NOTHING, each.usage, model=each.model)))
            for each in failed
        )

    def _priced(self, response: ModelResponse) -> Usage:
        """Return the tokens of a response with their cost."""
        usage = response.usage
        if usage.cost or not (usage.input_tokens or usage.output_tokens):
            return usage
        cost = cast("Prices", self.prices).cost(usage) if self._table is None else self._table.cost(response)
        return replace(usage, cost=cost)

    def __repr__(self) -> str:
        return f"<{self.model!r} with {'prices of genai-prices' if self.prices is None else repr(self.prices)}>"


class _OwnPrices:
    """Prices by the names of models."""

    def __init__(self, model: Model, prices: Mapping[str, Prices]) -> None:
        self._prices = dict(prices)
        self._names = [each.name for each in inner_models(model)]
        for name in self._names:
            if name not in self._prices:
                known = ", ".join(map(repr, self._prices)) or "none"
                raise ValueError(f"no price for model {name!r}, only for {known}; add {name!r}: Prices(…)")

    def cost(self, response: ModelResponse) -> Decimal:
        """Return the cost by the prices of the model that answered, as its server names it, or else as it was asked."""
        prices = self._prices.get(response.model) or self._prices[_asked(self._names, response)]
        return prices.cost(response.usage)


class _PublishedPrices:
    """Prices of `genai-prices`: a table in that package, which neither asks a server nor starts a thread unless it is configured to."""

    def __init__(self, model: Model) -> None:
        try:
            import genai_prices
        except ImportError:
            raise MissingExtraError("PricedModel without Prices(…)", "prices") from None
        self._calc_price, self._no_usage = genai_prices.calc_price, genai_prices.Usage()
        self._found: dict[tuple[str, str], ModelInfo | None] = {}
        self._made: dict[int, tuple[object, Prices, Decimal]] = {}
        """Keyed by the identity of their source, which is kept alive so that its identity is not reused."""
        self._addresses = {each.name: str(getattr(each, "base_url", "")) for each in inner_models(model)}
        self._names = list(self._addresses)
        for name, base_url in self._addresses.items():
            if self._find(name, base_url) is None:
                raise ValueError(
                    f"genai-prices has no prices for model {name!r}{f' at {base_url}' if base_url else ''}; pass its own: "
                    f"PricedModel(model, Prices(input=…, output=…))"
                )

    def cost(self, response: ModelResponse) -> Decimal:
        """Return the cost by the prices of today of the model that answered, as its server names it, or else as it was asked."""
        asked, usage = _asked(self._names, response), response.usage
        address = self._addresses[asked]
        model = (response.model and self._find(response.model, address)) or self._find(asked, address)
        assert model, "it was looked up when the model was wrapped"
        prices, per_request = self._rates(model, usage.input_tokens)
        return MONEY.add(prices.cost(usage), per_request)

    def _find(self, name: str, base_url: str) -> ModelInfo | None:
        """Return the prices of a model at a server, or of a model of that name anywhere if the server is not known."""
        key = name, base_url
        if key not in self._found:
            try:
                found = self._calc_price(self._no_usage, name, provider_api_url=base_url or None).model
                self._rates(found, 0)
                self._found[key] = found
            except LookupError:
                self._found[key] = None
        return self._found[key]

    def _rates(self, model: ModelInfo, input_tokens: int) -> tuple[Prices, Decimal]:
        """Return the prices of a model for a prompt of so many tokens, and the price of the request itself.

        Raises:
            LookupError: its tokens have no price.
        """
        price: Any = model.get_prices(_today()) if isinstance(model.prices, list) else model.prices
        made = self._made.get(id(price))
        if made is not None:
            return made[1:]
        given = (price.input_mtok, price.output_mtok, price.cache_read_mtok, price.output_reasoning_mtok)
        sent, said, cached, reasoning = (_price_for(each, input_tokens) for each in given)
        if sent is None or said is None:
            raise LookupError(model.id)
        per_thousand = _price_for(price.requests_kcount, input_tokens)
        found = Prices(sent, said, cached, reasoning), MONEY.scaleb(per_thousand or _FREE, -3)
        if all(
            each is None or isinstance(each, Decimal) for each in given
        ):  # else they depend on the length of the prompt
            self._made[id(price)] = price, *found
        return found


def _today() -> datetime:
    return datetime.fromtimestamp(now() / 1_000, UTC)


def _asked(names: list[str], response: ModelResponse) -> str:
    """Return the name of the model in the wrappers that answered: the first that is not known to have failed."""
    if not response.failed:
        return names[0]
    failed = {each.model for each in response.failed}
    return next((name for name in names if name not in failed), names[0])


def _price_for(price: Any, input_tokens: int) -> Decimal | None:
    """Return a price of `genai-prices`, which may depend on the length of the prompt."""
    if price is None or isinstance(price, Decimal):
        return price
    # A tier holds for all tokens of a request, not only for those beyond its start.
    tiers = [each.price for each in price.tiers if input_tokens > each.start]
    return cast("Decimal", tiers[-1] if tiers else price.base)
