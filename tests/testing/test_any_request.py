"""Whatever a client sends, the server answers it or refuses it, and stays."""

from __future__ import annotations

import copy
import http.client
import json
from urllib.parse import urlsplit

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from graphagent.testing import openai_server
from tests.testing.test_openai_server import sent
from tests.testing.test_responses_server import ADD
from tests.thorough import examples

CALL = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": "{}"}}
CHAT = {
    "model": "m",
    "messages": [
        {"role": "system", "content": "Be brief."},
        {
            "role": "user",
            "content": [{"type": "text", "text": "Hi"}, {"type": "image_url", "image_url": {"url": "https://a.b/c"}}],
        },
        {"role": "assistant", "content": None, "reasoning_content": "Hm.", "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "c1", "content": "2"},
    ],
    "tools": [{"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}],
    "tool_choice": {"type": "function", "function": {"name": "add"}},
    "response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": {}, "strict": True}},
    "stream_options": {"include_usage": True},
    "reasoning_effort": "none",
    "stream": True,
}
RESPONSES = {
    "model": "m",
    "instructions": "Be brief.",
    "input": [
        {
            "role": "user",
            "content": [{"type": "input_text", "text": "Hi"}, {"type": "input_image", "image_url": "https://a.b/c"}],
        },
        {
            "type": "reasoning",
            "id": "rs_1",
            "summary": [{"type": "summary_text", "text": "Hm."}],
            "encrypted_content": "e",
        },
        {"type": "function_call", "id": "fc_1", "call_id": "c1", "name": "add", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c1", "output": [{"type": "input_text", "text": "2"}]},
    ],
    "tools": [ADD],
    "tool_choice": {"type": "function", "name": "add"},
    "text": {"format": {"type": "json_schema", "name": "n", "schema": {}, "strict": True}},
    "include": ["reasoning.encrypted_content"],
    "reasoning": {"effort": "low", "summary": "auto"},
    "metadata": {"a": "b"},
    "store": False,
    "stream": True,
}
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 2**70) | st.floats(allow_nan=False) | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(st.text(max_size=3) | st.sampled_from(["type", "id", "role"]), inner, max_size=2)
    ),
    max_leaves=3,
)


def paths(value, path=()):
    """All places in a JSON value."""
    yield path
    if isinstance(value, dict | list):
        for name, inner in value.items() if isinstance(value, dict) else enumerate(value):
            yield from paths(inner, (*path, name))


@st.composite
def bodies(draw, whole):
    """A request with something else, or nothing, at one to three of its places."""
    changed = copy.deepcopy(whole)
    for path in draw(st.lists(st.sampled_from([path for path in paths(whole) if path]), min_size=1, max_size=3)):
        inner = changed
        try:
            for name in path[:-1]:
                inner = inner[name]
            if draw(st.booleans()):
                del inner[path[-1]]
            else:
                inner[path[-1]] = draw(JSON)
        except (KeyError, IndexError, TypeError):
            continue
    return changed


@pytest.mark.parametrize("strict", [None, "openai", "deepseek", "google", "mistral"])
def test_any_request_is_answered_or_refused(strict):
    """A request that is damaged anywhere is a 200 or a 4xx with a message, on one connection, and never a failure of the server."""
    with openai_server(lambda request: "Hi.", strict=strict) as server:
        connection = http.client.HTTPConnection(urlsplit(server.base_url).netloc, timeout=600)

        @settings(max_examples=examples(300), deadline=None)
        @given(
            st.tuples(st.just("/v1/chat/completions"), bodies(CHAT))
            | st.tuples(st.just("/v1/responses"), bodies(RESPONSES))
        )
        def damaged(case):
            path, body = case
            connection.request("POST", path, json.dumps(body))
            answer = connection.getresponse()
            said = answer.read()
            assert answer.status in (200, 400, 404, 422), said
            assert answer.status == 200 or said

        damaged()
        connection.close()


def test_a_schema_of_many_levels():
    """A schema that is nested deeper than Python goes is refused."""
    level = '{"required": ["a"], "additionalProperties": false, "properties": {"a": '
    schema = level * 500 + "{}" + "}}" * 500
    body = json.dumps({"model": "m", "input": "Hi", "tools": [{**ADD, "parameters": "SCHEMA"}]})
    with openai_server(["Hi."], strict="openai") as server:
        assert sent(server, body.replace('"SCHEMA"', "{}"), "/v1/responses")[0] == 200
        status, said = sent(server, body.replace('"SCHEMA"', schema), "/v1/responses")
    assert (status, b"recursion" in said) == (400, True)
