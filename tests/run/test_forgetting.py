"""Forgetting: what of an owner is forgotten reaches what was cached for them, in nodes, tools and models."""

from __future__ import annotations

import pytest

from graphagent import END, START, Agent, Context, Strategy, node, tool
from graphagent.errors import NodeFailedError, RunNotFoundError
from graphagent.history import clear_cache, forget_runs, forget_thread, prune_runs
from graphagent.llm import CachedModel, ToolCall
from graphagent.memory import Concept, FactType, Notes, Scope, SingleFact, StoreMemoryProvider, Subject
from graphagent.nodes import llm_request
from graphagent.testing import ScriptedModel
from graphagent_strategies import single_run

USER, SCOPE = Subject("user"), Scope.agent("a")
CITY = Concept("city", "The city in which the user lives", FactType.SINGLE)


@node
async def length(ctx: Context, text: str) -> str:
    return f"{text} {len(text)}"


@tool(cached=3600)
def weather(city: str) -> str:
    """Give the weather in a city."""
    return f"sunny in {city}"


def said(request):
    return "It is sunny." if request.messages[-1].role == "tool" else ToolCall("weather", {"city": "Oslo"})


async def cached(store):
    return sorted([item.key[1:3] async for item in store.scan(("cache",))])


async def _runs(store):
    await forget_runs(store, owner="ada", run_ids=["ada"])


async def _all_runs(store):
    await forget_runs(store, owner="ada")


async def _thread(store):
    await forget_thread(store, "t", owner="ada")


async def _thread_of_pruned(store):
    await prune_runs(store, owner="ada", run_ids=["ada"])
    await forget_thread(store, "t", owner="ada")


async def _fact(store):
    await StoreMemoryProvider(store).forget(concept=CITY, owner="ada")


async def _note(store):
    notes = Notes(store, owner="ada")
    await notes.forget(ids=[(await notes.list_records())[0].id])


@pytest.mark.parametrize("forget", [_runs, _all_runs, _thread, _thread_of_pruned, _fact, _note])
async def test_what_is_forgotten_is_not_in_a_cache(store, forget):
    """Outputs, results and answers that were cached for the owner are erased with a run, a thread, a fact or a note; no one else's."""
    strategy = Strategy("s", START >> length.cached() >> single_run() >> END)
    agent = Agent(strategy, model=CachedModel(ScriptedModel([said] * 10), store), tools=[weather], store=store)
    for owner in ("ada", "bob"):
        await agent.run("Sun?", owner=owner, run_id=owner, thread="t")
    await agent.run("Rain?", owner="ada", thread="t")
    await StoreMemoryProvider(store).save(SingleFact(CITY, "Oslo"), USER, SCOPE, owner="ada")
    await Notes(store, owner="ada").remember("Ada lives in Oslo.")
    of_bob = [("bob", "model"), ("bob", "model"), ("bob", "run"), ("bob", "run")]
    assert await cached(store) == [*[("ada", "model")] * 4, *[("ada", "run")] * 3, *of_bob]
    await forget(store)
    assert await cached(store) == of_bob


async def test_an_answer_belongs_to_the_owner_of_the_run_unless_the_model_has_one(store):
    """Nobody is answered from what another owner's run asked; with `owner=`, all share answers, which stay when a run is forgotten."""
    own, shared = ScriptedModel(["own"] * 3), ScriptedModel(["shared"] * 3)
    for model, owner in ((own, None), (shared, "all")):
        agent = Agent(single_run(), model=CachedModel(model, store, owner=owner), store=store)
        for user in ("ada", "bob", "ada"):
            await agent.run("Sun?", owner=user)
    assert (len(own.requests), len(shared.requests)) == (2, 1)
    for user in ("ada", "bob"):
        await forget_runs(store, owner=user)
    assert await cached(store) == [("all", "model")]
    assert await clear_cache(store, owner="all") == 1


async def test_an_answer_that_comes_after_its_run_was_forgotten_is_not_kept(store):
    """A model may be asked while the owner is forgotten: what it says then is not stored."""

    class Slow(ScriptedModel):
        async def respond(self, request, on_text=None):
            await forget_runs(store, owner="ada")
            return await super().respond(request, on_text)

    ask = Strategy("s", START >> llm_request() >> END)
    with pytest.raises((RunNotFoundError, NodeFailedError)):
        await Agent(ask, model=CachedModel(Slow(["Yes."]), store), store=store).run("Sun?", owner="ada")
    assert await cached(store) == []


async def test_what_notes_ask_belongs_to_their_owner(store):
    """Answers about notes are cached for the owner of the notes, and erased with them."""
    model = CachedModel(ScriptedModel(['{"statements": ["Ada lives in Oslo."]}']), store)
    notes = Notes(store, owner="ada", model=model)
    assert await notes.extract_memories("Well, Ada lives in Oslo.") == ["Ada lives in Oslo."]
    await notes.remember("Ada lives in Oslo.", infer="never")
    assert await cached(store) == [("ada", "model")]
    await notes.reset()
    assert await cached(store) == []
