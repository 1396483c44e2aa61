"""A task that a model works on with tools until it calls `finish`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphagent import END, START, Agent, Context, Strategy, node, tool
from graphagent.errors import BudgetError, NodeFailedError, OutputError, ScriptError
from graphagent.events import PathTaken
from graphagent.llm import Deny, Message, ModelResponse, Text, ToolCall, ToolCalls
from graphagent.llm.openai import OpenAIModel
from graphagent.memory import ActionStep
from graphagent.nodes import llm_request, task
from graphagent.store import MemoryStore
from graphagent.testing import ScriptedModel, openai_server, record
from tests.nodes.everywhere import resumed_everywhere
from tests.nodes.test_model_nodes import check_sendable
from tests.thorough import examples

ACCEPTED = "This ends the task, unless another call of the same turn failed."


@dataclass(frozen=True)
class Report:
    """A report about a house."""

    title: str
    year: int


@tool
async def look_up(word: str) -> str:
    """Look a word up."""
    return f"{word}: founded in 1871"


@tool
async def explode() -> str:
    """Fail."""
    raise RuntimeError("boom")


def finish(number=1, **arguments):
    return ToolCall("finish", arguments, f"f{number}")


def look(word="museum", number=1):
    return ToolCall("look_up", {"word": word}, f"c{number}")


DONE = {"title": "The museum", "year": 1871}


async def work(replies, strategy=None, tools=(look_up, explode), said="the museum", **options):
    model = ScriptedModel(replies)
    result = await Agent(strategy or task("Report on {input}.", output=Report), model=model, tools=tools).run(
        said, **options
    )
    check_sendable(model)
    return result, model


def results(result):
    return [
        (each.name, each.content, each.is_error)
        for step in result.memory.steps
        if isinstance(step, ActionStep)
        for each in step.results
    ]


async def test_a_task_ends_when_finish_is_called_with_a_value_of_the_type():
    """The model is sent the task, and offered the parent's tools and `finish`, whose parameters are the schema of the type."""
    result, model = await work([look(), finish(**DONE)])
    assert result.output == Report("The museum", 1871)
    first = model.requests[0]
    assert first.messages[-1].text == "Report on the museum."
    assert [each.name for each in first.tools] == ["look_up", "explode", "finish"]
    assert first.tools[-1].parameters["required"] == ["title", "year"]
    assert first.tool_choice == "auto"  # thinking models of several servers refuse anything else
    assert first.output is None
    assert results(result) == [("look_up", "museum: founded in 1871", False), ("finish", ACCEPTED, False)]


@pytest.mark.parametrize(
    ("kind", "value"),
    [(int, 3), (list[str], ["a", "b"]), (Literal["yes", "no"], "no"), (int | None, None), (dict[str, int], {"a": 1})],
)
async def test_a_type_that_is_no_object_is_wrapped(kind, value):
    """A schema of parameters is an object, so other types are its property `value`."""
    arguments = value if kind == dict[str, int] else {"value": value}
    result, _ = await work([finish(**arguments)], task(output=kind))
    assert result.output == value


async def test_text_is_a_result_where_the_type_is_text():
    """No finish tool is offered, and the first answer without calls is the result."""
    result, model = await work([look(), "Founded in 1871."], task("Report on {input}."))
    assert result.output == "Founded in 1871."
    assert [each.name for each in model.requests[0].tools] == ["look_up", "explode"]


async def test_the_task_is_made_of_the_input_by_a_function():
    """Its parameter is the type of the strategy's input; it may return a message."""

    def about(report: Report) -> Message:
        return Message.user(f"Is {report.title} old?")

    strategy = task(about, output=bool)
    assert (strategy.input_type, strategy.output_type) == (Report, bool)
    result, model = await work([finish(value=True)], strategy, said=Report("it", 1871))
    assert result.output is True
    assert model.requests[0].messages[-1].text == "Is it old?"


async def test_the_input_is_the_task_where_there_is_no_instruction():
    """It is sent as it is, once."""
    result, model = await work([finish(**DONE)], task(output=Report), said="Report on the museum.")
    assert [message.text for message in model.requests[0].messages] == ["Report on the museum."]
    assert result.output == Report("The museum", 1871)


async def test_braces_in_the_input_and_in_the_instruction_stay():
    """`{input}` is replaced, and nothing else is read in either text."""
    result, model = await work(["ok"], task('Write {"a": 1} for {input}', tools=[]), said="{input} {0}")
    assert model.requests[0].messages[-1].text == 'Write {"a": 1} for {input} {0}'
    assert result.output == "ok"


# ---- finish in odd company


@pytest.mark.parametrize("parallel_tools", [1, 4])
async def test_other_calls_of_the_turn_that_finishes_are_executed(parallel_tools):
    """Their results are in the transcript, in the order of the calls, and the task is over."""
    strategy = task(output=Report, parallel_tools=parallel_tools)
    result, model = await work([[finish(**DONE), look("a", 2), look("b", 3)]], strategy)
    assert result.output == Report("The museum", 1871)
    assert [name for name, _, _ in results(result)] == ["finish", "look_up", "look_up"]
    assert len(model.requests) == 1


async def test_a_task_is_not_over_while_another_call_of_the_turn_failed():
    """The model sees the error, and finishes again."""
    said = [[finish(**DONE), ToolCall("explode", id="e")], finish(2, title="Rubble", year=1999)]
    result, model = await work(said)
    assert result.output == Report("Rubble", 1999)
    assert [message.text for message in model.requests[1].messages[-2:]] == [ACCEPTED, "Error: RuntimeError: boom"]


async def test_of_two_finishing_calls_the_last_one_counts():
    """Both are accepted, and both have a result."""
    result, _ = await work([[finish(1, title="a", year=1), finish(2, title="b", year=2)]])
    assert result.output == Report("b", 2)


async def test_arguments_that_do_not_fit_are_shown_to_the_model():
    """It says which field is wrong, without the values, and the model finishes again."""
    result, model = await work([finish(title="x", year="soon"), finish(2, **DONE)])
    assert result.output == Report("The museum", 1871)
    said = model.requests[1].messages[-1].text
    assert said.startswith("Error: 'finish' was not accepted: the value does not fit: year: ")
    assert "soon" not in said


async def test_text_and_finish_in_one_answer_finish():
    """The text stays in the transcript."""
    result, _ = await work([ToolCalls([finish(**DONE)], "Here it is.")])
    assert result.output == Report("The museum", 1871)


# ---- text instead of finish


async def test_text_instead_of_finish_is_answered_by_one_reminder():
    """The model is asked once more; what it said stays out of the transcript."""
    result, model = await work(["It is old.", finish(**DONE)])
    assert result.output == Report("The museum", 1871)
    assert model.requests[1].messages[-1].text == (
        "A tool was to be called, and text came; when the task is done, call 'finish' with its result. Answer again."
    )
    assert [step.model_output for step in result.memory.steps if isinstance(step, ActionStep)] == [""]


async def test_text_after_the_reminder_is_an_error_that_has_it():
    """The run fails with an OutputError, can be resumed, and an error edge can take it."""
    store = MemoryStore()
    model = ScriptedModel(["It is old.", "Really old."])
    with pytest.raises(NodeFailedError) as failed:
        await Agent(task(output=Report), model=model, store=store).run("the museum", run_id="r")
    assert isinstance(failed.value.__cause__, OutputError)
    assert failed.value.__cause__.output == "Really old."
    again = Agent(task(output=Report), model=ScriptedModel([finish(**DONE)]), store=store)
    assert (await again.resume("r")).output == Report("The museum", 1871)

    asked = task(output=Report)
    rescued = Strategy("s", START >> asked >> END, asked.on_error(OutputError).map(lambda error: error.output) >> END)
    result, _ = await work(["It is old.", "Really old."], rescued)
    assert result.output == "Really old."


async def test_a_task_without_tools_asks_for_json():
    """There is nothing to call but `finish`, so the answer itself is the value: one request."""
    result, model = await work([DONE], task("Report on {input}.", output=Report, tools=[]))
    assert result.output == Report("The museum", 1871)
    assert model.requests[0].tools == ()
    assert model.requests[0].output is not None


# ---- limits, settings, names


async def test_the_turns_of_a_task_are_limited_each_time():
    """A BudgetError names the task, and an error edge can take it."""
    with pytest.raises(BudgetError, match="2 turns") as failed:
        await work([look(), look("a", 2)], Strategy("s", START >> task(output=Report, max_turns=2) >> END))
    assert failed.value.where == "task"


async def test_a_task_keeps_its_tools_and_model_with_further_settings():
    """`.using(…)` changes what it names and nothing else."""
    own = ScriptedModel([look(), finish(**DONE)])
    strategy = task(output=Report, tools=[look_up], model=own).using(max_tokens=10_000)
    result = await Agent(Strategy("s", START >> strategy >> END), model=ScriptedModel()).run("x")
    assert result.output == Report("The museum", 1871)
    assert [each.name for each in own.requests[0].tools] == ["look_up", "finish"]


async def test_another_tool_named_finish_is_refused():
    """The error says which to rename."""

    @tool
    async def finish(word: str) -> str:
        """Finish a word."""
        return word

    with pytest.raises(NodeFailedError) as failed:
        await work(["x"], tools=[finish])
    assert "offers a tool 'finish' of its own; rename the other one" in str(failed.value.__cause__)


def test_an_async_instruction_is_refused_when_it_is_made():
    """A node before it can make the text."""

    async def about(text: str) -> str:
        return text

    with pytest.raises(TypeError, match="not an async function"):
        task(about)


async def test_a_denied_call_keeps_a_task_going():
    """A person refuses a call of the turn that finishes, and the model is shown the refusal."""

    @tool(approve=True)
    async def pay(amount: int) -> str:
        """Pay."""
        return "paid"

    model = ScriptedModel([[ToolCall("pay", {"amount": 9}, "p"), finish(**DONE)], finish(2, title="unpaid", year=1)])
    agent = Agent(task(output=Report), model=model, tools=[pay])
    run = agent.start("x")
    result = await run.finish()
    assert result.status == "waiting"
    run.answer(Deny("too much"))
    result = await run.finish()
    assert result.output == Report("unpaid", 1)


async def test_a_task_is_a_node_among_others():
    """Its output is typed, and its nodes are named by their path."""

    @node
    async def headline(ctx: Context, report: Report) -> str:
        return f"{report.title}, since {report.year}"

    agent = Agent(
        Strategy("s", START >> task("Report on {input}.", output=Report, name="report") >> headline >> END),
        model=ScriptedModel([look(), finish(**DONE)]),
        tools=[look_up],
    )
    ways = []
    agent.on(PathTaken, lambda event: ways.append((event.node, event.target)))
    taken = record(agent)
    assert (await agent.run("the museum")).output == "The museum, since 1871"
    assert [name for name in taken.nodes if name.startswith("report/")] == [
        "report/instruct", "report/llm_request", "report/execute_tools", "report/llm_request", "report/execute_tools", "report/finish"
    ]  # fmt: skip
    assert ways == [("report/execute_tools", "llm_request"), ("report/execute_tools", "finish")]


async def test_what_follows_a_task_sees_it_in_the_transcript():
    """The calls have their results, so the next request can be sent."""

    @node
    async def title(ctx: Context, report: Report) -> str:
        return f"Is {report.title} a good title?"

    strategy = Strategy("s", START >> task(output=Report) >> title >> llm_request(tools=False) >> END)
    result, model = await work([look(), finish(**DONE), "fine"], strategy)
    assert result.output == "fine"
    assert [message.role for message in model.requests[-1].messages] == [
        "user",
        "assistant",
        "tool",
        "assistant",
        "tool",
        "user",
    ]


# ---- whatever a model does

_texts = st.sampled_from(["It is old.", "", '{"title": "x", "year": 1}'])
_calls = st.sampled_from(
    [
        ("look_up", {"word": "a"}, ""), ("look_up", {"wort": "a"}, ""), ("explode", {}, ""), ("fly", {}, ""),
        ("finish", {"title": "a", "year": 1}, ""), ("finish", {"title": "b", "year": 2}, ""), ("finish", {"title": "x"}, ""),
        ("finish", {}, '{"title": '),
    ]
)  # fmt: skip
_ids = st.sampled_from(["", "c1", "c2"])
_turns = st.lists(_texts | st.tuples(_texts, st.lists(st.tuples(_calls, _ids), min_size=1, max_size=3)), max_size=6)


def as_reply(said):
    if isinstance(said, str):
        return ModelResponse(Message.assistant(said))
    text, calls = said
    made = [ToolCall(name, arguments, id, malformed) for (name, arguments, malformed), id in calls]
    return ToolCalls(made, text)


def expected(turns):
    """Return the result that follows from what a model says, or the error; and how many requests that takes."""
    reminded = False
    for number, said in enumerate(turns, 1):
        if isinstance(said, str):
            if reminded:
                return OutputError, number
            reminded = True
            continue
        reminded = False
        calls = [call for call, _ in said[1]]
        bad = [name in ("explode", "fly") or malformed or len(arguments) < (2 if name == "finish" else 0) or "wort" in arguments
               for name, arguments, malformed in calls]  # fmt: skip
        finished = [arguments for name, arguments, _ in calls if name == "finish"]
        if finished and not any(bad):
            return Report(**finished[-1]), number
    return ScriptError, len(turns) + 1


def test_whatever_a_model_does_a_task_ends_as_it_should():
    """Text and calls, in any order and company, with ids twice or none: the result is the first complete finish without a failure.

    Two answers without a call in a row are an error, and every request could be sent.
    """

    async def work(turns):
        model = ScriptedModel([as_reply(said) for said in turns])
        agent = Agent(task(output=Report), model=model, tools=[look_up, explode], max_turns=None)
        found, asked = expected(turns)
        if isinstance(found, Report):
            assert (await agent.run("x")).output == found
        else:
            with pytest.raises((NodeFailedError, ScriptError)) as failed:
                await agent.run("x")
            assert isinstance(failed.value.__cause__ or failed.value, found)
        assert len(model.requests) == asked
        check_sendable(model)

    @settings(max_examples=examples(200, 40), deadline=None)
    @given(_turns)
    def tried(turns):
        anyio.run(work, turns)

    tried()


# ---- resumption, and a real server


def by_turns(request):
    """Answer by what the request has: two calls, then text, then what does not fit, then finish with a failing call, then finish."""
    results = sum(message.role == "tool" for message in request.messages)
    if results == 0:
        return [look("a", 1), look("b", 2)]
    if results == 2:
        return finish(3, title="x", year="soon") if request.messages[-1].role == "user" else "In 1871."
    if results == 3:
        return [ToolCall("explode", {}, "e4"), finish(4, **DONE)]
    return finish(5, **DONE)


async def test_a_task_is_resumed_from_any_step():
    """Output, transcript and usage are the same, and no recorded answer is asked for again."""
    result, model = await resumed_everywhere(
        task("Report on {input}.", output=Report), by_turns, tools=[look_up, explode]
    )
    assert result.output == Report("The museum", 1871)
    assert len(model.requests) == 5


async def test_a_task_works_over_http():
    """With the real client: calls in pieces, content beside calls, and text instead of `finish`."""
    replies = [
        ModelResponse(Message("assistant", (Text("Let me see."), look()))), "In 1871.", finish(**DONE),
    ]  # fmt: skip
    for streamed in (False, True):
        async with openai_server(replies) as server:
            agent = Agent(
                task("Report on {input}.", output=Report),
                model=OpenAIModel("m", base_url=server.base_url),
                tools=[look_up],
            )
            if streamed:
                async with agent.stream("the museum") as stream:
                    assert [each async for each in stream]
                result = stream.result
            else:
                result = await agent.run("the museum")
            assert result.output == Report("The museum", 1871)
            assert [each["function"]["name"] for each in server.requests[0]["tools"]] == ["look_up", "finish"]
