"""What a model server is asked, and what its answers must be like. A tiny model means nothing, so it is the protocol that is checked."""

from __future__ import annotations

import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, Literal, Protocol

import anyio
from pydantic import BaseModel, Field

from graphagent import Agent
from graphagent.errors import ModelRequestError, NodeFailedError, OutputError
from graphagent.events import TextStreamed
from graphagent.llm import (
    Message,
    ModelRequest,
    ModelResponse,
    ProviderData,
    Reasoning,
    Text,
    Tool,
    ToolCall,
    ToolResult,
    structured,
    tool,
)
from graphagent.llm.openai import OpenAIModel
from graphagent.store import SqliteStore
from graphagent_strategies import single_run


class Running(Protocol):
    """A server that is running."""

    base_url: str
    key: str
    model: str

    def kill(self) -> None:
        """End its processes with SIGKILL."""
        ...

    async def start(self) -> None:
        """Start it again, and return when it answers."""
        ...


class Wrong(Exception):
    """An answer is not what the protocol promises."""


@dataclass
class Asked:
    """A server that is asked over one protocol."""

    server: Running
    protocol: Literal["chat", "responses"]
    left_out: list[str] = field(default_factory=list[str])
    """What a question found to be missing, though it was answered."""

    @asynccontextmanager
    async def model(self, **options: Any) -> AsyncIterator[OpenAIModel]:
        """Give a model of the server; answers have at most 400 tokens."""
        given = {"api_key": self.server.key, "max_retries": 0, "timeout": 120, "max_completion_tokens": 400, **options}
        name = given.pop("model", self.server.model)
        async with OpenAIModel(name, protocol=self.protocol, base_url=self.server.base_url, **given) as model:
            yield model

    async def ask(self, request: ModelRequest, *, stream: bool = False, **options: Any) -> ModelResponse:
        """Ask once, and return the answer. What the server refused is noted as left out."""
        pieces: list[str] = []
        async with self.model(**options) as model:
            response = await model.respond(request, pieces.append if stream else None)
        self.refused(response)
        if stream and "".join(pieces) != response.message.text:
            raise Wrong("the streamed pieces are not the text of the answer")
        if not (response.usage.input_tokens and response.usage.output_tokens):
            self.left_out.append("usage is not told" + " in a stream" * stream)
        return response

    def refused(self, response: ModelResponse) -> None:
        """Note which requests were refused before the answer."""
        self.left_out += [f"one request was refused ({each.reason})" for each in response.failed]


@tool
def weather(city: str) -> str:
    """Say the weather in a city."""
    return f"It is sunny in {city}."


@tool
def travel(to: Literal["Rome", "Oslo"], days: Annotated[int, Field(ge=1, le=9)], sure: bool = True) -> str:
    """Plan days in a city."""
    return f"{days} days in {to}"


class Stop(BaseModel):
    """A part of a trip."""

    city: Literal["Rome", "Oslo"]
    nights: Literal[1, 2, 3]


class Trip(BaseModel):
    """A trip of two stops."""

    first: Stop
    last: Stop
    sure: bool


class Train(BaseModel):
    """A way to travel."""

    kind: Literal["train"]
    seats: Literal[1, 2]


class Ferry(BaseModel):
    """Another way to travel."""

    kind: Literal["ferry"]
    cabin: bool


class Colour(Enum):
    """A colour."""

    RED = "red"
    BLUE = "blue"


KINDS: Mapping[str, Any] = {
    "nested": Trip,
    "union": Train | Ferry,
    "enum": Colour,
    "list": Annotated[list[Stop], Field(min_length=2, max_length=3)],
}
TOOLS: tuple[Tool, ...] = (weather, travel)


def asking(text: str, **more: Any) -> ModelRequest:
    """Return a request of one message."""
    return ModelRequest((Message.user(text),), **more)


def stream_and_not(question: Callable[[Asked, bool], Awaitable[None]]) -> Callable[[Asked], Awaitable[None]]:
    """Return a question that is asked for a whole answer, and for a streamed one."""

    async def both(asked: Asked) -> None:
        for stream in (False, True):
            await question(asked, stream)

    return both


async def a_text(asked: Asked, stream: bool) -> None:
    """An answer in words, that ends by itself."""
    response = await asked.ask(asking("When does the tram leave?"), stream=stream)
    said, reason = response.message.text, response.finish_reason
    if said.strip() != "The tram leaves at noon." or reason != "stop":
        raise Wrong(f"the answer is {said[:80]!r}, {reason!r}")


def arguments_fit(call: ToolCall) -> bool:
    """Return whether the arguments of a call of one of the tools fit."""
    if call.malformed:
        return False
    if call.name == "weather":
        return isinstance(call.arguments.get("city"), str)
    return call.arguments.get("to") in ("Rome", "Oslo") and call.arguments.get("days") in range(1, 10)


async def calls_of(asked: Asked, request: ModelRequest, stream: bool, **options: Any) -> tuple[ToolCall, ...]:
    """Ask, and return the calls of the answer, of which there must be one, and which must fit."""
    response = await asked.ask(request, stream=stream, **options)
    calls = response.message.tool_calls
    if not calls:
        raise Wrong("the answer has words and no call")
    for each in calls:
        if each.name not in {offered.name for offered in request.tools}:
            raise Wrong(f"a call of {each.name!r}, which was not offered")
        if not arguments_fit(each):
            raise Wrong(f"the arguments do not fit: {each.malformed or each.arguments!r}"[:160])
    if response.finish_reason != "tool_calls":
        asked.left_out.append(f"the reason given is {response.finish_reason!r}")
    return calls


async def a_chosen_tool(asked: Asked, stream: bool) -> None:
    """A call that the model chose."""
    calls = await calls_of(asked, asking("What is the weather in Oslo?", tools=TOOLS), stream)
    if [(each.name, each.arguments) for each in calls] != [("weather", {"city": "Oslo"})]:
        raise Wrong(f"the calls are {calls!r}")


async def a_required_tool(asked: Asked, stream: bool) -> None:
    """A call of some tool, where the model would rather speak."""
    await calls_of(asked, asking("Speak.", tools=TOOLS, tool_choice="required"), stream)


async def a_forced_tool(asked: Asked, stream: bool) -> None:
    """A call of the one tool that is named."""
    calls = await calls_of(asked, asking("Speak.", tools=TOOLS, tool_choice="travel"), stream)
    if any(each.name != "travel" for each in calls):
        raise Wrong("another tool is called than the one that is named")


async def no_tool(asked: Asked, stream: bool) -> None:
    """Words, where the model would rather call."""
    response = await asked.ask(asking("What is the weather?", tools=TOOLS, tool_choice="none"), stream=stream)
    if response.message.tool_calls:
        raise Wrong("the server ignores it, and a tool is called")


async def parallel_calls(asked: Asked, stream: bool) -> None:
    """Two calls in one answer."""
    request = asking("What is the weather in both?", tools=TOOLS, parameters={"parallel_tool_calls": True})
    calls = await calls_of(asked, request, stream)
    if [each.arguments.get("city") for each in calls] != ["Bergen", "Oslo"]:
        raise Wrong(f"the calls are of {[each.arguments for each in calls]}")
    if len({each.id for each in calls}) < 2:
        asked.left_out.append("the calls have no ids of their own")


def of_kind(name: str) -> Callable[[Asked], Awaitable[None]]:
    """Return a question for a value of a type."""

    async def answered(asked: Asked) -> None:
        for stream in (False, True):
            asked_for: list[ModelRequest] = []

            async with asked.model() as model:

                async def ask(
                    request: ModelRequest,
                    model: OpenAIModel = model,
                    stream: bool = stream,
                    seen: list[ModelRequest] = asked_for,
                ) -> ModelResponse:
                    seen.append(request)
                    response = await model.respond(request, (lambda _: None) if stream else None)
                    asked.refused(response)
                    return response

                try:
                    await structured(ask, [Message.user("Tell.")], KINDS[name])
                except OutputError as error:
                    raise Wrong("the schema is ignored, also in the prompt") from error
            if len(asked_for) > 1:
                asked.left_out.append("the schema is ignored; with the schema in the prompt, the second answer fits")

    return answered


async def a_history(asked: Asked, stream: bool) -> None:
    """An answer to a conversation with another model."""
    thought = Reasoning("I look it up.", provider=ProviderData("elsewhere", {"signature": "c2lnbmVk"}))
    calls = [ToolCall("weather", {"city": each}, f"call_{each}_{'0' * 30}") for each in ("Oslo", "Bergen")]
    results = tuple(ToolResult(each.id, "weather", f"{each.arguments['city']} is sunny.") for each in calls)
    messages = (
        Message.system("You are brief."),
        Message.user("What is the weather?"),
        Message("assistant", (thought, Text("One moment."), *calls)),
        Message("tool", results),
        Message.assistant("Sunny in both."),
        Message.user("And when does the tram leave?"),
    )
    await asked.ask(ModelRequest(messages), stream=stream)
    await asked.ask(ModelRequest(messages, tools=TOOLS), stream=stream)
    await asked.ask(ModelRequest(messages[:4], tools=TOOLS), stream=stream)


async def a_limit(asked: Asked, stream: bool) -> None:
    """An answer that is cut off at its limit of tokens."""
    response = await asked.ask(asking("Count."), stream=stream, max_completion_tokens=20)
    if response.usage.output_tokens > 20:
        raise Wrong(f"the limit of 20 tokens is ignored ({response.usage.output_tokens})")
    if response.finish_reason != "length":
        raise Wrong(f"the answer is cut off and says {response.finish_reason!r}")


async def the_error(asked: Asked, request: ModelRequest, stream: bool, **options: Any) -> ModelRequestError | None:
    """Return the error of a request; None if it is answered."""
    try:
        async with asked.model(**options) as model:
            await model.respond(request, (lambda _: None) if stream else None)
    except ModelRequestError as error:
        if asked.server.key in str(error) or "wrong-key" in str(error):
            raise Wrong("the error has the key") from error
        return error
    return None


async def a_wrong_key(asked: Asked, stream: bool) -> None:
    """A wrong key, and none."""
    for key in ("wrong-key", None):
        error = await the_error(asked, asking("Hi"), stream, api_key=key)
        named = "a wrong key" if key else "no key"
        if error is None:
            asked.left_out.append("the server asks for no key")
            return
        if "key" not in str(error):
            asked.left_out.append(f"{named}: {error}")


async def a_wrong_model(asked: Asked, stream: bool) -> None:
    """A model that the server does not have."""
    error = await the_error(asked, asking("Hi"), stream, model="large")
    if error is None:
        asked.left_out.append("the server does not look at the name")
    elif "name" not in str(error):
        asked.left_out.append(f"the cause is not told: {error}")


async def a_long_prompt(asked: Asked, stream: bool) -> None:
    """A prompt that does not fit."""
    error = await the_error(asked, asking("one two three four five " * 1000), stream)
    if error is None:
        raise Wrong("the server does not refuse it")
    if "the prompt is too long" not in str(error):
        raise Wrong(f"it is not seen to be too long: {error} {error.detail[:100]}")


async def cancelling(asked: Asked) -> None:
    """A streamed answer that is cancelled, after which the server answers others."""
    async with asked.model(max_completion_tokens=2000) as model:
        with anyio.CancelScope() as scope:
            await model.respond(asking("Count."), lambda _: scope.cancel())
            raise Wrong("the answer came at once")
        with anyio.fail_after(30):
            await model.respond(asking("When does the tram leave?"))


async def killed(asked: Asked) -> None:
    """A run whose server is killed while it streams, and that is resumed when the server is back."""
    with tempfile.TemporaryDirectory() as folder:
        async with asked.model(max_completion_tokens=3900) as model:
            agent = Agent(single_run(), model=model, store=SqliteStore(Path(folder) / "runs.db"))
            agent.on(TextStreamed, lambda _: asked.server.kill())
            failure: NodeFailedError | None = None
            try:
                await agent.run("Count.", run_id="r")
            except NodeFailedError as error:
                failure = error
            if failure is None:
                raise Wrong("the answer came before the server ended")
            if not isinstance(failure.__cause__, ModelRequestError):
                raise Wrong(f"the run fails with {failure}")
        await asked.server.start()
        async with asked.model(max_completion_tokens=20) as model:
            agent = Agent(single_run(), model=model, store=SqliteStore(Path(folder) / "runs.db"))
            agent.on(TextStreamed, lambda _: None)
            result = await agent.resume("r")
            if not result.output:
                raise Wrong("the resumed run has no answer")


QUESTIONS: Mapping[str, Callable[[Asked], Awaitable[None]]] = {
    "text": stream_and_not(a_text),
    "a tool that the model chooses": stream_and_not(a_chosen_tool),
    "some tool required": stream_and_not(a_required_tool),
    "one tool forced": stream_and_not(a_forced_tool),
    "tools forbidden": stream_and_not(no_tool),
    "two calls in one answer": stream_and_not(parallel_calls),
    **{f"structured output: {name}": of_kind(name) for name in KINDS},
    "history of another model": stream_and_not(a_history),
    "limit of tokens": stream_and_not(a_limit),
    "wrong key, no key": stream_and_not(a_wrong_key),
    "wrong model": stream_and_not(a_wrong_model),
    "prompt too long": stream_and_not(a_long_prompt),
    "cancelled in mid-stream": cancelling,
    "killed in mid-stream, resumed": killed,
}
"""By what the table calls them; the last one ends the server."""
