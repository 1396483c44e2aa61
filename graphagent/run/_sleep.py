"""Waiting: for a time, and for several tasks at once.

A time is waited for in the process beside work that goes on, and otherwise the run is suspended until then. Times are those of the clock of
the store, which all processes have in common; without a store, of the process.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Generator
from contextlib import contextmanager, nullcontext
from contextvars import Context, copy_context
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple, final

import anyio
from anyio import move_on_after
from anyio.lowlevel import checkpoint

from graphagent import _clock
from graphagent._concurrency import Reply
from graphagent._raised import awaited, is_cancelled, leak_of_task
from graphagent.errors import JournalError, LeakedCancellationError, StoreError
from graphagent.log._entries import EffectRecorded
from graphagent.log._header import time_of as store_time
from graphagent.run._final_errors import Suspend
from graphagent.run._times import milliseconds_of

if TYPE_CHECKING:
    from datetime import timedelta

    from anyio.abc import TaskGroup

    from graphagent.run._agent_run import AgentRun
    from graphagent.run._effects import Effects
    from graphagent.run._session import Session


SHORT = 3.0
"""Seconds that a process waits although nothing else goes on in the run: to suspend it, and to continue it, would cost more."""
_LONGEST = 60.0
"""Seconds after which whoever waits looks at the clock again: it may have been set, or the machine may have been suspended."""


class _Sleeper(NamedTuple):
    ends: float
    """When the time comes, as a time of the event loop."""
    woken: Reply


@final
class Tasks:
    """The tasks of a run: how many of them work, and which wait for a time. Where none works, the run need not be executed."""

    __slots__ = ("_asleep", "_sent_off", "_session", "_working", "wakes")

    def __init__(self, session: Session) -> None:
        self._session = session
        self._asleep: list[_Sleeper] = []
        self._sent_off: list[_Sleeper] = []
        """Those of them that are to suspend the run."""
        self._working = 1
        self.wakes: list[tuple[str, int]] = []
        """For which times the run is suspended, in milliseconds UTC, with the paths of the frames that wait."""

    def begin(self) -> None:
        """Begin with one task, when the run begins or continues."""
        self._working, self.wakes = 1, []

    @contextmanager
    def split(self, count: int) -> Generator[Callable[[], None]]:
        """Have several tasks work in the place of this one, which waits for them. Yield the function that each calls at its end."""
        left = max(count, 1)
        self._working += left - 1

        def ended() -> None:
            nonlocal left
            # A cancelled task makes room for the task that waits, which goes on. So does the last task.
            if left > 1 and anyio.current_effective_deadline() > -math.inf:
                left -= 1
                self._working -= 1
                self._rest()

        try:
            yield ended
        finally:
            self._working -= left - 1

    async def wait(self, seconds: float) -> bool:
        """Wait at most so long. Return whether the run is to be suspended, since nothing else goes on in it.

        Raises:
            Suspend: the run is to pause.
            RunError: a callback refused a step, or raised.
        """
        one = _Sleeper(anyio.current_time() + seconds, Reply())
        self._asleep.append(one)
        self._working -= 1
        try:
            self._session.stop_if_due()  # only now, since another thread may pause the run at any moment
            self._rest()
            if one not in self._sent_off:
                with move_on_after(min(seconds, _LONGEST)):
                    await one.woken.wait()
            return one in self._sent_off
        finally:
            self._working += 1
            self._asleep.remove(one)
            if one in self._sent_off:
                self._sent_off.remove(one)

    def wake(self) -> None:
        """Have those that wait look whether the run is to pause. Another thread may call it."""
        for each in tuple(self._asleep):
            each.woken.send()

    def _rest(self) -> None:
        """Suspend the run if nothing goes on in it until a time that is far off, or until somebody answers."""
        if self._working > 0 or not self._asleep:
            return
        left = min(each.ends for each in self._asleep) - anyio.current_time()
        if self._session.log.state.questions or left > longest_wait():
            self._sent_off = [*self._asleep]
            self.wake()


def longest_wait() -> float:
    """Return for how many seconds a process waits for a time although nothing else goes on. No waiting moves a clock that a test has fixed."""
    return SHORT if _clock.is_wall_clock() else 0.0


async def now(run: AgentRun) -> int:
    """Return the time by the clock of the run's store, or else of this process, in milliseconds UTC."""
    store, header = run.log.store, run.log.header
    if store is None:
        return _clock.now()
    try:
        return await store_time(store)
    except StoreError as error:
        raise JournalError(header.run_id, error, header.owner) from error


async def wait_until(effects: Effects, time: int) -> None:
    """Return when the clock shows a time, in milliseconds UTC; at once if it is past.

    Raises:
        Suspend: the run is suspended until then, or is to pause.
        RunError: a callback refused a step, or raised.
    """
    run, walk = effects.run, effects.walk
    tasks = run.session.tasks
    await checkpoint()  # of a race that is decided by an answer and by the time at once, the answer comes first
    while (left := (time - await now(run)) / 1000) > 0:
        limit = walk.seconds_left
        # A time limit holds for execution, and a sleeping run is not executed.
        if (limit is not None and left > limit) or await tasks.wait(left):
            tasks.wakes.append((effects.frame.path, time))
            raise Suspend


async def sleep(effects: Effects, wanted: float | timedelta | datetime) -> None:
    """Record until when to sleep, by the clock, and wait for it: see `Context.sleep` and `Context.sleep_until`."""
    log = effects.log
    key = effects.next("sleep")
    found = effects.find_or_copy("sleep", key)
    if found is None:
        effects.stop_if_due()
        wake = milliseconds_of(wanted, 0 if isinstance(wanted, datetime) else await now(effects.run))
        effects.record(EffectRecorded(at=effects.frame.path, kind="sleep", key=key, value=log.keep(wake)))
        await log.commit()
        found = effects.visit.effects["sleep", key]
    await wait_until(effects, log.take(found.value))


async def together(
    work: Callable[[int], Awaitable[None]], total: int, limit: int | None = None, *, of: Tasks | None = None
) -> None:
    """Await `work(0)` to `work(total - 1)`, at most `limit` at once, begun in this order. Return when all have returned.

    A task costs more than a small work. So one task does those that never wait, one after the other, and the others get tasks of their
    own as soon as one waits. What a work leaves in its task, such as a context variable, no other work sees.

    Args:
        work: The function to call with the number of the call.
        total: How many calls there are.
        limit: How many are made at once; None: all.
        of: The tasks of the run to which these belong, if one of them may wait for a time.
    """
    tasks = total if limit is None else min(limit, total)
    group = anyio.create_task_group()
    with nullcontext(_nothing) if of is None else of.split(tasks) as ended:
        workers = _Workers(work, total, tasks, group, ended)
        async with group:
            if tasks:
                workers.begin(workers.first)
    if workers.failed:
        raise workers.failed[0]
    if workers.returned < workers.begun:  # one was cancelled before it began
        raise LeakedCancellationError(f"one of {total} tasks")


@final
class _Workers:
    """The tasks that do several works."""

    def __init__(
        self,
        work: Callable[[int], Awaitable[None]],
        total: int,
        tasks: int,
        group: TaskGroup,
        ended: Callable[[], None],
    ) -> None:
        self._work, self._total, self._tasks, self._group, self._ended = work, total, tasks, group, ended
        self._waiting, self._context = deque(range(total)), copy_context()
        self.failed: list[BaseException] = []
        self.begun = self.returned = 0

    def begin(self, task: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Begin a task."""
        self.begun += 1
        self._context.run(self._group.start_soon, task)

    async def first(self) -> None:
        """Be the first task, with which the second begins."""
        if self._tasks > 1:
            self.begin(self._second)
        await self._worker()

    async def _second(self) -> None:
        """Be the second task, which has its first turn when the first one waits: all others begin with it, if something is left to do."""
        others = min(self._tasks - 2, max(len(self._waiting) - 1, 0))
        for _ in range(self._tasks - 2 - others):
            self._ended()
        for _ in range(others):
            self.begin(self._worker)
        await self._worker()

    async def _worker(self) -> None:
        waiting = self._waiting
        while waiting:
            number = waiting.popleft()
            where = f"task {number + 1} of {self._total}"
            try:
                await awaited(self._work(number), where)
            except anyio.get_cancelled_exc_class() as cancelled:
                leaked = leak_of_task(cancelled, where)
                if leaked is None:
                    raise
                self._fail(leaked)
                return
            except BaseException as error:  # noqa: BLE001  raised again by `together`, outside the group
                self._fail(error)
                return
            if waiting and _is_changed(self._context):
                self.begin(self._worker)
                self.returned += 1
                return
        self.returned += 1
        self._ended()

    def _fail(self, error: BaseException) -> None:
        self.failed.append(error)
        self._group.cancel_scope.cancel()


def _is_changed(before: Context) -> bool:
    """Return whether the current task has other context variables than before, or is to be cancelled."""
    now = copy_context()
    if len(now) != len(before) or any(before.get(variable, before) is not value for variable, value in now.items()):
        return True
    return is_cancelled()


def _nothing() -> None:
    """Nobody counts the tasks."""
