"""Processes killed, files flipped, cut off and filled up: nothing that was acknowledged is lost, nothing is read wrongly."""

from __future__ import annotations

import base64
import random
import resource
import select
import shutil
import signal
import subprocess
import sys
import time

import anyio
import pytest

from graphagent.errors import DamagedStoreError, StoreError, WrongKeyError
from graphagent.store import Delete, DeleteAll, EncryptedStore, Put, SqliteStore
from tests import forkserver
from tests.thorough import THOROUGH

KEY = bytes(range(32))
KILLS = 10 if THOROUGH else 4
"""How many processes are killed for each kind of store; each at another random moment."""
FLIP_STRIDE = 199
"""A bit of every so-manieth byte of a file is flipped; 1 flips one in each."""
CUT_STRIDE = 509
"""The file is cut at every so-manieth length."""
SEED = 20261121

PROGRAM = f"""
import anyio, base64, sys
from graphagent.store import *
from graphagent.errors import ConflictError
path, sealed, name, what, count = sys.argv[1], sys.argv[2] == "sealed", sys.argv[3], sys.argv[4], int(sys.argv[5])
store = SqliteStore(path, synchronous=["FULL", "NORMAL"][sum(name.encode()) % 2])
if sealed:
    store = EncryptedStore(store, base64.b64decode("{base64.b64encode(KEY).decode()}"))

async def save(number):
    short, long = f"{{name}} {{number}} ".encode() * 20, f"{{name}} {{number}} ".encode() * 100
    halves = [Put(("r", "o", name, number, "a"), short), Put(("r", "o", name, number, "b"), long)]
    await store.commit(*halves, Put(("r", f"own-{{name}}", number % 7), b"v"))
    print("ack", number, flush=True)

async def main():
    if what == "alone":
        for number in range(count):
            await save(number)
    elif what == "together":
        for start in range(0, count, 5):
            async with anyio.create_task_group() as group:
                for number in range(start, start + 5):
                    group.start_soon(save, number)
    elif what == "same":
        for number in range(count):
            await store.commit(Put(("r", "o", "shared"), name.encode()))
            print("ack", number, flush=True)

anyio.run(main, backend=["asyncio", "trio"][len(name) % 2])
"""


def opened(path, kind):
    store = SqliteStore(path)
    return EncryptedStore(store, KEY) if kind == "sealed" else store


def start(path, kind, name, what, count):
    return forkserver.Popen(
        [sys.executable, "-W", "error", "-c", PROGRAM, str(path), kind, name, what, str(count)], stdout=subprocess.PIPE
    )


def acknowledged(output):
    return {int(line.split()[1]) for line in output.decode().splitlines(keepends=True) if line.endswith("\n")}


@pytest.mark.parametrize("kind", ["plain", "sealed"])
def test_killed_in_the_middle_of_saving(tmp_path, kind):
    """After kill -9 at a random moment: what was acknowledged is there, the rest whole or absent, and the store goes on."""
    chance = random.Random(SEED)
    killed = 0
    path = tmp_path / "store.db"
    wanted = {}
    for number in range(KILLS):
        name = f"p{'x' * (number % 2)}{number}"
        child = start(path, kind, name, ("alone", "together")[number % 3 == 2], 100_000)
        assert select.select([child.stdout], [], [], 600)[0] if number else True
        time.sleep(chance.uniform(0, 0.06) if number else chance.uniform(0.2, 0.5))
        child.send_signal(signal.SIGKILL)
        output, _ = child.communicate(timeout=600)
        killed += child.returncode == -signal.SIGKILL
        wanted[name] = acknowledged(output)

        async def check(name=name):
            store = opened(path, kind)
            there = {}
            async for item in store.scan(("r", "o")):
                assert item.value == f"{item.key[2]} {item.key[3]} ".encode() * {"a": 20, "b": 100}[item.key[4]]
                there.setdefault(item.key[2], {}).setdefault(item.key[3], set()).add(item.key[4])
            for each, numbers in wanted.items():
                assert numbers <= set(there.get(each, {})), "acknowledged, but lost"
            assert all(halves == {"a", "b"} for found in there.values() for halves in found.values()), "half a commit"
            await store.commit(Put(("r", "after", name), b"v"))
            assert await store.verify() > 0
            await store.aclose()

        anyio.run(check)
    assert killed == KILLS
    assert sum(map(len, wanted.values())) > KILLS


@pytest.mark.parametrize("kind", ["plain", "sealed"])
def test_two_processes_write_at_once(tmp_path, kind):
    """Two processes that write one store from its making on lose nothing, and the versions of a shared item have no gap."""
    path = tmp_path / "store.db"
    jobs = [("one", "alone", 60), ("three", "together", 60), ("four", "same", 60), ("fives", "same", 60)]
    children = [start(path, kind, *job) for job in jobs]
    outputs = [child.communicate(timeout=600)[0] for child in children]
    assert [child.returncode for child in children] == [0, 0, 0, 0]
    assert [acknowledged(output) for output in outputs] == [set(range(60))] * 4

    async def check():
        store = opened(path, kind)
        assert (await store.get(("r", "o", "shared"))).version == 120
        for name in ("one", "three"):
            assert len([item async for item in store.scan(("r", "o", name))]) == 120
        assert await store.verify() == 240 + 1 + 14
        await store.aclose()

    anyio.run(check)


async def test_a_second_process_is_seen(tmp_path):
    """What another process writes is read at once by a store that is open already."""
    for kind in ("plain", "sealed"):
        path = tmp_path / f"{kind}.db"
        store = opened(path, kind)
        await store.commit(Put(("r", "o", "shared"), b"mine"))
        child = start(path, kind, "four", "same", 3)
        assert child.communicate(timeout=600)[0].count(b"ack") == 3
        found = await store.get(("r", "o", "shared"))
        assert (found.value, found.version) == (b"four", 4)
        await store.commit(Put(("r", "o", "shared"), b"mine again", expected=4))
        await store.aclose()


async def made(folder, kind):
    store = opened(folder / "store.db", kind)
    for number in range(12):
        await store.commit(Put(("r", f"o{number % 3}", number), b"%d value " % number * (3 + number * 20)))
    await store.commit(Put(("r", "o0", 0), b"newer"), Delete(("r", "o1", 1)))
    right = {item.key: item async for item in store.scan(())}
    await store.aclose()
    assert [file.name for file in folder.iterdir()] == ["store.db"]
    return right


def test_flipped_bits(tmp_path):
    """A flipped bit anywhere in the file is refused as damage or does no harm: never a wrong value, never nothing."""
    (tmp_path / "a").mkdir()
    right = anyio.run(made, tmp_path / "a", "sealed")
    data = (tmp_path / "a" / "store.db").read_bytes()
    chance, refused, tried = random.Random(SEED), 0, 0
    path = tmp_path / "b" / "store.db"
    path.parent.mkdir()
    few = list(right)[:2]
    for place in [*range(0, 100, 3), *range(100 + SEED % FLIP_STRIDE, len(data), FLIP_STRIDE)]:
        damaged = bytearray(data)
        damaged[place] ^= 1 << chance.randrange(8)
        path.write_bytes(damaged)
        for left in path.parent.glob("store.db-*"):
            left.unlink()

        async def look(place=place):
            for key in few:
                store = opened(path, "sealed")
                try:
                    assert await store.get(key) == right[key], f"byte {place}: a wrong value, or none"
                    assert {item.key: item async for item in store.scan(())} == right, f"byte {place}: a scan is short"
                except DamagedStoreError:
                    pass
                finally:
                    await store.aclose()
            store = opened(path, "sealed")
            try:
                assert await store.verify() == len(right)
            except DamagedStoreError:
                return True
            finally:
                await store.aclose()
            return False

        refused += anyio.run(look)
        tried += 1
    assert tried > 100
    assert refused > tried // 10


def test_cut_off_files(tmp_path):
    """A file that is cut off is refused as damaged, unless only bytes that stand for nothing are missing."""
    for kind in ("plain", "sealed"):
        (tmp_path / kind).mkdir()
        right = anyio.run(made, tmp_path / kind, kind)
        path = tmp_path / kind / "store.db"
        data = path.read_bytes()

        async def look(kind=kind, path=path, right=right):
            store = opened(path, kind)
            try:
                await store.verify()
                assert {item.key: item async for item in store.scan(())} == right
            except DamagedStoreError:
                return True
            finally:
                await store.aclose()
            return False

        refused = []
        for size in range(0, len(data) - 1, CUT_STRIDE):
            path.write_bytes(data[:size])
            for left in path.parent.glob("store.db-*"):
                left.unlink()
            refused.append(anyio.run(look))
        assert sum(refused) > 0.9 * len(refused)


async def test_pages_swapped_and_zeroed(tmp_path):
    """Zeroed pages, exchanged pages and a file mixed from two stores are refused."""
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        await made(tmp_path / name, "sealed")
    path = tmp_path / "a" / "store.db"
    data, other = path.read_bytes(), (tmp_path / "b" / "store.db").read_bytes()
    pages = [data[at : at + 4096] for at in range(0, len(data), 4096)]
    theirs = [other[at : at + 4096] for at in range(0, len(other), 4096)]
    assert len(pages) > 3
    for number in range(1, len(pages)):
        for page in (
            bytes(4096),
            theirs[number] if number < len(theirs) else b"x" * 4096,
            pages[1 + number % (len(pages) - 1)],
        ):
            if page == pages[number]:
                continue
            path.write_bytes(b"".join([*pages[:number], page, *pages[number + 1 :]]))
            store = opened(path, "sealed")
            with pytest.raises((DamagedStoreError, WrongKeyError)):
                await store.verify()
            await store.aclose()


async def test_no_more_space(tmp_path):
    """With no space left a commit raises and is not acknowledged, what was there stays, and it goes on when there is space."""
    for kind in ("plain", "sealed"):
        path = tmp_path / kind / "store.db"
        store = opened(path, kind)
        await store.commit(*(Put(("r", "o", number), b"v" * 500) for number in range(20)))
        kept, errors = set(range(20)), []
        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        try:
            resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, limits[1]))
            for number in range(20, 400):
                try:
                    await store.commit(Put(("r", "o", number), b"v" * 500), Put(("r", "last", 0), b"%d" % number))
                except StoreError as error:
                    errors.append(error)
                    if len(errors) > 3:
                        break
                else:
                    kept.add(number)
            assert len(errors) == 4
            assert not [error for error in errors if isinstance(error, DamagedStoreError)]
            assert all(str(path) in str(error) and "disk" in str(error) for error in errors)
            assert (await store.get(("r", "o", 5))).value == b"v" * 500
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        await store.commit(Put(("r", "o", 1000), b"v"))
        found = {item.key[2] async for item in store.scan(("r", "o"))}
        assert found == kept | {1000}
        await store.aclose()
        again = opened(path, kind)
        assert {item.key[2] async for item in again.scan(("r", "o"))} == kept | {1000}
        assert await again.verify() == len(found) + 1
        await again.aclose()


async def test_a_vanished_file(tmp_path):
    """A store whose folder is taken away raises or goes on; it never acknowledges into nothing and reads back nothing."""
    store = opened(tmp_path / "x" / "store.db", "plain")
    await store.commit(Put(("r", "o", 1), b"v"), DeleteAll(("q",)))
    await store.aclose()
    shutil.rmtree(tmp_path / "x")
    (tmp_path / "x").write_text("now a file")
    with pytest.raises(StoreError, match="not a folder"):
        await store.commit(Put(("r", "o", 2), b"v"))
