"""Something that goes on beside the tasks of a program, in none of their task groups."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any, cast

import anyio
from anyio.lowlevel import EventLoopToken, current_token

_log = logging.getLogger("graphagent")


class Background:
    """Calls a function beside the tasks of the event loop. It ends with the loop, or when it is stopped.

    Nobody awaits it, so what it raises is logged, by its type alone.
    """

    def __init__(self, function: Callable[[], Awaitable[object]]) -> None:
        self._function = function
        self._scope = anyio.CancelScope()
        self._ended = anyio.Event()
        self._token: EventLoopToken = current_token()
        loop = cast(Any, self._token.native_token)
        if hasattr(loop, "create_task"):
            self._task = loop.create_task(self._run())  # held here, for the loop does not
        else:
            import trio

            self._task = trio.lowlevel.spawn_system_task(self._run)

    @property
    def is_running(self) -> bool:
        """Whether it is going on, in the event loop of whoever asks."""
        return not self._ended.is_set() and self._token == current_token()

    async def stop(self) -> None:
        """Break it off, and wait until it has ended."""
        if self.is_running:
            self._scope.cancel()
            await self._ended.wait()

    async def _run(self) -> None:
        try:
            with self._scope:
                await self._function()
        except Exception as error:  # noqa: BLE001  on trio, what a system task raises ends the program
            _log.warning("what notes do in the background was broken off by %s", type(error).__name__)
        finally:
            self._ended.set()
