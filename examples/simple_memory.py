"""The memory of a run: read, changed by callbacks, injected, gone through step by step, saved and loaded.

    python examples/simple_memory.py
    python examples/simple_memory.py --model llama3.2 --base-url http://localhost:11434/v1

Without --model a script answers in the place of a model.
"""

from __future__ import annotations

import argparse
import tempfile
from datetime import UTC, datetime

import anyio

from graphagent import Agent, Run, tool
from graphagent.llm import ToolCall
from graphagent.llm.openai import OpenAIModel
from graphagent.memory import ActionStep, RunMemory, TaskStep
from graphagent.testing import Reply, ScriptedModel
from graphagent_strategies import single_run


@tool
def fibonacci(n: int) -> int:
    """Give the n-th Fibonacci number."""
    a, b = 0, 1
    for _ in range(n):
        a, b = b, a + b
    return a


def stamp(step: ActionStep, run: Run[str]) -> None:
    """Put the time in front of what the tools gave; the model sees it in its next turn."""
    if step.observations:
        step.observations = f"[{datetime.now(UTC):%H:%M}] {step.observations}"


def model_of(options: argparse.Namespace, *script: Reply) -> OpenAIModel | ScriptedModel:
    return OpenAIModel(options.model, base_url=options.base_url) if options.model else ScriptedModel(script)


async def main(options: argparse.Namespace) -> None:
    model = model_of(options, ToolCall("fibonacci", {"n": 20}), "The 20th Fibonacci number is 6765.")
    agent = Agent(single_run(), model=model, tools=[fibonacci], system_prompt="You compute.", step_callbacks=[stamp])

    print("# Step by step, with what happened yesterday put before the task")
    run = agent.start("What is the 20th Fibonacci number?")
    run.memory.steps[:0] = [
        TaskStep("Previous monitoring session"),
        ActionStep(observations="Historical data: the system was down for 2 hours yesterday"),
    ]
    while (step := await run.step()) is not None:
        print(f"  {type(step).__name__}")
    print(f"  {run.output}")

    print("# What is in it")
    print(f"  rules: {run.memory.system_prompt.system_prompt}")
    for step in run.memory.steps:
        if not isinstance(step, ActionStep):
            print(f"  {type(step).__name__}")
        elif step.error is not None:
            print(f"  step {step.step_number} got this error: {step.error.message}")
        else:
            print(f"  step {step.step_number}: {step.observations or step.model_output}")

    print("# Saved and loaded, without loss")
    with tempfile.TemporaryDirectory() as folder:
        path = anyio.Path(folder) / "agent_memory.json"
        await path.write_text(run.memory.to_json())
        loaded = RunMemory.from_json(await path.read_text())
    assert loaded == run.memory
    print(f"  {len(loaded.steps)} steps, the first of them: {loaded.succinct_steps()[0]}")

    print("# Taken over by another agent, as a copy")
    other = Agent(single_run(), model=model_of(options, "It was 6765."))
    result = await other.run("What did we find?", steps=loaded)
    print(f"  {result.output}")

    print("# The first run, shown again")
    agent.replay()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", help="a model of an OpenAI-compatible server; without one a script answers")
    parser.add_argument("--base-url", help="where the server is")
    anyio.run(main, parser.parse_args())
