"""An opened encrypted store: what it must contain, and checking that it does.

The row of a domain states how many items the domain has, and the sum of their digests; the row of the root states the same of the
domains. Reading a domain (or the list of domains) in full once yields its members, each with its digest. If their number and sum
are those of the row, every later read is compared with them: nothing can be missing, exchanged or added without being noticed.

When another process has changed a row, the members that are known are out of date and are dropped: the set *lags*. What is read
then is checked against its own seal alone, which still tells who wrote it, but not whether something is missing. Reading in full
again would cost more the more is stored, so it is put off: each operation adds to a *debt*, and when the debt exceeds the number
of members, reading in full costs no more than what was saved by putting it off. So no operation gets slower as a store grows.

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
from graphagent.store._encoding import decode, encode
from graphagent.store._items import Change, Item, Key, Put, Segment
from graphagent.store._paging import Scan
from graphagent.store._sealed_detection import KEYS, ROOMS, ROOT
from graphagent.store._sorted_dict import SortedDict
from graphagent.store.sealed._anchor import state_digest
from graphagent.store.sealed._anchoring import Anchoring, has_older_keys
from graphagent.store.sealed._domains import Domain, InFlight, IntegritySet, Location, domain_row
from graphagent.store.sealed._format import (
    DomainState,
    NamedKey,
    RootState,
    UnknownKeyError,
    UnreadableError,
    associated_data,
    domain_digest,
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

if TYPE_CHECKING:
    from graphagent.protocols import Store
    from graphagent.store.sealed._anchor_sources import HeldAnchor
    from graphagent.store.sealed._key_sources import HeldKey

DEFAULT_DEPTH = 2
TRIES = 100
"""How often an operation is repeated because others changed what it had read."""
_FULL_READS = 3
_OPERATION = 16
"""What an operation on a set that lags adds to its debt, in members to be read."""
_ITEM_BYTES, _DOMAIN_BYTES, _LISTED_BYTES = 300, 3_000, 300
"""How many bytes of memory an item, a domain, and an entry in the list of domains take."""
_CHUNK_INLINE, _CHUNK = 64, 4096
"""How many rows are added up by the thread of the event loop, and how many by another thread at once."""
_ITEMS, _ROWS = encode(("i",)), encode(("d",))


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
        self.root: IntegritySet[RootState, int] = IntegritySet(ROOT, 0, RootState())
        self.root_keys = 0
        """The version of the key row that was known when the root was read last. Whoever anchors the store puts both anew."""
        self.flight: InFlight | None = None
        self._key = key
        self.keyset = keyset
        self._seal_keys = keyset.keys[Purpose.SEAL]
        self.sum_key = primary(keyset.keys[Purpose.SUM]).key
        self.anchoring = Anchoring(self)
        self.blind = Blinder(primary(keyset.keys[Purpose.INDEX]).key)
        self._declared = depths
        self.pinned: frozenset[Key] = frozenset()
        """The paths of the domains of the commit that is being made, which stay in the cache."""
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
        anchor: HeldAnchor | None = None,
        anchor_every: float = 0.0,
        accept: bool = False,
    ) -> SealedSession | None:
        """Open a store; return None if it is new and is not to be made. With `accept`, it may be older than its anchor.

        Raises:
            KeySourceError: the key is not where it is to be.
            WrongKeyError: it was sealed with another key.
            RemovedKeyError: the key was removed.
            DestroyedStoreError: its keys were destroyed.
            NewerFormatError: a newer version has written its key row.
            PlainStoreError: it is not empty and was never sealed.
            DamagedStoreError: its key row or its root are missing or damaged.
            RolledBackError: it is older than its anchor, or a part of it is older than the rest.
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
            row, root = made.keyset.row(1), made.sealed_root(RootState(), 1)
            try:
                await store.commit(Put(KEYS, row, expected=0), Put(ROOT, root, expected=0))
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
        session.anchoring = Anchoring(session, anchor, anchor_every, accept)
        await session.anchoring.check()
        await session.renew_root()
        for _ in range(_FULL_READS):
            if session.anchoring.is_checked:
                break
            await session._read_root_in_full()  # others have written while it was read
        return session

    @property
    def store_id(self) -> bytes:
        """The 16 bytes that distinguish the store from others."""
        return self.keyset.store_id

    # Keys that others have changed

    def keys_again(self) -> list[Change]:
        """Return what puts the same keys again, so that whoever has the store open reads them again, and the root."""
        return replacing(self.keys_version, self.keyset)

    async def renew_keys(self, seen: int) -> bool:
        """Return whether the keys were changed since version `seen` of their row, and take over the present ones.

        Raises:
            RemovedKeyError: the key of this process does not open the store any more.
            DestroyedStoreError: the keys were destroyed.
            DamagedStoreError: the key row is missing, damaged, older than it was, or that of another store.
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
        """The number of the key that seals the rows of domains and root, and that the key of a new domain gets."""
        return primary(self._seal_keys).number

    def sealed_item(self, key: NamedKey, place: bytes, version: int, clear: bytes, value: bytes) -> bytes:
        """Return the record of an item; `clear` is its encoded key, `place` that of its row."""
        to = associated_data(self.keyset.store_id, b"item", place, version)
        return seal(key, to, item_plain(clear, value))

    def sealed_domain(self, place: bytes, version: int, state: DomainState) -> bytes:
        """Return the record of a domain's row; `place` is the encoded key of the row."""
        to = associated_data(self.keyset.store_id, b"domain", place, version)
        return seal(primary(self._seal_keys), to, state.plain())

    def sealed_root(self, state: RootState, version: int) -> bytes:
        """Return the record of the root's row."""
        return self.sealed_row(b"root", ROOT, version, state.plain())

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
        """Return what an item with this mark adds to the sum of its domain."""
        return item_digest(self.sum_key, place, mark)

    def domain_digest(self, path: Key, generation: int) -> bytes:
        """Return what a domain adds to the sum of the root."""
        return domain_digest(self.sum_key, encode(domain_row(path, generation)))

    def damaged(self, room: object, reason: str) -> DamagedStoreError:
        """Return the error for damage in a room."""
        return DamagedStoreError(self.where, f"room {room!r}: {reason}")

    # Finding

    def depth(self, room: Segment) -> int:
        """Return how many segments make a domain in a room.

        Raises:
            StoreError: the room was made with another depth than is declared now.
        """
        made = self.root.state.depths.get(encode((room,)))
        declared = self._declared.get(room) if isinstance(room, str) else None
        if made is not None and declared not in (None, made):
            raise StoreError(
                f"{self.where}: room {room!r} was made with domains of {counted(made, 'segment')}, not {declared}; "
                f"declare domains={{{room!r}: {made}}}, or leave it out"
            )
        return made or declared or DEFAULT_DEPTH

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

    async def found(self, path: Key, room: object) -> Domain | None:
        """Return a domain as its row describes it, whose items were not read yet."""
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
            state = await self._opened_domain(found, room)
            if state is None:
                continue
            with self.lock:
                if path not in self._domains:
                    self.keep(Domain.at(path, generation, found.version, state))
                return self._domains[path]
        raise self.restless(room)

    def opened_single(
        self, path: Key, generation: int, found: Item | None, item: Item | None
    ) -> tuple[bytes, bytes] | None:
        """Return the encoded key and the value of the only item of a domain, of which both rows were read at one moment.

        None, if they are not what was put there last, as far as is known here.
        """
        known = self._domains.get(path)
        if found is None or item is None or (known is not None and known.version != found.version):
            return None
        place = encode(path)
        inner = _ITEMS + place
        total = sum_with(0, self.item_digest(inner, item_mark(item.version, item.value)))
        try:
            if known is not None:
                state = known.state
            else:
                row = _ROWS + place + encode(("#", generation))
                to = associated_data(self.keyset.store_id, b"domain", row, found.version)
                state = DomainState.read(unseal(self._seal_keys, to, found.value))
            if not state.single or (state.count, state.total) != (1, total):
                return None
            to = associated_data(self.keyset.store_id, b"item", inner, item.version)
            return read_item(unseal(state.keys, to, item.value))
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
        """Drop the domains that were not used for longest, but neither the last one nor those that a commit needs."""
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
        """Return whether a list of `count` domains may be cached: half of the memory is for the domains themselves."""
        return count * _LISTED_BYTES <= self._cache_bytes // 2

    async def domains_under(self, prefix: Key) -> list[tuple[Key, int]]:
        """Return the paths of the domains that begin with `prefix`, in order, and their generations."""
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
        """Return whether a missing domain may have been removed meanwhile, rather than lost."""
        await self.renew_root()
        members = self.root.members
        return members is None or members.get(place) != generation

    # What others have changed

    async def moved(self, domain: Domain, seen: int, room: object) -> bool:
        """Return whether a domain was changed since version `seen`, and take over its present state."""
        if domain.version != seen:
            return True
        found = await self.store.get(domain.row)
        if found is None:
            domain.gone = True
            self.drop(domain.path)
            return await self._gone(encode(domain.path), domain.generation)
        if found.version == seen:
            return domain.version != seen
        state = await self._opened_domain(found, room)
        if state is None:
            return await self.moved(domain, seen, room)
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
        """Take over the present state of the root, and read the list of domains if that is due."""
        root = self.root
        for _ in range(_FULL_READS):
            seen, keys = root.version, self.keys_version
            found = await self.store.get(ROOT)
            if found is None or found.version < seen:
                await self.renew_keys(self.keys_version)  # if they were destroyed, the root is gone as well
                raise DamagedStoreError(self.where, "the row of its root is missing or older than it was")
            if found.version != root.version:
                try:
                    plain = await self.unsealed(b"root", found)
                    if plain is None:
                        await self.renew_root()
                        return
                    state = RootState.read(plain)
                except UnreadableError as error:
                    raise DamagedStoreError(self.where, f"the row of its root {error}") from None
                with self.lock:
                    landed = self.flight is not None and self.flight.landed(ROOT, found)
                    if not landed and found.version > root.version:
                        root.adopt(found.version, state)
                        root.debt += state.count + 1 if seen == 0 else 0
            self.root_keys = max(self.root_keys, keys)
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
        count = total = versions = 0
        before = await self.anchoring.before_listing()

        def fold(chunk: list[Item]) -> None:
            nonlocal count, total, versions
            for found in chunk:
                path, generation = _split(self, found.key)
                if kept:
                    members[encode(path)] = generation
                count += 1
                total = sum_with(total, self.domain_digest(path, generation))
                if before is not None:
                    versions = sum_with(versions, state_digest(self.sum_key, encode(found.key), found.version))

        await folded(self.store.scan(("d",)), fold)
        ordered = await anyio.to_thread.run_sync(SortedDict, members) if len(members) > _CHUNK else SortedDict(members)
        with self.lock:
            fits = root.version == version and (count, total) == (root.state.count, root.state.total)
        if fits:
            await self.anchoring.compare(before, versions)
        with self.lock:
            if fits and root.version == version:
                root.members, root.debt = ordered if kept else None, 0
                self.trim()
                return True
        found_now = await self.store.get(ROOT)
        if root.version == version and found_now is not None and found_now.version == version:
            raise DamagedStoreError(self.where, "domains are missing, or were added by someone without the key")
        return False

    async def _read_in_full(self, domain: Domain, room: object) -> None:
        """Read the members and compare them with the row; put it off if others keep writing."""
        depth = domain.depth
        for _ in range(_FULL_READS):
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
        """Return the sealed items of a domain, or those under an inner prefix in it."""
        if not domain.state.single:
            return self.store.scan(within or ("i", *domain.path), after=after, limit=limit, reverse=reverse)
        left = [] if after else [("i", *domain.path)]

        async def more() -> list[Item]:
            found = await self.store.get(left.pop()) if left else None
            return [found] if found else []

        return Scan(more)

    def opened_domain(self, found: Item, least: int) -> DomainState | None:
        """Return the state that the row of a domain contains, or None if it does not open with a key of this number or above."""
        keys = [key for key in self._seal_keys if key.number >= least]
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
    async for _ in store.scan(prefix, limit=1):
        return False
    return True


def _place(entry: tuple[Key, int]) -> bytes:
    return encode(entry[0])


def _split(session: SealedSession, row: Key) -> tuple[Key, int]:
    generation = row[-1]
    if len(row) < 4 or row[-2] != "#" or not isinstance(generation, int):
        raise DamagedStoreError(session.where, "a row of a domain is under a key where none is put")
    return row[1:-2], generation
