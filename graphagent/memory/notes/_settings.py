"""How notes are ranked, consolidated and asked about; crewAI's names and defaults where it has the same."""

from __future__ import annotations

from dataclasses import dataclass, field

from graphagent.memory.notes._ranking import Ranking


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
        if not self.recency_half_life_days > 0:
            raise ValueError(f"recency_half_life_days={self.recency_half_life_days!r} is not above 0")
        for name in ("consolidation_limit", "exploration_budget", "query_analysis_threshold"):
            if not getattr(self, name) >= 0:
                raise ValueError(f"{name}={getattr(self, name)!r} is below 0")


def _within(name: str, value: float) -> None:
    if not 0 <= value <= 1:
        raise ValueError(f"{name}={value!r} is not between 0 and 1")
