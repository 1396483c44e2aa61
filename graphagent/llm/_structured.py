"""Ask a model for a value of a type, and repeat the request if the answer does not fit."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, TypeVar, overload

from graphagent._article import counted
from graphagent.errors import OutputError
from graphagent.llm._messages import Message, ModelRequest, ModelResponse
from graphagent.llm._output import OutputFormat
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
    """Ask a model for a value of a type. An answer that does not fit is shown to the model with the reason, and asked again.

    `ask` is a model's `respond`, or a function that counts and forwards to it. `attempts` is the number of requests in all. The
    messages that were given stay as they are.

    Raises:
        OutputError: no answer fitted; `.output` is the last one.
        TruncatedError: an answer was cut off at its limit of tokens; it is not asked for again.
        ModelRequestError: as `ask` raises it, or the answer was withheld.
    """
    import json

    if attempts < 1:
        raise ValueError(f"a model must be asked at least once, not {counted(attempts, 'time')}")
    wanted: OutputFormat[Any] = output if isinstance(output, OutputFormat) else OutputFormat.of(output)
    sent = tuple(messages)
    while True:
        request = ModelRequest(sent, output=wanted, parameters=dict(parameters or {}))
        response = await ask(request)
        check_whole(response, request)
        text = response.message.text
        try:
            return wanted.parse(text)
        except OutputError as error:
            attempts -= 1
            if attempts == 0:
                raise
            schema = json.dumps(wanted.schema, ensure_ascii=False)
            again = f"{error}. Answer again with nothing but JSON that fits this schema: {schema}"
            sent += (Message.assistant(text or "(nothing)"), Message.user(again[:1].upper() + again[1:]))
