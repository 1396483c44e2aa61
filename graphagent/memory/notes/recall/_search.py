"""Search without a model: candidates by words and by vectors, ranked, each with its relevance."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeVar

from anyio import to_thread

from graphagent import _clock
from graphagent.memory._note_values import Match, milliseconds
from graphagent.memory.notes.index._matrix import numpy
from graphagent.memory.notes.index._tables import POOL
from graphagent.memory.notes.index._vectors import RebuiltError, deviation
from graphagent.memory.notes.recall import _features, _ranking
from graphagent.memory.notes.recall._engine import engine_scores
from graphagent.memory.notes.recall._lexical import search_words, weights_in
from graphagent.memory.notes.recall._query import parse_query, speakers_in

if TYPE_CHECKING:
    from graphagent.memory._note_values import Filter, Record
    from graphagent.memory.notes._settings import NoteSettings
    from graphagent.memory.notes.index._matrix import Floats
    from graphagent.memory.notes.index._repository import NoteRepository
    from graphagent.memory.notes.index._tables import NoteTables, Row
    from graphagent.memory.notes.index._vectors import NoteVectors
    from graphagent.memory.notes.recall._features import Kind
    from graphagent.memory.notes.recall._lexical import Words
    from graphagent.memory.notes.recall._query import Query
    from graphagent.memory.notes.recall._weights import Tier

T = TypeVar("T")
P = TypeVar("P")

_COMPOSED = 50
"""How many notes at least are ranked by recency and importance."""
_LATE = 100
"""How many of the best candidates are compared by the vectors of their words, which takes 1 ms for short notes."""
_WORDS = 64
"""The number of words of a question that are compared by their vectors: the most telling ones."""
_SHORT = 200
"""The length of a question up to which it is analysed on the event loop: in some tenths of a millisecond, in 2 ms if it is full of times."""
_DATED = 10_000
"""Among how many notes of the time that is asked for, the newest ones, those are looked for that answer the rest of the question."""
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
    dated: Mapping[int, float]
    """1 for each of these rows that is of the time that is asked for."""
    cosines: Mapping[int, float]
    """The cosines of the vectors of these rows, as far as they have one, and of the question."""
    tier: Tier = "words"
    """The parts of the search."""


async def search(
    repository: NoteRepository, text: str, fits: Filter, limit: int, settings: NoteSettings
) -> list[Match]:
    """Return the notes that fit a question best, the best first.

    Raises:
        NoteError: the search engine of the user's own failed, or returned something else than scores.
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

    best = await _find(repository, text, fits, max(POOL, most), ranked)
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
    """Return the notes that may answer a question."""
    return await _find(repository, text, fits, POOL, lambda found: found)


async def _find(repository: NoteRepository, text: str, fits: Filter, pool: int, use: Callable[[Candidates], T]) -> T:
    """Return the result of a function of the candidates, which is called in the worker thread in which they are found."""
    changes = await repository.catch_up(fits.owner)
    speakers = await repository.speakers(fits.owner, changes)
    there = await _analysed(speakers_in, text, speakers)
    if there:
        # Who has said nothing that fits must not change how the question is read.
        there = await repository.backend.read(lambda tables: tables.speaking(there, fits))
    query = await _analysed(parse_query, text, there)

    async def read(find: Callable[[_Search], Candidates]) -> T:
        return await repository.backend.read(lambda tables: use(find(_Search.of(tables, query, fits, pool))))

    if repository.note_index is not None:
        told = await engine_scores(repository.note_index, query.text, fits, pool)
        return await read(partial(_from_note_index, told=told))
    while True:
        vectors = await repository.vectors_of(fits.owner, changes) if repository.embedder is not None else None
        # Where nothing else is asked than who spoke and when, the nearest vectors would be so by chance.
        if vectors is None or vectors.is_empty or not query.bare:
            return await read(partial(_by_words, nearest={}))
        asked = await repository.vectors.embedded_question(query.bare, vectors.dimensions, words=vectors.has_words)
        tier: Tier = "contextual" if getattr(repository.embedder, "contextual", True) else "static"
        try:
            return await read(partial(_by_both, vectors=vectors, asked=asked, tier=tier))
        except RebuiltError:
            repository.vectors.unload(fits.owner)


async def _analysed(analyse: Callable[[str, P], T], text: str, given: P) -> T:
    """Return the analysis of a text, which a worker thread makes if it is long."""
    return await to_thread.run_sync(analyse, text, given) if len(text) > _SHORT else analyse(text, given)


@dataclass(frozen=True, slots=True)
class _Search:
    """A search in the index: of a question, in the notes that fit, for at least so many candidates by each means."""

    tables: NoteTables
    query: Query
    fits: Filter
    pool: int
    dated: Sequence[int]
    """The rows of the time that is asked for, the newest first."""

    @classmethod
    def of(cls, tables: NoteTables, query: Query, fits: Filter, pool: int) -> _Search:
        """Return the search, with the rows of the time."""
        spans = [(span.since, span.until) for span in query.spans]
        return cls(tables, query, fits, pool, _dated(tables, spans, fits, max(_DATED, pool)))


def _dated(tables: NoteTables, spans: Sequence[tuple[int, int]], fits: Filter, most: int) -> list[int]:
    """Return the rows that fit and were said in one of some stretches of time: of the first stretch the newest, then of the next.

    If none was, the result is the rows without a time that were saved then, for the reason in `_features.dated`.
    """
    found: list[int] = []
    for timed in (True, False):
        for first, last in spans:
            since = first if fits.since is None else max(first, fits.since)
            until = last if fits.until is None else min(last, fits.until)
            found += tables.latest(replace(fits, since=since, until=until), most - len(found), timed=timed)
        if found:
            break
    return found


def _by_both(search: _Search, vectors: NoteVectors, asked: tuple[Floats, Floats | None], tier: Tier) -> Candidates:
    """Return the candidates by words, by the vector of the whole question, and by those of its words if there are any.

    Raises:
        RebuiltError: the vectors belong to other tables.
    """
    (vector, words), tables, fits = asked, search.tables, search.fits
    stored = vectors.over(tables)
    nearest = stored.nearest(vector, search.pool, fits)
    of_time = stored.cosines(vector, search.dated) if search.dated else {}
    found = _by_words(search, {**dict(islice(of_time.items(), search.pool)), **nearest.cosines})
    cosines = {**found.cosines, **stored.cosines(vector, list(found.rows.keys() - found.cosines.keys()))}
    # The scale is that of the best ones, however many more are asked for.
    pool = list(islice(nearest.cosines, POOL))
    scores = {**found.scores, **_semantic(cosines, pool, nearest.deviation, found.words.most)}
    found = replace(found, cosines=cosines, scores=scores, tier="vectors")
    if words is None or not len(words):
        return found
    weights = weights_in(tables, search.query, found.words)
    if len(weights) != len(words):  # the embedder divides texts into words in a way of its own
        weights = [1.0] * len(words)
    chosen = sorted(range(len(words)), key=weights.__getitem__, reverse=True)[:_WORDS]
    counted = words[chosen] * numpy().float32([weights[place] for place in chosen])[:, None]
    late = stored.late(counted, _ranking.first(found, _LATE))
    tokens = dict(zip(late.rows, late.scores.tolist(), strict=True))
    around = _features.late_around(late, found.rows, found.at)
    of_words = {"tokens": _features.scaled(tokens, tokens), "tokens_around": _features.scaled(around, around)}
    return replace(found, scores={**scores, **of_words}, tier=tier)


def _from_note_index(search: _Search, told: Mapping[str, Mapping[str, float]]) -> Candidates:
    """Return the candidates that a search engine of the user's own found."""
    owner, ids = search.fits.owner, {id_ for scores in told.values() for id_ in scores}
    rows = search.tables.rows_named(owner, ids)
    # Notes that do not fit must not count either, since scores are relative to the highest one.
    fitting = search.tables.rows_of(rows.values(), search.fits)
    found = {
        kind: {rows[id_]: score for id_, score in told.get(kind, {}).items() if rows.get(id_) in fitting}
        for kind in ("lexical", "semantic")
    }
    lexical = _features.shares(found["lexical"])
    words = search_words(search.tables, search.query, search.fits, search.pool, search.dated)
    # The share of the question is unknown for scores of another engine, so in the ranking its best score counts as the whole question.
    scores = {
        "lexical": lexical,
        "share": lexical,
        "pairs": words.pairs,
        **_semantic(found["semantic"], found["semantic"], deviation(found["semantic"].values()), words.most),
    }
    candidates = _with_context(search, words, lexical, scores, found["semantic"])
    return replace(candidates, tier="vectors") if found["semantic"] else candidates


def _semantic(
    cosines: Mapping[int, float], pool: Iterable[int], deviation: float, most: float
) -> dict[str, dict[int, float]]:
    """Return the features of the cosines of vectors, of which those of the pool are the highest."""
    pool = list(pool)
    standing = _features.standing(cosines, pool, deviation)
    return {
        "semantic": _features.scaled(cosines, pool),
        "standing": standing,
        "wordless": _features.wordless(standing, most),
    }


def _by_words(search: _Search, nearest: Mapping[int, float]) -> Candidates:
    words = search_words(search.tables, search.query, search.fits, search.pool, search.dated)
    best = sorted(words.lexical, key=words.lexical.__getitem__, reverse=True)
    dated = set(search.dated)
    of_time = [row for row in best if row in dated][: search.pool] if dated else []
    scores = {"lexical": _features.shares(words.lexical), "share": words.lexical, "pairs": words.pairs}
    return _with_context(search, words, [*best[: search.pool], *of_time], scores, nearest)


def _with_context(
    search: _Search,
    words: Words,
    best: Iterable[int],
    scores: Mapping[str, Mapping[int, float]],
    cosines: Mapping[int, float],
) -> Candidates:
    """Return the candidates with the newest of the time that is asked for, and the turns before and after all of them."""
    tables, query, fits = search.tables, search.query, search.fits
    # Some may not exist any more, and a search engine of the user's own may return notes that do not fit.
    rows = tables.rows_of({*best, *cosines, *search.dated[: search.pool]}, fits)
    rows = {**tables.beside(rows.values(), fits), **rows}
    there = {name: {row: found[row] for row in found.keys() & rows.keys()} for name, found in scores.items()}
    return Candidates(
        query,
        words,
        there,
        rows,
        kinds={number: _features.kind_of(row) for number, row in rows.items()},
        at={(row.session, row.place): number for number, row in rows.items() if row.session},
        dated=_features.dated(rows, query),
        cosines={row: cosines[row] for row in cosines.keys() & rows.keys()},
    )


def _composed(
    found: Iterable[tuple[Record, _Ranked]], weights: tuple[float, float, float], settings: NoteSettings
) -> list[Match]:
    """Return matches ranked as crewAI does, by relevance, recency and importance. Hardly relevant notes come last."""
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
    reasons = tuple(sorted((name for name in shown if shown[name] > 0), key=lambda name: -shown[name]))
    if not reasons:  # the last match: the shares of the others are measured from it
        reasons = ("semantic",) if "semantic" in parts else ("lexical",)
        shown.setdefault(reasons[0], 0.0)
    return Match(record, min(score, 1.0), reasons, MappingProxyType({**shown, "relevance": relevance}))
