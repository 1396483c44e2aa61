"""OpenAIModel over Responses, and which protocol it chooses, against a real HTTP server on this machine."""

from __future__ import annotations

import json
import re
import traceback

import pytest

from graphagent import Agent, tool
from graphagent.errors import ModelRequestError, NodeFailedError, OutputError, TruncatedError
from graphagent.events import ModelRequestFailed
from graphagent.llm import (
    Message,
    ModelRequest,
    ModelResponse,
    OutputFormat,
    Reasoning,
    Text,
    ToolCall,
    ToolCalls,
    ToolResult,
    Usage,
    structured,
)
from graphagent.llm._families import is_openai
from graphagent.llm.openai import OpenAIModel
from graphagent.store import SqliteStore
from graphagent.testing import Cut, RawResponse, openai_server
from graphagent_strategies import single_run

HELLO = ModelRequest((Message.user("Hello, topsecret"),))
KEY = "sk-topsecret-key"
JSON = {"content-type": "application/json"}
EVENTS = {"content-type": "text/event-stream"}
BOTH = pytest.mark.parametrize("streaming", [False, True])


@tool
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def refusal(message, status=400, **more):
    error = {"message": f"{message} (topsecret)", "type": "invalid_request_error", "param": None, "code": None, **more}
    return RawResponse(status, JSON, json.dumps({"error": error}))


def whole(*output, **more):
    return RawResponse(200, JSON, json.dumps({"status": "completed", "model": "m", "output": list(output), **more}))


def thought(number):
    return {"type": "reasoning", "id": f"rs_{number}", "summary": [], "encrypted_content": f"gAAA{number}"}


def said(text, number=1, **more):
    content = [{"type": "output_text", "text": text, "annotations": []}]
    message = {"type": "message", "role": "assistant", "status": "completed", "content": content, "id": f"msg_{number}"}
    return {**message, **more}


def called(number, a=1, b=2):
    arguments = json.dumps({"a": a, "b": b})
    call = {"type": "function_call", "call_id": f"c{number}", "name": "add", "arguments": arguments}
    return {**call, "id": f"fc_{number}"}


async def asked(server, request=HELLO, *, on_text=None, **settings):
    async with OpenAIModel(
        "m", protocol="responses", base_url=server.base_url, **({"api_key": KEY, "max_retries": 0} | settings)
    ) as model:
        return await model.respond(request, on_text)


# Asking


async def test_an_answer_and_its_usage():
    """Text, usage with cached and reasoning tokens, reason and model are read; nothing is stored by the server."""
    answer = ModelResponse(Message("assistant", (Reasoning("hm"), Text("Hi."))), Usage(11, 7, 5, 3), "stop", "m-1")
    async with openai_server([answer]) as server:
        request = ModelRequest(HELLO.messages, parameters={"max_completion_tokens": 9, "reasoning_effort": "high"})
        response = await asked(server, request, reasoning_effort="low", verbosity="low", temperature=0)
    assert (response.message.text, response.usage, response.finish_reason, response.model) == (
        "Hi.", Usage(11, 7, 5, 3), "stop", "m-1",
    )  # fmt: skip
    assert response.message.parts[0].text == "hm"
    assert server.requests == [
        {
            "model": "m",
            "input": [{"role": "user", "content": "Hello, topsecret"}],
            "store": False,
            "stream": False,
            "include": ["reasoning.encrypted_content"],
            "reasoning": {"effort": "high"},
            "text": {"verbosity": "low"},
            "temperature": 0,
            "max_output_tokens": 9,
        }
    ]
    assert server.headers[0]["authorization"] == f"Bearer {KEY}"


ANSWERS = {
    "text": "One two\nthree.",
    "reasoning and text": ModelResponse(Message("assistant", (Reasoning("hm, so"), Text("Yes."))), Usage(11, 7, 5, 3)),
    "text and calls": ToolCalls([ToolCall("add", {"a": 1, "b": 2**70}, "c1"), ToolCall("add", {"a": 3}, "c2")], "So."),
    "half a call": ToolCall("add", id="1", malformed='{"a": 1, "b"'),
    "cut off": ModelResponse(Message.assistant("Half a sen"), Usage(3, 5), "length"),
    "refused": ModelResponse(Message.assistant("I will not."), finish_reason="refusal"),
}


@pytest.mark.parametrize("answer", ANSWERS)
async def test_a_streamed_answer_is_the_same_and_comes_in_pieces(answer):
    """With on_text the text comes as it is made; parts, ids, usage and reason are the same."""
    pieces = []
    async with openai_server([ANSWERS[answer]]) as server:
        streamed = await asked(server, on_text=pieces.append)
    async with openai_server([ANSWERS[answer]]) as server:
        assert streamed == await asked(server)
    assert "".join(pieces) == streamed.message.text
    if answer in ("cut off", "refused"):
        assert streamed.finish_reason == ANSWERS[answer].finish_reason


async def test_an_error_names_the_requests_that_were_refused_before_it():
    """What is left out after a refusal may not help: the error has the first request, as an answer would."""
    request = ModelRequest(HELLO.messages, output=OutputFormat.of(list[int]))
    down = ModelRequestError("down", status=500)
    async with (
        openai_server([refusal("Unknown parameter: 'text.format'"), down]) as server,
        OpenAIModel("m", protocol="responses", base_url=server.base_url, max_retries=0) as model,
    ):
        with pytest.raises(ModelRequestError, match="500") as caught:
            await model.respond(request)
    assert [re.search(r"\b400\b", each.reason) is not None for each in caught.value.failed] == [True, False]


# Reasoning


TOOL_LOOP = [
    whole(thought(1), said("Adding.", phase="commentary"), called(1), called(2, 3, 4)),
    whole(thought(2), called(3, 5, 6)),
    whole(thought(3), said("Done.", 2, phase="final_answer")),
    whole(said("You are welcome.", 3)),
]


def streamed(answer):
    """The raw response of a whole answer, as a stream."""
    body = json.loads(answer.body)
    events = [{"type": "response.output_item.done", "item": each} for each in body["output"]]
    events.append({"type": "response.completed", "response": {**body, "output": []}})
    return RawResponse(200, EVENTS, "".join(f"data: {json.dumps(each)}\n\n" for each in events))


@BOTH
async def test_items_return_verbatim_in_a_tool_loop_and_across_turns(streaming, tmp_path):
    """Every item of an answer returns with its ids, in its order, also in the next run of the thread, in another agent."""
    replies = list(map(streamed, TOOL_LOOP)) if streaming else TOOL_LOOP
    async with openai_server(replies) as server:
        for task in ("1 + 2, 3 + 4 and 5 + 6?", "Thanks."):
            async with OpenAIModel("m", protocol="responses", base_url=server.base_url) as model:
                agent = Agent(single_run(), model=model, tools=[add], store=SqliteStore(tmp_path / "runs.db"))
                if streaming:
                    async for _ in agent.stream(task, thread="t"):
                        pass
                else:
                    await agent.run(task, thread="t")
    outputs = [json.loads(each.body)["output"] for each in TOOL_LOOP]
    results = [
        [{"type": "function_call_output", "call_id": f"c{number}", "output": output} for number, output in each]
        for each in (((1, "3"), (2, "7")), ((3, "11"),))
    ]
    ask = {"role": "user", "content": "1 + 2, 3 + 4 and 5 + 6?"}
    turns = [
        [ask],
        [*outputs[0], *results[0]],
        [*outputs[1], *results[1]],
        [*outputs[2], {**ask, "content": "Thanks."}],
    ]
    expected = []
    for turn, sent in zip(turns, server.requests, strict=True):
        expected += turn
        assert [each for each in sent["input"] if each.get("role") != "system"] == expected


@pytest.mark.parametrize(
    ("message", "more"),
    [
        ("The encrypted content gAAA could not be verified.", {"code": "invalid_encrypted_content"}),
        ("The encrypted content for item rs_1 could not be verified. Reason: it could not be decrypted", {}),
    ],
)
async def test_reasoning_that_the_server_cannot_read_is_left_out_once(message, more):
    """Of a history of another account; the reasoning of later answers is returned again."""
    first = ModelRequest((Message.user("1 + 2?"),))
    async with (
        openai_server(
            [whole(thought(1), called(1)), refusal(message, **more), whole(thought(2), called(2)), "3."]
        ) as server,
        OpenAIModel("m", protocol="responses", base_url=server.base_url) as model,
    ):
        messages = first.messages
        responses = []
        for number in (1, 2, 3):
            responses.append(await model.respond(ModelRequest(messages, (add,))))
            messages += (responses[-1].message, Message.tool(ToolResult(f"c{number}", "add", "3")))
    kinds = [[each.get("type", each.get("role")) for each in sent["input"]] for sent in server.requests]
    call, loop = ["function_call", "function_call_output"], ["reasoning", "function_call", "function_call_output"]
    assert kinds == [["user"], ["user", *loop], ["user", *call], ["user", *loop, *loop]]
    assert "id" not in server.requests[2]["input"][1]
    assert [len(each.failed) for each in responses] == [0, 1, 0]


@BOTH
async def test_a_model_without_reasoning_is_not_asked_for_it(streaming):
    """The refusal costs one request for each model object."""
    refused = refusal("Encrypted content is not supported with this model.", param="include")
    async with (
        openai_server([refused, "Hi.", "Hi."]) as server,
        OpenAIModel("gpt-4o", protocol="responses", base_url=server.base_url) as model,
    ):
        for _ in range(2):
            await model.respond(HELLO, [].append if streaming else None)
    assert ["include" in each for each in server.requests] == [True, False, False]


@BOTH
async def test_a_model_without_reasoning_is_not_sent_that_of_another(streaming):
    """A conversation can move to it; the refusal costs one request for each model object."""
    message = (
        "Reasoning input items can only be provided to a reasoning or computer use model. Remove reasoning items from your "
        "input and try again."
    )
    replies = [whole(thought(1), said("Hi.")), refusal(message, param="input"), "Hello.", "Hello."]
    async with (
        openai_server(replies) as server,
        OpenAIModel("gpt-5.6-sol", protocol="responses", base_url=server.base_url) as first,
        OpenAIModel("gpt-4o", protocol="responses", base_url=server.base_url) as second,
    ):
        answer = await first.respond(HELLO)
        messages = (*HELLO.messages, answer.message, Message.user("And now?"))
        for _ in range(2):
            await second.respond(ModelRequest(messages), [].append if streaming else None)
    sent = [[each.get("type") or each["role"] for each in body["input"]] for body in server.requests[1:]]
    assert sent == [["user", "reasoning", "message", "user"], *[["user", "message", "user"]] * 2]
    assert "id" not in server.requests[2]["input"][1]


async def test_an_answer_with_all_tokens_that_were_allowed_was_cut_off():
    """llama.cpp and `transformers serve` call it completed. A limit that the server names counts: LiteLLM raises small ones."""
    usage = {"input_tokens": 3, "output_tokens": 8}
    answer, raised = whole(said("Half a sen"), usage=usage), whole(said("All."), usage=usage, max_output_tokens=16)
    async with openai_server([answer, answer, raised]) as server:
        reasons = [(await asked(server, max_completion_tokens=limit)).finish_reason for limit in (8, 9, 8)]
    assert reasons == ["length", "stop", "stop"]


# Failures


async def test_a_run_reports_what_was_refused():
    """The request that failed is an event of the run, and the run has its answer."""
    refused = refusal("Encrypted content is not supported with this model.", param="include")
    heard = []
    async with (
        openai_server([refused, "Hi."]) as server,
        OpenAIModel("gpt-4o", protocol="responses", base_url=server.base_url) as model,
    ):
        agent = Agent(single_run(), model=model)
        agent.on(ModelRequestFailed, heard.append)
        assert (await agent.run("Hello, topsecret")).output == "Hi."
    [event] = heard
    assert event.model == "gpt-4o"
    assert "answered 400 (invalid_request_error, include)" in event.reason
    assert "topsecret" not in event.reason


@BOTH
async def test_an_unknown_parameter_is_named(streaming):
    """The error says what to leave out, and repeats nothing that was sent."""
    refused = refusal("Unsupported parameter: 'seed' is not supported with this model.", param="seed")
    async with openai_server([refused]) as server:
        with pytest.raises(ModelRequestError, match="it refuses the parameter 'seed': leave it out") as caught:
            await asked(server, on_text=[].append if streaming else None, seed=1, temperature=0)
    assert "topsecret" not in "".join(traceback.format_exception(caught.value))


async def test_a_parameter_that_is_only_mentioned_is_not_named():
    """A refusal for another reason does not say that a parameter is unknown."""
    async with openai_server(
        [refusal("The input is too long; lower max_tokens or shorten it.", param="input")]
    ) as server:
        with pytest.raises(ModelRequestError) as caught:
            await asked(server, max_tokens=5)
    assert "max_tokens" not in str(caught.value)


FAILURES = {
    "a refusal": (refusal("no", 401), "check the key"),
    "another protocol": (RawResponse(200, JSON, '{"choices": []}'), "protocol='chat'"),
    "html": (RawResponse(200, {"content-type": "text/html"}, "<html>topsecret</html>"), "something other than JSON"),
    "a failure": (whole(status="failed", error={"code": "server_error", "message": "topsecret"}), "server_error"),
    "a lost connection": (Cut("Hello.", 50), "cannot be reached"),
    "no such path": (refusal("no", 404), "base_url .*protocol"),
}


@pytest.mark.parametrize("case", FAILURES)
async def test_what_is_no_answer_is_an_error(case):
    """Each says what to do, and nothing that was sent stands in it."""
    reply, text = FAILURES[case]
    async with openai_server([reply]) as server:
        with pytest.raises(ModelRequestError, match=text) as caught:
            await asked(server)
    assert "topsecret" not in "".join(traceback.format_exception(caught.value))


def events(*data):
    return RawResponse(
        200, EVENTS, "".join(f"data: {each if isinstance(each, str) else json.dumps(each)}\n\n" for each in data)
    )


STREAMS = {
    "nothing": (events(), "broke off"),
    "half a text": (events({"type": "response.output_text.delta", "delta": "Half"}), "broke off"),
    "half a call": (
        events(
            {"type": "response.output_item.added", "output_index": 0, "item": {**called(1), "arguments": ""}},
            {"type": "response.function_call_arguments.delta", "output_index": 0, "delta": '{"a": 1, "b"'},
        ),
        "broke off",
    ),
    "an error": (events({"type": "error", "code": "server_error", "message": "topsecret"}), "server_error"),
    "a failure": (
        events({"type": "response.failed", "response": {"status": "failed", "error": {"code": "rate_limit_exceeded"}}}),
        "rate_limit_exceeded",
    ),
    "no JSON": (events("{topsecret"), "something other than JSON"),
}


@pytest.mark.parametrize("case", STREAMS)
async def test_a_stream_that_is_no_answer(case):
    """A stream that ends too early, or holds something else, is an error."""
    reply, text = STREAMS[case]
    async with openai_server([reply]) as server:
        with pytest.raises(ModelRequestError, match=text) as caught:
            await asked(server, on_text=[].append)
    assert "topsecret" not in str(caught.value)


@BOTH
async def test_reasoning_without_an_answer_ends_a_run(streaming, tmp_path):
    """The second time, with an error that says what to change; what it took is counted, and the run can be resumed."""
    nothing = ModelResponse(Message("assistant", (Reasoning("Hm. Well."),)), Usage(3, 500))
    async with (
        openai_server([nothing, nothing, "Hi."]) as server,
        OpenAIModel("m", protocol="responses", base_url=server.base_url) as model,
    ):
        agent = Agent(single_run(), model=model, store=SqliteStore(tmp_path / "runs.db"))
        with pytest.raises(NodeFailedError) as caught:
            if streaming:
                async for _ in agent.stream("Hello?", run_id="r"):
                    pass
            else:
                await agent.run("Hello?", run_id="r")
        assert isinstance(caught.value.__cause__, OutputError)
        assert "reasoned and then neither answered nor called a tool" in str(caught.value)
        assert "'reasoning_effort': 'low'" in str(caught.value)
        result = await agent.resume("r")
    assert (result.output, result.usage.output_tokens > 1000) == ("Hi.", True)


async def test_reasoning_up_to_the_limit_of_tokens_says_so():
    """The error is that of every answer that was cut off."""
    half = ModelResponse(Message("assistant", (Reasoning("Hm. Well."),)), finish_reason="length")
    async with (
        openai_server([half]) as server,
        OpenAIModel("m", protocol="responses", base_url=server.base_url) as model,
    ):
        with pytest.raises(NodeFailedError) as caught:
            await Agent(single_run(), model=model).run("Hello?")
    assert isinstance(caught.value.__cause__, TruncatedError)


@pytest.mark.parametrize("protocol", ["chat", "responses"])
async def test_a_refusal_instead_of_json_is_not_asked_for_again(protocol):
    """The error has the model's words; a refusal in a text is the text."""
    refused = ModelResponse(Message.assistant("I will not."), finish_reason="refusal")
    async with (
        openai_server([refused, refused]) as server,
        OpenAIModel("m", protocol=protocol, base_url=server.base_url) as model,
    ):
        with pytest.raises(OutputError, match="refused to answer") as caught:
            await structured(model.respond, HELLO.messages, list[int])
        assert caught.value.output == "I will not."
        result = await Agent(single_run(), model=model).run("Hello?")
    assert (result.output, result.finish_reason, len(server.requests)) == ("I will not.", "refusal", 2)


async def test_a_message_that_was_cut_off_before_it_was_done():
    """Its text, which was heard, is in the answer, after the reasoning that was done."""
    half = said("Half an", status="incomplete")
    response = {
        "status": "incomplete",
        "incomplete_details": {"reason": "max_output_tokens"},
        "output": [thought(1), half],
    }
    events = [
        {"type": "response.output_item.done", "item": thought(1)},
        {"type": "response.output_text.delta", "delta": "Half an"},
        {"type": "response.incomplete", "response": response},
    ]
    async with openai_server(
        [RawResponse(200, EVENTS, "".join(f"data: {json.dumps(each)}\n\n" for each in events))]
    ) as server:
        answer = await asked(server, on_text=(heard := []).append)
    assert ([type(part) for part in answer.message.parts], answer.message.text) == ([Reasoning, Text], "Half an")
    assert (heard, answer.finish_reason) == (["Half an"], "length")


# Which protocol


@pytest.mark.parametrize(
    ("host", "own"),
    [
        ("", True),
        ("api.openai.com", True),
        ("eu.api.openai.com", True),
        ("api.openai.com.example.org", False),
        ("localhost", False),
    ],
)
def test_the_hosts_of_openai(host, own):
    """No address means OpenAI's own; regional hosts are its own too."""
    assert is_openai(host) == own


@pytest.mark.parametrize(
    ("base_url", "environment", "path"),
    [
        ("http://api.openai.com/v1", None, "input"),
        (None, "http://eu.api.openai.com/v1", "input"),
        ("http://models.example.org/v1", "http://api.openai.com/v1", "messages"),
        (None, "http://models.example.org/v1", "messages"),
    ],
)
async def test_the_address_decides_which_protocol(base_url, environment, path, monkeypatch):
    """OpenAI's own hosts are asked by Responses, all others by Chat Completions; the environment counts at the request.

    The local server is the proxy of all of these hosts.
    """
    for name in ("OPENAI_BASE_URL", "NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    model = OpenAIModel("m", base_url=base_url, api_key=KEY)
    if environment:
        monkeypatch.setenv("OPENAI_BASE_URL", environment)
    async with openai_server(["Hi."]) as server, model:
        monkeypatch.setenv("HTTP_PROXY", server.base_url.removesuffix("/v1"))
        assert (await model.respond(HELLO)).message.text == "Hi."
    assert path in server.requests[0]


@pytest.mark.parametrize("protocol", [None, "chat", "responses"])
def test_a_model_shows_what_is_asked_where(protocol):
    """Over each protocol it has the same name, the same address without the password and the key, and the same errors."""
    address = "http://me:topsecret@localhost:1/v1"
    model = OpenAIModel("m", protocol=protocol, base_url=address, api_key=KEY, temperature=0)
    assert (repr(model), model.base_url) == ("<OpenAIModel: model 'm' at localhost:1>", "http://localhost:1/v1")
    assert (model.name, model.parameters, model.tells_cost) == ("m", {"temperature": 0}, False)
    assert OpenAIModel("m", protocol=protocol, base_url="https://openrouter.ai/api/v1").tells_cost
    with pytest.raises(ValueError, match="family='acme' is not known; there are 'openai'"):
        OpenAIModel("m", protocol=protocol, family="acme")
