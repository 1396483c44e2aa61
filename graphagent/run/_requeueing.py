"""Runs that have begun and are queued for a worker again: their questions were answered, or somebody resumes them."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from graphagent.errors import RunClaimedError, RunEndedError
from graphagent.log._log import Log
from graphagent.log._segments import read_header
from graphagent.log._submitted import read_either
from graphagent.run._beginning import queue_again
from graphagent.run._people import Asking, checked_answers
from graphagent.run._submitting import read_any

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from graphagent.log._header import RunHeader, Status
    from graphagent.protocols import Store
    from graphagent.run._config import RunConfig


async def answer_stored(
    store: Store, owner: str, run_id: str, answer: object, answers: Mapping[str, object] | None,
    results: Mapping[str, object] | None, config: RunConfig | None = None,
) -> RunHeader:  # fmt: skip
    """Record answers to questions of a run that nobody executes, and have it wait for a worker. Return its header.

    Args:
        store: Where it is.
        owner: Whose.
        run_id: Which.
        answer: The answer to the only open question, or NO_ANSWER.
        answers: Answers by the ids of their questions.
        results: Results of deferred tool calls, by the ids of the calls.
        config: Its agent, by whose types the answers are checked; None: they are checked by the JSON schemas in the log.

    Raises:
        AnswerError: an answer does not fit, or its question is not open; nothing was written.
        RunClaimedError: a process executes the run.
        RunEndedError: the run was ended.
        RunNotFoundError, StrategyChangedError, StoreError: as `read_any`.
    """
    while True:
        if config is None:
            log = await read_either(store, owner, run_id, keeps_values=True)
            if log.state.status == "ended":
                raise RunEndedError(run_id, log.state.reason)
            asking = Asking.stored(log)
        else:
            run = await read_any(config, owner, run_id)
            run.check_continues()
            asking = Asking.of(run)
        given = checked_answers(asking, answer, answers, results)
        try:
            return await queue_again(asking.log, [(asking.question(id_), each) for id_, each in given.items()], config)
        except RunClaimedError:
            # If no process executes it, somebody else has answered since it was read: the next round reads the open questions.
            (await read_header(store, owner, run_id))[0].check_free()


async def resume_stored(store: Store, owner: str, run_id: str) -> RunHeader:
    """Queue a run that was paused, failed, was cancelled or whose process died for a worker. Return its header.

    A run that is over, waits, sleeps or is queued stays as it is.

    Raises:
        RunClaimedError: a process executes the run.
        RunEndedError: the run was ended.
        RunNotFoundError, DamagedStoreError, StoreError: as `Log.read`.
    """
    while True:
        header, _ = await read_header(store, owner, run_id)
        header.check_free()
        if header.status == "ended":
            raise RunEndedError(run_id, header.reason)
        if header.status not in _STOPPED:
            return header
        log = await Log.read(store, owner, run_id, keeps_values=True)
        with suppress(RunClaimedError):  # somebody has continued it since it was read
            return await queue_again(log)


_STOPPED: Collection[Status] = ("paused", "failed", "cancelled", "interrupted")
"""The statuses of a run that does not go on before somebody resumes it."""
