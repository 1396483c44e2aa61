"""What a model is told of tool calls whose node was left before all of them had results: never that one was not executed that was."""

from __future__ import annotations

import anyio
import pytest

from graphagent import END, START, Agent, Context, Strategy, node, parallel, race, tool
from graphagent.llm import Message, ModelResponse, ToolCall, ToolCalls
from graphagent.memory import ActionStep, MessageStep
from graphagent.nodes import execute_tools, llm_request
from graphagent.protocols import Feature
from graphagent.store import MemoryStore
from graphagent.testing import ScriptedModel
from graphagent_strategies import single_run
from tests.run.lives import Watched, cut

pytestmark = pytest.mark.every_loop

UNKNOWN = "Error: this call was broken off, and nobody knows whether it took effect"
NEVER = "This call was not executed."
CALLS = [ToolCall("pay", {"name": name}, id=name) for name in ("Ada", "hangs", "Bob")]
ask = llm_request()


class Shop:
    """A tool that pays, and hangs where the name says so; it knows what became of its calls."""

    def __init__(self):
        self.was = {}
        """What a model may be told of the calls, by the names in their arguments."""
        self.hanging = anyio.Event()

        @tool
        async def pay(name: str) -> str:
            """Pay somebody."""
            self.was[name] = UNKNOWN
            if name == "hangs":
                self.hanging.set()
                await anyio.sleep_forever()
            self.was[name] = f"paid {name}"
            return self.was[name]

        self.pay = pay

    @property
    def truth(self):
        return [self.was.get(call.arguments["name"], NEVER) for call in CALLS]

    def breaking(self):
        """Return a node that fails when a call hangs."""

        @node
        async def breaking(ctx: Context, calls: ToolCalls) -> str:
            await self.hanging.wait()
            raise LookupError("the shop is closed")

        return breaking

    def closing(self):
        """Return a node that ends when a call hangs."""

        @node
        async def closing(ctx: Context, calls: ToolCalls) -> str:
            await self.hanging.wait()
            return "the shop is closed"

        return closing


@node
async def go_on(ctx: Context, value: object) -> str:
    return "Go on."


def told(model):
    """Return what a model was told of its calls, in the last request."""
    return [message.text for message in model.requests[-1].messages if message.role == "tool"]


def around(act, kind=Exception):
    """Return a strategy that executes tools within a node, and goes on with the model whatever becomes of that node."""
    return Strategy(
        "s",
        START >> ask,
        ask.on(ToolCalls) >> act >> go_on >> ask,
        ask.on(str) >> END,
        act.on_error(kind) >> go_on,
    )


@pytest.fixture(params=[True, False], ids=["stored", "not stored"])
def store(request):
    return MemoryStore() if request.param else None


async def run(strategy, shop, store=None, **settings):
    """Run a strategy whose model makes the calls, and then answers; return what it was told of them."""
    model = ScriptedModel([CALLS, "Done."])
    result = await Agent(strategy, model=model, tools=[shop.pay], store=store, **settings).run("Pay.")
    assert result.output == "Done."
    return told(model)


@pytest.mark.parametrize("limit", [1, 3])
async def test_a_model_is_told_the_truth_after_a_timeout(store, limit):
    """Results that are known are shown, a call that was begun is told as broken off, another one as not executed."""
    shop = Shop()
    strategy = around(execute_tools(limit=limit).timeout(0.05), TimeoutError)
    assert await run(strategy, shop, store) == shop.truth


async def test_a_model_is_told_the_truth_after_the_timeout_of_a_whole_subgraph(store):
    """Also where another node asks the model then."""
    shop, last = Shop(), llm_request(name="last", tools=False)
    inner = single_run().timeout(0.05)
    strategy = Strategy(
        "s", START >> inner >> END, inner.on_error(TimeoutError) >> go_on >> last, last.on(str) >> END
    )  # fmt: skip
    assert await run(strategy, shop, store) == shop.truth


@pytest.mark.parametrize(
    ("limit", "truth"), [(1, ["paid Ada", UNKNOWN, NEVER]), (3, ["paid Ada", UNKNOWN, "paid Bob"])]
)
@pytest.mark.parametrize("transcript", ["keep", "drop"])
async def test_a_model_is_told_the_truth_after_another_branch_failed(store, limit, truth, transcript):
    """The branch that executed the tools was cancelled, and its transcript is dropped."""
    shop = Shop()
    act = parallel(execute_tools(limit=limit), shop.breaking(), name="both", transcript=transcript)
    assert await run(around(act, LookupError), shop, store) == truth == shop.truth


async def test_a_model_is_told_the_truth_after_a_lost_race(store):
    """The calls of the branch that lost were made all the same."""
    shop = Shop()
    assert await run(around(race(execute_tools(), shop.closing(), name="first")), shop, store) == shop.truth
    assert shop.truth == ["paid Ada", UNKNOWN, NEVER]


@pytest.mark.parametrize("transcript", ["keep", "drop"])
async def test_a_model_is_told_the_results_of_a_branch(store, transcript):
    """Whatever is made of its output, whether it won a race or was joined."""
    for fork in (parallel, race):
        shop = Shop()
        if fork is parallel:
            shop.hanging.set()
        calls = [each for each in CALLS if each.id != "hangs"]
        options = {} if fork is race else {"transcript": transcript}
        model = ScriptedModel([calls, "Done."])
        act = fork(execute_tools(), shop.closing(), name="fork", **options)
        agent = Agent(around(act), model=model, tools=[shop.pay], store=store)
        assert (await agent.run("Pay.")).output == "Done."
        assert told(model) == ["paid Ada", "paid Bob"]


class Closed(Feature):
    """Fails around a call, before or after it was made."""

    def __init__(self, at, name):
        self.at, self.name = at, name

    async def around_tool(self, ctx, call, proceed):
        if call.arguments["name"] == self.name and self.at == "before":
            raise LookupError(self.name)
        result = await proceed(call)
        if call.arguments["name"] == self.name:
            raise LookupError(self.name)
        return result


@pytest.mark.parametrize(
    ("at", "name", "truth"),
    [
        ("before", "Bob", ["paid Ada", NEVER, NEVER]),
        ("after", "Bob", ["paid Ada", UNKNOWN, NEVER]),
        ("before", "Ada", [NEVER, NEVER, NEVER]),
        ("after", "Cid", ["paid Ada", "paid Bob", UNKNOWN]),
    ],
)
async def test_a_model_is_told_the_truth_after_middleware_failed(at, name, truth):
    """Also if the run died behind any of its commits; the middleware may have withheld the result of its own call."""
    shop, watched = Shop(), Watched()

    class Model:
        """Makes the calls, until it is told of them."""

        name = "buyer"

        async def respond(self, request, on_text=None):
            self.told = [message.text for message in request.messages if message.role == "tool"]
            calls = [ToolCall("pay", {"name": name}, id=name) for name in ("Ada", "Bob", "Cid")]
            return ModelResponse(Message.assistant("Done.") if self.told else Message.assistant("", calls))

    def agent(store):
        model = Model()
        made = Agent(around(execute_tools(), LookupError), model=model, tools=[shop.pay], store=store)
        made.install(Closed, at, name)
        return made, model

    for store in (None, watched):
        made, model = agent(store)
        assert (await made.run("Pay.", run_id="r")).output == "Done."
        assert model.told == truth
    for length in range(1, len(watched.commits)):
        made, model = agent(await cut(watched.commits[:length]))
        result = await made.resume("r")
        assert result.output == "Done."
        turn = next(step for step in result.memory.steps if isinstance(step, ActionStep))
        assert [message.text for message in turn.to_messages()[1:]] == truth


async def test_a_call_is_told_as_broken_off_although_the_run_died_since(store):
    """A tool that asks before it is called again was begun, also if nobody answers and the node fails then."""

    @tool(in_flight="ask")
    async def wire(name: str) -> str:
        """Wire money."""
        scope.cancel()
        await anyio.sleep_forever()

    model = ScriptedModel([[ToolCall("wire", {"name": "Eve"}), CALLS[0]], "Done."])

    def agent():
        made = Agent(around(execute_tools(), LookupError), model=model, tools=[wire, Shop().pay], store=store)
        made.install(Closed, "before", "Ada")
        return made

    first = agent()
    with anyio.CancelScope() as scope:
        await first.run("Pay.", run_id="r")
    result = await (agent().resume("r") if store is not None else first.last.finish())
    assert result.output == "Done."
    assert told(model) == [UNKNOWN, NEVER]


async def test_a_deferred_call_is_told_as_broken_off_once_somebody_was_asked(store):
    """Whoever was asked for its result may have acted by then."""

    @tool(deferred=True)
    def order(item: str) -> str:
        """Order something."""

    model = ScriptedModel([[ToolCall("order", {"item": "tea"}), CALLS[0]], "Done."])
    agent = Agent(around(execute_tools(), LookupError), model=model, tools=[order, Shop().pay], store=store)
    agent.install(Closed, "before", "Ada")
    assert (await agent.run("Buy.")).output == "Done."
    assert told(model) == [UNKNOWN, NEVER]


class Failing(Feature):
    """Fails around a call as often as it is told to."""

    def __init__(self, name, times):
        self.name, self.times = name, times

    async def around_tool(self, ctx, call, proceed):
        if call.arguments["name"] == self.name and self.times:
            self.times -= 1
            raise LookupError("not yet")
        return await proceed(call)


async def test_a_model_is_told_the_truth_when_a_whole_strategy_is_tried_again(store):
    """What the first attempt paid for, the second one knows."""
    model = ScriptedModel([[CALLS[0], CALLS[2]], "Done."])
    strategy = single_run().retry(attempts=2, wait=0.0, errors=LookupError)
    agent = Agent(strategy, model=model, tools=[Shop().pay], store=store)
    agent.install(Failing, "Bob", 1)
    assert (await agent.run("Pay.")).output == "Done."
    assert told(model) == ["paid Ada", NEVER]


async def test_a_model_is_told_nothing_of_the_turns_of_an_attempt(store):
    """A subgraph that is tried again begins anew: the turn with its calls is taken back, and the tools are called again."""
    shop, calls = Shop(), [CALLS[0], CALLS[2]]
    model = ScriptedModel([calls, calls, "Done."])
    inner = single_run().retry(attempts=2, wait=0.0, errors=LookupError)
    agent = Agent(Strategy("s", START >> inner >> END), model=model, tools=[shop.pay], store=store)
    agent.install(Failing, "Bob", 1)
    assert (await agent.run("Pay.")).output == "Done."
    assert model.requests[1].messages == model.requests[0].messages
    assert told(model) == ["paid Ada", "paid Bob"]


@pytest.mark.parametrize("inside", [True, False])
async def test_a_model_is_told_the_results_of_the_attempts_that_failed(store, inside):
    """The calls of a turn before them were made all the same, though no attempt came to its end."""
    act = execute_tools().retry(attempts=2, wait=0.0, errors=LookupError)
    if inside:
        act = Strategy("inner", START >> execute_tools() >> END).retry(attempts=2, wait=0.0, errors=LookupError)

    class Second(Failing):
        """Fails before the second attempt has called anything."""

        async def around_tool(self, ctx, call, proceed):
            if self.times == 1:
                raise LookupError("not again")
            return await super().around_tool(ctx, call, proceed)

    model = ScriptedModel([[CALLS[0], CALLS[2]], "Done."])
    agent = Agent(around(act), model=model, tools=[Shop().pay], store=store)
    agent.install(Second, "Bob", 2)
    assert (await agent.run("Pay.")).output == "Done."
    assert told(model) == ["paid Ada", NEVER]


async def test_callbacks_see_the_results_of_branches_whose_steps_are_kept(store):
    """The turn joins the transcript before the steps of the branches, with what became of its calls."""
    shop, seen = Shop(), []

    def look(step: ActionStep) -> None:
        seen.append([result.content for result in step.results])

    @node
    async def note(ctx: Context, results: object) -> str:
        await ctx.add(MessageStep(Message.user("Noted.")))
        return "noted"

    inner = Strategy("inner", START >> execute_tools() >> note >> END)
    act = race(inner, shop.closing(), name="first", transcript="keep")
    shop.hanging = anyio.Event()
    model = ScriptedModel([[CALLS[0], CALLS[2]], "Done."])
    agent = Agent(around(act), model=model, tools=[shop.pay], store=store, step_callbacks=[look])
    assert (await agent.run("Pay.")).output == "Done."
    assert (seen[0], told(model)) == (["paid Ada", "paid Bob"], ["paid Ada", "paid Bob"])


async def test_a_model_is_told_the_truth_after_a_failure_was_collected(store):
    """The branch that executed the tools failed, and its error is its result."""

    @node
    async def other(ctx: Context, calls: ToolCalls) -> str:
        return "nothing"

    for transcript in ("drop", "keep"):
        model = ScriptedModel([[CALLS[0], CALLS[2]], "Done."])
        act = parallel(execute_tools(), other, name="both", failures="collect", transcript=transcript)
        agent = Agent(around(act), model=model, tools=[Shop().pay], store=store)
        agent.install(Closed, "before", "Bob")
        assert (await agent.run("Pay.")).output == "Done."
        assert told(model) == ["paid Ada", NEVER]


async def test_the_transcript_of_a_failed_run_tells_the_truth_to_the_next_one(store):
    """A run that is begun with its steps knows which of its calls were made."""
    shop = Shop()
    agent = Agent(single_run(), model=ScriptedModel([CALLS]), tools=[shop.pay], store=store)
    with anyio.CancelScope() as scope:
        async with anyio.create_task_group() as group:
            group.start_soon(agent.run, "Pay.")
            await shop.hanging.wait()
            scope.cancel()
    model = ScriptedModel(["Done."])
    await Agent(single_run(), model=model, tools=[shop.pay]).run("And?", steps=agent.last.memory)
    assert told(model) == ["paid Ada", UNKNOWN, NEVER]
