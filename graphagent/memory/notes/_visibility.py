"""What a view sees: told to the tables as a filter, and asked once more of each record that is given out or kept."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from graphagent._article import a
from graphagent._concurrency import turn
from graphagent.errors import NoteError, NotePermissionError
from graphagent.memory.notes._scopes import is_within
from graphagent.memory.notes._types import Record
from graphagent.memory.notes.index import _fts, _storage
from graphagent.memory.notes.index._filter import Filter, entries_of

if TYPE_CHECKING:
    from graphagent.memory.notes._engine import Engine
    from graphagent.memory.notes._scopes import Bounds


def filter_of(
    bounds: Bounds,
    scope: str | None = None,
    categories: Sequence[str] | None = None,
    source: str | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
    metadata: Mapping[str, Any] | None = None,
    *,
    whole: bool = False,
) -> Filter | None:
    """Give what may be found; None where nothing may. `whole`: with what is private to whomever, where no one asks.

    Raises:
        NoteError: a source or a category is none, or a value of the metadata cannot be compared.
        ScopeError: the scope is none.
        TypeError: `since` or `until` is not a time.
    """
    scopes = bounds.narrowed(scope)
    if source is not None:
        _storage.name("source", source)
    wanted = frozenset(_storage.categories(categories))
    fits = Filter(
        bounds.owner,
        scopes,
        (*bounds.categories, wanted) if wanted else bounds.categories,
        asker=bounds.source if bounds.source is not None else source,
        source=source,
        since=None if since is None else _milliseconds("since", since),
        until=None if until is None else _milliseconds("until", until),
        private=whole and bounds.source is None,
        metadata={} if metadata is None else _storage.wanted(metadata),
    )
    return fits if scopes else None


def _milliseconds(what: str, time: datetime) -> int:
    if not isinstance(time, datetime):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(_storage.not_a_time(what, time))
    return _storage.milliseconds(time)


def checked_id(id_: object) -> str:
    """Give the id of a note.

    Raises:
        TypeError: it is not a text.
    """
    if not isinstance(id_, str):
        given = f"{a(type(id_).__name__)}; give its .id" if isinstance(id_, Record) else a(type(id_).__name__)
        raise TypeError(f"a note is named by its id, a text such as record.id, not by {given}")
    return id_


def sees(bounds: Bounds, record: Record, fits: Filter | None = None) -> bool:
    """Tell whether a record is within a view and, given a filter, whether it fits that too, but for its time."""
    asker, everyone = (bounds.source, False) if fits is None else (fits.asker, fits.private)
    return (
        record.owner == bounds.owner
        and bounds.holds(record.scope)
        and _has_each(record, bounds.categories)
        and (fits is None or _fits(record, fits))
        and (not record.private or everyone or record.source == asker)
    )


def _fits(record: Record, fits: Filter) -> bool:
    return (
        any(is_within(record.scope, scope) for scope in fits.scopes)
        and _has_each(record, fits.categories)
        and (fits.source is None or record.source == fits.source)
        and (not fits.metadata or _has_metadata(record, fits.metadata))
    )


def _has_metadata(record: Record, wanted: Mapping[str, Any]) -> bool:
    has = {name: record.metadata[name] for name in wanted if name in record.metadata}
    return len(has) == len(wanted) and entries_of(has) == entries_of(wanted)


def _has_each(record: Record, categories: Iterable[frozenset[str]]) -> bool:
    return not any(some.isdisjoint(record.categories) for some in categories)


def check_seen(bounds: Bounds, record: Record) -> None:
    """See that a view sees a record that is to be kept in it.

    Raises:
        NoteError: it is private to no one.
        PermissionError: the view does not see it.
    """
    if record.private and not record.source:
        raise NoteError("a private note is seen by its source alone, and this one has none; say source=")
    for some in bounds.categories:
        if some.isdisjoint(record.categories):
            names = ", ".join(map(repr, sorted(some)))
            raise NotePermissionError(f"this view has notes of these categories only: {names}; give the note one")
    if record.private and bounds.source is not None and record.source != bounds.source:
        raise NotePermissionError(f"this view is that of {bounds.source!r}; it keeps no private notes of others")


async def get(engine: Engine, bounds: Bounds, id_: str) -> Record | None:
    """Give the note with an id; None where the view has none.

    Raises:
        TypeError: the id is not a text.
    """
    record = await engine.book.get(bounds.owner, checked_id(id_))
    return record if record is not None and sees(bounds, record) else None


async def newest(engine: Engine, bounds: Bounds, fits: Filter | None, limit: int = -1, offset: int = 0) -> list[Record]:
    """Give the notes that fit, the newest first; all of them where the limit is below 0."""
    if fits is None:
        return []
    found = await engine.book.ids(fits.owner, lambda connection: _fts.newest(connection, fits, limit, offset))
    return await seen(bounds, found, fits)


async def seen(bounds: Bounds, records: Iterable[Record], fits: Filter) -> list[Record]:
    """Give those of many records that a view sees."""
    found: list[Record] = []
    for number, record in enumerate(records, 1):
        await turn(number)
        if sees(bounds, record, fits):
            found.append(record)
    return found
