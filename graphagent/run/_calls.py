"""Tool calls: callbacks, middleware, the cache, the tool itself, and what happens if the process dies meanwhile."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from graphagent import _clock
from graphagent._functions import abandoned
from graphagent._raised import leaves
from graphagent._tracebacks import error_text
from graphagent.errors import FeatureError, RunError, ScriptError, ToolError
from graphagent.events import CacheUsed, ToolCalled, ToolFailed, ToolReturned
from graphagent.llm import Approve, Deny, ToolResult
from graphagent.llm._tools import BROKEN_OFF, because
from graphagent.llm._tools import call_tool as execute_tool
from graphagent.run._callbacks import call_all
from graphagent.run._final_errors import Suspend
from graphagent.run._logging import log_failed_call
from graphagent.run._middleware import pass_through
from graphagent.run._people import ask
from graphagent.run._policies import CacheEntry
from graphagent.run._rules import begin_tool, check_tool, end_tool, names_in_log

if TYPE_CHECKING:
    from graphagent.llm import Tool, ToolCall
    from graphagent.run._agent_run import AgentRun
    from graphagent.run._effects import Effects


async def check_call(effects: Effects, call: ToolCall, *, changed: bool = False) -> Deny | None:
    """Show a tool call once to the callbacks for calls. Return a refusal, or None."""
    run = effects.run
    if not run.plan.guards:
        return None
    key = f"{effects.scope}{call.id}:changed" if changed else f"{effects.scope}{call.id}"
    found = effects.find("check", key)
    if found is not None:
        return found.value if isinstance(found.value, Deny) else None
    veto, failure = await call_all(run.plan.guards, call, run.handle)
    if failure is not None:
        raise failure
    refusal = None if veto is None else Deny(veto.reason)
    await effects.record_object("check", key, refusal)
    return refusal


def check_approval(effects: Effects, call: ToolCall) -> None:
    """Check that a person may be asked about a tool call: that no rule forbids it."""
    walk, key = effects.walk, f"{effects.scope}{call.id}"
    if walk.node is not None and walk.node.within and ("tool", key) not in effects.visit.effects:
        for tool in walk.offered:
            if tool.name == call.name and tool.approve:
                check_tool(walk, tool, key)


async def call_tool(effects: Effects, tool: Tool | None, call: ToolCall) -> ToolResult:
    """Execute a tool call, and record its result."""
    key, run = f"{effects.scope}{call.id}", effects.run
    found = effects.find("tool", key)
    if found is not None:
        return cast("ToolResult", found.value)
    again = run.session.recorded
    entry = None if again is None else again.result(run.log, effects.frame, key, call)
    result, ended = (None, None) if entry is None else (cast("ToolResult", entry.held.value), entry.ended)
    if entry is not None and tool is not None and effects.times_started("tool", key):
        named = begin_tool(effects.walk, tool, key)
        if named and entry.is_ended:
            end_tool(effects.walk, named, key)
    if result is None:
        refusal = await check_call(effects, call)
        if refusal is not None:
            result = ToolResult.error(call, f"this call was refused: {refusal.reason}")
        else:
            await effects.before_live()
            result, is_ended = await _made(effects, tool, call)
            for feature in run.features.having("shown"):
                result = feature.shown(result)
            ended = is_ended if is_ended == result.is_error else None
    await effects.record_object("tool", key, result, ended=ended)
    return result


async def _made(effects: Effects, tool: Tool | None, call: ToolCall) -> tuple[ToolResult, bool]:
    """Make a call, or return what a person answers in its place. Return also whether the tool came to its end."""
    if tool is None:
        return await _called(effects, tool, call)
    key = f"{effects.scope}{call.id}"
    if tool.deferred:
        named = begin_tool(effects.walk, tool, key)
        if not effects.times_started("tool", key):  # whoever is asked may act before the run waits
            await effects.start("tool", key, durable=False, tool=tool.name, ruled=names_in_log(tool, named))
        answer = await ask(effects, f"What is the result of {call.name!r}?", kind="result", about=call)
        result = tool.result_of(call, answer)
        if named and not result.is_error:
            end_tool(effects.walk, named, key)
        return result, not result.is_error
    unknown = await _in_flight(effects, tool, call) if tool.in_flight != "retry" else None
    return (unknown, False) if unknown is not None else await _called(effects, tool, call)


async def _in_flight(effects: Effects, tool: Tool, call: ToolCall) -> ToolResult | None:
    """Return the result of a call that was broken off and is not repeated; None if it is made now."""
    key = f"{effects.scope}{call.id}"
    # One that waited with the run was not broken off: it begins again, as a node does, or is held where it was made.
    times = effects.times_started("tool", key) - effects.times_started("suspended", key)
    if not times or tool.is_held(effects.within(call.id, call).context()):
        return None
    if tool.in_flight == "fail":
        return ToolResult.error(call, BROKEN_OFF)
    again = f"{call.id}:again" if times == 1 else f"{call.id}:again:{times}"
    asked = f"The run was broken off while {call.name!r} was being called. Call it again?"
    verdict: Approve | Deny = await ask(effects, asked, kind="in_flight", about=call, id_=again)
    return ToolResult.error(call, because(BROKEN_OFF, verdict)) if isinstance(verdict, Deny) else None


async def _called(effects: Effects, tool: Tool | None, call: ToolCall) -> tuple[ToolResult, bool]:
    """Call a tool, within the middleware around tool calls."""
    run, features, made, ended = effects.run, effects.run.plan.around_tool, False, False
    if not features or tool is None:
        result = await _returned(effects, tool, call)
        run.emit(ToolReturned(run.run_id, effects.node, result))
        return result, not result.is_error

    async def proceed(changed: ToolCall) -> ToolResult:
        nonlocal made, ended
        if changed.name != call.name:  # a person may have to approve the other one
            raise FeatureError(
                f"around_tool calls {changed.name!r} in place of {call.name!r}; change the arguments, or return a ToolResult"
            )
        made = True
        own = await _returned(effects, tool, changed if changed.id == call.id else replace(changed, id=call.id))
        ended = ended or not own.is_error
        return own

    around = effects.within(call.id, call).within("call:around")
    try:
        result = await pass_through(
            features, "around_tool", around, call, proceed, kind=ToolResult, kept_on=(Exception, Suspend)
        )
    except ToolError as error:
        result = ToolResult.error(call, error_text(error))
    result = result if result.call_id == call.id else replace(result, call_id=call.id)
    if made:  # only now: middleware may withhold what the tool returned
        run.emit(ToolReturned(run.run_id, effects.node, result))
    return result, ended if made else not result.is_error


async def _returned(effects: Effects, tool: Tool | None, call: ToolCall) -> ToolResult:
    run, node, key = effects.run, effects.node, f"{effects.scope}{call.id}"
    named = begin_tool(effects.walk, tool, key) if tool is not None else ()
    names = names_in_log(tool, named) if tool is not None else ()
    run.emit(ToolCalled(run.run_id, node, call))
    entry = None if tool is None or call.malformed else _entry(run, tool, call)
    found = await entry.get(ToolResult) if entry is not None else None
    if found is not None:
        result: ToolResult = replace(found[0], call_id=call.id, name=call.name)
        await effects.start("cached", key, durable=False, tool=call.name, ruled=names)
        if named:
            end_tool(effects.walk, named, key)
        run.emit(CacheUsed(run.run_id, node, call))
        return result
    started, inside = _clock.ticks(), effects.within(call.id, call)
    known: Mapping[str, Tool] = {each.name: each for each in effects.walk.offered}
    context = inside.context()
    if tool is None or not tool.is_held(context):  # one that is held has begun
        # Of a call that is simply repeated, the beginning is durable with whatever comes next.
        name, durable = ("", False) if tool is None else (tool.name, tool.in_flight != "retry")
        await effects.start("tool", key, durable=durable, tool=name, ruled=names)
    token = abandoned.set(partial(run.report_abandoned, node=node))
    try:
        result = await execute_tool(tool, call, known=known, context=context, errors=run.config.errors)
    except Suspend:
        if tool is not None and tool.in_flight != "retry" and not tool.is_held(context):
            await effects.start("suspended", key, durable=False)
        raise
    finally:
        abandoned.reset(token)
    if _ends_run(result.value, run):
        raise result.value
    if result.is_error and isinstance(result.value, Exception):
        log_failed_call(run, node, call, result.value)
        run.emit(ToolFailed(run.run_id, node, call, result.value))
    if named and not result.is_error:
        end_tool(effects.walk, named, key)
    if entry is not None and not result.is_error:
        await entry.put(replace(result, call_id=""), ToolResult)
    children = run.children_of(effects.frame, inside.scope)
    return replace(
        result,
        seconds=round(_clock.seconds_since(started), 6),
        run_id=children[0] if len(children) == 1 else "",
    )


def _entry(run: AgentRun, tool: Tool, call: ToolCall) -> CacheEntry | None:
    """Return the place of the result of a call in the store, if the tool is cached."""
    policy = tool.cached
    if policy is None:
        return None
    name = {"key": policy.key} if policy.key else [tool.name, tool.description]
    identity = ["tool", name, dict(tool.parameters)]
    arguments = dict(sorted(call.arguments.items()))  # in what order a model names them means nothing
    return CacheEntry(run, policy, identity, arguments, Any, what=f"tool {tool.name!r}")


def _ends_run(error: object, run: AgentRun) -> bool:
    """Return whether an error ends the run itself, such as a used-up budget, and is not a result for the model."""
    return isinstance(error, BaseException) and any(
        isinstance(each, ScriptError) or (isinstance(each, RunError) and each.run_id in run.lineage)
        for each in leaves(error)
    )
