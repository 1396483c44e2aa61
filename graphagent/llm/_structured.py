"""Ask a model for a value of a type, and repeat the request if the answer does not fit."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, TypeVar, overload

from graphagent._article import counted
from graphagent.errors import OutputError
from graphagent.llm._messages import Message, ModelRequest, ModelResponse
from graphagent.llm._output import OutputFormat
from graphagent.llm._repair import asked_again, empty_answer
from graphagent.llm._whole import check_whole

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
