"""Threads with a connection each, which execute requests of tasks of any event loop: as many as are needed, up to a limit."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from contextvars import copy_context
from typing import TYPE_CHECKING, TypeVar

from graphagent._concurrency import Reply
from graphagent.store.postgres._link import Link

if TYPE_CHECKING:
    from graphagent.store.postgres._database import Database

T = TypeVar("T")

_IDLE_SECONDS = 60.0
"""The time after which an idle thread ends, with its connection."""

Task = Callable[[Link], None]


class Closed(Exception):
    """The threads have ended, or will; nothing was begun."""


class Crew:
    """The threads. They outlive event loops, and the end of the process does not wait for them."""

    def __init__(self, database: Database, most: int) -> None:
        self._database = database
        self._most = most
        self._tasks: queue.SimpleQueue[Task | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._threads = self._idle = self._waiting = 0
        self._closed = False
        self._ended: Callable[[], object] | None = None

    async def run(self, function: Callable[[Link], T]) -> T:
        """Call a function in one of the threads, and return its result.

        If the caller is cancelled, a function that has begun goes on, and its result is dropped.

        Raises:
            Closed: the threads have ended; the function was not called.
        """
        reply, context, given = Reply(), copy_context(), list[T]()
        abandoned = False

        def task(link: Link) -> None:
            if abandoned:
                return
            try:
                given.append(context.run(function, link))
            except BaseException as error:  # noqa: BLE001  raised where it is waited for
                reply.send(error)
            else:
                reply.send()

        self.submit(task)
        try:
            await reply.wait()
        finally:
            abandoned = True
        return given[0]

    def submit(self, task: Task) -> None:
        """Have a task executed, which raises nothing.

        Raises:
            Closed: the threads have ended.
        """
        with self._lock:
            if self._closed:
                raise Closed
            self._tasks.put(task)
            self._waiting += 1
            if self._waiting > self._idle and self._threads < self._most:
                thread = threading.Thread(target=self._serve, name="graphagent-postgres", daemon=True)
                thread.start()
                self._threads += 1
                self._idle += 1

    def _serve(self) -> None:
        link = Link(self._database)
        while True:
            try:
                task = self._tasks.get(timeout=_IDLE_SECONDS)
            except queue.Empty:
                with self._lock:
                    if not self._tasks.empty():
                        continue
                    self._idle, self._threads = self._idle - 1, self._threads - 1
                link.close()
                return
            if task is None:
                break
            with self._lock:
                self._idle, self._waiting = self._idle - 1, self._waiting - 1
            task(link)
            del task
            with self._lock:
                self._idle += 1
        link.close()
        with self._lock:
            self._threads -= 1
            ended = self._ended if self._closed and self._threads == 0 else None
        if ended is not None:
            ended()

    def close(self, ended: Callable[[], object] | None = None) -> bool:
        """Let the threads end after the submitted work, and then call `ended`; without threads, return False and do not call it."""
        with self._lock:
            if self._closed:
                return False
            self._closed, self._ended = True, ended
            for _ in range(self._threads):
                self._tasks.put(None)
            return self._threads > 0
