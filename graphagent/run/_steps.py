"""Adding steps to the transcript: each is recorded, then callbacks see it, and then it is among the steps."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any, cast

from graphagent.errors import VetoError
from graphagent.llm import ToolResults
from graphagent.log._entries import EffectRecorded, LibraryObject, ResultsAdded, StepFinished
from graphagent.memory.steps._types import ActionStep, PlanningStep, StepFailure
from graphagent.memory.transcript._fields import check_step
from graphagent.memory.transcript._transcript import Item
from graphagent.run._callbacks import call_all

if TYPE_CHECKING:
    from graphagent.memory.steps._types import Step
    from graphagent.run._effects import Effects


async def add(effects: Effects, step: Step) -> Step:
    """Add a step, and return it as recorded."""
    key = effects.next("add")
    fresh = effects.find("add", key) is None
    if fresh:
        check_step(step)
        await close_open(effects)
        is_open = effects.run.plan.calls_back(type(step))
        effects.record(EffectRecorded(at=effects.frame.path, kind="add", key=key, step=copy.copy(step), open=is_open))
    return cast("Step", await finish_step(effects, "add", key, fresh=fresh))


async def add_results(effects: Effects, results: ToolResults) -> ActionStep | None:
    """Record the results of the tool calls of the last turn, and return the completed turn; None without a turn."""
    key, transcript = effects.next("results"), effects.transcript
    found = transcript.last_turn
    if found is None:
        return None
    item, turn = found
    fresh = effects.find("results", key) is None
    if fresh:
        given = tuple(result for result in results if result.call_id in turn.call_ids)
        is_open = transcript.open is not None and transcript.open.id == item.id
        if not is_open and (given == turn.results or given in transcript.results_of(item.id)):
            # They were recorded, and may have been edited since.
            return cast("ActionStep", effects.memory.handle(item, transcript))
        own = {result.call_id: result for result in turn.results}
        same = len(own) == len(turn.tool_calls) and own == {result.call_id: result for result in given}
        effects.record(
            ResultsAdded(
                at=effects.frame.path, key=key, turn=item.id, results=None if same else LibraryObject(ToolResults(given)),
                open=is_open and effects.run.plan.calls_back(type(turn)),
            )
        )  # fmt: skip
    return cast("ActionStep", await finish_step(effects, "results", key, fresh=fresh))


async def close_open(effects: Effects) -> None:
    """Let the callbacks see the turn whose tool calls have no results, and put it among the steps."""
    step = effects.transcript.open_step
    if step is None:
        return
    name = f"close:{effects.next('close')}"
    if effects.find("settle", name) is None:
        veto = await _call_back(effects, name) if effects.run.plan.calls_back(type(step)) else None
        effects.record(StepFinished(at=effects.frame.path, key=name))
        effects.run.added_step(effects, effects.transcript.items[-1])
        if veto is not None:
            effects.run.session.fail(veto)


async def finish_step(effects: Effects, kind: str, key: str, *, fresh: bool = False) -> Any:
    """Let the callbacks see a step that was recorded, put it among the steps, and return it."""
    run, frame = effects.run, effects.frame
    id_ = cast("int", frame.visit.effects[kind, key].value)
    transcript = frame.transcript
    name = f"{kind}:{key}"
    step = transcript.open_step if transcript.open is not None and transcript.open.id == id_ else None
    waits = isinstance(step, ActionStep) and bool(step.tool_calls) and kind == "turn"
    if step is not None and not waits:
        stores_veto = kind == "turn" and isinstance(step, ActionStep)
        veto = await _call_back(effects, name, stores_veto=stores_veto)
        effects.record(StepFinished(at=frame.path, key=name, lasting=kind == "failed"))
        run.added_step(effects, frame.transcript.items[-1])
        await run.log.commit()
        if veto is not None and not stores_veto:
            run.session.fail(veto)
    elif step is None and effects.find("settle", name) is None and fresh:
        run.added_step(effects, transcript.items[-1])
    seen = effects.transcript
    there = seen.find(id_)
    if there is None:
        return run.memory.handle(Item(id_, id_), seen) if seen.items else None
    found = effects.memory.handle(there[1], seen)
    error = getattr(found, "error", None) if kind == "turn" and isinstance(found, ActionStep | PlanningStep) else None
    if error is not None and error.type == "Veto":
        raise run.of_run(VetoError(type(found).__name__, error.message))
    return found


async def _call_back(effects: Effects, name: str, *, stores_veto: bool = False) -> VetoError | None:
    """Let the callbacks see the open step. Return the refusal of one. With `stores_veto`, it is saved as the error of the step, too.

    An error of one ends the run where nothing is lost.
    """
    run, transcript = effects.run, effects.frame.transcript
    assert transcript.open is not None
    own = effects.of_callbacks(name)
    with run.calling_back(own):
        step = run.transcript_of(own).handle(transcript.open, transcript)
        veto, failure = await call_all(run.plan.step_callbacks, step, run.handle)
        if veto is not None and stores_veto and isinstance(step, ActionStep):
            step.error = StepFailure("Veto", veto.reason)
    if failure is not None:
        run.session.fail(failure)
    effects.position = max(effects.position, own.position)
    return veto
