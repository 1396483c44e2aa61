"""What is sent fits into the window, whatever a transcript consists of; or an error says why it cannot."""

from __future__ import annotations

from typing import Literal

import anyio
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as some

from graphagent import END, START, Agent, Strategy, tool
from graphagent.errors import ModelRequestError, NodeFailedError, PromptTooLongError
from graphagent.llm import Image, Message, ModelResponse, ToolCall, ToolCalls, ToolResult, Usage
from graphagent.memory import (
    ActionStep,
    Concept,
    ContextWindow,
    FactsStep,
    FinalAnswerStep,
    KnownFact,
    KnownNote,
    MessageStep,
    NotesStep,
    PlanningStep,
    RunMemory,
    Scope,
    SingleFact,
    Subject,
    SummaryStep,
    TaskStep,
    WholeHistory,
)
from graphagent.nodes import compress_history, execute_tools, llm_request, update_prompt
from graphagent.store import MemoryStore
from graphagent.testing import ScriptedModel
from tests.thorough import examples

ask, act = llm_request(), execute_tools()
react = Strategy("react", START >> ask, ask.on(ToolCalls) >> act >> ask, ask.on(str) >> END)
plain = llm_request(tools=False)
LIMIT = 4_000


@tool
def look(place: str) -> str:
    """Look somewhere."""
    return f"at {place} all is well"


def tokens_of(request):
    """Four bytes of what is sent are a token, as the window estimates it, without what a message costs by itself."""
    size = 0
    for message in request.messages:
        size += len(message.text.encode()) + sum(len(str(dict(call.arguments))) for call in message.tool_calls)
        size += 4_000 * (len(message.images) + sum(len(getattr(part, "images", ())) for part in message.parts))
    return (size + sum(len(each.description) + len(str(each.parameters)) for each in request.tools)) // 4


def is_summary(request):
    return "has become too long" in request.messages[0].text


def replying(*answers):
    """A model that gives the answers in turn, and sums up whenever it is asked to; its server counts four bytes a token."""
    given = iter(answers)

    def reply(request):
        said = "They talked. " * 20 if is_summary(request) else next(given)
        message = Message.assistant(said) if isinstance(said, str) else Message.assistant(calls=[said])
        return ModelResponse(message, Usage(tokens_of(request), 10))

    return ScriptedModel([reply] * 500)


def words(count, word="word"):
    return " ".join([word] * count)


def agent_of(strategy, model, *, tools=(look,), **settings):
    agent = Agent(strategy, model=model, tools=tools, system_prompt="Rules.")
    agent.install(ContextWindow, **{"tokens": LIMIT, **settings})
    return agent


async def too_long(agent, *args, **kwargs):
    """The error that a run ends in, before anything too long was sent."""
    with pytest.raises(NodeFailedError) as caught:
        await agent.run(*args, **kwargs)
    error = caught.value.__cause__
    assert isinstance(error, PromptTooLongError)
    assert error.tokens > error.limit
    assert "word" not in str(error)
    assert all(tokens_of(request) <= error.limit for request in agent.model.requests)
    return error


# ---- what comes before the first turn


@pytest.mark.parametrize("role", ["user", "assistant"])
async def test_a_conversation_from_elsewhere_is_compressed_before_the_first_turn(role):
    """200 messages of 200 words each go into a window of 4,000 tokens, and the last of them stay as they are."""
    talk = RunMemory("", [MessageStep(getattr(Message, role)(f"{n} {words(200)}")) for n in range(200)])
    agent = agent_of(react, replying("Done."))
    result = await agent.run("And now?", steps=talk)
    assert result.output == "Done."
    assert all(tokens_of(request) <= LIMIT for request in agent.model.requests)
    sent = [message.text for message in agent.model.requests[-1].messages]
    assert "<summary>" in sent[1]
    assert any(text.startswith("199 word") for text in sent)
    assert sent[-1] == "And now?"


async def test_messages_that_nodes_add_before_the_first_turn_are_compressed():
    """By the window in time, and by compress_history where that stands; the task stays in both."""
    told = update_prompt(*(f"{n} {words(700)}" for n in range(20)))
    for strategy, given_settings in (
        (Strategy("s", START >> told >> plain >> END), {"tokens": LIMIT}),
        (Strategy("s", START >> told >> compress_history() >> plain >> END), {"tokens": None}),
        (Strategy("s", START >> told >> compress_history(WholeHistory(keep=3)) >> plain >> END), {"tokens": None}),
    ):
        agent = agent_of(strategy, replying("Done."), tools=(), **given_settings)
        await agent.run("And now?")
        sent = agent.model.requests[-1]
        assert tokens_of(sent) <= LIMIT
        assert [message.text for message in sent.messages][:2] == ["Rules.", "And now?"]
        assert "<summary>" in "".join(message.text for message in sent.messages)


async def test_a_refused_prompt_is_made_shorter_before_the_first_turn():
    """Without a limit of one's own, the messages before the first turn make room when a server refuses the prompt."""

    def small(request):
        if tokens_of(request) > LIMIT:
            raise ModelRequestError("no", status=400, detail="prompt is too long")
        return "They talked." if is_summary(request) else "Done."

    talk = RunMemory("", [MessageStep(Message.user(f"{n} {words(200)}")) for n in range(100)])
    agent = agent_of(react, ScriptedModel([small] * 100), tokens=None)
    assert (await agent.run("And now?", steps=talk)).output == "Done."


async def test_the_message_that_is_answered_stays():
    """What a node has the model answer is not summed up with what was said before it."""
    first, second = plain, llm_request(tools=False, name="second")
    strategy = Strategy("s", START >> first >> update_prompt(words(4_000, "old")) >> second >> END)
    agent = agent_of(strategy, replying("the very question", "Done."), tools=())
    await agent.run("And now?")
    sent = agent.model.requests[-1]
    assert tokens_of(sent) <= LIMIT
    assert sent.messages[-1] == Message.user("the very question")
    assert sent.messages[1] == Message.user("And now?")


# ---- what cannot be made to fit


async def test_an_error_names_what_takes_the_most():
    """It says how long the prompt is, how long it may be, and what to do; nothing too long is sent."""
    fact = KnownFact(SingleFact(Concept("city"), words(4_000)), Subject("user"), Scope.agent("a"))
    agent = agent_of(react, replying("Done."))
    assert (await too_long(agent, words(40_000))).largest == "the task"
    error = await too_long(agent_of(react, replying()), "x", images=[Image(b"\x89PNG\r\n\x1a\n")] * 5)
    assert error.largest == "the task"
    agent = Agent(react, model=replying(), tools=[look], system_prompt=words(4_000))
    agent.install(ContextWindow, tokens=LIMIT)
    assert (await too_long(agent, "x")).largest == "the system prompt"
    error = await too_long(agent_of(react, replying()), "x", steps=RunMemory("", [FactsStep((fact,))]))
    assert error.largest == "the loaded facts"

    @tool(description=words(4_000))
    def wordy() -> str:
        return ""

    error = await too_long(agent_of(react, replying(), tools=[wordy]), "x")
    assert (error.largest, error.limit) == ("the tools", LIMIT)
    assert "offer fewer tools" in str(error)
    assert 5_000 < error.tokens < 6_000


async def test_the_schema_of_the_output_counts():
    """A prompt that fits only without it is not sent."""
    wanted = Literal[tuple(f"word number {n}" for n in range(1_000))]  # type: ignore[valid-type]
    strategy = Strategy("s", START >> llm_request(output=wanted) >> END)
    error = await too_long(agent_of(strategy, replying(), tools=()), "x")
    assert error.largest == "the schema of the output"


async def test_a_plan_fits_too():
    """A prompt for a plan is shortened as that of a turn is, and the turn after it has room for the plan."""
    talk = RunMemory("", [MessageStep(Message.user(f"{n} {words(200)}")) for n in range(15)])
    agent = Agent(react, model=replying(words(600, "plan"), "Done."), tools=[look], planning_interval=1)
    agent.install(ContextWindow, tokens=LIMIT)
    result = await agent.run("And now?", steps=talk)
    assert result.output == "Done."
    assert all(tokens_of(request) <= LIMIT for request in agent.model.requests)


async def test_a_run_whose_prompt_is_too_long_is_resumed_with_a_wider_window():
    """Nothing was lost: with room, it continues."""
    store = MemoryStore()

    def agent(tokens):
        made = Agent(react, model=replying("Done."), tools=[look], store=store)
        made.install(ContextWindow, tokens=tokens)
        return made

    with pytest.raises(NodeFailedError, match="raise ContextWindow"):
        await agent(LIMIT).run(words(8_000), run_id="r")
    assert (await agent(20_000).resume("r")).output == "Done."


# ---- every kind of step, in any order

SIZES = some.sampled_from([1, 20, 400, 1_500, 3_000])


@some.composite
def steps_of_one_kind(draw, number):
    kind = draw(
        some.sampled_from(
            ["task", "message", "rule", "action", "facts", "notes", "plan", "summary", "final", "calls", "image"]
        )
    )
    text = f"{number} {words(draw(SIZES))}"
    match kind:
        case "task":
            return [TaskStep(text)]
        case "message":
            return [MessageStep(Message.user(text))]
        case "rule":
            return [MessageStep(Message.system(text))]
        case "action":
            call = ToolCall("look", {"place": text}, id=f"a{number}")
            result = ToolResult(f"a{number}", "look", text)
            said = Message.assistant(text, [call])
            return [ActionStep(step_number=draw(some.integers(0, 3)), model_output_message=said, results=[result])]
        case "facts":
            fact = SingleFact(Concept(f"c{number}"), text)
            return [FactsStep((KnownFact(fact, Subject("user"), Scope.agent("a")),))]
        case "notes":
            return [NotesStep((KnownNote("n", text),))]
        case "plan":
            return [PlanningStep(text)]
        case "summary":
            covers, keeps = draw(some.integers(0, 4)), draw(some.integers(0, 2))
            return [SummaryStep(text, covers, keeps=keeps)]
        case "final":
            return [FinalAnswerStep(text)]
        case "calls":  # a turn of another program, in messages
            calls = [ToolCall("look", {"place": text}, id=f"c{number}{n}") for n in range(draw(some.integers(1, 2)))]
            results = [MessageStep(Message.tool(ToolResult(call.id, "look", text))) for call in calls]
            return [MessageStep(Message.assistant("", calls)), *results]
        case _:
            return [MessageStep(Message.user(text, Image(b"\x89PNG\r\n\x1a\n")))]


def divides(steps, place):
    """Whether a summary made by hand begins or ends between a call and its results, which no server would accept."""
    end = max(place - steps[place].keeps, 0)
    cuts = {end, max(end - steps[place].covers, 0)} - {place}
    return any(isinstance(steps[cut], MessageStep) and steps[cut].message.role == "tool" for cut in cuts)


@some.composite
def transcripts(draw):
    count = draw(some.integers(0, 8))
    steps = [step for number in range(count) for step in draw(steps_of_one_kind(number))]
    assume(not any(isinstance(step, SummaryStep) and divides(steps, place) for place, step in enumerate(steps)))
    return steps


@settings(
    max_examples=examples(150), deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
@given(transcripts(), some.integers(0, 3), some.booleans())
def test_whatever_was_said_what_is_sent_fits_or_is_refused(steps, keep, planning):
    """The task is there, every call has its result right after it, and nothing longer than the window is sent."""
    model = replying(*(["a plan"] if planning else []), ToolCall("look", {"place": "here"}), *["Done."] * 3)
    agent = Agent(react, model=model, tools=[look], system_prompt="Rules.", planning_interval=5 if planning else None)
    agent.install(ContextWindow, tokens=LIMIT, compression=WholeHistory(keep=keep))
    try:
        result = anyio.run(lambda: agent.run("the task of now", steps=RunMemory("", steps)))
    except NodeFailedError as error:
        assert isinstance(error.__cause__, PromptTooLongError), error  # noqa: PT017
    else:
        assert result.output == "Done."
    for request in model.requests:
        assert tokens_of(request) <= LIMIT
        if is_summary(request):
            continue
        assert Message.user("the task of now") in request.messages
        waiting = []
        for message in request.messages:
            if message.role == "tool":
                assert message.parts[0].call_id == waiting.pop(0)
            else:
                assert waiting == []
                waiting = [call.id for call in message.tool_calls]
        assert waiting == []
