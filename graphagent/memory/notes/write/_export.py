"""Exporting notes as plain JSON data, with their history."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import TYPE_CHECKING, Any

from graphagent._concurrency import turn
from graphagent.memory.notes.index import _storage

if TYPE_CHECKING:
    from graphagent.memory._note_values import Filter
    from graphagent.memory.notes._service import NoteService

COSTLY = 4
"""How many usual steps one record takes, where the event loop gets its turn after a number of steps."""


async def export(service: NoteService, visible: Filter) -> AsyncGenerator[dict[str, Any]]:
    """Yield the visible notes, the oldest first, with those of their former versions that are visible."""
    for number, record in enumerate(reversed(await service.repository.newest(visible)), 1):
        await turn(number * COSTLY)
        former = [
            {
                "record": _storage.to_json(old.record),
                "action": old.action,
                **({} if old.at is None else {"at": old.at.isoformat()}),
            }
            for old in await service.repository.history(record.owner, record.id)
            if visible.matches(old.record)
        ]
        service.has_returned((record.trust,))
        history = {"history": former} if former else {}
        yield {"type": "note", **_storage.to_json(record), "version": record.version, **history}
