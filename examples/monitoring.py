"""An agent that watches a service, and whose memory does the work: patterns, injected history, steps, replay.

    python examples/monitoring.py --demo_mode replay|inject|step_by_step|full
    python examples/monitoring.py --model llama3.2 --base-url http://localhost:11434/v1

Without --model a stand-in answers.
"""

from __future__ import annotations

import argparse
import itertools
import tempfile
from pathlib import Path

import anyio

from graphagent import Agent, Run, tool
from graphagent.llm import Message, ModelRequest, ToolCall, ToolCalls
from graphagent.llm.openai import OpenAIModel
from graphagent.memory import ActionStep, RunMemory, TaskStep
from graphagent.store import SqliteStore
from graphagent.testing import Reply, ScriptedModel
from graphagent_strategies import single_run

TASK = "Check the application."
RULES = "You watch a web application. Check its health, restart it when something is wrong for long, and report."


class Application:
    """Stands in for a web application: it fails until it is restarted."""

    healthy = False

    @tool
    def check_health(self) -> str:
        """Ask the application how it is."""
        return f"health: {'200 OK' if self.healthy else '500 Internal Server Error'}"

    @tool
    def restart(self) -> str:
        """Restart the application."""
        self.healthy = True
        return "restarted"


def track_health_patterns(step: ActionStep, run: Run[str]) -> None:
    """Tell the model when check after check fails. The step itself does not stand in the memory yet."""
    if step.observations and "health: 500" in step.observations:
        last = [*run.memory.steps, step][-10:]
        failures = sum(isinstance(each, ActionStep) and "health: 500" in (each.observations or "") for each in last)
        if failures >= 3:
            step.observations += f"\n[ALERT] Pattern detected: {failures} failures in last 10 checks"


def operator(request: ModelRequest) -> Reply:
    """Stand in for a model: check, restart where there is an alert, check again, report."""
    last = request.messages[-1]
    if last.role != "tool":
        return ToolCalls([ToolCall("check_health")], "Let me look.")
    if "[ALERT]" in last.text:
        return ToolCalls([ToolCall("restart")], "It has failed for too long.")
    if "200 OK" in last.text:
        down_before = any("down for 2 hours" in message.text for message in request.messages)
        return f"The application is up again.{' It was down yesterday as well.' if down_before else ''}"
    return ToolCalls([ToolCall("check_health")], "Once more.")


def create_agent(options: argparse.Namespace, store: SqliteStore | None = None) -> Agent[str | Message, str]:
    stand_in = ScriptedModel(itertools.repeat(operator))
    model = OpenAIModel(options.model, base_url=options.base_url) if options.model else stand_in
    application = Application()
    return Agent(
        single_run(), model=model, tools=[application.check_health, application.restart], system_prompt=RULES, store=store,
        name="ai_monitoring_agent", description="Watches a web application and manages its health.",
        step_callbacks=[track_health_patterns],
    )  # fmt: skip


async def replay(options: argparse.Namespace) -> None:
    """Find a pattern in the checks, and show the run again."""
    agent = create_agent(options)
    await agent.run(TASK)
    agent.replay()


async def inject(options: argparse.Namespace) -> None:
    """Put what happened yesterday before the task; the report makes use of it."""
    history = RunMemory(
        steps=[
            TaskStep("Previous monitoring session"),
            ActionStep(observations="Historical data: the system was down for 2 hours yesterday"),
        ]
    )
    result = await create_agent(options).run(TASK, steps=history)
    print(result.output)
    alerts = [
        step for step in result.memory.steps if isinstance(step, ActionStep) and "ALERT" in (step.observations or "")
    ]
    print(f"alerts: {len(alerts)}, steps: {len(result.memory.steps)}, tokens: {result.usage.total_tokens:,}")


async def step_by_step(options: argparse.Namespace) -> None:
    """Begin a run, let it go after two steps, and have another agent end it from the file, as another process would."""
    with tempfile.TemporaryDirectory() as folder:
        async with SqliteStore(Path(folder) / "monitoring.db") as store:
            run = create_agent(options, store).start(TASK)
            for _ in range(2):
                print(f"begun: {type(await run.step()).__name__}")
            await run.aclose()

            run = await create_agent(options, store).read(run.run_id)
            while (step := await run.step()) is not None:
                print(f"gone on: {type(step).__name__}")
            print(run.output)
            print(f"its history as text for another agent: {len(run.memory.to_text()):,} characters")


MODES = {"replay": replay, "inject": inject, "step_by_step": step_by_step}


async def main(options: argparse.Namespace) -> None:
    for mode in MODES if options.demo_mode == "full" else [options.demo_mode]:
        print(f"# {mode}")
        await MODES[mode](options)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--demo_mode", choices=[*MODES, "full"], default="full")
    parser.add_argument("--model", help="a model of an OpenAI-compatible server; without one a stand-in answers")
    parser.add_argument("--base-url", help="where the server is")
    anyio.run(main, parser.parse_args())
