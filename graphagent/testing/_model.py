"""A model that answers from a script, and records its requests."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeAlias, Union, cast

from graphagent._article import counted
from graphagent.errors import ModelError, ScriptError
from graphagent.llm import Message, ModelRequest, ModelResponse, ToolCall, ToolCalls, Usage

if TYPE_CHECKING:
    from pydantic import BaseModel

Reply: TypeAlias = Union[
    str,
    ToolCall,
    ToolCalls,
    Mapping[str, Any],
    Sequence[Any],
    "BaseModel",
    Exception,
    ModelResponse,
    Callable[[ModelRequest], "Reply"],
]
"""A reply of a scripted model: text; tool calls; JSON data or a pydantic model, sent as JSON text; a whole response; an
exception, which is raised; or a function of the request that returns one of these."""


class ScriptedModel:
    """A model for tests: it returns the replies one after the other, and records every request.

    Token usage is counted in words, so it is the same in every run. With `on_text`, text comes word by word.

    Raises:
        TypeError: the replies are one string instead of several replies.
    """

    def __init__(self, replies: Iterable[Reply] = (), *, name: str = "scripted") -> None:
        if isinstance(replies, str):
            raise TypeError(f"the replies are one string; for a single reply write ScriptedModel([{replies!r}])")
        if callable(replies):
            raise TypeError(
                "the replies are one function; for one that answers every request write ScriptedModel(itertools.repeat(function))"
            )
        self.name = name
        """The name of the model."""
        self.requests: list[ModelRequest] = []
        """The requests, in order."""
        listed = replies if isinstance(replies, Sequence) else ()
        self._tells_cost = any(isinstance(each, ModelResponse) and each.usage.cost for each in listed)
        self._replies = iter(replies)

    @property
    def tells_cost(self) -> bool:
        """Whether a response in the list of replies says what it costs; else a budget of money needs a PricedModel."""
        return self._tells_cost

    async def respond(self, request: ModelRequest, on_text: Callable[[str], None] | None = None) -> ModelResponse:
        """Return the next reply of the script.

        Raises:
            ScriptError: the script has come to its end.
        """
        from anyio.lowlevel import checkpoint

        await checkpoint()
        response = self.answer(request)
        if on_text is not None:
            for piece in words(response.message.text):
                on_text(piece)
                await checkpoint()
        return response

    def answer(self, request: ModelRequest) -> ModelResponse:
        """Respond without waiting: for tests that are not async."""
        self.requests.append(request)
        try:
            reply = next(self._replies)
        except StopIteration:
            asked = len(self.requests)
            raise ScriptError(
                f"the script of model {self.name!r} has {counted(asked - 1, 'reply')}, and this is request {asked}; "
                f"add a reply, or see in .requests why it was asked again"
            ) from None
        return response_of(reply, request, self.name)


def response_of(reply: Reply, request: ModelRequest, name: str) -> ModelResponse:
    """Return the response that a reply means, or raise it if it is an exception."""
    while callable(reply):
        reply = reply(request)
    if isinstance(reply, Exception):
        if isinstance(reply, ModelError):
            reply.failed = ()  # of the time before, where one error stands in several scripts
        raise reply
    if isinstance(reply, ModelResponse):
        return reply if reply.model else replace(reply, model=name)
    message = _message(reply)
    usage = Usage(sum(_count(each) for each in request.messages), _count(message))
    return ModelResponse(message, usage, "tool_calls" if message.tool_calls else "stop", name)


def words(text: str) -> list[str]:
    """Split a text after each word; joined, the pieces are the text."""
    return re.findall(r"\s*\S+|\s+$", text)


def _message(reply: Any) -> Message:
    if isinstance(reply, str):
        return Message.assistant(reply)
    if isinstance(reply, ToolCall):
        return Message.assistant(calls=[reply])
    if isinstance(reply, ToolCalls):
        return Message.assistant(reply.text, reply.calls)
    if isinstance(reply, list) and reply:
        members = cast("Sequence[Any]", reply)
        if all(isinstance(each, ToolCall) for each in members):
            return Message.assistant(calls=members)
    from pydantic_core import to_json

    return Message.assistant(to_json(reply).decode())


def _count(message: Message) -> int:
    said = [message.text, *(f"{call.name} {call.malformed or dict(call.arguments)}" for call in message.tool_calls)]
    return sum(len(text.split()) for text in said)
