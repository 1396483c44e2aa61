"""Tasks that wait for other threads and event loops, or for one another, tasks outside of all task groups, and a worker thread."""

from __future__ import annotations

import os
import queue
import threading
import weakref
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from contextvars import Context, copy_context
from typing import Any, TypeVar, cast

import anyio
from anyio.lowlevel import RunVar, checkpoint, checkpoint_if_cancelled, current_token

T = TypeVar("T")

_TURN = 16


async def turn(number: int) -> None:
    """Let other tasks run at every 16th number, for loops over many items with little work for each."""
    if number % _TURN == 0:
        await checkpoint()


class Reply:
    """An answer that a task waits for. It is created in that task and sent once, from any thread."""

    def __init__(self) -> None:
        native = cast(Any, current_token().native_token)
        # A trio token or an asyncio loop: each has one method that any thread may call and that does not wait.
        soon = native.run_sync_soon if hasattr(native, "run_sync_soon") else native.call_soon_threadsafe
        self._soon: Callable[[Callable[[], object]], object] = soon
        self._event = anyio.Event()
        self._error: BaseException | None = None

    def send(self, error: BaseException | None = None) -> bool:
        """Wake the waiting task, which raises the error, if any. Return False if its event loop is closed."""
        self._error = error
        with suppress(RuntimeError):  # both loops raise it, or a subclass, once they are closed
            self._soon(self._event.set)
            return True
        return False

    async def wait(self) -> None:
        """Wait for the answer."""
        await self._event.wait()
        if self._error is not None:
            raise self._error

    async def outwait(self) -> None:
        """Wait for the answer even if cancelled, and raise the cancellation afterwards."""
        cancelled: BaseException | None = None
        with anyio.CancelScope(shield=True):
            while not self._event.is_set():
                try:
                    await self._event.wait()
                except anyio.get_cancelled_exc_class() as error:  # asyncio's own Task.cancel ignores shields
                    cancelled = error
        if cancelled is not None:
            raise cancelled
        if self._error is not None:
            raise self._error


async def unbroken(function: Callable[[], Awaitable[None]]) -> None:
    """Call a function and await it to its end even if cancelled, and raise the cancellation afterwards."""
    loop = cast(Any, current_token().native_token)
    if not hasattr(loop, "create_task"):
        with anyio.CancelScope(shield=True):  # on trio, no cancellation gets past a shield
            await function()
        return
    reply = Reply()

    async def call() -> None:
        try:
            await function()
        except BaseException as error:  # noqa: BLE001  raised in the waiting task
            reply.send(error)
        else:
            reply.send()

    # Task.cancel interrupts whatever its task awaits, so the function has a task of its own, kept here because the loop does not.
    task = loop.create_task(call())
    await reply.outwait()
    del task


class Slots:
    """Limits how many tasks of an event loop are in a block at once; the others wait, in the order of their arrival."""

    def __init__(self, name: str, number: int) -> None:
        self._number = number
        self._here: RunVar[anyio.Semaphore | None] = RunVar(name, None)

    @asynccontextmanager
    async def one(self) -> AsyncGenerator[None]:
        """Wait for a slot, and occupy it within the block."""
        slots = self._here.get()
        if slots is None:
            slots = anyio.Semaphore(self._number)
            self._here.set(slots)
        async with slots:
            yield


class OwnTask:
    """Calls a function in a task of its own, outside all task groups of the program.

    The task ends with the function, with the event loop, or when it is cancelled. The function must raise nothing but
    cancellation: nobody awaits the task, and on trio an exception of a system task ends the program.

    Args:
        function: The function.
        context: The context variables of the task; by default a copy of those of the caller.
    """

    def __init__(self, function: Callable[[], Awaitable[object]], context: Context | None = None) -> None:
        self._function = function
        self._scope = anyio.CancelScope()
        self._ended = anyio.Event()
        self._token = current_token()
        loop = cast(Any, self._token.native_token)
        if hasattr(loop, "create_task"):
            self._soon: Callable[[Callable[[], object]], object] = loop.call_soon_threadsafe
            self._task = loop.create_task(
                self._run(), context=context
            )  # referenced here, because the loop keeps only a weak reference
            self._task.add_done_callback(self._done)  # it may be cancelled before it begins
        else:
            import trio

            self._soon = loop.run_sync_soon
            self._task = trio.lowlevel.spawn_system_task(
                self._run, context=copy_context() if context is None else context
            )

    @property
    def is_running(self) -> bool:
        """Whether the task is running, and in the event loop of the caller."""
        return not self._ended.is_set() and self._token == current_token()

    def cancel(self) -> None:
        """Request the cancellation of the task, from any thread, also during garbage collection."""
        if not self._ended.is_set():
            with suppress(RuntimeError):  # both loops raise it, or a subclass, once they are closed
                # From here on the loop references the task: it cancels repeatedly until the function has ended.
                self._soon(self._scope.cancel)

    async def stop(self) -> None:
        """Cancel the task, and wait until it has ended, even if the caller is cancelled."""
        if self.is_running:
            self._scope.cancel()
            await unbroken(self._ended.wait)

    async def wait(self) -> None:
        """Wait until the task has ended."""
        if self.is_running:
            await self._ended.wait()

    async def _run(self) -> None:
        try:
            with self._scope:
                await self._function()
        finally:
            self._ended.set()

    def _done(self, _: object) -> None:
        self._ended.set()


class Gate:
    """Lets one task do some work while other tasks that need the same work wait for it instead of repeating it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: list[Reply] | None = None
        self._pid = os.getpid()

    async def entered(self) -> bool:
        """Return True if the caller has to do the work and then call `leave`. Otherwise wait until another task has done it."""
        if self._pid != os.getpid():  # a forked process has none of its parent's tasks
            self._lock, self._waiting, self._pid = threading.Lock(), None, os.getpid()
        with self._lock:
            if self._waiting is None:
                self._waiting = []
                return True
            reply = Reply()
            self._waiting.append(reply)
        await reply.wait()
        return False

    def leave(self) -> None:
        """Wake the tasks that wait."""
        with self._lock:
            waiting, self._waiting = self._waiting, None
        for reply in waiting or ():
            reply.send()


class Worker:
    """A thread that executes blocking functions one after the other, for tasks of any event loop.

    A call costs half as much as one in a thread of a pool, since no limiter is involved. The thread starts at the first use and
    ends with the object; the end of the process does not wait for it.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._work: queue.SimpleQueue[Callable[[], None] | None] | None = None
        self._pid = 0

    async def run(self, function: Callable[[], T]) -> T:
        """Call a function in the thread and return its result. A submitted function is waited for even if the caller is cancelled."""
        await checkpoint_if_cancelled()
        reply, context = Reply(), copy_context()
        given: list[T] = []

        def call() -> None:
            try:
                given.append(context.run(function))
            except BaseException as error:  # noqa: BLE001  raised in the waiting task
                reply.send(error)
            else:
                reply.send()

        self._queue().put(call)
        await reply.outwait()
        return given[0]

    def _queue(self) -> queue.SimpleQueue[Callable[[], None] | None]:
        with self._lock:
            if self._work is None or self._pid != os.getpid():  # a forked process has none of its parent's threads
                work: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
                threading.Thread(target=_serve, args=(work,), name="graphagent-worker", daemon=True).start()
                weakref.finalize(self, work.put, None).atexit = False
                self._work, self._pid = work, os.getpid()  # only here, because starting the thread may fail
            return self._work


def _serve(work: queue.SimpleQueue[Callable[[], None] | None]) -> None:
    while (call := work.get()) is not None:
        call()
        del call
