"""Time limits: they cancel what waits. The walk of a frame looks at them before each node, model turn and tool call, which may never wait.

What comes back after the end of its limit, because it blocked the event loop, has exceeded it as well.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import anyio

if TYPE_CHECKING:
    from graphagent.run._agent_run import AgentRun
    from graphagent.run._walk import Walk


def earlier(deadline: float | None, other: float) -> float:
    """Return the earlier one of two times of the event loop."""
    return other if deadline is None or other < deadline else deadline


@contextmanager
def limited_to(seconds: float, owner: Walk | AgentRun) -> Generator[Callable[[], bool]]:
    """Cancel what the block executes after some seconds, and leave the block then. Yield whether there is time left."""
    before = owner.deadline
    with anyio.move_on_after(seconds) as scope:
        owner.deadline = earlier(before, scope.deadline)
        try:
            yield lambda: anyio.current_time() < scope.deadline
        finally:
            owner.deadline = before
