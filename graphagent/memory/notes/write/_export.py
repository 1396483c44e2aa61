"""Notes taken along, as plain JSON data with their history, and brought in again.

Each operation of `NoteView` of the same name says what is given here and raised.
"""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, cast

from graphagent._article import a
from graphagent._concurrency import turn
from graphagent.errors import NoteError, NotePermissionError
from graphagent.memory.notes import _visibility
from graphagent.memory.notes.index import _storage
from graphagent.memory.notes.write._import import Collected, Imported

if TYPE_CHECKING:
    from graphagent.memory.notes._engine import Engine
    from graphagent.memory.notes._scopes import Bounds

_TOGETHER = 1000
"""Notes that are looked up before someone is told."""
_PARTS = 4
"""How much more there is to be done for a record than for most things of which there are many."""
_NAMED = 5
"""Owners that an error names at most."""
_Records = Iterable[Mapping[str, Any]] | AsyncIterable[Mapping[str, Any]]


async def export(engine: Engine, bounds: Bounds) -> AsyncGenerator[dict[str, Any]]:
    """Give all notes of a view, the oldest first."""
    fits = _visibility.filter_of(bounds, whole=True)
    for number, record in enumerate(reversed(await _visibility.newest(engine, bounds, fits)), 1):
        await turn(number * _PARTS)
        past = [
            {"record": _storage.to_json(old), "action": action}
            for old, action in await engine.book.history(record.owner, record.id)
            if _visibility.sees(bounds, old, fits)
        ]
        engine.gave((record,))
        history = {"history": past} if past else {}
        yield {"type": "note", **_storage.to_json(record), "version": record.version, **history}


async def import_(engine: Engine, bounds: Bounds, records: _Records, on_progress: Callable[[int, int], object]) -> int:
    """Keep what `export` gave, all of it checked first, in one commit. Gives how many were new."""
    bounds.writing()
    book, owner = engine.book, bounds.owner
    collected = Collected(lambda named: named or owner)
    for number, data in enumerate(await _all_of(records), 1):
        await turn(number * _PARTS)
        collected.add(f"record {number}", data)
    found = collected.notes.values()
    _check_owner(owner, found)
    for number, each in enumerate(found, 1):
        await turn(number)
        _check_seen(bounds, each)
    away = {record.id for record in await book.retired(owner)}
    new: list[Imported] = []
    for number, each in enumerate(found):
        await turn(number)
        if number % _TOGETHER == 0 and book.embedder is None:
            on_progress(number, len(found))
        if each.record.id not in away and await book.get(owner, each.record.id) is None:
            new.append(each)
    if new:
        there = len(found) - len(new)
        await book.add(
            owner,
            [each.record for each in new],
            past={each.record.id: each.past for each in new},
            tell=lambda done: on_progress(there + done, len(found)),
        )
    on_progress(len(found), len(found))
    return len(new)


async def _all_of(records: _Records) -> list[Mapping[str, Any]]:
    if isinstance(records, AsyncIterable):
        return [each async for each in records]
    if isinstance(records, str | bytes | os.PathLike | Mapping) or not isinstance(records, Iterable):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(
            f"import_ takes the records that export() gave, not {a(type(cast('object', records)).__name__)}; of a file, "
            f"graphagent.migrate.notes.from_export(text) gives them"
        )
    return list(records)


def _check_owner(owner: str, found: Iterable[Imported]) -> None:
    others = sorted({each.record.owner for each in found} - {owner})
    if others:
        named = ", ".join(map(repr, others[:_NAMED])) + (
            f" and {len(others) - _NAMED:,} more" if others[_NAMED:] else ""
        )
        raise NotePermissionError(
            f"there are records of {named}, and these notes are {f'those of {owner!r}' if owner else 'those of no owner'}; "
            f"nothing is imported. Import those of each owner with notes of their own, Notes(store, owner=…): by_owner(records) of "
            f"graphagent.migrate.notes sorts them. Or have all become one owner's: from_export(records, owner=…)"
        )


def _check_seen(bounds: Bounds, each: Imported) -> None:
    for record, when in ((each.record, ""), *((old, " in its history") for old, _ in each.past)):
        if not bounds.holds(record.scope):
            raise NotePermissionError(
                f"{each.place} has{when} the scope {record.scope!r}, which is outside of this view, which has "
                f"{', '.join(bounds.within)}; nothing is imported. from_export(records, scope=…) puts all of them into a scope"
            )
        try:
            _visibility.check_seen(bounds, record)
        except NoteError as error:
            raise type(error)(f"{each.place}{when}: {error}; nothing is imported") from None
