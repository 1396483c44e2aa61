"""A run in one's own hands: step by step, paused, broken off and gone on with, its transcript changed on the way."""

from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import ClassVar

import anyio
import anyio.lowlevel
import pytest

from graphagent import END, START, Agent, Context, Run, Strategy, each, node, parallel, race, tap, tool
from graphagent.errors import AnswerError, BudgetError, HandlerError, ModelRequestError, NodeFailedError, RunError
from graphagent.events import (
    Event,
    NodeFinished,
    PathTaken,
    RunFailed,
    RunFinished,
    RunResumed,
    RunStarted,
    RunSuspended,
    StepCommitted,
)
from graphagent.history import read_run
from graphagent.llm import Message, ModelResponse, ToolCall, ToolCalls, Usage
from graphagent.memory import ActionStep, FinalAnswerStep, MessageStep, RunMemory, Step, TaskStep
from graphagent.nodes import ask_human, execute_tools, llm_request, update_prompt
from graphagent.store import MemoryStore
from graphagent.testing import ScriptedModel
from tests.counting import calls
from tests.run.lives import Watched, cut
from tests.thorough import some


@tool
async def double(n: int) -> int:
    """Double a number."""
    return n * 2


@node
async def upper(ctx: Context, said: str) -> str:
    return said.upper()


@node
async def shown(ctx: Context, value: object) -> str:
    return f"{value}"


@node
async def wait(ctx: Context, said: str) -> str:
    await anyio.sleep(math.inf)
    return said


ask, act = llm_request(), execute_tools()
react = Strategy("react", START >> ask, ask.on(ToolCalls) >> act >> ask, ask.on(str) >> END)
SCRIPT = [ToolCall("double", {"n": 2}), ToolCall("double", {"n": 4}), "Eight."]


def an_agent(strategy=react, replies=SCRIPT, **settings):
    return Agent(strategy, model=ScriptedModel(replies), tools=[double], **settings)


def only(*nodes, **settings):
    path = START >> nodes[0]
    for each_ in nodes[1:]:
        path = path >> each_
    return Agent(Strategy("s", path >> END), **settings)


def told(steps):
    """What steps say, without times and ids."""
    found = []
    for step in steps:
        if isinstance(step, ActionStep):
            found.append((step.step_number, step.model_output, step.observations, step.error and step.error.message))
        elif isinstance(step, MessageStep):
            found.append(step.message.text)
        else:
            found.append((type(step).__name__, getattr(step, "task", getattr(step, "output", None))))
    return found


async def stepped(run):
    found = []
    while (step := await run.step()) is not None:
        found.append(step)
    return found


# ---- step by step


async def test_nothing_happens_before_the_first_step():
    """`start` makes a run that is ready: no model is asked, no event told, and its transcript holds the task."""
    events = []
    agent = an_agent()
    agent.on(Event, events.append)
    run = agent.start("What is twice four?", run_id="r1", owner="ada")
    assert isinstance(run, Run)
    assert (run.run_id, run.owner, run.status, run.done, run.questions) == ("r1", "ada", "new", False, ())
    assert told(run.memory.steps) == [("TaskStep", "What is twice four?")]
    with pytest.raises(RunError, match="'r1' has no output: it has not begun"):
        _ = run.output
    assert agent.model.requests == events == []


async def test_steps_come_one_by_one():
    """Each step is given when it stands in the transcript, and nothing behind it has been executed; None is the end."""
    agent = an_agent()
    run = agent.start("task")
    first = await run.step()
    assert run.memory.steps[-1] is first
    assert (first.observations, len(agent.model.requests), run.status) == ("4", 1, "running")
    second = await run.step()
    assert (second.observations, len(agent.model.requests)) == ("8", 2)
    third = await run.step()
    assert (third.model_output, run.done) == ("Eight.", False)
    last = await run.step()
    assert isinstance(last, FinalAnswerStep)
    assert run.memory.steps == [run.memory.steps[0], first, second, third, last]
    assert await run.step() is None
    assert (run.done, run.output, run.status) == (True, "Eight.", "done")
    assert await run.step() is None
    assert (await run.finish()).output == "Eight."
    assert len(agent.model.requests) == 3


async def test_a_run_in_steps_is_the_run_as_a_whole():
    """Events, transcript, counts and result are the same."""

    async def whole(agent):
        return await agent.run("task")

    async def in_steps(agent):
        run = agent.start("task")
        await stepped(run)
        return run.result

    found = []
    for go in (whole, in_steps):
        events = []
        agent = an_agent()
        agent.on(Event, lambda event, events=events: events.append(type(event).__name__))
        result = await go(agent)
        found.append((events, told(result.memory.steps), result.output, result.nodes, result.turns, result.usage))
    assert found[0] == found[1]


async def test_steps_may_be_taken_by_different_tasks():
    """Each step in a task and a cancel scope of its own; no task outlives its call, forks included."""
    fork = parallel(react, Strategy("inner", START >> upper >> update_prompt("and") >> END), transcript="keep")
    agent = an_agent(Strategy("s", START >> fork >> shown >> update_prompt("so") >> END))
    run = agent.start("task")
    found = []

    async def step():
        with anyio.fail_after(600):
            found.append(await run.step())

    before = len(anyio.get_running_tasks())
    while not found or found[-1] is not None:
        async with anyio.create_task_group() as group:
            group.start_soon(step)
        assert len(anyio.get_running_tasks()) == before
    assert run.done
    assert sorted(type(step).__name__ for step in found[:-1]) == [
        "ActionStep", "ActionStep", "ActionStep", "FinalAnswerStep", "MessageStep", "MessageStep",
    ]  # fmt: skip


async def test_a_fork_runs_to_its_join_and_then_hands_out_its_steps():
    """All branches have ended when the first of their steps is given; what is behind the fork has not begun."""
    model = ScriptedModel(itertools.repeat(lambda request: request.messages[-1].text * 2))
    said = llm_request(tools=False)
    whole = each(said, transcript="keep")
    behind = []

    @tap
    async def note(ctx: Context, value: object) -> None:
        behind.append(value)

    run = Agent(Strategy("s", START >> whole >> note >> shown >> END), model=model).start(["a", "b", "c"])
    first = await run.step()
    assert (len(model.requests), behind) == (3, [])
    inside = [first, *[await run.step() for _ in range(5)]]
    assert behind == []
    assert sorted(step.model_output for step in inside if isinstance(step, ActionStep)) == ["aa", "bb", "cc"]
    assert told(run.memory.steps[1:]) == [
        "a",
        (1, "aa", None, None),
        "b",
        (1, "bb", None, None),
        "c",
        (1, "cc", None, None),
    ]
    assert isinstance(await run.step(), FinalAnswerStep)
    assert behind == [["aa", "bb", "cc"]]


async def test_steps_stop_inside_strategies_that_are_used_as_nodes():
    """A step of a subgraph is given before the subgraph goes on, however deep it stands."""
    deep = Strategy("deep", START >> react >> END)
    agent = an_agent(Strategy("outer", START >> Strategy("middle", START >> deep >> upper >> END) >> END))
    run = agent.start("task")
    assert [(await run.step()).observations, len(agent.model.requests)] == ["4", 1]
    assert [(await run.step()).observations, len(agent.model.requests)] == ["8", 2]
    assert [type(step).__name__ for step in await stepped(run)] == ["ActionStep", "FinalAnswerStep"]
    assert run.output == "EIGHT."


async def test_a_run_can_be_finished_behind_some_steps():
    """`finish` goes on to the end, also where steps of a fork were not all taken; those that were not taken are in the transcript."""
    run = an_agent().start("task")
    await run.step()
    assert (await run.finish()).output == "Eight."
    assert await run.step() is None

    fork = parallel(
        Strategy("a", START >> update_prompt("one") >> upper >> END), update_prompt_then("two"), transcript="keep"
    )
    run = only(fork, shown).start("x")
    assert told([await run.step()]) == ["one"]
    result = await run.finish()
    assert (result.status, result.output) == ("done", "('X', 'X')")
    assert told(run.memory.steps)[1:3] == ["one", "two"]
    assert await run.step() is None


def update_prompt_then(said):
    return Strategy(said, START >> update_prompt(said) >> upper >> END)


async def test_one_task_at_a_time():
    """A second task that would go on with the same run is refused, and the first is not disturbed."""
    run = only(wait).start("x", run_id="r1")
    async with anyio.create_task_group() as group:
        group.start_soon(run.finish)
        await anyio.wait_all_tasks_blocked()
        for go_on in (run.step, run.finish):
            with pytest.raises(RunError, match="'r1' is being executed already") as info:
                await go_on()
            assert info.value.run_id == "r1"
        assert run.status == "running"
        group.cancel_scope.cancel()
    assert run.status == "cancelled"


async def test_a_run_as_a_block_is_let_go_behind_it():
    """Without a store there is nothing to let go: it goes on afterwards."""
    async with an_agent().start("task") as run:
        await run.step()
    await run.aclose()
    assert (await run.finish()).output == "Eight."


# ---- waiting and pausing

approve = ask_human("Send it?", bool)


async def test_a_run_that_waits_gives_no_step_until_it_is_answered():
    """`step` gives None, and None again; with the answer it goes on."""
    events = []
    agent = only(update_prompt("so"), upper, approve, shown)
    agent.on(Event, lambda event: events.append(type(event)))
    run = agent.start("x", run_id="r1")
    assert told(await stepped(run)) == ["so"]
    assert (run.status, run.questions[0].question, run.done) == ("waiting", "Send it?", False)
    assert events[-1] is RunSuspended
    seen = len(events)
    assert await run.step() is None
    assert (await run.finish()).status == "waiting"
    assert len(events) == seen  # nothing was executed: nothing can be done without the answer
    with pytest.raises(RunError, match=r"'r1' has no output: it waits for an answer: Send it?"):
        _ = run.output
    run.answer(True)
    assert told(await stepped(run)) == [("FinalAnswerStep", "True")]
    assert events[seen] is RunResumed
    assert (run.result.nodes, run.questions) == (4, ())


async def test_a_pause_stops_before_the_next_node():
    """What was begun is ended, the reason is told, and the run goes on where it stood."""
    began, may_end = anyio.Event(), anyio.Event()

    @node
    async def long(ctx: Context, said: str) -> str:
        began.set()
        await may_end.wait()
        return said

    events = []
    agent = only(long, upper)
    agent.on(RunSuspended, events.append)
    run = agent.start("x")

    async def pause():
        await began.wait()
        run.pause("lunch")
        may_end.set()

    async with anyio.create_task_group() as group:
        group.start_soon(pause)
        result = await run.finish()
    assert (result.status, result.nodes, events[0].reason) == ("paused", 1, "lunch")
    with pytest.raises(RunError, match="it was paused: lunch"):
        _ = result.output
    assert (await run.finish()).output == "X"
    assert run.result.nodes == 2


async def test_a_pause_before_the_first_node_executes_nothing():
    """A run that was paused before it began begins, and stops before its first node."""
    ran = []

    @node
    async def first(ctx: Context, said: str) -> str:
        ran.append(said)
        return said

    run = only(first).start("x")
    run.pause("not yet")
    assert ((await run.finish()).status, ran) == ("paused", [])
    assert ((await run.finish()).output, ran) == ("x", ["x"])


async def test_a_pause_stops_between_the_tool_calls_of_a_turn():
    """Calls that were made keep their results, and are not made again; the others are made when the run goes on."""
    made = []

    @tool
    async def note(n: int, ctx: Context) -> int:
        """Note a number."""
        made.append(n)
        if n == 2:
            run.pause("enough")
        return n

    calls = ToolCalls([ToolCall("note", {"n": n}) for n in (1, 2, 3, 4)])
    model = ScriptedModel([calls, "done"])
    run = Agent(react, model=model, tools=[note]).start("task")
    assert ((await run.finish()).status, made) == ("paused", [1, 2])
    assert [each.content for each in run.memory.open.results] == ["1", "2"]
    result = await run.finish()
    assert (result.output, made, len(model.requests), result.nodes) == ("done", [1, 2, 3, 4], 2, 3)
    assert run.memory.steps[1].observations == "1\n2\n3\n4"


@pytest.mark.parametrize("store", [None, MemoryStore], ids=["in memory", "in another process"])
async def test_a_pause_stops_before_a_model_turn(store):
    """A node that has begun but asked no model yet asks it when the run goes on; what it added stands there once."""
    kept = store() if store else None
    said = []

    def look(step, run):
        said.append(told([step])[0])
        if isinstance(step, MessageStep):
            run.pause("read this first")

    model = ScriptedModel(["one", "two"])
    again = llm_request(tools=False, name="again")
    first = llm_request(tools=False)
    strategy = Strategy("s", START >> first, first.map(lambda text: f"{text}?") >> again >> END)
    run = Agent(strategy, model=model, step_callbacks=[look], store=kept).start("task", run_id="r1")
    assert ((await run.finish()).status, len(model.requests)) == ("paused", 1)
    if kept is not None:
        run = await Agent(strategy, model=model, step_callbacks=[look], store=kept).read("r1")
    assert told(run.memory.steps) == [("TaskStep", "task"), (1, "one", None, None), "one?"]
    run.memory.steps[-1].message = Message.user("Really?")  # edits of what the node said stay
    assert (await run.finish()).output == "two"
    assert [message.text for message in model.requests[1].messages] == ["task", "one", "Really?"]
    assert said == [
        ("TaskStep", "task"), (1, "one", None, None), "one?", (2, "two", None, None), ("FinalAnswerStep", "two"),
    ]  # fmt: skip


async def test_a_pause_in_steps():
    """The step that was added is given first, then None tells of the pause; the next `step` goes on."""

    def stop(step: ActionStep, run):
        if step.step_number == 1:
            run.pause("look")

    run = an_agent(step_callbacks=[stop]).start("task")
    assert (await run.step()).step_number == 1
    assert (await run.step(), run.status) == (None, "paused")
    assert [type(step).__name__ for step in await stepped(run)] == ["ActionStep", "ActionStep", "FinalAnswerStep"]


async def test_a_pause_inside_a_fork_stops_every_branch():
    """Branches stop each before their next node, and go on from there."""
    executed, both = [], anyio.Event()

    @node
    async def first(ctx: Context, n: int) -> int:
        executed.append(("first", n))
        if n == 2:
            run.pause("hold")
            both.set()
        await both.wait()
        return n

    @node
    async def second(ctx: Context, n: int) -> int:
        executed.append(("second", n))
        return n * 10

    run = only(each(Strategy("branch", START >> first >> second >> END), limit=2)).start([1, 2, 3])
    assert ((await run.finish()).status, sorted(executed)) == ("paused", [("first", 1), ("first", 2)])
    assert (await run.finish()).output == [10, 20, 30]
    assert sorted(executed) == [(name, n) for name in ("first", "second") for n in (1, 2, 3)]
    assert run.result.nodes == 6


async def test_a_pause_reaches_a_node_that_asks_models_in_a_task_group_of_its_own():
    """Waiting is not an error of the node, whatever wraps it: what was answered already is kept."""
    said = llm_request(tools=False)

    @node
    async def both(ctx: Context, topic: str) -> str:
        from graphagent.llm import ModelRequest

        found = {}

        async def one(key):
            found[key] = (await ctx.request(ModelRequest((Message.user(key),)), key=key)).message.text

        async with anyio.create_task_group() as group:
            group.start_soon(one, "a")
            group.start_soon(one, "b")
        return " ".join(found[key] for key in "ab")

    replies = {"x": "first", "a": "1", "b": "2"}
    model = ScriptedModel(itertools.repeat(lambda request: replies[request.messages[-1].text]))
    run = Agent(Strategy("s", START >> said >> both >> END), model=model).start("x")
    await run.step()
    run.pause("hold")
    assert (await run.finish()).status == "paused"
    assert (await run.finish()).output == "1 2"
    assert len(model.requests) == 3


async def test_a_pause_and_a_question_at_once():
    """A run that is paused while a branch asks can go on; when nothing is left to do it waits for the answer."""

    @node
    async def stop(ctx: Context, said: str) -> str:
        await anyio.sleep(0.01)
        run.pause("hold")
        return said

    fork = parallel(approve, Strategy("other", START >> stop >> upper >> END))
    run = only(fork, shown).start("x")
    result = await run.finish()
    assert (result.status, result.pending.question) == ("paused", "Send it?")
    assert (await run.finish()).status == "waiting"
    run.answer(False)
    assert (await run.finish()).output == "(False, 'X')"


# ---- broken off and gone on with


async def test_a_failed_run_goes_on_where_it_failed():
    """What was executed before is not executed again; the failed node is."""
    executed, broken = [], [True]

    @node
    async def first(ctx: Context, said: str) -> str:
        executed.append("first")
        return said

    @node
    async def flaky(ctx: Context, said: str) -> str:
        executed.append("flaky")
        if broken.pop() if broken else False:
            raise ConnectionError("down")
        return said.upper()

    events = []
    agent = only(first, flaky)
    agent.on(Event, lambda event: events.append(type(event)))
    run = agent.start("x")
    with pytest.raises(NodeFailedError):
        await run.finish()
    assert (run.status, run.done) == ("failed", False)
    with pytest.raises(RunError, match="it failed with NodeFailedError"):
        _ = run.output
    assert (await run.finish()).output == "X"
    assert executed == ["first", "flaky", "flaky"]
    assert (
        events.count(RunStarted)
        == events.count(RunFailed)
        == events.count(RunResumed)
        == events.count(RunFinished)
        == 1
    )
    assert run.result.nodes == 3  # each attempt counts


@pytest.mark.parametrize("store", [None, MemoryStore], ids=["in memory", "in another process"])
async def test_a_failed_model_turn_stands_in_the_transcript_and_is_not_sent(store):
    """The error is recorded in a step of its own, which stays when the run goes on; the model is sent the same again."""
    kept = store() if store else None
    model = ScriptedModel([ToolCall("double", {"n": 2}), ModelRequestError("overloaded"), "Four."])
    run = Agent(react, model=model, tools=[double], store=kept).start("task", run_id="r1")
    with pytest.raises(NodeFailedError):
        await run.finish()
    if kept is not None:
        run = await Agent(react, model=model, tools=[double], store=kept).read("r1")
    failed = run.memory.steps[-1]
    assert (failed.step_number, failed.error.type, failed.error.message) == (2, "ModelRequestError", "overloaded")
    assert failed.model_input_messages == model.requests[1].messages
    assert (await run.finish()).output == "Four."
    assert model.requests[2].messages == model.requests[1].messages
    assert told(run.memory.steps) == [
        ("TaskStep", "task"), (1, "", "4", None), (2, None, None, "overloaded"), (3, "Four.", None, None),
        ("FinalAnswerStep", "Four."),
    ]  # fmt: skip


async def test_a_failed_model_turn_is_not_lost_when_the_process_dies_behind_the_next_one():
    """However far the run has come since when the process dies, the turn that failed stands in the transcript, once."""
    store = Watched()
    agent = Agent(
        Strategy("s", START >> upper >> llm_request() >> END),
        model=ScriptedModel([ModelRequestError("overloaded"), "Four."]),
        store=store,
    )
    with pytest.raises(NodeFailedError):
        await agent.run("task", run_id="r1")
    stopped = len(store.commits)
    await agent.resume("r1")
    expected = ["task", "TASK", "overloaded"]
    for commits in range(stopped, len(store.commits) + 1):
        left = await cut(store.commits[:commits])
        run = await Agent(agent.strategy, model=ScriptedModel(["Four."]), store=left).read("r1")
        kept = (await read_run(left, "r1")).memory
        for memory in (run.memory, kept):
            assert [_gist(each_) for each_ in memory.steps[:3]] == expected, commits
        if commits < len(store.commits):
            await run.finish()
            assert [_gist(each_) for each_ in run.memory.steps] == [*expected, None, "Four."]


def _gist(step):
    match step:
        case TaskStep():
            return step.task
        case MessageStep():
            return step.message.text
        case ActionStep():
            return step.error and step.error.message
        case _:
            return step.output


class Struck(Exception):
    """What breaks a run off in these tests."""


class World:
    """A run with model turns, tools, subgraphs and forks, that is broken off at one of its moments."""

    def __init__(self, at=0, how="none"):
        self.at, self.how, self.moments = at, how, 0
        self.done: dict[str, int] = {}
        """How often each thing was done."""
        self.run = None
        self.scope = anyio.CancelScope()

    async def moment(self, what):
        """Do something that must be done once; this may be where the run is broken off, before or behind it."""
        self.moments += 1
        mine = self.moments == self.at
        if mine and self.how == "error" and not what.startswith("tool"):  # what a tool raises is the model's to see
            raise Struck
        if mine and self.how == "cancel":
            self.scope.cancel()
            await anyio.lowlevel.checkpoint()
        await anyio.lowlevel.checkpoint()
        self.done[what] = self.done.get(what, 0) + 1
        if mine and self.how == "pause":
            self.run.pause("hold")
        if mine and self.how == "cancel after":
            self.scope.cancel()  # meets the next moment of waiting, behind the end of this one

    def agent(self, store=None):
        world = self

        class Model:
            name = "m"

            async def respond(self, request, on_text=None):
                text = request.messages[-1].text
                await world.moment(f"model: {len(request.messages)} {text}")
                return world.reply(request)

        @tool
        async def note(n: int) -> str:
            """Note a number."""
            await world.moment(f"tool {n}")
            return f"noted {n}"

        @node
        async def plain(ctx: Context, said: str) -> str:
            await world.moment(f"plain {ctx.node} {said}")
            return said.upper()

        @node
        async def split(ctx: Context, said: str) -> list[str]:
            await world.moment("split")
            return said.split()

        @node
        async def joined(ctx: Context, found: object) -> str:
            await world.moment(ctx.node)
            return f"{found}"

        chat, tools = llm_request(), execute_tools(limit=2)
        inner = Strategy("inner", START >> chat, chat.on(ToolCalls) >> tools >> chat, chat.on(str) >> END)
        small = Strategy("small", START >> plain >> llm_request(tools=False) >> END)
        words = Strategy("words", START >> split >> each(small, limit=2, transcript="keep") >> joined >> END)
        fork = parallel(words, plain.named("beside"), race(plain.named("only"), name="alone"))
        outer = Strategy(
            "outer",
            START
            >> inner
            >> update_prompt("Go on.")
            >> fork
            >> joined.named("last")
            >> llm_request(name="end", tools=False)
            >> END,
        )
        return Agent(outer, model=Model(), tools=[note], store=store)

    def reply(self, request):
        text = request.messages[-1].text
        if text == "task":
            return self.response(*[ToolCall("note", {"n": n}, id=f"call {n}") for n in (1, 2, 3)])
        if text.startswith("noted"):
            return self.response("alpha beta gamma")
        return self.response(f"<{text}>")

    @staticmethod
    def response(*said):
        calls = [each_ for each_ in said if isinstance(each_, ToolCall)]
        text = "".join(each_ for each_ in said if isinstance(each_, str))
        return ModelResponse(Message.assistant(text, calls), Usage(1, 1))

    async def execute(self, store=None, *, elsewhere=False):
        """Start the run, and go on as often as it takes. Give the result, and how often it was broken off."""
        self.run = self.agent(store).start("task", run_id="r1")
        for broken in itertools.count():
            if broken and elsewhere:
                self.run = await self.agent(store).read("r1")
            with self.scope:
                try:
                    result = await self.run.finish()
                except NodeFailedError as error:
                    cause = error
                    while isinstance(cause, NodeFailedError):
                        cause = cause.__cause__
                    assert isinstance(cause, Struck)
                else:
                    if result.done:
                        return result, broken
                    assert result.status == "paused"
            self.scope = anyio.CancelScope()
        raise AssertionError


async def the_whole_world():
    world = World()
    result, broken = await world.execute()
    assert broken == 0
    return world, result


@pytest.mark.parametrize("where", ["in memory", "in the same object", "in another one"])
@pytest.mark.parametrize("how", ["error", "cancel", "cancel after", "pause"])
async def test_a_run_broken_off_at_any_moment_goes_on_as_if_nothing_had_happened(how, where):
    """The same output and the same transcript, with a store and without; what was done and recorded is never done again."""
    whole, expected = await the_whole_world()
    assert whole.moments > 15
    for moment in some(range(1, whole.moments + 1), 3, thorough=10, salt=f"{how} {where}"):
        world = World(moment, how)
        store = None if where == "in memory" else MemoryStore()
        result, broken = await world.execute(store, elsewhere=where == "in another one")
        assert (result.output, result.status) == (expected.output, "done"), moment
        steps = [step for step in result.memory.steps if not getattr(step, "error", None)]
        assert told(steps) == told(expected.memory.steps), moment
        assert result.memory.to_messages() == expected.memory.to_messages(), moment
        assert broken <= 1, moment
        twice = {what: times for what, times in world.done.items() if times > 1}
        if how == "cancel after":  # what ended in the same moment in which its node was cancelled was not recorded
            assert len(twice) <= 2, (moment, twice)
        elif how == "cancel":  # in the middle of a fork, the other branches were in the middle of something too
            assert len(twice) <= 4, (moment, twice)
        else:
            assert not twice, (moment, twice)


async def test_a_handler_that_breaks_off_a_run_does_not_repeat_the_node():
    """A listener that raises behind the end of a node ends the run; the node's output is used when the run goes on."""
    for kind in (NodeFinished, PathTaken, StepCommitted):
        executed, broken = [], [True]

        @node
        async def once(ctx: Context, said: str, executed=executed) -> str:
            executed.append(said)
            await ctx.add(MessageStep(Message.user("hello")))
            return said

        def explode(event, broken=broken):
            if broken and broken.pop():
                raise RuntimeError

        agent = Agent(Strategy("s", START >> once, once.when(lambda said: bool(said)) >> shown >> END, once >> END))
        agent.on(kind, explode)
        run = agent.start("x")
        with pytest.raises(HandlerError):
            await run.finish()
        assert run.status == "failed"
        assert (await run.finish()).output == "x"
        assert executed == ["x"], kind
        assert told(run.memory.steps) == [("TaskStep", "x"), "hello", ("FinalAnswerStep", "x")], kind


async def test_an_iterator_is_not_used_up_by_a_run_that_is_broken_off():
    """The items of an `each` are all worked on, though its input can be looked at only once."""

    @node
    async def numbers(ctx: Context, top: int) -> Iterator[int]:
        return iter(range(top))

    broken = [True]

    @node
    async def fragile(ctx: Context, n: int) -> int:
        if n == 2 and broken and broken.pop():
            raise ConnectionError
        return n * 10

    agent = Agent(Strategy("s", START >> numbers >> each(fragile, limit=1) >> END))
    run = agent.start(4)
    with pytest.raises(NodeFailedError):
        await run.finish()
    assert (await run.finish()).output == [0, 10, 20, 30]
    broken.append(True)
    patient = Agent(Strategy("s", START >> numbers >> each(fragile, limit=1).retry(attempts=2, wait=0) >> END))
    assert (await patient.run(4)).output == [0, 10, 20, 30]


async def test_retries_are_counted_over_a_break():
    """A node that waits for its second attempt when the run is cancelled has its second attempt when it goes on, and no third."""
    attempts = []

    @node
    async def flaky(ctx: Context, said: str) -> str:
        attempts.append(ctx.attempt)
        scope.deadline = anyio.current_time() + 0.02
        raise ConnectionError

    run = only(flaky.retry(attempts=2, wait=60)).start("x")
    with anyio.CancelScope() as scope:
        await run.finish()
    assert (run.status, attempts) == ("cancelled", [1])
    with pytest.raises(NodeFailedError):
        await run.finish()
    assert attempts == [1, 2]


# ---- budgets


async def test_a_run_out_of_budget_goes_on_with_more():
    """Turns, nodes, tokens, money: BudgetError, then `allow` and `finish`; nothing is lost, and no turn is asked for twice."""

    class Priced(ScriptedModel):
        tells_cost = True

        async def respond(self, request, on_text=None):
            response = await super().respond(request, on_text)
            return ModelResponse(response.message, Usage(10, 0, cost=Decimal("0.10")), response.finish_reason)

    for budget, small, more in [
        ("turns", 1, 3),
        ("nodes", 2, 10),
        ("tokens", 15, 100),
        ("cost", Decimal("0.15"), Decimal(1)),
    ]:
        model = Priced(SCRIPT)
        run = Agent(react, model=model, tools=[double], **{f"max_{budget}": small}).start("task")
        with pytest.raises(BudgetError) as info:
            await run.finish()
        assert (info.value.budget, info.value.limit, run.status) == (budget, small, "failed")
        done = len(model.requests)
        with pytest.raises(BudgetError):
            await run.finish()
        assert len(model.requests) == done
        run.set_budgets(**{f"max_{budget}": more})
        result = await run.finish()
        assert (result.output, len(model.requests), result.turns) == ("Eight.", 3, 3), budget
        assert [step.observations for step in run.memory.steps if isinstance(step, ActionStep)] == ["4", "8", None]


async def test_a_handler_of_a_run_hears_events_of_its_type_of_that_run_alone():
    """After those of the agent, and until the run ends; what it raises ends the run."""
    heard = []
    agent = only(upper)
    agent.on(NodeFinished, lambda event: heard.append("agent"))
    one, other = agent.start("x"), agent.start("x")
    one.on(NodeFinished, lambda event: heard.append(event.run_id))
    for run in (one, other):
        await run.finish()
    assert heard == ["agent", one.run_id, "agent"]
    failing = agent.start("x")
    failing.on(NodeFinished, lambda event: {}[event.node])
    with pytest.raises(HandlerError, match="of NodeFinished"):
        await failing.finish()
    with pytest.raises(TypeError, match="leave it out for NodeFinished"):
        failing.on(NodeFinished, print, all_text=True)


async def test_what_is_no_budget_is_refused():
    """`set_budgets` takes numbers of 0 or more, and changes nothing where one is wrong."""
    run = an_agent(max_turns=1).start("task")
    with pytest.raises(ValueError, match="max_turns=-1 is not a budget"):
        run.set_budgets(max_nodes=100, max_turns=-1)
    with pytest.raises(BudgetError, match="1 turn "):
        await run.finish()


async def test_time_counts_while_the_run_is_executed():
    """The seconds of several steps are added up; those between them do not count. With more the run goes on."""

    @node
    async def slow(ctx: Context, n: int) -> int:
        await ctx.add(MessageStep(Message.user(f"{n}")))
        await anyio.sleep(0.3)
        return n + 1

    loop = Strategy("loop", START >> slow, slow.when(lambda n: n < 5) >> slow, slow.otherwise() >> END)
    run = Agent(loop, max_seconds=1).start(1)
    found = []
    with pytest.raises(BudgetError, match="1 second"):
        while (step := await run.step()) is not None:
            found.append(step)
            await anyio.sleep(0.6)
    assert 2 <= len(found) <= 3
    assert run.result.seconds >= 1
    with pytest.raises(BudgetError):
        await run.step()
    run.set_budgets(max_seconds=20)
    assert (await run.finish()).output == 5
    assert told(run.memory.steps)[1:-1] == ["1", "2", "3", "4"]


async def test_a_subgraphs_budget_counts_over_breaks():
    """A strategy's own budget holds for one entering of it, however often the run was broken off inside."""
    model = ScriptedModel(itertools.repeat(ToolCall("double", {"n": 1})))
    inner = react.using(max_turns=3)
    run = Agent(Strategy("s", START >> inner >> END), model=model, tools=[double]).start("task")
    with pytest.raises(BudgetError) as info:
        await stepped(run)
    assert (info.value.where, info.value.limit, len(model.requests)) == ("react", 3, 3)


# ---- the transcript in one's own hands


@dataclass(slots=True)
class Weather(Step):
    """A type of one's own."""

    kind: ClassVar[str] = "test_weather"

    sky: str

    def to_messages(self):
        return [Message.user(f"The sky is {self.sky}.")]


async def test_steps_may_be_appended_before_a_run_and_between_its_steps():
    """The model sees them from the next turn on; a step without number and time is fine, and so are types of one's own."""
    agent = an_agent()
    run = agent.start("task")
    run.memory.steps.append(ActionStep(step_number=0, observations="Yesterday it was down."))
    await run.step()
    run.memory.steps.append(Weather("grey"))
    run.memory.steps.append(TaskStep(task="Another one."))
    await run.step()
    sent = [[message.text for message in request.messages] for request in agent.model.requests]
    assert sent[0] == ["task", "Observation:\nYesterday it was down."]
    assert sent[1] == ["task", "Observation:\nYesterday it was down.", "", "4", "The sky is grey.", "Another one."]
    assert (await run.finish()).output == "Eight."
    assert [step.step_number for step in run.memory.steps if isinstance(step, ActionStep)] == [0, 1, 2, 3]


async def test_steps_may_be_assigned_inserted_and_deleted():
    """Any change of the list reaches the model with the next turn."""
    agent = an_agent()
    run = agent.start("task")
    await run.step()
    run.memory.steps.insert(0, TaskStep(task="Before."))
    run.memory.steps[-1].observations = "five"
    await run.step()
    run.memory.steps[2] = MessageStep(Message.user("[removed]"))
    await run.step()
    sent = [[message.text for message in request.messages] for request in agent.model.requests]
    assert sent[1] == ["Before.", "task", "", "five"]
    assert sent[2] == ["Before.", "task", "[removed]", "", "8"]
    run.memory.steps = [run.memory.steps[1]]
    assert (await run.finish()).output == "Eight."
    assert told(run.memory.steps) == [("TaskStep", "task"), ("FinalAnswerStep", "Eight.")]


async def test_another_runs_transcript_is_taken_over_as_a_copy():
    """`steps=` puts it before the task, an unfinished turn included; neither run changes the other's."""
    first = an_agent().start("one")
    await first.step()
    saved = first.memory.to_json()
    agent = an_agent(replies=["ok"])
    second = agent.start("two", steps=first.memory)
    assert told(second.memory.steps) == [("TaskStep", "one"), (1, "", "4", None), ("TaskStep", "two")]
    second.memory.steps[1].observations = "changed"
    await second.finish()
    assert first.memory == RunMemory.from_json(saved)
    assert [message.text for message in agent.model.requests[0].messages] == ["one", "", "changed", "two"]
    assert [step.step_number for step in second.memory.steps if isinstance(step, ActionStep)] == [1, 2]


def test_a_turn_behind_many_earlier_ones_costs_no_more_for_each_of_them():
    """Four times as many earlier turns with tool calls are at most about four times the work of the next one."""

    def work(turns):
        earlier = [
            ActionStep(step_number=n, model_output_message=Message.assistant(calls=[ToolCall("double", {"n": n}, f"c{n}")]))
            for n in range(turns)
        ]  # fmt: skip
        agent = an_agent(replies=[ToolCall("double", {"n": 1}, "c0"), "done"])
        return calls(lambda: anyio.run(lambda: agent.run("Again.", steps=RunMemory("", earlier))))

    few, more, many = work(50), work(100), work(200)
    assert many - more < 3 * (more - few)


async def test_a_turn_that_waits_for_its_tools_is_shown():
    """While calls are executed the turn stands beside the steps, and in what the model would be sent."""
    strategy = Strategy("s", START >> ask, ask.on(ToolCalls) >> approve >> shown >> END, ask.on(str) >> END)
    run = an_agent(strategy).start("task")
    await run.finish()
    assert told([run.memory.open]) == [(1, "", None, None)]
    assert [message.role for message in run.memory.to_messages()] == ["user", "assistant", "tool"]
    run.answer(True)
    await run.finish()
    assert run.memory.open is None
    assert told(run.memory.steps) == [("TaskStep", "task"), (1, "", None, None), ("FinalAnswerStep", "True")]


@pytest.mark.parametrize("elsewhere", [False, True], ids=["here", "in another process"])
async def test_the_results_that_are_there_are_shown_while_a_run_waits(elsewhere, capsys):
    """Calls beside one that waits for a person were made: people see what they gave; the model sees all at once, later."""

    @tool(approve=True)
    async def send(to: str) -> str:
        """Send it."""
        return f"sent to {to}"

    store = MemoryStore()
    script = [[ToolCall("double", {"n": 21}), ToolCall("send", {"to": "Ann"}), ToolCall("double", {"n": 4})], "Done."]

    agent = Agent(react, model=ScriptedModel(script), tools=[double, send], store=store)
    run = agent.start("task", run_id="r1")
    await run.finish()
    if elsewhere:
        run = await agent.read("r1")
    run.replay()
    shown = """\
    Called double({"n": 21}):
        42
    Called send({"to": "Ann"})
    Called double({"n": 4}):
        8

Waiting for the results of its other tool calls."""
    assert shown in capsys.readouterr().out
    assert shown in (await read_run(store, "r1")).memory.to_text()
    assert [each.content for each in run.memory.open.results] == ["42", "8"]
    run.answer(True)
    await run.finish()
    assert [result.content for result in run.memory.steps[1].results] == ["42", "sent to Ann", "8"]
    run.replay()
    assert "Waiting" not in capsys.readouterr().out


@node
async def broken(ctx: Context, value: str) -> str:
    raise ConnectionError("the database is down\x1b[2J")


DOWN = """it failed with NodeFailedError: node 'broken' failed with ConnectionError
    ConnectionError: the database is down\\x1b[2J"""
USED_UP = (
    "it failed with BudgetError: the budget of 1 turn is used up; give it more with Agent(max_turns=…) to go further"
)
TWICE = START >> llm_request(tools=False, name="a") >> llm_request(tools=False, name="b") >> END


@pytest.mark.parametrize(
    ("path", "status", "reason"),
    [
        (START >> broken >> END, "failed", DOWN),
        (TWICE, "failed", USED_UP),
        (START >> ask_human("Send it?", bool) >> END, "waiting", "it waits for an answer: Send it?"),
    ],
    ids=["an error", "a budget", "a question"],
)
async def test_a_run_that_did_not_end_is_shown_with_the_reason(path, status, reason, capsys):
    """By the agent, by the run, read with the agent and read without: the same text, with the error that a node raised."""
    store = MemoryStore()
    agent = Agent(Strategy("s", path), model=ScriptedModel(["a", "b"]), max_turns=1, store=store)
    with contextlib.suppress(RunError):
        await agent.run("x", run_id="r")
    stored = await read_run(store, "r")
    texts = [stored.to_text() + "\n"]
    for shown in (agent, await agent.read("r")):
        shown.replay()
        texts.append(capsys.readouterr().out)
    assert (len(set(texts)), stored.head.status) == (1, status)
    assert texts[0].endswith(f"\n\n{status.capitalize()}:\n    {reason}\n")


async def test_a_paused_run_is_shown_with_the_reason(capsys):
    """And one that goes on without it, up to its answer."""
    run = Agent(Strategy("s", TWICE), model=ScriptedModel(["a", "b"])).start("x")
    await run.step()
    run.pause("for lunch")
    await run.finish()
    run.replay()
    assert capsys.readouterr().out.endswith("\n\nPaused:\n    it was paused: for lunch\n")
    await run.finish()
    run.replay()
    assert capsys.readouterr().out.endswith("\n\nFinal answer:\n    b\n")


async def test_steps_that_are_no_steps_are_refused():
    """The list takes steps only, whatever way they come."""
    run = an_agent().start("task")
    with pytest.raises(TypeError, match="made of steps"):
        run.memory.steps.append("task")
    assert len(run.memory.steps) == 1


async def test_answers_need_a_question():
    """A run that waits for nothing takes no answer."""
    run = an_agent().start("task", run_id="r1")
    with pytest.raises(AnswerError, match="'r1' waits for no answer"):
        run.answer(True)
    with pytest.raises(TypeError, match=r"no answer was given: .*answers="):
        run.answer()
    run.answer(answers={})
    assert (await run.finish()).output == "Eight."


async def test_a_run_that_has_ended_takes_no_answer():
    """An answer that nobody asked for is an error that names the run, whether it ended or failed."""

    @node
    async def broken(ctx: Context, said: str) -> str:
        raise ValueError

    store = MemoryStore()
    agent = only(ask_human("Really?", str), upper, store=store)
    await agent.run("task", run_id="r1")
    assert (await agent.resume("r1", answer="yes")).output == "YES"
    with pytest.raises(AnswerError, match="run 'r1' has ended and waits for no answer; leave it out") as info:
        await agent.resume("r1", answer="no")
    assert info.value.run_id == "r1"
    for given in ({"answers": {"q": "no"}}, {"results": {"q": "no"}}):
        with pytest.raises(AnswerError, match="run 'r1' has no open question 'q'; open are: none"):
            await agent.resume("r1", **given)
    assert (await agent.resume("r1")).output == "YES"

    failing = only(broken, store=store)
    with pytest.raises(NodeFailedError):
        await failing.run("task", run_id="r2")
    with pytest.raises(AnswerError, match="run 'r2' waits for no answer"):
        await failing.resume("r2", answer="no")


async def test_runs_of_one_agent_do_not_disturb_each_other():
    """Steps of two runs may be taken in turns."""
    model = ScriptedModel(itertools.repeat(lambda request: request.messages[0].text * (len(request.messages) + 1)))
    agent = Agent(
        Strategy("s", START >> llm_request(tools=False) >> upper >> llm_request(tools=False, name="b") >> END),
        model=model,
    )
    runs = [agent.start(task) for task in ("a", "b")]
    for run in (*runs, *reversed(runs), *runs):
        await run.step()
    assert [(await run.finish()).output for run in runs] == ["aaaa", "bbbb"]


@pytest.mark.parametrize("looked", [False, True], ids=["nobody looked", "it has its copy"])
async def test_steps_that_are_inserted_while_a_branch_has_begun_shift_nothing(looked):
    """A branch that has written nothing yet is read as it was: with the steps inserted if nobody had looked at it, else without."""

    @tool
    async def look(what: str) -> str:
        """Look."""
        return "seen"

    @tap
    async def see(ctx: Context, text: str) -> None:
        if looked:
            assert ctx.memory.steps

    ask, act = llm_request(), execute_tools()
    inner = Strategy(
        "inner",
        START >> see >> ask_human("Well?", str) >> ask,
        ask.on(ToolCalls) >> act >> ask,
        ask.on(str) >> END,
    )
    strategy = Strategy("s", START >> parallel(inner, transcript="keep") >> END)
    replies = [ToolCall("look", {"what": "x"}), "fine"]
    agent = Agent(strategy, model=ScriptedModel(replies), tools=[look], store=MemoryStore())
    run = agent.start("go", run_id="r")
    assert (await run.finish()).status == "waiting"
    run.memory.steps.insert(0, MessageStep(Message.user("inserted")))
    run.answer("yes")
    result = await run.finish()
    assert result.output == ("fine",)
    assert (await agent.read("r")).memory == result.memory
