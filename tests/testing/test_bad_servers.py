"""What servers do wrong, as replies of the local one: what goes over the wire, and that graphagent's own model bears it."""

from __future__ import annotations

import pytest
from openai import APIError

from graphagent.errors import ModelRequestError
from graphagent.llm import Message, ModelRequest, ModelResponse, OutputFormat, Reasoning, ToolCall, ToolCalls, Usage
from graphagent.llm.openai import OpenAIModel
from graphagent.testing import Cut, Edit, RawResponse, openai_server
from tests.testing.test_openai_server import HELLO, client, sent

REQUEST = ModelRequest((Message.user("Hello"),))
CALLS = [ToolCall("add", {"a": 1}, "c1"), ToolCall("add", {"a": 2}, "c2")]
ANSWER = ModelResponse(Message.assistant("Well then."), Usage(10, 5))


def usage_never(given):
    """Drop the usage of every chunk."""
    return [{name: value for name, value in each.items() if name != "usage"} for each in given]


def usage_twice(given):
    """Repeat the last chunk, which has the usage."""
    return [*given, given[-1]]


def one_index(given):
    """Number all calls alike."""
    for chunk in given:
        for choice in chunk["choices"]:
            for call in choice["delta"].get("tool_calls", ()):
                call["index"] = 0
    return given


async def answered(reply, request=REQUEST, *, streamed=True):
    """What graphagent's model makes of a reply."""
    async with openai_server([reply]) as server, OpenAIModel("m", base_url=server.base_url, max_retries=0) as model:
        return await model.respond(request, (lambda text: None) if streamed else None)


@pytest.mark.parametrize(("change", "usage"), [(usage_never, Usage()), (usage_twice, Usage(10, 5))])
async def test_usage_never_or_twice(change, usage):
    """Usage that is missing counts nothing, and usage that comes twice counts once."""
    response = await answered(Edit(ANSWER, change))
    assert (response.message.text, response.usage) == ("Well then.", usage)


async def test_usage_of_a_whole_answer_is_missing():
    """The list has the one answer then."""
    response = await answered(Edit(ANSWER, usage_never), streamed=False)
    assert (response.message.text, response.usage) == ("Well then.", Usage())


async def test_calls_of_one_index():
    """Calls that are numbered alike are told apart by their ids."""
    response = await answered(Edit(CALLS, one_index))
    assert list(response.message.tool_calls) == CALLS


@pytest.mark.parametrize("reply", [Edit(CALLS, lambda given: given[:4]), Cut(CALLS, 700)])
async def test_half_a_call(reply):
    """A stream that ends in the middle of a call, neatly or not, is no answer."""
    with pytest.raises(ModelRequestError, match=r"broke off|cannot be reached|connection"):
        await answered(reply)


async def test_an_error_in_the_middle_of_a_stream():
    """It is raised, whatever was said before."""
    error = {"error": {"message": "overloaded", "code": 502}}
    with pytest.raises(ModelRequestError) as caught:
        await answered(Edit("Well then.", lambda given: [*given[:2], error]))
    assert caught.value.status == 502
    assert "overloaded" in caught.value.detail


async def test_a_text_and_calls():
    """Both are in the message."""
    response = await answered(ToolCalls(CALLS, "Well."))
    assert (response.message.text, list(response.message.tool_calls)) == ("Well.", CALLS)


async def test_reasoning_without_an_answer():
    """It is a message without text."""
    response = await answered(ModelResponse(Message("assistant", (Reasoning("Hm."),))))
    assert response.message.text == ""
    assert [part.text for part in response.message.parts] == ["Hm."]


async def test_a_schema_that_is_ignored():
    """What the server says instead is the text."""
    response = await answered("Tidy up.", ModelRequest(REQUEST.messages, output=OutputFormat.of(int)))
    assert response.message.text == "Tidy up."


def test_edits_of_responses():
    """Events are edited as chunks are: those that come before the end are seen, and the client finds no end."""
    with openai_server([Edit("Well then.", lambda given: given[:5])]) as server, client(server) as openai:
        events = list(openai.responses.create(model="m", input="Hello", stream=True))
    assert [event.type for event in events][-1] == "response.output_text.delta"


def test_edits_are_made_from_the_inside():
    """Edits around edits and cuts are made in the order in which they are written, and a raw response is sent as it is."""

    def ending(more):
        def change(given):
            given[0]["choices"][0]["message"]["content"] += more
            return given

        return change

    replies = [
        Edit(lambda request: Edit("a", ending("b")), ending("c")),
        Edit(RawResponse(200, {}, "raw"), ending("d")),
        Cut(Edit("a", ending("b")), 5),
        Edit("a", lambda given: given[5]),
    ]
    with openai_server(replies) as server, client(server) as openai:
        said = openai.chat.completions.create(model="m", messages=HELLO)
        assert said.choices[0].message.content == "abc"
        assert sent(server, '{"messages": []}')[1] == b"raw"
        for _ in range(2):
            with pytest.raises(APIError):
                openai.chat.completions.create(model="m", messages=HELLO)


def test_a_refused_request_takes_no_reply():
    """A client that asks again in another way gets the first reply of the script."""
    tools = [{"type": "function", "function": {"name": "add", "parameters": {"type": "object"}}}]
    with openai_server(["One.", "Two."], strict="openai") as server, client(server) as openai:
        with pytest.raises(APIError):
            openai.chat.completions.create(model="m", messages=HELLO, tools=tools)
        said = openai.chat.completions.create(model="m", messages=HELLO, tools=tools, reasoning_effort="none")
        assert said.choices[0].message.content == "One."
        openai.chat.completions.create(model="m", messages=HELLO)
        with pytest.raises(APIError, match="the script has 2 replies, and this is request 4"):
            openai.chat.completions.create(model="m", messages=HELLO)
