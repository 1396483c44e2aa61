"""Settings of notes, with the names and defaults of crewAI where it has the same."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import cast

from graphagent._article import kind_of
from graphagent._options import check_number
from graphagent.memory.notes._validation import fraction, whole
from graphagent.memory.notes.recall._ranking import Ranking


@dataclass(frozen=True, slots=True)
class NoteSettings:
    """How notes are ranked, reranked, consolidated and searched with a model: `Notes(settings=NoteSettings(…))`.

    Raises:
        TypeError: a setting is not a number, or `ranking` is not a Ranking.
        ValueError: a setting is out of range.
    """

    ranking: Ranking = field(default_factory=Ranking)
    """How much each reason adds to the rank."""
    recency_weight: float | None = None
    """If any of the three weights is set, notes are ranked as in crewAI, by a weighted mean of relevance, recency and importance.
    Otherwise they are ranked by relevance alone. The default in the mean is 0.3."""
    semantic_weight: float | None = None
    """The weight of relevance in this mean, by default 0.5."""
    importance_weight: float | None = None
    """The weight of importance in this mean, by default 0.2."""
    relevance_gate: float = 0.5
    """In the ranking by that mean, notes with less than this share of the best relevance come last."""
    recency_half_life_days: float = 30
    """After how many days recency has fallen to one half."""
    default_importance: float = 0.5
    """The importance of notes that were saved without one."""
    consolidation_threshold: float = 0.85
    """From which similarity on the model is asked whether a new note says the same as older ones of its scope, which it may then change
    or remove. An older note with the same words is removed without asking. All changes are in the history and can be undone. With 1.0,
    or without a model, nothing is consolidated."""
    consolidation_limit: int = 5
    """How many similar notes the model is shown. With 0, it is not asked."""
    rerank_limit: int = 50
    """How many of the best notes the reranker is shown. With 0, it is not asked."""
    confidence_threshold_high: float = 0.8
    """From which relevance on a deep recall searches no further."""
    confidence_threshold_low: float = 0.5
    """Below which relevance a deep recall searches further, within its budget."""
    complex_query_threshold: float = 0.7
    """Below which relevance a deep recall searches further if the question is complex."""
    exploration_budget: int = 1
    """How many more rounds a deep recall may search."""
    query_analysis_threshold: int = 200
    """Questions of fewer characters are not analysed by the model unless `depth="deep"`."""

    def __post_init__(self) -> None:
        for name in ("semantic_weight", "recency_weight", "importance_weight"):
            if (weight := getattr(self, name)) is not None:
                fraction(name, weight)
        if self.composite is not None and not sum(self.composite):
            raise ValueError("semantic_weight, recency_weight and importance_weight are all 0; leave them out instead")
        for name in (
            "relevance_gate", "default_importance", "consolidation_threshold", "confidence_threshold_high",
            "confidence_threshold_low", "complex_query_threshold",
        ):  # fmt: skip
            fraction(name, getattr(self, name))
        check_number("recency_half_life_days", self.recency_half_life_days)
        if not self.recency_half_life_days > 0:
            raise ValueError(f"recency_half_life_days={self.recency_half_life_days!r} is not above 0")
        for name in ("consolidation_limit", "rerank_limit", "exploration_budget", "query_analysis_threshold"):
            whole(name, getattr(self, name))
        if self.confidence_threshold_low > self.confidence_threshold_high:
            raise ValueError(
                f"confidence_threshold_low={self.confidence_threshold_low!r} is above "
                f"confidence_threshold_high={self.confidence_threshold_high!r}; a deep recall looks further below the one, and "
                f"no further from the other on"
            )
        _check_ranking(self.ranking)

    @property
    def composite(self) -> tuple[float, float, float] | None:
        """The weights of relevance, recency and importance; None if none of them is set."""
        given = (self.semantic_weight, self.recency_weight, self.importance_weight)
        if given == (None, None, None):
            return None
        semantic, recency, importance = given
        return (
            0.5 if semantic is None else semantic,
            0.3 if recency is None else recency,
            0.2 if importance is None else importance,
        )


def _check_ranking(ranking: object) -> None:
    if not isinstance(ranking, Ranking):
        given = kind_of(ranking)
        such = "Ranking(**that)" if isinstance(ranking, Mapping) else "Ranking(session=0.5)"
        raise TypeError(f"ranking= is a Ranking, such as {such}, not {given}")
    for each in fields(ranking):
        value: object = getattr(ranking, each.name)
        if each.name == "roles":
            if not isinstance(value, Mapping):
                raise TypeError(
                    f"ranking.roles is a dict with the number to add for each role, such as {{'tool': -2.0}}, not {kind_of(value)}"
                )
            for role, extra in cast("Mapping[str, object]", value).items():
                check_number(f"ranking.roles[{role!r}]", extra)
                if not math.isfinite(cast("float", extra)):
                    raise ValueError(f"ranking.roles[{role!r}]={extra!r} is not finite")
            continue
        if isinstance(value, Mapping):
            raise TypeError(
                f"ranking.{each.name} is a factor, not a dict; the numbers to add for each role are in ranking.roles"
            )
        check_number(f"ranking.{each.name}", value)
        if not 0 <= cast("float", value) < math.inf:
            raise ValueError(f"ranking.{each.name}={value!r} is not a number from 0 on; 0 leaves it out")
