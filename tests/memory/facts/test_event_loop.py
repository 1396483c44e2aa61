"""The event loop goes on while many facts are read, kept and forgotten: long work is done by other threads, or in parts."""

from __future__ import annotations

import shutil

import anyio
import pytest

from graphagent.memory import (
    Concept,
    EncryptedMemoryProvider,
    FileMemoryProvider,
    Scope,
    SingleFact,
    StoreMemoryProvider,
    Subject,
)
from graphagent.store import SqliteStore
from tests.memory.notes.test_event_loop import MOST, largest_step

KEY = bytes(range(32))
USER, APP = Subject("user", "the user"), Scope.product("app")
COUNT = 1_000
KINDS = {
    "file": lambda folder: FileMemoryProvider(folder / "files"),
    "store": lambda folder: StoreMemoryProvider(SqliteStore(folder / "facts.db")),
    "sealed": lambda folder: EncryptedMemoryProvider(folder / "sealed", key=KEY),
}


def concept(number):
    return Concept(f"concept{number}", f"the description of {number}")


def records(concepts, subjects=1):
    """Export records of COUNT facts, of so many concepts of so many subjects, each with as many versions as are left."""
    return [
        {
            "owner": "ann",
            "scope": {"kind": "product", "name": "app"},
            "subject": f"user{number % subjects}" if subjects > 1 else "user",
            "keyword": f"concept{number % concepts}",
            "values": [f"value {number}"],
            "type": "single",
            "description": f"the description of {number}",
            "timestamp": number,
            "version": number // concepts + 1,
            "source": {"run_id": "", "step": 0, "origin": "", "trust": ""},
            "id": f"id{number}",
        }
        for number in range(COUNT)
    ]


async def exported(provider):
    assert len([each async for each in provider.export(owner="ann")]) == COUNT


async def loaded(provider):
    assert len(await provider.load_all(USER, APP, owner="ann")) == COUNT


async def forgotten(provider):
    assert (await provider.forget(owner="ann", scope=APP)).facts == COUNT


async def imported(provider, given):
    assert await provider.import_(given) == COUNT


OPERATIONS = {
    "load_all": loaded,
    "load_by_description": lambda provider: provider.load_by_description("of 7", USER, APP, owner="ann"),
    "history": lambda provider: provider.history(concept(1), USER, APP, owner="ann"),
    "save": lambda provider: provider.save(SingleFact(concept(1), "new"), USER, APP, owner="ann"),
    "export": exported,
    "forget": forgotten,
    "forget one": lambda provider: provider.forget(owner="ann", concept=concept(1)),
    "verify": lambda provider: provider.verify(),
    "import what is there": lambda provider: provider.import_(records(COUNT)),
}
SHAPES = {"of many concepts": (COUNT, 1), "of one concept": (1, 1), "of many subjects": (COUNT, 250)}


@pytest.fixture(scope="module")
def filled(tmp_path_factory):
    """A folder with many facts in each provider."""
    folder = tmp_path_factory.mktemp("filled")

    async def fill():
        for make in KINDS.values():
            async with make(folder) as provider:
                await provider.import_(records(COUNT))

    anyio.run(fill)
    return folder


@pytest.mark.one_value("kind")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("again", [False, True], ids=["first", "again"])
@pytest.mark.parametrize("name", OPERATIONS)
async def test_other_tasks_have_their_turn(kind, again, name, filled, tmp_path):
    """However many facts there are, no step of the loop does so much that others wait for more than some milliseconds."""
    shutil.copytree(filled, tmp_path, dirs_exist_ok=True)
    async with KINDS[kind](tmp_path) as provider:
        if again:
            await provider.load_all(USER, APP, owner="ann")
        assert await largest_step(lambda: OPERATIONS[name](provider)) <= MOST


@pytest.mark.one_value("kind")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", SHAPES)
async def test_other_tasks_have_their_turn_while_facts_are_imported(kind, shape, tmp_path):
    """Whether they are of many concepts, of many subjects, or versions of one."""
    given = records(*SHAPES[shape])
    async with KINDS[kind](tmp_path) as provider:
        assert await largest_step(lambda: imported(provider, given)) <= MOST
