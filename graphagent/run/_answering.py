"""Executing an agent's strategy until its answer is accepted: by the final checks, and by the callbacks that see it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from graphagent._functions import abandoned
from graphagent._raised import awaited
from graphagent.errors import CheckError
from graphagent.graph._types import fits
from graphagent.log._entries import Placed, TaskShown
from graphagent.memory.steps._types import FinalAnswerStep, TaskStep
from graphagent.run._callbacks import call_all
from graphagent.run._compiled import DONE
from graphagent.run._deps import list_tools
from graphagent.run._effects import Effects, close_open
from graphagent.run._final_errors import Suspend
from graphagent.run._walk import REFUSED, HeldBack, limited_to

if TYPE_CHECKING:
    from graphagent.errors import RunError
    from graphagent.run._agent_run import AgentRun


async def begin_features(run: AgentRun) -> None:
    """Let the features see the beginning of the run, or refuse it."""
    for feature in run.features.values():
        await awaited(feature.begin(Effects(run.walk()).context()), f"{type(feature).__name__}.begin")


async def execute_until_accepted(run: AgentRun) -> FinalAnswerStep:
    """Execute the strategy from its current node until its answer is accepted, and return the step of the answer.

    Raises:
        RunError: a node failed, the answer was refused, or a budget is used up.
        Suspend: the run waits for people, or is to pause.
    """
    token = abandoned.set(run.report_abandoned)
    try:
        if run.config.servers:
            await list_tools(run)
        if run.plan.step_callbacks and run.frame.visit.since == run.frame.born:
            await _show_task(run)
        run.session.attention = run.session.attention or run.session.stepping
        if run.max_seconds is None:
            return await _answer(run)
        left = run.max_seconds - run.elapsed
        if left > 0:
            with limited_to(left, run) as in_time:
                step = await _answer(run)
                if in_time():
                    return step
        raise run.budget_error("seconds", run.max_seconds)
    finally:
        abandoned.reset(token)


async def _answer(run: AgentRun) -> FinalAnswerStep:
    if run.session.attention:
        run.session.stop_if_due()
    if run.held_back is None and not run.plan.checks_answer:
        return await _accepted(run, None)
    held_back = HeldBack(run.held_back, REFUSED if run.plan.checks_answer else (), of_run=True)
    try:
        step = await _accepted(run, held_back)
    except Suspend:
        held_back.release()
        raise
    held_back.release()
    return step


async def _accepted(run: AgentRun, held_back: HeldBack | None) -> FinalAnswerStep:
    while True:
        walk = run.walk()
        walk.held_back = held_back
        output = await run.config.call(walk, None)
        if run.frame.transcript.open is not None:
            await close_open(Effects(walk))
        step = FinalAnswerStep(output)
        refusal = await _refusal(run, step) if run.plan.checks_answer else None
        if refusal is None:
            return step
        assert held_back is not None
        held_back.drop()
        error, text = refusal
        node = run.config.compiled.node(run.activation.last_model_node) if run.activation.last_model_node else None
        if node is None or node is DONE or not fits(str, getattr(node.element, "input_type", object)):
            raise run.of_run(error)  # no node can be asked again
        run.log.append(Placed(at=run.frame.path, to=node.name, value=run.log.keep(text), text=True))
        await run.log.commit()


async def _refusal(run: AgentRun, step: FinalAnswerStep) -> tuple[RunError, str] | None:
    """Return the refusal of an answer, and the text for the model; None if the answer is accepted."""
    for check in run.plan.checks:
        text = await check.refusal(step.output, run.handle)
        if text is not None:
            return CheckError(check.name), text
    if not run.plan.calls_back(type(step)):
        return None
    veto, failure = await call_all(run.plan.step_callbacks, step, run.handle)
    if failure is not None:
        run.session.fail(failure)
    return None if veto is None else (veto, f"Your answer was refused: {veto.reason}. Answer again.")


async def _show_task(run: AgentRun) -> None:
    """Let the callbacks see the task."""
    frame, transcript = run.frame, run.frame.transcript
    for item in transcript.items[transcript.begun :]:
        step = transcript.versions[item.version]
        if isinstance(step, TaskStep) and run.plan.calls_back(type(step)):
            with run.calling_back(Effects(run.walk(), scope="task@")):
                veto, failure = await call_all(run.plan.step_callbacks, run.memory.handle(item, transcript), run.handle)
            if failure is not None:
                run.session.fail(failure)
            if veto is not None:
                run.session.fail(veto)
                return
    run.log.append(TaskShown(at=frame.path))
