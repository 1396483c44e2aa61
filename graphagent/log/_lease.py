"""Leases: claims of runs that a store judges by its own clock, so that any number of machines can share it.

One thread renews those of all runs of the process, in one call for each store: neither a node that blocks the event loop nor the time
between two steps costs a run its claim. Whoever has a lease relies on it up to a deadline by a clock of its own, counted from
before the store was asked, so that a process which was stopped meanwhile does nothing more.
"""

from __future__ import annotations

import logging
import threading
import time
import weakref
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from anyio import move_on_after

from graphagent import _clock
from graphagent._article import counted
from graphagent._concurrency import Reply
from graphagent.errors import StoreError
from graphagent.log._header import HEADERS, ROOM, RunHeader, header_key
from graphagent.store._bulk import collect
from graphagent.store._claims import claims_of
from graphagent.store._fork_safety import register

if TYPE_CHECKING:
    from graphagent.protocols import Claims, Store
    from graphagent.store import Claimed, Key

_log = logging.getLogger("graphagent.log")
_IDLE = 1.0
"""For how many seconds the thread waits for another lease, before it ends."""
_AGAIN = 0.2
"""The share of a heartbeat after which a renewal that failed is made again."""


def seconds() -> float:
    """Return the seconds of a clock that nobody sets, and that goes on while the machine is suspended, where there is one."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if _SUSPENDS else time.monotonic()


_SUSPENDS = hasattr(time, "CLOCK_BOOTTIME")


class Lease:
    """A claim of this process, which is renewed as long as somebody keeps this object, and it was not ended."""

    __slots__ = ("__weakref__", "_clock", "_ended", "_reply", "claimed", "claims", "deadline", "due")

    def __init__(self, claims: Claims, claimed: Claimed, asked: float) -> None:
        self.claims, self.claimed = claims, claimed
        self.deadline = asked + claims.lease / 1000
        """Up to when it may be relied on."""
        self.due = asked + claims.heartbeat / 1000
        """When it is to be renewed."""
        self._clock = _clock.clock.get()
        self._ended = False
        self._reply: Reply | None = None

    @staticmethod
    async def take(store: Store, key: Key, holder: str, *, after: int) -> Lease | None:
        """Return a lease; None if somebody else has the key. It is for a store with claims.

        Args:
            store: The store.
            key: The key to claim.
            holder: A text that no other taker has.
            after: The number of a claim that is over, as far as is known.

        Raises:
            StoreError: it is not known whether the claim was taken.
        """
        claims = claims_of(store)
        assert claims is not None
        asked = seconds()
        claimed = await claims.take(key, holder, claims.lease, after=after)
        if claimed is None:
            return None
        lease = Lease(claims, claimed, asked)
        _keeper.keep(lease)
        return lease

    @property
    def is_over(self) -> bool:
        """Whether it may not be relied on any more."""
        return self._ended or seconds() > self.deadline

    def end(self) -> None:
        """Renew it no more, and wake up who waits for its end; from any thread."""
        self._ended = True
        if self._reply is not None:
            self._reply.send()

    def renewed(self, asked: float) -> None:
        """Note that the store has renewed it, and when it was asked to."""
        self.deadline, self.due = asked + self.claims.lease / 1000, asked + self.claims.heartbeat / 1000

    async def over(self) -> None:
        """Wait until it is over. One task at a time may wait."""
        while not self.is_over:
            self._reply = Reply()
            with move_on_after(self.deadline - seconds()):
                await self._reply.wait()
        self._reply = None

    async def release(self) -> None:
        """Let others take the run. A store that fails has it free when the time of the lease is over."""
        was_over = self.is_over
        self.end()
        if not was_over:
            try:
                await self.claims.release([self.claimed])
            except StoreError as error:
                _log.warning(
                    "the claim of a run could not be released: %s",
                    type(error).__name__,
                    extra={"error_type": type(error).__name__},
                )

    def group(self) -> tuple[int, int]:
        """Return what those have in common that are renewed with one call: the store, and the clock of a test."""
        return id(self.claims), id(self._clock)

    def in_its_time(self) -> None:
        """Have the clock of whoever took it hold for this task."""
        _clock.clock.set(self._clock)


class _Keeper:
    """Renews the leases of this process, from a thread that lives as long as there are some."""

    def __init__(self) -> None:
        self.abandon()
        register(self)

    def abandon(self) -> None:
        """Forget the leases, which in a forked process are those of the parent."""
        self._changed = threading.Condition()
        self._leases: weakref.WeakSet[Lease] = weakref.WeakSet()
        self._until = 0.0
        """Until when the thread waits."""
        self._is_running = False

    def keep(self, lease: Lease) -> None:
        with self._changed:
            self._leases.add(lease)
            if not self._is_running:
                self._is_running = True
                threading.Thread(target=self._run, name="graphagent-leases", daemon=True).start()
            elif lease.due < self._until:
                self._changed.notify()

    def _run(self) -> None:
        import asyncio

        try:
            with asyncio.Runner() as runner:
                while True:
                    leases = self._next()
                    if not leases:
                        return
                    runner.run(_renew_all(leases))
                    del leases  # nobody is to keep one while the next is waited for
        finally:
            with self._changed:
                self._is_running = False

    def _next(self) -> list[Lease]:
        """Wait until a lease is to be renewed, and return all of its store; none once there was no lease for a while."""
        with self._changed:
            idle = False
            while True:
                known = [lease for lease in self._leases if not lease.is_over]
                if not known and idle:
                    self._is_running = False
                    return []
                now = seconds()
                self._until = min((lease.due for lease in known), default=now + _IDLE)
                if self._until <= now:
                    due = {lease.group() for lease in known if lease.due <= now}
                    return [lease for lease in known if lease.group() in due]
                idle = not known
                known.clear()
                self._changed.wait(self._until - now)


_keeper = _Keeper()


async def _renew_all(leases: Iterable[Lease]) -> None:
    import asyncio

    groups: dict[tuple[int, int], list[Lease]] = {}
    for lease in leases:
        groups.setdefault(lease.group(), []).append(lease)
    await asyncio.gather(*map(_renew, groups.values()))


async def _renew(leases: Sequence[Lease]) -> None:
    import asyncio

    claims, asked = leases[0].claims, seconds()
    leases[0].in_its_time()
    try:
        async with asyncio.timeout(claims.heartbeat / 1000):
            lost = await claims.renew([lease.claimed for lease in leases], claims.lease)
    except Exception as error:  # noqa: BLE001  whatever a store raises: it is asked again, until the leases are over
        runs = counted(len(leases), "run")
        _log.warning(
            "the claims of %s could not be renewed: %s",
            runs,
            type(error).__name__,
            extra={"error_type": type(error).__name__},
        )
        for lease in leases:
            lease.due = seconds() + _AGAIN * claims.heartbeat / 1000
        return
    gone = {(each.key, each.fence) for each in lost}
    for lease in leases:
        if (lease.claimed.key, lease.claimed.fence) in gone:
            lease.end()
        else:
            lease.renewed(asked)


async def judged(store: Store, headers: Sequence[RunHeader]) -> list[RunHeader]:
    """Return headers whose claims say what the store says of them. It is asked once for all, if there is a claim to ask for.

    Raises:
        StoreError: it cannot be read.
    """
    keys = [header_key(head.owner, head.run_id) for head in headers if head.claim is not None and head.fence]
    if not keys:
        return list(headers)
    claims = claims_of(store)
    held = {} if claims is None else await claims.holders(keys)
    found: list[RunHeader] = []
    for head in headers:
        claimed = held.get(header_key(head.owner, head.run_id))
        found.append(head.judged(0 if claimed is None or claimed.lapsed else claimed.until) if head.fence else head)
    return found


async def keys_of_claims(store: Store, owner: str) -> list[Key]:
    """Return the keys under which an owner's runs may be claimed; none in a store without claims.

    Raises:
        StoreError: it cannot be read.
    """
    if claims_of(store) is None:
        return []
    return [
        item.key
        for item in await collect(store.scan((ROOM, owner, HEADERS)))
        if len(item.key) == len(header_key("", ""))
    ]


async def drop_claims(store: Store, keys: Sequence[Key]) -> None:
    """Have a store keep nothing of the claims of runs that are gone.

    Raises:
        StoreError: it cannot be read or written.
    """
    claims = claims_of(store)
    if claims is not None and keys and (left := (await claims.holders(keys)).values()):
        await claims.release(left)
