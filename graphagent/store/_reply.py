"""A task waits, a thread or a task of another event loop answers."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any, cast

import anyio
from anyio.lowlevel import current_token


class Reply:
    """Made in the task that will wait; answered once, from anywhere."""

    def __init__(self) -> None:
        native = cast(Any, current_token().native_token)
        # A trio token or an asyncio loop: each has one call that any thread may make and that does not wait.
        soon = native.run_sync_soon if hasattr(native, "run_sync_soon") else native.call_soon_threadsafe
        self._soon: Callable[[Callable[[], object]], object] = soon
        self._event = anyio.Event()
        self._error: BaseException | None = None

    def send(self, error: BaseException | None = None) -> bool:
        """Let the waiting task go on; with an error, it raises it. Gives False where its event loop is gone."""
        self._error = error
        with suppress(RuntimeError):  # both loops raise it, or a subclass, once they are closed
            self._soon(self._event.set)
            return True
        return False

    async def wait(self) -> None:
        """Wait for the answer."""
        await self._event.wait()
        if self._error is not None:
            raise self._error
