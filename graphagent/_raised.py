"""Exceptions of users' code, and of the libraries that it calls: the one place that decides how graphagent treats them.

A cancellation that nobody requested is an error, and a group of exceptions of one type counts as an exception of that type.
Only code that has raised pays for these checks.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Generator, Iterator
from contextlib import contextmanager
from typing import TypeVar, cast

import anyio
from anyio.lowlevel import checkpoint_if_cancelled

from graphagent._article import counted
from graphagent.errors import LeakedCancellationError

T = TypeVar("T")


async def awaited(work: Awaitable[T], where: str) -> T:
    """Return the result of users' code. Its exceptions are raised as `translate` describes."""
    try:
        return await work
    except BaseException as raised:
        await translate(raised, where)
        raise


async def translate(raised: BaseException, where: str) -> None:
    """Raise the exception that callers get in place of the exception of users' code. Return if they get that exception itself.

    Args:
        raised: The exception that is being handled.
        where: The code that raised it, for people: `node 'search'`.

    Raises:
        LeakedCancellationError: the exception is a cancellation that nobody requested.
    """
    if isinstance(raised, BaseExceptionGroup):
        error = await _seen_of_group(cast("BaseExceptionGroup[BaseException]", raised), where)
    elif isinstance(raised, Exception | GeneratorExit) or not isinstance(raised, _cancellations()):
        return  # a coroutine may be closed where no event loop is running
    else:
        error = await _asked_for(raised) or _leaked(raised, where)
    if error is not raised:
        try:
            raise error
        finally:
            del raised, error  # or each exception would form a cycle with its own traceback


def _cancellations() -> tuple[type[BaseException], ...]:
    """Return the classes of cancellations. asyncio's leaks on trio too, from a plain function that runs a loop of its own."""
    from asyncio import CancelledError  # with anyio, asyncio is imported with its first event loop

    return anyio.get_cancelled_exc_class(), CancelledError


async def _seen_of_group(group: BaseExceptionGroup[BaseException], where: str) -> BaseException:
    cancelled, others = group.split(_cancellations())
    if cancelled is None:
        return one_of(group)
    # The cancelled scope removes the cancellations from the group, and leaves the errors.
    if await _asked_for(cancelled) is not None:
        return group
    return _leaked(group, where) if others is None else one_of(others)


async def _asked_for(raised: BaseException) -> BaseException | None:
    """Return the cancellation that somebody requested; None if nobody did."""
    import asyncio

    task = asyncio.current_task() if anyio.get_cancelled_exc_class() is asyncio.CancelledError else None
    # The count is not compared with an earlier one: a request that was made before may be delivered only here.
    if task is not None and task.cancelling():
        return raised
    if anyio.current_effective_deadline() > -math.inf:
        return None
    if isinstance(raised, asyncio.CancelledError):
        # An enclosing scope was cancelled, but has not cancelled the task yet: it would not recognise the exception as its own
        # cancellation.
        try:
            await checkpoint_if_cancelled()
        except asyncio.CancelledError as cancellation:
            return cancellation
    return raised


def _leaked(raised: BaseException, where: str) -> LeakedCancellationError:
    error = LeakedCancellationError(where)
    error.__cause__ = raised
    return error


def leak_of_task(raised: BaseException, where: str) -> LeakedCancellationError | None:
    """Return the error for a cancellation of the current task alone; None if the cancellation came from an enclosing scope.

    This is for the outermost function of a task that graphagent started for itself: asyncio does not tell who cancels a task,
    but everything that may end the work cancels a scope around it. A task group would treat the cancellation of one of its
    tasks as its own.
    """
    import asyncio

    task = asyncio.current_task() if isinstance(raised, asyncio.CancelledError) else None
    if task is None or not task.cancelling() or anyio.current_effective_deadline() == -math.inf:
        return None
    while task.cancelling():  # or the next await of the task would be cancelled
        task.uncancel()
    return _leaked(raised, where)


def is_cancelled() -> bool:
    """Return whether the current task was asked to end, which it may not have noticed."""
    import asyncio

    task = asyncio.current_task() if anyio.get_cancelled_exc_class() is asyncio.CancelledError else None
    return task is not None and task.cancelling() > 0


def one_of(error: BaseException) -> BaseException:
    """Return the first exception of a group if all have the same type, otherwise the group; or the error if it is not a group."""
    first, *others = leaves(error)
    if any(type(each) is not type(first) for each in others):
        return error
    if others and isinstance(first, Exception):
        first.add_note(f"the first of a group of {counted(len(others) + 1, 'exception')} of this type")
    return first


@contextmanager
def ungrouped() -> Generator[None]:
    """Raise what `one_of` makes of the exceptions of a task group in the block, so that callers see the error of a single failed task."""
    try:
        yield
    except ExceptionGroup as raised:
        found = one_of(raised)
    else:
        return
    raise found


def leaves(error: BaseException) -> Iterator[BaseException]:
    """Yield the exceptions in a group and in its nested groups, or an exception that is not a group itself."""
    if isinstance(error, BaseExceptionGroup):
        for each in cast("BaseExceptionGroup[BaseException]", error).exceptions:
            yield from leaves(each)
    else:
        yield error
