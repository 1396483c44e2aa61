"""A run that others execute, as whoever submitted it has it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

import anyio

from graphagent._options import check_number
from graphagent.log._internal import read_header
from graphagent.run._internal import read_any

if TYPE_CHECKING:
    from graphagent.log._internal import Status
    from graphagent.run import RunResult
    from graphagent.run._internal import RunConfig

O = TypeVar("O", covariant=True)
_MOVING = ("queued", "running", "sleeping", "interrupted")
"""Where a run goes on by itself, in a worker."""
_FIRST, _LONGEST, _FACTOR = 0.005, 1.0, 1.5
"""Seconds between two looks into the store: at first, at most, and by how much they grow."""


class RunHandle(Generic[O]):
    """A run in the store that others execute: `agent.submit(…)` and `agent.handle(run_id)` return one.

    Each method reads the store, so it works in any process, and says what is there now.
    """

    __slots__ = ("_config", "_owner", "_run_id")

    def __init__(self, config: RunConfig, run_id: str, owner: str) -> None:
        self._config, self._run_id, self._owner = config, run_id, owner

    @property
    def run_id(self) -> str:
        """The id of the run."""
        return self._run_id

    @property
    def owner(self) -> str:
        """The user or tenant of the run, or an empty string."""
        return self._owner

    async def status(self) -> Status:
        """Return where the run is: `queued` until a worker takes it.

        Raises:
            RunNotFoundError: it was removed.
            StoreError: the store cannot be read.
        """
        return (await read_header(self._config.runs, self._owner, self._run_id))[0].status

    async def result(self) -> RunResult[O]:
        """Return the result of the run, as far as it has come.

        Raises:
            RunNotFoundError: it was removed.
            StrategyChangedError: the strategy of this agent is not the one of the run, which has not ended.
            StoreError: the store cannot be read.
        """
        run = await read_any(self._config, self._owner, self._run_id)
        found: RunResult[O] = run.result
        return found

    async def wait(self, timeout: float | None = None) -> RunResult[O]:  # noqa: ASYNC109  it says so in its error
        """Return the result of the run once it has ended, failed, waits for a person or is paused.

        Args:
            timeout: For how many seconds at most; None means as long as it takes.

        Raises:
            TimeoutError: it has not come to that in time; it goes on all the same.
            RunNotFoundError: it was removed.
            StoreError: the store cannot be read.
        """
        if timeout is not None:
            check_number("timeout", timeout)
        status: Status = "queued"
        with anyio.move_on_after(timeout):
            pause = _FIRST
            while (status := await self.status()) in _MOVING:
                await anyio.sleep(pause)
                pause = min(pause * _FACTOR, _LONGEST)
        if status in _MOVING:
            raise TimeoutError(f"run {self._run_id!r} is {status} after {timeout} seconds; it goes on without you")
        return await self.result()

    def __repr__(self) -> str:
        return f"<handle of run {self._run_id!r}>"
