"""Asking a model once more for an answer that does not fit, or has nothing in it: what it is sent."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from graphagent.errors import OutputError, TruncatedError
from graphagent.llm._messages import Message, ModelResponse, Usage
from graphagent.llm._whole import is_empty

if TYPE_CHECKING:
    from graphagent.llm._messages import ModelRequest


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
        request: What was asked.
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
