"""Forgetting is real: what DeleteAll removed is in no file, whatever becomes of the process, the disk or those who read meanwhile."""

from __future__ import annotations

import os
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import threading
import time

import anyio
import apsw
import pytest

from graphagent.errors import ConflictError, DamagedStoreError, NotErasedError, StoreError
from graphagent.store import Delete, DeleteAll, EncryptedStore, Put, SqliteStore
from graphagent.store.sqlite import _erasure, _file, _writer
from tests import forkserver
from tests.store.sqlite.test_store import files_of, wait_until
from tests.thorough import some

KEY = bytes(range(32))
STORES = 5
"""How many random stores are made of each kind. Without VACUUM bytes are left in about every third one."""
KILLS = 6
LENGTHS = {
    "short": (20, 100, 200, 300, 390), "mid": (410, 500, 700, 900), "long": (2000, 9000),
    "mixed": (20, 200, 390, 410, 500, 2000, 9000),
}  # fmt: skip


def mark_of(path):
    connection = apsw.Connection(str(path))
    try:
        return _erasure.marked(connection)
    finally:
        connection.close()


@pytest.fixture
def rewrites(monkeypatch):
    """The times that a file is written anew."""
    seen = []

    def rewrite(connection, path):
        seen.append(path)
        _erasure.rewrite(connection, path)

    monkeypatch.setattr(_writer, "rewrite", rewrite)
    return seen


@pytest.fixture
def soon(monkeypatch):
    """No long waits."""
    monkeypatch.setattr(_writer, "_READERS_SECONDS", 0.1)
    monkeypatch.setattr(_writer, "_PAUSE_SECONDS", 0.1)


# What is left in the files


def test_nothing_of_what_was_forgotten_is_left(tmp_path):
    """In stores with a random past, no value and no name that DeleteAll removed, or that was replaced before, is in a file."""

    async def one(folder, lengths, chance):
        store = SqliteStore(folder / "store.db", synchronous="NORMAL")
        there, number = {}, 0
        for _ in range(40):
            changes = []
            for _ in range(chance.choice((1, 1, 5, 30))):
                key, tag = ("r", chance.choice("abcdef"), f"NAME{number}Q"), b"TAG%dQ" % number
                if there and chance.random() < 0.1:
                    key = chance.choice(list(there))
                number += 1
                changes.append(Put(key, tag * (chance.choice(lengths) // len(tag) + 1)))
                there[key] = tag
            await store.commit(*changes)
        for owner in "abc":
            await store.commit(DeleteAll(("r", owner)))
            there = {key: tag for key, tag in there.items() if key[1] != owner}
            raw = files_of(folder)
            assert set(re.findall(rb"TAG\d+Q", raw)) == set(there.values())
            assert set(re.findall(rb"NAME\d+Q", raw)) == {key[2].encode() for key in there}
        assert await store.verify() == len(there)
        await store.aclose()

    for name, lengths in LENGTHS.items():
        for seed in range(STORES):
            backend = ("asyncio", "trio")[seed % 2]
            anyio.run(one, tmp_path / f"{name}-{seed}", lengths, random.Random(seed), backend=backend)


class Watched(SqliteStore):
    """A store that notes all that was ever put into it."""

    def __init__(self, path):
        super().__init__(path, synchronous="NORMAL")
        self.seen = {}

    async def commit(self, *changes):
        self.seen.update({change.value: change.key[0] for change in changes if isinstance(change, Put)})
        await super().commit(*changes)


def test_nothing_of_a_forgotten_domain_is_left(tmp_path):
    """In sealed stores with a random past, no row that held a forgotten domain or its wrapped keys, old or last, is in a file."""

    async def one(folder, chance):
        plain = Watched(folder / "store.db")
        store = EncryptedStore(plain, KEY)
        owners = []
        for number in range(40):
            new = [f"{number}-{each}" for each in range(10)]
            await store.commit(*(Put(("r", owner, 1), b"v" * chance.randrange(300)) for owner in new))
            await store.commit(Put(("r", new[0], 2), b"v"))
            owners += new
            chance.shuffle(owners)
            await store.commit(*(DeleteAll(("r", owners.pop())) for _ in range(9)))
            if number % 4 == 3:
                left = {item.value async for item in plain.scan(())}
                gone = {row: kind for row, kind in plain.seen.items() if row not in left}
                assert {"d", "i"} <= set(gone.values())
                # Salt and commitment are random, ciphertext looks so: a piece of a row is in a file only as a copy of it.
                pieces = {row[at : at + 24] for row in gone for at in (5, 37, len(row) // 2, len(row) - 24)}
                raw = files_of(folder)
                assert not [piece for piece in pieces if piece in raw]
        assert await store.verify() >= len(owners)
        await store.aclose()

    for seed in some(range(4), 2):
        anyio.run(one, tmp_path / f"{seed}", random.Random(seed), backend=("asyncio", "trio")[seed % 2])


async def test_what_was_deleted_singly_leaves_with_the_next_that_is_forgotten(tmp_path, rewrites):
    """Delete and Put leave the file as it is; with the next DeleteAll that removes something their bytes leave it too."""
    store = SqliteStore(tmp_path / "store.db")
    await store.commit(*(Put(("r", "o", number), b"SECRET %d" % number * 20) for number in range(50)))
    await store.commit(*(Delete(("r", "o", number)) for number in range(20)))
    await store.commit(*(Put(("r", "o", number), b"PUBLIC") for number in range(20, 40)))
    await store.commit(DeleteAll(("r", "p")), DeleteAll(("q",)))
    assert not rewrites
    await store.commit(DeleteAll(("r", "o", 49)))
    assert len(rewrites) == 1
    assert set(re.findall(rb"SECRET \d+", files_of(tmp_path))) == {b"SECRET %d" % n for n in range(40, 49)}
    await store.aclose()


async def test_what_was_deleted_singly_is_overwritten_soon(tmp_path, soon, rewrites):
    """A moment after a Delete its bytes are overwritten in the file and the log is emptied; no copies were made of this one."""
    store = SqliteStore(tmp_path / "store.db")
    await store.commit(Put(("r", "o", 1), b"SECRET" * 1000), Put(("r", "o", 2), b"v"))
    await store.commit(Delete(("r", "o", 1)))
    await wait_until(lambda: b"SECRET" not in files_of(tmp_path))
    assert not rewrites
    await store.aclose()


async def test_a_commit_that_was_refused_forgets_nothing(tmp_path, rewrites):
    """A DeleteAll that was rolled back with its commit neither removes anything nor writes the file anew."""
    store = SqliteStore(tmp_path / "store.db")
    await store.commit(Put(("r", "o", 1), b"v"))
    with pytest.raises(ConflictError):
        await store.commit(DeleteAll(("r", "o")), Put(("r", "p", 1), b"v", expected=5))
    assert await store.get(("r", "o", 1)) is not None
    assert not rewrites
    await store.aclose()


# At once


@pytest.fixture
async def held(tmp_path):
    """A store whose writer waits, a way to queue commits behind it, and one to let it go on."""
    store = SqliteStore(tmp_path / "store.db")
    await store.commit(*(Put(("r", f"o{number}", 1), b"SECRET" * 100) for number in range(30)))
    other = apsw.Connection(str(store.path))
    other.execute("BEGIN IMMEDIATE")
    outcome = {}

    async def one(name, change):
        try:
            await store.commit(change)
            outcome[name] = None
        except StoreError as error:
            outcome[name] = error

    async with anyio.create_task_group() as group:
        group.start_soon(one, "first", Put(("r", "first", 1), b"v"))
        await anyio.sleep(0.1)
        yield (
            store,
            lambda name, change: group.start_soon(one, name, change),
            lambda: other.execute("ROLLBACK"),
            outcome,
        )
        other.close()
    await store.aclose()


async def test_those_who_forget_at_once_share_the_work(held, rewrites, tmp_path):
    """Many that wait are served by writing the file anew once."""
    store, queue, go_on, outcome = held
    for number in range(25):
        queue(number, DeleteAll(("r", f"o{number}")))
    await anyio.sleep(0.1)
    go_on()
    await wait_until(lambda: len(outcome) == 26)
    assert outcome == dict.fromkeys(["first", *range(25)])
    assert len(rewrites) == 1
    assert await store.verify() == 6
    assert files_of(tmp_path).count(b"SECRET" * 100) == 5


async def test_others_do_not_wait_for_those_who_forget(held, monkeypatch):
    """A commit made together with a DeleteAll returns before the file is written anew; one that comes later is not lost."""
    store, queue, go_on, outcome = held
    begun, end = threading.Event(), threading.Event()

    def rewrite(connection, path):
        begun.set()
        end.wait(600)
        _erasure.rewrite(connection, path)

    monkeypatch.setattr(_writer, "rewrite", rewrite)
    queue("forgets", DeleteAll(("r", "o1")))
    queue("puts", Put(("r", "o2", 1), b"new"))
    await anyio.sleep(0.1)
    go_on()
    await wait_until(begun.is_set)
    await wait_until(lambda: "puts" in outcome)
    assert outcome == {"first": None, "puts": None}
    queue("later", Put(("r", "o2", 1), b"newer", expected=2))
    assert (await store.get(("r", "o2", 1))).value == b"new"
    assert await store.get(("r", "o1", 1)) is None
    end.set()
    await wait_until(lambda: len(outcome) == 4)
    assert not any(outcome.values())
    assert (await store.get(("r", "o2", 1))).value == b"newer"


WORKER = """
import anyio, sys
from graphagent.store import *
store, name = SqliteStore(sys.argv[1]), sys.argv[2]

async def count(times):
    for number in range(times):
        await store.commit(Put(("r", "shared"), b"v"), Put(("r", name, "own", number), b"SECRET" * 50))

async def forget(times):
    for number in range(times):
        await store.commit(Put(("r", name, "kept", number), b"v" * 500), Put(("r", name, "gone"), b"SECRET" * 200))
        await store.commit(DeleteAll(("r", name, "gone")))

async def main():
    async with anyio.create_task_group() as group:
        for _ in range(3):
            group.start_soon(count, 10)
        group.start_soon(forget, 10)
    await store.commit(DeleteAll(("r", name, "own")))
    await store.aclose()

anyio.run(main, backend=["asyncio", "trio"][len(name) % 2])
"""


def test_nothing_is_lost_where_several_processes_write_and_forget(tmp_path):
    """Every commit of every process is made, in an order without gaps, and in the end nothing that was forgotten is left."""
    path = tmp_path / "store.db"
    children = [
        forkserver.Popen([sys.executable, "-W", "error", "-c", WORKER, str(path), name]) for name in ("a", "bb", "c")
    ]
    assert [child.wait(600) for child in children] == [0, 0, 0]
    assert mark_of(path) == 0
    assert b"SECRET" not in files_of(tmp_path)

    async def check():
        async with SqliteStore(path) as store:
            assert (await store.get(("r", "shared"))).version == 90
            assert await store.verify() == 1 + 30

    anyio.run(check)


async def test_a_file_that_is_written_anew_is_waited_for(tmp_path, monkeypatch):
    """A commit waits for another process that makes the file forget, longer than for one that merely holds it."""
    monkeypatch.setattr(_file, "BUSY_SECONDS", 0.1)
    store = SqliteStore(tmp_path / "store.db")
    await store.commit(Put(("r", "o", 1), b"v"))
    other = apsw.Connection(str(store.path))
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreError, match="has held it"):
        await store.commit(Put(("r", "o", 2), b"v"))
    _erasure.mark(other)
    other.execute("COMMIT; BEGIN IMMEDIATE")
    async with anyio.create_task_group() as group:
        group.start_soon(store.commit, Put(("r", "o", 3), b"v"))
        await anyio.sleep(0.5)
        assert await store.get(("r", "o", 3)) is None
        other.execute("COMMIT")
    assert {item.key[2] async for item in store.scan(("r", "o"))} == {1, 3}
    other.close()
    await store.aclose()


# What is in the way


async def test_someone_who_keeps_reading(tmp_path, soon, rewrites):
    """Where an older state is read all the time, the one who forgets is told; the bytes leave by themselves when it ends."""
    store = SqliteStore(tmp_path / "store.db")
    await store.commit(Put(("r", "o", 1), b"SECRET" * 10), Put(("r", "p", 1), b"v"))
    other = apsw.Connection(str(store.path))
    other.execute("BEGIN")
    before = other.execute("SELECT * FROM items").fetchall()
    with pytest.raises(NotErasedError, match="end the processes that read it") as caught:
        await store.commit(DeleteAll(("r", "o")))
    assert str(store.path) == caught.value.where
    assert await store.get(("r", "o", 1)) is None
    await store.commit(Put(("r", "p", 1), b"w"))
    await anyio.sleep(0.5)
    assert other.execute("SELECT * FROM items").fetchall() == before
    other.close()
    await wait_until(lambda: b"SECRET" not in files_of(tmp_path))
    await wait_until(lambda: mark_of(store.path) == 0)
    assert len(rewrites) == 1
    assert (await store.get(("r", "p", 1))).value == b"w"
    await store.aclose()


@pytest.mark.parametrize("then", ["by itself", "the next deletion", "closing", "the next opening"])
async def test_a_full_disk(tmp_path, monkeypatch, then):
    """With no room to write the file anew, the one who forgets is told, others are not; with room the bytes leave it."""
    monkeypatch.setattr(_writer, "_PAUSE_SECONDS", 0.2 if then == "by itself" else 300)
    path = tmp_path / "store.db"
    store = SqliteStore(path)
    await store.commit(*(Put(("r", "o", number), b"SECRET %d " % number * 300) for number in range(100)))
    await store.aclose()
    await store.commit(Put(("r", "p", 1), b"v"))
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size, limits[1]))
    try:
        with pytest.raises(NotErasedError, match="disk") as caught:
            await store.commit(DeleteAll(("r", "o", 17)), Put(("r", "p", 2), b"v"))
        assert isinstance(caught.value.__cause__, StoreError)
        assert (tmp_path / "store.db-wal").stat().st_size < 50_000, "what could not be used was not given back"
        await store.commit(Put(("r", "p", 3), b"v"))
        assert {item.key[2] async for item in store.scan(("r", "p"))} == {1, 2, 3}
        assert await store.get(("r", "o", 17)) is None
        assert mark_of(path) > 0
        if then == "the next opening":
            await store.aclose()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    match then:
        case "by itself":
            await wait_until(lambda: mark_of(path) == 0)
        case "the next deletion":
            await store.commit(DeleteAll(("nothing",)))
        case "closing":
            await store.aclose()
        case "the next opening":
            async with SqliteStore(path) as other:
                assert await other.get(("r", "o", 17)) is None
    assert mark_of(path) == 0
    assert b"SECRET 17 " not in files_of(tmp_path)
    assert await store.verify() == 99 + 3
    await store.aclose()


async def test_in_a_sealed_store_only_the_one_who_forgets_is_told(tmp_path, monkeypatch):
    """Commits that a sealed store makes together with one whose bytes stay are acknowledged, and the store goes on."""

    def rewrite(connection, path):
        raise apsw.FullError

    plain = SqliteStore(tmp_path / "store.db")
    store = EncryptedStore(plain, KEY)
    await store.commit(*(Put(("r", f"o{number}", 1), b"v") for number in range(3)))
    outcome = {}

    async def one(name, *changes):
        try:
            await store.commit(*changes)
            outcome[name] = None
        except StoreError as error:
            outcome[name] = type(error)

    monkeypatch.setattr(_writer, "rewrite", rewrite)
    async with anyio.create_task_group() as group:
        group.start_soon(one, "leads", Put(("r", "o0", 2), b"v"))
        await anyio.lowlevel.checkpoint()
        group.start_soon(one, "forgets", DeleteAll(("r", "o1")))
        group.start_soon(one, "forgets too", DeleteAll(("r", "o2", 1)), Put(("r", "o0", 3), b"v"))
        group.start_soon(one, "puts", Put(("r", "o0", 1), b"w", expected=1))
        group.start_soon(one, "conflicts", DeleteAll(("r", "o0")), Put(("r", "o0", 1), b"w", expected=7))
    assert outcome == {
        "leads": None, "forgets": NotErasedError, "forgets too": NotErasedError, "puts": None, "conflicts": ConflictError,
    }  # fmt: skip
    for each in (store, EncryptedStore(SqliteStore(plain.path), KEY)):
        assert {item.key: item.version async for item in each.scan(())} == {
            ("r", "o0", 1): 2, ("r", "o0", 2): 1, ("r", "o0", 3): 1,
        }  # fmt: skip
        assert await each.verify() == 3
        monkeypatch.undo()
        await each.commit(Put(("r", "o1", 1), b"again", expected=0), Delete(("r", "o1", 1)))
        await each.aclose()
    assert mark_of(plain.path) == 0


async def test_a_damaged_file_is_not_written_anew(tmp_path):
    """Damage that VACUUM would copy into a file that looks sound stays to be found; the one who forgets is told of it."""
    path = tmp_path / "store.db"
    store = SqliteStore(path)
    await store.commit(*(Put(("r", "o", number), b"%d " % number * 60) for number in range(100)))
    await store.aclose()
    content = bytearray(path.read_bytes())
    leaf = next(at for at in range(0, len(content), 4096) if content[at] == 0x0A and content[at + 4] > 5)
    content[leaf + 4] -= 1  # a row less, says the page
    assert await store.get(("r", "o", 100)) is None  # opening it, which checks the pages
    path.write_bytes(content)
    with pytest.raises(NotErasedError) as caught:
        await store.commit(DeleteAll(("r", "o", 99)))
    assert isinstance(caught.value.__cause__, DamagedStoreError)
    assert await store.get(("r", "o", 99)) is None
    await store.aclose()
    with pytest.raises(DamagedStoreError):
        await store.verify()
    await store.aclose()


async def test_a_mark_that_came_meanwhile_stays(tmp_path):
    """Who has written the file anew does not take away the mark of a deletion that came afterwards."""
    store = SqliteStore(tmp_path / "store.db")
    await store.commit(Put(("r", "o", 1), b"v"))
    connection = store._opened.writer._connection
    for _ in range(3):
        _erasure.mark(connection)
        first = _erasure.marked(connection)
        _erasure.mark(connection)
        second = _erasure.marked(connection)
        assert 0 < first != second > 0
        _erasure.unmark(connection, first)
        assert _erasure.marked(connection) == second
        _erasure.unmark(connection, second)
        assert _erasure.marked(connection) == 0
    await store.aclose()


# Processes that are killed

KILLED = """
import anyio, os, signal, sys
from graphagent.store import *
from graphagent.store.sqlite import _writer as writer, _erasure as erasure
path, where = sys.argv[1:]
erasure._CACHE_KIBIBYTES = 64

def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)

def rewrite(*arguments):
    erasure.rewrite(*arguments)
    die()

if where == "before rewriting":
    writer.rewrite = die
elif where == "before emptying the log":
    writer.rewrite = rewrite
elif where == "before unmarking":
    writer.unmark = die

async def main():
    store = SqliteStore(path)
    await store.get(("r", "kept", 1))
    print("go", flush=True)
    await store.commit(DeleteAll(("r", "gone")), Put(("r", "forgot"), b"v"))
    print("done", flush=True)

anyio.run(main)
"""


def killed(path, where, seconds=None):
    """Return whether a process that forgets, and is killed at a place or after a time, said that it was done."""
    environment = {**os.environ, "SQLITE_TMPDIR": str(path.parent / "temporary")}
    child = forkserver.Popen(
        [sys.executable, "-W", "error", "-c", KILLED, str(path), where], stdout=subprocess.PIPE, env=environment
    )
    assert child.stdout.readline() == b"go\n"
    try:
        child.wait(seconds)
    except subprocess.TimeoutExpired:
        child.send_signal(signal.SIGKILL)
    output, _ = child.communicate(timeout=600)
    assert child.returncode in (0, -signal.SIGKILL)
    return output == b"done\n"


async def filled(path, count):
    path.parent.mkdir()
    (path.parent / "temporary").mkdir()
    async with SqliteStore(path) as store:
        for start in range(0, count, 20):
            await store.commit(
                *(Put(("r", "gone", number), b"SECRET" * 50) for number in range(start, start + 20)),
                *(Put(("r", "kept", number), b"v" * 5000) for number in range(start, start + 20)),
            )


async def finished(path, count):
    """Whoever opens the store next only reads, and closes it; then nothing is left."""
    async with SqliteStore(path) as store:
        await store.get(("r", "kept", 1))
    assert mark_of(path) == 0
    assert b"SECRET" not in files_of(path.parent)
    assert sorted(each.name for each in path.parent.iterdir()) == ["store.db", "temporary"]
    assert not list((path.parent / "temporary").iterdir())
    async with SqliteStore(path) as store:
        assert await store.verify() == count + 1


@pytest.mark.parametrize("where", ["before rewriting", "before emptying the log", "before unmarking"])
def test_killed_while_forgetting(tmp_path, where):
    """A process that dies between the commit and its end leaves a mark, and whoever opens the store next finishes it."""
    path = tmp_path / "store" / "store.db"
    anyio.run(filled, path, 40)
    assert not killed(path, where)
    assert (b"SECRET" in files_of(path.parent)) == (where != "before unmarking")
    anyio.run(finished, path, 40)


def test_killed_at_any_moment_of_forgetting(tmp_path):
    """After kill -9 at a random moment either nothing is forgotten, or all of it is gone as soon as the store was opened."""
    anyio.run(filled, tmp_path / "made" / "store.db", 2000)
    chance, committed, done, whole = random.Random(1), 0, 0, 0.0
    for number in range(KILLS):
        shutil.copytree(tmp_path / "made", tmp_path / f"{number}")
        path = tmp_path / f"{number}" / "store.db"
        began = time.monotonic()
        told = killed(path, "", chance.uniform(0.0, whole) if number else None)
        if not number:  # how long it takes, undisturbed, on this machine
            assert told
            whole = time.monotonic() - began
        if told:
            done += 1
            assert b"SECRET" not in files_of(path.parent)

        async def look(path=path):
            async with SqliteStore(path) as store:
                left = [item async for item in store.scan(("r", "gone"))]
                forgot = await store.get(("r", "forgot"))
            assert len(left) == (2000 if forgot is None else 0)
            return forgot is not None

        if anyio.run(look):
            committed += 1
            anyio.run(finished, path, 2000)
        shutil.rmtree(path.parent)
    assert 1 <= done <= committed
