"""Answering, resuming, pausing and ending runs without their agents."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from graphagent._options import check_text
from graphagent.errors import RunClaimedError
from graphagent.log._asked import ask
from graphagent.log._header import OVER
from graphagent.log._segments import read_header
from graphagent.log._submitted import read_either
from graphagent.run._ending import append_end
from graphagent.run._people import NO_ANSWER
from graphagent.run._requeueing import answer_stored, resume_stored

if TYPE_CHECKING:
    from collections.abc import Mapping

    from graphagent.log._header import RunHeader
    from graphagent.protocols import Store


async def answer_run(
    store: Store,
    run_id: str,
    answer: object = NO_ANSWER,
    /,
    *,
    answers: Mapping[str, object] | None = None,
    results: Mapping[str, object] | None = None,
    owner: str = "",
) -> RunHeader:
    """Answer the open question of a run, or several by id, and have a worker continue the run. Return its header.

    The answers are checked by the JSON schemas in the log, and recorded as `agent.handle(run_id).answer` records them. Checks that a
    schema does not have, such as a validator of a type, are made when the run continues: an answer that does not pass is asked for again.

    Without a worker, `agent.resume(run_id)` continues the run.

    Args:
        store: Where it is.
        run_id: Which.
        answer: The answer to the only open question, as JSON data; to an approval True, False, `Approve(…)` or `Deny(…)`.
        answers: Answers to several questions, by the ids of the questions. `Deny(reason)` declines any question.
        results: Results of deferred tool calls, by the ids of the calls; `ToolError(reason)` for one that failed.
        owner: Whose.

    Raises:
        AnswerError: an answer fits no open question, or not its schema, or somebody else has answered it; nothing was written.
        RunNotFoundError: the run does not exist.
        RunClaimedError: a process, or another task, executes the run.
        RunEndedError: the run was ended.
        DamagedStoreError: it is not what was written.
        StoreError: the store cannot be read or written.
    """
    from graphagent.work._dispatch import tell  # whose door imports files of this room

    header = await answer_stored(store, owner, run_id, answer, answers, results)
    await tell(store, header)
    return header


async def resume_run(store: Store, run_id: str, *, owner: str = "") -> RunHeader:
    """Have a worker continue a run that was paused, failed, was cancelled, or whose process died. Return its header.

    A run that is over, waits for an answer, sleeps or is queued stays as it is.

    Args:
        store: Where it is.
        run_id: Which.
        owner: Whose.

    Raises:
        RunNotFoundError: the run does not exist.
        RunClaimedError: a process, or another task, executes the run.
        RunEndedError: the run was ended.
        DamagedStoreError: it is not what was written.
        StoreError: the store cannot be read or written.
    """
    from graphagent.work._dispatch import tell  # as above

    header = await resume_stored(store, owner, run_id)
    await tell(store, header)
    return header


async def pause_run(store: Store, run_id: str, reason: str = "", *, owner: str = "") -> RunHeader:
    """Have the worker that executes a run stop it before its next effect or node, wait for that, and return its header.

    A run that no worker executes stays as it is. If the call is cancelled while it waits, the request stands.

    Args:
        store: Where it is.
        run_id: Which.
        reason: Why, for people. It is kept with the run.
        owner: Whose.

    Raises:
        RunNotFoundError: the run does not exist.
        RunClaimedError: the process that executes the run is not a worker.
        StoreError: the store cannot be read or written.
    """
    check_text("reason=", reason)
    await ask(store, owner, run_id, reason, ends=False)
    return (await read_header(store, owner, run_id))[0]


async def end_run(store: Store, run_id: str, reason: str = "", *, owner: str = "") -> RunHeader:
    """End a run where it is, as `agent.end` does, and return its header. Features do not look back at it, since only its agent has them.

    A worker that executes the run ends it before its next effect or node, with its features; this waits for that. If the call is
    cancelled while it waits, the request stands.

    Args:
        store: Where it is.
        run_id: Which.
        reason: Why, for people. It is kept with the run.
        owner: Whose.

    Raises:
        RunNotFoundError: the run does not exist.
        RunClaimedError: the process that executes the run is not a worker.
        DamagedStoreError: it is not what was written.
        StoreError: the store cannot be read or written.
    """
    from graphagent.work._dispatch import tell_next  # as above

    check_text("reason=", reason)
    thread = (await read_header(store, owner, run_id))[0].thread
    while True:
        await ask(store, owner, run_id, reason, ends=True)
        log = await read_either(store, owner, run_id, keeps_values=True)
        if log.state.status not in OVER:
            log.executed = partial(float, log.state.ran / 1000)
            try:
                append_end(log, reason)
                await log.commit(header=True)
            except RunClaimedError:
                continue  # somebody ended it meanwhile, or continued it
        await tell_next(store, owner, thread)
        return log.header
