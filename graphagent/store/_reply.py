"""Waiting across threads and event loops: a task waits, whoever it waits for answers."""

from __future__ import annotations

import threading
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


class Gate:
    """Lets one task at a time do what all who come meanwhile would do too."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: list[Reply] | None = None

    async def entered(self) -> bool:
        """Give True where the task is to do it, and then to call `leave`; else wait until another one has."""
        with self._lock:
            if self._waiting is None:
                self._waiting = []
                return True
            reply = Reply()
            self._waiting.append(reply)
        await reply.wait()
        return False

    def leave(self) -> None:
        """Let those go on who wait."""
        with self._lock:
            waiting, self._waiting = self._waiting, None
        for reply in waiting or ():
            reply.send()
