"""What of a transcript a model sees: which steps, in which order."""

from __future__ import annotations

import copy
from bisect import bisect_left
from collections.abc import Sequence

from graphagent.memory.steps._types import MessageStep, Step, SummaryStep, TaskStep


class Projection:
    """The steps that a model sees, as places in a transcript, in the order in which it sees them. Steps are added at the end.

    A summary stands where the first step stood behind those that it stands in for, and these are not seen, but for the task that
    the summary was made for, which is the last one before it, and messages that set rules.
    """

    __slots__ = ("_anchors", "_rules", "count", "places", "summaries", "tasks")

    def __init__(self) -> None:
        self.count = 0
        """How many steps were added."""
        self.places: list[int] = []
        """The places of the steps that are seen."""
        self._anchors: list[tuple[int, bool]] = []
        """Where each of these stands: at the place of a step, which is behind a summary there."""
        self._rules: set[int] = set()
        self.tasks: list[int] = []
        """The places of the tasks, whether they are seen or not."""
        self.summaries = 0
        """How many summaries were added. Only these change what was there before."""

    def add(self, step: Step) -> None:
        """Add a step at the end."""
        place, self.count = self.count, self.count + 1
        if isinstance(step, SummaryStep):
            end = max(place - step.keeps, 0)
            self._hide(max(end - step.covers, 0), end)
            before = bisect_left(self._anchors, (end, True))
            self.places.insert(before, place)
            self._anchors.insert(before, (end, False))
            self.summaries += 1
            return
        if isinstance(step, TaskStep):
            self.tasks.append(place)
        elif is_rule(step):
            self._rules.add(place)
        self.places.append(place)
        self._anchors.append((place, True))

    def _hide(self, start: int, end: int) -> None:
        left = [number for number, place in enumerate(self.places) if not start <= place < end or self.stays(place)]
        self.places, self._anchors = [self.places[each] for each in left], [self._anchors[each] for each in left]

    def stays(self, place: int) -> bool:
        """Return whether a step is seen whatever a summary at the end stands in for: the last task, and rules."""
        return place in self._rules or place in self.tasks[-1:]

    @property
    def first(self) -> int:
        """The first place of a step that is seen and that a summary at the end can stand in for; the number of steps if there is none."""
        places = (place for place, (_, is_own) in zip(self.places, self._anchors, strict=True) if is_own)
        return next((place for place in places if not self.stays(place)), self.count)


def changes_alike(before: Step, after: Step) -> bool:
    """Return whether a model sees the same places if a step gives way to another one."""
    return not any(isinstance(step, SummaryStep | TaskStep) or is_rule(step) for step in (before, after))


def own_steps(steps: Sequence[Step], inherited: int) -> list[Step]:
    """Return the steps of a branch after those that it inherited; its summaries then cover only these."""
    found: list[Step] = []
    for place, step in enumerate(steps[inherited:]):
        if isinstance(step, SummaryStep) and step.covers > place - step.keeps:
            step = copy.copy(step)
            step.covers = max(place - step.keeps, 0)
        found.append(step)
    return found


def is_rule(step: Step) -> bool:
    """Tell whether a step is a message that sets rules."""
    return isinstance(step, MessageStep) and step.message.role == "system"
