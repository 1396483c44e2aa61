"""A question to the model of the run, outside the conversation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

from graphagent.llm import Message, ModelRequest, OutputFormat

if TYPE_CHECKING:
    from graphagent.run import Context

T = TypeVar("T")


async def decide(ctx: Context[Any], key: str, question: str, output: OutputFormat[T]) -> T:
    """Return the decision of the model, which is sent only the question.

    Raises:
        OutputError: no answer fits.
    """

    def parse(message: Message) -> T:
        return output.parse(message.text)

    request = ModelRequest((Message.user(question),), output=output)
    return parse((await ctx.request(request, key=key, parse=parse)).message)
