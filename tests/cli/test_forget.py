"""`graphagent forget`: an owner as a whole, or a fact with what it has reached, over all that commands keep."""

from __future__ import annotations

import json

import anyio
import pytest

from graphagent import Agent
from graphagent.memory import AgentMemory, EncryptedMemoryProvider, FileMemoryProvider, Subject
from graphagent.store import EncryptedStore, SqliteStore, new_key
from graphagent.testing import ScriptedModel
from graphagent_strategies import single_run


@pytest.fixture(params=["plain", "sealed"])
def kept(request, home, run, monkeypatch):
    """What commands keep in the default folder, plain or sealed, and the options with which it is opened."""
    key = new_key()
    monkeypatch.setenv("TEST_KEY", key)
    options = ["--key", "env:TEST_KEY"] if request.param == "sealed" else []
    for owner in ("canary-ada", "bob"):
        assert run("facts", "set", "city", "Osaka", "--owner", owner, *options).code == 0
        assert run("notes", "remember", "Osaka is far.", "--owner", owner, *options).code == 0

    async def talk():
        folder = home / "home"
        provider = (
            EncryptedMemoryProvider(folder / "memory", key=key) if options else FileMemoryProvider(folder / "memory")
        )
        plain = SqliteStore(folder / "runs.db")
        async with provider, plain:
            agent = Agent(
                single_run(),
                model=ScriptedModel(["There.", "There."]),
                store=EncryptedStore(plain, key) if options else plain,
            )
            agent.install(
                AgentMemory, provider=provider, agent_name="chat", subjects=[Subject("user")], recall=True, learn=False
            )
            for owner in ("canary-ada", "bob"):
                await agent.run("Where?", owner=owner, run_id=f"talk-{owner}", thread="canary-thread")

    anyio.run(talk)
    return options


def names(home, word):
    return [
        file.name
        for file in (home / "home").rglob("*")
        if word in str(file).encode() or (file.is_file() and word in file.read_bytes())
    ]


def test_an_owner_is_forgotten_everywhere(run, kept, home):
    """It shows what there is, forgets it in all places, and leaves no name and what others have."""
    shown = run("forget", "--all", "--owner", "canary-ada", "--dry-run", *kept)
    assert shown.code == 0
    assert "1 version of facts" in shown.err
    assert "1 note" in shown.err
    assert "1 run, 1 thread" in shown.err
    done = run("forget", "--all", "--owner", "canary-ada", "--yes", *kept)
    assert done.out.startswith("Forgotten: 1 version of facts, 1 note, 1 run, 1 thread, ")
    assert names(home, b"canary-ada") == []
    assert run("facts", "show", "city", "--owner", "bob", *kept).code == 0
    assert "talk-bob" in run("runs", "list", "--owner", "bob", *kept).out
    again = run("forget", "--all", "--owner", "canary-ada", "--yes", *kept)
    assert (again.code, "nothing was forgotten" in again.err) == (1, True)


def test_a_fact_is_forgotten_with_what_is_chosen(run, kept):
    """The list has the runs and notes that it stood in, without the value; what is chosen by number or id goes with it."""
    shown = run("forget", "city", "--owner", "canary-ada", "--dry-run", *kept)
    assert "1  run talk-canary-ada" in shown.err
    assert "2  note" in shown.err
    assert "Osaka" not in shown.said
    assert run("facts", "show", "city", "--owner", "canary-ada", *kept).code == 0
    wrong = run("forget", "city", "--owner", "canary-ada", "--also", "3", "--yes", *kept)
    assert (wrong.code, "'3' is not in the list" in wrong.said) == (2, True)
    done = run("forget", "city", "--owner", "canary-ada", "--also", "talk-canary-ada", *kept, stdin="y\n")
    assert "Forgotten: 1 version of facts, 1 run, " in done.out
    assert "1 place where it stood stayed" in done.err
    assert "Osaka is far." in run("notes", "list", "--owner", "canary-ada", *kept).out


def test_a_note_is_named_by_a_part_of_its_id(run, kept):
    """As in other commands; one that does not exist is an error, and nothing is forgotten."""
    [note] = json.loads(run("notes", "list", "--owner", "bob", "--json", *kept).out)
    assert run("forget", "--note", "zzzz", "--owner", "bob", "--yes", *kept).code == 1
    done = run("forget", "--note", note["id"][:6], "--owner", "bob", "--yes", *kept)
    assert done.out.startswith("Forgotten: 1 note, ")


def test_what_is_old_is_forgotten(run, kept):
    """Of one owner, where nothing newer is among it; an age that is none is refused."""
    young = run("forget", "--older-than", "1d", "--owner", "bob", "--dry-run", *kept)
    assert (young.code, young.err) == (0, "Nothing of owner 'bob' is older than 1d.\n")
    assert run("forget", "--older-than", "1d", "--owner", "bob", "--yes", *kept).out == "Forgotten: nothing.\n"
    shown = run("forget", "--older-than", "0.001s", "--owner", "bob", "--dry-run", *kept).err
    assert all(each in shown for each in ("1 version of facts", "1 note", "1 run"))
    done = run("forget", "--older-than", "0.001s", "--owner", "bob", *kept, stdin="y\n")
    assert "Forgotten: 1 version of facts, 1 note, 1 run, " in done.out
    assert run("facts", "show", "city", "--owner", "canary-ada", *kept).code == 0
    for wrong in ("soon", "0d"):
        assert run("forget", "--older-than", wrong, "--owner", "bob", "--yes", *kept).code == 2


def test_no_is_no(run, kept):
    """Without an agreement, nothing is forgotten."""
    assert run("forget", "--all", "--owner", "bob", *kept, stdin="n\n").code == 1
    assert run("facts", "show", "city", "--owner", "bob", *kept).code == 0


@pytest.mark.parametrize(
    "words", [[], ["city", "--all"], [" "], ["--all", "--also", "1"], ["--all", "--store", "missing"]]
)
def test_it_has_to_be_said_what(run, words):
    """Nothing, a blank, or something besides everything is refused, and so is a folder that does not exist."""
    assert run("forget", *words).code == 2


def test_facts_forget_says_what_may_repeat_it(run, kept):
    """Where a fact stood in runs or notes that are kept in the same place, another command shows and forgets these."""
    said = run("facts", "forget", "city", "--owner", "bob", "--yes", *kept)
    assert "These may repeat it: 1 run, 1 note." in said.err
    command = said.err.rpartition("with: ")[2].split()
    assert command[:4] == ["graphagent", "forget", "city", "--owner"]
    assert "run talk-bob" in run(*command[1:], "--dry-run").err
    said = run("facts", "forget", "--all", "--owner", "canary-ada", "--yes", *kept)
    assert "may repeat it: 1 note, 1 run, 1 thread." in said.err
