"""Callbacks: what they may look like, which steps they see and when, and what they may do with a run."""

from __future__ import annotations

import functools
from collections import Counter
from dataclasses import dataclass
from typing import Any, ClassVar, Union

import anyio
import anyio.lowlevel
import pytest

from graphagent import END, START, Agent, Context, Run, Strategy, each, node, parallel, tool
from graphagent.errors import HandlerError, ModelRequestError, NodeFailedError, RunError, Veto, VetoError
from graphagent.events import Event
from graphagent.llm import Message, ModelRequest, ToolCall, ToolCalls
from graphagent.memory import ActionStep, FinalAnswerStep, MessageStep, PlanningStep, Step, TaskStep
from graphagent.nodes import execute_tools, llm_request, update_prompt
from graphagent.store import MemoryStore
from graphagent.testing import ScriptedModel
from graphagent_strategies import single_run
from tests.run.executors import both_executors  # noqa: F401  a fixture
from tests.run.lives import Watched, cut

CALLED: list[Any] = []


@tool
async def double(n: int) -> int:
    """Double a number."""
    CALLED.append(n)
    return n * 2


@pytest.fixture(autouse=True)
def nothing_called():
    CALLED.clear()


@node
async def upper(ctx: Context, said: str) -> str:
    return said.upper()


ask, act = llm_request(), execute_tools()
react = Strategy("react", START >> ask, ask.on(ToolCalls) >> act >> ask, ask.on(str) >> END)
chatty = Strategy("chatty", START >> update_prompt("Be brief.") >> react >> END)
SCRIPT = [ToolCall("double", {"n": 2}), "Four."]


@dataclass(frozen=True)
class Checked(Event):
    """An event of one's own."""


@dataclass(slots=True)
class Weather(Step):
    """A type of one's own."""

    kind: ClassVar[str] = "test_callback_weather"

    sky: str


@dataclass(slots=True)
class Storm(Weather):
    """A type derived from one's own."""

    kind: ClassVar[str] = "test_callback_storm"


def an_agent(*callbacks, strategy=react, replies=SCRIPT, **settings):
    return Agent(strategy, model=ScriptedModel(replies), tools=[double], step_callbacks=callbacks, **settings)


def names(steps):
    return [type(step).__name__ for step in steps]


# ---- what they may look like


class Object:
    """A callable object."""

    def __init__(self):
        self.seen = []

    def __call__(self, step: ActionStep, its_run: Run[str]) -> None:
        self.seen.append((step, its_run))

    def method(self, whatever: ActionStep) -> None:
        self.seen.append((whatever, None))

    async def slow(self, step: ActionStep, run: Run[str]) -> None:
        await anyio.lowlevel.checkpoint()
        self.seen.append((step, run))

    @staticmethod
    def static(step: ActionStep, run: Run[str]) -> None:
        CALLED.append((step, run))


async def test_any_function_of_one_or_two_parameters_is_a_callback():
    """Functions, lambdas, methods, callable objects, partials, async or not; called by position, whatever the names."""
    seen = []
    thing = Object()

    def one(memory_step: ActionStep) -> None:
        seen.append("one")

    def two(memory_step: ActionStep, agent: Run[str]) -> None:
        seen.append(type(agent))

    def optional(step: ActionStep, run: Run[str] | None = None) -> None:
        seen.append(type(run))

    def positional(step: ActionStep, run: Run[str], /) -> None:
        seen.append(type(run))

    def anything(*args: Any) -> None:
        seen.append(len(args))

    def more(prefix: str, step: ActionStep, run: Run[str], *, suffix: str = "") -> None:
        seen.append(prefix + suffix)

    async def slow(step: ActionStep, run: Run[str]) -> None:
        await anyio.lowlevel.checkpoint()
        seen.append("slow")

    callbacks = [
        one, two, optional, positional, slow, thing, thing.method, thing.slow, Object.static,
        functools.partial(more, "pre", suffix="fix"), functools.partial(two, agent="mine"),
        lambda step: seen.append("lambda"), lambda step, run: seen.append(type(run)), anything, seen.append,
    ]  # fmt: skip
    result = await an_agent(*callbacks, replies=["Hello."]).run("task")
    task, turn, final = result.memory.steps
    assert [(step, type(run)) for step, run in thing.seen] == [(turn, Run), (turn, type(None)), (turn, Run)]
    assert [step for step, _ in CALLED] == [turn]
    everything = ["lambda", Run, 2]
    assert seen == [
        *everything, task,
        "one", Run, Run, Run, "slow", "prefix", str, *everything, turn,
        *everything, final,
    ]  # fmt: skip


async def test_a_second_parameter_with_a_default_is_the_callbacks_own():
    """It gets the run only where it is called so, or annotated so: a limit stays a limit, in final checks too."""
    seen = []

    def limited(step: ActionStep, limit: int = 3) -> None:
        seen.append(limit)

    def plain(step: ActionStep, limit=3) -> None:
        seen.append(limit)

    def named(step: ActionStep, run=None) -> None:
        seen.append(type(run))

    def annotated(step: ActionStep, mine: Run[str] | None = None) -> None:
        seen.append(type(mine))

    def unknown(step: ActionStep, mine: t.Run[str] | None = None) -> None:  # noqa: F821  as under TYPE_CHECKING
        seen.append(type(mine))

    def both(step: ActionStep, *more: Any) -> None:
        seen.append(len(more))

    def longer(answer: str, least: int = 2) -> bool:
        return len(answer) > least

    callbacks = [limited, plain, named, annotated, unknown, both, lambda step, kept=seen: kept.append("kept")]
    agent = an_agent(*callbacks, replies=["Hello."], final_answer_checks=[longer])
    await agent.run("task")
    assert seen == ["kept", 3, 3, Run, Run, Run, 1, "kept", "kept"]


def test_what_is_no_callback_is_refused_when_it_is_given():
    """The error says what a callback looks like, and what this one takes."""

    def nothing() -> None: ...

    def three(step: ActionStep, run: Run[str], more: str) -> None: ...

    def keyword(step: ActionStep, *, agent: Run[str]) -> None: ...

    def wrong(step: int) -> None: ...

    def mixed(step: ActionStep | str) -> None: ...

    for callback, said in [
        (nothing, r"the step callback 'nothing' is called with a step.*it takes \(\)"),
        (three, r"'three'.*write `def three\(step: ActionStep, run: Run\) -> None`; it takes \(step"),
        (keyword, "'keyword'"),
        (wrong, "'wrong' is annotated with <class 'int'>, which is not a step type"),
        (mixed, "'mixed' is annotated with <class 'str'>, which is not a step type.*ActionStep, TaskStep"),
        ("print", "a step callback is a function of a step, or of a step and the run, not 'print'"),
        (None, "not None"),
    ]:
        with pytest.raises(TypeError, match=said):
            Agent(react, step_callbacks=[callback])


# ---- which steps they see, and when


async def test_the_annotation_chooses_the_steps():
    """A type, several, the base of all, a type of one's own with those derived from it; without annotation: all."""
    seen = {name: [] for name in ("action", "several", "old", "optional", "every", "bare", "own", "any")}

    def action(step: ActionStep) -> None:
        seen["action"].append(step)

    def several(step: TaskStep | FinalAnswerStep) -> None:
        seen["several"].append(step)

    def old(step: Union[TaskStep, MessageStep]) -> None:  # noqa: UP007  old annotations are common
        seen["old"].append(step)

    def optional(step: MessageStep | None) -> None:
        seen["optional"].append(step)

    def every(step: Step) -> None:
        seen["every"].append(step)

    def bare(step) -> None:
        seen["bare"].append(step)

    def own(step: Weather) -> None:
        seen["own"].append(step)

    def anything(step: Any) -> None:
        seen["any"].append(step)

    @node
    async def look(ctx: Context, said: str) -> str:
        await ctx.add(Weather("grey"), Storm("black"))
        return said

    strategy = Strategy("s", START >> chatty >> look >> END)
    result = await an_agent(
        action, several, old, optional, every, bare, own, anything, strategy=strategy
    ).run("task")  # fmt: skip
    every_one = ["TaskStep", "MessageStep", "ActionStep", "ActionStep", "Weather", "Storm", "FinalAnswerStep"]
    assert names(result.memory.steps) == every_one
    assert {name: names(steps) for name, steps in seen.items()} == {
        "action": ["ActionStep", "ActionStep"],
        "several": ["TaskStep", "FinalAnswerStep"],
        "old": ["TaskStep", "MessageStep"],
        "optional": ["MessageStep"],
        "every": every_one,
        "bare": every_one,
        "own": ["Weather", "Storm"],
        "any": every_one,
    }


async def test_a_dictionary_chooses_the_steps():
    """As in smolagents, a type of step has a function or several; the annotation may be missing or be of something else."""
    seen = []

    def action(memory_step: ActionStep, agent: Run[str]) -> None:
        seen.append(("action", type(memory_step).__name__, isinstance(agent, Run)))

    def bare(step):
        seen.append(("bare", type(step).__name__))

    async def strange(step: NotImported) -> None:  # noqa: F821  only known to type checkers
        seen.append(("strange", type(step).__name__))

    def guard(call: ToolCall) -> None:
        seen.append(("guard", call.name))

    def look(call):
        seen.append(("look", call.name))

    callbacks = {
        ActionStep: [action, bare], FinalAnswerStep: bare, Step: (strange,), ToolCall: [guard, look], PlanningStep: [],
    }  # fmt: skip
    agent = Agent(react, model=ScriptedModel(SCRIPT), tools=[double], step_callbacks=callbacks)
    await agent.run("task")
    assert seen == [
        ("strange", "TaskStep"),
        ("guard", "double"), ("look", "double"),
        ("action", "ActionStep", True), ("bare", "ActionStep"), ("strange", "ActionStep"),
        ("action", "ActionStep", True), ("bare", "ActionStep"), ("strange", "ActionStep"),
        ("bare", "FinalAnswerStep"), ("strange", "FinalAnswerStep"),
    ]  # fmt: skip


def test_a_dictionary_of_something_else_is_refused():
    """The error says what is wrong with it: the type, what is under it, or a callback that takes other steps."""

    def plan(step: PlanningStep) -> None: ...

    def either(step: PlanningStep | TaskStep) -> None: ...

    def three(step, run, more) -> None: ...

    for callbacks, said in [
        ({"ActionStep": plan}, "has 'ActionStep' for a type of step; the types are ActionStep"),
        ({int: plan}, "has <class 'int'> for a type of step"),
        ({PlanningStep: "plan"}, "has a str under PlanningStep; write a function or a list of functions"),
        ({PlanningStep: None}, "has None under PlanningStep"),
        (
            {PlanningStep: [plan, "plan"]},
            "a step callback is a function of a step, or of a step and the run, not 'plan'",
        ),
        ({PlanningStep: three}, r"'three' is called with a step.*it takes \(step, run, more\)"),
        ({ActionStep: plan}, "the step callback 'plan' is given under ActionStep, and takes PlanningStep"),
        ({Step: either}, r"'either' is given under Step, and takes PlanningStep \| TaskStep"),
        (plan, r"step_callbacks= is a list of functions.* or a dictionary, such as \{ActionStep: save\}"),
        (5, "step_callbacks= is a list of functions"),
    ]:
        with pytest.raises(TypeError, match=said):
            Agent(react, step_callbacks=callbacks)


async def test_callbacks_are_called_in_order_before_the_step_stands_in_the_transcript():
    """All that is before the step stands there, the step itself does not; the task is there from the start."""
    seen = []

    def first(step, run):
        seen.append((type(step).__name__, len(run.memory.steps), any(each_ is step for each_ in run.memory.steps)))

    def second(step):
        seen.append("second")

    await an_agent(first, second).run("task")
    assert seen == [
        ("TaskStep", 1, True), "second",
        ("ActionStep", 1, False), "second",
        ("ActionStep", 2, False), "second",
        ("FinalAnswerStep", 3, False), "second",
    ]  # fmt: skip


async def test_a_turn_with_tool_calls_is_seen_with_its_results():
    """A step is whole when it is seen; failed turns are seen too."""
    seen = []
    agent = an_agent(
        lambda step: seen.append((getattr(step, "observations", None), getattr(step, "error", None) is not None)),
        strategy=Strategy("s", START >> react.retry(attempts=2, wait=0) >> END),
        replies=[ModelRequestError("down"), *SCRIPT],
    )
    await agent.run("task")
    assert seen == [(None, False), (None, True), ("4", False), (None, False), (None, False)]


async def test_injected_steps_are_not_shown():
    """Who puts a step there knows it already; of a task put before it, only the run's own is shown."""
    seen = []
    agent = an_agent(seen.append, replies=["Hello."])
    run = agent.start("task", steps=(await an_agent(replies=["Before."]).run("earlier")).memory)
    run.memory.steps.insert(0, TaskStep(task="task"))
    run.memory.steps.append(Weather("grey"))
    await run.finish()
    assert names(seen) == ["TaskStep", "ActionStep", "FinalAnswerStep"]
    assert seen[0] is run.memory.steps[4]


async def test_steps_of_branches_and_subgraphs_are_seen():
    """Wherever a step is made; the run is the one that was started."""
    seen = []
    fork = parallel(chatty, Strategy("other", START >> update_prompt("Hm.") >> upper >> END))
    agent = an_agent(
        lambda step, run: seen.append((type(step).__name__, run.run_id)), strategy=Strategy("s", START >> fork >> END)
    )
    result = await agent.run("task", run_id="r1")
    assert len(result.memory.steps) == 2  # what the branches said was dropped
    assert sorted(seen) == [
        (name, "r1")
        for name in ("ActionStep", "ActionStep", "FinalAnswerStep", "MessageStep", "MessageStep", "TaskStep")
    ]


# ---- edits


@pytest.mark.parametrize("store", [None, MemoryStore], ids=["in memory", "with a store"])
async def test_edits_reach_the_model_and_are_kept(store):
    """A callback may change the step that it sees, and those before it; what the run gives is what stands there then."""
    kept = store() if store else None

    def stamp(step: ActionStep, run: Run[str]) -> None:
        if step.observations:
            step.observations = f"[checked] {step.observations}"
            run.memory.steps[0].task = "Edited task"

    def shout(step: FinalAnswerStep) -> None:
        step.output = f"{step.output}!"

    agent = an_agent(stamp, shout, store=kept)
    result = await agent.run("task", run_id="r1")
    assert [message.text for message in agent.model.requests[1].messages] == ["Edited task", "", "[checked] 4"]
    assert result.output == "Four.!"
    assert result.memory.steps[-1].output == "Four.!"
    if kept is not None:
        read = await an_agent(store=kept).read("r1")
        assert (read.output, read.memory) == ("Four.!", result.memory)


@pytest.mark.parametrize("store", [None, MemoryStore], ids=["no store", "store"])
async def test_each_attempt_of_the_first_node_begins_with_the_task_as_callbacks_have_changed_it(store):
    """The first model request and that of a retry have the changed task, the callback is called once, and events arrive."""
    failing = ["yes"]

    @node
    async def check(ctx: Context, said: str) -> str:
        ctx.emit(Checked(ctx.run_id))
        await ctx.turn(ModelRequest(await ctx.build_prompt(())))
        if failing:
            failing.pop()
            raise ValueError("once more")
        return "Done."

    def redact(step: TaskStep) -> None:
        CALLED.append(step.task)
        step.task = "[redacted]"

    model = ScriptedModel(["One.", "Two."])
    agent = Agent(
        Strategy("checking", START >> check.retry(attempts=2, wait=0) >> END),
        model=model, step_callbacks=[redact], store=store() if store else None,
    )  # fmt: skip
    heard = list[Checked]()
    agent.on(Checked, heard.append)
    run = await agent.run("secret")

    assert [request.messages[-1].text for request in model.requests] == ["[redacted]"] * 2
    assert run.memory.steps[0].task == "[redacted]"
    assert CALLED == ["secret"]
    assert len(heard) == 2


async def test_steps_may_be_added_by_callbacks():
    """What a callback appends stands before the step that it saw."""

    def warn(step: ActionStep, run: Run[str]) -> None:
        if step.observations == "4":
            run.memory.steps.append(MessageStep(Message.user("[alert]")))

    agent = an_agent(warn)
    result = await agent.run("task")
    assert names(result.memory.steps) == ["TaskStep", "MessageStep", "ActionStep", "ActionStep", "FinalAnswerStep"]
    assert [message.text for message in agent.model.requests[1].messages] == ["task", "[alert]", "", "4"]


# ---- pause


@pytest.mark.parametrize("kind", [TaskStep, MessageStep, ActionStep, FinalAnswerStep])
@pytest.mark.parametrize("where", ["in memory", "with a store", "in another process"])
async def test_a_callback_may_pause_the_run(kind, where):
    """Behind any step the run stops before its next node or live call, and goes on as often as it was paused."""
    seen = []

    def stop(step, run):
        seen.append(type(step).__name__)
        if isinstance(step, kind):
            run.pause(f"look at the {kind.__name__}")

    store = None if where == "in memory" else MemoryStore()
    first = llm_request(tools=False, name="first")
    said = Strategy("said", START >> first, first.map(lambda text: f"{text}?") >> react >> END)
    model = ScriptedModel(["Hm", *SCRIPT])

    def agent():
        return Agent(said, model=model, tools=[double], step_callbacks=[stop], store=store)

    run = agent().start("task", run_id="r1")
    stops = 0
    while not (result := await run.finish()).done:
        stops += 1
        assert (result.status, stops < 10) == ("paused", True)
        if where == "in another process":
            run = await agent().read("r1")
    assert stops == (0 if kind is FinalAnswerStep else 3 if kind is ActionStep else 1)
    assert (result.output, len(model.requests), CALLED) == ("Four.", 3, [2])
    assert names(result.memory.steps) == [
        "TaskStep", "ActionStep", "MessageStep", "ActionStep", "ActionStep", "FinalAnswerStep",
    ]  # fmt: skip
    assert seen == names(result.memory.steps)


async def test_a_pause_by_the_one_who_sees_a_tool_call_holds_that_call():
    """The call is made when the run goes on; it is not shown a second time."""
    seen = []

    def hold(call: ToolCall, run: Run[str]) -> None:
        seen.append(call.name)
        run.pause("really?")

    run = an_agent(hold).start("task")
    assert ((await run.finish()).status, CALLED) == ("paused", [])
    assert ((await run.finish()).output, CALLED, seen) == ("Four.", [2], ["double"])


# ---- vetoes


async def test_a_refused_answer_is_asked_for_again_with_the_reason():
    """The model sees its answer and why it does not count; the refused turn says so in the transcript."""

    def no_numbers(step: ActionStep) -> None:
        if step.model_output and "4" in step.model_output:
            raise Veto("write numbers as words")

    agent = an_agent(no_numbers, replies=["4", "It is 4.", "Four."])
    result = await agent.run("task")
    assert result.output == "Four."
    assert [message.text for message in agent.model.requests[2].messages] == [
        "task",
        "4", "Error:\nVeto: write numbers as words",
        "It is 4.", "Error:\nVeto: write numbers as words",
    ]  # fmt: skip
    turns = [step for step in result.memory.steps if isinstance(step, ActionStep)]
    assert [turn.error and turn.error.message for turn in turns] == ["write numbers as words"] * 2 + [None]
    assert result.turns == 3


@pytest.mark.parametrize("where", ["in memory", "in another process"])
async def test_a_refused_answer_stays_refused_when_the_run_is_broken_off(where):
    """The answer is not asked for a second time, nor does it come through."""

    def no(step: ActionStep) -> None:
        if step.model_output == "No.":
            raise Veto("say yes")

    store = None if where == "in memory" else MemoryStore()
    model = ScriptedModel(["No.", ModelRequestError("down"), "Yes."])

    def agent():
        return Agent(react, model=model, step_callbacks=[no], store=store)

    run = agent().start("task", run_id="r1")
    with pytest.raises(NodeFailedError):
        await run.finish()
    if where == "in another process":
        run = await agent().read("r1")
    result = await run.finish()
    assert (result.output, len(model.requests)) == ("Yes.", 3)
    assert [message.text for message in model.requests[2].messages] == ["task", "No.", "Error:\nVeto: say yes"]
    said = [step.model_output for step in result.memory.steps if isinstance(step, ActionStep) and step.model_output]
    assert said == ["No.", "Yes."]


async def test_a_refused_tool_call_is_not_made_and_the_model_is_told():
    """Others of the same turn are made; async callbacks may refuse as well."""

    async def guard(call: ToolCall) -> None:
        await anyio.lowlevel.checkpoint()
        if call.arguments["n"] > 2:
            raise Veto("too large")

    agent = an_agent(guard, replies=[ToolCalls([ToolCall("double", {"n": n}) for n in (2, 3)]), "ok"])
    result = await agent.run("task")
    assert (result.output, CALLED) == ("ok", [2])
    assert result.memory.steps[1].observations == "4\nError: this call was refused: too large"
    assert [found.is_error for found in result.memory.steps[1].results] == [False, True]


async def test_one_callback_may_see_steps_and_calls():
    """A union of both is called for both."""
    seen = []

    def both(what: ToolCall | FinalAnswerStep) -> None:
        seen.append(type(what).__name__)

    await an_agent(both).run("task")
    assert seen == ["ToolCall", "FinalAnswerStep"]


@pytest.mark.parametrize("store", [None, MemoryStore], ids=["in memory", "in another process"])
async def test_a_refused_task_executes_nothing(store):
    """The run ends before its first node, however often it is gone on with, until the callback lets the task pass."""
    ran, asked, weekday = [], [], "Sunday"
    kept = store() if store else None

    @node
    async def first(ctx: Context, said: str) -> str:
        ran.append(said)
        return said

    def no(step: TaskStep) -> None:
        asked.append(weekday)
        if weekday == "Sunday":
            raise Veto("not on Sundays")

    agent = Agent(Strategy("s", START >> first >> END), step_callbacks=[no], store=kept)
    run = agent.start("task", run_id="r1")
    for _ in range(3):
        with pytest.raises(VetoError, match="refused a TaskStep") as info:
            await run.finish()
        assert (info.value.step, info.value.reason, info.value.run_id) == ("TaskStep", "not on Sundays", "r1")
        assert (run.status, ran) == ("failed", [])
        assert "Sundays" not in str(info.value)
        if kept is not None:
            run = await agent.read("r1")
    weekday = "Monday"
    assert ((await run.finish()).output, ran) == ("task", ["task"])
    assert asked == ["Sunday", "Sunday", "Sunday", "Monday"]


async def test_a_refused_turn_with_tool_calls_ends_the_run_behind_it():
    """Its calls were made already. The step stands; no error path hides the refusal; going on overrules it."""

    def no(step: ActionStep) -> None:
        if step.tool_calls:
            raise Veto("stop here")

    @node
    async def mend(ctx: Context, error: Exception) -> str:
        return "mended"

    strategy = Strategy("s", START >> react >> END, react.on_error(Exception) >> mend >> END)
    run = an_agent(no, strategy=strategy).start("task")
    with pytest.raises(VetoError, match="refused an ActionStep"):
        await run.finish()
    assert run.memory.steps[-1].observations == "4"
    assert ((await run.finish()).output, CALLED) == ("Four.", [2])


async def test_a_refused_final_answer_is_asked_for_again():
    """As with final checks, the model is told why; an answer that no model can mend ends the run with a VetoError."""

    def long(step: FinalAnswerStep) -> None:
        if len(str(step.output)) < 10:
            raise Veto("too short")

    agent = an_agent(long, replies=["Four.", "It is four, of course."])
    result = await agent.run("task")
    assert result.output == "It is four, of course."
    assert agent.model.requests[1].messages[-1].text == "Your answer was refused: too short. Answer again."
    assert names(result.memory.steps) == ["TaskStep", "ActionStep", "MessageStep", "ActionStep", "FinalAnswerStep"]

    run = Agent(Strategy("s", START >> upper >> END), step_callbacks=[long]).start("x")
    with pytest.raises(VetoError, match="FinalAnswerStep"):
        await run.finish()
    assert (run.status, run.done, names(run.memory.steps)) == ("failed", False, ["TaskStep"])
    with pytest.raises(RunError, match="it failed with VetoError"):
        _ = run.output


async def test_a_refused_plan_is_not_carried_out():
    """The run ends behind the plan, before any turn; whoever goes on with it overrules the callback."""

    def safe(step: PlanningStep) -> None:
        raise Veto("nothing may be deleted")

    model = ScriptedModel(["1. delete it", "Done."])
    run = Agent(react, model=model, planning_interval=5, step_callbacks=[safe]).start("task")
    with pytest.raises(VetoError, match="PlanningStep"):
        await run.finish()
    assert (names(run.memory.steps), len(model.requests)) == (["TaskStep", "PlanningStep"], 1)
    assert (await run.finish()).output == "Done."
    assert names(run.memory.steps) == ["TaskStep", "PlanningStep", "ActionStep", "FinalAnswerStep"]


# ---- callbacks that fail


@pytest.mark.parametrize("kind", [TaskStep, MessageStep, ActionStep, FinalAnswerStep])
@pytest.mark.parametrize("store", [None, MemoryStore], ids=["in memory", "with a store"])
async def test_a_callback_that_raises_loses_no_step(kind, store):
    """The step stands in the transcript, other callbacks have seen it too, and the run goes on behind it."""
    broken, seen = [True], []

    def explode(step):
        if isinstance(step, kind) and broken:
            broken.pop()
            raise RuntimeError("secret")

    kept = store() if store else None
    run = an_agent(explode, lambda step: seen.append(step), strategy=chatty, store=kept).start("task", run_id="r1")
    with pytest.raises(HandlerError, match=r"'explode' of .* failed with RuntimeError") as info:
        await run.finish()
    assert isinstance(info.value.__cause__, RuntimeError)
    assert (info.value.event, info.value.run_id) == (kind.__name__, "r1")
    assert "secret" not in str(info.value)
    assert isinstance(run.memory.steps[-1], kind)
    assert seen[-1] is run.memory.steps[-1]
    result = await run.finish()
    assert (result.output, CALLED) == ("Four.", [2])
    assert names(result.memory.steps) == names(seen)
    assert names(seen) == ["TaskStep", "MessageStep", "ActionStep", "ActionStep", "FinalAnswerStep"]


async def test_a_callback_that_raises_at_a_tool_call_leaves_the_call_unmade():
    """The run ends; when it goes on the callback is asked again, and the call is made once."""
    broken = [True]

    def guard(call: ToolCall) -> None:
        if broken:
            broken.pop()
            raise RuntimeError

    run = an_agent(guard).start("task")
    with pytest.raises(HandlerError, match="'guard' of ToolCall"):
        await run.finish()
    assert CALLED == []
    assert ((await run.finish()).output, CALLED) == ("Four.", [2])


async def test_a_veto_beside_a_callback_that_raises_is_not_lost():
    """The run ends with what was raised; the refused answer stays refused."""
    broken = [True]

    def explode(step: ActionStep) -> None:
        if broken:
            broken.pop()
            raise RuntimeError

    def no(step: ActionStep) -> None:
        if step.model_output == "No.":
            raise Veto("say yes")

    run = an_agent(explode, no, replies=["No.", "Yes."]).start("task")
    with pytest.raises(HandlerError):
        await run.finish()
    assert (await run.finish()).output == "Yes."


async def test_a_veto_in_one_branch_is_not_taken_for_that_of_another():
    """Each branch deals with the refusals of its own answers."""

    def no(step: ActionStep) -> None:
        if step.model_output.startswith("no"):
            raise Veto(f"not {step.model_output}")

    replies = {"a": "no a", "b": "no b", "c": "yes c"}

    def reply(request):
        text = request.messages[-1].text
        return f"yes {text.removeprefix('Error:').split()[-1]}" if "Veto" in text else replies[text]

    model = ScriptedModel([reply] * 5)
    whole = each(llm_request(tools=False))
    agent = Agent(Strategy("s", START >> whole >> END), model=model, step_callbacks=[no])
    assert (await agent.run(["a", "b", "c"])).output == ["yes a", "yes b", "yes c"]


@pytest.mark.parametrize("slow", ["a", "b"])
@pytest.mark.parametrize("transcript", ["keep", "drop"])
async def test_callbacks_of_branches_see_and_edit_the_transcripts_of_their_branches(transcript, slow):
    """Though several are called at once, each changes the steps of its own branch, and that is what the model is sent there."""
    seen, ask, again = [], llm_request(tools=False, name="ask"), llm_request(tools=False, name="again")

    async def note(step: ActionStep, run: Run[str]) -> None:
        for _ in range(9 if step.model_output == f"re {slow}" else 3):
            await anyio.lowlevel.checkpoint()
        seen.append(run.memory.to_messages())
        run.memory.steps.append(MessageStep(Message.user(f"note on {step.model_output}")))

    model = ScriptedModel([lambda request: f"re {request.messages[-1].text}"] * 4)
    branch = Strategy("branch", START >> ask >> again >> END)
    strategy = Strategy("s", START >> each(branch, transcript=transcript) >> END)
    run = Agent(strategy, model=model, step_callbacks=[note], store=MemoryStore()).start(["a", "b"])
    assert (await run.finish()).output == ["re re a", "re re b"]
    sent = sorted([message.text for message in request.messages] for request in model.requests)
    assert sent == [["a"], ["a", "note on re a", "re a", "re a"], ["b"], ["b", "note on re b", "re b", "re b"]]
    assert sorted([message.text for message in messages] for messages in seen) == sorted(
        [*texts, f"re {texts[-1]}"] for texts in sent
    )
    kept = [step.message.text for step in run.memory.steps if isinstance(step, MessageStep)]
    assert [text for text in kept if text.startswith("note")] == (
        ["note on re a", "note on re re a", "note on re b", "note on re re b"] if transcript == "keep" else []
    )


async def test_a_run_may_be_read_in_a_callback():
    """Its status, result and transcript are those of the moment."""
    seen = []

    def look(step: ActionStep, run: Run[str]) -> None:
        seen.append((run.status, run.done, run.result.turns, run.result.usage.total_tokens > 0))

    await an_agent(look).run("task")
    assert seen == [("running", False, 1, True), ("running", False, 2, True)]


@pytest.mark.parametrize("store", [False, True])
@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("observations", 5, "the observations of an ActionStep is text or None, not an int"),
        ("model_output_message", "text", "the model_output_message of an ActionStep is a Message or None, not a str"),
        ("results", ["x"], "the results of an ActionStep is a tuple of ToolResult, not a list"),
        ("step_number", "x", "the step_number of an ActionStep is an int, not a str"),
    ],
)
async def test_a_wrong_value_that_a_callback_writes_is_told_with_its_name(store, name, value, said):
    """The run ends as where the callback raises; the step has what it had, and the others see it so."""
    seen = []

    def meddle(step: ActionStep) -> None:
        setattr(step, name, value)

    def look(step: ActionStep) -> None:
        seen.append(getattr(step, name))

    agent = Agent(
        Strategy("s", START >> llm_request() >> END), model=ScriptedModel(["hi"]), step_callbacks=[meddle, look],
        store=MemoryStore() if store else None,
    )  # fmt: skip
    run = agent.start("x")
    with pytest.raises(HandlerError, match=f"'meddle' of ActionStep wrote a wrong value: {said}") as caught:
        await run.finish()
    assert isinstance(caught.value.__cause__, TypeError)
    assert value not in seen
    assert [step.model_output for step in run.memory.steps if isinstance(step, ActionStep)] == ["hi"]


async def test_a_callback_is_called_again_only_if_the_process_died_before_its_step_was_committed():
    """Cut after each commit, a run is resumed: no call of the tool, and at most one of the callbacks, is made again."""

    async def life(store, called, resumed):
        @tool
        def pay(name: str) -> str:
            """Pay somebody."""
            called["pay"] += 1
            return f"paid {name}"

        def see(step: Step) -> None:
            called[type(step).__name__] += 1

        def guard(call: ToolCall) -> None:
            called["guard"] += 1

        def reply(request):
            return "done" if request.messages[-1].role == "tool" else ToolCall("pay", {"name": "Ada"}, id="a")

        model = ScriptedModel([reply] * 3)
        agent = Agent(single_run(), model=model, tools=[pay], store=store, step_callbacks=[see, guard])
        return await (agent.resume("r") if resumed else agent.run("Pay.", run_id="r"))

    whole, store = Counter(), Watched()
    await life(store, whole, resumed=False)
    assert whole == {"TaskStep": 1, "guard": 1, "pay": 1, "ActionStep": 2, "FinalAnswerStep": 1}
    for number in range(1, len(store.commits)):
        called = Counter()
        assert (await life(await cut(store.commits[:number]), called, resumed=True)).output == "done"
        assert called <= whole, number
