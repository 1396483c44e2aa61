"""Items, keys and changes: the values that stores exchange."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple

from graphagent.errors import ConflictError

Segment = str | int
Key = tuple[Segment, ...]
"""Segments, of which the first is the room: `("facts", owner, …, 17)`. Text is any text; ints are 0 to 2**63 - 1."""


class Item(NamedTuple):  # not a dataclass, because a scan makes many
    """Bytes under a key."""

    key: Key
    value: bytes
    version: int
    """1 after the first put, and one more after each further put, unless that says another."""

    def __repr__(self) -> str:
        return f"Item(version={self.version})"


@dataclass(frozen=True, slots=True)
class Put:
    """Store a value under a key."""

    key: Key = field(repr=False)
    value: bytes = field(repr=False)
    expected: int | None = None
    """The version that the item must have now. 0: it must not exist. None: any."""
    version: int | None = None
    """The version that the item has then. None: one more than it had.

    The one that is expected is for bytes that mean the same, such as the value under another encryption key: whoever expects
    the version of the item still finds it. Any other is for items that are copied from another store.
    """
    before: bytes | None = field(default=None, repr=False)
    """The bytes that the item of the expected version must have now. None: any."""


@dataclass(frozen=True, slots=True)
class Delete:
    """Remove the item under a key, if there is one. Bytes of it may stay on the disk until a DeleteAll removes something."""

    key: Key = field(repr=False)
    expected: int | None = None
    """The version that the item must have now. None: any, and it need not exist."""


@dataclass(frozen=True, slots=True)
class DeleteAll:
    """Remove every item whose key begins with a prefix, and erase their bytes from the files."""

    prefix: Key = field(repr=False)


@dataclass(frozen=True, slots=True)
class Exists:
    """Change nothing, but require that an item exists under a key."""

    key: Key = field(repr=False)
    version: int | None = None
    """The version that the item must have now, 1 or above. None: any."""


Change = Put | Delete | DeleteAll | Exists


def check_expected(change: Put | Delete | Exists, version: int) -> None:
    """Check that an item is at the version that a change of it expects; 0 means that there is none.

    Raises:
        ConflictError: it is not.
    """
    expected = change.version or version or 1 if isinstance(change, Exists) else change.expected
    if expected is not None and expected != version:
        raise ConflictError(change.key, expected, version)


def version_after(change: Put, version: int) -> int:
    """Return the version of an item after a put that finds it at a version; 0 means that there is none."""
    return version + 1 if change.version is None else change.version


def only_removes(changes: Iterable[Change]) -> bool:
    """Return whether changes remove what there is, whatever that is, so that a store that does not exist need not be made for them."""
    return all(isinstance(each, DeleteAll) or (isinstance(each, Delete) and each.expected is None) for each in changes)


def check_before(change: Put, item: Item) -> None:
    """Check that an item has the bytes that a put expects.

    Raises:
        ConflictError: it has not.
    """
    if change.before not in (None, item.value):
        raise ConflictError(change.key, item.version, item.version)


@dataclass(frozen=True, slots=True)
class Receipt:
    """Counts of what forgetting has removed."""

    facts: int = 0
    """Facts; every version counts."""
    notes: int = 0
    runs: int = 0
    threads: int = 0
    cached: int = 0
    """Outputs of nodes, results of tools and answers of models that were cached."""
    bytes: int = 0
    """The size of the removed values, not how much smaller the files are."""
    parts: Mapping[str, Receipt] = field(default_factory=dict[str, "Receipt"])
    """What was removed in each place, where there were several: its `repr`, and the counts."""

    def __repr__(self) -> str:
        shown = [f"{name}={count}" for name, count in self.counts().items() if count or name == "bytes"]
        return f"Receipt({', '.join(shown)})"

    def counts(self) -> dict[str, int]:
        """Return all counts by their names, without those of the parts."""
        return {each.name: getattr(self, each.name) for each in fields(self) if each.name != "parts"}

    @staticmethod
    def of(parts: Mapping[str, Receipt]) -> Receipt:
        """Return the sum of the receipts of several places."""
        each = [part.counts() for part in parts.values()]
        total: dict[str, Any] = {name: sum(part[name] for part in each) for name in Receipt().counts()}
        return Receipt(**total, parts=dict(parts))
