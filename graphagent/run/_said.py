"""What a node said that was broken off: it stays in the transcript, and the node does not say it twice when it is executed again.

It is written down when the run stops, in entries that later readers skip: what becomes of it is told when the node ends.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

from graphagent.errors import VetoError
from graphagent.memory import ActionStep
from graphagent.memory._internal import Added, Shut
from graphagent.run._transcripts import is_step, transcripts

if TYPE_CHECKING:
    from graphagent.run._context import Context
    from graphagent.run._recording import Recording


_SAYS_NOTHING = frozenset(("stop", "resume", "effect", "intent", "spent"))
"""The kinds of entries that tell nothing of a transcript."""


def places_again(ctx: Context) -> list[int]:
    """Give which of the changes that were not written down yet a node makes again when it is executed again."""
    if ctx.mark is None:
        return []
    again = {id(step) for step in ctx.mark.added}
    return [
        place
        for place, change in enumerate(ctx.memory.changes())
        if (isinstance(change, Added) and id(change.step) in again)
        or (isinstance(change, Shut) and id(ctx.mark.open) in again)
    ]


def said_last(recording: Recording) -> range:
    """Give the numbers of the entries of what nodes said that were broken off, where no transcript has changed since."""
    last = recording.last
    while last and recording.entry(last)["t"] in _SAYS_NOTHING:
        last -= 1
    first = last + 1
    while first > 1 and recording.entry(first - 1)["t"] == "said":
        first -= 1
    return range(first, last + 1)


def say_again(root: Context, recording: Recording, numbers: range) -> None:
    """Put back what nodes had said that were broken off.

    Raises:
        DamagedStoreError: an entry cannot be read.
    """
    if not numbers:
        return
    told = transcripts(recording, shown=numbers[0])
    for number in numbers:
        entry = recording.entry(number)
        branches = tuple((prefix, since) for prefix, since in entry.get("of", ()))
        ctx = _standing_at(root, entry.get("in", ""), entry["node"])
        if ctx is not None and ctx.branches == branches:
            _put(ctx, entry["steps"], set(entry.get("again", ())), told[branches].steps)


def _put(ctx: Context, changes: list[dict[str, Any]], again: set[int], told: list[Any]) -> None:
    memory = ctx.memory
    ctx.mark = mark = memory.mark()
    steps = iter(told[len(memory.steps) :])
    for place, change in enumerate(changes):
        if "shut" in change:
            [step] = memory.shut()
            next(steps)
        elif is_step(change):
            step = copy.copy(next(steps))  # not yet written down where it counts
        elif "trust" in change:
            memory.lower(change["trust"])
            continue
        else:
            return  # an edit, which was made of what is made again
        memory.steps.append(step)
        step = memory.steps[-1]
        if place in again:
            if isinstance(step, ActionStep) and step.error is not None and step.error.type == "Veto":
                mark.refused[len(mark.added)] = VetoError("ActionStep", step.error.message)
            mark.added.append(step)


def _standing_at(ctx: Context, prefix: str, node: str) -> Context | None:
    """Give who stands at a node."""
    if ctx.prefix == prefix and ctx.slot is not None and ctx.slot.name == node:
        return ctx
    parts = (ctx.parts or {}).values()
    return next((found for part in parts if (found := _standing_at(part, prefix, node)) is not None), None)
