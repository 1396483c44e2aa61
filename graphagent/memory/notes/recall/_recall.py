"""Recall: a question of a view, answered by plain or deep search, and ordered by a reranker if there is one."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from graphagent import _clock
from graphagent.events import MemoryQueryCompleted, MemoryQueryFailed, MemoryQueryStarted
from graphagent.memory.notes.index._tables import POOL
from graphagent.memory.notes.recall._search import search

if TYPE_CHECKING:
    from graphagent.memory._note_values import Match
    from graphagent.memory.notes._service import NoteService
    from graphagent.memory.notes.recall._request import RecallRequest


async def recall(service: NoteService, request: RecallRequest) -> list[Match]:
    """Return the notes that fit a question best, the best first, and emit the events of that."""
    text, run_id = request.text, request.run_id
    began = _clock.ticks()
    service.emit(MemoryQueryStarted(run_id, text, request.limit))
    try:
        with service.naming_the_run():
            found = await _found(service, request)
    except Exception as error:
        service.emit_failure(MemoryQueryFailed(run_id, text, type(error).__name__), error)
        raise
    service.has_returned(match.record.trust for match in found)
    service.emit(MemoryQueryCompleted(run_id, text, tuple(found), _clock.seconds_since(began) * 1000))
    return found


async def _found(service: NoteService, request: RecallRequest) -> list[Match]:
    if not (request.fits.scopes and request.limit and request.text.strip()):
        return []
    shown = service.settings.rerank_limit if service.reranker is not None else 0
    # The rank is not the score, so notes with too low a score must leave room for others.
    most = max(request.limit, shown, POOL if request.min_score > 0 else 0)
    found = await _searched(service, replace(request, limit=most))
    fitting = [match for match in found if match.score >= request.min_score]
    if service.reranker is None or not shown:
        return fitting[: request.limit]
    from graphagent.memory.notes.recall._rerank import reranked

    best = await reranked(service.reranker, request.text, fitting[:shown])
    return [*best, *fitting[shown:]][: request.limit]


async def _searched(service: NoteService, request: RecallRequest) -> list[Match]:
    if service.inference is None or request.depth == "shallow":
        return await search(service.repository, request.text, request.fits, request.limit, service.settings)
    from graphagent.memory.notes.recall._deep import deep_recall

    return await deep_recall(service, service.inference.model, request)
