"""Plain recall, without a model: candidates by words and by vectors, ranked, and told what each is worth."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeVar

from graphagent import _clock
from graphagent._concurrency import turn
from graphagent.memory.notes._types import Match
from graphagent.memory.notes.index import _fts, _storage
from graphagent.memory.notes.index._chunks import worded
from graphagent.memory.notes.recall import _ranking
from graphagent.memory.notes.recall._query import STOPWORDS
from graphagent.memory.notes.recall._query import query as asked

if TYPE_CHECKING:
    from graphagent.memory.notes._settings import Settings
    from graphagent.memory.notes._types import Record
    from graphagent.memory.notes.index._backend import Connection
    from graphagent.memory.notes.index._filter import Filter
    from graphagent.memory.notes.index._fts import Row
    from graphagent.memory.notes.index._matrix import Matrix
    from graphagent.memory.notes.index._repository import Book
    from graphagent.memory.notes.recall._query import Query

T = TypeVar("T")

_POSTINGS = 5_000
"""In how many notes the words that are searched for are, together: beyond that, only the rarest of them are."""
_COMPOSED = 50
"""How many notes are ranked by recency and importance, at least."""
_WHEN = ""
"""Stands among the words of a question, none of which is empty, for the time that it names."""
_LEAST = 0.01
"""The score of what is found only by what stands around it."""


@dataclass(frozen=True, slots=True)
class Candidates:
    """What may be the answer to a question, not in order yet."""

    query: Query
    channels: Mapping[str, Mapping[int, float]]
    """The scores of rows by words (`lexical`) and by vectors (`semantic`), and which were said when is asked for (`date`)."""
    rows: Mapping[int, Row]
    """What is known of them, and of the turns beside them."""
    cosines: Mapping[int, float]
    """Of all of these rows that have vectors."""
    weights: Mapping[str, float]
    """What each word of the question tells, as it is spelled in the index."""


async def search(book: Book, text: str, fits: Filter, limit: int, settings: Settings) -> list[Match]:
    """Give the notes that fit a question best, the best first.

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

    found, parts = await _found(book, text, fits, pool, ranked)
    there: dict[int, Record] = {}
    for number, row in enumerate(parts, 1):
        await turn(number)
        record = await book.get(fits.owner, found.rows[row].id)
        if record is not None:
            there[row] = record
    worth = await _worth(book, there, found)
    if settings.composite is None:
        return [_match(record, max(worth[row], _LEAST), parts[row], worth[row]) for row, record in there.items()]
    return _composed(there, worth, settings)[:limit]


async def candidates(book: Book, text: str, fits: Filter) -> Candidates:
    """Give what may be the answer to a question.

    Raises:
        EmbedderError: the question could not be embedded.
        StoreError: the store cannot be read.
    """
    return await _found(book, text, fits, _fts.POOL, lambda found: found)


async def _found(book: Book, text: str, fits: Filter, pool: int, use: Callable[[Candidates], T]) -> T:
    """Find the candidates, and give what a function makes of them in the same worker thread."""
    question = asked(text, await book.speakers(fits.owner))
    if book.index is not None:
        told = await book.index.search(question.text, fits, pool)
        return await book.host.read(lambda connection: use(_told(connection, question, told, fits, pool)))
    while True:
        matrix = await book.matrix(fits.owner) if book.embedder is not None else None
        if matrix is None or not len(matrix):
            return await book.host.read(lambda connection: use(_gathered(connection, question, {}, fits, pool)))
        [vector] = await book.embedded([question.bare], matrix.dimensions)
        try:
            return await book.host.read(_by_both(question, matrix, vector, fits, pool, use))
        except _RenumberedError:
            book.renumbered(fits.owner)


class _RenumberedError(Exception):
    """The tables were made anew since the vectors were read, and the rows have other numbers."""


def _by_both(
    question: Query, matrix: Matrix, vector: Sequence[float], fits: Filter, pool: int, use: Callable[[Candidates], T]
) -> Callable[[Connection], T]:
    """Give what finds by words and by vectors."""

    def find(connection: Connection) -> T:
        if _fts.made(connection) != matrix.made:
            raise _RenumberedError
        semantic = _near(connection, matrix, vector, fits, pool)
        found = _gathered(connection, question, semantic, fits, pool)
        others = matrix.cosines(vector, list(found.rows.keys() - semantic.keys()))
        return use(replace(found, cosines={**semantic, **others}))

    return find


def _near(connection: Connection, matrix: Matrix, vector: Sequence[float], fits: Filter, pool: int) -> dict[int, float]:
    if fits.is_whole:
        return matrix.search(vector, pool, without=_fts.hidden(connection, fits.owner, fits.asker))
    return matrix.search(vector, pool, among=_fts.fitting(connection, fits))


def _told(
    connection: Connection, question: Query, told: Mapping[str, Mapping[str, float]], fits: Filter, pool: int
) -> Candidates:
    """Give what another search engine found, without what does not fit."""
    rows = _fts.rows_named(connection, fits.owner, {id_ for scores in told.values() for id_ in scores})
    fitting = _allowed(connection, rows.values(), fits)
    channels = {
        kind: {rows[id_]: score for id_, score in told.get(kind, {}).items() if rows.get(id_) in fitting}
        for kind in ("lexical", "semantic")
    }
    return _with_beside(connection, question, channels, _weights(connection, question)[1], fits, pool)


def _weights(connection: Connection, question: Query) -> tuple[list[str], dict[str, float]]:
    """Give the words to search for, and what each word of the question tells, as it is spelled in the index."""
    stems = _fts.stems_of(connection, question.words)
    total = max(_fts.total(connection), 1)
    frequencies = _fts.frequencies(connection, set(stems.values()))
    silent = STOPWORDS | question.timed
    telling = {stem for word, stem in stems.items() if word.casefold() not in silent and " " not in word}
    # A word that is in no note tells as much as one that is in one: else few notes could never have much of a question.
    weights = {stem: _ranking.inverse_frequency(max(frequencies[stem], 1), total) for stem in telling}
    return _telling(stems, frequencies), weights


def _gathered(
    connection: Connection, question: Query, semantic: dict[int, float], fits: Filter, pool: int
) -> Candidates:
    words, weights = _weights(connection, question)
    channels = {"lexical": _fts.candidates(connection, words, fits, pool), "semantic": semantic}
    return _with_beside(connection, question, channels, weights, fits, pool)


def _with_beside(
    connection: Connection,
    question: Query,
    channels: Mapping[str, Mapping[int, float]],
    weights: Mapping[str, float],
    fits: Filter,
    pool: int,
) -> Candidates:
    dated = _fts.dated(connection, [(span.since, span.until) for span in question.spans], fits, pool)
    channels = {**channels, "date": dict.fromkeys(dated, 1.0)}
    rows = _fts.rows_of(connection, {row for scores in channels.values() for row in scores})
    # Some may be gone since they were found.
    there = {kind: {row: score for row, score in scores.items() if row in rows} for kind, scores in channels.items()}
    beside = _fts.beside(connection, rows.values(), fits.owner)
    allowed = _allowed(connection, beside.keys() - rows.keys(), fits)
    rows |= {row: each for row, each in beside.items() if row in allowed}
    return Candidates(question, there, rows, there["semantic"], weights)


def _allowed(connection: Connection, rows: Collection[int], fits: Filter) -> set[int]:
    """Give those of the rows that fit."""
    return set(_fts.fitting(connection, fits, among=list(rows))) if rows else set()


def _telling(stems: Mapping[str, str], frequencies: Mapping[str, int]) -> list[str]:
    """Give the words that are searched for: those that are there, the rarest first, as long as they are in few notes."""
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


async def _worth(book: Book, records: Mapping[int, Record], found: Candidates) -> dict[int, float]:
    """Give what each is worth by itself: the share of what was asked for that it has, or the cosine, whichever is more."""
    query, weights = found.query, dict(found.weights)

    def read(connection: Connection) -> tuple[dict[int, set[str]], set[str]]:
        texts = {row: "\n".join(worded(record)) for row, record in records.items()}
        split = _fts.split(connection, [*texts.values(), *query.timed])
        return {row: set(split[text]) for row, text in texts.items()}, {
            stem for word in query.timed for stem in split[word]
        }

    stems, named = await book.host.read(read)
    if query.spans or query.months:  # when it was is asked for, as by a word; a note may have been said then, or say so
        weights[_WHEN] = max(weights.values(), default=1.0)
        for row in records:
            if named <= stems[row] or _ranking.is_dated(found.rows[row], query):
                stems[row].add(_WHEN)
    shares = {row: _ranking.share(each, weights) for row, each in stems.items()}
    return {row: min(1.0, max(share, found.cosines.get(row, 0.0))) for row, share in shares.items()}


def _composed(records: Mapping[int, Record], worth: Mapping[int, float], settings: Settings) -> list[Match]:
    """Rank as crewAI does, by relevance, recency and importance, behind a gate: what is hardly relevant comes last."""
    weights = settings.composite
    assert weights is not None
    now = _clock.now()
    gate = settings.relevance_gate * max(worth.values(), default=0.0)
    whole = weights.semantic + weights.recency + weights.importance
    found: list[tuple[bool, Match]] = []
    for row, record in records.items():
        recency = _ranking.decay(_storage.milliseconds(record.created_at), now, settings.recency_half_life_days)
        shares = {
            "semantic": worth[row] * weights.semantic / whole,
            "recency": recency * weights.recency / whole,
            "importance": record.importance * weights.importance / whole,
        }
        found.append((worth[row] < gate, _match(record, max(sum(shares.values()), _LEAST), shares, worth[row])))
    found.sort(key=lambda each: (each[0], -each[1].score))
    return [match for _, match in found]


def _match(record: Record, score: float, parts: Mapping[str, float], worth: float) -> Match:
    told = {name: part for name, part in parts.items() if part or name in ("lexical", "semantic")}
    reasons = tuple(sorted(told, key=lambda name: -told[name]))
    return Match(record, min(score, 1.0), reasons, MappingProxyType({**told, "relevance": worth}))
