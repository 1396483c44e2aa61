"""What an index in memory reads again after others have changed notes: these, and no others."""

from __future__ import annotations

import random

import pytest

from graphagent.memory import Note, Notes
from graphagent.memory.notes.index import _index_sync, _storage
from graphagent.store import MemoryStore


class Watched(MemoryStore):
    """Keeps the ids of the notes that are read, by a scan or one by one."""

    def __init__(self):
        super().__init__()
        self.scanned = self.named = 0

    def scan(self, prefix, **options):
        self.scanned += prefix[2:] == (_storage.NOTES,)
        return super().scan(prefix, **options)

    async def get_many(self, keys):
        keys = list(keys)
        self.named += sum(key[2:3] == (_storage.NOTES,) for key in keys)
        return await super().get_many(keys)


async def test_only_the_notes_that_others_changed_are_read_again():
    """Each change says which notes it was of; they are read by their keys, however many others there are."""
    store = Watched()
    one, other = Notes(store), Notes(store)
    kept = await one.remember_many([Note(f"pear {number}") for number in range(100)])
    await other.recall("pear")
    await one.remember("a zebra")
    await one.update(kept[3].id, "a lion")
    await one.update(kept[4].id, "a lion")
    store.scanned = store.named = 0
    assert await other.list_categories() == {}  # reads the index alone
    assert (store.scanned, store.named) == (0, 3)
    assert sorted(each.record.content for each in await other.recall("zebra lion")) == ["a lion", "a lion", "a zebra"]
    await one.forget(ids=[kept[5].id])
    assert _storage.CHANGED not in {item.key[2] async for item in store.scan(("notes",))}, "the id is nowhere"
    assert kept[5].id not in {record.id for record in await other.list_records()}


@pytest.mark.parametrize("seed", range(4))
async def test_whoever_changes_what_all_have_the_same_index(seed, monkeypatch):
    """Over random changes of three, most of whom look rarely, each finds what there is, also after more changes than are named."""
    monkeypatch.setattr(_index_sync, "_TOLD", 6)
    monkeypatch.setattr(_storage, "NAMED", 3)
    store, choose = MemoryStore(), random.Random(seed)
    all_notes = [Notes(store) for _ in range(3)]
    model = {}
    for step in range(150):
        notes = choose.choice(all_notes)
        action = choose.choice(["add", "add", "add", "many", "update", "forget", "look", "reset"])
        if action == "add":
            record = await notes.remember(f"pear {step}")
            model[record.id] = record.content
        elif action == "many":
            for record in await notes.remember_many([Note(f"pear {step}-{number}") for number in range(5)]):
                model[record.id] = record.content
        elif action == "update" and model:
            id_ = choose.choice(sorted(model))
            model[id_] = (await notes.update(id_, f"pear again {step}")).content
        elif action == "forget" and model:
            id_ = choose.choice(sorted(model))
            await notes.forget(ids=[id_])
            del model[id_]
        elif action == "reset" and step % 10 == 0:
            await notes.reset()
            model = {}
        else:
            found = await notes.recall("pear", limit=1000)
            assert {each.record.id: each.record.content for each in found} == model
    for notes in all_notes:
        assert await notes.verify() == len(model)
    rows = [item async for item in store.scan(("notes",)) if item.key[2] == _storage.CHANGED]
    assert len(rows) <= 3 * 6, "old ones are removed"
