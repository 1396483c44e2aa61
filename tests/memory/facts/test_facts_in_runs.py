"""Facts in runs that are kept: transcripts and effects refer to them, and a forgotten fact is gone from every run."""

from __future__ import annotations

import signal
import sys

import anyio
import pytest

from graphagent import END, START, Agent, Context, Strategy, node, parallel, tool
from graphagent.errors import ModelRequestError, NodeFailedError, RunError, RunNotFoundError, StoreError
from graphagent.events import FactsSaved
from graphagent.llm import ToolCall, ToolCalls
from graphagent.memory import (
    AgentMemory,
    Concept,
    EncryptedMemoryProvider,
    FactsStep,
    FactType,
    FileMemoryProvider,
    MessageStep,
    MultipleFacts,
    RunMemory,
    Scope,
    ScopeKind,
    SingleFact,
    StoreMemoryProvider,
    Subject,
)
from graphagent.nodes import (
    ask_human,
    auto_detect_facts,
    execute_tools,
    llm_request,
    load_all_facts,
    load_facts,
    save_facts,
)
from graphagent.store import EncryptedStore, MemoryStore, SqliteStore
from graphagent.testing import ScriptedModel
from tests import forkserver
from tests.memory.facts.test_file_provider import on_disk
from tests.thorough import some

USER = Subject("user", "the user", priority=1)
TEAM = Subject("team", "the team", priority=2)
CITY = Concept("city", "where the user lives")
TOOLS = Concept("tools", "tools the user works with", FactType.MULTIPLE)
HERE, PRODUCT = Scope.agent("talk"), Scope.product("shop")
KEY = bytes(range(32))

ask = llm_request(tools=False)
talk = Strategy("talk", START >> load_facts(CITY, TOOLS, subjects=[USER]) >> ask >> END)


def agent_of(strategy, provider, store, *replies, tools=(), name=None, description="", **names):
    about = {} if name is None else {"name": name, "description": description}
    agent = Agent(strategy, model=ScriptedModel(replies), store=store, tools=tools, **about)
    agent.install(AgentMemory, provider=provider, **names, recall=False, learn=False)
    return agent


def sent_to(agent, number=0):
    return agent.model.requests[number].messages


@pytest.fixture
def store(tmp_path):
    return SqliteStore(tmp_path / "runs" / "runs.db")


PROVIDERS = {
    "files": lambda root: FileMemoryProvider(root / "facts"),
    "sealed": lambda root: EncryptedMemoryProvider(root / "facts", key=KEY),
    "store": lambda root: StoreMemoryProvider(SqliteStore(root / "facts" / "facts.db")),
    "memory": lambda root: StoreMemoryProvider(MemoryStore()),
}


@pytest.fixture(params=PROVIDERS)
def provider(request, tmp_path):
    return PROVIDERS[request.param](tmp_path)


@pytest.fixture
def facts():
    return StoreMemoryProvider(MemoryStore())


# ---- what was put before a model


async def test_a_run_that_is_read_shows_the_facts_that_the_model_saw(provider, store, tmp_path):
    """The transcript and the exact prompt come back, also when more is known since; the journal has no value of them."""
    await provider.save(SingleFact(CITY, "Oslo-QX7431"), USER, HERE)
    await provider.save(MultipleFacts(TOOLS, ["git-QX7431"]), USER, HERE)
    await provider.save(MultipleFacts(TOOLS, ["vim-QX7431", "git-QX7431"]), USER, HERE)
    agent = agent_of(talk, provider, store, "Hello!")
    result = await agent.run("Hi!")
    await provider.save(SingleFact(CITY, "Bergen-QX7431"), USER, HERE)
    await provider.save(MultipleFacts(TOOLS, ["ed-QX7431"]), USER, HERE)

    run = await agent_of(talk, provider, store).read(result.run_id)
    assert run.memory == result.memory
    [shown] = [step for step in run.memory.steps if isinstance(step, FactsStep)]
    assert [known.fact.values for known in shown.facts] == [("Oslo-QX7431",), ("git-QX7431", "vim-QX7431")]
    assert run.memory.last_turn.model_input_messages == sent_to(agent)
    assert b"QX7431" not in on_disk(tmp_path / "runs")


async def test_a_forgotten_fact_is_gone_from_every_run_and_from_the_disk(provider, store, tmp_path):
    """Transcript, prompts and replay show [forgotten], whatever is asked; what was not forgotten is still shown."""
    await provider.save(SingleFact(CITY, "Oslo-QX7431"), USER, HERE)
    await provider.save(MultipleFacts(TOOLS, ["git"]), USER, HERE)
    result = await agent_of(talk, provider, store, "Hello!").run("Hi!")
    receipt = await provider.forget(concept=CITY, subject=USER)
    assert receipt.facts == 1

    agent = agent_of(talk, provider, store)
    run = await agent.read(result.run_id)
    asked = next(entry.number for entry in await agent.history(result.run_id) if entry.node == "llm_request")
    snapshot = await agent.state_at(result.run_id, asked)
    for memory in (run.memory, snapshot.memory):
        text = memory.to_text(detailed=True)
        assert "user, city: [forgotten]" in text
        assert '"concept":"city","value":"[forgotten]","about":"user"' in text
        assert '"value":"git"' in text
    for said in (run.memory.to_json(), str(run.memory.full_steps())):
        assert "Oslo-QX7431" not in said
        assert "[forgotten]" in said
    assert b"Oslo-QX7431" not in on_disk(tmp_path)


async def test_forgetting_one_owner_leaves_the_runs_of_others_alone(provider, store, tmp_path):
    """Facts are looked up for the owner of the run."""
    for owner in ("ann", "bob"):
        await provider.save(SingleFact(CITY, f"Oslo-{owner}"), USER, HERE, owner=owner)
        await agent_of(talk, provider, store, "Hello!").run("Hi!", run_id="chat", owner=owner)
    await provider.forget(owner="ann", everything=True)
    agent = agent_of(talk, provider, store)
    anns, bobs = [await agent.read("chat", owner=owner) for owner in ("ann", "bob")]
    assert "[forgotten]" in anns.memory.to_text(detailed=True)
    assert "Oslo-bob" in bobs.memory.to_text(detailed=True)
    assert b"Oslo-ann" not in on_disk(tmp_path)


async def test_a_fact_that_is_saved_again_is_another_one(facts, store):
    """What a run saw before forgetting does not come back because the same is said later."""
    await facts.save(SingleFact(CITY, "Oslo"), USER, HERE)
    result = await agent_of(talk, facts, store, "Hello!").run("Hi!")
    await facts.forget(subject=USER)
    await facts.save(SingleFact(CITY, "Oslo"), USER, HERE)
    run = await agent_of(talk, facts, store).read(result.run_id)
    assert "Oslo" not in run.memory.to_text(detailed=True)


async def test_facts_that_were_united_are_forgotten_part_by_part(facts, store):
    """Values of several subjects and scopes come back in their order; of those only the forgotten ones are gone."""
    await facts.save(MultipleFacts(TOOLS, ["git", "vim"]), USER, PRODUCT)
    await facts.save(MultipleFacts(TOOLS, ["ed", "git"]), USER, HERE)
    await facts.save(MultipleFacts(TOOLS, ["make"]), TEAM, HERE)
    strategy = Strategy("talk", START >> load_all_facts(subjects=[USER, TEAM]) >> ask >> END)
    agent = agent_of(strategy, facts, store, "Hello!", product_name="shop")
    result = await agent.run("Hi!")

    async def values():
        run = await agent_of(strategy, facts, store, product_name="shop").read(result.run_id)
        [shown] = [step for step in run.memory.steps if isinstance(step, FactsStep)]
        return run, shown.facts[0]

    run, known = await values()
    assert known.fact.values == ("ed", "git", "vim", "make")
    assert run.memory.last_turn.model_input_messages == sent_to(agent)
    await facts.forget(scope=PRODUCT)
    run, known = await values()
    assert (known.fact.values, known.forgotten) == (("ed", "git", "[forgotten]", "make"), False)
    await facts.forget(everything=True)
    run, known = await values()
    assert (known.fact.values, known.forgotten) == (("[forgotten]",), True)


async def test_a_prompt_that_was_sent_twice_is_shown_with_its_facts_each_time(facts, store):
    """The second turn's prompt begins with that of the first, facts included, after the run is read too."""
    await facts.save(SingleFact(CITY, "Oslo"), USER, HERE)
    act = execute_tools()
    turn = llm_request()
    strategy = Strategy(
        "talk",
        START >> load_facts(CITY, subjects=[USER]) >> turn,
        turn.on(ToolCalls) >> act >> turn,
        turn.on(str) >> END,
    )
    agent = agent_of(strategy, facts, store, ToolCall("look", {}), "Hello!", tools=[look])
    result = await agent.run("Hi!")
    run = await agent_of(strategy, facts, store, tools=[look]).read(result.run_id)
    turns = [step.model_input_messages for step in run.memory.steps if hasattr(step, "step_number")]
    assert turns == [sent_to(agent, 0), sent_to(agent, 1)]


@tool
def look() -> str:
    """Look."""
    return "seen"


# ---- runs that go on


async def test_a_run_that_goes_on_sends_no_forgotten_fact(facts, store):
    """What was forgotten while a run waited is not sent any more, in another process or in this one, nor shown."""
    wait, before = ask_human("Go on?", str), llm_request(tools=False, name="before")
    strategy = Strategy("talk", START >> load_facts(CITY, subjects=[USER]) >> before >> wait >> ask >> END)
    for kept in (store, None):
        await facts.save(SingleFact(CITY, "Oslo"), USER, HERE)
        first = agent_of(strategy, facts, kept, "Wait.", "Hello!")
        run = first.start("Hi!")
        await run.finish()
        await facts.forget(subject=USER)
        if kept is None:
            run.answer("yes")
            await run.finish()
            sent, shown = sent_to(first, 1), run.memory
        else:
            second = agent_of(strategy, facts, kept, "Hello!")
            await second.resume(run.run_id, answer="yes")
            sent, shown = sent_to(second), second.last.memory
        assert '"value":"[forgotten]"' in sent[0].text
        assert "Oslo" not in shown.to_text(detailed=True)


async def test_a_run_that_goes_on_sends_what_it_would_have_sent(facts, store):
    """The prompt of a resumed run is that of one that was not stopped, though another city is known by now."""
    wait = ask_human("Go on?", str)
    strategy = Strategy("talk", START >> load_facts(CITY, subjects=[USER]) >> wait >> ask >> END)
    await facts.save(SingleFact(CITY, "Oslo"), USER, HERE)
    result = await agent_of(strategy, facts, store).run("Hi!")
    await facts.save(SingleFact(CITY, "Bergen"), USER, HERE)
    agent = agent_of(strategy, facts, store, "Hello!")
    await agent.resume(result.run_id, answer="yes")
    assert '"value":"Oslo"' in sent_to(agent)[0].text


async def test_facts_forgotten_between_reading_and_going_on_are_not_sent(facts, store):
    """A run that was read shows what was known then; when it goes on, it is looked up again."""
    wait = ask_human("Go on?", str)
    strategy = Strategy("talk", START >> load_facts(CITY, subjects=[USER]) >> wait >> ask >> END)
    for looks in (False, True):
        await facts.save(SingleFact(CITY, "Oslo"), USER, HERE)
        result = await agent_of(strategy, facts, store).run("Hi!")
        agent = agent_of(strategy, facts, store, "Hello!")
        run = await agent.read(result.run_id)
        assert not looks or "Oslo" in run.memory.to_text()
        run.answer("yes")
        await facts.forget(subject=USER)
        await run.finish()
        assert '"value":"[forgotten]"' in sent_to(agent)[0].text


async def test_the_transcript_of_another_run_is_looked_up_anew(facts, store, tmp_path):
    """Facts that came with steps= are shown as they are known now, and the new journal refers to them."""
    await facts.save(SingleFact(CITY, "Oslo-QX7431"), USER, HERE)
    first = await agent_of(talk, facts, None, "Hello!").run("Hi!")
    chat = Strategy("talk", START >> ask >> END)
    agent = agent_of(chat, facts, store, "Again!")
    second = await agent.run("And now?", steps=first.memory)
    assert "Oslo-QX7431" in sent_to(agent)[0].text
    assert b"QX7431" not in on_disk(tmp_path / "runs")
    loaded = RunMemory.from_json(second.memory.to_json())
    await facts.forget(subject=USER)
    for steps in (first.memory, second.memory, loaded):
        agent = agent_of(chat, facts, store, "Again!")
        await agent.run("And now?", steps=steps)
        assert '"value":"[forgotten]"' in sent_to(agent)[0].text


async def test_facts_of_a_branch_are_references_too(facts, store, tmp_path):
    """What is put before the model in a branch that was kept stands nowhere in the journal, and is shown when it is read."""
    await facts.save(SingleFact(CITY, "Oslo-QX7431"), USER, HERE)
    load = load_facts(CITY, subjects=[USER])
    side = Strategy("side", START >> load >> ask >> END)
    plain = llm_request(tools=False, name="plain")
    strategy = Strategy("talk", START >> parallel(side, plain, transcript="keep") >> END)
    agent = agent_of(strategy, facts, store, *(lambda request: str(len(request.messages)) for _ in range(2)))
    result = await agent.run("Hi!")
    assert b"QX7431" not in on_disk(tmp_path / "runs")
    run = await agent_of(strategy, facts, store).read(result.run_id)
    assert "Oslo-QX7431" in run.memory.to_text()


def with_helper(facts, store, *replies, answers=(), provider=None):
    """An agent whose sub-agent has the memory, and asks a person behind what it loads."""
    wait = ask_human("Go on?", str)
    strategy = Strategy("talk", START >> load_facts(CITY, subjects=[USER]) >> wait >> ask >> END)
    helper = agent_of(strategy, facts, None, *answers, name="helper", description="helps")
    turn, act = llm_request(), execute_tools()
    outer = Strategy("outer", START >> turn, turn.on(ToolCalls) >> act >> turn, turn.on(str) >> END)
    agent = Agent(outer, model=ScriptedModel(replies), tools=[helper], store=store)
    if provider is not None:
        agent.install(AgentMemory, provider=provider, recall=False, learn=False)
    return agent, helper


@pytest.mark.parametrize("outer", [False, True])
async def test_facts_of_a_sub_agent_are_those_of_its_own_memory(facts, store, tmp_path, outer):
    """Whatever memory the agent around it has: the log refers to its facts, and shows them until they are forgotten."""
    await facts.save(SingleFact(CITY, "Oslo-QX7431"), USER, HERE)
    other = StoreMemoryProvider(MemoryStore()) if outer else None
    agent, _ = with_helper(facts, store, ToolCall("helper", {"task": "look"}), provider=other)
    assert (await agent.run("Hi!", run_id="r")).status == "waiting"
    assert b"QX7431" not in on_disk(tmp_path / "runs")
    agent, helper = with_helper(facts, store, "Bye!", answers=["Hello!"], provider=other)
    [child] = (await agent.read("r")).result.children
    assert "Oslo-QX7431" in child.memory.to_text()
    await facts.forget(subject=USER)
    assert (await agent.resume("r", answer="yes")).output == "Bye!"
    assert '"value":"[forgotten]"' in sent_to(helper)[0].text
    [child] = (await agent.read("r")).result.children
    assert "user, city: [forgotten]" in child.memory.to_text(detailed=True)


async def test_facts_of_an_agent_that_a_node_runs_are_looked_up_when_it_goes_on(facts, store, tmp_path):
    """Nobody knows its memory before: the strategy does not name the agent."""
    await facts.save(SingleFact(CITY, "Oslo-QX7431"), USER, HERE)

    def agents(*replies):
        _, helper = with_helper(facts, None, answers=replies)

        @node
        async def delegate(ctx: Context, text: str) -> str:
            return await ctx.run_agent(helper, text)

        return Agent(Strategy("outer", START >> delegate >> END), store=store), helper

    agent, _ = agents()
    assert (await agent.run("Hi!", run_id="r")).status == "waiting"
    assert b"QX7431" not in on_disk(tmp_path / "runs")
    agent, helper = agents("Hello!")
    await facts.forget(subject=USER)
    assert (await agent.resume("r", answer="yes")).output == "Hello!"
    assert '"value":"[forgotten]"' in sent_to(helper)[0].text


async def test_facts_of_an_agent_that_is_a_node_are_looked_up(facts, store, tmp_path):
    """The strategy names it, so its memory is known whenever the run is read."""
    await facts.save(SingleFact(CITY, "Oslo-QX7431"), USER, HERE)
    _, helper = with_helper(facts, None)
    agent = Agent(Strategy("outer", START >> helper.as_node() >> END), store=store)
    assert (await agent.run("Hi!", run_id="r")).status == "waiting"
    assert b"QX7431" not in on_disk(tmp_path / "runs")
    [child] = (await agent.read("r")).result.children
    assert "Oslo-QX7431" in child.memory.to_text()
    await facts.forget(subject=USER)
    [child] = (await agent.read("r")).result.children
    assert "user, city: [forgotten]" in child.memory.to_text(detailed=True)


# ---- without a provider that keeps


class FourMethods:
    """A provider in one class, which keeps facts as they are given."""

    def __init__(self):
        self.kept = []

    async def save(self, fact, subject, scope):
        self.kept.append((fact, subject, scope))

    async def load(self, concept, subject, scope):
        return [fact for fact in await self.load_all(subject, scope) if fact.concept == concept][-1:]

    async def load_all(self, subject, scope):
        return [fact for fact, about, within in self.kept if (about, within) == (subject, scope)]

    async def load_by_description(self, description, subject, scope):
        return []


async def test_a_provider_of_four_methods_leaves_the_text_in_the_run(store):
    """There is no history to refer to, so the journal holds what the model saw."""
    provider = FourMethods()
    await provider.save(SingleFact(CITY, "Oslo"), USER, HERE)
    agent = agent_of(talk, provider, store, "Hello!")
    result = await agent.run("Hi!")
    provider.kept.clear()
    run = await agent_of(talk, provider, store).read(result.run_id)
    [shown] = [step for step in run.memory.steps if isinstance(step, FactsStep)]
    assert (shown.facts[0].fact.value, shown.facts[0].kept) == ("Oslo", False)
    assert run.memory.last_turn.model_input_messages == sent_to(agent)


async def test_facts_that_no_feature_can_look_up_are_kept_as_text(facts, store):
    """An agent without AgentMemory that is given the transcript of one with it shows the same when its run is read."""
    await facts.save(SingleFact(CITY, "Oslo"), USER, HERE)
    first = await agent_of(talk, facts, None, "Hello!").run("Hi!")
    chat = Strategy("chat", START >> ask >> END)
    agent = Agent(chat, model=ScriptedModel(["Again!"]), store=store)
    result = await agent.run("And now?", steps=first.memory)
    run = await Agent(chat, store=store).read(result.run_id)
    assert run.memory.last_turn.model_input_messages == sent_to(agent)
    four = agent_of(chat, FourMethods(), store, "Again!")
    result = await four.run("And now?", steps=first.memory)
    run = await agent_of(chat, FourMethods(), store).read(result.run_id)
    assert run.memory.last_turn.model_input_messages == sent_to(four)


async def test_a_journal_read_without_the_feature_says_that_values_are_elsewhere(facts, store):
    """Nothing pretends that a fact was forgotten which nobody looked up."""
    await facts.save(SingleFact(CITY, "Oslo"), USER, HERE)
    result = await agent_of(talk, facts, store, "Hello!").run("Hi!")
    plain = Agent(Strategy("talk", START >> llm_request(tools=False) >> END), store=store)
    text = (await plain.read(result.run_id, allow_changed=True)).memory.to_text(detailed=True)
    assert "user, city: [kept elsewhere]" in text
    assert "[forgotten]" not in text


# ---- what nodes save


@node
async def note_down(ctx: Context, text: str) -> str:
    memory = ctx.feature(AgentMemory)
    await memory.save(SingleFact(CITY, f"{text}-QX7431"), USER)
    await memory.save(MultipleFacts(TOOLS, [f"git-{text}"]), USER)
    await memory.save(MultipleFacts(TOOLS, ["vim"]), USER)
    return "noted"


def learner(provider, store, *replies):
    learn, find = auto_detect_facts(subjects=[USER]), save_facts(TOOLS, subject=USER)
    strategy = Strategy("talk", START >> ask >> learn >> find >> END)
    return agent_of(strategy, provider, store, *replies)


DETECTED = {
    "facts": [{"subject": "user", "keyword": "city", "description": "home: Oslo-QX7431", "value": "Oslo-QX7431"}]
}


async def test_what_fact_nodes_save_stands_in_no_journal(facts, store, tmp_path):
    """Neither values nor the descriptions that a model made are written; the effects say by which names they were saved."""
    agent = learner(facts, store, "Hello!", DETECTED, {"values": ["git-QX7431", "vim-QX7431"]})
    result = await agent.run("Hi!")
    assert b"QX7431" not in on_disk(tmp_path / "runs")
    effects = {
        entry.where: entry.value for entry in await agent.history(result.run_id) if entry.key.startswith("facts")
    }
    [city] = await facts.load(CITY, USER, HERE)
    [tools] = await facts.load(TOOLS, USER, HERE)
    assert effects == {
        "auto_detect_facts": [["city", "single", "user", "agent", "talk", city.id, 1]],
        "save_facts": [["tools", "multiple", "user", "agent", "talk", tools.id, 1]],
    }


async def test_what_a_node_saves_stands_in_no_journal(facts, store, tmp_path):
    """`memory.save` in a node is an effect without a value, and each of several saves is one of its own."""
    agent = agent_of(Strategy("talk", START >> note_down >> END), facts, store)
    result = await agent.run("Oslo")
    history = [entry.value for entry in await agent.history(result.run_id) if entry.kind == "effect"]
    assert [[(each[0], each[-1]) for each in saved] for saved in history] == [
        [("city", 1)],
        [("tools", 1)],
        [("tools", 2)],
    ]
    assert b"QX7431" not in on_disk(tmp_path / "runs")
    [tools] = await facts.load(TOOLS, USER, HERE)
    assert tools.values == ("git-Oslo", "vim")


async def test_a_rerun_saves_nothing_and_asks_no_model(facts, store):
    """Recorded saves stand for themselves; the model of the agent is never asked, and no event says that facts were kept."""
    result = await learner(facts, store, "Hello!", DETECTED, {"values": ["git"]}).run("Hi!")
    before = [fact async for fact in facts.export()]
    agent = learner(facts, store)
    saved = []
    agent.on(FactsSaved, saved.append)
    again = await agent.rerun(result.run_id)
    assert again.output == "Hello!"
    assert agent.model.requests == saved == []
    assert [fact async for fact in facts.export()] == before


async def test_a_node_gets_what_it_saved_when_it_is_executed_again(facts, store):
    """What `detect_facts` gives is looked up by its names; what was forgotten since is left out."""
    seen = []

    @node
    async def learn(ctx: Context, text: str) -> str:
        found = await ctx.feature(AgentMemory).detect_facts(subjects=[USER])
        seen.append([(fact.concept.keyword, fact.value, fact.version) for fact in found])
        return text

    strategy = Strategy("talk", START >> ask >> learn >> END)
    result = await agent_of(strategy, facts, store, "Hello!", DETECTED).run("Hi!")
    agent = agent_of(strategy, facts, store)
    await agent.rerun(result.run_id)
    await facts.forget(subject=USER)
    await agent.rerun(result.run_id)
    assert seen == [[("city", "Oslo-QX7431", 1)], [("city", "Oslo-QX7431", 1)], []]


async def test_a_node_that_failed_behind_a_save_does_not_save_again(facts, store):
    """The run goes on with the node; what it saved before it failed is there once, and the model is not asked again."""
    broken = [True]

    @node
    async def learn(ctx: Context, text: str) -> str:
        memory = ctx.feature(AgentMemory)
        await memory.save(SingleFact(CITY, "Oslo"), USER)
        await memory.save_facts_from_history(TOOLS, subject=USER)
        if broken:
            broken.clear()
            raise LookupError
        return text

    strategy = Strategy("talk", START >> ask >> learn >> END)
    with pytest.raises(NodeFailedError):
        await agent_of(strategy, facts, store, "Hello!", {"values": ["git"]}).run("Hi!", run_id="r")
    assert (await agent_of(strategy, facts, store).resume("r")).output == "Hello!"
    assert len(await facts.history(CITY, USER, HERE)) == len(await facts.history(TOOLS, USER, HERE)) == 1


async def test_a_save_in_a_tool_is_done_once(facts, store):
    """A tool that saved and then was broken off with its run saves once; two calls of it save twice."""
    broken = [True]

    @tool
    async def remember(city: str, ctx: Context) -> str:
        """Remember a city."""
        await ctx.feature(AgentMemory).save(SingleFact(CITY, city), USER)
        if broken:
            broken.clear()
            raise ModelStopped
        return "ok"

    class ModelStopped(BaseException):
        pass

    turn, act = llm_request(), execute_tools()
    strategy = Strategy("talk", START >> turn, turn.on(ToolCalls) >> act >> turn, turn.on(str) >> END)
    calls = ToolCalls([ToolCall("remember", {"city": "Oslo"}), ToolCall("remember", {"city": "Oslo"})])
    with pytest.raises(ModelStopped):
        await agent_of(strategy, facts, store, calls, tools=[remember]).run("Hi!", run_id="r")
    await agent_of(strategy, facts, store, "Done.", tools=[remember]).resume("r")
    assert len(await facts.history(CITY, USER, HERE)) == 2


class Stopping:
    """A store that fails for ever from its n-th commit on, of which it may still make that one."""

    def __init__(self, store, at, *, made):
        self.store, self.left, self.made = store, at, made
        self.get, self.scan = store.get, store.scan

    async def commit(self, *changes):
        self.left -= 1
        if self.left > 0 or (self.left == 0 and self.made):
            await self.store.commit(*changes)
        if self.left <= 0:
            raise StoreError("the disk is gone")


@pytest.mark.parametrize("made", [False, True])
async def test_a_run_that_is_stopped_at_any_entry_saves_once(made):
    """Whatever the journal came to: what nodes and the model's answers gave is saved once, under the same ids."""
    strategy = Strategy("talk", START >> note_down >> ask >> auto_detect_facts(subjects=[USER]) >> END)
    stopped, at = True, int(made)
    while stopped:
        at += 1
        facts, store = StoreMemoryProvider(MemoryStore()), MemoryStore()
        replies = [lambda request: "Hello!" if request.output is None else DETECTED] * 4
        try:
            await agent_of(strategy, facts, Stopping(store, at, made=made), *replies).run("Oslo", run_id="r")
            stopped = False
        except (RunError, StoreError):
            try:
                await agent_of(strategy, facts, store, *replies).resume("r")
            except RunNotFoundError:
                continue
        assert len(await facts.history(CITY, USER, HERE)) == 2, at
        assert len(await facts.history(TOOLS, USER, HERE)) == 2, at


PROGRAM = """
import os, signal, sys, anyio
from graphagent import END, START, Agent, Context, Strategy, node
from graphagent.memory import AgentMemory, Concept, FactType, FileMemoryProvider, MultipleFacts, SingleFact, Subject
from graphagent.nodes import auto_detect_facts, llm_request
from graphagent.store import SqliteStore
from graphagent.testing import ScriptedModel

USER, CITY = Subject("user", "the user", priority=1), Concept("city", "where the user lives")
TOOLS = Concept("tools", "tools", FactType.MULTIPLE)
folder, die_at = sys.argv[1], int(sys.argv[2])

class Dying(FileMemoryProvider):
    saves = 0
    async def save(self, fact, subject, scope, *, owner=""):
        await super().save(fact, subject, scope, owner=owner)
        self.saves += 1
        if self.saves == die_at:
            os.kill(os.getpid(), signal.SIGKILL)

@node
async def note_down(ctx: Context, text: str) -> str:
    memory = ctx.feature(AgentMemory)
    await memory.save(SingleFact(CITY, "Oslo-QX7431"), USER)
    await memory.save(MultipleFacts(TOOLS, ["git"]), USER)
    await memory.save(MultipleFacts(TOOLS, ["git"]), USER)
    return text

ask, learn = llm_request(tools=False), auto_detect_facts(subjects=[USER])
strategy = Strategy("talk", START >> note_down >> ask >> learn >> END)
FOUND = {"facts": [
    {"subject": "user", "keyword": keyword, "description": "d", "value": "v-QX7431"} for keyword in ("a", "b", "c")
]}

async def main():
    asked = [0]
    def detected(request):
        asked[0] += 1
        return FOUND
    model = ScriptedModel([lambda request: "Hello!" if request.output is None else detected(request)] * 4)
    agent = Agent(strategy, model=model, store=SqliteStore(folder + "/runs/runs.db"))
    agent.install(AgentMemory, provider=Dying(folder + "/facts"), recall=False, learn=False)
    done = await (agent.run("Hi!", run_id="r") if die_at else agent.resume("r"))
    print(done.output)

anyio.run(main)
"""


@pytest.mark.parametrize("dies_at", some(range(1, 7), 2))
def test_a_process_that_is_killed_behind_a_save_has_saved_once(dies_at, tmp_path):
    """The fact is on the disk, and the journal does not say so yet: the node is executed again, and finds it by its id."""
    command = [sys.executable, "-c", PROGRAM, str(tmp_path)]
    killed = forkserver.run([*command, str(dies_at)], capture_output=True, text=True, check=False)
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    resumed = forkserver.run([*command, "0"], capture_output=True, text=True, check=False)
    assert resumed.stdout == "Hello!\n", resumed.stderr
    facts = FileMemoryProvider(tmp_path / "facts")

    async def count(keyword):
        return len(await facts.history(Concept(keyword), USER, HERE))

    counts = [anyio.run(count, keyword) for keyword in ("city", "tools", "a", "b", "c")]
    assert counts == [1, 2, 1, 1, 1]
    assert b"QX7431" not in on_disk(tmp_path / "runs")


async def test_a_provider_of_four_methods_is_asked_before_a_save_is_repeated(store):
    """It keeps the fact with the id that it was given, so what was saved before the run was broken off is found."""
    provider = FourMethods()
    broken = [True]

    class Breaking(FourMethods):
        async def save(self, fact, subject, scope):
            await provider.save(fact, subject, scope)
            if broken:
                broken.clear()
                raise ModelRequestError("lost")

        async def load_all(self, subject, scope):
            return await provider.load_all(subject, scope)

    strategy = Strategy("talk", START >> note_down >> END)
    with pytest.raises(NodeFailedError):
        await agent_of(strategy, Breaking(), store).run("Oslo", run_id="r")
    await agent_of(strategy, provider, store).resume("r")
    assert [fact.concept.keyword for fact, _, _ in provider.kept] == ["city", "tools", "tools"]


async def test_a_sealed_store_of_runs_refers_to_facts_as_well(facts, tmp_path):
    """Encryption is around the store, so nothing else changes."""
    store = EncryptedStore(SqliteStore(tmp_path / "runs.db"), KEY)
    await facts.save(SingleFact(CITY, "Oslo"), USER, HERE)
    agent = agent_of(talk, facts, store, "Hello!")
    result = await agent.run("Hi!")
    run = await agent_of(talk, facts, store).read(result.run_id)
    assert run.memory.last_turn.model_input_messages == sent_to(agent)
    await facts.forget(everything=True)
    run = await agent_of(talk, facts, store).read(result.run_id)
    assert "Oslo" not in run.memory.to_text(detailed=True)


async def test_loading_again_shows_what_a_summary_no_longer_shows(facts):
    """Only what the model sees now counts as shown: hidden facts are put before it again."""
    from graphagent.memory import SummaryStep

    await facts.save(SingleFact(CITY, "Oslo"), USER, ScopeKindHere)

    @node
    async def twice(ctx: Context, text: str) -> int:
        memory = ctx.feature(AgentMemory)
        await memory.load_facts_to_agent(CITY, subjects=[USER])
        await memory.load_facts_to_agent(CITY, subjects=[USER])
        await ctx.add(MessageStep(ctx.memory.to_messages()[0]), SummaryStep("much was said", covers=9))
        await memory.load_facts_to_agent(CITY, subjects=[USER])
        return sum(isinstance(step, FactsStep) for step in ctx.memory.steps)

    agent = agent_of(Strategy("talk", START >> twice >> END), facts, None)
    assert (await agent.run("Hi!")).output == 2


ScopeKindHere = Scope(ScopeKind.AGENT, "talk")
