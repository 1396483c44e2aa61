"""The features by which candidates are ranked: pure functions, each of which returns a number for each row that has it.

Features of a note itself come from the search, its fields and its text. Features of its context are made of the scores of other turns
of its conversation: people answer each other, so a turn is often understood only from the ones around it.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Literal

from graphagent.memory.notes.index._traits import NAME, NUMBER, QUESTION, TIME

if TYPE_CHECKING:
    from graphagent.memory.notes.index._tables import Row
    from graphagent.memory.notes.index._vectors import LateScores
    from graphagent.memory.notes.recall._lexical import Words
    from graphagent.memory.notes.recall._query import Query

Scores = Mapping[int, float]
"""The scores of rows; a row without one has 0."""
Kind = Literal["note", "turn", "message"]
"""A single note, a turn of a conversation between people, or a message in a chat with roles."""
ANSWERS = {"time": TIME, "number": NUMBER, "name": NAME}
"""The trait of a turn that may have the kind of answer that is asked for."""

_SPREAD = 0.1
"""The smallest difference of two cosines that counts fully."""


def kind_of(row: Row) -> Kind:
    """Return the kind of a row."""
    return "note" if not row.session else "message" if row.role else "turn"


# Of a note itself


def around(words: Words, rows: Mapping[int, Row], at: Mapping[tuple[str, int], int]) -> dict[int, float]:
    """Return the share of the question's words, without names, that each turn has together with the turns before and after it.

    The scores are relative to the highest one.
    """
    found: dict[int, float] = defaultdict(float)
    for stem, weight in words.weights.items() if at else ():
        if stem in words.named or stem in words.silent or stem not in words.places:
            continue
        reached: dict[int, float] = {}
        for row in rows.values():
            if row.session and (similarity := words.similarity(stem, row)):
                for place in (row.place - 1, row.place, row.place + 1):
                    if (near := at.get((row.session, place))) is not None:
                        reached[near] = max(reached.get(near, 0.0), similarity)
        for number, similarity in reached.items():
            found[number] += similarity * weight
    return shares(found)


def shares(scores: Scores) -> dict[int, float]:
    """Return scores as shares of the highest one."""
    highest = max(scores.values(), default=0.0)
    return {row: score / highest for row, score in scores.items()} if highest > 0 else {}


def scaled(cosines: Scores, pool: Iterable[int]) -> dict[int, float]:
    """Return cosines on a scale from 0, for the lowest of those in the pool and all below it, to 1 for the highest.

    If all of them are within 0.1, the scale has that length, for such small differences say nothing.
    """
    among = [cosines[row] for row in pool if row in cosines]
    high = max(among, default=0.0)
    spread = max(high - min(among, default=0.0), _SPREAD)
    return {row: max(0.0, 1 - (high - score) / spread) for row, score in cosines.items()}


def standing(cosines: Scores, pool: Iterable[int], deviation: float) -> dict[int, float]:
    """Return how many standard deviations each cosine is above the lowest of those in the pool, 0 for all below it.

    So cosines say the same, whether those of an embedder are all from 0.76 to 0.83 or from 0 to 1. The highest has at least 1.
    """
    among = [cosines[row] for row in pool if row in cosines]
    lowest, highest = min(among, default=0.0), max(among, default=0.0)
    low = min(lowest, highest - deviation)
    return {row: (cosine - low) / deviation if cosine >= lowest else 0.0 for row, cosine in cosines.items()}


def wordless(standing: Scores, most: float) -> dict[int, float]:
    """Return the standing of each row, the less of it the more of the question's words some text has, whose share is given.

    Where a text has all of a question, words tell best which note it is. Where none has much of it, as in another language, they mislead.
    """
    return {row: score * (1 - most**2) for row, score in standing.items()}


def late_around(late: LateScores, rows: Mapping[int, Row], at: Mapping[tuple[str, int], int]) -> dict[int, float]:
    """Return the mean of the best scores of the question's words in each turn together with the two turns before and after it."""
    index = {number: place for place, number in enumerate(late.rows)}
    best = late.best.copy()
    for step in (-2, -1, 1, 2) if at else ():
        near = [
            (place, index[other])
            for place, number in enumerate(late.rows)
            if (other := at.get((rows[number].session, rows[number].place + step))) in index
        ]
        if near:
            own, others = map(list, zip(*near, strict=True))
            best[own] = best[own].clip(min=late.best[others])
    return {
        number: mean for number, mean in zip(late.rows, best.mean(axis=1).tolist(), strict=True) if rows[number].session
    }


def speaker(rows: Mapping[int, Row], query: Query) -> dict[int, float]:
    """Return 1 for the notes of the one speaker whom a question names."""
    return (
        {number: 1.0 for number, row in rows.items() if row.speaker in query.speakers} if len(query.named) == 1 else {}
    )


def dated(rows: Mapping[int, Row], query: Query) -> dict[int, float]:
    """Return 1 for notes from a time that the question names.

    If none was, the result is the rows without a time that were saved then. So a user who never passes `at` finds notes that were saved
    today, whereas after an import, which saves hundreds of old notes today, the one note that was said today is not lost among them.
    """
    if not query.spans:
        return {}

    def is_asked(time: int) -> bool:
        return any(span.since <= time <= span.until for span in query.spans)

    said = {number: 1.0 for number, row in rows.items() if row.said is not None and is_asked(row.said)}
    return said or {number: 1.0 for number, row in rows.items() if row.said is None and is_asked(row.created)}


def answers(rows: Mapping[int, Row], query: Query) -> dict[str, dict[int, float]]:
    """Return 1 for notes with the kind of answer in question: a `time` for "when", a `number` for "how many", a `name` for "where".

    The idea is that of expected answer types: Li and Roth, "Learning Question Classifiers" (COLING 2002).
    """
    wanted = ANSWERS.get(query.asks, 0)
    return {query.asks: {number: 1.0 for number, row in rows.items() if row.traits & wanted}} if wanted else {}


def question(rows: Mapping[int, Row]) -> dict[int, float]:
    """Return 1 for turns that ask something, because the answer to a search is seldom a question."""
    return {number: 1.0 for number, row in rows.items() if row.traits & QUESTION}


def role(rows: Mapping[int, Row]) -> dict[int, float]:
    """Return 1 for messages of an assistant: users mostly look for their own words later."""
    return {number: 1.0 for number, row in rows.items() if row.role and row.role != "user"}


def length(rows: Mapping[int, Row]) -> dict[int, float]:
    """Return the logarithm of the number of texts of a single note or a message: the best of many texts is good by chance."""
    return {
        number: math.log(row.chunks) for number, row in rows.items() if row.chunks > 1 and (row.role or not row.session)
    }


# Of its context


def context(base: Scores, rows: Mapping[int, Row], at: Mapping[tuple[str, int], int]) -> dict[str, dict[int, float]]:
    """Return the features of each turn that come from the scores of other turns of its conversation.

    `previous`, `next`, `previous2` and `next2` are the scores of the turns around it, `answer` is that of the turn before it if that
    one asks something, and `session` is the best score of its conversation.
    """
    found: dict[str, dict[int, float]] = {name: {} for name in (*(name for name, _ in _STEPS), "answer", "session")}
    best: dict[str, float] = {}
    for number, score in base.items():
        row = rows[number]
        if not row.session:
            continue
        best[row.session] = max(best.get(row.session, 0.0), score)
        for name, step in _STEPS:
            if (near := at.get((row.session, row.place + step))) is not None:
                found[name][near] = score
                if step == 1 and row.traits & QUESTION:
                    found["answer"][near] = score
    found["session"] = {number: best[row.session] for number, row in rows.items() if row.session in best}
    return found


_STEPS = (("previous", 1), ("next", -1), ("previous2", 2), ("next2", -2))
