"""ContextWindow: results that are cut and read on, images that are left out, histories that are compressed in time."""

from __future__ import annotations

import itertools
import re

import pytest

from graphagent import END, START, Agent, Strategy, tool
from graphagent.errors import (
    FeatureError,
    ModelRequestError,
    NodeFailedError,
    PromptTooLongError,
    RunError,
    RunNotFoundError,
    StoreError,
)
from graphagent.events import CompressionFailed, HistoryCompressed
from graphagent.llm import Image, Message, ModelResponse, Tool, ToolCall, ToolCalls, Usage
from graphagent.llm._context_overflow import is_overflow
from graphagent.llm.openai import OpenAIModel
from graphagent.memory import (
    ActionStep,
    AgentMemory,
    Concept,
    ContextWindow,
    RunMemory,
    StoredFacts,
    SummaryStep,
    TaskStep,
    WholeHistory,
)
from graphagent.nodes import ask_human, execute_tools, llm_request, update_prompt
from graphagent.store import MemoryStore, SqliteStore
from graphagent.testing import RawResponse, ScriptedModel, openai_server
from tests.thorough import some

PAGE = "".join(f"line {number:04}\n" for number in range(1000))

ask, act = llm_request(), execute_tools()
react = Strategy("react", START >> ask, ask.on(ToolCalls) >> act >> ask, ask.on(str) >> END)


@tool
def fetch(page: str) -> str:
    """Fetch a page."""
    return {"long": PAGE, "longer": 2 * PAGE}.get(page, f"this is {page}")


@tool
def shot(number: int) -> list[object]:
    """Take a picture of the screen."""
    return [f"screen {number}", Image(b"\x89PNG %d" % number)]


def agent_of(*replies, tools=(fetch, shot), strategy=react, store=None, system_prompt="Rules.", **settings):
    model = replies[0] if replies and isinstance(replies[0], ScriptedModel) else ScriptedModel(replies)
    agent = Agent(strategy, model=model, tools=tools, system_prompt=system_prompt, max_turns=None, store=store)
    agent.install(ContextWindow, **settings)
    return agent


def texts(request):
    return [message.text for message in request.messages]


def bytes_of(messages):
    return sum(len(message.text) + sum(len(str(call.arguments)) for call in message.tool_calls) for message in messages)


def is_summary(request):
    return "has become too long" in request.messages[0].text


def watcher(turns, *, say="look", summary="Much was seen. ", answer="Done."):
    """A model that calls a tool so many times, and sums up what it is told; usage is counted in bytes, four a token."""
    made = 0

    def reply(request):
        nonlocal made
        size = bytes_of(request.messages) // 4
        if is_summary(request):
            return ModelResponse(Message.assistant(summary * 10), Usage(size, 50))
        made += 1
        if made <= turns:
            return weighed(ToolCall("fetch", {"page": f"{say} {made}"}, id=f"call-{made}"))(request)
        return weighed(answer)(request)

    return ScriptedModel([reply] * (turns * 2 + 2))


def weighed(reply):
    """A reply whose usage is counted in bytes, four a token."""
    message = Message.assistant(calls=[reply]) if isinstance(reply, ToolCall) else Message.assistant(reply)
    return lambda request: ModelResponse(message, Usage(bytes_of(request.messages) // 4, bytes_of([message]) // 4))


# ---- results of tools


async def test_the_model_sees_the_head_and_the_tail_of_a_long_result_and_how_to_read_on():
    """The whole text stays in the result; what the model sees is no longer than it may be."""
    agent = agent_of(ToolCall("fetch", {"page": "long"}, id="a{b}"), "Done.", observation_chars=600)
    result = await agent.run("Fetch it.")
    [kept] = result.memory.steps[1].results
    assert kept.full == kept.value == PAGE
    seen = texts(agent.model.requests[1])[-1]
    assert seen == kept.content
    assert len(seen) <= 600
    head, note, tail = seen.partition("\n[…")[0], seen[seen.index("[…") : seen.index("…]")], seen.partition("…]\n")[2]
    assert PAGE.startswith(head)
    assert PAGE.endswith(tail)
    assert len(head) > len(tail) > 100
    assert f"{len(PAGE) - len(head) - len(tail):,} of {len(PAGE):,} characters" in note
    assert f'call_id "a{{b}}" and start {len(head)}' in note


async def test_the_rest_of_a_result_can_be_read_by_the_model():
    """Each part says where the next begins, down to the end; together they are the text."""
    read = [ToolCall("read_result", {"call_id": "one", "start": start, "length": 4000}) for start in (0, 4000, 8000)]
    whole = ToolCall("read_result", {"call_id": "one", "start": 9000})
    agent = agent_of(ToolCall("fetch", {"page": "long"}, id="one"), *read, whole, "Done.", observation_chars=4000)
    result = await agent.run("Fetch it.")
    parts = [step.results[0].content.split("]\n", 1) for step in result.memory.steps[2:6]]
    assert [head for head, _ in parts] == [
        "[characters 0 to 4,000 of 10,000; read on with start 4000",
        "[characters 4,000 to 8,000 of 10,000; read on with start 8000",
        "[characters 8,000 to 10,000 of 10,000",
        "[characters 9,000 to 10,000 of 10,000",
    ]
    assert "".join(text for _, text in parts[:3]) == PAGE
    assert not any(step.results[0].full for step in result.memory.steps[2:6])


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"call_id": "two", "start": 0}, "no result of a call 'two'"),
        ({"call_id": "one", "start": 10_000}, "has the characters 0 to 9,999"),
        ({"call_id": "one", "start": -1}, "has the characters 0 to 9,999"),
        ({"call_id": "one"}, "start: is not of type int"),
        ({"call_id": 1, "start": True}, "call_id: is not of type str; start: is not of type int"),
    ],
)
async def test_reading_what_is_not_there_tells_the_model_so(arguments, said):
    """It is an error that the model can act upon."""
    agent = agent_of(
        ToolCall("fetch", {"page": "long"}, id="one"),
        ToolCall("read_result", arguments),
        "Done.",
        observation_chars=600,
    )
    result = await agent.run("Fetch it.")
    [answer] = result.memory.steps[2].results
    assert answer.is_error
    assert said in answer.content


async def test_read_result_is_offered_where_tools_are_and_nowhere_else():
    """It comes with the cap, in subgraphs with tools of their own too; an agent without tools is offered nothing."""
    inner = Strategy("inner", START >> ask, ask.on(ToolCalls) >> act >> ask, ask.on(str) >> END).using(tools=[shot])
    plain = llm_request(tools=False, name="plain")
    strategy = Strategy("outer", START >> inner >> plain >> END)
    agent = agent_of("one", "two", strategy=strategy, observation_chars=600)
    await agent.run("Hi!")
    assert [[tool.name for tool in request.tools] for request in agent.model.requests] == [["shot", "read_result"], []]
    for settings, tools in (({"observation_chars": 600}, ()), ({"images": 1}, (fetch,))):
        agent = agent_of(
            "one",
            tools=tools,
            strategy=Strategy("s", START >> ask, ask.on(ToolCalls) >> act >> ask, ask.on(str) >> END),
            **settings,
        )
        await agent.run("Hi!")
        assert "read_result" not in [tool.name for tool in agent.model.requests[0].tools]


async def test_short_results_and_errors_are_as_they_are():
    """Only what is too long is cut; what a tool gives programs is never cut."""
    agent = agent_of(
        ToolCalls([ToolCall("fetch", {"page": "x"}), ToolCall("nope", {})]), "Done.", observation_chars=600
    )
    result = await agent.run("Fetch it.")
    first, second = result.memory.steps[1].results
    assert (first.content, first.full) == ("this is x", "")
    assert second.is_error
    assert second.full == ""


async def test_a_cut_result_is_kept_once_and_read_on_after_a_resume(tmp_path):
    """The log has the whole text once; a run that goes on in another process can read on in it."""
    wait = ask_human("Go on?", str)
    strategy = Strategy("react", START >> ask, ask.on(ToolCalls) >> act >> wait >> ask, ask.on(str) >> END)
    store = SqliteStore(tmp_path / "runs.db")
    first = agent_of(
        ToolCall("fetch", {"page": "longer"}, id="one"), strategy=strategy, store=store, observation_chars=600
    )
    result = await first.run("Fetch it.", run_id="r")
    assert result.pending is not None
    read = ToolCall("read_result", {"call_id": "one", "start": 5000, "length": 10})
    second = agent_of(read, strategy=strategy, store=store, observation_chars=600)
    result = await second.resume("r", answer="go")
    assert result.memory.steps[-1].results[0].content.endswith("]\nline 0500\n")
    rows = [item.value async for item in store.scan(())]
    assert sum(PAGE.encode() in row for row in rows) == 1  # the question is about it too


# ---- images


def pictures(request):
    return [
        part.data
        for message in request.messages
        for part in (
            *message.images,
            *(image for each in message.parts if hasattr(each, "images") for image in each.images),
        )
    ]


async def test_the_model_sees_the_last_images_only_and_the_steps_keep_them_all():
    """Older ones are left out where the model looks; the results of the calls still have them."""
    calls = [ToolCalls([ToolCall("shot", {"number": n}), ToolCall("shot", {"number": n + 10})]) for n in range(1, 4)]
    agent = agent_of(*calls, "Done.", images=3)
    result = await agent.run("Look.", images=[Image(b"task")])
    seen = [pictures(request) for request in agent.model.requests]
    assert seen == [
        [b"task"],
        [b"task", b"\x89PNG 1", b"\x89PNG 11"],
        [b"task", b"\x89PNG 11", b"\x89PNG 2", b"\x89PNG 12"],
        [b"task", b"\x89PNG 12", b"\x89PNG 3", b"\x89PNG 13"],
    ]
    turns = [step for step in result.memory.steps if isinstance(step, ActionStep)]
    assert [len(each.images) for turn in turns for each in turn.results] == [1] * 6


async def test_images_in_messages_and_in_earlier_runs_are_left_out_too():
    """A message keeps its text, with a note in the place of each image; images=0 leaves none."""
    look = update_prompt(Message.user("See: ", Image(b"one"), " and ", Image(b"two")), name="look")
    strategy = Strategy("s", START >> look >> ask, ask.on(ToolCalls) >> act >> ask, ask.on(str) >> END)
    agent = agent_of("Done.", strategy=strategy, images=1)
    result = await agent.run("Look.")
    left = Message.user("See: ", "[an image was left out here]", " and ", Image(b"two"))
    assert left in agent.model.requests[0].messages
    agent = agent_of("Done.", images=0)
    await agent.run("And now?", steps=result.memory)
    assert pictures(agent.model.requests[0]) == []


async def test_what_was_sent_before_an_image_was_left_out_is_shown_as_it_was_sent(tmp_path):
    """The journal keeps the images; exact prompts come back, in this process and from the store."""
    calls = [ToolCall("shot", {"number": n}) for n in range(3)]
    store = SqliteStore(tmp_path / "runs.db")
    agent = agent_of(*calls, "Done.", images=1, store=store)
    result = await agent.run("Look.")
    run = await agent_of(images=1, store=store).read(result.run_id)
    for memory in (result.memory, run.memory):
        turns = [step for step in memory.steps if isinstance(step, ActionStep)]
        assert [turn.model_input_messages for turn in turns] == [request.messages for request in agent.model.requests]
    assert run.memory == result.memory


# ---- tokens


async def test_a_run_of_two_hundred_turns_stays_within_its_tokens():
    """Prompts are compressed in time, between compressions each begins as the one before, rules and task stay, steps too."""
    limit = 3_000
    agent = agent_of(watcher(200, say="x" * 100), tokens=limit)
    compressed: list[HistoryCompressed] = []
    agent.on(HistoryCompressed, compressed.append)
    result = await agent.run("Watch the sectors.")
    assert result.output == "Done."
    turns = [request for request in agent.model.requests if not is_summary(request)]
    assert max(bytes_of(request.messages) // 4 for request in turns) <= limit
    assert all(texts(request)[:2] == ["Rules.", "Watch the sectors."] for request in turns)
    broken = sum(
        before.messages != after.messages[: len(before.messages)] for before, after in itertools.pairwise(turns)
    )
    summaries = [request for request in agent.model.requests if is_summary(request)]
    assert max(bytes_of(request.messages) // 4 for request in summaries) <= limit
    assert broken == len(compressed) > 3
    assert len(summaries) < 20
    assert sum(isinstance(step, ActionStep) for step in result.memory.steps) == 201
    assert sum(isinstance(step, SummaryStep) for step in result.memory.steps) == len(compressed)
    assert result.turns == 201
    without = await Agent(react, model=watcher(200, say="x" * 100), tools=[fetch], max_turns=None).run(
        "Watch the sectors."
    )
    assert result.usage.input_tokens * 3 < without.usage.input_tokens


async def test_no_turn_is_split_from_the_results_of_its_calls():
    """Every call in a prompt has its result behind it, and every result its call before it, whatever was compressed."""
    agent = agent_of(watcher(60, say="x" * 60), tokens=1_000)
    await agent.run("Watch.")
    for request in agent.model.requests:
        calls = [call.id for message in request.messages for call in message.tool_calls]
        results = [part.call_id for message in request.messages if message.role == "tool" for part in message.parts]
        assert calls == results


async def test_the_estimate_counts_from_what_the_last_turn_really_had():
    """A server whose tokens are shorter than the rule of thumb says so with the first answer."""

    def dense(request):
        return ModelResponse(Message.assistant(calls=[ToolCall("fetch", {"page": "x"})]), Usage(900, 90))

    agent = agent_of(ScriptedModel([dense, "sum", "Done."]), tokens=990, compression=WholeHistory())
    await agent.run("Watch.")
    assert [is_summary(request) for request in agent.model.requests] == [False, True, False]
    agent = agent_of(ScriptedModel([dense, "Done."]), tokens=1_100)
    await agent.run("Watch.")


async def test_turns_that_would_fill_half_of_the_window_do_not_stay(tmp_path):
    """As many turns stay as the compression says, unless they are too long."""
    for tokens, stay in ((1_500, 3), (600, 1), (300, 0)):
        agent = agent_of(watcher(9, say="y" * 400), tokens=tokens)
        await agent.run("Watch.")
        requests = agent.model.requests
        behind = next(after for before, after in itertools.pairwise(requests) if is_summary(before))
        assert sum(message.role == "tool" for message in behind.messages) == stay


async def test_a_summary_that_fails_is_tried_again_when_the_run_continues():
    """An event says why it failed, nothing that is too long is sent, and all is as it was until there is a summary."""
    down = ModelRequestError("the server is down", status=503)
    model = ScriptedModel([ToolCall("fetch", {"page": "z" * 900}), down, "  ", "", "sum", "Done."])
    agent = agent_of(model, tokens=200, compression=WholeHistory())
    failed: list[CompressionFailed] = []
    agent.on(CompressionFailed, failed.append)
    run = agent.start("Watch.")
    with pytest.raises(NodeFailedError, match="compressing the history failed") as caught:
        await run.finish()
    assert isinstance(caught.value.__cause__, PromptTooLongError)
    assert caught.value.__cause__.__cause__ is down
    assert [type(step) for step in run.memory.steps] == [TaskStep, ActionStep]
    with pytest.raises(NodeFailedError, match="compressing the history failed") as caught:
        await run.finish()
    assert isinstance(caught.value.__cause__, PromptTooLongError)
    assert "neither answered nor called a tool" in str(caught.value.__cause__.__cause__)
    result = await agent.start("Watch.", steps=run.memory).finish()
    assert [event.reason for event in failed] == ["the server is down", str(caught.value.__cause__.__cause__)]
    assert [is_summary(request) for request in model.requests] == [False, True, True, True, True, False]
    assert sum(isinstance(step, SummaryStep) for step in result.memory.steps) == 1


async def test_the_task_alone_is_never_compressed():
    """Where there is nothing else, it is an error that says so, and no model is asked for anything."""
    agent = agent_of("Done.", tokens=300)
    with pytest.raises(NodeFailedError) as caught:
        await agent.run("a very long task " * 100)
    error = caught.value.__cause__
    assert isinstance(error, PromptTooLongError)
    assert (error.limit, error.largest) == (300, "the task")
    assert 425 < error.tokens < 600
    assert "cannot be compressed enough" in str(error)
    assert "very long" not in str(error)
    assert agent.model.requests == []


async def test_facts_can_take_the_place_of_the_history():
    """Any way to compress will do; one that needs a feature says which is missing."""
    call = ToolCall("fetch", {"page": "z" * 900})
    agent = agent_of(call, "Done.", tokens=200, compression=StoredFacts(Concept("city")))
    with pytest.raises(NodeFailedError, match="install\\(AgentMemory"):
        await agent.run("Watch.")
    agent = agent_of(call, "Done.", tokens=200, compression=StoredFacts(Concept("city")))
    agent.install(AgentMemory)
    with pytest.raises(NodeFailedError, match="cannot be compressed enough"):
        await agent.run("Watch.")


# ---- a server that refuses


OVERFLOWS = {
    "openai": (400, '{"error": {"message": "This model\'s maximum context length is 8192 tokens. However, your messages resulted in 9000 tokens.", "type": "invalid_request_error", "param": "messages", "code": "context_length_exceeded"}}'),
    "openai, newer": (400, '{"error": {"message": "Your input exceeds the context window of this model.", "code": null}}'),
    "llama.cpp": (400, '{"error": {"code": 400, "message": "request (4390 tokens) exceeds the available context size (4096 tokens), try increasing it", "type": "exceed_context_size_error", "n_prompt_tokens": 4390, "n_ctx": 4096}}'),
    "llama.cpp, while it answers": (
        500, '{"error": {"code": 500, "message": "Context size has been exceeded.", "type": "server_error"}}'
    ),
    "llama-cpp-python": (400, '{"error": {"message": "Requested tokens (2285) exceed context window of 2048"}}'),
    "vllm": (400, '{"object": "error", "message": "This model\'s maximum context length is 4096 tokens. However, you requested 5000 tokens (4000 in the messages, 1000 in the completion).", "type": "BadRequestError", "param": null, "code": 400}'),
    "vllm, newer": (400, '{"message": "The decoder prompt (length 21535) is longer than the maximum model length of 16384."}'),
    "vllm, images": (400, '{"message": "The prompt (total length 25938) is too long to fit into the model (context length 4096)."}'),
    "ollama": (400, '{"error": {"message": "prompt too long; exceeded max context length by 91 tokens"}}'),
    "ollama, older": (400, '{"error": "the input length exceeds the context length"}'),
    "lm studio": (400, '{"error": "Trying to keep the first 4500 tokens when context the overflows. However, the model is loaded with context length of only 4096 tokens, which is not enough."}'),
    "anthropic": (400, '{"error": {"message": "prompt is too long: 213462 tokens > 200000 maximum"}}'),
    "gemini": (400, '{"error": {"message": "The input token count (1196265) exceeds the maximum number of tokens allowed (1048575)."}}'),
    "xai": (400, '{"error": "This model\'s maximum prompt length is 131072 but the request contains 537812 tokens."}'),
    "a proxy": (413, "<html>413 Request Entity Too Large</html>"),
}  # fmt: skip
OTHERS = {
    "a bad schema": (400, '{"error": {"message": "Invalid schema for function", "code": "invalid_function_parameters"}}'),
    "a limit of the rate": (413, '{"error": {"message": "Request too large for model on tokens per minute", "code": "rate_limit_exceeded"}}'),
    "no key": (401, '{"error": {"message": "maximum context length"}}'),
}  # fmt: skip


@pytest.mark.parametrize("said", OVERFLOWS)
async def test_a_prompt_that_a_server_refuses_as_too_long_is_compressed_and_sent_again(said):
    """Whatever words the server has for it; the run goes on as if nothing had been."""
    status, body = OVERFLOWS[said]
    call = ToolCall("fetch", {"page": "x"})
    replies = [call, RawResponse(status, {"content-type": "application/json"}, body), "Pages were read.", "Done."]
    async with openai_server(replies) as server, OpenAIModel("m", base_url=server.base_url, max_retries=0) as model:
        agent = Agent(react, model=model, tools=[fetch])
        agent.install(ContextWindow, compression=WholeHistory())
        result = await agent.run("Read it.")
    assert result.output == "Done."
    assert [type(step).__name__ for step in result.memory.steps] == [
        "TaskStep", "ActionStep", "SummaryStep", "ActionStep", "FinalAnswerStep"
    ]  # fmt: skip
    assert len(server.requests) == 4
    assert "Pages were read." in server.requests[3]["messages"][-1]["content"]


@pytest.mark.parametrize("said", OVERFLOWS)
async def test_an_error_says_that_a_prompt_was_too_long(said):
    """Where nothing of it can be compressed, it is the server's error, with what to do; what was sent is not repeated."""
    status, body = OVERFLOWS[said]
    replies = [RawResponse(status, {"content-type": "application/json"}, body)]
    async with openai_server(replies) as server, OpenAIModel("m", base_url=server.base_url, max_retries=0) as model:
        agent = Agent(react, model=model, tools=[fetch])
        agent.install(ContextWindow)
        with pytest.raises(NodeFailedError, match=r"the prompt is too long: .*install\(ContextWindow, tokens=…\)"):
            await agent.run("Read it.")


@pytest.mark.parametrize("said", OTHERS)
async def test_other_refusals_are_errors(said):
    """What has nothing to do with the length of the prompt is raised, and nothing is compressed."""
    status, body = OTHERS[said]
    assert not is_overflow(ModelRequestError("refused", status=status, detail=body))
    call = ToolCall("fetch", {"page": "x"})
    replies = [call, RawResponse(status, {"content-type": "application/json"}, body)]
    async with openai_server(replies) as server, OpenAIModel("m", base_url=server.base_url, max_retries=0) as model:
        agent = Agent(react, model=model, tools=[fetch])
        agent.install(ContextWindow, compression=WholeHistory())
        with pytest.raises(NodeFailedError) as caught:
            await agent.run("Read it.")
    assert "too long" not in str(caught.value)
    assert len(server.requests) == 2


def too_long():
    return ModelRequestError("refused", status=400, detail="context_length_exceeded")


async def test_it_is_sent_again_once():
    """A prompt that is refused a second time is an error, and so is one of which nothing can be left out."""
    call = ToolCall("fetch", {"page": "x"})
    agent = agent_of(call, too_long(), "sum", too_long(), compression=WholeHistory())
    with pytest.raises(NodeFailedError) as caught:
        await agent.run("Read it.")
    assert caught.value.__cause__.detail == "context_length_exceeded"
    assert len(agent.model.requests) == 4
    agent = agent_of(too_long())
    with pytest.raises(NodeFailedError):
        await agent.run("Read it.")
    assert len(agent.model.requests) == 1


async def test_without_the_feature_a_refusal_is_an_error():
    """Nothing is compressed unasked."""
    model = ScriptedModel([ToolCall("fetch", {"page": "x"}), too_long()])
    with pytest.raises(NodeFailedError):
        await Agent(react, model=model, tools=[fetch]).run("Read it.")


async def test_what_is_too_long_for_one_summary_is_summed_up_in_halves():
    """The summary's own request may be refused; then each half is summed up, down to single turns."""
    calls = [ToolCall("fetch", {"page": f"p{n}"}) for n in range(4)]

    def sums(request):
        pages = request.messages[1].text.count('"calls"')
        if pages > 1:
            raise too_long()
        return f"page {pages}"

    agent = agent_of(ScriptedModel([*calls, too_long(), *[sums] * 7, "Done."]), compression=WholeHistory())
    result = await agent.run("Read it.")
    [summary] = [step for step in result.memory.steps if isinstance(step, SummaryStep)]
    assert summary.summary.split("\n\n") == ["page 1"] * 4
    assert summary.covers == 5


# ---- durable runs


async def test_a_resumed_run_sends_what_it_would_have_sent(tmp_path):
    """Prompts are derived from the steps alone: a run that is stopped behind every turn sends what one sends that is not."""
    whole = agent_of(watcher(40, say="x" * 60), tokens=1_000)
    await whole.run("Watch.")
    store = SqliteStore(tmp_path / "runs.db")
    model = watcher(40, say="x" * 60)
    agent = agent_of(model, tokens=1_000, store=store)
    run = agent.start("Watch.", run_id="r")
    while await run.step() is not None:
        await run.aclose()
        run = await agent_of(model, tokens=1_000, store=store).read("r")
    assert run.output == "Done."
    assert [request.messages for request in model.requests] == [request.messages for request in whole.model.requests]
    assert model.requests


async def test_a_rerun_compresses_on_recorded_summaries_and_asks_no_model(tmp_path):
    """Summaries and refusals are recorded, so that a run is executed again as it was."""
    store = SqliteStore(tmp_path / "runs.db")
    long, short = (weighed(ToolCall("fetch", {"page": "z" * size})) for size in (500, 1))
    replies = [long, "sum one", short, too_long(), "sum two", "Done."]
    result = await agent_of(*replies, tokens=200, store=store).run("Watch.", run_id="r")
    again = await agent_of(tokens=200, store=store).rerun("r")
    assert again.output == result.output
    assert [type(step).__name__ for step in again.memory.steps] == [type(step).__name__ for step in result.memory.steps]
    assert [step.summary for step in again.memory.steps if isinstance(step, SummaryStep)] == ["sum one", "sum two"]


async def test_a_run_that_fails_behind_a_summary_goes_on_without_asking_for_it_again(tmp_path):
    """In this process and in another: the summary is recorded, and stands in the transcript once."""
    call = ToolCall("fetch", {"page": "z" * 900})
    down = ModelRequestError("down", status=503)
    for refused in (False, True):
        for kept in (True, False):
            store = SqliteStore(tmp_path / f"{refused}{kept}.db")
            first = [call, too_long(), "sum", down] if refused else [call, "sum", down]
            settings = {"compression": WholeHistory()} if refused else {"compression": WholeHistory(), "tokens": 200}
            agent = agent_of(ScriptedModel([*first, "Done."]), store=store, **settings)
            run = agent.start("Watch.", run_id="r")
            with pytest.raises(NodeFailedError):
                await run.finish()
            if kept:
                result = await run.finish()
            else:
                result = await agent_of("Done.", store=store, **settings).resume("r")
            assert result.output == "Done."
            assert sum(isinstance(step, SummaryStep) for step in result.memory.steps) == 1, (refused, kept)


# ---- how it is installed


def test_a_tool_of_the_same_name_is_refused():
    """The model must not be offered two tools of one name."""
    read = Tool("read_result", "Mine.", {"type": "object"}, lambda arguments, context: None)
    agent = Agent(react, model=ScriptedModel(), tools=[read])
    with pytest.raises(FeatureError, match="read_result"):
        agent.install(ContextWindow, observation_chars=1000)
    agent.install(ContextWindow, images=2)


async def test_a_run_without_anything_too_long_is_as_without_the_feature():
    """Nothing is added to the transcript, and nothing but the tool to the request."""
    call = ToolCall("fetch", {"page": "x"}, id="a")
    plain = Agent(react, model=ScriptedModel([call, "Done."]), tools=[fetch, shot], system_prompt="Rules.")
    before = await plain.run("Read it.")
    agent = agent_of(call, "Done.", tokens=10_000, images=3, observation_chars=1_000)
    after = await agent.run("Read it.")
    assert [request.messages for request in agent.model.requests] == [
        request.messages for request in plain.model.requests
    ]
    assert [type(step) for step in before.memory.steps] == [type(step) for step in after.memory.steps]
    assert after.nodes == before.nodes
    assert store_free(after.memory) == store_free(before.memory)


def store_free(memory: RunMemory):
    return [message.text for message in memory.to_messages()]


# ---- stopped anywhere


def stateless(request):
    """A model that reads from what it is sent how far it has come: eight pages, then an answer; it takes 425 tokens at most."""
    text = " ".join(
        [message.text for message in request.messages] + [str(message.tool_calls) for message in request.messages]
    )
    if len(text) > 1_700:
        raise too_long()
    come = max([int(number) for number in re.findall(r"n(\d+)n", text)], default=0)
    if is_summary(request):
        return f"come to n{come}n"
    if come == 8:
        return "Done."
    return ModelResponse(
        Message.assistant(calls=[ToolCall("fetch", {"page": f"n{come + 1}n{'.' * 190}"}, id=f"c{come}")]),
        Usage(len(text) // 4, 40),
    )


class Stopping:
    """A store that fails once, before or behind its n-th commit."""

    def __init__(self, store, at, *, behind):
        self.store, self.left, self.behind = store, at, behind

    async def get(self, key):
        return await self.store.get(key)

    def scan(self, prefix, **options):
        return self.store.scan(prefix, **options)

    async def commit(self, *changes):
        self.left -= 1
        if self.left < 0 or (self.left == 0 and not self.behind):
            raise StoreError("the disk is gone")
        await self.store.commit(*changes)
        if self.left == 0:
            raise StoreError("the disk is gone")


@pytest.mark.parametrize("settings", [{"tokens": 300}, {}], ids=["in time", "when it is refused"])
@pytest.mark.parametrize("behind", [False, True])
async def test_a_run_that_is_stopped_anywhere_goes_on_as_if_it_had_not_been(settings, behind):
    """At every commit, before and behind it: the same steps and prompts come of it, and nothing recorded is asked again."""
    counting = Stopping(MemoryStore(), 1000, behind=False)
    whole = agent_of(ScriptedModel([stateless] * 100), compression=WholeHistory(keep=1), store=counting, **settings)
    expected = await whole.run("Fetch them.", run_id="r")
    assert sum(isinstance(step, SummaryStep) for step in expected.memory.steps) > 1
    for at in some(
        range(1 + behind, 1000 - counting.left + 1), 6, thorough=20, salt=f"{settings} {behind}"
    ):  # the first commit is the claim
        store, model = MemoryStore(), ScriptedModel([stateless] * 100)
        stopping = Stopping(store, at, behind=behind)
        with pytest.raises((RunError, StoreError)):
            await agent_of(model, compression=WholeHistory(keep=1), store=stopping, **settings).run(
                "Fetch them.", run_id="r"
            )
        again = agent_of(model, compression=WholeHistory(keep=1), store=store, **settings)
        try:
            result = await again.resume("r")
        except RunNotFoundError:
            continue
        assert result.output == "Done."
        assert [type(step) for step in result.memory.steps] == [type(step) for step in expected.memory.steps], at
        assert result.memory.to_messages() == expected.memory.to_messages(), at
        assert len(model.requests) <= len(whole.model.requests) + 1, at
