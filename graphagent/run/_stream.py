"""A run whose events are read while they happen."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator
from types import TracebackType
from typing import TYPE_CHECKING, Generic, Self, TypeVar

import anyio

if TYPE_CHECKING:
    from anyio.abc import TaskGroup

    from graphagent.events import Event
    from graphagent.run._result import RunResult
    from graphagent.run._run import Run

O = TypeVar("O", covariant=True)


class RunStream(Generic[O]):
    """A run whose events are read while they happen: `async with agent.stream(…) as events: async for event in events: …`.

    `RunStream(run)` does the same for a run that was stopped before and goes on. Events that nobody reads hold up nothing; what
    the run raises is raised where they are read, or else at the end of the block. Leaving the block early cancels the run.
    """

    def __init__(self, run: Run[O]) -> None:
        self.run = run
        """The run. What was broken off can be gone on with."""
        self._events: deque[Event] = deque()
        self._happened = anyio.Event()
        self._ended = False
        self._failed: Exception | None = None
        self._group: TaskGroup | None = None

    @property
    def result(self) -> RunResult[O]:
        """What the run has come to."""
        return self.run.result

    async def __aenter__(self) -> Self:
        if self._group is not None:
            raise RuntimeError(
                "these events were read already; for those that come when the run goes on: RunStream(events.run)"
            )
        self.run.listen(self._take)
        self._group = anyio.create_task_group()
        await self._group.__aenter__()
        self._group.start_soon(self._go_on)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        assert self._group is not None
        self._group.cancel_scope.cancel()
        try:
            # The block's own error stays itself: a task group would wrap it.
            await self._group.__aexit__(None, None, None)
        finally:
            self._ended = True
        if error is None and self._failed is not None:
            raise self._failed

    def __aiter__(self) -> AsyncIterator[Event]:
        return self

    async def __anext__(self) -> Event:
        while not self._events:
            if self._ended:
                if self._failed is not None:
                    failed, self._failed = self._failed, None
                    raise failed
                raise StopAsyncIteration
            self._happened = anyio.Event()
            await self._happened.wait()
        return self._events.popleft()

    def _take(self, event: Event) -> None:
        if not self._ended:
            self._events.append(event)
            self._happened.set()

    async def _go_on(self) -> None:
        try:
            await self.run.finish()
        except Exception as error:  # noqa: BLE001  raised where the events are read
            self._failed = error
        finally:
            self._ended = True
            self._happened.set()

    def __repr__(self) -> str:
        return f"<events of {self.run!r}>"
