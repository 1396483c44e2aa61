"""The transcript that runs leave to those that continue it, as one row, for when they are removed or are in another store."""

from __future__ import annotations

import copy
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from graphagent.llm import Message
from graphagent.log._bytes import payloads_in, plain, row_of
from graphagent.log._entries import REMOVED_STEP, Carried
from graphagent.log._log import Log
from graphagent.memory._blocks import FORGOTTEN
from graphagent.memory._references import ALL_KINDS
from graphagent.memory.steps._types import (
    ActionStep,
    FinalAnswerStep,
    MessageStep,
    PlanningStep,
    Step,
    SummaryStep,
    TaskStep,
)

if TYPE_CHECKING:
    from graphagent.log._segments import Segment


class CarriedRow(NamedTuple):
    """A row that says what earlier runs left visible."""

    row: bytes
    payloads: Mapping[int, bytes]
    """The payloads to which it refers, under the numbers that they have in the log."""


def carried(before: Sequence[Segment], last: int, *, forgotten: Collection[str] = ()) -> CarriedRow:
    """Return what the runs of a log left visible, as the row of a run that continues them.

    The steps have no prompts any more, and those of runs that are forgotten have no content.

    Args:
        before: The runs, the first of which began the log.
        last: The highest number of a payload of the run that continues them.
        forgotten: The ids of those that are forgotten.

    Raises:
        DamagedStoreError: they are not what was written.
    """
    log = Log()
    log.codec.keeps_values, log.codec.refers_at[""] = True, ALL_KINDS
    owners: list[str] = []
    for segment in before:
        log.header = segment.header
        log.fold([segment])
        made = len(log.state.root.transcript.versions) - len(owners)
        owners += [segment.header.run_id] * made
    transcript, blobs = log.state.root.transcript, log.codec.blobs
    steps = [
        _emptied(step) if owners[item.version] in forgotten else _bare(step)
        for item, step in zip(transcript.items, transcript.steps, strict=True)
    ]
    blobs.last = max(blobs.last, last)
    entry = Carried(
        steps=tuple(steps), items=tuple((item.id, item.version) for item in transcript.items),
        versions=len(transcript.versions), rules=transcript.rules, trust=transcript.floor,
    )  # fmt: skip
    row = row_of(log.state.time, log.state.ran, [log.codec.write(entry, log.state)[0]])
    known = {**blobs.stored, **blobs.new}
    return CarriedRow(row, {number: known[number] for number in payloads_in(plain(row)) if number in known})


def _bare(step: Step) -> Step:
    """Return a step without its prompt: the versions to which that refers may be gone."""
    if isinstance(step, ActionStep | PlanningStep):
        step = copy.copy(step)
        step.prompt = None
    return step


def _emptied(step: Step) -> Step:
    """Return a step without its content, from which as many messages are made."""
    if isinstance(step, TaskStep):
        return TaskStep(FORGOTTEN)
    if isinstance(step, MessageStep):
        return MessageStep(Message(step.message.role, (*REMOVED_STEP.message.parts,)))
    if isinstance(step, SummaryStep):
        return SummaryStep(FORGOTTEN, step.covers, keeps=step.keeps)
    if isinstance(step, PlanningStep):
        return PlanningStep(FORGOTTEN, Message.assistant(FORGOTTEN))
    if isinstance(step, ActionStep):
        calls = [replace(call, name="forgotten", arguments={}, malformed="", provider=None) for call in step.tool_calls]
        results = [replace(each, name="forgotten", content=FORGOTTEN, images=(), full="") for each in step.results]
        return ActionStep(
            step_number=step.step_number,
            model_output_message=Message.assistant(FORGOTTEN, calls),
            results=tuple(results),
        )
    return FinalAnswerStep(FORGOTTEN) if isinstance(step, FinalAnswerStep) else REMOVED_STEP
