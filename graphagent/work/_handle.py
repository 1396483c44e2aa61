"""A run that others execute, from the side of the program that submitted it."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Generic, TypeVar

import anyio

from graphagent._options import check_number, check_text, check_whole
from graphagent.errors import RunClaimedError, RunNotFoundError, StoreError
from graphagent.history._following import Following
from graphagent.history._fork import Fork, fork_for_workers
from graphagent.log._asked import ask, asked_key
from graphagent.log._changes import Changes
from graphagent.log._header import time_of
from graphagent.log._segments import read_header, read_written
from graphagent.log._submitted import DEFAULT, first_in_line
from graphagent.run._ending import end_here
from graphagent.run._people import NO_ANSWER
from graphagent.run._requeueing import answer_stored, resume_stored
from graphagent.run._submitting import read_any
from graphagent.store import Delete
from graphagent.work._dispatch import tell

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping

    from graphagent.history import Entry, Snapshot
    from graphagent.log._header import Status
    from graphagent.run import RunResult
    from graphagent.run._config import RunConfig

O = TypeVar("O", covariant=True)
_MOVING: tuple[Status, ...] = ("queued", "running", "sleeping", "interrupted")
"""Where a run goes on by itself, in a worker."""


class RunHandle(Generic[O]):
    """A run in the store that others execute: `agent.submit(…)` and `agent.handle(run_id)` return one.

    Each method reads the store, so it works in any process, and returns the state in the store. A `Run` executes one, with its state in
    memory.
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
        store, changes = self._config.runs, self._changes()
        with anyio.move_on_after(timeout):
            while True:
                header, _ = await read_written(store, self._owner, self._run_id)
                if header.status not in _MOVING and (result := await self.result()).status not in _MOVING:
                    return result  # else another process went on with it meanwhile
                await changes.next()
        raise TimeoutError(
            f"run {self._run_id!r} is {await self.status()} after {timeout} seconds; it goes on without you"
        )

    def events(self, *, after: int = 0) -> AsyncIterator[Entry]:
        """Return the entries of the run, each when it is committed, until the run ends, waits or is paused.

        They are those of `agent.history`: `async for entry in handle.events(): …`. Nothing is executed here.

        Args:
            after: The number of the entry after which they begin: `entry.number` of the last one that was seen, to follow the
                run again. By default, with the first one.

        Raises:
            TypeError, ValueError: `after` is not a whole number from 0 on.
            RunNotFoundError: the run was removed.
            StoreError: the store cannot be read.
        """
        check_whole("after", after)
        if after < 0:
            raise ValueError(f"after={after} is not the number of an entry; give 0 or more")
        return Following(self._config, self._owner, self._run_id, _MOVING, after=after)

    async def answer(
        self,
        answer: object = NO_ANSWER,
        /,
        *,
        answers: Mapping[str, object] | None = None,
        results: Mapping[str, object] | None = None,
    ) -> None:
        """Answer the open question, or several by id, and have a worker continue the run.

        Args:
            answer: The answer to the only open question.
            answers: Answers to several, by their ids. `Deny(reason)` declines whatever is asked.
            results: Results of deferred tool calls, by the ids of the calls; `ToolError(reason)` for one that failed.

        Raises:
            AnswerError: an answer fits no open question, or not its type, or somebody else has answered it; nothing was written.
            RunClaimedError: a process executes the run.
            RunEndedError: the run was ended.
            StoreError: the store cannot be read or written.
        """
        config = self._config
        header = await answer_stored(config.runs, self._owner, self._run_id, answer, answers, results, config)
        await tell(config.runs, header, config.dispatcher)

    async def resume(self) -> None:
        """Have a worker continue the run, which was paused, failed, was cancelled, or whose process died. Nothing is done twice.

        A run that is over, waits for an answer, sleeps or is queued stays as it is.

        Raises:
            RunNotFoundError: it was removed.
            RunClaimedError: a process executes the run.
            RunEndedError: the run was ended.
            StoreError: the store cannot be read or written.
        """
        config = self._config
        await tell(config.runs, await resume_stored(config.runs, self._owner, self._run_id), config.dispatcher)

    async def fork(
        self,
        *,
        at: int | None = None,
        before: str | None = None,
        after: str | None = None,
        edit: Callable[[Snapshot], None] | None = None,
        run_id: str | None = None,
        allow_changed: bool = False,
    ) -> RunHandle[O]:
        """Make a new run that begins like this one, as `agent.fork` does, and have a worker continue it. Return its handle.

        Args:
            at, before, after, edit, run_id, allow_changed: As in `agent.fork`.

        Raises:
            RunNotFoundError: the run was removed.
            RunExistsError: a run with this `run_id` exists already.
            ValueError: not exactly one of `at`, `before` and `after` is passed, or the run has no such point.
            StrategyChangedError: the strategy has changed since.
            StoreError: the store cannot be read or written.
        """
        wanted = Fork(at, before, after, edit, run_id, allow_changed)
        header = await fork_for_workers(self._config, self._owner, self._run_id, wanted, DEFAULT)
        await tell(self._config.runs, header, self._config.dispatcher)
        return RunHandle(self._config, header.run_id, header.owner)

    async def end(self, reason: str = "") -> RunResult[O]:
        """End the run where it is, as `agent.end` does, also one that was not begun, or that a worker executes. Return its result.

        The worker ends it before its next effect or node, within some seconds; this waits for that.

        Args:
            reason: Why, for people. It is kept with the run.

        Raises:
            RunNotFoundError: the run was removed.
            RunClaimedError: a process executes the run that is not a worker.
            StoreError: the store cannot be read or written.
        """
        check_text("reason=", reason)
        thread = (await read_header(self._config.runs, self._owner, self._run_id))[0].thread
        while True:
            await self._asked(reason, ends=True)
            try:
                ended = await end_here(self._config, self._owner, self._run_id, reason)
            except RunClaimedError:
                continue  # another worker has it now
            if thread:
                await self._tell_next(thread)
            result: RunResult[O] = ended.result
            return result

    async def _tell_next(self, thread: str) -> None:
        """Bring word of the run of a thread that was held by this one. If that fails, workers find it in the store."""
        store = self._config.runs
        with suppress(StoreError, RunNotFoundError):
            following = await first_in_line(store, self._owner, thread, await time_of(store))
            if following:
                await tell(store, (await read_header(store, self._owner, following))[0], self._config.dispatcher)

    async def pause(self, reason: str = "") -> RunResult[O]:
        """Have a worker stop the run before its next effect or node, and return the result. `resume` continues it.

        A run that no worker executes stays as it is.

        Args:
            reason: Why, for people. It is kept with the run.

        Raises:
            RunNotFoundError: the run was removed.
            RunClaimedError: a process executes the run that is not a worker.
            StoreError: the store cannot be read or written.
        """
        check_text("reason=", reason)
        await self._asked(reason, ends=False)
        return await self.result()

    async def _asked(self, reason: str, *, ends: bool) -> None:
        """Ask the worker that executes the run to pause or end it, and wait until it executes it no more."""
        store, asked, changes = self._config.runs, "", self._changes()
        while (header := (await read_header(store, self._owner, self._run_id))[0]).running:
            if not header.queue:
                header.check_free()
            if header.claim is not None and header.claim.token != asked:
                asked = header.claim.token
                await ask(store, header, reason, ends=ends)
            await changes.next()
        if asked and await store.get(asked_key(self._owner, self._run_id)) is not None:
            await store.commit(Delete(asked_key(self._owner, self._run_id)))  # it came to rest before it looked

    def _changes(self) -> Changes:
        return Changes(self._config.runs, self._owner, self._run_id, "header")

    def __repr__(self) -> str:
        return f"<handle of run {self._run_id!r}>"
