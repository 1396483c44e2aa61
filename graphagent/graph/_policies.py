"""Policies of a node: values that wrap its execution, in the order in which they were added."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from graphagent._options import check_model, check_number, check_tools, check_whole
from graphagent._policies import CachePolicy, Retry

if TYPE_CHECKING:
    from collections.abc import Sequence

    from graphagent.protocols import Model


@dataclass(frozen=True, slots=True)
class Timeout:
    """Cancel the execution, and raise NodeTimeoutError, after some seconds."""

    seconds: float

    def __post_init__(self) -> None:
        check_number("timeout: seconds", self.seconds)
        if not self.seconds > 0:
            raise ValueError(f"timeout({self.seconds}) must be more than 0 seconds")


Policy = Retry | Timeout | CachePolicy


@dataclass(frozen=True, slots=True)
class ToolSelection:
    """Tools from which a model selects those that are offered, as made by `select_tools`."""

    tools: Sequence[Any] | None = None
    """The tools to choose from; None means those that the parent offers."""
    max_tools: int | None = None
    """The largest number of chosen tools; None means any number."""
    model: Model | None = None
    """The model that chooses; None means that of the strategy."""


def select_tools(
    tools: Sequence[Any] | None = None, *, max_tools: int | None = None, model: Model | None = None
) -> ToolSelection:
    """Let a model choose the tools that a subgraph offers: `subgraph.using(tools=select_tools())`.

    Each time that the subgraph is entered, the model is asked once, with the names and descriptions of the tools, the input of the
    subgraph, and the last messages of the transcript. The choice may be empty. It is recorded, so a run that is resumed does not ask
    again; it counts in tokens and money, not in turns. Tools that features add are offered in any case.

    Args:
        tools: The tools to choose from; by default those that the parent offers.
        max_tools: The largest number of chosen tools; by default any number.
        model: The model that chooses, such as a small one; by default that of the subgraph.

    Raises:
        TypeError: an argument is not of its type.
        ValueError: `max_tools` is less than 1.
    """
    if tools is not None:
        check_tools(tools)
    if model is not None:
        check_model(model)
    if max_tools is not None:
        check_whole("max_tools", max_tools)
    if max_tools is not None and max_tools < 1:
        raise ValueError(f"max_tools={max_tools} would never choose a tool; give 1 or more, or tools=[] for none")
    return ToolSelection(tools, max_tools, model)


@dataclass(frozen=True, slots=True)
class Setting:
    """The model, tools and budgets of a strategy that is used as a node; None means those of its parent."""

    model: Model | None = None
    tools: Sequence[Any] | ToolSelection | None = None
    max_nodes: int | None = None
    max_turns: int | None = None
    max_tokens: int | None = None
    max_cost: Decimal | float | None = None
    max_seconds: float | None = None

    @property
    def available(self) -> Sequence[Any] | None:
        """The tools that may be offered: if a model chooses, those of which it does; None: those of the parent."""
        return self.tools.tools if isinstance(self.tools, ToolSelection) else self.tools

    @property
    def limited(self) -> bool:
        """Whether it has a budget."""
        own = (self.max_nodes, self.max_turns, self.max_tokens, self.max_cost, self.max_seconds)
        return any(each is not None for each in own)
