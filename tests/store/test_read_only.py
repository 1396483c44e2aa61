"""Stores that the process may only read: they are read, verified and copied, and a write says that they are read-only."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import anyio
import apsw
import pytest

from graphagent.errors import ReadOnlyStoreError
from graphagent.memory import Concept, EncryptedMemoryProvider, FileMemoryProvider, Notes, Scope, SingleFact, Subject
from graphagent.store import EncryptedStore, Put, SqliteStore

KEY = bytes(32)
CITY, USER, APP = Concept("city"), Subject("user"), Scope.product("my-app")
STRANGER = 65534

READER = """
import os, sys
import anyio
from pathlib import Path
from graphagent.errors import ReadOnlyStoreError
from graphagent.memory import Concept, EncryptedMemoryProvider, FileMemoryProvider, Notes, Scope, SingleFact, Subject
from graphagent.store import EncryptedStore, Put, SqliteStore

CITY, USER, APP = Concept("city"), Subject("user"), Scope.product("my-app")
root, keys = Path(sys.argv[1]), bytes(32)

async def refused(write):
    try:
        await write
    except ReadOnlyStoreError as error:
        assert isinstance(error, PermissionError) and "read-only" in str(error)
    else:
        raise AssertionError("it was written")

async def use():
    for name in ("closed", "open", "log alone"):
        for store in (SqliteStore(root / name / "plain.db"), EncryptedStore(SqliteStore(root / name / "sealed.db"), keys)):
            assert (await store.get(("runs", "a"))).value == b"value", (name, store)
            assert [item.key async for item in store.scan(("runs",))] == [("runs", "a")]
            assert await store.verify() == 1
            await refused(store.commit(Put(("runs", "b"), b"")))
            assert await store.verify() == 1
        async with Notes(root / name / "notes.db") as notes:
            [match] = await notes.recall("betel")
            assert match.record.content == "the betel shop"
            assert await notes.verify() == 1
            await refused(notes.remember("another"))
        for provider in (FileMemoryProvider(root / name / "facts"), EncryptedMemoryProvider(root / name / "secret", key=keys)):
            [fact] = await provider.load(CITY, USER, APP)
            assert fact.value == "Oslo"
            assert await provider.verify() == 1
            await refused(provider.save(SingleFact(CITY, "Moss"), USER, APP))
            await refused(provider.forget(everything=True))

if len(sys.argv) > 2:
    async def warm(folder):
        await EncryptedMemoryProvider(folder / "a", key=keys).save(SingleFact(CITY, "Moss"), USER, APP)
        await FileMemoryProvider(folder / "b").save(SingleFact(CITY, "Moss"), USER, APP)
        async with Notes(folder / "n.db") as notes:
            await notes.remember("what is imported at the first use is imported, since another user may not read it")
            await notes.recall("user")
            await notes.verify()
    anyio.run(warm, Path(sys.argv[2]))
    os.setuid(65534)
anyio.run(use)
print("read")
"""


async def fill(folder):
    for store in (SqliteStore(folder / "plain.db"), EncryptedStore(SqliteStore(folder / "sealed.db"), KEY)):
        await store.commit(Put(("runs", "a"), b"value"))
        yield store
    async with Notes(folder / "notes.db") as notes:
        await notes.remember("the betel shop", scope="/", categories=[], importance=0.5)
        yield notes
    yield await FileMemoryProvider(folder / "facts").save(SingleFact(CITY, "Oslo"), USER, APP)
    provider = EncryptedMemoryProvider(folder / "secret", key=KEY)
    yield await provider.save(SingleFact(CITY, "Oslo"), USER, APP)
    await provider.__aexit__(None, None, None)


@pytest.fixture
async def kept(tmp_path):
    """Folders of stores: closed; copied while they were open; and copied with their logs alone."""
    root = tmp_path / "kept"
    closing = [each async for each in fill(root / "closed")]
    # While a reader is in the way, the commits stay in the log.
    blocked = [apsw.Connection(str(path)) for path in (root / "closed").rglob("*.db")]
    for each in blocked:
        each.execute("BEGIN; SELECT * FROM items LIMIT 1").fetchall()
    shutil.copytree(root / "closed", root / "open")
    shutil.copytree(root / "closed", root / "log alone", ignore=shutil.ignore_patterns("*-shm", ".lock"))
    for each in blocked:
        each.close()
    for each in closing:
        if each is not None:
            await each.aclose()
    assert not list((root / "closed").rglob("*-wal"))
    return root


def files(root):
    return {path: path.read_bytes() if path.is_file() else None for path in root.rglob("*")}


def run(*command):
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)
    assert (done.stdout, done.returncode) == ("read\n", 0), done.stderr[-3000:]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
async def test_files_of_another_user_are_read_and_not_written(kept, tmp_path):
    """What lacks SQLite's files beside it, and its lock file, is read too; a write raises ReadOnlyStoreError; nothing changes."""
    for each in (*reversed(kept.parents), kept, *kept.rglob("*")):
        if str(each).startswith("/tmp/pytest") or kept in (each, *each.parents):
            each.chmod(0o755 if each.is_dir() else 0o644)
    before = files(kept)
    await anyio.to_thread.run_sync(run, sys.executable, "-c", READER, str(kept), str(tmp_path / "warm"))
    assert files(kept) == before


@pytest.mark.skipif(
    shutil.which("unshare") is None or subprocess.run(["unshare", "-rm", "true"], check=False).returncode != 0,
    reason="needs a mount namespace",
)
async def test_stores_on_a_read_only_mount_are_read_and_not_written(kept):
    """A backup is mounted without the right to write, and is read, verified and left as it is."""
    mount = f"mount --bind {kept} {kept} && mount -o remount,ro,bind {kept} && exec"
    before = files(kept)
    await anyio.to_thread.run_sync(
        run, "unshare", "-rm", "sh", "-c", f'{mount} "$@"', "sh", sys.executable, "-c", READER, str(kept)
    )
    assert files(kept) == before


async def test_what_changes_while_it_is_read_without_locks_is_read_again(kept, monkeypatch):
    """A file that others may write, and this process may not lock, is read as it was at one moment."""
    path = kept / "closed" / "plain.db"
    real = os.access
    monkeypatch.setattr(os, "access", lambda place, mode, **more: mode != os.W_OK and real(place, mode))
    monkeypatch.setattr(os, "supports_effective_ids", set())
    reads = 0

    def read(connection):
        nonlocal reads
        reads += 1
        if reads == 1:
            os.utime(path, ns=(1, 1))
        return connection.execute("SELECT count(*) FROM items").fetchall()

    store = SqliteStore(path)
    assert await store.read(read) == [(1,)]
    assert reads == 2
    with pytest.raises(ReadOnlyStoreError):
        await store.commit(Put(("runs", "b"), b""))


@pytest.mark.parametrize("make", ["vacuum into", "backup", "cp after a checkpoint"])
async def test_copies_that_sqlite_makes_open_and_are_written(tmp_path, make):
    """Whatever journal the copy has, it is read, and then written like any other store."""
    store = EncryptedStore(SqliteStore(tmp_path / "a.db"), KEY)
    await store.commit(Put(("runs", "a"), b"value"))
    connection, copy = apsw.Connection(str(tmp_path / "a.db")), tmp_path / "b.db"
    if make == "vacuum into":
        connection.execute(f"VACUUM INTO '{copy}'")
    elif make == "backup":
        other = apsw.Connection(str(copy))
        with other.backup("main", connection, "main") as backup:
            backup.step()
        other.close()
    else:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        await store.aclose()
        connection.close()
        copy.write_bytes((tmp_path / "a.db").read_bytes())
    async with EncryptedStore(SqliteStore(copy), KEY) as opened:
        assert (await opened.get(("runs", "a"))).value == b"value"
        await opened.commit(Put(("runs", "b"), b"more"))
        assert await opened.verify() == 2
        assert copy.with_name("b.db-wal").exists()
    await store.aclose()
