"""Whether the answer of a model is whole: as far as it says, and as far as half of it is of use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from graphagent.errors import ModelRequestError, TruncatedError

if TYPE_CHECKING:
    from graphagent.llm._messages import ModelRequest, ModelResponse


def check_whole(response: ModelResponse, request: ModelRequest, *, half_text: bool = True) -> None:
    """Check that an answer was not withheld, and not cut off where half of it is of no use.

    Args:
        response: The answer.
        request: What was asked for.
        half_text: Whether half a text is of use. Half a JSON, half a tool call and nothing are not.

    Raises:
        TruncatedError: it was cut off at its limit of tokens.
        ModelRequestError: the content filter of the server withheld it.
    """
    message, reason = response.message, response.finish_reason
    if reason not in ("content_filter", "length"):
        return
    model = f"model {response.model!r}" if response.model else "the model"
    if reason == "content_filter":
        raise ModelRequestError(
            f"{model} withheld its answer (finish_reason 'content_filter'): the server's content filter objected; "
            f"ask for something else, or change the filter"
        )
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
