"""Agents as tools: one tree of runs, suspended, resumed, paused and paid for as one."""

from __future__ import annotations

import itertools
import re

import anyio
import pytest

from graphagent import END, START, Agent, Context, Strategy, each, node, tap, tool
from graphagent.errors import (
    AnswerError,
    BudgetError,
    FeatureError,
    HandlerError,
    NodeFailedError,
    RunClaimedError,
    RunError,
    RunNotFoundError,
    ScriptError,
    SerializationError,
    StrategyChangedError,
    StrategyError,
    Veto,
)
from graphagent.events import Event, ModelResponded, RunFinished, RunStarted, RunSuspended, TextStreamed
from graphagent.history import read_run
from graphagent.llm import Approve, Deny, Message, ModelRequest, ToolCall, ToolCalls, Usage
from graphagent.memory import ActionStep, AgentMemory, FileMemoryProvider
from graphagent.nodes import ask_human, auto_detect_facts, execute_tools, llm_request
from graphagent.run import list_runs
from graphagent.store import MemoryStore
from graphagent.testing import ScriptedModel
from graphagent_strategies import single_run
from tests.run.family import Commits, Family, react, rows
from tests.thorough import some

LOOKS = ("look", "open_book")
PLANTS = "moss is green; read the moss; fern is green; read the fern"


def helper(strategy=None, replies=("helped",), *, name="helper", **settings):
    """An agent that can be called."""
    model = ScriptedModel(replies) if replies is not None else None
    return Agent(strategy or single_run(), model=model, name=name, description="Helps.", **settings)


def boss(*helpers, replies=None, calls=None, **settings):
    """An agent that calls each of its helpers once, and then says what they gave."""
    made = calls or [ToolCall(each.name, {"task": "t"}, f"c{n}") for n, each in enumerate(helpers)]

    def told(request):
        return "; ".join(message.text for message in request.messages if message.role == "tool")

    model = ScriptedModel(replies if replies is not None else [ToolCalls(made), told])
    return Agent(settings.pop("strategy", None) or single_run(), model=model, tools=helpers, **settings)


# ---- what a model sees


def test_an_agent_is_a_tool_by_its_name_and_its_description():
    """Its task is the one argument; a strategy that takes words among others is given words."""
    made = boss(helper()).tools[0]
    assert (made.name, made.description) == ("helper", "Helps.")
    assert made.parameters["properties"] == {"task": {"type": "string"}}
    assert made.parameters["required"] == ["task"]


def test_a_task_has_the_type_that_the_strategy_takes():
    """Typed tasks are asked for as JSON of that type; a strategy that takes nothing has no argument."""

    @node
    async def add(ctx: Context, numbers: list[int]) -> int:
        return sum(numbers)

    @node
    async def wait(ctx: Context, nothing: None) -> str:
        return "waited"

    adder = helper(Strategy("s", START >> add >> END), None, name="adder")
    waiter = helper(Strategy("s", START >> wait >> END), None, name="waiter")
    first, second = boss(adder, waiter).tools
    assert first.parameters["properties"] == {"task": {"type": "array", "items": {"type": "integer"}}}
    assert second.parameters["properties"] == {}


async def test_typed_tasks_are_checked_before_the_agent_runs():
    """What does not fit is told to the model, and no run is begun."""

    @node
    async def add(ctx: Context, numbers: list[int]) -> int:
        return sum(numbers)

    adder = helper(Strategy("s", START >> add >> END), None, name="adder")
    calls = [ToolCall("adder", {"task": task}) for task in ([1, 2], ["x"], None)]
    result = await boss(adder, calls=calls).run("x")
    three, wrong, none = result.memory.steps[1].results
    assert (three.content, three.is_error) == ("3", False)
    assert "do not fit: task.0: must be a valid integer" in wrong.content
    assert wrong.is_error
    assert none.is_error
    assert [bool(each.run_id) for each in (three, wrong, none)] == [True, False, False]
    assert len(result.children) == 1


@pytest.mark.parametrize("named", [{"name": "x"}, {"description": "x"}, {}])
def test_an_agent_without_a_name_or_a_description_is_no_tool(named):
    """The error says what to write."""
    with pytest.raises(TypeError, match=r"Agent\(…, name=…, description=…\)"):
        Agent(single_run(), tools=[Agent(single_run(), **named)])


def test_features_can_be_installed_after_an_agent_became_a_tool():
    """What counts is what it has when it runs first."""
    inner = helper()
    boss(inner)
    inner.install(AgentMemory)


async def test_a_tool_of_a_subgraph_may_be_an_agent():
    """`.using(tools=[agent])` offers it inside alone."""
    inner = helper()
    inside = react("inside").using(tools=[inner], model=ScriptedModel([ToolCall("helper", {"task": "t"}), "in"]))
    agent = Agent(Strategy("s", START >> inside >> END))
    result = await agent.run("x")
    assert (result.output, [child.output for child in result.children]) == ("in", ["helped"])


async def test_called_outside_a_run_an_agent_runs_by_itself():
    """A tool is a function too: without a run around it gives the answer."""
    [made] = boss(helper()).tools
    assert await made.call({"task": "t"}) == "helped"


# ---- one tree


async def test_the_runs_are_children_of_the_run_that_calls():
    """Each has an id below that of its parent, and stands in the result; the step says which run gave it."""
    result = await Family().chief.run("plants", run_id="r")
    assert result.output == PLANTS
    assert all(re.fullmatch(r"r/researcher/\d+", child.run_id) for child in result.children)
    assert len({child.run_id for child in result.children}) == 2
    assert {child.output for child in result.children} == {
        "moss is green; read the moss", "fern is green; read the fern"
    }  # fmt: skip
    assert [given.run_id for given in result.memory.steps[1].results] == [
        next(child.run_id for child in result.children if child.output == given.content)
        for given in result.memory.steps[1].results
    ]
    [reader] = result.children[0].result.children
    assert re.fullmatch(rf"{result.children[0].run_id}/reader/\d+", reader.run_id)
    assert reader.done


async def test_events_of_a_child_are_heard_by_those_who_listen_to_the_parent():
    """Once, with the child's own run id; the child's own listeners hear them too."""
    family, heard, own = Family(), [], []
    family.chief.on(Event, heard.append)
    family.reader.on(RunFinished, own.append)
    result = await family.chief.run("plants", run_id="r")
    ends = [event.run_id for event in heard if isinstance(event, RunFinished)]
    children = [child.run_id for child in result.children]
    readers = [reader.run_id for child in result.children for reader in child.result.children]
    assert sorted(ends) == sorted(["r", *children, *readers])
    assert next(event.run_id for event in heard if isinstance(event, RunStarted)) == "r"
    assert sorted(event.run_id for event in own) == sorted(readers)
    asked = [event for event in heard if isinstance(event, ModelResponded)]
    assert sum((event.response.usage for event in asked), Usage()) == result.usage


async def test_a_child_has_the_model_the_owner_and_the_features_of_its_parent(tmp_path):
    """What it has of its own comes first."""
    seen = []

    @tap
    async def look(ctx: Context, value: object) -> None:
        seen.append((ctx.model.name, ctx.owner, ctx.feature(AgentMemory).provider))

    strategy = Strategy("s", START >> look >> llm_request(tools=False) >> END)
    poor, rich = helper(strategy, None, name="poor"), helper(strategy, name="rich")
    theirs, own = FileMemoryProvider(tmp_path / "theirs"), FileMemoryProvider(tmp_path / "own")
    rich.install(AgentMemory, provider=own, recall=False, learn=False)
    calls = ToolCalls([ToolCall(name, {"task": "t"}) for name in ("poor", "rich")])
    agent = boss(poor, rich, replies=[calls, "from around", "the end"])
    agent.model.name = "parent"
    agent.install(AgentMemory, provider=theirs, recall=False, learn=False)
    result = await agent.run("x", owner="ada")
    assert result.output == "the end"
    assert seen == [("parent", "ada", theirs), ("scripted", "ada", own)]
    assert [child.owner for child in result.children] == ["ada", "ada"]


async def test_an_agent_that_a_node_calls_has_features_of_its_own(tmp_path):
    """They hold there alone, as those of a tool do."""
    seen = []

    @tap
    async def look(ctx: Context, value: object) -> None:
        seen.append(ctx.feature(AgentMemory).provider)

    inner = Agent(Strategy("inner", START >> look >> END))
    own = inner.install(AgentMemory, provider=FileMemoryProvider(tmp_path / "own")).provider

    @node
    async def call(ctx: Context, value: object) -> object:
        return await ctx.run_agent(inner, value)

    outer = Agent(Strategy("outer", START >> call >> look.named("again") >> END))
    theirs = outer.install(AgentMemory, provider=FileMemoryProvider(tmp_path / "theirs")).provider
    await outer.run("x")
    assert seen == [own, theirs]


async def test_a_feature_that_is_missing_inside_is_named_before_the_first_step():
    """The path leads through the agents; a feature of any agent around is enough."""
    learner = helper(Strategy("s", START >> llm_request(tools=False) >> auto_detect_facts() >> END), name="learner")
    middle = boss(learner, name="middle", description="Asks.")
    top = boss(middle)
    with pytest.raises(FeatureError, match=r"node 'middle/learner/auto_detect_facts' needs AgentMemory"):
        await top.run("x")
    middle.install(AgentMemory)
    top.start("x")


def test_what_a_child_gives_must_be_keepable_where_there_is_a_store():
    """The error names the node by its path through the agents, when the parent is made."""

    class Odd:
        pass

    @node
    async def odd(ctx: Context, text: str) -> Odd:
        return Odd()

    @node
    async def even(ctx: Context, odd: Odd) -> str:
        return ""

    inner = helper(Strategy("s", START >> odd >> even >> END), None)
    boss(inner)
    with pytest.raises(SerializationError, match="node 'helper/odd'"):
        boss(inner, store=MemoryStore())


async def test_many_calls_at_once_have_a_run_each():
    """Though the calls of all branches have the same id, each has a run of its own, and is counted once."""
    helpers = helper(replies=["helped"] * 20)
    ask, act = llm_request(), execute_tools()
    one = Strategy("one", START >> ask, ask.on(ToolCalls) >> act >> ask, ask.on(str) >> END)

    def answer(request):
        if request.messages[-1].role == "tool":
            return request.messages[-1].text
        return ToolCall("helper", {"task": "t"}, "c1")

    agent = Agent(
        Strategy("all", START >> each(one, limit=20) >> END), model=ScriptedModel([answer] * 40), tools=[helpers],
        max_turns=100,
    )  # fmt: skip
    result = await agent.run(["x"] * 20)
    assert result.output == ["helped"] * 20
    assert len({child.run_id for child in result.children}) == 20
    assert sum((child.result.usage for child in result.children), Usage()) + sum(
        (row.usage for row in result.ledger.charges if not row.run_id), Usage()
    ) == result.usage  # fmt: skip


async def test_a_tool_may_call_an_agent_more_than_once():
    """Each call of the agent within one tool call has a run of its own, and is not made again after the process died."""

    def agents(store, script):
        inner = helper(replies=script)

        @tool
        async def both(ctx: Context) -> str:
            """Ask twice."""
            call = inner.as_tool().call
            return f"{await call({'task': 'a'}, ctx)}, {await call({'task': 'b'}, ctx)}"

        agent = boss(inner, calls=[ToolCall("both", {}, "c1")], store=store)
        agent.tools = (*agent.tools, both)
        return agent

    first = Commits()
    result = await agents(first, ["one", "two"]).run("x", run_id="r")
    assert (result.output, [child.output for child in result.children]) == ("one, two", ["one", "two"])
    for count in range(1, len(first.commits) + 1):
        store = await first.after(count)
        said = sum(path != "" for path, _ in await store.effects("turn"))
        agent = agents(store, ["one", "two"][said:])
        agent.model = boss(calls=[ToolCall("both", {}, "c1")]).model
        if any(path == "" for path, _ in await store.effects("turn")):
            await agent.model.respond(first_request())
        assert (await agent.resume("r")).output == "one, two"


def first_request():
    """What a model is asked first."""
    return ModelRequest((Message.user("x"),))


async def test_a_run_is_stepped_through_over_what_is_inside():
    """A call is one step of the run around, however many the run inside has."""
    run = Family().chief.start("plants", run_id="r")
    kinds = []
    while (made := await run.step()) is not None:
        kinds.append(type(made).__name__)
    assert kinds == ["ActionStep", "ActionStep", "FinalAnswerStep"]
    assert run.output == PLANTS


@pytest.mark.parametrize("all_text", [False, True])
async def test_a_stream_has_the_events_of_what_is_inside(all_text):
    """The text of the models inside is not the answer of the run around; with all_text it comes too, with the id of its run."""
    pieces, heard, runs = {}, {}, set()
    agent = boss(helper(replies=["one two"]))
    agent.on(TextStreamed, lambda event: heard.setdefault(event.run_id, []).append(event.text), all_text=all_text)
    async for event in agent.stream("x", run_id="r", all_text=all_text):
        runs.add(event.run_id)
        if isinstance(event, TextStreamed):
            pieces.setdefault(event.run_id, []).append(event.text)
    [inside] = runs - {"r"}
    assert inside.startswith("r/helper/")
    assert pieces == heard == {**({inside: ["one", " two"]} if all_text else {}), "r": ["one", " two"]}
    told = [text async for text in boss(helper(replies=["one two"])).stream("x", all_text=all_text).text()]
    assert told == ["one", " two"]


async def test_a_sub_agents_own_listeners_hear_its_answer():
    """Whoever listens to the agent that is called hears what it says, whether or not the run around is listened to."""
    pieces = []
    inner = helper(replies=["one two"])
    inner.on(TextStreamed, lambda event: pieces.append((event.run_id, event.text)))
    async for _ in boss(inner).stream("x", run_id="r"):
        pass
    assert [text for _, text in pieces] == ["one", " two"]
    assert {run_id.rpartition("/")[0] for run_id, _ in pieces} == {"r/helper"}


# ---- failing


async def test_a_child_that_fails_is_an_error_that_the_model_sees():
    """The run around goes on, and the child's own is there to be looked at."""

    @node
    async def broken(ctx: Context, text: str) -> str:
        raise ValueError("secret")

    result = await boss(helper(Strategy("s", START >> broken >> END), None)).run("x")
    [given] = result.memory.steps[1].results
    assert given.is_error
    assert given.content == "Error: the agent 'helper' failed: node 'broken' failed with ValueError"
    [child] = result.children
    assert (child.result.status, given.run_id) == ("failed", child.run_id)
    assert result.done


async def test_a_childs_own_budget_is_an_error_that_the_model_sees():
    """It is told which, and the run around has its own."""
    looping = [ToolCall("search", {"query": "x"})] * 5

    @tool
    def search(query: str) -> str:
        """Search."""
        return "nothing"

    result = await boss(helper(replies=looping, tools=[search], max_turns=3)).run("x")
    [given] = result.memory.steps[1].results
    assert "the agent 'helper' failed: the budget of 3 turns is used up" in given.content
    assert (result.turns, result.children[0].result.turns) == (2, 3)


async def test_a_child_without_a_model_is_refused_where_the_run_around_has_none_to_lend():
    """Before the first node; the error names the node with its path."""
    step = llm_request(tools=False, name="say")
    inner = helper(Strategy("s", START >> step >> END), None)
    calls = node_calls(inner)
    with pytest.raises(FeatureError, match="node 'helper/say' asks a model"):
        await Agent(Strategy("s", START >> calls >> execute_tools() >> last() >> END), tools=[inner]).run("x")


def node_calls(*helpers):
    """A node that calls tools without a model."""

    @node
    async def call(ctx: Context, text: str) -> ToolCalls:
        return ToolCalls([ToolCall(inner.name, {"task": text}, f"c{n}") for n, inner in enumerate(helpers)])

    return call


def last():
    """A node that gives what the tools gave."""
    from graphagent.llm import ToolResults

    @node
    async def give(ctx: Context, given: ToolResults) -> str:
        return "; ".join(result.content for result in given)

    return give


async def test_a_script_that_is_too_short_ends_all():
    """A test must not pass because the model of the parent was told of it."""
    with pytest.raises(NodeFailedError) as info:
        await boss(helper(replies=[])).run("x")
    assert isinstance(info.value.__cause__, ScriptError)
    assert info.value.__cause__.__cause__ is None


@pytest.mark.parametrize("whose", ["parent", "child"])
async def test_a_handler_that_raises_ends_all(whose):
    """Whoever listens to what happens in a child: a broken listener is no answer for a model."""
    inner = helper()
    agent = boss(inner)

    def broken(event):
        if event.run_id != "r":
            raise ValueError

    (agent if whose == "parent" else inner).on(RunStarted, broken)
    with pytest.raises(HandlerError) as info:
        await agent.run("x", run_id="r")
    assert info.value.run_id == "r"
    assert isinstance(info.value.__cause__, ValueError)


async def test_a_callback_of_the_child_may_refuse_its_steps():
    """The child answers again; a refusal of what cannot be made again fails the child alone."""
    said = []

    def once(step: ActionStep) -> None:
        said.append(step.model_output)
        if len(said) == 1:
            raise Veto("too short")

    result = await boss(helper(replies=["no", "longer"], step_callbacks=[once])).run("x")
    assert (said, result.output) == (["no", "longer"], "longer")


# ---- budgets of the run around


async def test_tokens_of_a_child_count_in_the_budget_around():
    """The child is stopped before its next request, the error is the parent's, and the child failed at nothing."""

    @tool
    def search(query: str) -> str:
        """Search."""
        return "nothing"

    inner = helper(replies=[ToolCall("search", {"query": "a b c d e f g h"})] * 50, tools=[search], max_turns=None)
    agent = boss(inner, max_tokens=100)
    with pytest.raises(BudgetError) as info:
        await agent.run("x", run_id="r")
    error = info.value
    assert (error.run_id, error.budget, error.limit, error.where) == ("r", "tokens", 100, "")
    [child] = error.result.children
    assert not child.result.done
    assert error.result.usage.total_tokens >= 100
    assert error.result.usage == error.result.ledger.total
    before = child.result.ledger.charges[:-1]
    outside = error.result.usage.total_tokens - child.result.usage.total_tokens
    assert outside + sum(row.usage.total_tokens for row in before) < 100


async def test_a_budget_two_levels_up_stops_what_is_inside():
    """Neither the child nor its parent sees an error; the run that has the budget raises it."""
    family = Family()
    limited = Agent(react("lead", limit=2), model=family.chief.model, tools=[family.researcher], max_cost=0.0001)
    with pytest.raises(BudgetError) as info:
        await limited.run("plants", run_id="r")
    assert (info.value.run_id, info.value.budget, info.value.limit) == ("r", "cost", 0.0001)
    assert "chief" in family.asked
    for child in info.value.result.children:
        assert not child.result.done
        assert not any(
            result.is_error for step in child.memory.steps if isinstance(step, ActionStep) for result in step.results
        )


async def test_the_budget_of_a_subgraph_around_counts_children_too():
    """`.using(max_tokens=)` of the strategy in which the call stands is raised with its place."""
    inner = helper(replies=["a b c d e f g h i j k l m n o p"] * 3)
    calls = ToolCalls([ToolCall("helper", {"task": "t"}, "a"), ToolCall("helper", {"task": "t"}, "b")])
    inside = react("inside").using(max_tokens=15)
    agent = Agent(Strategy("s", START >> inside >> END), model=ScriptedModel([calls, "end"]), tools=[inner])
    with pytest.raises(BudgetError) as info:
        await agent.run("x")
    assert (info.value.where, info.value.limit) == ("inside", 15)


async def test_a_run_that_ran_out_of_money_in_a_child_goes_on_with_more():
    """The child is gone on with, and nothing that was done is done again."""
    whole = await Family().chief.run("plants", run_id="r")
    for share in (0.1, 0.3, 0.6):
        first = Family(store=Commits())
        limit = float(whole.usage.cost) * share
        poor = Agent(
            first.chief.strategy, model=first.chief.model, tools=[first.researcher], store=first.store, max_cost=limit
        )
        with pytest.raises(BudgetError) as info:
            await poor.run("plants", run_id="r")
        spent = info.value.result.usage
        second = Family(store=first.store)
        stored = await second.chief.read("r")
        assert stored.result.usage == spent == stored.result.ledger.total
        del stored, poor, info
        result = await second.finish()
        assert (result.output, result.usage) == (whole.output, whole.usage)
        assert rows(result.ledger) == rows(whole.ledger)
        assert len(first.asked) + len(second.asked) == 8
        assert sorted(first.looked + second.looked) == ["fern", "moss"]


async def test_a_run_is_allowed_more_while_it_stands_still():
    """In this process too: the sub-agent goes on where it was stopped."""
    family = Family()
    run = family.chief.start("plants", run_id="r")
    run.set_budgets(max_tokens=20)
    with pytest.raises(BudgetError):
        await run.finish()
    asked = len(family.asked)
    run.set_budgets(max_tokens=10**6)
    assert (await run.finish()).output == PLANTS
    assert asked < len(family.asked) == 8
    assert run.result.usage == run.result.ledger.total


async def test_time_around_ends_what_is_inside():
    """The budget of seconds is that of the run around; what is inside is cancelled, and goes on later."""
    hold = anyio.Event()

    @tool
    async def slow() -> str:
        """Take a while."""
        await hold.wait()
        return "slow"

    agent = boss(helper(replies=[ToolCall("slow"), "done"], tools=[slow]))
    run = agent.start("x", run_id="r")
    run.set_budgets(max_seconds=0.05)
    with pytest.raises(BudgetError) as info:
        await run.finish()
    assert (info.value.budget, info.value.result.children[0].result.done) == ("seconds", False)
    hold.set()
    run.set_budgets(max_seconds=60)
    assert (await run.finish()).output == "done"


# ---- questions


@pytest.mark.parametrize("durable", [False, True])
async def test_a_question_three_levels_down_suspends_all(durable):
    """Each question is one of the run that was started, says which run asks, and is answered there."""
    family, heard = Family(store=MemoryStore() if durable else None, asks="words"), []
    family.chief.on(RunSuspended, lambda event: heard.append(event.run_id))
    run = family.chief.start("plants", run_id="r")
    result = await run.finish()
    assert result.status == "waiting"
    assert sorted(each.question for each in result.questions) == ["Which page of the fern?", "Which page of the moss?"]
    assert sorted(each.run_id for each in result.questions) == sorted(
        child.result.children[0].run_id for child in result.children
    )
    assert len(heard) == 5
    assert heard[-1] == "r"
    first, second = result.questions
    with pytest.raises(AnswerError, match="asks for str"):
        run.answer(answers={first.id: 12})
    run.answer(answers={first.id: "page 1"})
    result = await run.finish()
    assert (result.status, [each.id for each in result.questions]) == ("waiting", [second.id])
    run.answer("page 2")
    result = await run.finish()
    assert result.done
    assert {"page 1", "page 2"} <= set(result.output.replace("read ", "").split("; "))
    assert sorted(family.looked) == ["fern", "moss"]
    assert len(family.asked) == 8


async def test_an_approval_and_a_result_from_outside_reach_the_child():
    """Tools of a child that ask, or wait, are answered through the run around."""
    sent = []

    @tool(approve=True)
    async def send(text: str) -> str:
        """Send a text."""
        sent.append(text)
        return "sent"

    @tool(deferred=True)
    async def survey(question: str) -> str:
        """Ask many people."""
        raise AssertionError

    calls = ToolCalls([ToolCall("send", {"text": "hi"}, "c1"), ToolCall("survey", {"question": "?"}, "c2")])

    def told(request):
        return "; ".join(message.text for message in request.messages if message.role == "tool")

    store = MemoryStore()
    inner = helper(replies=[calls, told, calls, told], tools=[send, survey])
    agent = boss(inner, store=store)
    result = await agent.run("x", run_id="r")
    kinds = {each.kind: each for each in result.questions}
    assert set(kinds) == {"approval", "result"}
    assert kinds["approval"].call.arguments == {"text": "hi"}
    assert sent == []
    result = await agent.resume(
        "r", answers={kinds["approval"].id: Approve({"text": "hello"})}, results={kinds["result"].id: ["yes", "no"]}
    )
    assert (result.output, sent) == ('sent; ["yes","no"]', ["hello"])
    other = boss(inner, store=store)
    result = await other.run("x", run_id="s")
    answers = {each.id: Deny("no") if each.kind == "approval" else 1 for each in result.questions}
    result = await other.resume("s", answers=answers)
    assert result.output == "Error: a person refused this call: no; 1"
    assert sent == ["hello"]


async def test_calls_of_one_id_in_two_turns_are_two_questions():
    """A server that numbers its calls anew in every turn has no call approved by the answer to another one."""
    sent = []

    @tool(approve=True)
    async def send(text: str) -> str:
        """Send a text."""
        sent.append(text)
        return "sent"

    calls = [ToolCall("send", {"text": text}, "call_0") for text in ("a", "b")]
    agent = boss(helper(replies=[*calls, "done"], tools=[send]), store=MemoryStore())
    result = await agent.run("x", run_id="r")
    first = result.pending
    result = await agent.resume("r", answer=True)
    assert sent == ["a"]
    assert result.status == "waiting"
    assert result.pending.id != first.id
    result = await agent.resume("r", answer=False)
    assert (sent, result.done) == (["a"], True)


# ---- stopping


async def test_pause_reaches_the_runs_inside():
    """They stop before their next request, and go on where they were."""
    family = Family()
    family.chief.on(ModelResponded, lambda event: run.pause("enough") if "/reader/" in event.run_id else None)
    run = family.chief.start("plants", run_id="r")
    result = await run.finish()
    assert result.status == "paused"
    assert {child.result.status for child in result.children} == {"paused"}
    asked = len(family.asked)
    assert asked < 8
    while not result.done:
        result = await run.finish()
    assert (result.output, len(family.asked)) == (PLANTS, 8)


async def test_a_child_that_pauses_pauses_the_run_around():
    """A callback of the child may pause its run; both go on."""
    seen = []

    def once(step: ActionStep, run) -> None:
        seen.append(run.run_id)
        if len(seen) == 1:
            run.pause("look at it")

    run = boss(helper(step_callbacks=[once])).start("x", run_id="r")
    result = await run.finish()
    assert (result.status, result.children[0].result.status) == ("paused", "paused")
    assert (await run.finish()).output == "helped"
    assert seen == [result.children[0].run_id]


async def test_cancellation_reaches_the_runs_inside():
    """Nothing is left running, the children say so, and all go on later without doing anything twice."""
    started, called, hold = [], anyio.Event(), anyio.Event()

    @tool
    async def slow(text: str) -> str:
        """Take a while."""
        started.append(text)
        called.set()
        await hold.wait()
        return "slow"

    agent = boss(helper(replies=[ToolCall("slow", {"text": "x"}), "done"], tools=[slow]), store=MemoryStore())
    run = agent.start("x", run_id="r")
    async with anyio.create_task_group() as group:
        group.start_soon(run.finish)
        await called.wait()
        group.cancel_scope.cancel()
    assert run.result.status == "cancelled"
    assert run.result.children[0].result.status == "cancelled"
    hold.set()
    assert (await agent.resume("r")).output == "done"
    assert started == ["x", "x"]


async def test_a_node_that_is_tried_again_calls_anew():
    """What a child of the first attempt spent is counted, and the second attempt has a run of its own."""
    replies, tries = ["first", "second"], []

    @node
    async def fails_once(ctx: Context, text: str) -> str:
        tries.append(text)
        if len(tries) == 1:
            raise ValueError
        return text

    inner = helper(replies=replies)
    inside = Strategy("inside", START >> node_calls(inner) >> execute_tools() >> last() >> fails_once >> END)
    agent = Agent(Strategy("s", START >> inside.retry(attempts=2, wait=0) >> END), tools=[inner])
    result = await agent.run("x")
    assert (result.output, tries) == ("second", ["first", "second"])
    assert len(result.children) == 2
    assert sum((child.result.usage for child in result.children), Usage()) == result.usage == result.ledger.total


async def test_what_a_loser_of_a_race_spent_is_counted():
    """A child that is cancelled for good stays in the account of its parent, also when that is read again."""
    from graphagent import race

    spent = anyio.Event()

    @node
    async def quick(ctx: Context, text: str) -> str:
        await spent.wait()
        return "quick"

    @tool
    async def slow(text: str) -> str:
        """Take for ever."""
        spent.set()
        await anyio.sleep_forever()

    inner = helper(replies=[ToolCall("slow", {"text": "x"})], tools=[slow])
    long = Strategy("long", START >> node_calls(inner) >> execute_tools() >> last() >> END)
    store = MemoryStore()
    agent = Agent(Strategy("s", START >> race(quick, long) >> END), tools=[inner], store=store)
    result = await agent.run("x", run_id="r")
    assert result.output == "quick"
    assert result.usage.total_tokens > 0
    stored = await agent.read("r")
    assert stored.result.usage == result.usage == stored.result.ledger.total
    assert [child.result.status for child in stored.result.children] == ["cancelled"]


# ---- kept


async def test_children_are_kept_below_their_parent():
    """They have the same owner and store, and their heads name the run that they are a part of."""
    family = Family(store=MemoryStore())
    result = await family.chief.run("plants", run_id="r", owner="ada")
    heads = {head.run_id: head for head in await list_runs(family.store, owner="ada")}
    assert {head.run_id: head.parent for head in heads.values() if "reader" in head.run_id or head.run_id == "r"} == {
        "r": "",
        **{child.result.children[0].run_id: child.run_id for child in result.children},
    }
    assert heads["r"].tokens == result.usage.total_tokens
    assert heads["r"].cost == str(result.usage.cost)
    assert sum(head.tokens for head in heads.values() if head.parent == "r") == sum(
        child.result.usage.total_tokens for child in result.children
    )
    assert await list_runs(family.store) == []


async def test_a_run_is_read_with_its_children():
    """They can be looked at and replayed, each below the call that it was for."""
    family = Family(store=MemoryStore())
    result = await family.chief.run("plants", run_id="r")
    stored = await Family(store=family.store).chief.read("r")
    assert [child.run_id for child in stored.result.children] == [child.run_id for child in result.children]
    assert [child.memory for child in stored.result.children] == [child.memory for child in result.children]
    assert [child.result.children[0].output for child in stored.result.children] == [
        child.result.children[0].output for child in result.children
    ]
    assert rows(stored.result.ledger) == rows(result.ledger)
    assert stored.result.usage == result.usage


async def test_a_run_of_a_sub_agent_is_read_by_the_id_that_lists_show():
    """Its transcript, answer and history are its own. It continues, forks and ends with the whole run, which the errors name."""
    family = Family(store=MemoryStore())
    result = await family.chief.run("plants", run_id="r", owner="ada")
    chief = Family(store=family.store).chief
    for head in await list_runs(family.store, owner="ada"):
        run = await chief.read(head.run_id, owner="ada")
        assert (run.run_id, run.status, run.result.usage.total_tokens) == (head.run_id, "done", head.tokens)
        assert len(await chief.history(head.run_id, owner="ada")) > 2
    called = [each.run_id for step in result.memory.steps if isinstance(step, ActionStep) for each in step.results]
    child = result.children[0]
    assert child.run_id in called
    read = await chief.read(child.run_id, owner="ada")
    assert (read.memory, read.output) == (child.memory, child.result.output)
    whole = rf"run '{child.run_id}' is a part of run 'r', .* as a whole: agent.resume\('r', owner='ada'\)"
    for name, options in (
        ("resume", {}), ("resume", {"answer": "x"}), ("end", {}), ("fork", {"at": 1}), ("rerun", {}), ("run", {"task": "x"}),
    ):  # fmt: skip
        given = {"run_id": child.run_id} if name == "run" else {}
        with pytest.raises(RunError, match=whole) as info:
            await getattr(chief, name)(*(() if given else (child.run_id,)), owner="ada", **given, **options)
        assert info.value.run_id == child.run_id
    for unknown in ("r/researcher/999", f"{child.run_id}/researcher/1", "r/1/2", "r/x/99999999999999999999"):
        with pytest.raises(RunNotFoundError):
            await chief.read(unknown, owner="ada")


async def test_a_run_of_an_agent_that_a_node_runs_by_itself_is_read_from_the_store():
    """Nothing says its types to an agent, and the error names what reads it."""
    inner = helper()

    @node
    async def runs(ctx: Context, text: str) -> str:
        return await ctx.run_agent(inner, text)

    agent = Agent(Strategy("s", START >> runs >> END), store=MemoryStore())
    await agent.run("x", run_id="r")
    child = next(head.run_id for head in await list_runs(agent.store) if head.parent)
    with pytest.raises(
        RunError, match=rf"agent that node 'runs' runs by itself.*read_run\(store, '{child}', owner=''\)"
    ):
        await agent.read(child)
    assert "helped" in (await read_run(agent.store, child)).to_text()


async def test_replay_shows_children_where_they_were_called(capsys):
    """Indented below the call, to any depth; what is not done stands at the end."""
    family = Family(store=MemoryStore(), asks="words")
    run = family.chief.start("plants", run_id="r")
    await run.finish()
    run.result.replay()
    waiting = capsys.readouterr().out
    assert waiting.count("\nRun r/researcher/") == 2
    assert waiting.count("    Run r/researcher/") == 2
    await family.finish()
    (await family.chief.read("r")).result.replay()
    shown = capsys.readouterr().out
    [head] = [line for line in shown.splitlines() if "/reader/" in line and "fern" not in line][:1]
    assert head.startswith(" " * 20 + "Run r/researcher/")
    assert shown.count("Final answer:") == 5
    assert shown.index("read page of the moss") < shown.index('Called researcher({"task": "fern"})')


async def test_a_fork_leaves_the_runs_of_its_origin_alone():
    """What the origin's children did before they part is shown; what is called again is called anew."""
    family = Family(store=MemoryStore())
    result = await family.chief.run("plants", run_id="r")
    children = {head.run_id: head for head in await list_runs(family.store)}
    other = Family(store=family.store)
    forked = await other.chief.fork("r", before="execute_tools", run_id="f")
    assert (forked.output, forked.usage) == (result.output, result.usage)
    assert {child.run_id.split("/")[0] for child in forked.children} == {"f"}
    late = await other.chief.fork("r", after="execute_tools", run_id="g")
    assert (late.output, late.usage) == (result.output, result.usage)
    read = await other.chief.read("g")
    assert [child.run_id.partition("/")[2] for child in read.result.children] == [
        child.run_id.partition("/")[2] for child in result.children
    ]
    now = {head.run_id: head for head in await list_runs(family.store)}
    assert {run_id: now[run_id] for run_id in children} == children


async def test_a_fork_has_the_runs_of_sub_agents_that_it_begins_with():
    """They are listed and read like those of any run, although they were executed before it."""
    store = MemoryStore()
    chief = boss(helper(), replies=[ToolCall("helper", {"task": "t"}), "one", "two"], store=store)
    await chief.run("t", run_id="r")
    await chief.fork("r", after="execute_tools", run_id="f")
    (part,) = [head for head in await list_runs(store) if head.parent == "f"]
    assert (part.title, part.status, part.turns) == ("t", "done", 1)
    (child,) = (await read_run(store, "f")).children
    assert child.head.run_id == part.run_id
    assert (await read_run(store, part.run_id)).turns == 1


async def test_a_sub_agent_that_changed_is_refused_like_any_strategy():
    """The error names its run and the difference; what fits is taken with `allow_changed`."""
    family = Family(store=MemoryStore(), asks="words")
    await family.chief.run("plants", run_id="r")
    other = Family(store=family.store, asks="words")
    read = llm_request(tools=False)
    more = Strategy("reading", START >> ask_human("Which?", str) >> read >> read.named("again") >> END)
    other.reader.strategy = more
    with pytest.raises(StrategyChangedError, match=r"(?s)since run 'r/researcher/\d+/reader/\d+' began.*again"):
        await other.chief.resume("r")
    read_only = await other.chief.read("r", allow_changed=True)
    assert len(read_only.questions) == 2


async def test_a_running_tree_can_be_looked_at():
    """Whoever reads it meanwhile sees how far it is, and cannot go on with it."""
    store, seen = MemoryStore(), []

    @tool
    async def peek() -> str:
        """Look at the run from elsewhere."""
        run = await boss(helper(), store=store).read("r")
        seen.append((run.result.status, [(child.run_id, child.result.turns) for child in run.result.children]))
        with pytest.raises(RunClaimedError):
            await run.finish()
        return "seen"

    result = await boss(helper(replies=[ToolCall("peek"), "looked"], tools=[peek]), store=store).run("x", run_id="r")
    assert (result.output, seen) == ("looked", [("running", [(result.children[0].run_id, 1)])])


async def test_a_rerun_calls_nobody():
    """The recorded results stand for the children, and what they cost is counted as it was."""
    family = Family(store=MemoryStore())
    result = await family.chief.run("plants", run_id="r")
    other = Family(store=family.store)
    again = await other.chief.rerun("r", new_id="again")
    assert (again.output, again.usage) == (result.output, result.usage)
    assert rows(again.ledger) == rows(result.ledger)
    assert other.asked == other.looked == []


@pytest.mark.parametrize("asks", ["words", "typed", "approval"])
async def test_a_rerun_until_any_entry_passes_recorded_answers_to_children_that_it_calls_live(asks):
    """It never ends as a run that is still executed: it waits, or is done."""
    family = Family(store=MemoryStore(), asks=asks)
    whole = await family.finish()
    history = await family.chief.history("r")
    for number in some([entry.number for entry in history if entry.kind != "final"], 6, thorough=20, salt=asks):
        other = Family(store=family.store, asks=asks)
        result = await other.chief.rerun("r", until=number, new_id=f"n{number}")
        assert result.status in ("waiting", "done"), number
        if result.status == "waiting":
            result = await other.finish(f"n{number}")
        assert (result.output, result.usage) == (whole.output, whole.usage), number


@pytest.mark.parametrize("asks", ["words", "typed", "approval"])
async def test_answers_to_children_are_in_the_history(asks):
    """As the children are given them; a typed one as plain data, since only the child knows its type."""
    family = Family(store=MemoryStore(), asks=asks)
    await family.finish()
    answers = [entry.value for entry in await family.chief.history("r") if entry.key.startswith("answer:")]
    shown = {
        "words": "page of the moss",
        "typed": {"of": "page of the moss"},
        "approval": Approve({"name": "THE MOSS"}),
    }
    assert shown[asks] in answers


# ---- a process dies


@pytest.mark.parametrize("asks", ["", "words", "typed", "approval"])
async def test_a_tree_of_runs_survives_the_death_of_its_process_anywhere(asks):
    """Behind every single commit of parent, children and grandchildren: the same end, nothing done or paid for twice.

    Likewise where each grandchild asks a person, and answers arrive one by one.
    """
    first = Family(store=Commits(), asks=asks)
    whole = await first.finish()
    commits = len(first.store.commits)
    assert commits > 20
    for count in some(range(1, commits + 1), 8, salt=asks):
        store = await first.store.after(count)
        answered = len(await store.effects("turn"))
        looked = sum(entry["held"]["name"] in LOOKS for _, entry in await store.effects("tool"))
        second = Family(store=store, asks=asks)
        result = await second.finish()
        told = f"cut behind commit {count} of {commits}"
        assert result.output == whole.output, told
        assert result.usage == whole.usage, told
        assert rows(result.ledger) == rows(whole.ledger), told
        assert len(second.asked) + answered == len(first.asked), told
        assert len(second.looked) + looked == len(first.looked), told
        stored = await second.chief.read("r")
        assert (stored.result.usage, rows(stored.result.ledger)) == (whole.usage, rows(whole.ledger)), told
        heads = await list_runs(store)
        assert {head.status for head in heads} == {"done"}, told
        assert len(heads) == 5, told


async def test_a_sub_agent_that_another_process_continues_began_when_it_began():
    """The time at which a sub-agent began stays in the list of runs, whichever process continues it."""
    store = MemoryStore()

    def lead(reply):
        asking = helper(Strategy("h", START >> ask_human("Well?", str) >> END), None)
        return boss(asking, replies=[reply], store=store)

    await lead(ToolCall("helper", {"task": "t"}, "c")).run("x", run_id="r")
    before = next(head.started for head in await list_runs(store) if head.parent)
    await anyio.sleep(0.005)
    await lead("Done.").resume("r", answer="yes")
    after = next(head for head in await list_runs(store) if head.parent)
    assert (after.status, after.started) == ("done", before)


class Around:
    """Middleware around everything, which makes the calls of each level deeper."""

    def install(self, agent):
        pass

    async def begin(self, ctx):
        pass

    def bind(self, ctx):
        return self

    async def around_node(self, ctx, value, proceed):
        return await proceed(value)

    async def around_tool(self, ctx, call, proceed):
        return await proceed(call)

    async def around_model(self, ctx, request, proceed):
        return await proceed(request)


@pytest.mark.parametrize("how", ["tools", "nodes"])
async def test_agents_are_nested_up_to_a_limit(how):
    """Twenty agents inside one another are executed, with a store, middleware and policies; one more is refused when it is made."""

    def reply(request):
        returned = any(message.role == "tool" for message in request.messages)
        return ToolCall(request.tools[0].name, {"task": "x"}) if request.tools and not returned else "done"

    def around(inner, level):
        tools = [inner] if inner is not None and how == "tools" else []
        part = inner.as_node().retry(attempts=2).timeout(60) if inner is not None and how == "nodes" else None
        strategy = single_run() if part is None else Strategy(f"s{level}", START >> part >> END)
        made = Agent(strategy, model=model, tools=tools, name=f"a{level}", description="Helps.", store=MemoryStore())
        made.install(Around)
        return made

    model, agent = ScriptedModel(itertools.repeat(reply)), None
    for level in range(20):
        agent = around(agent, level)
    assert (await agent.run("Go.", run_id="r")).output == "done"
    assert len(model.requests) == (39 if how == "tools" else 1)
    assert (await agent.read("r")).done
    with pytest.raises(StrategyError, match=r"'a19': it has 60 levels .* an agent counts as three"):
        around(agent, 20)
