"""The server's Responses protocol, seen by the official client, whose types are checked strictly."""

from __future__ import annotations

import base64
import json

import pytest
from openai import BadRequestError, NotFoundError
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import BaseModel, TypeAdapter

from graphagent.llm import Image, Message, ModelResponse, Reasoning, Text, ToolCall, ToolCalls, ToolResult, Usage
from graphagent.testing import openai_server
from tests.testing.test_openai_server import client, sent

RESPONSE = TypeAdapter(Response)
EVENT = TypeAdapter(ResponseStreamEvent)
ADD = {"type": "function", "name": "add", "description": "Add.", "parameters": {"type": "object"}, "strict": True}
PNG = b"\x89PNG\r\n\x1a\n"
EVERYTHING = ModelResponse(
    Message("assistant", (Reasoning("I think so."), Text("Well "), Text("then."), ToolCall("add", {"a": 1}, "c1"))),
    Usage(10, 5, 4, 3),
    "tool_calls",
)
REPLIES = {
    "text": "Hi there.",
    "no text": "",
    "calls": ToolCalls([ToolCall("add", {"a": 1}, "c1"), ToolCall("add", {"a": 2}, "c2")], "Well."),
    "calls without ids": [ToolCall("add", {"a": 1}), ToolCall("add", {"a": 2})],
    "arguments that are no JSON": ToolCall("add", malformed='{"a": '),
    "everything": EVERYTHING,
    "reasoning only": ModelResponse(Message("assistant", (Reasoning("Hm. Well."),))),
    "cut off": ModelResponse(Message.assistant("Hi th"), finish_reason="length"),
    "withheld": ModelResponse(Message.assistant(""), finish_reason="content_filter"),
    "refused": ModelResponse(Message.assistant("I will not say."), finish_reason="refusal"),
    "failed": ModelResponse(Message.assistant("Hi th"), finish_reason="failed"),
}


class Plan(BaseModel):
    """What is planned."""

    title: str


def events_of(content):
    """The events of a stream, each with the name that its line says."""
    blocks = content.decode().strip().split("\n\n")
    for block in blocks:
        name, data = block.split("\n")
        event = json.loads(data.removeprefix("data: "))
        assert name == f"event: {event['type']}"
        yield event


@pytest.mark.parametrize("case", REPLIES)
def test_what_it_sends_is_of_the_official_types(case):
    """A whole response and each event have exactly the types of the official client, and say the same."""
    asked = {"model": "m", "input": "Hello", "tools": [ADD], "include": ["reasoning.encrypted_content"], "store": False}
    with openai_server([REPLIES[case]] * 2) as server:
        status, whole = sent(server, json.dumps(asked), "/v1/responses")
        assert status == 200, whole
        _, stream = sent(server, json.dumps({**asked, "stream": True}), "/v1/responses")
    response = RESPONSE.validate_json(whole, strict=True)
    events = list(events_of(stream))
    for event in events:
        EVENT.validate_json(json.dumps(event), strict=True)
    kinds = [event["type"] for event in events]
    assert kinds[:2] == ["response.created", "response.in_progress"]
    assert kinds[-1] == f"response.{response.status}"
    assert [event["sequence_number"] for event in events] == list(range(len(events)))
    streamed = RESPONSE.validate_python(events[-1]["response"])
    assert [item.type for item in streamed.output] == [item.type for item in response.output]
    assert streamed.output_text == response.output_text
    # Each item is announced, told in pieces, and finished as it is in the whole.
    done = [event["item"] for event in events if event["type"] == "response.output_item.done"]
    assert done == events[-1]["response"]["output"]
    for index, item in enumerate(done):
        of_item = [event for event in events if event.get("output_index") == index]
        deltas = "".join(event["delta"] for event in of_item if event["type"].endswith(".delta"))
        told = [part.get("text", part.get("refusal")) for part in (*item.get("content", ()), *item.get("summary", ()))]
        assert deltas == item.get("arguments", "".join(told))


def test_the_official_client_reads_it():
    """Text, calls, reasoning, usage and the reason of an incomplete answer are where the official client has them."""
    with (
        openai_server([EVERYTHING, REPLIES["cut off"], REPLIES["refused"]], model="m-1") as server,
        client(server) as openai,
    ):
        response = openai.responses.create(
            model="m", input="Hello", include=["reasoning.encrypted_content"], store=False
        )
        cut = openai.responses.create(model="m", input="Hello", max_output_tokens=2)
        refused = openai.responses.create(model="m", input="Hello")
    thought, said, call = response.output
    assert (response.model, response.output_text, response.usage.total_tokens) == ("m-1", "Well then.", 15)
    assert response.usage.input_tokens_details.cached_tokens == 4
    assert response.usage.output_tokens_details.reasoning_tokens == 3
    assert (thought.summary[0].text, bool(thought.encrypted_content)) == ("I think so.", True)
    assert (said.content[0].text, call.call_id, call.arguments) == ("Well then.", "c1", '{"a": 1}')
    assert (cut.status, cut.incomplete_details.reason, cut.output_text) == ("incomplete", "max_output_tokens", "Hi th")
    assert cut.output[0].status == "incomplete"
    assert refused.output[0].content[0].refusal == "I will not say."
    assert server.requests[1] == {"model": "m", "input": "Hello", "max_output_tokens": 2}


def test_encrypted_reasoning_comes_only_if_it_is_asked_for():
    """Without `include` a reasoning item has no encrypted content."""
    with openai_server([EVERYTHING]) as server, client(server) as openai:
        assert openai.responses.create(model="m", input="Hello").output[0].encrypted_content is None


def test_the_official_client_streams_it():
    """The official client's helper follows a stream to its end, and parses structured output in it."""
    with openai_server([EVERYTHING, {"title": "Tidy up"}]) as server, client(server) as openai:
        with openai.responses.stream(model="m", input="Hello", tools=[ADD]) as stream:
            pieces = [event.delta for event in stream if event.type == "response.output_text.delta"]
            final = stream.get_final_response()
        with openai.responses.stream(model="m", input="Hello", text_format=Plan) as stream:
            plan = stream.get_final_response().output_parsed
    assert pieces == ["Well", " then."]
    assert [item.type for item in final.output] == ["reasoning", "message", "function_call"]
    assert final.output[2].arguments == '{"a": 1}'
    assert plan == Plan(title="Tidy up")


def test_structured_output():
    """The official client's `parse` gets its type, and the function that answers sees the schema."""
    asked = []

    def answer(request):
        asked.append(request)
        return {"title": "Tidy up"}

    with openai_server(answer) as server, client(server) as openai:
        response = openai.responses.parse(model="m", input="Hello", text_format=Plan)
    assert response.output_parsed == Plan(title="Tidy up")
    assert (asked[0].output.name, asked[0].output.strict) == ("Plan", True)
    assert asked[0].output.schema["required"] == ["title"]


def test_both_protocols_ask_the_same_of_a_function():
    """A conversation with tools, images and reasoning is the same request, whichever protocol it comes in."""
    asked = []

    def answer(request):
        asked.append(request)
        return "Hi."

    url = f"data:image/png;base64,{base64.b64encode(PNG).decode()}"
    function = {"name": "add", "description": "Add.", "parameters": {"type": "object"}}
    with openai_server(answer) as server, client(server) as openai:
        openai.chat.completions.create(
            model="m",
            messages=[
                {"role": "system", "content": "Be brief."},
                {
                    "role": "user",
                    "content": [{"type": "text", "text": "See"}, {"type": "image_url", "image_url": {"url": url}}],
                },
                {
                    "role": "assistant",
                    "content": "Well.",
                    "reasoning_content": "Hm.",
                    "tool_calls": [
                        {"id": "c1", "type": "function", "function": {"name": "add", "arguments": '{"a": 1}'}}
                    ],
                },
                {"role": "tool", "tool_call_id": "c1", "content": "2"},
                {"role": "assistant", "content": "Two."},
                {"role": "user", "content": "Again"},
            ],
            tools=[{"type": "function", "function": function}],
            tool_choice={"type": "function", "function": {"name": "add"}},
            temperature=0,
        )
        openai.responses.create(
            model="m",
            instructions="Be brief.",
            input=[
                {
                    "role": "user",
                    "content": [{"type": "input_text", "text": "See"}, {"type": "input_image", "image_url": url}],
                },
                {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "Hm."}]},
                {"role": "assistant", "content": "Well."},
                {"type": "function_call", "call_id": "c1", "name": "add", "arguments": '{"a": 1}'},
                {"type": "function_call_output", "call_id": "c1", "output": "2"},
                {"role": "assistant", "content": [{"type": "output_text", "text": "Two.", "annotations": []}]},
                {"role": "user", "content": "Again"},
            ],
            tools=[ADD],
            tool_choice={"type": "function", "name": "add"},
            temperature=0,
            store=False,
        )
    assert asked[0].messages == asked[1].messages
    assert asked[1].messages == (
        Message.system("Be brief."),
        Message.user("See", Image(PNG)),
        Message("assistant", (Reasoning("Hm."), Text("Well."), ToolCall("add", {"a": 1}, "c1"))),
        Message.tool(ToolResult("c1", "add", "2")),
        Message.assistant("Two."),
        Message.user("Again"),
    )
    assert [(each.name, each.description, each.parameters) for each in asked[0].tools] == [
        (each.name, each.description, each.parameters) for each in asked[1].tools
    ]
    assert (
        (asked[1].tool_choice, asked[1].parameters)
        == (asked[0].tool_choice, asked[0].parameters)
        == ("add", {"temperature": 0})
    )


def test_a_result_with_an_image():
    """The images of a tool's result are in the result."""
    asked = []
    output = [{"type": "input_text", "text": "seen"}, {"type": "input_image", "image_url": "https://a.example/b.png"}]
    with openai_server(lambda request: asked.append(request) or "Hi.") as server, client(server) as openai:
        openai.responses.create(
            model="m",
            input=[
                {"type": "function_call", "call_id": "c1", "name": "look", "arguments": "{}"},
                {"type": "function_call_output", "call_id": "c1", "output": output},
            ],
        )
    [result] = asked[0].messages[-1].parts
    assert result == ToolResult("c1", "look", "seen", images=(Image(url="https://a.example/b.png"),))


def test_what_is_stored_is_continued():
    """A response that was stored is continued by its id, and its items are referred to by theirs."""
    asked = []
    with openai_server(lambda request: asked.append(request) or "Hi.") as server, client(server) as openai:
        first = openai.responses.create(model="m", input="One")
        second = openai.responses.create(model="m", input="Two", previous_response_id=first.id)
        openai.responses.create(model="m", input=[{"type": "item_reference", "id": second.output[0].id}])
    assert [message.text for message in asked[1].messages] == ["One", "Hi.", "Two"]
    assert asked[2].messages == (Message.assistant("Hi."),)


def test_what_is_not_stored_is_not_found():
    """With `store=False` neither a response nor its items can be referred to."""
    with openai_server(["Hi."] * 3) as server, client(server) as openai:
        first = openai.responses.create(model="m", input="One", store=False)
        with pytest.raises(BadRequestError, match=f"Previous response with id '{first.id}' not found") as caught:
            openai.responses.create(model="m", input="Two", previous_response_id=first.id)
        assert (caught.value.param, caught.value.code) == ("previous_response_id", "previous_response_not_found")
        with pytest.raises(NotFoundError, match="Items are not persisted when `store` is set to false"):
            openai.responses.create(model="m", input=[{"type": "item_reference", "id": first.output[0].id}])


@pytest.mark.parametrize(
    "body",
    [
        "",
        "{}",
        '{"input": 1}',
        '{"input": [{}]}',
        '{"input": [{"type": "dance"}]}',
        '{"input": "x", "tools": [{"type": "web_search"}]}',
        '{"input": [{"role": "user", "content": [{"type": "input_file"}]}]}',
    ],
)
def test_a_request_that_is_none_is_refused(body):
    """What is not the protocol, or not the part of it that is served, is a 400, and the server goes on."""
    with openai_server(["Hi."] * 2) as server:
        assert sent(server, body, "/v1/responses")[0] == 400
        assert sent(server, '{"input": "x"}', "/v1/responses")[0] == 200
