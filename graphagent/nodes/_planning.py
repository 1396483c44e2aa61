"""Plans that a model makes for itself, every so many turns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from graphagent.errors import PromptTooLongError
from graphagent.llm import Message, ModelRequest, Tool
from graphagent.memory import ActionStep, PlanningStep

if TYPE_CHECKING:
    from graphagent.run import Context

_PLAN = """\
Before you go on, make a plan. Sum up in a few lines what you know and what is still to be found out, then list the next steps, \
one a line. Do not carry out any of them yet.{tools}"""
_TOOLS = " For the steps you have these tools: {names}."


async def plan_if_due(ctx: Context[Any], tools: Sequence[Tool]) -> bool:
    """Let the model make a plan if one is due: before the first turn of the run, and before every n-th turn after it.

    A plan does not count as a turn in the budget; its tokens and its money count. Return whether the transcript changed.
    """
    interval = ctx.planning_interval
    if interval is None:
        return False
    since = 0  # the turns since the last plan: a plan that was taken back is made again
    for step in ctx.memory.backwards():
        if isinstance(step, PlanningStep):
            return False
        since += isinstance(step, ActionStep) and bool(step.step_number)
        if since == interval:
            break
    names = ", ".join(tool.name for tool in tools)
    asked = Message.user(_PLAN.format(tools=_TOOLS.format(names=names) if names else ""))
    for again in (False, True):
        try:
            await ctx.turn(ModelRequest((*ctx.memory.to_messages(), asked)), step=PlanningStep, purpose="plan")
        except PromptTooLongError:
            if again or not await ctx.compact(tools):
                raise
        else:
            break
    return True
