"""Forgetting all of an owner over everything that an agent keeps, wherever it is: nothing is left, and no name."""

from __future__ import annotations

import logging
import traceback
from datetime import timedelta

import pytest

from graphagent import Agent
from graphagent._clock import clock
from graphagent.errors import NotForgottenError, OwnerBusyError, StoreError
from graphagent.history import clear_cache, forget, forget_runs
from graphagent.llm import CachedModel
from graphagent.memory import (
    AgentMemory,
    Concept,
    EncryptedMemoryProvider,
    FileMemoryProvider,
    NoMemory,
    NoteMemory,
    Notes,
    Scope,
    SingleFact,
    StoreMemoryProvider,
    Subject,
)
from graphagent.protocols import Feature
from graphagent.run import list_runs
from graphagent.store import EncryptedStore, Put, Receipt, SqliteStore, new_key
from graphagent.testing import ScriptedModel
from graphagent_strategies import single_run

OWNER = "canary-owner"
CITY, SUBJECT, SCOPE = (
    Concept("canary-keyword", "canary-description"),
    Subject("canary-subject"),
    Scope.product("canary-product"),
)
CANARY = b"canary-"
DAY = 86_400_000


def remains(folder):
    """Return the files whose name or content has a canary."""
    return [
        file.name
        for file in folder.rglob("*")
        if CANARY in str(file.relative_to(folder)).encode() or (file.is_file() and CANARY in file.read_bytes())
    ]


async def fill(agent, provider, notes, owner):
    await provider.save(SingleFact(CITY, "canary-value"), SUBJECT, SCOPE, owner=owner)
    await provider.save(SingleFact(CITY, "canary-second"), SUBJECT, SCOPE, owner=owner)
    whose = Notes(notes, owner=owner)
    await whose.remember("canary-note", scope="/canary-scope", source="canary-source", categories=["canary-category"])
    await whose.remember_conversation([{"role": "user", "content": "canary-turn"}], session="canary-session")
    await agent.run("canary-task", owner=owner, thread="canary-thread", run_id=f"canary-run-{owner[-5:]}")


def agent_of(store, provider, notes, answers):
    model = CachedModel(ScriptedModel([lambda request: "canary-answer"] * 10), answers)
    agent = Agent(single_run(), model=model, store=store)
    agent.install(AgentMemory, provider=provider, subjects=[SUBJECT], recall=True, learn=False, product_name=SCOPE.name)
    agent.install(NoteMemory, notes=Notes(notes))
    return agent


@pytest.mark.every_loop
@pytest.mark.parametrize("sealed", [False, True], ids=["plain", "sealed"])
@pytest.mark.parametrize("apart", ["one store", "readable files", "encrypted files"])
async def test_nothing_of_an_owner_is_left_in_any_file(tmp_path, caplog, sealed, apart):
    """No value, no name and not the owner: in no file, no log and no traceback, with one store for all or several."""
    caplog.set_level(logging.DEBUG)
    key = new_key()

    def store(name):
        plain = SqliteStore(tmp_path / f"{name}.db")
        return EncryptedStore(plain, key) if sealed else plain

    one = store("runs")
    notes, answers = (one, one) if apart == "one store" else (store("notes"), store("answers"))
    provider = {
        "one store": lambda: StoreMemoryProvider(one),
        "readable files": lambda: FileMemoryProvider(tmp_path / "memory"),
        "encrypted files": lambda: EncryptedMemoryProvider(tmp_path / "memory", key=key),
    }[apart]()
    agent = agent_of(one, provider, notes, answers)
    await fill(agent, provider, notes, OWNER)
    assert sealed or remains(tmp_path)

    receipt = await forget(*agent.places, owner=OWNER, everything=True)
    assert (receipt.facts, receipt.runs, receipt.threads) == (2, 1, 1)
    assert receipt.notes >= 3
    assert receipt.cached >= 1
    assert receipt.bytes == sum(each.bytes for each in receipt.parts.values())
    assert remains(tmp_path) == []
    assert "canary-" not in caplog.text
    assert await forget(*agent.places, owner=OWNER, everything=True) == Receipt()


@pytest.mark.parametrize("what", ["readable facts", "facts in a store", "runs", "cached"])
async def test_each_kind_alone_leaves_no_name_in_a_plain_file(tmp_path, what):
    """Forgetting all facts, runs or cached values of an owner leaves no file with a value, a name of theirs or the owner."""
    store = SqliteStore(tmp_path / "all.db")
    provider = FileMemoryProvider(tmp_path / "memory") if what == "readable facts" else StoreMemoryProvider(store)
    if "facts" in what:
        await provider.save(SingleFact(CITY, "canary-value"), SUBJECT, SCOPE, owner=OWNER)
    else:
        model = CachedModel(ScriptedModel(["canary-answer"]), store)
        agent = Agent(single_run(), model=model, store=store if what == "runs" else None)
        await agent.run("canary-task", owner=OWNER, **({"thread": "canary-thread"} if what == "runs" else {}))
        if what == "cached":
            await store.commit(Put(("cache", OWNER, "run", "canary-name"), b"canary-value"))
    assert remains(tmp_path)
    await {
        "runs": lambda: forget_runs(store, owner=OWNER),
        "cached": lambda: clear_cache(store, owner=OWNER),
    }.get(what, lambda: provider.forget(owner=OWNER, everything=True))()
    assert remains(tmp_path) == []


async def test_features_and_sub_agents_say_where_they_keep_things(tmp_path):
    """Places are those of the agent, its sub-agents and their models, each once; one of your own is asked to forget."""
    asked: list[str] = []

    class Kept:
        async def forget(self, *, owner, everything):
            asked.append(owner)
            return Receipt(facts=3, bytes=7)

        async def export(self, *, owner=None):
            for number in range(3):
                yield {"number": number}

    class Own(Feature):
        kept = Kept()

        @property
        def places(self):
            return (self.kept,)

    runs, answers = SqliteStore(tmp_path / "runs.db"), SqliteStore(tmp_path / "answers.db")
    helper = Agent(single_run(), model=CachedModel(ScriptedModel(["x"]), answers), name="helper", description="Helps.")
    feature = helper.install(Own)
    agent = Agent(single_run(), model=CachedModel(ScriptedModel(["x"]), answers), tools=[helper], store=runs)
    agent.install(AgentMemory)
    assert [each for each in agent.places if not isinstance(each, NoMemory)] == [runs, answers, feature.kept]
    assert await forget(*agent.places, owner="ada", everything=True) == Receipt(
        facts=3, bytes=7, parts={repr(feature.kept): Receipt(facts=3, bytes=7)}
    )
    assert asked == ["ada"]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("sealed", [False, True], ids=["plain", "sealed"])
async def test_other_owners_keep_all(tmp_path, sealed):
    """What another owner has in the same places is there as before, is found, and is sound."""
    plain = SqliteStore(tmp_path / "all.db")
    store = EncryptedStore(plain, new_key()) if sealed else plain
    provider = StoreMemoryProvider(store)
    agent = agent_of(store, provider, store, store)
    for owner in (OWNER, "bob"):
        await fill(agent, provider, store, owner)
    before = [item async for item in store.scan(("facts", "bob"))]
    await forget(*agent.places, owner=OWNER, everything=True)
    assert [item async for item in store.scan(("facts", "bob"))] == before
    bob = Notes(store, owner="bob")
    assert [match.record.content for match in await bob.recall("canary-note")][:1] == ["canary-note"]
    await bob.verify()
    assert (await agent.read("canary-run-bob", owner="bob")).status == "done"


async def test_runs_that_are_executed_are_named_and_nothing_is_removed(tmp_path):
    """An owner is not forgotten while runs may keep more of them; what is chosen of a running run is refused alike."""
    store = SqliteStore(tmp_path / "runs.db")
    provider = StoreMemoryProvider(store)

    async def while_running(request):
        with pytest.raises(OwnerBusyError) as caught:
            await forget(store, owner="ada", everything=True)
        assert caught.value.run_ids == ("r",)
        return "done"

    await provider.save(SingleFact(CITY, "Oslo"), SUBJECT, SCOPE, owner="ada")
    agent = Agent(single_run(), model=Waiting(while_running), store=store)
    await agent.run("go", owner="ada", run_id="r")
    assert await provider.load(CITY, SUBJECT, SCOPE, owner="ada")
    assert (await forget(store, owner="ada", everything=True)).runs == 1


class Waiting:
    """A model whose answer an async function makes."""

    name = "waiting"

    def __init__(self, answer):
        self._answer = answer
        self._model = ScriptedModel([lambda request: "done"])

    async def respond(self, request, on_text=None):
        await self._answer(request)
        return await self._model.respond(request, on_text)


async def test_what_is_damaged_can_be_forgotten(tmp_path):
    """A value that is not what was written does not keep an owner in a file, and others keep their notes."""
    store = SqliteStore(tmp_path / "all.db")
    for owner in (OWNER, "bob"):
        await Notes(store, owner=owner).remember("canary note")
    [item] = [item async for item in store.scan(("notes", OWNER)) if item.key[3] == "begun"]
    await store.commit(Put(item.key, b"damaged"))
    assert (await forget(Notes(store), owner=OWNER, everything=True)).notes == 1
    assert [item async for item in store.scan(("notes", OWNER))] == []
    assert OWNER.encode() not in b"".join(file.read_bytes() for file in tmp_path.iterdir())
    assert len(await Notes(store, owner="bob").recall("canary")) == 1


class Broken:
    """A store that cannot be written."""

    def __init__(self, store):
        self._store = store
        self.works = False

    def __getattr__(self, name):
        return getattr(self._store, name)

    async def commit(self, *changes):
        if not self.works:
            raise StoreError("the disk is full")
        await self._store.commit(*changes)


async def test_a_place_that_fails_is_named_and_the_same_call_does_the_rest(tmp_path):
    """The error has the receipt of what was removed and the place that is left, and no value; then the same call finishes."""
    broken = Broken(SqliteStore(tmp_path / "broken.db"))
    broken.works = True
    provider, sound = StoreMemoryProvider(broken), SqliteStore(tmp_path / "sound.db")
    for each in (provider, StoreMemoryProvider(sound)):
        await each.save(SingleFact(CITY, "canary-value"), SUBJECT, SCOPE, owner=OWNER)
    broken.works = False
    with pytest.raises(NotForgottenError) as caught:
        await forget(provider, sound, owner=OWNER, everything=True)
    error = caught.value
    assert (error.receipt.facts, list(error.receipt.parts)) == (1, [repr(sound)])
    assert error.left == {repr(provider): "the disk is full"}
    assert "canary-value" not in "".join(traceback.format_exception(error))
    broken.works = True
    assert (await forget(provider, sound, owner=OWNER, everything=True)).facts == 1
    assert [item async for item in broken.scan(())] == []


@pytest.mark.parametrize("wrong", [(), ("runs.db",), (SqliteStore,), (object(),)])
async def test_what_is_no_place_is_refused(wrong):
    """A path, a class, anything else and nothing at all are no places."""
    with pytest.raises(TypeError):
        await forget(*wrong, owner="ada", everything=True)


async def test_it_has_to_be_said_what(tmp_path):
    """Nothing, or something besides everything, is refused, and so are notes of another owner."""
    store = SqliteStore(tmp_path / "a.db")
    for options in ({}, {"everything": True, "concept": CITY}, {"everything": True, "notes": ["x"]}):
        with pytest.raises(ValueError, match="say what to forget"):
            await forget(store, owner="ada", **options)
    with pytest.raises(ValueError, match="another owner"):
        await forget(Notes(store, owner="bob"), owner="ada", everything=True)


@pytest.mark.every_kind
async def test_notes_that_begin_again_are_read_anew(tmp_path):
    """Another process's notes see that all were forgotten and others saved, although there were as many changes."""
    key, path = new_key(), tmp_path / "notes.db"
    first, second = (Notes(EncryptedStore(SqliteStore(path), key), owner="ada") for _ in range(2))
    await first.remember("The harbour is old.")
    assert len(await second.recall("harbour")) == 1
    await forget(first, owner="ada", everything=True)
    await first.remember("The museum is new.")
    assert [match.record.content for match in await second.recall("museum")] == ["The museum is new."]
    assert await second.recall("harbour") == []


@pytest.mark.parametrize("how", ["reset", "forget", "purge"])
async def test_the_owner_leaves_a_plain_file_of_notes_with_the_last_note(tmp_path, how):
    """However the last note is removed, no row is left that names the owner."""
    notes = Notes(tmp_path / "notes.db", owner=OWNER)
    record = await notes.remember("A note.", source="someone")
    await {
        "reset": lambda: notes.reset(),
        "forget": lambda: notes.forget(ids=[record.id]),
        "purge": lambda: notes.purge(source="someone"),
    }[how]()
    assert remains(tmp_path) == []
    await notes.remember("Another note.")
    assert len(await notes.list_records()) == 1
    await notes.aclose()


@pytest.mark.parametrize("sealed", [False, True], ids=["plain", "sealed"])
async def test_what_is_older_is_forgotten_with_its_history(tmp_path, sealed):
    """Facts by their last version, notes by when they were saved, runs by when something happened last; what is newer stays."""
    plain = SqliteStore(tmp_path / "all.db")
    store = EncryptedStore(plain, new_key()) if sealed else plain
    provider = StoreMemoryProvider(store)
    agent = agent_of(store, provider, store, store)
    token = clock.set(lambda: 100 * DAY)
    try:
        await fill(agent, provider, store, OWNER)
        clock.set(lambda: 150 * DAY)
        await provider.save(SingleFact(Concept("fresh"), "new"), SUBJECT, SCOPE, owner=OWNER)
        await agent.run("new", owner=OWNER, run_id="fresh")
        clock.set(lambda: 160 * DAY)
        receipt = await forget(*agent.places, owner=OWNER, older_than=timedelta(days=30))
        assert (receipt.facts, receipt.runs) == (2, 1)
        assert [fact.concept.keyword for fact in await provider.load_all(SUBJECT, SCOPE, owner=OWNER)] == ["fresh"]
        assert [run.run_id for run in await list_runs(store, owner=OWNER)] == ["fresh"]
        assert all(
            note.created_at.timestamp() > 149 * 86_400 for note in await Notes(store, owner=OWNER).list_records()
        )
        assert await forget(*agent.places, owner=OWNER, older_than=timedelta(days=30)) == Receipt()
    finally:
        clock.reset(token)


@pytest.mark.parametrize("wrong", [30, timedelta(0)])
async def test_an_age_is_above_zero_and_alone(tmp_path, wrong):
    """A number, zero, and an age besides something else are refused."""
    store = SqliteStore(tmp_path / "a.db")
    with pytest.raises((TypeError, ValueError), match="older_than="):
        await forget(store, owner="ada", older_than=wrong)
    with pytest.raises(ValueError, match="of any age"):
        await forget(store, owner="ada", everything=True, older_than=timedelta(1))
    with pytest.raises(ValueError, match="say what to forget"):
        await forget(store, owner="ada", concept=CITY, older_than=timedelta(1))
