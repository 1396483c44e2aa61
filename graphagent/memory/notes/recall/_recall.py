"""A question that a view is asked: it is checked and searched for, and what was found is told to who listens.

The operation of `NoteView` of the same name says what is given here and raised.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from graphagent._article import a
from graphagent.errors import NoteError
from graphagent.events import MemoryQueryCompleted, MemoryQueryFailed, MemoryQueryStarted
from graphagent.memory.notes import _visibility
from graphagent.memory.notes._settings import number, one_of, whole
from graphagent.memory.notes._types import DEPTHS

if TYPE_CHECKING:
    from graphagent.memory.notes._engine import Engine
    from graphagent.memory.notes._scopes import Bounds
    from graphagent.memory.notes._types import Depth, Match

_LONGEST = 10_000
"""How much of a question counts, in characters."""


async def recall(
    engine: Engine,
    bounds: Bounds,
    query: str,
    *,
    scope: str | None,
    categories: Sequence[str] | None,
    limit: int,
    depth: Depth | None,
    source: str | None,
    since: datetime | None,
    until: datetime | None,
    metadata_filter: Mapping[str, Any] | None,
    min_score: float,
    run_id: str,
) -> list[Match]:
    """Give the notes of a view that fit a question best, the best first."""
    if depth is not None and depth not in DEPTHS:
        raise ValueError(f"depth={depth!r} is not known; use {one_of(DEPTHS)}")
    whole("limit", limit)
    number("min_score", min_score)
    if not isinstance(query, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise NoteError(f"a question is a text, not {a(type(query).__name__)}")
    query = query[:_LONGEST].encode("utf-8", "replace").decode()
    fits = _visibility.filter_of(bounds, scope, categories, source, since, until, metadata_filter)

    began = time.perf_counter()
    engine.emit(MemoryQueryStarted(run_id, query, limit))
    try:
        found: list[Match] = []
        if fits is not None and limit and query.strip():
            found = await engine.recall(query, fits, limit, depth)
    except Exception as error:
        engine.emit_failure(MemoryQueryFailed(run_id, query, type(error).__name__), error)
        raise
    found = [each for each in found if each.score >= min_score and _visibility.sees(bounds, each.record, fits)]
    engine.emit(MemoryQueryCompleted(run_id, query, tuple(found), (time.perf_counter() - began) * 1000))
    return found
