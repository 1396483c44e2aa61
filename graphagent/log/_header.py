"""The header of a run: its status and what else a store says of a run without its entries, with marks and times by which runs are found."""

from __future__ import annotations

import logging
import zlib
from collections.abc import Collection, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Literal, NamedTuple, get_args

import msgspec
from msgspec import structs
from msgspec.msgpack import Decoder, Encoder

from graphagent import _clock
from graphagent._options import check_word
from graphagent.errors import DamagedStoreError, RunClaimedError
from graphagent.log._claim import LEASE, Claim
from graphagent.store import Delete, Put
from graphagent.store._bulk import collect
from graphagent.store._claims import claims_of
from graphagent.store._items import checked, is_intact

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from graphagent._notebook import Mood
    from graphagent.llm import Usage
    from graphagent.log._visits import Activation
    from graphagent.protocols import Store
    from graphagent.store import Change, Key


Status = Literal[
    "new",
    "queued",
    "running",
    "sleeping",
    "waiting",
    "paused",
    "done",
    "ended",
    "failed",
    "cancelled",
    "interrupted",
    "unsupported",
    "damaged",
]
"""Where a run is: `new` before its first node, `queued` until somebody begins it, `sleeping` until a time, `waiting` for answers, `paused`
on request, `done` at END, `ended` before it by somebody who would not have it continued, `interrupted` if its process died, `damaged` if
the store has not what was written."""
OVER: Collection[Status] = ("done", "ended")
"""Where nothing is executed any more: the next run of a thread continues the transcript of such a run."""

RETAINED: Collection[Status] = (*OVER, "failed", "cancelled")
"""Where nothing happens by itself any more. Such runs are removed when their agent has kept them long enough."""

MOODS: Mapping[Status, Mood] = {
    "done": "good", "failed": "bad", "damaged": "bad", "interrupted": "bad", "cancelled": "bad", "waiting": "open", "paused": "open",
    "sleeping": "open",
}  # fmt: skip
"""The moods of statuses; the others are neutral."""


def check_statuses(status: Collection[str] | None) -> None:
    """Check an option that names the statuses of runs.

    Raises:
        TypeError: it is one text, and not a list.
        ValueError: one of them is not known.
    """
    if isinstance(status, str):
        raise TypeError(f"status= is a list, such as [{status!r}]")
    for each in status or ():
        check_word("status", each, get_args(Status))


ROOM = "runs"
LEARNING = "learning"
"""A room of its own, so that those runs are found of which something is to be learned, whoever they belong to."""
WAITING = "waiting"
"""The same for runs that wait for answers."""
MARKED: Key = (WAITING, 0)
"""The key of an item that is there once all waiting runs have a mark, also those of versions that set none."""
SUBMITTED = "submitted"
"""What runs begin with that were submitted and have not begun."""
HEADERS, ROWS, PLACES, THREADS = 0, 1, 2, 3
"""The third segments of the keys of runs, after the room and the owner. `docs/journal.md` has a table of all keys."""


class RunHeader(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """A run in a store, without its entries: its status, its title, its totals, and the process that executes it."""

    run_id: str
    owner: str = ""
    strategy: str = ""
    """The name of its strategy."""
    strategy_digest: str = ""
    """Identifies the nodes, edges and declared types of the strategy."""
    version: str = ""
    """The version of the strategy, if its agent names one; otherwise its digest stands for it."""
    started: int = 0
    """When it was started, in milliseconds UTC."""
    updated: int = 0
    """When the header was written last, in milliseconds UTC."""
    last: int = 0
    """The number of the last entry when the header was written."""
    written: Status = msgspec.field(default="running", name="status")
    """The status when the header was written."""
    reason: str = ""
    """Why it stopped, if it did."""
    title: str = ""
    """The beginning of its task, which ends with `…` where it is cut."""
    turns: int = 0
    tokens: int = 0
    cost: str = "0"
    seconds: float = 0.0
    """For how long it was executed."""
    thread: str = ""
    """The thread to which it belongs."""
    previous: str = ""
    """The run whose transcript it continues, in the same log."""
    first: str = ""
    """The run that began its log; empty if that is this one."""
    place: int = 0
    """How many runs it continues."""
    payloads: int = 0
    """The highest number of a payload in the log when the header was written."""
    parent: str = ""
    """The run of which it is a part, if it is that of a sub-agent."""
    origin: tuple[str, int] | None = None
    """The run that it was forked from, and the last entry that both have."""
    unlearned: tuple[str, ...] = ()
    """The paths of the taps, and after a slash the names of the features, that have not learned from it yet."""
    claim: Claim | None = None
    """The process that executes it. Of a header with a `fence`, it holds unless the store, which is asked when it is read, says otherwise."""
    fence: int = 0
    """The number of the claim under which it was written, in a store that says itself who has a run; 0 in the others."""
    due: int = 0
    """When something is to be done for it without anybody asking, in milliseconds UTC by the clock of the store; 0: never."""
    queue: str = ""
    """The queue of a run that was submitted: workers execute it. Empty for a run that its caller executes."""
    priority: int = 0
    """Of runs of a queue that are due, those of a higher priority are begun first."""
    deaths: int = 0
    """How many processes have died while they executed it, one after the other."""
    damaged: str = ""
    """The damage, if the header cannot be read; then only owner and id are known."""

    @property
    def running(self) -> bool:
        """Whether a process executes it; a process that died does not."""
        if self.claim is None:
            return False
        return self.claim.until > 0 if self.fence else self.claim.holds()

    def judged(self, until: int) -> RunHeader:
        """Return the header with what its store says of the claim: until when it holds; 0: not any more."""
        return self if self.claim is None else structs.replace(self, claim=replace(self.claim, until=until))

    @property
    def begun(self) -> bool:
        """Whether it has entries: one that was submitted has none before somebody begins it."""
        return self.written != "queued" or self.last > 0

    def check_free(self) -> None:
        """Check that no process executes it.

        Raises:
            RunClaimedError: one does.
        """
        if self.claim is not None and self.running:
            raise RunClaimedError(self.run_id, self.claim.holder)

    @property
    def status(self) -> Status:
        """The status: `interrupted` if the process that executed it died, `damaged` if the header cannot be read."""
        if self.damaged:
            return "damaged"
        lost = self.written == "running" and not self.running and not self.parent
        return "interrupted" if lost else self.written

    def _repr_html_(self) -> str:
        from graphagent import _notebook as shown
        from graphagent._article import counted

        when = (
            datetime.fromtimestamp(self.started / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC") if self.started else ""
        )
        about = (
            self.strategy, when, counted(self.turns, "turn"), counted(self.tokens, "token"), f"cost {self.cost}" if self.cost != "0" else "",
            f"thread {self.thread}" if self.thread else "", f"owner {self.owner}" if self.owner else "",
        )  # fmt: skip
        why = self.damaged or ("" if self.status == "done" else self.reason)
        return shown.card(
            self.title, shown.text(why) if why else None, shown.line(*about),
            state=self.status, mood=MOODS.get(self.status, ""), about=[f"run {self.run_id}"],
        )  # fmt: skip

    def __repr__(self) -> str:
        """Return its id and status, and nothing that somebody wrote."""
        return f"<header of run {self.run_id!r}: {self.status}>"

    def renewed(self, last: int, payloads: int) -> RunHeader:
        """Return the header as it is written now, with a claim that is valid for another lease."""
        now = _clock.now()
        claim = self.claim if self.claim is None or self.fence else replace(self.claim, until=now + LEASE)
        return structs.replace(self, last=last, payloads=payloads, updated=now, claim=claim)

    def pack(self) -> bytes:
        """Return the header as bytes."""
        return checked(_encoder.encode(self))

    @staticmethod
    def unpack(value: bytes, run_id: str, *, child: bool = False) -> RunHeader:
        """Return the header in bytes that are stored as that of a run, or of a sub-agent in it.

        Raises:
            DamagedStoreError: the bytes are not a header, or belong to another run.
        """
        where = f"the header of run {run_id!r}"
        if not is_intact(value):
            raise DamagedStoreError(where, "checksum mismatch")
        try:
            header = _decoder.decode(memoryview(value)[4:])
        except msgspec.MsgspecError as error:
            reason = str(error) if isinstance(error, msgspec.ValidationError) else "not MessagePack"
        else:
            if header.run_id.startswith(f"{run_id}/") if child else header.run_id == run_id:
                return header
            reason = "it is that of another run"
        raise DamagedStoreError(where, reason)


def child_header(run: RunHeader, agent: Activation, now: int) -> RunHeader:
    """Return the header of the run of a sub-agent, which is a part of a run."""
    frame = agent.frame
    task = getattr(frame.transcript.versions[0], "task", None)
    above = agent.parent.path if agent.parent is not None else ""
    return RunHeader(
        run_id=f"{run.run_id}/{agent.path}", owner=run.owner, strategy=agent.strategy.name if agent.strategy is not None else "",
        started=agent.began, updated=now, last=frame.born, written=agent.status, title=title_of(task), turns=frame.turns, tokens=frame.usage.total_tokens, cost=cost_of(frame.usage),
        parent=f"{run.run_id}/{above}" if above else run.run_id,
    )  # fmt: skip


def child_of(child: RunHeader, run: RunHeader | None) -> RunHeader:
    """Return the header of the run of a sub-agent with its status: one that did not end is where the whole run is."""
    if run is None or child.written != "running" or run.status == "running":
        return child
    return structs.replace(child, written="cancelled" if run.status == "done" else run.status)


def cost_of(usage: Usage) -> str:
    """Return a cost as a header has it. Nothing is the default itself, so that equal headers are equal bytes."""
    return str(usage.cost) if usage.cost else "0"


def title_of(task: object) -> str:
    """Return the beginning of a task that is text, with a mark where it is cut."""
    if not isinstance(task, str):
        return ""
    return storable(task if len(task) <= TITLE else f"{task[: TITLE - 1]}…")


def storable(text: str) -> str:
    """Return text without halves of surrogate pairs, which no store takes."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


TITLE = 80
"""The number of characters of a text task that are the title of a run."""
_encoder = Encoder()
_decoder = Decoder(RunHeader)
_mark_decoder = Decoder(tuple[str, int])
_MARK = 3
"""The number of segments of the key of a mark."""


def header_key(owner: str, run_id: str) -> Key:
    """Return the key of a run's header, and the prefix of those of its sub-agents, which are followed by their numbers."""
    return (ROOM, owner, HEADERS, run_id)


def rows_key(header: RunHeader) -> Key:
    """Return the prefix of the keys of a run's rows and payloads; without its last segment, that of all runs in the log."""
    return (ROOM, header.owner, ROWS, header.first or header.run_id, header.run_id)


def place_of(header: RunHeader) -> tuple[Key, bytes]:
    """Return the key and the value of an item that names the log of a run which did not begin it.

    Entries without their header are found by it: they are damage, and no run that may be begun.
    """
    return (ROOM, header.owner, PLACES, header.run_id), checked(header.first.encode())


def thread_key(owner: str, thread: str) -> Key:
    """Return the key of the item that names the last run of a thread. One below it is there as long as the thread is."""
    return (ROOM, owner, THREADS, thread)


def mark_key(room: str, owner: str, run_id: str) -> Key:
    """Return the key of a mark, by which a run is found: one of which something is to be learned, or that waits."""
    return (room, owner, run_id)


def mark_of(header: RunHeader) -> bytes:
    """Return the bytes of a mark: the strategy, whose agents have the run, and the time, since what was said last holds."""
    return checked(_encoder.encode((header.strategy, _clock.now())))


async def read_marks(store: Store, room: str, owner: str | None = None) -> list[tuple[int, str, str, str]]:
    """Return the marks in a room, of one owner or of all: the time, the owner, the run and its strategy, the earliest first.

    Raises:
        DamagedStoreError: one is not what was written.
        StoreError: they cannot be read.
    """
    found: list[tuple[int, str, str, str]] = []
    for key, value, _ in await collect(store.scan((room,) if owner is None else (room, owner))):
        if len(key) == _MARK:
            run_id = str(key[2])
            where = f"the item that run {run_id!r} is {room}"
            if not is_intact(value):
                raise DamagedStoreError(where, "checksum mismatch")
            try:
                strategy, time = _mark_decoder.decode(memoryview(value)[4:])
            except msgspec.DecodeError:
                raise DamagedStoreError(where, "it has the content of another item") from None
            found.append((time, str(key[1]), run_id, strategy))
    return sorted(found)


_log = logging.getLogger("graphagent.log")
DUE = "due"
"""The room with an item for each run for which something is to be done at a time, read in the order of the times, over all owners.

The item is put, moved and removed in the commit of the header that says the time, by whatever writes headers."""
_BUCKETS = 16
"""Parts of the room. In a sealed store each is a domain of its own, or all processes would write the same row."""

_due_decoder = Decoder(str)


class Due(NamedTuple):
    """A run for which something is to be done."""

    at: int
    """When, in milliseconds UTC by the clock of the store."""
    owner: str
    run_id: str
    strategy: str
    """The name of its strategy, whose agents have the run."""


def due_key(header: RunHeader) -> Key:
    """Return the key of the item by which a run is found whose header has a time at which something is due."""
    bucket = zlib.crc32(header.run_id.encode("utf-8", "surrogatepass")) % _BUCKETS
    return (DUE, bucket, header.due, header.owner, header.run_id)


def due_changes(header: RunHeader, before: int) -> list[Change]:
    """Return what becomes of the item when a header is written in the place of one that had the time `before`; 0 is none."""
    if header.due == before:
        return []
    changes: list[Change] = []
    if before:
        changes.append(Delete(due_key(structs.replace(header, due=before))))
    if header.due:
        changes.append(Put(due_key(header), checked(_encoder.encode(header.strategy))))
    return changes


async def time_of(store: Store) -> int:
    """Return the current time for judging deadlines, in milliseconds UTC: by the clock of the store, or else of this process.

    Raises:
        StoreError: the store cannot be read.
    """
    claims = claims_of(store)
    return _clock.now() if claims is None else await claims.now()


async def read_due(store: Store, until: int, limit: int) -> list[Due]:
    """Return the runs, of all owners, for which something is due up to a time, the earliest first.

    A damaged item is logged and left out, since the runs of all others do not depend on it.

    Args:
        store: Where they are.
        until: In milliseconds UTC, by the clock of the store, where it has one.
        limit: At most so many.

    Raises:
        StoreError: the store cannot be read.
    """
    return sorted([each async for each in all_due(store, until, limit)])[:limit]


async def all_due(store: Store, until: int, limit: int | None = None) -> AsyncGenerator[Due]:
    """Yield the runs, of all owners, for which something is due up to a time, as `read_due` finds them, in no order.

    With a `limit`, there are all of the first so many, and perhaps more.

    Raises:
        StoreError: the store cannot be read.
    """
    for bucket in range(_BUCKETS):
        async for item in store.scan((DUE, bucket), limit=limit):
            _, _, at, owner, run_id = item.key
            if int(at) > until:
                break
            if not is_intact(item.value):
                _log.warning(
                    "run %r is left alone: the item that something is due for it is damaged",
                    run_id,
                    extra={"run_id": run_id},
                )
                continue
            yield Due(int(at), str(owner), str(run_id), _due_decoder.decode(memoryview(item.value)[4:]))


async def due_of(store: Store, owner: str) -> list[Key]:
    """Return the keys of the items of an owner's runs. Those of all owners are read for that.

    Raises:
        StoreError: the store cannot be read.
    """
    return [item.key for item in await collect(store.scan((DUE,))) if item.key[3] == owner]
