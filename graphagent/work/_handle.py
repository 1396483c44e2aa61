"""A run that others execute, from the side of the program that submitted it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

import anyio

from graphagent._options import check_number, check_text, check_whole
from graphagent.errors import RunClaimedError
from graphagent.history._following import Following
from graphagent.history._fork import Fork, fork_for_workers
from graphagent.log._asked import ask
from graphagent.log._changes import Changes
from graphagent.log._segments import read_header, read_written
from graphagent.log._submitted import DEFAULT
from graphagent.run._ending import end_here
from graphagent.run._people import NO_ANSWER
from graphagent.run._requeueing import answer_stored, resume_stored
from graphagent.run._submitting import read_any
from graphagent.work._dispatch import tell, tell_next

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
        store = self._config.runs
        changes = Changes(store, self._owner, self._run_id, "header")
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
        config, owner, run_id = self._config, self._owner, self._run_id
        thread = (await read_header(config.runs, owner, run_id))[0].thread
        while True:
            await ask(config.runs, owner, run_id, reason, ends=True)
            try:
                ended = await end_here(config, owner, run_id, reason)
            except RunClaimedError:
                continue  # another worker has it now
            await tell_next(config.runs, owner, thread, config.dispatcher)
            result: RunResult[O] = ended.result
            return result

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
        await ask(self._config.runs, self._owner, self._run_id, reason, ends=False)
        return await self.result()

    def __repr__(self) -> str:
        return f"<handle of run {self._run_id!r}>"
