"""Rotating the data of a sealed store: new keys for the rows of domains and writers, and for the items, while others read and write.

A rotation has the number of a new seal key, and every domain gets a data key of the same number. So the rows themselves say how far
the rotation has come: the next call after an interruption continues it, and two calls at once do no harm.

1. The new seal key is added, and becomes the primary one. Every commit requires the key row that its process knows, so that
   from then on no row is sealed with the old key.
2. The rows of writers are sealed anew, and each domain gets a new primary data key. Since every commit to a domain requires the version of its
   row, no item is put with the old key from then on.
3. The items are sealed anew, each at its version, in commits of a few hundred.
4. All items of the domain are read back and opened. Only then the old data key is dropped.
5. All rows are read back and opened with the new seal key. Only then the old key is destroyed, and the bytes of the old
   records are erased from the files.

The expensive part, sealing items, needs no particular version of the row of their domain. So it is done first, and commits of others to
the domain meanwhile only cost sealing its row again. Still, a process that writes to a domain all the time would always be first.
Against that, a rotation has them make way, as a commit does that was refused again and again.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import anyio
from anyio import to_thread

from graphagent.errors import ConflictError, StoreError
from graphagent.store._bulk import get_many
from graphagent.store._items import Exists, Item, Put, encode
from graphagent.store._sealed_detection import KEYS
from graphagent.store.sealed._base import path_of
from graphagent.store.sealed._commit import Resealed, SealedTransaction
from graphagent.store.sealed._domains import Domain, MismatchError
from graphagent.store.sealed._format import DomainState, KeyState, NamedKey, item_mark, primary, record_number
from graphagent.store.sealed._keys import RotationProgress
from graphagent.store.sealed._keyset import Keyset, Purpose
from graphagent.store.sealed._scan import open_item
from graphagent.store.sealed._session import TRIES, SealedSession, folded

if TYPE_CHECKING:
    from graphagent.store._items import Key

_ITEMS, _DOMAINS = 1500, 64
"""About how many items, and how many domains, are changed by one commit."""

_LEFT_TO_OTHERS = 0.5
"""How long others have the store for themselves after each commit, as a share of the time that it took to prepare and to make."""


class _OldRecordError(Exception):
    """An item is sealed with the old key: another process has put it after the items were read, before the new key was primary."""


class _Page(NamedTuple):
    """Items of a domain that are sealed with the old key."""

    domain: Domain
    seen: int
    """The version that the domain had before they were read."""
    rows: list[Item]


@dataclass(eq=False, slots=True)
class _Part:
    """The changes of one commit to a domain."""

    domain: Domain
    before: tuple[NamedKey, ...]
    """The data keys of the domain for which this was prepared."""
    keys: tuple[NamedKey, ...]
    items: list[Resealed]

    @property
    def count(self) -> int:
        """How many items are sealed anew: with a new key, an item that the row of the domain holds is one of them."""
        return len(self.items) or (
            self.domain.state.rows < self.domain.state.count and len(self.keys) > len(self.before)
        )


class DataRotation:
    """One rotation, in a session that was opened for it alone."""

    def __init__(self, session: SealedSession, report: Callable[[RotationProgress], object] | None) -> None:
        self._session = session
        self._report = report
        self._number = 0
        self._domains = self._total = self._items = 0

    async def run(self) -> None:
        """Rotate everything, or continue a rotation that was interrupted."""
        session = self._session
        await session.writers.upgrade()
        self._number = await self._begin()
        await self._reseal_writers()
        left = [*await session.domains_under(())]
        self._total = len(left)
        while left:
            await self._rotate(left)
            left = await self._left()
        await self._end()

    # The key row and the rows of writers

    async def _begin(self) -> int:
        """Return the number of the new key, which is the primary one by then."""
        while True:
            keys = self._session.keyset.keys[Purpose.SEAL]
            sealing = primary(keys)
            enabled = [key.number for key in keys if key.state is KeyState.ENABLED]
            if any(key.state is KeyState.OPENS for key in keys):
                return sealing.number
            await self._session.change_keys(
                partial(Keyset.promoted, purpose=Purpose.SEAL, number=max(enabled))
                if enabled
                else partial(Keyset.with_key, purpose=Purpose.SEAL)
            )

    async def _end(self) -> None:
        def ended(keyset: Keyset) -> Keyset:
            for key in keyset.keys[Purpose.SEAL]:
                if key.state is KeyState.OPENS and key.number < self._number:
                    keyset = keyset.destroyed(Purpose.SEAL, key.number)
            return keyset

        while ended(self._session.keyset) != self._session.keyset:
            await self._session.change_keys(ended, erased=True)

    async def _reseal_writers(self) -> None:
        session = self._session
        for _ in range(TRIES):
            keys = session.keys_version
            try:
                await session.store.commit(Exists(KEYS, version=keys), *await session.writers.resealed())
                return
            except ConflictError:  # they have committed meanwhile, with the new key, or the keys were changed again
                await session.renew_keys(keys)
        raise session.restless("(all)")

    async def _committed(self, transaction: SealedTransaction) -> tuple[object, ...] | None:
        """Make a commit. Return the key of the row that another process has changed, if one has."""
        session = self._session
        try:
            changes = await transaction.finish()
            # The rows first: if one was changed meanwhile, nothing was done in vain.
            await session.store.commit(
                *sorted(changes, key=lambda change: isinstance(change, Put) and change.before is not None)
            )
        except ConflictError as error:
            if error.key == KEYS:
                await session.renew_keys(session.keys_version)
            await session.writers.renew()
            return error.key
        transaction.apply()
        return None

    # Domains

    async def _rotate(self, paths: Sequence[Key]) -> None:
        batch: list[Domain] = []
        for path in paths:
            domain = await self._pending(path)
            if domain is not None:
                batch.append(domain)
            if len(batch) == _DOMAINS or sum(each.state.count for each in batch) >= _ITEMS:
                await self._rotate_together(batch)
                batch = []
        await self._rotate_together(batch)

    async def _pending(self, path: Key) -> Domain | None:
        """Return a domain that is to be rotated; None if it was, or does not exist any more."""
        self._session.drop(path)
        domain = await self._session.found(path, "(any)")
        if domain is None or self._is_rotated(domain.state):
            self._session.drop(path)
            self._done(1)
            return None
        return await self._session.domain(path, "(any)")

    async def _rotate_together(self, batch: list[Domain]) -> None:
        for _ in range(TRIES):
            if not batch:
                return
            again = {domain.path: domain for domain in await self._resealed(batch)}
            checked = [domain for domain in batch if domain.path not in again and await self._opens(domain)]
            dropped = [_Part(each, keys, self._kept(keys), []) for each in checked for keys in [each.state.keys]]
            left = {part.domain.path for part in await self._commit(dropped)}
            for domain in checked:
                if domain.path not in left:
                    self._session.drop(domain.path)
                    domain.members = None  # of all domains together it may be much
                    self._done(1)
            done = {domain.path for domain in checked} - left
            batch = [each for domain in batch if domain.path not in done if (each := await self._pending(domain.path))]
        raise self._session.restless("(any)")

    async def _resealed(self, batch: Iterable[Domain]) -> list[Domain]:
        """Seal the items of domains anew. Return the domains that were changed so that this has to be done again."""
        again: list[Domain] = []
        pages: list[_Page] = []
        count = 0
        for domain in batch:
            if domain.state.count > _ITEMS:
                # The new key first, so that later puts of others need no further pass over many items.
                again += await self._reseal([_Page(domain, domain.version, [])])
            # The version before the first read: rows that were read ahead may be out of date after the domain has changed.
            pages.append(_Page(domain, domain.version, []))
            async for found in self._session.rows(domain):
                if record_number(found.value) >= self._number:
                    continue
                pages[-1].rows.append(found)
                count += 1
                if count >= _ITEMS:
                    again += await self._reseal(pages)
                    pages, count = [_Page(domain, pages[-1].seen, [])], 0
        return again + await self._reseal(pages)

    async def _reseal(self, pages: Iterable[_Page]) -> list[Domain]:
        again: list[Domain] = []
        parts: list[_Part] = []
        began = time.perf_counter()
        for domain, seen, found in pages:
            before = domain.state.keys
            keys = _begun(before, self._number)
            if keys == before and not found:
                continue
            try:
                work = partial(self._prepared, domain, keys, found)
                parts.append(_Part(domain, before, keys, await to_thread.run_sync(work)))
            except MismatchError as error:
                if not await self._session.moved(domain, seen, "(any)"):
                    raise self._session.damaged("(any)", str(error)) from None
                again.append(domain)
        again += [part.domain for part in await self._commit(parts)]
        await anyio.sleep((time.perf_counter() - began) * _LEFT_TO_OTHERS)
        return again

    def _prepared(self, domain: Domain, keys: tuple[NamedKey, ...], rows: Iterable[Item]) -> list[Resealed]:
        return [self._resealed_item(domain, primary(keys), found) for found in rows]

    def _resealed_item(self, domain: Domain, key: NamedKey, found: Item) -> Resealed:
        session, place = self._session, encode(found.key)
        opened = open_item(session, domain, place, found)
        record = session.sealed_item(key, place, found.version, *opened)
        if session.opened((key,), place, found._replace(value=record)) != opened:
            raise StoreError(f"{session.where}: an item did not open as it was sealed anew; nothing of it was stored")
        before = session.item_digest(place, item_mark(found.version, found.value))
        version = found.version
        put = Put(found.key, record, expected=version, version=version, before=found.value)
        return Resealed(place, put, before, version, item_mark(version, record))

    async def _commit(self, parts: list[_Part]) -> list[_Part]:
        """Change domains in one commit. Return the parts that have to be prepared again, because others have changed their keys."""
        session, again = self._session, list[_Part]()
        for _ in range(TRIES):
            fitting = [part for part in parts if not part.domain.gone and part.domain.state.keys == part.before]
            again += [part for part in parts if part not in fitting]
            parts = fitting
            if not parts:
                return again
            transaction = SealedTransaction.begun(session, wary=False)
            for part in parts:
                transaction.reseal(part.domain, part.keys, part.items)
            changed = await self._committed(transaction)
            if changed is None:
                self._items += sum(part.count for part in parts)
                self._done(0)
                return again
            make_way = changed[0] == "d"
            if make_way:
                await session.make_way()
            for part in parts:
                owns = changed[: part.domain.depth] == ("i", *part.domain.path)
                if owns:
                    await self._drop_changed(part)
                if owns or make_way or changed == part.domain.row:
                    await session.moved(part.domain, part.domain.version, "(any)")
        raise session.restless("(any)")

    async def _drop_changed(self, part: _Part) -> None:
        """Leave out the items that others have changed: the remaining ones are found when the items of the domain are read back."""
        rows = await get_many(self._session.store, [each.change.key for each in part.items])
        part.items = [
            each for each in part.items if (row := rows.get(each.change.key)) and row.value == each.change.before
        ]

    async def _opens(self, domain: Domain) -> bool:
        """Return whether all items of a domain open with its new key alone, or False if others have changed it meanwhile."""
        seen = domain.version
        try:
            await folded(self._session.rows(domain), partial(self._open, domain))
        except _OldRecordError:
            return False
        except MismatchError as error:
            if await self._session.moved(domain, seen, "(any)"):
                return False
            raise self._session.damaged("(any)", str(error)) from None
        return not domain.gone

    def _open(self, domain: Domain, rows: list[Item]) -> None:
        for found in rows:
            if record_number(found.value) < self._number:
                raise _OldRecordError
            open_item(self._session, domain, encode(found.key), found)

    async def _left(self) -> list[Key]:
        """Return the paths of the domains that were not rotated; the rows of the others open with the new key alone."""
        left: list[Key] = []

        def fold(rows: list[Item]) -> None:
            for found in rows:
                state = self._session.opened_domain(found, self._number)
                if state is None or not self._is_rotated(state):
                    left.append(path_of(found.key))

        await folded(self._session.store.scan(("d",)), fold)
        return left

    def _is_rotated(self, state: DomainState) -> bool:
        return self._kept(state.keys) == state.keys

    def _kept(self, keys: tuple[NamedKey, ...]) -> tuple[NamedKey, ...]:
        """Return the keys of a domain that stay: those of this rotation, and of one that another process has begun since."""
        return tuple(key for key in keys if key.number >= self._number)

    def _done(self, domains: int) -> None:
        self._domains += domains
        if self._report is not None:
            self._report(RotationProgress(min(self._domains, self._total), self._total, self._items))


def _begun(keys: tuple[NamedKey, ...], number: int) -> tuple[NamedKey, ...]:
    """Return the keys of a domain with a new primary one of this number, unless it is there."""
    if primary(keys).number >= number:
        return keys
    return (
        *(key._replace(state=KeyState.OPENS) for key in keys if key.state is not KeyState.DESTROYED),
        NamedKey(number, KeyState.PRIMARY, os.urandom(32)),
    )
