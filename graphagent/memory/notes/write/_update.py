"""Changing notes, and undoing changes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from graphagent import _clock
from graphagent.errors import ConflictError, NoteError, NoteNotFoundError, NotePermissionError
from graphagent.memory.notes import _validation
from graphagent.memory.notes._validation import moment
from graphagent.memory.notes.index import _storage
from graphagent.memory.notes.index._embeddings import ATTEMPTS

if TYPE_CHECKING:
    from graphagent.memory._note_values import Filter, FormerNote, Record
    from graphagent.memory.notes._service import NoteService
    from graphagent.memory.notes._visibility import Visibility
    from graphagent.memory.notes.index._repository import NoteRepository

_UNDONE = "undone"
_TEXTS = frozenset(("content", "categories", "metadata"))
"""The fields of a note that contain text."""


async def update(
    service: NoteService, visibility: Visibility, id_: str, changes: Mapping[str, Any], version: int | None = None
) -> Record:
    """Change the given fields of a note, whose values are already checked. If nothing changes, no new version is saved.

    Raises:
        NoteError: the note cannot be saved so.
        ConflictError: the note has another version than `version`, or others changed it again and again.
    """
    id_, visible, repository = _validation.note_id(id_), visibility.filter(), service.repository
    attempts = ATTEMPTS
    while True:
        record = await repository.get(visibility.owner, id_)
        if record is None or not visible.matches(record):
            raise NoteNotFoundError(id_)
        if version is not None and version != record.version:
            raise ConflictError(_storage.note_key(record.owner, id_), version, record.version)
        trust = service.trusted(record.trust) if _TEXTS & changes.keys() else record.trust
        changed = replace(record, **changes, trust=trust, updated_at=moment(_clock.now()))
        visibility.check_can_save(changed)
        # While a model may still change the note, even the same values are a new version, which it leaves as it is.
        if not changes or (
            _is_same(changed, record) and await repository.store.get(_storage.pending_key(record.owner, id_)) is None
        ):
            return record
        try:
            return await repository.replace(visibility.owner, record, changed, "updated")
        except ConflictError:
            attempts -= 1
            if not attempts:
                raise


async def undo(repository: NoteRepository, visible: Filter, id_: str) -> Record:
    """Restore a note as it was before its last change that was not undone, or before it was consolidated.

    Raises:
        NoteError: the note has no change to undo.
        ConflictError: others changed it again and again.
    """
    id_, owner = _validation.note_id(id_), visible.owner
    attempts = ATTEMPTS
    while True:
        now = await repository.get(owner, id_)
        past = await repository.history(owner, id_)
        last = now if now is not None else past[0].record if past else None
        if last is None or not visible.matches(last):
            raise NoteNotFoundError(id_)
        try:
            if now is None:
                return await repository.restore(owner, replace(last, updated_at=moment(_clock.now())))
            before = replace(_before(visible, now, past), updated_at=moment(_clock.now()))
            return await repository.replace(owner, now, before, _UNDONE)
        except ConflictError:
            attempts -= 1
            if not attempts:
                raise


def _before(visible: Filter, now: Record, past: Sequence[FormerNote]) -> Record:
    """Return a note as it was before its last change that was not undone.

    Raises:
        NoteError: the note was never changed, or all its changes are undone.
    """
    left: list[Record] = []
    """The note before each change that is not undone, the first first."""
    states = [now, *(each.record for each in past)]
    for new, (old, action, *_) in zip(reversed(states[:-1]), reversed(past), strict=True):
        if _is_same(new, old):  # it was consolidated, and restored
            continue
        if action == _UNDONE and left and _is_same(new, left[-1]):
            left.pop()
        else:
            left.append(old)
    if not left:
        reason = (
            "all its changes are undone; history() has its earlier versions, and update() restores one"
            if past
            else "it was never changed"
        )
        raise NoteError(f"there is nothing to undo of note {now.id!r}: {reason}")
    if not visible.matches(left[-1]):
        raise NotePermissionError(
            f"note {now.id!r} was outside of this view before its last change; undo it in a wider one"
        )
    return left[-1]


def _is_same(one: Record, other: Record) -> bool:
    """Return whether two versions of a note differ at most in the time of their change."""
    return replace(one, version=other.version, updated_at=other.updated_at) == other
