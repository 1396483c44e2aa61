"""Search without a model: candidates by words and by vectors, ranked, each with its relevance."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeVar

from anyio import to_thread

from graphagent import _clock
from graphagent.memory.notes._types import Match
from graphagent.memory.notes._validation import milliseconds
from graphagent.memory.notes.index import _fts
from graphagent.memory.notes.index._matrix import numpy
from graphagent.memory.notes.recall import _features, _ranking
from graphagent.memory.notes.recall._engine import engine_scores
from graphagent.memory.notes.recall._lexical import search_words, weights_in
from graphagent.memory.notes.recall._query import parse_query

if TYPE_CHECKING:
    from graphagent.memory.notes._settings import NoteSettings
    from graphagent.memory.notes._types import Record
    from graphagent.memory.notes.index._connection import IndexConnection
    from graphagent.memory.notes.index._filter import Filter
    from graphagent.memory.notes.index._fts import Row
    from graphagent.memory.notes.index._matrix import Floats, Matrix
    from graphagent.memory.notes.index._repository import NoteRepository
    from graphagent.memory.notes.recall._features import Kind
    from graphagent.memory.notes.recall._lexical import Words
    from graphagent.memory.notes.recall._query import Query
    from graphagent.memory.notes.recall._weights import Tier

T = TypeVar("T")

_COMPOSED = 50
"""How many notes at least are ranked by recency and importance."""
_LATE = 100
"""How many of the best candidates are compared by the vectors of their words, which takes 1 ms for short notes."""
_WORDS = 64
"""How many words of a question are compared by their vectors: those that say the most."""
_SHORT = 500
"""The length of a question up to which it is analysed on the event loop, in at most some tenths of a millisecond."""
_LEAST = 0.01
"""The lowest score of a note that was found, such as by the turns before and after it alone."""


@dataclass(frozen=True, slots=True)
class Candidates:
    """The notes that may answer a question, not ranked yet."""

    query: Query
    words: Words
    scores: Mapping[str, Mapping[int, float]]
    """The features of rows that come from searching, by words, by vectors of texts and by vectors of words, by their names."""
    rows: Mapping[int, Row]
    """The fields of these rows, of those of the time that is asked for, and of the turns before and after all of them."""
    kinds: Mapping[int, Kind]
    """The kinds of these rows."""
    at: Mapping[tuple[str, int], int]
    """The rows of turns, by their conversations and places."""
    cosines: Mapping[int, float]
    """Of all these rows that have vectors."""
    tier: Tier = "words"
    """What was searched with."""


async def search(
    repository: NoteRepository, text: str, fits: Filter, limit: int, settings: NoteSettings
) -> list[Match]:
    """Return the notes that fit a question best, the best first.

    Raises:
        EmbedderError: the question could not be embedded.
        NoteError: the search engine of the user's own failed, or returned something else than scores.
        StoreError: the store cannot be read.
    """
    most = limit if settings.composite is None else max(_COMPOSED, 2 * limit)

    def ranked(found: Candidates) -> list[_Ranked]:
        parts = _ranking.ranked(found, settings.ranking)
        best = _ranking.order(parts, found.rows)[:most]
        relevance = _ranking.relevance(found, best)
        return [
            _Ranked(
                found.rows[row].id, {name: each[row] for name, each in parts.items() if row in each}, relevance[row]
            )
            for row in best
        ]

    best = await _find(repository, text, fits, max(_fts.POOL, most), ranked)
    stored = await repository.get_many(fits.owner, [each.id for each in best])
    # The filter decides here, about the records themselves: a note may have been changed since the index was read.
    found = [(record, each) for each in best if (record := stored.get(each.id)) is not None and fits.matches(record)]
    if settings.composite is None:
        return [_match(record, max(each.relevance, _LEAST), each.parts, each.relevance) for record, each in found]
    return _composed(found, settings.composite, settings)[:limit]


@dataclass(frozen=True, slots=True)
class _Ranked:
    """A note that was ranked."""

    id: str
    parts: Mapping[str, float]
    relevance: float


async def candidates(repository: NoteRepository, text: str, fits: Filter) -> Candidates:
    """Return the notes that may answer a question.

    Raises:
        EmbedderError: the question could not be embedded.
        StoreError: the store cannot be read.
    """
    return await _find(repository, text, fits, _fts.POOL, lambda found: found)


class _RebuiltError(Exception):
    """The tables were built again since the vectors were read, and rows have other numbers."""


async def _find(repository: NoteRepository, text: str, fits: Filter, pool: int, use: Callable[[Candidates], T]) -> T:
    """Return what a function makes of the candidates, in the worker thread in which they are found."""
    speakers = await repository.speakers(fits.owner)
    query = await _parsed(text, speakers)
    if query.named:
        # Who has said nothing that fits must not change how the question is read.
        speaking = await repository.backend.read(lambda connection: _fts.speaking(connection, query.speakers, fits))
        if len(speaking) < len(query.speakers):
            query = await _parsed(text, speaking)
    if repository.note_index is not None:
        told = await engine_scores(repository.note_index, query.text, fits, pool)
        return await repository.backend.read(
            lambda connection: use(_from_note_index(connection, query, told, fits, pool))
        )
    while True:
        matrix = await repository.matrix(fits.owner) if repository.embedder is not None else None
        # Where nothing else is asked than who spoke and when, the nearest vectors would be so by chance.
        if matrix is None or not len(matrix) or not query.bare:
            return await repository.backend.read(lambda connection: use(_by_words(connection, query, {}, fits, pool)))
        asked = await repository.vectors.embedded_question(query.bare, matrix.dimensions, words=matrix.has_words)
        tier: Tier = "contextual" if getattr(repository.embedder, "contextual", True) else "static"
        try:
            return await repository.backend.read(_by_both(query, matrix, asked, tier, fits, pool, use))
        except _RebuiltError:
            repository.vectors.unload(fits.owner)


async def _parsed(text: str, speakers: Iterable[str]) -> Query:
    return await to_thread.run_sync(parse_query, text, speakers) if len(text) > _SHORT else parse_query(text, speakers)


def _by_both(
    query: Query,
    matrix: Matrix,
    asked: tuple[Floats, Floats | None],
    tier: Tier,
    fits: Filter,
    pool: int,
    use: Callable[[Candidates], T],
) -> Callable[[IndexConnection], T]:
    """Return the function that searches by words and by vectors: of the whole question, and of its words if there are any."""
    vector, words = asked

    def find(connection: IndexConnection) -> T:
        if _fts.made(connection) != matrix.made:
            raise _RebuiltError
        if fits.is_whole:
            nearest = matrix.search(vector, pool, without=_fts.hidden(connection, fits.owner, fits.asker))
        else:
            nearest = matrix.search(vector, pool, among=_fts.fitting(connection, fits))
        found = _by_words(connection, query, nearest, fits, pool)
        cosines = {**found.cosines, **matrix.cosines(vector, list(found.rows.keys() - nearest.keys()))}
        # The scale is that of the best ones, however many more are asked for.
        scores = {**found.scores, "semantic": _features.scaled(cosines, islice(nearest, _fts.POOL))}
        found = replace(found, cosines=cosines, scores=scores, tier="vectors")
        if words is None or not len(words):
            return use(found)
        weights = weights_in(connection, query.bare, found.words)
        if len(weights) != len(words):  # the embedder divides texts into words in a way of its own
            weights = [1.0] * len(words)
        chosen = sorted(range(len(words)), key=weights.__getitem__, reverse=True)[:_WORDS]
        counted = words[chosen] * numpy().float32([weights[place] for place in chosen])[:, None]
        late = matrix.late(counted, _ranking.first(found, _LATE))
        tokens = dict(zip(late.rows, late.scores.tolist(), strict=True))
        around = _features.late_around(late, found.rows, found.at)
        of_words = {"tokens": _features.scaled(tokens, tokens), "tokens_around": _features.scaled(around, around)}
        return use(replace(found, scores={**scores, **of_words}, tier=tier))

    return find


def _from_note_index(
    connection: IndexConnection, query: Query, told: Mapping[str, Mapping[str, float]], fits: Filter, pool: int
) -> Candidates:
    """Return the candidates that a search engine of the user's own found."""
    rows = _fts.rows_named(connection, fits.owner, {id_ for scores in told.values() for id_ in scores})
    # What does not fit must not count either: scores are relative to the highest one.
    fitting = _fts.rows_of(connection, rows.values(), fits)
    found = {
        kind: {rows[id_]: score for id_, score in told.get(kind, {}).items() if rows.get(id_) in fitting}
        for kind in ("lexical", "semantic")
    }
    lexical = _features.shares(found["lexical"])
    words = search_words(connection, query, fits, pool)
    # What share of the question the scores of another engine stand for is not known, so in the ranking its best one counts as all of it.
    scores = {
        "lexical": lexical,
        "share": lexical,
        "pairs": words.pairs,
        "semantic": _features.scaled(found["semantic"], found["semantic"]),
    }
    candidates = _with_context(connection, query, words, lexical, scores, found["semantic"], fits, pool)
    return replace(candidates, tier="vectors") if found["semantic"] else candidates


def _by_words(
    connection: IndexConnection, query: Query, nearest: Mapping[int, float], fits: Filter, pool: int
) -> Candidates:
    words = search_words(connection, query, fits, pool)
    best = sorted(words.lexical, key=words.lexical.__getitem__, reverse=True)[:pool]
    scores = {"lexical": _features.shares(words.lexical), "share": words.lexical, "pairs": words.pairs}
    return _with_context(connection, query, words, best, scores, nearest, fits, pool)


def _with_context(
    connection: IndexConnection,
    query: Query,
    words: Words,
    best: Iterable[int],
    scores: Mapping[str, Mapping[int, float]],
    cosines: Mapping[int, float],
    fits: Filter,
    pool: int,
) -> Candidates:
    """Return the candidates with those of the time that is asked for, and the turns before and after all of them."""
    dated = _fts.dated(connection, [(span.since, span.until) for span in query.spans], fits, pool)
    # Some may not exist any more, and a search engine of the user's own may return what does not fit.
    rows = _fts.rows_of(connection, {*best, *cosines, *dated}, fits)
    rows = {**_fts.beside(connection, rows.values(), fits), **rows}
    there = {name: {row: found[row] for row in found.keys() & rows.keys()} for name, found in scores.items()}
    kinds: dict[int, Kind] = {number: _features.kind_of(row) for number, row in rows.items()}
    at = {(row.session, row.place): number for number, row in rows.items() if row.session}
    return Candidates(query, words, there, rows, kinds, at, {row: cosines[row] for row in cosines.keys() & rows.keys()})


def _composed(
    found: Iterable[tuple[Record, _Ranked]], weights: tuple[float, float, float], settings: NoteSettings
) -> list[Match]:
    """Return matches ranked as crewAI does, by relevance, recency and importance. What is hardly relevant comes last."""
    semantic, recency, importance = weights
    now = _clock.now()
    found = list(found)
    gate = settings.relevance_gate * max((each.relevance for _, each in found), default=0.0)
    whole = semantic + recency + importance
    matches: list[tuple[bool, Match]] = []
    for record, each in found:
        newness = _ranking.decay(milliseconds(record.at or record.created_at), now, settings.recency_half_life_days)
        shares = {
            "semantic": each.relevance * semantic / whole,
            "recency": newness * recency / whole,
            "importance": record.importance * importance / whole,
        }
        match = _match(record, max(sum(shares.values()), _LEAST), shares, each.relevance)
        matches.append((each.relevance < gate, match))
    matches.sort(key=lambda each: (each[0], -each[1].score))
    return [match for _, match in matches]


def _match(record: Record, score: float, parts: Mapping[str, float], relevance: float) -> Match:
    shown = {name: part for name, part in parts.items() if part or name in ("lexical", "semantic")}
    reasons = tuple(sorted(shown, key=lambda name: -shown[name]))
    return Match(record, min(score, 1.0), reasons, MappingProxyType({**shown, "relevance": relevance}))
