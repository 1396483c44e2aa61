"""What of a transcript a model sees: which steps, in which order."""

from __future__ import annotations

import copy
from collections.abc import Sequence

from graphagent.memory.steps._types import MessageStep, Step, SummaryStep, TaskStep


def seen(steps: Sequence[Step]) -> list[int]:
    """Return the places of the steps that a model sees, in the order in which it sees them.

    A summary stands where the first step stood behind those that it stands in for, and these are not seen, but for the task that
    the summary was made for, which is the last one before it, and messages that set rules.
    """
    hidden = set[int]()
    moved: dict[int, list[int]] = {}
    task = -1
    for place, step in enumerate(steps):
        if isinstance(step, TaskStep):
            task = place
        elif isinstance(step, SummaryStep):
            end = max(place - step.keeps, 0)
            covered = range(max(end - step.covers, 0), end)
            hidden.update(each for each in covered if each != task and not is_rule(steps[each]))
            moved.setdefault(end, []).append(place)
    found: list[int] = []
    for place, step in enumerate(steps):
        found += [each for each in moved.get(place, ()) if each not in hidden]
        if place not in hidden and not isinstance(step, SummaryStep):
            found.append(place)
    return found


def own_steps(steps: Sequence[Step], inherited: int) -> list[Step]:
    """Return the steps of a branch after those that it inherited; its summaries then cover only these."""
    found: list[Step] = []
    for place, step in enumerate(steps[inherited:]):
        if isinstance(step, SummaryStep) and step.covers > place - step.keeps:
            step = copy.copy(step)
            step.covers = max(place - step.keeps, 0)
        found.append(step)
    return found


def stay_anyway(steps: Sequence[Step]) -> set[int]:
    """Return the places of the steps that are seen whatever a summary at the end stands in for: the last task, and rules."""
    task = next((place for place in range(len(steps) - 1, -1, -1) if isinstance(steps[place], TaskStep)), -1)
    return {place for place, step in enumerate(steps) if place == task or is_rule(step)}


def is_rule(step: Step) -> bool:
    """Tell whether a step is a message that sets rules."""
    return isinstance(step, MessageStep) and step.message.role == "system"
