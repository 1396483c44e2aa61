"""How a worker finds runs that are due: it looks into the store at intervals, and a dispatcher brings word in between."""

from __future__ import annotations

import logging
import random
from collections.abc import Awaitable, Callable, Collection
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple, cast

import anyio

from graphagent.errors import ConflictError, DamagedStoreError, RunNotFoundError, StoreError
from graphagent.log._header import RETAINED, ROOM, Due, RunHeader, due_key, header_key, read_due, time_of
from graphagent.log._segments import read_header
from graphagent.store import Delete
from graphagent.store._bulk import get_many
from graphagent.store._claims import claims_of
from graphagent.work._backlog import Backlog, Found, Name

if TYPE_CHECKING:
    from graphagent.protocols import Claims, Dispatcher, Store
    from graphagent.store import Claimed

_log = logging.getLogger("graphagent.work")
_MOST, _EVER = 1000, 64_000
"""Runs that a look finds, at first, and at most, if others that cannot be executed here come before."""
_LONGEST = 5.0
"""The most seconds between two attempts after failures."""


class Facts(NamedTuple):
    """The properties of a run that do not change as long as the same is due for it."""

    queue: str
    priority: int
    due: int
    at_rest: bool
    """Whether it is to be removed, and not executed."""


class Finder:
    """Fills the backlog of a worker."""

    def __init__(
        self,
        store: Store,
        backlog: Backlog,
        dispatcher: Dispatcher,
        *,
        queues: Collection[str] | None,
        strategies: Collection[str],
        pause: float,
        is_free: Callable[[], bool],
        looked: Callable[[int], Awaitable[None]],
    ) -> None:
        self._store, self._backlog, self._dispatcher = store, backlog, dispatcher
        self._queues, self._strategies, self._pause = queues, strategies, pause
        self._is_free = is_free
        """Whether the worker could execute one more run than there are."""
        self._looked = looked
        """Is called at each look with the time."""
        self._facts: dict[Name, Facts] = {}
        self._limit = self._most_lapsed = _MOST
        self._now_please = anyio.Event()
        self._taking: anyio.CancelScope | None = None
        self._left_alone: set[str] = set()
        """The strategies of which it was said that no agent is here."""

    # ---- looking

    async def look_around(self) -> None:
        """Look into the store at intervals, for ever, and wait longer while that fails."""
        pause = self._pause
        while True:
            try:
                await self._look()
                pause = self._pause
            except Exception as error:  # noqa: BLE001  whatever a store or a schedule raises: the next look may succeed
                pause = min(max(pause, 0.05) * 2, _LONGEST)
                _log.warning(
                    "runs that are due cannot be looked for: %s",
                    told(error),
                    extra={"error_type": type(error).__name__},
                )
                self._backlog.replace(())  # it is unknown which runs could be executed
            self._now_please = anyio.Event()
            with anyio.move_on_after(pause * random.uniform(0.75, 1.25)):
                await self._now_please.wait()

    async def _look(self) -> None:
        claims = claims_of(self._store)
        now = await time_of(self._store)
        await self._looked(now)
        due = await read_due(self._store, now, self._limit)
        await self._learn(due)
        found = {
            name: Found((-facts.priority, each.at), name, each.strategy, facts.queue)
            for each in due
            if (facts := self._facts.get(name := (each.owner, each.run_id))) is not None
            and not facts.at_rest
            and self._is_ours(each.strategy, facts.queue)
        }
        if claims is not None and self._backlog.claimed:
            keys = {header_key(*name): name for name in self._backlog.claimed}
            held = await claims.holders(keys)
            for key, name in keys.items():
                if key not in held or held[key].lapsed:
                    self._backlog.hurry(name)
        self._limit = _next_limit(self._limit, len(due), bool(found))
        lapsed = [] if claims is None else await self._lapsed(claims)
        self._backlog.replace({**{each.name: each for each in lapsed}, **found}.values())

    async def _learn(self, due: list[Due]) -> None:
        """Read the queues and priorities of runs that were not seen before, and forget those of others."""
        known = [((each.owner, each.run_id), each.at) for each in due]
        self._facts = {
            name: facts for name, at in known if (facts := self._facts.get(name)) is not None and facts.due == at
        }
        new = [each for each in due if (each.owner, each.run_id) not in self._facts]
        if not new:
            return
        items = await get_many(self._store, [header_key(each.owner, each.run_id) for each in new])
        for each in new:
            item = items.get(header_key(each.owner, each.run_id))
            if item is None:
                await self._remove(each)
            elif (header := _read(item.value, each.run_id)) is not None:
                at_rest = header.written in RETAINED
                self._facts[each.owner, each.run_id] = Facts(header.queue, header.priority, each.at, at_rest)

    async def _remove(self, due: Due) -> None:
        """Remove the item by which a missing run is due."""
        run = RunHeader(run_id=due.run_id, owner=due.owner, due=due.at)
        with suppress(ConflictError):  # it is there again
            await self._store.commit(Delete(due_key(run)), Delete(header_key(due.owner, due.run_id), expected=0))

    async def _lapsed(self, claims: Claims) -> list[Found]:
        """Return the runs whose process has died and that were not submitted, and release the claims of runs that are at rest."""
        lapsed = await claims.lapsed(ROOM, self._most_lapsed)
        items = await get_many(self._store, [each.key for each in lapsed]) if lapsed else {}
        over: list[Claimed] = []
        found: list[Found] = []
        for each in lapsed:
            owner, run_id = str(each.key[1]), str(each.key[3])
            item = items.get(each.key)
            header = None if item is None else _read(item.value, run_id)
            if item is None or (header is not None and header.claim is None):
                over.append(each)
            elif header is not None and not header.due and self._is_ours(header.strategy, header.queue):
                found.append(Found((0, each.until), (owner, run_id), header.strategy, header.queue))
        if over:
            await claims.release(over)
        self._most_lapsed = _next_limit(self._most_lapsed, len(lapsed), bool(found or over))
        return found

    def _is_ours(self, strategy: str, queue: str) -> bool:
        if self._queues is not None and queue and queue not in self._queues:
            return False
        if strategy in self._strategies:
            return True
        if strategy not in self._left_alone:
            self._left_alone.add(strategy)
            _log.info(
                "runs of strategy %r wait for a worker that has its agent", strategy, extra={"strategy": strategy}
            )
        return False

    def forget(self, name: Name) -> None:
        """Read at the next look whether a run is there, which was not."""
        self._facts.pop(name, None)

    def look_now(self) -> None:
        """Look into the store without waiting for the next time."""
        self._now_please.set()

    # ---- hearing

    async def listen(self) -> None:
        """Take the hints of the dispatcher, for ever, and wait longer while that fails."""
        pause = self._pause
        while True:
            try:
                async with self._dispatcher.listening(self._queues) as take:
                    while True:
                        await self._hear(take)
                        pause = self._pause
            except Exception as error:  # noqa: BLE001  whatever a dispatcher raises: due runs are looked for, too
                _log.warning("no word of runs is heard: %s", told(error), extra={"error_type": type(error).__name__})
            pause = min(max(pause, 0.05) * 2, _LONGEST)
            await anyio.sleep(pause * random.uniform(0.75, 1.25))

    async def _hear(self, take: Callable[[], Awaitable[Name]]) -> None:
        while not self._is_free():
            await self._backlog.change()
        given: Name | None = None
        with anyio.CancelScope() as self._taking:
            given = await take()
        self._taking = None
        if given is not None:
            await self.word_of(*given)

    def hear_no_more(self) -> None:
        """Take no run before there is a place for one: another worker may have one."""
        if self._taking is not None:
            self._taking.cancel()

    async def word_of(self, owner: str, run_id: str) -> None:
        """Add a run to the backlog, if it is for this worker; without an id, look for due runs."""
        if not run_id:
            self.look_now()
            return
        try:
            header, _ = await read_header(self._store, owner, run_id)
        except RunNotFoundError:
            return
        if self._is_ours(header.strategy, header.queue):
            self._backlog.add(Found((-header.priority, header.due), (owner, run_id), header.strategy, header.queue))


def _read(data: bytes, run_id: str) -> RunHeader | None:
    """Return a header; None if it is damaged, which is logged."""
    try:
        return RunHeader.unpack(data, run_id)
    except DamagedStoreError as error:
        _log.warning("a run that is due is left alone: %s", error)
        return None


def _next_limit(limit: int, read: int, has_work: bool) -> int:
    """Return how many runs to read in the next look: runs for other workers may precede all runs for this one."""
    return min(limit * 2, _EVER) if read == limit and not has_work else _MOST


def told(error: Exception) -> str:
    """Return the text about an error for a log: the message of a foreign error may contain a value."""
    inner: BaseException = error
    while isinstance(inner, BaseExceptionGroup):
        (inner, *_) = cast("tuple[BaseException, ...]", inner.exceptions)
    return str(inner) if isinstance(inner, StoreError) else type(inner).__name__
