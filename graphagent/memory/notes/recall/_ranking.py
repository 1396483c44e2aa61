"""Ranking: scores of several kinds are combined, and raised by the context of a note.

Each function is pure and returns, for each row, what its stage adds. The rank is their sum. All stages use scores that were scaled to
0 to 1 among the candidates of one question, so a rank means nothing beyond that question. What can be compared from question to
question is the `relevance` of a match: the share of the question that it has, or the cosine of its vector.
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
"""The scores of rows."""

_DAY = 86_400_000
_TELLING = 8


@dataclass(frozen=True, slots=True)
class Ranking:
    """How much each stage of the ranking adds. The defaults were chosen on five conversations of LoCoMo, see docs/notes-quality.md."""

    lexical: float = 0.5
    semantic: float = 0.5
    """The share of the scores by words and by vectors, if there are both."""
    neighbours: float = 0.2
    """The share of the scores of the turns before and after it."""
    session: float = 0.8
    """The share of the mean of the three best turns of its conversation."""
    speaker: float = 0.2
    """What is added if the question names one speaker, and this one said it."""
    date: float = 0.3
    """What is added if the question names the time at which it was said."""
    role: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({"user": 0.0}))
    """What is added for the role of the speaker."""


def scaled(scores: Scores, low: float | None = None) -> dict[int, float]:
    """Scale scores from 0, for `low` or else the lowest, to 1, for the highest. If all are equal, each is 1."""
    if not scores:
        return {}
    low, high = min(scores.values()) if low is None else low, max(scores.values())
    spread = high - low
    return {row: (score - low) / spread if spread > 0 else 1.0 for row, score in scores.items()}


def fused(channels: Mapping[str, Scores], weights: Mapping[str, float]) -> dict[str, dict[int, float]]:
    """Return what each kind of score adds: scaled, and weighted with weights that add up to 1.

    Scores by words are scaled from 0, the score of a note without any of the words. Cosines have no such zero.
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
    """Add a share of the score of each turn to the turns before and after it, even if these are not candidates."""
    at = {(row.session, row.place): row.row for row in rows.values() if row.session}
    found: dict[int, float] = defaultdict(float)
    for number, score in base.items():
        session, place = rows[number].session, rows[number].place
        for beside in ((session, place - 1), (session, place + 1)):
            if session and score and beside in at:
                found[at[beside]] += weight * score
    return dict(found)


def sessions(scores: Scores, rows: Mapping[int, Row], weight: float) -> dict[int, float]:
    """Add a share of the mean of the three best turns of a conversation to each of its turns."""
    best: dict[str, list[float]] = defaultdict(list)
    for number, score in scores.items():
        if rows[number].session:
            best[rows[number].session].append(score)
    means = {session: sum(sorted(each, reverse=True)[:3]) / 3 for session, each in best.items()}
    return {row: weight * means[rows[row].session] for row in scores if rows[row].session}


def speakers(rows: Mapping[int, Row], query: Query, weight: float) -> dict[int, float]:
    """Add a weight to what the one speaker said whom a question names."""
    if len(query.named) != 1:
        return {}
    [name] = query.named
    return {row.row: weight for row in rows.values() if row.speaker.casefold() == name}


def dates(rows: Mapping[int, Row], query: Query, weight: float) -> dict[int, float]:
    """Add a weight to what was said at a time that a question names."""
    return dict.fromkeys(dated(rows, query), weight)


def dated(rows: Mapping[int, Row], query: Query) -> set[int]:
    """Return the rows that were said at a time that the question names.

    If none was, the result is the rows without a time that were saved then. So a user who never passes `at` finds what was noted
    today, whereas after an import, which saves hundreds of old notes today, the one note that was said today is not lost among them.
    """
    if not query.spans and not query.months:
        return set()

    def is_asked(time: int) -> bool:
        if any(span.since <= time <= span.until for span in query.spans):
            return True
        return bool(query.months) and datetime.fromtimestamp(time / 1000, UTC).month in query.months

    said = {row.row for row in rows.values() if row.said is not None and is_asked(row.said)}
    return said or {row.row for row in rows.values() if row.said is None and is_asked(row.created)}


def roles(rows: Mapping[int, Row], weights: Mapping[str, float]) -> dict[int, float]:
    """Add the weights of roles to what was said in them."""
    return {row.row: weights[row.role] for row in rows.values() if weights.get(row.role)}


def stages(
    channels: Mapping[str, Scores], rows: Mapping[int, Row], query: Query, ranking: Ranking
) -> dict[str, dict[int, float]]:
    """Return what each stage adds to the rank of rows.

    Args:
        channels: Scores by words (`lexical`), by vectors (`semantic`), and by the time that the question names (`date`).
        rows: The fields of the rows that were scored, and of the turns before and after them.
        query: The question.
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
    """Return the rows by the sum of what the stages add, the best first; of equal ones, the oldest first."""
    whole = _sum(stages.values())
    return sorted(whole, key=lambda row: (-whole[row], row))


def _sum(parts: Iterable[Scores]) -> dict[int, float]:
    found: dict[int, float] = defaultdict(float)
    for each in parts:
        for row, score in each.items():
            found[row] += score
    return dict(found)


def inverse_frequency(count: int, total: int) -> float:
    """Return the inverse document frequency of a word in `count` of `total` texts, as in BM25: ln(1 + (N - n + 0.5) / (n + 0.5))."""
    return math.log(1 + (total - count + 0.5) / (count + 0.5))


def share(stems: Iterable[str], weights: Mapping[str, float]) -> float:
    """Return the share of a question that is in these words, from 0 to 1, each word weighted by how much it says.

    Of a long question, the eight words with the highest weights are the whole: no answer has all the words of a letter.
    """
    whole = math.fsum(sorted(weights.values(), reverse=True)[:_TELLING])
    there = math.fsum(weights[stem] for stem in weights.keys() & set(stems))
    return min(1.0, there / whole) if whole else 0.0


def decay(created: int, now: int, half_life_days: float) -> float:
    """Return crewAI's recency: 1 for what is new, 0.5 for what is as old as the half-life. Times are in milliseconds."""
    return float(0.5 ** (max(0, now - created) / _DAY / half_life_days))
