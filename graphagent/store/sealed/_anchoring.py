"""An anchored store in a session: its row as a writer, the checks against the anchor and the sum, and writing the anchor.

No row is written by all, so none waits for another. Only the beginning and the end of a writer change the base row.

The file is long because the row of a writer, the sum and the anchor are the state of one object, which each commit changes together.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import anyio

from graphagent._concurrency import OwnTask
from graphagent.errors import AnchorError, ConflictError, DamagedStoreError, RolledBackError, StoreError
from graphagent.store._encoding import encode
from graphagent.store._items import Change, Delete, Exists, Item, Key, Put
from graphagent.store._sealed_detection import KEYS, ROOT
from graphagent.store.sealed._anchor import (
    AnchorState,
    BaseState,
    anchor_key,
    difference,
    new_writer,
    read_writer,
    state_digest,
    writer_plain,
)
from graphagent.store.sealed._anchor_file import MAGIC
from graphagent.store.sealed._format import RootState, UnreadableError
from graphagent.store.sealed._keyset import store_id_of

if TYPE_CHECKING:
    from graphagent.store.sealed._anchor_sources import HeldAnchor
    from graphagent.store.sealed._domains import OpenedRows

_log = logging.getLogger("graphagent")
_BASE: Key = (*ROOT, 0)
_TRIES = 100
_SUM = 2**256


class _Own(NamedTuple):
    """The session's own row. It has none before its first commit, and after another writer has ended it."""

    number: int = 0
    commits: int = 0
    difference: int = 0


class _Writers(NamedTuple):
    """The rows of an anchored store that say who has written, as of one moment."""

    version: int
    """The version of the base row."""
    root: int
    """The version of the root."""
    base: BaseState
    rows: Mapping[int, tuple[int, int]]
    """Of each writer how many commits it has made, and what these added to the sum."""

    @property
    def commits(self) -> dict[int, int]:
        return {writer: commits for writer, (commits, _) in self.rows.items()}

    @property
    def total(self) -> int:
        return (self.base.total + sum(added for _, added in self.rows.values())) % _SUM


@dataclass(eq=False)
class Plan:
    """What one commit changes of the writers."""

    own: _Own
    writers: _Writers
    changes: list[Change]


@dataclass(eq=False)
class Anchoring:
    """What a session knows of the writers of its store, if the store is anchored, and its anchor, if it has one."""

    session: OpenedRows
    held: HeldAnchor | None = None
    every: float = 0.0
    """How many seconds the anchor may be behind; 0: it is written with each commit."""
    accepts: bool = False
    """Whether what is stored is accepted whatever it is, to be anchored anew."""
    is_checked: bool = False
    """Whether the sum was compared with the rows when the domains were last listed."""
    _own: _Own = field(default_factory=_Own)
    _writers: _Writers | None = None
    _covered: tuple[BaseState, _Own] | None = None
    """What the last commit of this session has made certain, if the anchor does not know it yet."""
    _keys: int = 0
    """The version of the key row that the anchor knows."""
    _due: float = 0.0
    """When the next commit begins to wait for the anchor again, in seconds of the monotonic clock."""
    _later: OwnTask | None = field(default=None, repr=False)

    @property
    def is_due(self) -> bool:
        """Whether the store is to be anchored, and is not."""
        return self.held is not None and not self.session.root.state.anchored

    # Opening

    async def check(self) -> None:
        """Compare the store with its anchor, before anything else of it is read.

        Raises:
            RolledBackError: the store is older than its anchor.
            AnchorError: the anchor is missing, damaged or of another store.
        """
        if self.accepts or self.held is None:
            return
        # The anchor is read first: the store is ahead of it, and may only get further ahead meanwhile.
        content = await self.held.read()
        known = None if content is None else self._opened(content)
        if known is not None:
            await self._check_keys(known)
        writers = self._writers = await self._read()
        if known is None:
            if writers is not None and writers.base.count:
                raise AnchorError(repr(self.held), f"it is missing, and {self.session.where} is anchored; {_REMEDY}")
            if writers is not None:  # nothing was committed since the store was anchored
                await self._make(writers.base)
            return
        if known.exceeds(writers and writers.base, writers.commits if writers else {}):
            raise self._rolled_back("it is older than its anchor")
        if not known.keys and writers is not None:  # an error of the disk came between
            self._covered = writers.base, _Own()
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

    async def _read(self) -> _Writers | None:
        """Return the rows of the writers; None if the store is not anchored."""
        seen: dict[Key, int] | None = None
        for _ in range(_TRIES):
            rows = {item.key: item async for item in self.session.store.scan(ROOT)}
            root, base = rows.pop(ROOT, None), rows.pop(_BASE, None)
            if root is None:
                raise DamagedStoreError(self.session.where, "the row of its root is missing or older than it was")
            try:
                state = await self.session.unsealed(b"root", root)
                if state is None:
                    continue
                if not RootState.read(state).anchored:
                    if base is None and not rows:
                        return None
                elif base is not None:
                    opened = await self._opened_rows(root, base, rows)
                    if opened is None:
                        continue
                    if {*opened.base.writers} == {*opened.rows}:
                        return opened
            except UnreadableError as error:
                raise DamagedStoreError(
                    self.session.where, f"the row of its root, or one of a writer, {error}"
                ) from None
            now = {key: item.version for key, item in rows.items()} | {
                ROOT: root.version,
                _BASE: base.version if base else 0,
            }
            if now == seen:  # and so not in the middle of a commit
                raise DamagedStoreError(self.session.where, "rows of its writers are missing, or were added")
            seen = now
        raise self.session.restless("(all)")

    async def _opened_rows(self, root: Item, base: Item, rows: Mapping[Key, Item]) -> _Writers | None:
        plain = await self.session.unsealed(b"base", base)
        if plain is None:
            return None
        writers: dict[int, tuple[int, int]] = {}
        for key, found in rows.items():
            content = await self.session.unsealed(b"writer", found)
            if content is None:
                return None
            writers[int(key[-1])] = found.version, read_writer(content)
        return _Writers(base.version, root.version, BaseState.read(plain), writers)

    def _rolled_back(self, reason: str) -> RolledBackError:
        return RolledBackError(self.session.where, reason)

    # The sum

    async def before_listing(self) -> _Writers | None:
        """Return what is to be compared with the sum after all rows of domains were read; None if the store is not anchored."""
        self.is_checked = self.accepts or not self.session.root.state.anchored
        if self.is_checked:
            return None
        before = await self._read()
        self._writers = self._writers or before
        return before

    async def compare(self, before: _Writers | None, total: int) -> None:
        """Compare the sum with what the rows of the domains add up to, unless others have written since `before`.

        Raises:
            RolledBackError: a row is older than it was.
        """
        if before is None:
            return
        after = await self._read()
        if after is None or (after.version, after.root, after.commits) != (before.version, before.root, before.commits):
            return
        root = state_digest(self.session.sum_key, encode(ROOT), after.root)
        if (total + int.from_bytes(root, "big")) % _SUM != after.total:
            raise self._rolled_back("a part of it is older than the rest, or was removed")
        self.is_checked = True

    # Commits

    async def planned(self, versions: Mapping[Key, tuple[int, int]]) -> Plan | None:
        """Return what belongs into a commit that changes rows of domains or the root; None if the store is not anchored.

        `versions` has the version of each of these rows before and after; 0 where it does not exist.
        """
        if not self.session.root.state.anchored or not versions:
            return None
        writers = self._writers or await self._read()
        if writers is None:
            raise DamagedStoreError(self.session.where, "rows of its writers are missing")
        added = difference(self.session.sum_key, ((encode(row), *each) for row, each in versions.items()))
        own, changes = self._own, list[Change]()
        if not own.number:
            own, writers, changes = self._begun(writers)
        own = _Own(own.number, own.commits + 1, (own.difference + added) % _SUM)
        row = (*ROOT, own.number)
        record = self.session.sealed_row(b"writer", row, own.commits, writer_plain(own.difference))
        changes.append(Put(row, record, expected=own.commits - 1))
        return Plan(own, writers, changes)

    def _begun(self, writers: _Writers) -> tuple[_Own, _Writers, list[Change]]:
        """Begin to have a row. If there are many already, the oldest ones are ended; who still has one begins anew."""
        number, base, changes = new_writer(), writers.base, list[Change]()
        for writer in base.due():
            commits, theirs = writers.rows[writer]
            base = base.ended(writer, commits, theirs)
            changes.append(Delete((*ROOT, writer), expected=commits))
        base = base.begun(number)
        return (
            _Own(number),
            writers._replace(version=writers.version + 1, base=base, rows={}),
            [*changes, self._put_base(base, writers.version)],
        )

    def _put_base(self, base: BaseState, version: int) -> Put:
        return Put(_BASE, self.session.sealed_row(b"base", _BASE, version + 1, base.plain()), expected=version)

    def apply(self, plan: Plan) -> None:
        """Take note that a commit was made."""
        self._own, self._writers = plan.own, plan.writers
        self._covered = plan.writers.base, plan.own

    async def catch_up(self) -> None:
        """Take over what the other writers have changed.

        Raises:
            RolledBackError: they are older than they were.
        """
        known, own = self._writers, self._own
        if known is None and not self.session.root.state.anchored:
            return
        writers = self._writers = await self._read()
        if writers is None:
            if known is not None:
                raise self._rolled_back("it was anchored, and is not any more")
            return
        if known is not None and writers.base.line == known.base.line:
            digest = writers.base.digest(known.base.count)
            if writers.version < known.version or digest not in (None, known.base.end):
                raise self._rolled_back("it is older than it was")
        if own.number in writers.rows:
            commits, added = writers.rows[own.number]
            if commits < own.commits:
                raise self._rolled_back("it is older than it was")
            self._own = _Own(own.number, commits, added)
        else:
            self._own = _Own()

    async def resealed(self) -> list[Change]:
        """Return what seals the rows of the writers anew, with the present key; nothing of what they mean changes."""
        writers = await self._read()
        if writers is None:
            return []
        sealed = self.session.sealed_row
        rows: list[tuple[Key, bytes, bytes, int]] = [(_BASE, b"base", writers.base.plain(), writers.version)]
        rows += [((*ROOT, each), b"writer", writer_plain(added), n) for each, (n, added) in writers.rows.items()]
        return [Put(key, sealed(kind, key, n, plain), expected=n, version=n) for key, kind, plain, n in rows]

    # The anchor

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
        """Write what the anchor does not know yet. If that fails, it is logged, and tried again after the next commit.

        `keys` is the version of the key row that somebody using this session has put, which the session has not read yet.
        """
        covered, self._covered = self._covered, None
        keys, writers = max(keys, self.session.keys_version), self._writers
        if covered is None and keys > self._keys and writers is not None:
            covered = writers.base, _Own()
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
        except StoreError as error:  # what was committed is kept in any case
            self._covered = self._covered or covered
            _log.warning("the anchor of %s was not written: %s", self.session.where, error)

    async def _make(self, base: BaseState) -> None:
        if self.held is not None:
            known = AnchorState.of(self.session.store_id, base, self.session.keys_version, {})

            def made(content: bytes | None) -> bytes:
                self._check_own(content)
                return known.to_bytes(anchor_key(self.session.sum_key))

            await self._sync()
            await self.held.update(made, make=True)

    async def _sync(self) -> None:
        """Make durable what the anchor is about to know: a commit may be less durable than the anchor."""
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
        """Anchor the store if it is due, with what it has.

        Raises:
            StoreError: the store or the anchor cannot be written.
        """
        while self.is_due:
            if await self._anchored_anew():
                return

    async def anew(self) -> None:
        """Accept the store as it is, in a session without an anchor to compare it with, and write the anchor anew.

        Raises:
            StoreError: the store or the anchor cannot be written, or others write all the time.
        """
        for _ in range(_TRIES):
            if await self._anchored_anew():
                return
        raise self.session.restless("(all)")

    async def _anchored_anew(self) -> bool:
        session = self.session
        if self.held is not None:  # an anchored store has an anchor at any moment
            await self._sync()
            await self.held.update(self._begun_anchor, make=True)
        await session.renew_root()
        found = {item.key: item.version async for item in session.store.scan(ROOT)}
        version, base_version = found.pop(ROOT), found.pop(_BASE, 0)
        domains = {item.key: item.version async for item in session.store.scan(("d",))}
        state = session.root.state
        if session.root.version != version or len(domains) != state.count:
            return False
        rows = {**domains, ROOT: version + 1}
        total = difference(session.sum_key, ((encode(row), 0, number) for row, number in rows.items()))
        base = BaseState.fresh(total)
        try:
            await session.store.commit(
                # Whoever has the store open reads its keys again, and finds that it is anchored.
                *session.keys_again(),
                Put(ROOT, session.sealed_root(state.as_anchored(), version + 1), expected=version),
                self._put_base(base, base_version),
                *(Delete(row, expected=number) for row, number in found.items()),
                *(Exists(row, version=number) for row, number in domains.items()),
            )
        except ConflictError:
            await session.renew_keys(session.keys_version)
            await session.renew_root()
            return False
        self._own, self._covered = _Own(), None
        self._writers = _Writers(base_version + 1, version + 1, base, {})
        await session.renew_keys(session.keys_version)
        await session.renew_root()
        await self._make(base)
        return True

    async def end(self) -> None:
        """Leave no row of this session, and write the anchor."""
        later, self._later = self._later, None
        if later is not None:
            await later.stop()
        try:
            for _ in range(_TRIES):
                own, writers = self._own, self._writers
                if not own.number or writers is None:
                    break
                base = writers.base.ended(*own)
                try:
                    await self.session.store.commit(
                        Exists(KEYS, version=self.session.keys_version),
                        Delete((*ROOT, own.number), expected=own.commits),
                        self._put_base(base, writers.version),
                    )
                except ConflictError as error:
                    if error.key == KEYS:
                        await self.session.renew_keys(self.session.keys_version)
                    await self.catch_up()
                    continue
                self._own, self._writers, self._covered = _Own(), None, (base, _Own())
        except StoreError as error:  # the row stays, and a later one ends this one
            _log.debug("a session of %s was not ended: %s", self.session.where, error)
        await self.write()


async def has_older_keys(held: HeldAnchor, row: Item) -> bool:
    """Return whether an anchor, which cannot be authenticated without the keys, says that the key row was put back."""
    try:
        content = await held.read()
        known = None if content is None else AnchorState.read(content)
    except (AnchorError, UnreadableError):
        return False
    return known is not None and known.store_id == store_id_of(row.value) and row.version < known.keys


_REMEDY = "restore it, or begin a new one with what the store has now: graphagent anchor reset"
