"""Waiting for threads and for other tasks, cancelled or not."""

from __future__ import annotations

import asyncio
import threading
import time

import anyio
import anyio.lowlevel
import pytest

from graphagent._concurrency import Worker, unbroken

pytestmark = pytest.mark.every_loop


async def test_a_worker_gives_what_a_function_gives_and_raises_what_it_raises():
    """A value comes back, an error comes up, and the thread goes on."""
    worker = Worker()
    assert await worker.run(lambda: 7) == 7
    with pytest.raises(ZeroDivisionError):
        await worker.run(lambda: 1 // 0)
    assert await worker.run(threading.current_thread) is not threading.current_thread()


async def test_a_thread_that_cannot_be_had_is_asked_for_again(monkeypatch):
    """Where the system gives no thread, the call fails, and the next one does not wait for ever."""

    def start(thread):
        raise RuntimeError("can't start new thread")

    worker = Worker()
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", start)
        with pytest.raises(RuntimeError, match="can't start"):
            await worker.run(lambda: 1)
    with anyio.fail_after(600):
        assert await worker.run(lambda: 2) == 2


async def test_a_cancelled_task_waits_for_what_was_begun():
    """A cancelled scope is left when the function is done, not before."""
    ended: list[str] = []

    async def work() -> None:
        await anyio.sleep(0.05)
        ended.append("task")

    with anyio.move_on_after(0.01) as scope:
        await Worker().run(lambda: (time.sleep(0.05), ended.append("thread")))
        await anyio.sleep(5)
    assert (scope.cancelled_caught, ended) == (True, ["thread"])
    with anyio.move_on_after(0.01) as scope:
        await unbroken(work)
        await anyio.sleep(5)
    assert (scope.cancelled_caught, ended) == (True, ["thread", "task"])


async def test_what_breaks_unbroken_work_is_raised():
    """An error of the function is raised where it is awaited."""

    async def fails() -> None:
        await anyio.lowlevel.checkpoint()
        raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        await unbroken(fails)


@pytest.mark.parametrize("way", ["cancel", "cancel twice", "wait_for", "timeout"])
@pytest.mark.parametrize("what", ["thread", "task"])
def test_the_cancellations_of_asyncio_wait_too(way, what):
    """Those that know no shield are raised when the work is done: not before, and not never."""
    ended: list[str] = []

    async def in_task() -> None:
        await asyncio.sleep(0.1)
        ended.append(what)

    async def work() -> None:
        if what == "task":
            await unbroken(in_task)
        else:
            await Worker().run(lambda: (time.sleep(0.1), ended.append(what)))

    async def within() -> None:
        async with asyncio.timeout(0.02):
            await work()

    async def cancel() -> None:
        if way == "timeout":
            with pytest.raises(TimeoutError):
                await within()
        elif way == "wait_for":
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(work(), 0.02)
        else:
            task = asyncio.create_task(work())
            for _ in way.split():
                await asyncio.sleep(0.02)
                task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert task.cancelled()
        assert ended == [what]

    asyncio.run(cancel())
