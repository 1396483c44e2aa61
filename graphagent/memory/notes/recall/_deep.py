"""Deep recall: a model plans the searches, sees the notes that were found, and says which information is missing."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from graphagent import _clock
from graphagent.errors import ScopeError
from graphagent.memory._note_values import ROOT, is_within, milliseconds
from graphagent.memory.notes._scopes import child_of, lineage, outermost, path_of
from graphagent.memory.notes._validation import moment
from graphagent.memory.notes.enrich import _prompts
from graphagent.memory.notes.enrich._model import NoAnswerError
from graphagent.memory.notes.recall._search import search

if TYPE_CHECKING:
    from graphagent.memory._note_values import Filter, Match
    from graphagent.memory.notes._service import NoteService
    from graphagent.memory.notes._settings import NoteSettings
    from graphagent.memory.notes.enrich._model import ModelClient
    from graphagent.memory.notes.recall._request import RecallRequest

_PHRASES = 3
_LONGEST_PHRASE = 500
_SHOWN = 20
_FUSION, _LEAST = 60, 0.01


class _Found:
    """The matches so far, by the question itself and by phrases.

    The lists are fused by the ranks in them, since a score says how relevant a note is and not how well it answers: reciprocal rank
    fusion (Cormack, Clarke and Büttcher, SIGIR 2009), with the constant 60 of that paper. Each list counts as much as its most relevant
    note.
    """

    def __init__(self, matches: Sequence[Match], complexity: float = 0.0) -> None:
        self.complexity = complexity
        """How complex the question is, as a model said; from 0 to 1."""
        self._best: dict[str, Match] = {}
        self._ranks: dict[str, float] = {}
        self.add(matches)

    @property
    def matches(self) -> list[Match]:
        """Each record once, with its best score, in the order of the fused ranks."""
        return sorted(self._best.values(), key=lambda match: -self._ranks[match.record.id])

    def add(self, matches: Sequence[Match]) -> None:
        """Add the matches of one search, the best first."""
        confidence = max(_best_relevance(matches), _LEAST)
        for rank, match in enumerate(matches, 1):
            id_ = match.record.id
            self._ranks[id_] = self._ranks.get(id_, 0.0) + confidence / (_FUSION + rank)
            if id_ not in self._best or match.score > self._best[id_].score:
                self._best[id_] = match

    def is_enough(self, settings: NoteSettings) -> bool:
        """Return whether to search no further."""
        # Relevance, not the score, which is higher for notes that are merely new or important.
        confidence = _best_relevance(self.matches)
        if confidence >= settings.confidence_threshold_high:
            return True
        is_complex = self.complexity >= settings.complex_query_threshold
        return confidence >= settings.confidence_threshold_low and not (
            is_complex and confidence < settings.complex_query_threshold
        )


async def deep_recall(service: NoteService, model: ModelClient, request: RecallRequest) -> list[Match]:
    """Return the notes that fit a question best, with at most 1 + `exploration_budget` calls of the model.

    The matches of plain search for the question itself are always among the candidates. If the model fails, they are the result.
    Unless the depth is `deep`, the model is not asked about a short question, and only searches further if the result is weak.
    """
    settings, text, fits = service.settings, request.text, request.fits
    await service.repository.catch_up(fits.owner)
    counts = await service.repository.backend.read(lambda tables: tables.counts(fits))
    if not counts:
        return []
    scopes = {scope: count for scope, (count, _, _) in counts.items()}
    try:
        if request.depth == "deep" or len(text) >= settings.query_analysis_threshold:
            found, timely = await _analysed(service, model, request, scopes)
        else:
            found, timely = _Found(await _search(service, request, text, fits)), fits
    except NoAnswerError:
        return await _search(service, request, text, fits)
    gaps: list[str] = []
    for _ in range(settings.exploration_budget):
        if found.is_enough(settings):
            break
        try:
            gaps, more = await _explored(service, model, request, timely, found)
        except NoAnswerError:
            break
        if not more:
            break
    best = found.matches[: request.limit]
    return [replace(match, gaps=tuple(gaps)) for match in best] if gaps else best


async def _search(service: NoteService, request: RecallRequest, text: str, fits: Filter) -> list[Match]:
    return await search(service.repository, text, fits, request.limit, service.settings)


async def _analysed(
    service: NoteService, model: ModelClient, request: RecallRequest, scopes: dict[str, int]
) -> tuple[_Found, Filter]:
    """Search as a model's analysis of the question says. Return also the filter with the time that the question is about."""
    fits = request.fits
    messages = _prompts.analyse_messages(request.text, moment(_clock.now()), fits.scopes, scopes)
    analysis = await model.ask("query", messages, _prompts.form(_prompts.Analysis), attempts=1)
    timely = _timed(fits, analysis)
    suggested = _within(analysis.scopes, fits.scopes, scopes)
    found = await _searched(service, request, analysis, timely, suggested)
    if not found.matches and timely != fits:  # the model may be wrong about the time
        return await _searched(service, request, analysis, fits, suggested), fits
    return found, timely


async def _searched(
    service: NoteService,
    request: RecallRequest,
    analysis: _prompts.Analysis,
    timely: Filter,
    suggested: tuple[str, ...],
) -> _Found:
    """Search for the question, and for the phrases in the suggested scopes; in all scopes if none of them is found there."""
    found = _Found(await _search(service, request, request.text, timely), analysis.complexity or 0.0)
    phrases = _phrases(analysis.phrases)
    for scopes in dict.fromkeys((suggested, timely.scopes)):
        fits = replace(timely, scopes=scopes)
        matches = [await _search(service, request, phrase, fits) for phrase in phrases]
        if any(matches):
            for each in matches:
                found.add(each)
            break
    return found


async def _explored(
    service: NoteService, model: ModelClient, request: RecallRequest, fits: Filter, found: _Found
) -> tuple[list[str], bool]:
    """Search for the information that a model calls missing. Return the part that was not found, and whether any new match was found."""
    messages = _prompts.explore_messages(request.text, found.matches[:_SHOWN])
    answer = await model.ask("explore", messages, _prompts.form(_prompts.Gaps), attempts=1)
    before = {match.record.id for match in found.matches}
    gaps: list[str] = []
    for gap in answer.gaps[:_PHRASES]:
        matches: list[Match] = []
        for phrase in _phrases([gap.phrase]):
            matches = await _search(service, request, phrase, fits)
            found.add(matches)
        if _best_relevance(matches) < service.settings.confidence_threshold_low and gap.missing.strip():
            gaps.append(" ".join(gap.missing.split())[:_LONGEST_PHRASE])
    return gaps, any(match.record.id not in before for match in found.matches)


def _best_relevance(matches: Sequence[Match]) -> float:
    return max((match.parts["relevance"] for match in matches), default=0.0)


def _phrases(phrases: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(text for each in phrases if (text := each.strip()[:_LONGEST_PHRASE])))[:_PHRASES]


def _within(suggested: Sequence[str], bounds: tuple[str, ...], scopes: Collection[str]) -> tuple[str, ...]:
    """Return the suggested scopes as far as they are within the bounds; the bounds if none is.

    A scope without notes stands for the nearest scope above it that has some, unless that is as wide as the bounds.

    Args:
        suggested: The suggestions of a model, which may not be scopes, or may not exist.
        bounds: The scopes to search at most.
        scopes: The scopes in which notes to search are kept.
    """
    there = sorted(scopes) if suggested else []
    found: list[str] = []
    for each in suggested:
        try:
            path = path_of(each)
        except ScopeError:
            continue
        if not any(is_within(path, bound) for bound in bounds):
            found += [bound for bound in bounds if is_within(bound, path)]
            continue
        nearest = next((above for above in reversed(lineage(path)) if _has_notes(above, there)), ROOT)
        if nearest == path or any(child_of(nearest, bound) for bound in bounds):
            found.append(nearest)
    return outermost(found) or bounds


def _has_notes(path: str, scopes: Sequence[str]) -> bool:
    """Return whether one of some scopes, which are sorted, is a scope or below it."""
    return any(
        place < len(scopes) and is_within(scopes[place], path)
        for place in (bisect_left(scopes, path), bisect_left(scopes, path + "/"))
    )


def _timed(fits: Filter, analysis: _prompts.Analysis) -> Filter:
    """Return the filter limited to the time that the question is about. Times that are not valid are ignored."""
    since, until = _time(analysis.since, end=False), _time(analysis.until, end=True)
    if since is not None and until is not None and since > until:
        return fits
    first = max((each for each in (fits.since, since) if each is not None), default=None)
    last = min((each for each in (fits.until, until) if each is not None), default=None)
    return replace(fits, since=first, until=last)


def _time(text: str | None, *, end: bool) -> int | None:
    """Return a time in ISO 8601 in milliseconds; one without a zone is taken as UTC. A day ends with its last millisecond."""
    given = (text or "").strip()
    try:
        time = datetime.fromisoformat(given)
        if end and len(given) <= len("2024-01-01"):
            time += timedelta(days=1, milliseconds=-1)
        return milliseconds(time if time.tzinfo is not None else time.replace(tzinfo=UTC))
    except (ValueError, OverflowError):
        return None
