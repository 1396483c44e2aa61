"""What only reads a store that does not exist creates nothing."""

from __future__ import annotations

import os
import pickle

import pytest

from graphagent.errors import StoreNotFoundError
from graphagent.history import run_owners, verify_runs
from graphagent.memory import (
    Concept,
    EncryptedMemoryProvider,
    FileMemoryProvider,
    Notes,
    Scope,
    StoreMemoryProvider,
    Subject,
)
from graphagent.run import list_runs
from graphagent.store import EncryptedStore, Put, SqliteStore, new_key

KEY = new_key()
MISSING = {
    "a file": lambda path: SqliteStore(path),
    "a sealed file": lambda path: EncryptedStore(SqliteStore(path), KEY),
    "readable facts": lambda path: FileMemoryProvider(path),
    "sealed facts": lambda path: EncryptedMemoryProvider(path, key=KEY),
    "notes": lambda path: Notes(path),
}


@pytest.mark.parametrize("what", MISSING)
async def test_verify_refuses_what_does_not_exist(tmp_path, what):
    """It names the path, and what is beside it; a misspelt path is not sound, and stays missing."""
    (tmp_path / "data.db").write_text("")
    with pytest.raises(StoreNotFoundError) as raised:
        await MISSING[what](tmp_path / "dta.db").verify()
    assert isinstance(raised.value, FileNotFoundError)
    assert raised.value.path.startswith(str(tmp_path / "dta.db"))
    assert "'data.db'" in str(raised.value) or what == "sealed facts"
    assert str(pickle.loads(pickle.dumps(raised.value))) == str(raised.value)
    assert os.listdir(tmp_path) == ["data.db"]


CITY, USER, APP = Concept("city"), Subject("user"), Scope.product("my-app")


async def notes_of(path):
    async with Notes(path) as notes:
        return [*await notes.recall("anything"), *await notes.list_records(), *await notes.owners()]


async def runs_of(path):
    store = SqliteStore(path)
    return [*await list_runs(store), *await run_owners(store), *([] if await verify_runs(store) == 0 else ["a run"])]


async def facts_of(provider):
    found = [*await provider.load(CITY, USER, APP), *await provider.history(CITY, USER, APP)]
    found += [record async for record in provider.export()]
    return [*found, *([] if (await provider.forget(everything=True)).facts == 0 else ["a fact"])]


READ = {
    "a file": lambda path: SqliteStore(path).get(("a", "b")),
    "a sealed file": lambda path: EncryptedStore(SqliteStore(path), KEY).get(("a", "b")),
    "runs": runs_of,
    "readable facts": lambda path: facts_of(FileMemoryProvider(path)),
    "readable facts in a folder of something else": lambda path: facts_of(FileMemoryProvider(path.parent)),
    "sealed facts": lambda path: facts_of(EncryptedMemoryProvider(path, key=KEY)),
    "facts in a store": lambda path: facts_of(StoreMemoryProvider(SqliteStore(path))),
    "notes": notes_of,
}


@pytest.mark.parametrize("what", READ)
async def test_reading_what_does_not_exist_makes_nothing(tmp_path, what):
    """Nothing is found, and neither a file nor a folder is made; what is written afterwards is found."""
    (tmp_path / "data.db").write_text("")
    assert not await READ[what](tmp_path / "folder" / "x.db" if "of something" not in what else tmp_path / "x.db")
    assert os.listdir(tmp_path) == ["data.db"]


async def test_what_is_written_after_reading_nothing_is_found(tmp_path):
    """By the same object, and by another process that had found nothing."""
    one, two = SqliteStore(tmp_path / "x.db"), SqliteStore(tmp_path / "x.db")
    assert await one.get(("a", "b")) is None
    assert await two.get(("a", "b")) is None
    await one.commit(Put(("a", "b"), b"v"))
    assert [(await each.get(("a", "b"))).value for each in (one, two)] == [b"v", b"v"]
    await one.aclose()
    await two.aclose()
