"""Changes that end in the middle, and indexes that others make anew: notes are what they were, or what they are to be."""

from __future__ import annotations

import random
import signal
import sys
from contextlib import suppress

import anyio
import pytest

from graphagent.errors import StoreError
from graphagent.memory import Notes, Turn
from graphagent.store import MemoryStore, SqliteStore
from graphagent.testing import ScriptedModel
from tests.memory.notes.conftest import Words
from tests.memory.notes.enrich.test_consolidation import GIVEN, ONE, TWO, plan
from tests.memory.notes.test_faults import run

pytestmark = pytest.mark.every_kind


class Breaking(SqliteStore):
    """Fails at a commit of our choice, as a full disk does."""

    left = sys.maxsize

    async def commit(self, *changes, along=None):
        self.left -= 1
        if self.left < 0:
            raise StoreError("the disk is full")
        await super().commit(*changes, along=along)


class BreakingMemory(MemoryStore):
    """The same, where the tables stand beside the store."""

    left = sys.maxsize

    async def commit(self, *changes):
        self.left -= 1
        if self.left < 0:
            raise StoreError("the disk is full")
        await super().commit(*changes)


OPERATIONS = {
    "remember": lambda notes, kept: notes.remember("new"),
    "remember_many": lambda notes, kept: notes.remember_many([f"new {number}" for number in range(1_200)]),
    "remember_conversation": lambda notes, kept: notes.remember_conversation([Turn("hi"), Turn("ho")], session="s"),
    "update": lambda notes, kept: notes.update(kept, content="changed", scope="/moved", importance=1.0),
    "undo": lambda notes, kept: notes.undo(kept),
    "forget": lambda notes, kept: notes.forget(ids=[kept]),
    "reset": lambda notes, kept: notes.reset(),
}


@pytest.mark.parametrize("sort", ["file", "memory"])
@pytest.mark.parametrize("operation", OPERATIONS.values(), ids=OPERATIONS)
async def test_a_change_is_one_commit(sort, operation, tmp_path):
    """Whichever commit fails, nothing of the change is made; and one that goes through is all that it needs."""
    store = Breaking(tmp_path / "notes.db") if sort == "file" else BreakingMemory()
    notes = Notes(store, embedder=Words())
    kept = await notes.remember("pear")
    await notes.update(kept.id, content="pear once more")
    await notes.remember("apple")
    before = [each async for each in notes.export()]
    store.left = 0
    with pytest.raises(StoreError, match="full"):
        await operation(notes, kept.id)
    assert [each async for each in notes.export()] == before
    assert await notes.verify() == 2
    found = await notes.recall("pear")
    assert found[0].record.content == "pear once more"
    assert "semantic" in found[0].reasons
    store.left = 1
    await operation(notes, kept.id)
    store.left = sys.maxsize
    assert [each async for each in notes.export()] != before
    await notes.verify()


@pytest.mark.parametrize("commits", range(5))
async def test_a_consolidation_that_is_broken_off_loses_no_words(tmp_path, commits):
    """Wherever the store fails, what the notes said is in a note or in a history, and the rest of it can be done later."""
    store = Breaking(tmp_path / "notes.db")
    merged = "The staging server moved from port 8080 to 9090"
    model = ScriptedModel([plan((0, "update", merged), (1, "delete"))] * 2)
    async with Notes(store, model=model, embedder=Words()) as notes:
        old = await notes.remember(ONE, **GIVEN, infer="never")
        new = await notes.remember(TWO, **GIVEN, infer="never")
    store.left = commits
    async with Notes(store, model=model, embedder=Words()) as notes:
        third = None
        with suppress(StoreError):
            third = await notes.remember(TWO.replace("9090", "9091"), **GIVEN, infer="now")
        store.left = sys.maxsize
        await notes.verify()
        for id_, text in ((old.id, ONE), (new.id, TWO)):
            now = await notes.get(id_)
            said = [*([now.content] if now else []), *[past.content for past, *_ in await notes.history(id_)]]
            assert text in said
        assert third is None or await notes.get(third.id)


CHANGES = """
import sys, anyio
from graphagent.memory import Notes
from tests.memory.notes.conftest import Words
async def main():
    notes = Notes(sys.argv[1], embedder=Words())
    number = int(sys.argv[3])
    while True:
        await notes.update(sys.argv[2], content=f"pear version{number}", scope=f"/s{number % 3}")
        print(number, flush=True)
        number += 1
anyio.run(main)
"""


@pytest.mark.parametrize("anyio_backend", ["asyncio"])  # it is about processes
async def test_a_process_killed_while_changing_a_note_loses_neither_the_note_nor_what_it_was(tmp_path):
    """At random moments: there is one note, it is the last that was told or the next, and its history has all before."""
    choose = random.Random(3)
    async with Notes(tmp_path / "notes.db", embedder=Words()) as notes:
        kept = await notes.remember("pear version0")
    number = 0
    for _ in range(5):
        process = run(CHANGES, tmp_path / "notes.db", kept.id, number + 1)
        told = process.stdout.readline()
        await anyio.sleep(choose.uniform(0, 0.1))
        process.send_signal(signal.SIGKILL)
        told += await anyio.to_thread.run_sync(
            process.stdout.read
        )  # communicate() passes over what readline() read ahead
        process.communicate()
        last = int(told.split()[-1])
        async with Notes(tmp_path / "notes.db", embedder=Words()) as notes:
            assert await notes.verify() == 1
            [record] = await notes.list_records()
            number = int(record.content.removeprefix("pear version"))
            assert number in (last, last + 1)
            assert [past.content for past, *_ in await notes.history(kept.id)] == [
                f"pear version{each}" for each in reversed(range(number))
            ]
            found = await notes.recall(record.content)
            assert [match.record.id for match in found] == [kept.id]
            assert "semantic" in found[0].reasons


REINDEXES = """
import sys, anyio
from graphagent.memory import Notes
from graphagent.memory.notes.index._backend import SqliteIndex
async def stop(self, load):
    print("dropped", flush=True)
    await anyio.sleep_forever()
async def main():
    notes = Notes(sys.argv[1])
    assert len(await notes.list_records(limit=1)) == 1
    if sys.argv[2] == "in the middle":
        SqliteIndex.open = stop
    while True:
        print("begun", flush=True)
        assert await notes.reindex() == 400
anyio.run(main)
"""


@pytest.mark.parametrize("anyio_backend", ["asyncio"])  # it is about processes
@pytest.mark.parametrize("when", ["in the middle", "at any time"])
async def test_a_process_killed_while_it_makes_the_index_anew_leaves_notes_that_are_found(tmp_path, when):
    """Whenever it ends, whoever opens the notes next finds all of them."""
    choose = random.Random(8)
    async with Notes(tmp_path / "notes.db") as notes:
        await notes.remember_many([f"pear number{number}" for number in range(400)])
    for _ in range(1 if when == "in the middle" else 3):
        process = run(REINDEXES, tmp_path / "notes.db", when)
        process.stdout.readline()
        if when == "in the middle":
            assert process.stdout.readline() == "dropped\n"
        await anyio.sleep(choose.uniform(0, 0.12))
        process.send_signal(signal.SIGKILL)
        await anyio.to_thread.run_sync(process.communicate)
        async with Notes(tmp_path / "notes.db") as notes:
            assert await notes.verify() == 400
            assert [match.record.content for match in await notes.recall("number77", limit=1)] == ["pear number77"]
            assert (await notes.info()).record_count == 400


async def test_who_speaks_is_known_to_notes_that_were_opened_before(tmp_path):
    """A name that another handle brought in counts in the next question."""
    one, two = Notes(tmp_path / "n.db"), Notes(tmp_path / "n.db")
    await one.remember_conversation([Turn("pears are ripe", "Ann")], session="s")
    assert await one.recall("What did Zoe say of pears?")
    await two.remember_conversation([Turn("pears are ripe", "Zoe")], session="t")
    [best, *_] = await one.recall("What did Zoe say of pears?")
    assert best.record.speaker == "Zoe"
    assert "speaker" in best.reasons
    await one.aclose()
    await two.aclose()


async def test_notes_that_are_open_go_on_where_another_process_died_while_making_the_index_anew(tmp_path):
    """They make it themselves; nobody is told that the file is damaged."""
    notes = Notes(tmp_path / "notes.db")
    await notes.remember("pear")
    other = Notes(tmp_path / "notes.db")
    await other.info()
    await other._service.repository.backend.drop()  # what a process has done that dies in the middle of reindex()
    await other.aclose()
    assert [match.record.content for match in await notes.recall("pear")] == ["pear"]
    await notes.remember("apple")
    assert await notes.verify() == 2
    await notes.aclose()
