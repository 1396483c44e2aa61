"""Whether the answer of a model is whole: as far as it says, and as far as half of it is of use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from graphagent.errors import ContentFilterError, OutputError, TruncatedError
from graphagent.llm._messages import Reasoning

if TYPE_CHECKING:
    from graphagent.llm._messages import ModelRequest, ModelResponse


def check_said(response: ModelResponse) -> None:
    """Check that a response is an answer: it was not withheld, and has parts unless it was cut off at its limit of tokens.

    Raises:
        ContentFilterError: the content filter of the server withheld it.
        OutputError: there is nothing in it.
    """
    reason = response.finish_reason
    model = f"model {response.model!r}" if response.model else "the model"
    if reason == "content_filter":
        raise ContentFilterError(
            f"{model} withheld its answer (finish_reason 'content_filter'): the server's content filter objected; "
            f"ask for something else, or change the filter",
            usage=response.usage,
        )
    if not response.message.parts and reason != "length":
        raise OutputError(
            f"{model} neither answered nor called a tool (finish_reason {reason!r}): say in the prompt what it is to do when it has "
            f"nothing to add, or ask again with .retry(attempts=2, errors=OutputError)",
            output="",
            usage=response.usage,
        )


def check_whole(response: ModelResponse, request: ModelRequest, *, half_text: bool = True) -> None:
    """Check that there is an answer: not withheld, not refused, and not cut off where half of it is of no use.

    Args:
        response: The answer.
        request: What was asked for.
        half_text: Whether half a text is of use. Half a JSON, half a tool call and nothing are not.

    Raises:
        TruncatedError: it was cut off at its limit of tokens.
        OutputError: the model refused to answer in JSON, or reasoned and said nothing, or did not even that.
        ContentFilterError: the content filter of the server withheld it.
    """
    check_said(response)
    message, reason = response.message, response.finish_reason
    model = f"model {response.model!r}" if response.model else "the model"
    if reason == "refusal" and request.output is not None:
        raise OutputError(
            f"{model} refused to answer, in words instead of the JSON that was asked for; .output has them. Ask for something else, "
            f"or catch it with .on_error(OutputError)",
            output=message.text,
        )
    if reason != "length":
        if message.parts and all(isinstance(part, Reasoning) for part in message.parts):
            raise OutputError(
                f"{model} reasoned and then neither answered nor called a tool (finish_reason {reason!r}): allow it more tokens, by "
                f"parameters={{'max_completion_tokens': …}} ('max_tokens' on other servers), let it reason less, by "
                f"parameters={{'reasoning_effort': 'low'}}, or ask again with .retry(attempts=2, errors=OutputError)",
                output="",
            )
        return
    if request.output is not None:
        what = "JSON"
    elif message.tool_calls:
        what = "tool call"
    elif message.text and half_text:
        return
    else:
        what = "text"
    raise TruncatedError(
        f"{model} was cut off at its limit of tokens before its {what} was whole (finish_reason 'length'): allow it more "
        f"tokens, by parameters={{'max_completion_tokens': …}} ('max_tokens' on other servers), or ask for less",
        output=message.text,
        usage=response.usage,
    )
