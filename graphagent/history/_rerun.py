"""Executing a run again: live code on recorded outcomes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from graphagent import _clock
from graphagent._options import check_name
from graphagent.history._entries import read_for
from graphagent.history._fork import number_at
from graphagent.memory.steps._types import SystemPromptStep, TaskStep
from graphagent.memory.transcript._memory import Detached, RunMemory
from graphagent.memory.transcript._transcript import Transcript
from graphagent.run._beginning import begin
from graphagent.run._reading import read_log
from graphagent.run._recorded import Recording

if TYPE_CHECKING:
    from graphagent.run._agent_run import AgentRun
    from graphagent.run._config import RunConfig


async def rerun(config: RunConfig, owner: str, run_id: str, *, until: int | str | None, new_id: str | None) -> AgentRun:
    """Return a run that executes another one again, on the outcomes that it recorded."""
    if new_id is not None:
        check_name("new_id", new_id, "'order-7-again', or None for a new one")
    entries = (await read_for(config, owner, run_id)).entries
    name = _clock.new_id() if new_id is None else new_id
    recording, number = Recording(config, name, live=until is not None), None
    if isinstance(until, str):
        number = number_at(run_id, entries, None, None, until)
    elif until is not None:
        number = number_at(run_id, entries, until, None, None)
    recording.origin = log = await read_log(config, owner, run_id, until=number, watch=recording.watch)
    start = recording.start
    task = start.steps[start.begun]
    steps = [*recording.earlier, *start.steps[: start.begun]]
    given = Transcript(start.rules, steps, start.trust)
    run = begin(
        config, log.take(start.value, config.strategy.input_type), run_id=name, owner=owner,
        earlier=RunMemory(editor=Detached(given)), images=task.task_images if isinstance(task, TaskStep) else (),
    )  # fmt: skip
    run.memory.system_prompt = SystemPromptStep(start.rules)
    run.memory.steps.extend(start.steps[start.begun + 1 :])
    run.session.recorded = recording
    return run
