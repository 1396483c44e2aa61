"""What servers do wrong, as replies of the local one: what goes over the wire, and that graphagent's own model bears it."""

from __future__ import annotations

import pytest
from openai import APIError

from graphagent.errors import ModelRequestError
from graphagent.llm import Message, ModelRequest
from graphagent.llm.openai import OpenAIModel
from graphagent.testing import Cut, Edit, RawResponse, openai_server
from tests.testing.test_openai_server import HELLO, client, sent

REQUEST = ModelRequest((Message.user("Hello"),))


async def answered(reply, request=REQUEST, *, streamed=True):
    """What graphagent's model makes of a reply."""
    async with openai_server([reply]) as server, OpenAIModel("m", base_url=server.base_url, max_retries=0) as model:
        return await model.respond(request, (lambda text: None) if streamed else None)


async def test_an_error_in_the_middle_of_a_stream():
    """It is raised, whatever was said before."""
    error = {"error": {"message": "overloaded", "code": 502}}
    with pytest.raises(ModelRequestError) as caught:
        await answered(Edit("Well then.", lambda given: [*given[:2], error]))
    assert caught.value.status == 502
    assert "overloaded" in caught.value.detail


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
