"""Notes looked through without a question: listed, counted, and their scopes as a tree.

Each operation of `NoteView` of the same name says what is given here and raised.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar

from graphagent.memory.notes import _visibility
from graphagent.memory.notes._scopes import ROOT
from graphagent.memory.notes._settings import whole
from graphagent.memory.notes._types import ScopeInfo, ScopeTree
from graphagent.memory.notes.index import _fts
from graphagent.memory.notes.index._storage import moment
from graphagent.memory.notes.recall._tree import child_of, tree_of

if TYPE_CHECKING:
    from graphagent.memory.notes._engine import Engine
    from graphagent.memory.notes._scopes import Bounds
    from graphagent.memory.notes._types import Record
    from graphagent.memory.notes.index._backend import Connection
    from graphagent.memory.notes.index._filter import Filter

T = TypeVar("T")


async def list_records(
    engine: Engine,
    bounds: Bounds,
    scope: str | None,
    *,
    categories: Sequence[str] | None,
    source: str | None,
    since: datetime | None,
    until: datetime | None,
    metadata_filter: Mapping[str, Any] | None,
    limit: int,
    offset: int,
) -> list[Record]:
    """Give the notes of a scope and those below, the newest first."""
    whole("limit", limit)
    whole("offset", offset)
    fits = _visibility.filter_of(bounds, scope, categories, source, since, until, metadata_filter)
    return await _visibility.newest(engine, bounds, fits, limit, offset)


async def list_categories(engine: Engine, bounds: Bounds, scope: str | None) -> dict[str, int]:
    """Give in how many notes each category is, in alphabetical order."""
    return await _told(engine, _visibility.filter_of(bounds, scope), _fts.categories)


async def list_scopes(engine: Engine, bounds: Bounds, path: str | None) -> list[str]:
    """Give the whole paths of the scopes directly below one, or of those of the slice."""
    if path is None and bounds.home is None:
        return list(bounds.within)
    found = await info(engine, bounds, path)
    return found.child_scopes


async def info(engine: Engine, bounds: Bounds, path: str | None) -> ScopeInfo:
    """Tell what is in a scope, with those below it; left out, in all of the view."""
    fits, top = _visibility.filter_of(bounds, path), _top(bounds, path)
    counts = await _told(engine, fits, _fts.counts)
    categories = await _told(engine, fits, _fts.categories)
    return ScopeInfo(
        path=top,
        record_count=sum(count for count, _, _ in counts.values()),
        categories=list(categories),
        oldest_record=moment(min(oldest for _, oldest, _ in counts.values())) if counts else None,
        newest_record=moment(max(newest for _, _, newest in counts.values())) if counts else None,
        child_scopes=sorted({child for scope in counts if (child := child_of(scope, top)) is not None}),
    )


async def tree(engine: Engine, bounds: Bounds, path: str | None, max_depth: int | None) -> ScopeTree:
    """Give a scope with those below it, down to a depth."""
    if max_depth is not None:
        whole("max_depth", max_depth)
    counts = await _told(engine, _visibility.filter_of(bounds, path), _fts.counts)
    return tree_of(_top(bounds, path), {scope: count for scope, (count, _, _) in counts.items()}, max_depth)


def _top(bounds: Bounds, path: str | None) -> str:
    """Give the scope that is meant by a path, or by none."""
    return bounds.path(path) if path is not None else bounds.home if bounds.home is not None else ROOT


async def _told(
    engine: Engine, fits: Filter | None, function: Callable[[Connection, Filter], dict[str, T]]
) -> dict[str, T]:
    """Give what the tables say of all that fits."""
    if fits is None:
        return {}
    await engine.book.catch_up(fits.owner)
    return await engine.book.host.read(lambda connection: function(connection, fits))
