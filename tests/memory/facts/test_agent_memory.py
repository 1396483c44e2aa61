from __future__ import annotations

import logging

import pytest

from graphagent import END, START, Agent, Context, Strategy, node, parallel, tool
from graphagent.errors import FeatureError, NodeFailedError, StoreError, UnsupportedError
from graphagent.events import ExtractionFailed, FactsLoaded, FactsSaved
from graphagent.llm import ToolCall, ToolCalls
from graphagent.memory import (
    EVERYTHING,
    ActionStep,
    AgentMemory,
    Concept,
    FactsStep,
    FactType,
    FileMemoryProvider,
    MultipleFacts,
    NoMemory,
    Scope,
    ScopeKind,
    SingleFact,
    Source,
    StoreMemoryProvider,
    Subject,
)
from graphagent.nodes import (
    auto_detect_facts,
    execute_tools,
    llm_request,
    load_all_facts,
    load_facts,
    passthrough,
    save_facts,
)
from graphagent.store import MemoryStore
from graphagent.testing import ScriptedModel, fixed_clock

USER = Subject("user", "the user", priority=1)
CITY = Concept("city", "where the user lives")
TOOLS = Concept("tools", "tools the user works with", FactType.MULTIPLE)
HERE = Scope.agent("talk")


def fact(value="Oslo", keyword="city", subject="user", description="where the user lives"):
    return {"subject": subject, "keyword": keyword, "description": description, "value": value}


def learner(provider, *replies, subjects=(USER,)):
    """An agent that answers and then detects facts."""
    ask, learn = llm_request(tools=False), auto_detect_facts(subjects=subjects)
    model = ScriptedModel(["Hello!", *replies])
    agent = Agent(Strategy("talk", START >> ask >> learn >> END), model=model)
    agent.install(AgentMemory, provider=provider)
    return agent, model


@pytest.fixture
def provider():
    return StoreMemoryProvider(MemoryStore())


GOOD = {"facts": [fact()]}


@pytest.mark.parametrize(
    "reply",
    [
        GOOD,
        [fact()],
        ('```json\n{"facts": [{"subject": "user", "keyword": "city", "description": "d", "value": "Oslo"}]}\n```'),
        'Sure! {"facts": [{"subject": "User ", "keyword": "city", "description": "d", "value": " Oslo "}]} Anything else?',
        '{"facts": [{"subject": "user", "keyword": "city", "value": "Oslo"}]}',
    ],
    ids=["object", "bare list", "fenced", "in prose", "no description"],
)
async def test_detected_facts_are_kept_in_whatever_form_the_answer_holds_them(provider, reply):
    """JSON as asked for, as a bare list, fenced or inside prose gives the same fact."""
    agent, _ = learner(provider, reply)
    result = await agent.run("I live in Oslo.")
    [kept] = await provider.load(CITY, USER, HERE)
    assert kept.value == "Oslo"
    assert (kept.source.run_id, kept.source.origin, kept.source.trust) == (
        result.run_id,
        "auto_detect_facts",
        "inferred",
    )
    assert kept.source.step is not None
    assert kept.timestamp is not None


@pytest.mark.parametrize(
    "reply",
    [
        "I found nothing of note.",
        '{"facts": [{"subject": "user", "keyw',
        {"facts": [[[{"facts": {}}]]]},
        {"facts": {"subject": "user"}},
        {"facts": [fact(f"city {number}", f"k{number}") for number in range(10_000)]},
        "",
    ],
    ids=["prose", "half a JSON", "nested nonsense", "no list", "ten thousand", "nothing"],
)
async def test_an_answer_that_is_no_use_keeps_nothing_and_is_told_as_an_event(provider, reply):
    """A bad answer is asked for once more; then nothing is kept, an event says so, and the run goes on."""
    agent, model = learner(provider, reply, reply)
    failed: list[ExtractionFailed] = []
    agent.on(ExtractionFailed, failed.append)
    assert (await agent.run("I live in Oslo.")).output == "Hello!"
    assert len(failed) == 1
    assert "Oslo" not in failed[0].reason
    assert await provider.load_all(USER, HERE) == []
    assert len(model.requests) in (2, 3)


async def test_a_bad_answer_is_repaired_by_asking_again(provider):
    """The second answer counts when the first does not fit."""
    agent, model = learner(provider, "Oslo, I think.", GOOD)
    await agent.run("I live in Oslo.")
    assert [kept.value for kept in await provider.load(CITY, USER, HERE)] == ["Oslo"]
    assert len(model.requests) == 3


async def test_unknown_subjects_and_answers_that_are_no_facts_are_dropped(provider, caplog):
    """What nobody asked for, and a model's ways to say that it knows nothing, are not kept."""
    entries = [
        fact("secret", "k", subject="system"),
        *(fact(word, f"k{n}") for n, word in enumerate(("unknown", "Not mentioned.", "N/A", "null", " "))),
        fact("Oslo", "x" * 2000),
        fact(),
    ]
    agent, _ = learner(provider, {"facts": entries})
    with caplog.at_level(logging.WARNING, "graphagent"):
        await agent.run("I live in Oslo.")
    assert [kept.concept.keyword for kept in await provider.load_all(USER, HERE)] == ["city"]
    assert "dropped" in caplog.text
    assert "secret" not in caplog.text


async def test_several_values_of_one_keyword_are_one_fact(provider):
    """Two entries of one subject and keyword make MultipleFacts."""
    agent, _ = learner(provider, {"facts": [fact("git", "tools"), fact("vim", "tools"), fact("git", "tools")]})
    await agent.run("I use git and vim.")
    [kept] = await provider.load(TOOLS, USER, HERE)
    assert isinstance(kept, MultipleFacts)
    assert kept.values == ("git", "vim")


async def test_extraction_leaves_the_transcript_as_it_was(provider):
    """Questions to the model about facts are no part of the conversation."""
    agent, _ = learner(provider, GOOD)
    result = await agent.run("I live in Oslo.")
    assert [type(step).__name__ for step in result.memory.steps] == ["TaskStep", "ActionStep", "FinalAnswerStep"]
    assert result.turns == 1


async def test_extraction_counts_in_tokens(provider):
    """Its tokens are in the run's usage."""
    agent, model = learner(provider, GOOD)
    result = await agent.run("I live in Oslo.")
    assert result.usage.total_tokens > 0
    assert len(model.requests) == 2


async def test_what_came_through_a_tool_makes_facts_untrusted(provider):
    """Facts are trusted as the worst of what was heard: a tool's result comes from outside."""

    @tool
    def page() -> str:
        """A page of the web."""
        return "The user lives in Oslo."

    ask, act, learn = llm_request(), execute_tools(), auto_detect_facts(subjects=[USER])
    strategy = Strategy("talk", START >> ask, ask.on(ToolCalls) >> act >> ask, ask.on(str) >> learn >> END)
    agent = Agent(strategy, model=ScriptedModel([ToolCalls([ToolCall("page")]), "Read.", GOOD]), tools=[page])
    agent.install(AgentMemory, provider=provider)
    await agent.run("Read the page.")
    [kept] = await provider.load(CITY, USER, HERE)
    assert kept.source.trust == "untrusted"


async def test_extraction_hears_this_run_alone_and_no_loaded_facts(provider):
    """What was said in earlier runs was heard then, and what is known already is not learned again."""
    await provider.save(SingleFact(Concept("pet"), "a cat named Tove"), USER, HERE)
    ask, learn = llm_request(tools=False), auto_detect_facts(subjects=[USER])
    strategy = Strategy("talk", START >> load_all_facts(subjects=[USER]) >> ask >> learn >> END)
    model = ScriptedModel(["One.", {"facts": []}, "Two.", {"facts": []}])
    agent = Agent(strategy, model=model)
    agent.install(AgentMemory, provider=provider)
    first = await agent.run("I live in Oslo.")
    await agent.run("And you?", steps=first.memory)
    said = model.requests[3].messages[-1].text
    assert "And you?" in said
    assert "Oslo" not in said
    assert "Tove" not in said
    assert sum("Tove" in message.text for message in model.requests[2].messages) == 1


async def test_save_facts_asks_for_the_given_concepts(provider):
    """Each concept is asked for by itself; of several values of a single concept the last counts."""
    ask, keep = llm_request(tools=False), save_facts(CITY, TOOLS, subject=USER)
    model = ScriptedModel(["Hello!", {"values": ["Bergen", "Oslo"]}, ["git", "unknown"]])
    agent = Agent(Strategy("talk", START >> ask >> keep >> END), model=model)
    agent.install(AgentMemory, provider=provider)
    saved: list[FactsSaved] = []
    agent.on(FactsSaved, saved.append)
    await agent.run("I moved from Bergen to Oslo and use git.")
    assert [kept.values for kept in await provider.load_all(USER, HERE)] == [("Oslo",), ("git",)]
    assert [(event.node, event.count) for event in saved] == [("save_facts", 1), ("save_facts", 1)]


async def test_loaded_facts_stand_before_the_task(provider):
    """The model is sent the facts in a message of their own, before the task; with nothing known there is none."""
    ask = llm_request(tools=False)
    strategy = Strategy("talk", START >> load_facts(CITY, subjects=[USER]) >> ask >> END)
    model = ScriptedModel(["?", "Oslo."])
    agent = Agent(strategy, model=model, system_prompt="Be brief.")
    agent.install(AgentMemory, provider=provider)
    loaded: list[FactsLoaded] = []
    agent.on(FactsLoaded, loaded.append)
    await agent.run("Where do I live?")
    assert [message.role for message in model.requests[0].messages] == ["system", "user"]
    assert not loaded
    await provider.save(SingleFact(CITY, "Oslo"), USER, HERE)
    result = await agent.run("Where do I live?")
    sent = model.requests[1].messages
    assert [message.role for message in sent] == ["system", "user", "user"]
    assert "<facts>" in sent[1].text
    assert sent[2].text == "Where do I live?"
    assert [type(step) for step in result.memory.steps[1:3]] == [FactsStep, ActionStep]
    assert [event.count for event in loaded] == [1]


async def test_the_narrower_and_more_important_fact_is_loaded(provider):
    """Over several subjects and scopes one fact of a concept reaches the model."""
    app = Scope.product("app")
    await provider.save(SingleFact(CITY, "everywhere", timestamp=9), EVERYTHING, HERE)
    await provider.save(SingleFact(CITY, "wide", timestamp=8), USER, app)
    await provider.save(SingleFact(CITY, "narrow", timestamp=1), USER, HERE)
    strategy = Strategy("talk", START >> load_all_facts(subjects=[EVERYTHING, USER]) >> llm_request(tools=False) >> END)
    model = ScriptedModel(["?"])
    agent = Agent(strategy, model=model)
    agent.install(AgentMemory, provider=provider, product_name="app")
    await agent.run("Where?")
    sent = model.requests[0].messages[0].text
    assert "narrow" in sent
    assert "wide" not in sent
    assert "everywhere" not in sent


@node
async def remember(ctx: Context, city: str) -> list[str]:
    memory = ctx.feature(AgentMemory)
    await memory.save(SingleFact(CITY, city), USER)
    return [kept.value for kept in await memory.load(CITY, subjects=[USER])]


async def test_memory_in_a_node_stamps_where_a_fact_comes_from(provider):
    """A fact saved by a node is trusted and names the run and the node; its time is the clock's."""
    agent = Agent(Strategy("talk", START >> remember >> END))
    agent.install(AgentMemory, provider=provider)
    with fixed_clock(start_ms=1_000_000):
        result = await agent.run("Oslo", run_id="run-1")
    assert result.output == ["Oslo"]
    [kept] = await provider.load(CITY, USER, HERE)
    assert (kept.source.run_id, kept.source.origin, kept.source.trust) == ("run-1", "remember", "trusted")
    assert kept.timestamp is not None
    assert 1_000_000 <= kept.timestamp < 1_001_000


async def test_owners_are_kept_apart(provider):
    """What is learned for one owner is not known for another, nor for none."""
    agent = Agent(Strategy("talk", START >> remember >> END))
    agent.install(AgentMemory, provider=provider)
    assert (await agent.run("Oslo", owner="a")).output == ["Oslo"]
    assert await provider.load(CITY, USER, HERE) == []
    assert [kept.value for kept in await provider.load(CITY, USER, HERE, owner="a")] == ["Oslo"]
    assert await provider.load(CITY, USER, HERE, owner="b") == []


class FourMethods:
    """A provider that knows no owners."""

    def __init__(self):
        self.saved = []

    async def save(self, fact, subject, scope):
        self.saved.append(fact)

    async def load(self, concept, subject, scope):
        return []

    async def load_all(self, subject, scope):
        return []

    async def load_by_description(self, description, subject, scope):
        return []


async def test_a_run_with_an_owner_is_refused_where_owners_would_mix():
    """A provider that knows no owners gets no run that has one; not even its first node is executed."""
    provider = FourMethods()
    agent = Agent(Strategy("talk", START >> remember >> END))
    agent.install(AgentMemory, provider=provider)
    with pytest.raises(FeatureError, match="KeepingProvider"):
        await agent.run("Oslo", owner="a")
    assert provider.saved == []
    await agent.run("Oslo")
    assert len(provider.saved) == 1


def test_a_scope_kind_without_a_name_is_refused_at_install():
    """The error names the node and the argument to add, and the feature is not installed."""
    keep = save_facts(CITY, scope=ScopeKind.PRODUCT)
    agent = Agent(Strategy("talk", START >> llm_request(tools=False) >> keep >> END))
    with pytest.raises(FeatureError, match=r"'save_facts'.*product.*product_name="):
        agent.install(AgentMemory)
    agent.install(AgentMemory, product_name="app")


async def test_without_a_provider_nothing_is_kept_and_nothing_fails():
    """The default provider keeps nothing."""
    agent = Agent(Strategy("talk", START >> remember >> END))
    assert isinstance(agent.install(AgentMemory).provider, NoMemory)
    assert (await agent.run("Oslo")).output == []


async def test_what_works_on_a_transcript_needs_a_run():
    """The installed feature itself speaks for no run, and says so."""
    agent = Agent(Strategy("talk", START >> remember >> END))
    memory = agent.install(AgentMemory)
    with pytest.raises(FeatureError, match="in a node"):
        await memory.detect_facts()


async def test_memory_that_cannot_be_written_fails_the_run_with_a_typed_error(tmp_path):
    """A store that cannot be written is an error of the node, whose cause says what is wrong."""
    (tmp_path / "memory").write_text("a file where the folder should be")
    agent = Agent(Strategy("talk", START >> remember >> END))
    agent.install(AgentMemory, provider=FileMemoryProvider(tmp_path / "memory"))
    with pytest.raises(NodeFailedError) as caught:
        await agent.run("Oslo")
    assert caught.value.node == "remember"
    assert isinstance(caught.value.__cause__, StoreError)
    assert "Oslo" not in str(caught.value)


async def test_a_value_that_changes_back_is_shown_again(provider):
    """What the model was shown last of a fact counts, not what it was shown once."""
    ask = llm_request(tools=False)
    agent = Agent(
        Strategy("talk", START >> load_all_facts(subjects=[USER]) >> ask >> END),
        model=ScriptedModel(["ok"] * 4),
    )
    agent.install(AgentMemory, provider=provider)
    steps = None
    for city in ("Oslo", "Bergen", "Oslo", "Oslo"):
        await provider.save(SingleFact(CITY, city), USER, HERE)
        steps = (await agent.run("?", steps=steps)).memory
    frames = [step.facts[0].fact.value for step in steps.steps if isinstance(step, FactsStep)]
    assert frames == ["Oslo", "Bergen", "Oslo"]


async def test_facts_made_of_untrusted_ones_are_untrusted(provider):
    """What a model repeats of an untrusted fact, or of a tool's result in an earlier run, gains no trust by that."""

    @tool
    def page() -> str:
        """A page of the web."""
        return "The user lives in Oslo."

    pet = Concept("pet")
    await provider.save(SingleFact(pet, "a snake", source=Source(trust="untrusted")), USER, HERE)
    ask, learn = llm_request(tools=False), auto_detect_facts(subjects=[USER])
    agent = Agent(
        Strategy("talk", START >> load_all_facts(subjects=[USER]) >> ask >> learn >> END),
        model=ScriptedModel(["You have a snake.", {"facts": [fact("snake", "animal")]}]),
    )
    agent.install(AgentMemory, provider=provider)
    await agent.run("What do you know?")
    [kept] = await provider.load(Concept("animal"), USER, HERE)
    assert kept.source.trust == "untrusted"

    ask, act, learn = llm_request(), execute_tools(), auto_detect_facts(subjects=[USER])
    strategy = Strategy("talk", START >> ask, ask.on(ToolCalls) >> act >> ask, ask.on(str) >> learn >> END)
    replies = [ToolCalls([ToolCall("page")]), "Read.", {"facts": []}, "You live in Oslo.", GOOD]
    agent = Agent(strategy, model=ScriptedModel(replies), tools=[page])
    agent.install(AgentMemory, provider=provider)
    first = await agent.run("Read the page.")
    await agent.run("Where do I live?", steps=first.memory)
    [kept] = await provider.load(CITY, USER, HERE)
    assert kept.source.trust == "untrusted"


async def test_a_declared_trust_is_only_lowered(provider):
    """A fact that says that it is untrusted stays so; what a tool saves with a model's arguments is inferred at most."""

    @node
    async def quote(ctx: Context, city: str) -> None:
        await ctx.feature(AgentMemory).save(SingleFact(CITY, city, source=Source(trust="untrusted")), USER)

    agent = Agent(Strategy("talk", START >> quote >> END))
    agent.install(AgentMemory, provider=provider)
    await agent.run("Oslo")
    [kept] = await provider.load(CITY, USER, HERE)
    assert kept.source.trust == "untrusted"

    @tool
    async def note(ctx: Context, pet: str) -> str:
        """Note a pet."""
        await ctx.feature(AgentMemory).save(SingleFact(Concept("pet"), pet), USER)
        return "noted"

    ask, act = llm_request(), execute_tools()
    strategy = Strategy("talk", START >> ask, ask.on(ToolCalls) >> act >> ask, ask.on(str) >> END)
    agent = Agent(strategy, model=ScriptedModel([ToolCalls([ToolCall("note", {"pet": "cat"})]), "ok"]), tools=[note])
    agent.install(AgentMemory, provider=provider, recall=False, learn=False)
    await agent.run("I have a cat.")
    [kept] = await provider.load(Concept("pet"), USER, HERE)
    assert kept.source.trust == "inferred"


async def test_extraction_in_a_branch_hears_what_was_said_before_the_fork(provider):
    """A branch learns from the whole run; where nothing was said, the model is not asked."""
    learn = auto_detect_facts(subjects=[USER])
    ask = llm_request(tools=False)
    branch = Strategy("branch", START >> passthrough(str) >> learn >> END)
    model = ScriptedModel(["Hello!", GOOD, {"facts": []}])
    agent = Agent(
        Strategy("talk", START >> ask >> parallel(branch, passthrough(str, name="other")) >> END), model=model
    )
    agent.install(AgentMemory, provider=provider, agent_name="talk")
    await agent.run("I live in Oslo.")
    assert "I live in Oslo." in model.requests[1].messages[-1].text
    [kept] = await provider.load(CITY, USER, HERE)
    assert kept.value == "Oslo"


async def test_subjects_may_be_any_iterable(provider):
    """An iterator is used for all concepts, not for the first alone."""
    pet = Concept("pet")
    await provider.save(SingleFact(CITY, "Oslo"), USER, HERE)
    await provider.save(SingleFact(pet, "cat"), USER, HERE)
    found = []

    @node
    async def look(ctx: Context, text: str) -> None:
        memory = ctx.feature(AgentMemory)
        found.extend(await memory.load_facts_to_agent(CITY, pet, subjects=(each for each in [USER])))

    agent = Agent(Strategy("talk", START >> look >> END))
    agent.install(AgentMemory, provider=provider)
    await agent.run("?")
    assert [each.value for each in found] == ["Oslo", "cat"]


async def test_history_and_forgetting_in_a_node(provider):
    """They are those of the run's owner; a provider of four methods lacks them, and a typed error says so."""

    @node
    async def leave(ctx: Context, city: str) -> list[int]:
        memory = ctx.feature(AgentMemory)
        await memory.save(SingleFact(CITY, city), USER)
        versions = len(await memory.history(CITY, USER))
        for given in ({}, {"concept": None}, {"subject": USER, "everything": True}):
            with pytest.raises(ValueError, match="everything=True"):
                await memory.forget(**given)
        removed = (await memory.forget(subject=USER)).facts
        await memory.save(SingleFact(CITY, city), USER)
        return [versions, removed, (await memory.forget(everything=True)).facts, len(await memory.load_all([USER]))]

    agent = Agent(Strategy("talk", START >> leave >> END))
    agent.install(AgentMemory, provider=provider)
    assert (await agent.run("Oslo", owner="a")).output == [1, 1, 1, 0]
    plain = Agent(Strategy("talk", START >> leave >> END))
    plain.install(AgentMemory, provider=FourMethods())
    with pytest.raises(NodeFailedError) as caught:
        await plain.run("Oslo")
    assert isinstance(caught.value.__cause__, UnsupportedError)


@pytest.mark.parametrize("wrong", ["facts/", FileMemoryProvider, 5])
def test_what_is_no_provider_is_refused_at_install(wrong):
    """A path, or a class instead of an object, is an error where it stands."""
    with pytest.raises(TypeError, match="keeps facts"):
        Agent(Strategy("talk", START >> remember >> END)).install(AgentMemory, provider=wrong)
