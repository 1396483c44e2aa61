"""The domains that an open session knows: their state, their members, and the places of their rows and items."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, Protocol

from graphagent._concurrency import Gate
from graphagent.store._items import encode
from graphagent.store._sorted_dict import SortedDict

if TYPE_CHECKING:
    import threading

    from graphagent.errors import StoreError
    from graphagent.protocols import Store
    from graphagent.store._items import Item, Key
    from graphagent.store.sealed._format import DomainState
    from graphagent.store.sealed._keyset import Keyset

_FOREIGN_COMMIT = 64
"""The amount that a commit of another process adds to a debt, in members to be read."""


class MismatchError(Exception):
    """An item contradicts the members of its domain: the domain was changed meanwhile, or the item is forged."""


@dataclass(eq=False)
class DomainList:
    """The list of all domains."""

    members: SortedDict[int] | None = None
    """Their generations by their encoded paths. None while others have changed the list, or if it is too long for the memory."""
    count: int = 0
    """How many there were when the list was read in full last."""
    debt: int = 1
    """For how many domains reading in full has been put off; it is due once there are fewer."""
    is_read: bool = False
    """Whether a task is reading it because that was put off for long; others go on meanwhile."""


@dataclass(eq=False)
class Domain:
    """The items whose keys begin with one path: the contents of its row, and the members that add up to its sum."""

    path: Key
    row: Key
    """The key of its row in the inner store."""
    version: int
    generation: int
    state: DomainState
    items: bytes
    """The encoded prefix that the inner keys of its items have in common."""
    members: SortedDict[bytes] | None = None
    """By their encoded keys without the prefix that all have in common. None while the domain lags. An item that its row holds is none."""
    debt: int = 0
    """For how many members reading in full has been put off; it is due once there are fewer."""
    weight: int = 0
    """How many bytes of memory it counts for in the cache."""
    gone: bool = False
    """Whether it is known to have been removed since."""
    gate: Gate = field(default_factory=Gate)
    """Lets one task at a time read it in full."""

    @property
    def depth(self) -> int:
        """How many segments the inner keys of its items have in common."""
        return 1 + len(self.path)

    @classmethod
    def at(cls, path: Key, row: Key, version: int, generation: int, state: DomainState) -> Domain:
        """Return a domain whose items were not read yet; reading them is due at once."""
        domain = cls(path, row, version, generation, state, encode(("i", *path)))
        domain.debt = state.count + 1
        domain._forget_members()
        return domain

    def adopt(self, row: Key, version: int, state: DomainState) -> None:
        """Take over a state that another process has written."""
        self.debt += _FOREIGN_COMMIT * (version - self.version if row == self.row else 1)
        self.row, self.version, self.state = row, version, state
        self._forget_members()

    def _forget_members(self) -> None:
        self.members = None
        if self.state.held is not None:  # then nothing has to be read to know all of it
            self.members, self.debt = SortedDict(), 0


class Location(NamedTuple):
    """Where an item is stored."""

    key: Key
    path: Key
    """The blinded segments of its domain."""
    inner: Key
    place: bytes
    """The encoded inner key."""
    single: bool
    """Whether the key is too short for a domain of many, so that its item has a domain of its own."""


class InFlight(Protocol):
    """A commit of this process that the inner store may have made already, though it has not returned yet."""

    def landed(self, row: Key, found: Item) -> bool:
        """Return whether `found` is the value that this commit puts under `row`; if so, apply all changes of the commit."""
        ...


class OpenedRows(Protocol):
    """The session, as far as the rows need it that say which domains there are and who has written."""

    store: Store
    where: str
    keyset: Keyset
    keys_version: int
    sum_key: bytes
    lock: threading.RLock
    flight: InFlight | None
    listed: DomainList

    @property
    def store_id(self) -> bytes: ...
    def sealed_row(self, kind: bytes, row: Key, version: int, plain: bytes) -> bytes: ...
    async def unsealed(self, kind: bytes, found: Item) -> bytes | None: ...
    async def renew_keys(self, seen: int) -> bool: ...
    def restless(self, room: object) -> StoreError: ...
