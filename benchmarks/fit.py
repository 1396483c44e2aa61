"""The weights of the ranking, fitted on the material in `benchmarks/material`.

For each tier (words alone, vectors, vectors of words as well) and each kind of note (single notes, turns, messages) the weights
maximise the likelihood of the gold rows under a softmax over the candidates of each question (ListNet: Cao et al., "Learning to Rank:
From Pairwise Approach to Listwise Approach", ICML 2007, with the top-one probability), with a ridge penalty. The features of the context
are made of the scores of the notes themselves, so fitting alternates: features with the weights so far, then weights.

The weights are not scaled, so a score is a logarithm of odds: of two candidates of which one answers, the chance that it is the first is
1 / (1 + exp(second - first)). Scores of notes of different kinds, which were fitted apart, can therefore be compared.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from graphagent.memory.notes.recall import _ranking

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from benchmarks.material import Sort
    from graphagent.memory.notes.recall._search import Candidates

NAMES = tuple(name for names in _ranking.REASONS.values() for name in names)
"""The features, in the order of the columns."""
KINDS: Mapping[Sort, str] = {"dialogue": "turn", "chat": "message", "notes": "note"}
ROUNDS, RIDGE = 4, 1e-2


@dataclass(frozen=True, slots=True)
class Asked:
    """A question with its candidates, of which some rows are gold."""

    material: str
    kind: str
    found: Candidates
    gold: frozenset[int]
    golds: int
    """How many rows are gold, candidates or not."""


def matrix(asked: Asked, weights: Mapping[str, float]) -> tuple[list[int], NDArray[np.float64]]:
    """Return the rows of the candidates, and their features with the weights by which their own scores are made."""
    features = _ranking.features_of(asked.found, dict.fromkeys(asked.found.kinds.values(), weights))
    order = list(asked.found.rows)
    values = [[features.get(name, {}).get(row, 0.0) for name in NAMES] for row in order]
    return order, np.array(values).reshape(len(order), len(NAMES))


def fit(
    questions: Sequence[Asked], start: Mapping[str, float], ridge: float = RIDGE, without: Sequence[str] = ()
) -> dict[str, float]:
    """Return the weights that maximise the likelihood of the gold rows."""
    weights = dict(start)
    for _ in range(ROUNDS):
        sets: list[tuple[NDArray[np.float64], NDArray[np.float64]]] = []
        for each in questions:
            order, features = matrix(each, weights)
            for name in without:
                features[:, NAMES.index(name)] = 0
            gold = np.isin(order, list(each.gold))
            if gold.any():
                sets.append((features, gold / gold.sum()))
        spread = np.concatenate([features for features, _ in sets]).std(axis=0)
        keep = np.flatnonzero(spread > 1e-9)
        found = _newton([(features[:, keep] / spread[keep], gold) for features, gold in sets], ridge) / spread[keep]
        weights = {NAMES[place]: float(value) for place, value in zip(keep, found, strict=True)}
    return weights


def _newton(sets: Sequence[tuple[NDArray[Any], NDArray[Any]]], ridge: float) -> NDArray[np.float64]:
    """Minimise the mean cross entropy of softmax with a ridge penalty, which is convex, by Newton's method."""
    weights = np.zeros(sets[0][0].shape[1])

    def loss(at: NDArray[np.float64]) -> float:
        total = 0.0
        for features, gold in sets:
            scores = features @ at
            top = scores.max()
            total += np.log(np.exp(scores - top).sum()) + top - scores @ gold
        return float(total / len(sets) + ridge * at @ at)

    before = loss(weights)
    for _ in range(50):
        slope, curve = 2 * ridge * weights, 2 * ridge * np.eye(len(weights))
        for features, gold in sets:
            scores = features @ weights
            chance = np.exp(scores - scores.max())
            chance /= chance.sum()
            mean = chance @ features
            slope += (mean - gold @ features) / len(sets)
            curve += ((features * chance[:, None]).T @ features - np.outer(mean, mean)) / len(sets)
        step = np.linalg.solve(curve, slope)
        size = 1.0
        while (after := loss(weights - size * step)) > before and size > 1e-6:
            size /= 2
        weights = weights - size * step
        if before - after < 1e-9:
            break
        before = after
    return weights


def ranked(asked: Asked, weights: Mapping[str, float]) -> list[int]:
    """Return the rows in the order of weights."""
    order, features = matrix(asked, weights)
    scores = features @ np.array([weights.get(name, 0.0) for name in NAMES])
    return [order[place] for place in np.lexsort((-np.array(order), -scores))]
