"""Commits to an encrypted store, translated into one commit to the inner store.

A commit of the inner store contains the item rows, each with the version that it must have now, and the rows of their domains,
with the new numbers and sums; and if domains were added or removed, the row of this session, which counts them. So if another process has changed one of the domains meanwhile, that causes a conflict, after
which the transaction is made again from the data that are stored then. So does a change of the keys: no row is sealed with old ones.

The file is long because each kind of change plans rows of the same domains, which only together make the commit.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

from graphagent._concurrency import turn
from graphagent.errors import ConflictError
from graphagent.store._bulk import collect
from graphagent.store._items import (
    Change,
    Delete,
    DeleteAll,
    Exists,
    Item,
    Key,
    Put,
    check_before,
    check_expected,
    encode,
    version_after,
)
from graphagent.store._sealed_detection import KEYS
from graphagent.store._sorted_dict import SortedDict
from graphagent.store.sealed._base import Changed, domain_row, first_version, is_former, new_generation, path_of
from graphagent.store.sealed._domains import Domain, Location, MismatchError
from graphagent.store.sealed._format import (
    DomainState,
    HeldItem,
    NamedKey,
    UnreadableError,
    fresh_keys,
    item_mark,
    marked_version,
    primary,
    sum_with,
)

if TYPE_CHECKING:
    from graphagent.store.sealed._session import SealedSession
    from graphagent.store.sealed._writers import Plan, Rows


_HELD_BYTES = 1024
"""Up to which size the value of an item that is alone in its domain lies in the domain's row. All of these are read when a store is opened."""


class OvertakenError(Exception):
    """A domain was changed by another process since the transaction was begun, which has to be made again."""


class Resealed(NamedTuple):
    """An item that was sealed anew with another key."""

    place: bytes
    """The encoded inner key."""
    change: Put
    before: bytes
    """The member that the item adds to the sum of its domain with the record before."""
    version: int
    mark: bytes
    """The mark of the new record."""


class _PlannedItem(NamedTuple):
    """An item after the changes so far."""

    path: Key
    version: int = 0
    """0 if it does not exist."""
    mark: bytes = b""
    """Empty if the row of the domain holds the item."""


class _Removed(NamedTuple):
    """A stored domain that is removed."""

    row: Key
    version: int
    """The version that its row must have."""
    by_prefix: bool = False
    """Whether a DeleteAll removes its row, which was required to have the version before."""


class _PlannedDomain(NamedTuple):
    """A domain after the changes so far."""

    domain: Domain | None
    """The domain as it is stored; None if it is new, or if it was removed by an earlier change."""
    version: int
    """The version that its row has now, or 0."""
    generation: int
    state: DomainState | None
    """None if it is to be removed."""


@dataclass
class SealedTransaction:
    """The changes to the inner store that make several commits. Each is added to a copy, so that one that fails leaves nothing."""

    session: SealedSession
    writers: Rows
    """The rows of the writers when the transaction was begun."""
    wary: bool
    """Whether items and domains that should not exist are looked for. At first they are not, which saves a read for each new one: if
    it exists, the inner store refuses to put over it, and the second attempt is wary."""
    absent: AbstractSet[Key] = frozenset()
    """The paths of domains that did not exist when the commit was begun that is being added."""
    changes: list[Change] = field(default_factory=list[Change])
    items: dict[bytes, _PlannedItem] = field(default_factory=dict[bytes, "_PlannedItem"])
    existing: set[bytes] = field(default_factory=set[bytes])
    """Those of `items` that exist after the changes so far."""
    domains: dict[Key, _PlannedDomain] = field(default_factory=dict[Key, _PlannedDomain])
    removed: dict[Key, _Removed] = field(default_factory=dict[Key, _Removed])
    """The stored domains that are removed, by their paths."""
    read: dict[Key, tuple[Domain, int]] = field(default_factory=dict[Key, "tuple[Domain, int]"])
    """The domains that were consulted, each with the version that it had then."""
    relied: set[Key] = field(default_factory=set[Key])
    """The paths of domains with items that are required to exist."""
    rooms: dict[bytes, int] = field(default_factory=dict[bytes, int])
    """The depths of the rooms that it begins."""
    rows: dict[Key, bytes] = field(default_factory=dict[Key, bytes])
    """The new rows of domains and writers, once `finish` has sealed them."""
    plan: Plan | None = None
    """The changes of the commit to the rows of writers."""
    applied: bool = False

    @classmethod
    def begun(cls, session: SealedSession, *, wary: bool) -> SealedTransaction:
        """Return a transaction without changes."""
        return cls(session, session.writers.rows, wary)

    def copy(self) -> SealedTransaction:
        """Return a copy that can be changed independently."""
        return replace(
            self, changes=list(self.changes), items=dict(self.items), existing=set(self.existing), domains=dict(self.domains),
            removed=dict(self.removed), read=dict(self.read), relied=set(self.relied), rooms=dict(self.rooms),
        )  # fmt: skip

    async def add(self, change: Change, clear: bytes) -> None:
        """Add a change; `clear` is its encoded key.

        Raises:
            ConflictError: the item is not at the version that the change expects.
            OvertakenError: another process has changed the domain meanwhile.
        """
        if isinstance(change, DeleteAll):
            await self._delete_all(change.prefix)
            return
        location = self.session.locate(change.key)
        before = await self._domain(location, new=isinstance(change, Put) and not change.expected and not change.before)
        if isinstance(change, Exists):
            self.relied.add(location.path)
            await self._exists(before, location, change)
            return
        now = await self._item(before, location)
        version = now.version if now else 0
        check_expected(change, version)
        if isinstance(change, Put) and change.before is not None:
            check_before(change, Item(change.key, await self._value(before, location, version), version))
        if isinstance(change, Put):
            self._put(before, now, location, clear, change)
        elif now is not None:
            if now.mark:
                self.changes.append(Delete(location.inner, expected=version))
            self._take(location.path, [location.place])
            self._without(location.path, {location.place: now})

    async def _exists(self, before: _PlannedDomain | None, location: Location, change: Exists) -> None:
        planned = self.items.get(location.place)
        domain = before.domain if before else None
        if planned is not None or before is None or domain is None:
            check_expected(change, planned.version if planned else 0)
        elif before.state is not None and before.state.held is not None:
            check_expected(change, before.state.held.version)
        else:
            mark = domain.members.get(location.place[len(domain.items) :]) if domain.members else None
            if mark is None or change.version not in (None, marked_version(mark)):  # others may have put it meanwhile
                found = await self.session.store.get(location.inner)
                await self._checked(before, domain, location.key[0], location.place, found)
                check_expected(change, found.version if found else 0)
        if planned is None and before and domain and domain.state.single and not is_former(domain.row):
            # The row of the domain exists exactly if the item does, which may lie in it.
            self.changes.append(Exists(domain.row, before.version if change.version else None))
        elif planned is None:
            # The known state of the domain may be out of date.
            self.changes.append(Exists(location.inner, change.version))

    def _put(
        self,
        before: _PlannedDomain | None,
        now: _PlannedItem | None,
        location: Location,
        clear: bytes,
        change: Put,
    ) -> None:
        session = self.session
        if before is None or before.state is None:
            state = DomainState(fresh_keys(session.seal_number), single=location.single)
            before = _PlannedDomain(None, 0, new_generation(), state)
            room = encode(location.key[:1])
            if room not in self.writers.base.depths:
                self.rooms[room] = session.depth(location.key[0])
        else:
            state = before.state
        found = now.version if now else 0
        version = version_after(change, found)
        own = now if now and now.mark else None  # with a row of its own
        if state.single and len(change.value) <= _HELD_BYTES:
            if own is not None:
                self.changes.append(Delete(location.inner, expected=found))
            state = DomainState.holding(state.keys, HeldItem(version, clear, change.value))
            self._planned(before, state, location, _PlannedItem(location.path, version))
            return
        record = session.sealed_item(primary(state.keys), location.place, version, clear, change.value)
        mark = item_mark(version, record)
        before_it = session.item_digest(location.place, own.mark) if own else None
        total = sum_with(state.total, session.item_digest(location.place, mark), without=before_it)
        state = replace(state, count=state.count + (now is None), total=total, held=None)
        # An item that leaves the row of its domain has no row of its own yet, at no version.
        expected = found if own or now is None else None
        self.changes.append(Put(location.inner, record, expected=expected, version=version))
        self._planned(before, state, location, _PlannedItem(location.path, version, mark))

    def _planned(self, before: _PlannedDomain, state: DomainState, location: Location, item: _PlannedItem) -> None:
        self.items[location.place] = item
        self.existing.add(location.place)
        self.domains[location.path] = before._replace(state=state)

    def reseal(self, domain: Domain, keys: tuple[NamedKey, ...], items: Iterable[Resealed]) -> None:
        """Change the keys of a domain and the records of some of its items, but no version of an item."""
        with self.session.lock:
            before = _PlannedDomain(domain, domain.version, domain.generation, domain.state)
        total = domain.state.total
        for each in items:
            total = sum_with(total, self.session.item_digest(each.place, each.mark), without=each.before)
            self.changes.append(each.change)
            self.items[each.place] = _PlannedItem(domain.path, each.version, each.mark)
        self.domains[domain.path] = before._replace(state=replace(domain.state, keys=keys, total=total))
        self.read[domain.path] = domain, before.version

    def _without(self, path: Key, items: Mapping[bytes, _PlannedItem]) -> None:
        before = self.domains[path]
        if before.state is None:
            return
        total = before.state.total
        for place, now in items.items():
            if now.mark:
                total = sum_with(total, without=self.session.item_digest(place, now.mark))
        state = replace(before.state, count=before.state.count - len(items), total=total)
        self.domains[path] = before._replace(state=state)
        if state.count == 0:
            self._remove(path, _Removed(before.domain.row, before.version) if before.domain else None)

    def _remove(self, path: Key, removed: _Removed | None) -> None:
        if removed is not None:
            self.removed[path] = removed
        self.domains[path] = _PlannedDomain(None, 0, 0, None)
        self._take(path, [place for place in self.existing if self.items[place].path == path])

    def _take(self, path: Key, places: Iterable[bytes]) -> None:
        gone = dict.fromkeys(places, _PlannedItem(path))
        self.items.update(gone)
        self.existing.difference_update(gone)

    async def _domain(self, location: Location, *, new: bool = False) -> _PlannedDomain | None:
        """Return a domain; None if it does not exist, or is not looked for because it did not and would be `new`."""
        before = self.domains.get(location.path)
        if before is None:
            if new and not self.wary and location.path in self.absent and not self.session.is_known(location.path):
                return None
            domain = await self.session.domain(location.path, location.key[0])
            if domain is None:
                if self.session.path(location.key) != location.path:
                    raise OvertakenError  # another process has begun the room, with another depth
                return None
            with self.session.lock:
                before = _PlannedDomain(domain, domain.version, domain.generation, domain.state)
            self.domains[location.path] = before
            self.read[location.path] = domain, before.version
        return before

    async def _item(self, before: _PlannedDomain | None, location: Location) -> _PlannedItem | None:
        if location.place in self.items:
            return self.items[location.place] if location.place in self.existing else None
        if before is None or before.domain is None:
            return None
        held = before.state.held if before.state else None
        if held is not None:
            return _PlannedItem(location.path, held.version)
        members = before.domain.members
        if members is not None and not self.wary and location.place[len(before.domain.items) :] not in members:
            return None
        found = await self.session.store.get(location.inner)
        mark = await self._checked(before, before.domain, location.key[0], location.place, found)
        return _PlannedItem(location.path, found.version, mark) if found else None

    async def _value(self, before: _PlannedDomain | None, location: Location, version: int) -> bytes:
        """Return the value of an item that exists after the changes so far."""
        if before is not None and before.state is not None and before.state.held is not None:
            return before.state.held.value
        record = next(
            (each.value for each in reversed(self.changes) if isinstance(each, Put) and each.key == location.inner),
            None,
        )
        found = (
            await self.session.store.get(location.inner) if record is None else Item(location.inner, record, version)
        )
        if before is None or before.state is None or found is None or found.version != version:
            raise OvertakenError
        try:
            return self.session.opened(before.state.keys, location.place, found)[1]
        except UnreadableError:
            raise OvertakenError from None

    async def _checked(
        self, before: _PlannedDomain, domain: Domain, room: object, place: bytes, found: Item | None
    ) -> bytes:
        reason = ""
        if domain.version == before.version:
            try:
                return check(self.session, domain, place, found)
            except MismatchError as error:
                reason = str(error)
        if await self.session.moved(domain, before.version, room):
            raise OvertakenError
        raise self.session.damaged(room, reason)

    async def _delete_all(self, prefix: Key) -> None:
        session = self.session
        blinded = session.blind(prefix)
        if prefix and len(prefix) > session.depth(prefix[0]):
            await self._delete_part(prefix, blinded)
            return
        for path, removed in (await self._stored_under(blinded)).items():
            if path not in self.removed or not self.removed[path].by_prefix:
                # Each by itself, so that domains that others begin meanwhile stay whole.
                self.changes += [Exists(removed.row, removed.version), DeleteAll(removed.row), _items_of(session, path)]
                self._remove(path, removed)
        for path in [path for path, each in self.domains.items() if path[: len(blinded)] == blinded and each.state]:
            self.changes.append(_items_of(session, path))
            self._remove(path, None)

    async def _stored_under(self, blinded: Key) -> dict[Key, _Removed]:
        """Return the domains under a prefix that are stored.

        Raises:
            OvertakenError: others have changed the list meanwhile.
        """
        session = self.session
        await session.renew_list()
        listed = session.listed_under(blinded)
        stored: dict[Key, _Removed] = {}
        generations: dict[Key, int] = {}
        for found in await collect(session.store.scan(("d", *blinded))):
            path = path_of(found.key)
            generations[path] = session.generation(found)
            stored[path] = _Removed(found.key, found.version, by_prefix=True)
        if listed is not None and generations != listed:
            await session.renew_list()
            if session.listed_under(blinded) != listed:
                raise OvertakenError
            raise session.damaged("(any)", "a domain is missing, or was put back")
        for path, each in self.domains.items():
            if each.domain is None or path[: len(blinded)] != blinded:
                continue
            there = stored.get(path)
            if there is None or (there.row, there.version) != (each.domain.row, each.version):
                if await session.moved(each.domain, each.version, "(any)"):
                    raise OvertakenError
                raise session.damaged("(any)", "a domain is missing")
        return stored

    async def _delete_part(self, prefix: Key, blinded: Key) -> None:
        location = self.session.locate(prefix)
        before = await self._domain(location)
        if before is None or before.state is None:
            return
        low = encode(("i", *blinded))
        doomed = {place: self.items[place] for place in self.existing if low <= place < low + b"\xff"}
        domain = before.domain
        if domain is not None:
            async for found in self.session.store.scan(("i", *blinded)):
                place = encode(found.key)
                if place not in self.items:
                    mark = await self._checked(before, domain, prefix[0], place, found)
                    doomed[place] = _PlannedItem(location.path, found.version, mark)
            cut, members = len(domain.items), domain.members
            for rest in members.between(low[cut:], low[cut:] + b"\xff") if members else ():
                if domain.items + rest not in doomed and domain.items + rest not in self.items:
                    await self._checked(before, domain, prefix[0], domain.items + rest, None)
        if doomed:
            self.changes.append(DeleteAll(("i", *blinded)))
            self._take(location.path, doomed)
            self._without(location.path, doomed)

    async def finish(self) -> list[Change]:
        """Return the one commit to the inner store: the items, one row for each changed domain, and the row that counts them.

        Raises:
            ConflictError: others may have changed the keys, or anchored the store, since the transaction was begun.
        """
        # Noted before anything is sealed: if the keys are changed meanwhile, the commit is refused, and made again with the new ones.
        seen = self.session.keys_version
        keys = Exists(KEYS, version=seen)
        if self.session.writers.keys < seen or self.session.writers.rows.base.line != self.writers.base.line:
            raise ConflictError(KEYS, self.session.writers.keys, seen)
        deletes: list[Change] = []
        puts: list[Change] = []
        changed: list[Changed] = []
        for row, version, by_prefix in self.removed.values():
            deletes += [] if by_prefix else [Delete(row, expected=version)]
            changed.append(Changed(row, version, 0))
        # A process that removes an item with everything that belongs to it does not see a domain that is begun meanwhile, but sees that its own has changed.
        begins = any(each.domain is None and each.state is not None for each in self.domains.values())
        anew = self.relied if begins else frozenset[Key]()
        for number, (path, each) in enumerate(self.domains.items(), 1):
            await turn(number)
            same = each.domain is not None and each.state == each.domain.state and path not in anew
            if each.state is None or same:
                continue
            row, before, after = domain_row(path), each.version, each.version + 1
            if each.domain is None:
                after = first_version(each.generation)
            elif is_former(each.domain.row):
                deletes.append(Delete(each.domain.row, expected=before))
                changed.append(Changed(each.domain.row, before, 0))
                before, after = 0, first_version(each.generation)
            self.rows[row] = self.session.sealed_domain(encode(row), after, each.state)
            puts.append(Put(row, self.rows[row], expected=before, version=None if before else after))
            changed.append(Changed(row, before, after))
        self.plan = self.session.writers.planned(changed, self.rooms)
        if self.plan is not None:
            puts += self.plan.changes
            self.rows |= {each.key: each.value for each in self.plan.changes if isinstance(each, Put)}
        changes = [*self.changes, *deletes, *puts]
        return [keys, *changes] if changes else []

    # As the session's InFlight

    def landed(self, row: Key, found: Item) -> bool:
        """Return whether `found` is the value that this transaction puts under `row`; if so, apply all its changes."""
        if self.rows.get(row) != found.value:
            return False
        self.apply()
        return True

    def apply(self) -> None:
        """Apply to the session, once, the changes that the inner store has committed."""
        session = self.session
        with session.lock:
            if self.applied:
                return
            self.applied = True
            if self.plan is not None:
                if session.writers.apply(self.plan):
                    self._apply_list()
                session.anchoring.made(self.plan)
            for path in self.removed:
                session.drop(path)
            changed: dict[Key, dict[bytes, _PlannedItem]] = {}
            for place, now in self.items.items():
                changed.setdefault(now.path, {})[place] = now
            for path, each in self.domains.items():
                row = domain_row(path)
                if each.state is None or row not in self.rows:
                    continue
                if each.domain is None:
                    fresh = Domain.at(path, row, first_version(each.generation), each.generation, each.state)
                    fresh.members = SortedDict()
                    _apply_items(fresh, changed.get(path, {}))
                    session.keep(fresh)
                elif each.domain.version == each.version:
                    each.domain.version = (
                        first_version(each.generation) if is_former(each.domain.row) else each.version + 1
                    )
                    each.domain.row, each.domain.state = row, each.state
                    _apply_items(each.domain, changed.get(path, {}))
                    session.weigh(each.domain)

    def _apply_list(self) -> None:
        listed = self.session.listed
        if listed.members is None:
            return
        listed.members.remove(map(encode, self.removed))
        for path, each in self.domains.items():
            if each.state is not None and each.domain is None:
                listed.members.put(encode(path), each.generation)
        listed.count = len(listed.members)
        if not self.session.may_list(listed.count):
            listed.members, listed.debt = None, 0


def _items_of(session: SealedSession, path: Key) -> Change:
    """Return the change that removes all items of a domain."""
    return Delete(("i", *path)) if session.is_single(path) else DeleteAll(("i", *path))


def _apply_items(domain: Domain, changed: Mapping[bytes, _PlannedItem]) -> None:
    if domain.state.held is not None:
        domain.members = SortedDict()
        return
    if domain.members is None:
        return
    cut = len(domain.items)
    domain.members.update({place[cut:]: now.mark for place, now in changed.items() if now.version})
    domain.members.remove(place[cut:] for place, now in changed.items() if not now.version)


def check(session: SealedSession, domain: Domain, place: bytes, found: Item | None) -> bytes:
    """Return the mark of an item that was read, or b"" if it does not exist.

    Raises:
        MismatchError: it contradicts the domain.
    """
    members = domain.members
    if found is None:
        if members is not None and place[len(domain.items) :] in members:
            raise MismatchError("an item is missing")
        return b""
    mark = item_mark(found.version, found.value)
    if members is None:
        try:
            session.opened(domain.state.keys, place, found)
        except UnreadableError as error:
            raise MismatchError(f"an item {error}") from None
    elif members.get(place[len(domain.items) :]) != mark:
        raise MismatchError("an item is not the one that was put there last, or was never put there")
    return mark
