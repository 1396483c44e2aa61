"""Notes that are forgotten: found wherever they stand, those that were consolidated away too, and removed for good.

Each operation of `NoteView` of the same name says what is given here and raised.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from graphagent import _clock
from graphagent.memory.notes import _visibility
from graphagent.memory.notes.index import _storage
from graphagent.memory.notes.index._duplicates import normal
from graphagent.memory.notes.index._storage import moment
from graphagent.store import Receipt

if TYPE_CHECKING:
    from graphagent.memory.notes._engine import Engine
    from graphagent.memory.notes._scopes import Bounds
    from graphagent.memory.notes._types import Record
    from graphagent.memory.notes.index._filter import Filter

_TICK = timedelta(milliseconds=1)
"""What the clock of notes does not tell apart."""


async def forget(
    engine: Engine,
    bounds: Bounds,
    *,
    ids: Iterable[str] | None,
    scope: str | None,
    categories: Sequence[str] | None,
    older_than: timedelta | datetime | None,
    source: str | None,
    metadata_filter: Mapping[str, Any] | None,
    run_id: str | None,
) -> Receipt:
    """Remove the notes that fit all that is given."""
    if all(each is None for each in (ids, scope, categories, older_than, source, metadata_filter, run_id)):
        raise ValueError(
            "say what to forget: ids=, scope=, categories=, older_than=, source=, metadata_filter= or run_id=; or reset()"
        )
    bounds.writing()
    for name, given in (
        ("scope", scope),
        ("categories", categories),
        ("source", source),
        ("metadata_filter", metadata_filter),
        ("run_id", run_id),
    ):
        _refuse_empty(name, given)
    until = None if older_than is None else _until(older_than)
    fits = _visibility.filter_of(bounds, scope, categories, source, metadata=metadata_filter, whole=True)
    doomed = [
        record
        for record in await _found(engine, bounds, fits, ids)
        if (until is None or record.created_at < until) and (run_id is None or record.run_id == run_id)
    ]
    return await _removed(engine, bounds, doomed)


async def reset(engine: Engine, bounds: Bounds, scope: str | None) -> Receipt:
    """Remove everything in a view, or in one scope of it."""
    bounds.writing()
    _refuse_empty("scope", scope)
    fits = _visibility.filter_of(bounds, scope, whole=True)
    return await _removed(engine, bounds, await _found(engine, bounds, fits))


def _refuse_empty(name: str, given: object) -> None:
    """Check that a condition says something: one that is empty by accident would fit everything.

    Raises:
        ValueError: it is empty, or blank.
    """
    if given is not None and not (given.strip() if isinstance(given, str) else given):
        root = " (everything: '/')" if name == "scope" else ""
        raise ValueError(f"{name}={given!r} says nothing of which notes to forget; leave it out, or say which{root}")


def _until(older_than: timedelta | datetime) -> datetime:
    """Give the time before which what is older was kept; one without a zone is UTC.

    Raises:
        TypeError: it is neither an age nor a time.
        ValueError: the age is below zero, or the time has not come yet: everything would be older.
    """
    now = moment(_clock.now())
    if isinstance(older_than, datetime):
        time = _storage.time(older_than, "older_than")
        if time > now + _TICK:
            raise ValueError(
                f"older_than={older_than.isoformat()} has not come yet, so every note is older; a time without a zone is UTC. "
                f"To forget everything, use reset()"
            )
        return time
    if not isinstance(older_than, timedelta):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(
            f"older_than={older_than!r} is neither an age nor a time: an age is a timedelta, such as timedelta(days=30), "
            f"and a time is a datetime"
        )
    if older_than < timedelta(0):
        raise ValueError(
            f"older_than={older_than!r} is below zero, so every note is older; an age is a timedelta such as "
            f"timedelta(days=30). To forget everything, use reset()"
        )
    try:
        return now - older_than
    except OverflowError:  # before the year 1
        return datetime.min.replace(tzinfo=UTC)


async def _found(engine: Engine, bounds: Bounds, fits: Filter | None, ids: Iterable[str] | None = None) -> list[Record]:
    """Give what fits, with what of it was consolidated away; given ids, of these only."""
    if fits is None:
        return []
    if ids is None:
        found = [*await _visibility.newest(engine, bounds, fits), *await engine.book.retired(fits.owner)]
    else:
        given = [ids] if isinstance(ids, str) or not isinstance(ids, Iterable) else ids  # pyright: ignore[reportUnnecessaryIsInstance]
        wanted = dict.fromkeys(map(_visibility.checked_id, given))
        there = [await engine.book.get(fits.owner, id_) for id_ in wanted]
        found = [record for record in there if record is not None]
        for record in await engine.book.retired(fits.owner):
            if record.id in wanted:
                found += [record, *await _said_again(engine, record)]
    return await _visibility.seen(bounds, {record.id: record for record in found}.values(), fits)


async def _said_again(engine: Engine, record: Record) -> list[Record]:
    """Give the note for which one was taken away that said the same: whoever forgets that does not want it found in this one."""
    now = await engine.book.instead(record.owner, record.id)
    return [now] if now is not None and normal(now.content) == normal(record.content) else []


async def _removed(engine: Engine, bounds: Bounds, records: Sequence[Record]) -> Receipt:
    if not records:
        return Receipt()
    await engine.book.forget(bounds.owner, [record.id for record in records])
    return Receipt(notes=len(records), bytes=sum(len(record.content.encode()) for record in records))
