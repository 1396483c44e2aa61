"""An opened encrypted store: what it must hold, and whether it does.

The row of a domain tells how many items it has and what they sum up to; the row of the root tells the same of the domains.
Read once in full, each of both gives a list of members against which every later read is held. Where another process has
changed a row, the list is dropped (`lagging`): what is read is then held against its seal alone, until as many operations
have passed as make reading in full worth while again, so that no operation costs more the more is kept.
"""

from __future__ import annotations

import sys
import threading
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic, NamedTuple, Protocol, TypeVar

import anyio.to_thread

from graphagent._concurrency import Gate
from graphagent.errors import ConflictError, DamagedStoreError, PlainStoreError, StoreError, WrongKeyError
from graphagent.store._encoding import decode, encode
from graphagent.store._items import Item, Key, Put, Segment
from graphagent.store._paging import Scan
from graphagent.store._sealed_detection import KEYS, ROOMS, ROOT
from graphagent.store._sorted_dict import SortedDict
from graphagent.store.sealed._format import (
    Blinder,
    DomainState,
    Keyset,
    OtherFormatError,
    OtherKeyError,
    Purpose,
    RootState,
    UnreadableError,
    associated_data,
    domain_digest,
    item_digest,
    item_plain,
    primary,
    read_item,
    seal,
    sum_with,
    unseal,
)

if TYPE_CHECKING:
    from graphagent.protocols import Store
    from graphagent.store.sealed._key_sources import HeldKey

DEFAULT_DEPTH = 2
TRIES = 100
_FULL_READS = 3
_OPERATION, _FOREIGN_COMMIT = 16, 64
_ITEM_BYTES, _DOMAIN_BYTES, _LISTED_BYTES = 300, 3_000, 300
"""What knowing of an item, of a domain, and of a domain in the list of all takes, in bytes of memory."""
_CHUNK_INLINE, _CHUNK = 64, 4096
_ITEMS = encode(("i",))

S = TypeVar("S", DomainState, RootState)
M = TypeVar("M")


class MismatchError(Exception):
    """What was read is not what the list of members says; the domain may have been changed meanwhile, or forged."""


@dataclass(eq=False)
class IntegritySet(Generic[S, M]):
    """What the row of a domain, or of the root, says, and the members that it speaks of."""

    row: Key
    """Where the row stands."""
    version: int
    state: S
    members: SortedDict[M] | None = None
    """By the place behind that of the domain: None while it lags."""
    debt: int = 0
    """How much a reading in full has been put off; it is due when there are fewer members."""

    def adopt(self, version: int, state: S) -> None:
        """Take over what another process has written."""
        self.debt += _FOREIGN_COMMIT * (version - self.version)
        self.version, self.state, self.members = version, state, None


@dataclass(eq=False)
class Domain(IntegritySet[DomainState, bytes]):
    """The items under one path."""

    path: Key = ()
    generation: int = 0
    place: bytes = b""
    """The inner key of its row, encoded."""
    items: bytes = b""
    """The encoded inner key that begins the keys of its items."""
    weight: int = 0
    """How many bytes it was last taken to need."""
    gone: bool = False
    """Whether it was removed since, as far as is known."""
    gate: Gate = field(default_factory=Gate)
    """Who reads it in full."""

    @classmethod
    def at(cls, path: Key, generation: int, version: int, state: DomainState) -> Domain:
        """Give a domain that was not read yet."""
        row, items = domain_row(path, generation), encode(("i", *path))
        domain = cls(row, version, state, path=path, generation=generation, place=encode(row), items=items)
        domain.debt = state.count + 1
        return domain


class Location(NamedTuple):
    """Where an item stands."""

    key: Key
    path: Key
    """The blinded segments of its domain."""
    inner: Key
    place: bytes
    """The inner key, encoded."""
    single: bool
    """The key is too short to be in a domain of many: it is a domain of its own."""


class InFlight(Protocol):
    """A commit of this process that may have landed already."""

    def landed(self, row: Key, found: Item) -> bool:
        """Say whether `found` is what this commit puts at `row`; if so, take over all that it changes."""
        ...


class SealedSession:
    """The keys of a store, and the ledgers of what was used of it last, within `cache_bytes` of memory."""

    def __init__(
        self, store: Store, keyset: Keyset, depths: Mapping[str, int], where: str, *, cache_bytes: int = sys.maxsize
    ) -> None:
        self.store = store
        self.where = where
        self.lock = threading.RLock()
        self.root: IntegritySet[RootState, int] = IntegritySet(ROOT, 0, RootState())
        self.flight: InFlight | None = None
        self._keyset = keyset
        self._seal_keys = keyset.keys[Purpose.SEAL]
        self._sum_key = primary(keyset.keys[Purpose.SUM]).key
        self.blind = Blinder(primary(keyset.keys[Purpose.INDEX]).key)
        self._declared = depths
        self.pinned: frozenset[Key] = frozenset()
        """The domains of a commit that is being made; they are kept."""
        self._domains: OrderedDict[Key, Domain] = OrderedDict()
        self._weight = 0
        self._cache_bytes = cache_bytes
        self._listing = Gate()

    @classmethod
    async def open(
        cls,
        store: Store,
        key: HeldKey,
        depths: Mapping[str, int],
        where: str,
        *,
        make: bool,
        cache_bytes: int = sys.maxsize,
    ) -> SealedSession | None:
        """Open a store; gives None where it is new and is not to be made.

        Raises:
            WrongKeyError: it was sealed with another key.
            PlainStoreError: it holds something and was never sealed.
            DamagedStoreError: its keys or its root are missing or damaged.
        """
        for _ in range(TRIES):
            found = await store.get(KEYS)
            if found is not None:
                break
            secret = await key.read()
            if not await _is_empty(store) and await store.get(KEYS) is None:
                for room in ROOMS:
                    if not await _is_empty(store, room):
                        raise DamagedStoreError(where, "the row with its keys is missing")
                raise PlainStoreError(where)
            if not make:
                return None
            fresh = cls(store, Keyset.fresh(), depths, where)
            row, root = fresh._keyset.row(secret), fresh.sealed_root(RootState(), 1)
            try:
                await store.commit(Put(KEYS, row, expected=0), Put(ROOT, root, expected=0))
            except ConflictError:
                continue
        else:
            raise StoreError(f"{where} is being made and unmade by others; try again")
        try:
            keyset = Keyset.open(found.value, await key.read())
        except OtherKeyError:
            raise WrongKeyError(where) from None
        except OtherFormatError as error:
            raise StoreError(f"{where} has format {error.args[0]}; this graphagent reads format 1") from None
        except UnreadableError as error:
            raise DamagedStoreError(where, f"the row with its keys {error}") from None
        session = cls(store, keyset, depths, where, cache_bytes=cache_bytes)
        await session.renew_root()
        return session

    # Sealing and opening

    def sealed_item(self, state: DomainState, location: Location, version: int, clear: bytes, value: bytes) -> bytes:
        """Give the record of an item; `clear` is its key, encoded."""
        to = associated_data(self._keyset.store_id, b"item", location.place, version)
        return seal(primary(state.keys), to, item_plain(clear, value))

    def sealed_domain(self, place: bytes, version: int, state: DomainState) -> bytes:
        """Give the record of a domain's row, which stands at `place`."""
        to = associated_data(self._keyset.store_id, b"domain", place, version)
        return seal(primary(self._seal_keys), to, state.plain())

    def sealed_root(self, state: RootState, version: int) -> bytes:
        """Give the record of the root's row."""
        return seal(
            primary(self._seal_keys),
            associated_data(self._keyset.store_id, b"root", encode(ROOT), version),
            state.plain(),
        )

    def opened(self, domain: Domain, place: bytes, found: Item) -> tuple[bytes, bytes]:
        """Give the encoded key and the value that a record seals.

        Raises:
            UnreadableError: it was changed, or does not belong there.
        """
        to = associated_data(self._keyset.store_id, b"item", place, found.version)
        return read_item(unseal(domain.state.keys, to, found.value))

    def item_digest(self, place: bytes, found: Item) -> bytes:
        """Give what an item adds to the sum of its domain."""
        return item_digest(self._sum_key, place, found.version, found.value)

    def domain_digest(self, path: Key, generation: int) -> bytes:
        """Give what a domain adds to the sum of the root."""
        return domain_digest(self._sum_key, encode(domain_row(path, generation)))

    def damaged(self, room: object, reason: str) -> DamagedStoreError:
        """Give the error for what is wrong in a room."""
        return DamagedStoreError(self.where, f"room {room!r}: {reason}")

    # Finding

    def depth(self, room: Segment) -> int:
        """Give how many segments make a domain in a room.

        Raises:
            StoreError: the store was made with another depth than is declared now.
        """
        made = self.root.state.depths.get(encode((room,)))
        declared = self._declared.get(room) if isinstance(room, str) else None
        if made is not None and declared not in (None, made):
            raise StoreError(
                f"{self.where}: room {room!r} was made with domains of {made} segments, not {declared}; "
                f"declare domains={{{room!r}: {made}}}, or leave it out"
            )
        return made or declared or DEFAULT_DEPTH

    def locate(self, key: Key) -> Location:
        """Give where the item under a key stands."""
        depth = self.depth(key[0])
        blinded, place = self.blind.encoded(key)
        return Location(key, blinded[:depth], ("i", *blinded), _ITEMS + place, len(key) < depth)

    def path(self, key: Key) -> Key:
        """Give the blinded segments of the domain of a key."""
        return self.blind(key[: self.depth(key[0])])

    async def domain(self, path: Key, room: object) -> Domain | None:
        """Give a domain, checked, or None where there is none."""
        known: Domain | None = None
        for _ in range(TRIES):
            # One that was forgotten meanwhile, for want of memory, still serves this task.
            known = self._domains.get(path) or (known if known and not known.gone else await self._found(path, room))
            if known is None:
                return None
            if known.members is None and known.debt > known.state.count:
                if await known.gate.entered():
                    try:
                        await self._read_in_full(known, room)
                    finally:
                        known.gate.leave()
                continue
            if known.members is None:
                known.debt += _OPERATION
            with self.lock:
                if path in self._domains:
                    self._domains.move_to_end(path)
            return known
        raise self.restless(room)

    async def _found(self, path: Key, room: object) -> Domain | None:
        """Return a domain as its row tells, not checked yet."""
        place = encode(path)
        for _ in range(TRIES):
            generation = await self._generation(path, place, room)
            if generation is None:
                return None
            row = domain_row(path, generation)
            found = await self.store.get(row)
            if found is None:
                if await self._gone(place, generation):
                    continue
                raise self.damaged(room, "the row of a domain is missing")
            state = self._opened_domain(row, found, room)
            with self.lock:
                if path not in self._domains:
                    self.keep(Domain.at(path, generation, found.version, state))
                return self._domains[path]
        raise self.restless(room)

    def keep(self, domain: Domain) -> None:
        """Remember a domain."""
        with self.lock:
            self.drop(domain.path)
            self._domains[domain.path] = domain
            self.weigh(domain)

    def drop(self, path: Key) -> None:
        """Forget a domain."""
        with self.lock:
            known = self._domains.pop(path, None)
            if known is not None:
                self._weight -= known.weight
                known.weight = 0

    def weigh(self, domain: Domain) -> None:
        """Take account of what is known of a domain now."""
        with self.lock:
            if self._domains.get(domain.path) is domain:
                weight = _DOMAIN_BYTES + _ITEM_BYTES * (len(domain.members) if domain.members else 0)
                self._weight += weight - domain.weight
                domain.weight = weight
                self.trim()

    def trim(self) -> None:
        """Forget domains, those first that were not used for longest, but neither the last one nor what a commit needs."""
        with self.lock:
            members = self.root.members
            most = self._cache_bytes - (len(members) * _LISTED_BYTES if members else 0)
            while self._weight > most:
                last = next(reversed(self._domains))
                oldest = next((path for path in self._domains if path != last and path not in self.pinned), None)
                if oldest is None:
                    return
                self.drop(oldest)

    def may_list(self, count: int) -> bool:
        """Say whether a list of so many domains may be kept: half of the memory is for the domains themselves."""
        return count * _LISTED_BYTES <= self._cache_bytes // 2

    async def domains_under(self, prefix: Key) -> list[tuple[Key, int]]:
        """Give the paths of the domains that begin with the segments of `prefix`, in order, and their generations."""
        await self.renew_root()
        members, low = self.root.members, encode(prefix)
        if members is not None:
            return [(decode(each), members.get(each) or 0) for each in members.between(low, low + b"\xff")]
        return sorted([_split(self, found.key) async for found in self.store.scan(("d", *prefix))], key=_place)

    async def _generation(self, path: Key, place: bytes, room: object) -> int | None:
        members = self.root.members
        if members is None or place not in members:
            await self.renew_root()
            members = self.root.members
        if members is not None:
            return members.get(place)
        rows = [_split(self, found.key) async for found in self.store.scan(("d", *path, "#"), limit=2)]
        if len(rows) > 1:
            raise self.damaged(room, "a domain has two rows")
        return rows[0][1] if rows else None

    async def _gone(self, place: bytes, generation: int) -> bool:
        """Say whether a domain may be missing, because it was removed meanwhile."""
        await self.renew_root()
        members = self.root.members
        return members is None or members.get(place) != generation

    # Keeping up with others

    async def moved(self, domain: Domain, seen: int, room: object) -> bool:
        """Say whether a domain is not as it was at version `seen`, and take over what it is now."""
        if domain.version != seen:
            return True
        found = await self.store.get(domain.row)
        if found is None:
            domain.gone = True
            self.drop(domain.path)
            return await self._gone(encode(domain.path), domain.generation)
        if found.version == seen:
            return domain.version != seen
        state = self._opened_domain(domain.row, found, room)
        with self.lock:
            if self.flight is not None:
                self.flight.landed(domain.row, found)
            if found.version < seen:
                raise self.damaged(room, "the row of a domain is older than it was")
            if found.version > domain.version:
                domain.adopt(found.version, state)
                self.weigh(domain)
        return True

    async def renew_root(self) -> None:
        """Take over what the root is now."""
        root = self.root
        for _ in range(_FULL_READS):
            seen = root.version
            found = await self.store.get(ROOT)
            if found is None or found.version < seen:
                raise DamagedStoreError(self.where, "the row of its root is missing or older than it was")
            if found.version != root.version:
                to = associated_data(self._keyset.store_id, b"root", encode(ROOT), found.version)
                try:
                    state = RootState.read(unseal(self._seal_keys, to, found.value))
                except UnreadableError as error:
                    raise DamagedStoreError(self.where, f"the row of its root {error}") from None
                with self.lock:
                    landed = self.flight is not None and self.flight.landed(ROOT, found)
                    if not landed and found.version > root.version:
                        root.adopt(found.version, state)
                        root.debt += state.count + 1 if seen == 0 else 0
            if root.members is not None:
                return
            root.debt += _OPERATION
            if root.debt <= root.state.count:
                return
            if await self._listing.entered():
                try:
                    if await self._read_root_in_full():
                        return
                finally:
                    self._listing.leave()
        root.debt = 0

    async def _read_root_in_full(self) -> bool:
        with self.lock:
            root, version, kept = self.root, self.root.version, self.may_list(self.root.state.count)
        members: dict[bytes, int] = {}
        count = total = 0

        def fold(chunk: list[Item]) -> None:
            nonlocal count, total
            for found in chunk:
                path, generation = _split(self, found.key)
                if kept:
                    members[encode(path)] = generation
                count += 1
                total = sum_with(total, self.domain_digest(path, generation))

        await folded(self.store.scan(("d",)), fold)
        ordered = await anyio.to_thread.run_sync(SortedDict, members) if len(members) > _CHUNK else SortedDict(members)
        with self.lock:
            if root.version == version and (count, total) == (root.state.count, root.state.total):
                root.members, root.debt = ordered if kept else None, 0
                self.trim()
                return True
        found_now = await self.store.get(ROOT)
        if root.version == version and found_now is not None and found_now.version == version:
            raise DamagedStoreError(self.where, "domains are missing, or were added by someone without the key")
        return False

    async def _read_in_full(self, domain: Domain, room: object) -> None:
        """Make the list of members anew and hold it against the row; put it off where others keep writing."""
        for _ in range(_FULL_READS):
            version = domain.version
            members: dict[bytes, bytes] = {}
            total = 0

            def fold(chunk: list[Item], members: dict[bytes, bytes] = members) -> None:
                nonlocal total
                for item in chunk:
                    place = encode(item.key)
                    each = members[place[len(domain.items) :]] = self.item_digest(place, item)
                    total = sum_with(total, each)

            await folded(self.rows(domain), fold)
            ordered = (
                await anyio.to_thread.run_sync(SortedDict, members) if len(members) > _CHUNK else SortedDict(members)
            )
            with self.lock:
                if domain.version == version and (len(members), total) == (domain.state.count, domain.state.total):
                    domain.members, domain.debt = ordered, 0
                    if domain.path in self._domains:
                        self.weigh(domain)
                    elif not domain.gone:
                        self.keep(domain)
                    return
            if not await self.moved(domain, version, room):
                raise self.damaged(room, "items are missing, are older ones, or were added by someone without the key")
        domain.debt = 0

    def rows(
        self, domain: Domain, within: Key = (), after: Key | None = None, *, reverse: bool = False
    ) -> AsyncIterator[Item]:
        """Give what stands under a domain, sealed, or under an inner prefix in it."""
        if not domain.state.single:
            return self.store.scan(within or ("i", *domain.path), after=after, reverse=reverse)
        left = [] if after else [("i", *domain.path)]

        async def more() -> list[Item]:
            found = await self.store.get(left.pop()) if left else None
            return [found] if found else []

        return Scan(more)

    def _opened_domain(self, row: Key, found: Item, room: object) -> DomainState:
        to = associated_data(self._keyset.store_id, b"domain", encode(row), found.version)
        try:
            return DomainState.read(unseal(self._seal_keys, to, found.value))
        except UnreadableError as error:
            raise self.damaged(room, f"the row of a domain {error}") from None

    def restless(self, room: object) -> StoreError:
        """Give the error for a room that others change faster than it can be read."""
        return StoreError(f"{self.where}: room {room!r} is changed by others all the time; try again")


def domain_row(path: Key, generation: int) -> Key:
    """Give where the row of a domain stands. The generation is the root's version when the domain was made."""
    return ("d", *path, "#", generation)


async def folded(rows: AsyncIterator[Item], fold: Callable[[list[Item]], None]) -> None:
    """Give rows to a function, in chunks, in a worker thread where they are many."""
    chunk: list[Item] = []
    async for found in rows:
        chunk.append(found)
        if len(chunk) == _CHUNK:
            await anyio.to_thread.run_sync(fold, chunk)
            chunk = []
    if len(chunk) > _CHUNK_INLINE:
        await anyio.to_thread.run_sync(fold, chunk)
    else:
        fold(chunk)


async def _is_empty(store: Store, *prefix: Segment) -> bool:
    async for _ in store.scan(prefix, limit=1):
        return False
    return True


def _place(entry: tuple[Key, int]) -> bytes:
    return encode(entry[0])


def _split(session: SealedSession, row: Key) -> tuple[Key, int]:
    generation = row[-1]
    if len(row) < 4 or row[-2] != "#" or not isinstance(generation, int):
        raise DamagedStoreError(session.where, "a row of a domain stands where none is put")
    return row[1:-2], generation
