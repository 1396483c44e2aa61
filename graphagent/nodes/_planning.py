"""Plans that a model makes for itself, every so many turns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from graphagent import _clock
from graphagent.llm import Message, ModelRequest, Tool
from graphagent.memory import ActionStep, PlanningStep, Timing
from graphagent.memory._internal import SentPrompt
from graphagent.nodes._prompt_features import ask

if TYPE_CHECKING:
    from graphagent.memory import RunMemory, Step
    from graphagent.run import Context

_PLAN = """\
Before you go on, make a plan. Sum up in a few lines what you know and what is still to be found out, then list the next steps, \
one a line. Do not carry out any of them yet.{tools}"""
_TOOLS = " For the steps you have these tools: {names}."


async def plan_if_due(ctx: Context, tools: Sequence[Tool]) -> None:
    """Let the model make a plan if one is due: before the first turn of the run, and before every n-th turn after it.

    A plan is no model turn in the budget; its tokens and its money count.

    Raises:
        BudgetError: there is no turn left that could carry it out, or all tokens or money are spent.
        ModelError: as the model raises it; the transcript stays as it was.
    """
    frame, memory = ctx.__frame__, ctx.memory
    interval = frame.runtime.planning_interval
    if interval is None:
        return
    before = frame.added_before
    if before is not None:
        # The node is executed again: whether there was a plan here is decided already.
        if isinstance(before, PlanningStep):
            memory.sent(before.prompt)
            await ctx.add(before)
        return
    made = memory.turns - _turns_of(memory.steps[: memory.begun])
    if made % interval or _planned(memory):
        return
    frame.meter.check_turn(frame.runtime)
    names = ", ".join(tool.name for tool in tools)
    asked = Message.user(_PLAN.format(tools=_TOOLS.format(names=names) if names else ""))
    derived, started, key = tuple(memory.to_messages()), _clock.now(), f"plan:{made}"
    request = ModelRequest((*derived, asked))
    response = await ask(ctx, request, again=False, tools=tools, turn=False, key=key, output="plan")
    if response is None:  # the prompt was too long, and is shorter now
        derived = tuple(memory.to_messages())
        request = ModelRequest((*derived, asked))
        response = await ctx.request(request, key=f"{key}:again", output="plan")
    prompt = SentPrompt.of((ctx.__frame__.sent or request).messages, memory.last_prompt, derived)
    memory.sent(prompt)
    text = response.message.text
    await ctx.add(PlanningStep(text, response.message, prompt, Timing(started, _clock.now()), response.usage))


def _turns_of(steps: Sequence[Step]) -> int:
    """Return the number of the last model turn."""
    return next((step.step_number for step in reversed(steps) if isinstance(step, ActionStep) and step.step_number), 0)


def _planned(memory: RunMemory) -> bool:
    """Return whether the run has made a plan since its last turn."""
    for step in reversed(memory.steps[memory.begun :]):
        if isinstance(step, PlanningStep):
            return True
        if isinstance(step, ActionStep) and step.step_number:
            return False
    return False
