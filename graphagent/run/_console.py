"""A feature that prints a run while it goes on."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Literal, Self, TextIO

from graphagent._article import counted
from graphagent.events import RunFailed, RunFinished, RunResumed, RunStarted, RunSuspended, StepCommitted
from graphagent.memory.steps._render import step_text
from graphagent.memory.steps._types import FinalAnswerStep, Step, TaskStep

if TYPE_CHECKING:
    from graphagent._agent import Agent
    from graphagent.events import Event
    from graphagent.run._context import Context

Level = Literal[0, 1, 2]


class Console:
    """Prints a run while it goes on: `agent.install(Console, level=1)`. It needs no extra.

    Args:
        level: 0 prints the answer; 1 also each step, with its tool calls and observations; 2 also what the model was sent.
        file: Where it prints; by default to standard output.
    """

    def __init__(self, *, level: Level = 1, file: TextIO | None = None) -> None:
        if level not in (0, 1, 2):
            raise ValueError(f"level={level!r}: a console has the levels 0 (the answer), 1 (steps) and 2 (prompts too)")
        self._level = level
        self._file = file
        self._beginnings: dict[str, list[str]] = {}

    def install(self, agent: Agent[Any, Any]) -> None:
        """Listen to the agent's runs."""
        agent.on(StepCommitted, self._step)
        agent.on(RunFailed, self._failed)
        agent.on(RunSuspended, self._suspended)
        if self._level:
            agent.on(RunStarted, lambda event: self._began(event, f"Run of {event.strategy!r}"))
            agent.on(RunResumed, lambda event: self._began(event, f"Run of {event.strategy!r} goes on"))
            agent.on(
                RunFinished, lambda event: self._say(event, f"Run ended: {counted(event.usage.total_tokens, 'token')}")
            )

    async def begin(self, ctx: Context) -> None:
        """Remember what the run begins with: its task, and at level 2 the rules that the model is given."""
        if self._level:
            memory = ctx.memory
            steps: list[Step] = (
                [memory.system_prompt] if self._level == 2 and memory.system_prompt.system_prompt else []
            )
            steps += [step for step in memory.run_steps if isinstance(step, TaskStep)]
            self._beginnings[ctx.run_id] = [step_text(step) for step in steps]

    def bind(self, ctx: Context) -> Self:
        """Return itself: it is the same in every run."""
        return self

    def _began(self, event: Event, text: str) -> None:
        self._say(event, text)
        for told in self._beginnings.pop(event.run_id, ()):
            self._print(told)

    def _step(self, event: StepCommitted) -> None:
        if self._level or isinstance(event.step, FinalAnswerStep):
            self._print(step_text(event.step, detailed=self._level == 2))

    def _failed(self, event: RunFailed) -> None:
        self._say(event, f"Run failed with {type(event.error).__name__}")

    def _suspended(self, event: RunSuspended) -> None:
        asked = [f"    {question.id}: {question.question!r}" for question in event.questions]
        self._say(event, "\n".join(["Run waits for answers", *asked]) if asked else _paused(event.reason))

    def _say(self, event: Event, text: str) -> None:
        first, *rest = text.splitlines()
        self._print("\n".join([f"-- {first} ({event.run_id})", *rest]))

    def _print(self, text: str) -> None:
        print(text, file=self._file or sys.stdout, flush=True)

    def __repr__(self) -> str:
        return f"Console(level={self._level})"


def _paused(reason: str) -> str:
    return "Run paused" if reason == "paused" else f"Run paused: {reason}"
