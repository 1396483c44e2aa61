"""Doing several things at once, as many as a limit allows, with errors that stay themselves."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import anyio


async def together(work: Callable[[int], Awaitable[None]], total: int, limit: int | None = None) -> None:
    """Do work number 0 to `total` - 1, at most `limit` at once, begun in order. Return when all is done.

    Raises:
        BaseException: what the first work to fail raised, as itself and not in a group; the others are cancelled.
    """
    failed: list[BaseException] = []
    waiting = iter(range(total))

    async def worker() -> None:
        for number in waiting:
            try:
                await work(number)
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
