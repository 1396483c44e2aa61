"""The node that executes the tools that a model calls."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from graphagent.errors import ArgumentsError
from graphagent.graph import Node
from graphagent.llm import Deny, Tool, ToolCall, ToolCalls, ToolResult, ToolResults
from graphagent.memory import ActionStep
from graphagent.nodes._model import tools_of

if TYPE_CHECKING:
    from graphagent.run import Context


@dataclass(frozen=True, slots=True)
class ExecuteTools:
    """The function of a node that executes tool calls."""

    limit: int
    finish: Tool | None = None
    """A tool besides those that are offered."""
    executes_calls: ClassVar[bool] = True
    """Rules about tools that a strategy has are proven for the nodes that execute any call of a model."""

    async def __call__(self, ctx: Context[Any], calls: ToolCalls) -> ToolResults:
        if not calls:
            return ToolResults(())
        turn = ctx.memory.last_turn
        if turn is None or not {call.id for call in turn.tool_calls}.issuperset(call.id for call in calls):
            turn = await ctx.add(ActionStep(model_output=calls.text, tool_calls=calls))  # calls that another node made
            calls = ToolCalls(turn.tool_calls, calls.text)
        tools = {tool.name: tool for tool in tools_of(ctx, self.finish)}
        works = [partial(_execute, call=call, tool=tools.get(call.name)) for call in calls]
        results = ToolResults(await ctx.gather(works, limit=self.limit))
        await ctx.add_results(results)
        return results


async def _execute(ctx: Context[Any], call: ToolCall, tool: Tool | None) -> ToolResult:
    """Return the result of a tool call: of the tool, of a person, or an error that the model sees."""
    if tool is None or not (tool.approve or tool.deferred):
        return await ctx.call_tool(tool, call)
    refusal = await ctx.check_call(call)
    if refusal is not None:
        return _refused(call, refusal)
    try:
        _check_arguments(tool, call)
    except ArgumentsError as error:  # people are not asked about calls that cannot be made
        return ToolResult.error(call, str(error))
    if tool.approve:
        verdict = await ctx.ask(f"May {call.name!r} be called?", kind="approval", about=call)
        if isinstance(verdict, Deny):
            return tool.result_of(call, verdict)
        if verdict.arguments is not None:
            call = replace(call, arguments=verdict.arguments, malformed="")
            refusal = await ctx.check_call(call, changed=True)
            if refusal is not None:
                return _refused(call, refusal)
    return await ctx.call_tool(tool, call)


def _refused(call: ToolCall, refusal: Deny) -> ToolResult:
    return ToolResult.error(call, f"this call was refused: {refusal.reason}")


def _check_arguments(tool: Tool, call: ToolCall) -> None:
    """Check that a call can be made.

    Raises:
        ArgumentsError: the arguments are not a JSON object, or do not fit the tool.
    """
    if call.malformed:
        raise ArgumentsError(tool.name, ["the arguments are not a JSON object"])
    tool.check(call.arguments)


def execute_tools(*, limit: int = 1, name: str = "execute_tools") -> Node[ToolCalls, ToolResults]:
    """Make a node that executes the tool calls of the model and returns their results, in the order of the calls.

    Unknown tools, arguments that do not validate and errors of a tool become results that the model sees.

    Args:
        limit: How many calls run at once; by default one after the other.
        name: The name of the node.
    """
    if type(limit) is not int or limit < 1:
        raise ValueError(f"{name!r}: limit={limit!r} would run no call; give 1 or more")
    return Node(ExecuteTools(limit), name=name, input_type=ToolCalls, output_type=ToolResults)
