"""Notes as they are kept: all are checked before anything is done, all or none are committed, and who listens is told."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal

from graphagent._concurrency import turn
from graphagent.errors import HandlerError
from graphagent.events import MemorySaveCompleted, MemorySaveFailed, MemorySaveStarted
from graphagent.memory.notes import _visibility
from graphagent.memory.notes._types import Note
from graphagent.memory.notes.index._duplicates import kept_already

if TYPE_CHECKING:
    from graphagent.memory.notes._engine import Engine
    from graphagent.memory.notes._scopes import Bounds
    from graphagent.memory.notes._types import Record
    from graphagent.memory.notes.index._storage import Pending
    from graphagent.store import Change

Infer = Literal["later", "now", "never"]
"""When a model looks at what was kept."""


async def filled(
    notes: Iterable[str | Note],
    *,
    categories: Sequence[str] | None,
    importance: float | None,
    metadata: Mapping[str, Any] | None,
    source: str | None,
    private: bool,
    at: datetime | None,
) -> list[Note]:
    """Give notes with what is said for all of them, where they do not say it themselves."""
    found: list[Note] = []
    for number, each in enumerate([notes] if isinstance(notes, str) else notes, 1):
        await turn(number)
        note = each if isinstance(each, Note) else Note(each)
        found.append(
            replace(
                note,
                categories=categories if note.categories is None else note.categories,
                importance=importance if note.importance is None else note.importance,
                metadata=metadata if note.metadata is None else note.metadata,
                source=source if note.source is None else note.source,
                private=private or note.private,
                at=at if note.at is None else note.at,
            )
        )
    return found


async def keep(
    engine: Engine,
    bounds: Bounds,
    notes: Sequence[Note],
    *,
    scope: str | None,
    trust: str,
    run_id: str,
    infer: str,
    places: Sequence[Mapping[str, Any]] | None,
    beside: Sequence[Change],
) -> list[Record]:
    """Keep notes, all or none.

    Args:
        engine: What the views share.
        bounds: Of the view.
        notes: What is to be kept.
        scope: Of those that do not say theirs.
        trust: One of TRUST_LEVELS.
        run_id: The run that keeps them.
        infer: `later`, `now` or `never`.
        places: Of each note, where it stands in a conversation.
        beside: Changes of the store that are made in the same commit.

    Raises:
        ValueError: `infer` is none of these.
        NoteError: a note cannot be kept, and which.
        PermissionError: the view is read-only, or a scope is not within it.
        EmbedderError: their vectors could not be made.
        StoreError: they could not be kept.
        HandlerError: a handler of events raised. Told of what was kept, it is kept, and what is to be inferred will be.
    """
    bounds.writing()
    if infer not in ("now", "later", "never"):
        raise ValueError(f"infer={infer!r} is not known; use 'now', 'later' or 'never'")
    records = await _records(engine, bounds, notes, scope, trust, run_id, places)
    pending = (
        [engine.pending(bounds, each, scope, infer) for each in notes] if engine.infers(infer) else [None] * len(notes)
    )
    began = time.perf_counter()
    alone = records[0] if len(records) == 1 else None
    told = alone.content if alone is not None else f"{len(records)} notes"
    engine.emit(MemorySaveStarted(run_id, told, dict(alone.metadata) if alone is not None else {}))
    try:
        records, pending = await _saved(engine, bounds.owner, records, notes, pending, beside)
    except Exception as error:
        engine.emit_failure(MemorySaveFailed(run_id, told, type(error).__name__), error)
        raise
    try:
        engine.emit(MemorySaveCompleted(run_id, told, (time.perf_counter() - began) * 1000))
    except HandlerError:
        await engine.after_save(records, pending, infer)  # they are kept, whoever heard of it
        raise
    return await engine.after_save(records, pending, infer)


async def _saved(
    engine: Engine,
    owner: str,
    records: list[Record],
    notes: Sequence[Note],
    pending: Sequence[Pending | None],
    beside: Sequence[Change],
) -> tuple[list[Record], list[Pending | None]]:
    """Keep records, but those that are there already. Gives what is there of each, and what is to be inferred of it."""
    there = records
    if records and engine.settings.consolidation_threshold < 1:
        there = await kept_already(engine.book, records, notes)
    todos = [todo if old is new else None for new, old, todo in zip(records, there, pending, strict=True)]
    added = [(new, todo) for new, old, todo in zip(records, there, todos, strict=True) if old is new]
    if added or beside:
        await engine.book.add(owner, [new for new, _ in added], pending=[todo for _, todo in added], beside=beside)
    return there, todos


async def _records(
    engine: Engine,
    bounds: Bounds,
    notes: Sequence[Note],
    scope: str | None,
    trust: str,
    run_id: str,
    places: Sequence[Mapping[str, Any]] | None,
) -> list[Record]:
    nowhere: Mapping[str, Any] = {}
    known = places or [nowhere] * len(notes)
    ids: list[str] = []
    for number in range(1, len(notes) + 1):
        await turn(number)
        ids.append(engine.new_id(number))
    ids.sort()  # so that those of one moment keep their order
    found: list[Record] = []
    for number, (id_, note, place) in enumerate(zip(ids, notes, known, strict=True), 1):
        await turn(number)
        record = engine.record(
            bounds, note, id_=id_, scope=scope, trust=trust, run_id=run_id, number=number, places=place
        )
        _visibility.check_seen(bounds, record)
        found.append(record)
    return found
