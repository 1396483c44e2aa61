"""An opened encrypted store: its expected contents, and the checks of them.

The row of a domain states how many items the domain has, and the sum of their digests; the rows of the writers state the same of the
domains. Reading a domain (or the list of domains) in full once yields its members, each with its digest. If their sum
is that of the row, every later read is compared with them: nothing can be missing, exchanged or added without being noticed.

When another process has changed a row, the members that are known are out of date and are dropped: the set *lags*. Items that
are read then are checked against their own seals alone, which still tell who wrote them, but not whether something is missing. Reading in full
again would cost more the more is stored, so it is put off: each operation adds to a *debt*, and when the debt exceeds the number
of members, reading in full costs no more than was saved by postponing it. So no operation gets slower as a store grows.

The file is long because sets, debts and rows are the state of one object, which each of its methods changes.
"""

from __future__ import annotations

import sys
import threading
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from typing import TYPE_CHECKING

import anyio.to_thread

from graphagent._article import counted
from graphagent._concurrency import Gate
from graphagent.errors import (
    ConflictError,
    DamagedStoreError,
    PlainStoreError,
    RolledBackError,
    StoreError,
    WrongKeyError,
)
from graphagent.store._bulk import Scan, collect
from graphagent.store._items import Item, Key, Put, Segment, decode, encode
from graphagent.store._sealed_detection import KEYS, ROOMS
from graphagent.store._sorted_dict import SortedDict
from graphagent.store.sealed._anchoring import Anchoring, has_older_keys
from graphagent.store.sealed._base import (
    BaseState,
    Changed,
    Sums,
    difference,
    domain_row,
    generation_of,
    is_former,
    path_of,
    rooms_sums,
)
from graphagent.store.sealed._domains import Domain, DomainList, InFlight, Location
from graphagent.store.sealed._format import (
    DomainState,
    HeldItem,
    NamedKey,
    UnknownKeyError,
    UnreadableError,
    associated_data,
    item_digest,
    item_mark,
    item_plain,
    least_size,
    primary,
    read_item,
    seal,
    sum_with,
    unseal,
)
from graphagent.store.sealed._key_row import fresh_keyset, opened_keyset, replacing, with_secret
from graphagent.store.sealed._keyset import Blinder, Keyset, Purpose
from graphagent.store.sealed._writers import Writers

if TYPE_CHECKING:
    from graphagent.protocols import Store
    from graphagent.store.sealed._anchor_sources import HeldAnchor
    from graphagent.store.sealed._key_sources import HeldKey

DEFAULT_DEPTH = 2
TRIES = 100
"""How often an operation is repeated because others changed the data that it had read."""
_FULL_READS = 3
_OPERATION = 16
"""The amount that an operation on a set that lags adds to its debt, in members to be read."""
_FIRST_USE, _FEW = 4, 64
"""The amount that the first use of a domain adds to the debt of the list of domains, and the largest debt at which the known list is used."""
_ITEM_BYTES, _DOMAIN_BYTES, _LISTED_BYTES = 300, 3_000, 300
"""How many bytes of memory an item, a domain, and an entry in the list of domains take."""
_CHUNK_INLINE, _CHUNK = 64, 4096
"""How many rows are added up by the thread of the event loop, and how many by another thread at once."""
_ITEMS = encode(("i",))


class SealedSession:
    """The keys of a store, and the integrity sets of the domains that were used last, within `cache_bytes` of memory."""

    def __init__(
        self,
        store: Store,
        key: HeldKey,
        keyset: Keyset,
        version: int,
        depths: Mapping[str, int],
        where: str,
        *,
        cache_bytes: int = sys.maxsize,
    ) -> None:
        self.store = store
        self.keys_version = version
        """The version of the key row that `keyset` was read from, which every commit requires."""
        self.where = where
        self.lock = threading.RLock()
        self.listed = DomainList()
        self.flight: InFlight | None = None
        self._key = key
        self.keyset = keyset
        self._seal_keys = keyset.keys[Purpose.SEAL]
        self.sum_key = primary(keyset.keys[Purpose.SUM]).key
        self.writers = Writers(self)
        self.anchoring = Anchoring(self, self.writers)
        self.blind = Blinder(primary(keyset.keys[Purpose.INDEX]).key)
        self._declared = depths
        self.pinned: frozenset[Key] = frozenset()
        """The paths of the domains of the commit that is being made, which stay in the cache."""
        self._domains: OrderedDict[Key, Domain] = OrderedDict()
        self._weight = 0
        self._cache_bytes = cache_bytes
        self._listing = Gate()
        self._has_former = True
        """Whether there may be rows of domains as formats 1 and 2 put them. Where there are none, none are put any more."""

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
        anchor: HeldAnchor | None = None,
        anchor_every: float = 0.0,
        accept: bool = False,
    ) -> SealedSession | None:
        """Open a store; return None if it is new and is not to be made. With `accept`, it may be older than its anchor.

        Raises:
            KeySourceError: the key is not where it is to be.
            WrongKeyError: it was sealed with another key.
            RemovedKeyError: the key was removed.
            AnchorError: its anchor is missing, damaged or of another store.
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
            if anchor is not None and not accept and await anchor.read() is not None:
                if await store.get(KEYS) is not None:
                    continue  # another process has made and anchored it since it was looked at
                raise RolledBackError(
                    where,
                    f"it is empty, and the anchor {anchor!r} is that of this store when it was not, or of another store",
                    remedy="Restore the store; or give a new one another anchor",
                )
            if not make:
                return None
            made = cls(store, key, await with_secret(secret, fresh_keyset), 1, depths, where)
            base = made.writers.put_base(BaseState.fresh(Sums(), {}, anchored=False), 0)
            try:
                await store.commit(Put(KEYS, made.keyset.row(1), expected=0), base)
            except ConflictError:
                continue
        else:
            raise StoreError(f"{where} is being made and unmade by others; try again")
        try:
            keyset = await opened_keyset(found, key, where)
        except WrongKeyError:
            if anchor is None or accept or not await has_older_keys(anchor, found):
                raise
            raise RolledBackError(where, "its keys are older than its anchor, and this key is not among them") from None
        session = cls(store, key, keyset, found.version, depths, where, cache_bytes=cache_bytes)
        session.anchoring = Anchoring(session, session.writers, anchor, anchor_every, accept)
        await session.anchoring.check()
        for _ in range(_FULL_READS):
            if await session._read_list_in_full():
                break  # otherwise others have written while it was read
        return session

    @property
    def store_id(self) -> bytes:
        """The 16 bytes that distinguish the store from others."""
        return self.keyset.store_id

    # Keys that others have changed

    async def renew_keys(self, seen: int) -> bool:
        """Return whether the keys were changed since version `seen` of their row, and take over the present ones.

        Raises:
            RemovedKeyError: the key of this process does not open the store any more.
        """
        found = await self.store.get(KEYS)
        if found is None or found.version < self.keys_version:
            raise DamagedStoreError(self.where, "the row with its keys is missing or older than it was")
        if found.version > self.keys_version:
            keyset, known = await opened_keyset(found, self._key, self.where), self.keyset
            same = [keyset.keys[each] == known.keys[each] for each in (Purpose.INDEX, Purpose.SUM)]
            if keyset.store_id != known.store_id or not all(same):
                raise DamagedStoreError(self.where, "the row with its keys is that of another store")
            with self.lock:
                if found.version > self.keys_version:
                    self.keyset, self.keys_version = keyset, found.version
                    self._seal_keys = keyset.keys[Purpose.SEAL]
        return self.keys_version != seen

    async def change_keys(self, change: Callable[[Keyset], Keyset], *, erased: bool = False) -> None:
        """Put a changed keyset in place, unless another process has changed it; in any case this session has the present one then."""
        version = self.keys_version
        try:
            await self.store.commit(*replacing(version, change(self.keyset), erased=erased))
        except ConflictError:
            pass
        finally:
            await self.renew_keys(version)
            await self.writers.renew()  # a commit wants to know the rows of the writers at least as of the key row

    async def make_way(self) -> None:
        """Have the commits of all other processes refused that are under way: they wait for a moment before they try again.

        Otherwise, a process that writes to a domain all the time would always be first. The key row is put again, as it is, and each commit
        requires the key row that its process knows.
        """
        await self.change_keys(lambda keyset: keyset)

    async def unsealed(self, kind: bytes, found: Item) -> bytes | None:
        """Return the plaintext of a row that is not an item; None if it has to be read again.

        Raises:
            UnreadableError: it was changed, or is sealed with an unknown key.
        """
        seen = self.keys_version
        try:
            return unseal(
                self._seal_keys,
                associated_data(self.keyset.store_id, kind, encode(found.key), found.version),
                found.value,
                least=least_size(kind),
            )
        except UnknownKeyError:
            # The keys were changed, or the row was sealed anew after it was read.
            if await self.renew_keys(seen):
                return None
            again = await self.store.get(found.key)
            if again is None or again.version != found.version:
                return None
            raise

    # Sealing and opening

    @property
    def seal_number(self) -> int:
        """The number of the key that seals the rows of domains and writers, and that the key of a new domain gets."""
        return primary(self._seal_keys).number

    def sealed_item(self, key: NamedKey, place: bytes, version: int, clear: bytes, value: bytes) -> bytes:
        """Return the record of an item; `clear` is its encoded key, `place` that of its row."""
        to = associated_data(self.keyset.store_id, b"item", place, version)
        return seal(key, to, item_plain(clear, value))

    def sealed_domain(self, place: bytes, version: int, state: DomainState) -> bytes:
        """Return the record of a domain's row; `place` is the encoded key of the row."""
        to = associated_data(self.keyset.store_id, b"domain", place, version)
        return seal(primary(self._seal_keys), to, state.plain())

    def sealed_row(self, kind: bytes, row: Key, version: int, plain: bytes) -> bytes:
        """Return the record of a row that is neither an item nor a domain."""
        return seal(
            primary(self._seal_keys),
            associated_data(self.store_id, kind, encode(row), version),
            plain,
            least=least_size(kind),
        )

    def opened(self, keys: Iterable[NamedKey], place: bytes, found: Item) -> tuple[bytes, bytes]:
        """Return the encoded key and the value from the record of an item.

        Raises:
            UnreadableError: it was changed, or belongs somewhere else.
        """
        to = associated_data(self.keyset.store_id, b"item", place, found.version)
        return read_item(unseal(keys, to, found.value))

    def item_digest(self, place: bytes, mark: bytes) -> bytes:
        """Return the member that an item with this mark adds to the sum of its domain."""
        return item_digest(self.sum_key, place, mark)

    def damaged(self, room: object, reason: str) -> DamagedStoreError:
        """Return the error for damage in a room."""
        return DamagedStoreError(self.where, f"room {room!r}: {reason}")

    # Finding

    def depth(self, room: Segment) -> int:
        """Return how many segments make a domain in a room.

        Raises:
            StoreError: the room was made with another depth than is declared now.
        """
        made = self.writers.rows.base.depths.get(encode((room,)))
        declared = self._declared.get(room) if isinstance(room, str) else None
        if made is not None and declared not in (None, made):
            raise StoreError(
                f"{self.where}: room {room!r} was made with domains of {counted(made, 'segment')}, not {declared}; "
                f"declare domains={{{room!r}: {made}}}, or leave it out"
            )
        return made or declared or DEFAULT_DEPTH

    def is_single(self, path: Key) -> bool:
        """Return whether the domain at a blinded path is that of a single item, whose key is shorter than the keys of a room's domains."""
        depths = self.writers.rows.base.depths.items()
        return len(path) < next(
            (depth for room, depth in depths if self.blind(decode(room)) == path[:1]), DEFAULT_DEPTH
        )

    def locate(self, key: Key) -> Location:
        """Return where the item under a key is stored."""
        depth = self.depth(key[0])
        blinded, place = self.blind.encoded(key)
        return Location(key, blinded[:depth], ("i", *blinded), _ITEMS + place, len(key) < depth)

    def path(self, key: Key) -> Key:
        """Return the blinded path of the domain of a key."""
        return self.blind(key[: self.depth(key[0])])

    async def domain(self, path: Key, room: object) -> Domain | None:
        """Return a domain whose members were checked, or one that lags; None if it does not exist."""
        known: Domain | None = None
        for _ in range(TRIES):
            # A domain that was dropped from the cache meanwhile, for want of memory, still serves this task.
            known = self._domains.get(path) or (known if known and not known.gone else await self.found(path, room))
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

    def is_known(self, path: Key) -> bool:
        """Return whether a domain is in the cache."""
        return path in self._domains

    def is_new(self, key: Key, path: Key) -> bool:
        """Return whether a domain probably does not exist, as far as is known without reading: a put of an item that must not exist finds out.

        That of a single item cannot exist then. Of another one, the list of domains has to say so.
        """
        if self._has_former or path in self._domains or encode(key[:1]) not in self.writers.rows.base.depths:
            return False
        generation = self._is_listed(encode(path))
        return generation == 0 or (generation is None and len(key) < self.depth(key[0]))

    async def found(self, path: Key, room: object) -> Domain | None:
        """Return a domain as its row describes it, whose items were not read yet."""
        place = encode(path)
        for _ in range(TRIES):
            found, generation = await self._row(path, room)
            if self._is_listed(place) not in (None, generation):
                await self.renew_list()
                if (listed := self._is_listed(place)) not in (None, generation):
                    if (found, generation) == await self._row(path, room):
                        await self.renew_list()  # others may have removed it, made it and removed it again
                        if self._is_listed(place) == listed:
                            raise self.damaged(room, "the row of a domain is missing, or was put back")
                    continue  # it was changed meanwhile
            else:
                await self._use_list()
            if found is None:
                if isinstance(room, str | int) and encode((room,)) not in self.writers.rows.base.depths:
                    await self.writers.renew()  # another process may have begun the room
                return None
            state = await self._opened_domain(found, room)
            if state is None:
                continue
            with self.lock:
                if path not in self._domains:
                    self.keep(Domain.at(path, found.key, found.version, generation, state))
                return self._domains[path]
        raise self.restless(room)

    def single_state(self, path: Key, generation: int, found: Item | None) -> DomainState | None:
        """Return the state of a domain of a single item from its row; None, if that is not the row that was put there last, as far as is known."""
        if found is None or generation_of(found.key, found.version) != generation:
            return None
        with self.lock:
            known = self._domains.get(path)
            state = known.state if known and (known.row, known.version) == (found.key, found.version) else None
        if known is None:
            state = self.opened_domain(found, 0)
        return state if state is not None and state.single else None

    def opened_single(self, path: Key, state: DomainState, item: Item | None) -> HeldItem | None:
        """Return the only item of a domain, from the row of the item; both rows were read at one moment. None, if they do not fit."""
        if item is None:
            return None
        place = _ITEMS + encode(path)
        total = sum_with(0, self.item_digest(place, item_mark(item.version, item.value)))
        if (state.count, state.total) != (1, total):
            return None
        try:
            return HeldItem(item.version, *self.opened(state.keys, place, item))
        except UnreadableError:
            return None

    def keep(self, domain: Domain) -> None:
        """Put a domain into the cache."""
        with self.lock:
            self.drop(domain.path)
            self._domains[domain.path] = domain
            self.weigh(domain)

    def drop(self, path: Key) -> None:
        """Drop a domain from the cache."""
        with self.lock:
            known = self._domains.pop(path, None)
            if known is not None:
                self._weight -= known.weight
                known.weight = 0

    def weigh(self, domain: Domain) -> None:
        """Update the memory that a domain in the cache counts for."""
        with self.lock:
            if self._domains.get(domain.path) is domain:
                weight = _DOMAIN_BYTES + _ITEM_BYTES * (len(domain.members) if domain.members else 0)
                self._weight += weight - domain.weight
                domain.weight = weight
                self.trim()

    def trim(self) -> None:
        """Drop the least recently used domains, but neither the last one nor those that a commit needs."""
        with self.lock:
            members = self.listed.members
            most = self._cache_bytes - (len(members) * _LISTED_BYTES if members else 0)
            while self._weight > most:
                last = next(reversed(self._domains))
                oldest = next((path for path in self._domains if path != last and path not in self.pinned), None)
                if oldest is None:
                    return
                self.drop(oldest)

    def may_list(self, count: int) -> bool:
        """Return whether a list of `count` domains may be cached: half of the memory is for the domains themselves."""
        return count * _LISTED_BYTES <= self._cache_bytes // 2

    async def domains_under(self, prefix: Key) -> dict[Key, int]:
        """Return the paths of the domains that begin with `prefix`, in order, and their generations."""
        await self.renew_list()
        listed = self.listed_under(prefix)
        if listed is not None:
            return listed
        rows = await collect(self.store.scan(("d", *prefix)))
        return dict(sorted([(path_of(found.key), self.generation(found)) for found in rows], key=_place))

    def listed_under(self, prefix: Key) -> dict[Key, int] | None:
        """Return the paths of the domains that begin with `prefix`, in order, and their generations; None if the list is not known."""
        members, low = self.listed.members, encode(prefix)
        if members is None:
            return None
        cut = len(low)
        return {(*prefix, *decode(each, cut)): members.get(each) or 0 for each in members.between(low, low + b"\xff")}

    def generation(self, found: Item) -> int:
        """Return the generation of a domain from its row."""
        try:
            return generation_of(found.key, found.version)
        except UnreadableError as error:
            raise DamagedStoreError(self.where, f"a row of a domain {error}") from None

    async def _row(self, path: Key, room: object) -> tuple[Item | None, int]:
        """Return the row of a domain and its generation; None and 0 if there is none."""
        if not self._has_former:
            found = await self.store.get(domain_row(path))
            return (found, self.generation(found)) if found else (None, 0)
        rows = await collect(self.store.scan(domain_row(path), limit=2))
        if len(rows) > 1:
            raise self.damaged(room, "a domain has two rows")
        return (rows[0], self.generation(rows[0])) if rows else (None, 0)

    def _is_listed(self, place: bytes) -> int | None:
        """Return the generation of a domain according to the list, 0 if it is not there, None if the list is not known."""
        members = self.listed.members
        return None if members is None else members.get(place) or 0

    async def _gone(self, place: bytes, generation: int) -> bool:
        """Return whether a missing domain may have been removed meanwhile, rather than lost."""
        await self.renew_list()
        return self._is_listed(place) != generation

    # Changes of others

    async def moved(self, domain: Domain, seen: int, room: object) -> bool:
        """Return whether a domain was changed since version `seen`, and take over its present state."""
        if domain.version != seen:
            return True
        before = _age(domain.row, seen)
        found, generation = await self._row(domain.path, room)
        if found is None or generation != domain.generation:
            domain.gone = True
            self.drop(domain.path)
            return await self._gone(encode(domain.path), domain.generation)
        if _age(found.key, found.version) == before:
            return domain.version != seen
        state = await self._opened_domain(found, room)
        if state is None:
            return await self.moved(domain, seen, room)
        with self.lock:
            if self.flight is not None:
                self.flight.landed(found.key, found)
            if _age(found.key, found.version) < before:
                raise self.damaged(room, "the row of a domain is older than it was")
            if _age(found.key, found.version) > _age(domain.row, domain.version):
                domain.adopt(found.key, found.version, state)
                self.weigh(domain)
        return True

    async def renew_list(self) -> None:
        """Take over changes of others to the list of domains, and read the list in full if that is due."""
        listed = self.listed
        for _ in range(_FULL_READS):
            await self.writers.renew()
            if listed.members is not None:
                break
            listed.debt += _OPERATION
            if listed.debt <= listed.count:
                return
            if await self._listing.entered():
                try:
                    if await self._read_list_in_full():
                        return
                finally:
                    self._listing.leave()
        listed.debt = 0

    async def _use_list(self) -> None:
        """Take note of an operation that relies on the list of domains, which bounds for how long others may have changed it unseen."""
        self.listed.debt += _FIRST_USE
        if self.listed.debt > max(self.listed.count, _FEW) and not self.listed.is_read:
            self.listed.is_read = True
            try:
                await self.renew_list()
            finally:
                self.listed.is_read = False

    async def _read_list_in_full(self) -> bool:
        """Read the rows of all domains and compare their sum with that of the writers. Return whether others have let that be."""
        rows = await self.writers.renew()
        members: dict[bytes, int] = {}
        count, sums = 0, rooms_sums(self.sum_key, rows.base.depths)
        former = rows.is_former

        def fold(chunk: list[Item]) -> None:
            nonlocal count, sums, former
            for found in chunk:
                generation = self.generation(found)
                former = former or is_former(found.key)
                count += 1
                if self.may_list(count):
                    members[encode(path_of(found.key))] = generation
            begun = (Changed(found.key, 0, found.version) for found in chunk)
            sums = sums.plus(difference(self.sum_key, begun, anchored=rows.base.anchored))

        await folded(self.store.scan(("d",)), fold)
        if not self.anchoring.fit(sums, rows) or rows.domains not in (None, count):
            await self.writers.contradicted(rows, sums)
            return False
        self._has_former = former
        kept = self.may_list(count)
        ordered = await anyio.to_thread.run_sync(SortedDict, members) if len(members) > _CHUNK else SortedDict(members)
        with self.lock:
            kept = kept and self.writers.rows.versions == rows.versions
            self.listed.members, self.listed.count, self.listed.debt = ordered if kept else None, count, 0
            self.trim()
        return True

    async def _read_in_full(self, domain: Domain, room: object) -> None:
        """Read the members and compare them with the row; put it off if others keep writing."""
        depth = domain.depth
        for _ in range(_FULL_READS):
            if domain.state.held is not None:
                return
            version = domain.version
            members: dict[bytes, bytes] = {}
            total = 0

            def fold(chunk: list[Item], members: dict[bytes, bytes] = members) -> None:
                nonlocal total
                for item in chunk:
                    rest = encode(item.key[depth:])
                    each = members[rest] = item_mark(item.version, item.value)
                    total = sum_with(total, self.item_digest(domain.items + rest, each))

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
        self,
        domain: Domain,
        within: Key = (),
        after: Key | None = None,
        *,
        limit: int | None = None,
        reverse: bool = False,
    ) -> AsyncIterator[Item]:
        """Return the sealed items of a domain that have rows, or those under an inner prefix in it."""
        if not domain.state.single:
            return self.store.scan(within or ("i", *domain.path), after=after, limit=limit, reverse=reverse)
        left = [] if after or domain.state.held else [("i", *domain.path)]

        async def more() -> list[Item]:
            found = await self.store.get(left.pop()) if left else None
            return [found] if found else []

        return Scan(more)

    def opened_domain(self, found: Item, least: int) -> DomainState | None:
        """Return the state that the row of a domain contains, or None if it does not open with a key of this number or above."""
        keys = [key for key in self._seal_keys if key.number >= least] if least else self._seal_keys
        to = associated_data(self.keyset.store_id, b"domain", encode(found.key), found.version)
        try:
            return DomainState.read(unseal(keys, to, found.value))
        except UnreadableError:
            return None

    async def _opened_domain(self, found: Item, room: object) -> DomainState | None:
        """Return the state that the row of a domain contains; None if the row has to be read again."""
        try:
            plain = await self.unsealed(b"domain", found)
            return None if plain is None else DomainState.read(plain)
        except UnreadableError as error:
            raise self.damaged(room, f"the row of a domain {error}") from None

    def restless(self, room: object) -> StoreError:
        """Return the error for a room that others change faster than it can be read."""
        return StoreError(f"{self.where}: room {room!r} is changed by others all the time; try again")


async def folded(rows: AsyncIterator[Item], fold: Callable[[list[Item]], None]) -> None:
    """Call a function with the rows, in chunks; if they are many, in a worker thread."""
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
    return not await collect(store.scan(prefix, limit=1))


def _place(entry: tuple[Key, int]) -> bytes:
    return encode(entry[0])


def _age(row: Key, version: int) -> tuple[bool, int]:
    """Return by which the rows of a domain of one generation are compared: the later one is greater."""
    return not is_former(row), version
