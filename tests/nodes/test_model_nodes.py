"""The nodes around the model: what it is asked, what is made of its answers, and that every request could be sent."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import replace
from itertools import pairwise

import anyio
import pytest
from pydantic import BaseModel

from graphagent import END, START, Agent, Context, Strategy, each, node, tap, tool
from graphagent._clock import clock
from graphagent.errors import BudgetError, ModelRequestError, NodeFailedError, OutputError, ToolError
from graphagent.events import ToolCalled, ToolReturned
from graphagent.llm import (
    Image,
    Message,
    ModelRequest,
    ModelResponse,
    Reasoning,
    Text,
    ToolCall,
    ToolCalls,
    ToolResult,
    ToolResults,
    Usage,
)
from graphagent.memory import ActionStep, MessageStep, Timing
from graphagent.nodes import Prompt, execute_tools, llm_request, passthrough, update_prompt
from graphagent.protocols import Feature
from graphagent.store import MemoryStore
from graphagent.testing import ScriptedModel
from graphagent_strategies import single_run

PICTURE = Image(b"\x89PNG", "image/png")


@tool
async def double(n: int) -> int:
    """Double a number."""
    return n * 2


@tool
async def explode() -> str:
    """Fail."""
    raise RuntimeError("boom")


def react(limit=1):
    ask, act = llm_request(), execute_tools(limit=limit)
    return Strategy("react", START >> ask, ask.on(ToolCalls) >> act >> ask, ask.on(str) >> END)


def only(*steps):
    path = START
    for step in steps:
        path = path >> step
    return Strategy("s", path >> END)


def chained(first, second, change=str):
    return Strategy("s", START >> first, first.map(change) >> second >> END)


def check_sendable(model):
    """See that a server would take every request: calls are followed by exactly their results, roles are in order."""
    for request in model.requests:
        roles = [message.role for message in request.messages]
        assert "system" not in roles[1:]
        assert roles[-1] in ("user", "tool")
        waiting = []
        for message in request.messages:
            assert message.parts
            if message.role == "tool":
                [result] = message.parts
                assert isinstance(result, ToolResult)
                assert result.call_id == waiting.pop(0)
                assert not result.content.isspace()
            else:
                assert waiting == [], "a call without its result"
                waiting = [call.id for call in message.tool_calls]
                assert len(set(waiting)) == len(waiting)
                assert all(waiting)
        assert waiting == []


async def run(replies, *, strategy=None, tools=(double, explode), task="task", **options):
    """Run a strategy on a script; every request that was made could have been sent."""
    model = ScriptedModel(replies)
    result = await Agent(strategy or react(), model=model, tools=tools).run(task, **options)
    check_sendable(model)
    return result, model


def sent(model, number=-1):
    return [(message.role, message.text) for message in model.requests[number].messages]


@contextmanager
def slow_clock():
    """Time that stands still but for what `taking` takes."""
    token = clock.set(lambda: passed[0])
    passed[0] = 1_000
    try:
        yield
    finally:
        clock.reset(token)


passed = [0]


def taking(milliseconds, reply):
    """A reply that takes its time."""

    def answer(request):
        passed[0] += milliseconds
        return reply

    return answer


def actions(result):
    return [step for step in result.memory.steps if isinstance(step, ActionStep)]


# ---- replies with tool calls


async def test_text_beside_tool_calls_does_not_end_the_loop():
    """A reply of text and calls goes the way of the calls; the text stays in the transcript and beside the calls."""
    seen = []

    @tap
    async def look(ctx: Context, calls: ToolCalls) -> None:
        seen.append((calls.text, len(calls)))

    ask, act = llm_request(), execute_tools()
    strategy = Strategy("s", START >> ask, ask.on(str) >> END, ask.on(ToolCalls) >> look >> act >> ask)
    result, model = await run([ToolCalls([ToolCall("double", {"n": 4})], "Let me see."), "8"], strategy=strategy)
    assert (result.output, seen) == ("8", [("Let me see.", 1)])
    assert sent(model) == [("user", "task"), ("assistant", "Let me see."), ("tool", "8")]
    assert actions(result)[0].model_output == "Let me see."


async def test_reasoning_stays_in_the_turn():
    """What a model thought aloud is kept with its message, whose parts stay in their order."""
    message = Message("assistant", (Reasoning("hm"), ToolCall("double", {"n": 1}, id="a"), Text("Let me see.")))
    result, _ = await run([ModelResponse(message), "2"])
    kept = actions(result)[0].model_output_message
    assert kept.parts == message.parts


@pytest.mark.parametrize("limit", [1, 2, 9])
async def test_every_call_gets_its_result_in_the_order_of_the_calls(limit):
    """Results stand in the order of the calls, however many ran at once and whoever ended first."""

    @tool
    async def wait(turns: int) -> int:
        """Wait for some turns of the loop."""
        for _ in range(turns):
            await anyio.lowlevel.checkpoint()
        return turns

    calls = [ToolCall("wait", {"turns": turns}, id=f"call_{10 - turns}") for turns in (5, 1, 3, 0)]
    result, model = await run([calls, "done"], strategy=react(limit), tools=[wait])
    assert [text for role, text in sent(model) if role == "tool"] == ["5", "1", "3", "0"]
    assert [given.call_id for given in actions(result)[0].results] == [call.id for call in calls]


async def test_the_limit_bounds_how_many_calls_run_at_once():
    """The most calls inside at once is the limit; by default they run one after the other."""
    inside, peaks = [], []

    @tool
    async def crowd() -> str:
        """Be there."""
        inside.append(1)
        peaks.append(len(inside))
        await anyio.lowlevel.checkpoint()
        await anyio.lowlevel.checkpoint()
        inside.pop()
        return ""

    for limit, peak in ((1, 1), (3, 3)):
        peaks.clear()
        await run([[ToolCall("crowd")] * 7, "done"], strategy=react(limit), tools=[crowd])
        assert (max(peaks), len(peaks)) == (peak, 7)


async def test_an_unknown_tool_becomes_an_error_that_the_model_sees():
    """The result says which tool there is not and which there are, and the other calls of the turn are executed."""
    result, model = await run([[ToolCall("treble", {"n": 1}), ToolCall("double", {"n": 1})], "ok"])
    texts = [text for role, text in sent(model) if role == "tool"]
    assert texts == ["Error: unknown tool 'treble'; available tools: double, explode", "2"]
    assert [given.is_error for given in actions(result)[0].results] == [True, False]


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (ToolCall("double", malformed='{"n": 1'), 'not a JSON object: {"n": 1'),
        (ToolCall("double", {}), "the arguments of 'double' do not fit: n: is missing"),
        (ToolCall("double", {"n": "many"}), "n: must be a valid integer"),
        (ToolCall("double", {"n": 1, "m": 2}), "m: "),
        (ToolCall("explode"), "RuntimeError: boom"),
    ],
    ids=["malformed", "missing", "wrong", "unknown", "raises"],
)
async def test_what_is_wrong_with_a_call_becomes_an_error_that_the_model_sees(call, said):
    """The run goes on, and the model is told what to mend."""
    result, model = await run([call, "sorry"])
    role, text = sent(model)[-1]
    assert role == "tool"
    assert text.startswith("Error: ")
    assert said in text
    assert (result.output, actions(result)[0].results[0].is_error) == ("sorry", True)


async def test_a_tool_may_say_what_went_wrong():
    """The text of a ToolError is what the model sees, without the name of the class."""

    @tool
    def refuse() -> str:
        """Refuse."""
        raise ToolError("Not on Sundays.")

    _, model = await run([ToolCall("refuse"), "ok"], tools=[refuse])
    assert sent(model)[-1] == ("tool", "Error: Not on Sundays.")


async def test_empty_and_repeated_ids_get_fresh_ones():
    """All calls are executed, each under an id of its own; ids that are fine stay."""
    calls = [ToolCall("double", {"n": n}, id=name) for n, name in enumerate(["", "a", "a", " ", "b"])]
    result, _ = await run([calls, "ok"])
    [turn, _] = actions(result)
    ids = [call.id for call in turn.tool_calls]
    assert len(set(ids)) == 5
    assert (ids[1], ids[4]) == ("a", "b")
    assert [(given.call_id, given.content) for given in turn.results] == [(ids[n], str(n * 2)) for n in range(5)]


async def test_an_id_may_come_again_in_a_later_turn():
    """Servers that count their calls anew in each turn are understood."""
    call = ToolCall("double", {"n": 1}, id="call_0")
    result, _ = await run([call, ToolCall("double", {"n": 2}, id="call_0"), "ok"])
    assert [turn.observations for turn in actions(result)] == ["2", "4", None]


async def test_plain_functions_and_methods_are_tools():
    """A plain function runs in a thread, a method on its object."""

    class Shop:
        def __init__(self):
            self.sold = 0

        @tool
        def sell(self, what: str) -> str:
            """Sell something."""
            self.sold += 1
            return f"{what} sold"

    shop = Shop()
    _, model = await run([ToolCall("sell", {"what": "bread"}), "ok"], tools=[shop.sell])
    assert (sent(model)[-1], shop.sold) == (("tool", "bread sold"), 1)


async def test_a_tool_may_take_the_context():
    """It gets that of the run, which the model is not told of."""

    @tool
    async def whose(ctx: Context, what: str) -> str:
        """Say whose it is."""
        return f"{what} of {ctx.owner} in {ctx.node}"

    _, model = await run([ToolCall("whose", {"what": "bread"}), "ok"], tools=[whose], owner="ada")
    assert sent(model)[-1] == ("tool", "bread of ada in execute_tools")
    assert "ctx" not in model.requests[0].tools[0].parameters["properties"]


async def test_images_of_a_tool_are_sent_once():
    """They are part of the result and of the observations, and no second message repeats them."""

    @tool
    def look() -> Image:
        """Look."""
        return PICTURE

    result, model = await run([ToolCall("look"), "nice"], tools=[look])
    assert [message.role for message in model.requests[1].messages] == ["user", "assistant", "tool"]
    assert model.requests[1].messages[-1].parts[0].images == (PICTURE,)
    assert actions(result)[0].observations_images == (PICTURE,)


async def test_tool_events_name_the_call_and_its_result():
    """Each call is told before it is executed, and its result behind, unknown tools included."""
    told = []
    agent = Agent(
        react(), model=ScriptedModel([[ToolCall("double", {"n": 1}), ToolCall("none")], "ok"]), tools=[double]
    )
    agent.on(ToolCalled, lambda event: told.append(event.call.name))
    agent.on(ToolReturned, lambda event: told.append(event.result.is_error))
    await agent.run("task")
    assert told == ["double", False, "none", True]


async def test_a_turn_whose_calls_are_never_executed_can_be_sent():
    """The model is asked again in another way, and its calls stand with results that say they were not executed."""
    ask, again = llm_request(), llm_request(tools=False, name="again")
    strategy = Strategy(
        "s", START >> ask, ask.on(ToolCalls).map(lambda _: "No tools today.") >> again >> END, ask >> END
    )
    result, model = await run([[ToolCall("double", {"n": 1}), ToolCall("explode")], "fine"], strategy=strategy)
    assert sent(model) == [
        ("user", "task"),
        ("assistant", ""),
        ("tool", "This call was not executed."),
        ("tool", "This call was not executed."),
        ("user", "No tools today."),
    ]
    assert actions(result)[0].results == ()


async def test_calls_that_a_node_filtered_are_not_executed():
    """Those that are left are executed, and the model sees that the others were not."""

    @node
    async def careful(ctx: Context, calls: ToolCalls) -> ToolCalls:
        return ToolCalls([call for call in calls if call.name != "explode"])

    ask, act = llm_request(), execute_tools()
    strategy = Strategy("s", START >> ask, ask.on(ToolCalls) >> careful >> act >> ask, ask.on(str) >> END)
    _, model = await run([[ToolCall("explode"), ToolCall("double", {"n": 2})], "ok"], strategy=strategy)
    assert sent(model)[2:] == [("tool", "This call was not executed."), ("tool", "4")]


async def test_calls_of_ones_own_are_executed_and_shown():
    """Calls that no model made are executed, get ids, and stand in the transcript as a turn."""

    @node
    async def plan(ctx: Context, said: str) -> ToolCalls:
        return ToolCalls([ToolCall("double", {"n": 1}), ToolCall("double", {"n": 2})], "As planned.")

    ask = llm_request(tools=False)
    result, model = await run(["ok"], strategy=only(plan, execute_tools(), ask))
    assert sent(model) == [("user", "task"), ("assistant", "As planned."), ("tool", "2"), ("tool", "4")]
    assert [turn.step_number for turn in actions(result)] == [0, 1]


async def test_no_calls_give_no_results():
    """An empty ToolCalls leaves the transcript as it is."""

    @node
    async def nothing(ctx: Context, said: str) -> ToolCalls:
        return ToolCalls([])

    result, _ = await run([], strategy=only(nothing, execute_tools()))
    assert (len(result.output), len(result.memory.steps)) == (0, 2)


async def test_results_that_a_node_changed_are_what_the_model_sees():
    """A node between the tools and the model may shorten results."""

    @node
    async def shorten(ctx: Context, results: ToolResults) -> ToolResults:
        return ToolResults([ToolResult(given.call_id, given.name, given.content[:3]) for given in results])

    @tool
    async def recite() -> str:
        """Say a lot."""
        return "abcdefghij"

    ask, act = llm_request(), execute_tools()
    strategy = Strategy("s", START >> ask, ask.on(ToolCalls) >> act >> shorten >> ask, ask.on(str) >> END)
    result, model = await run([ToolCall("recite"), "ok"], strategy=strategy, tools=[recite])
    assert sent(model)[-1] == ("tool", "abc")
    assert actions(result)[0].observations == "abc"


async def test_results_that_were_edited_in_the_transcript_stay_edited():
    """What a tap makes of a step's results is not undone when the results reach the model."""

    @tap
    async def hide(ctx: Context, results: ToolResults) -> None:
        ctx.memory.last_turn.results = tuple(ToolResult(given.call_id, given.name, "hidden") for given in results)

    ask, act = llm_request(), execute_tools()
    strategy = Strategy("s", START >> ask, ask.on(ToolCalls) >> act >> hide >> ask, ask.on(str) >> END)
    _, model = await run([ToolCall("double", {"n": 1}), "ok"], strategy=strategy)
    assert sent(model)[-1] == ("tool", "hidden")


async def test_a_prompt_between_call_and_execution_stands_behind_the_results():
    """update_prompt between the model and the tools leaves calls and results together."""
    ask, act = llm_request(), execute_tools()
    strategy = Strategy(
        "s", START >> ask, ask.on(ToolCalls) >> update_prompt("Hurry.") >> act >> ask, ask.on(str) >> END
    )
    _, model = await run([ToolCall("double", {"n": 4}), "8"], strategy=strategy)
    assert sent(model) == [("user", "task"), ("assistant", ""), ("tool", "8"), ("user", "Hurry.")]


# ---- what is asked


async def test_tools_are_offered_or_not():
    """All tools by default, none with tools=False or for structured output, and both where it is said."""
    reply = {"tools": True, "none": False}
    for node_, offered in (
        (llm_request(), 2),
        (llm_request(tools=False), 0),
        (llm_request(output=dict[str, bool]), 0),
        (llm_request(output=dict[str, bool], tools=True), 2),
    ):
        _, model = await run([reply], strategy=only(node_))
        assert len(model.requests[0].tools) == offered
        assert model.requests[0].tool_choice == "auto"


async def test_parameters_are_passed_on_as_they_are():
    """What stands in parameters= is in every request of that node."""
    _, model = await run(["ok"], strategy=only(llm_request(tools=False, parameters={"temperature": 0, "seed": 7})))
    assert model.requests[0].parameters == {"temperature": 0, "seed": 7}


@pytest.mark.parametrize("forced", ["double", double], ids=["name", "tool"])
async def test_one_tool_can_be_forced(forced):
    """The request names it, and the node gives the calls."""
    result, model = await run([ToolCall("double", {"n": 3})], strategy=only(llm_request(force=forced), execute_tools()))
    assert model.requests[0].tool_choice == "double"
    assert [given.content for given in result.output] == ["6"]


async def test_a_forced_tool_that_is_not_there_is_refused():
    """The error says which tools there are, before the first node."""
    with pytest.raises(ValueError, match=r"node 'llm_request' forces the tool 'treble'.* \(tools: double, explode\)"):
        await run([], strategy=only(llm_request(force="treble"), execute_tools()))


def test_a_tool_that_a_sub_agent_or_a_subgraph_forces_must_be_its_own():
    """A sub-agent with tools has these alone, and so has a subgraph; both are looked at before the first node."""
    inner = only(llm_request(force="treble"), execute_tools())
    asker = Agent(inner, tools=[double], name="asker", description="Asks.")
    outer = Agent(single_run(), model=ScriptedModel([]), tools=[asker])
    with pytest.raises(ValueError, match=r"node 'asker/llm_request' forces the tool 'treble'"):
        outer.start("go")
    nested = Agent(Strategy("outer", START >> inner.using(tools=[double]) >> END), model=ScriptedModel([]))
    with pytest.raises(ValueError, match=r"node '.*/llm_request' forces the tool 'treble'"):
        nested.start("go")


async def test_tools_that_are_known_later_may_be_forced():
    """Those of a feature, those of a server, and those that a strategy as a tool takes from its caller."""

    class Trebles(Feature):
        @property
        def tools(self):
            return [replace(double, name="treble")]

    class Server:
        name, required = "trebles", True

        async def list_tools(self, ctx):
            return [{"name": "treble"}]

        def tools_from(self, listed):
            return [replace(double, **each) for each in listed]

        async def aclose(self): ...

    inner, call = only(llm_request(force="treble"), execute_tools()), ToolCall("treble", {"n": 2})
    featured = Agent(inner, model=ScriptedModel([call]), tools=[double])
    featured.install(Trebles)
    assert [given.content for given in (await featured.run("go")).output] == ["4"]
    served = Agent(inner, model=ScriptedModel([call]), tools=[Server()])
    assert [given.content for given in (await served.run("go")).output] == ["4"]
    lent = inner.as_tool("Asks.", name="asker")
    replies = [ToolCall("asker", {"task": "go"}), call, "Done."]
    lender = Agent(single_run(), model=ScriptedModel(replies), tools=[lent, replace(double, name="treble")])
    assert (await lender.run("go")).output == "Done."


async def test_a_model_that_does_not_call_the_forced_tool_is_asked_again():
    """Once; then the node fails with an OutputError."""
    strategy = only(llm_request(force="double"), execute_tools())
    result, model = await run(["I would rather talk.", ToolCall("double", {"n": 3})], strategy=strategy)
    assert result.output[0].content == "6"
    assert "'double'" in sent(model)[-1][1]
    with pytest.raises(NodeFailedError) as info:
        await run(["no", "never"], strategy=strategy)
    assert isinstance(info.value.__cause__, OutputError)
    assert info.value.__cause__.output == "never"


async def test_a_call_where_no_tools_are_offered_is_answered_and_asked_again():
    """The model is told that there are none; if it insists, the node fails, and no calls come out of a node of text."""
    strategy = only(llm_request(tools=False))
    result, model = await run([ToolCalls([ToolCall("double", {"n": 1})], "Hm."), "2"], strategy=strategy)
    assert result.output == "2"
    assert [role for role, _ in sent(model)] == ["user", "assistant", "tool", "user"]
    assert "no tools" in sent(model)[-1][1].lower()
    with pytest.raises(NodeFailedError) as info:
        await run([ToolCall("double"), ToolCall("double")], strategy=strategy)
    assert isinstance(info.value.__cause__, OutputError)


# ---- structured output


class City(BaseModel):
    name: str
    people: int


async def test_an_answer_is_a_value_of_the_type_that_was_asked_for():
    """The request says the format, and the node gives the validated value."""
    result, model = await run([City(name="Oslo", people=700_000)], strategy=only(llm_request(output=City)))
    assert result.output == City(name="Oslo", people=700_000)
    assert model.requests[0].output.schema["required"] == ["name", "people"]
    assert actions(result)[0].action_output == result.output


async def test_an_answer_that_does_not_fit_is_asked_for_once_more():
    """The model is shown its answer and what is wrong with it; only the answer that fits stays in the transcript."""
    ask, talk = llm_request(output=City), llm_request(tools=False, name="talk")
    bad, good = '{"name": "Oslo"}', '{"name": "Oslo", "people": 7}'
    result, model = await run([bad, good, "Nice."], strategy=chained(ask, talk, lambda city: city.name))
    assert sent(model, 1)[:2] == [("user", "task"), ("assistant", bad)]
    assert "people: is missing" in sent(model, 1)[2][1]
    assert sent(model, 2) == [("user", "task"), ("assistant", good), ("user", "Oslo")]
    assert (result.output, result.turns) == ("Nice.", 3)


async def test_a_turn_that_was_asked_twice_tells_what_it_was_sent_and_all_that_it_took():
    """Its prompt is the one that was answered, and its tokens and time are those of both requests."""
    answers = [
        taking(250, ModelResponse(Message.assistant("no"), Usage(10, 1))),
        taking(500, ModelResponse(Message.assistant('{"value": 7}'), Usage(20, 2))),
    ]
    with slow_clock():
        result, model = await run(answers, strategy=only(llm_request(output=int)))
    [turn] = actions(result)
    assert turn.model_input_messages == model.requests[1].messages
    assert turn.token_usage == Usage(30, 3) == result.usage
    assert turn.timing == Timing(1_000, 1_750)


async def test_an_answer_that_never_fits_fails_the_node():
    """The cause is an OutputError with the last answer, which the message does not repeat."""
    with pytest.raises(NodeFailedError) as info:
        await run(["SECRET one", "SECRET two"], strategy=only(llm_request(output=City)))
    assert isinstance(info.value.__cause__, OutputError)
    assert info.value.__cause__.output == "SECRET two"
    assert "SECRET" not in str(info.value)


async def test_structured_output_is_stored_with_its_type():
    """The turn in the transcript refers to the output of its node, and is read with the type that the node declares."""
    store, city = MemoryStore(), City(name="Oslo", people=700_000)
    agent = Agent(only(llm_request(output=City)), model=ScriptedModel([city]), store=store)
    result = await agent.run("Which city?", run_id="r")
    read = await agent.read("r")
    assert (result.output, read.output) == (city, city)
    assert [step.action_output for step in read.memory.steps if isinstance(step, ActionStep)] == [city]
    assert read.memory == result.memory


async def test_structured_output_and_tools_go_together():
    """With both, the model may call tools first and answer in the format then."""
    ask, act = llm_request(output=City, tools=True), execute_tools()
    strategy = Strategy("s", START >> ask, ask.on(ToolCalls) >> act >> ask, ask.on(City) >> END)
    result, _ = await run([ToolCall("double", {"n": 350_000}), City(name="Oslo", people=700_000)], strategy=strategy)
    assert result.output.people == 700_000


async def test_calls_in_the_second_attempt_are_calls():
    """A model that answers wrongly and then calls a tool is not taken for wrong."""
    ask, act = llm_request(output=City, tools=True), execute_tools()
    strategy = Strategy("s", START >> ask, ask.on(ToolCalls) >> act >> ask, ask.on(City) >> END)
    result, _ = await run(["hm", ToolCall("double", {"n": 1}), City(name="Oslo", people=2)], strategy=strategy)
    assert (result.output.people, result.turns) == (2, 3)


# ---- prompts


async def test_the_task_counts_once_while_it_is_the_same_object():
    """It is sent once, though it reaches the model through other nodes, and again where it is asked again later."""
    text = passthrough(str, name="text")
    ask, again = llm_request(tools=False), llm_request(tools=False, name="again")
    task = str(b"a task", "ascii")
    strategy = Strategy("s", START >> text >> ask, ask.map(lambda _: task) >> again >> END)
    result, model = await run(["one", "two"], strategy=strategy, task=task)
    assert sent(model, 0) == [("user", "a task")]
    assert sent(model, 1) == [("user", "a task"), ("assistant", "one"), ("user", "a task")]
    assert [type(step).__name__ for step in result.memory.steps[:3]] == ["TaskStep", "ActionStep", "MessageStep"]


async def test_other_text_becomes_a_message():
    """Text that a node made of the task is sent behind it."""

    @node
    async def rephrase(ctx: Context, said: str) -> str:
        return f"{said}, please"

    result, model = await run(["ok"], strategy=only(rephrase, llm_request(tools=False)))
    assert sent(model) == [("user", "task"), ("user", "task, please")]
    assert result.memory.steps[1] == MessageStep(Message.user("task, please"))


async def test_a_task_that_is_no_text_is_not_shown():
    """It is kept in the transcript; what a node makes of it is what the model sees."""

    @node
    async def read(ctx: Context, given: dict[str, int]) -> str:
        return f"n is {given['n']}"

    result, model = await run(["ok"], strategy=only(read, llm_request(tools=False)), task={"n": 4})
    assert sent(model) == [("user", "n is 4")]
    assert result.memory.steps[0].task == {"n": 4}


async def test_a_message_may_be_the_task_or_a_prompt():
    """It is sent as it is, with its images, and once."""
    task = Message.user("Look:", PICTURE)
    ask = llm_request(tools=False)
    _, model = await run(["ok"], strategy=only(ask), task=task)
    assert model.requests[0].messages == (task,)
    _, model = await run(["ok"], strategy=only(ask), task=task, images=[PICTURE])
    assert [message.images for message in model.requests[0].messages] == [(PICTURE,), (PICTURE,)]

    @node
    async def show(ctx: Context, said: str) -> Message:
        return task

    _, model = await run(["ok"], strategy=only(show, ask))
    assert model.requests[0].messages == (Message.user("task"), task)


async def test_images_go_with_the_task():
    """They are in the task's own message."""
    _, model = await run(["ok"], strategy=only(llm_request(tools=False)), images=[PICTURE, PICTURE])
    assert model.requests[0].messages == (Message.user("task", PICTURE, PICTURE),)


async def test_what_is_no_prompt_is_refused():
    """The error says what a model can be asked with, and to map it before."""
    anything = passthrough(object, name="anything")

    @node
    async def untyped(ctx: Context, said: object):
        return 42

    with pytest.raises(NodeFailedError) as info:
        await run([], strategy=Strategy("s", START >> anything >> untyped >> llm_request(tools=False) >> END))
    assert "not with int;" in str(info.value.__cause__)
    assert "map it" in str(info.value.__cause__)


async def test_the_system_prompt_stands_in_front():
    """It is the first message of every request."""
    model = ScriptedModel([ToolCall("double", {"n": 1}), "ok"])
    await Agent(react(), model=model, tools=[double], system_prompt="Be brief.").run("task")
    check_sendable(model)
    assert all(request.messages[0] == Message.system("Be brief.") for request in model.requests)


async def test_update_prompt_adds_messages_and_passes_its_input_on():
    """Plain text is the user's; several messages stand in their order behind what was said before."""
    added = update_prompt("Be kind.", Message.assistant("I am."), "Go.")
    result, model = await run(["ok"], strategy=only(added, llm_request(tools=False)))
    assert sent(model) == [("user", "task"), ("user", "Be kind."), ("assistant", "I am."), ("user", "Go.")]
    assert result.output == "ok"


async def test_passthrough_gives_what_it_gets():
    """It is a place to choose ways from."""
    given = ["x"]
    result, _ = await run([], strategy=only(passthrough(list)), task=given)
    assert result.output is given
    assert passthrough(list).name == "passthrough"


# ---- what a step records


async def test_a_step_records_its_number_time_tokens_and_answer():
    """Turns are numbered from 1; time is in milliseconds; tokens are as the server counted them."""
    replies = [
        taking(250, ModelResponse(Message.assistant(calls=[ToolCall("double", {"n": 1})]), Usage(10, 2))),
        taking(500, ModelResponse(Message.assistant("ok"), Usage(20, 1))),
    ]
    with slow_clock():
        result, _ = await run(replies)
    first, second = actions(result)
    assert (first.step_number, second.step_number) == (1, 2)
    assert (first.timing, second.timing) == (Timing(1_000, 1_250), Timing(1_250, 1_750))
    assert first.timing.duration == 0.25
    assert (first.token_usage, second.token_usage) == (Usage(10, 2), Usage(20, 1))
    assert (first.action_output, second.action_output) == (None, "ok")
    assert result.usage == Usage(30, 3)


async def test_a_step_tells_exactly_what_the_model_was_sent():
    """model_input_messages is the request's messages, turn by turn, also where earlier steps were edited."""

    @tap
    async def censor(ctx: Context, results: ToolResults) -> None:
        ctx.memory.last_turn.observations = "[censored]"

    ask, act = llm_request(), execute_tools()
    strategy = Strategy("s", START >> ask, ask.on(ToolCalls) >> act >> censor >> ask, ask.on(str) >> END)
    calls = [[ToolCall("double", {"n": n}), ToolCall("double", {"n": -n})] for n in range(5)]
    result, model = await run([*calls, "ok"], strategy=strategy)
    assert [turn.model_input_messages for turn in actions(result)] == [request.messages for request in model.requests]
    prompts = [turn.prompt for turn in actions(result)]
    kept = [prompt.kept_of(before) for before, prompt in pairwise(prompts)]
    assert kept == [len(request.messages) for request in model.requests[:-1]]
    assert sent(model)[-2:] == [("tool", "[censored]"), ("tool", "See the first result.")]


async def test_a_step_by_hand_does_not_break_the_numbering():
    """Steps that no model turn made have number 0, and turns behind them are numbered on, in constant space."""

    @tap
    async def inject(ctx: Context, results: ToolResults) -> None:
        ctx.memory.steps.append(ActionStep(observations="It rains."))

    ask, act = llm_request(), execute_tools()
    strategy = Strategy("s", START >> ask, ask.on(ToolCalls) >> act >> inject >> ask, ask.on(str) >> END)
    result, _ = await run([ToolCall("double", {"n": 1}), ToolCall("double", {"n": 1}), "ok"], strategy=strategy)
    assert [turn.step_number for turn in actions(result)] == [1, 0, 2, 0, 3]
    prompts = [turn.prompt for turn in actions(result) if turn.prompt]
    assert [prompt.kept_of(before) for before, prompt in pairwise([None, *prompts])] == [0, 1, 4]


async def test_a_turn_that_failed_leaves_what_the_model_is_sent_as_the_question_left_it():
    """An error of the model adds a turn that tells of it and is not sent; the question stays, and asking it again adds nothing."""
    ask, again = llm_request(tools=False), llm_request(tools=False, name="again")
    question = "Really?"
    strategy = Strategy(
        "s",
        START >> ask,
        ask.map(lambda _: question) >> again,
        again.on_error(ModelRequestError).map(lambda _: question) >> again,
        again >> END,
    )
    result, model = await run(["hi", ModelRequestError("down"), "yes"], strategy=strategy)
    assert sent(model, 1) == sent(model, 2) == [("user", "task"), ("assistant", "hi"), ("user", "Really?")]
    assert [(turn.model_output, turn.error and turn.error.message) for turn in actions(result)] == [
        ("hi", None),
        (None, "down"),
        ("yes", None),
    ]
    assert [message.text for message in result.memory.to_messages()] == ["task", "hi", "Really?", "yes"]


async def test_branches_of_model_turns_can_be_sent():
    """Each branch's requests stand on their own."""
    ask = llm_request(tools=False)
    whole = each(ask, limit=1, transcript="keep")
    strategy = Strategy("s", START >> whole, whole.map(lambda said: ", ".join(said)) >> ask.named("sum") >> END)
    result, model = await run(["one", "two", "three"], strategy=strategy, task=["a", "b"])
    assert sent(model) == [
        ("user", "a"),
        ("assistant", "one"),
        ("user", "b"),
        ("assistant", "two"),
        ("user", "one, two"),
    ]
    assert result.output == "three"


def test_a_node_says_what_it_gives():
    """The declared types follow from what is asked for."""
    assert llm_request(tools=False).output_type is str
    assert llm_request(force="x").output_type is ToolCalls
    assert llm_request(output=City).output_type is City
    assert llm_request(output=City, tools=True).output_type == City | ToolCalls
    assert llm_request().input_type == Prompt


async def test_a_forced_tool_is_the_one_that_is_called():
    """A model that calls another one is asked again; nothing that was not asked for is executed."""
    called = []

    @tool
    def right() -> str:
        """The right one."""
        called.append("right")
        return "done"

    @tool
    def wrong() -> str:
        """The wrong one."""
        called.append("wrong")
        return "done"

    ask, act = llm_request(force=right), execute_tools()
    strategy = Strategy("forced", START >> ask >> act >> END)
    replies = [ToolCalls([ToolCall("wrong")]), ToolCalls([ToolCall("right")])]
    await Agent(strategy, model=ScriptedModel(replies), tools=[right, wrong]).run("go")
    assert called == ["right"]


async def test_what_ends_a_run_is_no_answer_of_a_tool():
    """A tool that meets a used-up budget, a broken handler or a short script ends the run as a node would."""

    @tool
    async def ask_again(ctx: Context) -> str:
        """Ask the model."""
        return (await ctx.request(ModelRequest((Message.user("?"),)))).message.text

    ask, act = llm_request(), execute_tools()
    strategy = Strategy("asking", START >> ask, ask.on(ToolCalls) >> act >> ask, ask.on(str) >> END)

    def agent(replies, **budgets):
        return Agent(strategy, model=ScriptedModel(replies), tools=[ask_again], **budgets)

    with pytest.raises(BudgetError):
        await agent([ToolCalls([ToolCall("ask_again")]), "a", "b"], max_tokens=1).run("go")
    with pytest.raises(NodeFailedError, match="script"):
        await agent([ToolCalls([ToolCall("ask_again")])]).run("go")
