"""Streams: the events of a run, read while they happen."""

from __future__ import annotations

import math

import anyio
import anyio.lowlevel
import pytest

from graphagent import END, START, Agent, Context, Run, Strategy, each, node, parallel, tool
from graphagent.errors import BudgetError, HandlerError, NodeFailedError
from graphagent.events import (
    Event,
    ModelResponded,
    NodeStarted,
    RunFailed,
    RunFinished,
    RunResumed,
    RunStarted,
    RunSuspended,
    StepCommitted,
    TextStreamed,
)
from graphagent.llm import ToolCall, ToolCalls
from graphagent.nodes import ask_human, execute_tools, llm_request
from graphagent.run import RunStream
from graphagent.testing import ScriptedModel


@tool
async def double(n: int) -> int:
    """Double a number."""
    return n * 2


@node
async def upper(ctx: Context, said: str) -> str:
    return said.upper()


@node
async def count(ctx: Context, said: str) -> int:
    return len(said)


@node
async def gather(ctx: Context, found: list[int]) -> str:
    return f"{found}"


@node
async def fail(ctx: Context, said: str) -> str:
    raise ValueError(said)


ask, act = llm_request(), execute_tools()
react = Strategy("react", START >> ask, ask.on(ToolCalls) >> act >> ask, ask.on(str) >> END)
words = upper.named("words")
nested = Strategy(
    "nested",
    START >> react >> words,
    words.map(str.split) >> each(Strategy("inner", START >> upper >> count >> END)) >> gather >> END,
)


def an_agent(strategy=react, replies=None):
    model = ScriptedModel(replies or [ToolCall("double", {"n": 2}), "That is four."])
    return Agent(strategy, model=model, tools=[double])


def told(events):
    """What events say, without what is different in each run."""
    return [(type(event).__name__, getattr(event, "node", ""), getattr(event, "text", "")) for event in events]


@pytest.mark.parametrize("strategy", [react, nested], ids=lambda strategy: strategy.name)
async def test_a_stream_gives_what_a_run_without_it_does(strategy):
    """The events come in the same order, and transcript and result are the same, over any strategy."""
    plain, heard = an_agent(strategy), []
    plain.on(Event, heard.append)
    without = await plain.run("task")
    events = []
    async with an_agent(strategy).stream("task") as stream:
        async for event in stream:
            events.append(event)
    assert told(events) == told(heard)
    result = stream.result
    assert (result.output, result.status, result.usage) == (without.output, "done", without.usage)
    assert [type(step) for step in result.memory.steps] == [type(step) for step in without.memory.steps]
    assert result.memory.to_messages()[-1] == without.memory.to_messages()[-1]


async def test_what_the_model_says_comes_in_pieces_before_it_has_ended():
    """TextStreamed is read while the model still speaks; the pieces are its answer."""
    spoken = anyio.Event()

    class Slow(ScriptedModel):
        async def respond(self, request, on_text=None):
            on_text("Hello ")
            await spoken.wait()
            on_text("you.")
            return self.answer(request)

    agent = Agent(Strategy("s", START >> llm_request(tools=False) >> END), model=Slow(["Hello you."]))
    pieces = []
    async with agent.stream("hi") as events:
        async for event in events:
            if isinstance(event, TextStreamed):
                pieces.append((event.text, events.run.status))
                spoken.set()
    assert pieces == [("Hello ", "running"), ("you.", "done")]


async def test_an_early_end_of_the_block_cancels_the_run_which_can_be_gone_on_with():
    """Nothing of what was done is done again: the model is asked once for each turn, the tool is called once."""
    calls = []

    @tool
    async def note(n: int) -> int:
        """Note a number."""
        calls.append(n)
        return n

    model = ScriptedModel([ToolCall("note", {"n": 1}), ToolCall("note", {"n": 2}), "done"])
    agent = Agent(react, model=model, tools=[note])
    async with agent.stream("task") as events:
        async for event in events:
            if isinstance(event, StepCommitted):
                break
    assert events.result.status == "cancelled"
    assert calls in ([1], [1, 2])
    result = await events.run.finish()
    assert (result.output, calls, len(model.requests)) == ("done", [1, 2], 3)
    assert [type(step).__name__ for step in result.memory.steps] == [
        "TaskStep", "ActionStep", "ActionStep", "ActionStep", "FinalAnswerStep",
    ]  # fmt: skip


async def test_a_block_that_is_left_by_an_error_of_its_own_raises_that_error():
    """The error of who reads is neither wrapped nor lost, and the run is cancelled."""
    with pytest.raises(KeyError, match="mine"):
        async with an_agent().stream("task") as events:
            async for _ in events:
                raise KeyError("mine")
    assert events.result.status == "cancelled"


async def test_errors_of_the_run_are_raised_where_its_events_are_read():
    """What happened before is read first, RunFailed included; then the error comes, once."""
    agent = Agent(Strategy("s", START >> upper >> fail >> END))
    events = []
    async with agent.stream("x") as stream:
        with pytest.raises(NodeFailedError, match="'fail' failed with ValueError"):
            async for event in stream:
                events.append(type(event).__name__)
        with pytest.raises(StopAsyncIteration):
            await anext(stream)
    assert events == ["RunStarted", "NodeStarted", "NodeFinished", "NodeStarted", "NodeFailed", "RunFailed"]
    assert stream.result.status == "failed"


async def test_an_error_that_nobody_read_is_raised_at_the_end_of_the_block():
    """A failed run does not look like one that went well."""
    agent = Agent(Strategy("s", START >> fail >> END))
    with pytest.raises(NodeFailedError):
        async with agent.stream("x") as stream:
            while stream.run.status != "failed":
                await anyio.lowlevel.checkpoint()


async def test_events_that_nobody_reads_do_not_hold_up_the_run():
    """A run comes to its end while its reader does something else, and all events can be read then."""
    loop = Strategy("loop", START >> count.named("n") >> END)
    many = Strategy("many", START >> words, words.map(str.split) >> each(loop) >> gather >> END)
    async with Agent(many, max_nodes=None).stream(" ".join(["word"] * 500)) as stream:
        with anyio.fail_after(600):
            while not stream.run.done:
                await anyio.lowlevel.checkpoint()
        kinds = [type(event) async for event in stream]
    assert kinds[0] is RunStarted
    assert kinds[-1] is RunFinished
    assert kinds.count(NodeStarted) == 1003


async def test_streams_stand_in_task_groups_and_cancel_scopes():
    """Several at once, in tasks and within time limits; a limit from outside ends the block and cancels the run."""
    results = {}

    async def read(number):
        with anyio.fail_after(600):
            async with an_agent(replies=[ToolCall("double", {"n": number}), f"run {number}"]).stream("task") as events:
                async for _ in events:
                    await anyio.lowlevel.checkpoint()
        results[number] = events.result.output

    async with anyio.create_task_group() as group:
        for number in range(5):
            group.start_soon(read, number)
    assert results == {number: f"run {number}" for number in range(5)}

    @node
    async def wait(ctx: Context, said: str) -> str:
        await anyio.sleep(math.inf)
        return said

    agent = Agent(Strategy("s", START >> wait >> END))
    with anyio.move_on_after(0.02) as scope:
        async with agent.stream("x") as events:
            async for _ in events:
                pass
    assert scope.cancelled_caught
    assert events.result.status == "cancelled"


async def test_a_stream_inside_a_stream():
    """A reader may run another stream while it reads: each has its own events."""
    inside = []
    async with an_agent().stream("outer") as events:
        async for event in events:
            if isinstance(event, ModelResponded):
                async with an_agent().stream("inner") as others:
                    inside += [other.run_id async for other in others]
    assert events.result.done
    assert events.run.run_id not in inside
    assert len(set(inside)) == 2


async def test_a_run_that_waits_ends_its_events():
    """The last event says what it waits for; with the answer, a new stream reads how it goes on."""
    approve = ask_human("Send it?", bool)
    agent = Agent(Strategy("s", START >> upper >> approve >> END))
    async with agent.stream("x") as events:
        kinds = [type(event) async for event in events]
    assert kinds[-1] is RunSuspended
    assert events.result.pending.question == "Send it?"
    events.run.answer(True)
    async with RunStream(events.run) as later:
        kinds = [type(event) async for event in later]
    assert (kinds[0], kinds[-1], later.result.output) == (RunResumed, RunFinished, True)
    assert [event async for event in events] == []


async def test_a_stream_is_read_once():
    """Entering its block again is refused, with the remedy."""
    stream = an_agent().stream("x")
    async with stream:
        pass
    with pytest.raises(RuntimeError, match=r"RunStream\(events.run\)"):
        async with stream:
            pass


async def test_handlers_of_the_agent_are_called_as_well():
    """Listeners and a stream hear the same; what a listener raises ends the run, and is raised where the events are read."""
    heard = []
    agent = an_agent()
    agent.on(RunStarted, heard.append)
    async with agent.stream("x") as events:
        assert heard == [await anext(events)]
        async for _ in events:
            pass

    def explode(event):
        raise RuntimeError("secret")

    agent = an_agent()
    agent.on(ModelResponded, explode)
    async with agent.stream("x") as events:
        with pytest.raises(HandlerError, match="explode"):
            async for _ in events:
                pass
    assert events.result.status == "failed"


async def test_a_used_up_budget_is_raised_from_the_stream():
    """BudgetError comes where the events are read; the run goes on with more."""
    async with an_agent().stream("x") as events:
        events.run.allow(max_turns=1)
        with pytest.raises(BudgetError, match="1 turns"):
            async for _ in events:
                pass
    events.run.allow(max_turns=2)
    assert (await events.run.finish()).output == "That is four."


async def test_the_run_can_be_watched_from_outside_the_block():
    """A stream may be made before a loop runs, and its run has an id at once."""
    stream = an_agent().stream("x", run_id="mine", owner="ada")
    assert isinstance(stream.run, Run)
    assert (stream.run.run_id, stream.run.owner, stream.result.status) == ("mine", "ada", "ready")
    async with stream as events:
        failed = [event async for event in events if isinstance(event, RunFailed)]
    assert failed == []


async def test_forks_tell_their_events_in_a_stream():
    """Branches are told as they happen, under their paths."""
    strategy = Strategy("s", START >> parallel(upper, count) >> END)
    async with Agent(strategy).stream("x") as events:
        nodes = {event.node async for event in events if isinstance(event, NodeStarted)}
    assert nodes == {"parallel", "parallel/0/upper", "parallel/1/count"}
