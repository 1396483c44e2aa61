"""What a node, a tool or a feature can see and do in a run.

The file is long because it describes every operation for users. The work is done in the other files of the room.
"""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, TypeVar, cast, overload

import msgspec

from graphagent._article import kind_of
from graphagent._functions import accepts_one
from graphagent._options import check_word
from graphagent.errors import FeatureError, UnknownOutcomeError
from graphagent.llm import Deny
from graphagent.log._entries import EffectRecorded, Spent, ValueKept
from graphagent.log._visits import Charge
from graphagent.memory.steps._types import ActionStep, PlanningStep
from graphagent.run._calls import call_tool, check_approval, check_call
from graphagent.run._children import run_agent
from graphagent.run._effects import Effects, add, add_results
from graphagent.run._final_errors import Suspend
from graphagent.run._people import ask
from graphagent.run._sleep import sleep, together
from graphagent.run._times import Deadline, check_duration
from graphagent.run._turns import decide, turn
from graphagent.run._walk import report

if TYPE_CHECKING:
    from datetime import timedelta

    from graphagent._agent import Agent
    from graphagent.events import Event, ModelOutput
    from graphagent.llm import (
        Approve,
        Message,
        ModelRequest,
        ModelResponse,
        Tool,
        ToolCall,
        ToolResult,
        ToolResults,
        Usage,
    )
    from graphagent.log._visits import Visit
    from graphagent.memory.steps._types import Step
    from graphagent.memory.transcript._memory import RunMemory
    from graphagent.protocols import Model, Store
    from graphagent.run._config import Budgets
    from graphagent.run._walk import Walk

A = TypeVar("A")
D = TypeVar("D")
F = TypeVar("F")
P = TypeVar("P", ActionStep, PlanningStep)
S = TypeVar("S", bound="Step")
T = TypeVar("T")
if TYPE_CHECKING:
    # Type checkers bring typing_extensions themselves. When the program runs, nobody asks for the default.
    from typing_extensions import TypeVar as Variable

    Deps = Variable("Deps", covariant=True, default=None)
else:
    Deps = TypeVar("Deps", covariant=True)

_UNSET: Any = object()


class Context(msgspec.Struct, Generic[Deps], eq=False, weakref=True):
    """What a node, a tool or a feature can see and do in a run. It is valid until the node returns.

    Methods that are coroutines are effects: their outcome is recorded, and a node that is executed again after its process died
    gets the recorded outcome instead of causing the effect twice. `Context[Db]` is that of a run that was passed `deps=` of the
    type `Db`; a plain `Context` uses none.
    """

    __graphagent_context__: ClassVar[bool] = True  # how a tool's parameter is recognised without importing this room

    # One is made for every node, and most nodes use nothing of it: a struct is made in a tenth of the time of another object.
    _walk: Walk
    _visit: Visit
    _known: int
    """The last entry that there was when this process began to execute the node."""
    _made: Effects | None = None
    """The effects of the node, or of a part of it, once they are asked for."""
    _position: int = 0
    """The entry as of which the transcript is seen; 0 if that is the beginning of the attempt."""

    __repr__ = object.__repr__

    @property
    def _effects(self) -> Effects:
        if self._made is None:
            self._made = Effects(self._walk, self._visit, "", self._position, known=self._known)
        return self._made

    # ---- where it is

    @property
    def run_id(self) -> str:
        """The id of the run."""
        return self._effects.run.run_id

    @property
    def owner(self) -> str:
        """The user or tenant of the run, or an empty string."""
        return self._effects.run.owner

    @property
    def agent(self) -> str:
        """The name of the agent, or that of its strategy if the agent has none."""
        run = self._effects.run
        return run.activation.name or run.config.name or run.config.strategy.name

    @property
    def thread(self) -> str:
        """The thread to which the run belongs, or an empty string."""
        return self._effects.run.session.thread

    @property
    def node(self) -> str:
        """The path of the node, such as `draft` or `count/words`."""
        return self._effects.node

    @property
    def call(self) -> ToolCall | None:
        """The tool call that is being executed, or None outside of a tool."""
        return self._effects.call

    @property
    def attempt(self) -> int:
        """The number of the attempt: 1, and more if the node is retried."""
        return self._effects.visit.attempt

    @property
    def visits(self) -> int:
        """How often the node has been entered since its strategy was entered, including this time."""
        return self._effects.frame.visits.get(self._effects.visit.node or "", 1)

    @property
    def idempotency_key(self) -> str:
        """A unique name of this tool call or, outside of a tool, of this visit of the node. It survives a restart.

        Pass it to a service that does nothing twice under one key.
        """
        frame, session = self._effects.frame, self._effects.run.session
        call = f":{self.call.id}" if self.call is not None else ""
        # Owners may have runs of one id. Who they are is nothing that the service need know.
        whose = f"{hashlib.sha256(session.owner.encode()).hexdigest()[:16]}:" if session.owner else ""
        return f"{whose}{session.run_id}:{frame.node_path}:{frame.visit.entered}{call}"

    # ---- what it can use

    @property
    def deps(self) -> Deps:
        """The object that was passed to the run as `deps=`."""
        return cast("Deps", self._effects.run.config.deps)

    @property
    def store(self) -> Store | None:
        """The store of the agent, where runs are kept; None if it has none."""
        return self._effects.run.config.store

    @property
    def model(self) -> Model | None:
        """The model of the enclosing strategy or agent, or None. In `around_model`, the model that is asked."""
        return self._effects.model or self._effects.walk.model

    @property
    def purpose(self) -> ModelOutput | None:
        """In `around_model`, the purpose of the answer, such as `plan`; None elsewhere."""
        return self._effects.purpose

    @property
    def tools(self) -> tuple[Tool, ...]:
        """The tools available here, including those of tool servers and, where there are others, those of features."""
        return self._effects.walk.offered

    @property
    def remaining(self) -> Budgets:
        """The remaining budgets, including those of enclosing strategies and runs. None means no limit.

        `max_seconds` is the time until the first of the time limits here, timeouts included.
        """
        walk = self._effects.walk
        return replace(walk.limits.remaining(), max_seconds=walk.seconds_left)

    @property
    def planning_interval(self) -> int | None:
        """The number of model turns after which the model makes a plan; None if it makes none."""
        return self._effects.run.config.planning_interval

    @overload
    def feature(self, kind: type[F]) -> F: ...
    @overload
    def feature(self, kind: type[F], default: D) -> F | D: ...
    def feature(self, kind: type[F], default: Any = _UNSET) -> Any:
        """Return an installed feature, bound to this run.

        Raises:
            FeatureError: the feature is not installed, and no default is passed.
        """
        found = self._effects.run.features.get(kind)
        if found is not None:
            return found.bind(self)
        if default is _UNSET:
            raise missing(kind, self.node)
        return default

    # ---- transcript

    @property
    def memory(self) -> RunMemory:
        """The transcript: in a branch, that of the branch. Each change of it is recorded."""
        return self._effects.memory

    async def add(self, *steps: S) -> S:
        """Add steps to the transcript, and return the last one as recorded. Step callbacks see each first, and may change it.

        Raises:
            VetoError: a callback refused a step.
            SerializationError: a value in a step cannot be stored.
        """
        found: Any = None
        for step in steps:
            found = await add(self._effects, step)
        return cast("S", found)

    async def add_results(self, results: ToolResults) -> ActionStep | None:
        """Record the results of the tool calls of the last turn, and return the completed turn. Step callbacks see it first.

        Results that are recorded already are not recorded again.

        Raises:
            VetoError: a callback refused the turn.
        """
        return await add_results(self._effects, results)

    # ---- model

    async def build_prompt(self, tools: Sequence[Tool] = ()) -> tuple[Message, ...]:
        """Return the messages of the next turn. Features update the transcript first: they recall notes or compress the history.

        Raises:
            PromptTooLongError: the messages do not fit into the context window.
        """
        for feature in self._effects.run.features.having("before_request"):
            await feature.before_request(self, tools)
        return tuple(self.memory.to_messages())

    async def compact(self, tools: Sequence[Tool] = ()) -> bool:
        """Let features shorten the transcript after a PromptTooLongError. Return whether they did."""
        features = self._effects.run.features.having("make_room")
        return any([await feature.make_room(self, tools) for feature in features])

    @overload
    async def turn(
        self, request: ModelRequest, *, parse: Callable[[Message], object] | None = None, attempts: int = 2,
        purpose: ModelOutput = "answer",
    ) -> ActionStep: ...  # fmt: skip
    @overload
    async def turn(
        self, request: ModelRequest, *, step: type[P], parse: Callable[[Message], object] | None = None,
        attempts: int = 2, purpose: ModelOutput = "answer",
    ) -> P: ...  # fmt: skip
    async def turn(
        self, request: ModelRequest, *, step: type[Any] = ActionStep, parse: Callable[[Message], object] | None = None,
        attempts: int = 2, purpose: ModelOutput = "answer",
    ) -> Any:  # fmt: skip
        """Send a request to the model, append its answer to the transcript as a step, and return the step.

        The request, the answer and the step are recorded as one entry. An ActionStep counts as a turn in the budget; a PlanningStep
        does not, but a turn must be left for carrying it out.

        Args:
            request: What the model is sent.
            step: The type of the step.
            parse: Returns the `action_output` of the turn. If it raises OutputError, the model is sent its answer and the error,
                and asked again.
            attempts: How often the model is asked before OutputError is raised.
            purpose: What the answer is for, as events report it.

        Raises:
            BudgetError: a budget is used up.
            OutputError: no answer could be parsed.
            PromptTooLongError: the model refused the prompt as too long, and a feature can shorten it.
            ModelError: the request failed. A step with the error is added.
            VetoError: a callback refused the answer. The model sees the reason in the next turn.
        """
        return await turn(self._effects, request, step, parse, attempts, purpose)

    async def request(
        self,
        request: ModelRequest,
        *,
        key: str = "",
        parse: Callable[[Message], object] | None = None,
        attempts: int = 2,
        purpose: ModelOutput = "decision",
        model: Model | None = None,
        counts: bool = False,
        record: bool = True,
    ) -> ModelResponse:
        """Send a request to the model and return its answer. The transcript does not change.

        Args:
            request: What the model is sent.
            key: Identifies the request in this visit of the node. Default: its number.
            parse: Checks an answer: see `turn`. The usage of the response is that of all attempts.
            attempts: How often the model is asked before OutputError is raised.
            purpose: What the answer is for, as events report it.
            model: The model to ask instead of `ctx.model`.
            counts: Whether it counts as a turn in the budget.
            record: Whether the answer is recorded. Its usage always is.

        Raises:
            BudgetError, OutputError, PromptTooLongError, ModelError: see `turn`.
            FeatureError: the agent has no model.
        """
        return await decide(self._effects, request, key, parse, attempts, purpose, model, counts=counts, record=record)

    # ---- tools

    async def check_call(self, call: ToolCall, *, changed: bool = False) -> Deny | None:
        """Show a tool call to the callbacks for calls, once. Return a refusal, or None.

        Args:
            call: The call.
            changed: Whether a person has changed it since: then they see it again.

        Raises:
            RuleError: a person is asked about it, and a rule forbids it.
        """
        refusal = await check_call(self._effects, call, changed=changed)
        if refusal is None:
            check_approval(self._effects, call)
        return refusal

    async def call_tool(self, tool: Tool | None, call: ToolCall) -> ToolResult:
        """Execute a tool call and return the result as the model sees it. An exception of the tool becomes an error result.

        Executes `check_call`, the `around_tool` methods of features, the cache, and the tool with its timeout and retries. If the
        process dies during the call, the tool's `in_flight` decides whether it is repeated. The result of a deferred tool is
        asked for.

        Raises:
            RunError: the run itself has to stop, for example because a budget is used up.
        """
        return await call_tool(self._effects, tool, call)

    # ---- effects

    async def once(
        self, key: str, work: Callable[[], Awaitable[T]], *, in_flight: Literal["retry", "ask", "fail"] = "retry"
    ) -> T:
        """Return the recorded outcome of an effect, or cause it and record its outcome.

        Args:
            key: Identifies the effect in this visit of the node.
            work: Causes the effect. Its result is plain data, or of a type that the codec knows. If it raises, nothing is recorded.
            in_flight: What happens if the process died during `work`: it is repeated; a person is asked, with a question of the kind
                `in_flight`; or it fails.

        Raises:
            SerializationError: the outcome cannot be stored.
            UnknownOutcomeError: it was broken off, and is not to be repeated.
        """
        check_word("in_flight", in_flight, ("retry", "ask", "fail"))
        effects, log = self._effects, self._effects.log
        key = f"{effects.scope}{key}"
        found = effects.find_or_copy("once", key)
        if found is None:
            await effects.before_live()
            if in_flight != "retry":
                await _start(effects, key, in_flight)
            outcome = await work()
            effects.record(EffectRecorded(at=effects.frame.path, kind="once", key=key, value=log.keep(outcome)))
            await log.commit()
            return log.take(effects.visit.effects["once", key].value) if log.durable else outcome
        return cast("T", log.take(found.value))

    def keep(self, key: str, value: object) -> None:
        """Keep a value with the run of this agent, in the place of an earlier value of that name. The next commit stores it.

        A feature finds it with `kept` when the run is resumed. Unlike the outcomes of effects, it is neither looked for nor
        compared when a node is executed again or a run is executed anew on recorded results.

        Args:
            key: The name of the value, which begins with that of the feature.
            value: Plain data, or a value of a type that the codec knows.

        Raises:
            SerializationError: the value cannot be stored.
        """
        run = self._effects.run
        run.log.append(ValueKept(at=run.frame.path, key=key, value=run.log.keep(value)))

    def kept(self, key: str) -> Any:
        """Return the value that was kept last under a name with the run of this agent, or None."""
        run = self._effects.run
        found = run.activation.kept.get(key)
        return None if found is None else run.log.take(found)

    def next_key(self, name: str) -> str:
        """Return `name:1`, then `name:2`, and so on: a key for an effect that occurs several times.

        In `gather` and in tools, the names are others, since several may be executed at once.
        """
        return f"{self._effects.scope}{name}:{self._effects.count(name)}"

    async def gather(
        self, works: Iterable[Callable[[Context[Deps]], Awaitable[T]]], *, limit: int | None = None
    ) -> list[T]:
        """Execute several functions concurrently and return their results in order. Each gets a context with its own effects.

        If one raises, the others are cancelled. If one waits for an answer, the others finish first.

        Args:
            works: Coroutine functions of a context.
            limit: How many are executed at once. Default: all.
        """
        effects, given = self._effects, list(works)
        for work in given:
            if not accepts_one(work):
                raise TypeError(
                    "ctx.gather takes coroutine functions of a context, such as [lambda ctx: ctx.ask('Where?'), lambda ctx: ctx.ask('When?')]"
                )
        place = effects.count("gather")
        results: dict[int, T] = {}

        async def execute(number: int) -> None:
            own = effects.within(f"{place}.{number}")
            try:
                results[number] = await given[number](context_of(own))
            except Suspend:  # the others finish first
                return
            finally:
                effects.position = max(effects.position, own.position)

        if limit == 1 or len(given) < 2:
            for number in range(len(given)):
                await execute(number)
        else:
            await together(execute, len(given), limit, of=effects.run.session.tasks)
        if len(results) < len(given):
            raise Suspend
        return [results[number] for number in range(len(given))]

    async def sleep(self, seconds: float | timedelta) -> None:
        """Sleep for so long, by the clock of the store. When it ends is recorded, and no process need be alive until then.

        Where nothing else goes on in the run, it is suspended, and whoever resumes it once the time has come continues it here. It is
        waited for in the process if it is a matter of three seconds, or as long as other branches work.

        Args:
            seconds: For how long: a number of seconds, or a timedelta.

        Raises:
            TypeError: it is neither.
            ValueError: it is negative, or longer than a thousand years.
        """
        check_duration(f"node {self.node!r}: ctx.sleep", seconds)
        await sleep(self._effects, seconds)

    async def sleep_until(self, time: datetime) -> None:
        """Sleep until a time, by the clock of the store, as `sleep` does. Nobody sleeps until a time that is past.

        Args:
            time: A datetime with a time zone, such as `datetime.now(UTC) + timedelta(hours=8)`.

        Raises:
            TypeError: the time is not a datetime.
            ValueError: it has no time zone.
        """
        if not isinstance(time, datetime):  # pyright: ignore[reportUnnecessaryIsInstance]  users without a type checker
            raise TypeError(
                f"node {self.node!r} sleeps until {kind_of(time)}; "
                "give a datetime, such as datetime.now(UTC) + timedelta(hours=8)"
            )
        if time.utcoffset() is None:
            raise ValueError(
                f"node {self.node!r} sleeps until a datetime without a time zone; write datetime.now(UTC) + …, "
                "datetime(…, tzinfo=UTC), or time.astimezone() if it is in the zone of this machine"
            )
        await sleep(self._effects, time)

    def spend(self, usage: Usage, what: str = "", model: str = "") -> None:
        """Charge tokens and money to the budget and the ledger.

        Args:
            usage: The tokens and the money.
            what: The purpose, as the ledger shows it.
            model: The model that was paid, as its server names it.
        """
        effects = self._effects
        effects.record(Spent(at=effects.frame.path, charges=(Charge(effects.node, what, model, usage),)))

    def emit(self, event: Event) -> None:
        """Deliver an event to the handlers of its type, unless the node is executed again and did this before."""
        if self._effects.is_live:
            report(self._effects.run.emit, self._effects.walk.held_back, event)

    # ---- people and agents

    @overload
    async def ask(
        self, question: str, *, kind: Literal["approval", "in_flight"], about: object, id: str = "",
        deadline: timedelta | datetime | None = None,
    ) -> Approve | Deny: ...  # fmt: skip
    @overload
    async def ask(
        self, question: str, *, kind: Literal["result"], about: ToolCall, deadline: timedelta | datetime | None = None
    ) -> Any: ...
    @overload
    async def ask(
        self, question: str, type: type[T], *, about: object = None, id: str = "",
        deadline: timedelta | datetime | None = None, default: T = ...,
    ) -> T: ...  # fmt: skip
    @overload
    async def ask(
        self, question: str, type: Any = str, *, about: object = None, id: str = "",
        deadline: timedelta | datetime | None = None, default: Any = ...,
    ) -> Any: ...  # fmt: skip
    async def ask(
        self, question: str, type: Any = str, *, kind: Any = "question", about: object = None, id: str = "",
        deadline: timedelta | datetime | None = None, default: Any = ...,
    ) -> Any:  # fmt: skip
        """Return the answer to a question. The run waits for it, and the process need not stay alive.

        Args:
            question: The text of the question.
            type: The type of the answer, which is checked before it is recorded.
            kind: `approval` of a tool call or of a value, or the `result` of a call. Default: a question to a person.
            about: What it is about, for those who answer.
            id: Identifies it among the open questions of the run. Default: an id of the node, or of the call.
            deadline: How long it can be answered, as a timedelta, or until when, as a datetime with a time zone. It is recorded with
                the question, and judged by the clock of the store. Who resumes the run after it continues it without an answer.
            default: The answer then, of the type `type`.

        Raises:
            QuestionExpiredError: nobody answered before the deadline, and the question has no default.
            DeclinedError: a person declined to answer, with `Deny`.
            QuestionError: another question was asked under this id.
            TypeError: the deadline is neither, or the default is not of the type, or without a deadline.
            ValueError: the deadline has no time zone, or is past when the question is asked.
        """
        until = Deadline(deadline, default)
        until.check(f"node {self.node!r}", kind, type)
        return await ask(self._effects, question, type, kind=kind, about=about, id_=id, until=until)

    async def run_agent(self, agent: Agent[A, T], task: A) -> T:
        """Run another agent as a part of this run and return its answer. Its budget, questions and pauses are also those of this run.

        Raises:
            ToolError: the agent failed.
        """
        return cast("T", await run_agent(agent, self._effects, task))


async def _start(effects: Effects, key: str, in_flight: str) -> None:
    """Record that something is about to be done under a key, unless it was begun before, and must not be done again."""
    times = effects.times_started("once", key)
    if times:
        again: Approve | Deny = Deny("")
        if in_flight != "fail":
            asked = f"The run was broken off during {key!r}. Do it again?"
            again = await ask(effects, asked, kind="in_flight", id_=f"{key}:again:{times}")
        if isinstance(again, Deny):
            raise effects.run.of_run(UnknownOutcomeError(effects.node, key))
    await effects.start("once", key, durable=True)


def missing(kind: type[Any], node: str) -> FeatureError:
    """Return the error of a feature that is missing, with the line to add."""
    return FeatureError(
        f"node {node!r} needs {kind.__name__}, which is not installed; "
        f"add agent.install({kind.__name__}, …) before the first run"
    )


def context_of(effects: Effects) -> Context[Any]:
    """Return the context of a node, or of a part of it such as a tool call, that has these effects."""
    return Context(effects.walk, effects.visit, 0, effects)
