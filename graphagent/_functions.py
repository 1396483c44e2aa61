"""Functions of users, plain or async: their names, and how they are called without blocking the event loop."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from inspect import isawaitable, iscoroutinefunction
from typing import Any, cast

from anyio import to_thread


async def call(function: Callable[..., Any], *arguments: Any) -> Any:
    """Return what a function returns: an async function is awaited, any other one is called in a worker thread."""
    if iscoroutinefunction(function) or iscoroutinefunction(getattr(function, "__call__", None)):  # noqa: B004  it is looked at, and not called
        return await function(*arguments)
    # In a list, since trio takes no coroutine from a thread.
    found: list[Any] = await to_thread.run_sync(lambda: [function(*arguments)])
    return await found[0] if isawaitable(found[0]) else found[0]


def name_of(function: object) -> str:
    """Return the name of a function, or of the class of an object that is called, with its module."""
    while isinstance(function, partial):
        function = cast("partial[object]", function).func
    named = function if hasattr(function, "__qualname__") else type(function)
    return f"{getattr(named, '__module__', '')}.{getattr(named, '__qualname__', '')}"
