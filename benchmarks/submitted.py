"""An agent whose only node returns the time, for a worker in a process of its own: `graphagent worker benchmarks.submitted:agent`."""

from __future__ import annotations

import time

from graphagent import END, START, Agent, Context, Strategy, node


@node
async def begun(ctx: Context, task: str) -> int:
    """Return when it was begun, in nanoseconds of the clock that all processes of the machine share."""
    return time.monotonic_ns()


strategy = Strategy("begun", START >> begun >> END)
agent = Agent(strategy)
