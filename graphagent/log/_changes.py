"""Waiting for commits to a log: woken by commits of this process, and else looking at intervals that grow."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Literal, TypeAlias
from weakref import WeakValueDictionary

import anyio

from graphagent._concurrency import Reply
from graphagent.store._claims import place_in_process

if TYPE_CHECKING:
    from graphagent.protocols import Store

_What: TypeAlias = Literal["log", "header"]
_FIRST, _LONGEST, _FACTOR = 0.01, 1.0, 1.5
"""Seconds between two looks into the store: at first, at most, and by how much they grow."""


class Changes:
    """Says when to look at a run again that others may execute: make one before the first look.

    Args:
        store: Where the run is.
        owner: Whose.
        run_id: Which.
        what: The part to look at: the entries, or the header alone, which fewer commits change.
    """

    def __init__(self, store: Store, owner: str, run_id: str, what: _What) -> None:
        key = (*place_in_process(store), owner, run_id, what)
        with _making:
            self._board = _boards.get(key) or _Board()
            _boards[key] = self._board
        self._store = store  # while it is kept, no other one has its place
        self._seen = self._board.commits
        self._pause = _FIRST

    async def next(self, *, found: bool = False) -> None:
        """Wait until this process commits to the run, or for a while, which grows for as long as looks have not `found` anything."""
        self._pause = _FIRST if found else self._pause
        reply = self._board.subscribe(self._seen)
        if reply is not None:
            try:
                with anyio.move_on_after(self._pause):
                    await reply.wait()
            finally:
                self._board.unsubscribe(reply)
            self._pause = min(self._pause * _FACTOR, _LONGEST)
        self._seen = self._board.commits


class _Board:
    """How many commits there were while somebody waited for one, and who does."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: list[Reply] = []
        self.commits = 0

    def subscribe(self, seen: int) -> Reply | None:
        """Return an event that the next commit sets; None if there was another commit since."""
        reply = Reply()
        with self._lock:
            if self.commits != seen:
                return None
            self._waiting.append(reply)
        return reply

    def unsubscribe(self, reply: Reply) -> None:
        """Send it no more."""
        with self._lock:
            if reply in self._waiting:
                self._waiting.remove(reply)

    def tell(self) -> None:
        """Wake all who wait."""
        with self._lock:
            self.commits += 1
            waiting, self._waiting = self._waiting, []
        for reply in waiting:
            reply.send()


def committed(store: Store, owner: str, run_id: str, *, header: bool) -> None:
    """Wake those in this process who wait for a commit to a run, which may have changed its `header`."""
    if not _boards:
        return
    place = place_in_process(store)
    for what in ("log", "header") if header else ("log",):
        board = _boards.get((*place, owner, run_id, what))
        if board is not None:
            board.tell()


# Whoever waits and whoever commits have a store each, of the same place, and meet here. Those who wait keep the boards.
_boards: WeakValueDictionary[tuple[int, str, str, str, _What], _Board] = WeakValueDictionary()
_making = threading.Lock()
