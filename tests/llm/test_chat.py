"""Chat Completions as JSON: requests and responses, there and back."""

from __future__ import annotations

import json

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
    Text,
    ToolCall,
    ToolResult,
    Usage,
    tool,
)
from graphagent.llm._chat import to_body
from graphagent.llm._chat_answer import Chunks, from_body
from graphagent.llm._chat_messages import chat_messages
from graphagent.llm._endpoint import Events
from graphagent.llm._responses_items import input_items
from graphagent.testing._wire import ChatCompletions

SERVER = ChatCompletions(None)


def completion(response):
    """What the local server sends of a response."""
    return SERVER.answer(response, {}, {}, 1)


@tool
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


TEXTS = some.text(some.characters(codec="utf-8"), min_size=1)
ARGUMENTS = some.dictionaries(some.text(), some.integers() | some.text() | some.lists(some.booleans()), max_size=3)
CALLS = some.builds(ToolCall, TEXTS, ARGUMENTS, TEXTS)
IMAGES = some.builds(Image, some.binary(min_size=1), some.sampled_from(["image/png", "image/jpeg"])) | some.builds(
    Image, url=some.just("https://example.org/cat.png")
)
MESSAGES = some.one_of(
    some.builds(Message.system, TEXTS),
    some.builds(lambda parts: Message.user(*parts), some.lists(IMAGES, min_size=1)),
    some.builds(lambda text, image: Message.user(text, image), TEXTS, IMAGES),
    some.builds(Message.user, TEXTS),
    some.builds(Message.assistant, TEXTS, some.lists(CALLS, max_size=3)),
    some.builds(lambda call: Message.assistant(calls=[call]), CALLS),
)
RESPONSES = some.builds(
    ModelResponse,
    some.builds(
        lambda thought, text, calls: Message(
            "assistant", (*map(Reasoning, thought), *map(Text, text), *calls)
        ),
        some.lists(TEXTS, max_size=1),
        some.lists(TEXTS, max_size=1),
        some.lists(CALLS, max_size=3, unique_by=lambda call: call.id),
    ),
    some.builds(
        Usage, *[some.integers(0, 10**9)] * 4
    ),
    model=TEXTS,
)  # fmt: skip


def finished(response):
    """The response with the reason that its parts call for."""
    reason = "tool_calls" if response.message.tool_calls else "stop"
    return ModelResponse(response.message, response.usage, reason, response.model)


# There and back


@given(messages=some.lists(MESSAGES))
def test_messages_go_to_the_wire_and_back(messages):
    """Text, images and calls are read as they were sent."""
    body = json.loads(json.dumps(to_body(ModelRequest(tuple(messages)), "m")))
    assert SERVER.read(body, "").messages == tuple(messages)


@given(response=RESPONSES)
def test_a_whole_answer_is_read_as_it_was_given(response):
    """Text, reasoning, calls, usage and model survive."""
    response = finished(response)
    assert from_body(json.loads(json.dumps(completion(response))), "s") == response


@given(response=RESPONSES, sizes=some.lists(some.integers(1, 50), min_size=1), end=some.sampled_from([b"\n", b"\r\n"]))
def test_a_streamed_answer_is_the_same_answer(response, sizes, end):
    """However the bytes are cut, the chunks become what would have come at once, and the text is given once."""
    response = finished(response)
    sent = b"".join(
        b"data: " + json.dumps(each, ensure_ascii=False).encode() + end * 2
        for each in SERVER.events(completion(response), {"stream_options": {"include_usage": True}})
    )
    events, answer, texts = Events(), Chunks(), []
    while sent:
        size = sizes.pop(0) if len(sizes) > 1 else sizes[0]
        piece, sent = sent[:size], sent[size:]
        texts += [answer.add(json.loads(event), "s") for event in events.add(piece)]
    assert events.add(None) == []
    assert answer.finished
    assert from_body(answer.body(), "s") == response
    assert "".join(texts) == response.message.text


# Requests


def test_a_full_request():
    """Messages, tools, the choice of one and the output format as the protocol has them."""
    request = ModelRequest(
        (
            Message.system("Short."),
            Message.user("What is", Image(b"png"), "this?"),
            Message.assistant("Let me see.", [ToolCall("add", {"a": 1, "b": 2}, "c1")]),
            Message.tool(ToolResult("c1", "add", "3")),
        ),
        tools=(add,),
        tool_choice="add",
        output=OutputFormat("n", {"type": "object"}, strict=True),
    )
    assert to_body(request, "m") == snapshot(
        {
            "model": "m",
            "messages": [
                {"role": "system", "content": "Short."},
                {
                    "role": "user",
                    "content": [
                        {"type": "text", "text": "What is"},
                        {"type": "image_url", "image_url": {"url": "data:image/png;base64,cG5n"}},
                        {"type": "text", "text": "this?"},
                    ],
                },
                {
                    "role": "assistant",
                    "content": "Let me see.",
                    "tool_calls": [
                        {"type": "function", "id": "c1", "function": {"name": "add", "arguments": '{"a": 1, "b": 2}'}}
                    ],
                },
                {"role": "tool", "tool_call_id": "c1", "content": "3"},
            ],
            "tools": [
                {
                    "type": "function",
                    "function": {
                        "name": "add",
                        "description": "Add two numbers.",
                        "parameters": {
                            "additionalProperties": False,
                            "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
                            "required": ["a", "b"],
                            "type": "object",
                        },
                    },
                }
            ],
            "tool_choice": {"type": "function", "function": {"name": "add"}},
            "response_format": {
                "type": "json_schema",
                "json_schema": {"name": "n", "schema": {"type": "object"}, "strict": True},
            },
        }
    )


@pytest.mark.parametrize(("choice", "sent"), [("auto", None), ("none", "none"), ("required", "required")])
def test_tool_choices(choice, sent):
    """The default is not sent; without tools no choice is."""
    assert to_body(ModelRequest((), (add,), choice), "m").get("tool_choice") == sent
    assert "tool_choice" not in to_body(ModelRequest((), (), choice), "m")


def test_images_of_tools_follow_all_results():
    """Results of one turn stay together, as servers demand; their images come after them as a user's message."""
    sent = chat_messages(
        [
            Message.assistant(calls=[ToolCall("see", {}, "1"), ToolCall("see", {}, "2")]),
            Message.tool(ToolResult("1", "see", "a", images=(Image(b"A"),))),
            Message.tool(ToolResult("2", "see", "b", images=(Image(url="http://x/b.png"),))),
            Message.assistant("Nice."),
        ]
    )
    assert [each["role"] for each in sent] == ["assistant", "tool", "tool", "user", "assistant"]
    assert sent[3]["content"] == snapshot(
        [
            {"type": "text", "text": "Images that see gave (call 1):"},
            {"type": "image_url", "image_url": {"url": "data:image/png;base64,QQ=="}},
            {"type": "text", "text": "Images that see gave (call 2):"},
            {"type": "image_url", "image_url": {"url": "http://x/b.png"}},
        ]
    )


def test_malformed_arguments_are_not_sent_back():
    """The history stays valid JSON for servers that read it."""
    [sent] = chat_messages([Message.assistant(calls=[ToolCall("t", id="1", malformed='{"a": ')])])
    assert sent["tool_calls"][0]["function"]["arguments"] == "{}"


def test_infinity_in_a_history_is_sent_as_text():
    """A run that was recorded when such a call was not malformed goes on; JSON has no infinity, and servers refuse it."""
    data = ProviderData("f", {"type": "function_call", "arguments": '{"a": 1e999}'})
    history = [Message("assistant", (ToolCall("t", {"a": [float("-inf"), 2**80]}, "1", provider=data),))]
    [chat], [item] = chat_messages(history), input_items(history, "f")
    for sent in (chat["tool_calls"][0]["function"], item):
        assert json.loads(sent["arguments"]) == {"a": ["-Infinity", 2**80]}


def test_reasoning_is_not_sent_back():
    """Servers refuse reasoning that they did not ask for."""
    [sent] = chat_messages([Message("assistant", (Reasoning("hm"), Text("Yes.")))])
    assert sent == {"role": "assistant", "content": "Yes."}


@pytest.mark.parametrize("first", [(), (Message.system("Short."),)])
def test_a_schema_in_the_prompt_stands_in_the_system_message(first):
    """Where the server has no format, the model is told it at the front, and nothing else changes."""
    request = ModelRequest((*first, Message.user("Hi")), output=OutputFormat.of(list[int]))
    body = to_body(request, "m", schema_in_prompt=True)
    assert "response_format" not in body
    assert [each["role"] for each in body["messages"]] == ["system", "user"]
    assert '"additionalProperties": false' in body["messages"][0]["content"]
    assert body["messages"][0]["content"].startswith("Short." if first else "Answer")
    assert len(request.messages) == len(first) + 1


# Responses


def answer(message, **rest):
    return from_body({"choices": [{"message": message, **rest}]}, "s")


def called(arguments):
    [call] = answer({"tool_calls": [{"id": "1", "function": {"name": "t", "arguments": arguments}}]}).message.tool_calls
    return call


@pytest.mark.parametrize(
    ("arguments", "read", "malformed"),
    [
        ('{"a": 1}', {"a": 1}, ""),
        ("", {}, ""),
        (None, {}, ""),
        ({"a": 1}, {"a": 1}, ""),
        (f'{{"a": {2**80}}}', {"a": 2**80}, ""),
        ('{"a": ', {}, '{"a": '),
        ("[1]", {}, "[1]"),
        ("null", {}, "null"),
        ('{"a": NaN}', {}, '{"a": NaN}'),
        ('{"a": {"b": [1, 83.09201E1110016]}}', {}, '{"a": {"b": [1, 83.09201E1110016]}}'),
        ('{"a": 8.3e+30}', {"a": 8.3e30}, ""),
        ({"a": float("inf")}, {}, '{"a": Infinity}'),
        ("[" * 100_000, {}, "[" * 100_000),
    ],
)
def test_arguments_are_an_object_or_malformed(arguments, read, malformed):
    """What is no JSON object is kept as it came."""
    call = called(arguments)
    assert (call.arguments, call.malformed) == (read, malformed)


def test_odd_servers_are_understood():
    """Lists of chunks, `reasoning`, refusals, missing ids, no finish reason and no usage are read."""
    parts = [{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}, {"type": "text", "text": "Yes."}]
    assert answer({"content": parts}).message == Message("assistant", (Reasoning("hm"), Text("Yes.")))
    assert answer({"content": None, "refusal": "I cannot."}).message.text == "I cannot."
    assert answer({"reasoning": "hm", "content": "x"}).message.parts[0] == Reasoning("hm")
    response = answer({"tool_calls": [{"function": {"name": "t"}}]}, finish_reason="stop")
    assert response.message.tool_calls == (ToolCall("t"),)
    assert response.finish_reason == "tool_calls"
    assert response.usage == Usage()


@pytest.mark.parametrize(
    "data",
    [None, [], "x", {}, {"choices": None}, {"choices": []}, {"choices": [None]}, {"choices": [{"message": "x"}]}],
)
def test_what_is_not_the_protocol_is_an_error(data):
    """An answer of another shape is a clear error, not an AttributeError."""
    with pytest.raises(ModelRequestError, match=r"^s "):
        from_body(data, "s")


def test_an_error_in_a_good_status_is_an_error():
    """Some routers answer 200 with an error inside."""
    with pytest.raises(ModelRequestError) as caught:
        from_body({"error": {"code": 502, "message": "the provider said: topsecret"}}, "s")
    assert caught.value.status == 502
    assert "topsecret" not in str(caught.value)
    assert "topsecret" in caught.value.detail


@pytest.mark.parametrize("indices", [(0, 0), (None, None), (0, 1)])
def test_streamed_calls_are_told_apart(indices):
    """Servers that give every call the same index, or none, still make two calls of two ids."""
    answer = Chunks()
    for index, identity, name in zip(indices, ("1", "2"), ("a", "b"), strict=True):
        for said in ({"id": identity, "function": {"name": name}}, {"function": {"arguments": '{"x"'}},
                     {"id": identity, "function": {"name": name, "arguments": ": 1}"}}):  # fmt: skip
            delta = {"tool_calls": [{"index": index, **said}]}
            answer.add({"choices": [{"delta": delta}]}, "s")
    answer.add({"choices": [{"delta": {}, "finish_reason": "tool_calls"}]}, "s")
    calls = from_body(answer.body(), "s").message.tool_calls
    assert calls == (ToolCall("a", {"x": 1}, "1"), ToolCall("b", {"x": 1}, "2"))


def test_events_of_several_lines_and_other_fields():
    """Comments and other fields are passed over, lines of one event are joined, the last needs no blank line."""
    events = Events()
    found = events.add(b': hello\nevent: x\ndata: {"a":\ndata: 1}\n\ndata:2\n\n\n\ndata: "\xe2\x80\xa8"')
    assert found == [b'{"a":\n1}', b"2"]
    assert events.add(None) == ['"\u2028"'.encode()]
