"""Copying a store into another one: every item at its version, from any kind into any kind, interrupted and continued."""

from __future__ import annotations

import subprocess
import sys

import anyio
import pytest

from graphagent import Agent
from graphagent.errors import PlainStoreError, SealedStoreError, StoreError, StoreExistsError
from graphagent.history import read_run
from graphagent.memory import Concept, Notes, Scope, SingleFact, StoreMemoryProvider, Subject
from graphagent.run import list_runs
from graphagent.store import Delete, EncryptedStore, MemoryStore, Put, SqliteStore, copy_store
from graphagent.testing import ScriptedModel
from graphagent_strategies import single_run
from tests.testing.dictionary import Dictionary

KEY, OTHER = bytes(32), bytes([1]) * 32
CITY, USER, APP = Concept("city"), Subject("user"), Scope.product("my-app")
KINDS = {
    "memory": lambda path: MemoryStore(),
    "plain": SqliteStore,
    "sealed": lambda path: EncryptedStore(SqliteStore(path), KEY),
    "sealed anew": lambda path: EncryptedStore(SqliteStore(path), OTHER),
    "of somebody else": lambda path: Dictionary(),
}


async def fill(store):
    for number in range(1200):
        await store.commit(Put(("things", f"part {number % 7}", number), b"%d" % number * (1 + number % 300)))
    for _ in range(3):
        await store.commit(Put(("things", "part 1", 1), b"again"))
    async with Notes(store) as notes:
        [note] = await notes.remember_many(["a betel shop"])
        for text in ("the betel shop", "the old betel shop"):
            note = await notes.update(note.id, text)
    await StoreMemoryProvider(store).save(SingleFact(CITY, "Oslo"), USER, APP)
    await Agent(single_run(), model=ScriptedModel(["Hello."]), store=store).run("Hi.", run_id="r", thread="t")


async def items(store):
    return {item.key: item async for item in store.scan(())}


@pytest.mark.parametrize("to", ["memory", "plain", "sealed anew", "of somebody else"])
@pytest.mark.parametrize("source", ["memory", "plain", "sealed"])
async def test_everything_is_copied_at_its_version(tmp_path, source, to):
    """Runs with their threads, facts and notes with their histories are used where they are then; the source is not written."""
    one, two = KINDS[source](tmp_path / "a.db"), KINDS[to](tmp_path / "b.db")
    await fill(one)
    before = await items(one)
    assert await copy_store(one, two) == len(before)
    assert await items(two) == before == await items(one)
    assert await copy_store(one, two) == len(before)  # who was interrupted before it took note of the end copies again
    async with Notes(two) as notes:
        [match] = await notes.recall("betel")
        assert match.record.version == 3
        changed = await notes.update(match.record.id, "the new betel shop")
        assert changed.version == 4
        assert [each.record.version for each in await notes.history(changed.id)] == [3, 2, 1]
    assert [fact.value for fact in await StoreMemoryProvider(two).load(CITY, USER, APP)] == ["Oslo"]
    assert [head.run_id for head in await list_runs(two, thread="t")] == ["r"]
    assert (await read_run(two, "r")).head.status == "done"
    answer = await Agent(single_run(), model=ScriptedModel(["And hello."]), store=two).run("Again.", thread="t")
    assert answer.output == "And hello."
    with pytest.raises(StoreExistsError):
        await copy_store(one, two)


class Interrupted(Exception):
    pass


class Failing:
    """A store that fails at one of its commits."""

    def __init__(self, store, commits):
        self.store, self.left = store, commits

    def __getattr__(self, name):
        return getattr(self.store, name)

    async def commit(self, *changes):
        self.left -= 1
        if self.left < 0:
            raise Interrupted
        await self.store.commit(*changes)


@pytest.mark.parametrize("to", ["memory", "sealed anew"])
async def test_a_copy_that_was_interrupted_is_continued(tmp_path, to):
    """Wherever it was interrupted, and whatever has changed in the source since; until it is complete, it is not copied from."""
    source = KINDS["sealed"](tmp_path / "a.db")
    await fill(source)
    commits = 0
    while True:
        target = KINDS[to](tmp_path / f"{commits}.db")
        try:
            await copy_store(source, Failing(target, commits))
        except Interrupted:
            if commits:
                with pytest.raises(StoreError, match="interrupted"):
                    await copy_store(target, MemoryStore())
        else:
            break
        await source.commit(Delete(("things", "part 1", 1)), Put(("things", "part 2", 2), b"%d" % commits))
        await source.commit(Put(("things", "part 1", 1), b"new"))
        await source.commit(Delete(("things", "part 3", 3 + 7 * commits)))
        assert await copy_store(source, target) == len(await items(source))
        assert await items(target) == await items(source)
        commits += 1
    assert commits > 3


KILLED = """
import os, sys, anyio
from graphagent.store import EncryptedStore, SqliteStore, copy_store
class Killed(SqliteStore):
    left = int(sys.argv[3])
    async def commit(self, *changes, **more):
        Killed.left -= 1
        if Killed.left == 0:
            os.kill(os.getpid(), 9)
        await super().commit(*changes, **more)
anyio.run(copy_store, SqliteStore(sys.argv[1]), EncryptedStore(Killed(sys.argv[2]), bytes(32)))
"""


def test_a_copy_whose_process_was_killed_is_continued(tmp_path):
    """By another process, into the same file."""

    async def main():
        source = SqliteStore(tmp_path / "a.db")
        await fill(source)
        target = EncryptedStore(SqliteStore(tmp_path / "b.db"), KEY)
        for moment in ("3", "2", "2"):
            command = [sys.executable, "-c", KILLED, str(tmp_path / "a.db"), str(tmp_path / "b.db"), moment]
            done = await anyio.run_process(command, check=False)
            assert done.returncode == -9
        assert await copy_store(source, target) == len(await items(source))
        assert await items(target) == await items(source)
        await target.aclose()
        await source.aclose()

    anyio.run(main)
    assert subprocess.run(["ls", tmp_path], capture_output=True, text=True, check=True).stdout.split() == [
        "a.db",
        "b.db",
    ]


async def test_a_store_that_is_opened_without_its_key_is_not_copied(tmp_path):
    """Neither from nor into: its rows would be of no use anywhere."""
    await fill(KINDS["sealed"](tmp_path / "a.db"))
    await fill(SqliteStore(tmp_path / "p.db"))
    with pytest.raises(SealedStoreError):
        await copy_store(SqliteStore(tmp_path / "a.db"), MemoryStore())
    with pytest.raises(SealedStoreError):
        await copy_store(SqliteStore(tmp_path / "p.db"), SqliteStore(tmp_path / "a.db"))
    with pytest.raises(PlainStoreError):
        await copy_store(MemoryStore(), EncryptedStore(SqliteStore(tmp_path / "p.db"), KEY))


async def test_names_are_hidden_by_other_tags_in_the_copy(tmp_path):
    """The keys that no rotation replaces are new in a copy."""
    one, two = SqliteStore(tmp_path / "a.db"), SqliteStore(tmp_path / "b.db")
    await EncryptedStore(one, KEY).commit(Put(("things", "a name"), b"v"))
    await copy_store(EncryptedStore(one, KEY), EncryptedStore(two, KEY))
    keys = [{item.key async for item in store.scan(("i",))} for store in (one, two)]
    assert keys[0].isdisjoint(keys[1])
