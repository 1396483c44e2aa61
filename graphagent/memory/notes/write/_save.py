"""Saving notes: all are checked before anything is done, and all or none are committed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from graphagent import _clock
from graphagent._article import counted
from graphagent._concurrency import turn
from graphagent.errors import HandlerError, NoteError
from graphagent.events import MemorySaveCompleted, MemorySaveFailed, MemorySaveStarted
from graphagent.memory._note_values import Note, Record
from graphagent.memory.facts._types import TRUST_LEVELS
from graphagent.memory.notes import _validation
from graphagent.memory.notes._validation import moment, one_of
from graphagent.memory.notes.index._duplicates import without_duplicates
from graphagent.memory.notes.index._storage import SIMILAR, Pending
from graphagent.memory.notes.write._forget import sweep

if TYPE_CHECKING:
    from graphagent.memory.notes._service import NoteService
    from graphagent.memory.notes._visibility import Visibility
    from graphagent.store import Change

Infer = Literal["later", "now", "never"]
"""When a model infers the values left out of a note."""
INFER: tuple[Infer, ...] = ("now", "later", "never")
INFERRED = ("scope", "categories", "importance", "metadata")
"""The fields that a model infers if they were left out."""
_FOR_ALL = ("categories", "importance", "metadata", "source", "at")
"""The fields whose values can be given for several notes."""


@dataclass(frozen=True, slots=True)
class SaveRequest:
    """Notes to save, and how."""

    notes: Sequence[Note]
    scope: str | None = None
    """The scope of notes that have none of their own."""
    trust: str = ""
    """One of TRUST_LEVELS."""
    run_id: str = ""
    infer: Infer = "later"
    places: Sequence[Mapping[str, Any]] = ()
    """For each turn of a conversation, its fields that a Note lacks; empty for other notes."""
    also: Sequence[Change] = ()
    """Changes of the store to commit with the notes."""
    ids: Sequence[str] = ()
    """The ids of the notes; by default new ones."""


async def with_defaults(notes: Iterable[str | Note], given: Note) -> list[Note]:
    """Return notes with the values of a note for all of them, unless they have their own."""
    found: list[Note] = []
    values = None, given.categories, given.importance, given.metadata, given.source, given.private, given.at
    for number, each in enumerate([notes] if isinstance(notes, str) else notes, 1):
        await turn(number)
        if isinstance(each, Note):
            lacking = {name: getattr(given, name) for name in _FOR_ALL if getattr(each, name) is None}
            found.append(replace(each, private=given.private or each.private, **lacking))
        else:  # made at once, since `replace` takes several times as long
            found.append(Note(each, *values))
    return found


async def save(service: NoteService, visibility: Visibility, request: SaveRequest) -> list[Record]:
    """Save notes, all or none, and return them; instead of one that is stored already, that one.

    Raises:
        ValueError: `infer` is not known.
        NoteError: a note cannot be saved; the message says which.
        HandlerError: an event handler raised. If it was that of `MemorySaveCompleted`, the notes are saved nevertheless.
    """
    visibility.check_writable()
    await sweep(service, visibility)
    infer, run_id = request.infer, request.run_id
    if infer not in INFER:
        raise ValueError(f"infer={infer!r} is not known; use {one_of(INFER)}")
    records = await _records(service, visibility, request)
    began = _clock.ticks()
    alone = records[0] if len(records) == 1 else None
    text = alone.content if alone is not None else counted(len(records), "note")
    service.emit(MemorySaveStarted(run_id, text, dict(alone.metadata) if alone is not None else {}))
    try:
        records, is_pending = await _stored(service, visibility, request, records)
    except Exception as error:
        service.emit_failure(MemorySaveFailed(run_id, text, type(error).__name__), error)
        raise
    try:
        service.emit(MemorySaveCompleted(run_id, text, _clock.seconds_since(began) * 1000))
    except HandlerError:
        if is_pending:
            await _infer(service, records, infer)
        raise
    return await _infer(service, records, infer) if is_pending else records


async def _records(service: NoteService, visibility: Visibility, request: SaveRequest) -> list[Record]:
    """Return the records of the notes, checked."""
    ids = list(request.ids)
    for number in range(len(ids) + 1, len(request.notes) + 1):
        await turn(number)
        ids.append(_clock.new_id())
    ids.sort()  # ids made within a millisecond are not in order; lists are sorted by them
    found: list[Record] = []
    for number, (id_, note) in enumerate(zip(ids, request.notes, strict=True), 1):
        await turn(number)
        record = _record(service, visibility, request, note, number, id_)
        visibility.check_can_save(record)
        found.append(record)
    return found


def _record(
    service: NoteService, visibility: Visibility, request: SaveRequest, note: Note, number: int, id_: str
) -> Record:
    if request.trust not in TRUST_LEVELS:
        raise NoteError(f"trust={request.trust!r} is not known; use {one_of(TRUST_LEVELS)}")
    try:
        content = _validation.content(note.content)
    except NoteError as error:
        raise NoteError(f"note {number}: {error}") from None
    now, importance = moment(_clock.now()), note.importance
    return Record(
        id=id_,
        content=content,
        scope=visibility.target(note.scope if note.scope is not None else request.scope),
        categories=_validation.categories(note.categories),
        importance=service.settings.default_importance if importance is None else _validation.importance(importance),
        metadata=_validation.metadata(note.metadata or {}),
        created_at=now,
        updated_at=now,
        at=None if note.at is None else _validation.time(note.at),
        owner=visibility.owner,
        source=visibility.author(note.source),
        private=note.private,
        trust=service.trusted(request.trust),
        run_id=request.run_id,
        **(request.places[number - 1] if request.places else {}),
    )


async def _stored(
    service: NoteService, visibility: Visibility, request: SaveRequest, records: list[Record]
) -> tuple[list[Record], bool]:
    """Save new records and skip exact duplicates. Return the stored record for each, and whether a model has work to do."""
    pending = [_pending(service, visibility, request, note) for note in request.notes]
    stored = records
    if records and service.settings.consolidation_threshold < 1:

        async def same(owner: str, numbers: Sequence[int]) -> list[Record]:
            return [each for each in await service.repository.same(owner, numbers) if not visibility.has_expired(each)]

        stored = await without_duplicates(same, records, request.notes)
    added = [(new, todo) for new, old, todo in zip(records, stored, pending, strict=True) if old is new]
    todos = [todo for _, todo in added]
    if added or request.also:
        new_records = [new for new, _ in added]
        await service.repository.add(visibility.owner, new_records, pending=todos, also=request.also)
    return stored, any(todos)


def _pending(service: NoteService, visibility: Visibility, request: SaveRequest, note: Note) -> Pending | None:
    """Return the tasks of a model for a note after it is saved; None without tasks."""
    if service.inference is None or request.infer == "never":
        return None
    given = {"scope": note.scope if note.scope is not None else request.scope, "categories": note.categories,
             "importance": note.importance, "metadata": note.metadata}  # fmt: skip
    names = [name for name in INFERRED if given[name] is None]
    if service.settings.consolidation_threshold < 1 and service.settings.consolidation_limit:
        names.append(SIMILAR)
    return Pending(tuple(names), visibility.within) if names else None


async def _infer(service: NoteService, records: list[Record], infer: Infer) -> list[Record]:
    """Have the model infer omitted fields, now or later. Return the records as they are then."""
    assert service.inference is not None
    with service.naming_the_run():
        if infer == "now":
            return await service.inference.infer(records)
        service.inference.soon()
        return records
