"""Arguments in the wrong order, and classes in the place of objects: refused where they are passed in, with what to write."""

from __future__ import annotations

import pytest

from graphagent import END, START, Agent, Strategy
from graphagent.errors import FeatureError
from graphagent.events import NodeFinished
from graphagent.memory import (
    AgentMemory,
    Concept,
    FileMemoryProvider,
    Scope,
    ScopeKind,
    SingleFact,
    StoreMemoryProvider,
    Subject,
)
from graphagent.nodes import passthrough
from graphagent.store import MemoryStore
from tests.memory.facts.test_agent_memory import FourMethods

CITY, ADA, SHOP = Concept("city"), Subject("ada"), Scope.agent("shop")
SECRET = "sesame-7319"
FACT = SingleFact(CITY, SECRET)


PROVIDER_CALLS = {
    "save swapped": (
        lambda it: it.save(FACT, SHOP, ADA),
        "subject is a Subject.* not a Scope; write save.fact, subject, scope",
    ),
    "save text": (lambda it: it.save(SECRET, ADA, SHOP), "fact is a SingleFact .* not a str; write save"),
    "load text": (
        lambda it: it.load("city", ADA, SHOP),
        "Concept.'city'.*not a str; write load.concept, subject, scope",
    ),
    "load swapped": (lambda it: it.load(CITY, SHOP, ADA), "subject is a Subject.* not a Scope; write load"),
    "load kind": (lambda it: it.load(CITY, ADA, ScopeKind.AGENT), "scope is a Scope.* not a ScopeKind; write load"),
    "load_all swapped": (lambda it: it.load_all(SHOP, ADA), "subject is a Subject.*write load_all.subject, scope"),
    "by description": (lambda it: it.load_by_description(CITY, ADA, SHOP), "description is text, not a Concept"),
    "by description swapped": (lambda it: it.load_by_description("c", SHOP, ADA), "subject is a Subject"),
    "history swapped": (lambda it: it.history(CITY, SHOP, ADA), "subject is a Subject.*write history"),
    "history text": (lambda it: it.history("city", ADA, SHOP), "concept is a Concept"),
    "forget": (lambda it: it.forget(subject=SHOP), "subject= is a Subject, not a Scope"),
}


@pytest.mark.parametrize("call", PROVIDER_CALLS)
@pytest.mark.parametrize("kind", ["files", "store"])
async def test_a_provider_refuses_arguments_in_the_wrong_order(tmp_path, kind, call):
    """Facts would be stored in another place than where they are looked for; the error shows no value."""
    provider = FileMemoryProvider(tmp_path) if kind == "files" else StoreMemoryProvider(MemoryStore())
    calling, said = PROVIDER_CALLS[call]
    with pytest.raises(TypeError, match=said) as caught:
        await calling(provider)
    assert SECRET not in str(caught.value)
    assert [each async for each in provider.export()] == []


MEMORY_CALLS = {
    "save swapped": (lambda it: it.save(FACT, SHOP, ADA), "subject is a Subject.*write save"),
    "save text": (lambda it: it.save(SECRET), "fact is a SingleFact"),
    "save to a name": (lambda it: it.save(FACT, ADA, "shop"), "place is a Scope or ScopeKind.* not a str"),
    "load text": (lambda it: it.load("city"), "concept is a Concept.*write load.concept"),
    "load one": (lambda it: it.load(CITY, ADA), r"subjects is a list, not a Subject; write subjects=\[subject"),
    "load one scope": (lambda it: it.load(CITY, scopes=SHOP), r"scopes is a list, not a Scope; write scopes=\[scope"),
    "load swapped": (lambda it: it.load(CITY, [SHOP], [ADA]), "place is a Scope.* not a Subject"),
    "load_all one": (lambda it: it.load_all(SHOP), "subjects is a list"),
    "load_all swapped": (lambda it: it.load_all([ADA], [ADA]), "place is a Scope or ScopeKind.* not a Subject"),
    "known": (lambda it: it.known("city"), "concept is a Concept"),
    "history text": (lambda it: it.history("city"), "concept is a Concept"),
    "history swapped": (lambda it: it.history(CITY, SHOP, ADA), "subject is a Subject"),
    "forget": (lambda it: it.forget(subject=SHOP), "subject= is a Subject"),
    "forget swapped": (lambda it: it.forget(scope=ADA), "place is a Scope or ScopeKind"),
    "forget text": (lambda it: it.forget(concept="city"), "concept= is a Concept"),
}


@pytest.mark.parametrize("call", MEMORY_CALLS)
async def test_agent_memory_refuses_them_for_any_provider(call):
    """Also over a provider of one's own, which checks nothing."""
    provider = FourMethods()
    memory = AgentMemory(provider=provider, agent_name="shop")
    calling, said = MEMORY_CALLS[call]
    with pytest.raises(TypeError, match=said) as caught:
        await calling(memory)
    assert SECRET not in str(caught.value)
    assert provider.saved == []


def test_an_object_in_the_place_of_a_feature_is_refused():
    """The error is the line to write."""
    agent = Agent(Strategy("s", START >> passthrough(str) >> END))
    with pytest.raises(TypeError, match=r"write agent\.install\(AgentMemory, …\)"):
        agent.install(AgentMemory(provider=FourMethods()))
    with pytest.raises(TypeError, match=r"such as agent\.install\(AgentMemory, provider=…\), not a FourMethods"):
        agent.install(FourMethods())
    assert isinstance(agent.install(AgentMemory, provider=FourMethods()), AgentMemory)
    with pytest.raises(FeatureError, match="installed already"):
        agent.install(AgentMemory)


def test_a_handler_before_its_event_is_refused():
    """Handlers stand after the type of events."""
    agent = Agent(Strategy("s", START >> passthrough(str) >> END))
    with pytest.raises(TypeError, match=r"write agent\.on\(NodeFinished, handler\)"):
        agent.on(print, NodeFinished)
    with pytest.raises(TypeError, match=r"write run\.on\(NodeFinished, handler\)"):
        agent.start("x").on(print, NodeFinished)
    with pytest.raises(TypeError, match=r"write agent\.on\(NodeFinished, handler\)"):
        agent.on(NodeFinished, "print")
