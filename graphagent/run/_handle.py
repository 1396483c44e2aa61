"""A run of an agent, as users have it: it is executed, stepped through, paused, answered."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar, Generic, TypeVar

from graphagent import _clock
from graphagent._dispatch import by_type, listener
from graphagent._options import check_budgets, cost_limit
from graphagent._raised import awaited
from graphagent.errors import RunError
from graphagent.run._after import look_back
from graphagent.run._answering import execute_until_accepted
from graphagent.run._beginning import begin_or_resume
from graphagent.run._config import Budgets
from graphagent.run._deps import make_deps
from graphagent.run._ending import end, fail, is_idle, stop, suspend, write_end
from graphagent.run._final_errors import Suspend
from graphagent.run._middleware import around_run
from graphagent.run._people import NO_ANSWER, Asking, checked_answers
from graphagent.run._session import with_heartbeat
from graphagent.run._sites import check_prices, sites, with_sub_agents

if TYPE_CHECKING:
    from decimal import Decimal

    from graphagent.events import Event
    from graphagent.log._header import Status
    from graphagent.memory.steps._types import Step
    from graphagent.memory.transcript._memory import RunMemory
    from graphagent.run._agent_run import AgentRun
    from graphagent.run._questions import Question
    from graphagent.run._result import RunResult

E = TypeVar("E", bound="Event")
O = TypeVar("O", covariant=True)


class Run(Generic[O]):
    """One run of an agent. `agent.start(…)` returns one that has not begun, `agent.read(run_id)` one from the store.

    It is executed by whoever has it, and has its state in memory; a `RunHandle` executes nothing, and reads the store for each answer.

    ```text
    run = agent.start("What is new?")
    while (step := await run.step()) is not None:
        …
    print(run.output)
    ```
    """

    __graphagent_run__: ClassVar[bool] = True  # how a callback's parameter is recognised without importing this module

    __slots__ = ("__weakref__", "_run", "_stopped")

    def __init__(self, run: AgentRun) -> None:
        self._run = run
        self._stopped = False

    @property
    def run_id(self) -> str:
        """The id of the run."""
        return self._run.run_id

    @property
    def owner(self) -> str:
        """The user or tenant of the run, or an empty string."""
        return self._run.owner

    @property
    def memory(self) -> RunMemory:
        """The transcript; in a callback for a step of a branch, that of the branch. Edit it between steps, or in a step callback."""
        return self._run.shown_memory

    @property
    def speakers(self) -> Mapping[str, str]:
        """The ids of the runs whose text is a part of the answer: its own, and those of agents as nodes, with their paths."""
        return self._run.session.speakers

    @property
    def result(self) -> RunResult[O]:
        """The output, usage and ledger of the run, so far."""
        return self._run.result

    @property
    def status(self) -> Status:
        """The status of the run."""
        return self.result.status

    @property
    def done(self) -> bool:
        """Whether the run reached END."""
        return self._run.done

    @property
    def output(self) -> O:
        """The output of the run; None where it was ended before it reached END.

        Raises:
            RunError: the run has not reached END.
        """
        return self.result.output

    @property
    def questions(self) -> tuple[Question, ...]:
        """The open questions."""
        return self._run.questions

    def replay(self, *, detailed: bool = False) -> None:
        """Print what happened, step by step; `detailed` adds what the model was sent."""
        self.result.replay(detailed=detailed)

    # ---- executing

    async def step(self) -> Step | None:
        """Execute the run until its next step, and return the step. Return None if the run ended, waits, sleeps or is paused.

        A fork is executed to its end, and the steps of its branches are returned one by one. No task outlives the call. Called
        again after it returned None, it continues a run that was paused, or that was answered.

        Raises:
            RunError: see `finish`.
        """
        run = self._run
        handed = run.session.handed if run.parent is None else []
        if not (handed or self._stopped or self.done):
            await self._continue(stepping=True)
        if handed:
            return handed.pop(0)
        self._stopped = False
        return None

    async def finish(self) -> RunResult[O]:
        """Execute the run until it ends, waits, sleeps or is paused, and return its result.

        One that sleeps is executed again once the time has come. Until then it returns the same at once.

        Raises:
            NodeFailedError: a node raised an exception, which is the cause.
            NoPathError: no edge accepts the output of a node.
            BudgetError: a budget is used up; `.result` is what was done so far.
            RunClaimedError: another process or task executes the run.
            RunEndedError: the run was ended before it reached END.
            StoreError: an entry could not be stored. The run can be resumed.
        """
        run = self._run
        if run.parent is None:
            run.session.handed.clear()
        if not run.done:
            await self._continue(stepping=False)
        elif run.log.stale is not None:
            await run.log.recover()
            await write_end(run)
        if run.done and not run.looked_back and run.parent is None:
            run.session.unlearned = run.log.header.unlearned
            await look_back(run)  # the process in which it ended may have died before that
        self._stopped = False
        return self.result

    async def _continue(self, *, stepping: bool) -> None:
        run, session = self._run, self._run.session
        run.check_continues()
        if run.since is not None:
            raise run.of_run(RunError(f"run {run.run_id!r} is being executed already; await that"))
        if not session.answers and (session.idle or run.log.state.status == "sleeping") and await is_idle(run):
            return
        run.since, run.at_rest = _clock.ticks(), None
        session.tasks.begin()
        try:
            await awaited(_execute(run, stepping=stepping), f"run {run.run_id!r}")
        except Suspend:
            self._stopped = await suspend(run)
        except BaseException as error:
            if session.claimed:
                await fail(run, error)
            raise
        finally:
            run.before = run.elapsed
            if not run.log.durable:
                run.log.state.ran = round(run.before * 1000)
            run.since, session.stepping = None, False
            session.loop = None  # it may be continued in another kind of event loop

    def pause(self, reason: str = "") -> None:
        """Stop the run before its next effect or node, or while it sleeps; it can be continued. Callbacks may call it too."""
        self._run.session.pause(reason)

    def set_budgets(
        self, *, max_nodes: int | None = None, max_turns: int | None = None, max_tokens: int | None = None,
        max_cost: Decimal | str | float | None = None, max_seconds: float | None = None,
    ) -> None:  # fmt: skip
        """Replace the budgets that are not None.

        Raises:
            ValueError: one is none.
            UnpricedModelError: there is a `max_cost`, and a model does not say what its answers cost.
        """
        max_cost = cost_limit(max_cost)
        check_budgets(
            max_nodes=max_nodes, max_turns=max_turns, max_tokens=max_tokens, max_cost=max_cost, max_seconds=max_seconds
        )
        run, config, limits = self._run, self._run.config, self._run.limits
        if max_cost is not None:
            budgets = replace(config.budgets, max_cost=max_cost)
            check_prices(with_sub_agents(sites(config.strategy, config.tools, model=config.model, budgets=budgets)))
        limits.replace(Budgets(max_nodes, max_turns, max_tokens, max_cost))
        run.max_seconds = run.max_seconds if max_seconds is None else max_seconds

    def on(self, event: type[E], handler: Callable[[E], None], /, *, all_text: bool = False) -> None:
        """Call a handler for each event of a type in this run alone; otherwise as `agent.on`."""
        run = self._run
        run.handlers = by_type([listener(event, handler, "run.on", all_text=all_text)], run.handlers)
        run.session.attention = True  # whoever executes nodes looks who listens to them

    def answer(
        self,
        answer: object = NO_ANSWER,
        /,
        *,
        answers: Mapping[str, object] | None = None,
        results: Mapping[str, object] | None = None,
    ) -> None:
        """Answer the open question, or several questions by id. The run continues with `finish` or `step`.

        Args:
            answer: The answer to the only open question.
            answers: Answers to several, by their ids. `Deny(reason)` declines whatever is asked.
            results: Results of deferred tool calls, by the ids of the calls; `ToolError(reason)` for one that failed.

        Raises:
            AnswerError: an answer does not fit its question. None of the answers is recorded.
        """
        self._run.check_continues()
        self._run.session.answers.update(checked_answers(Asking.of(self._run), answer, answers, results))

    async def aclose(self) -> None:
        """Release the run, so that another process can continue it. A run that ended, waits, sleeps or is paused has been released."""
        if self._run.session.claimed and self._run.log.durable:
            await stop(self._run, "paused", "released")

    async def __aenter__(self) -> Run[O]:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    def _repr_html_(self) -> str:
        return self.result._repr_html_()  # pyright: ignore[reportPrivateUsage]  the protocol of IPython

    def __repr__(self) -> str:
        return f"<run {self.run_id!r}: {self.status}>"


async def _execute(run: AgentRun, *, stepping: bool) -> None:
    if run.config.make_deps is not None:
        await make_deps(run)
    if not run.session.claimed:
        await begin_or_resume(run)
    run.session.stepping = stepping
    if run.plan.around_run:
        await around_run(run, lambda: _execute_to_end(run))
    else:
        await _execute_to_end(run)


async def _execute_to_end(run: AgentRun) -> None:
    step = await (
        with_heartbeat(run, lambda: execute_until_accepted(run)) if run.log.durable else execute_until_accepted(run)
    )
    await end(run, step)
