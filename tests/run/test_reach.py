"""What a fact or a note has reached: where it stood, as the logs say, and what can be forgotten with it."""

from __future__ import annotations

import pytest

from graphagent import Agent
from graphagent.errors import RunClaimedError
from graphagent.history import Reached, forget, list_threads, reach
from graphagent.llm import ToolCall
from graphagent.memory import (
    AgentMemory,
    Concept,
    FactType,
    FileMemoryProvider,
    MultipleFacts,
    NoteMemory,
    Notes,
    Scope,
    SingleFact,
    Source,
    StoreMemoryProvider,
    Subject,
)
from graphagent.store import EncryptedStore, SqliteStore, new_key
from graphagent.testing import ScriptedModel
from graphagent_strategies import single_run

CITY, PET = Concept("city", "where"), Concept("pet", "which")
USER, SCOPE = Subject("user"), Scope.agent("assistant")


def made(store, provider, *answers, **options):
    agent = Agent(single_run(), model=ScriptedModel(list(answers)), store=store)
    agent.install(AgentMemory, provider=provider, agent_name="assistant", subjects=[USER], recall=True, learn=False)
    agent.install(NoteMemory, notes=Notes(store), learn=False, **options)
    return agent


def runs(found):
    return {each.id: (each.is_source, bool(each.prompts), each.repeats) for each in found if each.kind == "run"}


@pytest.mark.every_loop
@pytest.mark.parametrize("sealed", [False, True], ids=["plain", "sealed"])
@pytest.mark.parametrize("readable", [False, True], ids=["in the store", "readable files"])
async def test_runs_with_a_fact_in_a_prompt_are_found_and_no_others(tmp_path, sealed, readable):
    """A turn that was shown the fact is named by its entry, in each run of the thread; a run that was shown another fact is not."""
    store = SqliteStore(tmp_path / "a.db")
    store = EncryptedStore(store, new_key()) if sealed else store
    provider = FileMemoryProvider(tmp_path / "m") if readable else StoreMemoryProvider(store)
    agent = made(store, provider, "Hello.", "You live there.", "Yes.", "Aha.")
    await agent.run("Hi", owner="ada", run_id="before")
    await provider.save(SingleFact(CITY, "Osaka"), USER, SCOPE, owner="ada")
    await agent.run("Where do I live?", owner="ada", thread="t", run_id="first")
    await agent.run("Really?", owner="ada", thread="t", run_id="second")
    found = await reach(*agent.places, owner="ada", concept=CITY)
    assert runs(found) == {"first": (False, True, False), "second": (False, True, False)}
    for each in found:
        history = await agent.history(each.id, owner="ada")
        assert [history[number - 1].key for number in each.prompts] == ["model:1"]
        assert "Osaka" not in each.to_text()
        assert "Osaka" not in repr(each)
    assert await reach(*agent.places, owner="bob", concept=CITY) == []
    assert await reach(*agent.places, owner="ada", concept=PET) == []

    receipt = await forget(*agent.places, owner="ada", concept=CITY, also=found[:1])
    assert (receipt.facts, receipt.runs) == (1, 1)
    left = await reach(*agent.places, owner="ada", concept=CITY)
    assert runs(left) == {"first": (False, True, False)}, "its answer is there, and its prompt still names the fact"
    assert [thread.runs for thread in await list_threads(store, owner="ada")] == [1]


async def test_where_it_came_from_and_what_was_kept_there_is_found(tmp_path):
    """The run that saved a fact, facts and notes that were saved in runs that had it in a prompt, and those with its text."""
    store = SqliteStore(tmp_path / "a.db")
    provider, notes = StoreMemoryProvider(store), Notes(store, owner="ada")
    agent = made(store, provider, "It is Osaka, then.", "I see.")
    await agent.run("I moved.", owner="ada", run_id="source")
    await provider.save(SingleFact(CITY, "Osaka", source=Source("source", 1)), USER, SCOPE, owner="ada")
    await agent.run("Go on", owner="ada", run_id="prompted")
    several = Concept("people", "who", FactType.MULTIPLE)
    await provider.save(MultipleFacts(several, ["Bo"], source=Source("prompted", 2)), USER, SCOPE, owner="ada")
    await provider.save(SingleFact(PET, "a cat"), USER, SCOPE, owner="ada")
    await notes.remember("The flat in osaka is small.", source="x")
    await notes.remember("Osakan food", source="x")
    found = await reach(store, owner="ada", concept=CITY)
    assert runs(found) == {"source": (True, False, True), "prompted": (False, True, False)}
    facts = [(each.keyword, each.run_id, each.repeats) for each in found if each.kind == "fact"]
    assert facts == [("people", "prompted", False)]
    assert [(each.run_id, each.repeats) for each in found if each.kind == "note"] == [("", True)]
    receipt = await forget(store, owner="ada", concept=CITY, also=found)
    assert (receipt.facts, receipt.notes, receipt.runs) == (2, 1, 2)
    assert [fact.concept.keyword for fact in await provider.load_all(USER, SCOPE, owner="ada")] == ["pet"]
    assert [record.content for record in await notes.list_records()] == ["Osakan food"]


async def test_a_provider_over_a_store_that_is_given_too_is_no_second_place(tmp_path):
    """A fact is found once; and of many runs, the newest alone are read where so many are asked for."""
    store = SqliteStore(tmp_path / "a.db")
    agent = made(store, StoreMemoryProvider(store), "Yes.", "Yes.")
    for run_id in ("old", "new"):
        await agent.run("Osaka?", owner="ada", run_id=run_id)
    provider = StoreMemoryProvider(store)
    await provider.save(SingleFact(CITY, "Osaka"), USER, SCOPE, owner="ada")
    await provider.save(SingleFact(PET, "a cat from Osaka"), USER, SCOPE, owner="ada")
    found = await reach(store, provider, owner="ada", concept=CITY)
    assert [(each.kind, each.id) for each in found if each.kind == "run"] == [("run", "new"), ("run", "old")]
    assert [each.keyword for each in found if each.kind == "fact"] == ["pet"]
    last = await reach(store, owner="ada", concept=CITY, newest=1)
    assert [each.id for each in last if each.kind == "run"] == ["new"]


async def test_a_note_is_found_in_prompts_and_in_what_a_tool_returned(tmp_path):
    """A note that a model was shown is named by the log; one that a tool returned as text, by that text."""
    store = SqliteStore(tmp_path / "a.db")
    notes = Notes(store, owner="ada")
    record = await notes.remember("The harbour opens at nine.")
    shown = made(store, FileMemoryProvider(tmp_path / "m"), "At nine.")
    await shown.run("When does the harbour open?", owner="ada", run_id="shown")
    call = ToolCall("recall", {"queries": ["harbour"]})
    asked = made(store, FileMemoryProvider(tmp_path / "m"), call, "At nine.", recall=False)
    await asked.run("When?", owner="ada", run_id="asked")
    found = runs(await reach(store, owner="ada", notes=[record.id]))
    assert found["shown"][1]
    assert found["asked"] == (False, False, True)


async def test_what_cannot_be_read_may_have_it(tmp_path):
    """A run whose entries are damaged is listed as such, since it may have had the fact in a prompt."""
    store = SqliteStore(tmp_path / "a.db")
    provider = StoreMemoryProvider(store)
    await provider.save(SingleFact(CITY, "Osaka"), USER, SCOPE, owner="ada")
    await made(store, provider, "Hello.").run("Hi", owner="ada", run_id="r")
    from graphagent.store import Put

    rows = [item async for item in store.scan(("runs", "ada", 1)) if len(item.key) == 6]
    await store.commit(Put(rows[-1].key, b"damaged"))
    [found] = [each for each in await reach(store, owner="ada", concept=CITY) if each.kind == "run"]
    assert found.is_unread


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("大阪", "私は大阪に住んでいます。"),
        ("Osaka", "Osakaに住む"),
        ("서울", "저는 서울에 살아요."),
        ("กรุงเทพ", "ฉันอยู่กรุงเทพ"),
        ("Zu\u0308rich", "Ich wohne in Z\u00fcrich."),
        ("Straße 5", "STRASSE 5"),
        ("İzmir", "İZMİR"),
        ("Karl Johans gate 1", "At Karl  Johans\ngate 1, Oslo"),
        ("C++", "I write C++."),
        ('the "old"\ntown', r'{"place": "In the \"old\"\ntown."}'),
        ("C:\\new", r'{"path": "C:\\new"}'),
    ],
)
async def test_a_text_is_found_in_every_language(tmp_path, value, text):
    """Neither case, spaces and the form of Unicode make a difference, nor what stands beside it where no spaces divide words."""
    store = SqliteStore(tmp_path / "a.db")
    provider = StoreMemoryProvider(store)
    await provider.save(SingleFact(CITY, value), USER, SCOPE)
    for name, said in (("with", text), ("without", "Nagasakis 東京 京大 Rust")):
        await Agent(single_run(), model=ScriptedModel(["Hello."]), store=store).run(said, run_id=name)
    assert runs(await reach(store, concept=CITY)) == {"with": (False, False, True)}


async def test_what_was_found_elsewhere_is_not_passed_over(tmp_path):
    """`also=` names places that `forget` was not given: nothing is erased, since more would be left than its receipt says."""
    store, other = SqliteStore(tmp_path / "a.db"), SqliteStore(tmp_path / "b.db")
    provider = StoreMemoryProvider(store)
    await provider.save(SingleFact(CITY, "Osaka"), USER, SCOPE)
    await StoreMemoryProvider(other).save(SingleFact(PET, "Osaka"), USER, SCOPE)
    found = await reach(store, other, concept=CITY)
    with pytest.raises(ValueError, match=r"also= has something in .*b\.db.* give all places"):
        await forget(store, concept=CITY, also=found)
    assert await provider.load(CITY, USER, SCOPE)
    assert (await forget(other, store, concept=CITY, also=found)).facts == 2


@pytest.mark.parametrize("thread", ["", "t"], ids=["itself", "one that continues it"])
async def test_a_run_that_is_executed_is_not_forgotten_and_neither_is_the_rest(tmp_path, thread):
    """If a run that was chosen, or one that continues it, is executed, nothing is removed; what is gone already is left out."""
    store, other = SqliteStore(tmp_path / "a.db"), SqliteStore(tmp_path / "b.db")
    provider = StoreMemoryProvider(store)
    await provider.save(SingleFact(CITY, "Osaka"), USER, SCOPE, owner="ada")
    await StoreMemoryProvider(other).save(SingleFact(CITY, "Osaka"), USER, SCOPE, owner="ada")
    chosen = [Reached("run", repr(store), "r"), Reached("run", repr(store), "gone")]
    if thread:
        await made(store, provider, "Hello.").run("Hi", owner="ada", run_id="r", thread=thread)

    class Asking:
        name = "asking"

        async def respond(self, request, on_text=None):
            with pytest.raises(RunClaimedError):
                await forget(other, store, owner="ada", concept=CITY, also=chosen)
            return await ScriptedModel(["Hello."]).respond(request, on_text)

    agent = made(store, provider)
    agent.model = Asking()
    await agent.run("Hi", owner="ada", run_id="next" if thread else "r", thread=thread or None)
    for each in (provider, StoreMemoryProvider(other)):
        assert await each.load(CITY, USER, SCOPE, owner="ada")
    assert (await forget(store, owner="ada", concept=CITY, also=chosen)).runs == 1
