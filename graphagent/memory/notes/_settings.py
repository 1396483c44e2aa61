"""How notes are ranked, consolidated and asked about; crewAI's names and defaults where it has the same."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import cast

from graphagent._article import a
from graphagent.memory.notes.recall._ranking import Ranking


@dataclass(frozen=True, slots=True)
class Composite:
    """How much relevance, recency and importance weigh where any of these weights is given."""

    semantic: float = 0.5
    recency: float = 0.3
    importance: float = 0.2

    def __post_init__(self) -> None:
        for name in ("semantic", "recency", "importance"):
            _within(f"{name}_weight", getattr(self, name))
        if not self.semantic + self.recency + self.importance:
            raise ValueError("semantic_weight, recency_weight and importance_weight are all 0; leave them out instead")


@dataclass(frozen=True, slots=True)
class Settings:
    """What can be set on Notes."""

    ranking: Ranking = field(default_factory=Ranking)
    composite: Composite | None = None
    relevance_gate: float = 0.5
    recency_half_life_days: float = 30
    default_importance: float = 0.5
    consolidation_threshold: float = 0.85
    consolidation_limit: int = 5
    confidence_threshold_high: float = 0.8
    confidence_threshold_low: float = 0.5
    complex_query_threshold: float = 0.7
    exploration_budget: int = 1
    query_analysis_threshold: int = 200

    def __post_init__(self) -> None:
        for name in (
            "relevance_gate", "default_importance", "consolidation_threshold", "confidence_threshold_high",
            "confidence_threshold_low", "complex_query_threshold",
        ):  # fmt: skip
            _within(name, getattr(self, name))
        number("recency_half_life_days", self.recency_half_life_days)
        if not self.recency_half_life_days > 0:
            raise ValueError(f"recency_half_life_days={self.recency_half_life_days!r} is not above 0")
        for name in ("consolidation_limit", "exploration_budget", "query_analysis_threshold"):
            whole(name, getattr(self, name))
        if self.confidence_threshold_low > self.confidence_threshold_high:
            raise ValueError(
                f"confidence_threshold_low={self.confidence_threshold_low!r} is above "
                f"confidence_threshold_high={self.confidence_threshold_high!r}; a deep recall looks further below the one, and "
                f"no further from the other on"
            )
        _check_ranking(self.ranking)


def number(name: str, value: object) -> None:
    """See that something is a number.

    Raises:
        TypeError: it is not one.
    """
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise TypeError(f"{name}={value!r} is not a number, such as 0.5")


def whole(name: str, value: object) -> None:
    """See that something is a whole number from 0 on.

    Raises:
        TypeError: it is not a whole number.
        ValueError: it is below 0.
    """
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{name}={value!r} is not a whole number, such as 10")
    if value < 0:
        raise ValueError(f"{name}={value} is below 0")


def one_of(names: Sequence[str]) -> str:
    """Give what can be used, for an error: `'a', 'b' or 'c'`."""
    *others, last = map(repr, names)
    return f"{', '.join(others)} or {last}" if others else last


def _within(name: str, value: object) -> None:
    number(name, value)
    if not 0 <= cast("float", value) <= 1:
        raise ValueError(f"{name}={value!r} is not between 0 and 1")


def _check_ranking(ranking: object) -> None:
    if not isinstance(ranking, Ranking):
        given = a(type(ranking).__name__)
        such = "Ranking(**that)" if isinstance(ranking, Mapping) else "Ranking(session=0.5)"
        raise TypeError(f"ranking= is a Ranking, such as {such}, not {given}")
    for each in fields(ranking):
        value: object = getattr(ranking, each.name)
        weights = cast("Mapping[str, object]", value) if isinstance(value, Mapping) else {"": value}
        for key, weight in weights.items():
            named = f"{each.name}[{key!r}]" if key else each.name
            number(f"ranking.{named}", weight)
            if not (-math.inf if key else 0) <= cast("float", weight) < math.inf:
                raise ValueError(f"ranking.{named}={weight!r} is not a number from 0 on; 0 leaves it out")
