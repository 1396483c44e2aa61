"""Time limits: they cancel what waits. An execution looks at them before each node, model turn and tool call, which may never wait."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import anyio

if TYPE_CHECKING:
    from graphagent.run._runtime import Runtime
    from graphagent.run._scope import Execution


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
