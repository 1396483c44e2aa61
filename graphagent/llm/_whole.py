"""Whether the answer of a model is whole: as far as it says, and as far as half of it is of use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from graphagent.errors import ContentFilterError, OutputError, TruncatedError
from graphagent.llm._messages import Reasoning, Text

if TYPE_CHECKING:
    from graphagent.llm._messages import Message, ModelRequest, ModelResponse


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
        request: What was asked for.
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
