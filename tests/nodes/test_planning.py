"""Plans that a model makes for itself every so many turns."""

from __future__ import annotations

from itertools import repeat

import pytest

from graphagent import END, START, Agent, Context, Strategy, each, node, parallel, tool
from graphagent.errors import BudgetError, ModelRequestError, NodeFailedError, StrategyError, Veto, VetoError
from graphagent.events import StepCommitted
from graphagent.llm import Message, ModelRequest, ToolCall, ToolCalls
from graphagent.memory import ActionStep, PlanningStep, RunMemory, TaskStep
from graphagent.nodes import llm_request, task
from graphagent.store import MemoryStore
from graphagent.testing import ScriptedModel
from tests.run.family import Commits, react


@tool
async def step(n: int) -> str:
    """Take a step."""
    return f"step {n} taken"


def is_plan(request):
    return request.messages[-1].text.startswith("Before you go on, make a plan.")


def walker(steps):
    """A model that takes so many steps and then says so; asked for a plan, it says how far it is."""

    def answer(request):
        made = sum(bool(message.tool_calls) for message in request.messages)
        if is_plan(request):
            return f"plan after {made} steps"
        return ToolCall("step", {"n": made + 1}, f"c{made}") if made < steps else f"walked {made}"

    return ScriptedModel(repeat(answer))


def agent(model, interval=1, **settings):
    return Agent(react("s"), model=model, tools=[step], planning_interval=interval, **{"max_turns": None, **settings})


def shape(memory):
    """Give the kinds of steps in a transcript, turns with their numbers."""
    letters = {TaskStep: "T", PlanningStep: "P"}
    return "".join(
        letters.get(type(each)) or (str(each.step_number) if isinstance(each, ActionStep) else "")
        for each in memory.steps
    )


@pytest.mark.parametrize(
    ("interval", "expected"), [(1, "TP1P2P3P4P5"), (2, "TP12P34P5"), (3, "TP123P45"), (5, "TP12345"), (None, "T12345")]
)
async def test_a_plan_stands_before_the_first_turn_and_every_nth_one_behind_it(interval, expected):
    """Before turn 1, n + 1, 2n + 1, …; without an interval there is none."""
    model = walker(4)
    result = await agent(model, interval).run("go")
    assert shape(result.memory) == expected
    assert (result.output, result.turns) == ("walked 4", 5)
    assert len(model.requests) == 5 + expected.count("P")


async def test_the_model_is_asked_with_all_that_was_said_and_sees_its_plan_from_then_on():
    """It is told its tools by name, offered none, and sees the plan as its own words, with the word to proceed."""
    model = walker(1)
    result = await agent(model, 1, system_prompt="Rules.").run("go")
    first, turn = model.requests[:2]
    assert [message.text for message in first.messages[:-1]] == ["Rules.", "go"]
    assert first.messages[-1].role == "user"
    assert "these tools: step." in first.messages[-1].text
    assert first.tools == ()
    assert turn.messages[:2] == first.messages[:2]
    assert turn.messages[2:] == (
        Message.assistant("plan after 0 steps"), Message.user("Now proceed and carry out this plan.")
    )  # fmt: skip
    plan = result.memory.steps[1]
    assert plan.plan == "plan after 0 steps"
    assert plan.model_output_message == Message.assistant("plan after 0 steps")


async def test_what_was_sent_is_told_exactly():
    """For plans and turns alike, also after the transcript was saved and loaded."""
    model = walker(3)
    result = await agent(model, 2).run("go")
    asked = [step for step in result.memory.steps if isinstance(step, PlanningStep | ActionStep)]
    assert [step.model_input_messages for step in asked] == [request.messages for request in model.requests]
    loaded = RunMemory.from_json(result.memory.to_json())
    assert loaded == result.memory
    again = [step for step in loaded.steps if isinstance(step, PlanningStep | ActionStep)]
    assert [step.model_input_messages for step in again] == [request.messages for request in model.requests]


async def test_plans_are_seen_and_may_be_changed_by_callbacks():
    """Callbacks get the step before it stands in the transcript; the model sees what they made of it; listeners are told."""
    model, seen, told = walker(1), [], []

    def look(plan: PlanningStep, run) -> None:
        seen.append((plan.plan, plan in run.memory.steps))
        plan.plan = "a better plan"

    planner = agent(model, 5, step_callbacks=[look])
    planner.on(StepCommitted, lambda event: told.append(type(event.step).__name__))
    await planner.run("go")
    assert seen == [("plan after 0 steps", False)]
    assert model.requests[1].messages[1].text == "a better plan"
    assert told == ["PlanningStep", "ActionStep", "ActionStep", "FinalAnswerStep"]


async def test_plans_come_step_by_step():
    """`run.step()` hands them out in their place."""
    run = agent(walker(1), 1).start("go")
    kinds = []
    while (made := await run.step()) is not None:
        kinds.append(type(made).__name__)
    assert kinds == ["PlanningStep", "ActionStep", "PlanningStep", "ActionStep", "FinalAnswerStep"]


async def test_plans_count_in_tokens_and_not_in_turns():
    """They are in the sum, in the ledger and in the step."""
    result = await agent(walker(3), 1, max_turns=4).run("go")
    plans = [step for step in result.memory.steps if isinstance(step, PlanningStep)]
    assert (len(plans), result.turns) == (4, 4)
    rows = [row for row in result.ledger.charges if row.what.startswith("plan:")]
    assert [row.usage for row in rows] == [plan.token_usage for plan in plans]
    assert [row.what for row in rows] == ["plan:1"] * 4  # each is the first request of its node
    assert result.usage == result.ledger.total
    assert all(plan.timing.duration >= 0 for plan in plans)


async def test_no_plan_is_made_that_nobody_could_carry_out():
    """Where no turn is left, the budget ends the run before the plan is asked for."""
    model = walker(9)
    with pytest.raises(BudgetError) as info:
        await agent(model, 2, max_turns=4).run("go")
    assert shape(info.value.result.memory) == "TP12P34"
    assert sum(map(is_plan, model.requests)) == 2


async def test_earlier_runs_do_not_count():
    """A run that begins with the transcript of another one plans before its own first turn."""
    earlier = await agent(walker(2), None).run("go")
    model = ScriptedModel(["a plan", "done"])
    result = await agent(model, 2).run("again", steps=earlier.memory)
    assert shape(result.memory) == "T123TP4"
    assert is_plan(model.requests[0])


async def test_each_branch_plans_for_itself():
    """A fork's branches count their own turns from where they part."""

    @node
    async def tasks(ctx: Context, task: str) -> list[str]:
        return ["a", "b"]

    planned = Agent(
        Strategy("s", START >> tasks >> each(react("walk"), transcript="keep") >> END), model=walker(1), tools=[step],
        planning_interval=2,
    )  # fmt: skip
    result = await planned.run("go")
    assert shape(result.memory) == "TP12P12"


# ---- what goes wrong


async def test_a_request_that_fails_leaves_nothing_half_done():
    """The transcript has no plan and no turn, and the run can be gone on with, in this process or another."""
    replies = [ModelRequestError("down"), "a plan", "done"]
    store = MemoryStore()
    failing = agent(ScriptedModel(replies[:1]), 1, store=store)
    with pytest.raises(NodeFailedError):
        await failing.run("go", run_id="r")
    stored = await failing.read("r")
    assert shape(stored.memory) == "T"
    result = await agent(ScriptedModel(replies[1:]), 1, store=store).resume("r")
    assert (shape(result.memory), result.output) == ("TP1", "done")
    run = agent(ScriptedModel(replies), 1).start("go")
    with pytest.raises(NodeFailedError):
        await run.finish()
    assert shape(run.memory) == "T"
    assert ((await run.finish()).output, shape(run.memory)) == ("done", "TP1")


async def test_a_plan_that_was_made_is_not_made_again():
    """Where the turn behind it fails, the run goes on with the plan that there is: in this process, in another."""
    replies = ["a plan", ModelRequestError("down"), "done"]
    run = agent(ScriptedModel(replies), 3).start("go")
    with pytest.raises(NodeFailedError):
        await run.finish()
    await run.finish()
    assert shape(run.memory) == "TP12"
    store = MemoryStore()
    failing = agent(ScriptedModel(replies[:2]), 3, store=store)
    with pytest.raises(NodeFailedError):
        await failing.run("go", run_id="r")
    result = await agent(ScriptedModel(replies[2:]), 3, store=store).resume("r")
    assert result.output == "done"
    assert shape(result.memory).count("P") == 1


async def test_a_plan_that_a_retry_takes_back_is_made_again():
    """The attempt that failed stays known, and the next one has a plan all the same."""
    replies = ["a plan", ModelRequestError("down"), "another plan", "done"]
    retried = llm_request(tools=False).retry(attempts=2, wait=0)
    model = ScriptedModel(replies)
    result = await Agent(Strategy("s", START >> retried >> END), model=model, planning_interval=3).run("go")
    assert shape(result.memory) == "T1P2"
    assert [plan.plan for plan in result.memory.steps if isinstance(plan, PlanningStep)] == ["another plan"]
    assert [is_plan(request) for request in model.requests] == [True, False, True, False]


async def test_pausing_between_plan_and_turn_makes_no_second_plan():
    """Callbacks may pause when they see the plan; the run goes on with it."""
    model = walker(1)

    def pause(plan: PlanningStep, run) -> None:
        run.pause("look at the plan")

    run = agent(model, 1, step_callbacks=[pause]).start("go")
    result = await run.finish()
    assert (result.status, shape(run.memory)) == ("paused", "TP")
    while not run.done:
        await run.finish()
    assert shape(run.memory) == "TP1P2"
    assert sum(map(is_plan, model.requests)) == 2
    asked = [step for step in run.memory.steps if isinstance(step, PlanningStep | ActionStep)]
    assert [step.model_input_messages for step in asked] == [request.messages for request in model.requests]


async def test_an_answer_that_is_refused_does_not_upset_the_plans():
    """The turn that is asked for again is a turn like others: plans come where they are due."""
    refused = []

    def once(turn: ActionStep) -> None:
        if not turn.tool_calls and not refused:
            refused.append(turn.step_number)
            raise Veto("think again")

    model = walker(1)
    result = await agent(model, 2, step_callbacks=[once]).run("go")
    assert refused == [2]
    assert shape(result.memory) == "TP12P3"


@pytest.mark.parametrize("store", [None, MemoryStore], ids=["in memory", "in another process"])
async def test_a_plan_that_the_model_fails_to_make_leaves_no_step(store):
    """The error names the node; the transcript stays as it was, and the plan is asked for when the run goes on."""
    kept = store() if store else None
    model = ScriptedModel([ModelRequestError("overloaded"), "1. Go.", "Gone."])
    run = agent(model, store=kept).start("go", run_id="r1")
    with pytest.raises(NodeFailedError, match="overloaded"):
        await run.finish()
    if kept is not None:
        run = await agent(model, store=kept).read("r1")
    assert shape(run.memory) == "T"
    assert (await run.finish()).output == "Gone."
    assert shape(run.memory) == "TP1"
    assert model.requests[0].messages == model.requests[1].messages


async def test_a_plan_that_is_refused_stops_the_run():
    """It stands in the transcript, and the run can be gone on with."""
    refused = []

    def once(plan: PlanningStep) -> None:
        if not refused:
            refused.append(plan)
            raise Veto("no")

    run = agent(walker(0), 1, step_callbacks=[once]).start("go")
    with pytest.raises(VetoError):
        await run.finish()
    assert shape(run.memory) == "TP"
    assert (await run.finish()).output == "walked 0"
    assert shape(run.memory) == "TP1"


async def test_plans_survive_the_death_of_the_process_anywhere():
    """Behind every commit: the same transcript, the same prompts, and no plan is made twice."""
    first = Commits()
    model = walker(3)
    whole = await agent(model, 2, store=first).run("go", run_id="r")
    for count in range(1, len(first.commits) + 1):
        store = await first.after(count)
        answered = len(await store.effects("turn", "decision"))
        again = walker(3)
        result = await agent(again, 2, store=store).resume("r")
        told = f"cut behind commit {count}"
        assert len(again.requests) + answered == len(model.requests), told
        assert (shape(result.memory), result.usage) == (shape(whole.memory), whole.usage), told
        asked = [step for step in result.memory.steps if isinstance(step, PlanningStep | ActionStep)]
        assert [step.model_input_messages for step in asked] == [request.messages for request in model.requests], told
        assert [request.messages for request in again.requests] == [
            request.messages for request in model.requests[answered:]
        ], told


async def test_tool_calls_in_a_plan_are_no_calls():
    """A model that calls tools where none are offered has made a plan of its words alone."""
    replies = [ToolCalls([ToolCall("step", {"n": 1})], "first a step"), "done"]
    model = ScriptedModel(replies)
    result = await agent(model, 1).run("go")
    assert result.memory.steps[1].plan == "first a step"
    assert model.requests[1].messages[1] == Message.assistant("first a step")


def test_an_interval_is_refused_where_no_node_makes_plans():
    """As with a request node of one's own; one that makes them may be anywhere inside, with policies too."""

    @node
    async def own(ctx: Context, text: str) -> str:
        turn = await ctx.turn(ModelRequest((Message.user(text),)))
        return turn.model_output or ""

    with pytest.raises(
        StrategyError, match="'planning_interval': no node of the strategy would make a plan: llm_request"
    ):
        Agent(Strategy("s", START >> own >> END), model=ScriptedModel(["x"]), planning_interval=3)
    inner = Strategy("inner", START >> llm_request(tools=False).retry(attempts=2) >> END)
    Agent(Strategy("s", START >> parallel(own, inner) >> END), planning_interval=3)
    Agent(Strategy("s", START >> task("Do it.") >> END), planning_interval=3)
