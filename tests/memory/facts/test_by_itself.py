"""AgentMemory in an agent whose strategy has no node for it, and what a model is shown and told of facts."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from graphagent import END, START, Agent, Context, Strategy, node
from graphagent.errors import ModelRequestError
from graphagent.events import ExtractionFailed
from graphagent.llm import ToolCall
from graphagent.memory import (
    AgentMemory,
    Concept,
    FactsStep,
    NoMemory,
    Scope,
    SingleFact,
    StoreMemoryProvider,
    Subject,
)
from graphagent.nodes import auto_detect_facts, llm_request
from graphagent.store import MemoryStore
from graphagent.testing import ScriptedModel, fixed_clock
from graphagent_strategies import personal, single_run

USER = Subject("user")
CITY = Concept("city", "where the user lives")
HERE = Scope.agent("single_run")
OSLO = {"subject": "user", "keyword": "city", "description": "where the user lives", "value": "Oslo"}


@pytest.fixture
def provider():
    return StoreMemoryProvider(MemoryStore())


def remembering(provider, *replies, strategy=None, store=None, **settings):
    model = ScriptedModel(replies)
    agent = Agent(strategy or single_run(), model=model, store=store)
    agent.install(AgentMemory, provider=provider, **settings)
    return agent, model


@pytest.mark.parametrize("kind", [None, MemoryStore], ids=["alone", "stored"])
async def test_a_strategy_without_memory_nodes_recalls_before_and_learns_after(provider, kind):
    """A run learns once, also if it is resumed, and the next run is shown what was learned."""
    store = kind and kind()
    agent, model = remembering(provider, "Hello!", {"facts": [OSLO]}, "In Oslo.", {"facts": []}, store=store)
    await agent.run("I live in Oslo.", run_id="one")
    if store is not None:
        assert (await agent.resume("one")).output == "Hello!"
    assert len(model.requests) == 2
    assert (await agent.run("Where do I live?")).output == "In Oslo."
    assert '"value":"Oslo","about":"user"' in model.requests[2].messages[0].text
    assert [tool.name for tool in model.requests[2].tools] == ["recall_facts"]


async def test_what_failed_to_be_learned_stays_due_in_a_store(provider):
    """The answer is there, an event says why nothing was learned, and settle tries again."""
    failed = ModelRequestError("no")
    agent, _ = remembering(provider, "Hello!", failed, {"facts": [OSLO]}, store=MemoryStore())
    heard: list[ExtractionFailed] = []
    agent.on(ExtractionFailed, heard.append)
    assert (await agent.run("I live in Oslo.")).output == "Hello!"
    assert len(heard) == 1
    assert await agent.settle() == 1
    assert [fact.value for fact in await provider.load(CITY, USER, HERE)] == ["Oslo"]


async def test_learning_in_the_background_needs_no_node(provider):
    """The run does not wait for it."""
    agent, model = remembering(provider, "Hello!", {"facts": [OSLO]}, store=MemoryStore(), learn="background")
    await agent.run("I live in Oslo.")
    assert (len(model.requests), await agent.settle(), len(model.requests)) == (1, 1, 2)


@node(needs=[AgentMemory])
async def own(ctx: Context, text: str) -> str:
    return text


@pytest.mark.parametrize(
    ("strategy", "settings", "requests"),
    [
        (Strategy("a", START >> llm_request(tools=False) >> END), {}, 2),
        (Strategy("a", START >> llm_request(tools=False) >> END), {"learn": False}, 1),
        (Strategy("a", START >> llm_request(tools=False) >> auto_detect_facts(subjects=[USER]) >> END), {}, 2),
        (Strategy("a", START >> own >> llm_request(tools=False) >> END), {}, 1),
        (Strategy("a", START >> own >> llm_request(tools=False) >> END), {"learn": True}, 2),
    ],
    ids=["by itself", "switched off", "a node that learns", "a node that needs it", "a node, and switched on"],
)
async def test_nodes_that_need_the_memory_replace_what_it_does_by_itself(provider, strategy, settings, requests):
    """So nothing is learned twice."""
    agent, model = remembering(provider, "Hello!", {"facts": []}, strategy=strategy, **settings)
    await agent.run("Hi!")
    assert len(model.requests) == requests


async def test_without_a_provider_a_model_is_not_asked_for_facts():
    """What it finds would be kept nowhere."""
    agent, model = remembering(NoMemory(), "Hello!")
    await agent.run("Hi!")
    assert len(model.requests) == 1


@pytest.mark.parametrize("zone", ["Pacific/Auckland", UTC, None])
async def test_a_model_that_looks_for_facts_is_told_the_day(provider, zone):
    """It is that of the conversation, in the time zone of the agent."""
    moment = datetime(2026, 3, 30, 20, tzinfo=UTC)
    agent, model = remembering(
        provider, "Hello!", {"facts": [OSLO]}, store=MemoryStore(), learn="background", timezone=zone
    )
    with fixed_clock(int(moment.timestamp() * 1000)):
        await agent.run("My lease ends in two weeks.")
    await agent.settle()
    there = moment.astimezone(None) if zone is None else datetime(2026, 3, 31 if zone != UTC else 30, tzinfo=UTC)
    assert f"{there.day} March 2026 ({there.date().isoformat()})" in model.requests[1].messages[0].text


async def test_a_fact_is_shown_with_its_day(provider):
    """A model can tell what was true then from what holds today; a time outside of the calendar has no day."""
    for keyword, time in (("lease", 1_774_900_800_000), ("era", 10**17)):
        await provider.save(SingleFact(Concept(keyword), "x", timestamp=time), USER, HERE)
    agent, model = remembering(provider, "Hello!", learn=False)
    await agent.run("Hi!")
    lines = model.requests[0].messages[0].text.splitlines()[-3:-1]
    assert sorted('"date":"2026-03-30"' in line for line in lines) == [False, True]


async def test_facts_beyond_the_limits_are_counted_and_found_by_a_tool(provider):
    """The newest are shown, and the others by a question about them; the transcript says how many were left out."""
    for number in range(30):
        fact = SingleFact(Concept(f"key-{number}", f"the word of number {number}"), f"value {number}", timestamp=number)
        await provider.save(fact, USER, HERE)
    ask = ToolCall("recall_facts", {"queries": ["number 3"]})
    agent, model = remembering(provider, ask, "It is value 3.", learn=False, limit=5)
    result = await agent.run("Which is 3?")
    text = model.requests[0].messages[0].text
    assert [f'"value":"value {n}"' in text for n in (24, 25, 29)] == [False, True, True]
    assert text.endswith(
        "There are 25 more facts than are shown here; the tool recall_facts, where it is offered, finds them."
    )
    [step] = [step for step in result.memory.steps if isinstance(step, FactsStep)]
    assert step.left_out == 25
    found = model.requests[1].messages[-1].text.splitlines()
    assert '"value":"value 3"' in found[2]


async def test_what_fits_a_question_best_is_found_though_newer_facts_fill_the_result(provider):
    """Beyond the characters of a result, those that fit least are left out."""
    await provider.save(SingleFact(Concept("boat"), "the red boat " + "y" * 1_000, timestamp=1), USER, HERE)
    for number in range(30):
        fact = SingleFact(Concept(f"key-{number}"), "boat " + "x" * 1_000, timestamp=2 + number)
        await provider.save(fact, USER, HERE)
    agent, model = remembering(provider, ToolCall("recall_facts", {"queries": ["red boat"]}), "It is red.", learn=False)
    await agent.run("Which boat?")
    assert "the red boat" in model.requests[1].messages[-1].text.splitlines()[2]


async def test_characters_limit_what_is_shown_too(provider):
    """A fact for which there is no room does not hide the others."""
    for keyword, value in (("long", "x" * 5_000), ("short", "y")):
        await provider.save(SingleFact(Concept(keyword), value), USER, HERE)
    agent, model = remembering(provider, "Hello!", learn=False, characters=1_000)
    await agent.run("Hi!")
    text = model.requests[0].messages[0].text
    assert ('"short"' in text, '"long"' in text) == (True, False)


@pytest.mark.parametrize(
    ("entries", "kept", "events"),
    [
        ([{"name": "Ada"}, {**OSLO, "value": ["Oslo", "Rome"]}], {"city": ("Oslo", "Rome")}, 1),
        ([{**OSLO, "value": None}, {**OSLO, "value": {"a": 1}}, "a text", OSLO], {"city": ("Oslo",)}, 1),
        ([{**OSLO, "subject": "The User"}], {"city": ("Oslo",)}, 0),
        ([{**OSLO, "keyword": "allergies", "value": "none"}], {"allergies": ("none",)}, 0),
        ([{**OSLO, "keyword": "age", "value": 42}], {"age": ("42",)}, 0),
    ],
)
async def test_sound_entries_are_saved_when_others_are_malformed(provider, entries, kept, events):
    """An event says how many were not; lists are spread, and subjects known in spite of their articles and hyphens."""
    agent, _ = remembering(provider, "Hello!", {"facts": entries})
    heard: list[ExtractionFailed] = []
    agent.on(ExtractionFailed, heard.append)
    await agent.run("I live in Oslo.")
    assert {fact.concept.keyword: fact.values for fact in await provider.load_all(USER, HERE)} == kept
    assert len(heard) == events
    assert not any("Ada" in event.reason for event in heard)


@pytest.mark.parametrize(
    ("settings", "error", "text"),
    [
        ({"timezone": "Mars/Olympus"}, ValueError, "write a name such as 'Europe/Oslo'"),
        ({"timezone": 3}, TypeError, "timezone is text"),
        ({"limit": 0}, ValueError, "limit=0 is not a limit"),
        ({"learn": "node"}, ValueError, "learn='node' is not known"),
        ({"recall": "always"}, ValueError, "recall='always' is not known"),
    ],
)
def test_settings_that_do_not_fit_are_refused(settings, error, text):
    """The message says what to write."""
    with pytest.raises(error, match=text):
        AgentMemory(**settings)


async def test_nodes_that_name_no_subjects_learn_about_the_user(provider):
    """Where nobody names a subject, there is one all the same: what a person says of herself is not asked for and dropped."""
    model = ScriptedModel(["Welcome!", {"facts": [OSLO]}])
    agent = Agent(personal(), model=model)
    agent.install(AgentMemory, provider=provider)
    await agent.run("I live in Oslo.")
    assert [fact.value for fact in await provider.load_all(USER, Scope.agent("personal"))] == ["Oslo"]
