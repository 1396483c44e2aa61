"""Functions of users, plain or async: their names, and how they are called without blocking the event loop."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable
from contextvars import ContextVar
from functools import partial
from inspect import CO_VARARGS, isawaitable, iscoroutinefunction
from threading import Thread, current_thread
from types import FunctionType
from typing import Any, cast, final

from anyio import CapacityLimiter, to_thread

from graphagent import _clock
from graphagent._concurrency import Slots
from graphagent.errors import AbandonedThreadsError

_log = logging.getLogger("graphagent")

MOST_ABANDONED = 64
"""How many abandoned threads of the process may be running when another thread is started."""
_SLOTS = Slots("graphagent_blocking", 40)
"""How many blocking functions may be waited for in an event loop. They do not use anyio's own limiter, which stores need."""


def _logged(name: str, seconds: float) -> None:
    _log.warning(
        "the thread of %r was abandoned after %.1f seconds", name, seconds, extra={"function": name, "seconds": seconds}
    )


abandoned: ContextVar[Callable[[str, float], object]] = ContextVar("graphagent_abandoned", default=_logged)
"""Called when a thread is abandoned, with the name of its function and the seconds for which the function has been running."""


@final
class _Call:
    """A blocking function that is called in a thread, and may outlast the task that waits for it."""

    __slots__ = ("ended", "function", "is_unwanted", "name", "thread")

    def __init__(self, name: str, function: Callable[[], Any]) -> None:
        self.name, self.function = name, function
        self.thread: Thread | None = None
        self.is_unwanted = self.ended = False

    def __call__(self) -> list[Any]:
        self.thread = current_thread()
        try:
            # In a list, since trio does not accept a coroutine from a thread.
            return [] if self.is_unwanted else [self.function()]
        finally:
            self.ended = True
            _ABANDONED.pop(self, None)

    def abandon(self) -> bool:
        """Abandon the call. Return whether its thread goes on although nobody waits for it."""
        self.is_unwanted = (
            True  # before checking whether the function was begun: the thread checks in the opposite order
        )
        if self.thread is None or self.ended:
            return False
        _ABANDONED[self] = None
        if self.ended:
            _ABANDONED.pop(self, None)
        return not self.ended


_ABANDONED: dict[_Call, None] = {}
"""The calls of the whole process, like the threads: programs may use a new event loop for each run."""


def check_abandoned() -> None:
    """Check that another blocking function may be called."""
    # A forked process has none of the threads of its parent.
    running = [call for call in tuple(_ABANDONED) if call.thread is not None and call.thread.is_alive()]
    if len(running) >= MOST_ABANDONED:
        raise AbandonedThreadsError(Counter(call.name for call in running))


async def in_thread(function: Callable[..., Any], name: str, *arguments: Any) -> Any:
    """Call a blocking function in a thread and return its result; an awaitable result is awaited.

    If the caller is cancelled, by a time limit or otherwise, the cancellation does not wait for the function, which cannot be
    stopped. Its thread is abandoned, its result is dropped, and `abandoned` is called.
    """
    async with _SLOTS.one():
        check_abandoned()
        call, began = _Call(name, partial(function, *arguments)), _clock.ticks()
        try:
            # A limiter of its own: with trio, an abandoned thread keeps its place until it ends.
            [found] = await to_thread.run_sync(call, abandon_on_cancel=True, limiter=CapacityLimiter(1))
        finally:
            if call.abandon():
                abandoned.get()(name, round(_clock.seconds_since(began), 3))
    return await found if isawaitable(found) else found


async def call(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function and return its result: an async function is awaited, any other function is called by `in_thread`."""
    if iscoroutinefunction(function) or iscoroutinefunction(getattr(function, "__call__", None)):  # noqa: B004  inspected, not called
        return await function(*arguments)
    return await in_thread(function, name_of(function), *arguments)


def name_of(function: object) -> str:
    """Return the name of a function, or of the class of a callable object, with its module."""
    while isinstance(function, partial):
        function = cast("partial[object]", function).func
    named = function if hasattr(function, "__qualname__") else type(function)
    return f"{getattr(named, '__module__', '')}.{getattr(named, '__qualname__', '')}"


def accepts_one(function: object) -> bool:
    """Return whether an object can be called with one argument, as far as its signature tells."""
    if isinstance(function, FunctionType):
        return function.__code__.co_argcount > 0 or bool(function.__code__.co_flags & CO_VARARGS)
    return callable(function)
