"""What the code of users, and of the libraries that it calls, raises: the one place that decides how the rest of graphagent sees it.

A cancellation that nobody asked for is an error, and a group of exceptions of one type is that exception. This is looked at only
where something was raised.
"""

from __future__ import annotations

import asyncio
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
    """Return what users' code returns. What it raises is raised as `translate` says."""
    try:
        return await work
    except BaseException as raised:
        await translate(raised, where)
        raise


async def translate(raised: BaseException, where: str) -> None:
    """Raise what callers are to see in place of what users' code raised. Return if they are to see that itself.

    Args:
        raised: The exception that is being handled.
        where: Which code raised it, for people: `node 'search'`.

    Raises:
        LeakedCancellationError: it is a cancellation that nobody asked for.
        BaseException: it is a group of exceptions of one type, of which this is the first. Or a cancellation was asked for, and is
            delivered in place of one that only came at the same time.
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
            del raised, error  # or each would be in a circle with its own traceback


def _cancellations() -> tuple[type[BaseException], ...]:
    """Return the classes of cancellations. That of asyncio leaks in trio too, from a plain function that runs a loop of its own."""
    return anyio.get_cancelled_exc_class(), asyncio.CancelledError


async def _seen_of_group(group: BaseExceptionGroup[BaseException], where: str) -> BaseException:
    cancelled, others = group.split(_cancellations())
    if cancelled is None:
        return one_of(group)
    # The scope that was cancelled takes the cancellations out of the group, and leaves the errors.
    if await _asked_for(cancelled) is not None:
        return group
    return _leaked(group, where) if others is None else one_of(others)


async def _asked_for(raised: BaseException) -> BaseException | None:
    """Return the cancellation that somebody asked for; None if nobody did."""
    task = asyncio.current_task() if anyio.get_cancelled_exc_class() is asyncio.CancelledError else None
    # Not compared with the count of an earlier moment: a request that was made before then may only arrive now.
    if task is not None and task.cancelling():
        return raised
    if anyio.current_effective_deadline() > -math.inf:
        return None
    if isinstance(raised, asyncio.CancelledError):
        # A scope around was cancelled, and has not cancelled the task yet: it would take what was raised for another's.
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
    """Return the error for a cancellation of the current task alone, of which nothing around it knows; None if it came from around.

    This is for the outermost function of a task that graphagent began for itself: who cancels a task of asyncio is not known, but those
    who may end the work cancel a scope around it. A group would take the cancellation of one of its tasks for its own.
    """
    task = asyncio.current_task() if isinstance(raised, asyncio.CancelledError) else None
    if task is None or not task.cancelling() or anyio.current_effective_deadline() == -math.inf:
        return None
    while task.cancelling():  # or the next thing that the task does would seem to be cancelled
        task.uncancel()
    return _leaked(raised, where)


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
    """Raise what a task group within the block raises as `one_of` says, so that callers see the error of the one task that failed."""
    try:
        yield
    except ExceptionGroup as raised:
        found = one_of(raised)
    else:
        return
    raise found


def leaves(error: BaseException) -> Iterator[BaseException]:
    """Yield the exceptions in a group, also in groups within it, or the one exception that is not a group."""
    if isinstance(error, BaseExceptionGroup):
        for each in cast("BaseExceptionGroup[BaseException]", error).exceptions:
            yield from leaves(each)
    else:
        yield error
