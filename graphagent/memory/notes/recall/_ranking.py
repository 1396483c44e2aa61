"""How notes are ranked: scores of several kinds, brought together, and raised by what stands around a note.

Each function is pure and gives, for each row, what its stage adds. The rank is their sum. All of them work on scores that were
brought to a scale from 0 to 1 among the candidates of one question, so a rank means nothing beyond that question. What a match
is worth from question to question is its `relevance`: the share of what was asked for that it has, or the cosine of its vector.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from graphagent.memory.notes.index._fts import Row
    from graphagent.memory.notes.recall._query import Query

Scores = Mapping[int, float]
"""Of rows."""

_DAY = 86_400_000
_TELLING = 8


@dataclass(frozen=True, slots=True)
class Ranking:
    """How much each stage adds. The weights were chosen on five conversations of LoCoMo, see docs/notes-quality.md."""

    lexical: float = 0.5
    semantic: float = 0.5
    """Of words and of vectors, where there are both."""
    neighbours: float = 0.2
    """Of what the turns before and behind it score."""
    session: float = 0.8
    """Of the mean of the three best turns of its conversation."""
    speaker: float = 0.2
    """Where the question names one speaker, who is the one."""
    date: float = 0.3
    """Where the question names the time at which it was said."""
    role: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({"user": 0.0}))
    """By who said it."""


def scaled(scores: Scores, low: float | None = None) -> dict[int, float]:
    """Bring scores to a scale from 0, which is `low` or else the lowest, to 1, the highest; if all are alike, 1."""
    if not scores:
        return {}
    low, high = min(scores.values()) if low is None else low, max(scores.values())
    spread = high - low
    return {row: (score - low) / spread if spread > 0 else 1.0 for row, score in scores.items()}


def fused(channels: Mapping[str, Scores], weights: Mapping[str, float]) -> dict[str, dict[int, float]]:
    """Give what each kind of score adds: scaled, and weighted so that all weights are 1 together.

    Scores by words begin at 0, which is what a note without any of the words has; cosines have no such beginning.
    """
    there = {name: scores for name in ("lexical", "semantic") if (scores := channels.get(name))}
    whole = sum(weights[name] for name in there) or 1.0
    return {
        name: {
            row: score * weights[name] / whole
            for row, score in scaled(scores, min(0.0, *scores.values()) if name == "lexical" else None).items()
        }
        for name, scores in there.items()
    }


def neighbours(base: Scores, rows: Mapping[int, Row], weight: float) -> dict[int, float]:
    """Give a share of what a turn scores to the turns beside it, whether these are candidates themselves or not."""
    at = {(row.session, row.place): row.row for row in rows.values() if row.session}
    found: dict[int, float] = defaultdict(float)
    for number, score in base.items():
        session, place = rows[number].session, rows[number].place
        for beside in ((session, place - 1), (session, place + 1)):
            if session and score and beside in at:
                found[at[beside]] += weight * score
    return dict(found)


def sessions(scores: Scores, rows: Mapping[int, Row], weight: float) -> dict[int, float]:
    """Give each turn a share of the mean of the three best of its conversation."""
    best: dict[str, list[float]] = defaultdict(list)
    for number, score in scores.items():
        if rows[number].session:
            best[rows[number].session].append(score)
    means = {session: sum(sorted(each, reverse=True)[:3]) / 3 for session, each in best.items()}
    return {row: weight * means[rows[row].session] for row in scores if rows[row].session}


def speakers(rows: Mapping[int, Row], query: Query, weight: float) -> dict[int, float]:
    """Raise what the one speaker said whom a question names."""
    if len(query.named) != 1:
        return {}
    [name] = query.named
    return {row.row: weight for row in rows.values() if row.speaker.casefold() == name}


def dates(rows: Mapping[int, Row], query: Query, weight: float) -> dict[int, float]:
    """Raise what was said at a time that a question names."""
    if not query.spans and not query.months:
        return {}
    return {row.row: weight for row in rows.values() if is_dated(row, query)}


def is_dated(row: Row, query: Query) -> bool:
    """Tell whether something was said at a time that a question names."""
    time = row.said if row.said is not None else row.created
    if any(span.since <= time <= span.until for span in query.spans):
        return True
    return bool(query.months) and datetime.fromtimestamp(time / 1000, UTC).month in query.months


def roles(rows: Mapping[int, Row], weights: Mapping[str, float]) -> dict[int, float]:
    """Raise what was said in some roles."""
    return {row.row: weights[row.role] for row in rows.values() if weights.get(row.role)}


def stages(
    channels: Mapping[str, Scores], rows: Mapping[int, Row], query: Query, ranking: Ranking
) -> dict[str, dict[int, float]]:
    """Give what each stage adds to the rank of rows.

    Args:
        channels: Scores by words (`lexical`) and by vectors (`semantic`), and what was said when the question asks for (`date`).
        rows: What is known of the rows that were scored, and of the turns beside them.
        query: What was asked.
        ranking: How much each stage adds.
    """
    parts = fused(channels, {"lexical": ranking.lexical, "semantic": ranking.semantic})
    parts["neighbours"] = neighbours(_sum(parts.values()), rows, ranking.neighbours)
    with_beside = _sum(parts.values())
    parts["session"] = sessions(with_beside, rows, ranking.session)
    found = {row: rows[row] for row in (*with_beside, *channels.get("date", ()))}
    parts["speaker"] = speakers(found, query, ranking.speaker)
    parts["date"] = dates(found, query, ranking.date)
    parts["role"] = roles(found, ranking.role)
    return parts


def order(stages: Mapping[str, Scores]) -> list[int]:
    """Give the rows by the sum of what the stages add, the best first; of equals the one that is there longest."""
    whole = _sum(stages.values())
    return sorted(whole, key=lambda row: (-whole[row], row))


def _sum(parts: Iterable[Scores]) -> dict[int, float]:
    found: dict[int, float] = defaultdict(float)
    for each in parts:
        for row, score in each.items():
            found[row] += score
    return dict(found)


def inverse_frequency(count: int, total: int) -> float:
    """Say how much a word tells that is in `count` of `total` records: ln(1 + (N - n + 0.5) / (n + 0.5)), as in BM25."""
    return math.log(1 + (total - count + 0.5) / (count + 0.5))


def share(stems: Iterable[str], weights: Mapping[str, float]) -> float:
    """Give the share of what was asked for that is in these words, from 0 to 1, each word weighted by what it tells.

    Of a long question the eight words that tell most are the whole: no answer has all the words of a letter.
    """
    whole = math.fsum(sorted(weights.values(), reverse=True)[:_TELLING])
    there = math.fsum(weights[stem] for stem in weights.keys() & set(stems))
    return min(1.0, there / whole) if whole else 0.0


def decay(created: int, now: int, half_life_days: float) -> float:
    """Give 1 for what is new, 0.5 for what is as old as the half-life; times in milliseconds (crewAI's recency)."""
    return float(0.5 ** (max(0, now - created) / _DAY / half_life_days))
