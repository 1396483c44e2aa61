"""One log in this process: who executes it, why it is to stop, what it asks, and the runs in it.

The state of a run is in its log. A session has the state that ends with the process: the claim, tasks and timers, answers that are not recorded
yet. The log of a session has the run of an agent, and the runs of sub-agents inside of it: each is an `AgentRun`.

While a run is executed, a heartbeat renews its claim, and ends the execution of a run that lost it.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import anyio
from anyio import sleep
from anyio.lowlevel import current_token

from graphagent._raised import awaited, leak_of_task
from graphagent.errors import LeakedCancellationError, RunClaimedError, RunNotFoundError
from graphagent.log._asked import read_asked
from graphagent.log._claim import LEASE
from graphagent.log._visits import UNSET
from graphagent.run._agent_run import AgentRun
from graphagent.run._final_errors import Suspend
from graphagent.run._questions import answer_type, open_question
from graphagent.run._sleep import Tasks

if TYPE_CHECKING:
    from collections.abc import Sequence

    from anyio.abc import AsyncBackend, TaskGroup

    from graphagent.errors import RunError
    from graphagent.log._asked import Wish
    from graphagent.log._claim import Token
    from graphagent.log._header import RunHeader
    from graphagent.log._log import Log
    from graphagent.log._visits import Activation
    from graphagent.memory.steps._types import Step
    from graphagent.run._config import RunConfig
    from graphagent.run._questions import Question
    from graphagent.run._recorded import Recording
    from graphagent.store import Change

T = TypeVar("T")
_log = logging.getLogger("graphagent.run")

PAUSE = LEASE / 3 / 1000
"""Seconds between two renewals."""
LOOK = 1.0
"""Seconds between two looks for what others ask of the run."""


class Queued(NamedTuple):
    """A run that was submitted, as the store has it."""

    header: RunHeader
    version: int
    """The version of the header."""
    changes: Sequence[Change]
    """The changes that are committed with its beginning."""


class Beginning:
    """A run that has not begun to be executed."""

    named = False
    """Whether its id was given, so that the store may have something under it."""
    ends_busy = False
    """Whether the last run of its thread is ended if it is not over."""
    earlier: AgentRun | None = None
    """The stored run whose transcript was put before the task."""
    queued: Queued | None = None
    """What the store has of it, if it was submitted."""
    read: Sequence[tuple[Step, int]] = ()
    """The steps that users had read when the last attempt began, with their places."""

    def __init__(self, log: Log) -> None:
        self.log = log
        """The log in memory with the beginning. A run in a store continues earlier ones in another log, which it has from its first commit on."""


class Session:
    """One log in this process, and the run of the agent whose log it is."""

    # Most logs never have these: as class attributes they cost nothing for each run.
    loop: type[AsyncBackend] | None = None
    """The backend, once it was asked for."""
    failure: RunError | None = None
    """The error of a callback, which is raised where nothing is lost."""
    pausing: str | None = None
    """Why the run is to pause."""
    stepping = False
    """Whether the run stops after each node that added a step."""
    claimed = False
    """Whether this process executes the run, in a store or in none."""
    idle = False
    """Whether the run waits for answers, and there is nothing to execute without one."""
    token: Token | None = None
    """What keeps the claim of this process: the claim ends when nothing refers to the token any more."""
    unlearned: tuple[str, ...] = ()
    """Who had failed to learn from the run when it was resumed, as the log names them."""
    thread: str = ""
    """The id of the thread to which the run belongs; empty if there is none."""
    recorded: Recording | None = None
    """What another run did, which this one does again: it takes the recorded outcomes."""
    by_worker = False
    """Whether a worker executes the run here."""
    most_deaths: int | None = None
    """After how many deaths of processes, one after the other, the run fails; None: it does not fail for that."""
    wish: Wish | None = None
    """What another process has asked for."""
    leaving = False
    """Whether the run is left to another process when it pauses."""
    beginning: Beginning | None = None
    """The run as it is to begin; None once it has begun."""

    def __init__(self, config: RunConfig, log: Log, *, run_id: str, owner: str) -> None:
        self.log = log
        self.run_id, self.owner = run_id, owner
        self.attention = False
        """Whether something is to be done before the next node: steps were added, or the run is to stop."""
        self.handed: list[Step] = []
        """The steps that `step` returns next."""
        self.asked: dict[str, Question] = {}
        """The open questions with the types of their answers, as far as a node of this process asked them."""
        self.answers: dict[str, object] = {}
        """The answers that are given when the run is resumed."""
        self.items: dict[int, tuple[Any, list[Any]]] = {}
        """The items of forks whose input can be iterated only once, by the ids of the frames."""
        self.children: dict[str, AgentRun] = {}
        """The runs of sub-agents that this process has begun or read, by their ids."""
        self.tasks = Tasks(self)
        self.speakers: dict[str, str] = {run_id: ""}
        """The ids of the runs whose text is a part of the answer: that of the log, and those of agents as nodes, with the paths of their
        frames."""
        self.run = AgentRun(config, self, log.state.root, run_id=run_id)
        """The run of the agent whose log it is."""

    def use(self, log: Log, read: Sequence[tuple[Step, int]], later: int = 0) -> None:
        """Go to another log before the run begins. Steps that users have read stay objects of the same steps, so many places later."""
        run, transcript = self.run, log.state.root.transcript
        self.log = run.log = log
        run.frame = run.limits.frame = log.state.root
        run.activation = log.state.run
        run.memory.adopt([(step, transcript.items[place + later]) for step, place in read], transcript)

    @property
    def backend(self) -> type[AsyncBackend]:
        """The part of anyio for the kind of event loop that executes the run."""
        if self.loop is None:
            self.loop = current_token().backend_class
        return self.loop

    # ---- stopping

    @property
    def is_left(self) -> bool:
        """Whether the run is left to the next worker when it cannot go on here: it was submitted, or a worker executes it."""
        return self.by_worker or bool(self.log.header.queue)

    @property
    def stops_soon(self) -> bool:
        """Whether the run is to stop after this node."""
        return self.stepping or self.pausing is not None or self.failure is not None

    def fail(self, error: RunError) -> None:
        """End the run before the next node or live call, when the step is in the transcript."""
        self.failure = self.failure or error
        self.attention = True

    def stop_if_due(self) -> None:
        """Stop here, before something live is done, if the run is to stop.

        Raises:
            Suspend: it is to pause.
            RunError: a callback refused a step, or raised.
        """
        if self.failure is not None:
            failure, self.failure = self.failure, None
            raise failure
        if self.pausing is not None:
            raise Suspend

    def pause(self, reason: str) -> None:
        """Stop the run before its next effect or node, or while it sleeps."""
        self.pausing = self.pausing or reason or "paused"
        self.attention = True
        self.tasks.wake()

    # ---- runs of agents

    def id_of(self, agent: Activation) -> str:
        """Return the id of the run of an agent."""
        return self.run_id if agent.parent is None else f"{self.run_id}/{agent.path}"

    def run_of(self, agent: Activation) -> AgentRun | None:
        """Return the run of an agent; None if the agent is not known any more."""
        if agent.parent is None:
            return self.run
        around = self.run_of(agent.parent)
        return None if around is None else around.child(agent)

    # ---- questions

    @property
    def questions(self) -> tuple[Question, ...]:
        """The open questions."""
        return tuple(map(self.question, self.log.state.questions))

    def question(self, id_: str) -> Question:
        """Return an open question, with the type of its answer."""
        found = self.asked.get(id_)
        if found is not None:
            return found
        stored = self.log.state.questions[id_]
        frame = self.log.state.frames[stored.at]
        run = self.run_of(frame.agent)
        node = None if run is None else run.config.find(run.node_of(frame))
        element = None if node is None else node.element
        given = Any
        if run is not None:
            given = (
                getattr(element, "input_type", Any) if frame.visit.input is UNSET else run.kind_of(frame.visit.source)
            )
        found = self.asked[id_] = open_question(self.log, self.run_id, stored, answer_type(element), given)
        return found


async def with_heartbeat(run: AgentRun, execute: Callable[[], Awaitable[T]]) -> T:
    """Execute a run, and meanwhile renew its claim, or wait for the end of one that is renewed for all runs of the process.

    Raises:
        RunClaimedError: somebody else has continued the run. What was being executed is cancelled.
        RunNotFoundError: the run was removed. What was being executed is cancelled.
    """
    given: list[T] = []
    lost: list[Exception] = []
    failed: list[BaseException] = []
    # The scope of the group would cancel this task too, and asyncio would not take that back where a node has caught a cancellation.
    renewing = anyio.CancelScope()

    async def renew() -> None:
        try:
            with renewing:
                while True:
                    try:
                        if run.log.lease is not None:
                            await run.log.lease.over()
                            raise await run.log.claim_error()
                        await sleep(PAUSE)
                        await _renew(run.log)
                    except anyio.get_cancelled_exc_class() as cancelled:
                        if leak_of_task(cancelled, "the heartbeat") is None:
                            raise
            return
        except (RunClaimedError, RunNotFoundError) as error:
            error.run_id = run.run_id
            lost.append(error)
            run.log.lost = True
        except KeyboardInterrupt as error:  # trio raises it in whichever task is running
            failed.append(error)
        group.cancel_scope.cancel()

    listening = anyio.CancelScope()
    async with anyio.create_task_group() as group:
        group.start_soon(renew)
        if run.session.claimed and run.log.header.queue:
            group.start_soon(_listen, run, listening, failed, group)
        try:
            given.append(await awaited(execute(), f"run {run.run_id!r}"))
        except anyio.get_cancelled_exc_class():
            raise
        except BaseException as error:  # noqa: BLE001  raised again below, outside the group
            failed.append(error)
        renewing.cancel()
        listening.cancel()
    if lost:
        raise lost.pop()
    if failed:
        failed.sort(key=lambda error: isinstance(error, Exception))  # an interruption first
        raise failed.pop(0)  # nothing here keeps it, or it would be in a circle with its own traceback
    if not given:  # the task of the heartbeat was cancelled before it began, and took the group with it
        raise LeakedCancellationError("the heartbeat")
    return given[0]


async def _renew(log: Log) -> None:
    try:
        await awaited(log.renew(), "the store")
    except (RunClaimedError, RunNotFoundError):
        raise
    except Exception as error:  # noqa: BLE001  whatever a store raises: the next renewal may succeed, and the next entry tells
        _log.warning(
            "the claim of run %r could not be renewed: %s",
            log.header.run_id,
            type(error).__name__,
            extra={"run_id": log.header.run_id, "error_type": type(error).__name__},
        )


async def _listen(run: AgentRun, scope: anyio.CancelScope, failed: list[BaseException], group: TaskGroup) -> None:
    """Look for what others ask of a run that was submitted, and have it pause for that."""
    try:
        with scope:
            await _hear(run)
    except KeyboardInterrupt as error:  # as above
        failed.append(error)
        group.cancel_scope.cancel()


async def _hear(run: AgentRun) -> None:
    store = run.config.runs
    while run.session.wish is None:
        try:
            await sleep(LOOK)
            run.session.wish = await awaited(read_asked(store, run.log.header), "the store")
        except anyio.get_cancelled_exc_class() as cancelled:
            if leak_of_task(cancelled, "the heartbeat") is None:
                raise
        except Exception as error:  # noqa: BLE001  whatever a store raises: who asked waits, and the next look may succeed
            _log.warning(
                "the requests for run %r could not be read: %s",
                run.run_id,
                type(error).__name__,
                extra={"run_id": run.run_id, "error_type": type(error).__name__},
            )
    run.session.pause(run.session.wish.reason)
