"""Runs that somebody ended where they were: nothing resumes them, and what they did stays known."""

from __future__ import annotations

from contextlib import suppress

import anyio
import pytest

from graphagent import END, START, Agent, Context, Strategy, blocking, node, parallel, tool
from graphagent.errors import (
    BudgetError,
    NodeFailedError,
    RunClaimedError,
    RunEndedError,
    RunExistsError,
    ThreadBusyError,
)
from graphagent.events import RunEnded
from graphagent.history import (
    choose_runs,
    end_run,
    export_runs,
    import_runs,
    list_threads,
    prune_runs,
    read_run,
    verify_runs,
)
from graphagent.llm import Deny, ToolCall, ToolCalls
from graphagent.memory import AgentMemory, StoreMemoryProvider
from graphagent.nodes import ask_human, execute_tools, llm_request
from graphagent.protocols import Feature
from graphagent.run import list_runs
from graphagent.store import MemoryStore
from graphagent.testing import ScriptedModel
from graphagent_strategies import single_run
from tests.run.test_background import LEARN, Townsman, cities

BROKEN = "Error: this call was broken off, and nobody knows whether it took effect"
asking = Strategy("asking", START >> ask_human("Go on?", str) >> END)


@tool
def pay(name: str) -> str:
    """Pay somebody."""
    return f"paid {name}"


@tool(deferred=True)
def courier(order: str) -> str:  # type: ignore[empty-body]
    """Ask the courier."""


@tool(approve=True)
def wire(euros: int) -> str:
    """Wire money."""
    return f"wired {euros}"


class Stopped:
    """A tool in which somebody presses Stop."""

    def __init__(self):
        self.scope = anyio.CancelScope()

        @tool
        async def mail(name: str) -> str:
            """Mail somebody."""
            self.scope.cancel()
            await anyio.sleep_forever()
            return ""

        self.tool = mail

    async def run(self, agent, **options):
        with self.scope:
            await agent.run("Pay Ada, and mail her.", run_id="r", **options)
        assert agent.last.status == "cancelled"


PAYING = (ToolCall("pay", {"name": "Ada"}, id="p"), ToolCall("mail", {"name": "Ada"}, id="m"))


def clerk(store, *replies, **options):
    return Agent(single_run(), model=ScriptedModel([*replies]), store=store, **options)


def sent(agent):
    """Return what the model was sent last."""
    return [message.text for message in agent.model.requests[-1].messages]


# ---- what it means


async def test_what_a_stopped_run_did_stays_in_its_thread(store):
    """The next message is sent with the payment, and with the call of which nobody knows whether it took effect."""
    stopped, heard = Stopped(), []
    agent = clerk(store, *PAYING, "All right.", tools=[pay, stopped.tool])
    agent.on(RunEnded, heard.append)
    await stopped.run(agent, thread="t")
    result = await agent.end("r", "she changed her mind")
    assert (result.status, result.done, result.output, result.questions) == ("ended", False, None, ())
    assert heard == [RunEnded("r", "she changed her mind")]
    await agent.run("Go on.", thread="t")
    assert sent(agent) == ["Pay Ada, and mail her.", "", "paid Ada", "", BROKEN, "Go on."]
    assert await verify_runs(store) == 2


@pytest.mark.parametrize("how", ["by the agent", "without it", "both at once"])
async def test_a_run_is_ended_once(store, how):
    """Whoever ends it again gets the same result, and nothing more is written."""
    agent = Agent(asking, store=store)
    await agent.run("x", run_id="r", owner="ann")
    if how == "both at once":
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(lambda: agent.end("r", "first", owner="ann"))
            tasks.start_soon(lambda: end_run(store, "r", "first", owner="ann"))
    elif how == "by the agent":
        await agent.end("r", "first", owner="ann")
    else:
        assert (await end_run(store, "r", "first", owner="ann")).status == "ended"
    again = await agent.end("r", "second", owner="ann")
    assert (again.status, (await end_run(store, "r", "third", owner="ann")).reason) == ("ended", "it was ended: first")
    entries = await agent.history("r", owner="ann")
    assert [each.kind for each in entries].count("ended") == 1
    assert (entries[-1].ends_run, entries[-1].data["reason"]) == (True, "first")


async def test_nothing_continues_a_run_that_was_ended():
    """Not even an object that has not heard of it; what came to END is only read."""
    store = MemoryStore()
    agent = Agent(asking, store=store)
    await agent.run("x", run_id="r")
    before = agent.last
    before.answer("yes")
    await agent.end("r")
    for go_on in (
        lambda: agent.resume("r"),
        lambda: agent.resume("r", answer="yes"),
        before.finish,
        before.step,
    ):
        with pytest.raises(
            RunEndedError, match=r"run 'r' is not continued, since it was ended; .*agent.fork\('r'"
        ) as info:
            await go_on()
        assert info.value.run_id == "r"
    assert (await agent.fork("r", before="ask_human", run_id="f")).status == "waiting"
    assert (await agent.resume("f", answer="yes")).output == "yes"
    assert (await agent.end("f", "too late")).output == "yes"


async def test_what_waits_is_withdrawn():
    """Of calls, the model reads which were begun: one that a person was asked about was not, and a deferred one may have been."""
    calls = ToolCalls([ToolCall("wire", {"euros": 5}, id="w"), ToolCall("courier", {"order": "x"}, id="c")])
    agent = clerk(MemoryStore(), calls, "Fine.", tools=[wire, courier])
    assert len((await agent.run("Wire it.", run_id="r", thread="t")).questions) == 2
    with pytest.raises(
        ThreadBusyError, match=r"or end it as it is with agent.end\('r', reason\), or with if_busy='end'"
    ):
        await agent.run("And?", thread="t")
    await agent.end("r")
    assert (await agent.read("r")).questions == ()
    await agent.run("And?", thread="t")
    assert sent(agent)[2:] == ["This call was not executed.", BROKEN, "And?"]


async def test_sub_agents_end_with_the_run(store):
    """In the list, and in the result; a call that one was making was broken off, as was that of the agent."""
    stopped = Stopped()
    inner = clerk(None, *PAYING, tools=[pay, stopped.tool], name="helper", description="Helps.")
    agent = clerk(store, ToolCall("helper", {"task": "Pay."}, id="h"), "Fine.", tools=[inner])
    await stopped.run(agent)
    result = await agent.end("r")
    assert [(child.result.status, child.result.output) for child in result.children] == [("ended", None)]
    assert [step.results[0].content for step in result.children[0].memory.steps[1:]] == ["paid Ada", BROKEN]
    assert result.memory.steps[1].results[0].content == BROKEN
    assert [head.status for head in await list_runs(store)] == ["ended", "ended"]
    stored = await read_run(store, "r")
    assert [(each.head.status, each.at) for each in (stored, *stored.children)] == [("ended", ())] * 2
    assert stored.to_text().endswith("Ended:\n    it was ended")


async def test_what_branches_did_is_not_lost():
    """Their steps are in the transcript, also of a fork that would not have kept them."""
    stopped, act, ask = Stopped(), execute_tools(), llm_request()
    work = Strategy("work", START >> ask, ask.on(ToolCalls) >> act >> ask, ask.on(str) >> END)

    @node
    async def joined(ctx: Context, said: tuple[str, str]) -> str:
        return " ".join(said)

    both = Strategy("both", START >> parallel(work, work, limit=1) >> joined >> END)
    model = ScriptedModel([PAYING[0], "Paid.", PAYING[1], "All right."])
    agent = Agent(both, model=model, tools=[pay, stopped.tool], store=MemoryStore())
    await stopped.run(agent, thread="t")
    await agent.end("r")
    later = Agent(single_run(), model=model, store=agent.store)
    await later.run("Go on.", thread="t")
    assert sent(later) == ["Pay Ada, and mail her.", "", "paid Ada", "Paid.", "", BROKEN, "Go on."]


async def test_a_run_whose_strategy_has_changed_can_be_ended():
    """It could not be resumed."""
    store = MemoryStore()
    await Agent(asking, store=store).run("x", run_id="r")
    other = Agent(Strategy("asking", START >> ask_human("Other?", int, name="other") >> END), store=store)
    assert (await other.end("r")).status == "ended"


def test_a_run_is_ended_without_async():
    """`blocking(agent)` ends it, too."""
    agent = blocking(Agent(asking, store=MemoryStore()))
    agent.run("x", run_id="r")
    assert agent.end("r", "no").status == "ended"


# ---- learning


class Learner(Feature):
    """A feature that notes what it is shown at the end of a run."""

    def __init__(self, seen, *, background=False):
        self.seen, self.later = seen, background

    @property
    def background(self):
        return self.later

    async def ended(self, ctx, output):
        self.seen.append((ctx.run_id, len(ctx.memory.steps), output))


@pytest.mark.parametrize("background", [False, True])
@pytest.mark.parametrize("how", ["agent.end", "if_busy"])
async def test_features_learn_from_a_run_that_was_ended(background, how):
    """At once, or in the background; the output is None."""
    seen = []
    agent = Agent(asking, store=MemoryStore())
    agent.install(Learner, seen, background=background)
    await agent.run("x", run_id="r", thread="t")
    if how == "agent.end":
        await agent.end("r")
    else:
        await agent.run("y", thread="t", if_busy="end")
    assert seen == ([] if background else [("r", 1, None)])
    assert await agent.settle() == (1 if background else 0)
    assert seen == [("r", 1, None)]


async def test_what_was_left_to_be_learned_is_learned_from_a_run_that_was_ended():
    """A tap that waited for the end of the run learns what was said until then, in any process."""
    store = MemoryStore()
    talk = Strategy("talk", START >> llm_request(tools=False) >> LEARN >> ask_human("More?", str) >> END)

    def agent():
        made = Agent(talk, model=Townsman(), store=store)
        made.install(AgentMemory, provider=StoreMemoryProvider(store), agent_name="talk", learn="background")
        return made

    await agent().run("I live in Oslo.", run_id="r")
    assert await agent().settle() == 0
    await agent().end("r")
    assert (await agent().settle(), await agent().settle(), await cities(store)) == (1, 0, ["Oslo"])


# ---- who has it


async def test_a_run_that_is_executed_is_not_ended():
    """Neither by `agent.end` nor for the next message; between two steps it is being executed, too."""
    agent = clerk(MemoryStore(), PAYING[0], "Paid.", tools=[pay])
    run = agent.start("Pay.", run_id="r", thread="t")
    await run.step()
    for end in (lambda: agent.end("r"), lambda: end_run(agent.store, "r")):
        with pytest.raises(RunClaimedError, match="run 'r' is being executed by another task of this process"):
            await end()
    with pytest.raises(ThreadBusyError, match="run 'r' of thread 't' is running") as info:
        await agent.run("And?", thread="t", if_busy="end")
    assert info.value.status == "running"
    assert (await run.finish()).output == "Paid."


# ---- the next message of a thread


@pytest.mark.parametrize("how", ["waiting", "paused", "failed", "cancelled"])
async def test_the_next_message_may_end_what_keeps_its_thread(store, how):
    """Whatever stopped the run: both are one commit, and the reason is kept."""
    stopped = Stopped()

    @tool
    def last(name: str) -> str:
        """Do what comes last."""
        if how == "paused":
            agent.last.pause("lunch")
        return "done"

    second = {"waiting": ToolCall("wire", {"euros": 5}, id="w"), "cancelled": PAYING[1]}.get(
        how, ToolCall("last", {"name": "x"}, id="l")
    )
    replies = [PAYING[0], second, *([] if how == "failed" else ["Fine."])]
    agent = clerk(store, *replies, tools=[pay, wire, last, stopped.tool], max_turns=2 if how == "failed" else 20)
    with stopped.scope, suppress(BudgetError):
        await agent.run("Pay.", run_id="r", thread="t")
    assert agent.last.status == how
    later = clerk(store, "Fine.")
    before = len(await agent.history("r"))
    await later.run("Never mind.", thread="t", run_id="s", if_busy="end")
    assert sent(later)[2] == "paid Ada"
    assert len(await agent.history("r")) == before + 1
    heads = {head.run_id: head for head in await list_runs(store, thread="t")}
    assert (heads["r"].status, heads["r"].reason) == ("ended", "it was ended: the next message of its thread came")
    assert (heads["s"].status, heads["s"].previous) == ("done", "r")
    again = clerk(store, "Fine.")
    await again.run("And?", thread="t", if_busy="end")
    assert sent(again)[-3:] == ["Never mind.", "Fine.", "And?"]


async def test_a_message_that_is_refused_ends_nothing():
    """The run before it still waits."""
    agent = Agent(asking, store=MemoryStore())
    await agent.run("x", run_id="other")
    await agent.run("x", run_id="r", thread="t")
    with pytest.raises(RunExistsError):
        await agent.run("y", run_id="other", thread="t", if_busy="end")
    assert (await agent.read("r")).status == "waiting"
    with pytest.raises(ValueError, match="if_busy='never' is not known; there are 'refuse' and 'end'"):
        await agent.run("y", thread="t", if_busy="never")
    with pytest.raises(ValueError, match="if_busy= is about the last run of a thread; give thread=, too"):
        await agent.run("y", if_busy="end")
    first = await agent.run("y", thread="new", if_busy="end")
    assert first.status == "waiting"


# ---- in the store


async def test_runs_that_were_ended_are_listed_chosen_pruned_and_brought_elsewhere(store):
    """What was said in them stays in the run that continues them."""
    agent = Agent(asking, store=store)
    await agent.run("one", run_id="r", thread="t")
    await agent.run("two", run_id="s", thread="t", if_busy="end")
    await agent.end("s", "enough")
    assert [each.run_id for each in choose_runs(await list_runs(store), status=["ended"])] == ["s", "r"]
    other = MemoryStore()
    assert await import_runs(other, [record async for record in export_runs(store)]) == 2
    for each in (store, other):
        assert (await prune_runs(each, run_ids=["r"])).runs == 1
        [thread] = await list_threads(each)
        assert (thread.last.status, thread.last.reason) == ("ended", "it was ended: enough")
        later = clerk(each, "Fine.")
        await later.run("three", thread="t")
        assert sent(later) == ["one", "two", "three"]


async def test_a_failed_run_can_be_ended():
    """A declined question that nobody handled is left unanswered."""
    agent = Agent(asking, store=MemoryStore())
    await agent.run("x", run_id="r")
    with pytest.raises(NodeFailedError):
        await agent.resume("r", answer=Deny("no"))
    result = await agent.end("r", "declined")
    assert repr(result).startswith("<run 'r': it was ended: declined, ")
