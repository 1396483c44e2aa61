"""A worker: it executes the runs that are due of those agents that it has, until it is told to stop."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Self

import anyio

from graphagent._article import kind_of
from graphagent._options import check_limit, check_number, check_path, check_text
from graphagent._raised import ungrouped
from graphagent.errors import StoreError, StoreUnavailableError
from graphagent.log._header import ROOM
from graphagent.store._claims import claims_of
from graphagent.work._backlog import Backlog, Found, Name
from graphagent.work._dispatch import dispatcher_of
from graphagent.work._execute import DEATHS, Outcome, can_execute, execute, leave_soon
from graphagent.work._finding import Finder, told
from graphagent.work._limits import Limits
from graphagent.work._retention import remove_expired

if TYPE_CHECKING:
    from types import TracebackType

    from anyio.abc import TaskGroup

    from graphagent._agent import Agent
    from graphagent.protocols import Store
    from graphagent.run._agent_run import AgentRun
    from graphagent.work._schedules import Schedule

_log = logging.getLogger("graphagent.work")
_BETWEEN_REMOVALS = 60.0
"""Seconds between two looks for runs whose time to be kept has passed: a file of SQLite is rewritten for them, once for all of them."""
_FAILED, _LONGEST = 5.0, 30.0
"""Seconds for which a store that failed, and its runs, are left alone, at most; and a run that cannot be executed here."""


class Worker:
    """Executes the runs of some agents that were submitted, and goes on with those whose time has come, or whose worker has died.

    Any number of workers, in any number of processes and on any number of machines, may have one store, which decides who executes a
    run. A run of which no agent is here is left to a worker that has it. While the store fails, nothing is begun, and no run fails.

    ```text
    async with Worker(agent):
        handle = await agent.submit("Pay Ada.")
        print((await handle.wait()).output)
    ```

    Args:
        agents: An agent, or several, with one store. Runs are theirs by the names of their strategies.
        schedules: When to begin runs, of these agents or others.
        concurrency: How many runs it executes at once.
        queues: The queues from which it takes runs; by default all. Runs that were not submitted, such as one that sleeps, are in none, and
            is taken by every worker.
        limits: How many runs of a queue are executed at once, by the names of queues. In a store with claims of its own, such as a
            PostgresStore, these are all that workers with this limit execute; in others, those of this worker.
        limit_per_owner: How many runs of an owner are executed at once; counted in the same way.
        sweep: Seconds, more or less, between two looks into the store for runs that are due.
        max_deaths: After how many deaths of processes that executed it, one after the other, a run fails; None: it never does.
        health_file: A file that is touched after each look that succeeded, and removed when the worker ends: if it is older than a minute,
            the worker does not work.

    Raises:
        ValueError: the agents have no store, or several, or an option is out of range.
        TypeError: an argument is not of its type.
    """

    def __init__(
        self,
        agents: Agent[Any, Any] | Iterable[Agent[Any, Any]],
        *,
        schedules: Iterable[Schedule] = (),
        concurrency: int = 10,
        queues: Collection[str] | None = None,
        limits: Mapping[str, int] | None = None,
        limit_per_owner: int | None = None,
        sweep: float = 1.0,
        max_deaths: int | None = DEATHS,
        health_file: str | os.PathLike[str] | None = None,
    ) -> None:
        self.schedules: tuple[Schedule, ...] = tuple(schedules)
        """When it begins runs."""
        given = list(agents) if isinstance(agents, Iterable) else [agents]
        given += [each.agent for each in self.schedules]
        _check(given, queues, {"concurrency": concurrency, "limit_per_owner": limit_per_owner, **(limits or {})})
        _check_schedules(self.schedules)
        check_number("sweep", sweep)
        if health_file is not None:
            check_path("health_file=", health_file, "'/tmp/worker'")
        self.agents: tuple[Agent[Any, Any], ...] = tuple({id(each): each for each in given}.values())
        """Whose runs it executes."""
        self._able: list[Agent[Any, Any]] = []
        """The agents that need no deps, or make them."""
        self.concurrency = concurrency
        """How many runs it executes at once."""
        store: Any = given[0].store
        self.store: Store = store
        """Where the runs are."""
        self._queues, self._max_deaths, self._sweep = queues, max_deaths, sweep
        self._health = None if health_file is None else anyio.Path(health_file)
        self._limits = Limits(self.store, limits or {}, limit_per_owner)
        self._backlog = Backlog(shared=claims_of(self.store) is not None)
        self._busy: dict[Name, AgentRun | None] = {}
        """The runs that are executed; None before they have begun."""
        self._seeking: anyio.CancelScope | None = None
        self._stopping = False
        self._told: set[Name] = set()
        """The runs of which it was said that they wait for another version."""
        self._removes_next = 0.0
        """When runs are looked for whose time to be kept has passed, by the monotonic clock."""
        self._group: TaskGroup | None = None

    async def run(self) -> None:
        """Work until `stop` is called, or until it is cancelled. A server that cannot be reached when the work begins is waited for.

        Raises:
            RuntimeError: it works already.
            StoreError: the store cannot be opened when the work begins, since its DSN or its key is not right, for example.
        """
        if self._seeking is not None:
            raise RuntimeError("this worker works already; make another one")
        self._able = [agent for agent in self.agents if can_execute(agent)]
        for agent in self.agents:
            if agent not in self._able:
                _log.warning(
                    "runs of strategy %r are left alone: its nodes or tools take deps, and the agent has no deps_factory=",
                    agent.strategy.name,
                )
        try:
            with anyio.CancelScope() as self._seeking:
                if not self._stopping:
                    await self._reach_store()
            strategies = {agent.strategy.name for agent in self._able}
            finder = Finder(
                self.store, self._backlog, dispatcher_of(self.store, self.agents[0].dispatcher), queues=self._queues,
                strategies=strategies, pause=self._sweep, is_free=self._is_free, looked=self._looked,
            )  # fmt: skip
            async with anyio.create_task_group() as runs:
                with anyio.CancelScope() as self._seeking:
                    if self._stopping:
                        return
                    async with anyio.create_task_group() as seekers:
                        seekers.start_soon(finder.look_around)
                        seekers.start_soon(finder.listen)
                        await self._feed(runs, finder)
        finally:
            self._seeking, self._stopping = None, False
            if self._health is not None:
                with anyio.CancelScope(shield=True), suppress(OSError):
                    await self._health.unlink()

    async def _reach_store(self) -> None:
        """Wait for as long as the server of the store cannot be reached.

        Raises:
            StoreError: the store cannot be opened, and waiting is of no use.
        """
        pause = self._sweep
        while True:
            try:
                await self.store.get((ROOM,))  # an item that does not exist
            except StoreUnavailableError as error:
                _log.warning("the store is waited for: %s", error)
            else:
                return
            await anyio.sleep(pause)
            pause = min(max(pause, 0.05) * 2, _FAILED)

    def stop(self) -> None:
        """Begin nothing more, and have the runs stop before their next effect or node; other workers go on with them.

        `run` returns once they have stopped. Call it in the event loop of the worker.
        """
        self._stopping = True
        for run in self._busy.values():
            if run is not None:
                leave_soon(run)
        if self._seeking is not None:
            self._seeking.cancel()

    async def __aenter__(self) -> Self:
        self._group = anyio.create_task_group()
        await self._group.__aenter__()
        self._group.start_soon(self.run)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        group, self._group = self._group, None
        assert group is not None
        self.stop()
        with ungrouped():
            return await group.__aexit__(kind, error, trace)

    def __repr__(self) -> str:
        return f"<worker of {', '.join(sorted({each.strategy.name for each in self.agents}))}: {len(self._busy)} of {self.concurrency} runs>"

    # ---- choosing

    def _is_free(self) -> bool:
        return len(self._busy) < self.concurrency and self._backlog.next(self._may) is None

    def _may(self, found: Found) -> bool:
        return found.name not in self._busy and not self._limits.are_full(found.queue, found.name[0])

    async def _feed(self, runs: TaskGroup, finder: Finder) -> None:
        while True:
            found = self._backlog.next(self._may) if len(self._busy) < self.concurrency else None
            if found is None:
                await self._backlog.change()
                continue
            self._backlog.remove(found)
            self._busy[found.name] = None
            self._limits.begin(found.queue, found.name[0])
            if len(self._busy) == self.concurrency:
                finder.hear_no_more()
            runs.start_soon(self._execute, found, finder)

    async def _looked(self, now: int) -> None:
        moment = datetime.fromtimestamp(now / 1000, UTC)
        for each in self.schedules:
            try:
                await each.begin_due(self.store, moment, _submit)
            except Exception as error:  # noqa: BLE001  one that begins nothing is in the way of no run
                _log.warning(
                    "schedule %r begins nothing: %s",
                    each.name,
                    told(error),
                    extra={"schedule": each.name, "error_type": type(error).__name__},
                )
        if time.monotonic() >= self._removes_next:
            self._removes_next = time.monotonic() + _BETWEEN_REMOVALS
            if await remove_expired(self.store, {agent.strategy.name for agent in self.agents}, now):
                self._removes_next = 0.0  # there may be more, at the next look: none waits for the removal of all
        if self._health is not None:
            try:
                await self._health.touch()
            except OSError as error:
                _log.warning("the health file cannot be touched: %s", error)

    # ---- executing

    async def _execute(self, found: Found, finder: Finder) -> None:
        try:
            places = await self._limits.enter(found.queue, found.name[0])
            if places is None:
                self._backlog.put_off(found.name, self._sweep, self._sweep)
                return
            try:
                outcome = await self._executed(found)
            finally:
                with anyio.CancelScope(shield=True):
                    await places.aclose()
            self._judge(found, outcome)
            if isinstance(outcome.error, StoreError):
                finder.look_now()  # if that fails, too, no other run is begun
            if outcome.did == "missing":
                finder.forget(found.name)
            if outcome.following and not self._stopping:
                await finder.word_of(found.name[0], outcome.following)
        except Exception as error:  # noqa: BLE001  a worker outlives whatever one run raises
            self._backlog.put_off(found.name, self._sweep, _LONGEST)
            _log.warning(
                "run %r is left for a while: %s",
                found.name[1],
                told(error),
                extra={"run_id": found.name[1], "error_type": type(error).__name__},
            )
        finally:
            self._busy.pop(found.name, None)
            self._limits.end(found.queue, found.name[0])
            self._backlog.changed()

    async def _executed(self, found: Found) -> Outcome:
        outcome = Outcome("changed")
        for agent in self._able:
            if agent.strategy.name == found.strategy:
                began = partial(self._began, found.name)
                outcome = await execute(agent, *found.name, most_deaths=self._max_deaths, began=began)
                if outcome.did != "changed":
                    break
        if outcome.error is not None and outcome.did == "changed" and found.name not in self._told:
            self._told.add(found.name)
            _log.warning(
                "run %r waits for a worker that has its version: %s",
                found.name[1],
                outcome.error,
                extra={"run_id": found.name[1]},
            )
        return outcome

    def _began(self, name: Name, run: AgentRun) -> None:
        self._busy[name] = run
        if self._stopping:
            leave_soon(run)

    def _judge(self, found: Found, outcome: Outcome) -> None:
        """Leave a run alone for as long as it makes no sense to look at it again."""
        if outcome.did == "executed":
            self._backlog.hurry(found.name)
        elif outcome.did == "claimed" and claims_of(self.store) is not None:
            self._backlog.claimed.add(found.name)
        elif outcome.did in ("changed", "resting"):
            self._backlog.put_off(found.name, self._sweep, _LONGEST)
        elif outcome.did == "left":
            self._backlog.put_off(found.name, self._sweep, _FAILED)
        else:
            self._backlog.put_off(found.name, self._sweep, self._sweep)


async def _submit(schedule: Schedule, time: datetime) -> None:
    await schedule.agent.submit(schedule.task(time), run_id=schedule.run_id(time), **schedule.options)


def _check(agents: list[Agent[Any, Any]], queues: Collection[str] | None, limits: Mapping[str, int | None]) -> None:
    """Check the arguments of a worker.

    Raises:
        ValueError, TypeError: it is not valid.
    """
    for agent in agents:
        if not hasattr(agent, "strategy"):
            raise TypeError(f"a worker has agents, not {kind_of(agent)}; write Worker([agent, …])")
    stores = {id(agent.store) for agent in agents if agent.store is not None}
    if len(stores) != 1 or any(agent.store is None for agent in agents):
        raise ValueError(
            f"a worker has agents with one store, and these have {len(stores) or 'none'}; pass the same object to each of them: "
            "Agent(…, store=store)"
        )
    if len({id(agent.dispatcher) for agent in agents}) != 1:
        raise ValueError("the agents of a worker have one dispatcher; pass the same object to each of them")
    if isinstance(queues, str) or (queues is not None and not queues):
        raise ValueError(
            f"queues={queues!r} is not a list of names; write queues=['mail'], or leave it out for all queues"
        )
    for queue in queues or ():
        check_text("queues=", queue)
    for name, most in limits.items():
        if most is not None:
            check_limit(name, most)


def _check_schedules(schedules: Iterable[Schedule]) -> None:
    names = [each.name for each in schedules]
    for name in names:
        if names.count(name) > 1:
            raise ValueError(f"two schedules are called {name!r}; give each a name=")
