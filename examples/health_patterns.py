"""A step callback that finds a pattern over several steps and tells the model, here for an agent without any tools of its own.

python examples/health_patterns.py
"""

from __future__ import annotations

from graphagent import END, START, Agent, Context, Run, Strategy, node
from graphagent.memory import ActionStep
from graphagent.nodes import llm_request
from graphagent.testing import ScriptedModel

CHECKS = ["200 OK", "500", "500", "200 OK", "500"]


def track_health_patterns(step: ActionStep, run: Run[str]) -> None:
    """Count failures among the last ten steps; the step itself does not stand in the memory yet."""
    if step.observations and "health" in step.observations.lower():
        last = [*run.memory.steps, step][-10:]
        failures = sum(isinstance(each, ActionStep) and "500" in (each.observations or "") for each in last)
        if failures >= 3:
            step.observations += f"\n[ALERT] Pattern detected: {failures} failures in last 10 checks"


@node
async def look(ctx: Context, checks: list[str]) -> str:
    """A node may add steps as well; callbacks see them as they see those of a model."""
    for number, status in enumerate(checks, 1):
        await ctx.add(ActionStep(step_number=number, observations=f"health: {status}"))
    return "Is anything wrong?"


watch = Strategy("watch", START >> look >> llm_request(tools=False) >> END)
model = ScriptedModel(["Three of five checks failed."])
agent = Agent(watch, model=model, step_callbacks=[track_health_patterns])
print(agent.run_sync(CHECKS).output)

sent = [message.text for message in model.requests[0].messages]
print(next(text for text in sent if "[ALERT]" in text))
assert sum("[ALERT]" in text for text in sent) == 1
