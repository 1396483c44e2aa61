"""Runs with tools against servers as strict as the real ones: what each wants back is returned, whatever happens in between."""

from __future__ import annotations

from contextlib import ExitStack
from itertools import permutations

import pytest

from graphagent import Agent, tool
from graphagent.errors import ModelRequestError, NodeFailedError
from graphagent.events import ModelRequestFailed
from graphagent.llm import (
    FallbackModel,
    Image,
    Message,
    ModelRequest,
    ModelResponse,
    OutputFormat,
    Reasoning,
    Text,
    ToolCall,
    Usage,
    structured,
)
from graphagent.llm.openai import OpenAIModel
from graphagent.store import SqliteStore
from graphagent.testing import openai_server
from graphagent_strategies import single_run
from tests.thorough import some

PNG = b"\x89PNG\r\n\x1a\n"
BOTH = pytest.mark.parametrize("streaming", [False, True])


@tool
async def look(place: str) -> str:
    """Look at a place."""
    return f"{place} is empty"


@tool
async def photograph(place: str) -> Image:
    """Take a photograph of a place."""
    return Image(PNG)


@tool(approve=True)
async def enter(place: str) -> str:
    """Enter a place."""
    return f"you are in the {place}"


SERVERS = {
    "openai": ("openai", "responses", "gpt-5.6-sol", 0),
    "openai, Chat Completions": ("openai", "chat", "gpt-5.6-sol", 1),
    "deepseek": ("deepseek", None, "deepseek-v4-flash", 0),
    "google": ("google", None, "gemini-3.1-pro", 0),
    "mistral": ("mistral", None, "mistral-medium-3-5", 0),
}


def thinking(*parts):
    """An answer with reasoning before it."""
    return ModelResponse(Message("assistant", (Reasoning("Let me think."), *parts)), Usage(5, 7, 0, 3))


def calls(number, *names):
    return tuple(ToolCall(name, {"place": f"room {number}"}, f"c{number}{name}") for name in names)


async def work(model, store, task, *, streaming=False, tools=(look, photograph, enter), run_id=None):
    """One run of a thread, in an agent of its own. Returns its result and the requests that failed."""
    agent, failed = Agent(single_run(), model=model, tools=list(tools), store=SqliteStore(store)), []
    agent.on(ModelRequestFailed, failed.append)
    if streaming:
        async with agent.stream(task, thread="t", run_id=run_id) as stream:
            async for _ in stream:
                pass
        return stream.result, failed
    return await agent.run(task, thread="t", run_id=run_id), failed


@BOTH
@pytest.mark.parametrize("name", SERVERS)
async def test_a_conversation_with_tools(name, streaming, tmp_path):
    """Several calls in several turns of several runs, each in an agent of its own: the only refusal is the one of the effort."""
    strict, protocol, model_name, refusals = SERVERS[name]
    replies = iter(
        [
            thinking(Text("Let me look."), *calls(1, "look", "photograph")),
            thinking(*calls(2, "look")),
            thinking(Text("Nobody.")),
            thinking(*calls(3, "photograph", "look")),
            "Still nobody.",
            "Good night.",
        ]
    )
    failures = []
    async with openai_server(lambda request: next(replies), strict=strict) as server:
        for task in ("Who is there?", "Look again.", "Thanks."):
            async with OpenAIModel(
                model_name, protocol=protocol, base_url=server.base_url, api_key="k", max_retries=0
            ) as model:
                result, failed = await work(model, tmp_path / "runs.db", task, streaming=streaming)
            failures += failed
    assert result.output == "Good night."
    assert len(failures) == refusals * 3


@pytest.mark.parametrize("name", SERVERS)
async def test_a_tool_loop_that_waits_for_a_person(name, tmp_path):
    """The reasoning before a call returns with its result, though another agent resumed the run from its journal."""
    strict, protocol, model_name, refusals = SERVERS[name]
    replies = iter([thinking(*calls(1, "look")), thinking(*calls(2, "enter")), thinking(Text("I am in."))])
    async with openai_server(lambda request: next(replies), strict=strict) as server:
        async with OpenAIModel(
            model_name, protocol=protocol, base_url=server.base_url, api_key="k", max_retries=0
        ) as model:
            result, failed = await work(model, tmp_path / "runs.db", "Go in.", run_id="r")
        assert (result.status, len(failed)) == ("waiting", refusals)
        async with OpenAIModel(
            model_name, protocol=protocol, base_url=server.base_url, api_key="k", max_retries=0
        ) as model:
            agent = Agent(
                single_run(), model=model, tools=[look, photograph, enter], store=SqliteStore(tmp_path / "runs.db")
            )
            assert (await agent.resume("r", answer=True)).output == "I am in."


async def test_a_conversation_that_moves_between_all_of_them(tmp_path):
    """Each run of a thread asks another server, and then all of them once more; each refusal is of an effort, missing data or ids of calls."""
    replies = iter(
        [reply for number in range(10) for reply in (thinking(*calls(number, "look")), thinking(Text(f"{number}.")))]
    )
    reasons = []
    with ExitStack() as stack:
        servers = [
            stack.enter_context(openai_server(lambda request: next(replies), strict=each[0]))
            for each in SERVERS.values()
        ]
        for number, ((_, protocol, name, _), server) in enumerate([*zip(SERVERS.values(), servers, strict=True)] * 2):
            async with OpenAIModel(
                name, protocol=protocol, base_url=server.base_url, api_key="k", max_retries=0
            ) as model:
                result, failed = await work(model, tmp_path / "runs.db", "And then?")
            assert result.output == f"{number}."
            reasons += [(number, each.reason.partition(" answered ")[2]) for each in failed]
    effort = "400 (invalid_request_error, reasoning_effort): the request is invalid for this server"
    missing = "400 (invalid_request_error): the request is invalid for this server"
    ids = "400 (3280, invalid_function_call): the request is invalid for this server"
    assert reasons == [(1, effort), (2, missing), (4, ids), (6, effort), (7, missing), (9, ids)]


@BOTH
@pytest.mark.parametrize(("first", "second"), some(permutations(SERVERS, 2), 8))
async def test_a_fallback_in_the_middle_of_a_tool_loop(first, second, streaming, tmp_path):
    """When the first model is lost between two calls, the second one goes on with what the first has said, and answers."""

    def gone(request):
        raise ModelRequestError("it is down", status=503)

    before = iter([thinking(Text("Let me look."), *calls(1, "look")), gone])
    after = iter([thinking(*calls(2, "photograph")), thinking(Text("Nobody."))])
    with ExitStack() as stack:
        models = []
        for name, replies in ((first, before), (second, after)):
            strict, protocol, model_name, _ = SERVERS[name]
            server = stack.enter_context(openai_server(lambda request, replies=replies: next(replies), strict=strict))
            models.append(
                OpenAIModel(model_name, protocol=protocol, base_url=server.base_url, api_key="k", max_retries=0)
            )
        result, failed = await work(FallbackModel(*models), tmp_path / "runs.db", "Who is there?", streaming=streaming)
        for model in models:
            await model.aclose()
    assert result.output == "Nobody."
    assert any("answered 503" in each.reason for each in failed)


@pytest.mark.parametrize("name", ["openai", "openai, Chat Completions"])
async def test_structured_output(name):
    """The schemas that claim to be strict are; others are not sent as such."""
    strict, protocol, model_name, _ = SERVERS[name]
    async with (
        openai_server(lambda request: {"value": [1]}, strict=strict) as server,
        OpenAIModel(model_name, protocol=protocol, base_url=server.base_url, api_key="k") as model,
    ):
        assert await structured(model.respond, [Message.user("One?")], list[int]) == [1]
        response = await model.respond(
            ModelRequest((Message.user("?"),), (look,), output=OutputFormat.of(dict[str, int]))
        )
    assert [each.reason.count("reasoning_effort") for each in response.failed] == [1] * (protocol == "chat")


@pytest.mark.parametrize(
    ("name", "parameters", "refused"),
    [
        ("openai", {"seed": 1}, "seed"),
        ("openai", {"temperature": 0}, "temperature"),
        ("openai, Chat Completions", {"max_tokens": 5}, "max_tokens"),
        ("openai, Chat Completions", {"extra_body": {"top_k": 5}}, "top_k"),
        ("google", {"extra_body": {"top_k": 5}}, "top_k"),
        ("mistral", {"seed": 5, "max_completion_tokens": 9}, "max_completion_tokens"),
    ],
)
async def test_a_parameter_that_a_server_does_not_know(name, parameters, refused):
    """The run fails with an error that names it, and says what to leave out."""
    strict, protocol, model_name, _ = SERVERS[name]
    async with (
        openai_server(lambda request: "Hi.", strict=strict) as server,
        OpenAIModel(
            model_name, protocol=protocol, base_url=server.base_url, api_key="k", max_retries=0, **parameters
        ) as model,
    ):
        with pytest.raises(NodeFailedError) as caught:
            await Agent(single_run(), model=model).run("Hello?")
    assert isinstance(caught.value.__cause__, ModelRequestError)
    assert f"it refuses the parameter {refused!r}: leave it out" in str(caught.value)
