"""The node that executes the tools that a model calls."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from graphagent.errors import FeatureError, RunError, ScriptError, ToolError
from graphagent.events import CacheUsed, ToolCalled, ToolReturned
from graphagent.graph import Node
from graphagent.llm import Deny, Message, Tool, ToolCall, ToolCalls, ToolResult, ToolResults
from graphagent.llm._internal import BROKEN_OFF, answered, call_tool, capped, refused
from graphagent.memory import ActionStep
from graphagent.nodes._prompt_features import shown, tools_of
from graphagent.run import Question
from graphagent.run._internal import CacheEntry, Suspend, child_run_of, pass_through, together

if TYPE_CHECKING:
    from graphagent.run import Context


@dataclass(frozen=True, slots=True)
class ExecuteTools:
    """The function of a node that executes tool calls."""

    limit: int
    finish: Tool | None = None
    """A tool besides those that are offered."""

    async def __call__(self, ctx: Context, calls: ToolCalls) -> ToolResults:
        if not calls:
            return ToolResults(())
        known = {tool.name: tool for tool in tools_of(ctx, self.finish)}
        ctx.__frame__.begin_adding()
        turn = ctx.memory.turn_of(calls)
        if turn is None:
            calls = await ctx.once("calls", partial(_with_ids, ctx, calls))
            turn = ActionStep(model_output_message=Message.assistant(calls.text, calls))
            await ctx.add(*ctx.memory.shut())
            ctx.memory.open = turn
        results: dict[int, ToolResult] = {}

        async def execute(number: int) -> None:
            with suppress(Suspend):  # the other calls are made all the same
                results[number] = await _result(ctx, known, calls[number])

        try:
            if min(self.limit, len(calls)) < 2:
                for number in range(len(calls)):
                    await execute(number)
            else:
                await together(execute, len(calls), self.limit)
        except BaseException:
            begun = ctx.__frame__.savepoint.called
            broken_off = [refused(call, BROKEN_OFF) for call in calls if call.id in begun]
            ctx.memory.arrived = (*broken_off, *results.values())  # of two for a call, the last one counts
            raise
        if len(results) < len(calls):
            ctx.memory.arrived = tuple(results.values())
            raise Suspend
        given = ToolResults([results[number] for number in range(len(calls))])
        await ctx.add(*ctx.memory.observe(turn, given))
        return given


async def _with_ids(ctx: Context, calls: ToolCalls) -> ToolCalls:
    return ToolCalls(ctx.__frame__.runtime.with_own_ids(calls), calls.text)


async def _result(ctx: Context, known: Mapping[str, Tool], call: ToolCall) -> ToolResult:
    """Return the result of a call: the recorded one, or that of making it now.

    Raises:
        Suspend: it waits for a person, or the run is to pause.
    """
    refusal = await _refusal(ctx, call, f"guard:{call.id}")
    if refusal is not None:
        return refusal

    async def make() -> ToolResult:
        return shown(ctx, await _make(ctx, known.get(call.name), call, known))

    return await ctx.once(f"call:{call.id}", make, like=call)


async def _refusal(ctx: Context, call: ToolCall, key: str) -> ToolResult | None:
    """Show a call once to the callbacks for calls. If one refuses it, return the result that the model sees."""
    guards = ctx.__frame__.runtime.guards
    if guards is None:
        return None

    async def ask() -> ToolResult | None:
        veto, failure = await guards(call)
        if failure is not None:
            raise failure
        return refused(call, f"this call was refused: {veto.reason}") if veto is not None else None

    return await ctx.once(key, ask)


async def _make(ctx: Context, tool: Tool | None, call: ToolCall, known: Mapping[str, Tool]) -> ToolResult:
    if tool is None:
        return await _called(ctx, None, call, known)
    if tool.deferred:
        asked = f"What is the result of {call.name!r}?"
        ctx.__frame__.begin_call(call)  # whoever is asked may act before the run waits
        given = await ctx.ask(Question(call.id, asked, ctx.node, "result", call))
        return capped(answered(call, given), tool.max_size)
    if tool.approve:
        asked = f"May {call.name!r} be called?"
        verdict = await ctx.ask(Question(call.id, asked, ctx.node, "approval", call))
        if isinstance(verdict, Deny):
            return refused(call, _because("a person refused this call", verdict))
        if verdict.arguments is not None:
            call = replace(call, arguments=verdict.arguments, malformed="")
            refusal = await _refusal(ctx, call, f"guard:{call.id}:changed")
            if refusal is not None:
                return refusal
    if tool.in_flight == "retry":
        return await _called(ctx, tool, call, known)
    key, unknown = await _uncertain(ctx, tool, call)
    return unknown or await _called(ctx, tool, call, known, intent=key)


async def _called(
    ctx: Context, tool: Tool | None, call: ToolCall, known: Mapping[str, Tool], *, intent: str = ""
) -> ToolResult:
    """Call a tool, within the middleware around tool calls."""
    features = ctx.__frame__.runtime.around_tool
    if features is None or tool is None:
        return await _returned(ctx, tool, call, known, intent)

    async def proceed(changed: ToolCall) -> ToolResult:
        if changed.name != call.name:  # a person may have to approve the other one
            raise FeatureError(
                f"around_tool calls {changed.name!r} in place of {call.name!r}; change the arguments, or return a ToolResult"
            )
        return await _returned(
            ctx, tool, changed if changed.id == call.id else replace(changed, id=call.id), known, intent
        )

    context = ctx.__frame__.for_call(call).for_middleware("call").context
    try:
        result = await pass_through(
            features, "around_tool", context, call, proceed, kind=ToolResult, kept_on=(Exception, Suspend)
        )
    except ToolError as error:
        return refused(call, str(error))
    return result if result.call_id == call.id else replace(result, call_id=call.id)


async def _returned(
    ctx: Context, tool: Tool | None, call: ToolCall, known: Mapping[str, Tool], intent: str
) -> ToolResult:
    ctx.emit(ToolCalled(ctx.run_id, ctx.node, call))
    entry = None if tool is None or call.malformed else _entry(ctx, tool, call)
    found = await entry.get(ToolResult) if entry is not None else None
    if found is not None:
        result: ToolResult = replace(found[0], call_id=call.id, name=call.name)
        ctx.emit(CacheUsed(ctx.run_id, ctx.node, call))
        ctx.emit(ToolReturned(ctx.run_id, ctx.node, result))
        return result
    if intent:
        await ctx.__frame__.begin_effect(intent)
    ctx.__frame__.begin_call(call)
    started = time.perf_counter()
    result = await call_tool(tool, call, known=known, context=ctx.__frame__.for_call(call).context)
    if _is_of_run(result.value, ctx.run_id):
        raise result.value
    if entry is not None and not result.is_error:
        await entry.put(replace(result, call_id=""), ToolResult)
    result = replace(result, seconds=round(time.perf_counter() - started, 6), run_id=child_run_of(ctx.__frame__, call))
    ctx.emit(ToolReturned(ctx.run_id, ctx.node, result))
    return result


def _entry(ctx: Context, tool: Tool, call: ToolCall) -> CacheEntry | None:
    """Return the place of the result of a call in the store, if the tool is cached."""
    policy = tool.cached
    if policy is None:
        return None
    name = {"key": policy.key} if policy.key else [tool.name, tool.description]
    identity = ["tool", name, dict(tool.parameters)]
    arguments = dict(sorted(call.arguments.items()))  # in what order a model names them means nothing
    return CacheEntry(ctx.__frame__.runtime, policy, identity, arguments, Any, what=f"tool {tool.name!r}")


async def _uncertain(ctx: Context, tool: Tool, call: ToolCall) -> tuple[str, ToolResult | None]:
    """Return the key under which the begin of a call is recorded, and the result if it was interrupted and is not repeated."""
    key, times = f"call:{call.id}", 0
    while ctx.__frame__.was_begun(key):
        times += 1
        key = f"call:{call.id}:{times + 1}"
    if not times:
        return key, None
    if tool.in_flight == "fail":
        return key, refused(call, BROKEN_OFF)
    asked = f"The run was broken off while {call.name!r} was being called. Call it again?"
    again = f"{call.id}:again" if times == 1 else f"{call.id}:again:{times}"
    verdict = await ctx.ask(Question(again, asked, ctx.node, "in_flight", call))
    return key, refused(call, _because(BROKEN_OFF, verdict)) if isinstance(verdict, Deny) else None


def _because(what: str, verdict: Deny) -> str:
    return f"{what}: {verdict.reason}" if verdict.reason else what


def _is_of_run(error: object, run_id: str) -> bool:
    """Return whether an error ends the run itself, such as a used-up budget, and is not a result for the model."""
    return isinstance(error, ScriptError) or (isinstance(error, RunError) and error.run_id == run_id)


def execute_tools(*, limit: int = 1, name: str = "execute_tools") -> Node[ToolCalls, ToolResults]:
    """Make a node that executes the tool calls of the model and returns their results, in the order of the calls.

    Unknown tools, arguments that do not validate and errors of a tool become results that the model sees.

    Args:
        limit: How many calls run at once; by default one after the other.
        name: How the node is called.
    """
    if limit < 1:
        raise ValueError(f"{name!r}: limit={limit} would run no call; give 1 or more")
    return Node(ExecuteTools(limit), name=name, input_type=ToolCalls, output_type=ToolResults)
