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
from graphagent.run._compiled import DONE, CompiledStrategy
from graphagent.run.engine._context import LiveFrame
from graphagent.run.engine._execute import execute
from graphagent.run.engine._fork import items_of
from graphagent.run.engine._restore import restore
from graphagent.run.journal._reader import read_journal
from tests.run.golden.journals import described as value_of
from tests.run.golden.journals import described_usage, shortened

# ---- what is being executed


def runs_of(run: Any) -> Iterator[Any]:
    """Yield a run and those of its sub-agents that have not ended."""
    driver = getattr(run, "__driver__", run)
    yield driver
    for child in [*driver.runtime.children.values()]:
        yield from runs_of(child)


def described_live(run: Any) -> dict[str, Any]:
    """Describe a run of this process as it is now, from within a commit of one of its entries."""
    return _described(getattr(run, "__driver__", run), _executions())


async def recorded_runs(store: Any, run: Any) -> Any:
    """Return what `described_recorded` reads: the entries of a run."""
    journal = await read_journal(store, run.runtime.owner, run.run_id)
    return journal.read_for(run.config.compiled, run.config.strategy.input_type, run.config.strategy.output_type)


def described_recorded(run: Any, journal: Any, number: int) -> dict[str, Any]:
    """Describe a run as its entries up to one of them tell it."""
    return _described(restore(run.config, journal.until(number), allow_changed=True), {})


def _executions() -> dict[int, tuple[Any, Any]]:
    """Return the position of each frame that is being executed: the node and its input, local variables of the engine's loop."""
    found: dict[int, tuple[Any, Any]] = {}
    for frame in _python_frames():
        if frame.f_code is execute.__code__:
            local = frame.f_locals
            found[id(local["frame"])] = local["node"], local["value"]
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


def _described(run: Any, executions: dict[int, tuple[Any, Any]]) -> dict[str, Any]:
    runtime, meter = run.runtime, run.runtime.meter
    positions: dict[str, tuple[Any, Any, Any]] = {}
    if run.done:
        positions[""] = run.frame, DONE, run.result.output
    elif runtime.journal is not None and runtime.journal.finished:
        positions[""] = run.frame, DONE, runtime.memory.steps[-1].output
    else:
        _collect(positions, run.frame, (run.config.compiled.first, run.task), executions)
    frames, own, transcripts, said = {}, {}, {}, {}
    for path, (frame, node, value) in sorted(positions.items()):
        effects = {key: value_of(effect.value) for key, effect in (frame.effects or {}).items() if key}
        effects |= {f"begun:{key}": True for key in frame.begun or ()}
        frames[path] = {
            "node": node.name or "END",
            "value": _shown(value),
            "effects": dict(sorted(effects.items())),
            "attempts": {name: count for name, count in (frame.attempts or {}).items() if count > 1},
            "execution": frame.entry_number if node is not DONE else 0,
        }
        spending = frame.meter
        while spending.parent is not None:
            own[spending.where] = [spending.nodes, spending.turns, described_usage(spending.settled)]
            spending = spending.parent
        memory, savepoint = frame.memory, frame.savepoint
        branch = frame.branches[-1][0] if frame.branches else ""
        transcripts[branch] = _transcript(memory, savepoint, value)
        if savepoint is not None and savepoint.added:
            said[branch] = {
                "added": [shortened(step.dict()) for step in savepoint.added],
                "refused": sorted(savepoint.refused),
            }
    answers = [
        [runtime.asking[id_].path, runtime.questions[id_].key, value_of(answer)]
        for id_, answer in runtime.answers.items()
    ]
    rows = [*runtime.charges_before(), *runtime.charges]
    return {
        "frames": frames,
        "own": own,
        "spent": [meter.nodes, meter.turns, described_usage(meter.settled)],
        "charges": sorted([row.node, row.what, row.model, row.run_id, described_usage(row.usage)] for row in rows),
        "questions": [
            [each.id, each.question, each.node, each.kind, value_of(each.about)] for each in runtime.questions.values()
        ],
        "answers": answers,
        "transcripts": transcripts,
        "said": said,
    }


def _collect(
    found: dict[str, tuple[Any, Any, Any]], frame: Any, at: Any, executions: dict[int, tuple[Any, Any]]
) -> None:
    """Collect the frames of a run, each with its position."""
    known = (frame.compiled, frame.value) if frame.compiled is not None else at
    node, value = executions.get(id(frame), known)
    found[frame.path] = frame, node, value
    if not node.inside:  # what is still there of a branch that failed is nothing any more
        return
    path = f"{frame.path}{node.name}/"
    inner = (frame.inside or {}).get(node.name)
    inside = [] if inner is None else [inner] if isinstance(inner, LiveFrame) else [*(inner.inside or {}).values()]
    for part in inside:
        _collect(found, part, _first(node, part, path, value), executions)


def _first(node: Any, part: Any, path: str, value: Any) -> tuple[Any, Any]:
    """Return where a strategy or a branch begins."""
    if isinstance(node.inside, CompiledStrategy):
        return node.inside.first, value
    number = int(part.path[len(path) : -1])
    items = items_of(value) if isinstance(node.element, Each) else None
    return node.inside[min(number, len(node.inside) - 1)], value if items is None else items[number]


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
    inside = run.config.compiled.inside(prefix[:-1].split("/"))
    return inside.first.name
