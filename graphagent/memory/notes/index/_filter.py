"""Which notes an operation may find: as a predicate of records, as words of the index and as a condition in SQL of SQLite.

The predicate decides. The words and the SQL say the same so that the index offers few records that the predicate refuses. Owners,
scopes, sources and categories are words ("tags") in a column of their own, so that a search reads only what it may find. Such a
word ends with a digit, so that no stemmer changes it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

import orjson

from graphagent.memory.notes._scopes import ROOT, is_within, lineage
from graphagent.memory.notes._validation import milliseconds

if TYPE_CHECKING:
    from graphagent.memory.notes._types import Record

LISTED = "(SELECT value FROM json_each(?))"
"""Where a list of values, made by `listed`, is bound to a statement."""


@dataclass(frozen=True, slots=True)
class Filter:
    """Which notes an operation may find."""

    owner: str
    scopes: tuple[str, ...] = (ROOT,)
    """With all scopes below them. None of them is within another; without any, nothing fits."""
    categories: tuple[frozenset[str], ...] = ()
    """A record fits if it has at least one category of each of these sets."""
    asker: str | None = None
    """Who asks: of the private records, only those of this source fit."""
    source: str | None = None
    """Only records of this source fit."""
    since: int | None = None
    until: int | None = None
    """Only records that were said, or else saved, between these times fit; in milliseconds UTC, both included."""
    saved_since: int | None = None
    """Only records that were saved at this time or later fit; in milliseconds UTC."""
    private: bool = False
    """Whether private records of all sources fit."""
    metadata: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Only records whose metadata have each of these keys with an equal value fit. The values are as JSON returns them."""

    @property
    def is_whole(self) -> bool:
        """Whether all records of the owner fit, except private ones."""
        unbounded = (self.source, self.since, self.until, self.saved_since) == (None,) * 4
        return self.scopes == (ROOT,) and unbounded and not self.categories and not self.metadata

    def matches(self, record: Record) -> bool:
        """Return whether a record fits."""
        return (
            record.owner == self.owner
            and any(is_within(record.scope, scope) for scope in self.scopes)
            and (not record.private or self.private or record.source == self.asker)
            and (self.source is None or record.source == self.source)
            and not any(some.isdisjoint(record.categories) for some in self.categories)
            and ((self.since is None and self.until is None) or self._is_timely(record))
            and (self.saved_since is None or milliseconds(record.created_at) >= self.saved_since)
            and (not self.metadata or self._has_metadata(record))
        )

    def _is_timely(self, record: Record) -> bool:
        first, last = stretch(self)
        return first <= milliseconds(record.created_at if record.at is None else record.at) <= last

    def _has_metadata(self, record: Record) -> bool:
        has = {name: record.metadata[name] for name in self.metadata if name in record.metadata}
        return len(has) == len(self.metadata) and entries_of(has) == entries_of(self.metadata)


# Words of the index


def _tag(kind: str, text: str) -> str:
    """Return a word for something, which no tokenizer divides and no stemmer changes."""
    return f"{kind}{hashlib.blake2b(text.encode('utf-8', 'surrogatepass'), digest_size=10).hexdigest()}0"


def tags_of(record: Record) -> str:
    """Return the tags of a record."""
    kinds = [
        _tag("o", record.owner),
        *(_tag("s", f"{record.owner}\n{path}") for path in lineage(record.scope)),
        *(_tag("c", each) for each in record.categories),
        _tag("f", record.source),
        _tag("p", record.source) if record.private else "visible0",
    ]
    return " ".join(kinds)


def tags_that_fit(fits: Filter, *, has_others: bool, has_private: bool) -> list[list[str]]:
    """Return tags of which a text that fits has one of each list. Those that all texts have are left out, because these cost the most.

    Args:
        fits: Which notes fit.
        has_others: Whether there are notes of other owners.
        has_private: Whether the owner has private notes.
    """
    wanted: list[list[str]] = []
    if fits.scopes != (ROOT,) or has_others:  # the tag of the root keeps owners apart
        wanted.append([_tag("s", f"{fits.owner}\n{scope}") for scope in fits.scopes])
    wanted += [[_tag("c", each) for each in sorted(some)] for some in fits.categories]
    if has_private and not fits.private:
        wanted.append(["visible0", *([] if fits.asker is None else [_tag("p", fits.asker)])])
    if fits.source is not None:
        wanted.append([_tag("f", fits.source)])
    return wanted


def entries_of(metadata: Mapping[str, Any]) -> frozenset[str]:
    """Return a word for each entry of metadata; entries with the same key and equal values have the same word.

    Numbers are equal by value, so 1 equals 1.0. The truth values are not numbers, as in JSON.
    """
    return frozenset(
        _tag("m", json.dumps([name, _comparable(value)], sort_keys=True)) for name, value in metadata.items()
    )


def _comparable(value: object) -> object:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, list):
        return [_comparable(each) for each in cast("list[object]", value)]
    if isinstance(value, dict):
        return {name: _comparable(each) for name, each in cast("dict[str, object]", value).items()}
    return value


# SQL


def condition(fits: Filter, among: Iterable[int] | None = None) -> tuple[str, list[Any]]:
    """Return a condition on `notes_rows`, with the values to bind: for all rows, or for some."""
    # A plus keeps SQLite from using an index by owner where the rows are known.
    parts: list[str] = ["owner=?" if among is None else "+owner=?"]
    values: list[Any] = [fits.owner]
    if among is not None:
        parts.append(f"row IN {LISTED}")
        values.append(listed(among))
    if not fits.scopes:
        parts.append("0")
    elif ROOT not in fits.scopes:
        # What begins with a path is one range of the index, because "0" follows "/". Other scopes, such as /a-b for /a, are in
        # this range too.
        within = "(scope>=? AND scope<? AND (scope=? OR scope>?))"
        parts.append(f"({' OR '.join([within] * len(fits.scopes))})")
        for scope in fits.scopes:
            values += [scope, f"{scope}0", scope, f"{scope}/"]
    for some in fits.categories:
        parts.append(
            f"EXISTS (SELECT 1 FROM notes_categories AS its WHERE its.row=notes_rows.row AND its.category IN {LISTED})"
        )
        values.append(listed(some))
    for entry in sorted(entries_of(fits.metadata)):
        parts.append("row IN (SELECT row FROM notes_metadata WHERE entry=?)")
        values.append(entry)
    if not fits.private:
        parts.append("private=0" if fits.asker is None else "(private=0 OR source=?)")
        values += [] if fits.asker is None else [fits.asker]
    if fits.source is not None:
        parts.append("source=?")
        values.append(fits.source)
    if fits.since is not None or fits.until is not None:
        parts.append("ifnull(said, created) BETWEEN ? AND ?")
        values += stretch(fits)
    if fits.saved_since is not None:
        parts.append("created>=?")
        values.append(fits.saved_since)
    return " AND ".join(parts), values


def stretch(fits: Filter) -> tuple[int, int]:
    """Return the first and the last moment that fit."""
    return fits.since if fits.since is not None else -(2**62), fits.until if fits.until is not None else 2**62


def listed(values: Iterable[int | str | tuple[str, int]]) -> str:
    """Return values as one JSON text to bind, so that SQLite prepares one statement whatever their number."""
    return orjson.dumps(list(values)).decode()
