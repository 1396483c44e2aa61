"""Time limits: they cancel what waits, and are looked at before each node, model turn and tool call, also where these never wait."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import anyio
from anyio.lowlevel import checkpoint, current_token

if TYPE_CHECKING:
    from anyio.abc import AsyncBackend

    from graphagent.run._runtime import Runtime
    from graphagent.run._scope import Execution

_PASSES = 3
"""How many turns of an event loop it takes at the most until a time limit that has passed cancels the task."""


def backend_of(run: Runtime) -> type[AsyncBackend]:
    """Return the part of anyio for the kind of event loop that executes a run."""
    top = run.top
    backend = top.backend
    if backend is None:
        backend = top.backend = current_token().backend_class
    return backend


def earlier(deadline: float | None, other: float) -> float:
    """Return the earlier one of two times of the event loop."""
    return other if deadline is None or other < deadline else deadline


@contextmanager
def limited_to(seconds: float, owner: Execution | Runtime) -> Generator[None]:
    """Cancel what the block executes after some seconds, and leave the block then."""
    before = owner.deadline
    with anyio.move_on_after(seconds) as scope:
        owner.deadline = earlier(before, scope.deadline)
        try:
            yield
        finally:
            owner.deadline = before


def seconds_left(execution: Execution) -> float | None:
    """Return the time until the first of the time limits that hold ends; None: there is none."""
    deadline = execution.deadline
    return None if deadline is None else max(deadline - backend_of(execution.run).current_time(), 0.0)


async def take_effect(execution: Execution, deadline: float) -> None:
    """Have a time limit cancel this task, if its time has passed: the event loop had no turn as long as nobody waited."""
    if backend_of(execution.run).current_time() >= deadline:
        for _ in range(_PASSES):
            await checkpoint()
