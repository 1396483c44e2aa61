"""What a run did when, as rows with bars, and the step beside them."""

from __future__ import annotations

import re
from contextlib import suppress
from datetime import timedelta

from graphagent import END, START, Agent, Context, Strategy, node, parallel, tool
from graphagent.errors import NodeFailedError
from graphagent.history import read_run, resume_run
from graphagent.inspect._spans import Attempt, Span, spans_of_run
from graphagent.inspect._time import Scale, now_of
from graphagent.inspect._timeline import said_of
from graphagent.llm import ToolCall, ToolCalls
from graphagent.nodes import execute_tools, llm_request
from graphagent.store import MemoryStore
from graphagent.testing import ScriptedModel, fixed_clock
from graphagent_strategies import single_run
from tests.inspect.pages import address, look, looking


async def worked(store):
    """Return a run with branches, attempts, a sub-agent, and a node that fails, and is tried again after a pause."""
    left = {"flaky": 1, "pay": 1}

    @node
    async def flaky(ctx: Context, task: str) -> str:
        """Fail once."""
        if left["flaky"]:
            left["flaky"] -= 1
            raise ConnectionError("no answer")
        return task

    @node
    async def steady(ctx: Context, task: str) -> str:
        """Return it."""
        return task

    @node
    async def join(ctx: Context, both: tuple[str, str]) -> str:
        """Join them."""
        return " ".join(both)

    @node
    async def pay(ctx: Context, text: str) -> str:
        """Fail once."""
        if left["pay"]:
            left["pay"] -= 1
            raise ValueError(f"cannot pay {text}")
        return text

    helper = Agent(
        single_run(), name="helper", description="Helps.", model=ScriptedModel([ToolCall("look", {"place": "here"}), "It helps."]), tools=[look]
    )  # fmt: skip
    ask, act = llm_request(name="ask"), execute_tools(name="act")
    both = parallel(flaky.retry(attempts=2, wait=0, errors=ConnectionError), steady, name="both")
    whole = Strategy("desk", START >> both >> join >> ask, ask.on(ToolCalls) >> act >> ask, ask.on(str) >> pay >> END)
    calls = ToolCalls([ToolCall("look", {"place": "nowhere"}, id="c1"), ToolCall("helper", {"task": "help"}, id="c2")])
    agent = Agent(whole, model=ScriptedModel([calls, "20"]), tools=[look, helper], store=store)
    with suppress(NodeFailedError):
        await agent.run("Go.", run_id="worked")
    await agent.resume("worked")
    return await read_run(store, "worked")


async def test_the_timeline_has_a_row_for_each_node_with_its_attempts_and_what_is_inside_below_it():
    """A node that did one thing is one row with it; a sub-agent is inside of its call; an attempt after a failure is in the same row."""
    stored = await worked(MemoryStore())
    spans = spans_of_run(stored, stored.entries[-1].at)
    rows = [
        (each.depth, each.kind, each.label, each.about, len(each.attempts), each.failures, each.problem)
        for each in spans
    ]
    assert rows == [
        (0, "node", "both", "", 1, 0, ""),
        (1, "node", "flaky", "", 2, 1, ""),
        (1, "node", "steady", "", 1, 0, ""),
        (0, "node", "join", "", 1, 0, ""),
        (0, "model", "ask", "turn 1", 1, 0, ""),
        (0, "node", "act", "", 1, 0, ""),
        (1, "tool", "look", "", 1, 1, "ValueError"),
        (1, "agent", "helper", "", 1, 0, ""),
        (2, "model", "llm_request", "turn 1", 1, 0, ""),
        (2, "tool", "execute_tools", "look", 1, 0, ""),
        (2, "model", "llm_request", "turn 2", 1, 0, ""),
        (0, "model", "ask", "turn 2", 1, 0, ""),
        (0, "node", "pay", "", 2, 1, ""),
    ]  # fmt: skip
    (sub,) = stored.children
    assert [(each.depth, each.about) for each in spans_of_run(sub, 0)] == [(0, "turn 1"), (0, "look"), (0, "turn 2")]


def test_long_silence_is_drawn_short_and_is_not_work():
    """Marks of time stand at what is to scale."""
    spans = [
        Span("node", "first", "first", 1, [Attempt(0, 4000)]),
        Span("person", "asks", "asks", 2, [Attempt(4000, 10_004_000)]),
        Span("node", "second", "second", 3, [Attempt(10_004_000, 10_008_000)]),
    ]
    scale = Scale(spans)
    assert scale.silences == [(4000, 10_004_000)]
    assert (scale.waited, scale.work) == (10_000, 8000)
    assert (scale.at(4000), scale.at(10_004_000)) == (46, 54)
    assert [seconds for _, seconds in scale.ticks()] == [0, 2, 4, 6, 8]
    assert [place for place, _ in scale.ticks()] == [0, 23, 46, 77, 100]


async def test_a_row_leads_to_its_step_beside_the_timeline():
    """By its address alone; also the turn of a sub-agent, with its prompt, and the input of a node that is inside of a fork."""
    stored = await worked(store := MemoryStore())
    entries = {(each.where, each.kind if not each.effect else each.effect): each.number for each in stored.entries}
    async with looking(store) as client:
        steps = {
            name: (await client.get(address("run", id="worked", step=number))).text.partition('id="step"')[2].partition('class="graph"')[0]
            for name, number in (
                ("fork", entries["both/0/flaky", "finished"]), ("call", entries["act", "tool"]),
                ("turn", next(n for (where, kind), n in entries.items() if kind == "turn" and where.startswith("act/"))),
            )
        }  # fmt: skip
    assert '<h3>Input</h3><pre class="box">Go.</pre>' in steps["fork"]
    assert "The run of the sub-agent" in steps["call"]
    assert "It helps." in steps["call"]
    assert "New since turn 1" in steps["turn"]
    assert "/prompt?id=worked%2Fhelper" in steps["turn"]


async def test_a_wait_is_one_row_until_its_answer_and_a_sleep_lasts_until_its_time():
    """Also of calls that wait for approvals, and of a question whose deadline passed. A node that a worker goes on with was tried once more."""
    left, store = [2], MemoryStore()

    @tool(approve=True)
    def pay(name: str) -> str:
        """Pay."""
        return f"paid {name}"

    @node
    async def nap(ctx: Context, text: str) -> str:
        """Sleep, ask, and fail twice."""
        await ctx.sleep(60)
        await ctx.ask("There?", str, deadline=timedelta(seconds=30), default="no")
        left[0] -= 1
        if left[0]:
            raise ValueError(text)
        return text

    async def rows(run_id):
        stored = await read_run(store, run_id)
        return [(each.label, each.about, said_of(each)) for each in spans_of_run(stored, now_of(stored))]

    with fixed_clock(step_ms=0) as clock:
        calls = [ToolCall("pay", {"name": name}, id=name) for name in ("Ada", "Bo")]
        payer = Agent(single_run(), model=ScriptedModel([calls, "Paid."]), tools=[pay], store=store)
        await payer.run("Pay.", run_id="pays")
        clock.move(timedelta(seconds=10))
        assert (await rows("pays"))[2:] == [("waits for an answer", "", "waits, 10.0 s")] * 2
        await payer.resume("pays", answers={"Ada": True})
        clock.move(timedelta(seconds=10))
        await payer.resume("pays", answers={"Bo": False})
        assert [each for each in await rows("pays") if "wait" in each[2]] == [("answer", "", "waited 10.0 s"), ("answer", "", "waited 20.0 s")]  # fmt: skip

        napping = Agent(Strategy("naps", START >> nap >> END), store=store)
        await napping.run("zzz", run_id="naps")
        clock.move(timedelta(seconds=20))
        assert await rows("naps") == [("nap", "sleep", "sleeps, 20.0 s")]
        async with looking(store) as client:
            assert re.search(r">until \S+:20</a>", (await client.get(address("run", id="naps"))).text)
        clock.move(timedelta(seconds=50))
        await napping.resume("naps")
        clock.move(timedelta(seconds=40))
        with suppress(NodeFailedError):
            await napping.resume("naps")
        await resume_run(store, "naps")
        clock.move(timedelta(seconds=5))
        await napping.resume("naps")
        assert await rows("naps") == [
            ("nap", "", "0 ms · 4 tries"), ("sleep", "", "slept 1 min"), ("expired", "", "waited 40.0 s")
        ]  # fmt: skip
