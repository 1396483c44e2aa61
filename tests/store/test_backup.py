"""Backups and restoring: consistent, entire or nothing, and never over what is in use."""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys

import anyio
import apsw
import pytest

from graphagent.errors import (
    DamagedStoreError,
    SealedStoreError,
    StoreError,
    StoreExistsError,
    StoreInUseError,
    StoreNotFoundError,
)
from graphagent.memory import Concept, FileMemoryProvider, Scope, SingleFact, Subject
from graphagent.store import DeleteAll, EncryptedStore, Put, SqliteStore, backup, restore
from tests.thorough import some

KEY = bytes(32)
A, B = ("room", "a"), ("room", "b")
CITY, USER, APP = Concept("city"), Subject("user"), Scope.product("my-app")

WRITER = """
import sys, anyio
from graphagent.store import Put, SqliteStore
async def main():
    store = SqliteStore(sys.argv[1], synchronous="NORMAL")
    for number in range(10**9):
        value = str(number).encode() * 50
        await store.commit(Put(("room", "a"), value), Put(("room", "b"), value), Put(("log", number), value))
        if number % 100 == 0:
            print(number, flush=True)
anyio.run(main)
"""
COPIER = """
import sys, anyio
from graphagent.store import backup, restore
from graphagent.store.sqlite import _copying, _soundness
call, source, target = sys.argv[1:4]
print("begin", flush=True)
try:
    anyio.run(lambda: {"backup": backup, "restore": restore}[call](source, target, replace=True))
except OSError as error:
    print(type(error).__name__, error)
else:
    print("done")
"""


async def write(path, value, *, key=None, count=1):
    plain = SqliteStore(path)
    async with plain if key is None else EncryptedStore(plain, key) as store:
        await store.commit(*(Put((*A, number), value) for number in range(count)))


async def read(path, key=None):
    plain = SqliteStore(path)
    async with plain if key is None else EncryptedStore(plain, key) as store:
        await store.verify()
        return [item.value async for item in store.scan(A)]


def start(code, *arguments):
    return subprocess.Popen([sys.executable, "-c", code, *map(str, arguments)], stdout=subprocess.PIPE)


async def test_a_backup_is_of_one_moment_while_another_process_writes(tmp_path):
    """What is committed together is in it together, and the writer is not kept from committing."""
    path = tmp_path / "s.db"
    writer = start(WRITER, path)
    try:
        for number in range(4):
            before = int(await anyio.to_thread.run_sync(writer.stdout.readline))
            report = await backup(path, tmp_path / f"{number}.db")
            async with SqliteStore(tmp_path / f"{number}.db") as copy:
                a, b = await copy.get(A), await copy.get(B)
                assert a.value == b.value
                [last] = [item.key[1] async for item in copy.scan(("log",), reverse=True, limit=1)]
                assert a.value == str(last).encode() * 50
                assert last >= before
            assert (report.stores, report.written) == (1, 1)
    finally:
        writer.kill()
        writer.wait()
        writer.stdout.close()
    assert sorted(each.name for each in tmp_path.iterdir() if "s.db" not in each.name) == [f"{n}.db" for n in range(4)]


async def test_a_sealed_store_is_copied_without_its_key(tmp_path):
    """The copy is private, is sealed, and opens with the key."""
    await write(tmp_path / "s.db", b"secret-word", key=KEY)
    await backup(tmp_path / "s.db", tmp_path / "away" / "copy.db")
    copy = tmp_path / "away" / "copy.db"
    assert copy.stat().st_mode & 0o777 == 0o600
    assert copy.parent.stat().st_mode & 0o777 == 0o700
    assert b"secret-word" not in copy.read_bytes()
    with pytest.raises(SealedStoreError):
        await read(copy)
    assert await read(copy, KEY) == [b"secret-word"]
    await restore(copy, tmp_path / "back.db")
    assert await read(tmp_path / "back.db", KEY) == [b"secret-word"]


async def test_a_target_that_will_not_do_is_refused(tmp_path):
    """One that exists, is the store itself, lies in it, or is not a store; nothing is written, and nothing is left beside."""
    store, other, text = tmp_path / "s.db", tmp_path / "o.db", tmp_path / "text.db"
    await write(store, b"new")
    await write(other, b"old")
    text.write_text("a text")
    (tmp_path / "link.db").symlink_to(store)
    os.link(store, tmp_path / "hard.db")
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    for call in (backup, restore):
        with pytest.raises(StoreExistsError, match="--replace"):
            await call(store, other)
        with pytest.raises(StoreExistsError, match="not a store"):
            await call(store, text, replace=True)
        for itself in (store, tmp_path / "link.db", tmp_path / "hard.db", tmp_path / "x" / ".." / "s.db"):
            with pytest.raises(StoreError, match="itself"):
                await call(store, itself, replace=True)
        with pytest.raises(StoreError, match="inside"):
            await call(tmp_path, tmp_path / "copy")
        with pytest.raises(StoreNotFoundError):
            await call(tmp_path / "typo.db", tmp_path / "copy.db")
        with pytest.raises(StoreError, match=r"pg_(dump|restore) "):
            await call("postgresql://ada:secret-word@host/db", tmp_path / "copy.db")
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


async def test_a_damaged_store_has_no_new_backup_and_keeps_its_old_one(tmp_path):
    """The damage is noticed by reading what was written, and named as that of the store."""
    await write(tmp_path / "s.db", b"value" * 100, count=50)
    await backup(tmp_path / "s.db", tmp_path / "copy.db")
    good, content = (tmp_path / "copy.db").read_bytes(), bytearray((tmp_path / "s.db").read_bytes())
    content[4096:4200] = bytes(104)
    (tmp_path / "s.db").write_bytes(content)
    with pytest.raises(DamagedStoreError, match=r"s\.db is damaged"):
        await backup(tmp_path / "s.db", tmp_path / "copy.db", replace=True)
    assert (tmp_path / "copy.db").read_bytes() == good
    await restore(tmp_path / "copy.db", tmp_path / "s.db", replace=True)
    assert await read(tmp_path / "s.db") == [b"value" * 100] * 50


async def test_a_store_in_use_is_not_replaced(tmp_path):
    """Whether it is open here or in another process; afterwards it is, and nothing of its log is left."""
    path, copy = tmp_path / "s.db", tmp_path / "copy.db"
    await write(path, b"old")
    await backup(path, copy)
    store = SqliteStore(path)
    await store.commit(Put((*A, 0), b"new"))
    with pytest.raises(StoreInUseError):
        await restore(copy, path, replace=True)
    other = [sys.executable, "-c", COPIER, "restore", str(copy), str(path)]
    done = await anyio.to_thread.run_sync(lambda: subprocess.run(other, capture_output=True, text=True, check=True))
    assert "StoreInUseError" in done.stdout
    assert (await store.get((*A, 0))).value == b"new"
    await store.aclose()
    await restore(copy, path, replace=True)
    assert await read(path) == [b"old"]


@pytest.mark.parametrize("left", ["a log", "a damaged store with a log"])
async def test_a_log_that_was_left_is_not_applied_to_what_is_restored(tmp_path, left):
    """After `kill -9` the commits of the old store are in its log alone, which goes with it."""
    path, copy, crashed = tmp_path / "s.db", tmp_path / "copy.db", tmp_path / "crashed.db"
    await write(path, b"old", count=20)
    await backup(path, copy)
    store = SqliteStore(path)
    await store.commit(*(Put((*A, number), b"new" * 500) for number in range(20)))
    for side in ("", "-wal"):
        shutil.copy(f"{path}{side}", f"{crashed}{side}")
    await store.aclose()
    if "damaged" in left:
        content = bytearray(crashed.read_bytes())
        content[:200] = bytes(200)
        crashed.write_bytes(content)
        crashed.write_bytes(b"SQLite format 3\0" + bytes(content[16:]))
    await restore(copy, crashed, replace=True)
    assert await read(crashed) == [b"old"] * 20
    assert sorted(each.name for each in tmp_path.iterdir()) == ["copy.db", "crashed.db", "s.db"]


@pytest.mark.skipif(shutil.which("strace") is None, reason="needs strace")
@pytest.mark.parametrize("call", ["backup", "restore"])
def test_a_copy_that_is_killed_leaves_the_old_or_the_new_one(tmp_path, call):
    """At any system call that writes or names something; the next one removes what is left, and is whole."""
    source, target = tmp_path / "a" / "s.db", tmp_path / "b" / "t.db"
    anyio.run(write, source, b"new" * 400)
    anyio.run(write, tmp_path / "old.db", b"old" * 400)
    calls = "pwrite64,write,fsync,fdatasync,link,linkat,rename,renameat,unlink,unlinkat,ftruncate"
    command = ["strace", "-f", "-qq", "-o", str(tmp_path / "trace"), "-e", f"trace={calls}"]
    copy = [sys.executable, "-c", COPIER, call, str(source), str(target)]

    def attempt(*inject):
        shutil.rmtree(target.parent, ignore_errors=True)
        target.parent.mkdir()
        shutil.copy(tmp_path / "old.db", target)
        return subprocess.run([*command, *inject, *copy], capture_output=True, text=True, check=False)

    assert "done" in attempt().stdout
    steps = [line.split("(")[0].split()[-1] for line in (tmp_path / "trace").read_text().splitlines() if "(" in line]
    begun = next(number for number, line in enumerate(steps) if line == "write") + 1
    moments = range(begun, len(steps) + 1)
    assert len(moments) > 10
    for moment in some(moments, 8, thorough=40):
        done = attempt("-e", f"inject={calls}:signal=KILL:when={moment}")
        found = anyio.run(read, target)
        assert found in ([b"old" * 400], [b"new" * 400]), moment
        if "done" not in done.stdout:
            again = subprocess.run(copy, capture_output=True, text=True, check=True)
            assert "done" in again.stdout, (moment, again)
        assert anyio.run(read, target) == [b"new" * 400]
        assert [each.name for each in target.parent.iterdir()] == ["t.db"], moment


def test_a_full_disk_leaves_nothing_behind(tmp_path):
    """The error says so; the old backup stays."""
    anyio.run(lambda: write(tmp_path / "s.db", os.urandom(1000), count=500))
    anyio.run(write, tmp_path / "t" / "old.db", b"old")
    for target in ("old.db", "new.db"):
        done = subprocess.run(
            [sys.executable, "-c", COPIER, "backup", str(tmp_path / "s.db"), str(tmp_path / "t" / target)],
            capture_output=True, text=True, check=True,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000)),
        )  # fmt: skip
        assert "StoreError" in done.stdout, done
        assert "space" in done.stdout or "full" in done.stdout
    assert [each.name for each in (tmp_path / "t").iterdir()] == ["old.db"]
    assert anyio.run(read, tmp_path / "t" / "old.db") == [b"old"]


async def test_a_cancelled_backup_leaves_nothing(tmp_path):
    """However it is cancelled."""
    await write(tmp_path / "s.db", b"value")
    with anyio.CancelScope() as scope:
        scope.cancel()
        await backup(tmp_path / "s.db", tmp_path / "away" / "copy.db")
    assert scope.cancelled_caught
    assert not [each for each in tmp_path.rglob("*") if each.is_file() and "s.db" not in each.name]


async def save(root, city, owner=""):
    await FileMemoryProvider(root).save(SingleFact(CITY, city), USER, APP, owner=owner)


async def test_a_folder_is_backed_up_and_only_what_changed_is_written_again(tmp_path):
    """Stores and readable facts, and neither keys nor locks; what was forgotten leaves the backup too."""
    home, away = tmp_path / "home", tmp_path / "away"
    for owner in ("ada", "bob"):
        await save(home / "memory", "Oslo", owner)
    await write(home / "runs.db", b"run")
    (home / "key.txt").write_text("a secret")
    for each in home.rglob("*.jsonl"):
        os.utime(each, (1, 1))
    first = await backup(home, away)
    assert (first.stores, first.files, first.written, first.left) == (1, 2, 3, ("key.txt",))
    assert not list(away.rglob("key.txt"))
    assert all(each.stat().st_mode & 0o077 == 0 for each in (away, *away.rglob("*")))

    await save(home / "memory", "Moss", "ada")
    second = await backup(home, away)
    assert (second.files, second.written) == (2, 2)
    await FileMemoryProvider(home / "memory").forget(owner="bob", everything=True)
    third = await backup(home, away)
    assert third.files == 1
    assert not [each for each in away.rglob("*bob*") if each.is_file()]

    report = await restore(away, tmp_path / "back")
    assert (report.stores, report.files) == (1, 1)
    provider = FileMemoryProvider(tmp_path / "back" / "memory")
    assert [fact.value for fact in await provider.load(CITY, USER, APP, owner="ada")] == ["Moss"]
    assert await provider.verify() == 2
    assert await read(tmp_path / "back" / "runs.db") == [b"run"]

    await save(tmp_path / "other", "Rome")
    with pytest.raises(StoreExistsError, match="another folder"):
        await backup(tmp_path / "other", away)
    with pytest.raises(StoreExistsError, match="--replace"):
        await restore(away, tmp_path / "other")
    with pytest.raises(StoreExistsError, match=r"key\.txt"):
        await restore(away, home, replace=True)
    (home / "key.txt").unlink()
    await save(home / "memory", "Lost", "ada")
    await restore(away, home, replace=True)
    assert [fact.value for fact in await FileMemoryProvider(home / "memory").load(CITY, USER, APP, owner="ada")] == [
        "Moss"
    ]
    assert sorted(each.name for each in tmp_path.iterdir()) == ["away", "back", "home", "other"]


async def test_what_was_forgotten_comes_back_with_a_backup(tmp_path):
    """A backup is what the store was; so a deletion that was under way in it is finished by whoever opens it."""
    await write(tmp_path / "s.db", b"value")
    await backup(tmp_path / "s.db", tmp_path / "copy.db")
    async with SqliteStore(tmp_path / "s.db") as store:
        await store.commit(DeleteAll(A))
    await restore(tmp_path / "copy.db", tmp_path / "s.db", replace=True)
    assert await read(tmp_path / "s.db") == [b"value"]
    with apsw.Connection(str(tmp_path / "s.db")) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


async def test_what_a_link_names_is_replaced_and_the_link_stays(tmp_path):
    """A store, or a folder, may be a link to another disk: restoring replaces what is there, and leaves nothing else behind."""
    disk = tmp_path / "disk"
    await write(disk / "a.db", b"old")
    (tmp_path / "folder").symlink_to(disk)
    (tmp_path / "b.db").symlink_to(disk / "a.db")
    await backup(disk, tmp_path / "saved")
    for source, target in (("saved", "folder"), ("saved/a.db", "b.db")):
        await write(disk / "a.db", b"new")
        await restore(tmp_path / source, tmp_path / target, replace=True)
        assert await read(disk / "a.db") == [b"old"]
    assert (tmp_path / "folder").is_symlink()
    assert (tmp_path / "b.db").is_symlink()
    assert {each.name for each in tmp_path.iterdir()} == {"disk", "folder", "b.db", "saved"}


async def test_a_store_that_a_folder_links_to_is_copied_and_a_folder_is_named(tmp_path):
    """A backup lacks nothing silently: a link to a store is a store in it, and other links are among what was left."""
    await write(tmp_path / "disk" / "a.db", b"v")
    data = tmp_path / "data"
    await write(data / "own.db", b"v")
    (data / "linked.db").symlink_to(tmp_path / "disk" / "a.db")
    (data / "more").symlink_to(tmp_path / "disk")
    (data / "nowhere.db").symlink_to(tmp_path / "gone")
    report = await backup(data, tmp_path / "saved")
    assert (report.stores, set(report.left)) == (2, {"more", "nowhere.db"})
    assert not (tmp_path / "saved" / "linked.db").is_symlink()
    assert await read(tmp_path / "saved" / "linked.db") == [b"v"]
