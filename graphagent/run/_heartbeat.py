"""Renewing the claim of a run while it is executed, and ending the execution of a run that lost it."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

import anyio
from anyio import sleep

from graphagent._raised import awaited, leak_of_task
from graphagent.errors import LeakedCancellationError, RunClaimedError, RunNotFoundError
from graphagent.log._asked import read_asked
from graphagent.log._claim import LEASE

if TYPE_CHECKING:
    from anyio.abc import TaskGroup

    from graphagent.log._log import Log
    from graphagent.run._agent_run import AgentRun

T = TypeVar("T")
_log = logging.getLogger("graphagent.run")

PAUSE = LEASE / 3 / 1000
"""Seconds between two renewals."""
LOOK = 1.0
"""Seconds between two looks for what others ask of the run."""


async def with_heartbeat(run: AgentRun, execute: Callable[[], Awaitable[T]]) -> T:
    """Execute a run, and meanwhile renew its claim, or wait for the end of one that is renewed for all runs of the process.

    Raises:
        RunClaimedError: somebody else has continued the run. What was being executed is cancelled.
        RunNotFoundError: the run was removed. What was being executed is cancelled.
    """
    given: list[T] = []
    lost: list[Exception] = []
    failed: list[BaseException] = []
    # The scope of the group would cancel this task too, and asyncio would not take that back where a node has caught a cancellation.
    renewing = anyio.CancelScope()

    async def renew() -> None:
        try:
            with renewing:
                while True:
                    try:
                        if run.log.lease is not None:
                            await run.log.lease.over()
                            raise await run.log.claim_error()
                        await sleep(PAUSE)
                        await _renew(run.log)
                    except anyio.get_cancelled_exc_class() as cancelled:
                        if leak_of_task(cancelled, "the heartbeat") is None:
                            raise
            return
        except (RunClaimedError, RunNotFoundError) as error:
            error.run_id = run.run_id
            lost.append(error)
            run.log.lost = True
        except KeyboardInterrupt as error:  # trio raises it in whichever task is running
            failed.append(error)
        group.cancel_scope.cancel()

    listening = anyio.CancelScope()
    async with anyio.create_task_group() as group:
        group.start_soon(renew)
        if run.session.claimed and run.log.header.queue:
            group.start_soon(_listen, run, listening, failed, group)
        try:
            given.append(await awaited(execute(), f"run {run.run_id!r}"))
        except anyio.get_cancelled_exc_class():
            raise
        except BaseException as error:  # noqa: BLE001  raised again below, outside the group
            failed.append(error)
        renewing.cancel()
        listening.cancel()
    if lost:
        raise lost.pop()
    if failed:
        raise failed.pop(0)  # nothing here keeps it, or it would be in a circle with its own traceback
    if not given:  # the task of the heartbeat was cancelled before it began, and took the group with it
        raise LeakedCancellationError("the heartbeat")
    return given[0]


async def _renew(log: Log) -> None:
    try:
        await awaited(log.renew(), "the store")
    except (RunClaimedError, RunNotFoundError):
        raise
    except Exception as error:  # noqa: BLE001  whatever a store raises: the next renewal may succeed, and the next entry tells
        _log.warning(
            "the claim of run %r could not be renewed: %s",
            log.header.run_id,
            type(error).__name__,
            extra={"run_id": log.header.run_id, "error_type": type(error).__name__},
        )


async def _listen(run: AgentRun, scope: anyio.CancelScope, failed: list[BaseException], group: TaskGroup) -> None:
    """Look for what others ask of a run that was submitted, and have it pause for that."""
    try:
        with scope:
            await _hear(run)
    except KeyboardInterrupt as error:  # as above
        failed.append(error)
        group.cancel_scope.cancel()


async def _hear(run: AgentRun) -> None:
    store = run.config.runs
    while run.session.wish is None:
        try:
            await sleep(LOOK)
            run.session.wish = await awaited(read_asked(store, run.log.header), "the store")
        except anyio.get_cancelled_exc_class() as cancelled:
            if leak_of_task(cancelled, "the heartbeat") is None:
                raise
        except Exception as error:  # noqa: BLE001  whatever a store raises: who asked waits, and the next look may succeed
            _log.warning(
                "the requests for run %r could not be read: %s",
                run.run_id,
                type(error).__name__,
                extra={"run_id": run.run_id, "error_type": type(error).__name__},
            )
    run.session.pause(run.session.wish.reason)
