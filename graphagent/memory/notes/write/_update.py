"""Notes that are changed, what they were before, and how they become that again.

Each operation of `NoteView` of the same name says what is given here and raised.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from graphagent import _clock
from graphagent.errors import ConflictError, NoteError, NoteNotFoundError, NotePermissionError
from graphagent.memory.notes import _visibility
from graphagent.memory.notes.index import _chunks, _storage
from graphagent.memory.notes.index._embeddings import AGAIN
from graphagent.memory.notes.index._storage import moment

if TYPE_CHECKING:
    from graphagent.memory.notes._engine import Engine
    from graphagent.memory.notes._scopes import Bounds
    from graphagent.memory.notes._types import Record

_UNDONE = "undone"
_TEXTS = frozenset(("content", "categories", "metadata"))
"""What of a note is text that somebody gave."""


async def update(
    engine: Engine,
    bounds: Bounds,
    id_: str,
    *,
    content: str | None,
    scope: str | None,
    categories: Sequence[str] | None,
    importance: float | None,
    metadata: Mapping[str, Any] | None,
) -> Record:
    """Change a note; what is None stays. Where nothing changes, there is no new version."""
    bounds.writing()
    changes: dict[str, Any] = {}
    if content is not None:
        changes["content"] = _chunks.checked(content)
    if scope is not None:
        changes["scope"] = bounds.target(scope)
    if categories is not None:
        changes["categories"] = _storage.categories(categories)
    if importance is not None:
        changes["importance"] = engine.importance(importance)
    if metadata is not None:
        changes["metadata"] = _storage.plain(metadata)
    left = AGAIN
    while True:
        record = await _visibility.get(engine, bounds, id_)
        if record is None:
            raise NoteNotFoundError(id_)
        trust = engine.trusted(record.trust) if _TEXTS & changes.keys() else record.trust
        changed = replace(record, **changes, trust=trust, updated_at=moment(_clock.now()))
        _visibility.check_seen(bounds, changed)
        if not changes or (_is_same(changed, record) and not await _is_pending(engine, record)):
            return record
        try:
            return await engine.book.replace(bounds.owner, record, changed, "updated")
        except ConflictError:
            left -= 1
            if not left:
                raise


async def history(engine: Engine, bounds: Bounds, id_: str) -> list[tuple[Record, str]]:
    """Give what a note was before each change, the last first, each with what was done to it then."""
    now = await engine.book.get(bounds.owner, _visibility.checked_id(id_))
    if now is not None and not _visibility.sees(bounds, now):
        raise NoteNotFoundError(id_)
    past = await engine.book.history(bounds.owner, id_)
    found = [(record, action) for record, action in past if _visibility.sees(bounds, record)]
    if now is None and not found:
        raise NoteNotFoundError(id_)
    return found


async def undo(engine: Engine, bounds: Bounds, id_: str) -> Record:
    """Make a note again what it was before its last change that was not undone, or before it was consolidated away."""
    bounds.writing()
    book, owner = engine.book, bounds.owner
    left = AGAIN
    while True:
        now = await book.get(owner, _visibility.checked_id(id_))
        past = await book.history(owner, id_)
        last = now if now is not None else past[0][0] if past else None
        if last is None or not _visibility.sees(bounds, last):
            raise NoteNotFoundError(id_)
        try:
            if now is None:
                return await book.restore(owner, replace(last, updated_at=moment(_clock.now())))
            before = replace(_before(bounds, now, past), updated_at=moment(_clock.now()))
            return await book.replace(owner, now, before, _UNDONE)
        except ConflictError:
            left -= 1
            if not left:
                raise


def _before(bounds: Bounds, now: Record, past: Sequence[tuple[Record, str]]) -> Record:
    """Give what a note was before its last change that was not undone.

    Raises:
        NoteError: it was never changed, or all changes are undone.
        PermissionError: the view did not see what it was.
    """
    left: list[Record] = []
    """What it was before each change that counts, the first first."""
    states = [now, *(record for record, _ in past)]
    for new, (old, action) in zip(reversed(states[:-1]), reversed(past), strict=True):
        if _is_same(new, old):  # it was taken away, and brought back
            continue
        if action == _UNDONE and left and _is_same(new, left[-1]):
            left.pop()
        else:
            left.append(old)
    if not left:
        reason = (
            "all its changes are undone; history() has what it was, and update() makes it that"
            if past
            else "it was never changed"
        )
        raise NoteError(f"there is nothing to undo of note {now.id!r}: {reason}")
    if not _visibility.sees(bounds, left[-1]):
        raise NotePermissionError(
            f"note {now.id!r} was outside of this view before its last change; undo it in a wider one"
        )
    return left[-1]


def _is_same(one: Record, other: Record) -> bool:
    """Tell whether a note is the same in two versions, but for when it was changed."""
    return replace(one, version=other.version, updated_at=other.updated_at) == other


async def _is_pending(engine: Engine, record: Record) -> bool:
    """Tell whether a model may still change a note: whoever says what it is already has that stay."""
    return await engine.book.store.get(_storage.pending_key(record.owner, record.id)) is not None
