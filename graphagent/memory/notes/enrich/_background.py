"""Something that goes on beside the tasks of a program, in none of their task groups."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

from graphagent._concurrency import OwnTask

_log = logging.getLogger("graphagent")


class Background:
    """Calls a function beside the tasks of the event loop. It ends with the loop, or when it is stopped.

    Nobody awaits it, so what it raises is logged, by its type alone. It is in `going` until it has ended, because the event loop
    does not hold it.
    """

    def __init__(self, function: Callable[[], Awaitable[object]], going: set[Background]) -> None:
        self._function = function
        self._going = going
        going.add(self)
        self._task = OwnTask(self._run)

    @property
    def is_running(self) -> bool:
        """Whether it is going on, in the event loop of whoever asks."""
        return self._task.is_running

    async def stop(self) -> None:
        """Break it off, and wait until it has ended."""
        await self._task.stop()

    async def _run(self) -> None:
        try:
            await self._function()
        except Exception as error:  # noqa: BLE001  nobody awaits it
            _log.warning("what notes do in the background was broken off by %s", type(error).__name__)
        finally:
            self._going.discard(self)
