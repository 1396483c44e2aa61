"""What an open session knows of domains: their state, their members, and where their rows and items are stored."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic, NamedTuple, Protocol, TypeVar

from graphagent._concurrency import Gate
from graphagent.store._encoding import encode
from graphagent.store.sealed._format import DomainState, RootState

if TYPE_CHECKING:
    from graphagent.errors import StoreError
    from graphagent.protocols import Store
    from graphagent.store._items import Change, Item, Key
    from graphagent.store._sorted_dict import SortedDict

_FOREIGN_COMMIT = 64
"""What a commit of another process adds to the debt of a set, in members to be read."""

S = TypeVar("S", DomainState, RootState)
M = TypeVar("M")


class MismatchError(Exception):
    """What was read contradicts the members of its domain, which was changed meanwhile, or is forged."""


@dataclass(eq=False)
class IntegritySet(Generic[S, M]):
    """The state that the row of a domain or of the root contains, and the members that add up to it."""

    row: Key
    """The key of the row in the inner store."""
    version: int
    state: S
    members: SortedDict[M] | None = None
    """By their encoded keys without the prefix that all have in common. None while the set lags."""
    debt: int = 0
    """For how many members reading in full has been put off; it is due once there are fewer."""

    def adopt(self, version: int, state: S) -> None:
        """Take over a state that another process has written."""
        self.debt += _FOREIGN_COMMIT * (version - self.version)
        self.version, self.state, self.members = version, state, None


@dataclass(eq=False)
class Domain(IntegritySet[DomainState, bytes]):
    """The items whose keys begin with one path."""

    path: Key = ()
    generation: int = 0
    place: bytes = b""
    """The encoded key of its row in the inner store."""
    items: bytes = b""
    """The encoded prefix that the inner keys of its items have in common."""
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
    def at(cls, path: Key, generation: int, version: int, state: DomainState) -> Domain:
        """Return a domain whose items were not read yet; reading them is due at once."""
        row, items = domain_row(path, generation), encode(("i", *path))
        domain = cls(row, version, state, path=path, generation=generation, place=encode(row), items=items)
        domain.debt = state.count + 1
        return domain


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
        """Return whether `found` is what this commit puts under `row`; if so, apply everything that it changes."""
        ...


class OpenedRows(Protocol):
    """The session, as far as the rows need it that say who has written."""

    store: Store
    where: str
    root: IntegritySet[RootState, int]
    keys_version: int
    sum_key: bytes

    @property
    def store_id(self) -> bytes: ...
    def keys_again(self) -> list[Change]: ...
    def sealed_root(self, state: RootState, version: int) -> bytes: ...
    def sealed_row(self, kind: bytes, row: Key, version: int, plain: bytes) -> bytes: ...
    async def unsealed(self, kind: bytes, found: Item) -> bytes | None: ...
    async def renew_keys(self, seen: int) -> bool: ...
    async def renew_root(self) -> None: ...
    def restless(self, room: object) -> StoreError: ...


def domain_row(path: Key, generation: int) -> Key:
    """Return the key of the row of a domain. The generation is the version that the root had when the domain was made."""
    return ("d", *path, "#", generation)
