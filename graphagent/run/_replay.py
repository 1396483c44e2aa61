"""A run as text, with the runs of the agents that were called as tools in it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from graphagent.memory import ActionStep, RunMemory

if TYPE_CHECKING:
    from graphagent.run._result import ChildRun


def replayed(memory: RunMemory, children: Sequence[ChildRun], *, detailed: bool = False) -> str:
    """Return what happened, step by step. The steps of a sub-agent are below the call that it was for.

    The runs of those whose calls have no result yet, or do not stand in the transcript, come at the end.
    """
    texts = {child.run_id: replayed(child.memory, child.result.children, detailed=detailed) for child in children}
    turns = [step for step in (*memory.steps, memory.open) if isinstance(step, ActionStep)]
    shown = {result.run_id for turn in turns for result in turn.results}
    blocks = [memory.to_text(detailed=detailed, inside=texts)]
    for child in children:
        if child.run_id not in shown:
            lines = texts[child.run_id].split("\n")
            told = "\n".join(f"    {line}" if line else line for line in lines)
            blocks.append(f"Run {child.run_id} ({child.result.status}):\n{told}")
    return "\n\n".join(blocks)
