"""What was said in a run and in each of its branches, as the entries tell."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from graphagent.codec._internal import decode
from graphagent.memory import TRUST_LEVELS, ActionStep, SystemPromptStep
from graphagent.memory._internal import StepReader

if TYPE_CHECKING:
    from graphagent.memory import Step
    from graphagent.run._recording import Recording

Branches = tuple[tuple[str, int], ...]
"""Names a branch: the branches around and itself, each with its prefix and the entry since which it is there; () is the run."""


class Transcript:
    """One of them, while the entries are read."""

    def __init__(self, reader: StepReader, steps: list[Step]) -> None:
        self.reader = reader
        self.steps = steps
        self.inherited = len(steps)
        """How many of the steps stood there before the branch began."""
        self.floor = "trusted"
        """The least trust of what flowed in without being a step."""
        self.open: ActionStep | None = None
        """The turn whose tool calls have no results yet."""
        self.heard = (True, False)
        """Whether the task has yet to arrive at a model, and whether what stands there was taken up and got no answer."""

    def forked(self) -> Transcript:
        """Give that of a branch that begins here."""
        steps = list(map(copy.copy, self.steps))
        if self.open is not None:
            steps.append(copy.copy(self.open))
        reader = StepReader(
            self.reader.blobs, resolve=self.reader.resolve, told=self.reader.told, facts=self.reader.facts,
            notes=self.reader.notes,
        )  # fmt: skip
        reader.prompt = self.reader.prompt
        branch = Transcript(reader, steps)
        branch.heard, branch.floor = self.heard, self.floor
        return branch

    def apply(self, change: Mapping[str, Any], read: _Read) -> None:
        """Change the steps as an entry says."""
        if is_step(change):
            self.steps.append(read(self.reader, change, 0))
        elif "edit" in change:
            where: int | None
            where, fields = change["edit"]
            step: Step | None = self.open if where is None else self.steps[where]
            if step is None:
                raise ValueError("it changes a turn that is not open")
            self.reader.told.note(step.to_messages())
            self.reader.fill(step, fields)
        elif "put" in change:
            where, count, steps = change["put"]
            self.steps[where : where + count] = [read(self.reader, each, part) for part, each in enumerate(steps)]
        elif "open" in change:
            step = None if change["open"] is None else read(self.reader, change["open"], 0)
            if step is not None and not isinstance(step, ActionStep):
                raise ValueError("a step is open that is no model turn")
            self.open = step
        elif "shut" in change:
            if self.open is None:
                raise ValueError("a turn ends that is not open")
            self.steps.append(self.open)
            self.open = None
        elif "trust" in change:
            if change["trust"] not in TRUST_LEVELS:
                raise ValueError("it has a trust that is not known here")
            self.floor = change["trust"]
        else:
            raise ValueError("it changes the steps in a way that is not known here")


def is_step(change: Mapping[str, Any]) -> bool:
    """Tell whether a change of a transcript is a step, or refers to one, that was added."""
    return "kind" in change or "$at" in change


class _Read:
    """Reads the steps of one change of an entry."""

    def __init__(self, made: dict[tuple[int, int, int], Step], mark: object, number: int, place: int) -> None:
        self._made, self._mark = made, mark
        self._number, self._place = number, place

    def __call__(self, reader: StepReader, data: Mapping[str, Any], part: int) -> Step:
        if "$at" in data:
            number, place, part = data["$at"]
            return self._made[number, place, part]
        step = reader.step(data)
        self._made[self._number, self._place, part] = step
        step.record(self._mark, [self._number, self._place, part])
        return step


def transcripts(recording: Recording, *, shown: int) -> dict[Branches, Transcript]:
    """Give the transcripts of a run and of its branches. What a node said that was broken off counts from entry `shown` on.

    Raises:
        DamagedStoreError: an entry cannot be read.
    """
    reader = StepReader(recording.blobs, resolve=recording.at, facts=recording.facts, notes=recording.notes)
    root = Transcript(reader, [])
    found: dict[Branches, Transcript] = {(): root}
    made: dict[tuple[int, int, int], Step] = {}
    for number in range(1, recording.last + 1):
        entry = recording.entry(number)
        if ("steps" not in entry and "heard" not in entry) or (entry["t"] == "said" and number < shown):
            continue
        with recording.reading(number):
            told = _of(found, tuple((prefix, since) for prefix, since in entry.get("of", ())))
            for place, change in enumerate(entry.get("steps", ())):
                told.apply(change, _Read(made, recording.mark, number, place))
            if "heard" in entry:
                awaited, asked = entry["heard"]
                told.heard = awaited, asked
    rules = SystemPromptStep(decode(recording.entry(1)["system"], recording.blobs))
    root.reader.told.note(message for step in (rules, *made.values()) for message in step.to_messages())
    return found


def _of(found: dict[Branches, Transcript], branches: Branches) -> Transcript:
    told = found[()]
    for depth in range(1, len(branches) + 1):
        there = found.get(branches[:depth])
        told = found[branches[:depth]] = told.forked() if there is None else there
    return told
