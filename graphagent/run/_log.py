"""The entries of a run as they are committed: numbered without holes, in groups, and by one writer at a time."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import anyio

from graphagent import _clock
from graphagent.codec._internal import hash_of
from graphagent.errors import ConflictError, RunClaimedError, RunNotFoundError
from graphagent.run._claim import LEASE
from graphagent.run._head import Head
from graphagent.run._keys import entries_key, head_key, pack
from graphagent.store import Exists, Put

if TYPE_CHECKING:
    from graphagent.protocols import Store
    from graphagent.store import Change


class Log:
    """Keeps the entries of one run. Each is put where there was none, so a second writer finds that it is one too many."""

    def __init__(self, store: Store, head: Head, token: str, *, last: int = 0, version: int = 0) -> None:
        self.store = store
        self.head = head
        """What is said of the run at a glance."""
        self.last = last
        """The number of the last entry that was made."""
        self.token = token
        """The id of the claim."""
        self.lost = False
        """Whether the run was found to be someone else's. Nothing is written any more."""
        self._version = version
        """That of the head in the store; 0 where there is none yet."""
        self._tried = b""
        """The head as it was to be put last."""
        self._since = time.monotonic()
        """When the head was put last."""
        self._key = entries_key(head.owner, head.run_id)
        self._head_key = head_key(head.owner, head.run_id)
        self._payloads: set[str] = set()
        self._beside: list[Change] = []
        self._made: list[tuple[int, bytes]] = []
        self._written = last
        self._lock = anyio.Lock(fast_acquire=True)

    def take(self, head: Head, token: str, version: int) -> None:
        """Go on under a new claim."""
        self.head, self.token, self._version = head, token, version

    # ---- payloads that stand apart

    def put(self, data: bytes) -> str:
        """Keep bytes beside the next entry, once, and give their hash."""
        name = hash_of(data)
        if name not in self._payloads:
            self._payloads.add(name)
            self._beside.append(Put((*self._key, name), data))
        return name

    def get(self, name: str) -> bytes:
        """Refuse: entries are read elsewhere.

        Raises:
            ValueError: always.
        """
        raise ValueError(f"payload {name!r} is read from where the run was read")

    def has(self, names: Iterable[str]) -> None:
        """Take note of payloads that are there already."""
        self._payloads.update(names)

    # ---- entries

    def beside(self, *changes: Change) -> None:
        """Have changes made in the same commit as the next entry."""
        self._beside += changes

    def make(self, entry: dict[str, Any]) -> None:
        """Make the next entry. It is committed with the next `write`.

        Raises:
            StoreError: it holds something that JSON has no place for.
        """
        number = self.last + 1
        self._made.append((number, pack(entry, f"entry {number} of run {self.head.run_id!r}")))
        self.last = number

    async def write(self, *, head: bool = False) -> None:
        """Commit what was made; with `head` also what is said of the run at a glance.

        Raises:
            RunClaimedError: someone else went on with the run.
            RunNotFoundError: the run was removed.
            StoreError: it could not be committed. It is still there, and committed with the next `write`.
        """
        mine = self.last
        # Branches that come here while one commits have theirs written together, by the first of them.
        async with self._lock:
            if self.lost:
                raise await self._taken()
            if head or self._written < mine:
                await self._commit(head=head)

    async def renew(self) -> None:
        """Renew the claim, while there is one.

        Raises:
            RunClaimedError: someone else went on with the run.
            RunNotFoundError: the run was removed.
            StoreError: it could not be committed.
        """
        async with self._lock:
            if self.head.claim is not None:  # else the run was let go while this waited
                await self._commit(head=True)

    async def _commit(self, *, head: bool) -> None:
        before = self.head
        renewed = before.renewed(self.last) if head or self._is_lease_short() else None
        while True:
            made, beside = self._made[:], self._beside[:]
            changes: list[Change] = [*beside]
            changes += [Put((*self._key, number), value, expected=0) for number, value in made]
            if renewed is not None:
                known, self._tried = self._tried, renewed.pack()
                changes.append(Put(self._head_key, self._tried, expected=self._version))
            else:
                known = b""
                changes.append(Exists(self._head_key))  # a run that was removed meanwhile must not begin to exist again
            try:
                await self.store.commit(*changes)
            except ConflictError as error:
                landed = await self._landed(made)
                moved = renewed is not None and await self._moved(known)
                if not landed and not moved:
                    raise await self._taken() from error
                self._written = made[landed - 1][0] if landed else self._written
                del self._made[:landed]
                continue
            self._written = made[-1][0] if made else self._written
            del self._made[: len(made)], self._beside[: len(beside)]
            if renewed is not None:
                if self.head is before:  # else the run is about to be let go, by who waits for this commit
                    self.head = renewed
                self._version, self._since = self._version + 1, time.monotonic()
            return

    def _is_lease_short(self) -> bool:
        """Tell whether a third of the lease is over. Both clocks are asked: one may be set, and the other one may stand still."""
        claim = self.head.claim
        if claim is None:
            return False
        passed = (time.monotonic() - self._since) * 1000
        return claim.until - _clock.now() < LEASE * 2 // 3 or passed > LEASE // 3

    async def _landed(self, made: list[tuple[int, bytes]]) -> int:
        """Give how many entries, from the first on, are in the store just as they were made.

        A commit that was cancelled, or whose acknowledgement was lost, may have been made all the same.
        """
        for count, (number, value) in enumerate(made):
            item = await self.store.get((*self._key, number))
            if item is None:
                return count
            if item.value != value:
                raise await self._taken()
        return len(made)

    async def _moved(self, known: bytes) -> bool:
        """Tell whether the head is another one since this writer put it, unnoticed, and take up its version.

        Raises:
            RunClaimedError: someone else put it.
        """
        item = await self.store.get(self._head_key)
        version = item.version if item is not None else 0
        if version == self._version:
            return False
        claim = Head.unpack(item.value, self.head.run_id).claim if item is not None else None
        mine = item is not None and (item.value == known or (claim is not None and claim.token == self.token))
        if not mine:
            raise await self._taken()
        self._version = version
        return True

    async def _taken(self) -> RunClaimedError | RunNotFoundError:
        head = self.head
        if self._version and await self.store.get(self._head_key) is None:
            return RunNotFoundError(head.run_id, head.owner)
        return RunClaimedError(head.run_id, "someone else, who went on with it")
