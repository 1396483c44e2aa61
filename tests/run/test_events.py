"""Events: what is told, in which order, to whom, and that telling changes nothing."""

from __future__ import annotations

import dataclasses
import functools

import anyio
import pytest

from graphagent import END, START, Agent, Context, Strategy, node, parallel, race, tool
from graphagent.errors import BudgetError, HandlerError, NodeFailedError
from graphagent.events import (
    Event,
    ModelRequested,
    ModelResponded,
    NodeFailed,
    NodeFinished,
    NodeStarted,
    RunFailed,
    RunFinished,
    RunStarted,
    StepCommitted,
    TextStreamed,
    ToolCalled,
    ToolReturned,
)
from graphagent.llm import ToolCall, ToolCalls
from graphagent.nodes import execute_tools, llm_request, passthrough
from graphagent.testing import ScriptedModel
from tests.run.executors import both_executors  # noqa: F401  a fixture

text = passthrough(str, name="text")


@tool
async def double(n: int) -> int:
    """Double a number."""
    return n * 2


def single():
    ask, act = llm_request(), execute_tools()
    return Strategy("single", START >> ask, ask.on(ToolCalls) >> act >> ask, ask.on(str) >> END)


def an_agent():
    return Agent(single(), model=ScriptedModel([ToolCall("double", {"n": 4}), "It is eight."]), tools=[double])


@node
async def fail(ctx: Context, said: str) -> str:
    raise ValueError("x")


def explode(event):
    raise RuntimeError("secret")


def names(events):
    return [type(event).__name__ for event in events]


async def test_a_small_run_tells_its_events_in_order():
    """All events of a run with one tool call, in the order in which things happened."""
    told = []
    agent = an_agent()
    agent.on(Event, told.append)
    result = await agent.run("task", owner="ada")
    assert names(told) == [
        "RunStarted",
        "NodeStarted", "ModelRequested", "ModelResponded", "NodeFinished", "PathTaken",
        "NodeStarted", "ToolCalled", "ToolReturned", "NodeFinished", "StepCommitted",
        "NodeStarted", "ModelRequested", "TextStreamed", "TextStreamed", "TextStreamed", "ModelResponded",
        "NodeFinished", "PathTaken", "StepCommitted",
        "RunAnswered", "StepCommitted", "RunFinished",
    ]  # fmt: skip
    assert {event.run_id for event in told} == {result.run_id}
    assert (told[0].strategy, told[0].owner) == ("single", "ada")
    assert (told[1].node, told[1].input) == ("llm_request", "task")
    assert (told[5].path, told[5].target) == ("on ToolCalls", "execute_tools")
    assert (told[7].call.name, told[8].result.content) == ("double", "8")
    assert (told[-5].path, told[-5].target) == ("on str", "END")
    assert [event.step for event in told if isinstance(event, StepCommitted)] == result.memory.steps[1:]
    assert (told[-1].output, told[-1].usage) == ("It is eight.", result.usage)


async def test_a_handler_of_a_type_hears_that_type_only():
    """Handlers are called for their type and what derives from it, in the order of their registration."""
    told = []
    agent = an_agent()
    agent.on(NodeStarted, lambda event: told.append(("first", event.node)))
    agent.on(NodeStarted, lambda event: told.append(("second", event.node)))
    agent.on(ToolCalled, lambda event: told.append(("tool", event.call.name)))
    await agent.run("task")
    assert told == [
        ("first", "llm_request"),
        ("second", "llm_request"),
        ("first", "execute_tools"),
        ("second", "execute_tools"),
        ("tool", "double"),
        ("first", "llm_request"),
        ("second", "llm_request"),
    ]


async def test_an_event_of_ones_own_is_heard():
    """A node may emit an event of a type of its own, and handlers of its base classes hear it."""

    @dataclasses.dataclass(frozen=True)
    class Noted(Event):
        what: str

    @node
    async def note(ctx: Context, said: str) -> str:
        ctx.emit(Noted(ctx.run_id, said))
        return said

    mine, every = [], []
    agent = Agent(Strategy("s", START >> note >> END))
    agent.on(Noted, mine.append)
    agent.on(Event, every.append)
    await agent.run("x")
    assert names(mine) == ["Noted"]
    assert names(every) == [
        "RunStarted",
        "NodeStarted",
        "Noted",
        "NodeFinished",
        "RunAnswered",
        "StepCommitted",
        "RunFinished",
    ]


async def test_handlers_may_be_added_between_runs():
    """A handler that is added later hears the runs that begin later."""
    told = []
    agent = Agent(Strategy("s", START >> text >> END))
    await agent.run("x", run_id="one")
    agent.on(RunStarted, lambda event: told.append(event.run_id))
    await agent.run("x", run_id="two")
    assert told == ["two"]


# ---- handlers that fail


def wrapped_strategies():
    inner = Strategy("inner", START >> text >> END)
    caught = Strategy("s", START >> inner, inner.on_error(Exception).map(str) >> END, inner >> END)
    branches = (text, text.named("b"))
    return {
        "plain": Strategy("s", START >> text >> END),
        "subgraph": caught,
        "retry": Strategy("s", START >> inner.retry(attempts=5, wait=0) >> END),
        "collect": Strategy("s", START >> parallel(*branches, failures="collect") >> END),
        "race": Strategy("s", START >> race(*branches) >> END),
    }


@pytest.mark.parametrize("where", list(wrapped_strategies()))
async def test_what_a_handler_raises_ends_the_run(where):
    """Error paths, retries and forks do not take it; the error says which handler and event, and keeps the cause."""
    calls = []

    def guard(event):
        if event.node.endswith("text"):
            calls.append(event)
            raise RuntimeError("secret")

    agent = Agent(wrapped_strategies()[where])
    agent.on(NodeStarted, guard)
    with pytest.raises(HandlerError) as info:
        await agent.run("x", run_id="r1")
    assert (info.value.event, info.value.run_id) == ("NodeStarted", "r1")
    assert isinstance(info.value.__cause__, RuntimeError)
    assert "guard" in str(info.value)
    assert "secret" not in str(info.value)
    assert len(calls) == 1


async def test_a_handler_that_fails_in_a_race_ends_the_others():
    """The branches that are still at it are cancelled."""

    @node
    async def wait(ctx: Context, said: str) -> str:
        await anyio.sleep_forever()
        return ""

    def guard(event):
        if event.node.endswith("text"):
            raise RuntimeError

    agent = Agent(Strategy("s", START >> race(wait, text) >> END))
    agent.on(NodeStarted, guard)
    with anyio.fail_after(600), pytest.raises(HandlerError):
        await agent.run("x")


@pytest.mark.parametrize("event", [RunStarted, ModelRequested, TextStreamed, ModelResponded, RunFinished])
async def test_a_handler_may_fail_anywhere(event):
    """Whichever event it was, the run ends with the HandlerError."""
    agent = Agent(single(), model=ScriptedModel(["hello"]))
    agent.on(event, explode)
    with pytest.raises(HandlerError) as info:
        await agent.run("x")
    assert info.value.event == event.__name__


@pytest.mark.parametrize("limit", [1, 3])
@pytest.mark.parametrize("event", [ToolCalled, ToolReturned])
async def test_a_handler_that_fails_among_tool_calls_ends_the_run(event, limit):
    """It is no error of the tool, and comes as itself also where calls run at once."""
    ask, act = llm_request(), execute_tools(limit=limit)
    strategy = Strategy("s", START >> ask, ask.on(ToolCalls) >> act >> ask, ask.on(str) >> END)
    calls = [ToolCall("double", {"n": n}) for n in range(3)]
    agent = Agent(strategy, model=ScriptedModel([calls]), tools=[double])
    agent.on(event, explode)
    with pytest.raises(HandlerError):
        await agent.run("x")


async def test_async_handlers_are_refused():
    """A handler must be a plain function, however its being async is wrapped."""

    async def handler(event):
        """Never called."""

    class Handler:
        async def __call__(self, event):
            """Never called."""

    agent = Agent(Strategy("s", START >> text >> END))
    for wrong in (handler, functools.partial(handler), Handler()):
        with pytest.raises(TypeError, match="async"):
            agent.on(NodeStarted, wrong)


@pytest.mark.parametrize("wrong", [int, "NodeStarted", Exception, None])
def test_only_events_are_listened_to(wrong):
    """What is no event type is refused, with a word on where the types are."""
    with pytest.raises(TypeError, match=r"graphagent\.events"):
        Agent(Strategy("s", START >> text >> END)).on(wrong, print)


# ---- streaming


async def test_listening_to_text_makes_the_model_stream():
    """The pieces make up the answer, and the transcript is the same with and without."""

    async def run(*listen):
        pieces = []
        agent = an_agent()
        for event in listen:
            agent.on(event, lambda event: pieces.append((event.node, event.text)))
        return await agent.run("task"), pieces

    (quiet, none), (loud, pieces) = await run(), await run(TextStreamed)
    assert none == []
    assert "".join(piece for _, piece in pieces) == "It is eight."
    assert {where for where, _ in pieces} == {"llm_request"}
    assert (quiet.output, quiet.usage, quiet.turns) == (loud.output, loud.usage, loud.turns)
    shown = [[(m.role, m.text) for m in result.memory.to_messages()] for result in (quiet, loud)]
    assert shown[0] == shown[1]


async def test_no_one_who_listens_means_no_streaming():
    """The model is given `on_text` only where TextStreamed has a handler."""
    given = []

    class Model(ScriptedModel):
        async def respond(self, request, on_text=None):
            given.append(on_text is not None)
            return await super().respond(request, on_text)

    agent = Agent(single(), model=Model(["a", "b"]))
    await agent.run("x")
    agent.on(TextStreamed, lambda event: None)
    await agent.run("x")
    assert given == [False, True]


# ---- ends


async def test_a_failed_run_says_so():
    """RunFailed holds the error that is raised, and is the last event."""
    told = []
    agent = Agent(Strategy("s", START >> fail >> END))
    agent.on(Event, told.append)
    with pytest.raises(NodeFailedError) as info:
        await agent.run("x")
    assert names(told) == ["RunStarted", "NodeStarted", "NodeFailed", "RunFailed"]
    assert isinstance(told[2].error, ValueError)
    assert told[-1].error is info.value


async def test_a_run_out_of_budget_says_so():
    """RunFailed holds the BudgetError; the node that was not begun tells nothing."""
    told = []
    agent = Agent(Strategy("s", START >> text >> text.named("b") >> END), max_nodes=1)
    agent.on(Event, told.append)
    with pytest.raises(BudgetError):
        await agent.run("x")
    assert names(told) == ["RunStarted", "NodeStarted", "NodeFinished", "RunFailed"]


async def test_a_cancelled_run_says_so():
    """RunFailed is told with the cancellation, which goes on; nothing is told as failed or finished."""

    @node
    async def wait(ctx: Context, said: str) -> str:
        scope.cancel()
        await anyio.sleep_forever()
        return ""

    told = []
    agent = Agent(Strategy("s", START >> wait >> END))
    agent.on(Event, told.append)
    with anyio.CancelScope() as scope:
        await agent.run("x")
    assert scope.cancelled_caught
    assert names(told) == ["RunStarted", "NodeStarted", "RunFailed"]
    assert not isinstance(told[-1].error, Exception) or type(told[-1].error).__name__ == "CancelledError"


# ---- values


def every_event():
    kinds = [Event]
    for kind in kinds:
        kinds.extend(kind.__subclasses__())
    return sorted({kind for kind in kinds if kind.__module__ == "graphagent.events"}, key=lambda kind: kind.__name__)


def sample(kind):
    plain = {
        "run_id",
        "node",
        "path",
        "target",
        "strategy",
        "count",
        "reason",
        "steps",
        "usage",
        "limit",
        "task",
        "task_id",
        "model",
        "server",
        "progress",
        "total",
        "function",
        "seconds",
    }
    plain |= {"error"} if kind.__name__.startswith("Memory") else set()  # there it is a type's name
    plain |= (
        {"output"} if kind.__name__ in ("TextStreamed", "OutputStreamed", "AnswerTruncated") else set()
    )  # there it says which one
    plain |= {"query_time_ms", "output_tokens", "save_time_ms", "retrieval_time_ms", "source_type"}
    return kind(**{field.name: field.name if field.name in plain else "SECRET" for field in dataclasses.fields(kind)})


@pytest.mark.parametrize("kind", every_event(), ids=lambda kind: kind.__name__)
def test_events_are_frozen_and_show_no_values(kind):
    """An event cannot be changed, and its repr shows where it happened but nothing of what was said."""
    event = sample(kind)
    with pytest.raises(dataclasses.FrozenInstanceError):
        event.run_id = "other"
    assert "SECRET" not in repr(event)
    assert "run_id" in repr(event)


def test_every_event_is_named_in_the_past_tense():
    """Names say what has happened."""
    for kind in every_event():
        if kind is not Event:
            assert kind.__name__.endswith(("ed", "Taken")), kind


async def test_no_handler_costs_no_event():
    """Where nobody listens, no event of a node is made."""
    made = []
    real = NodeFinished.__init__

    def counting(self, *args):
        made.append(args)
        real(self, *args)

    agent = Agent(Strategy("s", START >> text >> END))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(NodeFinished, "__init__", counting)
        await agent.run("x")
        assert made == []
        agent.on(NodeFinished, lambda event: None)
        agent.on(NodeFailed, lambda event: None)
        agent.on(RunFailed, lambda event: None)
        agent.on(RunFinished, lambda event: None)
        await agent.run("x")
    assert len(made) == 1


async def test_an_event_type_that_is_defined_later_is_heard():
    """Listening to Event hears types that did not exist yet, and listening to a type hears its later kinds."""
    told = []

    @node
    async def tell(ctx: Context, text: str) -> str:
        @dataclasses.dataclass(frozen=True, slots=True)
        class Noted(Event):
            pass

        ctx.emit(Noted(ctx.run_id))
        return text

    agent = Agent(Strategy("s", START >> tell >> END))
    agent.on(Event, lambda event: told.append(type(event).__name__))
    await agent.run("a")
    assert "Noted" in told


async def test_events_of_calls_that_are_made_at_once_are_all_heard():
    """What one call records meanwhile does not silence the others."""

    @dataclasses.dataclass(frozen=True)
    class Noted(Event):
        what: str

    @node
    async def note(ctx: Context, said: str) -> str:
        recorded = anyio.Event()

        async def work() -> str:
            return said

        async def one(own: Context) -> None:
            await own.once("one", work)
            recorded.set()

        async def other(own: Context) -> None:
            await recorded.wait()
            own.emit(Noted(ctx.run_id, said))

        await ctx.gather([one, other])
        return said

    heard = []
    agent = Agent(Strategy("s", START >> note >> END))
    agent.on(Noted, heard.append)
    await agent.run("x")
    assert [each.what for each in heard] == ["x"]
