"""The list of the concepts of a subject in a store, in the order in which they were first saved.

The keys of its rows have `""` and a number in the places of keyword and version. A row has one or several keywords. Stores of
earlier builds have one row per keyword, to which further keywords are added.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from graphagent.errors import DamagedStoreError
from graphagent.memory.facts._types import Concept
from graphagent.store import Item, Key, Put
from graphagent.store._items import checked, unchecked

CONCEPTS = ""
"""The text that keys of the list have in the place of a keyword."""
_ROW_BYTES = 200
"""The size up to which keywords are added to a row. When sealed, such a row still has the smallest size of a record."""
_BETWEEN = b"\xff"
"""Separates the keywords in a row: no text has this byte in UTF-8."""


def keywords_of(item: Item) -> list[str]:
    """Return the keywords in a row."""
    try:
        return [Concept(each.decode()).keyword for each in unchecked(item.value).split(_BETWEEN)]
    except ValueError:
        raise DamagedStoreError(f"a list of concepts of room {item.key[0]!r}", "it is not what was written") from None


def number_of(item: Item | None) -> int:
    """Return the number at the end of a key: a version, or the number of a row; 0 without an item."""
    if item is None:
        return 0
    number = item.key[-1]
    if isinstance(number, str):
        raise DamagedStoreError(f"a key of room {item.key[0]!r}", "it is not that of a fact")
    return number


def list_row(key: Key, keywords: Sequence[str], version: int) -> Put:
    """Return the change that writes a row over the version that was read; `version` is 0 for a new row."""
    return Put(key, checked(_BETWEEN.join(keyword.encode() for keyword in keywords)), expected=version)


def with_keywords(domain: Key, last: Item | None, keywords: Sequence[str], *, apart: bool = False) -> list[Put]:
    """Return the changes that add keywords to the list of a subject.

    Args:
        domain: The beginning of all keys of the subject.
        last: The last row of the list.
        keywords: The keywords to add.
        apart: Whether to leave the last row unchanged, since others are changing it.
    """
    if not keywords:
        return []
    begun = number = number_of(last)
    version, size = 0, _ROW_BYTES
    rows: dict[int, list[str]] = {}
    if last is not None and not apart and len(last.value) < _ROW_BYTES:
        rows, version, size = {number: keywords_of(last)}, last.version, len(last.value)
    for keyword in keywords:
        if size >= _ROW_BYTES:
            # Numbers are not reused, so that a removed row cannot be mistaken for a row that was added later.
            number, size = number + 1 + int.from_bytes(os.urandom(4)), 0
        rows.setdefault(number, []).append(keyword)
        size += len(keyword.encode())
    return [list_row((*domain, CONCEPTS, each), names, version if each == begun else 0) for each, names in rows.items()]
