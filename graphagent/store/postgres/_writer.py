"""The thread that makes small commits: all that wait go into one transaction, with one wait for the server's disk."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from graphagent.store.postgres._commits import TOGETHER_BYTES, Job, make
from graphagent.store.postgres._link import Link

if TYPE_CHECKING:
    from graphagent.store.postgres._database import Database

_TOGETHER = 512
"""The most commits in one transaction."""


@dataclass
class _Stop:
    ended: Callable[[], object] | None


class Writer:
    """The thread and its connection. It outlives event loops, and the end of the process does not wait for it."""

    def __init__(self, database: Database) -> None:
        self._link = Link(database)
        self._jobs: queue.SimpleQueue[Job | _Stop] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._running = self._closed = False

    def submit(self, job: Job) -> bool:
        """Queue a commit; return False if the writer is closed."""
        with self._lock:
            if self._closed:
                return False
            if not self._running:
                threading.Thread(target=self._serve, name="graphagent-postgres-writer", daemon=True).start()
                self._running = True
            self._jobs.put(job)
            return True

    def close(self, ended: Callable[[], object] | None = None) -> bool:
        """Let the thread end after the queued commits, and then call `ended`; without a thread, return False and do not call it."""
        with self._lock:
            if self._closed or not self._running:
                self._closed = True
                return False
            self._closed = True
            self._jobs.put(_Stop(ended))
            return True

    def _serve(self) -> None:
        following: Job | _Stop = self._jobs.get()
        while not isinstance(following, _Stop):
            batch, size = [following], following.size
            try:
                following = self._jobs.get_nowait()
                while (
                    not isinstance(following, _Stop)
                    and len(batch) < _TOGETHER
                    and size + following.size <= TOGETHER_BYTES
                ):
                    batch.append(following)
                    size += following.size
                    following = self._jobs.get_nowait()
            except queue.Empty:
                make(self._link, batch)
                del batch
                following = self._jobs.get()
            else:
                make(self._link, batch)
        self._link.close()
        if following.ended is not None:
            following.ended()
