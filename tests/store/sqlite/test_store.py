"""What a store in a file promises beyond the contract: loops, processes, permissions, errors, and bytes that leave the disk."""

from __future__ import annotations

import gc
import itertools
import os
import stat
import subprocess
import sys
import threading
import time
import weakref

import anyio
import apsw
import pytest

from graphagent.errors import ConflictError, DamagedStoreError, StoreError
from graphagent.store import Delete, DeleteAll, EncryptedStore, Put, SqliteStore
from graphagent.store._bulk import collect
from graphagent.store._items import encode as encode_key

pytestmark = pytest.mark.every_loop

KEY = bytes(32)


def files_of(folder):
    return b"".join(file.read_bytes() for file in folder.rglob("*") if file.is_file())


async def wait_until(true, seconds=600.0):
    with anyio.fail_after(seconds):
        while not true():  # noqa: ASYNC110 - what is waited for happens in a thread without an event
            await anyio.sleep(0.02)


async def test_the_file_is_for_this_user_alone(tmp_path):
    """New folders are 0700 and every file is 0600, whatever the umask."""
    before = os.umask(0)
    try:
        store = SqliteStore(tmp_path / "new" / "deep" / "store.db")
        await store.commit(Put(("a", "b"), b"v"))
    finally:
        os.umask(before)
    assert (
        stat.S_IMODE((tmp_path / "new").stat().st_mode)
        == stat.S_IMODE((tmp_path / "new" / "deep").stat().st_mode)
        == 0o700
    )
    assert {stat.S_IMODE(file.stat().st_mode) for file in (tmp_path / "new" / "deep").iterdir()} == {0o600}
    await store.aclose()
    assert [file.name for file in (tmp_path / "new" / "deep").iterdir()] == ["store.db"]


async def test_the_settings_of_the_file(tmp_path):
    """The file is in WAL mode, says whose it is, and the writer syncs every commit and overwrites what it deletes."""
    store = SqliteStore(tmp_path / "store.db")
    await store.commit(Put(("a", "b"), b"v"))
    connection = store._opened.writer._connection
    wanted = {
        "journal_mode": "wal", "synchronous": 2, "secure_delete": 1, "cell_size_check": 1, "trusted_schema": 0,
        "application_id": 0x67616731, "user_version": 3, "mmap_size": 0,
    }  # fmt: skip
    assert {name: connection.execute(f"PRAGMA {name}").fetchall()[0][0] for name in wanted if name != "mmap_size"} == {
        name: value for name, value in wanted.items() if name != "mmap_size"
    }
    assert connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, -1) == 1
    await store.aclose()
    with pytest.raises(ValueError, match="synchronous="):
        SqliteStore(tmp_path / "x", synchronous="OFF")


@pytest.mark.parametrize("is_sealed", [False, True])
def test_it_is_bound_to_no_event_loop(tmp_path, is_sealed):
    """One store serves several event loops, one after another and at once, in threads, of both kinds."""
    store = SqliteStore(tmp_path / "store.db", synchronous="NORMAL")
    if is_sealed:
        store = EncryptedStore(store, KEY)

    async def work(name):
        for number in range(20):
            await store.commit(Put(("r", name, number), b"v"), Put(("r", "shared", 0), b"v"))
            assert (await store.get(("r", name, number))).value == b"v"

    for backend in ("asyncio", "trio", "asyncio"):
        anyio.run(work, backend, backend=backend)
    threads = [
        threading.Thread(
            target=anyio.run, args=(work, f"t{number}"), kwargs={"backend": ("asyncio", "trio")[number % 2]}
        )
        for number in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    async def check():
        assert (await store.get(("r", "shared", 0))).version == 7 * 20
        assert await store.verify() == 6 * 20 + 1
        await store.aclose()

    anyio.run(check)


def test_a_loop_that_ends_in_the_middle(tmp_path):
    """An event loop that goes away while its commit is queued harms no later one."""
    store = SqliteStore(tmp_path / "store.db")

    async def leave():
        await store.commit(Put(("r", "o", 0), b"v"))
        with anyio.move_on_after(0):
            await store.commit(Put(("r", "o", 1), b"v"))

    for backend in ("asyncio", "trio") * 5:
        anyio.run(leave, backend=backend)

    async def check():
        await store.commit(Put(("r", "o", 2), b"v"))
        await store.aclose()

    anyio.run(check)


def test_it_does_not_hold_up_the_end_of_the_process(tmp_path):
    """A process ends at once with an open store, and what was acknowledged is there."""
    program = """
import anyio, sys
from graphagent.store import *
store = SqliteStore(sys.argv[1])
anyio.run(store.commit, Put(("r", "o", 1), b"v"))
"""
    subprocess.run([sys.executable, "-W", "error", "-c", program, str(tmp_path / "s.db")], check=True, timeout=600)

    async def check():
        async with SqliteStore(tmp_path / "s.db") as store:
            assert (await store.get(("r", "o", 1))).value == b"v"

    anyio.run(check)


async def test_a_store_that_is_let_go_ends_its_thread(tmp_path):
    """A store that is no longer referred to lets its thread and its file go."""
    store = SqliteStore(tmp_path / "store.db")
    await store.commit(Put(("r", "o", 1), b"v"))
    gone = weakref.ref(store)
    threads = {thread for thread in threading.enumerate() if thread.name == "graphagent-sqlite"}
    del store
    gc.collect()
    assert gone() is None
    await wait_until(lambda: sum(thread.is_alive() for thread in threads) < len(threads))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("synchronous", ["NORMAL", "FULL"])
@pytest.mark.parametrize("pause", [0, 0.001, 0.05, 0.1])
def test_after_a_fork(tmp_path, pause, synchronous):
    """A process forked at any moment is told to make its own store, which then works; the parent's goes on."""
    store = SqliteStore(tmp_path / "store.db", synchronous=synchronous)
    sealed = EncryptedStore(SqliteStore(tmp_path / "sealed.db"), KEY)
    anyio.run(sealed.commit, Put(("r", "o", 1), b"v"))
    stop = threading.Event()

    async def keep_writing():
        number = 0
        while not stop.is_set():
            await store.commit(Put(("r", "busy", number % 50), b"v"))  # with NORMAL by the thread of the loop
            await store.commit(Put(("r", "busy", number % 50), b"v"), Delete(("r", "busy", (number + 1) % 50)))
            number += 1

    anyio.run(store.commit, Put(("r", "o", 1), b"v"))
    writing = threading.Thread(target=anyio.run, args=(keep_writing,))
    writing.start()
    time.sleep(pause)
    child = os.fork()
    if child == 0:
        status = 1
        try:
            refused = 0
            for each in (store, sealed):
                for attempt in (lambda s: s.get(("r", "o", 1)), lambda s: s.commit(Put(("r", "o", 2), b"x"))):
                    try:
                        anyio.run(attempt, each)
                    except StoreError as error:
                        refused += "forked" in str(error)
            own = SqliteStore(tmp_path / "store.db")
            for number in range(20):
                anyio.run(own.commit, Put(("r", "child", number), b"child"))
            anyio.run(own.aclose)
            status = 0 if refused == 4 else 2
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    stop.set()
    writing.join()

    async def check():
        await store.commit(Put(("r", "o", 4), b"v"))
        assert [item.key[2] async for item in store.scan(("r", "o"))] == [1, 4]
        assert len([item async for item in store.scan(("r", "child"))]) == 20
        assert await store.verify() > 20
        await store.aclose()
        await sealed.commit(Put(("r", "o", 4), b"v"))
        assert await sealed.verify() == 2
        await sealed.aclose()

    anyio.run(check)


# Errors


async def refused(store, kind=StoreError):
    errors = []
    for attempt in (store.get(("a", "b")), store.commit(Put(("a", "b"), b"v")), store.verify()):
        with pytest.raises(kind) as caught:
            await attempt
        errors.append(str(caught.value))
    return errors


async def test_a_file_where_a_folder_should_be(tmp_path):
    """The error names the file that is in the way."""
    (tmp_path / "file").write_text("x")
    for error in await refused(SqliteStore(tmp_path / "file" / "sub" / "store.db")):
        assert str(tmp_path / "file") in error
        assert "not a folder" in error


async def test_a_folder_where_the_file_should_be(tmp_path):
    """The error says that the path is a folder."""
    for error in await refused(SqliteStore(tmp_path)):
        assert "is a folder" in error


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write anywhere")
async def test_a_read_only_folder(tmp_path):
    """The error says that nothing can be made there."""
    folder = tmp_path / "locked"
    folder.mkdir(mode=0o500)
    for error in await refused(SqliteStore(folder / "store.db")):
        assert str(folder) in error


@pytest.mark.skipif(sys.platform != "linux", reason="needs /proc")
async def test_a_folder_that_may_not_be_written():
    """Where not even root may make a file, the error names the path."""
    with pytest.raises(StoreError, match=r"/proc/self/store\.db"):
        await SqliteStore("/proc/self/store.db").commit(Put(("a", "b"), b"v"))


async def test_a_file_that_is_taken_away(tmp_path):
    """A file deleted or replaced while it is open is noticed before anything is acknowledged into it."""
    store = SqliteStore(tmp_path / "store.db")
    await store.commit(Put(("a", "b"), b"v"))
    (tmp_path / "store.db").rename(tmp_path / "moved.db")
    for error in await refused(store):
        assert "moved, deleted or replaced" in error
    await refused(SqliteStore(tmp_path / "store.db"), DamagedStoreError)
    (tmp_path / "store.db-wal").unlink()
    (tmp_path / "store.db-shm").unlink()
    await SqliteStore(tmp_path / "store.db").commit(Put(("c", "d"), b"w"))
    for error in await refused(store):
        assert "moved, deleted or replaced" in error
    await store.aclose()
    assert [item.key async for item in store.scan(())] == [("c", "d")]
    await store.aclose()


@pytest.mark.parametrize("content", [b"", b"plain text, and no database" * 100, b"SQLite format 3\0", bytes(4096)])
async def test_a_file_that_is_no_database(tmp_path, content):
    """An empty or foreign file is refused as damaged, never read as empty, and left as it is."""
    (tmp_path / "store.db").write_bytes(content)
    await refused(SqliteStore(tmp_path / "store.db"), DamagedStoreError)
    await refused(EncryptedStore(SqliteStore(tmp_path / "store.db"), KEY), DamagedStoreError)
    assert (tmp_path / "store.db").read_bytes() == content


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("CREATE TABLE t (x)", "not a store of graphagent"),
        (
            f"PRAGMA application_id={0x67616731}; PRAGMA user_version=1; CREATE TABLE items (key, value)",
            "in format 1; this one reads format 3",
        ),
    ],
    ids=["another program", "another format"],
)
async def test_a_database_of_something_else(tmp_path, content, said):
    """Another program's database, and a store in another format, are refused by that name and not written to."""
    connection = apsw.Connection(str(tmp_path / "other.db"))
    connection.execute(content)
    connection.close()
    before = (tmp_path / "other.db").read_bytes()
    for error in await refused(SqliteStore(tmp_path / "other.db")):
        assert said in error
    assert (tmp_path / "other.db").read_bytes() == before


async def test_rows_that_no_store_writes(tmp_path):
    """Rows of wrong types, written past the store, are damage and not values."""
    for row in ("x'02610002620000', 1, x'00'", "x'0261000262', 1, x'00'", "x'02610002620000', 0, x''", "x'026100026200', 1, 'text'", "x'026100026200', 'one', x''"):  # fmt: skip
        path = tmp_path / f"{abs(hash(row))}.db"
        store = SqliteStore(path)
        await store.commit(Put(("c", "d"), b"v"))
        await store.aclose()
        connection = apsw.Connection(str(path))
        connection.execute(f"INSERT INTO items (key, version, value) VALUES ({row})")
        connection.close()
        with pytest.raises(DamagedStoreError):
            await store.verify()
        with pytest.raises(DamagedStoreError):
            _ = [item async for item in store.scan(())]
        await store.aclose()


@pytest.mark.parametrize(
    "damage",
    [
        "DELETE FROM apart WHERE id=1",
        "UPDATE items SET apart='one' WHERE apart=1",
        "INSERT INTO apart (value) VALUES (x'00')",
        "UPDATE items SET apart=1 WHERE apart=2",
        "PRAGMA ignore_check_constraints=ON; UPDATE items SET value=x'00' WHERE apart=1",
    ],
)
async def test_values_that_do_not_belong_to_their_keys(tmp_path, damage):
    """A long value that is missing is never read as nothing; one that is left over or shared is found by `verify`."""
    store = SqliteStore(tmp_path / "store.db")
    await store.commit(*(Put(("r", "o", number), b"v" * 1000) for number in range(3)))
    assert await store.verify() == 3
    await store.aclose()
    connection = apsw.Connection(str(tmp_path / "store.db"))
    connection.execute(damage)
    missing = not connection.execute("SELECT * FROM items JOIN apart ON id = apart WHERE id = 1").fetchall()
    connection.close()
    with pytest.raises(DamagedStoreError):
        await store.verify()
    if missing:
        with pytest.raises(DamagedStoreError):
            await store.get(("r", "o", 0))
        with pytest.raises(DamagedStoreError):
            _ = [item async for item in store.scan(("r", "o"))]
    assert (await store.get(("r", "o", 2))).value == b"v" * 1000
    await store.aclose()


# Short values and long ones


async def test_values_that_grow_and_shrink(tmp_path):
    """An item keeps its version and its last value whatever the lengths, and nothing of the others is left over."""
    store = SqliteStore(tmp_path / "store.db")
    lengths = [0, 400, 401, 5000, 4000, 9, 401, 100_000, 400]
    for version, length in enumerate(lengths, start=1):
        value = b"%d" % (version % 10) * length
        await store.commit(Put(("r", "o", 0), value, expected=version - 1), Put(("r", "o", 1), b"w" * 401))
        found = await store.get(("r", "o", 0))
        assert (found.value, found.version) == (value, version)
        assert [item.value async for item in store.scan(("r", "o"))] == [value, b"w" * 401]
        assert await store.verify() == 2
    await store.commit(Put(("r", "o", 0), b"v" * 500), Put(("r", "p", 0), b"v" * 500))
    await store.commit(Delete(("r", "o", 0)))
    assert await store.verify() == 2
    await store.commit(DeleteAll(("r", "o")))
    assert await store.verify() == 1
    assert (await store.get(("r", "p", 0))).value == b"v" * 500
    await store.aclose()


@pytest.mark.parametrize(("length", "most"), [(440, 1.22), (1000, 1.13), (10_240, 1.21)])
async def test_the_file_is_not_much_larger_than_its_values(tmp_path, length, most):
    """Numbered items, committed one after another, fill the pages of the file."""
    store = SqliteStore(tmp_path / "store.db", synchronous="NORMAL")
    count = 1000
    for number in range(count):
        await store.commit(Put(("runs", "", 1, "growth", number), b"v" * length, expected=0))
    await store.aclose()
    assert (tmp_path / "store.db").stat().st_size / (count * length) < most


@pytest.mark.parametrize("synchronous", ["NORMAL", "FULL"])
async def test_a_conflict_in_a_group_rolls_back_only_itself(tmp_path, synchronous):
    """Commits that are made together fail one by one: a conflict takes nothing else with it."""
    store = SqliteStore(tmp_path / "store.db", synchronous=synchronous)
    await store.commit(Put(("r", "o", 0), b"v"))
    outcome = {}

    async def one(number):
        try:
            await store.commit(
                Put(("r", "o", number), b"v"), Put(("r", "p", 0), b"v", expected=0 if number % 2 else None)
            )
            outcome[number] = True
        except ConflictError:
            outcome[number] = False

    await store.commit(Put(("r", "p", 0), b"v"))
    async with anyio.create_task_group() as group:
        for number in range(1, 40):
            group.start_soon(one, number)
    assert outcome == {number: number % 2 == 0 for number in range(1, 40)}
    assert [item.key[2] async for item in store.scan(("r", "o"))] == [0, *range(2, 40, 2)]
    await store.aclose()


@pytest.mark.parametrize("synchronous", ["NORMAL", "FULL"])
async def test_a_new_item_whose_key_is_in_use_leaves_nothing(tmp_path, synchronous):
    """An item that must not exist and does keeps its version and value, and the other value is nowhere, long or short."""
    store = SqliteStore(tmp_path / "store.db", synchronous=synchronous)
    kept = {("r", length): b"v" * length for length in (9, 5000)}
    await store.commit(*(Put(key, value, expected=0) for key, value in kept.items()))

    async def conflict(key, length):
        with pytest.raises(ConflictError) as caught:
            await store.commit(Put(("r", "new"), b"w" * length, expected=0), Put(key, b"w" * length, expected=0))
        assert (caught.value.expected, caught.value.found) == (0, 1)

    for key in kept:
        for length in (9, 5000):
            await conflict(key, length)  # in a transaction of its own
            async with anyio.create_task_group() as group:
                for _ in range(3):
                    group.start_soon(conflict, key, length)
    assert {item.key: item.value async for item in store.scan(("r",))} == kept
    assert await store.verify() == 2
    await store.aclose()


async def test_another_process_is_waited_for(tmp_path):
    """A commit waits while another connection holds the file, and its reads go on meanwhile."""
    store = SqliteStore(tmp_path / "store.db")
    await store.commit(Put(("r", "o", 0), b"v"))
    other = apsw.Connection(str(tmp_path / "store.db"))
    other.execute("BEGIN IMMEDIATE")
    async with anyio.create_task_group() as group:
        group.start_soon(store.commit, Put(("r", "o", 1), b"v"))
        await anyio.sleep(0.1)
        assert await store.get(("r", "o", 1)) is None
        other.execute("ROLLBACK")
    assert await store.get(("r", "o", 1)) is not None
    other.close()
    await store.aclose()


async def test_a_row_whose_key_has_changed_is_missed_by_no_read(tmp_path):
    """Whatever bit of a key changes, each read that the row belongs to raises, though SQLite looks for it in vain."""
    path = tmp_path / "store.db"
    keys = [("facts", "user", "city", number) for number in (1, 2, 3)]
    store = SqliteStore(path)
    await store.commit(*(Put(key, b"value") for key in keys))
    await store.aclose()
    sound = path.read_bytes()
    for key in keys:
        begin = sound.rindex(encode_key(key))
        for place, bit in itertools.product(range(begin, begin + len(encode_key(key))), range(8)):
            damaged = bytearray(sound)
            damaged[place] ^= 1 << bit
            path.write_bytes(damaged)
            for read in (
                lambda store, key=key: store.get(key),
                lambda store: store.get_many(keys),
                lambda store: collect(store.scan(("facts", "user"))),
                lambda store: collect(store.scan(("facts", "user"), reverse=True)),
                lambda store, key=key: collect(store.scan(key)),
                lambda store: store.verify(),
            ):
                async with SqliteStore(path) as again:
                    with pytest.raises(DamagedStoreError):
                        await read(again)


async def test_a_file_without_checksums_is_read_and_gets_them_when_it_is_written(tmp_path):
    """A file of format 2 is read as it is; the first commit adds the column, and rows that are written from then on have one."""
    path = tmp_path / "store.db"
    async with SqliteStore(path) as store:
        await store.commit(Put(("a", "b"), b"old"), Put(("a", "long"), bytes(1000)))
    connection = apsw.Connection(str(path))
    connection.execute("ALTER TABLE items DROP COLUMN sum; PRAGMA user_version=2").fetchall()
    connection.close()
    before = path.read_bytes()
    async with SqliteStore(path) as store:
        assert (await store.get(("a", "b"))).value == b"old"
        assert await store.get(("a", "c")) is None
        assert path.read_bytes() == before
        await store.commit(Put(("a", "c"), b"new"))
        assert [item.value for item in await collect(store.scan(("a",)))] == [b"old", b"new", bytes(1000)]
    async with SqliteStore(path) as store:
        assert await store.verify() == 3
    connection = apsw.Connection(str(path))
    assert [sum_ is None for (sum_,) in connection.execute("SELECT sum FROM items ORDER BY key")] == [True, False, True]
    connection.close()
