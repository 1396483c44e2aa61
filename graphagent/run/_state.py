"""What one run knows of itself: who it is for, what it has spent, what was executed, who listens."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from graphagent.errors import BudgetError, HandlerError, RunError, VetoError
from graphagent.events import StepCommitted, TextStreamed
from graphagent.llm import Message, ToolCall
from graphagent.llm._internal import fresh_ids
from graphagent.run._listening import OfAnswers
from graphagent.run._result import RunResult
from graphagent.run._suspend import Halt

if TYPE_CHECKING:
    from decimal import Decimal

    from graphagent.events import Event, ModelOutput
    from graphagent.llm import ModelResponse, Usage
    from graphagent.memory import RunMemory, Step
    from graphagent.protocols import Feature
    from graphagent.run._budgets import Meter
    from graphagent.run._context import Context
    from graphagent.run._journal import Journal
    from graphagent.run._ledger import Charge
    from graphagent.run._listening import Handlers
    from graphagent.run._plan import Slot
    from graphagent.run._result import Status
    from graphagent.run._run import Run
    from graphagent.run._sub_agents import Around
    from graphagent.run._suspend import Question
    from graphagent.run._tape import Tape

Entry = tuple[str, str, Any]
"""The end of a node execution: where the node stands (`count/`), its name, its output."""

StepCallback = Callable[[Any], Awaitable[tuple[VetoError | None, HandlerError | None]]]
"""What is done with a step before it joins the transcript, or with a tool call before it is executed: gives the refusal of one
who sees it, and what one raised."""


class RunState:
    """What all parts of one run share."""

    # What most runs never have stands here: one is made for every run.
    around: Around | None = None
    """Where what is spent here counts too: the run that this one is a part of."""
    asked: Slot | None = None
    """The place of the agent's own strategy where a model was asked last."""
    attention = False
    """Whether something is to be looked at before the next node: a step was added, or the run is to stop."""
    call_ids: set[str] | None = None
    """The ids of tool calls that there were: answers name them, also where several branches ask at once."""
    callbacks: StepCallback | None = None
    """What sees each step before it joins the transcript."""
    charges_before: Callable[[], Iterable[Charge]] = tuple
    """Gives what was spent before the run was read."""
    deps: Any = None
    """What nodes and tools find as `ctx.deps`. It is never stored."""
    finish_reason: str | None = None
    """Why a model stopped when it was asked for an answer last."""
    failure: RunError | None = None
    """What a callback raised."""
    guards: StepCallback | None = None
    """What sees each tool call before it is executed."""
    journal: Journal | None = None
    """Where it is kept, if there is a store."""
    pausing: str | None = None
    """Why it is to pause."""
    planning_interval: int | None = None
    """Every so many turns the model makes a plan."""
    root: Context | None = None
    """The context of the agent's own strategy, while it is being executed."""
    seconds = 0.0
    """For how long it was executed before `since`."""
    since: float | None = None
    """Since when it is being executed."""
    stepping = False
    """Whether the run stops behind each node that added a step."""
    unlearned: tuple[str, ...] = ()
    """The paths of the taps that failed to learn before the run was resumed."""
    tape: Tape | None = None
    """Recorded results to be used instead of live calls."""

    def __init__(
        self,
        *,
        run_id: str,
        owner: str,
        memory: RunMemory,
        meter: Meter,
        features: Mapping[type[Any], Feature],
        handlers: Handlers,
        clock: Callable[[], float],
        gives: Any = Any,
    ) -> None:
        self.run_id, self.owner, self.memory, self.meter = run_id, owner, memory, meter
        self.features, self.handlers, self.clock = features, handlers, clock
        self.gives = gives
        """The declared type of the output."""
        self.record: list[Any] = []
        """The entries without their tuples: each would count as an object for the garbage collector to visit."""
        self.charges: list[Charge] = []
        """What was spent, row by row, since the run was begun or read."""
        self.held: dict[str, Charge] = {}
        """What runs of sub-agents spent that are being executed, under their ids."""
        self.children: dict[str, Run[Any]] = {}
        """Runs of agents that were called as tools and are not done, under their ids."""
        self.questions: dict[str, Question] = {}
        """What is open."""
        self.asking: dict[str, Context] = {}
        """Who asks."""
        self.answers: dict[str, object] = {}
        """What was answered, and is to be given when the run goes on."""
        self.added: list[Step] = []
        """Steps that were added since someone looked."""
        self.handed: list[Step] = []
        """Steps that are to be handed out one by one."""

    @property
    def usage(self) -> Usage:
        """What was spent, by sub-agents too."""
        return self.meter.usage

    @property
    def entries(self) -> list[Entry]:
        """The node executions that ended, in the order of their ends."""
        return list(zip(*[iter(self.record)] * 3, strict=True))

    def emit(self, event: Event) -> None:
        """Tell all who listen, one after the other. What a handler raises ends the run."""
        if not self.handlers:
            return
        handlers = self.handlers.get(type(event))
        if handlers is None:
            # A type that was defined after the listeners were registered is heard by those of its nearest base.
            known = next((kind for kind in type(event).__mro__ if kind in self.handlers), None)
            handlers = self.handlers[known] if known is not None else ()
        for handler in handlers:
            handler(event)

    def streams(self, output: ModelOutput) -> bool:
        """Return whether someone listens to the pieces of such an output."""
        handlers = self.handlers.get(TextStreamed, ())
        return bool(handlers) and (output == "answer" or not all(isinstance(each, OfAnswers) for each in handlers))

    def with_ids(self, response: ModelResponse) -> ModelResponse:
        """Give each tool call of a response an id of its own in this run, and a place behind what was said."""
        parts = response.message.parts
        calls = [part for part in parts if isinstance(part, ToolCall)]
        if not calls:
            return response
        ordered = (*(part for part in parts if not isinstance(part, ToolCall)), *self.own(calls))
        return response if ordered == parts else replace(response, message=Message("assistant", ordered))

    def own(self, calls: Iterable[ToolCall]) -> tuple[ToolCall, ...]:
        """Give each of some tool calls an id of its own in this run."""
        if self.call_ids is None:
            self.call_ids = set()
        fresh = fresh_ids(calls, self.call_ids)
        self.call_ids.update(call.id for call in fresh)
        return fresh

    def note(self, step: Step) -> None:
        """Take note of a step that was added."""
        self.added.append(step)
        self.attention = True

    async def called_back(self, step: Step) -> VetoError | None:
        """Show a step to the callbacks, and give the refusal of one. What one raises ends the run where nothing is lost."""
        if self.callbacks is None:
            return None
        veto, failure = await self.callbacks(step)
        if failure is not None:
            self.fail(failure)
        return veto

    def fail(self, error: RunError) -> None:
        """End the run before the next live call or node, when the step stands in the transcript."""
        self.failure = self.failure or error
        self.attention = True

    def pause(self, reason: str) -> None:
        """Stop before the next node or live call."""
        self.pausing = self.pausing or reason or "paused"
        self.attention = True
        for child in self.children.values():
            if child.status == "running":  # else it would stop when it goes on one day
                child.pause(reason)

    def go_on(self) -> None:
        """Stop here, before something live is done, where the run is to stop.

        Raises:
            Halt: it is to pause.
            RunError: a callback refused to go on.
        """
        if self.failure is not None:
            failure, self.failure = self.failure, None
            raise failure
        if self.pausing is not None:
            raise Halt

    @property
    def root_slot(self) -> Slot | None:
        """The place of the agent's own strategy that is being executed."""
        return self.root.slot if self.root is not None else None

    def told(self) -> None:
        """Tell of the steps that were added."""
        if StepCommitted in self.handlers:
            for step in self.added:
                self.emit(StepCommitted(self.run_id, step))
        self.added.clear()

    def look(self, *, root: bool) -> None:
        """Do between two nodes what is to be done: tell of steps that were added, and stop where the run is to stop.

        Raises:
            Halt: it is to stop here.
            RunError: a callback refused to go on.
        """
        if self.stepping:
            self.handed += self.added
        self.told()
        # Branches beside this one are to stop too.
        self.attention = self.pausing is not None or (bool(self.handed) and not root)
        self.go_on()
        if self.handed and root:
            raise Halt

    def ask(self, question: Question, ctx: Context[Any]) -> None:
        """Open a question."""
        self.questions[question.id] = question
        self.asking[question.id] = ctx

    def drop(self, path: str) -> None:
        """Close the questions of what is not executed any more: a node, or what stands inside it; the empty path is all."""
        for id_, question in list(self.questions.items()):
            if (
                not path
                or question.node == path
                or question.node.startswith(path if path.endswith("/") else f"{path}/")
            ):
                del self.questions[id_], self.asking[id_]

    @property
    def elapsed(self) -> float:
        """Seconds for which the run was executed."""
        return self.seconds + (self.clock() - self.since if self.since is not None else 0.0)

    def spent(self, budget: str, limit: Decimal | float, where: str = "") -> BudgetError:
        """Give the error of a budget that is used up: the run's own, or that of the strategy at a path."""
        unfinished = f"its budget of {limit:,} {budget} is used up"
        error = BudgetError(budget, limit, self.result(status="failed", unfinished=unfinished), where=where)
        error.run_id = self.run_id
        return error

    def result(self, output: Any = None, *, status: Status = "done", unfinished: str = "") -> RunResult[Any]:
        """Give what the run has come to."""
        # As many rows as there are now: more may come when the run goes on.
        count, held = len(self.charges), tuple(self.held.values())

        def charges() -> Iterable[Charge]:
            return (*self.charges_before(), *self.charges[:count], *held)

        return RunResult(
            run_id=self.run_id, output=output, status=status, unfinished=unfinished, memory=self.memory,
            questions=tuple(self.questions.values()), nodes=self.meter.nodes, turns=self.meter.turns, usage=self.usage,
            seconds=self.elapsed, finish_reason=self.finish_reason, charges=charges, children=tuple(self.children.values()),
        )  # fmt: skip
