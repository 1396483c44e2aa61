"""The dispatcher within a process: a run is brought to a worker of the same store, in any of its threads and event loops, at once."""

from __future__ import annotations

import threading
from collections.abc import AsyncGenerator, Awaitable, Callable, Collection
from contextlib import asynccontextmanager
from functools import partial
from heapq import heappop, heappush
from itertools import count
from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

from graphagent._concurrency import Reply
from graphagent.store._claims import innermost, place_in_process

if TYPE_CHECKING:
    from graphagent.protocols import Store

_MOST = 10_000
"""Runs of a queue of which word is kept. Workers find the others in the store."""


class InProcess:
    """Brings word of the runs of a store to workers in this process. Without a worker here, nothing is kept."""

    def __init__(self, store: Store) -> None:
        self._store = innermost(store)  # while it is kept, no other one has its id

    @asynccontextmanager
    async def listening(
        self, queues: Collection[str] | None
    ) -> AsyncGenerator[Callable[[], Awaitable[tuple[str, str]]]]:
        """Receive the notifications within the block, by the function of the worker."""
        with _making:
            place = place_in_process(self._store)
            board = _boards.get(place) or _Board()
            _boards[place] = board
        yield partial(board.take, queues)

    async def tell(self, owner: str, run_id: str, *, queue: str, priority: int) -> None:
        """Bring word of a run, if there is a worker."""
        board = _boards.get(place_in_process(self._store))
        if board is not None:
            board.put(queue, priority, (owner, run_id))


class _Board:
    """The runs of which word has come, and the workers that wait for one."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._runs: dict[str, list[tuple[int, int, tuple[str, str]]]] = {}
        self._waiting: list[tuple[Collection[str] | None, Reply]] = []
        self._numbers = count()

    def put(self, queue: str, priority: int, run: tuple[str, str]) -> None:
        """Keep a run, and wake a worker that waits for it."""
        with self._lock:
            runs = self._runs.setdefault(queue, [])
            if len(runs) < _MOST:
                heappush(runs, (-priority, next(self._numbers), run))
            for waiting in self._waiting:
                queues, reply = waiting
                if queues is None or queue in queues:
                    self._waiting.remove(waiting)
                    if reply.send():
                        return

    async def take(self, queues: Collection[str] | None) -> tuple[str, str]:
        """Wait for a run, and return it."""
        while True:
            with self._lock:
                some = [runs for queue, runs in self._runs.items() if runs and (queues is None or queue in queues)]
                if some:
                    return heappop(min(some, key=lambda runs: runs[0]))[2]
                waiting = queues, Reply()
                self._waiting.append(waiting)
            try:
                await waiting[1].wait()
            except BaseException:
                self._leave(waiting)
                raise

    def _leave(self, waiting: tuple[Collection[str] | None, Reply]) -> None:
        """Stop waiting. If it was woken already, another one gets the run."""
        with self._lock:
            if waiting in self._waiting:
                self._waiting.remove(waiting)
                return
            others, self._waiting = self._waiting, []
        for _, reply in others:
            reply.send()


# A dispatcher is made wherever a store is used, so those of one store meet here. Workers keep the boards.
_boards: WeakValueDictionary[tuple[int, str], _Board] = WeakValueDictionary()
_making = threading.Lock()
