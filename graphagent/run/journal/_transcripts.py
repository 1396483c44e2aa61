"""The transcripts of a run and of its branches, as the entries tell."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from graphagent.codec._internal import decode
from graphagent.memory import TRUST_LEVELS, ActionStep, SystemPromptStep
from graphagent.memory._internal import StepReader
from graphagent.run.state._entries import NodeInterrupted, Started

if TYPE_CHECKING:
    from graphagent.memory import Step
    from graphagent.run.journal._reader import JournalReader

Branches = tuple[tuple[str, int], ...]
"""Identifies a branch: each enclosing branch and itself, as path and entry of its beginning; () is the run."""


class Transcript:
    """A transcript, while the entries are read."""

    def __init__(self, reader: StepReader, steps: list[Step]) -> None:
        self.reader = reader
        self.steps = steps
        self.inherited = len(steps)
        """The number of steps that were there before the branch began."""
        self.floor = "trusted"
        """The lowest trust of anything that flowed in without being a step."""
        self.open: ActionStep | None = None
        """The model turn whose tool calls have no results yet."""
        self.heard: tuple[bool, bool] = (True, False)
        """Whether the task has yet to reach a model, and whether the current value reached one without an answer."""

    def forked(self) -> Transcript:
        """Return the transcript of a branch that begins here."""
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

    def apply(self, change: Mapping[str, Any], read: _StepsOfChange) -> None:
        """Change the steps as an entry says.

        Raises:
            ValueError: there is nothing that it could change, or it is of a kind that is not known.
        """
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
    """Return whether a change of a transcript adds a step, or a reference to one."""
    return "kind" in change or "$at" in change


class _StepsOfChange:
    """Reads the steps in one change of an entry, and finds those that are stored elsewhere."""

    def __init__(self, made: dict[tuple[int, int, int], Step], journal: object, number: int, place: int) -> None:
        self._made, self._journal = made, journal
        self._number, self._place = number, place

    def __call__(self, reader: StepReader, data: Mapping[str, Any], part: int) -> Step:
        if "$at" in data:
            number, place, part = data["$at"]
            return self._made[number, place, part]
        step = reader.step(data)
        self._made[self._number, self._place, part] = step
        step.record(self._journal, [self._number, self._place, part])
        return step


def transcripts(journal: JournalReader, *, drafts_from: int) -> dict[Branches, Transcript]:
    """Return the transcripts of a run and of its branches. The drafts of interrupted nodes count from entry `drafts_from` on.

    Raises:
        DamagedStoreError: an entry cannot be read.
    """
    reader = StepReader(journal.blobs, resolve=journal.at, facts=journal.facts, notes=journal.notes)
    root = Transcript(reader, [])
    found: dict[Branches, Transcript] = {(): root}
    made: dict[tuple[int, int, int], Step] = {}
    rules: list[SystemPromptStep] = []
    for number in range(1, journal.last + 1):
        entry = journal.entry(number)
        if isinstance(entry, Started):
            # The run, or the next one of those whose transcript it continues: there are no branches yet.
            found = {(): root}
            root.heard = (True, False)
            with journal.reading(number):
                rules.append(SystemPromptStep(decode(entry.system, journal.blobs)))
        if entry.steps is None and entry.heard is None:
            continue
        if isinstance(entry, NodeInterrupted) and number < drafts_from:
            continue
        with journal.reading(number):
            transcript = _of(found, tuple((path, since) for path, since in entry.branch))
            for place, change in enumerate(entry.steps or ()):
                transcript.apply(change, _StepsOfChange(made, journal.identity, number, place))
            if entry.heard is not None:
                awaited, asked = entry.heard
                transcript.heard = awaited, asked
    root.reader.told.note(message for step in (*rules, *made.values()) for message in step.to_messages())
    return found


def _of(found: dict[Branches, Transcript], branches: Branches) -> Transcript:
    """Return the transcript of a branch, which begins now if it has not been named yet."""
    transcript = found[()]
    for depth in range(1, len(branches) + 1):
        known = found.get(branches[:depth])
        transcript = found[branches[:depth]] = transcript.forked() if known is None else known
    return transcript
