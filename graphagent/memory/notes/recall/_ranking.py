"""Ranking: a weighted sum of features, with weights that were fitted for each kind of embedder and of note.

The sum is a logarithm of odds that the note answers, up to a constant of the question, so single notes, turns and messages compare. The
rank of a note means nothing beyond one question. The `relevance` of a match can be compared from question to question: the
share of the question that it has, or the cosine of its vector.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING

from graphagent.memory.notes.recall import _features
from graphagent.memory.notes.recall._lexical import whole_of
from graphagent.memory.notes.recall._weights import WEIGHTS

if TYPE_CHECKING:
    from graphagent.memory.notes.recall._features import Kind, Scores
    from graphagent.memory.notes.recall._search import Candidates

_DAY = 86_400_000

REASONS: Mapping[str, tuple[str, ...]] = {
    "lexical": ("lexical", "share", "pairs"),
    "semantic": ("semantic", "standing", "wordless"),
    "tokens": ("tokens",),
    "neighbours": ("around", "tokens_around", "previous", "next", "previous2", "next2"),
    "answer": ("answer", "question", "time", "number", "name"),
    "session": ("session",),
    "speaker": ("speaker",),
    "date": ("date",),
    "role": ("role",),
    "length": ("length",),
}
"""The features of each reason for which a note is found."""
SEARCHED = ("lexical", "share", "pairs", "semantic", "standing", "wordless", "tokens", "around")
"""The features whose weighted sum is the score of a turn for the other turns of its conversation."""


@dataclass(frozen=True, slots=True)
class Ranking:
    """How much each reason counts, as a factor of its fitted weights: 1 is as fitted, 0 leaves it out."""

    lexical: float = 1.0
    """Words of the question."""
    semantic: float = 1.0
    """The vector of the question."""
    tokens: float = 1.0
    """The vectors of the question's words."""
    neighbours: float = 1.0
    """The turns before and after it."""
    answer: float = 1.0
    """Turns that may be an answer: after a question, no question themselves, with a time where "when" is asked."""
    session: float = 1.0
    """The best turns of its conversation."""
    speaker: float = 1.0
    """The question names who said it."""
    date: float = 1.0
    """The question names when it was said."""
    role: float = 1.0
    """The role of messages in chats."""
    length: float = 1.0
    """The length of notes and messages that are searched in pieces."""
    roles: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    """The amounts for further roles, such as `{"tool": -2.0}`, as a logarithm of odds."""


def first(found: Candidates, most: int) -> list[int]:
    """Return the best candidates by the search itself and by the time in the question.

    A turn counts at least half as much as the best of the four around it. Who said it does not count, because turns of others, such as
    questions, are needed for the turns around them.
    """
    weights = WEIGHTS[found.tier]
    scores = base(found.scores, weights, found.kinds)
    spread = dict(scores)
    for (session, place), number in found.at.items():
        for step in (-2, -1, 1, 2):
            if (near := found.at.get((session, place + step))) is not None:
                spread[number] = max(spread[number], scores[near] / 2)
    for row, score in _weighted({"date": found.dated}, ["date"], weights, found.kinds).items():
        spread[row] += score
    # However many candidates there are, of those with nothing the nearest ones are compared.
    return heapq.nlargest(most, spread, key=lambda row: (spread[row], found.cosines.get(row, -1.0), row))


def base(
    features: Mapping[str, Scores], weights: Mapping[Kind, Mapping[str, float]], kinds: Mapping[int, Kind]
) -> dict[int, float]:
    """Return the score of each candidate by the search itself, which counts for the turns around it."""
    return dict.fromkeys(kinds, 0.0) | _weighted(features, SEARCHED, weights, kinds)


def _weighted(
    features: Mapping[str, Scores],
    names: Iterable[str],
    weights: Mapping[Kind, Mapping[str, float]],
    kinds: Mapping[int, Kind],
) -> dict[int, float]:
    """Return the weighted sum of some features, of each row that has one with a weight."""
    found: dict[int, float] = {}
    for name in names:
        by_kind = {kind: each.get(name, 0.0) for kind, each in weights.items()}
        for row, score in features.get(name, {}).items():
            if weight := by_kind[kinds[row]]:
                found[row] = found.get(row, 0.0) + weight * score
    return found


def features_of(found: Candidates, weights: Mapping[Kind, Mapping[str, float]]) -> dict[str, Scores]:
    """Return all features of the candidates. Features of the context are made with the weights of the search itself."""
    rows, at, query = found.rows, found.at, found.query
    features: dict[str, Scores] = {
        **found.scores,
        **_features.answers(rows, query),
        "around": _features.around(found.words, rows, at),
        "speaker": _features.speaker(rows, query),
        "date": found.dated,
        "question": _features.question(rows),
        "role": _features.role(rows),
        "length": _features.length(rows),
    }
    return {**features, **_features.context(base(features, weights, found.kinds), rows, at)} if at else features


def ranked(found: Candidates, ranking: Ranking) -> dict[str, dict[int, float]]:
    """Return the amount that each reason adds to the rank of each candidate."""
    table = WEIGHTS[found.tier]
    weights: dict[Kind, dict[str, float]] = {
        kind: {
            name: getattr(ranking, reason) * each.get(name, 0.0) for reason, names in REASONS.items() for name in names
        }
        for kind, each in table.items()
    }
    features = features_of(found, weights)
    parts = {reason: _weighted(features, names, weights, found.kinds) for reason, names in REASONS.items()}
    for number, row in found.rows.items():
        if extra := ranking.roles.get(row.role):
            parts["role"][number] = parts["role"].get(number, 0.0) + extra
    return parts


def order(parts: Mapping[str, Scores], rows: Iterable[int]) -> list[int]:
    """Return the rows by the sum of their reasons, the best first; of equal ones, the one saved last."""
    whole = dict.fromkeys(rows, 0.0)
    for each in parts.values():
        for row, score in each.items():
            whole[row] += score
    return sorted(whole, key=lambda row: (-whole[row], -row))


def relevance(found: Candidates, rows: Iterable[int]) -> dict[int, float]:
    """Return the relevance of rows, from 0 to 1: the share of the question that each has, or its cosine if that is higher.

    Each word counts by how much it says. A time that is asked for counts like a word: a row has it if it was said then, or if its text
    names it.
    """
    words = found.words
    weights = {stem: weight for stem, weight in words.weights.items() if stem not in words.silent}
    whole = whole_of([*weights.values(), words.time])
    relevances: dict[int, float] = {}
    for row in rows:
        has = math.fsum(weight * words.similarity(stem, found.rows[row]) for stem, weight in weights.items())
        if words.time and (
            row in found.dated or (words.times and all(words.similarity(stem, found.rows[row]) for stem in words.times))
        ):
            has += words.time
        relevances[row] = min(1.0, max(has / whole if whole else 0.0, found.cosines.get(row, 0.0)))
    return relevances


def decay(created: int, now: int, half_life_days: float) -> float:
    """Return crewAI's recency: 1 for a new note, 0.5 for a note as old as the half-life. Times are in milliseconds."""
    return float(0.5 ** (max(0, now - created) / _DAY / half_life_days))
