"""The positions at which a transcript may be cut: a compression may replace the steps before them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from graphagent.memory.steps._types import (
    ActionStep,
    FactsStep,
    FinalAnswerStep,
    MessageStep,
    NotesStep,
    Step,
    SummaryStep,
    TaskStep,
)

if TYPE_CHECKING:
    from graphagent.memory.transcript._memory import RunMemory


def first_cut(memory: RunMemory, keep: int) -> int:
    """Return the position before which all steps may be compressed if `keep` turns at the end are kept.

    Besides these turns, the messages since the turn before them are kept, or the message that the first of them answered.
    Without any turn, everything may be compressed.
    """
    turns = _turns(memory, keep)
    if not turns:
        return max(_whole(memory.steps, 0), default=0)
    if len(turns) > keep:
        wanted = _after(memory.steps, turns[-1 - keep])
    else:
        wanted = _prompt_of(memory.steps, turns[0])
        if not any(isinstance(step, MessageStep | NotesStep) for step in memory.steps[:wanted]):
            return 0  # a history of tasks and facts alone is not worth a summary
    return next((cut for cut in _allowed(memory, turns[0] if len(turns) > keep else 0) if cut >= wanted), 0)


def cuts(memory: RunMemory, keep: int, *, measured: bool) -> list[int]:
    """Return the positions before which steps may be compressed, from the one that keeps `keep` turns to the one that keeps least.

    Without any turn, any number of messages may be kept if their length is measured, and otherwise `keep` messages.
    """
    turns = _turns(memory, keep)
    allowed = _allowed(memory, turns[0] if len(turns) > keep else 0)
    if not turns:
        return allowed if measured else allowed[-1 - keep :]
    first, last = first_cut(memory, keep), turns[-1] + 1
    ends = {_after(memory.steps, turn) for turn in turns}
    return [cut for cut in allowed if cut == first or (cut > first and (cut in ends or cut >= last))]


def _turns(memory: RunMemory, keep: int) -> list[int]:
    """Return the places of the turns that a model sees, and of at least `keep` + 1 turns, if so many exist."""
    steps, first = memory.steps, memory.transcript.projection.first
    found: list[int] = []
    for place in range(len(steps) - 1, -1, -1):
        if place < first and len(found) > keep:
            break
        if is_turn(steps[place]):
            found.append(place)
    return found[::-1]


def _allowed(memory: RunMemory, start: int) -> list[int]:
    """Return the positions from `start` on that neither cut off the message to answer nor separate a result from its call."""
    asked = _asked(memory)
    return [place for place in _whole(memory.steps, start) if asked is None or place <= asked]


def _asked(memory: RunMemory) -> int | None:
    """Return the position of the message that the model answers next; None if that is the task, or if no message waits."""
    steps = memory.steps
    for place in range(len(steps) - 1, -1, -1):
        step = steps[place]
        if isinstance(step, TaskStep) or (isinstance(step, ActionStep) and step.model_output_message is not None):
            return None
        if isinstance(step, MessageStep):
            return place if step.message.role == "user" else None
    return None


def _whole(steps: Sequence[Step], start: int) -> list[int]:
    """Return the positions after `start` that do not separate a result from its call."""
    called: dict[str, int] = {}
    apart = set[int]()
    for place in range(start, len(steps)):
        step = steps[place]
        if isinstance(step, MessageStep):
            called.update((call.id, place) for call in step.message.tool_calls)
            for result in step.message.tool_results:
                if result.call_id in called:
                    apart.update(range(called[result.call_id] + 1, place + 1))
    return [place for place in range(start + 1, len(steps) + 1) if place not in apart]


def is_turn(step: Step) -> bool:
    """Return whether a step is a model's message, in this run or in the conversation that was passed to it."""
    return isinstance(step, ActionStep) or (isinstance(step, MessageStep) and step.message.role == "assistant")


def _after(steps: Sequence[Step], turn: int) -> int:
    """Return the position after a turn, and after the final answer if the turn ended a run."""
    place = turn + 1
    while place < len(steps) and isinstance(steps[place], FinalAnswerStep):
        place += 1
    return place


def _prompt_of(steps: Sequence[Step], turn: int) -> int:
    """Return the position of the message that a turn answered."""
    before = range(turn - 1, -1, -1)
    return next((place for place in before if isinstance(steps[place], TaskStep | MessageStep)), turn)


def covered_steps(memory: RunMemory, cut: int) -> list[Step]:
    """Return the steps before a position that a compression replaces: the visible steps, without those that stay visible.

    If these are only facts and summaries, the list is empty.
    """
    steps, projection = memory.steps, memory.transcript.projection
    covered = [steps[place] for place in projection.places if place < cut and not projection.stays(place)]
    return [] if all(isinstance(step, FactsStep | SummaryStep) for step in covered) else covered
