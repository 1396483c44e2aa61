"""What a search may find, as words of the index and as conditions of SQL.

Scopes, owners, sources and categories are words of a column of their own, so that a search reads only what it may find. Such a
word ends with a digit, which no stemmer changes.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

import orjson

from graphagent.memory.notes._scopes import ROOT, lineage

if TYPE_CHECKING:
    from graphagent.memory.notes._types import Record
    from graphagent.memory.notes.index._backend import Connection

LISTED = "(SELECT value FROM json_each(?))"
"""Where a list of values is bound, as `listed` gives it."""


@dataclass(frozen=True, slots=True)
class Filter:
    """What a search may find."""

    owner: str
    scopes: tuple[str, ...] = (ROOT,)
    """None of them within another."""
    categories: tuple[frozenset[str], ...] = ()
    """Of each of these sets a record has at least one."""
    asker: str | None = None
    """Who asks: of private records only those of this source are found."""
    source: str | None = None
    """Whose records alone are found."""
    since: int | None = None
    until: int | None = None
    """Records that were said, or else kept, from one time to another; in milliseconds UTC."""
    private: bool = False
    """Whether private records are found, whosoever they are."""
    metadata: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """A record has each of these in its metadata, with an equal value; as JSON gives them back."""

    @property
    def is_whole(self) -> bool:
        """Whether all that an owner has fits, but for what is private."""
        unbounded = (self.source, self.since, self.until) == (None,) * 3
        return self.scopes == (ROOT,) and unbounded and not self.categories and not self.metadata


def _tag(kind: str, text: str) -> str:
    """Name something in a word that no tokenizer takes apart and no stemmer changes."""
    return f"{kind}{hashlib.blake2b(text.encode('utf-8', 'surrogatepass'), digest_size=10).hexdigest()}0"


def tags_of(record: Record) -> str:
    """Give the words by which a record is filtered."""
    kinds = [
        _tag("o", record.owner),
        *(_tag("s", f"{record.owner}\n{path}") for path in lineage(record.scope)),
        *(_tag("c", each) for each in record.categories),
        _tag("f", record.source),
        _tag("p", record.source) if record.private else "visible0",
    ]
    return " ".join(kinds)


def tags_that_fit(connection: Connection, fits: Filter) -> str:
    """Give the words of the tags that fit, as FTS5 wants them, without those that all texts have: they cost the most."""
    wanted = [
        [] if fits.scopes == (ROOT,) and _is_alone(connection, fits.owner) else
        [_tag("s", f"{fits.owner}\n{scope}") for scope in fits.scopes],
        *([_tag("c", each) for each in sorted(some)] for some in fits.categories),
        [] if fits.private or not _has_private(connection, fits.owner) else
        ["visible0", *([] if fits.asker is None else [_tag("p", fits.asker)])],
        [] if fits.source is None else [_tag("f", fits.source)],
    ]  # fmt: skip
    return " AND ".join(f"({' OR '.join(each)})" for each in wanted if each)


def entries_of(metadata: Mapping[str, Any]) -> frozenset[str]:
    """Return a word for each entry of metadata; entries with the same key and equal values have the same word.

    Numbers are equal by value, so that 1 equals 1.0; the truth values are no numbers, as in JSON.
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


def _is_alone(connection: Connection, owner: str) -> bool:
    """Tell whether no one else has a record."""
    [(first, last)] = connection.execute(
        "SELECT (SELECT min(owner) FROM notes_rows), (SELECT max(owner) FROM notes_rows)"
    ).fetchall()
    return first in (owner, None) and last in (owner, None)


def _has_private(connection: Connection, owner: str) -> bool:
    rows = connection.execute("SELECT 1 FROM notes_rows WHERE owner=? AND private=1 LIMIT 1", (owner,))
    return bool(rows.fetchall())


def condition(fits: Filter, among: Iterable[int] | None = None) -> tuple[str, list[Any]]:
    """Give the same as a condition of SQL on `notes_rows`, with its values; for all rows or some.

    A plus keeps SQLite from an index where the rows are named.
    """
    parts: list[str] = ["owner=?" if among is None else "+owner=?"]
    values: list[Any] = [fits.owner]
    if among is not None:
        parts.append(f"row IN {LISTED}")
        values.append(listed(among))
    if ROOT not in fits.scopes:
        # What begins with a path stands together, for a 0 stands next behind a slash; between may be others, such as /a-b in /a.
        within = "(scope>=? AND scope<? AND (scope=? OR scope>?))"
        parts.append(f"({' OR '.join([within] * len(fits.scopes))})")
        for scope in fits.scopes:
            values += [scope, f"{scope}0", scope, f"{scope}/"]
    for some in fits.categories:
        parts.append(f"row IN (SELECT row FROM notes_categories WHERE category IN {LISTED})")
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
    since, until = stretch(fits)
    if since is not None:
        parts.append("ifnull(said, created) BETWEEN ? AND ?")
        values += [since, until]
    return " AND ".join(parts), values


def stretch(fits: Filter) -> tuple[int | None, int | None]:
    """Give the first and the last moment that fit; None where any does."""
    if fits.since is None and fits.until is None:
        return None, None
    return fits.since if fits.since is not None else -(2**62), fits.until if fits.until is not None else 2**62


def quoted(word: str) -> str:
    """Give a word, or words that follow one another, as FTS5 wants them."""
    return '"' + word.replace('"', '""') + '"'


def listed(values: Iterable[int | str | tuple[str, int]]) -> str:
    """Give values as one that is bound: a statement for each number of them would have to be prepared each time."""
    return orjson.dumps(list(values)).decode()
