"""Answers that a server cut off or withheld: who is told, what is used all the same, and what is an error."""

from __future__ import annotations

import pytest

from graphagent import END, START, Agent, Context, Strategy, tool
from graphagent.errors import ContentFilterError, NodeFailedError, TruncatedError
from graphagent.events import AnswerTruncated, CompressionFailed, ExtractionFailed
from graphagent.llm import Message, ModelRequest, ModelResponse, ToolCall, ToolCalls, Usage, structured
from graphagent.llm.openai import OpenAIModel
from graphagent.memory import ActionStep, AgentMemory, NoMemory, Subject
from graphagent.nodes import auto_detect_facts, compress_history, execute_tools, llm_request
from graphagent.store import MemoryStore, SqliteStore
from graphagent.testing import ScriptedModel, openai_server

ask, act = llm_request(), execute_tools()
react = Strategy("react", START >> ask, ask.on(ToolCalls) >> act >> ask, ask.on(str) >> END)
plain = Strategy("plain", START >> llm_request(tools=False) >> END)
numbers = Strategy("numbers", START >> llm_request(output=list[int]) >> END)


def cut_off(message, *, reason="length"):
    message = Message.assistant(message) if isinstance(message, str) else message
    return ModelResponse(message, Usage(7, 5), reason)


def told(agent):
    heard = []
    agent.on(AnswerTruncated, heard.append)
    return heard


@pytest.mark.parametrize("listening", [False, True])
@pytest.mark.parametrize("over_http", [False, True])
async def test_a_text_that_was_cut_off_says_so(over_http, listening):
    """The run ends with it, an event tells of it, and the result says why the model stopped; streamed or not."""
    with openai_server([cut_off("Half a sen")]) as server:
        model = OpenAIModel("m", base_url=server.base_url) if over_http else ScriptedModel([cut_off("Half a sen")])
        agent = Agent(plain, model=model)
        heard = told(agent)
        if listening:
            events = agent.stream("x", run_id="r")
            assert "".join([text async for text in events.text()]) == "Half a sen"
            result = events.result
        else:
            result = await agent.run("x", run_id="r")
    assert (result.output, result.finish_reason) == ("Half a sen", "length")
    assert heard == [AnswerTruncated("r", "llm_request", 5, "answer")]


async def test_the_result_says_why_the_last_turn_ended():
    """A turn with tool calls is not the last one; a run that asked no model has no reason."""
    agent = Agent(
        react, model=ScriptedModel([cut_off("Half"), "Whole."]), final_answer_checks=[lambda said: said != "Half"]
    )
    heard = told(agent)
    result = await agent.run("x")
    assert (result.output, result.finish_reason, len(heard)) == ("Whole.", "stop", 1)

    @tool
    async def look() -> str:
        """Look."""
        return "a tram"

    agent = Agent(react, model=ScriptedModel([ToolCall("look"), "A tram."]), tools=[look])
    run = agent.start("x")
    await run.step()
    assert run.result.finish_reason == "tool_calls"
    assert (await run.finish()).finish_reason == "stop"
    silent = Strategy("silent", START >> act >> END)
    assert (await Agent(silent).run(ToolCalls([]))).finish_reason is None


@pytest.mark.parametrize("over_http", [False, True])
async def test_json_that_was_cut_off_is_an_error_and_not_asked_for_again(over_http):
    """Even where what came can be read: it is not what was to come. Its tokens count."""
    replies = [cut_off('{"value": [1, 2]}')]
    with openai_server(replies, model="m") as server:
        model = OpenAIModel("m", base_url=server.base_url) if over_http else ScriptedModel(replies, name="m")
        agent = Agent(numbers, model=model)
        heard, run = told(agent), agent.start("x")
        with pytest.raises(NodeFailedError, match=r"model 'm' was cut off .* JSON .*max_completion_tokens") as caught:
            await run.finish()
        assert len(server.requests if over_http else model.requests) == 1
    error = caught.value.__cause__
    assert isinstance(error, TruncatedError)
    assert error.output == '{"value": [1, 2]}'
    assert run.result.usage == error.usage == Usage(7, 5)
    [_, failed] = run.memory.steps
    assert (failed.error.type, failed.token_usage) == ("TruncatedError", Usage(7, 5))
    assert len(heard) == 1


@pytest.mark.parametrize("over_http", [False, True])
@pytest.mark.parametrize(
    "call", [ToolCall("pay", {"amount": 1}, id="1"), ToolCall("pay", id="1", malformed='{"amount": 1')]
)
async def test_a_tool_call_that_was_cut_off_is_not_executed(over_http, call):
    """Not even where its arguments look whole: more calls, or more of this one, may have been to come."""
    paid = []

    @tool
    async def pay(amount: int = 5) -> str:
        """Pay."""
        paid.append(amount)
        return "paid"

    reply = cut_off(Message.assistant("Well", [call]))
    with openai_server([reply]) as server:
        model = OpenAIModel("m", base_url=server.base_url) if over_http else ScriptedModel([reply])
        with pytest.raises(NodeFailedError, match="tool call") as caught:
            await Agent(react, model=model, tools=[pay]).run("x")
    assert isinstance(caught.value.__cause__, TruncatedError)
    assert paid == []


async def test_nothing_but_the_limit_is_an_error():
    """A model that spent all its tokens on reasoning said nothing."""
    with pytest.raises(NodeFailedError, match="text"):
        await Agent(plain, model=ScriptedModel([cut_off("")])).run("x")


async def test_structured_does_not_ask_again_for_what_was_cut_off():
    """Outside of runs too: the model would stop at the same place."""
    model = ScriptedModel([cut_off("[1, ")])
    with pytest.raises(TruncatedError, match="'scripted' was cut off"):
        await structured(model.respond, [Message.user("x")], list[int])
    assert len(model.requests) == 1


async def test_a_run_that_failed_at_the_limit_is_resumed_with_a_higher_one():
    """The half answer is not recorded as the answer, but what it cost is."""
    store = MemoryStore()
    with pytest.raises(NodeFailedError):
        await Agent(numbers, model=ScriptedModel([cut_off("[1, ")]), store=store).run("x", run_id="r")
    result = await Agent(numbers, model=ScriptedModel([[1, 2]]), store=store).resume("r")
    assert (result.output, result.finish_reason) == ([1, 2], "stop")
    assert result.usage.input_tokens > 7


async def test_a_stored_run_says_why_its_model_stopped(tmp_path):
    """Whoever reads it later is told the same; what was asked beside the answer does not count."""
    user = Subject("user")
    learning = Strategy("s", START >> llm_request(tools=False) >> auto_detect_facts(subjects=[user]) >> END)

    def agent(replies=()):
        made = Agent(
            learning, model=ScriptedModel(replies), store=SqliteStore(tmp_path / "runs.db"), planning_interval=1
        )
        made.install(AgentMemory, provider=NoMemory())
        return made

    result = await agent(["a plan", cut_off("Half"), {"facts": []}]).run("x", run_id="r")
    assert result.finish_reason == "length"
    assert (await agent().read("r")).result.finish_reason == "length"
    assert (await agent().resume("r")).finish_reason == "length"


async def test_a_plan_that_was_cut_off_is_used_and_told():
    """The event says that it was the plan; the answer is whole."""
    agent = Agent(plain, model=ScriptedModel([cut_off("First"), "Done."]), planning_interval=1)
    heard = told(agent)
    result = await agent.run("x")
    assert (result.output, result.finish_reason) == ("Done.", "stop")
    assert [event.output for event in heard] == ["plan"]


async def test_a_summary_that_was_cut_off_replaces_nothing():
    """What it left out would be lost to the model, so all stays as it was."""
    squeezed = Strategy("s", START >> llm_request(tools=False) >> compress_history() >> END)
    agent = Agent(squeezed, model=ScriptedModel(["Hello.", cut_off("The user said")]))
    heard, failed = told(agent), []
    agent.on(CompressionFailed, failed.append)
    result = await agent.run("x")
    assert [event.output for event in heard] == ["summary"]
    [event] = failed
    assert "cut off" in event.reason
    assert [message.text for message in result.memory.to_messages()] == ["x", "Hello."]


async def test_facts_that_were_cut_off_are_not_learned_and_cost_no_answer():
    """The event says why; the run ends with its answer."""
    strategy = Strategy("s", START >> llm_request(tools=False) >> auto_detect_facts(subjects=[Subject("user")]) >> END)
    agent = Agent(strategy, model=ScriptedModel(["Hello.", cut_off('{"facts": []}')]))
    agent.install(AgentMemory, provider=NoMemory())
    heard, failed = told(agent), []
    agent.on(ExtractionFailed, failed.append)
    result = await agent.run("x")
    assert (result.output, result.finish_reason) == ("Hello.", "stop")
    assert [event.output for event in heard] == ["extraction"]
    assert "cut off" in failed[0].reason


async def test_what_a_tool_asks_a_model_is_not_the_answer():
    """Its reason is not that of the run."""

    @tool
    async def translate(ctx: Context) -> str:
        """Translate."""
        return (await ctx.request(ModelRequest((Message.user("?"),)))).message.text

    translate_ = ToolCall("translate")
    agent = Agent(react, model=ScriptedModel([translate_, cut_off("Hal"), "Whole."]), tools=[translate])
    heard = told(agent)
    run = agent.start("x")
    await run.step()
    assert run.result.finish_reason == "tool_calls"
    assert (await run.finish()).finish_reason == "stop"
    assert [event.output for event in heard] == ["tool"]
    agent = Agent(react, model=ScriptedModel([translate_, "Halv", "Whole."]), tools=[translate])
    assert "".join([text async for text in agent.stream("x").text()]) == "Whole."


@pytest.mark.parametrize("over_http", [False, True])
async def test_an_answer_that_was_withheld_is_an_error(over_http):
    """Half of it is not taken for the answer, and it is not asked for again; its tokens count."""
    reply = cut_off("Half", reason="content_filter")
    for strategy in (plain, numbers):
        with openai_server([reply], model="m") as server:
            model = OpenAIModel("m", base_url=server.base_url) if over_http else ScriptedModel([reply], name="m")
            run = Agent(strategy, model=model).start("x")
            with pytest.raises(NodeFailedError, match=r"model 'm'.* withheld its answer") as caught:
                await run.finish()
        assert isinstance(caught.value.__cause__, ContentFilterError)
        assert run.result.usage == Usage(7, 5)
        assert isinstance(run.memory.steps[-1], ActionStep)
