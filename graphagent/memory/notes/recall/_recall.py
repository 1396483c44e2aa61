"""Recall: a question of a view, answered by plain or deep search."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from graphagent._article import a
from graphagent.errors import NoteError
from graphagent.events import MemoryQueryCompleted, MemoryQueryFailed, MemoryQueryStarted
from graphagent.memory.notes._types import DEPTHS
from graphagent.memory.notes._validation import number, one_of, whole
from graphagent.memory.notes.recall._search import search

if TYPE_CHECKING:
    from graphagent.memory.notes._service import NoteService
    from graphagent.memory.notes._types import Depth, Match
    from graphagent.memory.notes.index._filter import Filter

_LONGEST = 10_000
"""How many characters of a question count."""


@dataclass(frozen=True, slots=True)
class RecallRequest:
    """A question, and which notes may answer it.

    Raises:
        ValueError: the depth is not known, or the limit is below 0.
        TypeError: the limit is not a whole number, or the score not a number.
        NoteError: the text is not a text.
    """

    text: str
    fits: Filter
    limit: int
    depth: Depth | None
    min_score: float
    run_id: str

    def __post_init__(self) -> None:
        if self.depth is not None and self.depth not in DEPTHS:
            raise ValueError(f"depth={self.depth!r} is not known; use {one_of(DEPTHS)}")
        whole("limit", self.limit)
        number("min_score", self.min_score)
        if not isinstance(self.text, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise NoteError(f"a question is a text, not {a(type(self.text).__name__)}")
        object.__setattr__(self, "text", self.text[:_LONGEST].encode("utf-8", "replace").decode())


async def recall(service: NoteService, request: RecallRequest) -> list[Match]:
    """Return the notes that fit a question best, the best first, and emit the events of that.

    Raises:
        EmbedderError: the question could not be embedded.
        StoreError: the store cannot be read.
    """
    text, run_id = request.text, request.run_id
    began = time.perf_counter()
    service.emit(MemoryQueryStarted(run_id, text, request.limit))
    try:
        with service.naming_the_run():
            found = await _found(service, request)
    except Exception as error:
        service.emit_failure(MemoryQueryFailed(run_id, text, type(error).__name__), error)
        raise
    service.has_returned(match.record.trust for match in found)
    found = [match for match in found if match.score >= request.min_score]
    service.emit(MemoryQueryCompleted(run_id, text, tuple(found), (time.perf_counter() - began) * 1000))
    return found


async def _found(service: NoteService, request: RecallRequest) -> list[Match]:
    text, fits, limit = request.text, request.fits, request.limit
    if not (fits.scopes and limit and text.strip()):
        return []
    if service.inference is None or request.depth == "shallow":
        return await search(service.repository, text, fits, limit, service.settings)
    from graphagent.memory.notes.recall._deep import deep_recall

    model, deep = service.inference.model, request.depth == "deep"
    return await deep_recall(service.repository, model, service.settings, text, fits, limit, deep=deep)
