"""One run of an agent: its part of a log, with the configuration, handlers, limits and times that are gone with the process.

The run of a sub-agent is an `AgentRun` too, over a frame of the same log. What all runs in a log have in common is in their session.
The file is long because what one run has beside its log is the state of one object.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar, cast
from weakref import ref

from graphagent import _clock
from graphagent._dispatch import AnswerHandler
from graphagent.errors import BudgetError, HandlerError, RunEndedError, SerializationError
from graphagent.events import Event, OutputStreamed, RunAnswered, StepCommitted, TextStreamed, ThreadAbandoned
from graphagent.llm import Message, Tool, ToolCall
from graphagent.llm._tools import fresh_ids
from graphagent.log._header import OVER
from graphagent.log._segments import is_part
from graphagent.log._visits import Charge
from graphagent.memory.steps._types import ActionStep, FinalAnswerStep
from graphagent.memory.transcript._memory import RunMemory
from graphagent.run._effects import RunEditor
from graphagent.run._final_errors import Suspend
from graphagent.run._result import RunResult
from graphagent.run._times import moment_of
from graphagent.run._walk import Limits, StoredInput, Walk

if TYPE_CHECKING:
    from collections.abc import Callable
    from decimal import Decimal

    from graphagent._dispatch import Handlers
    from graphagent._features import Features
    from graphagent.errors import RunError
    from graphagent.events import ModelOutput
    from graphagent.llm import ModelResponse
    from graphagent.log._log import Log
    from graphagent.log._visits import Activation, Frame, Source
    from graphagent.memory.steps._types import Step
    from graphagent.memory.transcript._transcript import Item
    from graphagent.protocols import ToolServer
    from graphagent.run._config import Plan, RunConfig
    from graphagent.run._effects import Effects
    from graphagent.run._questions import Question
    from graphagent.run._session import Session
    from graphagent.run._walk import HeldBack

E = TypeVar("E", bound="RunError")
_EDITING: ContextVar[Effects | None] = ContextVar("editing", default=None)


class AgentRun:
    """One run of an agent, as the engine executes it."""

    # Most runs never have these: as class attributes they cost nothing for each run.
    begun = False
    """Whether this process has begun or continued it, as the run of a sub-agent."""
    since: int | None = None
    """The ticks of the clock since which it is being executed."""
    deadline: float | None = None
    """When its own time limit, or one around it, ends: as a time of the event loop."""
    held_back: HeldBack | None = None
    """Text that was said and that a run around it may still take back, if its answer is a part of that run's answer."""
    before = 0.0
    """For how many seconds it had been executed when it was resumed."""
    has_answered = False
    """Whether listeners have heard what its output is."""
    looked_back = False
    """Whether the features have seen its end."""
    at_rest: RunResult[Any] | None = None
    """The result when the run came to rest."""
    listed: Mapping[str, Sequence[Tool]] | None = None
    """The tools of servers, by the names of the servers."""
    call_ids: set[str] | None = None
    """The ids of tool calls that are taken."""
    _handle: Callable[[], Any] | None = None

    def __init__(
        self, config: RunConfig, session: Session, frame: Frame, *, run_id: str, parent: AgentRun | None = None,
        limits: Limits | None = None,
    ) -> None:  # fmt: skip
        self.config = config
        self.session = session
        self.log: Log = session.log
        assert frame.activation is not None
        self.frame, self.activation = frame, frame.activation
        """The frame of the agent's own strategy, and what the log has of the run besides its frames."""
        self.run_id, self.owner = run_id, session.owner
        self.parent = parent
        """The run of which it is a part."""
        self.lineage: tuple[str, ...] = (run_id,) if parent is None else (run_id, *parent.lineage)
        """Its id, and those of the runs around it."""
        self.handlers: Handlers = config.handlers
        self.plan: Plan = config.plan.of_run()
        """What its features, callbacks and checks decide."""
        self.features: Features = config.plan.features
        self.limits = Limits(self, frame, config.budgets, limits)
        own, self.max_seconds = config.strategy.setting, config.budgets.max_seconds
        if own is not None and own.max_seconds is not None:
            self.max_seconds = min(own.max_seconds, self.max_seconds or own.max_seconds)
        self.memory = RunMemory(editor=RunEditor(self))
        """The transcript, as users see and edit it from outside of nodes."""
        self.added: list[Step] = []
        """The steps that were added and not yet reported."""

    # ---- where it is

    @property
    def handle(self) -> Any:
        """The `Run` that users get."""
        found = None if self._handle is None else self._handle()
        if found is None:
            found = self.config.handle(self)
            self._handle = ref(found)
        return found

    @property
    def done(self) -> bool:
        """Whether the run reached END."""
        return self.activation.status == "done"

    @property
    def allows_unpriced(self) -> bool:
        """Whether it, or a run around it, has models asked that do not say what their answers cost."""
        return self.config.budgets.allow_unpriced or (self.parent is not None and self.parent.allows_unpriced)

    @property
    def over(self) -> bool:
        """Whether it reached END, or was ended before."""
        return self.activation.status in OVER

    def check_continues(self) -> None:
        """Check that it may continue: that it is a whole run, and was not ended.

        Raises:
            RunError: it is a part of another one.
            RunEndedError: it was ended.
        """
        if self.parent is not None:
            raise is_part(self.run_id, self.session.run_id, self.owner)
        if self.log.state.status == "ended":
            raise RunEndedError(self.session.run_id, self.log.state.reason)

    @property
    def elapsed(self) -> float:
        """For how many seconds the run was executed."""
        return self.before + (_clock.seconds_since(self.since) if self.since is not None else 0.0)

    def path_of(self, frame: Frame) -> str:
        """Return the path of a frame within this run."""
        return frame.path[len(self.frame.path) :]

    def node_of(self, frame: Frame) -> str:
        """Return the path of the current node of a frame within this run."""
        return frame.path[len(self.frame.path) :] + (frame.visit.node or "")

    def kind_of(self, source: Source) -> Any:
        """Return the declared type of a value by its origin."""
        return self.config.kind_of(source.path[len(self.frame.path) :], source.edge)

    @property
    def editing(self) -> Effects | None:
        """The effects of the callback that this task calls, whose edits are recorded under its own numbers."""
        found = _EDITING.get()
        return found if found is not None and found.run is self else None

    @contextmanager
    def calling_back(self, effects: Effects) -> Generator[None]:
        """Have edits of the transcript in this task recorded among the effects of callbacks. Other branches may call theirs meanwhile."""
        token = _EDITING.set(effects)
        try:
            yield
        finally:
            _EDITING.reset(token)

    @property
    def shown_memory(self) -> RunMemory:
        """The memory that users get: that of the run or, in a callback of a branch, that of the branch."""
        editing = self.editing
        return self.memory if editing is None else self.transcript_of(editing)

    def transcript_of(self, effects: Effects) -> RunMemory:
        """Return the memory through which callbacks see a transcript: that of the run, or of a branch."""
        return self.memory if effects.frame.transcript is self.frame.transcript else effects.memory

    def listed_tools(self, declared: Sequence[Tool | ToolServer]) -> tuple[Tool, ...]:
        """Return tools, with those of the servers among them in the place of the servers."""
        listed = self.listed
        if listed is None:  # the agent has no tool server
            return cast("tuple[Tool, ...]", tuple(declared))
        return tuple(
            tool for each in declared for tool in ((each,) if isinstance(each, Tool) else listed.get(each.name, ()))
        )

    def walk(self) -> Walk:
        """Return the walk of the agent's own strategy."""
        config, setting = self.config, self.config.strategy.setting
        task, kind, log = self.activation.task, config.strategy.input_type, self.log
        given: Callable[[], Any] = StoredInput(log, task, kind) if log.durable else lambda: task
        outer = Walk(
            self, self.frame, config.compiled, self.limits, config.model, config.tools, given,
            self.deadline, self.held_back,
        )  # fmt: skip
        return outer if setting is None else outer.inside(self.frame, config.compiled, outer.given, setting)

    # ---- events

    def emit(self, event: Event) -> None:
        """Call the handlers of an event, one after the other. An error of a handler ends the run."""
        if not self.handlers:
            return
        handlers = self.handlers.get(type(event))
        if handlers is None:
            if type(event).__module__ == Event.__module__:
                return
            # A type that was defined after the listeners were registered is delivered to those of its nearest base.
            known = next((kind for kind in type(event).__mro__ if kind in self.handlers), None)
            handlers = self.handlers[known] if known is not None else ()
        for handler in handlers:
            handler(event)

    def report_answer(self, output: Any) -> None:
        """Emit that the run has its output, unless that was done."""
        if not self.has_answered:
            self.has_answered = True
            self.emit(RunAnswered(self.run_id, output))

    def report_abandoned(self, function: str, seconds: float, node: str = "") -> None:
        """Emit that a thread was abandoned, in a node or else in the current one of the agent's own strategy."""
        try:
            self.emit(ThreadAbandoned(self.run_id, node or self.node_of(self.frame), function, seconds))
        except HandlerError as error:  # raised here, it would replace a cancellation
            self.session.fail(error)

    def streams(self, output: ModelOutput, event: type[TextStreamed | OutputStreamed] = TextStreamed) -> bool:
        """Return whether somebody listens to the pieces of such an output, or to its value so far."""
        handlers = self.handlers.get(event, ())
        return bool(handlers) and (output == "answer" or not all(isinstance(each, AnswerHandler) for each in handlers))

    # ---- steps

    def added_step(self, effects: Effects, item: Item) -> None:
        """Note that a step was added to a transcript."""
        if StepCommitted in self.handlers or self.session.stepping:
            self.added.append(self.transcript_of(effects).handle(item, effects.frame.transcript))
        self.session.attention = True

    def added_answer(self, step: FinalAnswerStep) -> None:
        """Note that the step of the answer was added. Callbacks have seen it, and it is the object of users from now on."""
        transcript = self.frame.transcript
        item = transcript.items[-1]
        if self.plan.step_callbacks:
            self.memory.take(step, item, transcript)
        if StepCommitted in self.handlers or self.session.stepping:
            self.added.append(self.memory.handle(item, transcript))

    def report_steps(self) -> None:
        """Emit an event for each step that was added."""
        if StepCommitted in self.handlers:
            for step in self.added:
                self.emit(StepCommitted(self.run_id, step))
        self.added.clear()

    # ---- stopping

    def between_nodes(self, frame: Frame) -> None:
        """Report the steps that were added, and stop here if the run is to stop.

        Raises:
            Suspend: it is to stop here.
            RunError: a callback refused a step, or raised.
        """
        session = self.session
        in_branch = self.parent is not None or frame.transcript is not self.frame.transcript
        if session.stepping and self.parent is None:
            session.handed += self.added
        self.report_steps()
        # Other branches are to stop too, so they must look as well.
        session.attention = (
            session.pausing is not None or (bool(session.handed) and in_branch) or session.failure is not None
        )
        session.stop_if_due()
        if session.handed and not in_branch:
            session.attention = False
            raise Suspend

    # ---- ids of tool calls

    def with_ids(self, response: ModelResponse) -> ModelResponse:
        """Return a response whose tool calls have unique ids in the run.

        The order of its parts stays: a server that has reasoning returned wants it right before what came of it.
        """
        calls = response.message.tool_calls
        if not calls:
            return response
        own = iter(self.with_own_ids(calls))
        parts = tuple(next(own) if isinstance(part, ToolCall) else part for part in response.message.parts)
        return response if response.message.parts == parts else replace(response, message=Message("assistant", parts))

    def with_own_ids(self, calls: Iterable[ToolCall]) -> tuple[ToolCall, ...]:
        """Return tool calls with unique ids in the run."""
        if self.call_ids is None:
            self.call_ids = {call.id for turn in self._own_turns() for call in turn.tool_calls}
        return fresh_ids(calls, self.call_ids)

    def _own_turns(self) -> Iterator[ActionStep]:
        """Yield the model turns of the run and of the branches and sub-agents in it, without those of earlier runs."""
        for frame in self.frame.frames():
            if frame.owns:
                transcript = frame.transcript
                first = transcript.begun if frame is self.frame else transcript.inherited
                for step in (*transcript.steps[first:], transcript.open_step):
                    if isinstance(step, ActionStep):
                        yield step

    # ---- sub-agents

    def child(self, activation: Activation) -> AgentRun | None:
        """Return the run of a sub-agent; None if its agent is not known any more.

        One that another process began is made anew, to be looked at.
        """
        run_id, config = self.session.id_of(activation), self.config
        found = self.session.children.get(run_id)
        if found is not None:
            return found
        own = config.agent_at(activation.node[len(self.frame.path) :], activation.name)
        if own is None:
            return None
        within = replace(
            own, store=config.store, model=own.model or config.model, plan=own.plan.within(self.plan),
            tools=config.tools if own.inherits_tools else own.tools, deps=config.deps,
        )  # fmt: skip
        found = self.session.children[run_id] = AgentRun(
            within, self.session, activation.frame, run_id=run_id, parent=self, limits=self.limits
        )
        if self.log.durable:
            self.log.codec.refers_at[activation.frame.path] = within.refers
        return found

    def children_of(self, frame: Frame, scope: str) -> list[str]:
        """Return the ids of the runs of sub-agents that were begun under keys with a prefix, in the current node."""
        return [
            self.session.id_of(each.activation)
            for key, frames in frame.visit.inside.items()
            if key.startswith(f"agent {scope}")
            for each in frames
            if each.activation is not None
        ]

    # ---- questions

    def question_id(self, id_: str) -> str:
        """Return the id of a question in the run of the log."""
        return id_ if self.parent is None else f"{self.activation.path}/{id_}"

    def keep_about(self, about: object) -> Any:
        """Return the subject of a question as an entry has it: its text, where it cannot be stored."""
        try:
            return self.log.keep(about, type(about))
        except SerializationError:
            return self.log.keep(str(about))

    @property
    def questions(self) -> tuple[Question, ...]:
        """The open questions."""
        found = self.session.questions
        if self.parent is None:
            return found
        below = f"{self.run_id}/"
        return tuple(each for each in found if each.run_id == self.run_id or each.run_id.startswith(below))

    # ---- results and errors

    def of_run(self, error: E) -> E:
        """Return an error of this run."""
        error.run_id = self.run_id
        return error

    def budget_error(self, budget: str, limit: Decimal | float, where: str = "") -> BudgetError:
        """Return the error of a budget that is used up: the run's own, or that of the strategy at a path."""
        unfinished = f"the run exceeded max_{budget}={limit:,}"
        return self.of_run(
            BudgetError(budget, limit, self.result_now(status="failed", unfinished=unfinished), where=where)
        )

    def result_now(self, output: Any = None, *, status: Any = "done", unfinished: str = "") -> RunResult[Any]:
        """Return the result of the run as it is now."""
        frame, activation = self.frame, self.activation
        rows = self._rows_of(activation)  # more may be added when the run continues
        children = [child.handle for each in activation.children if (child := self.child(each)) is not None]
        failure = self.log.state.failure if self.parent is None and status == "failed" else None
        return RunResult(
            run_id=self.run_id, status=status, memory=self.memory, questions=self.questions if self.log.state.questions else (),
            due=moment_of(self.log.state.due) if self.log.state.due else None,
            nodes=frame.nodes + self.limits.running, turns=frame.turns, usage=frame.usage, seconds=self.elapsed,
            finish_reason=activation.finish_reason, children=tuple(children),
            _output=output, _unfinished=unfinished, _error=None if failure is None else failure[:2], _charges=rows,
        )  # fmt: skip

    def _rows_of(self, activation: Activation) -> list[Charge]:
        """Return the rows of a ledger: those of a sub-agent stand where it began."""
        rows = list(activation.charges)
        for child in reversed(activation.children):
            run_id, node = self.session.id_of(child), child.node[len(self.frame.path) :]
            rows[child.charged : child.charged] = [
                Charge(node, child.name, "", row.usage, run_id) for row in self._rows_of(child)
            ]
        return rows

    @property
    def result(self) -> RunResult[Any]:
        """The result of the run, so far."""
        if self.at_rest is not None:
            return self.at_rest
        if self.session.run.since is not None:
            return self.result_now(status="running", unfinished="it is being executed")
        beginning = self.session.beginning
        if beginning is not None:
            status = "new" if beginning.queued is None else "queued"
            return self.result_now(status=status, unfinished="it has not begun")
        return self._result_read()

    def _result_read(self) -> RunResult[Any]:
        """Return the result of a run that was read and is not being executed."""
        state, header = self.log.state, self.log.header
        if self.activation.status == "done":
            return self.result_now(self.answer_read())
        if self.parent is not None:
            own: Any = self.activation.status
            around = self.session.run.result.status if own == "running" else own
            if around == "ended":
                return self.result_now(status=around, unfinished=state.reason)
            return self.result_now(status="cancelled" if around == "done" else around, unfinished="it did not end")
        if state.status == "running":
            shown = "running" if header.running else header.status
            reason = {
                "running": "it is being executed", "queued": "a worker is to continue it",
            }.get(shown, "the process that executed it died")  # fmt: skip
            return self.result_now(status=shown, unfinished=reason)
        return self.result_now(status=state.status, unfinished=state.reason)

    def answer_read(self) -> Any:
        """Return the answer, as its step has it: a callback may have changed it. None of a run that was ended before it had one."""
        if self.activation.status == "ended":
            return None
        transcript = self.frame.transcript
        for item in reversed(transcript.items):
            step = transcript.versions[item.version]
            if isinstance(step, FinalAnswerStep):
                return step.output
        raise LookupError(f"run {self.run_id!r} has no answer")
