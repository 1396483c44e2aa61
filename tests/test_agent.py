"""Agents: how runs are begun, what they are given, what is installed, and what is refused before anything runs."""

from __future__ import annotations

import sys
from decimal import Decimal
from functools import partial
from subprocess import run

import anyio
import pytest

from graphagent import END, START, Agent, Context, Strategy, each, node, parallel, race, tap, tool
from graphagent.errors import (
    BudgetError,
    FeatureError,
    NodeFailedError,
    NodeTimeoutError,
    RunError,
    StrategyError,
    UnpricedModelError,
)
from graphagent.events import Event, NodeStarted, RunStarted
from graphagent.graph import Tap, select_tools
from graphagent.llm import (
    Image,
    Message,
    ModelRequest,
    ModelResponse,
    PricedModel,
    Prices,
    ToolCall,
    ToolCalls,
    ToolResult,
    Usage,
)
from graphagent.llm.openai import OpenAIModel
from graphagent.memory import ActionStep, AgentMemory, Concept, FinalAnswerStep, MessageStep, RunMemory, TaskStep
from graphagent.nodes import auto_detect_facts, execute_tools, llm_request, passthrough, save_facts
from graphagent.store import MemoryStore
from graphagent.testing import ScriptedModel, fixed_ids
from graphagent_strategies import single_run

text = passthrough(str, name="text")
PRICED = PricedModel(ScriptedModel([]), Prices(1, 1))
PICTURE = Image(b"\x89PNG", "image/png")


def only(*steps, **options):
    path = START
    for step in steps:
        path = path >> step
    return Agent(Strategy("s", path >> END), **options)


def single():
    ask, act = llm_request(), execute_tools()
    return Strategy("single", START >> ask, ask.on(ToolCalls) >> act >> ask, ask.on(str) >> END)


def only_text(name):
    return Strategy(name, START >> llm_request(tools=False) >> END)


@tool
async def double(n: int) -> int:
    """Double a number."""
    return n * 2


class Counter:
    """A feature that counts, and says who asked."""

    def __init__(self, *, start: int = 0) -> None:
        self.start, self.begun, self.ctx = start, [], None

    def install(self, agent):
        if self.start < 0:
            raise FeatureError("cannot start below 0")

    async def begin(self, ctx):
        if ctx.owner == "nobody":
            raise FeatureError("not for nobody")
        self.begun.append(ctx.run_id)

    def bind(self, ctx):
        bound = Counter(start=self.start)
        bound.ctx = ctx
        return bound


# ---- runs


async def test_a_strategy_that_needs_a_task_is_not_run_without_one():
    """The error says what the strategy takes; None is a task where the strategy takes it."""

    @node
    async def length(ctx: Context, text: str) -> int:
        return len(text)

    agent = Agent(Strategy("length", START >> length >> END))
    with pytest.raises(TypeError, match="takes str"):
        await agent.run()


async def test_a_strategy_that_needs_nothing_runs_without_an_argument():
    """run() gives such a strategy None."""

    @node
    async def begin(ctx: Context, _: None) -> str:
        return repr(_)

    assert (await only(begin).run()).output == "None"


def test_run_sync_runs_where_nothing_is_async():
    """run_sync takes what run takes and gives what it gives."""
    result = only(text).run_sync("x", owner="ada", run_id="r1")
    assert (result.output, result.run_id, result.done, result.nodes) == ("x", "r1", True, 1)


async def test_run_sync_inside_an_event_loop_says_what_to_write():
    """Where a loop is running, run_sync is refused before anything is executed."""
    with pytest.raises(RuntimeError, match=r"await agent\.run"):
        only(text).run_sync("x")


def test_run_sync_in_the_console_of_asyncio_says_what_to_write():
    """In `python -m asyncio` a loop executes what is typed, though no task does; run_sync is refused there in the same words."""
    typed = """
from graphagent import Agent
from graphagent_strategies import single_run
from graphagent.testing import ScriptedModel
agent = Agent(single_run(), model=ScriptedModel(["fine"]))
agent.run_sync("x")
print((await agent.run("x")).output)
"""
    process = run(
        [sys.executable, "-m", "asyncio"], input=typed, capture_output=True, text=True, timeout=120, check=False
    )
    assert "RuntimeError: an event loop is running here; write `await agent.run(…)`" in process.stderr
    assert "fine" in process.stdout


def test_run_sync_raises_what_the_run_raises():
    """Errors of the run come out as themselves."""

    @node
    async def fail(ctx: Context, said: str) -> str:
        raise RuntimeError("no loop")

    with pytest.raises(NodeFailedError):
        only(fail).run_sync("x")


async def test_a_run_has_an_owner_and_an_id():
    """Nodes see both; without an id there is a fresh one for each run."""

    @node
    async def who(ctx: Context, _: str) -> tuple[str, str, str]:
        return ctx.owner, ctx.run_id, ctx.node

    agent = only(who)
    assert (await agent.run("x", owner="ada", run_id="r1")).output == ("ada", "r1", "who")
    with fixed_ids("run"):
        assert (await agent.run("x")).output == ("", "run-000001", "who")
        assert (await agent.run("x")).run_id == "run-000002"


async def test_one_agent_runs_again_and_again():
    """A second run begins with nothing of the first."""
    agent = Agent(single(), model=ScriptedModel(["one", "two"]), system_prompt="Be brief.")
    await agent.run("a")
    result = await agent.run("b")
    assert result.memory.steps[0] == TaskStep("b")
    assert (result.nodes, result.turns, len(result.memory.steps)) == (1, 1, 3)


async def test_a_run_ends_with_its_final_answer():
    """The transcript begins with the task and ends with what the run gave."""
    result = await only(text).run("x", images=[PICTURE])
    assert result.memory.steps == [TaskStep("x", (PICTURE,)), FinalAnswerStep("x")]
    assert result.seconds >= 0


# ---- history


async def test_a_run_goes_on_behind_the_steps_of_another():
    """With steps= the model is sent what was said before, images included, and then the task; turns are numbered on."""
    model = ScriptedModel([ToolCall("double", {"n": 2}), "four", "yes"])
    agent = Agent(single(), model=model, tools=[double], system_prompt="You compute.")
    first = await agent.run("2 * 2?", images=[PICTURE])
    second = await agent.run("Sure?", steps=first.memory)
    sent = model.requests[2].messages
    assert [message.role for message in sent] == ["system", "user", "assistant", "tool", "assistant", "user"]
    assert sent[1].images == (PICTURE,)
    assert [step.step_number for step in second.memory.steps if isinstance(step, ActionStep)] == [1, 2, 3]


async def test_the_history_is_copied():
    """What happens to the earlier transcript afterwards, or to the later one, changes nothing in the other."""
    history = RunMemory(
        "Old rules.",
        [TaskStep("old", (PICTURE,)), ActionStep(observations="seen"), MessageStep(Message.user("and"))],
    )
    model = ScriptedModel(["ok", "ok"])
    agent = Agent(single(), model=model)
    result = await agent.run("new", steps=history)
    before = [message.text for message in model.requests[0].messages]
    assert before == ["old", "Observation:\nseen", "and", "new"]
    assert len(history.steps) == 3
    history.steps[0].task = "changed"
    history.steps[1].observations = "changed"
    history.steps.clear()
    assert [message.text for message in result.memory.to_messages()][:4] == before
    result.memory.steps[1].observations = "changed"
    assert result.memory.steps[0].task_images == (PICTURE,)


async def test_a_transcript_of_a_run_out_of_budget_can_go_on():
    """What was done before a budget was used up may stand before the next run, with a result for every call."""
    model = ScriptedModel([ToolCall("double", {"n": 2}), "go on"])
    with pytest.raises(BudgetError) as info:
        await Agent(single(), model=model, tools=[double], max_nodes=1).run("task")
    await Agent(single(), model=model, tools=[double]).run("Continue.", steps=info.value.result.memory)
    assert [message.role for message in model.requests[1].messages] == ["user", "assistant", "tool", "user"]


# ---- features


async def test_a_feature_is_found_in_the_nodes_and_speaks_for_the_run():
    """ctx.feature gives the feature bound to the run's context, in subgraphs and branches too."""

    @node
    async def use(ctx: Context, _: str) -> tuple[str, str, int]:
        bound = ctx.feature(Counter)
        return bound.ctx.run_id, bound.ctx.node, bound.start

    inner = Strategy("inner", START >> use >> END)
    agent = only(parallel(use, inner))
    feature = agent.install(Counter, start=7)
    assert [(await agent.run("x", run_id=name)).output for name in ("one", "two")] == [
        (("one", "parallel/0/use", 7), ("one", "parallel/1/inner/use", 7)),
        (("two", "parallel/0/use", 7), ("two", "parallel/1/inner/use", 7)),
    ]
    assert feature.begun == ["one", "two"]


async def test_features_of_concurrent_runs_do_not_mix():
    """Each of many runs at once is spoken for by its own."""

    @node
    async def use(ctx: Context, _: str) -> str:
        await anyio.lowlevel.checkpoint()
        return ctx.feature(Counter).ctx.owner

    agent = only(use)
    agent.install(Counter)
    found = {}

    async def run(owner):
        found[owner] = (await agent.run("x", owner=owner)).output

    async with anyio.create_task_group() as group:
        for number in range(50):
            group.start_soon(run, f"owner {number}")
    assert all(owner == seen for owner, seen in found.items())


def test_a_feature_is_installed_once():
    """A second feature of the same class is refused."""
    agent = only(text)
    agent.install(Counter)
    with pytest.raises(FeatureError, match="Counter is installed already"):
        agent.install(Counter, start=2)


async def test_a_feature_is_installed_before_the_first_run():
    """After a run has begun nothing can be installed."""
    agent = only(text)
    await agent.run("x")
    with pytest.raises(FeatureError, match="before the agent's first run"):
        agent.install(Counter)


def test_settings_that_a_feature_does_not_have_are_refused():
    """The settings are those of the feature, and what it refuses is not installed."""
    agent = only(text)
    with pytest.raises(TypeError, match="Counter has no option 'begin_at'; there are start"):
        agent.install(Counter, begin_at=1)
    with pytest.raises(TypeError, match="Counter has no option 'strat'; did you mean start="):
        agent.install(Counter, strat=1)
    with pytest.raises(
        TypeError, match=r"Counter takes its settings by name; write agent\.install\(Counter, start=…\)"
    ):
        agent.install(Counter, 1)
    with pytest.raises(FeatureError, match="below 0"):
        agent.install(Counter, start=-1)
    agent.install(Counter)


@pytest.mark.parametrize(
    ("place", "task"),
    [
        (lambda step: Strategy("s", START >> text >> step >> END), "x"),
        (lambda step: Strategy("s", START >> text >> Strategy("inner", START >> text >> step >> END) >> END), "x"),
        (
            lambda step: Strategy("s", START >> parallel(text, Strategy("inner", START >> text >> step >> END)) >> END),
            "x",
        ),
        (lambda step: Strategy("s", START >> each(Strategy("inner", START >> text >> step >> END)) >> END), ["x"]),
    ],
    ids=["here", "subgraph", "parallel", "each"],
)
async def test_a_missing_feature_is_refused_before_the_first_node(place, task):
    """No node is executed and nothing is told; the error says which node needs what, and the line to add."""

    async def use(ctx, _): ...

    told = []
    agent = Agent(place(Tap(use, name="use", needs=(Counter,))))
    agent.on(Event, told.append)
    with pytest.raises(FeatureError, match=r"use' needs Counter.*agent\.install\(Counter"):
        await agent.run(task)
    assert told == []
    agent.install(Counter)
    await agent.run(task)


async def test_asking_for_a_feature_that_is_not_installed_fails_the_node():
    """A node that asks without having said so fails when it asks, with the line to add."""

    @node
    async def use(ctx: Context, _: str) -> str:
        return ctx.feature(Counter)

    with pytest.raises(NodeFailedError, match=r"agent\.install\(Counter"):
        await only(use).run("x")


async def test_a_feature_may_refuse_a_run():
    """What its begin raises is raised before anything is executed or told."""
    told = []
    agent = only(text)
    agent.install(Counter)
    agent.on(Event, told.append)
    with pytest.raises(FeatureError, match="not for nobody"):
        await agent.run("x", owner="nobody")
    assert told == []


# ---- what an agent is made of


def test_only_a_strategy_can_be_run():
    """A node alone is refused, with a word on how a strategy is made."""
    with pytest.raises(TypeError, match="Strategy"):
        Agent(text)


@pytest.mark.parametrize("where", ["agent", "subgraph", "branch", "root"])
def test_what_is_no_tool_is_refused(where):
    """A plain function among the tools is refused when the agent is made, wherever it stands, with @tool as the remedy."""

    def plain(n: int) -> int:
        return n

    with pytest.raises(TypeError, match="'plain' is not a tool; decorate the function with @tool"):
        with_tools(where, [plain])


@pytest.mark.parametrize("where", ["agent", "subgraph", "branch", "root"])
def test_two_tools_of_one_name_are_refused(where):
    """A name that two tools share is refused when the agent is made, wherever they stand."""

    @tool(name="double")
    async def other(n: int) -> int:
        """Double a number differently."""
        return n + n

    with pytest.raises(ValueError, match="two tools are named 'double'"):
        with_tools(where, [double, other])


def with_tools(where, tools):
    if where == "agent":
        return Agent(single(), tools=tools)
    if where == "root":
        return Agent(single().using(tools=tools))
    inside = single().using(tools=tools)
    return Agent(Strategy("s", START >> (inside if where == "subgraph" else parallel(inside)) >> END))


async def test_tools_without_a_way_for_their_calls_are_refused():
    """An agent with tools and a strategy that has no way for tool calls cannot be made."""
    ask = llm_request()
    strategy = Strategy("s", START >> ask, ask.on(str) >> END)
    with pytest.raises(StrategyError, match="ToolCalls"):
        Agent(strategy, tools=[double])
    assert (await Agent(strategy, model=ScriptedModel(["hi"])).run("x")).output == "hi"


@pytest.mark.parametrize(
    ("strategy", "path"),
    [
        (lambda: Strategy("s", START >> llm_request(tools=False) >> END), "llm_request"),
        (lambda: Strategy("s", START >> only_text("inner") >> END), "inner/llm_request"),
        (lambda: Strategy("s", START >> each(llm_request(tools=False)) >> END), "each/llm_request"),
        (lambda: Strategy("s", START >> race(only_text("a"), only_text("b")) >> END), "race/0/a/llm_request"),
        (lambda: Strategy("s", START >> save_facts(Concept("city")) >> END), "save_facts"),
        (lambda: Strategy("s", START >> auto_detect_facts() >> END), "auto_detect_facts"),
    ],
)
async def test_a_run_without_a_model_is_refused_before_its_first_node(strategy, path):
    """The error names the node and the argument, and nothing is stored."""
    store = MemoryStore()
    agent = Agent(strategy(), store=store)
    agent.install(AgentMemory, agent_name="a")
    for begun in (agent.run, agent.start, agent.stream):
        with pytest.raises(FeatureError, match=f"node '{path}' asks a model.*model="):
            found = begun(["x"] if "each" in path else "x")
            await (found if begun == agent.run else found.finish())
    assert [item async for item in store.scan(())] == []


async def test_a_model_of_a_subgraph_or_of_the_agent_around_is_enough():
    """Whoever has a model of its own, or finds one around, is not refused; nor is a node that only may ask."""

    @node
    async def may_ask(ctx: Context, said: str) -> str:
        return f"{said} {ctx.model is None}"

    inner = only_text("inner").using(model=ScriptedModel(["said"]))
    agent = Agent(Strategy("s", START >> inner >> may_ask >> END))
    assert (await agent.run("x")).output == "said True"
    helper = Agent(only_text("asks"), name="helper", description="Helps.")
    model = ScriptedModel([ToolCalls([ToolCall("helper", {"task": "t"})]), "helped", "done"])
    assert (await Agent(single_run(), model=model, tools=[helper]).run("x")).output == "done"


async def test_what_was_recorded_needs_no_model():
    """A run is read, and executed again on its recording, by an agent without one."""
    store = MemoryStore()
    ended = await Agent(only_text("asks"), model=ScriptedModel(["said"]), store=store).run("x")
    agent = Agent(only_text("asks"), store=store)
    assert (await agent.read(ended.run_id)).output == "said"
    assert (await agent.rerun(ended.run_id)).output == "said"


# ---- what the strategy takes


@pytest.mark.parametrize(
    ("takes", "task", "said"),
    [
        (str, 3, r"takes str, not an int; write agent\.run\(task\) with a str"),
        (str, None, "takes str, not None"),
        (list[str], "one", r"takes list\[str\], not a str"),
        (list[str], [1], r"takes list\[str\], not a list with other items"),
        (Usage, Usage, "takes Usage, not the class Usage"),
        (str | int, 1.5, r"takes str \| int, not a float"),
    ],
)
async def test_a_task_of_another_type_is_refused(takes, task, said):
    """Before the first node, however the run is begun; the error shows the type and not the task."""
    agent = Agent(Strategy("s", START >> passthrough(takes) >> END))
    for begun in (agent.run, agent.start, agent.stream):
        with pytest.raises(TypeError, match=f"strategy 's' {said}"):
            found = begun(task)
            await (found if begun == agent.run else found.finish())


async def test_a_task_of_a_derived_type_is_taken():
    """As a type checker would have it: an int for a float, a subclass for its base."""

    class Text(str):
        __slots__ = ()

    assert (await Agent(Strategy("s", START >> passthrough(float) >> END)).run(1)).output == 1
    assert (await Agent(Strategy("s", START >> passthrough(str) >> END)).run(Text("a"))).output == "a"


# ---- money without prices


def test_a_budget_of_money_without_prices_is_refused():
    """It would never be used up: for an agent, a subgraph, a run that goes on and a sub-agent; the error says what to write."""
    unpriced = OpenAIModel("gpt-5-mini", base_url="http://localhost:1/v1")
    said = r"max_cost=1 .*'gpt-5-mini'.*write PricedModel\(model, Prices"
    with pytest.raises(ValueError, match=said):
        Agent(single_run(), model=unpriced, max_cost=1)
    with pytest.raises(ValueError, match=said):
        Agent(Strategy("s", START >> single_run().using(max_cost=1) >> END), model=unpriced)
    with pytest.raises(ValueError, match=said):
        Agent(Strategy("s", START >> single_run().using(model=unpriced) >> END), max_cost=1)
    helper = Agent(single_run(), model=unpriced, name="helper", description="Helps.")
    with pytest.raises(ValueError, match=said):
        Agent(single_run(), model=PRICED, tools=[helper], max_cost=1)
    helped = single_run().using(tools=[helper], max_cost=1)
    with pytest.raises(ValueError, match=said):
        Agent(Strategy("s", START >> helped >> END), model=PRICED)
    with pytest.raises(ValueError, match=said):
        Agent(single_run(), model=unpriced).start("x").set_budgets(max_cost=1)


def test_a_budget_of_money_with_prices_is_taken():
    """A PricedModel, a server that says what its answers cost, and a model of one's own, which may say so too."""
    unpriced = OpenAIModel("gpt-5-mini", base_url="http://localhost:1/v1")
    Agent(single_run(), model=PricedModel(unpriced, Prices(input="0.15", output="0.60")), max_cost=1)
    Agent(single_run(), model=OpenAIModel("o", base_url="https://openrouter.ai/api/v1"), max_cost=1)
    said = ModelResponse(Message.assistant("Yes."), Usage(1, 1, cost=Decimal("0.01")))
    Agent(single_run(), model=ScriptedModel([said]), max_cost=1)
    Agent(single_run(), model=unpriced, max_tokens=1).start("x").set_budgets(max_tokens=2)
    selecting = single_run().using(
        tools=select_tools(model=unpriced), max_cost=1
    )  # it counts in the budget around that
    Agent(Strategy("s", START >> selecting >> END), model=PRICED)


class OwnWrapper:
    """A wrapper of one's own, which says nothing of prices itself."""

    name = "wrapper"

    def __init__(self, model):
        self.model = model

    async def respond(self, request, on_text=None):
        return await self.model.respond(request, on_text)


@pytest.mark.parametrize("wrap", [lambda model: model, OwnWrapper])
async def test_a_model_that_does_not_say_what_its_answers_cost_is_refused_before_it_is_asked_unless_that_is_allowed(
    wrap,
):
    """Also a sub-agent's, and one that only a node knows. The budget of a caller needs the caller's permission."""
    model, ask = wrap(ScriptedModel(["Yes."])), ModelRequest([Message.user("Well?")])

    @node
    async def asks(ctx: Context, text: str) -> str:
        return (await ctx.request(ask, model=model)).message.text

    with pytest.raises(UnpricedModelError, match=r"PricedModel\(.*allow_unpriced=True") as info:
        Agent(single_run(), model=model, max_cost=1)
    assert (info.value.model, info.value.max_cost) == (model.name, 1)
    helper = Agent(single_run(), model=model, name="helper", description="Helps.", max_cost=1, allow_unpriced=True)
    with pytest.raises(UnpricedModelError):
        Agent(single_run(), model=PRICED, tools=[helper], max_cost=1)
    Agent(single_run(), model=PRICED, tools=[helper], max_cost=1, allow_unpriced=True).start("x").set_budgets(
        max_cost=2
    )
    with pytest.raises(NodeFailedError) as failed:
        await only(asks, max_cost=1).run("x")
    assert isinstance(failed.value.__cause__, UnpricedModelError)
    assert (await only(asks, max_cost=1, allow_unpriced=True).run("x")).output == "Yes."
    Agent(single_run(), model=OwnWrapper(PRICED), max_cost=1)


# ---- strategies with policies or settings at the root


async def test_the_strategy_of_an_agent_may_have_policies():
    """A strategy that is retried or timed may be run, and its attempts are of the whole."""
    attempts = []

    @node
    async def flaky(ctx: Context, said: str) -> str:
        attempts.append(ctx.node)
        if len(attempts) < 3:
            raise ConnectionError
        return said

    strategy = Strategy("whole", START >> text >> flaky >> END)
    result = await Agent(strategy.retry(attempts=3, wait=0)).run("x")
    assert (result.output, result.nodes) == ("x", 6)
    assert attempts == ["flaky"] * 3

    @node
    async def slow(ctx: Context, said: str) -> str:
        await anyio.sleep_forever()
        return said

    with pytest.raises(NodeFailedError) as info:
        await Agent(Strategy("whole", START >> slow >> END).timeout(0.005)).run("x")
    assert (info.value.node, type(info.value.__cause__)) == ("whole", NodeTimeoutError)


async def test_the_strategy_of_an_agent_may_have_a_model_and_tools_of_its_own():
    """What `.using(…)` gives stands before what the agent has."""
    theirs, own = ScriptedModel([]), ScriptedModel([ToolCall("double", {"n": 1}), "two"])
    result = await Agent(single().using(model=own, tools=[double]), model=theirs).run("x")
    assert result.output == "two"
    assert [each_.name for each_ in own.requests[0].tools] == ["double"]


async def test_a_subgraph_has_its_own_model_and_tools_and_gives_them_up_behind_itself():
    """Inside, its own; outside, the agent's; an empty list means none."""
    outer, inner = ScriptedModel(["inside asks me", "bye"]), ScriptedModel(["from inside"])
    ask = llm_request(tools=True)
    quiet = Strategy("quiet", START >> ask, ask.on(str) >> END).using(tools=[])
    other = Strategy("other", START >> llm_request(tools=False) >> END).using(model=inner)
    last, act = llm_request(name="last"), execute_tools()
    strategy = Strategy("s", START >> quiet >> other >> last, last.on(ToolCalls) >> act >> last, last.on(str) >> END)
    result = await Agent(strategy, model=outer, tools=[double]).run("x")
    assert result.output == "bye"
    assert [len(request.tools) for request in outer.requests] == [0, 1]
    assert len(inner.requests) == 1


async def test_events_come_from_an_agent_with_its_strategys_name():
    """RunStarted names the strategy, whatever wraps it."""
    told = []
    agent = Agent(Strategy("whole", START >> text >> END).using(max_nodes=3))
    agent.on(RunStarted, lambda event: told.append(event.strategy))
    agent.on(NodeStarted, lambda event: told.append(event.node))
    await agent.run("x")
    assert told == ["whole", "text"]


async def test_a_tap_may_add_to_the_transcript():
    """What a tap appends to the steps is what the next model turn is sent."""

    @tap
    async def inform(ctx: Context, said: str) -> None:
        ctx.memory.steps.append(ActionStep(observations="It rains."))

    model = ScriptedModel(["Take an umbrella."])
    await only(inform, llm_request(tools=False), model=model).run("Shall I walk?")
    assert [message.text for message in model.requests[0].messages] == ["Shall I walk?", "Observation:\nIt rains."]


def test_reprs_tell_names_and_no_values():
    """An agent, a result and a context show what they are and nothing that was said."""
    agent = only(text)
    result = agent.run_sync("SECRET", run_id="r1")
    assert repr(agent) == "<agent of <strategy 's': str -> str>>"
    assert repr(result) == "<run 'r1': done, 1 node, 0 turns>"
    assert "SECRET" not in repr(result.memory)
    assert "SECRET" not in repr(ActionStep(results=[ToolResult("1", "t", "SECRET")], observations="SECRET"))


async def test_a_run_may_end_with_tool_calls():
    """Calls that nobody executed are the output, and their turn stands in the transcript in front of the final answer."""
    result = await only(llm_request(), model=ScriptedModel([ToolCall("double", {"n": 1})]), tools=[double]).run("x")
    assert [call.name for call in result.output] == ["double"]
    assert [type(step) for step in result.memory.steps] == [TaskStep, ActionStep, FinalAnswerStep]


async def test_what_is_no_model_no_owner_and_no_run_id_is_refused():
    """An owner that is None would share the facts of nobody in particular with everybody."""
    with pytest.raises(TypeError, match="OpenAIModel"):
        Agent(Strategy("s", START >> END), model="gpt-5")
    agent = Agent(Strategy("s", START >> END))
    for wrong in ({"owner": None}, {"owner": 5}, {"run_id": 5}):
        with pytest.raises(TypeError, match=r"is text|is a name"):
            await agent.run("a", **wrong)


@pytest.mark.parametrize(
    ("call", "given", "said"),
    [
        ("run", {"onwer": "ada"}, r"a run has no option 'onwer'; did you mean owner=\?"),
        ("run", {"user_id": "ada"}, r"no option 'user_id'; write agent\.run\(task, owner='…'\)"),
        ("stream", {"message_history": []}, r"no option 'message_history'; write agent\.run\(task, thread='…'\) or "),
        ("start", {"treads": "t"}, r"no option 'treads'; did you mean thread=\?"),
        ("stream", {"all_texts": True}, r"no option 'all_texts'; did you mean all_text=\?"),
        ("start", {"zoom": 3}, "no option 'zoom'; there are owner, run_id, steps, thread, if_busy, images, deps"),
        ("resume", {"anwser": 1}, r"a resumed run has no option 'anwser'; did you mean answer=\?"),
        ("resume_stream", {"all_texts": True}, r"no option 'all_texts'; did you mean all_text=\?"),
    ],
)
async def test_an_option_that_is_not_known_is_refused(call, given, said):
    """The error names the nearest one, or all of them."""
    with pytest.raises(TypeError, match=said):
        await getattr(only(text), call)("a", **given)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"steps": [TaskStep("a")]}, r"transcript of a run, such as result\.memory .* not a list"),
        ({"images": [5]}, r"images\[0\] is an int; an image is an Image, a path"),
    ],
)
async def test_steps_and_images_of_another_kind_are_refused(given, said):
    """The error says what they are, before anything runs."""
    with pytest.raises(TypeError, match=said):
        only(text).start("a", **given)


def test_a_callback_whose_annotation_is_not_known_is_refused():
    """It would see steps that it does not expect; one that is only bound, or an object, is looked through."""

    def unknown(step: NotImported):  # noqa: F821
        """Do nothing."""

    def prefixed(step: TaskStep, *, prefix: str):
        """Do nothing."""

    class Saver:
        def __call__(self, step: TaskStep):
            """Do nothing."""

    with pytest.raises(TypeError, match=r"'unknown' is annotated with 'NotImported', which is not known"):
        only(text, step_callbacks=[unknown])
    agent = only(text, step_callbacks=[partial(prefixed, prefix="> "), Saver()])
    assert [callback.kinds for callback in agent.callbacks] == [(TaskStep,), (TaskStep,)]


@pytest.mark.parametrize(
    "ask",
    [
        lambda agent: agent.read("r"),
        lambda agent: agent.resume("r"),
        lambda agent: agent.history("r"),
        lambda agent: agent.state_at("r", 1),
        lambda agent: agent.fork("r", at=1),
        lambda agent: agent.diff("r", "s"),
        lambda agent: agent.rerun("r"),
    ],
)
async def test_an_agent_without_a_store_says_so_where_it_is_asked_for_a_run(ask):
    """It names the argument that is missing."""
    with pytest.raises(RunError, match="store=SqliteStore"):
        await ask(only(text))
