"""Renewing the claim of a run while it is executed, and ending the execution of a run that lost it."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterator
from typing import TYPE_CHECKING, TypeVar

import anyio
from anyio import sleep

from graphagent.errors import RunClaimedError, RunNotFoundError
from graphagent.run.journal._claim import LEASE

if TYPE_CHECKING:
    from graphagent.run.journal._writer import JournalWriter

T = TypeVar("T")
_log = logging.getLogger("graphagent")

PAUSE = LEASE / 3 / 1000
"""Seconds between two renewals."""


async def claimed(
    run_id: str, writers: Callable[[], Iterator[JournalWriter]], execute: Callable[[], Awaitable[T]]
) -> T:
    """Execute a run, and meanwhile renew its claim and those of the sub-agents' runs in it, which have these writers.

    Raises:
        RunClaimedError: someone else has continued the run. What was being executed is cancelled.
        RunNotFoundError: the run was removed. What was being executed is cancelled.
        BaseException: what was raised while it was executed, as itself and not in a group.
    """
    given: list[T] = []
    lost: list[Exception] = []
    failed: list[BaseException] = []

    async def renew() -> None:
        try:
            while True:
                await sleep(PAUSE)
                for writer in writers():
                    await _renew(writer)
        except (RunClaimedError, RunNotFoundError) as error:
            error.run_id = run_id
            lost.append(error)
            for writer in writers():
                writer.lost = True
        except KeyboardInterrupt as error:  # trio raises it in whichever task is running
            failed.append(error)
        group.cancel_scope.cancel()

    async with anyio.create_task_group() as group:
        group.start_soon(renew)
        try:
            given.append(await execute())
        except anyio.get_cancelled_exc_class():
            raise
        except BaseException as error:  # noqa: BLE001  raised again below, outside the group
            failed.append(error)
        group.cancel_scope.cancel()
    if lost:
        raise lost.pop()
    if failed:
        raise failed.pop(0)  # nothing here keeps it, or it would stand in a circle with its own traceback
    return given[0]


async def _renew(writer: JournalWriter) -> None:
    try:
        await writer.renew()
    except (RunClaimedError, RunNotFoundError):
        raise
    except Exception as error:  # noqa: BLE001  whatever a store raises: the next renewal may succeed, and the next entry tells
        _log.warning("the claim of run %r could not be renewed: %s", writer.header.run_id, type(error).__name__)
