"""The writers of a sealed store in a session: which domains there are, as their rows say, and the session's own row.

No row is put by all commits, so that none waits for another. Only the beginning and the end of a writer change the base row, and a room that is new.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

from graphagent.errors import ConflictError, DamagedStoreError, RolledBackError, StoreError
from graphagent.store._bulk import collect
from graphagent.store._items import Change, Delete, Exists, Item, Key, Put
from graphagent.store._sealed_detection import KEYS, ROOT
from graphagent.store.sealed._base import (
    BaseState,
    Changed,
    Sums,
    difference,
    new_writer,
    read_writer,
    rooms_sums,
    root_member,
)
from graphagent.store.sealed._format import RootState, UnreadableError
from graphagent.store.sealed._key_row import replacing

if TYPE_CHECKING:
    from graphagent.store.sealed._domains import OpenedRows

_log = logging.getLogger("graphagent.store")
BASE: Key = (*ROOT, 0)
_TRIES = 100


class Own(NamedTuple):
    """The session's own row. It has none before its first commit that changes the list, and after another writer has ended it."""

    number: int = 0
    commits: int = 0
    added: Sums = Sums()

    @property
    def row(self) -> Key:
        return (*ROOT, self.number)


class Rows(NamedTuple):
    """The rows that say which domains there are, as of one moment."""

    items: Mapping[Key, Item]
    base: BaseState
    writers: Mapping[int, tuple[int, Sums]]
    """For each writer, the number of its commits, and the amounts that these added to the sums."""
    domains: int | None = None
    """How many domains there are, as the root of a store of format 1 or 2 says."""

    def version(self, row: Key) -> int:
        """Return the version of a row; 0 if it does not exist."""
        found = self.items.get(row)
        return found.version if found else 0

    @property
    def versions(self) -> dict[Key, int]:
        return {row: found.version for row, found in self.items.items()}

    @property
    def is_former(self) -> bool:
        """Whether the store has a root row, as stores of formats 1 and 2 have."""
        return ROOT in self.items

    @property
    def commits(self) -> dict[int, int]:
        return {writer: commits for writer, (commits, _) in self.writers.items()}

    @property
    def sums(self) -> Sums:
        """The sums of the domains and the rooms."""
        return self.base.sums.plus(*(added for _, added in self.writers.values()))

    def with_newer(self, found: Rows) -> Rows:
        """Return each row as it was read last, here or in `found`."""
        if found.is_former or self.is_former:
            older = not self.is_former or any(found.version(row) < self.version(row) for row in self.items)
            return self if found.is_former and older else found
        newer, other = (found, self) if found.version(BASE) >= self.version(BASE) else (self, found)
        items, writers = dict(newer.items), dict(newer.writers)
        for number in newer.writers.keys() & other.writers.keys():
            if other.writers[number][0] > newer.writers[number][0]:
                row = (*ROOT, number)
                items[row], writers[number] = other.items[row], other.writers[number]
        return Rows(items, newer.base, writers)


@dataclass(eq=False)
class Plan:
    """The changes of one commit to the rows of writers."""

    own: Own
    rows: Rows
    """As they are afterwards."""
    changes: list[Change]


@dataclass(eq=False)
class Writers:
    """The writers of a store as a session knows them."""

    session: OpenedRows
    known: Rows | None = field(default=None, repr=False)
    keys: int = 0
    """The version of the key row that was known when the rows were read last. Anchoring the store puts both anew."""
    own: Own = field(default_factory=Own)

    @property
    def rows(self) -> Rows:
        """The rows as they were read last."""
        assert self.known is not None
        return self.known

    @property
    def anchored(self) -> bool:
        """Whether every commit counts."""
        return self.known is not None and self.known.base.anchored

    # Reading

    async def read(self) -> Rows:
        """Return the rows as they are."""
        session, seen = self.session, None
        for _ in range(_TRIES):
            keys = session.keys_version
            found = {item.key: item for item in await collect(session.store.scan(ROOT))}
            try:
                rows = await self._opened(found)
            except UnreadableError as error:
                raise DamagedStoreError(session.where, f"the base row, or one of a writer, {error}") from None
            if rows is not None:
                return rows
            changed = await session.renew_keys(keys)  # if they were destroyed, these rows are gone as well
            now = {row: item.version for row, item in found.items()}
            if now == seen and not changed:  # and so not in the middle of a commit
                raise DamagedStoreError(session.where, "the base row or one of a writer is missing, or was added")
            seen = now
        raise session.restless("(all)")

    async def _opened(self, found: Mapping[Key, Item]) -> Rows | None:
        """Return the contents of the rows; None if they have to be read again, or are not the expected rows."""
        former = self.session.keyset.is_former
        if (ROOT in found) is not former or (BASE not in found and not former):
            return None
        known = self.known
        root = base = None
        if former:
            root = await self._plain(b"root", found[ROOT])
            if root is None or RootState.read(root).anchored != (BASE in found):
                return None
        if known is not None and not former and known.version(BASE) == found[BASE].version:
            base = known.base
        elif BASE in found:
            plain = await self._plain(b"base", found[BASE])
            if plain is None:
                return None
            base = BaseState.read(plain, former=former)
        listed = {(*ROOT, number) for number in base.writers} if base else set[Key]()
        if listed != found.keys() - {ROOT, BASE}:
            return None
        writers: dict[int, tuple[int, Sums]] = {}
        for row in listed:
            number, version = int(row[-1]), found[row].version
            if known is not None and known.version(row) == version:
                writers[number] = known.writers[number]
                continue
            plain = await self._plain(b"writer", found[row])
            if plain is None:
                return None
            writers[number] = version, read_writer(plain, former=former)
            if base is not None and not base.anchored and writers[number][1].versions:
                raise UnreadableError("has fields that only an anchored store has")
        if root is None:
            assert base is not None
            return Rows(found, base, writers)
        return self._of_root(found, RootState.read(root), base, writers)

    async def _plain(self, kind: bytes, found: Item) -> bytes | None:
        return await self.session.unsealed(kind, found)

    def _of_root(
        self,
        found: Mapping[Key, Item],
        root: RootState,
        base: BaseState | None,
        writers: Mapping[int, tuple[int, Sums]],
    ) -> Rows:
        """Return the meaning of the rows of a store of format 1 or 2: its root has the list and the rooms, and is part of the sum over versions."""
        key = self.session.sum_key
        listed = Sums(root.total).plus(rooms_sums(key, root.depths))
        if base is None:
            base = BaseState.fresh(listed, root.depths, anchored=False)
        else:
            without = Sums(versions=-root_member(key, ROOT, found[ROOT].version))
            base = replace(base, sums=base.sums.plus(listed, without), depths=root.depths)
        return Rows(found, base, writers, root.domains)

    async def renew(self) -> Rows:
        """Take over changes of others, and return the rows as they were read."""
        seen, keys = self.known, self.session.keys_version
        found = await self.read()
        self.take(seen, found, keys)
        return found

    def take(self, seen: Rows | None, found: Rows, keys: int) -> None:
        """Take over rows that were read; `seen` are the rows that were known before, `keys` is the version of the key row then."""
        if seen is not None:
            self._check_newer(seen, found)
        session = self.session
        with session.lock:
            for row, item in found.items.items():
                if session.flight is not None and session.flight.landed(row, item):
                    break
            known = self.known
            self.known = now = found if known is None else known.with_newer(found)
            self.keys = max(self.keys, keys)
            if known is not None and now.versions != known.versions:
                session.listed.members = None
            if self.own.number:
                commits = now.writers.get(self.own.number)
                self.own = Own(self.own.number, *commits) if commits else Own()

    async def contradicted(self, rows: Rows, sums: Sums) -> None:
        """Raise the error for domains and rooms that add up to other sums, unless others have written since `rows` were read."""
        after = await self.read()
        if after.versions != rows.versions:
            return
        if rows.base.anchored and sums.listed == rows.sums.listed:
            raise RolledBackError(self.session.where, "a part of it is older than the rest")
        reason = "domains are missing, or were added by someone without the key"
        raise DamagedStoreError(self.session.where, reason)

    def _check_newer(self, seen: Rows, found: Rows) -> None:
        if seen.is_former and not found.is_former:
            return
        older = found.is_former is not seen.is_former
        older |= any(found.version(row) < seen.version(row) for row in (ROOT, BASE))
        older |= any(found.commits[number] < seen.commits[number] for number in seen.commits.keys() & found.commits)
        if seen.base.anchored:
            if not found.base.anchored:
                raise RolledBackError(self.session.where, "it was anchored, and is not any more")
            if seen.base.line == found.base.line:
                older |= found.base.digest(seen.base.count) not in (None, seen.base.end)
        if older:
            reason = "it is older than it was"
            raise (RolledBackError if seen.base.anchored else DamagedStoreError)(self.session.where, reason)

    # Commits

    def planned(self, changed: Iterable[Changed], rooms: Mapping[bytes, int]) -> Plan | None:
        """Return the changes to the rows of writers for a commit that changes rows of domains and begins rooms; None if it does not count.

        Raises:
            ConflictError: another process has begun a room meanwhile, with another depth.
        """
        rows, own = self.rows, self.own
        key, depths = self.session.sum_key, rows.base.depths
        if any(depths.get(room, depth) != depth for room, depth in rooms.items()):
            raise ConflictError(BASE, rows.version(BASE), rows.version(BASE))
        rooms = {room: depth for room, depth in rooms.items() if room not in depths}
        added = difference(key, changed, anchored=rows.base.anchored).plus(rooms_sums(key, rooms))
        if added == Sums():
            return None
        base, changes, items, writers = rows.base, list[Change](), dict(rows.items), dict(rows.writers)
        if not own.number:
            own = Own(new_writer())
            for number in base.due():  # who still lives begins anew
                commits, theirs = writers.pop(number)
                base = base.ended(number, commits, theirs)
                del items[*ROOT, number]
                changes.append(Delete((*ROOT, number), expected=commits))
            base = base.begun(own.number)
        if rooms:
            base = base.with_rooms(rooms)
        own = Own(own.number, own.commits + 1, own.added.plus(added))
        record = self.session.sealed_row(b"writer", own.row, own.commits, own.added.plain())
        puts = [Put(own.row, record, expected=own.commits - 1)]
        if base is not rows.base:
            puts.append(self.put_base(base, rows.version(BASE)))
        items |= {each.key: Item(each.key, each.value, (each.expected or 0) + 1) for each in puts}
        writers[own.number] = own.commits, own.added
        return Plan(own, Rows(items, base, writers), [*changes, *puts])

    def put_base(self, base: BaseState, version: int) -> Put:
        """Return the change that replaces the base of a version."""
        return Put(BASE, self.session.sealed_row(b"base", BASE, version + 1, base.plain()), expected=version)

    def apply(self, plan: Plan) -> bool:
        """Take note that a commit was made. Return whether that was not known: others may have sealed its row anew since, and it was read."""
        unknown = self.rows.version(plan.own.row) < plan.own.commits
        self.own, self.known = plan.own, self.rows.with_newer(plan.rows)
        return unknown

    async def resealed(self) -> list[Change]:
        """Return the changes that seal the rows anew, with the present key and the same meaning."""
        rows, sealed = await self.read(), self.session.sealed_row
        plains = {BASE: (b"base", rows.base.plain())}
        plains |= {(*ROOT, number): (b"writer", added.plain()) for number, (_, added) in rows.writers.items()}
        return [
            Put(row, sealed(kind, row, version, plain), expected=version, version=version)
            for row, (kind, plain) in plains.items()
            for version in [rows.version(row)]
        ]

    # The session

    async def upgrade(self) -> None:
        """Move a store of format 1 or 2 to the present format, in one commit. Rows of domains move when they are changed.

        Raises:
            StoreError: the store cannot be written, or others change its keys all the time.
        """
        session = self.session
        for _ in range(_TRIES):
            keys = session.keys_version
            if not session.keyset.is_former:
                return
            rows = await self.read()
            if rows.is_former:
                base = rows.base
                for number, (commits, added) in rows.writers.items():  # no process that could go on with its row
                    base = base.ended(number, commits, added)
                with suppress(ConflictError):
                    await session.store.commit(
                        # An older process reads the keys again before its next commit, and stops at the format.
                        *replacing(keys, session.keyset.in_present_format()),
                        Delete(ROOT, expected=rows.version(ROOT)),
                        self.put_base(base, rows.version(BASE)),
                        *(Delete((*ROOT, number), expected=commits) for number, commits in rows.commits.items()),
                    )
            await session.renew_keys(keys)
            await self.renew()
        raise session.restless("(all)")

    async def end(self) -> bool:
        """Leave no row of this session. Return whether it had one, which is part of the base row then."""
        try:
            return await self._ended()
        except StoreError as error:  # the row stays, and a later writer ends this one
            _log.debug("a session of %s was not ended: %s", self.session.where, error)
            return False

    async def _ended(self) -> bool:
        session = self.session
        for _ in range(_TRIES):
            own, rows = self.own, self.known
            if not own.number or rows is None:
                return False
            base = rows.base.ended(*own)
            put = self.put_base(base, rows.version(BASE))
            try:
                await session.store.commit(
                    Exists(KEYS, version=session.keys_version), Delete(own.row, expected=own.commits), put
                )
            except ConflictError as error:
                if error.key == KEYS:
                    await session.renew_keys(session.keys_version)
                await self.renew()
                continue
            items = {row: item for row, item in rows.items.items() if row != own.row}
            items[BASE] = Item(BASE, put.value, rows.version(BASE) + 1)
            left = {number: each for number, each in rows.writers.items() if number != own.number}
            self.own, self.known = Own(), Rows(items, base, left)
            return True
        return False
