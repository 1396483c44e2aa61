"""What a store holds, and how it is changed."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

Segment = str | int
Key = tuple[Segment, ...]
"""Segments from the room on: `("facts", owner, …, 17)`. Text is any text; ints are 0 to 2**63 - 1."""


class Item(NamedTuple):  # no dataclass, since many are made at once
    """Bytes under a key."""

    key: Key
    value: bytes
    version: int
    """1 when it was first put, one more each time it was put since."""

    def __repr__(self) -> str:
        return f"Item(version={self.version})"


@dataclass(frozen=True, slots=True)
class Put:
    """Keep a value under a key."""

    key: Key = field(repr=False)
    value: bytes = field(repr=False)
    expected: int | None = None
    """The version that the item must have now: 0 where there must be none, None where it does not matter."""


@dataclass(frozen=True, slots=True)
class Delete:
    """Remove the item under a key, if there is one. Bytes of it may stay on the disk until a DeleteAll removes something."""

    key: Key = field(repr=False)
    expected: int | None = None
    """The version that the item must have now; None where it does not matter."""


@dataclass(frozen=True, slots=True)
class DeleteAll:
    """Remove every item whose key begins with the segments of a prefix, for good: their bytes leave the files too."""

    prefix: Key = field(repr=False)


@dataclass(frozen=True, slots=True)
class Exists:
    """Change nothing, provided that there is an item under a key."""

    key: Key = field(repr=False)


Change = Put | Delete | DeleteAll | Exists


@dataclass(frozen=True, slots=True)
class Receipt:
    """What forgetting removed."""

    facts: int = 0
    """Facts, all their versions counted."""
    notes: int = 0
    runs: int = 0
    bytes: int = 0
    """How much smaller the values are that are left; not how much smaller the files are."""
