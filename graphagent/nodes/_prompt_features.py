"""Calls of the methods of features that concern what a model is sent."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from graphagent._features import implementing
from graphagent.llm._internal import is_overflow
from graphagent.memory import SummaryStep

if TYPE_CHECKING:
    from graphagent.errors import ModelRequestError
    from graphagent.events import ModelOutput
    from graphagent.llm import ModelRequest, ModelResponse, Tool, ToolResult
    from graphagent.run import Context


def tools_of(ctx: Context, finish: Tool | None = None) -> tuple[Tool, ...]:
    """Return the tools that a node offers: if there are any, with those that features add, and at last the one that ends a task.

    Raises:
        ValueError: another tool has the name of that one.
    """
    tools = tuple(ctx.tools)
    if tools:
        for feature in implementing(ctx.__frame__.runtime.features, "tools"):
            taken = {tool.name for tool in tools}
            tools += tuple(tool for tool in feature.tools if tool.name not in taken)
    if finish is None:
        return tools
    if any(tool.name == finish.name for tool in tools):
        raise ValueError(
            f"node {ctx.node!r} offers a tool {finish.name!r} of its own; rename the other one with @tool(name=…)"
        )
    return (*tools, finish)


def shown(ctx: Context, result: ToolResult) -> ToolResult:
    """Return the result of a tool call as the model shall see it."""
    for feature in implementing(ctx.__frame__.runtime.features, "shown"):
        result = feature.shown(result)
    return result


async def before_request(ctx: Context, tools: Sequence[Tool]) -> None:
    """Let features change the steps from which a prompt is about to be derived."""
    for feature in implementing(ctx.__frame__.runtime.features, "before_request"):
        await feature.before_request(ctx, tools)


async def ask(
    ctx: Context,
    request: ModelRequest,
    *,
    again: bool,
    tools: Sequence[Tool],
    turn: bool = True,
    key: str = "",
    output: ModelOutput = "answer",
) -> ModelResponse | None:
    """Ask the model. Return None if the prompt was refused as too long, and shall be derived and sent once more.

    `tools` are those of the turn; the other arguments are those of `ctx.request`.

    Raises:
        ModelError: as the model raises it.
    """
    features = [] if again else implementing(ctx.__frame__.runtime.features, "make_room")
    if not features:
        return await ctx.request(request, turn=turn, key=key, output=output)
    refusals: list[ModelRequestError] = []

    def refused(error: ModelRequestError) -> bool:
        refusals.extend([error] if is_overflow(error) else ())
        return bool(refusals)

    response = await ctx.__frame__.request_unless(refused, request, turn=turn, key=key, output=output)
    if response is None and (refusals or not await _summed_up(ctx)):
        room = any([await feature.make_room(ctx, tools) for feature in features])
        # If the refusal is a recorded one, the node asks once more in any case: there may be another model by now.
        if refusals and not room:
            raise refusals[0]
    return response


async def _summed_up(ctx: Context) -> bool:
    """Return whether the node, which is executed again, has made room before; a summary that it added then is added again."""
    frame = ctx.__frame__
    while isinstance(frame.added_before, SummaryStep):
        await frame.add(frame.added_before)
    savepoint = frame.savepoint
    return savepoint is not None and any(isinstance(step, SummaryStep) for step in savepoint.added[: savepoint.place])
