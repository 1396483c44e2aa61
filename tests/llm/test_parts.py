"""Every kind of part has every form: stored, cached, exported, shown, sent."""

from __future__ import annotations

import json
from typing import get_args

import pytest

from graphagent.codec._blobs import HeldBlobs
from graphagent.codec._values import message_json, read_message
from graphagent.llm import (
    Image,
    Message,
    ModelRequest,
    ModelResponse,
    Part,
    ProviderData,
    Reasoning,
    Text,
    ToolCall,
    ToolResult,
)
from graphagent.llm._chat import chat_messages
from graphagent.llm._json_form import dumps, read_response, request_json, response_json
from graphagent.llm._messages import PART_KINDS, part_fields
from graphagent.llm._responses_items import input_items
from graphagent.memory import MessageStep, RunMemory

DATA = ProviderData("acme", {"signature": "s"})
PICTURE = Image(b"\x89PNG", "image/png")
SAMPLES = {
    Text: Text("Hello.", provider=DATA),
    Image: PICTURE,
    Reasoning: Reasoning("Hello.", provider=DATA),
    ToolCall: ToolCall("look", {"word": "Hello."}, "c1", provider=DATA),
    ToolResult: ToolResult("c1", "look", "Hello.", is_error=True, images=(PICTURE,), full="Hello, you.", seconds=0.5),
}
ROLES = {Text: "assistant", Image: "user", Reasoning: "assistant", ToolCall: "assistant", ToolResult: "tool"}


def test_the_table_has_every_kind():
    """A kind that is part of the type is part of the table, and tried below."""
    assert set(PART_KINDS.values()) == set(get_args(Part)) == SAMPLES.keys()


@pytest.mark.parametrize("kind", PART_KINDS)
def test_a_part_of_each_kind_has_every_form(kind):
    """It is stored and read as it was, is in a request's form and in both exports, and is sent."""
    part = SAMPLES[PART_KINDS[kind]]
    message = Message(ROLES[type(part)], (part,))
    blobs = HeldBlobs()
    assert read_message(json.loads(json.dumps(message_json(message, blobs))), blobs) == message
    assert request_json(ModelRequest((message,)))["messages"][0]["parts"][0]["type"] == kind
    memory = RunMemory("", [MessageStep(message)])
    assert json.loads(json.dumps(memory.full_steps()))[0]["message"]["role"] == message.role
    assert "image/png" in memory.to_text() if kind == "image" else "Hello." in memory.to_text()
    assert all(chat_messages([message]))
    # Over Responses, reasoning is sent only together with what follows it.
    assert input_items([message], "acme") or kind == "reasoning"
    if kind != "tool_result":  # which is part of no answer
        response = ModelResponse(Message("assistant", (part,)))
        assert read_response(json.loads(dumps(response_json(response)))) == response


def test_a_part_shows_what_a_model_sees():
    """Fields with their default are left out, and so is what no model is sent."""
    assert part_fields(Text("a")) == {"type": "text", "text": "a"}
    assert part_fields(SAMPLES[ToolResult]) == {
        "type": "tool_result",
        "call_id": "c1",
        "name": "look",
        "content": "Hello.",
        "is_error": True,
        "images": (PICTURE,),
    }
