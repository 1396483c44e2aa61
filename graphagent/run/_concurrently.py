"""Several things at once, as many as a limit allows, whose errors are not wrapped in a group."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import nullcontext
from typing import TYPE_CHECKING

import anyio

from graphagent._raised import awaited, leak_of_task
from graphagent.errors import LeakedCancellationError

if TYPE_CHECKING:
    from graphagent.run._sleep import Tasks


async def together(
    work: Callable[[int], Awaitable[None]], total: int, limit: int | None = None, *, of: Tasks | None = None
) -> None:
    """Await `work(0)` to `work(total - 1)`, at most `limit` at once, begun in this order. Return when all have returned.

    Args:
        work: What is done, with the number of the call.
        total: How many calls there are.
        limit: How many are made at once; None: all.
        of: The tasks of the run to which these belong, if one of them may wait for a time.
    """
    failed: list[BaseException] = []
    returned: list[bool] = []
    waiting = iter(range(total))

    async def worker() -> None:
        for number in waiting:
            where = f"task {number + 1} of {total}"
            try:
                await awaited(work(number), where)
            except anyio.get_cancelled_exc_class() as cancelled:
                leaked = leak_of_task(cancelled, where)
                if leaked is None:
                    raise
                failed.append(leaked)
                group.cancel_scope.cancel()
                return
            except BaseException as error:  # noqa: BLE001  raised again below, outside the group
                failed.append(error)
                group.cancel_scope.cancel()
                return
        returned.append(True)
        ended()

    tasks = total if limit is None else min(limit, total)
    with nullcontext(_nothing) if of is None else of.split(tasks) as ended:
        async with anyio.create_task_group() as group:
            for _ in range(tasks):
                group.start_soon(worker)
    if failed:
        raise failed[0]
    if len(returned) < tasks:  # one was cancelled before it began
        raise LeakedCancellationError(f"one of {total} tasks")


def _nothing() -> None:
    """Nobody counts the tasks."""
