"""Details of errors that other rooms have too: problems of a strategy, requests that failed, and the tokens that were spent."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import MAX_EMAX, MIN_EMIN, Context, Decimal

_FREE = Decimal(0)
MONEY = Context(prec=60, Emax=MAX_EMAX, Emin=MIN_EMIN)
"""The context of calculations with money, independent of the program's own: more digits than amounts have."""


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens, as the server counted them, and their cost."""

    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    """Of the input: read from the server's cache."""
    reasoning_tokens: int = 0
    """Of the output: spent on reasoning."""
    cost: Decimal = _FREE
    """Money, in the currency of the prices; 0 if none are known. Exact, so that sums are the same in any order."""

    @property
    def total_tokens(self) -> int:
        """Input and output together."""
        return self.input_tokens + self.output_tokens

    def __sub__(self, other: Usage) -> Usage:
        return Usage(
            self.input_tokens - other.input_tokens,
            self.output_tokens - other.output_tokens,
            self.cached_tokens - other.cached_tokens,
            self.reasoning_tokens - other.reasoning_tokens,
            MONEY.subtract(self.cost, other.cost),
        )

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            self.input_tokens + other.input_tokens,
            self.output_tokens + other.output_tokens,
            self.cached_tokens + other.cached_tokens,
            self.reasoning_tokens + other.reasoning_tokens,
            MONEY.add(self.cost, other.cost),
        )


@dataclass(frozen=True, slots=True)
class FailedRequest:
    """A request that failed, such as that of the first model of a FallbackModel."""

    model: str
    """The model that was asked."""
    reason: str
    """The text of its error, without anything that was sent."""
    usage: Usage | None = None
    """The tokens that it took nevertheless, where the server counted them."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong with a strategy."""

    node: str
    """The name of the node or tap that has the problem; START or END."""
    message: str
    """The problem, the existing alternatives, and the remedy."""

    def __str__(self) -> str:
        return f"{self.node!r}: {self.message}"
