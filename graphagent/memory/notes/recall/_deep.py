"""Deep recall: a model says what to search for and where, sees what was found, and says what is missing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from graphagent import _clock
from graphagent.errors import ScopeError
from graphagent.memory.notes._scopes import is_within, outermost, path_of
from graphagent.memory.notes.enrich import _prompts
from graphagent.memory.notes.enrich._model import NoAnswerError
from graphagent.memory.notes.index import _fts, _storage
from graphagent.memory.notes.index._storage import moment
from graphagent.memory.notes.recall._search import search

if TYPE_CHECKING:
    from graphagent.memory.notes._settings import Settings
    from graphagent.memory.notes._types import Match
    from graphagent.memory.notes.enrich._model import Asker
    from graphagent.memory.notes.index._filter import Filter
    from graphagent.memory.notes.index._repository import Book

_PHRASES = 3
_LONGEST_PHRASE = 500
_SHOWN = 20


@dataclass(slots=True)
class _Found:
    """What was found so far."""

    limit: int
    matches: list[Match]
    """The best first."""
    complexity: float = 0.0

    @property
    def confidence(self) -> float:
        """The relevance of the best; it does not grow with what is merely new or important."""
        return _relevance(self.matches)

    def add(self, matches: Iterable[Match]) -> None:
        """Take in more, each record once, with its best score."""
        best = {match.record.id: match for match in self.matches}
        for match in matches:
            there = best.get(match.record.id)
            if there is None or match.score > there.score:
                best[match.record.id] = match
        self.matches = sorted(best.values(), key=lambda match: -match.score)

    def is_enough(self, settings: Settings) -> bool:
        """Tell whether to look no further."""
        if self.confidence >= settings.confidence_threshold_high:
            return True
        unsure = self.confidence < settings.confidence_threshold_low
        return not unsure and not (
            self.complexity >= settings.complex_query_threshold and self.confidence < settings.complex_query_threshold
        )


async def recall(
    book: Book, asker: Asker, settings: Settings, query: str, fits: Filter, limit: int, *, deep: bool
) -> list[Match]:
    """Give the notes that fit a question best; with at most 1 + `exploration_budget` calls of the model.

    What the question itself finds, everywhere in what fits, is always among what is found. A model that gives nothing changes
    nothing.

    Raises:
        EmbedderError: the question could not be embedded.
        StoreError: the store cannot be read.
    """
    await book.catch_up(fits.owner)
    counts = await book.host.read(lambda connection: _fts.counts(connection, fits))
    if not counts:
        return []
    scopes = {scope: count for scope, (count, _, _) in counts.items()}
    try:
        if deep or len(query) >= settings.query_analysis_threshold:
            found, timely = await _analysed(book, asker, settings, query, fits, limit, scopes)
        else:
            found, timely = _Found(limit, await search(book, query, fits, limit, settings)), fits
    except NoAnswerError:
        return await search(book, query, fits, limit, settings)
    gaps: list[str] = []
    for _ in range(settings.exploration_budget):
        if found.is_enough(settings):
            break
        try:
            gaps, more = await _explored(book, asker, settings, query, timely, found)
        except NoAnswerError:
            break
        if not more:
            break
    best = found.matches[:limit]
    return [replace(match, gaps=tuple(gaps)) for match in best] if gaps else best


async def _analysed(
    book: Book, asker: Asker, settings: Settings, query: str, fits: Filter, limit: int, scopes: dict[str, int]
) -> tuple[_Found, Filter]:
    """Search for what a model says that a question asks for; also give what fits by time."""
    messages = _prompts.analyse_messages(query, moment(_clock.now()), fits.scopes, scopes)
    analysis = await asker.ask("query", messages, _prompts.form(_prompts.Analysis), attempts=1)
    timely = _timed(fits, analysis)
    narrow = replace(timely, scopes=_within(analysis.scopes, fits.scopes))
    found = await _searched(book, settings, query, analysis, timely, narrow, limit)
    if not found.matches and timely != fits:
        timely, narrow = fits, replace(fits, scopes=narrow.scopes)
        found = await _searched(book, settings, query, analysis, timely, narrow, limit)
    return found, timely


async def _searched(
    book: Book,
    settings: Settings,
    query: str,
    analysis: _prompts.Analysis,
    timely: Filter,
    narrow: Filter,
    limit: int,
) -> _Found:
    found = _Found(limit, await search(book, query, timely, limit, settings), analysis.complexity or 0.0)
    for phrase in _phrases(analysis.phrases):
        found.add(await search(book, phrase, narrow, limit, settings))
    return found


async def _explored(
    book: Book, asker: Asker, settings: Settings, query: str, fits: Filter, found: _Found
) -> tuple[list[str], bool]:
    """Search for what a model says is missing. Gives what of it was not found, and whether anything new was."""
    messages = _prompts.explore_messages(query, found.matches[:_SHOWN])
    answer = await asker.ask("explore", messages, _prompts.form(_prompts.Gaps), attempts=1)
    before = {match.record.id for match in found.matches}
    gaps: list[str] = []
    for gap in answer.gaps[:_PHRASES]:
        matches: list[Match] = []
        for phrase in _phrases([gap.phrase]):
            matches = await search(book, phrase, fits, found.limit, settings)
            found.add(matches)
        if _relevance(matches) < settings.confidence_threshold_low and gap.missing.strip():
            gaps.append(" ".join(gap.missing.split())[:_LONGEST_PHRASE])
    return gaps, any(match.record.id not in before for match in found.matches)


def _relevance(matches: Sequence[Match]) -> float:
    return max((match.parts["relevance"] for match in matches), default=0.0)


def _phrases(phrases: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(text for each in phrases if (text := each.strip()[:_LONGEST_PHRASE])))[:_PHRASES]


def _within(suggested: Iterable[str], bounds: Sequence[str]) -> tuple[str, ...]:
    """Give what of suggested scopes is within the bounds; the bounds where that is nothing."""
    found: list[str] = []
    for each in suggested:
        try:
            path = path_of(each)
        except ScopeError:
            continue
        if any(is_within(path, bound) for bound in bounds):
            found.append(path)
        else:
            found += [bound for bound in bounds if is_within(bound, path)]
    return outermost(found) or tuple(bounds)


def _timed(fits: Filter, analysis: _prompts.Analysis) -> Filter:
    """Give what fits within the time that a question asks about too; times that are none count as not given."""
    since, until = _time(analysis.since, end=False), _time(analysis.until, end=True)
    if since is not None and until is not None and since > until:
        return fits
    first = max((each for each in (fits.since, since) if each is not None), default=None)
    last = min((each for each in (fits.until, until) if each is not None), default=None)
    return replace(fits, since=first, until=last)


def _time(text: str | None, *, end: bool) -> int | None:
    """Read a time in ISO 8601, in milliseconds; one without a zone is UTC, and a day ends with its last moment."""
    given = (text or "").strip()
    try:
        time = datetime.fromisoformat(given)
        if end and len(given) <= len("2024-01-01"):
            time += timedelta(days=1, milliseconds=-1)
        return _storage.milliseconds(time if time.tzinfo is not None else time.replace(tzinfo=UTC))
    except (ValueError, OverflowError):
        return None
