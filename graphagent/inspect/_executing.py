"""Executes the runs that are resumed, answered or forked in the pages."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import anyio

from graphagent import _clock
from graphagent._concurrency import OwnTask, Slots
from graphagent.history import run_head
from graphagent.work._execute import execute, leave_soon

if TYPE_CHECKING:
    from graphagent._agent import Agent
    from graphagent.protocols import Store
    from graphagent.run._agent_run import AgentRun

_log = logging.getLogger("graphagent.inspect")
_AT_ONCE = 10
"""How many runs are executed at once, as by a worker."""

_SOONEST = 50
"""Milliseconds to wait for a sleeping run at least, since its store may have another clock."""


class Executing:
    """Executes given runs that are due as a worker does, each in a task of its own."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._tasks = set[OwnTask]()
        self._runs: list[AgentRun] = []
        self._slots = Slots("graphagent.inspect", _AT_ONCE)

    def begin(self, agent: Agent[Any, Any], owner: str, run_id: str) -> None:
        """Execute a run as soon as a slot is free, unless another process takes it first."""

        async def working() -> None:
            try:
                await self._execute(agent, owner, run_id)
            except Exception as error:  # noqa: BLE001  nobody awaits the task, and the run is still due
                told = {"run_id": run_id, "error_type": type(error).__name__}
                _log.warning("run %r is left: %s", run_id, type(error).__name__, extra=told)
            finally:
                self._tasks.discard(task)

        task = OwnTask(working)
        self._tasks.add(task)

    async def aclose(self) -> None:
        """Stop the runs where they are. They go on in a worker, or when somebody resumes them."""
        for run in self._runs:
            leave_soon(run)
        for task in [*self._tasks]:
            await task.stop()

    async def _execute(self, agent: Agent[Any, Any], owner: str, run_id: str) -> None:
        while True:
            try:
                async with self._slots.one():
                    await execute(agent, owner, run_id, began=self._runs.append)
            finally:
                self._runs[:] = [run for run in self._runs if (run.owner, run.run_id) != (owner, run_id)]
            head = await run_head(self._store, run_id, owner=owner)
            if head.status != "sleeping":
                return
            await anyio.sleep(max(head.due - _clock.now(), _SOONEST) / 1000)
