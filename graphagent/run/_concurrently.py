"""Several things at once, as many as a limit allows, whose errors are not wrapped in a group."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import anyio

from graphagent._raised import awaited


async def together(work: Callable[[int], Awaitable[None]], total: int, limit: int | None = None) -> None:
    """Await `work(0)` to `work(total - 1)`, at most `limit` at once, begun in this order. Return when all have returned.

    Raises:
        BaseException: the first error, as itself and not in a group; the others are cancelled.
    """
    failed: list[BaseException] = []
    waiting = iter(range(total))

    async def worker() -> None:
        for number in waiting:
            try:
                await awaited(work(number), f"task {number + 1} of {total}")
            except anyio.get_cancelled_exc_class():
                raise
            except BaseException as error:  # noqa: BLE001  raised again below, outside the group
                failed.append(error)
                group.cancel_scope.cancel()
                return

    async with anyio.create_task_group() as group:
        for _ in range(total if limit is None else min(limit, total)):
            group.start_soon(worker)
    if failed:
        raise failed[0]
