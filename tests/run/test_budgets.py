"""Budgets: what counts, where a run ends, and what it has to show then."""

from __future__ import annotations

import time
from decimal import Decimal
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from graphagent import END, START, Agent, Context, Strategy, each, node, parallel, race, tap, tool
from graphagent.errors import BudgetError, NodeFailedError, RunError
from graphagent.events import ModelRequested, NodeStarted
from graphagent.llm import Message, ModelResponse, ToolCall, ToolCalls, Usage
from graphagent.memory import ActionStep
from graphagent.nodes import execute_tools, llm_request, passthrough, update_prompt
from graphagent.store import MemoryStore, SqliteStore
from graphagent.testing import ScriptedModel
from graphagent_strategies import single_run
from tests.run.executors import both_executors  # noqa: F401  a fixture


@node
async def again(ctx: Context, said: str) -> str:
    return said


@tap
async def look(ctx: Context, value: Any) -> None: ...


def answer(words, tokens):
    return ModelResponse(Message.assistant(words), Usage(tokens - 1, 1))


def endless(step, name="endless"):
    """A loop that has a way out which it never takes."""
    return Strategy(name, START >> step, step.when(lambda _: True) >> step, step.otherwise() >> END)


def chat():
    """A strategy that asks for ever."""
    ask = llm_request(tools=False)
    return Strategy("chat", START >> ask, ask.when(lambda said: said != "stop") >> ask, ask.otherwise() >> END)


# ---- nodes


@pytest.mark.parametrize("limit", [0, 1, 7, 300])
async def test_a_run_executes_as_many_nodes_as_it_may(limit):
    """The budget is exact: that many nodes are executed, and the next is not begun."""
    begun = []
    agent = Agent(endless(again), max_nodes=limit)
    agent.on(NodeStarted, lambda event: begun.append(event.node))
    with pytest.raises(BudgetError) as info:
        await agent.run("x", run_id="r1")
    assert (info.value.budget, info.value.limit, info.value.run_id) == ("nodes", limit, "r1")
    assert info.value.result.nodes == len(begun) == limit
    assert info.value.where == ""
    assert "Agent(max_nodes=…)" in str(info.value)


async def test_a_budget_that_is_just_enough_is_enough():
    """A run of three nodes ends within max_nodes=3."""
    strategy = Strategy("s", START >> again >> again.named("b") >> again.named("c") >> END)
    assert (await Agent(strategy, max_nodes=3).run("x")).nodes == 3


async def test_what_counts_as_a_node_execution():
    """Nodes, taps and what is inside subgraphs and forks count; START, END, strategies and forks do not."""
    inner = Strategy("inner", START >> look >> again >> END)
    fork = parallel(again.named("a"), inner)
    split = each(again.named("c"))
    anything = passthrough(object, name="anything")
    strategy = Strategy(
        "s",
        START >> look >> inner.named("first") >> fork,
        fork.map(list) >> split,
        split.map(lambda given: given[0]) >> race(inner) >> anything >> END,
    )
    result = await Agent(strategy).run("x")
    # look, first/(look, again), parallel/(a, inner/(look, again)), each/(c, c), race/inner/(look, again), anything
    assert result.nodes == 1 + 2 + 3 + 2 + 2 + 1


async def test_no_limit_is_no_limit():
    """None means that nothing is counted against."""

    @node
    async def add(ctx: Context, value: int) -> int:
        return value + 1

    strategy = Strategy("s", START >> add, add.when(lambda value: value < 3000) >> add, add.otherwise() >> END)
    assert (await Agent(strategy, max_nodes=None).run(0)).nodes == 3000
    with pytest.raises(BudgetError) as info:
        await Agent(strategy).run(0)
    assert info.value.limit == 1000


async def test_branches_share_the_budget_of_the_run():
    """However many branches run at once, together they execute as many nodes as the run may."""
    done = []

    @node
    async def work(ctx: Context, value: int) -> int:
        done.append(value)
        await anyio.lowlevel.checkpoint()
        return value

    with pytest.raises(BudgetError) as info:
        await Agent(Strategy("s", START >> each(work, limit=4) >> END), max_nodes=10).run(list(range(100)))
    assert (len(done), info.value.result.nodes) == (10, 10)


# ---- turns


@pytest.mark.parametrize("limit", [0, 1, 3])
async def test_a_run_takes_as_many_model_turns_as_it_may(limit):
    """The budget is exact: the model is asked that often."""
    model = ScriptedModel(["go on"] * 9)
    with pytest.raises(BudgetError) as info:
        await Agent(chat(), model=model, max_turns=limit).run("x")
    assert (info.value.budget, info.value.limit, info.value.result.turns) == ("turns", limit, limit)
    assert len(model.requests) == limit


@pytest.mark.parametrize("limit", ["0.03", 0.03, Decimal("0.03")])
async def test_a_budget_of_money_is_written_as_a_price_is(limit):
    """As text, a number or a Decimal, for an agent, a strategy and a run that is being executed."""

    def spending():
        said = ModelResponse(Message.assistant("go on"), Usage(1, 1, cost=Decimal("0.01")))
        return ScriptedModel([said] * 9, name="spending")

    later = Agent(chat(), model=spending()).start("x")
    later.set_budgets(max_cost=limit)
    whole = Agent(chat(), model=spending(), max_cost=limit).start("x")
    part = Agent(Strategy("s", START >> chat().using(max_cost=limit) >> END), model=spending()).start("x")
    for run in (later, whole, part):
        with pytest.raises(BudgetError, match=r"of 0\.03 cost is used up") as info:
            await run.finish()
        assert (Decimal(str(info.value.limit)), info.value.result.turns) == (Decimal("0.03"), 3)


async def test_twenty_turns_are_the_default():
    """Without a word about it, a run takes 20 model turns, and None means any number."""
    with pytest.raises(BudgetError) as info:
        await Agent(chat(), model=ScriptedModel(["go on"] * 30)).run("x")
    assert info.value.result.turns == 20
    model = ScriptedModel(["go on"] * 30 + ["stop"])
    assert (await Agent(chat(), model=model, max_turns=None).run("x")).turns == 31


async def test_an_answer_that_is_asked_for_again_is_a_turn():
    """The second attempt at structured output counts, and is refused where no turn is left."""
    ask = llm_request(output=int)
    strategy = Strategy("s", START >> ask >> END)
    assert (await Agent(strategy, model=ScriptedModel(["no", "7"])).run("x")).turns == 2
    with pytest.raises(BudgetError):
        await Agent(strategy, model=ScriptedModel(["no", "7"]), max_turns=1).run("x")


# ---- tokens


async def test_no_model_is_asked_when_all_tokens_are_spent():
    """The request that spends the last token is the last; what it spends beyond the budget is counted too."""
    model = ScriptedModel([answer("go on", 60), answer("go on", 60), answer("go on", 60)])
    with pytest.raises(BudgetError) as info:
        await Agent(chat(), model=model, max_tokens=100).run("x")
    assert (info.value.budget, info.value.limit) == ("tokens", 100)
    assert info.value.result.usage.total_tokens == 120
    assert len(model.requests) == 2


@pytest.mark.every_loop
@pytest.mark.parametrize(("limit", "spent"), [(40, 40), (41, 80), (80, 80)])
async def test_branches_exceed_a_budget_by_at_most_one_request_each(limit, spent):
    """Branches whose requests are pending together go over the limit by one answer each, and none asks after that."""

    class Together(ScriptedModel):
        """Answers when all four branches have asked."""

        async def respond(self, request, on_text=None):
            response = await super().respond(request, on_text)
            wave = (len(self.requests) + 3) // 4
            while len(self.requests) < 4 * wave:
                await anyio.lowlevel.checkpoint()
            return response

    model = Together([answer("go on", 10)] * 20)
    branches = [chat().named(f"chat_{number}") for number in range(4)]
    with pytest.raises(BudgetError) as info:
        await Agent(Strategy("s", START >> parallel(*branches) >> END), model=model, max_tokens=limit, store=None).run(
            "x"
        )
    assert 10 * len(model.requests) == spent < limit + 4 * 10
    assert info.value.result.usage.total_tokens >= limit


async def test_requests_that_are_no_turns_count_in_tokens():
    """What a node asks the model through its context is counted in tokens, and not in turns."""
    from graphagent.llm import ModelRequest

    @node
    async def peek(ctx: Context, said: str) -> str:
        return (await ctx.request(ModelRequest((Message.user(said),)))).message.text

    strategy = Strategy("s", START >> peek >> END)
    result = await Agent(strategy, model=ScriptedModel([answer("hm", 30)])).run("x")
    assert (result.usage.total_tokens, result.turns, len(result.memory.steps)) == (30, 0, 2)
    with pytest.raises(BudgetError):
        await Agent(strategy, model=ScriptedModel([answer("hm", 30)]), max_tokens=0).run("x")


# ---- seconds


async def test_a_run_ends_when_its_time_is_over():
    """max_seconds cancels what is being done, and the error is a BudgetError with what was done."""
    cancelled = []

    @node
    async def slow(ctx: Context, said: str) -> str:
        try:
            await anyio.sleep_forever()
        except anyio.get_cancelled_exc_class():
            cancelled.append(True)
            raise
        return ""

    with pytest.raises(BudgetError) as info:
        await Agent(Strategy("s", START >> again >> slow >> END), max_seconds=0.02).run("x", run_id="r1")
    assert (info.value.budget, info.value.limit, info.value.run_id) == ("seconds", 0.02, "r1")
    assert (info.value.result.nodes, cancelled) == (2, [True])
    assert 0.02 <= info.value.result.seconds < 5
    assert "0.02 seconds" in str(info.value)


async def test_a_loop_that_never_waits_ends_when_its_time_is_over():
    """Nodes that never suspend do not keep a run from ending in time."""
    with pytest.raises(BudgetError):
        await Agent(endless(again), max_nodes=None, max_seconds=0.02).run("x")


async def test_time_is_not_the_run_being_cancelled_from_outside():
    """A run with a time budget that is cancelled from outside ends with the cancellation, and no BudgetError."""

    @node
    async def slow(ctx: Context, said: str) -> str:
        await anyio.sleep_forever()
        return ""

    with anyio.move_on_after(0.01) as scope:
        await Agent(Strategy("s", START >> slow >> END), max_seconds=60).run("x")
    assert scope.cancelled_caught


# ---- what is left


async def test_the_partial_result_holds_what_was_done():
    """The result of a BudgetError has the transcript, the counts and the usage so far; its output raises."""
    from graphagent import tool

    @tool
    async def double(n: int) -> int:
        """Double a number."""
        return n * 2

    ask, act = llm_request(), execute_tools()
    strategy = Strategy("s", START >> ask, ask.on(ToolCalls) >> act >> ask, ask.on(str) >> END)
    model = ScriptedModel([ToolCall("double", {"n": 4}), ToolCall("double", {"n": 8})])
    with pytest.raises(BudgetError) as info:
        await Agent(strategy, model=model, tools=[double], max_nodes=3).run("task", run_id="r1")
    result = info.value.result
    assert (result.run_id, result.nodes, result.turns, result.done) == ("r1", 3, 2, False)
    assert result.usage.total_tokens > 0
    [first] = (step for step in result.memory.steps if isinstance(step, ActionStep))
    second = result.memory.open  # a turn joins the steps when its calls have their results
    assert first.observations == "8"
    assert (second.observations, second.tool_calls[0].arguments) == (None, {"n": 8})
    roles = [message.role for message in result.memory.to_messages()]
    assert roles == ["user", "assistant", "tool", "assistant", "tool"]
    with pytest.raises(RunError, match="'r1' has no output: the run exceeded max_nodes=3"):
        _ = result.output
    assert "3 nodes" in repr(result)


def test_a_large_budget_is_told_in_full():
    """A budget of a million is not told as 1e+06."""
    assert "1,000,000 tokens" in str(BudgetError("tokens", 1_000_000, None))


# ---- budgets of subgraphs


@pytest.mark.parametrize(
    ("budget", "limits"),
    [("nodes", {"max_nodes": 3}), ("turns", {"max_turns": 2}), ("tokens", {"max_tokens": 15})],
)
async def test_a_subgraph_may_have_a_budget_of_its_own(budget, limits):
    """`.using(max_…)` bounds what is done inside, and the error has the budget and the counts of the whole run."""
    model = ScriptedModel([answer("go on", 10)] * 9)
    strategy = Strategy("s", START >> again >> chat().using(**limits) >> END)
    with pytest.raises(BudgetError) as info:
        await Agent(strategy, model=model).run("x")
    assert (info.value.budget, info.value.limit) == (budget, next(iter(limits.values())))
    asked = {"nodes": 3, "turns": 2, "tokens": 2}[budget]
    assert len(model.requests) == info.value.result.turns == asked
    # A turn is refused in a node that has begun; a node is not begun.
    assert info.value.result.nodes == 1 + asked + (budget != "nodes")


async def test_a_node_of_a_stored_run_is_told_where_the_result_of_a_budget_is():
    """An error that is kept has no result of a run in it; a node that asks for it hears where the steps are."""

    @node
    async def report(ctx: Context, error: BudgetError) -> str:
        with pytest.raises(AttributeError, match=r"ctx\.memory of the node has the steps"):
            _ = error.result
        return f"{error.budget} {error.limit} {error.where} {len(ctx.memory.steps)}"

    inner = chat().using(max_turns=1)
    strategy = Strategy("s", START >> inner, inner >> END, inner.on_error(BudgetError) >> report >> END)
    result = await Agent(strategy, model=ScriptedModel(["go on"] * 3), store=MemoryStore()).run("x")
    assert result.output == "turns 1 chat 3"


async def test_a_budget_of_a_subgraph_is_for_each_time_it_is_entered():
    """It begins anew each time, and what was done inside counts in the run's own budget."""
    inner = Strategy("inner", START >> again >> again.named("b") >> END).using(max_nodes=2)
    entered = 0

    def more(said):
        nonlocal entered
        entered += 1
        return entered < 5

    strategy = Strategy("s", START >> inner, inner.when(more) >> inner, inner.otherwise() >> END)
    assert (await Agent(strategy).run("x")).nodes == 10
    entered = 0
    with pytest.raises(BudgetError) as info:
        await Agent(strategy, max_nodes=7).run("x")
    assert (info.value.limit, info.value.result.nodes) == (7, 7)


async def test_each_branch_has_the_budget_of_its_strategy():
    """In a fork, every branch has the whole budget of its strategy, beside the run's."""
    inner = Strategy("inner", START >> again >> again.named("b") >> END)
    enough = Strategy("s", START >> each(inner.using(max_nodes=2), limit=None) >> END)
    assert (await Agent(enough).run(["a", "b", "c"])).nodes == 6
    scarce = Strategy("s", START >> each(inner.using(max_nodes=1), limit=None) >> END)
    with pytest.raises(BudgetError) as info:
        await Agent(scarce).run(["a", "b", "c"])
    assert info.value.limit == 1


async def test_budgets_in_budgets_all_hold():
    """The narrowest of nested budgets ends the run, wherever it stands."""
    innermost = endless(again, "innermost").using(max_nodes=9)
    outer = Strategy("outer", START >> look >> innermost >> END).using(max_nodes=4)
    with pytest.raises(BudgetError) as info:
        await Agent(Strategy("s", START >> outer >> END), max_nodes=20).run("x")
    assert (info.value.limit, info.value.result.nodes, info.value.where) == (4, 4, "outer")
    assert "budget of strategy 'outer' of 4 nodes" in str(info.value)
    assert ".using(max_nodes=…)" in str(info.value)


async def test_an_agents_strategy_may_have_a_budget_of_its_own():
    """`.using(…)` of the strategy that an agent runs holds beside the agent's budget."""
    with pytest.raises(BudgetError) as info:
        await Agent(endless(again).using(max_nodes=5)).run("x")
    assert (info.value.limit, info.value.result.nodes) == (5, 5)


async def test_update_prompt_counts_as_the_tap_that_it_is():
    """Ready-made taps are node executions."""
    asked = []
    agent = Agent(
        Strategy("s", START >> update_prompt("Be brief.") >> llm_request(tools=False) >> END),
        model=ScriptedModel(["ok"]),
        max_nodes=1,
    )
    agent.on(ModelRequested, asked.append)
    with pytest.raises(BudgetError):
        await agent.run("x")
    assert asked == []


# ---- time, where nothing waits


@node
async def block(ctx: Context, count: int) -> int:
    time.sleep(0.01)  # noqa: ASYNC251  a node that never waits
    return count + 1


def counting(step=block, name="counting"):
    """A loop of a node that never waits."""
    return Strategy(name, START >> step, step.when(lambda count: count < 1000) >> step, step.otherwise() >> END)


@pytest.mark.every_loop
@pytest.mark.parametrize("store", [None, MemoryStore])
async def test_the_time_of_a_run_ends_it_between_nodes_that_never_wait(store):
    """After the node in which it ended; what was done so far is in the result."""
    with pytest.raises(BudgetError) as info:
        await Agent(counting(), max_seconds=0.05, max_nodes=None, store=store and store()).run(0)
    assert (info.value.budget, info.value.where) == ("seconds", "")
    assert info.value.result.nodes < 1000


@pytest.mark.every_loop
async def test_a_timeout_ends_a_subgraph_between_nodes_that_never_wait():
    """Also one around several subgraphs and branches, where the innermost node is in one of them; its error edge takes it."""
    fork = parallel(counting())
    inner = Strategy("outer", START >> fork, fork.map(lambda found: found[0]) >> END).timeout(0.05)

    @node
    async def late(ctx: Context, error: TimeoutError) -> int:
        return -1

    strategy = Strategy("s", START >> inner, inner.on_error(TimeoutError) >> late >> END, inner >> END)
    result = await Agent(strategy, max_nodes=None).run(0)
    assert (result.output, 1 < result.nodes < 1000) == (-1, True)


@pytest.mark.every_loop
async def test_no_model_turn_is_made_after_the_time_ended_in_a_tool_that_never_waits():
    """Neither is the next call; the result counts the turns that were made."""
    made = []

    @tool
    def slow(name: str) -> str:
        """Block."""
        made.append(name)
        time.sleep(1.1)
        return name

    calls = [ToolCall("slow", {"name": "a"}), ToolCall("slow", {"name": "b"})]
    model = ScriptedModel([calls, "Done."])
    with pytest.raises(BudgetError) as info:
        await Agent(single_run(), model=model, tools=[slow], max_seconds=1).run("x")
    assert (made, len(model.requests), info.value.result.turns) == (["a"], 1, 1)


@pytest.mark.every_loop
async def test_turns_that_are_cancelled_before_they_are_made_do_not_count():
    """A budget that ends in one branch cancels those beside it: of these, the turns that were made count, and no others."""
    asks = [llm_request(tools=False, name=f"ask_{number}") for number in range(4)]
    model = ScriptedModel(["a"] * 4)
    with pytest.raises(BudgetError) as info:
        await Agent(Strategy("s", START >> parallel(*asks) >> END), model=model, max_turns=2).run("x")
    assert info.value.result.turns == len(model.requests) <= 2


# ---- the time of a subgraph


@pytest.mark.every_loop
@pytest.mark.parametrize("waits", [False, True])
async def test_a_subgraph_has_a_time_of_its_own(waits):
    """An edge for its BudgetError takes it, with the result so far; the run itself has no limit."""

    @node
    async def wait(ctx: Context, count: int) -> int:
        assert ctx.remaining.max_seconds <= 0.05
        await anyio.sleep(0.01)
        return count + 1

    inner = counting(wait if waits else block, "inner").using(max_seconds=0.05)
    caught = []

    @node
    async def late(ctx: Context, error: BudgetError) -> int:
        caught.append((error.budget, error.limit, error.where, error.result.done))
        assert ctx.remaining.max_seconds is None
        return -1

    strategy = Strategy("s", START >> inner, inner.on_error(BudgetError) >> late >> END, inner >> END)
    # With a store, a caught error is read from its text, and has nothing else.
    assert (await Agent(strategy, max_nodes=None, store=None).run(0)).output == -1
    assert caught == [("seconds", 0.05, "inner", False)]


async def test_the_time_of_a_subgraph_is_that_in_which_it_is_executed(tmp_path):
    """A resumed run continues with what is left of it, and one that is entered again has all of it."""

    @node
    async def stop(ctx: Context, count: int) -> int:
        if fails:
            fails.pop()
            time.sleep(1.1)  # noqa: ASYNC251  a node that never waits
            raise ConnectionError
        return count

    inner = Strategy("inner", START >> stop >> block >> END).using(max_seconds=1)
    agent = Agent(Strategy("s", START >> inner >> END), store=SqliteStore(tmp_path / "s.db"))
    fails = [1]
    with pytest.raises(NodeFailedError):
        await agent.run(0, run_id="r")
    with pytest.raises(BudgetError):
        await agent.resume("r")
    again = Strategy("s", START >> inner >> inner.named("again") >> END).using(max_seconds=60)
    assert (await Agent(again).run(0)).output == 2


@pytest.mark.every_loop
async def test_the_own_strategy_of_an_agent_may_bring_a_time():
    """As it may bring other budgets: the shorter one holds."""
    for strategy, most in ((counting().using(max_seconds=0.05), None), (counting().using(max_seconds=60), 0.05)):
        with pytest.raises(BudgetError):
            await Agent(strategy, max_nodes=None, max_seconds=most).run(0)
