"""Editing facts and notes, where they have been, and forgetting them."""

from __future__ import annotations

import re
from html import unescape

import pytest

from graphagent import Agent
from graphagent.errors import StoreError
from graphagent.memory import (
    AgentMemory,
    Concept,
    FactType,
    MultipleFacts,
    Notes,
    Scope,
    SingleFact,
    Source,
    StoreMemoryProvider,
    Subject,
)
from graphagent.run import list_runs
from graphagent.store import EncryptedStore, MemoryStore, SqliteStore, new_key
from graphagent.store.postgres import PostgresStore
from graphagent.testing import ScriptedModel
from graphagent_strategies import single_run
from tests.inspect.pages import HOSTILE, address, looking, read
from tests.inspect.test_inbox import fields

USER, DESK = Subject("user"), Scope.agent("desk")
CITY = {"keyword": "city", "subject": "user", "kind": "agent", "scope": "desk"}


async def told(store):
    """Return the facts and the notes of a store in which a run had a city in its prompt."""
    facts, notes = StoreMemoryProvider(store), Notes(store)
    await facts.save(SingleFact(Concept("city"), "Bergen in Norway"), USER, DESK)
    await facts.save(SingleFact(Concept("pet"), "a cat"), USER, DESK)
    agent = Agent(single_run(), model=ScriptedModel(["You live there.", "Yes."]), store=store)
    agent.install(AgentMemory, provider=facts, agent_name="desk", subjects=[USER], recall=True, learn=False)
    for run_id in ("first", "second"):
        await agent.run("Where do I live?", run_id=run_id)
    await facts.save(SingleFact(Concept("home"), "a flat in Bergen in Norway", source=Source("first", 1)), USER, DESK)
    return facts, notes


async def values(facts, keyword="city"):
    return [each.values for each in await facts.load(Concept(keyword), USER, DESK)]


@pytest.fixture(params=["memory", "sealed", "postgres"])
async def kept(request, tmp_path):
    if request.param == "memory":
        yield MemoryStore()
    elif request.param == "sealed":
        async with SqliteStore(tmp_path / "runs.db") as plain:
            yield EncryptedStore(plain, new_key())
    else:
        async with PostgresStore(request.getfixturevalue("postgres_dsn")) as store:
            yield store


async def test_what_forgetting_reaches_is_shown_and_what_is_chosen_is_erased_with_it(kept):
    """The prompts that had the fact are links; the receipt counts what went; the rest stays."""
    facts, notes = await told(kept)
    async with looking(kept, options={"facts": facts, "notes": notes}) as client:
        page = await read(client, address("reach", **CITY))
        assert "2 runs looked at" in page.text
        prompts = [each for each in page.links if each.startswith("/prompt?")]
        assert len(prompts) == 2
        assert "Bergen in Norway" in (await read(client, prompts[0])).text
        assert page.text.count("word for word") == 1
        form = (await client.get(address("reach", **CITY))).text
        chosen = dict(re.findall(r'name="(also-\d+)" value="([^"]*)"', form))
        also = {name: value for name, value in chosen.items() if value == "run first" or value.startswith("fact ")}
        assert len(also) == 2
        done = await client.post("/forget", data={**fields(form), **also})
        assert done.status_code == 303
        receipt = (await read(client, done.headers["location"])).text
        assert "2 versions of facts" in receipt
        assert "1 run" in receipt
        assert (await client.get(address("reach", **CITY))).status_code == 404
        assert (await client.post("/forget", data={**fields(form), **also})).status_code == 404
        assert "[forgotten]" in (await read(client, next(each for each in prompts if "id=second" in each))).text
    assert await values(facts) == await values(facts, "home") == []
    assert [each.run_id for each in await list_runs(kept)] == ["second"]


async def test_one_value_of_several_is_forgotten():
    """And not, if the fact has changed since its page was made."""
    facts = StoreMemoryProvider(store := MemoryStore())
    await facts.save(MultipleFacts(Concept("pets", "", FactType.MULTIPLE), [f"cat {HOSTILE}", "dog"]), USER, DESK)
    pets = {**CITY, "keyword": "pets"}
    async with looking(store, options={"facts": facts}) as client:
        form = (await client.get(address("reach", **pets))).text
        assert (await client.post("/forget", data={**fields(form), "value": "7"})).status_code == 409
        await facts.save(MultipleFacts(Concept("pets", "", FactType.MULTIPLE), ["fox"]), USER, DESK)
        assert (await client.post("/forget", data={**fields(form), "value": "0"})).status_code == 409
        assert await values(facts, "pets") == [(f"cat {HOSTILE}", "dog", "fox")]
        form = (await client.get(address("reach", **pets))).text
        places = re.findall(r'name="value" value="(\d*)"[^>]*> ([^<]*)<', form)
        [place] = [number for number, label in places if "cat" in label]
        assert (await client.post("/forget", data={**fields(form), "value": place})).status_code == 303
    assert await values(facts, "pets") == [("dog", "fox")]


async def test_of_two_people_who_set_a_fact_at_once_the_second_is_told():
    """The value is saved as that of a person; the second stays in its form, and what nobody typed is not changed by being shown."""
    facts = StoreMemoryProvider(store := MemoryStore())
    await facts.save(
        SingleFact(Concept("city"), f"Rome {HOSTILE}", source=Source("r", 1, "mail", "untrusted")), USER, DESK
    )
    async with looking(store, options={"facts": facts}) as client:
        page = (await client.get(address("fact", **CITY))).text
        shown = unescape(re.search(r"<textarea[^>]*>\n(.*?)</textarea>", page, re.DOTALL)[1])
        assert (await client.post("/set-fact", data={**fields(page), "text": " "})).status_code == 422
        assert (await client.post("/set-fact", data={**fields(page), "text": shown})).status_code == 303
        assert await values(facts) == [(f"Rome {HOSTILE}",)]
        late = await client.post("/set-fact", data={**fields(page), "text": "Oslo <3"})
        assert late.status_code == 409
        assert "Oslo &lt;3</textarea>" in late.text
        again = await client.post("/set-fact", data={**fields(late.text), "text": "Oslo\r\nNorway"})
        assert (again.status_code, again.headers["location"]) == (303, address("fact", **CITY))
    last, vouched, _ = await facts.history(Concept("city"), USER, DESK)
    assert (last.values, last.source, vouched.source.trust) == (
        ("Oslo\nNorway",),
        Source(origin="inspector", trust="trusted"),
        "trusted",
    )


async def test_of_two_people_who_edit_a_note_at_once_the_second_is_told():
    """Its text stays in the form, beside the note as it is."""
    notes = Notes(store := MemoryStore())
    record = await notes.remember(f"Returns within 14 days. {HOSTILE}", source="handbook")
    async with looking(store, options={"notes": notes}) as client:
        path = address("note", id=record.id)
        page = (await client.get(path)).text
        shown = unescape(re.search(r"<textarea[^>]*>\n(.*?)</textarea>", page, re.DOTALL)[1])
        assert (await client.post("/edit-note", data={**fields(page), "text": shown})).status_code == 303
        assert (await notes.get(record.id)).version == 1
        assert (await client.post("/edit-note", data={**fields(page), "text": " "})).status_code == 422
        assert (await client.post("/edit-note", data={**fields(page), "text": "Within 30 days."})).status_code == 303
        late = await client.post("/edit-note", data={**fields(page), "text": "Within 7 days."})
        assert late.status_code == 409
        assert "Within 30 days." in late.text
        assert "Within 7 days.</textarea>" in late.text
        assert (
            await client.post("/edit-note", data={**fields(late.text), "text": "Within 7 days."})
        ).status_code == 303
        form = (await client.get(address("reach", note=record.id))).text
        assert (await client.post("/forget", data=fields(form))).status_code == 303
        for change in ("/forget", "/edit-note"):
            assert (await client.post(change, data={**fields(page), **fields(form), "text": "x"})).status_code == 404
    assert await notes.list_records() == []


class Lockable(MemoryStore):
    """A store that others may hold, so that nothing can be written."""

    locked = False

    async def commit(self, *changes):
        if self.locked:
            raise StoreError("the store is busy")
        return await super().commit(*changes)


async def test_who_may_not_change_anything_is_told_and_nothing_is_changed(caplog):
    """Pages that only read have no forms; those of one owner refuse others; and a busy store is named without any value."""
    facts, notes = await told(store := Lockable())
    record = await notes.remember("Returns within 14 days.")
    options = {"facts": facts, "notes": notes}
    pages = [address("fact", **CITY), address("note", id=record.id), address("reach", **CITY)]
    changes = {
        "/set-fact": {**CITY, "version": "1", "text": "Oslo"},
        "/edit-note": {"id": record.id, "version": "1", "text": "Oslo"},
        "/forget": CITY,
    }
    async with looking(store, options={**options, "read_only": True}) as client:
        for path in pages:
            assert "form" not in (await read(client, path)).tags
        for path, given in changes.items():
            assert (await client.post(path, data={**given, "form": ""})).status_code == 403
    await facts.save(SingleFact(Concept("city"), "Rome"), USER, DESK, owner="ada")
    async with looking(store, options={**options, "owner": "ada"}) as client:
        for path in pages:
            assert (await client.get(path)).status_code == 404
        token = {"form": fields((await client.get(address("fact", **CITY, owner="ada"))).text)["form"]}
        for path, given in changes.items():
            assert (await client.post(path, data={**given, **token})).status_code == 404
    async with looking(store, options=options) as client:
        token = {"form": fields((await client.get(pages[0])).text)["form"]}
        store.locked = True
        for path, given in changes.items():
            answer = await client.post(path, data={**given, **token})
            assert answer.status_code == 503
            assert "busy" in answer.text
            assert not {"Oslo", "Bergen"} & {*re.findall(r"\w+", answer.text + caplog.text)}
        store.locked = False
    assert await values(facts) == [("Bergen in Norway",)]
    assert (await notes.get(record.id)).version == 1
