"""Which notes an operation may find, as words of the index and as a condition in SQL of SQLite.

`Filter.matches` decides. The words and the SQL say the same so that the index offers few records that it refuses. Owners,
scopes, sources and categories are words ("tags") in a column of their own, so that a search reads only what it may find. Such a
word ends with a digit, so that no stemmer changes it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import orjson

from graphagent.memory._note_values import ROOT, entry_text, stretch
from graphagent.memory.notes._scopes import lineage

if TYPE_CHECKING:
    from graphagent.memory._note_values import Filter, Record

LISTED = "(SELECT value FROM json_each(?))"
"""Where a list of values, made by `listed`, is bound to a statement."""


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
    return frozenset(_tag("m", entry_text(name, value)) for name, value in metadata.items())


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
        # Scopes that begin with a path are one range of the index, because "0" follows "/". Other scopes, such as /a-b for /a, are in
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


def listed(values: Iterable[int | str | tuple[str, int]]) -> str:
    """Return values as one JSON text to bind, so that SQLite prepares one statement whatever their number."""
    return orjson.dumps(list(values)).decode()
