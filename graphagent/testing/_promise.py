"""Promises of a contract, and the error for a broken one."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, ParamSpec

_Given = ParamSpec("_Given")


class _BrokenPromiseError(AssertionError):
    """Raised by `promise` alone, so that an assertion of the class that is checked is not taken for one."""


def promise(kept: bool, text: str) -> None:
    """Raise an AssertionError with the text of a promise that is not kept."""
    if not kept:
        raise _BrokenPromiseError(text)


async def keeps(
    who: str, check: Callable[_Given, Awaitable[None]], *given: _Given.args, **options: _Given.kwargs
) -> None:
    """Check one promise, or several that belong together. The docstring of `check` says it in a sentence."""
    try:
        await check(*given, **options)
    except _BrokenPromiseError:
        raise
    except Exception as error:
        raise AssertionError(f"{check.__doc__} The {who} raised {error!r}") from error


def accepts(method: object, *given: object, **options: object) -> bool:
    """Return whether something can be called with such arguments, as far as its signature is known."""
    if not callable(method):
        return False
    try:
        inspect.signature(method).bind(*given, **options)
    except TypeError:
        return False
    except ValueError:  # it has no signature, such as a function that is written in C
        return True
    return True


async def answer(method: Any, text: str, *given: object, **options: object) -> Any:
    """Return the result of an async method."""
    promise(accepts(method, *given, **options), text)
    waiting = method(*given, **options)
    promise(inspect.isawaitable(waiting), text)
    return await waiting


def iterates(found: object) -> bool:
    """Return whether something is an asynchronous iterator. A coroutine is closed, so that Python does not warn of it."""
    if inspect.iscoroutine(found):
        found.close()
    return isinstance(found, AsyncIterator)
