"""Facts and notes that are kept for a time: what is older is not read, and leaves the disk."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from graphagent import Agent
from graphagent._clock import clock
from graphagent.errors import NoteNotFoundError
from graphagent.history import forget
from graphagent.memory import (
    AgentMemory,
    Concept,
    EncryptedMemoryProvider,
    FileMemoryProvider,
    Notes,
    Scope,
    SingleFact,
    StoreMemoryProvider,
    Subject,
)
from graphagent.store import EncryptedStore, SqliteStore, new_key
from graphagent.testing import ScriptedModel
from graphagent_strategies import single_run

DAY = 86_400_000
USER, SCOPE = Subject("user"), Scope.agent("a")
OLD, NEW = Concept("old", "first"), Concept("new", "second")


@pytest.fixture
def at(monkeypatch):
    """Set the clock to a day: `at(3)`."""
    token = clock.set(lambda: DAY)
    yield lambda day: clock.set(lambda: round(day * DAY))
    clock.reset(token)


def on_disk(folder, word):
    return [file.name for file in folder.rglob("*") if file.is_file() and word in file.read_bytes()]


PROVIDERS = {
    "readable": lambda folder: FileMemoryProvider(folder / "m"),
    "encrypted": lambda folder: EncryptedMemoryProvider(folder / "m", key=new_key()),
    "store": lambda folder: StoreMemoryProvider(SqliteStore(folder / "a.db")),
}


async def test_a_fact_of_the_first_moment_is_as_old_as_any(tmp_path):
    """A time of 0 is a time, and not the lack of one."""
    provider = FileMemoryProvider(tmp_path)
    for time in (0, 1, -1):
        await provider.save(SingleFact(Concept(f"at {time}"), "v", time), USER, SCOPE)
    assert (await forget(provider, older_than=timedelta(days=1))).facts == 3


@pytest.mark.every_loop
@pytest.mark.parametrize("kind", PROVIDERS)
async def test_a_fact_that_has_expired_is_not_read_and_is_erased_when_a_run_ends(tmp_path, at, kind):
    """It is in no prompt at once; the run that came across it erases it with its history, and what is newer stays."""
    provider = PROVIDERS[kind](tmp_path)
    at(100)
    await provider.save(SingleFact(OLD, "canary-first"), USER, SCOPE, owner="ada")
    await provider.save(SingleFact(OLD, "canary-second"), USER, SCOPE, owner="ada")
    at(105)
    await provider.save(SingleFact(NEW, "kept"), USER, SCOPE, owner="ada")
    await provider.save(SingleFact(OLD, "of another"), USER, SCOPE, owner="bob")

    model = ScriptedModel(["Hello.", "Hello."])
    agent = Agent(single_run(), model=model)
    agent.install(
        AgentMemory, provider=provider, agent_name="a", subjects=[USER], recall=True, learn=False,
        keep_for=timedelta(days=10),
    )  # fmt: skip
    at(109.9)
    await agent.run("Hi", owner="ada")
    assert "canary-second" in str(model.requests[0].messages)
    at(110.1)
    await agent.run("Hi", owner="ada")
    assert "canary" not in str(model.requests[1].messages)
    assert "kept" in str(model.requests[1].messages)
    assert await provider.history(OLD, USER, SCOPE, owner="ada") == []
    assert on_disk(tmp_path, b"canary") == []
    assert await provider.load(NEW, USER, SCOPE, owner="ada")
    assert await provider.load(OLD, USER, SCOPE, owner="bob")


async def test_a_clock_that_is_set_back_brings_nothing_back_and_erases_nothing_early(tmp_path, at):
    """What has expired stays so for the process, and what is new for the clock that is set back is not erased."""
    provider = FileMemoryProvider(tmp_path)
    memory = AgentMemory(provider=provider, agent_name="a", keep_for=timedelta(days=10))
    at(100)
    await memory.save(SingleFact(OLD, "first"), USER)
    at(105)
    assert await memory.history(OLD, USER)
    at(111)
    assert await memory.load(OLD, [USER]) == []
    assert (
        await memory.history(OLD, USER)
        == await memory.history(OLD, USER, at=datetime.fromtimestamp(105 * 86_400, UTC))
        == []
    )
    at(101)
    assert await memory.load(OLD, [USER]) == []
    await memory.save(SingleFact(NEW, "second"), USER)
    at(50)
    agent = Agent(single_run(), model=ScriptedModel(["Hello."]))
    agent.install(
        AgentMemory,
        provider=provider,
        agent_name="a",
        subjects=[USER],
        recall=True,
        keep_for=timedelta(10),
        learn=False,
    )
    await agent.run("Hi")
    assert len(await provider.load_all(USER, Scope.agent("a"))) == 2


@pytest.mark.every_kind
@pytest.mark.parametrize("sealed", [False, True], ids=["plain", "sealed"])
async def test_a_note_that_has_expired_is_not_read_and_is_erased_with_the_next_save(tmp_path, at, sealed):
    """Nothing finds, shows or counts it, by search, list, id or as the same note; the next save after an hour erases it."""
    plain = SqliteStore(tmp_path / "n.db")
    store = EncryptedStore(plain, new_key()) if sealed else plain
    notes = Notes(store, owner="ada", keep_for=timedelta(days=10))
    at(100)
    old = await notes.remember("The harbour is old.")
    at(109)
    new = await notes.remember("The harbour is large.")
    at(111)
    assert [match.record.id for match in await notes.recall("harbour")] == [new.id]
    assert [record.id for record in await notes.list_records()] == [new.id]
    assert (await notes.info()).record_count == 1
    assert await notes.get(old.id) is None
    with pytest.raises(NoteNotFoundError):
        await notes.history(old.id)
    assert [record["id"] async for record in notes.export()] == [new.id]
    everything = Notes(store, owner="ada")
    assert await everything.get(old.id) is not None
    fresh = Notes(store, owner="ada", keep_for=timedelta(days=10))
    again = await fresh.remember("The harbour is old.")
    assert again.id != old.id
    assert await everything.get(old.id) is None
    assert len(await everything.list_records()) == 2


@pytest.mark.parametrize("wrong", [90, timedelta(0), timedelta(days=-1)])
def test_what_is_no_age_is_refused(wrong):
    """A number, zero and less are refused, with what to write."""
    for make in (
        lambda: Notes("n.db", keep_for=wrong),
        lambda: AgentMemory(provider=FileMemoryProvider("m"), keep_for=wrong),
    ):
        with pytest.raises((TypeError, ValueError), match="keep_for="):
            make()
