"""A run whose events are read while they happen."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar, final

import anyio

from graphagent._concurrency import OwnTask
from graphagent._raised import awaited, leak_of_task
from graphagent.events import (
    Event,
    ModelResponded,
    NodeFailed,
    NodeFinished,
    RunFailed,
    RunFinished,
    RunSuspended,
    TextStreamed,
)

if TYPE_CHECKING:
    from graphagent.run._handle import Run
    from graphagent.run._result import RunResult

O = TypeVar("O", covariant=True)
T = TypeVar("T")


class RunStream(Generic[O]):
    """A run whose events are read while they happen: `async for event in agent.stream(…): …`.

    `RunStream(run)` does the same for a run that was stopped before and continues. Events that nobody reads hold up nothing. What
    the run raises is raised where its events are read.

    Leaving the loop early cancels the run, and does not wait until it has stopped. `async with agent.stream(…) as events:` does
    wait: there the run ends with the block, however many loops are in it, and an error that nobody read is raised at its end.

    Args:
        run: The run, which has not begun, or was stopped; or an async function that reads it, called when its events are first read.
        all_text: Whether TextStreamed and OutputStreamed come for plans, summaries, extraction and agents as tools too, and not for the answer
            alone.
    """

    def __init__(self, run: Run[O] | Callable[[], Awaitable[Run[O]]], *, all_text: bool = False) -> None:
        self._running = _RunTask(run, all_text=all_text)

    @property
    def run(self) -> Run[O]:
        """The run. After it was cancelled, it can be continued.

        Raises:
            RuntimeError: `agent.resume_stream` has not read it yet, as it does when its events are first read.
        """
        if self._running.run is None:
            raise RuntimeError(
                "the run is read when its events are; within `async with … as events:`, it is there at once"
            )
        return self._running.run

    @property
    def result(self) -> RunResult[O]:
        """The result of the run, as far as it has come."""
        return self.run.result

    def text(self) -> AsyncIterator[str]:
        """Return the text of the answer, piece by piece: `async for text in agent.stream(…).text(): …`.

        It is what the model says in its turns, also beside tool calls. Text of plans, summaries, extraction and agents as tools is not
        in it. Of branches that speak at the same time, one comes after the other. What middleware may change comes when it has
        passed, what final checks and step callbacks may refuse when they have accepted it, and what a node with `.retry` says when
        no further attempt is left, each as a whole.
        """
        return _Events(self._running, _Speakers(self._running))

    async def aclose(self) -> None:
        """Cancel the run, if it has not ended, and wait until it has stopped."""
        await self._running.stop()

    async def __aenter__(self) -> Self:
        await self._running.read()
        self._running.begin()
        self._running.in_block = True
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        await self.aclose()
        if error is None and self._running.failed is not None:
            raise self._running.failed

    def __aiter__(self) -> AsyncIterator[Event]:
        return _Events(self._running, lambda event: (event,))

    async def __anext__(self) -> Event:
        """Return the next event, in a block.

        Raises:
            StopAsyncIteration: the run has ended.
            RuntimeError: it is called outside of a block.
        """
        if not self._running.in_block:
            raise RuntimeError("call anext() on aiter(events), or within `async with agent.stream(…) as events:`")
        return await self._running.following()

    def __repr__(self) -> str:
        return f"<events of {self._running.run or 'a run that is not read yet'!r}>"


@final
class _Speakers:
    """Picks the text of the answers of a run out of its events: of one node after the other."""

    def __init__(self, task: _RunTask) -> None:
        self._running = task
        self._pieces: dict[str, list[str]] = {}
        """What the nodes that speak have said and nobody has heard, the one that is heard first."""
        self._ended: set[str] = set()
        """Those of them that say nothing more."""

    def __call__(self, event: Event) -> Sequence[str]:
        run = self._running.run
        path = None if run is None else run.speakers.get(event.run_id)
        if path is None:
            return ()
        if isinstance(event, TextStreamed):
            if event.output != "answer":
                return ()
            self._ended.discard(path + event.node)
            self._pieces.setdefault(path + event.node, []).append(event.text)
        elif isinstance(event, RunFinished | RunFailed | RunSuspended):
            self._ended.update(node for node in self._pieces if node.startswith(path))
        elif self._pieces and isinstance(event, ModelResponded | NodeFinished | NodeFailed):
            ended = path + event.node  # nodes inside it may have been cancelled
            self._ended.update(node for node in self._pieces if node == ended or node.startswith(f"{ended}/"))
        return self._heard()

    def _heard(self) -> list[str]:
        found: list[str] = []
        while self._pieces:
            node = next(iter(self._pieces))
            found += self._pieces[node]
            if node not in self._ended:
                self._pieces[node] = []
                break
            del self._pieces[node]
            self._ended.discard(node)
        return found


@final
class _RunTask:
    """A run in a task of its own, and its events that were not read yet."""

    def __init__(self, run: Run[Any] | Callable[[], Awaitable[Run[Any]]], *, all_text: bool) -> None:
        self.run = None if callable(run) else run
        """The run; None until it was read."""
        self.in_block = False
        """Whether it ends with a block, and not with the loop that reads its events."""
        self.failed: BaseException | None = None
        """What the run raised, until someone read that."""
        self._read = run if callable(run) else None
        self._all_text = all_text
        self._events: deque[Event] = deque()
        self._happened = anyio.Event()
        self._ended = False
        self._task: OwnTask | None = None

    async def read(self) -> Run[Any]:
        """Return the run, which is read now if it was not before."""
        if self.run is None:
            assert self._read is not None
            self.run = await awaited(self._read(), "the stream")
        return self.run

    def begin(self) -> None:
        """Begin it."""
        if self._task is not None:
            raise RuntimeError(
                "these events were read already; for those that come when the run continues: RunStream(events.run)"
            )
        self._task = OwnTask(self._finish)

    async def following(self) -> Event:
        """Return the next event, or raise what ended them."""
        while not self._events:
            if self._ended:
                if self.failed is not None:
                    failed, self.failed = self.failed, None
                    raise failed
                raise StopAsyncIteration
            self._happened = anyio.Event()
            await self._happened.wait()
        return self._events.popleft()

    def cancel(self) -> None:
        """Have it cancelled soon."""
        if self._task is not None:
            self._task.cancel()

    async def stop(self) -> None:
        """Cancel it, and wait until it has ended."""
        if self._task is not None:
            await self._task.stop()

    def _take(self, event: Event) -> None:
        if not self._ended:
            self._events.append(event)
            self._happened.set()

    async def _finish(self) -> None:
        try:
            run = await self.read()
            run.on(Event, self._take, all_text=self._all_text)
            await run.finish()
        except anyio.get_cancelled_exc_class() as cancelled:
            self.failed = leak_of_task(cancelled, "the stream")
            if self.failed is None:
                raise
        except BaseException as error:  # noqa: BLE001  raised where the events are read
            self.failed = error
        finally:
            self._ended = True
            self._happened.set()


@final
class _Events(Generic[T]):
    """One loop over the events, or over items picked from them. Outside of a block the run ends with it.

    It is not an async generator: the garbage collector would close an abandoned one in another task, and trio warns of that. This
    is an object that a loop lets go when it is left in whatever way, and `__del__` cancels the run, which takes no awaiting.
    """

    def __init__(self, task: _RunTask, pick: Callable[[Event], Sequence[T]]) -> None:
        self._owned: bool | None = None
        self._picked: deque[T] = deque()
        self._running = task
        self._pick = pick

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> T:
        if self._owned is None:
            if not self._running.in_block:
                self._running.begin()
            self._owned = not self._running.in_block
        try:
            while not self._picked:
                self._picked.extend(self._pick(await self._running.following()))
        except anyio.get_cancelled_exc_class():
            await self.aclose()
            raise
        return self._picked.popleft()

    async def aclose(self) -> None:
        """Cancel the run, if it ends with this loop, and wait until it has stopped."""
        if self._owned:
            await self._running.stop()

    def __del__(self) -> None:
        if self._owned:
            self._running.cancel()
