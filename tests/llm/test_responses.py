"""Responses as JSON: requests and responses, there and back."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as some
from inline_snapshot import snapshot

from graphagent.errors import ModelRequestError
from graphagent.llm import (
    Image,
    Message,
    ModelRequest,
    ModelResponse,
    OutputFormat,
    ProviderData,
    Reasoning,
    ToolCall,
    ToolResult,
    tool,
)
from graphagent.llm._endpoint import Events
from graphagent.llm._responses import add_parameters, to_body
from graphagent.llm._responses_answer import ResponseEvents, from_body
from graphagent.llm._responses_items import input_items
from graphagent.testing._responses import Responses
from tests.llm.test_chat import MESSAGES, RESPONSES


@tool
async def add(a: int, b: int = 1) -> int:
    """Add two numbers."""
    return a + b


def reasoning(number, **more):
    return {"type": "reasoning", "id": f"rs_{number}", "summary": [], "encrypted_content": f"gAAA{number}", **more}


def said(text, identity="msg_1", **more):
    content = [{"type": "output_text", "text": text, "annotations": []}]
    message = {"type": "message", "role": "assistant", "status": "completed", "content": content}
    return {**message, "id": identity, **more}


def called(number, arguments="{}", **more):
    call = {"type": "function_call", "call_id": f"call_{number}", "name": "add", "arguments": arguments}
    return {**call, "id": f"fc_{number}", **more}


def answered(*output, **more):
    return from_body({"status": "completed", "output": list(output), **more}, "s", "f")


# There and back


SERVER = Responses(None)
ASKED = {"input": "?", "store": False, "include": ["reasoning.encrypted_content"]}


def plain(response):
    """The response without what its server wants back, and with the reason that its parts call for."""
    parts = tuple(replace(part, provider=None) for part in response.message.parts)
    return ModelResponse(Message("assistant", parts), response.usage, response.finish_reason, response.model)


def finished(response):
    reason = "tool_calls" if response.message.tool_calls else "stop"
    return ModelResponse(response.message, response.usage, reason, response.model)


@given(messages=some.lists(MESSAGES))
def test_messages_go_to_the_wire_and_back(messages):
    """Text, images and calls are read as they were sent; neighbours that one answer may have are read as one."""
    body = json.loads(json.dumps(to_body(ModelRequest(tuple(messages)), "m", "f")))
    sent = [part for message in messages for part in message.parts]
    assert [part for message in SERVER.read(body, "").messages for part in message.parts] == sent


@given(response=RESPONSES)
def test_a_whole_answer_is_read_as_it_was_given(response):
    """Text, reasoning, calls, usage and model survive, and everything that the server wants back is sent back."""
    response = finished(response)
    whole = json.loads(json.dumps(SERVER.answer(response, ASKED, "", 1)))
    read = from_body(whole, "s", "f")
    assert plain(read) == response
    if response.message.text or response.message.tool_calls:
        returned = input_items([read.message], "f")
        assert [each.get("encrypted_content") for each in returned] == [
            each.get("encrypted_content") for each in whole["output"]
        ]
        if whole["output"][0]["type"] == "reasoning":
            assert [each["id"] for each in returned] == [each["id"] for each in whole["output"]]


@given(response=RESPONSES, sizes=some.lists(some.integers(1, 50), min_size=1))
def test_a_streamed_answer_is_the_same_answer(response, sizes):
    """However the bytes are cut, the events become what would have come at once, and the text is given once."""
    whole = SERVER.answer(finished(response), ASKED, "", 1)
    sent = b"".join(
        b"event: " + each["type"].encode() + b"\ndata: " + json.dumps(each, ensure_ascii=False).encode() + b"\n\n"
        for each in SERVER.events(whole, ASKED)
    )
    events, answer, texts = Events(), ResponseEvents(), []
    while sent:
        size = sizes.pop(0) if len(sizes) > 1 else sizes[0]
        piece, sent = sent[:size], sent[size:]
        texts += [answer.add(json.loads(event), "s") for event in events.add(piece)]
    assert answer.finished
    assert from_body(answer.body(), "s", "f") == from_body(whole, "s", "f")
    assert "".join(texts) == response.message.text


# Requests


def test_a_full_request():
    """Nothing is stored, reasoning is asked for, tools are flat and not strict, images are of its own form."""
    request = ModelRequest(
        (
            Message.system("Short."),
            Message.user("What is", Image(b"png"), "this?"),
            Message.assistant("Let me see.", [ToolCall("add", {"a": 1}, "c1")]),
            Message.tool(ToolResult("c1", "add", "2", images=(Image(url="https://example.org/2.png"),))),
        ),
        tools=(add,),
        tool_choice="add",
        output=OutputFormat("n", {"type": "object"}, strict=True),
    )
    assert to_body(request, "m", "f") == snapshot(
        {
            "model": "m",
            "input": [
                {"role": "system", "content": "Short."},
                {
                    "role": "user",
                    "content": [
                        {"type": "input_text", "text": "What is"},
                        {"type": "input_image", "image_url": "data:image/png;base64,cG5n", "detail": "auto"},
                        {"type": "input_text", "text": "this?"},
                    ],
                },
                {"type": "message", "role": "assistant", "content": "Let me see."},
                {"type": "function_call", "call_id": "c1", "name": "add", "arguments": '{"a": 1}'},
                {
                    "type": "function_call_output",
                    "call_id": "c1",
                    "output": [
                        {"type": "input_text", "text": "2"},
                        {"type": "input_image", "image_url": "https://example.org/2.png", "detail": "auto"},
                    ],
                },
            ],
            "store": False,
            "include": ["reasoning.encrypted_content"],
            "tools": [
                {
                    "type": "function",
                    "name": "add",
                    "description": "Add two numbers.",
                    "parameters": {
                        "additionalProperties": False,
                        "properties": {"a": {"type": "integer"}, "b": {"default": 1, "type": "integer"}},
                        "required": ["a"],
                        "type": "object",
                    },
                    "strict": False,
                }
            ],
            "tool_choice": {"type": "function", "name": "add"},
            "text": {
                "format": {"type": "json_schema", "name": "n", "schema": {"type": "object"}, "strict": True},
            },
        }
    )


@pytest.mark.parametrize(("choice", "sent"), [("auto", None), ("none", "none"), ("required", "required")])
def test_tool_choices(choice, sent):
    """The default is not sent; without tools no choice is."""
    assert to_body(ModelRequest((), (add,), choice), "m", "f").get("tool_choice") == sent
    assert "tool_choice" not in to_body(ModelRequest((), (), choice), "m", "f")


@pytest.mark.parametrize(
    ("given", "sent"),
    [
        ({"max_completion_tokens": 5}, {"max_output_tokens": 5}),
        ({"max_tokens": 5}, {"max_output_tokens": 5}),
        ({"reasoning_effort": "low"}, {"reasoning": {"effort": "low"}}),
        ({"reasoning": {"summary": "auto"}, "reasoning_effort": "low"}, {"reasoning": {"summary": "auto", "effort": "low"}}),
        ({"verbosity": "low"}, {"text": {"format": {"type": "text"}, "verbosity": "low"}}),
        ({"response_format": {"type": "json_object"}}, {"text": {"format": {"type": "json_object"}}}),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": {}}}},
            {"text": {"format": {"type": "json_schema", "name": "n", "schema": {}}}},
        ),
        ({"include": ["web_search_call.action.sources"]}, {"include": ["x", "web_search_call.action.sources"]}),
        ({"extra_body": {"service_tier": "flex"}}, {"service_tier": "flex"}),
        ({"temperature": 0, "store": True}, {"temperature": 0, "store": True}),
    ],
)  # fmt: skip
def test_parameters_of_chat_completions_have_their_place_here(given, sent):
    """So a strategy that sets them works with both protocols; settings that a request has already are kept beside them."""
    body = {"text": {"format": {"type": "text"}}, "include": ["x"]}
    add_parameters(body, given)
    assert body == {"text": {"format": {"type": "text"}}, "include": ["x"]} | sent


def test_a_schema_in_the_prompt():
    """For servers that do not take one as a setting."""
    request = ModelRequest((Message.user("Hi"),), output=OutputFormat.of(list[int]))
    body = to_body(request, "m", "f", schema_in_prompt=True)
    assert "text" not in body
    assert [each["role"] for each in body["input"]] == ["system", "user"]


# What a server attached to its answer


def test_data_of_another_family_are_not_sent():
    """A server gets text and calls of another's answer, without ids and reasoning."""
    message = answered(reasoning(1), said("Adding.", phase="commentary"), called(1)).message
    assert input_items([message], "g") == [
        {"type": "message", "role": "assistant", "content": "Adding."},
        {"type": "function_call", "call_id": "call_1", "name": "add", "arguments": "{}"},
    ]


def test_ids_are_sent_only_with_their_reasoning():
    """A server refuses an item by its id without the reasoning before it; the phase is no id."""
    parts = answered(reasoning(1), said("Adding.", phase="commentary"), called(1)).message.parts
    assert input_items([Message("assistant", parts[1:])], "f") == [
        {"type": "message", "role": "assistant", "content": "Adding.", "phase": "commentary"},
        {"type": "function_call", "call_id": "call_1", "name": "add", "arguments": "{}"},
    ]


def test_reasoning_without_what_came_of_it_is_not_sent():
    """A server refuses it alone."""
    parts = answered(said("Adding."), reasoning(1)).message.parts
    assert input_items([Message("assistant", parts)], "f") == [said("Adding.")]


def test_reasoning_that_cannot_be_returned_is_text():
    """By its id alone the server would not find it; without any text there is nothing to keep."""
    summary = [{"type": "summary_text", "text": "One."}, {"type": "summary_text", "text": "Two."}]
    assert answered({"type": "reasoning", "id": "rs_1", "summary": summary}).message.parts == (
        Reasoning("One.\n\nTwo."),
    )
    assert answered({"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": None}).message.parts == ()


def test_plain_reasoning_is_returned():
    """Servers of open models do not encrypt it."""
    item = {"type": "reasoning", "id": "rs_1", "summary": [], "content": [{"type": "reasoning_text", "text": "hm"}]}
    message = answered(item, said("Yes.")).message
    assert message.parts[0] == Reasoning("hm", provider=ProviderData("f", item))
    assert input_items([message], "f")[0] == item


# Responses


@pytest.mark.parametrize(
    ("arguments", "read", "malformed"),
    [('{"a": 1}', {"a": 1}, ""), ("", {}, ""), ('{"a": ', {}, '{"a": '), ("[1]", {}, "[1]"), ({"a": 1}, {"a": 1}, "")],
)
def test_arguments_are_an_object_or_malformed(arguments, read, malformed):
    """What is no JSON object is kept as it came, and is not sent back."""
    message = answered(called(1, arguments)).message
    [call] = message.tool_calls
    assert (call.arguments, call.malformed, call.id) == (read, malformed, "call_1")
    assert input_items([message], "f")[0]["arguments"] == json.dumps(read)


@pytest.mark.parametrize(
    ("said_reason", "reason"),
    [("max_output_tokens", "length"), (None, "length"), ("steered", "steered")],
)
def test_an_incomplete_answer_says_why(said_reason, reason):
    """In the words that answers of Chat Completions have for it."""
    details = {"reason": said_reason} if said_reason else None
    response = answered(said("Half a sen"), status="incomplete", incomplete_details=details)
    assert (response.message.text, response.finish_reason) == ("Half a sen", reason)


@pytest.mark.parametrize("data", [None, [], "x", {}, {"output": None}, {"output": {}}, {"choices": []}])
def test_what_is_not_the_protocol_is_an_error(data):
    """An answer of another shape is a clear error that names the other protocol."""
    with pytest.raises(ModelRequestError, match=r"^s answered without an output; .*protocol='chat'"):
        from_body(data, "s", "f")


@pytest.mark.parametrize(
    ("error", "status", "said_codes"),
    [
        ({"code": "rate_limit_exceeded", "message": "topsecret"}, 429, " (rate_limit_exceeded)"),
        ({"code": "server_error", "message": "topsecret"}, 500, " (server_error)"),
        ({"code": "invalid_prompt", "message": "topsecret"}, None, " (invalid_prompt)"),
        ({"code": "a topsecret code", "message": "topsecret"}, None, ""),
        (None, None, ""),
    ],
)
def test_a_failed_answer_is_an_error(error, status, said_codes):
    """With the status of its code, so that whoever tries again knows it, and without the server's words."""
    with pytest.raises(ModelRequestError) as caught:
        from_body({"status": "failed", "error": error, "output": []}, "s", "f")
    assert str(caught.value) == f"s failed while it answered{said_codes}"
    assert caught.value.status == status
    assert error is None or "topsecret" in caught.value.detail


def test_a_prompt_that_is_too_long_says_so():
    """Also where the server notices it while it answers."""
    error = {"code": "context_length_exceeded", "message": "Your input exceeds the context window of this model."}
    with pytest.raises(ModelRequestError, match="keep prompts short with"):
        from_body({"status": "failed", "error": error}, "s", "f")


# Streams


@pytest.mark.parametrize(
    "event",
    [
        {"type": "error", "code": "server_error", "message": "topsecret"},
        {"type": "error", "error": {"code": "server_error", "message": "topsecret"}},
        {"error": {"code": "server_error", "message": "topsecret"}},
    ],
)
def test_an_error_in_a_stream(event):
    """In each of the forms that servers use."""
    with pytest.raises(ModelRequestError, match=r"^s failed while it answered \(server_error\)$") as caught:
        ResponseEvents().add(event, "s")
    assert (caught.value.status, json.loads(caught.value.detail)["message"]) == (500, "topsecret")
