"""Arrays and objects that a model wrote as a text with JSON in it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import pytest

from graphagent import Agent, testing, tool
from graphagent.errors import ArgumentsError
from graphagent.llm import OutputFormat, ToolCall
from graphagent.llm._json_text import unnested
from graphagent.llm._tools import call_tool
from graphagent.llm.openai import OpenAIModel
from graphagent.testing import ScriptedModel, openai_server
from graphagent_strategies import single_run


@dataclass
class Edit:
    path: str
    lines: list[int]
    inside: Edit | None = None


EDIT = {"path": "a.txt", "lines": [1, 2]}
TEXT = json.dumps({"path": "a.txt", "lines": "[1, 2]"})


@tool
async def change(edits: list[Edit], note: str | list[str] = "", options: dict[str, list[int]] | None = None) -> str:
    """Change files."""
    return repr((edits, note, options))


@tool
async def now() -> str:
    """Return the time."""
    return "noon"


@pytest.mark.parametrize(
    ("given", "read"),
    [
        ({"edits": json.dumps([EDIT])}, {"edits": [EDIT]}),
        ({"edits": f" [{TEXT}]\n"}, {"edits": [EDIT]}),
        ({"edits": [TEXT, {**EDIT, "inside": TEXT}]}, {"edits": [EDIT, {**EDIT, "inside": EDIT}]}),
        ({"edits": [], "options": '{"a": "[1]"}'}, {"edits": [], "options": {"a": [1]}}),
        ({"edits": [], "note": "[1]"}, {"edits": [], "note": "[1]"}),
        ({"edits": [{"path": "[1]", "lines": []}]}, {"edits": [{"path": "[1]", "lines": []}]}),
        ({"edits": "{}", "options": "[]", "more": "[]"}, {"edits": "{}", "options": "[]", "more": "[]"}),
        ({"edits": "[1e999]", "options": "null"}, {"edits": "[1e999]", "options": "null"}),
    ],
)
def test_a_text_is_read_where_an_array_or_an_object_is_demanded(given, read):
    """Also within another one; not where a text would do, nor where it is JSON of another kind, or none."""
    assert unnested(given, change.parameters) == read


def test_a_schema_that_leads_in_circles():
    """It is no reason to search for ever."""
    circle = {"$defs": {"a": {"anyOf": [{"$ref": "#/$defs/b"}] * 2}, "b": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"}
    for schema in (circle, {"$ref": "http://other/schema"}, {"$ref": 5}, {"type": ["array", "null"]}, {"items": 5}, {}):
        assert unnested({"a": "[1]"}, {"properties": {"a": schema}, "type": "object", **circle}) is not None
    assert unnested("[1]", {"type": ["array", "null"]}) == [1]


@pytest.mark.parametrize("protocol", ["chat", "responses"])
async def test_a_model_that_encodes_twice(protocol):
    """Its calls are made, and sent back in the form that the schema demands; callbacks and people see that form, too."""
    twice = json.dumps(json.dumps({"edits": json.dumps([EDIT])}))

    def edited(bodies):
        """Return the answer with the arguments as such a model writes them."""
        found = json.dumps(bodies).replace(json.dumps(json.dumps({"edits": []})), json.dumps(twice))
        assert "a.txt" in found
        return json.loads(found)

    replies = [testing.Edit(ToolCall("change", {"edits": []}), edited), "Done."]
    async with (
        openai_server(replies) as server,
        OpenAIModel("m", protocol=protocol, base_url=server.base_url) as model,
    ):
        result = await Agent(single_run(), model=model, tools=[change]).run("Change it.")
    step = result.memory.steps[1]
    assert step.tool_calls[0].arguments == {"edits": [EDIT]}
    assert step.results[0].value == "([Edit(path='a.txt', lines=[1, 2], inside=None)], '', None)"
    sent = server.requests[1]["messages" if protocol == "chat" else "input"]
    said = sent[1]["tool_calls"][0]["function"] if protocol == "chat" else sent[1]
    assert json.loads(said["arguments"]) == {"edits": [EDIT]}


async def test_null_for_a_tool_without_parameters():
    """It is called; a tool with parameters is not."""
    calls = [ToolCall("now", id="1", malformed="null"), ToolCall("change", id="2", malformed="null")]
    model = ScriptedModel([calls, "Done."])
    result = await Agent(single_run(), model=model, tools=[now, change]).run("When?")
    assert [each.content for each in result.memory.steps[1].results] == [
        "noon",
        "Error: the arguments are JSON, and not a JSON object: null",
    ]
    assert (await call_tool(now, ToolCall("now", id="1", malformed='""'))).content == "noon"


async def test_text_that_cannot_be_read_is_named():
    """The model is told that it wrote a text, so that it does not write the same again."""
    with pytest.raises(ArgumentsError) as caught:
        await change.call({"edits": "[{…}]", "options": "none"})
    assert [*caught.value.problems] == [
        "edits: must be a valid array, not a text",
        "options: must be an object, not a text",
    ]


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (Edit, json.dumps(TEXT), Edit("a.txt", [1, 2])),
        (list[Edit], json.dumps({"value": f"[{TEXT}]"}), [Edit("a.txt", [1, 2])]),
        (list[Edit], json.dumps(f"[{TEXT}]"), [Edit("a.txt", [1, 2])]),
        (str, json.dumps({"value": "[1]"}), "[1]"),
        (list[str] | str, '{"value": "[1]"}', "[1]"),
        (dict[str, Any], '{"a": "[1]"}', {"a": "[1]"}),
    ],
)
def test_structured_output_is_read_likewise(kind, text, value):
    """The whole answer may be such a text."""
    assert OutputFormat.of(kind).parse(text) == value
