"""The anchor of a sealed store in a session: the comparison with it at opening, and writing it.

It counts the rows of the writers (`_writers.py`), of which every commit to an anchored store changes one.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import anyio

from graphagent._concurrency import OwnTask
from graphagent.errors import AnchorError, ConflictError, RolledBackError, StoreError
from graphagent.store._items import Delete, Exists, Item
from graphagent.store._sealed_detection import ROOT
from graphagent.store.sealed._anchor import AnchorState, anchor_key
from graphagent.store.sealed._anchor_file import MAGIC
from graphagent.store.sealed._base import BaseState, Changed, difference, rooms_sums
from graphagent.store.sealed._format import UnreadableError
from graphagent.store.sealed._key_row import replacing
from graphagent.store.sealed._keyset import store_id_of
from graphagent.store.sealed._writers import BASE, Own

if TYPE_CHECKING:
    from graphagent.store.sealed._anchor_sources import HeldAnchor
    from graphagent.store.sealed._base import Sums
    from graphagent.store.sealed._domains import OpenedRows
    from graphagent.store.sealed._writers import Plan, Rows, Writers

_log = logging.getLogger("graphagent.store")
_TRIES = 100


@dataclass(eq=False)
class Anchoring:
    """The anchor of a store as a session knows it, if the store has one."""

    session: OpenedRows
    writers: Writers
    held: HeldAnchor | None = None
    every: float = 0.0
    """How many seconds the anchor may be behind; 0: it is written with each commit."""
    accepts: bool = False
    """Whether an older store is accepted, to be anchored anew."""
    _covered: tuple[BaseState, Own] | None = None
    """The state that the last commit of this session has made certain, if the anchor does not have it yet."""
    _keys: int = 0
    """The version of the key row that the anchor knows."""
    _due: float = 0.0
    """When the next commit begins to wait for the anchor again, in seconds of the monotonic clock."""
    _later: OwnTask | None = field(default=None, repr=False)

    @property
    def is_due(self) -> bool:
        """Whether the store is to be anchored, and is not."""
        return self.held is not None and not self.writers.anchored

    def fit(self, sums: Sums, rows: Rows) -> bool:
        """Return whether domains and rooms that add up to `sums` are the expected ones, at their versions unless any are accepted."""
        any_version = self.accepts or not rows.base.anchored
        return sums.listed == rows.sums.listed and (any_version or sums.versions == rows.sums.versions)

    # Opening

    async def check(self) -> None:
        """Compare the store with its anchor, before anything else of it is read.

        Raises:
            AnchorError: the anchor is missing, damaged or of another store.
        """
        if self.accepts or self.held is None:
            return
        # The anchor is read first: the store is ahead of it, and may only get further ahead meanwhile.
        content = await self.held.read()
        known = None if content is None else self._opened(content)
        if known is not None:
            await self._check_keys(known)
        rows = await self.writers.renew()
        base = rows.base if rows.base.anchored else None
        if known is None:
            if base is not None and base.count:
                if await self.held.read() is not None:
                    await self.check()  # the store was anchored between the two looks
                    return
                raise AnchorError(repr(self.held), f"it is missing, and {self.session.where} is anchored; {_REMEDY}")
            if base is not None:  # nothing was committed since the store was anchored
                await self._make(base)
            return
        if known.exceeds(base, rows.commits):
            raise self._rolled_back("it is older than its anchor")
        if not known.keys and base is not None:  # an error of the disk came between
            self._covered = base, Own()
            await self.write()

    async def _check_keys(self, known: AnchorState) -> None:
        if (
            self.session.keys_version < known.keys
        ):  # they were read before the anchor, and may have been changed in between
            await self.session.renew_keys(self.session.keys_version)
            if self.session.keys_version < known.keys:
                raise self._rolled_back("its keys are older than its anchor")
        self._keys = known.keys

    def _opened(self, content: bytes) -> AnchorState:
        try:
            known = AnchorState.read(content)
            if known.store_id != self.session.store_id:
                raise AnchorError(repr(self.held), f"it is that of another store than {self.session.where}")
            return AnchorState.opened(content, anchor_key(self.session.sum_key))
        except UnreadableError as error:
            raise AnchorError(repr(self.held), f"it {error}; {_REMEDY}") from None

    def _has_line(self, content: bytes, line: bytes) -> bool:
        """Return whether an anchor is one of this store with this line."""
        try:
            known = AnchorState.opened(content, anchor_key(self.session.sum_key))
        except UnreadableError:
            return False
        return known.keys > 0 and known.line == line

    def _rolled_back(self, reason: str) -> RolledBackError:
        return RolledBackError(self.session.where, reason)

    # The anchor

    def made(self, plan: Plan) -> None:
        """Take note of a commit, which the anchor is to know."""
        if plan.rows.base.anchored:
            self._covered = plan.rows.base, plan.own

    async def covered(self) -> None:
        """Write the anchor after a commit, or begin to wait until it is due."""
        if self.held is None or self._covered is None:
            return
        if not self.every:
            await self.write()
        elif (now := time.monotonic()) >= self._due:
            # Afterwards another one is begun, also if this one has ended with its event loop.
            self._due = now + self.every
            self._later = OwnTask(self._write_later)

    async def _write_later(self) -> None:
        await anyio.sleep(self.every)
        await self.write()

    async def write(self, keys: int = 0) -> None:
        """Write the state that the anchor does not have yet. If that fails, it is logged, and tried again after the next commit.

        `keys` is the version of the key row that a user of this session has put, which the session has not read yet.
        """
        covered, self._covered = self._covered, None
        keys, rows = max(keys, self.session.keys_version), self.writers.known
        if covered is None and keys > self._keys and rows is not None and rows.base.anchored:
            covered = rows.base, Own()
        if self.held is None or covered is None:
            return
        base, own = covered

        def merged(content: bytes | None) -> bytes | None:
            if content is None:
                raise AnchorError(repr(self.held), "it is missing")
            known = self._opened(content).merged(base, keys, own.number, own.commits)
            return None if known is None else known.to_bytes(anchor_key(self.session.sum_key))

        try:
            await self._sync()
            await self.held.update(merged)
            self._keys = max(self._keys, keys)
        except StoreError as error:  # the commit is kept in any case
            self._covered = self._covered or covered
            _log.warning("the anchor of %s was not written: %s", self.session.where, error)

    async def _make(self, base: BaseState) -> None:
        if self.held is not None:
            known = AnchorState.of(self.session.store_id, base, self.session.keys_version, {})

            def made(content: bytes | None) -> bytes | None:
                self._check_own(content)
                if content and self._has_line(content, base.line):
                    return None  # another process has committed since, and has written more
                return known.to_bytes(anchor_key(self.session.sum_key))

            await self._sync()
            await self.held.update(made, make=True)

    async def _sync(self) -> None:
        """Make the state durable that the anchor is about to have: a commit may be less durable than the anchor."""
        sync = getattr(self.session.store, "sync", None)
        if sync is not None:
            await sync()

    def _check_own(self, content: bytes | None) -> None:
        """Check that an anchor that is to be written anew is not one that another store needs, or something else, such as a key.

        Raises:
            AnchorError: it is.
        """
        if content and not content.startswith(MAGIC):
            raise AnchorError(repr(self.held), "it is something else than an anchor; name another place")
        try:
            known = None if content is None else AnchorState.read(content)
        except UnreadableError:
            return
        if known is not None and known.store_id != self.session.store_id:
            raise AnchorError(
                repr(self.held), f"it is that of another store than {self.session.where}; name another one"
            )

    def _begun_anchor(self, content: bytes | None) -> bytes | None:
        self._check_own(content)
        return None if content else AnchorState.empty(self.session.store_id).to_bytes(anchor_key(self.session.sum_key))

    async def begin(self) -> None:
        """Anchor the store in its present state if that is due.

        Raises:
            StoreError: the store or the anchor cannot be written.
        """
        while self.is_due:
            await self._begin_anchor()
            rows = await self.writers.renew()
            # Another process may have anchored it meanwhile, and may not find another line than its own.
            if rows.base.anchored or await self._anchored_anew(rows):
                return

    async def anew(self) -> None:
        """Accept the store as it is, in a session without an anchor to compare it with, and write the anchor anew.

        Raises:
            StoreError: the store or the anchor cannot be written, or others write all the time.
        """
        for _ in range(_TRIES):
            await self._begin_anchor()
            if await self._anchored_anew(await self.writers.renew()):
                return
        raise self.session.restless("(all)")

    async def _begin_anchor(self) -> None:
        if self.held is not None:  # an anchored store has an anchor at any moment
            await self._sync()
            await self.held.update(self._begun_anchor, make=True)

    async def _anchored_anew(self, rows: Rows) -> bool:
        session, depths = self.session, rows.base.depths
        domains = {item.key: item.version async for item in session.store.scan(("d",))}
        begun = [Changed(row, 0, version) for row, version in domains.items()]
        sums = difference(session.sum_key, begun, anchored=True).plus(rooms_sums(session.sum_key, depths))
        if not self.fit(sums, rows):
            await self.writers.contradicted(rows, sums)
            return False
        base = BaseState.fresh(sums, depths, anchored=True)
        put = self.writers.put_base(base, rows.version(BASE))
        try:
            await session.store.commit(
                # All processes that have the store open read its keys again, and find that it is anchored.
                *replacing(session.keys_version, session.keyset),
                put,
                *(Delete((*ROOT, number), expected=commits) for number, commits in rows.commits.items()),
                *(Exists(row, version=version) for row, version in domains.items()),
            )
        except ConflictError:
            await session.renew_keys(session.keys_version)
            return False
        self._covered = None
        await session.renew_keys(session.keys_version)
        await self.writers.renew()
        await self._make(base)
        return True

    async def end(self) -> None:
        """Leave no row of this session, and write the anchor."""
        later, self._later = self._later, None
        if later is not None:
            await later.stop()
        if await self.writers.end() and self.writers.anchored:
            self._covered = self.writers.rows.base, Own()
        await self.write()


async def has_older_keys(held: HeldAnchor, row: Item) -> bool:
    """Return whether an anchor, which cannot be authenticated without the keys, says that the key row was put back."""
    try:
        content = await held.read()
        known = None if content is None else AnchorState.read(content)
    except (AnchorError, UnreadableError):
        return False
    return known is not None and known.store_id == store_id_of(row.value) and row.version < known.keys


_REMEDY = "restore it, or begin a new one with the present state of the store: graphagent anchor reset"
