"""How a run comes to rest: it comes to END, waits, sleeps, is paused, fails, is cancelled, or is ended. Then nobody executes it, and its claim is released."""

from __future__ import annotations

import copy
import logging
from traceback import TracebackException
from typing import TYPE_CHECKING, Any

import anyio
from msgspec import structs

from graphagent import _clock
from graphagent.errors import GraphAgentError, NodeFailedError, RunClaimedError
from graphagent.events import RunEnded, RunFailed, RunFinished, RunSuspended
from graphagent.log._asked import asked_key
from graphagent.log._entries import Ended, LearningDue, Stopped
from graphagent.log._header import LEARNING, RETAINED, WAITING, cost_of, mark_key, mark_of, storable
from graphagent.run._after import learners, look_back, named
from graphagent.run._final_errors import is_of_store
from graphagent.run._reading import read_any_log, read_run, unchecked_run
from graphagent.run._sleep import longest_wait, now
from graphagent.store import Delete, Put

if TYPE_CHECKING:
    from collections.abc import Iterable

    from graphagent.log._log import Log
    from graphagent.memory.steps._types import FinalAnswerStep
    from graphagent.run._agent_run import AgentRun
    from graphagent.run._config import RunConfig

_log = logging.getLogger("graphagent.run")
_WITHOUT_STORE = (
    "it is in no store, so it can be continued in this process alone: run = agent.start(…), or agent.last after agent.run(…); "
    "run.answer(…); await run.finish()"
)


async def suspend(run: AgentRun) -> bool:
    """Record that the run waits for answers, sleeps, or is paused. Return whether it does: else it stops for its next step alone."""
    session = run.session
    if session.stepping:
        session.handed += run.added
    reason, session.pausing = session.pausing, None
    wish, session.wish = session.wish, None
    if wish is not None:
        run.log.along(Delete(asked_key(run.owner, run.run_id)))
    if wish is not None and wish.ends:
        await _end_as_asked(run, wish.reason)
        return True
    questions, deadlines = run.questions, (each.deadline for each in run.log.state.questions.values())
    due = min(filter(None, (*(time for _, time in session.tasks.wakes), *deadlines)), default=0)
    if reason is not None and session.leaving:
        await leave(run)
    elif reason is not None:
        await stop(run, "paused", f"it was paused: {reason}")
    elif questions:
        asked = "; ".join(question.question for question in questions)
        how = "" if run.log.durable else f"; {_WITHOUT_STORE}"
        await stop(run, "waiting", f"it waits for an answer: {asked}{how}", due=due)
        session.idle = True
    elif due:
        await stop(run, "sleeping", "it sleeps", due=due)
    else:
        run.at_rest = run.result_now(status="running", unfinished="it is being stepped through")
        return False
    run.report_steps()
    shown = reason if reason is not None else "waiting" if questions else "sleeping"
    run.emit(RunSuspended(run.run_id, shown, questions))
    return True


async def is_idle(run: AgentRun) -> bool:
    """Return whether there is nothing to execute of a run that waits or sleeps: it sleeps on, or waits for an answer.

    Raises:
        StoreError: the time of the store cannot be read.
    """
    state = run.log.state
    return not state.due or (state.due - await now(run)) / 1000 > longest_wait()


async def fail(run: AgentRun, error: BaseException) -> None:
    """Record that the run failed, or was cancelled."""
    cancelled = isinstance(error, anyio.get_cancelled_exc_class())
    reason = "it was cancelled" if cancelled else f"it failed with {type(error).__name__}"
    reason += f": {error}" if isinstance(error, GraphAgentError) else ""  # texts of others may contain a value
    run.session.pausing, run.session.idle = None, False
    failed_store = run.log.stale is not None or is_of_store(error, run.lineage)
    if run.session.is_left and (cancelled or failed_store):
        with anyio.CancelScope(shield=True):
            await leave(run)
        run.report_steps()
        return
    with anyio.CancelScope(shield=True):
        await stop(run, "cancelled" if cancelled else "failed", reason, error if isinstance(error, Exception) else None)
    run.report_steps()
    run.emit(RunFailed(run.run_id, error))


async def refuse(run: AgentRun, error: Exception) -> None:
    """Record that a run which was submitted failed before it began, in no thread, so that it holds up nobody.

    Raises:
        StoreError: it could not be read.
    """
    log = await read_any_log(run.config, run.owner, run.run_id)
    if log.header.begun:
        return  # somebody began it meanwhile
    refused = unchecked_run(run.config, log)
    refused.handlers, refused.session.claimed = run.handlers, True
    await fail(refused, error)


async def leave(run: AgentRun) -> None:
    """Release a run where it is, for the next worker. If the store fails, its claim ends by itself."""
    log = run.log
    try:
        if log.stale is not None and not log.lost:
            await log.recover()
        if not log.lost:
            log.header = structs.replace(log.header, claim=None, seconds=round(log.executed(), 3))
            await log.commit(header=True)
    except GraphAgentError as error:
        _log.warning(
            "run %r could not be released: %s",
            run.run_id,
            type(error).__name__,
            extra={"run_id": run.run_id, "error_type": type(error).__name__},
        )
    finally:
        run.session.token, run.session.claimed = None, False
        await log.let_go()
    run.at_rest = run.result_now(status="interrupted", unfinished="it is left to another process")


async def stop(run: AgentRun, status: Any, reason: str, failure: Exception | None = None, due: int = 0) -> None:
    """Record that the run stops, and release it. If it failed, or was cancelled, no other error is raised."""
    log = run.log
    try:
        if log.stale is not None and not log.lost:
            await log.recover()
            if run.activation.status == "done":  # it was the end that could not be written
                await write_end(run)
                return
        if not log.lost:
            shown = None if failure is None else _failure_of(failure)
            log.append(Stopped(status=status, reason=reason, failure=shown, due=due))
            _stops(log, status, reason, run.config.retention)
            if status == "waiting" and log.durable:
                log.along(Put(mark_key(WAITING, run.owner, run.run_id), mark_of(log.header)))
            await log.commit(header=True)
    except GraphAgentError as error:
        if status not in ("failed", "cancelled"):
            raise
        _log.warning(
            "run %r could not be released: %s",
            run.run_id,
            type(error).__name__,
            extra={"run_id": run.run_id, "error_type": type(error).__name__},
        )
    finally:
        run.session.token = None
        run.session.claimed = False
        await log.let_go()
    run.at_rest = run.result_now(status=status, unfinished=reason)


async def write_end(run: AgentRun) -> None:
    """Write the end of the run, whose commit failed.

    Raises:
        StoreError: the commit failed again.
    """
    _stops(run.log, "done", "", run.config.retention)
    await run.log.commit(header=True)
    run.at_rest, run.session.claimed = run.result_now(run.answer_read()), False


async def end(run: AgentRun, step: FinalAnswerStep) -> None:
    """Record the answer, and let the features look back.

    Raises:
        StoreError: it could not be written.
        RunError: a callback failed when it saw the answer.
    """
    log, session = run.log, run.session
    if session.recorded is not None:
        session.recorded.ended(log, run.frame)
    for feature in learners(run) if log.durable else ():
        log.append(LearningDue(node=named(feature)))
    # A step that callbacks have seen is an object of users, and none that is in a transcript may be changed.
    log.append(Stopped(status="done", step=copy.copy(step) if run.plan.step_callbacks else step))
    if log.durable:
        # Cancelled while it waits for its turn, the end would be in the state and not in the store.
        with anyio.CancelScope(shield=True):
            _stops(log, "done", "", run.config.retention)
            _note_due(log)
            await log.commit(header=True)
    session.token = None
    run.added_answer(step)
    output = run.answer_read()
    run.at_rest, session.claimed = run.result_now(output), False
    failure, session.failure, session.pausing = session.failure, None, None
    number = log.state.number
    try:
        if run.handlers:
            run.report_answer(output)
        if run.features or log.state.unlearned:
            await look_back(run)
        run.looked_back = True
    finally:
        if log.state.number > number:
            run.at_rest = run.result_now(output)
        if session.stepping:
            session.handed += run.added
        if run.handlers:
            run.report_steps()
            run.emit(RunFinished(run.run_id, output, run.at_rest.usage))
        run.added.clear()
        _learn_soon(run)
    if failure is not None:
        raise failure


async def end_here(config: RunConfig, owner: str, run_id: str, reason: str) -> AgentRun:
    """End a run where it is, let the features look back, and return it. One that has ended is only read.

    Raises:
        RunNotFoundError: the run does not exist.
        RunClaimedError: somebody executes it.
        StoreError: it could not be read or written.
    """
    while True:
        run = await ended_here(config, owner, run_id, reason)
        if run.log.state.number == run.log.committed:
            return run
        try:
            await run.log.commit(header=True)
        except RunClaimedError:
            continue  # somebody ended it meanwhile, or continued it
        run.emit(RunEnded(run_id, reason))
        await look_back(run)
        _learn_soon(run)
        return run


async def ended_here(config: RunConfig, owner: str, run_id: str, reason: str) -> AgentRun:
    """Return a run from the store with its end, which is not committed unless the run had ended.

    Raises:
        RunClaimedError: somebody executes it.
        RunNotFoundError, DamagedStoreError, StoreError: it could not be read.
    """
    log = await read_any_log(config, owner, run_id)
    run = unchecked_run(config, log)
    if not run.over:
        append_end(log, reason, map(named, learners(run)), config.retention)
        run.session.unlearned = log.state.unlearned
    return run


def append_end(log: Log, reason: str, learn: Iterable[str] = (), retention: int = 0) -> None:
    """Append to a log that was read that its run ends where it is. It is not committed.

    Args:
        log: The log.
        reason: Why, for people.
        learn: Who is to learn from it later, as the log names them.
        retention: How long it is kept then, in milliseconds; 0: until somebody removes it.

    Raises:
        RunClaimedError: somebody executes the run.
    """
    log.header.check_free()
    log.waits_no_more()
    _append_end(log, reason, learn, retention)


async def _end_as_asked(run: AgentRun, reason: str) -> None:
    """End a run that this process executes, where it is.

    Raises:
        StoreError: it could not be written.
    """
    _append_end(run.log, reason, map(named, learners(run)), run.config.retention)
    await run.log.commit(header=True)
    run.session.token, run.session.claimed = None, False
    run.at_rest = run.result_now(status="ended", unfinished=run.log.state.reason)
    run.report_steps()
    run.emit(RunEnded(run.run_id, reason))
    await look_back(run)
    _learn_soon(run)


def _append_end(log: Log, reason: str, learn: Iterable[str], retention: int) -> None:
    for each in learn:
        log.append(LearningDue(node=each))
    log.append(Ended(reason=storable(reason)))
    _stops(log, "ended", log.state.reason, retention)
    _note_due(log)


async def look_back_quietly(config: RunConfig, owner: str, run_id: str) -> None:
    """Let the features look back at a run that was ended for the next one. What fails must not concern that."""
    try:
        run = await read_run(config, owner, run_id)
        run.session.unlearned = run.log.state.unlearned
        await look_back(run)
        _learn_soon(run)
    except Exception as error:  # noqa: BLE001  learning stays due, and `settle` raises the error
        _log.warning(
            "nothing was learned from run %r: %s",
            run_id,
            type(error).__name__,
            extra={"run_id": run_id, "error_type": type(error).__name__},
        )


def _learn_soon(run: AgentRun) -> None:
    """Have the rest learned in the background."""
    if run.config.learns_later and run.log.state.unlearned:
        run.config.learn_soon(run.owner)


def _stops(log: Log, status: Any, reason: str, retention: int = 0) -> None:
    """Have the next commit with the header say that the run has stopped, and how long it is kept then, in milliseconds; 0: until somebody removes it."""
    frame, due = log.state.root, log.state.due
    if retention and status in RETAINED:
        due = _clock.now() + retention
    log.header = structs.replace(
        log.header, claim=None, written=status, reason=storable(reason), turns=frame.turns, tokens=frame.usage.total_tokens,
        cost=cost_of(frame.usage), seconds=round(log.executed(), 3), unlearned=log.state.unlearned, due=due, deaths=0,
    )  # fmt: skip


def _note_due(log: Log) -> None:
    """Have the next commit note that something is to be learned from a run that is over, if so."""
    if log.state.unlearned:
        log.along(Put(mark_key(LEARNING, log.header.owner, log.header.run_id), mark_of(log.header)))


def _failure_of(error: BaseException) -> tuple[str, str, str]:
    """Return the error of a node, or else of the run itself, for people: without the values of variables."""
    while isinstance(error, NodeFailedError) and error.__cause__ is not None:
        error = error.__cause__
    shown = TracebackException.from_exception(error)
    return type(error).__name__, storable(str(shown)), storable("".join(shown.format()))
