"""Learning in the background: a run has its answer, and what is to be learned from it is done later, once, whatever dies meanwhile."""

from __future__ import annotations

import re
import signal
import sys
from decimal import Decimal
from pathlib import Path

import anyio
import pytest

from graphagent import END, START, Agent, Context, Strategy, node, parallel
from graphagent.errors import FeatureError, ModelRequestError, RunError
from graphagent.events import ExtractionFailed
from graphagent.history import forget_runs, prune_runs
from graphagent.llm import Message, ModelResponse, Usage
from graphagent.memory import AgentMemory, Concept, Scope, StoreMemoryProvider, Subject
from graphagent.memory.notes import NoteMemory, Notes
from graphagent.nodes import auto_detect_facts, llm_request, passthrough, save_facts
from graphagent.protocols import Feature
from graphagent.run import list_runs
from graphagent.store import EncryptedStore, MemoryStore, SqliteStore
from graphagent.testing import ScriptedModel, fixed_clock
from tests import forkserver
from tests.run.killed import Deadly
from tests.run.lives import Mortal, Watched, cut
from tests.thorough import some

USER, CITY, HERE = Subject("user", "the user"), Concept("city"), Scope.agent("talk")
LEARN = auto_detect_facts(subjects=[USER])
BUSY = ModelRequestError("the server answered 503", status=503, detail="Oslo is secret")
HOME = Path(__file__).parents[2]


class Townsman:
    """A model that answers, and finds the last city that was named. With a gate, it extracts only once that is open."""

    name = "townsman"

    def __init__(self, gate=None, *, failing=0, named="townsman"):
        self.gate, self.failing, self.model = gate, failing, named
        self.asked = anyio.Event() if gate is not None else None
        self.answers = self.extractions = 0

    async def respond(self, request, on_text=None):
        """Answer, or extract."""
        said, usage = "Hello!", Usage(input_tokens=3, output_tokens=2, cost=Decimal("0.5"))
        if request.output is None:
            self.answers += 1
            if on_text is not None:
                on_text(said)
            return ModelResponse(Message.assistant(said), usage, model=self.model)
        self.extractions += 1
        if self.gate is not None:
            self.asked.set()
            await self.gate.wait()
        if self.failing:
            self.failing -= 1
            raise BUSY
        city = re.findall("Oslo|Rome|Bonn", repr(request.messages))[-1]
        if "statements" in str(request.output.schema):
            text = f'{{"statements": ["The user lives in {city}."]}}'
        else:
            text = f'{{"facts": [{{"subject": "user", "keyword": "city", "value": "{city}"}}]}}'
        return ModelResponse(Message.assistant(text), usage, model=self.model)


def talker(store, model=None, *, learn="background", tap=LEARN, name="talk", facts=None, **given):
    """Return an agent that answers and learns, over a store that has its facts too."""
    strategy = Strategy(name, START >> llm_request(tools=False) >> tap >> END)
    agent = Agent(strategy, model=model or Townsman(), store=store, **given)
    agent.install(AgentMemory, provider=StoreMemoryProvider(facts or store), agent_name="talk", learn=learn)
    return agent


async def cities(store, owner=""):
    """Return the versions of the fact, the newest first."""
    return [fact.value for fact in await StoreMemoryProvider(store).history(CITY, USER, HERE, owner=owner)]


async def due(store):
    """Return the owners and ids of the runs from which something is to be learned."""
    return [item.key[1:] async for item in store.scan(("learning",))]


async def test_the_answer_does_not_wait_for_what_is_learned_from_it():
    """The stream ends with it, and the thread is free at once: the model has not been asked for facts when the next run begins."""
    store = MemoryStore()
    agent = talker(store)
    assert [text async for text in agent.stream("I live in Oslo.", thread="t", run_id="r").text()] == ["Hello!"]
    assert (agent.model.extractions, agent.last.status, await due(store)) == (0, "done", [("", "r")])
    other = talker(store, learn=False, tap=passthrough(str))
    await other.run("And now?", thread="t")
    assert [head.status for head in await list_runs(store, thread="t")] == ["done", "done"]
    assert (agent.model.extractions, await cities(store)) == (0, [])


@pytest.mark.parametrize(
    "tap", [LEARN, LEARN.retry(attempts=2, wait=0), LEARN.timeout(60)], ids=["plain", "retry", "timeout"]
)
async def test_settling_learns_once(tap):
    """It returns from how many runs it learned, and the facts know the run in which they were said. A second time nothing is left."""
    store = MemoryStore()
    await talker(store, tap=tap).run("I live in Oslo.", run_id="r")
    agent = talker(store, tap=tap)  # as in another process
    assert (await agent.settle(), await agent.settle(), agent.model.extractions) == (1, 0, 1)
    [fact] = await StoreMemoryProvider(store).load(CITY, USER, HERE)
    assert (fact.value, fact.source.run_id, fact.source.origin) == ("Oslo", "r", tap.name)
    assert (fact.source.trust, await due(store)) == ("inferred", [])


async def test_what_learning_costs_is_in_the_ledger_of_the_run_that_is_learned_from():
    """And in the totals of its header, so that what a run cost is what it and its learning cost."""
    store = MemoryStore()
    agent = talker(store)
    spent = (await agent.run("I live in Oslo.", run_id="r")).usage
    assert (spent.total_tokens, spent.cost) == (5, Decimal("0.5"))
    await agent.settle()
    result, [head] = (await agent.read("r")).result, await list_runs(store)
    assert (result.usage.total_tokens, result.usage.cost, head.tokens, head.cost) == (10, 1, 10, "1.0")
    assert [row.node for row in result.ledger.charges] == ["llm_request", LEARN.name]
    assert (result.status, result.output, [head.status for head in [head]]) == ("done", "Hello!", ["done"])


async def test_the_budget_of_the_run_holds_for_what_is_learned_from_it():
    """Where it is used up, nothing is asked; the run stays due, and an agent with more learns."""
    store, failures = MemoryStore(), []
    poor = talker(store, max_tokens=5)
    poor.on(ExtractionFailed, failures.append)
    await poor.run("I live in Oslo.", run_id="r")
    assert (await poor.settle(), poor.model.extractions, len(failures)) == (0, 0, 1)
    assert (await talker(store, max_tokens=50).settle(), await cities(store)) == (1, ["Oslo"])


async def test_the_next_run_of_the_owner_learns_before_it_begins():
    """So it knows what was said in the one before, by a program that ended at once."""
    store = MemoryStore()
    await talker(store).run("I live in Oslo.", owner="ada")
    known = []

    @node
    async def recall(ctx: Context, task: str) -> str:
        known.extend(fact.value for fact in await ctx.feature(AgentMemory).load_all())
        return task

    agent = Agent(
        Strategy("talk", START >> recall >> llm_request(tools=False) >> LEARN >> END), model=Townsman(), store=store
    )
    agent.install(AgentMemory, provider=StoreMemoryProvider(store), agent_name="talk", learn="background")
    await agent.run("Where do I live?", owner="bob")
    assert (known, await cities(store, "ada")) == ([], [])
    await agent.run("Where do I live?", owner="ada")
    assert (known, agent.model.extractions) == (["Oslo"], 1)


def test_a_script_that_ends_at_once_still_learns(tmp_path):
    """What it left is in the file, and its next life learns it."""
    for said in ("I live in Oslo.", "Where do I live?"):
        assert talker(SqliteStore(tmp_path / "runs.db")).run_sync(said).output == "Hello!"
    assert anyio.run(cities, SqliteStore(tmp_path / "runs.db")) == ["Oslo"]


async def test_what_is_wrong_with_learning_does_not_concern_the_next_run():
    """It is reported, and raised by `settle` alone."""

    class Broken(StoreMemoryProvider):
        async def load_all(self, *args, **kwargs):
            raise TypeError("a mistake")

    store = MemoryStore()
    agent = Agent(Strategy("talk", START >> llm_request(tools=False) >> LEARN >> END), model=Townsman(), store=store)
    agent.install(AgentMemory, provider=Broken(store), learn="background")
    await agent.run("I live in Oslo.")
    assert (await agent.run("I live in Rome.")).output == "Hello!"
    with pytest.raises(TypeError, match="a mistake"):
        await agent.settle()
    assert len(await due(store)) == 2


@pytest.mark.every_loop
async def test_a_block_learns_beside_what_it_does_and_waits_for_it_at_its_end():
    """The model is asked for facts as soon as there is an answer; the runs of the block go on meanwhile."""
    store, gate = MemoryStore(), anyio.Event()
    model = Townsman(gate)
    async with talker(store, model) as agent:
        await agent.run("I live in Oslo.", thread="t", owner="ada")
        await model.asked.wait()
        await agent.run("I live in Rome.", thread="t", owner="ada")
        assert (model.answers, model.extractions, await cities(store, "ada")) == (2, 1, [])
        gate.set()
    assert (model.extractions, await cities(store, "ada"), await due(store)) == (2, ["Rome", "Oslo"], [])


@pytest.mark.every_loop
async def test_a_block_that_fails_does_not_wait():
    """What was being learned is broken off, and stays due for whoever comes next."""
    store = MemoryStore()
    model = Townsman(anyio.Event())
    with pytest.raises(ZeroDivisionError):
        async with talker(store, model) as agent:
            await agent.run("I live in Oslo.")
            await model.asked.wait()
            raise ZeroDivisionError
    assert (await talker(store).settle(), await cities(store)) == (1, ["Oslo"])


@pytest.mark.every_loop
async def test_two_that_settle_at_once_learn_once():
    """Who comes second leaves the run to the first, and so the runs of its owner that end meanwhile."""
    store, gate = MemoryStore(), anyio.Event()
    first, second = talker(store, Townsman(gate)), talker(store)
    await second.run("I live in Oslo.", run_id="r")
    async with anyio.create_task_group() as group:
        group.start_soon(first.settle)
        await first.model.asked.wait()
        assert (await second.settle(), second.model.extractions) == (0, 0)
        await second.run("I live in Rome.")
        assert second.model.extractions == 0
        with pytest.raises(RunError, match="another task of this process"):
            await forget_runs(store, run_ids=["r"])
        gate.set()
    assert (first.model.extractions, await cities(store), await due(store)) == (2, ["Rome", "Oslo"], [])


async def test_those_that_settle_at_the_same_moment_learn_once():
    """However they interleave, each run is learned from by one of them."""
    store = MemoryStore()
    for owner in ("", "ada", "bob"):
        await talker(store).run("I live in Oslo.", owner=owner)
    agents = [talker(store) for _ in range(5)]
    async with anyio.create_task_group() as group:
        for agent in agents:
            group.start_soon(agent.settle)
    assert sum(agent.model.extractions for agent in agents) == 3
    assert [await cities(store, owner) for owner in ("", "ada", "bob")] == [["Oslo"]] * 3


async def test_runs_of_an_owner_are_learned_from_in_their_order():
    """What was said last is what holds, whatever the runs are called."""
    store = MemoryStore()
    writer = talker(store, Townsman(failing=3), learn=False)
    with fixed_clock():
        for run_id, city in (("b", "Oslo"), ("a", "Rome"), ("c", "Bonn")):
            await writer.run(f"I live in {city}.", run_id=run_id)
    assert (len(await due(store)), await writer.settle()) == (3, 3)
    assert await cities(store) == ["Bonn", "Rome", "Oslo"]


async def test_what_fails_stays_due_and_is_tried_again():
    """By whoever settles next. The event does not say what the server said."""
    store, failures = MemoryStore(), []
    agent = talker(store, Townsman(failing=1))
    agent.on(ExtractionFailed, failures.append)
    await agent.run("I live in Oslo.", run_id="r")
    assert (await agent.settle(), await due(store)) == (0, [("", "r")])
    assert [(each.run_id, each.node, each.reason) for each in failures] == [
        ("r", LEARN.name, "the server answered 503")
    ]
    assert (await agent.settle(), await cities(store)) == (1, ["Oslo"])


async def test_what_failed_at_once_is_settled_too():
    """Whether it was to be learned at its place or in the background, what is left is the same."""
    store = MemoryStore()
    agent = talker(store, Townsman(failing=1), learn=False)
    await agent.run("I live in Oslo.", run_id="r")
    assert (await due(store), await agent.settle(), await cities(store)) == ([("", "r")], 1, ["Oslo"])
    assert (await due(store), await agent.settle()) == ([], 0)


async def test_a_run_that_was_read_twice_is_learned_from_once():
    """Whoever reads it before somebody learns finds out, and leaves it alone."""
    store = MemoryStore()
    agent = talker(store, Townsman(failing=1), learn=False)
    await agent.run("I live in Oslo.", run_id="r")
    one, other = await agent.read("r"), await agent.read("r")
    assert [(await each.finish()).output for each in (one, other)] == ["Hello!", "Hello!"]
    assert (agent.model.extractions, await cities(store), await due(store)) == (2, ["Oslo"], [])


async def test_another_strategy_and_another_owner_are_left_alone():
    """An agent settles for runs of its own strategy, and for one owner if that is said."""
    store = MemoryStore()
    await talker(store).run("I live in Oslo.", owner="ada", run_id="r")
    assert await talker(store, name="other").settle() == 0
    assert await talker(store, tap=save_facts(CITY, subject=USER, name="gone")).settle() == 0
    assert (await talker(store).settle(owner="bob"), await due(store)) == (0, [("ada", "r")])
    assert (await talker(store).settle(owner="ada"), await due(store)) == (1, [])


@pytest.mark.parametrize(("feature", "settings"), [(AgentMemory, {}), (NoteMemory, {"notes": Notes(MemoryStore())})])
def test_without_a_store_it_is_refused(feature, settings):
    """Nobody could do it later; the error says what to write."""
    agent = Agent(Strategy("talk", START >> llm_request(tools=False) >> END), model=ScriptedModel(["Hello!"]))
    with pytest.raises(FeatureError, match=r"kept in a store; give the agent one: Agent\(…, store="):
        agent.install(feature, **settings, learn="background")
    with pytest.raises(ValueError, match="learn='later' is not known"):
        agent.install(feature, **settings, learn="later")


@pytest.mark.parametrize("remove", [forget_runs, prune_runs])
async def test_a_run_that_is_removed_is_not_learned_from(remove):
    """Nothing of it is left behind for that."""
    store = MemoryStore()
    agent = talker(store)
    for run_id in ("r", "s"):
        await agent.run("I live in Oslo.", run_id=run_id, owner=run_id)
    await remove(store, owner="r", run_ids=["r"])
    assert await due(store) == [("s", "s")]
    await forget_runs(store, owner="s")
    assert (await due(store), await agent.settle(), agent.model.extractions) == ([], 0, 0)


async def test_a_fork_of_a_run_that_was_learned_from_continues_before_its_end():
    """What was learned stands behind the end, and no fork begins there."""
    store = MemoryStore()
    agent = talker(store)
    await agent.run("I live in Oslo.", run_id="r")
    await agent.settle()
    entries = await agent.history("r")
    assert [each.kind for each in entries[-3:]] == ["stopped", "spent", "learned"]
    forked = await agent.fork("r", at=len(entries), run_id="f")
    assert (forked.status, forked.output, await due(store)) == ("done", "Hello!", [("", "f")])


async def test_a_run_executed_again_on_recorded_results_leaves_nothing_to_learn():
    """What the other run was learned from is not learned a second time."""
    store = MemoryStore()
    agent = talker(store)
    await agent.run("I live in Oslo.", run_id="r")
    await agent.settle()
    assert (await agent.rerun("r", new_id="again")).output == "Hello!"
    assert await due(store) == []
    live = await agent.rerun("r", until=1, new_id="live")
    assert (live.output, await due(store)) == ("Hello!", [("", "live")])


async def test_what_is_in_a_branch_learns_at_its_place():
    """What was said there alone may be gone at the end of the run."""
    store, model = MemoryStore(), Townsman()
    inner = Strategy("inner", START >> passthrough(str) >> LEARN >> END)
    both = parallel(inner, passthrough(str, name="other"))
    chain = START >> llm_request(tools=False) >> both >> passthrough(tuple[str, str], name="pair") >> END
    agent = Agent(Strategy("talk", chain), model=model, store=store)
    agent.install(AgentMemory, provider=StoreMemoryProvider(store), learn="background")
    await agent.run("I live in Oslo.")
    assert (model.extractions, await due(store), await cities(store)) == (1, [], ["Oslo"])


async def test_a_tap_with_an_error_edge_learns_at_its_place():
    """Somebody waits for what it raises."""
    store, ask = MemoryStore(), llm_request(tools=False)
    strategy = Strategy(
        "talk",
        START >> ask >> LEARN >> END,
        LEARN.on_error(ModelRequestError).map(lambda said: f"{said} Sorry.") >> END,
    )
    agent = Agent(strategy, model=Townsman(failing=1), store=store)
    agent.install(AgentMemory, provider=StoreMemoryProvider(store), learn="background")
    assert ((await agent.run("I live in Oslo.")).output, await due(store)) == ("Hello! Sorry.", [])


async def test_a_sub_agent_learns_within_the_run_that_calls_it():
    """Its run is a part of that one."""
    from graphagent.llm import ToolCall
    from graphagent_strategies import single_run

    store, model = MemoryStore(), Townsman()
    inner = talker(MemoryStore(), model, facts=store)
    inner.name, inner.description = "inner", "talks"
    outer = Agent(
        single_run(),
        model=ScriptedModel([ToolCall("inner", {"task": "I live in Oslo."}), "Done."]),
        tools=[inner],
        store=store,
    )
    assert (await outer.run("Go.")).output == "Done."
    assert (model.extractions, await due(store), await cities(store)) == (1, [], ["Oslo"])


async def test_the_model_of_a_subgraph_learns_later_too():
    """The one that the tap would have asked at its place."""
    store, cheap, dear = MemoryStore(), Townsman(named="cheap"), Townsman()
    inside = Strategy("inside", START >> passthrough(str) >> LEARN >> END).using(model=cheap)
    agent = Agent(Strategy("talk", START >> llm_request(tools=False) >> inside >> END), model=dear, store=store)
    agent.install(AgentMemory, provider=StoreMemoryProvider(store), learn="background")
    await agent.run("I live in Oslo.", run_id="r")
    assert (await agent.settle(), cheap.extractions, dear.extractions) == (1, 1, 0)
    assert [(row.node, row.model) for row in (await agent.read("r")).result.ledger.charges][-1] == (
        f"inside/{LEARN.name}",
        "cheap",
    )


async def test_the_policies_of_a_tap_hold_later_too():
    """A retry counts before the failure, and a time limit ends it."""
    store = MemoryStore()
    agent = talker(store, Townsman(failing=1), tap=LEARN.retry(attempts=2, wait=0))
    await agent.run("I live in Oslo.")
    assert (await agent.settle(), agent.model.extractions) == (1, 2)
    slow = talker(store, Townsman(anyio.Event()), tap=LEARN.timeout(0.001))
    await slow.run("I live in Rome.", run_id="r")
    assert (await slow.settle(), await due(store)) == (0, [("", "r")])


async def test_notes_are_learned_in_the_background():
    """Once, and where that fails it is tried again."""
    store, kept, failures = MemoryStore(), Mortal(), []
    notes = Notes(kept)
    agent = Agent(Strategy("talk", START >> llm_request(tools=False) >> END), model=Townsman(), store=store)
    agent.install(NoteMemory, notes=notes, learn="background", recall=False)
    agent.on(ExtractionFailed, failures.append)
    await agent.run("I live in Oslo.", run_id="r")
    assert (agent.model.extractions, await notes.list_records(), await due(store)) == (0, [], [("", "r")])
    kept.break_at(0, "refused")
    assert (await agent.settle(), [each.node for each in failures]) == (0, ["/NoteMemory"])
    kept.mend()
    assert (await agent.settle(), await agent.settle(), agent.model.extractions) == (1, 0, 2)
    [learned] = await notes.list_records()
    assert (learned.content, learned.run_id, await due(store)) == ("The user lives in Oslo.", "r", [])
    assert (await agent.read("r")).result.usage.total_tokens == 15


async def test_a_feature_of_ones_own_looks_back_in_the_background():
    """It sees the run and its answer as at the end of the run."""
    seen = []

    class Watcher(Feature):
        background = True

        async def ended(self, ctx, output):
            seen.append((ctx.run_id, output, len(ctx.memory.steps)))

    agent = Agent(Strategy("talk", START >> llm_request(tools=False) >> END), model=Townsman(), store=MemoryStore())
    agent.install(Watcher)
    result = await agent.run("Hi.", run_id="r")
    assert (seen, await agent.settle(), seen) == ([("r", "Hello!", len(result.memory.steps))], 1, [("r", "Hello!", 3)])


class Spender(Feature):
    """Looks back at a run, and spends three tokens."""

    async def ended(self, ctx, output):
        ctx.spend(Usage(input_tokens=3), "looking back")


@pytest.mark.parametrize("stored", [True, False])
async def test_what_a_feature_spends_when_it_looks_back_is_a_part_of_the_run(stored):
    """It is in the result and the ledger, and in the store; what the feature of a sub-agent spends also counts for the caller."""
    store = MemoryStore() if stored else None
    inner = Agent(Strategy("inner", START >> passthrough(str) >> END), name="inner", description="passes on")
    inner.install(Spender)
    outer = Agent(Strategy("outer", START >> inner.as_node() >> END), store=store)
    alone = Agent(Strategy("alone", START >> passthrough(str) >> END), store=store)
    alone.install(Spender)
    for agent, spent in ((alone, [("", "looking back")]), (outer, [("inner", "inner")])):
        result = await agent.run("x", run_id=agent.strategy.name)
        assert result.usage.total_tokens == 3
        assert [(each.node, each.what) for each in result.ledger.charges] == spent
        if stored:
            read = (await agent.read(agent.strategy.name)).result
            assert (read.usage, read.ledger.charges) == (result.usage, result.ledger.charges)


async def test_an_encrypted_store_has_what_is_due():
    """It is found there as well, for every owner."""
    store = EncryptedStore(MemoryStore(), key=bytes(32))
    for owner in ("", "ada"):
        await talker(store).run("I live in Oslo.", owner=owner)
    assert (await talker(store).settle(), await cities(store, "ada"), await due(store)) == (2, ["Oslo"], [])


async def live(store, said="I live in Oslo."):
    """Run, or go on with the run, and learn from it."""
    agent = talker(store)
    try:
        await agent.resume("r")
    except RunError:
        await agent.run(said, run_id="r")
    await agent.settle()
    return agent


@pytest.mark.parametrize("number", range(9))
async def test_a_death_behind_any_commit_loses_nothing_and_learns_once(number):
    """Whoever comes next goes on where the first one died: at the answer, with the claim, behind the fact."""
    whole = Watched()
    await live(whole)
    left = await cut(whole.commits[:number])
    agent = await live(left)
    assert (await cities(left), await due(left), await agent.settle()) == (["Oslo"], [], 0)
    [head] = await list_runs(left)
    assert (head.status, head.unlearned, head.claim) == ("done", (), None)


async def _die(path, how, number):
    async with Deadly(path, how, number) as store:
        await live(store)


KILLS = [(how, number) for number in range(1, 9) for how in ("before", "behind")]


@pytest.mark.parametrize(("how", "number"), some(KILLS, 4))
def test_a_process_that_is_killed_loses_nothing_and_learns_once(tmp_path, how, number):
    """Its claim on the run falls to whoever settles next."""
    path = tmp_path / "runs.db"
    program = (
        f"import anyio\nfrom tests.run.test_background import _die\nanyio.run(_die, {str(path)!r}, {how!r}, {number})"
    )
    done = forkserver.run([sys.executable, "-c", program], cwd=HOME, check=False)
    assert done.returncode in (-signal.SIGKILL, 0)

    async def go_on():
        async with SqliteStore(path) as store:
            await live(store)
            assert (await cities(store), await due(store)) == (["Oslo"], [])

    anyio.run(go_on)


async def test_an_agent_without_a_store_has_nothing_to_settle():
    """The error says where it would be kept, and how the agent gets one, and no more."""
    with pytest.raises(
        RunError, match=r"give it a store: Agent\(…, store=.*\)\. The learning that runs leave is kept there$"
    ):
        await Agent(Strategy("talk", START >> passthrough(str) >> END)).settle()
