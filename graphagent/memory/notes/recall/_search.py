"""Search without a model: candidates by words and by vectors, ranked, each with its relevance."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeVar

from graphagent import _clock
from graphagent.memory.notes._types import Match
from graphagent.memory.notes._validation import milliseconds
from graphagent.memory.notes.index import _fts
from graphagent.memory.notes.index._chunks import worded
from graphagent.memory.notes.recall import _ranking
from graphagent.memory.notes.recall._query import STOPWORDS, parse_query

if TYPE_CHECKING:
    from graphagent.memory.notes._settings import NoteSettings
    from graphagent.memory.notes._types import Record
    from graphagent.memory.notes.index._connection import IndexConnection
    from graphagent.memory.notes.index._filter import Filter
    from graphagent.memory.notes.index._fts import Row
    from graphagent.memory.notes.index._matrix import Matrix
    from graphagent.memory.notes.index._repository import NoteRepository
    from graphagent.memory.notes.recall._query import Query

T = TypeVar("T")

_POSTINGS = 5_000
"""If the words of a question occur in more notes than this, counted for each word, only the rarest words are searched for."""
_COMPOSED = 50
"""How many notes at least are ranked by recency and importance."""
_WHEN = ""
"""The time that a question names, among its words, none of which is empty."""
_LEAST = 0.01
"""The score of a note that was found only by the turns before and after it."""


@dataclass(frozen=True, slots=True)
class Candidates:
    """The notes that may answer a question, not ranked yet."""

    query: Query
    channels: Mapping[str, Mapping[int, float]]
    """The scores of rows by words (`lexical`), by vectors (`semantic`), and by the time that is asked for (`date`)."""
    rows: Mapping[int, Row]
    """The fields of these rows, and of the turns before and after them."""
    cosines: Mapping[int, float]
    """Of all these rows that have vectors."""
    weights: Mapping[str, float]
    """How much each word of the question says, by its stem."""


async def search(
    repository: NoteRepository, text: str, fits: Filter, limit: int, settings: NoteSettings
) -> list[Match]:
    """Return the notes that fit a question best, the best first.

    Raises:
        EmbedderError: the question could not be embedded.
        StoreError: the store cannot be read.
    """
    most = limit if settings.composite is None else max(_COMPOSED, 2 * limit)
    pool = max(_fts.POOL, most)

    def ranked(found: Candidates) -> tuple[Candidates, dict[int, dict[str, float]]]:
        stages = _ranking.stages(found.channels, found.rows, found.query, settings.ranking)
        best = _ranking.order(stages)[:most]
        return found, {row: {name: scores[row] for name, scores in stages.items() if row in scores} for row in best}

    found, parts = await _find(repository, text, fits, pool, ranked)
    stored = await repository.get_many(fits.owner, [found.rows[row].id for row in parts])
    # The filter decides here, about the records themselves: a note may have been changed since the index was read.
    records = {
        row: record for row in parts if (record := stored.get(found.rows[row].id)) is not None and fits.matches(record)
    }
    relevance = await _relevance(repository, records, found)
    if settings.composite is None:
        return [
            _match(record, max(relevance[row], _LEAST), parts[row], relevance[row]) for row, record in records.items()
        ]
    return _composed(records, relevance, settings.composite, settings)[:limit]


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
    """Find the candidates, and return what a function makes of them in the same worker thread."""
    query = parse_query(text, await repository.speakers(fits.owner))
    if repository.note_index is not None:
        told = await repository.note_index.search(query.text, fits, pool)
        return await repository.backend.read(
            lambda connection: use(_from_note_index(connection, query, told, fits, pool))
        )
    while True:
        matrix = await repository.matrix(fits.owner) if repository.embedder is not None else None
        if matrix is None or not len(matrix):
            return await repository.backend.read(lambda connection: use(_by_words(connection, query, {}, fits, pool)))
        [vector] = await repository.vectors.embedded([query.bare], matrix.dimensions)
        try:
            return await repository.backend.read(_by_both(query, matrix, vector, fits, pool, use))
        except _RebuiltError:
            repository.vectors.unload(fits.owner)


def _by_both(
    query: Query, matrix: Matrix, vector: Sequence[float], fits: Filter, pool: int, use: Callable[[Candidates], T]
) -> Callable[[IndexConnection], T]:
    """Return the function that searches by words and by vectors."""

    def find(connection: IndexConnection) -> T:
        if _fts.made(connection) != matrix.made:
            raise _RebuiltError
        if fits.is_whole:
            semantic = matrix.search(vector, pool, without=_fts.hidden(connection, fits.owner, fits.asker))
        else:
            semantic = matrix.search(vector, pool, among=_fts.fitting(connection, fits))
        found = _by_words(connection, query, semantic, fits, pool)
        others = matrix.cosines(vector, list(found.rows.keys() - semantic.keys()))
        return use(replace(found, cosines={**semantic, **others}))

    return find


def _from_note_index(
    connection: IndexConnection, query: Query, told: Mapping[str, Mapping[str, float]], fits: Filter, pool: int
) -> Candidates:
    """Return the candidates that a search engine of the user's own found."""
    rows = _fts.rows_named(connection, fits.owner, {id_ for scores in told.values() for id_ in scores})
    channels = {
        kind: {rows[id_]: score for id_, score in told.get(kind, {}).items() if id_ in rows}
        for kind in ("lexical", "semantic")
    }
    return _with_context(connection, query, channels, _weights(connection, query)[1], fits, pool)


def _by_words(
    connection: IndexConnection, query: Query, semantic: dict[int, float], fits: Filter, pool: int
) -> Candidates:
    words, weights = _weights(connection, query)
    channels = {"lexical": _fts.candidates(connection, words, fits, pool), "semantic": semantic}
    return _with_context(connection, query, channels, weights, fits, pool)


def _with_context(
    connection: IndexConnection,
    query: Query,
    channels: Mapping[str, Mapping[int, float]],
    weights: Mapping[str, float],
    fits: Filter,
    pool: int,
) -> Candidates:
    """Return the candidates with those of the time that is asked for, and the turns before and after them."""
    dated = _fts.dated(connection, [(span.since, span.until) for span in query.spans], fits, pool)
    channels = {**channels, "date": dict.fromkeys(dated, 1.0)}
    rows = _fts.rows_of(connection, {row for scores in channels.values() for row in scores}, fits)
    # Some may not exist any more, and a search engine of the user's own may return what does not fit.
    there = {kind: {row: score for row, score in scores.items() if row in rows} for kind, scores in channels.items()}
    rows = {**_fts.beside(connection, rows.values(), fits), **rows}
    return Candidates(query, there, rows, there["semantic"], weights)


def _weights(connection: IndexConnection, query: Query) -> tuple[list[str], dict[str, float]]:
    """Return the words to search for, and how much each word of the question says, by its stem."""
    stems = _fts.stems_of(connection, query.words)
    total = max(_fts.total(connection), 1)
    frequencies = _fts.frequencies(connection, set(stems.values()))
    silent = STOPWORDS | query.timed
    telling = {stem for word, stem in stems.items() if word.casefold() not in silent and " " not in word}
    # A word that is in no note says as much as one that is in one note: else few notes could never have much of a question.
    weights = {stem: _ranking.inverse_frequency(max(frequencies[stem], 1), total) for stem in telling}
    return _searchable(stems, frequencies), weights


def _searchable(stems: Mapping[str, str], frequencies: Mapping[str, int]) -> list[str]:
    """Return the words that occur, the rarest first, as long as they occur in few notes."""
    found: list[str] = []
    postings = 0
    for word in sorted(
        (word for word, stem in stems.items() if frequencies[stem]), key=lambda word: frequencies[stems[word]]
    ):
        postings += frequencies[stems[word]]
        if found and postings > _POSTINGS:
            break
        found.append(word)
    return found


async def _relevance(repository: NoteRepository, records: Mapping[int, Record], found: Candidates) -> dict[int, float]:
    """Return the relevance of each record: the share of the question that it has, or its cosine if that is higher."""
    query, weights = found.query, dict(found.weights)

    def read(connection: IndexConnection) -> tuple[dict[int, set[str]], set[str]]:
        texts = {row: "\n".join(worded(record)) for row, record in records.items()}
        split = _fts.split(connection, [*texts.values(), *query.timed])
        return {row: set(split[text]) for row, text in texts.items()}, {
            stem for word in query.timed for stem in split[word]
        }

    stems, named = await repository.backend.read(read)
    # A time that is asked for counts like a word. A note has it if it was said then, or if its text names it.
    if query.spans or query.months:
        weights[_WHEN] = max(weights.values(), default=1.0)
        dated = _ranking.dated(found.rows, query)
        for row in records:
            if row in dated or named <= stems[row]:
                stems[row].add(_WHEN)
    shares = {row: _ranking.share(each, weights) for row, each in stems.items()}
    return {row: min(1.0, max(share, found.cosines.get(row, 0.0))) for row, share in shares.items()}


def _composed(
    records: Mapping[int, Record],
    relevance: Mapping[int, float],
    weights: tuple[float, float, float],
    settings: NoteSettings,
) -> list[Match]:
    """Rank as crewAI does, by relevance, recency and importance. What is hardly relevant comes last."""
    semantic, recency, importance = weights
    now = _clock.now()
    gate = settings.relevance_gate * max(relevance.values(), default=0.0)
    whole = semantic + recency + importance
    found: list[tuple[bool, Match]] = []
    for row, record in records.items():
        newness = _ranking.decay(milliseconds(record.created_at), now, settings.recency_half_life_days)
        shares = {
            "semantic": relevance[row] * semantic / whole,
            "recency": newness * recency / whole,
            "importance": record.importance * importance / whole,
        }
        match = _match(record, max(sum(shares.values()), _LEAST), shares, relevance[row])
        found.append((relevance[row] < gate, match))
    found.sort(key=lambda each: (each[0], -each[1].score))
    return [match for _, match in found]


def _match(record: Record, score: float, parts: Mapping[str, float], relevance: float) -> Match:
    shown = {name: part for name, part in parts.items() if part or name in ("lexical", "semantic")}
    reasons = tuple(sorted(shown, key=lambda name: -shown[name]))
    return Match(record, min(score, 1.0), reasons, MappingProxyType({**shown, "relevance": relevance}))
