"""A run, as users see it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from graphagent._dispatch import Listener, by_type
from graphagent.events import Event
from graphagent.run.engine._budgets import check_budgets

if TYPE_CHECKING:
    from decimal import Decimal

    from graphagent.memory import RunMemory, Step
    from graphagent.run._result import RunResult
    from graphagent.run.engine._driver import RunDriver
    from graphagent.run.state._questions import Question
    from graphagent.run.state._status import Status

O = TypeVar("O", covariant=True)
_NO_ANSWER: Any = object()


class Run(Generic[O]):
    """One run of an agent. `agent.start(…)` returns one that has not begun, `agent.read(run_id)` one from the store.

    ```text
    run = agent.start("What is new?")
    while (step := await run.step()) is not None:
        …
    print(run.output)
    ```
    """

    __graphagent_run__: ClassVar[bool] = True  # how a callback's parameter is recognised without importing this module
    __slots__ = ("__driver__",)

    def __init__(self, driver: RunDriver) -> None:
        self.__driver__ = driver

    # ---- its state

    @property
    def run_id(self) -> str:
        """The id of the run."""
        return self.__driver__.runtime.run_id

    @property
    def owner(self) -> str:
        """The user or tenant for whom it runs; empty where nobody was named."""
        return self.__driver__.runtime.owner

    @property
    def memory(self) -> RunMemory:
        """The transcript. Its steps may be changed while nothing is being executed, and by callbacks."""
        return self.__driver__.runtime.memory

    @property
    def result(self) -> RunResult[O]:
        """The result of the run, as far as it has come."""
        return self.__driver__.result

    @property
    def status(self) -> Status:
        """Where the run is."""
        return self.__driver__.status

    @property
    def done(self) -> bool:
        """Whether the run came to END."""
        return self.__driver__.done

    @property
    def output(self) -> O:
        """The value that arrived at END.

        Raises:
            RunError: the run did not come to END.
        """
        return self.result.output

    @property
    def questions(self) -> tuple[Question, ...]:
        """The open questions."""
        return tuple(self.__driver__.runtime.questions.values())

    @property
    def pending(self) -> Question | None:
        """The first open question."""
        return next(iter(self.questions), None)

    def replay(self, *, detailed: bool = False) -> None:
        """Print what happened, step by step; `detailed` adds what the model was sent."""
        self.result.replay(detailed=detailed)

    # ---- executing it

    async def step(self) -> Step | None:
        """Execute until the next step is in the transcript, and return it; None if the run has ended, waits or is paused.

        A fork is executed to its end, and the steps of its branches are returned one by one. No task outlives the call. Called
        again after it returned None, it continues a run that was paused, or that was answered.

        Raises:
            RunError: as `finish` does.
        """
        return await self.__driver__.step()

    async def finish(self) -> RunResult[O]:
        """Execute until the run has ended, waits for answers, or is paused; return its result.

        Raises:
            NodeFailedError: a node raised; the original exception is the cause.
            NoPathError: no edge takes the output of a node.
            BudgetError: a budget is used up; `.result` is what was done so far.
            RunClaimedError: another process, or another task, has the run.
            StoreError: an entry could not be stored; the run can be resumed.
        """
        return await self.__driver__.finish()

    def pause(self, reason: str = "") -> None:
        """Stop the run before the next node, model turn or tool call, or in `ctx.sleep_until`; it can be continued.

        Callbacks may call it too.
        """
        self.__driver__.runtime.pause(reason)

    def allow(
        self,
        *,
        max_nodes: int | None = None,
        max_turns: int | None = None,
        max_tokens: int | None = None,
        max_cost: Decimal | float | None = None,
        max_seconds: float | None = None,
    ) -> None:
        """Set the budgets of the whole run, after a BudgetError for example. Those that are left out stay as they are.

        Raises:
            ValueError: one is no budget, or `max_cost` has no prices to count with.
        """
        from graphagent.run._assembly import check_prices
        from graphagent.run._sites import sites, with_sub_agents

        check_budgets(
            max_nodes=max_nodes, max_turns=max_turns, max_tokens=max_tokens, max_cost=max_cost, max_seconds=max_seconds
        )
        driver = self.__driver__
        config, meter = driver.config, driver.runtime.meter
        if max_cost is not None:
            own = sites(config.strategy, config.tools, model=config.model, max_cost=max_cost)
            check_prices(with_sub_agents(own))
        meter.max_nodes = meter.max_nodes if max_nodes is None else max_nodes
        meter.max_turns = meter.max_turns if max_turns is None else max_turns
        meter.max_tokens = meter.max_tokens if max_tokens is None else max_tokens
        meter.max_cost = meter.max_cost if max_cost is None else max_cost
        driver.max_seconds = driver.max_seconds if max_seconds is None else max_seconds

    def listen(self, handler: Callable[[Event], None], /, *, all_text: bool = False) -> None:
        """Call a handler for each event of this run alone; else as `agent.on(Event, handler)`."""
        runtime = self.__driver__.runtime
        runtime.handlers = by_type([Listener(Event, handler, all_text)], runtime.handlers)

    def answer(self, answer: object = _NO_ANSWER, /, *, answers: Mapping[str, object] | None = None) -> None:
        """Answer the open question, or several by their ids; the run continues with `finish` or `step`.

        Raises:
            AnswerError: there is no such question, several are open and one answer was given, it is of the wrong type, it changes
                a tool call to what the tool does not take, or the store cannot hold it. None of the answers is taken then.
        """
        if answer is not _NO_ANSWER:
            answers = {self.__driver__.only_question(): answer, **(answers or {})}
        elif answers is None:
            raise TypeError("there is no answer: write run.answer(…), or run.answer(answers={id: …})")
        self.__driver__.answer(answers)

    async def release(self) -> None:
        """Release the run, so that another process can continue it. A run that ended, waits or paused has been released."""
        await self.__driver__.release()

    async def __aenter__(self) -> Run[O]:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.release()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Run) and self.__driver__ is other.__driver__

    def __hash__(self) -> int:
        return hash(self.__driver__)

    def __repr__(self) -> str:
        return f"<run {self.run_id!r}: {self.status}>"
