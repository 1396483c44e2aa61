"""With synchronous="NORMAL" a small commit is made by the thread that asks for it, unless that might block the thread."""

from __future__ import annotations

import threading

import anyio
import anyio.lowlevel
import apsw
import pytest

from graphagent.errors import ConflictError
from graphagent.store import Delete, DeleteAll, EncryptedStore, Exists, Put, SqliteStore
from graphagent.store.sqlite._writer import _LOG_PAGES

KEY = bytes(range(32))
LONG = bytes(2**16 + 1)


@pytest.fixture
def commits(monkeypatch):
    """The threads that executed COMMIT, over any connection opened from now on."""
    seen = []

    def trace(_cursor, sql, _bindings):
        if sql == "COMMIT":
            seen.append(threading.get_ident())
        return True

    monkeypatch.setattr(apsw, "connection_hooks", [lambda connection: setattr(connection, "exec_trace", trace)])
    return seen


async def settle(store, commits):
    """Wait until the thread of a store has finished the last commit that it had to make."""
    while commits != [threading.get_ident()]:
        commits.clear()
        await store.commit(Put(("r", "first"), b"v"))
    commits.clear()


@pytest.fixture
async def store(tmp_path, commits):
    """A store whose first commit, which begins the log, is made."""
    async with SqliteStore(tmp_path / "store.db", synchronous="NORMAL") as store:
        await store.commit(Put(("r", "first"), b"v"))
        assert threading.get_ident() not in commits
        await settle(store, commits)
        yield store


async def test_a_small_commit_needs_no_other_thread(store, commits):
    """It is made here, and found afterwards; one that meets a conflict changes nothing."""
    for number in range(40):
        await store.commit(Put(("r", "o", number), b"%d" % number, expected=0), Exists(("r", "first")))
    with pytest.raises(ConflictError) as caught:
        await store.commit(Put(("r", "o", 40), b"v"), Put(("r", "o", 7), b"v", expected=0))
    assert (caught.value.key, caught.value.expected, caught.value.found) == (("r", "o", 7), 0, 1)
    assert set(commits) == {threading.get_ident()}
    assert [item.value for item in [item async for item in store.scan(("r", "o"))]] == [b"%d" % n for n in range(40)]


async def test_a_commit_that_waits_for_the_disk_is_made_by_another_thread(tmp_path, commits):
    """With FULL each one does."""
    async with SqliteStore(tmp_path / "store.db") as store:
        for number in range(10):
            await store.commit(Put(("r", "o", number), b"v"))
        assert threading.get_ident() not in commits


@pytest.mark.parametrize(
    "changes",
    [
        [Put(("r", "long"), LONG)],
        [Put(("r", "many", number), b"v") for number in range(33)],
        [Delete(("r", "first"))],
        [DeleteAll(("r",))],
    ],
    ids=["long", "many", "deletes", "deletes all"],
)
async def test_what_may_take_long_is_done_by_another_thread(store, commits, changes):
    """Long values, many changes, and deletions, after which the file is cleared."""
    await store.commit(*changes)
    assert threading.get_ident() not in commits


async def test_a_long_value_is_replaced_by_another_thread(store, commits):
    """It is found out in the middle of the commit, of which nothing is left then."""
    await store.commit(Put(("r", "long"), LONG))
    await settle(store, commits)
    await store.commit(Put(("r", "other"), b"v", expected=0), Put(("r", "long"), b"short"))
    assert threading.get_ident() not in commits
    assert [item.version for item in [item async for item in store.scan(("r",), after=("r", "first"))]] == [2, 1]


async def test_along_is_called_by_another_thread(store):
    """What it does may take any time."""
    seen = []
    await store.commit(Put(("r", "o"), b"v"), along=lambda _: seen.append(threading.get_ident()))
    assert threading.get_ident() not in seen


async def test_other_tasks_go_on_while_the_file_is_locked(store):
    """A commit that has to wait for another process lets other tasks work, one of which ends the wait here."""
    other = apsw.Connection(str(store.path))
    other.execute("BEGIN IMMEDIATE")
    done = []

    async def commit():
        await store.commit(Put(("r", "o"), b"v"))
        done.append(True)

    async with anyio.create_task_group() as group:
        group.start_soon(commit)
        for _ in range(20):
            await anyio.lowlevel.checkpoint()
        assert not done
        other.execute("ROLLBACK")
    other.close()
    assert done


async def test_after_others_have_written_another_thread_looks_first(store, commits):
    """They may have sealed the file, or begun the log anew."""
    async with SqliteStore(store.path, synchronous="NORMAL") as other:
        await other.commit(Put(("r", "other"), b"v"))
        commits.clear()
        await store.commit(Put(("r", "o", 1), b"v"))
        assert threading.get_ident() not in commits
        await settle(store, commits)


async def test_the_log_does_not_grow_without_end(store, commits):
    """Its pages are moved to the file by another thread, since that waits for the disk."""
    log = store.path.with_name("store.db-wal")
    for number in range(600):
        await store.commit(Put(("r", "o", number), bytes(16_000)))
    assert log.stat().st_size < 3 * 1000 * 4096
    assert {threading.get_ident()} < set(commits)
    assert await store.verify() == 601


async def test_the_commit_that_restarts_the_log_is_made_by_another_thread(store, commits):
    """It waits for the disk. While a reader uses the log, which of the next commits that is cannot be known."""
    writer = (await store._open()).writer
    await store.commit(Put(("r", "first"), b"v"))
    await settle(store, commits)
    reader = apsw.Connection(str(store.path))
    reader.execute("BEGIN; SELECT * FROM items").fetchall()  # of the log, since none of it is in the file
    with writer._turn:
        writer._move_log()
    assert writer._sync_due
    commits.clear()
    for number in range(3):
        await store.commit(Put(("r", "o", number), b"v"))
    assert threading.get_ident() not in commits
    assert writer._log_limit > _LOG_PAGES
    reader.close()
    await settle(store, commits)
    assert writer._log_limit == _LOG_PAGES  # which it is again once the log has begun anew


async def test_a_cancelled_commit_is_not_begun(store):
    """A task that was cancelled before commits nothing."""
    with anyio.CancelScope() as scope:
        scope.cancel()
        await store.commit(Put(("r", "o"), b"v"))
    assert await store.get(("r", "o")) is None


async def test_a_sealed_store_commits_here_too(tmp_path, commits):
    """Its small commits are small ones of the inner store."""
    async with EncryptedStore(SqliteStore(tmp_path / "store.db", synchronous="NORMAL"), KEY) as store:
        await store.commit(Put(("r", "first"), b"v"))
        await settle(store, commits)
        for number in range(1, 10):
            await store.commit(Put(("r", "o", number), b"v"))
        assert set(commits) == {threading.get_ident()}
        assert await store.verify() == 10


async def test_what_is_committed_at_once_is_one_transaction(store, commits):
    """Tasks that commit in the same turn of the loop share it; each has its own conflict, and one may be cancelled."""
    errors = {}
    scope = anyio.CancelScope()

    async def one(number):
        try:
            await store.commit(Put(("r", "o", number), b"v", expected=number % 2))
        except ConflictError as error:
            errors[number] = error.key

    async def cancelled():
        with scope:
            await store.commit(Put(("r", "cancelled"), b"v"))

    async with anyio.create_task_group() as group:
        group.start_soon(cancelled)
        for number in range(20):
            group.start_soon(one, number)
        group.start_soon(cancel, scope)
    assert errors == {number: ("r", "o", number) for number in range(1, 20, 2)}
    assert [item.key[2] async for item in store.scan(("r", "o"))] == list(range(0, 20, 2))
    assert set(commits) == {threading.get_ident()}
    assert len(commits) <= 3


async def cancel(scope):
    scope.cancel()
