"""A run as text, with the runs of the agents that were called as tools in it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from graphagent.memory.steps._types import ActionStep

if TYPE_CHECKING:
    from graphagent.memory.transcript._memory import RunMemory
    from graphagent.run._result import ChildRun


def replayed(memory: RunMemory, children: Sequence[ChildRun], *, detailed: bool = False) -> str:
    """Return what happened, step by step. The steps of a sub-agent are below the call that it was for.

    The runs of those whose calls have no result yet, or do not stand in the transcript, come at the end.
    """
    inside = [
        (child.run_id, child.result.status, replayed(child.memory, child.result.children, detailed=detailed))
        for child in children
    ]
    return with_runs(memory, inside, detailed=detailed)


def with_runs(memory: RunMemory, runs: Sequence[tuple[str, str, str]], *, detailed: bool = False) -> str:
    """Return a transcript as text, with the runs of sub-agents: the id, the status and the text of each."""
    turns = [step for step in (*memory.steps, memory.open) if isinstance(step, ActionStep)]
    shown = {result.run_id for turn in turns for result in turn.results}
    blocks = [memory.to_text(detailed=detailed, inside={run_id: text for run_id, _, text in runs})]
    for run_id, status, text in runs:
        if run_id not in shown:
            told = "\n".join(f"    {line}" if line else line for line in text.split("\n"))
            blocks.append(f"Run {run_id} ({status}):\n{told}")
    return "\n\n".join(blocks)
