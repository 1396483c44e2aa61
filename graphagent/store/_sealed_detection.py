"""Detecting a sealed store by its rows, so that the inner store can refuse plain items.

The key row distinguishes a sealed store. It is put in the commit that seals the store, is never removed, and is part of
every copy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from graphagent.errors import PlainStoreError, SealedStoreError
from graphagent.store._items import Change, DeleteAll, Put, encode

if TYPE_CHECKING:
    from graphagent.store._items import Key

MAGIC = b"gakeys\0"
"""The first bytes of the key row."""
KEYS: Key = ("k",)
KEYS_PLACE = encode(KEYS)
ROOT: Key = ("r",)
ROOMS = frozenset({"k", "r", "d", "i"})
"""The rooms of the inner store that the rows of a sealed store are in."""


def is_plain(key: Key) -> bool:
    """Return whether a key or a prefix is outside the rooms of a sealed store."""
    return not key or key[0] not in ROOMS


def seals(changes: Iterable[Change]) -> bool:
    """Return whether one of the changes puts the key row."""
    for each in changes:  # noqa: SIM110  a generator would cost each commit more than this loop
        if isinstance(each, Put) and each.key == KEYS and each.value.startswith(MAGIC):
            return True
    return False


def sealed_after(changes: Iterable[Change], where: str, *, sealed: bool, has_rows: Callable[[], bool]) -> bool:
    """Return whether a store is sealed after these changes; `sealed` is whether it was sealed before.

    Raises:
        SealedStoreError: it is sealed, and one of the changes is of a plain item.
        PlainStoreError: they would seal it, but it is not empty.
    """
    if not sealed:
        if not seals(changes):
            return False
        if has_rows():
            raise PlainStoreError(where)
    if any(is_plain(each.prefix if isinstance(each, DeleteAll) else each.key) for each in changes):
        raise SealedStoreError(where)
    return True
