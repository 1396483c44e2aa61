"""The state of a run as plain JSON data: of a run that is being executed, and as reading its entries gives it.

This is the only file of the oracle that knows how the package keeps that state. `described` walks the contexts of a run; the parts
of it are, all of them as data that can be compared:

- `frames`: the strategies and branches that are being executed, by the prefix of their nodes' paths (`""`, `count/`, `both/0/`), each
  with the `node` that comes next or is being executed (`END` where there is none), the `value` that it is given, `effects`: what it
  did so far, by key, with the keys of what it began (`begun:…`), `attempts`: what is being retried there, and `execution`: the number
  that names this execution of the node in idempotency keys.
- `own`: what was spent within each strategy that has a budget of its own, by its path: nodes, turns, usage.
- `spent`: what the run spent: nodes, turns, usage; `charges`: the same row by row.
- `questions`: what it waits for.
- `answers`: what was answered and is given to the nodes when the run is resumed: where, key, answer.
- `transcripts`: those of the run (`""`) and of its branches, by their prefix: steps, how many of them were `inherited`, the `open` turn,
  the trust of what flowed in without being a step, and what was `heard`: whether the task has yet to reach a model, and whether the
  value that comes next has reached one without an answer.
- `said`: in transcripts to which a node has added that has not ended, the steps that it finds there when it is executed again, and the
  places of those among them that a callback refused.
"""

from __future__ import annotations

import asyncio
import copy
import sys
from collections.abc import Iterator
from typing import Any

from graphagent.graph import Each
from graphagent.run._durable import stand
from graphagent.run._engine import items_of
from graphagent.run._plan import DONE, Plan
from graphagent.run._recording import read_recording
from graphagent.run._walk import walk
from tests.run.golden.journals import described as value_of
from tests.run.golden.journals import described_usage, shortened

# ---- what is being executed


def runs_of(run: Any) -> Iterator[Any]:
    """Yield a run and those of its sub-agents that have not ended."""
    yield run
    for child in [*run.state.children.values()]:
        yield from runs_of(child)


def described_live(run: Any) -> dict[str, Any]:
    """Describe a run of this process as it is now, from within a commit of one of its entries."""
    return _described(run, _walkers())


async def recorded_runs(store: Any, run: Any) -> Any:
    """Return what `described_recorded` reads: the entries of a run."""
    recording, _ = await read_recording(store, run.owner, run.run_id)
    return recording.read_for(run.setup.plan, run.setup.strategy.input_type, run.setup.strategy.output_type)


def described_recorded(run: Any, recording: Any, number: int) -> dict[str, Any]:
    """Describe a run as its entries up to one of them tell it."""
    return _described(stand(run.setup, recording.until(number), allow_changed=True), {})


def _walkers() -> dict[int, tuple[Any, Any, Any]]:
    """Return the position of each strategy and branch that is being executed: its context, the slot and the value there.

    Both are local variables of the engine's loop: a context has them only once it is broken off.
    """
    found: dict[int, tuple[Any, Any, Any]] = {}
    for frame in _python_frames():
        if frame.f_code is walk.__code__:
            local = frame.f_locals
            found[id(local["ctx"])] = local["ctx"], local["slot"], local["value"]
    return found


def _python_frames() -> Iterator[Any]:
    frame: Any = sys._getframe()
    while frame is not None:
        yield frame
        frame = frame.f_back
    current = asyncio.current_task()
    for task in asyncio.all_tasks():
        awaited: Any = task.get_coro() if task is not current else None
        while awaited is not None and not isinstance(awaited, asyncio.Future):
            yield getattr(awaited, "cr_frame", None) or getattr(awaited, "gi_frame", None) or sys._getframe()
            awaited = getattr(awaited, "cr_await", None) or getattr(awaited, "gi_yieldfrom", None)


# ---- one description for both


def _described(run: Any, walkers: dict[int, tuple[Any, Any, Any]]) -> dict[str, Any]:
    state, meter = run.state, run.state.meter
    positions: dict[str, tuple[Any, Any, Any]] = {}
    inner = [ctx for ctx, _, _ in walkers.values() if ctx.state is state]
    if run.done:
        positions[""] = run.context, DONE, run.output
    elif state.journal is not None and state.journal.answered:
        positions[""] = run.context, DONE, run.memory.steps[-1].output
    else:
        _collect(positions, run.context, (run.setup.plan.first, run.task), walkers, inner)
    frames, own, transcripts, said = {}, {}, {}, {}
    for prefix, (ctx, slot, value) in sorted(positions.items()):
        frames[prefix] = {
            "node": slot.name,
            "value": _shown(value),
            "effects": {key: value_of(effect) for key, effect in sorted((ctx.effects or {}).items()) if key},
            "attempts": {name: count for name, count in (ctx.attempts or {}).items() if count > 1},
            "execution": ctx.number if slot is not DONE else 0,
        }
        spending = ctx.meter
        while spending.parent is not None:
            own[spending.where] = [spending.nodes, spending.turns, described_usage(spending.settled)]
            spending = spending.parent
        memory, mark = ctx.memory, ctx.mark
        transcripts[ctx.branch] = _transcript(memory, mark, value)
        if mark is not None and mark.added:
            said[ctx.branch] = {
                "added": [shortened(step.dict()) for step in mark.added],
                "refused": sorted(mark.refused),
            }
    answers = [
        [state.asking[id_].prefix, state.questions[id_].key, value_of(answer)] for id_, answer in state.answers.items()
    ]
    rows = [*state.charges_before(), *state.charges]
    return {
        "frames": frames,
        "own": own,
        "spent": [meter.nodes, meter.turns, described_usage(meter.settled)],
        "charges": sorted([row.node, row.what, row.model, row.run_id, described_usage(row.usage)] for row in rows),
        "questions": [
            [each.id, each.question, each.node, each.kind, value_of(each.about)] for each in state.questions.values()
        ],
        "answers": answers,
        "transcripts": transcripts,
        "said": said,
    }


def _collect(
    found: dict[str, tuple[Any, Any, Any]],
    ctx: Any,
    at: Any,
    walkers: dict[int, tuple[Any, Any, Any]],
    inner: list[Any],
) -> None:
    """Collect the contexts of a run, each with its position."""
    walker = walkers.get(id(ctx))
    slot, value = walker[1:] if walker is not None else ctx.at or at
    found[ctx.prefix] = ctx, slot, value
    if not slot.inside:  # what is still there of a branch that failed is nothing any more
        return
    prefix = f"{ctx.prefix}{slot.name}/"
    parts = [*(ctx.parts or {}).values()]
    known = {id(part) for part in parts}
    parts += [each for each in inner if each.prefix == prefix and id(each) not in known and each is not ctx]
    for part in parts:
        _collect(found, part, _first(slot, part, prefix, value), walkers, inner)


def _first(slot: Any, part: Any, prefix: str, value: Any) -> tuple[Any, Any]:
    """Return where a strategy or a branch begins."""
    if isinstance(slot.inside, Plan):
        return slot.inside.first, value
    number = int(part.prefix[len(prefix) : -1])
    items = items_of(value) if isinstance(slot.element, Each) else None
    return slot.inside[min(number, len(slot.inside) - 1)], value if items is None else items[number]


def _shown(value: Any) -> Any:
    return {"iterator": True} if isinstance(value, Iterator) else value_of(value)


def _transcript(memory: Any, mark: Any, value: Any) -> dict[str, Any]:
    steps = [shortened(step) for step in memory.full_steps()]
    before = memory.mark()
    if mark is not None:  # as it is when the node is executed again
        memory.rewind(copy.copy(mark))
    found = {
        "steps": steps[: len(memory.steps)],
        "inherited": memory.inherited,
        "open": None if memory.open is None else shortened(memory.open.dict()),
        "trust": memory.floor,
        "heard": list(memory.heard(value)),
    }
    memory.rewind(before)
    return found


def first_of(run: Any, prefix: str) -> str:
    """Return the name of the node with which the strategy or the branch of a prefix begins."""
    path, _, last = prefix[:-1].rpartition("/")
    slot = _slot(run, path if last.isdecimal() else prefix[:-1])
    if isinstance(slot.inside, Plan):
        return slot.inside.first.name
    return slot.inside[min(int(last), len(slot.inside) - 1)].name


def _slot(run: Any, path: str) -> Any:
    at: Any = run.setup.plan
    slot: Any = None
    parts = path.split("/")
    while parts:
        part = parts.pop(0)
        if isinstance(at, Plan):
            slot = at.slot(part)
        else:
            slot = at[min(int(part), len(at) - 1)]
            assert parts.pop(0) == slot.name if parts else True
        at = slot.inside
    return slot
