"""What becomes of a run whose facts cannot be found or kept: it has its answer, and learns later."""

from __future__ import annotations

import anyio
import pytest

from graphagent import END, START, Agent, Strategy, parallel
from graphagent.errors import BudgetError, ModelRequestError, NodeFailedError, StoreError
from graphagent.events import ExtractionFailed
from graphagent.memory import AgentMemory, Concept, Scope, StoreMemoryProvider, Subject
from graphagent.nodes import ask_human, auto_detect_facts, llm_request, passthrough, save_facts
from graphagent.store import MemoryStore
from graphagent.testing import ScriptedModel

USER = Subject("user", "the user")
CITY = Concept("city")
HERE = Scope.agent("talk")
DETECTED = {"facts": [{"subject": "user", "keyword": "city", "value": "Oslo"}]}
VALUES = {"values": ["Oslo"]}
BUSY = ModelRequestError("the server answered 503", status=503, detail="Oslo is secret")


@pytest.fixture
def provider():
    return StoreMemoryProvider(MemoryStore())


class Flaky(StoreMemoryProvider):
    """Facts in a store that cannot be written."""

    async def save(self, *args, **kwargs):
        raise StoreError("the disk is full")


def learner(learn, provider, *replies, store=None, around=lambda learn: [learn], **given):
    """An agent that answers and then learns, and the failures that it reports."""
    chain = START >> llm_request(tools=False)
    for each in around(learn):
        chain = chain >> each
    agent = Agent(Strategy("talk", chain >> END), model=ScriptedModel(replies), store=store, **given)
    agent.install(AgentMemory, provider=provider)
    failures = []
    agent.on(ExtractionFailed, failures.append)
    return agent, failures


async def cities(provider):
    return [fact.value for fact in await provider.history(CITY, USER, HERE)]


TAPS = pytest.mark.parametrize(
    ("learn", "found"),
    [(auto_detect_facts(subjects=[USER]), DETECTED), (save_facts(CITY, subject=USER), VALUES)],
    ids=["detect", "save"],
)


@TAPS
async def test_a_model_that_fails_to_extract_costs_no_answer(provider, learn, found):
    """The run ends with it, and an event says why nothing was learned, without what the server said."""
    agent, failures = learner(learn, provider, "Hello!", BUSY)
    assert (await agent.run("I live in Oslo.")).output == "Hello!"
    [failed] = failures
    assert (failed.node, failed.reason) == (learn.name, "the server answered 503")


async def test_facts_that_cannot_be_kept_cost_no_answer(provider):
    """Nor does a memory that fails."""
    agent, failures = learner(save_facts(CITY, subject=USER), Flaky(MemoryStore()), "Hello!", VALUES)
    assert (await agent.run("I live in Oslo.")).output == "Hello!"
    assert [failed.reason for failed in failures] == ["the disk is full"]


class Unreachable(StoreMemoryProvider):
    """A memory that somebody wrote without turning its errors into those of this library."""

    async def load_all(self, *args, **kwargs):
        raise ConnectionError

    save = load_all


class Stuck(StoreMemoryProvider):
    """A memory that never answers."""

    async def load_all(self, *args, **kwargs):
        await anyio.sleep_forever()

    save = load_all


@TAPS
async def test_a_memory_that_cannot_be_reached_costs_no_answer(learn, found):
    """It may be anybody's, and raise what the network raises."""
    agent, failures = learner(learn, Unreachable(MemoryStore()), "Hello!", found)
    assert (await agent.run("I live in Oslo.")).output == "Hello!"
    assert [failed.reason for failed in failures] == ["ConnectionError"]


@TAPS
async def test_a_time_limit_of_learning_costs_no_answer(provider, learn, found):
    """With a store, the run learns when it is resumed, within the limit that the tap has then."""
    store = MemoryStore()
    agent, failures = learner(learn.timeout(0.001), Stuck(MemoryStore()), "Hello!", found, store=store)
    assert (await agent.run("I live in Oslo.", run_id="r")).output == "Hello!"
    assert [failed.reason for failed in failures] == [f"{learn.name!r} took longer than 0.001 seconds, its .timeout"]
    again, _ = learner(learn.timeout(600), provider, found, store=store)
    await again.resume("r")
    assert await cities(provider) == ["Oslo"]


@TAPS
async def test_a_run_that_could_not_learn_does_when_it_is_resumed(provider, learn, found):
    """By any agent of the strategy, once: from then on the run is only read. Until then each resume tries again."""
    store = MemoryStore()
    agent, _ = learner(learn, provider, "Hello!", BUSY, store=store)
    await agent.run("I live in Oslo.", run_id="r")
    agent, failures = learner(learn, provider, BUSY, found, store=store)
    assert (await agent.resume("r")).output == "Hello!"
    assert (len(failures), await cities(provider)) == (1, [])
    assert (await agent.resume("r")).output == "Hello!"
    assert await cities(provider) == ["Oslo"]
    [fact] = await provider.load(CITY, USER, HERE)
    assert (fact.source.run_id, fact.source.origin, fact.source.trust) == ("r", learn.name, "inferred")
    agent, _ = learner(learn, provider, store=store)  # without any reply
    assert (await agent.resume("r")).output == "Hello!"
    assert await cities(provider) == ["Oslo"]


async def test_a_run_that_could_not_learn_does_when_it_ends_after_a_question(provider):
    """What failed before the run was resumed is tried again at its end."""
    store, learn = MemoryStore(), auto_detect_facts(subjects=[USER])
    asking = lambda learn: [learn, ask_human("Well?", str)]
    agent, failures = learner(learn, provider, "Hello!", BUSY, store=store, around=asking)
    assert (await agent.run("I live in Oslo.", run_id="r")).status == "waiting"
    agent, later = learner(learn, provider, DETECTED, store=store, around=asking)
    assert (await agent.resume("r", answer="Yes.")).output == "Yes."
    assert (len(failures), len(later), await cities(provider)) == (1, 0, ["Oslo"])
    *_, end, _, learned = await agent.history("r")
    assert (end.ends_run, learned.kind, (await agent.read("r")).status) == (True, "learned", "done")


async def test_a_tap_of_a_subgraph_learns_later_too(provider):
    """It is found by its path."""
    store, learn = MemoryStore(), auto_detect_facts(subjects=[USER])
    inside = lambda learn: [Strategy("inner", START >> passthrough(str) >> learn >> END)]
    agent, _ = learner(learn, provider, "Hello!", BUSY, store=store, around=inside)
    await agent.run("I live in Oslo.", run_id="r")
    agent, _ = learner(learn, provider, DETECTED, store=store, around=inside)
    await agent.resume("r")
    [fact] = await provider.load(CITY, USER, HERE)
    assert fact.source.origin == "inner/auto_detect_facts"


async def test_a_tap_of_a_branch_reports_its_failure_and_is_not_tried_again(provider):
    """What was said in the branch alone may be gone by then."""
    store, learn = MemoryStore(), auto_detect_facts(subjects=[USER])

    def forked(learn):
        inner = Strategy("inner", START >> passthrough(str) >> learn >> END)
        both = parallel(inner, passthrough(str, name="other"))
        return [both, Strategy("pair", START >> passthrough(tuple[str, str]) >> END)]

    agent, failures = learner(learn, provider, "Hello!", BUSY, store=store, around=forked)
    assert (await agent.run("I live in Oslo.", run_id="r")).output == ("Hello!", "Hello!")
    agent, _ = learner(learn, provider, store=store, around=forked)
    await agent.resume("r")
    assert len(failures) == 1


async def test_a_run_executed_again_on_recorded_results_fails_to_learn_again(provider):
    """Nothing live is called for it."""
    store, learn = MemoryStore(), auto_detect_facts(subjects=[USER])
    agent, _ = learner(learn, provider, "Hello!", BUSY, store=store)
    await agent.run("I live in Oslo.", run_id="r")
    agent, failures = learner(learn, provider, store=store)
    assert (await agent.rerun("r")).output == "Hello!"
    assert failures == []


async def test_a_used_up_budget_still_ends_the_run(provider):
    """A limit is not undone by what may fail."""
    agent, failures = learner(auto_detect_facts(subjects=[USER]), provider, "Hello!", DETECTED, max_tokens=1)
    with pytest.raises(BudgetError):
        await agent.run("I live in Oslo.")
    assert failures == []


async def test_a_node_that_asks_for_facts_is_told_that_the_model_failed(provider):
    """What it does about it is up to the node."""
    from graphagent import Context, node

    @node
    async def find(ctx: Context, text: str) -> str:
        await ctx.feature(AgentMemory).detect_facts([USER])
        return text

    agent, failures = learner(find, provider, "Hello!", BUSY)
    with pytest.raises(NodeFailedError, match="503"):
        await agent.run("I live in Oslo.")
    assert failures == []


async def test_a_retry_of_a_tap_that_learns_counts_first(provider):
    """It fails only when all attempts do."""
    learn = auto_detect_facts(subjects=[USER]).retry(attempts=2, wait=0)
    agent, failures = learner(learn, provider, "Hello!", BUSY, DETECTED)
    await agent.run("I live in Oslo.")
    assert (failures, await cities(provider)) == ([], ["Oslo"])


async def test_an_error_path_of_a_tap_that_learns_is_taken(provider):
    """Then nothing is excused, and nothing is tried again later."""
    ask, learn = llm_request(tools=False), auto_detect_facts(subjects=[USER])
    strategy = Strategy(
        "talk",
        START >> ask >> learn >> END,
        learn.on_error(ModelRequestError).map(lambda said: f"{said} Sorry.") >> END,
    )
    agent = Agent(strategy, model=ScriptedModel(["Hello!", BUSY]), store=MemoryStore())
    agent.install(AgentMemory, provider=provider)
    failures = []
    agent.on(ExtractionFailed, failures.append)
    assert (await agent.run("Hi.")).output == "Hello! Sorry."
    assert failures == []
