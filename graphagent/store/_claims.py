"""Claims: who has something for a while, as a store says."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from graphagent.protocols import Claims, Store
    from graphagent.store._items import Key


@dataclass(frozen=True, slots=True)
class Claimed:
    """A claim in a store: its key, its holder, and its end."""

    key: Key = field(repr=False)
    """The claimed key: for a run, the key of its header."""
    holder: str
    """The holder: a text that no other holder has, such as an id that is made for each claim."""
    fence: int
    """Its number: 1 or above, and higher than those of all earlier claims of the key."""
    until: int
    """When its time is over unless it is renewed, in milliseconds UTC by the clock of the store."""
    note: bytes = field(default=b"", repr=False)
    """A note of its holder, for the process that finds it with `Claims.lapsed`."""
    lapsed: bool = False
    """Whether its time was over when the store was asked."""


def claims_of(store: Store | None) -> Claims | None:
    """Return the claims of a store that has some: the others are used by the processes of one machine."""
    return cast("Claims | None", getattr(store, "claims", None))


def innermost(store: Store) -> Store:
    """Return the store that others are around, such as an EncryptedStore."""
    while (inner := getattr(store, "inner", None)) is not None:
        store = inner
    return store


def place_in_process(store: Store) -> tuple[int, str]:
    """Return the identity of the place of a store in this process; a forked process has no places of its parent."""
    inner = innermost(store)
    return os.getpid(), str(getattr(inner, "path", id(inner)))
