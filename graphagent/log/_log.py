"""The log of a run: append, commit, read.

`append` makes the bytes of an entry, applies it to the state, and keeps the bytes for the next commit; `commit` makes durable what
anybody has appended. Without a store both work, and the second returns at once. The file is long because who appends, who commits and
who renews a claim at the same time share what a commit that failed has left.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, cast, final

import anyio
from msgspec import structs

from graphagent import _clock
from graphagent.codec._errors import DecodeError
from graphagent.codec._values import item_data
from graphagent.errors import (
    ConflictError,
    DamagedStoreError,
    JournalError,
    LeaseLostError,
    RolledBackError,
    RunClaimedError,
    RunNotFoundError,
    StoreError,
)
from graphagent.log._bytes import EntryCodec, payloads_in, plain, row_of
from graphagent.log._changes import committed
from graphagent.log._claim import LEASE, Claim
from graphagent.log._entries import NO_VALUE, AgentStarted, AgentStopped, Carried, NodeFinished, Started, finish_node
from graphagent.log._header import (
    WAITING,
    RunHeader,
    child_header,
    due_changes,
    header_key,
    mark_key,
    place_of,
    rows_key,
)
from graphagent.log._lease import Lease
from graphagent.log._segments import Segment, read_header, read_segments, unless_removed
from graphagent.log._state import State
from graphagent.store import Delete, Exists, Put
from graphagent.store._claims import claims_of

if TYPE_CHECKING:
    from graphagent.log._bytes import Types
    from graphagent.log._claim import Token
    from graphagent.log._entries import Entry
    from graphagent.log._executed import Executed
    from graphagent.log._header import Status
    from graphagent.log._visits import Activation, Frame, Visit
    from graphagent.protocols import Store
    from graphagent.store import Change, Key

LookUp = Callable[[EntryCodec, Sequence[bytes]], Awaitable[None]]
"""Looks up the facts and notes to which rows refer, and gives them to the codec."""


@final
class Applied(NamedTuple):
    """An entry that was read and applied, for those who watch a run while its log is read."""

    entry: Entry
    number: int
    state: State
    """The state that follows."""
    frame: Frame | None
    """The frame in which it happened, if it was there."""
    visit: Visit | None
    """The visit of the frame before it: if it is another one than that of the frame, it was left."""
    row: bytes
    """The row that has it."""
    place: int
    """Its place in the row."""

    @property
    def begun(self) -> list[Frame]:
        """The frames whose visits began with it."""
        return self.state.begun(self.entry.at)


Watch = Callable[[Applied], None]
"""Is called after an entry is applied that was read."""


class _PendingCommit(NamedTuple):
    """The contents of a commit whose outcome may be unknown: `recover` compares them with the store."""

    key: Key
    """The key of the row."""
    row: bytes
    entries: int
    """How many there are in the row."""
    along: int
    """How many changes it makes in the same commit."""
    agents: dict[Activation, Status]
    blobs: dict[int, bytes]


class Log:
    """The only writer of a state. `Log()` is for a run without a store."""

    def __init__(
        self, store: Store | None = None, header: RunHeader | None = None, *, types: Types | None = None
    ) -> None:
        self.state = State()
        self.store = store
        self.durable = store is not None
        """Whether values are bytes, and commits do something."""
        self.types = types
        """Returns the declared types of values."""
        if header is not None:
            self.header = header
        self._new: list[bytes] = []
        """The entries that no commit has taken yet."""
        self._along: list[Change] = []

    # What a log without a store never uses costs a run nothing.
    header = RunHeader(run_id="")
    """The header, as it is written with the next commit that writes it."""
    executed: Callable[[], float] = float
    """Returns for how many seconds the run was executed."""
    past: Executed | None = None
    """What the run has executed of what rules name; None before something of that was executed."""
    lost = False
    """Whether somebody else has the run. Nothing is written any more."""
    version = 0
    """The version of the header in the store; 0: it is not there yet."""
    lease: Lease | None = None
    """The claim of this process, where the store says who has a run."""
    stale: BaseException | None = None
    """The error of a commit that failed."""
    _first = 1
    """The number of the first entry that no commit has taken yet."""
    _last: Key = ()
    """Where the row before that is. Each commit requires it: a store that was replaced by an older copy may lack it."""
    _pending: _PendingCommit | None = None
    """The last commit, whose outcome may be unknown."""
    _due = 0
    """When something is due according to the header in the store."""
    _unconfirmed = ""
    """The token of a renewal of which it is not known whether it is in the store."""
    _since = 0.0
    """When the header was written last, by the monotonic clock."""

    @cached_property
    def codec(self) -> EntryCodec:
        """Makes bytes of entries and values."""
        return EntryCodec(self.types)

    @cached_property
    def _lock(self) -> anyio.Lock:
        return anyio.Lock(fast_acquire=True)

    @cached_property
    def _agents(self) -> dict[Activation, Status]:
        """The runs of sub-agents whose headers are written with the next commit, with their status."""
        return {}

    @property
    def committed(self) -> int:
        """The number of the last entry that is in the store."""
        return self._first - 1

    # ---- values

    def keep(self, value: Any, kind: Any = Any) -> Any:
        """Return a user's value as an entry has it: the value itself, or its bytes in a log with a store.

        Raises:
            SerializationError: it cannot be stored.
        """
        return self.codec.keep(value, kind) if self.durable else value

    def take(self, stored: Any, kind: Any = Any) -> Any:
        """Return a user's value that an entry has: the object itself, or a new one of a declared type in a log with a store."""
        return self._read(self.codec.take, stored, kind) if self.durable else stored

    def take_if_fits(self, stored: Any, kind: Any) -> Any:
        """Return the same; if the value is of another type, as plain data."""
        return self._read(self.codec.take_if_fits, stored, kind) if self.durable else stored

    def value_of(self, data: Any, kind: Any) -> Any:
        """Return a new object of a declared type for the data of a stored value."""
        return self._read(self.codec.value_of, data, kind)

    def items_of(self, data: Any, kind: Any) -> Sequence[tuple[Any, Any]] | None:
        """Return the data of the items of a stored list or tuple, each with its declared type; None for any other value."""
        return cast("Sequence[tuple[Any, Any]] | None", self._read(item_data, data, kind))

    def _read(self, read: Callable[[Any, Any], Any], stored: Any, kind: Any) -> Any:
        try:
            return read(stored, kind)
        except ValueError as error:
            reason = str(error)
        raise DamagedStoreError(f"run {self.header.run_id!r}", reason)

    # ---- writing

    def is_at(self, header: RunHeader, version: int) -> None:
        """Note which header is in the store, and its version: the next one takes its place."""
        self.header, self.version, self._due = header, version, header.due

    def append(self, entry: Entry) -> None:
        """Append an entry. It is applied at once, and durable with the next commit.

        Raises:
            SerializationError: a value in it cannot be stored; nothing has changed.
        """
        if self.durable:
            if self.stale is not None:
                raise self._journal_error(self.stale)
            data, entry = self.codec.write(entry, self.state)
            self._new.append(data)
        if self.past is not None and (frame := self.state.frames.get(entry.at)) is not None:
            self.past.take_back(entry.takes_back(frame, frame.visit))
        self.state.number += 1
        entry.apply(self.state)
        if self.durable and isinstance(entry, AgentStarted | AgentStopped):
            self._note_agent(entry)

    def finish_node(
        self,
        frame: Frame,
        to: str,
        value: Any,
        kind: Any,
        tap: bool,
        nodes: int,
        edge: int | None = None,
        mapped: bool = False,
    ) -> None:
        """Append that a node ended: the most frequent entry, which need not exist in a log without a store.

        Raises:
            SerializationError: the value cannot be stored; nothing has changed.
        """
        if self.durable:
            kept = NO_VALUE if tap else self.codec.keep(value, kind)
            entry = NodeFinished(at=frame.path, to=to, value=kept, tap=tap, edge=edge, mapped=mapped, nodes=nodes)
            self.append(entry)
        else:
            self.state.number += 1
            finish_node(self.state, frame, to, frame.visit.input if tap else value, frame.visit.source, nodes)

    def _note_agent(self, entry: AgentStarted | AgentStopped) -> None:
        agent = self.state.frames[entry.at].agent
        activation = agent.children[-1] if isinstance(entry, AgentStarted) else agent
        self._agents[activation] = activation.status

    def note_agents(self) -> None:
        """Write the headers of all sub-agents with the next commit. A fork does not have these headers yet."""
        self._agents.update((each, each.status) for each in self.state.activations() if each.parent is not None)

    def waits_no_more(self) -> None:
        """Remove the mark of a run that waits for answers with the next entries."""
        if self.header.written == "waiting":
            self.along(Delete(mark_key(WAITING, self.header.owner, self.header.run_id)))

    def along(self, *changes: Change) -> None:
        """Make changes in the same commit as the next entries."""
        self._along += changes

    async def commit(self, *, header: bool = False) -> None:
        """Make the entries durable that were appended; with `header` also the header.

        Raises:
            RunClaimedError: somebody else continued the run.
            RunNotFoundError: the run was removed.
        """
        if self.store is None:
            return
        # A task whose entries another one commits waits here. If it were cancelled in the middle, nobody would know which entries are stored.
        async with self._lock:
            with anyio.CancelScope(shield=True):
                if self.lost:
                    raise await self.claim_error()
                self.check_claim()
                if self.stale is not None:
                    raise self._journal_error(self.stale)
                if self._new or header:
                    await self._commit(self.store, header=header)
                    if header and self.header.claim is None:
                        await self.let_go()
                    self.check_claim()  # a process that was stopped here must not change the store

    async def claim(self, token: Token) -> None:
        """Commit what was appended with a header that says that this process has the run.

        Raises:
            RunClaimedError: somebody else has it, or continued it since it was read.
            RunNotFoundError: the run was removed.
            StoreError: it could not be read or written.
        """
        store, run, key = self.store, self.header, header_key(self.header.owner, self.header.run_id)
        assert store is not None
        self.lease, fence = None, 0
        # Cancelled in its middle, nobody would release the run.
        with token, anyio.CancelScope(shield=True):
            if claims_of(store) is not None:
                self.lease = await Lease.take(store, key, token.id, after=run.fence)
                if self.lease is None:
                    raise RunClaimedError(run.run_id, "another process, which has just taken it")
                fence = self.lease.claimed.fence
            self.header = structs.replace(run, claim=Claim.of(token), fence=fence)
            try:
                await self.commit(header=True)
            except BaseException:
                await self.let_go()
                raise

    async def let_go(self) -> None:
        """End the claim in the store, if there is one. Whoever has an older header of the run can take it then."""
        lease, self.lease = self.lease, None
        if lease is not None:
            with anyio.CancelScope(shield=True):
                await lease.release()

    def check_claim(self) -> None:
        """Check, before something is done, that the claim of this process is not over."""
        if self.lease is not None and self.lease.is_over:
            self.lost = True
            raise LeaseLostError(self.header.run_id)

    async def renew(self) -> None:
        """Renew the claim, while there is one.

        Raises:
            RunClaimedError: somebody else continued the run.
            RunNotFoundError: the run was removed.
            StoreError: it could not be committed.
        """
        async with self._lock:
            store, run = self.store, self.header
            if run.claim is None or store is None or self.stale is not None:
                return  # it was released meanwhile, or a commit failed
            with anyio.CancelScope(shield=True):
                await self._find_version(store)
                # Without entries: of a renewal that fails, nothing is unknown but the version.
                renewed = run.renewed(self.committed, self.codec.blobs.last)
                self._unconfirmed = run.claim.token
                try:
                    await store.commit(*self._header_changes(renewed))
                except ConflictError as error:
                    raise await self.claim_error() from error
                self._renewed(run, renewed)

    def _header_changes(self, header: RunHeader) -> list[Change]:
        put = Put(header_key(header.owner, header.run_id), header.pack(), expected=self.version)
        return [put, *due_changes(header, self._due)]

    def _renewed(self, before: RunHeader, renewed: RunHeader) -> None:
        self.version, self._due, self._since, self._unconfirmed = self.version + 1, renewed.due, time.monotonic(), ""
        if self.header is before:
            self.header = renewed

    async def _find_version(self, store: Store) -> None:
        """Find the version of the header after a renewal that failed, which may be in the store."""
        run = self.header
        if self._unconfirmed:
            item = await store.get(header_key(run.owner, run.run_id))
            found = None if item is None else RunHeader.unpack(item.value, run.run_id)
            if (
                item is not None
                and found is not None
                and found.claim is not None
                and found.claim.token == self._unconfirmed
            ):
                self.version, self._due = item.version, found.due
            self._unconfirmed = ""

    async def handed_over(self) -> Sequence[Change]:
        """Return what `commit(header=True)` would commit, for another log that makes it along with its own entries.

        Raises:
            StoreError: the store cannot be read.
        """
        assert self.store is not None
        return (await self._changes(self.store, header=True))[0]

    async def _changes(self, store: Store, *, header: bool) -> tuple[list[Change], RunHeader | None]:
        """Return what a commit consists of, with the header if it is written."""
        state, codec, run = self.state, self.codec, self.header
        key, renewed = rows_key(run), None
        changes: list[Change] = [*self._along]
        follows = self._last[:-1] == key
        if follows:
            changes.append(Exists(self._last))
        if header or self._is_lease_short():
            await self._find_version(store)
            renewed = run.renewed(state.number, codec.blobs.last)
            changes += self._header_changes(renewed)
        elif not follows:
            changes.append(Exists(header_key(run.owner, run.run_id)))
        now, ran = _clock.now(), round(self.executed() * 1000)
        # What other tasks append while the store works belongs to the next commit.
        row, blobs = row_of(now, ran, self._new), dict(codec.blobs.new)
        agents, at = dict(self._agents), (*key, self._first)
        pending = self._pending = _PendingCommit(at, row, len(self._new), len(self._along), agents, blobs)
        if pending.entries:
            changes += [Put((*key, 0, number), data) for number, data in blobs.items()]
            changes.append(Put(at, row, expected=0))
            if run.first and not self.version:
                changes.append(Put(*place_of(run)))
            state.time, state.ran = now, ran
            for activation in agents:
                place = (*header_key(run.owner, run.run_id), activation.frame.born)
                changes.append(Put(place, child_header(run, activation, now).pack()))
        return changes, renewed

    async def _commit(self, store: Store, *, header: bool) -> None:
        run = self.header
        changes, renewed = await self._changes(store, header=header)
        pending = self._pending
        assert pending is not None
        try:
            await store.commit(*changes)
        except BaseException as error:
            self.stale = error
            if isinstance(error, ConflictError):
                raise await self.claim_error() from error
            if isinstance(error, StoreError):
                raise self._journal_error(error) from error
            raise
        self._landed(pending)
        if renewed is not None:
            self._renewed(run, renewed)
        committed(store, run.owner, run.run_id, header=renewed is not None)

    def _landed(self, pending: _PendingCommit) -> None:
        """Note that a commit is in the store."""
        blobs = self.codec.blobs
        if pending.entries:
            self._last = pending.key
        del self._new[: pending.entries], self._along[: pending.along]
        self._first, self._pending = self._first + pending.entries, None
        for activation, status in pending.agents.items():
            if self._agents[activation] == status:
                del self._agents[activation]
        for number in pending.blobs:
            blobs.stored[number] = blobs.new.pop(number)

    async def recover(self) -> None:
        """Find out what became of a commit that failed: if it is not in the store, the next one makes it.

        Raises:
            RunClaimedError: somebody else continued the run.
            RunNotFoundError: the run was removed.
            StoreError: it could not be read.
        """
        store, run, pending = self.store, self.header, self._pending
        assert store is not None
        item = await store.get((*rows_key(run), self._first))
        header = await store.get(header_key(run.owner, run.run_id))
        if item is not None and (pending is None or item.value != pending.row):
            raise await self.claim_error()
        if header is None and self.version:
            raise RunNotFoundError(run.run_id, run.owner)
        if item is not None and pending is not None:
            self._landed(pending)
        self.version = header.version if header is not None else 0
        self._due = 0 if header is None else RunHeader.unpack(header.value, run.run_id).due
        self.stale = None

    def _is_lease_short(self) -> bool:
        """Return whether a third of the lease is over. Both clocks count: one may be set, and the other one may stand still."""
        claim = self.header.claim
        if claim is None or self.lease is not None:
            return False
        return claim.until - _clock.now() < LEASE * 2 // 3 or (time.monotonic() - self._since) * 1000 > LEASE // 3

    async def claim_error(self) -> RunClaimedError | RunNotFoundError | JournalError:
        """Return the error of a run that somebody else has, that was removed, or of which the store has lost the end."""
        header = self.header
        with suppress(StoreError):  # of a run that is lost, it is enough to know that
            assert self.store is not None
            if self.version and await self.store.get(header_key(header.owner, header.run_id)) is None:
                return RunNotFoundError(header.run_id, header.owner)
            if self._last and await self.store.get(self._last) is None:
                return self._journal_error(_older(header.run_id))
        if self.lease is not None and self.lease.is_over:
            return LeaseLostError(header.run_id)
        return RunClaimedError(header.run_id, "another process, which continued it")

    def _journal_error(self, failed: BaseException) -> JournalError:
        run = self.header
        cause = failed if isinstance(failed, StoreError) else StoreError(type(failed).__name__)
        error = JournalError(run.run_id, cause, run.owner, begun=self.version > 0, queued=run.written == "queued")
        error.__cause__ = failed
        return error

    # ---- reading

    @staticmethod
    async def read(
        store: Store, owner: str, run_id: str, *, types: Types | None = None, look_up: LookUp | None = None,
        until: int | None = None, watch: Watch | None = None, keeps_values: bool = False,
    ) -> Log:  # fmt: skip
        """Return the log of a run, read and folded.

        Args:
            store: Where it is.
            owner: Whose run it is.
            run_id: Which run.
            types: Returns declared types of values; without it, values of users' classes are plain data.
            look_up: Looks up the facts and notes to which it refers.
            until: The last entry that is applied.
            watch: Is called after each entry of the run itself is applied.
            keeps_values: Whether users' values in steps, and steps of types that were not imported, stay as they are stored: for a log
                that is continued without a look at its steps.

        Raises:
            RunNotFoundError: the run does not exist.
            DamagedStoreError: it is not what was written.
            StoreError: it could not be read.
        """
        header, version = await read_header(store, owner, run_id)
        log = Log(store, header, types=types)
        log.is_at(header, version)
        log.codec.keeps_values = keeps_values
        async with unless_removed(store, header):
            segments = await read_segments(store, header)
            if look_up is not None:
                await look_up(log.codec, [row for segment in segments for _, row in segment.rows])
            log.fold(segments, until=until, watch=watch)
        return log

    def fold(self, segments: Sequence[Segment], *, until: int | None = None, watch: Watch | None = None) -> None:
        """Apply the entries of runs, the first of which began the log; `until` and `watch` are for the last one.

        Raises:
            DamagedStoreError: they are not what was written.
        """
        for segment in segments:
            for number, data in segment.payloads.items():
                self.codec.blobs.read(number, data)
            last = segment is segments[-1]
            self.state.number = 0
            end = until if last else None
            watching = watch if last else None
            for first, row in segment.rows:
                if end is None or self.state.number < end:
                    self.fold_row(segment.header, first, row, until=end, watch=watching)
            if end is None and self.state.number < segment.header.last:
                raise _missing(segment.header, self.state.number + 1)

    def fold_row(
        self, header: RunHeader, first: int, row: bytes, *, until: int | None = None, watch: Watch | None = None
    ) -> None:
        """Apply the entries of a row.

        Raises:
            DamagedStoreError: it is not the next one, or not what was written.
        """
        state, codec = self.state, self.codec
        if first and first != state.number + 1:
            raise _missing(header, state.number + 1)
        number = first
        try:
            state.time, state.ran, entries = codec.read(row)
            if first < 2 and not (entries and isinstance(entries[0], Started if first else Carried)):
                raise DecodeError("the run does not begin with its start")
            if not first and len(entries) > 1:
                raise DecodeError("something is added to it")
            for number, entry in enumerate(entries, first):
                if until is not None and state.number >= until:
                    break
                codec.revive(entry, state)
                frame = state.frames.get(entry.at) if watch is not None else None
                visit = None if frame is None else frame.visit
                state.number = number
                entry.apply(state)
                if watch is not None and number:
                    watch(Applied(entry, number, state, frame, visit, row, number - first))
        except DecodeError as error:
            reason = str(error)
        except (ValueError, LookupError, AttributeError, TypeError, AssertionError) as error:
            reason = f"it does not follow from the entries before ({type(error).__name__})"
        else:
            self._first, self._last = state.number + 1, (*rows_key(header), first)
            return
        raise DamagedStoreError(f"entry {number} of run {header.run_id!r}", reason)


def _missing(header: RunHeader, number: int) -> DamagedStoreError:
    return DamagedStoreError(f"entry {number} of run {header.run_id!r}", "it is missing")


def _older(run_id: str) -> RolledBackError:
    return RolledBackError(
        f"the store of run {run_id!r}",
        "entries that were committed are not in it any more",
        remedy="An older copy of the store, or a replica that lagged, has taken its place: the run can continue from the entries that are there",
    )


def check_segments(segments: Sequence[Segment]) -> None:
    """Check that runs are what was written, with all payloads to which they refer.

    Raises:
        DamagedStoreError: they are not.
    """
    log = Log()
    log.codec.keeps_values = True
    log.fold(segments)
    for segment in segments:
        for first, row in segment.rows:
            for number in sorted(payloads_in(plain(row))):
                try:
                    log.codec.blobs.get(str(number))
                except DecodeError as error:
                    reason = str(error)
                else:
                    continue
                raise DamagedStoreError(f"entry {first} of run {segment.header.run_id!r}", reason)
