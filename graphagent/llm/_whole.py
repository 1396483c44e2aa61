"""The answer of a model: waiting for it, whether it is whole, and asking once more for an answer that is not, or that does not fit."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar, overload

from graphagent._article import counted
from graphagent._details import Usage
from graphagent._raised import translate
from graphagent.errors import (
    ContentFilterError,
    LeakedCancellationError,
    ModelRequestError,
    OutputError,
    TruncatedError,
)
from graphagent.llm._messages import Message, ModelRequest, ModelResponse, Reasoning, Text
from graphagent.llm._output import OutputFormat


async def response_of(model: Model, answer: Awaitable[ModelResponse]) -> ModelResponse:
    """Return the response of a model that was asked.

    Raises:
        ModelRequestError: the model raised a cancellation without a request, as a client does whose connection has ended.
    """
    try:
        return await answer
    except BaseException as raised:
        try:
            await translate(raised, f"model {model.name!r}")
        except LeakedCancellationError as error:
            raise ModelRequestError(str(error)) from error
        raise


def is_empty(message: Message) -> bool:
    """Return whether a message has nothing but reasoning and blank text."""
    return all(
        isinstance(part, Reasoning) or (isinstance(part, Text) and not part.text.strip()) for part in message.parts
    )


def check_said(response: ModelResponse) -> None:
    """Check that a response is an answer: it was not withheld, and has parts unless it was cut off at its limit of tokens.

    Raises:
        ContentFilterError: the content filter of the server withheld it.
        OutputError: there is nothing in it.
    """
    if response.finish_reason == "content_filter":
        raise ContentFilterError(
            f"{_model(response)} withheld its answer (finish_reason 'content_filter'): the server's content filter objected; "
            f"ask for something else, or change the filter",
            usage=response.usage,
        )
    if not response.message.parts:
        check_answered(response)


def check_answered(response: ModelResponse) -> None:
    """Check that there is text or a tool call in a response, unless it was cut off at its limit of tokens.

    Raises:
        OutputError: there is neither.
    """
    message, reason = response.message, response.finish_reason
    if reason == "length" or not is_empty(message):
        return
    if any(isinstance(part, Reasoning) for part in message.parts):
        what = "reasoned and then neither answered nor called a tool"
        how = (
            "allow it more tokens, by parameters={'max_completion_tokens': …} ('max_tokens' on other servers), let it reason less, "
            "by parameters={'reasoning_effort': 'low'}"
        )
    else:
        what, how = (
            "neither answered nor called a tool",
            "say in the prompt what it is to do when it has nothing to add",
        )
    raise OutputError(
        f"{_model(response)} {what} (finish_reason {reason!r}): {how}, or ask again with .retry(attempts=2, errors=OutputError)",
        output="",
        usage=response.usage,
    )


def _model(response: ModelResponse) -> str:
    return f"model {response.model!r}" if response.model else "the model"


def check_whole(response: ModelResponse, request: ModelRequest, *, half_text: bool = True) -> None:
    """Check that there is an answer: not withheld, not refused, and not cut off where half of it is of no use.

    Args:
        response: The answer.
        request: The request.
        half_text: Whether half a text is of use. Half a JSON, half a tool call and nothing are not.

    Raises:
        OutputError: the model refused to answer in JSON, or there is neither text nor a tool call.
    """
    check_said(response)
    check_answered(response)
    message, reason = response.message, response.finish_reason
    if reason == "refusal" and request.output is not None:
        raise OutputError(
            f"{_model(response)} refused to answer, in words instead of the JSON that was asked for; .output has them. Ask for something "
            f"else, or catch it with .on_error(OutputError)",
            output=message.text,
        )
    if reason != "length":
        return
    if request.output is not None:
        what = "JSON"
    elif message.tool_calls:
        what = "tool call"
    elif message.text.strip() and half_text:
        return
    else:
        what = "text"
    raise TruncatedError(
        f"{_model(response)} was cut off at its limit of tokens before its {what} was whole (finish_reason 'length'): allow it more "
        f"tokens, by parameters={{'max_completion_tokens': …}} ('max_tokens' on other servers), or ask for less",
        output=message.text,
        usage=response.usage,
    )


def empty_answer(error: OutputError) -> ModelResponse:
    """Return the answer that a model gave which raised an error because there was nothing in it, so that it can be asked again.

    Raises:
        OutputError: the error itself, since there was something in the answer.
    """
    if isinstance(error, TruncatedError) or error.output.strip():
        raise error
    return ModelResponse(Message("assistant", ()), error.usage or Usage())


def asked_again(
    request: ModelRequest, message: Message, problem: OutputError, shown: Iterable[Message] = ()
) -> ModelRequest:
    """Return a request for a better answer, which shows the model the one that does not fit.

    The schema of a format is in it as text, since a server may accept a format and ignore it.

    Args:
        request: The request.
        message: The answer.
        problem: Why it does not fit.
        shown: The messages that show the answer; by default its text.
    """
    shown = tuple(shown) or (Message.assistant(message.text),)
    if all(map(is_empty, shown)):  # servers refuse a message with nothing in it
        shown = (Message.assistant("(nothing)"),)
    said = "the answer is empty" if is_empty(message) else str(problem)
    again = "Answer again."
    if request.output is not None:
        schema = json.dumps(request.output.schema, ensure_ascii=False)
        again = f"Answer again with nothing but JSON that fits this schema: {schema}"
    elif is_empty(message):
        again = f"Answer again, with text{' or a tool call' if request.tools else ''}."
    return replace(
        request, messages=(*request.messages, *shown, Message.user(f"{said[:1].upper()}{said[1:]}. {again}"))
    )


if TYPE_CHECKING:
    from graphagent.protocols import Model

T = TypeVar("T")


@overload
async def structured(
    ask: Callable[[ModelRequest], Awaitable[ModelResponse]],
    messages: Iterable[Message],
    output: OutputFormat[T] | type[T],
    *,
    attempts: int = 2,
    parameters: Mapping[str, Any] | None = None,
) -> T: ...
@overload
async def structured(
    ask: Callable[[ModelRequest], Awaitable[ModelResponse]],
    messages: Iterable[Message],
    output: Any,
    *,
    attempts: int = 2,
    parameters: Mapping[str, Any] | None = None,
) -> Any: ...
async def structured(
    ask: Callable[[ModelRequest], Awaitable[ModelResponse]],
    messages: Iterable[Message],
    output: OutputFormat[Any] | type[Any],
    *,
    attempts: int = 2,
    parameters: Mapping[str, Any] | None = None,
) -> Any:
    """Ask a model for a value of a type. An answer that does not fit, or is empty, is shown to the model with the reason, and asked again.

    `ask` is a model's `respond`, or a function that counts and forwards to it. `attempts` is the number of requests in all. The
    messages that were given stay as they are.

    Raises:
        OutputError: no answer fitted; `.output` is the last one.
        TruncatedError: an answer was cut off at its limit of tokens; it is not asked for again.
        ModelRequestError: as `ask` raises it, or the answer was withheld.
    """
    if attempts < 1:
        raise ValueError(f"a model must be asked at least once, not {counted(attempts, 'time')}")
    wanted: OutputFormat[Any] = output if isinstance(output, OutputFormat) else OutputFormat.of(output)
    request = ModelRequest(tuple(messages), output=wanted, parameters=dict(parameters or {}))
    while True:
        attempts -= 1
        try:
            response = await ask(request)
            check_whole(response, request)
        except OutputError as error:
            response, problem = empty_answer(error), error
        else:
            try:
                return wanted.parse(response.message.text)
            except OutputError as error:
                problem = error
        if attempts == 0:
            raise problem
        request = asked_again(request, response.message, problem)
