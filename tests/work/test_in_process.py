"""The dispatcher within a process: who gets word of a run."""

from __future__ import annotations

import threading

import anyio
import pytest

from graphagent.store import EncryptedStore, MemoryStore, SqliteStore, new_key
from graphagent.work._in_process import InProcess


async def test_a_run_is_brought_to_one_worker_by_priority(tmp_path):
    """Also if it is told by another object of the same store, in another thread; two files are two stores."""
    store = SqliteStore(tmp_path / "runs.db")
    sealed = EncryptedStore(SqliteStore(tmp_path / "runs.db"), new_key())
    dispatcher, other = InProcess(store), InProcess(SqliteStore(tmp_path / "other.db"))

    def tell():
        async def main():
            await InProcess(sealed).tell("ada", "third", queue="mail", priority=1)

        anyio.run(main)

    async with dispatcher.listening(["mail"]) as take, other.listening(None), dispatcher.listening(None) as take_any:
        await dispatcher.tell("ada", "second", queue="mail", priority=3)
        await dispatcher.tell("ada", "first", queue="mail", priority=9)
        await dispatcher.tell("ada", "chat", queue="chat", priority=99)
        assert [await take() for _ in range(2)] == [("ada", "first"), ("ada", "second")]
        thread = threading.Thread(target=tell)
        thread.start()
        assert await take() == ("ada", "third")
        thread.join()
        assert await take_any() == ("ada", "chat")


@pytest.mark.every_loop
async def test_a_worker_that_finds_work_elsewhere_loses_no_run():
    """Cancelled when it was woken already, it leaves the run to another one that waits."""
    store, taken = MemoryStore(), []
    dispatcher = InProcess(store)

    async def take(scope):
        with scope:
            taken.append(await take_one())
            group.cancel_scope.cancel()

    scopes = [anyio.CancelScope() for _ in range(2)]
    async with dispatcher.listening(None) as take_one, anyio.create_task_group() as group:
        for scope in scopes:
            group.start_soon(take, scope)
        await anyio.wait_all_tasks_blocked()
        await dispatcher.tell("", "a-1", queue="mail", priority=0)
        scopes[0].cancel()  # whichever was woken
    assert taken == [("", "a-1")]


async def test_without_a_worker_nothing_is_kept():
    """Workers that come later find what is due in the store."""
    store = MemoryStore()
    await InProcess(store).tell("", "a-1", queue="mail", priority=0)
    dispatcher = InProcess(store)
    async with dispatcher.listening(None) as take:
        with anyio.move_on_after(0):
            await take()
            pytest.fail("there was a run")
