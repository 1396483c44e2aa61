"""A sealed store is opened with its key and a plain one without: the other way round nothing is read, written or mixed."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import anyio
import apsw
import pytest

from graphagent import END, START, Agent, Context, Strategy, node
from graphagent.errors import DamagedStoreError, JournalError, PlainStoreError, SealedStoreError
from graphagent.memory import (
    Concept,
    EncryptedMemoryProvider,
    Notes,
    Scope,
    SingleFact,
    StoreMemoryProvider,
    Subject,
)
from graphagent.store import Delete, DeleteAll, EncryptedStore, Exists, MemoryStore, Put, SqliteStore, new_key
from graphagent.store._items import encode
from tests import forkserver

KEY = bytes(range(32))
HERE = ("room", "ann", 1)
CITY, USER, APP = Concept("city", "where the user lives"), Subject("user", "the user"), Scope.product("app")
OSLO = SingleFact(CITY, "Oslo")


def sealed(path):
    return EncryptedStore(SqliteStore(path), KEY)


async def make_sealed(path):
    async with sealed(path) as store:
        await store.commit(Put(HERE, b"secret"))


async def make_plain(path):
    async with SqliteStore(path) as store:
        await store.commit(Put(HERE, b"open"))


async def all_rows(path):
    async with SqliteStore(path) as store:
        return [item async for item in store.scan(())]


async def listed(store, prefix):
    return [item async for item in store.scan(prefix)]


def put_as_before(path, key, value):
    """Put a row as a store that does not look would."""
    connection = apsw.Connection(str(path))
    connection.execute("INSERT INTO items (key, version, value, apart) VALUES (?, 1, ?, NULL)", (encode(key), value))
    connection.close()


async def by_notes(store):
    async with Notes(store) as notes:
        await notes.remember("The meeting is on Tuesday.")


async def by_notes_that_read(store):
    async with Notes(store) as notes:
        await notes.recall("meeting")


async def by_facts(store):
    await StoreMemoryProvider(store).save(OSLO, USER, APP)


async def by_facts_that_read(store):
    await StoreMemoryProvider(store).load_all(USER, APP)


async def by_facts_that_forget(store):
    await StoreMemoryProvider(store).forget(subject=USER)


@node
async def double(ctx: Context, number: int) -> int:
    return 2 * number


async def by_runs(store):
    with pytest.raises(JournalError) as raised:
        await Agent(Strategy("doubles", START >> double >> END), store=store).run(4)
    raise raised.value.__cause__


ALONG = "CREATE TABLE notes_words (word)"
DOORS = {
    "notes": by_notes,
    "notes that read": by_notes_that_read,
    "facts": by_facts,
    "facts that read": by_facts_that_read,
    "facts that forget": by_facts_that_forget,
    "runs": by_runs,
    "get": lambda store: store.get(HERE),
    "scan": lambda store: listed(store, ("room",)),
    "put": lambda store: store.commit(Put(HERE, b"open")),
    "exists": lambda store: store.commit(Exists(HERE)),
    "delete": lambda store: store.commit(Delete(HERE)),
    "delete all of a room": lambda store: store.commit(DeleteAll(("room",))),
    "delete everything": lambda store: store.commit(DeleteAll(())),
}
ONLY_SQLITE = {
    "along": lambda store: store.commit(along=lambda connection: connection.execute(ALONG)),
    "read": lambda store: store.read(lambda connection: connection.execute("SELECT 1").fetchall()),
}


@pytest.mark.parametrize("door", DOORS | ONLY_SQLITE)
async def test_a_sealed_file_wants_its_key(tmp_path, door):
    """Whoever opens it without is told so before anything is read or written; with it all is there."""
    path = tmp_path / "x.db"
    await make_sealed(path)
    before = await all_rows(path)
    async with SqliteStore(path) as store:
        with pytest.raises(
            SealedStoreError, match=r"x\.db is sealed .* Give EncryptedStore\(SqliteStore\(path\), key\)"
        ) as raised:
            await (DOORS | ONLY_SQLITE)[door](store)
    assert raised.value.where == str(path)
    assert await all_rows(path) == before
    async with sealed(path) as store:
        assert await store.verify() == 1
        assert (await store.get(HERE)).value == b"secret"


@pytest.mark.parametrize("door", DOORS)
async def test_a_sealed_memory_wants_its_key(door):
    """A MemoryStore that was sealed is refused as a file is."""
    within = MemoryStore()
    store = EncryptedStore(within, KEY)
    await store.commit(Put(HERE, b"secret"))
    with pytest.raises(SealedStoreError, match=r"MemoryStore.* is sealed"):
        await DOORS[door](within)
    assert await store.verify() == 1


async def test_a_path_alone_is_no_way_in(tmp_path):
    """Notes that are opened by their path, and facts in the file of sealed ones, are refused; both are sound afterwards."""
    async with Notes(sealed(tmp_path / "notes.db")) as notes:
        await notes.remember("The meeting is on Tuesday.")
    with pytest.raises(SealedStoreError):
        await by_notes(str(tmp_path / "notes.db"))
    async with Notes(sealed(tmp_path / "notes.db")) as notes:
        assert len(await notes.recall("meeting")) == 1
        assert await notes.verify() == 1
    async with EncryptedMemoryProvider(tmp_path, key=KEY) as provider:
        await provider.save(OSLO, USER, APP)
        with pytest.raises(SealedStoreError):
            await by_facts(SqliteStore(tmp_path / "facts.db"))
        assert await provider.verify() == 1


@pytest.mark.parametrize("door", DOORS)
async def test_a_plain_file_is_not_opened_with_a_key(tmp_path, door):
    """It is not called damaged, it stays as it is, and it opens without."""
    path = tmp_path / "x.db"
    await make_plain(path)
    before = await all_rows(path)
    async with sealed(path) as store:
        with pytest.raises(PlainStoreError, match=r"x\.db is not sealed: .* Open it without"):
            await DOORS[door](store)
        with pytest.raises(PlainStoreError):
            await store.verify()
    assert await all_rows(path) == before


async def test_without_its_keys_a_sealed_store_is_damaged(tmp_path):
    """What is left of it is not taken for a plain store."""
    path = tmp_path / "x.db"
    await make_sealed(path)
    connection = apsw.Connection(str(path))
    connection.execute("DELETE FROM items WHERE key=?", (encode(("k",)),))
    connection.close()
    async with sealed(path) as store:
        with pytest.raises(DamagedStoreError):
            await store.get(HERE)


async def test_a_row_of_ones_own_is_not_taken_for_a_seal(tmp_path):
    """A plain store may have an item under the key that the keys of a sealed one have."""
    async with SqliteStore(tmp_path / "x.db") as store:
        await store.commit(Put(("k",), b"mine"), Put(("r",), b"mine"))
        await store.commit(Put(HERE, b"open"))
        assert (await store.get(HERE)).value == b"open"


async def test_a_copy_is_sealed_as_well(tmp_path):
    """The mark moves with the file."""
    await make_sealed(tmp_path / "x.db")
    shutil.copy(tmp_path / "x.db", tmp_path / "copy.db")
    with pytest.raises(SealedStoreError, match=r"copy\.db"):
        await SqliteStore(tmp_path / "copy.db").commit(Put(HERE, b"open"))
    assert await sealed(tmp_path / "copy.db").verify() == 1


async def test_rows_of_any_earlier_version_are_a_sealed_store(tmp_path):
    """The frozen rows of the format have the mark."""
    rows = json.loads((Path(__file__).parent / "format_1.json").read_text("utf-8"))["rows"]
    path = tmp_path / "x.db"
    async with SqliteStore(path) as store:
        await store.commit(Put(HERE, b""))
        await store.commit(Delete(HERE))
    connection = apsw.Connection(str(path))
    for row in rows:
        key, version, value = tuple(row["key"]), row["version"], bytes.fromhex(row["value"])
        connection.execute(
            "INSERT INTO items (key, version, value, apart) VALUES (?, ?, ?, NULL)", (encode(key), version, value)
        )
    connection.close()
    with pytest.raises(SealedStoreError):
        await SqliteStore(path).get(HERE)


def process(code, *arguments):
    """Begin a process that executes the body of an async function."""
    lines = "\n    ".join(code.strip().splitlines())
    program = (
        "import sys, anyio\nfrom graphagent.errors import *\nfrom graphagent.store import *\n"
        f"KEY, HERE = bytes(range(32)), ('room', 'ann', 1)\nasync def main():\n    {lines}\nanyio.run(main)\n"
    )
    pipe = subprocess.PIPE
    return forkserver.Popen([sys.executable, "-c", program, *map(str, arguments)], stdin=pipe, stdout=pipe, text=True)


def done(code, *arguments):
    """Do it, and wait until it is done."""
    with process(code, *arguments) as begun:
        begun.communicate()
    return begun.returncode == 0


async def test_a_file_that_another_process_seals_is_closed_to_who_has_it_open(tmp_path):
    """The next commit is refused, in the transaction that would have made it, and then reads are too."""
    path = tmp_path / "x.db"
    async with SqliteStore(path) as plain:
        assert await plain.get(HERE) is None
        assert done("await EncryptedStore(SqliteStore(sys.argv[1]), KEY).commit(Put(HERE, b's'))", path)
        with pytest.raises(SealedStoreError):
            await plain.commit(Put(HERE, b"open"))
        with pytest.raises(SealedStoreError):
            await plain.get(HERE)
    assert await sealed(path).verify() == 1


async def test_a_file_that_another_process_fills_is_not_sealed(tmp_path):
    """An encrypted store that found the file empty seals nothing that has got rows since."""
    path = tmp_path / "x.db"
    async with sealed(path) as store:
        assert await store.get(HERE) is None
        assert done("await SqliteStore(sys.argv[1]).commit(Put(HERE, b'open'))", path)
        with pytest.raises(PlainStoreError):
            await store.commit(Put(HERE, b"secret"))
    assert [item.key for item in await all_rows(path)] == [HERE]


RACE = """
plain = SqliteStore(sys.argv[1])
store = EncryptedStore(plain, KEY) if sys.argv[2] == "sealed" else plain
print("ready", flush=True)
sys.stdin.readline()
try:
    await store.commit(Put(("room", sys.argv[3], 1), b"value"))
except (SealedStoreError, PlainStoreError) as error:
    print(type(error).__name__)
else:
    print("made")
"""


@pytest.mark.one_value("attempt")
@pytest.mark.parametrize("attempt", range(3))
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_processes_with_and_without_a_key_never_mix(tmp_path, attempt):
    """Of those that begin with a new file at once, all of one kind are let in and all of the other are refused."""
    path = tmp_path / "x.db"
    kinds = ["sealed", "plain"] * 2
    racing = [process(RACE, path, kind, number) for number, kind in enumerate(kinds)]
    for each in racing:
        assert each.stdout.readline() == "ready\n"
    for each in racing:
        each.stdin.write("\n")
        each.stdin.flush()
    said = [each.communicate()[0].strip() for each in racing]
    won = {kind for kind, what in zip(kinds, said, strict=True) if what == "made"}
    assert len(won) == 1, said
    if won == {"sealed"}:
        assert said == ["made", "SealedStoreError"] * 2
        assert await sealed(path).verify() == 2
    else:
        assert said == ["PlainStoreError", "made"] * 2
        assert {item.key[0] for item in await all_rows(path)} == {"room"}


@pytest.mark.parametrize("kind", ["sqlite", "memory"])
async def test_one_store_used_both_ways_at_once_is_one_of_both(tmp_path, kind):
    """Commits that wait together do not mix either."""
    for attempt in range(10):
        within = SqliteStore(tmp_path / f"{attempt}.db") if kind == "sqlite" else MemoryStore()
        store, told = EncryptedStore(within, KEY), []

        async def put(into, number, told=told):
            try:
                await into.commit(Put(("room", str(number), 1), b"value"))
            except (SealedStoreError, PlainStoreError) as error:
                told.append(type(error))

        async with anyio.create_task_group() as group:
            for number in range(8):
                group.start_soon(put, [store, within][(number + attempt) % 2], number)
        rows = {item.key[0] == "room" for item in await listed(within, ())}
        assert len(rows) == 1
        assert set(told) == ({PlainStoreError} if rows == {True} else {SealedStoreError})
        assert len(told) == 4
        if rows == {False}:
            assert await store.verify() == 4
        await store.aclose()


async def test_a_refused_commit_leaves_the_others_alone(tmp_path):
    """Of commits that wait together only those in plain are refused."""
    path = tmp_path / "x.db"
    await make_sealed(path)
    within = SqliteStore(path)
    store, refused = EncryptedStore(within, KEY), []

    async def put(number):
        await store.commit(Put(("room", str(number), 1), b"value"))

    async def put_plain(number):
        try:
            await within.commit(Put(("room", str(number), 1), b"value"))
        except SealedStoreError:
            refused.append(number)

    async with store, anyio.create_task_group() as group:
        for number in range(20):
            group.start_soon(put, number)
            group.start_soon(put_plain, number)
    assert sorted(refused) == list(range(20))
    assert await sealed(path).verify() == 21


FORK = """
import os
path = sys.argv[1]
await EncryptedStore(SqliteStore(path), KEY).commit(Put(HERE, b"secret"))
if child := os.fork():
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
def store_in_plain():
    try:
        anyio.run(SqliteStore(path).commit, Put(HERE, b"open"))
    except SealedStoreError:
        os._exit(0)
    os._exit(7)
import threading
threading.Thread(target=store_in_plain).start()
await anyio.sleep(60)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_forked_process_is_refused_too(tmp_path):
    """A plain store that a child makes of the file finds it sealed."""
    assert done(FORK, tmp_path / "x.db")
    assert await sealed(tmp_path / "x.db").verify() == 1


async def test_verify_says_what_stands_there_in_plain(tmp_path):
    """Of a file that was written to without its key before, it counts the rows, and all that is sealed is still given."""
    path = tmp_path / "x.db"
    await make_sealed(path)
    for number in range(2):
        put_as_before(path, ("notes", "r", number), b"in the open")
    put_as_before(path, ("facts", "r"), b"in the open")
    async with sealed(path) as store:
        with pytest.raises(DamagedStoreError) as raised:
            await store.verify()
        said = str(raised.value)
        assert "rows in plain text (1 in room 'facts', 2 in room 'notes')" in said
        assert "export them with the key, import them into a new store, and delete this one" in said
        assert "backup" not in said
        assert "in the open" not in said
        assert [item.value for item in await listed(store, ())] == [b"secret"]
    assert [item.value for item in await all_rows(path)].count(b"in the open") == 3


async def test_what_is_damaged_besides_is_told_as_damage(tmp_path):
    """Rows in plain do not hide that a sealed one was added."""
    path = tmp_path / "x.db"
    await make_sealed(path)
    put_as_before(path, ("notes", "r"), b"in the open")
    put_as_before(path, ("i", "some", "where"), b"forged")
    with pytest.raises(DamagedStoreError, match="backup"):
        await sealed(path).verify()


class Passing:
    """A store of one's own around another one."""

    def __init__(self, within):
        self._within = within

    async def get(self, key):
        return await self._within.get(key)

    def scan(self, prefix, *, after=None, limit=None, reverse=False):
        return self._within.scan(prefix, after=after, limit=limit, reverse=reverse)

    async def commit(self, *changes):
        await self._within.commit(*changes)


async def test_a_store_in_between_changes_nothing(tmp_path):
    """What lies under a store of one's own is sealed and guarded as without it."""
    within = SqliteStore(tmp_path / "x.db")
    store = EncryptedStore(Passing(within), KEY)
    await store.commit(Put(HERE, b"secret"))
    await store.commit(Put(HERE, b"more"), Delete(("room", "bob", 1)))
    await store.commit(DeleteAll(("room",)))
    assert await store.verify() == 0
    with pytest.raises(SealedStoreError):
        await Passing(within).commit(Put(HERE, b"open"))


@pytest.mark.parametrize("given", ["/some/notes.db", Path("notes.db"), None, pytest.param(new_key(), id="a key")])
def test_what_is_no_store_is_refused_when_it_is_given(given):
    """The error shows the right call, and nothing of what was given, which may be the key."""
    with pytest.raises(TypeError, match=r"EncryptedStore\(SqliteStore\(path\), key\)") as raised:
        EncryptedStore(given, key=KEY)
    assert given is None or str(given) not in str(raised.value)


@pytest.mark.parametrize(
    ("key", "said"), [("short", "this text"), (b"short", "this value of type bytes"), (7, "type int")]
)
def test_what_is_no_key_is_called_so(key, said):
    """And the error names the forms of one."""
    with pytest.raises(ValueError, match=rf"{said}.* is not a key: a key is 32 bytes"):
        EncryptedStore(MemoryStore(), key)
