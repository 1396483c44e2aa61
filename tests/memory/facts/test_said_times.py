"""Times that a conversation tells, and what it takes back: from when, until when, and no longer."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest

from graphagent import END, START, Agent, Strategy, tool
from graphagent.events import ExtractionFailed
from graphagent.llm import ToolCall, ToolCalls
from graphagent.memory import (
    ActionStep,
    AgentMemory,
    Concept,
    FactType,
    MultipleFacts,
    Scope,
    SingleFact,
    Source,
    StoredFacts,
    StoreMemoryProvider,
    Subject,
    Withdrawal,
)
from graphagent.nodes import auto_detect_facts, compress_history, execute_tools, llm_request, save_facts
from graphagent.store import MemoryStore
from graphagent.testing import ScriptedModel, fixed_clock

USER = Subject("user", "the user")
HERE = Scope.agent("talk")
CITY, FOOD = Concept("city"), Concept("food", "what the user eats", FactType.MULTIPLE)
NOW = datetime(2026, 11, 28, 12, tzinfo=UTC)
OSLO = "Europe/Oslo"


def day(*parts, zone=UTC):
    return datetime(*parts, tzinfo=zone)


@pytest.fixture
def provider():
    return StoreMemoryProvider(MemoryStore())


@pytest.fixture(autouse=True)
def at_noon():
    with fixed_clock(int(NOW.timestamp() * 1000)):
        yield


async def told(provider, *replies, learn=None, text="Hello!", zone=OSLO, calls=()):
    """Learn from a run what its model gives, and return the events and the model."""

    @tool
    def page() -> str:
        """Read the page."""
        return "Seen."

    ask, act, learn = llm_request(), execute_tools(), learn or auto_detect_facts(subjects=[USER])
    strategy = Strategy("talk", START >> ask, ask.on(ToolCalls) >> act >> ask, ask.on(str) >> learn >> END)
    model, failed = ScriptedModel([*calls, "Hello.", *replies]), []
    agent = Agent(strategy, model=model, tools=[page])
    agent.install(AgentMemory, provider=provider, timezone=zone, recall=False)
    agent.on(ExtractionFailed, failed.append)
    await agent.run(text)
    return failed, model


def said(value, keyword="city", **times):
    return {"subject": "user", "keyword": keyword, "value": value, **times}


@pytest.mark.parametrize(
    ("times", "begins", "ends"),
    [
        ({"valid_from": "2026-05-03"}, day(2026, 5, 2, 22), None),
        ({"valid_from": "2026-05"}, day(2026, 4, 30, 22), None),
        ({"valid_from": "2019", "valid_to": ""}, day(2018, 12, 31, 23), None),
        ({"valid_from": "2026-05-03T08:00:00Z"}, day(2026, 5, 3, 8), None),
        ({"valid_to": "2026-12-04"}, None, day(2026, 12, 4, 23)),
        ({"valid_to": "2026-12"}, None, day(2026, 12, 31, 23)),
        ({"valid_to": "2027", "valid_from": None}, None, day(2027, 12, 31, 23)),
        ({"valid_from": "unknown", "valid_to": "present"}, None, None),
        ({"valid_to": "9999-12-31"}, None, None),
        ({"valid_from": "2019/8/1", "valid_to": "Tomorrow"}, day(2019, 7, 31, 22), day(2026, 11, 29, 23)),
        ({"valid_from": ["yesterday"], "valid_to": "2027.1.5"}, day(2026, 11, 26, 23), day(2027, 1, 5, 23)),
    ],
)
async def test_days_are_those_of_the_time_zone(provider, times, begins, ends):
    """The first and the last day, month or year on which a fact is true; a time with a zone is taken as it is."""
    failed, _ = await told(provider, {"facts": [said("Oslo", **times)]})
    [fact] = await provider.history(CITY, USER, HERE)
    assert (fact.valid_from, fact.valid_to, failed) == (begins, ends, [])


async def test_a_date_that_cannot_be_read_loses_neither_its_fact_nor_the_others(provider):
    """An event says so, and so it does of an end before the beginning."""
    facts = [
        said("Oslo", valid_from="last spring"), said("tea", "drink", valid_to="2026-13-01"), said("Ada", "name"),
        said("blue", "colour", valid_from="2027-01-01", valid_to="2026-12-31"), said("x", "y", valid_from=20260101),
    ]  # fmt: skip
    failed, _ = await told(provider, {"facts": facts})
    kept = {fact.concept.keyword: fact for fact in await provider.load_all(USER, HERE)}
    assert {name: fact.value for name, fact in kept.items()} == {
        "city": "Oslo", "drink": "tea", "name": "Ada", "colour": "blue", "y": "x",
    }  # fmt: skip
    assert [event.reason for event in failed] == ["4 dates of the answer could not be read; the facts are kept without"]
    assert (kept["colour"].valid_from, kept["colour"].valid_to) == (None, day(2026, 12, 31, 23))


async def test_what_is_no_longer_true_is_not_known_and_was(provider):
    """`I used to live in Oslo`: what is known ends today, and held before; without another value, nothing is known now."""
    await provider.save(SingleFact(CITY, "Oslo", int(day(2026, 1, 1).timestamp() * 1000)), USER, HERE)
    await told(provider, {"facts": [said("Oslo", valid_to="today")]})
    assert await provider.load(CITY, USER, HERE) == []
    assert [fact.value for fact in await provider.load(CITY, USER, HERE, as_of=day(2026, 6, 1))] == ["Oslo"]
    await told(provider, {"facts": [said("Bergen", valid_from="2026-12-01"), said("Oslo", valid_to="2026-03")]})
    assert [fact.value for fact in await provider.load(CITY, USER, HERE, as_of=day(2026, 12, 5))] == ["Bergen"]
    assert await provider.load(CITY, USER, HERE, as_of=day(2026, 6, 1)) == []


async def test_what_has_ended_is_that_which_is_known_however_it_is_spelt(provider):
    """`I no longer live in OSLO` ends the known value; the history has it as it was known."""
    await provider.save(SingleFact(CITY, "Oslo, Norway"), USER, HERE)
    await told(provider, {"facts": [said("oslo,  norway", valid_to="2026-11-28")]})
    assert await provider.load(CITY, USER, HERE) == []
    assert [fact.value for fact in await provider.history(CITY, USER, HERE)] == ["Oslo, Norway", "Oslo, Norway"]


async def test_a_value_that_was_true_twice_has_both_times(provider):
    """`At Acme until 2012, and again since 2020`, in any order; what is given twice is one fact."""
    before, again = said("Acme", valid_from="2010", valid_to="2012"), said("Acme", valid_from="2020")
    for entries in ([before, again], [again, before, again]):
        await told(provider, {"facts": entries})
        for moment, known in ((day(2011, 6, 1), 1), (day(2015, 1, 1), 0), (NOW, 1)):
            assert len(await provider.load(CITY, USER, HERE, as_of=moment)) == known
        assert (await provider.forget(concept=CITY)).facts == 2
    await provider.save(MultipleFacts(FOOD, ["meat", "rice"]), USER, HERE)
    entries = [said("meat", "food", valid_to="2020"), said("meat", "food", valid_from="2024")]
    await told(provider, {"facts": entries})
    [food] = await provider.load(FOOD, USER, HERE)
    assert food.values == ("rice", "meat")


async def test_several_times_of_one_concept_are_facts_of_their_own(provider):
    """`In Bergen until Friday`: afterwards what was known before holds again."""
    facts = [said("Bergen", valid_from="2026-11-27", valid_to="2026-12-04"), said("Oslo")]
    await told(provider, {"facts": facts})
    for moment, city in ((NOW, "Bergen"), (day(2026, 12, 6), "Oslo")):
        assert [fact.value for fact in await provider.load(CITY, USER, HERE, as_of=moment)] == [city]


@pytest.mark.parametrize("learn", [None, save_facts(FOOD, subject=USER)], ids=["any concept", "one concept"])
async def test_a_value_that_is_no_longer_true_is_withdrawn(provider, learn):
    """The model is shown the values, and what it gives back with an end is taken back; another that is not known is nothing."""
    await provider.save(MultipleFacts(FOOD, ["meat", "no fish", "rice"]), USER, HERE)
    entries = [
        said("No  Fish", "food", valid_to="2026-11-28"),
        said("fish", "food"),
        said("eggs", "food", valid_to="2020"),
    ]
    values = [{name: each for name, each in entry.items() if name not in ("subject", "keyword")} for entry in entries]
    _, model = await told(provider, {"values": values} if learn else {"facts": entries}, learn=learn)
    assert "no fish" in model.requests[1].messages[0].text
    [food] = await provider.load(FOOD, USER, HERE)
    assert food.values == ("meat", "rice", "fish")
    newest, withdrawal, _ = await provider.history(FOOD, USER, HERE)
    assert isinstance(withdrawal, Withdrawal)
    assert (withdrawal.values, withdrawal.source.trust, newest.source.trust) == (("no fish",), "inferred", "inferred")


async def test_no_page_takes_back_or_ends_what_a_person_said(provider):
    """Neither a value among several nor the only one; what came from a page itself is taken back."""
    person, page = Source(trust="inferred"), Source(trust="untrusted")
    await provider.save(MultipleFacts(FOOD, ["meat"], source=person), USER, HERE)
    await provider.save(MultipleFacts(FOOD, ["steak"], source=page), USER, HERE)
    await provider.save(SingleFact(CITY, "Oslo", source=person), USER, HERE)
    ends = {"valid_to": "2026-11-28"}
    facts = [said("meat", "food", **ends), said("steak", "food", **ends), said("Oslo", **ends)]
    await told(provider, {"facts": facts}, calls=[ToolCalls([ToolCall("page")])])
    assert [fact.values for fact in await provider.load(FOOD, USER, HERE)] == [("meat",)]
    assert [fact.value for fact in await provider.load(CITY, USER, HERE)] == ["Oslo"]


async def test_a_model_is_shown_times_and_contradictions(provider):
    """Since when and until when; of two values, who said each and when, the more trusted one first; also by the tool and in summaries."""
    april = SingleFact(CITY, "Oslo", valid_from=day(2026, 4, 30, 22), valid_to=day(2026, 12, 31, 23))
    zoned = {name: getattr(april, name).astimezone(ZoneInfo(OSLO)) for name in ("valid_from", "valid_to")}
    diet, page = Concept("diet"), Source(trust="untrusted")
    await provider.save(SingleFact(CITY, "Oslo", **zoned), USER, HERE)
    await provider.save(SingleFact(diet, "vegetarian", source=Source(trust="inferred")), USER, HERE)
    await provider.save(SingleFact(diet, "steak", source=page), USER, HERE)
    recalling = ToolCalls([ToolCall("recall_facts", {"queries": ["diet"]})])
    ask, act, shrink = llm_request(), execute_tools(), compress_history(StoredFacts(diet, subjects=[USER]))
    strategy = Strategy("talk", START >> ask, ask.on(ToolCalls) >> act >> shrink >> ask, ask.on(str) >> END)
    model = ScriptedModel([recalling, "Hello."])
    agent = Agent(strategy, model=model)
    agent.install(AgentMemory, provider=provider, subjects=[USER], recall="run", learn=False)
    result = await agent.run("Hello!")
    first, *_ = model.requests[0].messages
    assert [json.loads(line) for line in first.text.splitlines() if line.startswith("{")] == [
        {"concept": "city", "value": "Oslo", "about": "user", "date": "2026-11-28", "since": "2026-05-01", "until": "2026-12-31"},
        VEGETARIAN, STEAK,
    ]  # fmt: skip
    [turn] = [step for step in result.memory.steps if isinstance(step, ActionStep) and step.tool_calls]
    for text in (
        turn.observations,
        *(message.text for message in model.requests[1].messages if "facts" in message.text),
    ):
        assert [json.loads(line) for line in text.splitlines() if '"diet"' in line] == [VEGETARIAN, STEAK]
    await provider.save(SingleFact(diet, "vegan", source=Source(trust="inferred")), USER, HERE)
    [fact] = await provider.load(diet, USER, HERE)
    assert fact.value == "vegan"


VEGETARIAN = {
    "concept": "diet", "value": "vegetarian", "about": "user", "date": "2026-11-28", "trust": "inferred",
    "contradicts": "the other value; this one was said in a conversation",
}  # fmt: skip
STEAK = {
    "concept": "diet", "value": "steak", "about": "user", "date": "2026-11-28", "trust": "untrusted",
    "contradicts": "the other value, which counts more; this one comes from a tool or a page",
}  # fmt: skip
