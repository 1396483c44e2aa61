"""What all frames of one execution share: who the run is for, what it spent, who listens, and why it is to stop."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Protocol, final

from anyio import move_on_after

from graphagent import _clock
from graphagent._concurrency import Reply
from graphagent._dispatch import AnswerHandler
from graphagent.errors import BudgetError, HandlerError, RunError, VetoError
from graphagent.events import OutputStreamed, StepCommitted, TextStreamed
from graphagent.llm import Message, ToolCall, Usage
from graphagent.llm._internal import fresh_ids
from graphagent.run._result import RunResult
from graphagent.run.engine._middleware import wrapping
from graphagent.run.engine._suspend import Suspend
from graphagent.run.state._ledger import Charge

if TYPE_CHECKING:
    from decimal import Decimal

    from anyio.abc import AsyncBackend

    from graphagent._dispatch import Handlers
    from graphagent.events import Event, ModelOutput
    from graphagent.llm import ModelResponse, Tool
    from graphagent.memory import RunMemory, Step
    from graphagent.protocols import Feature
    from graphagent.run._compiled import CompiledNode
    from graphagent.run.engine._budgets import Meter
    from graphagent.run.engine._context import LiveFrame
    from graphagent.run.engine._recorded import RecordedOutcomes
    from graphagent.run.engine._recorder import Recorder
    from graphagent.run.journal._writer import JournalWriter
    from graphagent.run.state._questions import Question
    from graphagent.run.state._status import Status

StepCallback = Callable[[Any], Awaitable[tuple[VetoError | None, HandlerError | None]]]
"""Calls the callbacks that see a step or a tool call; returns the refusal of one, and the error that one raised."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LONGEST_SLEEP = 60
"""Seconds after which a sleeping node looks at the clock again: it may have been set, or the machine may have been suspended."""


class Runtime:
    """What all frames of one execution share."""

    # Most runs never have these: as class attributes they cost nothing for each run.
    parent: ParentRun | None = None
    """The run of which this one is a part, in which it counts what it spends too."""
    around_model: Sequence[Feature] | None = None
    """The features that are wrapped around requests to models, the outermost first."""
    around_node: Sequence[Feature] | None = None
    """The features that are wrapped around nodes."""
    around_tool: Sequence[Feature] | None = None
    """The features that are wrapped around tool calls."""
    asked: CompiledNode | None = None
    """The node of the agent's own strategy where a model was asked last."""
    backend: type[AsyncBackend] | None = None
    """The part of anyio for the kind of event loop that executes the run, from the first node with a timeout on: looking it up
    for each node would take longer than using it."""
    attention = False
    """Whether something is to be done before the next node: steps were added, or the run is to stop."""
    call_ids: set[str] | None = None
    """The ids of the tool calls so far: results name them, also where several branches ask at once."""
    callbacks: StepCallback | None = None
    """Called with each step before it joins the transcript."""
    charges_before: Callable[[], Iterable[Charge]] = tuple
    """Returns the charges of the journal from which the run was read."""
    deps: Any = None
    """The object that nodes and tools find as `ctx.deps`. It is never stored."""
    finish_reason: str | None = None
    """Why a model stopped when it was asked for an answer last."""
    failure: RunError | None = None
    """The error of a callback, which is raised where nothing is lost."""
    guards: StepCallback | None = None
    """Called with each tool call before it is executed."""
    journal: Recorder | None = None
    """Records what happens, if there is a store."""
    listed: dict[str, Sequence[Tool]] | None = None
    """The tools of servers, by the names of the servers: those that the run began with. None where there is no server."""
    pausing: str | None = None
    """Why the run is to pause."""
    planning_interval: int | None = None
    """The number of turns after which the model makes a plan."""
    recorded: RecordedOutcomes | None = None
    """The outcomes of another run, which are used instead of live calls."""
    reexecuting = False
    """Whether the run was interrupted before: what the current nodes do may have been done already."""
    root: LiveFrame | None = None
    """The frame of the agent's own strategy, while it is being executed."""
    seconds = 0.0
    """For how long it was executed before `since`."""
    since: float | None = None
    """The time of the clock since which it is being executed."""
    sleeping: set[Reply] | None = None
    """What nodes that sleep wait for, so that a pause wakes them."""
    stepping = False
    """Whether the run stops after each node that added a step."""
    unlearned: tuple[str, ...] = ()
    """The paths of the taps that failed to learn before the run was resumed."""

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
        output_type: Any = Any,
    ) -> None:
        self.run_id, self.owner, self.memory, self.meter = run_id, owner, memory, meter
        self.features, self.handlers, self.clock = features, handlers, clock
        self.output_type = output_type
        if features:
            self.around_model = wrapping(features, "around_model")
            self.around_node = wrapping(features, "around_node")
            self.around_tool = wrapping(features, "around_tool")
        self.charges: list[Charge] = []
        """The rows of the ledger since the run was begun or read."""
        self.unsettled: dict[str, Charge] = {}
        """The rows of runs of sub-agents that are being executed, by their ids."""
        self.children: dict[str, ChildDriver] = {}
        """The runs of agents that were called as tools, by their ids."""
        self.questions: dict[str, Question] = {}
        """The open questions."""
        self.asking: dict[str, LiveFrame] = {}
        """The frames whose nodes ask them."""
        self.asked_by: dict[str, str] = {}
        """The id of the question of a person that each execution of a node asked first."""
        self.answers: dict[str, object] = {}
        """The answers that are given when the run is resumed."""
        self.added: list[Step] = []
        """The steps that were added and not yet reported."""
        self.handed: list[Step] = []
        """The steps that `Run.step` returns next."""

    @property
    def usage(self) -> Usage:
        """The tokens and money that were spent, by sub-agents too."""
        return self.meter.usage

    # ---- events

    def emit(self, event: Event) -> None:
        """Call the handlers of an event, one after the other. An error of a handler ends the run."""
        if not self.handlers:
            return
        handlers = self.handlers.get(type(event))
        if handlers is None:
            # A type that was defined after the listeners were registered is delivered to those of its nearest base.
            known = next((kind for kind in type(event).__mro__ if kind in self.handlers), None)
            handlers = self.handlers[known] if known is not None else ()
        for handler in handlers:
            handler(event)

    def streams(self, output: ModelOutput, event: type[TextStreamed | OutputStreamed] = TextStreamed) -> bool:
        """Return whether someone listens to the pieces of such an output, or to its value so far."""
        handlers = self.handlers.get(event, ())
        return bool(handlers) and (output == "answer" or not all(isinstance(each, AnswerHandler) for each in handlers))

    # ---- tool calls

    def with_ids(self, response: ModelResponse) -> ModelResponse:
        """Return a response whose tool calls have ids of their own in this run.

        The order of its parts stays: a server that has reasoning returned wants it right before what came of it.
        """
        parts = response.message.parts
        calls = response.message.tool_calls
        if not calls:
            return response
        own = iter(self.with_own_ids(calls))
        known = tuple(next(own) if isinstance(part, ToolCall) else part for part in parts)
        return response if known == parts else replace(response, message=Message("assistant", known))

    def with_own_ids(self, calls: Iterable[ToolCall]) -> tuple[ToolCall, ...]:
        """Return tool calls that have ids of their own in this run."""
        if self.call_ids is None:
            self.call_ids = set()
        fresh = fresh_ids(calls, self.call_ids)
        self.call_ids.update(call.id for call in fresh)
        return fresh

    # ---- steps and callbacks

    def added_step(self, step: Step) -> None:
        """Note that a step was added to a transcript."""
        self.added.append(step)
        self.attention = True

    async def called_back(self, step: Step) -> VetoError | None:
        """Call the callbacks of a step, and return the refusal of one. An error of one ends the run where nothing is lost."""
        if self.callbacks is None:
            return None
        veto, failure = await self.callbacks(step)
        if failure is not None:
            self.fail(failure)
        return veto

    def report_steps(self) -> None:
        """Emit an event for each step that was added."""
        if StepCommitted in self.handlers:
            for step in self.added:
                self.emit(StepCommitted(self.run_id, step))
        self.added.clear()

    # ---- stopping

    def fail(self, error: RunError) -> None:
        """End the run before the next node or live call, when the step is in the transcript."""
        self.failure = self.failure or error
        self.attention = True

    def pause(self, reason: str) -> None:
        """Stop before the next node or live call."""
        self.pausing = self.pausing or reason or "paused"
        self.attention = True
        for woken in tuple(self.sleeping or ()):
            woken.send()
        for child in self.children.values():
            if child.status == "running":  # else it would stop when it is resumed
                child.runtime.pause(reason)

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

    async def sleep_until(self, time: datetime) -> None:
        """Return when the wall clock shows a time; at once if it is past.

        Raises:
            Suspend: the run is to pause.
            RunError: a callback refused a step, or raised.
        """
        moment = -((_EPOCH - time) // timedelta(milliseconds=1))  # rounded up
        if self.sleeping is None:
            self.sleeping = set()
        while (left := moment - _clock.now()) > 0:
            woken = Reply()
            self.sleeping.add(woken)
            try:
                self.stop_if_due()  # only now, since another thread may pause the run at any moment
                with move_on_after(min(left / 1000, _LONGEST_SLEEP)):
                    await woken.wait()
            finally:
                self.sleeping.remove(woken)

    def between_nodes(self, *, root: bool) -> None:
        """Report the steps that were added, and stop here if the run is to stop.

        Args:
            root: Whether no branch is being executed: a run that is stepped through stops only there.

        Raises:
            Suspend: it is to stop here.
            RunError: a callback refused a step, or raised.
        """
        if self.stepping:
            self.handed += self.added
        self.report_steps()
        # Other branches are to stop too, so they must look as well.
        self.attention = self.pausing is not None or (bool(self.handed) and not root)
        self.stop_if_due()
        if self.handed and root:
            raise Suspend

    # ---- questions

    def ask(self, question: Question, frame: LiveFrame) -> None:
        """Open a question."""
        self.questions[question.id] = question
        self.asking[question.id] = frame

    def close_questions(self, path: str) -> None:
        """Close the questions of a node that is not executed any more, and of those inside it; the empty path means all."""
        inside = path if path.endswith("/") else f"{path}/"
        for id_, question in list(self.questions.items()):
            if not path or question.node == path or question.node.startswith(inside):
                del self.questions[id_], self.asking[id_]

    # ---- results and errors

    def of_run(self, error: RunError) -> RunError:
        """Return an error of this run."""
        error.run_id = self.run_id
        return error

    @property
    def elapsed(self) -> float:
        """For how many seconds the run was executed."""
        return self.seconds + (self.clock() - self.since if self.since is not None else 0.0)

    def budget_error(self, budget: str, limit: Decimal | float, where: str = "") -> BudgetError:
        """Return the error of a budget that is used up: the run's own, or that of the strategy at a path."""
        unfinished = f"its budget of {limit:,} {budget} is used up"
        error = BudgetError(budget, limit, self.result(status="failed", unfinished=unfinished), where=where)
        error.run_id = self.run_id
        return error

    def result(self, output: Any = None, *, status: Status = "done", unfinished: str = "") -> RunResult[Any]:
        """Return the result of the run as it is now."""
        # More rows may be added when the run continues.
        count, unsettled = len(self.charges), tuple(self.unsettled.values())

        def charges() -> Iterable[Charge]:
            return (*self.charges_before(), *self.charges[:count], *unsettled)

        return RunResult(
            run_id=self.run_id, output=output, status=status, unfinished=unfinished, memory=self.memory,
            questions=tuple(self.questions.values()), nodes=self.meter.nodes, turns=self.meter.turns, usage=self.usage,
            seconds=self.elapsed, finish_reason=self.finish_reason, charges=charges,
            children=tuple(child.facade for child in self.children.values()),
        )  # fmt: skip


@final
class ParentRun:
    """The run of which another one is a part, as that one sees it: a call in which it counts what it spends."""

    __slots__ = ("_frame", "_name", "_run_id")

    def __init__(self, frame: LiveFrame, name: str, run_id: str) -> None:
        self._frame = frame
        self._name = name
        self._run_id = run_id

    def spend(self, usage: Usage) -> None:
        """Count what the child spent, in every enclosing run."""
        runtime = self._frame.runtime
        self._frame.meter.spend(usage, unsettled=True)
        unsettled = runtime.unsettled.get(self._run_id)
        unsettled = unsettled or Charge(self._frame.node_path, self._name, "", Usage(), self._run_id)
        runtime.unsettled[self._run_id] = replace(unsettled, usage=unsettled.usage + usage)
        if runtime.parent is not None:
            runtime.parent.spend(usage)

    @property
    def features(self) -> Mapping[Any, Any]:
        """The features of the agent of that run, by their types."""
        return self._frame.runtime.features

    def settle(self) -> None:
        """Charge what was counted to that run, for its journal."""
        runtime = self._frame.runtime
        unsettled = runtime.unsettled.pop(self._run_id, None)
        if unsettled is not None:
            self._frame.meter.settle(unsettled.usage)
            runtime.charges.append(unsettled)

    def check_spending(self, child: Runtime) -> None:
        """Suspend the child if all tokens or all money of an enclosing run are spent: it can be resumed when there is more.

        Raises:
            Suspend: they are.
        """
        if self.is_used_up:
            child.pause("the budget of the run around is used up")
            raise Suspend

    @property
    def is_used_up(self) -> bool:
        """Whether all tokens or all money of an enclosing run are spent."""
        parent = self._frame.runtime.parent
        return self._frame.meter.is_used_up or (parent is not None and parent.is_used_up)


class ChildDriver(Protocol):
    """The run of an agent that was called as a tool, as its parent has it: a `RunDriver`."""

    @property
    def runtime(self) -> Runtime:
        """What its frames share."""
        ...

    @property
    def status(self) -> Status:
        """Where the run is."""
        ...

    @property
    def facade(self) -> Any:
        """The `Run` that users see."""
        ...

    def writers(self) -> Iterator[JournalWriter]:
        """Yield the writers of the run and of those in it that are being executed."""
        ...
