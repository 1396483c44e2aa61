"""Writing the entries of a run: numbered without gaps, committed in groups, by one writer at a time."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import TYPE_CHECKING

import anyio

from graphagent import _clock
from graphagent.codec._internal import hash_of
from graphagent.errors import ConflictError, RunClaimedError, RunNotFoundError
from graphagent.run.journal._claim import LEASE
from graphagent.run.journal._header import RunHeader
from graphagent.run.journal._keys import entries_key, head_key, pack
from graphagent.store import Exists, Put

if TYPE_CHECKING:
    from graphagent.protocols import Store
    from graphagent.run.state._entries import JournalEntry
    from graphagent.store import Change


class JournalWriter:
    """Writes the entries of one run. Each is inserted only if its number is unused; a second writer gets a conflict."""

    def __init__(self, store: Store, header: RunHeader, token: str, *, last: int = 0, version: int = 0) -> None:
        self.store = store
        self.header = header
        """The header of the run, as it is written with the next commit that writes it."""
        self.last = last
        """The number of the last entry that was appended."""
        self.token = token
        """The id of the claim."""
        self.lost = False
        """Whether someone else has the run. Nothing is written any more."""
        self._version = version
        """The version of the header in the store; 0: it is not there yet."""
        self._tried = b""
        """The header as it was to be put last, in a commit whose outcome may be unknown."""
        self._since = time.monotonic()
        """When the header was put last."""
        self._key = entries_key(header.owner, header.run_id)
        self._head_key = head_key(header.owner, header.run_id)
        self._payloads: set[str] = set()
        self._along: list[Change] = []
        self._appended: list[tuple[int, bytes]] = []
        """The entries that are not committed."""
        self._committed = last
        self._lock = anyio.Lock(fast_acquire=True)

    def take(self, header: RunHeader, token: str, version: int) -> None:
        """Continue under a new claim."""
        self.header, self.token, self._version = header, token, version

    # ---- payloads

    def put(self, data: bytes) -> str:
        """Store bytes with the next entry, once, and return their hash."""
        name = hash_of(data)
        if name not in self._payloads:
            self._payloads.add(name)
            self._along.append(Put((*self._key, name), data))
        return name

    def get(self, name: str) -> bytes:
        """Refuse: a writer does not read.

        Raises:
            ValueError: always.
        """
        raise ValueError(f"payload {name!r} is read from where the run was read")

    def has(self, names: Iterable[str]) -> None:
        """Note which payloads the store has."""
        self._payloads.update(names)

    # ---- entries

    def along(self, *changes: Change) -> None:
        """Make changes in the same commit as the next entry."""
        self._along += changes

    def append(self, entry: JournalEntry) -> None:
        """Append an entry. It is committed by the next `commit`.

        Raises:
            StoreError: it contains something that JSON cannot hold.
        """
        number = self.last + 1
        packed = pack(entry.to_json(), f"entry {number} of run {self.header.run_id!r}")
        self._appended.append((number, packed))
        self.last = number

    async def commit(self, *, header: bool = False) -> None:
        """Commit the entries that were appended; with `header` also the header.

        Raises:
            RunClaimedError: someone else continued the run.
            RunNotFoundError: the run was removed.
            StoreError: it could not be committed. The entries are committed by the next `commit`.
        """
        mine = self.last
        # Branches that come here while one of them commits have their entries written together, by the first of them.
        async with self._lock:
            if self.lost:
                raise await self._taken()
            if header or self._committed < mine:
                await self._commit(header=header)

    async def renew(self) -> None:
        """Renew the claim, while there is one.

        Raises:
            RunClaimedError: someone else continued the run.
            RunNotFoundError: the run was removed.
            StoreError: it could not be committed.
        """
        async with self._lock:
            if self.header.claim is not None:  # else the run was released while this waited
                await self._commit(header=True)

    async def _commit(self, *, header: bool) -> None:
        before = self.header
        renewed = before.renewed(self.last) if header or self._is_lease_short() else None
        while True:
            appended, along = self._appended[:], self._along[:]
            changes: list[Change] = [*along]
            changes += [Put((*self._key, number), packed, expected=0) for number, packed in appended]
            if renewed is not None:
                known, self._tried = self._tried, renewed.pack()
                changes.append(Put(self._head_key, self._tried, expected=self._version))
            else:
                known = b""
                changes.append(Exists(self._head_key))  # a run that was removed meanwhile must not begin to exist again
            try:
                await self.store.commit(*changes)
            except ConflictError as error:
                landed = await self._landed(appended)
                moved = renewed is not None and await self._moved(known)
                if not landed and not moved:
                    raise await self._taken() from error
                self._committed = appended[landed - 1][0] if landed else self._committed
                del self._appended[:landed]
                continue
            self._committed = appended[-1][0] if appended else self._committed
            del self._appended[: len(appended)], self._along[: len(along)]
            if renewed is not None:
                if self.header is before:  # else the run is about to be released by a caller that waits for this commit
                    self.header = renewed
                self._version, self._since = self._version + 1, time.monotonic()
            return

    def _is_lease_short(self) -> bool:
        """Return whether a third of the lease is over. Both clocks count: one may be set, and the other one may stand still."""
        claim = self.header.claim
        if claim is None:
            return False
        passed = (time.monotonic() - self._since) * 1000
        return claim.until - _clock.now() < LEASE * 2 // 3 or passed > LEASE // 3

    async def _landed(self, appended: list[tuple[int, bytes]]) -> int:
        """Return how many entries, from the first on, are in the store exactly as they were appended.

        A commit that was cancelled, or whose acknowledgement was lost, may have been made all the same.
        """
        for count, (number, packed) in enumerate(appended):
            item = await self.store.get((*self._key, number))
            if item is None:
                return count
            if item.value != packed:
                raise await self._taken()
        return len(appended)

    async def _moved(self, known: bytes) -> bool:
        """Return whether the header was written by this writer without an acknowledgement, and take over its version.

        Raises:
            RunClaimedError: someone else wrote it.
        """
        item = await self.store.get(self._head_key)
        version = item.version if item is not None else 0
        if version == self._version:
            return False
        claim = RunHeader.unpack(item.value, self.header.run_id).claim if item is not None else None
        mine = item is not None and (item.value == known or (claim is not None and claim.token == self.token))
        if not mine:
            raise await self._taken()
        self._version = version
        return True

    async def _taken(self) -> RunClaimedError | RunNotFoundError:
        header = self.header
        if self._version and await self.store.get(self._head_key) is None:
            return RunNotFoundError(header.run_id, header.owner)
        return RunClaimedError(header.run_id, "someone else, who went on with it")
