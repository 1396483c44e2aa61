"""How a sealed store shows in the rows of the store within, which so takes nothing in plain beside them.

The row with the keys is the mark. It is put in the same commit that seals a store, it is never taken away, and it moves with
every copy, so that it cannot tell anything else than what the store is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from graphagent.errors import PlainStoreError, SealedStoreError
from graphagent.store._encoding import encode
from graphagent.store._items import Change, DeleteAll, Put

if TYPE_CHECKING:
    from graphagent.store._items import Key

MAGIC = b"gakeys\0"
"""What the value of the row with the keys begins with."""
KEYS: Key = ("k",)
KEYS_PLACE = encode(KEYS)
ROOT: Key = ("r",)
ROOMS = frozenset({"k", "r", "d", "i"})
"""The rooms of the store within in which the rows of a sealed store stand."""


def is_plain(key: Key) -> bool:
    """Say whether a key, or a prefix, is none under which a sealed store puts rows."""
    return not key or key[0] not in ROOMS


def sealed_after(changes: Iterable[Change], where: str, *, sealed: bool, has_rows: Callable[[], bool]) -> bool:
    """Say whether a store is sealed once these changes are made; `sealed` says whether it is before.

    Raises:
        SealedStoreError: it is sealed, and one of the changes is in plain.
        PlainStoreError: they would seal it, and it holds something.
    """
    if not sealed:
        if not any(isinstance(each, Put) and each.key == KEYS and each.value.startswith(MAGIC) for each in changes):
            return False
        if has_rows():
            raise PlainStoreError(where)
    if any(is_plain(each.prefix if isinstance(each, DeleteAll) else each.key) for each in changes):
        raise SealedStoreError(where)
    return True
