"""Facts and notes in plain SQLite: a value that is not what was written is refused, and never read as another one."""

from __future__ import annotations

import apsw
import pytest

from graphagent.errors import DamagedStoreError
from graphagent.memory import Concept, FactType, MultipleFacts, Notes, Scope, SingleFact, StoreMemoryProvider, Subject
from graphagent.store import SqliteStore
from tests.thorough import some

USER, APP = Subject("user"), Scope.product("app")
CITY, TOOLS = Concept("city", "where"), Concept("tools", "", FactType.MULTIPLE)


async def facts(path):
    provider = StoreMemoryProvider(SqliteStore(path))
    found = [*await provider.load_all(USER, APP), *await provider.history(CITY, USER, APP), await provider.verify()]
    return [list(each.values) if hasattr(each, "values") else each for each in found]


async def notes(path):
    async with Notes(path) as kept:
        records = await kept.list_records()
        former = [await kept.history(record.id) for record in records]
        return [record.content for record in records], [len(each) for each in former], await kept.verify()


async def save_facts(path):
    async with SqliteStore(path) as store:
        provider = StoreMemoryProvider(store)
        await provider.save(SingleFact(CITY, "Oslo"), USER, APP)
        await provider.save(SingleFact(CITY, "Bergen"), USER, APP)
        await provider.save(MultipleFacts(TOOLS, ["git"]), USER, APP)


async def save_notes(path):
    async with Notes(path) as kept:
        record = await kept.remember("Ada lives in Oslo.", categories=["people"], metadata={"k": 1})
        await kept.update(record.id, content="Ada lives in Bergen.")


def values_in(path, room):
    connection = apsw.Connection(str(path))
    rows = list(connection.execute("SELECT key, value FROM items WHERE value IS NOT NULL AND length(value) > 0"))
    connection.close()
    return [(key, value) for key, value in rows if room in key]


def put(path, key, value):
    connection = apsw.Connection(str(path))
    connection.execute("UPDATE items SET value=? WHERE key=?", (value, key))
    connection.close()


@pytest.mark.parametrize(
    ("save", "read", "room"), [(save_facts, facts, b"facts"), (save_notes, notes, b"notes")], ids=["facts", "notes"]
)
async def test_a_flipped_bit_of_a_value_is_damage(tmp_path, save, read, room):
    """Whichever bit of whichever value it is, of the last version or of an earlier one: each reader says so or is not affected."""
    path = tmp_path / "s.db"
    await save(path)
    sound = await read(path)
    cases = [
        (key, value, place, bit)
        for key, value in values_in(path, room)
        for place in range(len(value))
        for bit in (1, 32)
    ]
    assert len(cases) > 400
    for key, value, place, bit in some(cases, 60, thorough=600):
        put(path, key, value[:place] + bytes([value[place] ^ bit]) + value[place + 1 :])
        with pytest.raises(DamagedStoreError) as info:
            assert await read(path) != sound
        assert "Oslo" not in str(info.value)
        put(path, key, value)
    assert await read(path) == sound


async def test_text_of_the_file_that_is_none_is_damage(tmp_path):
    """What the driver cannot decode, such as the schema of the search index, is no UnicodeDecodeError of a method of notes."""
    path = tmp_path / "s.db"
    await save_notes(path)
    sound = path.read_bytes()
    places = [place for place in range(100, 4096) if 0x20 <= sound[place] < 0x7F]
    for place in some(places, 40, thorough=400):
        path.write_bytes(sound[:place] + bytes([sound[place] | 0x80]) + sound[place + 1 :])
        for use in (
            lambda kept: kept.list_records(), lambda kept: kept.recall("Oslo"), lambda kept: kept.remember("x"),
            lambda kept: kept.verify(),
        ):  # fmt: skip
            kept = Notes(path)
            try:
                await use(kept)
            except DamagedStoreError:
                pass
            finally:
                await kept.aclose()
