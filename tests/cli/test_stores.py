"""Where commands look for facts, notes and runs: `--store`, and what it says when nothing is there."""

from __future__ import annotations

import re

import anyio
import pytest

from graphagent import Agent
from graphagent.memory import AgentMemory, StoreMemoryProvider
from graphagent.store import EncryptedStore, SqliteStore, new_key
from graphagent.testing import ScriptedModel
from graphagent_strategies import single_run

OSLO = {"subject": "user", "keyword": "city", "description": "where they live", "value": "Oslo"}

READING = (
    "facts list",
    "facts show city",
    "facts export",
    "notes list",
    "runs list",
)


@pytest.mark.parametrize("words", READING)
def test_a_path_that_does_not_exist_is_refused_and_what_is_beside_it_is_named(run, home, words):
    """The likeliest name first, and what to write; nothing is created."""
    for name in ("data", "other", "dat.db"):
        (home / name).mkdir()
    ended = run(*words.split(), "--store", "dta")
    assert ended.code == 2
    assert re.search(r"there is no .* 'dta'; its folder has 'data/', 'dat.db/', 'other/'; .*--store PATH", ended.said)
    assert sorted(each.name for each in home.iterdir()) == ["dat.db", "data", "other"]


def test_one_folder_has_facts_notes_and_runs(run, home):
    """Each command finds its own in the folder that all are told, and a run of `personal` keeps its facts there."""
    where = ("--store", "data")
    assert run("facts", "set", "city", "Oslo", *where).code == 0
    assert run("notes", "remember", "We chose PostgreSQL.", *where).code == 0
    run("run", "personal", "My dog is called Rex.", "--model", "offline", "--run-id", "first", *where)
    assert {"notes.db", "runs.db"} <= {each.name for each in (home / "data").iterdir()}
    known = run("facts", "list", *where).out
    assert "Oslo" in known
    assert "Rex" in known
    assert "PostgreSQL" in run("notes", "list", *where).out
    assert "first" in run("runs", "list", *where).out


@pytest.mark.parametrize("key", [None, new_key()], ids=["plain", "sealed"])
def test_the_facts_in_the_store_of_a_program_are_read_and_corrected(run, monkeypatch, key):
    """Sealed or not, beside the runs in the same file; only a chat wants a folder, since its conversations are a file in it."""

    async def program():
        async with SqliteStore("assistant.db") as plain:
            store = plain if key is None else EncryptedStore(plain, key)
            agent = Agent(single_run(), model=ScriptedModel(["Noted.", {"facts": [OSLO]}]), store=store)
            agent.install(AgentMemory, provider=StoreMemoryProvider(store))
            await agent.run("I live in Oslo.", owner="ada")

    anyio.run(program)
    where = ("--store", "assistant.db", "--owner", "ada")
    if key is not None:
        assert "is sealed; say where its key is" in run("facts", "list", *where).said
        monkeypatch.setenv("ASSISTANT_KEY", key)
        where = (*where, "--key", "env:ASSISTANT_KEY")
    assert "Oslo" in run("facts", "list", *where).out
    assert run("facts", "set", "city", "Bergen", "--scope", "agent:single_run", "--subject", "user", *where).code == 0
    assert "Bergen" in run("facts", "show", "city", *where).out
    assert run("facts", "forget", "city", "--yes", *where).code == 0
    assert "Nothing is known" in run("facts", "list", *where).said
    assert "a memory is a folder" in run("chat", "--store", "assistant.db").said
    assert "there is no memory 'assistent.db'" in run("facts", "list", "--store", "assistent.db").said


@pytest.mark.parametrize("words", ["", "facts", "facts list", "facts set", "runs", "run", "notes recall"])
def test_help_names_no_types(run, words):
    """As in other command lines, where `--help` stands beside its text, and an argument beside its own."""
    assert not re.search("<(bool|str|path)>", run(*words.split(), "--help").out)
