"""All data of a sealed store get new keys while others read and write; whatever interrupts this, nothing is lost, and it is continued."""

from __future__ import annotations

import signal
import subprocess
import sys

import anyio
import anyio.lowlevel
import pytest

from graphagent.errors import DamagedStoreError, StoreError
from graphagent.store import DeleteAll, EncryptedStore, MemoryStore, Put, SqliteStore
from graphagent.store._items import encode
from graphagent.store.sealed import _rotation
from graphagent.store.sealed._format import (
    DomainState,
    KeyState,
    UnreadableError,
    associated_data,
    record_number,
    unseal,
)
from graphagent.store.sealed._keyset import Keyset, Purpose
from graphagent.store.sealed._secret import Secret, SlotKind
from tests import forkserver
from tests.thorough import some

KEY = bytes(range(32))
KEYS = ("k",)


async def rows_of(inner):
    return {item.key: item async for item in inner.scan(())}


async def listed(store):
    return {item.key: item async for item in store.scan(())}


async def fill(store, big=30):
    """Put items into one larger domain, several small ones, and domains of a single item; some at a higher version."""
    await store.commit(*(Put(("room", "big", "x", number), b"%d" % number * 9) for number in range(big)))
    for number in range(6):
        await store.commit(*(Put(("room", f"owner {number}", part), b"v" * 300) for part in range(4)))
    await store.commit(Put(("alone",), b"a"), Put(("room", "big", "x", 3), b"again"))
    await store.commit(Put(("room", "owner 1", 2), b"w"), Put(("room", "gone", 1), b"gone"))
    await store.commit(DeleteAll(("room", "gone")))


def opens(keys, store_id, kind, row):
    """Tell whether a row opens with one of the keys, whatever number it says."""
    number = record_number(row.value)
    to = associated_data(store_id, kind, encode(row.key), row.version)
    for key in keys:
        if key.state is not KeyState.DESTROYED:
            try:
                return unseal((key._replace(number=number),), to, row.value)
            except UnreadableError:
                pass
    return None


def check_old_keys(old, new):
    """Check that the old rows with the key tell nothing of the new ones."""
    keyset = Keyset.open(old[KEYS].value, old[KEYS].version, Secret(SlotKind.KEY, KEY))
    seals, store_id = keyset.keys[Purpose.SEAL], keyset.store_id
    data = [
        key
        for row in old.values()
        if row.key[0] == "d"
        for key in DomainState.read(opens(seals, store_id, b"domain", row)).keys
    ]
    kinds = {"r": b"root", "d": b"domain", "i": b"item"}
    for row in new.values():
        if row.key[0] in kinds:
            assert opens([*seals, *data], store_id, kinds[row.key[0]], row) is None
            assert record_number(row.value) > record_number(old[row.key].value)


async def test_the_old_keys_open_nothing_and_the_old_records_are_gone(tmp_path):
    """Every record is sealed with other keys afterwards, at its version; no file contains an old one, and none can be put back."""
    path = tmp_path / "store.db"
    reports = []
    async with EncryptedStore(SqliteStore(path), KEY) as store:
        await fill(store, big=1000)
        async with SqliteStore(path) as inner:
            old, items = await rows_of(inner), await listed(store)
            await store.keys.rotate_data(reports.append)
            assert await listed(store) == items
            new = await rows_of(inner)
            assert new.keys() == old.keys()
            assert all(new[key].version == old[key].version for key in new if key[0] == "i")
            check_old_keys(old, new)
            assert reports[-1].items == len(items)
            assert reports[-1].domains == reports[-1].total == 8
            await store.keys.rotate_data()
            assert {record_number(row.value) for row in (await rows_of(inner)).values() if row.key[0] in "rdi"} == {3}
        assert await store.verify() == len(items)
    files = b"".join(each.read_bytes() for each in tmp_path.iterdir())
    assert not [key for rows in (old, new) for key, row in rows.items() if row.value[-32:] in files]
    big = ("room", "big")
    async with SqliteStore(path) as inner, EncryptedStore(inner, KEY) as store:
        await inner.commit(*(Put(key, row.value) for key, row in old.items() if key[0] == "d"))
        with pytest.raises(DamagedStoreError):
            await store.get((*big, "x", 1))


class Dying:
    """A store that is gone before or after one of its commits."""

    def __init__(self, inner, at, *, made):
        self.inner, self.at, self.made = inner, at, made
        self.get, self.scan = inner.get, inner.scan

    async def commit(self, *changes):
        self.at -= 1
        if self.at < 0 or (self.at == 0 and not self.made):
            raise StoreError("gone")
        await self.inner.commit(*changes)
        if self.at == 0:
            raise StoreError("gone")


@pytest.mark.parametrize("made", [False, True])
async def test_interrupted_at_any_commit_it_is_continued(monkeypatch, made):
    """Broken off before or after any commit, everything can be read and written, and the next call finishes what is left."""
    monkeypatch.setattr(_rotation, "_ITEMS", 8)
    at = 1
    while True:
        inner = MemoryStore()
        await fill(EncryptedStore(inner, KEY))
        old = await rows_of(inner)
        items = await listed(EncryptedStore(inner, KEY))
        dying = Dying(inner, at, made=made)
        try:
            await EncryptedStore(dying, KEY).keys.rotate_data()
        except StoreError as error:
            assert "gone" in str(error)  # noqa: PT017 - the first call that is not broken off ends the test
        else:
            assert at > 8
            return
        store = EncryptedStore(inner, KEY)
        assert await store.verify() == len(items)
        assert await listed(store) == items
        for number in range(6):
            key = ("room", f"owner {number}", 2)
            await store.commit(Put(key, b"new", expected=items[key].version), Put(("room", f"new {number}", 1), b"new"))
        await store.keys.rotate_data()
        fresh = EncryptedStore(inner, KEY)
        assert await fresh.verify() == len(items) + 6
        assert {item.value for item in (await listed(fresh)).values() if item.key[-1] == 2} >= {b"new"}
        new = await rows_of(inner)
        check_old_keys(old, {key: row for key, row in new.items() if key in old})
        # Where only the answer to the last commit was lost, the next call was another rotation.
        assert {record_number(row.value) for row in new.values() if row.key[0] in "rdi"} in ({2}, {3})
        at += 1


async def test_others_read_write_and_rotate_meanwhile(tmp_path, monkeypatch):
    """Other handles write to the domain that is being rotated, expecting the versions they know; two rotations at once both end right."""
    monkeypatch.setattr(_rotation, "_ITEMS", 50)
    path = tmp_path / "store.db"
    count = 600

    def opened():
        return EncryptedStore(SqliteStore(path, synchronous="NORMAL"), KEY)

    rotating = 2
    wanted = {}
    async with opened() as writer, opened() as reader, opened() as one, opened() as two:
        await fill(writer, big=count)

        async def rotate(store):
            nonlocal rotating
            await store.keys.rotate_data()
            await store.keys.rotate_data()
            rotating -= 1

        async def write():
            number = 0
            while rotating:
                key = ("room", "big", "x", number % (count + 40))
                found = wanted.get(key) or (item.version if (item := await writer.get(key)) else 0)
                await writer.commit(Put(key, b"mine", expected=found))
                await writer.commit(Put(("room", f"new {number % 30}", number), b"mine", expected=0))
                wanted[key] = found + 1
                number += 1

        async def read():
            while rotating:
                for number in range(0, count, 7):
                    found = await reader.get(("room", "big", "x", number))
                    await anyio.lowlevel.checkpoint()  # what is read from memory lets no other task run
                    assert found.value in (b"mine", b"again", b"%d" % number * 9)

        async with anyio.create_task_group() as group:
            for work in (write, read):
                group.start_soon(work)
            for store in (one, two):
                group.start_soon(rotate, store)
        assert len(wanted) > 1
        for store in (writer, opened()):
            assert {key: (await store.get(key)).version for key in wanted} == wanted
            await store.verify()
    async with SqliteStore(path) as inner:
        rows = (await rows_of(inner)).values()
        assert len({record_number(row.value) for row in rows if row.key[0] == "d"}) == 1


class Overtaken(Dying):
    """A store in which others always commit first, but make way once when the key row has changed."""

    def __init__(self, inner, other):
        super().__init__(inner, 0, made=True)
        self.other, self.keys, self.commits = other, 1, 0

    async def commit(self, *changes):
        keys = (await self.inner.get(KEYS)).version
        if keys == self.keys:
            self.commits += 1
            await self.other.commit(Put(("room", "big", "x", 1), b"mine"), Put(("room", f"new {self.commits}", 1), b""))
        self.keys = keys
        await self.inner.commit(*changes)


async def test_others_make_way():
    """Where somebody always commits first, the rotation has its turn nevertheless, and nothing of what they write is lost."""
    inner = MemoryStore()
    other = EncryptedStore(inner, KEY)
    await fill(other)
    count = len(await listed(other))
    overtaken = Overtaken(inner, other)
    await EncryptedStore(overtaken, KEY).keys.rotate_data()
    assert await other.verify() == count + overtaken.commits
    assert (await other.get(("room", "big", "x", 1))).version == 1 + overtaken.commits
    rows = (await rows_of(inner)).values()
    assert {record_number(row.value) for row in rows if row.key[0] in "rdi"} == {2}


@pytest.mark.parametrize("change", [DeleteAll(("room", "big")), Put(("room", "big", "x", 2), b"theirs")])
async def test_a_commit_has_its_turn(change):
    """Where somebody always commits first, a commit has the others make way after some attempts; nothing of either is lost."""
    inner = MemoryStore()
    other = EncryptedStore(inner, KEY)
    await fill(other)
    before = await listed(other)
    overtaken = Overtaken(inner, other)
    await EncryptedStore(overtaken, KEY).commit(change)
    assert 1 < overtaken.commits < 20
    kept = [key for key in before if key[:2] != ("room", "big")] if isinstance(change, DeleteAll) else before
    assert await other.verify() == len(kept) + overtaken.commits
    found = await other.get(("room", "big", "x", 2))
    assert found is None if isinstance(change, DeleteAll) else found.value == b"theirs"


async def test_what_is_damaged_keeps_the_keys_that_it_needs():
    """A record that does not open is reported as damage, is left as it is, and what is sound stays readable."""
    inner = MemoryStore()
    store = EncryptedStore(inner, KEY)
    await fill(store)
    row = next(row for row in (await rows_of(inner)).values() if row.key[0] == "i" and len(row.key) == 4)
    damaged = row.value[:-1] + bytes([row.value[-1] ^ 1])
    await inner.commit(Put(row.key, damaged, expected=row.version))
    for _ in range(2):
        with pytest.raises(DamagedStoreError):
            await store.keys.rotate_data()
    assert (await inner.get(row.key)).value == damaged
    for number in range(5):
        assert (await EncryptedStore(inner, KEY).get(("room", "big", "x", number))) is not None


PROGRAM = """
import anyio, os, signal, sys
from graphagent.store import *
from graphagent.store.sealed import _rotation

_rotation._ITEMS = 16
path, what, at = sys.argv[1], sys.argv[2], int(sys.argv[3])

class Dying(SqliteStore):
    at = abs(at)
    async def commit(self, *changes):
        self.at -= 1
        if self.at == 0 and at < 0:
            os.kill(os.getpid(), signal.SIGKILL)
        await super().commit(*changes)
        if self.at == 0:
            os.kill(os.getpid(), signal.SIGKILL)

async def main():
    async with EncryptedStore(Dying(path), bytes(range(32))) as store:
        await store.get(("room", "big", "x", 1))
        print("ready", flush=True)
        if what == "rotate":
            await store.keys.rotate_data()
            return
        number = 0
        while not sys.stdin.closed and not os.path.exists(path + ".stop"):
            await store.commit(Put(("room", "big", what, number), b"v", expected=0))
            print(number, flush=True)
            number += 1
            await anyio.sleep(0.003)

anyio.run(main)
"""


def start(path, what, at=0):
    return forkserver.Popen(
        [sys.executable, "-W", "error", "-c", PROGRAM, str(path), what, str(at)], stdout=subprocess.PIPE
    )


async def wait(child):
    output, _ = await anyio.to_thread.run_sync(child.communicate)
    return output.split()


@pytest.mark.parametrize("anyio_backend", ["asyncio"])  # processes are killed, whatever loop they have
async def test_killed_while_processes_write(tmp_path):
    """Processes that have the store open write on while others that rotate it are killed before or after a commit; nothing is lost."""
    path = tmp_path / "store.db"
    async with EncryptedStore(SqliteStore(path), KEY) as store:
        await fill(store, big=60)
        items = await listed(store)
    async with SqliteStore(path) as inner:
        old = await rows_of(inner)
    writers = {name: start(path, name) for name in ("one", "two")}
    for child in writers.values():
        assert await anyio.to_thread.run_sync(child.stdout.readline) == b"ready\n"
    killed = 0
    for at in some([*range(1, 12), *range(-12, 0)], 4, thorough=10):
        child = start(path, "rotate", at)
        await wait(child)
        assert child.returncode in (0, -signal.SIGKILL)
        killed += child.returncode != 0
    assert killed
    async with EncryptedStore(SqliteStore(path), KEY) as store:
        await store.keys.rotate_data()
        (tmp_path / "store.db.stop").touch()
        for name, child in writers.items():
            written = (await wait(child))[-1]
            assert child.returncode == 0
            items |= {key: None for number in range(int(written) + 1) for key in [("room", "big", name, number)]}
        found = await listed(store)
        assert found.keys() >= items.keys()
        assert all(found[key] == item for key, item in items.items() if item)
        await store.keys.rotate_data()
        assert await store.verify() == len(found)
    async with SqliteStore(path) as inner:
        new = await rows_of(inner)
    check_old_keys(old, {key: row for key, row in new.items() if key in old})
    files = b"".join(each.read_bytes() for each in tmp_path.iterdir())
    assert not [key for key, row in old.items() if row.value[-32:] in files]
