"""A step callback that finds a pattern over several steps and tells the model, here for an agent without any tools of its own.

python examples/health_patterns.py
python examples/health_patterns.py --model llama3.2 --base-url http://localhost:11434/v1
"""

from __future__ import annotations

import argparse

from graphagent import END, START, Agent, Context, Run, Strategy, node
from graphagent.llm.openai import OpenAIModel
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

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", help="a model of an OpenAI-compatible server; without one a script answers")
    parser.add_argument("--base-url", help="where the server is")
    options = parser.parse_args()
    stand_in = ScriptedModel(["Three of five checks failed."])
    model = OpenAIModel(options.model, base_url=options.base_url) if options.model else stand_in
    result = Agent(watch, model=model, step_callbacks=[track_health_patterns]).run_sync(CHECKS)
    print(result.output)

    told = [message.text for message in result.memory.to_messages()]
    print(next(text for text in told if "[ALERT]" in text))
    assert sum("[ALERT]" in text for text in told) == 1
