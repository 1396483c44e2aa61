"""The operations of an encrypted store: read and check, scan, commit for all tasks together, verify.

Commits that arrive while another one is being made wait, and are then made together, in one commit of the inner store: one of the
waiting tasks *leads* and does it for the others. The store has no thread or task of its own, so nothing has to be closed.
"""

from __future__ import annotations

import copy
import os
import random
import threading
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import anyio
from anyio import to_thread
from anyio.lowlevel import checkpoint_if_cancelled

from graphagent._concurrency import Gate, Reply, turn, unbroken
from graphagent.errors import ConflictError, NotErasedError, StoreError
from graphagent.store._bulk import Scan, get_many
from graphagent.store._items import (
    Change,
    DeleteAll,
    Item,
    Key,
    Put,
    bounds,
    check_change,
    checked_limit,
    encode_key,
    only_removes,
)
from graphagent.store._sealed_detection import KEYS
from graphagent.store.sealed._commit import OvertakenError, SealedTransaction
from graphagent.store.sealed._rotation import DataRotation
from graphagent.store.sealed._scan import INLINE, Read, SealedScan, open_all
from graphagent.store.sealed._session import TRIES, SealedSession
from graphagent.store.sealed._verify import verify

if TYPE_CHECKING:
    from graphagent.protocols import Store
    from graphagent.store.sealed._anchor_sources import HeldAnchor
    from graphagent.store.sealed._key_sources import HeldKey
    from graphagent.store.sealed._keys import RotationProgress

_TOGETHER = 256
_LONGEST_PAUSE = 0.05
_INLINE_DOMAINS = 32
"""For up to so many domains a commit is applied in the thread of the event loop, for more in a worker thread."""
_PASSES = 5
_WAY_SECONDS = 0.02
"""How long a commit makes way for a process that has changed the keys (`SealedSession.make_way`)."""
_PATIENCE = 8
"""How often a commit may be refused, because others were first, until it has them make way."""


class SealedStore:
    """The operations of an EncryptedStore, in a module of their own because the cryptography they need is slow to import."""

    def __init__(
        self,
        store: Store,
        key: HeldKey,
        depths: Mapping[str, int],
        where: str,
        *,
        cache_bytes: int,
        anchor: HeldAnchor | None,
        anchor_every: float,
    ) -> None:
        self.session: SealedSession | None = None
        self._store = store
        self._key = key
        self._depths = depths
        self._where = where
        self._cache_bytes = cache_bytes
        self._anchor = anchor
        self._anchor_every = anchor_every
        self._pid = os.getpid()
        self._opening = Gate()
        self._lock = threading.Lock()
        self._waiting: list[_WaitingCommit] = []
        self._led = False

    async def get_many(self, keys: Iterable[Key]) -> dict[Key, Item]:
        """Return the items under `keys`, in their order, without those that do not exist."""
        clear: dict[Key, bytes] = {}
        for number, key in enumerate(keys, 1):
            await turn(number)
            clear[key] = encode_key(key)
        session = await self.ready()
        if session is None:
            return {}
        found: dict[Key, Item] = {}
        left = list(clear)
        for _ in range(TRIES):
            if not left:
                return found if len(found) == 1 else {key: found[key] for key in clear if key in found}
            left = await self._get_some(session, left, clear, found)
        raise session.restless(left[0][0])

    async def _get_some(
        self, session: SealedSession, keys: list[Key], clear: Mapping[Key, bytes], found: dict[Key, Item]
    ) -> list[Key]:
        """Add the items under `keys` to `found`; return the keys to be read again because others changed their domains."""
        again: list[Key] = []
        reads: list[Read] = []
        for number, key in enumerate(keys, 1):
            await turn(number)
            location = session.locate(key)
            domain = await session.domain(location.path, key[0])
            if domain is not None:
                with session.lock:
                    reads.append(Read(location, domain, domain.version, clear[key], domain.state.held))
            elif session.locate(key) != location:
                again.append(key)  # another process has made the first domain of this room, with another depth
        if len(reads) == 1:
            [one] = reads
            row = await self._store.get(one.row)
            opened, mismatches = open_all(session, reads, {} if row is None else {one.row: row})
        else:
            rows = await get_many(self._store, [each.row for each in reads])
            work = partial(open_all, session, reads, rows)
            opened, mismatches = work() if len(reads) <= INLINE else await to_thread.run_sync(work)
        for each, reason in mismatches:
            if not await session.moved(each.domain, each.seen, each.location.key[0]):
                raise session.damaged(each.location.key[0], reason)
            again.append(each.location.key)
        found.update(opened)
        return again

    def scan(
        self, prefix: Key, *, after: Key | None = None, limit: int | None = None, reverse: bool = False
    ) -> AsyncIterator[Item]:
        """Return the items whose keys begin with `prefix`; keys that are equal up to an int come in the order of that int."""
        bounds(prefix, after)
        return Scan(SealedScan(self.ready, prefix, after, checked_limit(limit), reverse=reverse).more)

    async def commit(self, *changes: Change) -> None:
        """Make all changes or none; when this returns, they are as durable as the inner store makes them."""
        await checkpoint_if_cancelled()  # nothing else here waits, where the commit itself is shielded
        checked: list[tuple[Change, bytes]] = []
        for number, change in enumerate(changes, 1):
            await turn(number)
            checked.append((change, check_change(change)))
        session = await self.ready(make=not only_removes(changes)) if checked else None
        if session is None:
            await self._store.commit()
            return
        paths, absent = set[Key](), set[Key]()
        for number, change in enumerate(changes, 1):
            await turn(number)
            key = change.prefix if isinstance(change, DeleteAll) else change.key
            if key:
                paths.add(session.path(key))
            # Read the domain now: the first reading may be long, and would hold up the commits of others later.
            if not isinstance(change, DeleteAll):
                path = session.path(key)
                must_be_new = isinstance(change, Put) and change.expected == 0 and session.is_new(key, path)
                if path not in absent and (must_be_new or await session.domain(path, key[0]) is None):
                    absent.add(path)
        mine = _WaitingCommit(checked, frozenset(paths), absent)
        with self._lock:
            self._waiting.append(mine)
            mine.leads, self._led = not self._led, True
            mine.reply = None if mine.leads else Reply()
        try:
            if mine.reply is not None:
                await mine.reply.wait()
            if mine.leads and not mine.done:
                await self._commit_waiting(session)
        finally:
            with self._lock:
                if mine in self._waiting:
                    self._waiting.remove(mine)
                if mine.leads:
                    self._pass_on()
        if mine.error is not None:
            raise mine.error

    def _pass_on(self) -> None:
        for each in list(self._waiting):
            each.leads = True
            if each.reply is not None and each.reply.send():
                return
            self._waiting.remove(each)  # its event loop is gone
        self._led = False

    async def _commit_waiting(self, session: SealedSession) -> None:
        """Make all waiting commits in one commit of the inner store."""
        with self._lock:
            batch, self._waiting = self._waiting[:_TOGETHER], self._waiting[_TOGETHER:]
        if len(batch) == 1:
            with anyio.CancelScope(shield=True):
                await self._commit_batch(session, batch)
        else:
            # Others wait for this work of this task, so it is finished even if the task is cancelled.
            await unbroken(partial(self._commit_batch, session, batch))

    async def _commit_batch(self, session: SealedSession, batch: list[_WaitingCommit]) -> None:
        try:
            errors = await self._committed(session, batch)
        except BaseException as error:
            broken = f"{self._where}: a commit was broken off; all of it was made or none"
            failure = error if isinstance(error, StoreError) else StoreError(broken)
            for each in batch:
                each.finish(copy.copy(failure))
            if not isinstance(error, StoreError):
                raise
            return
        for each in batch:
            each.finish(errors.get(each))

    async def _committed(self, session: SealedSession, batch: list[_WaitingCommit]) -> dict[_WaitingCommit, StoreError]:
        """Make a batch of commits. Return the errors of single ones, which changed nothing, or whose bytes were not all erased."""
        session.pinned = frozenset[Key]().union(*(each.paths for each in batch))
        try:
            return await self._attempted(session, batch)
        finally:
            session.pinned = frozenset()
            session.trim()

    async def _attempted(self, session: SealedSession, batch: list[_WaitingCommit]) -> dict[_WaitingCommit, StoreError]:
        await session.writers.upgrade()
        await session.anchoring.begin()
        for attempt in range(TRIES):
            errors: dict[_WaitingCommit, StoreError] = {}
            transaction = SealedTransaction.begun(session, wary=attempt > 0)
            try:
                for each in batch:
                    trial = transaction.copy() if len(batch) > 1 else transaction
                    trial.absent = each.absent
                    try:
                        for number, (change, clear) in enumerate(each.changes, 1):
                            await turn(number)
                            await trial.add(change, clear)
                    except StoreError as error:
                        errors[each] = error
                    else:
                        transaction = trial
                changes = await transaction.finish() if len(errors) < len(batch) else []
                if changes:
                    session.flight = transaction
                    try:
                        await self._store.commit(*changes)
                    except NotErasedError as error:  # all of it is committed
                        for each in batch:
                            if any(isinstance(change, DeleteAll) for change, _ in each.changes):
                                errors.setdefault(each, copy.copy(error))
                    if len(transaction.domains) > _INLINE_DOMAINS:
                        await to_thread.run_sync(transaction.apply)
                    else:
                        transaction.apply()
                    await session.anchoring.covered()
                else:
                    await self._store.commit()
                return errors
            except OvertakenError:
                pass
            except ConflictError as error:
                if error.key == KEYS:
                    await anyio.sleep(_WAY_SECONDS)
                    await session.renew_keys(session.keys_version)
                await self._catch_up(session, transaction)
            finally:
                session.flight = None
            await self._before_next(session, attempt)
        raise session.restless("(several)")

    async def _before_next(self, session: SealedSession, attempt: int) -> None:
        """Let others commit first after an attempt that was refused; after many of them, have the others wait instead."""
        if attempt < _PATIENCE:
            await anyio.sleep(random.uniform(0, min(0.001 * 2**attempt, _LONGEST_PAUSE)))
        else:
            await session.make_way()

    async def _catch_up(self, session: SealedSession, transaction: SealedTransaction) -> None:
        """Take over the changes of another process."""
        await session.renew_list()
        for number, (domain, seen) in enumerate(transaction.read.values(), 1):
            await turn(number)
            await session.moved(domain, seen, "(any)")

    async def verify(self) -> int:
        """Read and check everything, also in the inner store. Return the number of items."""
        self._check_process()
        verify_within = getattr(self._store, "verify", None)
        if verify_within is not None:
            await verify_within()
        for _ in range(_PASSES):
            session = await SealedSession.open(
                self._store, self._key, self._depths, self._where, make=False, anchor=self._anchor
            )
            count = 0 if session is None else await verify(session)
            if count is not None:
                return count
        raise StoreError(f"{self._where} is being written to all the time; verify it when it is at rest")

    async def rotate_data(self, report: Callable[[RotationProgress], object] | None) -> None:
        """Seal everything with new keys, in a session of its own."""
        self._check_process()
        session = await SealedSession.open(
            self._store, self._key, self._depths, self._where, make=False, cache_bytes=self._cache_bytes,
            anchor=self._anchor,
        )  # fmt: skip
        if session is not None:
            try:
                await DataRotation(session, report).run()
            finally:
                await unbroken(session.anchoring.end)

    async def anchor_anew(self) -> None:
        """Accept the store as it is, and write its anchor anew."""
        self._check_process()
        session = await SealedSession.open(
            self._store, self._key, self._depths, self._where, make=True, anchor=self._anchor, accept=True
        )
        assert session is not None
        await session.writers.upgrade()
        await session.anchoring.anew()
        self.session = None

    async def aclose(self) -> None:
        """End the session: nothing is left of it in the store, and the anchor knows of all commits."""
        session, self.session = self.session, None
        if session is not None and self._pid == os.getpid():
            await unbroken(session.anchoring.end)

    def _check_process(self) -> None:
        """Refuse a forked process: the tasks and threads of its parent do not exist in it and cannot finish what they began."""
        if self._pid != os.getpid():
            raise StoreError(
                f"{self._where} was opened before this process was forked; make a new EncryptedStore here, around a new store"
            )

    async def ready(self, *, make: bool = False) -> SealedSession | None:
        """Return the open session; if the store is new, make it, or without `make` return None.

        Raises:
            StoreError: it cannot be opened, or was opened before this process was forked.
        """
        self._check_process()
        while self.session is None:
            if not await self._opening.entered():
                continue  # the task that opened it may have been cancelled, or met an error, which this one must raise too
            try:
                self.session = await SealedSession.open(
                    self._store, self._key, self._depths, self._where, make=make, cache_bytes=self._cache_bytes,
                    anchor=self._anchor, anchor_every=self._anchor_every,
                )  # fmt: skip
                return self.session
            finally:
                self._opening.leave()
        return self.session


@dataclass(eq=False, slots=True)
class _WaitingCommit:
    """A commit that waits to be made."""

    changes: list[tuple[Change, bytes]]
    paths: frozenset[Key] = frozenset()
    """The paths of the domains that it changes."""
    absent: AbstractSet[Key] = frozenset()
    """Those that did not exist when it was begun."""
    reply: Reply | None = None
    leads: bool = False
    """Whether its task makes the commits of all that wait."""
    done: bool = False
    error: StoreError | None = None

    def finish(self, error: StoreError | None) -> None:
        self.error, self.done = error, True
        if self.reply is not None:
            self.reply.send()
