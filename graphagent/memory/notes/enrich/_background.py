"""Work in the background of a program, outside of its task groups."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

from graphagent._concurrency import OwnTask
from graphagent._raised import awaited

_log = logging.getLogger("graphagent.memory")


class BackgroundTask:
    """Calls a function in a task of its own. It ends with the event loop, or when it is stopped.

    It is not awaited, so an error is logged, with its type only. The task is in `running` until it has ended, because the event loop
    does not keep it alive.
    """

    def __init__(self, function: Callable[[], Awaitable[object]], running: set[BackgroundTask]) -> None:
        self._function = function
        self._running = running
        running.add(self)
        self._task = OwnTask(self._run)

    @property
    def is_running(self) -> bool:
        """Whether it is running in the caller's event loop."""
        return self._task.is_running

    async def stop(self) -> None:
        """Cancel it, and wait until it has ended."""
        await self._task.stop()

    async def _run(self) -> None:
        try:
            await awaited(self._function(), "what notes do in the background")
        except Exception as error:  # noqa: BLE001  it is not awaited
            _log.warning(
                "what notes do in the background was broken off by %s",
                type(error).__name__,
                extra={"error_type": type(error).__name__},
            )
        finally:
            self._running.discard(self)
