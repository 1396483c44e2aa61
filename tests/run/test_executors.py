"""The two ways to execute the nodes of a frame, in memory and durably, come to the same: with listeners and without."""

from __future__ import annotations

import time
import weakref

import anyio
import anyio.lowlevel
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphagent import END, START, Agent, Context, Strategy, node, tap
from graphagent.errors import BudgetError, RunError
from graphagent.events import NodeFailed, NodeFinished, NodeStarted, RunAnswered
from graphagent.store import MemoryStore
from graphagent.testing import fixed_clock, fixed_ids
from tests.fold import described
from tests.run.executors import both_executors  # noqa: F401  a fixture
from tests.run.lives import Life, answers_to
from tests.run.test_resume import MANY
from tests.run.worlds import parts
from tests.thorough import examples


async def stages(built, most, *, store=None, watched=False):
    """Execute a run to its end; return what it was at each rest, what was heard and done, its states in memory, and nodes if `watched`."""
    life, heard, found, states, ends = Life(built), [], [], [], []
    run = life.agent(store).start("the task", run_id="r")
    if watched:
        for kind in (NodeStarted, NodeFinished):
            run.on(kind, lambda event: ends.append((type(event), event.node, run.result.nodes)))
    run.on(NodeFailed, lambda event: heard.append((event.node, repr(event.error), run.result.nodes)))
    run.set_budgets(max_nodes=most)
    while True:
        error = None
        try:
            await run.finish()
        except RunError as raised:
            error = raised
        result, live = run.result, run._run
        held = [
            (limits.running, limits.asking)
            for limits in (live.limits, *(each.limits for each in live.session.children.values()))
        ]
        state = live.log.state
        failure = (state.failure or ())[:2]  # without the traceback, which names the functions of the engine
        found.append(
            (result.status, repr(error), result.nodes, result.turns, result.usage, held, state.number, failure)
        )
        if store is None:  # the values of a log with a store are bytes
            states.append({**described(state), "failure": failure})
        if isinstance(error, BudgetError):
            run.set_budgets(max_nodes=5000)
        elif result.status == "waiting":
            run.answer(answers=answers_to(result.questions, one=False))
        else:
            return (found, heard, life.world.done, life.world.keys), states, ends


@pytest.mark.parametrize("executor", ["in memory"], indirect=True)
@settings(max_examples=examples(100, 15), **MANY)
@given(parts(2, agents=True), st.sampled_from((2, 5, 11, 5000)))
def test_both_ways_come_to_the_same(executor, built, most):
    """Whatever the strategy and its budget: totals, entries and places in budgets at each rest, the state of the log, and what is heard."""

    async def all_ways():
        ways = []
        for store, watched in ((None, False), (None, True), (MemoryStore, False), (MemoryStore, True)):
            with fixed_clock(step_ms=0), fixed_ids():
                ways.append(await stages(built, most, store=store and store(), watched=watched))
        in_memory, durable = ways[0], ways[2]
        assert in_memory[:2] == ways[1][:2]
        assert durable[:2] == ways[3][:2]
        # Branches have their turns in another order where they wait for a store; the path of a branch has its number.
        if not any(part.isdigit() for _, path, _ in ways[1][2] for part in path.split("/")):
            assert (in_memory[0], ways[1][2]) == (durable[0], ways[3][2])

    anyio.run(all_ways)


@pytest.mark.usefixtures("executor")
async def test_the_answer_is_reported_when_only_taps_are_left():
    """Whoever listens to nothing else hears it before the tap, and a listener that a node adds hears the next node."""
    heard = []

    @node
    async def answer(ctx: Context, n: int) -> int:
        agent.last.on(NodeFinished, lambda event: heard.append(event.node))
        return n + 1

    @tap
    async def learn(ctx: Context, n: int) -> None:
        heard.append("learning")

    agent = Agent(Strategy("s", START >> answer >> learn >> END))
    agent.on(RunAnswered, lambda event: heard.append(event.output))
    await agent.run(1)
    assert heard == [2, "learning", "learn"]


async def test_a_condition_behind_a_refused_change_gets_the_output_itself():
    """Where a change is followed by a condition that refuses, the next edge passes on the output as it was."""

    @node
    async def count(ctx: Context, n: int) -> int:
        return n

    @node
    async def shown(ctx: Context, n: int) -> str:
        return f"{n} after {ctx.visits}"

    strategy = Strategy(
        "s", START >> count, count.map(lambda n: -n).when(lambda n: n > 0) >> END, count.when(lambda n: n > 2) >> shown >> END,
        count.otherwise() >> END,
    )  # fmt: skip
    assert [(await Agent(strategy).run(n)).output for n in (-1, 3, 2)] == [1, "3 after 1", 2]


async def test_other_tasks_have_their_turn_while_a_sub_agent_loops():
    """Nodes that never wait let other tasks go on now and then, also where they are those of an agent that is used as a node."""
    turns = 0

    @node
    async def add(ctx: Context, n: int) -> int:
        time.sleep(0.0001)  # noqa: ASYNC251  it never waits
        return n + 1

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await anyio.lowlevel.checkpoint()

    loop = Strategy("loop", START >> add, add.when(lambda n: n < 1000) >> add, add.otherwise() >> END)
    inner = Agent(loop, max_nodes=None, name="inner", description="Counts.")
    outer = Agent(Strategy("s", START >> inner.as_node() >> END))
    async with anyio.create_task_group() as group:
        group.start_soon(count)
        await anyio.lowlevel.checkpoint()
        before = turns
        assert (await outer.run(0)).output == 1000
        group.cancel_scope.cancel()
    assert turns - before > 4


async def test_a_context_shows_nothing_of_how_it_is_made():
    """Its text is that of any object, two contexts are never equal, and it can be referred to weakly and be subclassed."""

    class Own(Context[int]):
        pass

    seen = []

    @node
    async def look(ctx: Context, n: int) -> bool:
        seen.append(ctx)
        return weakref.ref(ctx)() is ctx and isinstance(ctx, Context) and issubclass(Own, Context)

    @node
    async def again(ctx: Context, fine: bool) -> bool:
        return fine and ctx != seen[0] and hash(ctx) != hash(seen[0])

    assert (await Agent(Strategy("s", START >> look >> again >> END)).run(1)).output
    assert repr(seen[0]) == object.__repr__(seen[0])
