"""Which steps of a transcript a model sees, and in which order."""

from __future__ import annotations

import copy
from bisect import bisect_left
from collections.abc import Sequence

from graphagent.memory.steps._types import MessageStep, Step, SummaryStep, TaskStep


class Projection:
    """The steps that a model sees, as places in a transcript, in the order in which the model sees them. Steps are added at the end.

    A summary appears at the place of the first step after those that it replaces. The replaced steps are hidden, except for
    messages that set rules and for the task that the summary was made for, which is the last task before it.
    """

    __slots__ = ("_anchors", "_rules", "count", "places", "summaries", "tasks")

    def __init__(self) -> None:
        self.count = 0
        """How many steps were added."""
        self.places: list[int] = []
        """The places of the visible steps."""
        self._anchors: list[tuple[int, bool]] = []
        """Where each of these appears: at the place of a step; a summary there comes before the step."""
        self._rules: set[int] = set()
        self.tasks: list[int] = []
        """The places of the tasks, visible or not."""
        self.summaries = 0
        """How many summaries were added. Only summaries change the order of earlier steps."""

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
        """Return whether a step is visible whatever a summary at the end replaces: the last task, and rules."""
        return place in self._rules or place in self.tasks[-1:]

    @property
    def first(self) -> int:
        """The first place of a visible step that a summary at the end can replace; the number of steps if no step qualifies."""
        places = (place for place, (_, is_own) in zip(self.places, self._anchors, strict=True) if is_own)
        return next((place for place in places if not self.stays(place)), self.count)


def changes_alike(before: Step, after: Step) -> bool:
    """Return whether a model sees the same places if one step replaces another."""
    return not any(isinstance(step, SummaryStep | TaskStep) or is_rule(step) for step in (before, after))


def own_steps(steps: Sequence[Step], inherited: int) -> list[Step]:
    """Return the steps of a branch without the inherited ones; its summaries then cover only these."""
    found: list[Step] = []
    for place, step in enumerate(steps[inherited:]):
        if isinstance(step, SummaryStep) and step.covers > place - step.keeps:
            step = copy.copy(step)
            step.covers = max(place - step.keeps, 0)
        found.append(step)
    return found


def is_rule(step: Step) -> bool:
    """Return whether a step is a message that sets rules."""
    return isinstance(step, MessageStep) and step.message.role == "system"
