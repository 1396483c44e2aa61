"""The frame of an execution, with all that its nodes need, and the context through which nodes see it."""

from __future__ import annotations

from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar, cast, final

from graphagent._article import kind_of
from graphagent._features import implementing
from graphagent.errors import FeatureError, ModelRequestError, QuestionError
from graphagent.events import (
    AnswerTruncated,
    ModelRequested,
    ModelRequestFailed,
    ModelResponded,
    OutputStreamed,
    TextStreamed,
)
from graphagent.graph import ToolSelection
from graphagent.llm import ModelResponse, Tool, ToolResult
from graphagent.llm._internal import BROKEN_OFF, PartialOutput, check_whole, refused
from graphagent.memory import ActionStep
from graphagent.run.engine._budgets import Meter
from graphagent.run.engine._middleware import pass_through
from graphagent.run.engine._suspend import Suspend
from graphagent.run.state._ledger import Charge
from graphagent.run.state._state import Frame

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator, Sequence

    from graphagent.errors import VetoError
    from graphagent.events import Event, ModelOutput
    from graphagent.graph._internal import Setting
    from graphagent.llm import ModelRequest, ToolCall, Usage
    from graphagent.memory import RunMemory, Step
    from graphagent.protocols import Model, ToolServer
    from graphagent.run._compiled import CompiledNode
    from graphagent.run.engine._recorded import RecordedOutcomes
    from graphagent.run.engine._runtime import Runtime
    from graphagent.run.engine._stored_refs import StoredRef
    from graphagent.run.state._questions import Question

F = TypeVar("F")
S = TypeVar("S", bound="Step")
T = TypeVar("T")
if TYPE_CHECKING:
    # Type checkers bring typing_extensions themselves. When the program runs, nobody asks for the default.
    from typing_extensions import TypeVar as Variable

    Deps = Variable("Deps", covariant=True, default=None)
else:
    Deps = TypeVar("Deps", covariant=True)


CHOSEN = "tools"
"""The key of the effect that holds the names of the tools that a model chose for a subgraph."""


_AROUND = ":around"
"""The end of the key under which middleware has effects of its own."""


class Context(Generic[Deps]):
    """A node's view of its run. It is valid while the node is being executed.

    `Context[Db]` is that of a run that was passed `deps=` of the type `Db`; a plain `Context` uses none.
    """

    __graphagent_context__: ClassVar[bool] = True  # how a tool's parameter is recognised without importing this room
    __slots__ = ("__frame__",)

    def __init__(self, frame: LiveFrame) -> None:
        self.__frame__ = frame

    @property
    def run_id(self) -> str:
        """The id of the run."""
        return self.__frame__.runtime.run_id

    @property
    def owner(self) -> str:
        """The user or tenant for whom it runs; empty where nobody was named."""
        return self.__frame__.runtime.owner

    @property
    def deps(self) -> Deps:
        """The object that the run was passed as `deps=`: clients, connections. None without it."""
        return cast("Deps", self.__frame__.runtime.deps)

    @property
    def node(self) -> str:
        """The path of the node, such as `draft` or `count/words`."""
        return self.__frame__.node_path

    @property
    def attempt(self) -> int:
        """The number of this attempt: 1, and more where the node is retried."""
        return self.__frame__.attempt

    @property
    def call(self) -> ToolCall | None:
        """The tool call that is being executed, in a tool."""
        return self.__frame__.call

    @property
    def memory(self) -> RunMemory:
        """The transcript: in a branch, that of the branch."""
        return self.__frame__.memory

    @property
    def tools(self) -> Sequence[Tool]:
        """The tools that a model is offered here."""
        return self.__frame__.tools

    @property
    def model(self) -> Model:
        """The model to ask.

        Raises:
            FeatureError: the agent has none.
        """
        return self.__frame__.asked_model

    @property
    def model_or_none(self) -> Model | None:
        """The model to ask, if there is one."""
        return self.__frame__.model

    @property
    def idempotency_key(self) -> str:
        """Identifies the tool call that is being executed: the same when it is executed again after a process died.

        Pass it to a service that does nothing twice under one key. Outside a tool it identifies the execution of the node.
        """
        return self.__frame__.idempotency_key

    def feature(self, kind: type[F]) -> F:
        """Return an installed feature, bound to this run.

        Raises:
            FeatureError: it is not installed.
        """
        found = self.__frame__.runtime.features.get(kind)
        if found is None:
            raise missing(kind, self.node)
        return cast("F", found.bind(self))

    def emit(self, event: Event) -> None:
        """Deliver an event to the handlers of its type."""
        self.__frame__.runtime.emit(event)

    async def add(self, *steps: Step, lasting: bool = False) -> None:
        """Add steps to the transcript. Callbacks see each one before it is there.

        A node that is executed again after an interruption adds them again: they are found, and not added twice.

        Args:
            steps: What happened.
            lasting: Whether it happened once, however often the node is executed, and is not added again: an attempt that failed.
        """
        await self.__frame__.add(*steps, lasting=lasting)

    async def request(
        self,
        request: ModelRequest,
        *,
        turn: bool = False,
        key: str = "",
        recorded: bool = True,
        output: ModelOutput = "answer",
    ) -> ModelResponse:
        """Ask the model. Tokens are counted and events delivered; no step is made.

        The answer is streamed if someone listens to TextStreamed of such an output. It is recorded, so that the model is not asked
        again when the run is resumed; with `recorded=False` only what was spent is.

        Args:
            request: The messages, and what else the model is sent.
            turn: Whether it is a model turn in the budget.
            key: Identifies the request among those of the node; by default its number.
            recorded: Whether the answer is recorded.
            output: The purpose of the answer, as TextStreamed names it.

        Raises:
            BudgetError: all turns, tokens or money are spent.
            TruncatedError: the answer was cut off at its limit of tokens, and half of it is of no use.
            ModelError: as the model raises it, or its answer was withheld.
        """
        return await self.__frame__.request(request, turn=turn, key=key, recorded=recorded, output=output)

    async def once(self, key: str, work: Callable[[], Awaitable[T]], *, like: object = None) -> T:
        """Do something that must not be done twice, and record its outcome under a key that identifies it in this node.

        An outcome that was recorded before the run stopped is returned without doing it again. An outcome is plain data, a
        ModelResponse or a ToolResult.

        Args:
            key: Identifies it among the effects of the node.
            work: Does it.
            like: Its input, which is compared when a run is executed again on the outcomes of another one.
        """
        return await self.__frame__.once(key, work, like=like)

    async def sleep_until(self, time: datetime) -> None:
        """Sleep until a time, by the wall clock; return at once if it is past.

        The time is recorded before the node sleeps. A node that is executed again after an interruption sleeps until the recorded
        time, whatever it computes now. Each call in a node is an effect of its own.

        Args:
            time: A datetime with a time zone, such as `datetime.now(UTC) + timedelta(hours=8)`.

        Raises:
            TypeError: the time is no datetime.
            ValueError: it has no time zone.
            Suspend: the run is to pause. It is not to be caught.
        """
        await self.__frame__.sleep_until(time)

    def spend(self, usage: Usage, what: str = "", model: str = "") -> None:
        """Count tokens and money that the node spent itself, and add a row to the ledger.

        Args:
            usage: The tokens and the money.
            what: The purpose, as the ledger shows it.
            model: The model that was paid, as its server names it.
        """
        self.__frame__.spend(usage, what, model)

    async def ask(self, question: Question) -> Any:
        """Return the answer to a question. Until there is one, the run waits for it.

        Raises:
            Suspend: there is no answer yet. It is not to be caught.
        """
        return await self.__frame__.ask(question)

    def __repr__(self) -> str:
        return f"<context of node {self.node!r} in run {self.run_id!r}>"


@final
class LiveFrame(Frame):
    """A frame that is being executed: its current value, its transcript, its budget, its model and tools."""

    __slots__ = (
        "arrived", "branches", "call", "compiled", "declared", "existed", "memory", "meter", "model", "prefix", "ref", "runtime",
        "sent", "value",
    )  # fmt: skip

    def __init__(
        self,
        runtime: Runtime,
        path: str,
        memory: RunMemory,
        meter: Meter,
        model: Model | None,
        tools: Sequence[Tool | ToolServer],
        branches: tuple[tuple[str, int], ...] = (),
    ) -> None:
        super().__init__(path)
        self.runtime = runtime
        self.memory = memory
        self.meter = meter
        self.model = model
        self.declared = tools
        """The tools as the agent or the strategy has them: a server is among them in the place of its tools."""
        self.branches = branches
        """The enclosing branches and itself, the outermost first, each with the number of the entry of its beginning."""
        self.compiled: CompiledNode | None = None
        """The current node; None: the first one."""
        self.value: Any = None
        """The input of the current node, while it is not being executed."""
        self.ref: StoredRef | None = None
        """The reference to that value, where the journal has it."""
        self.arrived = self.existed = 0
        """The numbers of the entries from which the enclosing frame has its value, and since which frames are inside it."""
        self.call: ToolCall | None = None
        self.prefix = ""
        """What precedes the keys of its effects: in a tool the id of the call, in middleware the key of the request."""
        self.sent: ModelRequest | None = None
        """What the model was sent by the last request, if middleware may have changed it and the answer is not a recorded one."""

    @property
    def tools(self) -> Sequence[Tool]:
        """The tools that a model is offered here, with those of servers in the run's own list."""
        return self._listed(self.declared)

    def _listed(self, declared: Sequence[Tool | ToolServer]) -> Sequence[Tool]:
        """Return tools, with those of the servers among them in the place of the servers."""
        listed = self.runtime.listed
        if listed is None:  # no server
            return cast("Sequence[Tool]", declared)
        return tuple(
            tool for each in declared for tool in ((each,) if isinstance(each, Tool) else listed.get(each.name, ()))
        )

    @property
    def context(self) -> Context[Any]:
        """A context for a node. It is not kept here: two objects that refer to each other wait for the garbage collector."""
        return Context(self)

    @property
    def entry_number(self) -> int:
        """The number of the entry that has the current value: in a frame that has not moved, that of the enclosing frame."""
        return self.number or self.arrived

    @property
    def inside_since(self) -> int:
        """The number of the entry since which frames are inside the current node, which identifies the transcripts of its branches."""
        return self.since or self.existed

    @property
    def attempt(self) -> int:
        """The number of this attempt of the node."""
        tried = self.attempts or {}
        return 1 + sum(count - 1 for name, count in tried.items() if name.isdecimal())

    @property
    def asked_model(self) -> Model:
        """The model.

        Raises:
            FeatureError: there is none.
        """
        if self.model is None:
            raise no_model(self.node_path)
        return self.model

    @property
    def execution(self) -> str:
        """Identifies this execution of the node in its run: the same when it is executed again after a process died."""
        if self.runtime.journal is not None:
            return f"{self.node_path}:{self.entry_number}"
        if self.effects is None or "" not in self.effects:
            self.effect_done("", value=self.runtime.meter.nodes)
        assert self.effects is not None
        return f"{self.node_path}:{self.effects[''].value}"

    @property
    def idempotency_key(self) -> str:
        """Identifies the tool call that is being executed, or else this execution of the node."""
        return f"{self.runtime.run_id}:{self.execution}{f':{self.call.id}' if self.call is not None else ''}"

    # ---- the tree

    def enter(
        self,
        part: str,
        setting: Setting | None = None,
        *,
        branch: int | None = None,
        memory: RunMemory | None = None,
    ) -> LiveFrame:
        """Return a new frame inside the current node: of the strategy that it is, or of a branch of the fork that it is."""
        path = f"{self.path}{part}/" if branch is None else f"{self.path}{part}/{branch}/"
        meter, model, tools = self.meter, self.model, self.declared
        if setting is not None:
            meter, model, tools = self.with_setting(setting, path[:-1])
        branches = self.branches if branch is None else (*self.branches, (path, self.inside_since))
        frame = LiveFrame(self.runtime, path, memory or self.memory, meter, model, tools, branches)
        frame.arrived, frame.existed, frame.ref = self.entry_number, self.inside_since, self.ref
        if self.inside is None:
            self.inside = {}
        if branch is None:
            self.inside[part] = frame
        else:
            fork = self.inside.get(part)
            if fork is None:
                fork = self.inside[part] = Frame(f"{self.path}{part}/")
            if fork.inside is None:
                fork.inside = {}
            fork.inside[str(branch)] = frame
        return frame

    def with_setting(
        self, setting: Setting | None, path: str = ""
    ) -> tuple[Meter, Model | None, Sequence[Tool | ToolServer]]:
        """Return the meter, the model and the tools of a strategy at a path that is entered from here."""
        if setting is None:
            return self.meter, self.model, self.declared
        model = self.model if setting.model is None else setting.model
        if isinstance(setting.tools, ToolSelection):
            tools: Sequence[Tool | ToolServer] = self._chosen(self.available(setting))
        else:
            tools = self.declared if setting.available is None else tuple(map(as_tool, setting.available))
        return Meter(self.meter, setting, where=path) if setting.limited else self.meter, model, tools

    def available(self, setting: Setting) -> Sequence[Tool]:
        """Return the tools that a strategy may offer: if a model chooses, those of which it does."""
        return self.tools if setting.available is None else self._listed(tuple(map(as_tool, setting.available)))

    def of_features(self) -> dict[str, Tool]:
        """Return the tools of features, by their names: they are no part of the choice of tools."""
        return {tool.name: tool for feature in implementing(self.runtime.features, "tools") for tool in feature.tools}

    def _chosen(self, tools: Sequence[Tool]) -> tuple[Tool, ...]:
        """Return those of the tools that were chosen when the current node was entered, and the tools of features."""
        names, fixed = self.outcome(CHOSEN), self.of_features() if tools else {}
        found = {tool.name: tool for tool in tools if names is None or tool.name in names or tool.name in fixed}
        return (*found.values(), *(tool for name, tool in fixed.items() if name not in found))

    def inner(self) -> LiveFrame | None:
        """Return the frame of the strategy that is the current node, if it was entered."""
        found = self.inside.get(self.node or "") if self.inside is not None else None
        return found if isinstance(found, LiveFrame) else None

    def branch_frames(self) -> dict[str, Frame]:
        """Return the frames of the branches of the fork that is the current node, by their numbers."""
        fork = self.inside.get(self.node or "") if self.inside is not None else None
        return (fork.inside or {}) if fork is not None else {}

    def live_frames(self) -> Iterator[LiveFrame]:
        """Yield the frame and those inside it, the outermost first."""
        for frame in self.frames():
            if isinstance(frame, LiveFrame):
                yield frame

    def inside_out(self) -> Iterator[LiveFrame]:
        """Yield the frames inside it, the innermost first, and then itself: the innermost holds the newest value."""
        for each in (self.inside or {}).values():
            for frame in (each,) if isinstance(each, LiveFrame) else (each.inside or {}).values():
                if isinstance(frame, LiveFrame):
                    yield from frame.inside_out()
        yield self

    def detached(self) -> LiveFrame:
        """Return a frame like this one that is not part of the tree: nothing that happens in it moves the run."""
        frame = LiveFrame(self.runtime, self.path, self.memory, self.meter, self.model, self.declared, self.branches)
        frame.node, frame.compiled, frame.number, frame.since = self.node, self.compiled, self.number, self.since
        frame.arrived, frame.existed, frame.ref, frame.attempts = self.arrived, self.existed, self.ref, self.attempts
        return frame

    def for_call(self, call: ToolCall) -> LiveFrame:
        """Return the frame of a tool that is called: it shares the effects of the node, under the id of the call."""
        frame = self._sharing_effects(call.id)
        frame.call = call
        return frame

    def for_middleware(self, key: str) -> LiveFrame:
        """Return the frame of middleware around an effect of the node: it shares the effects of the node, under the key of that one."""
        return self._sharing_effects(f"{key}{_AROUND}")

    def _sharing_effects(self, key: str) -> LiveFrame:
        """Return a frame that shares the effects of the node, under a key: what is done in it can be told from what the node does."""
        if self.effects is None:
            self.effects = {}
        frame = self.detached()
        frame.call, frame.effects, frame.prefix = self.call, self.effects, f"{self.prefix}{key}/"
        return frame

    # ---- the transcript

    def begin_adding(self) -> None:
        """Set a savepoint of the transcript: a node that was interrupted and is executed again adds to it anew."""
        if self.savepoint is None:
            self.savepoint = self.memory.mark()

    async def add(self, *steps: Step, lasting: bool = False) -> None:
        """Add steps to the transcript; callbacks see each one before it is there.

        Args:
            steps: What happened.
            lasting: Whether it happened once, however often the node is executed, such as an attempt that failed.
        """
        for step in steps:
            _, veto = await self._put(step, lasting=lasting)
            if veto is not None:
                self.runtime.fail(veto)

    def begin_call(self, call: ToolCall) -> None:
        """Note that a tool is about to be called, so that the model is not told otherwise if the call is broken off."""
        self.begin_adding()
        assert self.savepoint is not None
        self.savepoint.called.add(call.id)

    def settle_calls(self, inside: LiveFrame | None = None) -> None:
        """Put what is known of the calls of the last model turn into it, where the node that made them does not end with their results.

        A call that was begun and has no result was broken off, and its result says so.

        Args:
            inside: The frame in which they may have been made; by default this one and those inside it.
        """
        turn = None if self.memory.quiet else self.memory.turn_of(())
        if turn is None or not turn.tool_calls:
            return
        known = {result.call_id: result for result in turn.results}
        found: dict[str, ToolResult] = {}
        for each in (inside or self).live_frames():
            found.update(each._known_of(turn, elsewhere=each.memory is not self.memory))  # noqa: SLF001  of this class
        found = {id_: result for id_, result in found.items() if result is not known.get(id_)}
        if found:
            turn.take(found.values())

    def _known_of(self, turn: ActionStep, *, elsewhere: bool) -> Iterator[tuple[str, ToolResult]]:
        """Yield the results that are known here for calls of a turn, by their ids; `elsewhere`: the transcript is that of a branch."""
        if elsewhere and not self.memory.quiet:
            memory = self.memory
            for step in memory.steps[max(memory.inherited - 1, 0) : memory.inherited]:  # its copy of the turn
                if isinstance(step, ActionStep) and step.tool_calls == turn.tool_calls:
                    yield from ((result.call_id, result) for result in step.results)
        for call in turn.tool_calls:
            result = self.outcome(f"call:{call.id}")
            if isinstance(result, ToolResult):
                yield call.id, result
            elif self._has_called(call.id):
                yield call.id, refused(call, BROKEN_OFF)

    def _has_called(self, id_: str) -> bool:
        """Return whether a tool call was begun in this execution: in this process, or before as far as that is recorded."""
        if (self.savepoint is not None and id_ in self.savepoint.called) or self.was_begun(f"call:{id_}"):
            return True
        around = f"{id_}/call{_AROUND}/"  # what middleware did itself may have been before the call
        return any(
            key.startswith(f"{around}proceed:") or (key.startswith(f"{id_}/") and not key.startswith(around))
            for key in self.effects or ()
        )

    @property
    def added_before(self) -> Step | None:
        """The step that the node adds next, if it added it before it was interrupted."""
        mark = self.savepoint
        return mark.added[mark.place] if mark is not None and mark.place < len(mark.added) else None

    async def offer(self, step: S) -> tuple[S, VetoError | None]:
        """Add a step that callbacks may refuse; return the step that is in the transcript, and their refusal."""
        put, veto = await self._put(step)
        if veto is not None and self.savepoint is not None:
            self.savepoint.refused[self.savepoint.place - 1] = veto
        return cast("S", put), veto

    async def close_turn(self) -> None:
        """Add the open model turn to the transcript, with the results that it has."""
        turn = self.memory.open
        if turn is not None:
            await self.add(turn)
            self.memory.shut()

    async def _put(self, step: Step, *, lasting: bool = False) -> tuple[Step, VetoError | None]:
        mark = self.savepoint
        if mark is None:
            mark = self.savepoint = self.memory.mark()
        elif mark.place < len(mark.added) and not lasting:
            mark.place += 1
            return mark.added[mark.place - 1], mark.refused.get(mark.place - 1)
        runtime, steps = self.runtime, self.memory.steps
        veto = await runtime.called_back(step) if runtime.callbacks is not None else None
        steps.append(step)
        step = steps[-1]
        if not lasting:
            mark.added.append(step)
            mark.place += 1
        runtime.added_step(step)
        return step, veto

    # ---- effects

    def numbered(self, what: str) -> str:
        """Return a key that identifies an effect of the node by its number: the same when the node is executed again."""
        if self.savepoint is None:
            self.savepoint = self.memory.mark()
        self.savepoint.requests += 1
        return f"{what}:{self.savepoint.requests}"

    def _key(self, key: str) -> str:
        """Return the key of an effect: in a tool, with the id of its call."""
        return f"{self.prefix}{key}" if self.prefix else key

    def has_outcome(self, key: str) -> bool:
        """Return whether the outcome of an effect is recorded, here or in the run whose outcomes are used."""
        key, recorded = self._key(key), self.runtime.recorded
        if self.effects is not None and key in self.effects:
            return True
        return recorded is not None and recorded.has_outcome(self, key)

    def outcome(self, key: str) -> Any:
        """Return the outcome that is recorded under a key of this execution, or None."""
        effect = self.effects.get(key) if self.effects is not None else None
        return effect.value if effect is not None else None

    def is_recorded(self, key: str) -> bool:
        """Return whether `once` has an outcome to return under a key."""
        key, recorded = self._key(key), self.runtime.recorded
        return (self.effects is not None and key in self.effects) or (
            recorded is not None and recorded.has_outcome(self, key)
        )

    async def once(self, key: str, work: Callable[[], Awaitable[T]], *, like: object = None) -> T:
        """Do something that must not be done twice, or return its recorded outcome.

        Args:
            key: Identifies it among the effects of this execution.
            work: Does it.
            like: Its input, which is compared when a run is executed again on the outcomes of another one.
        """
        full = self._key(key)
        if self.effects is not None and full in self.effects:
            return cast("T", self.effects[full].value)
        runtime = self.runtime
        if runtime.attention:
            runtime.stop_if_due()
        if runtime.recorded is not None and runtime.recorded.is_next(self, full, like):
            outcome = cast("T", self._taken(runtime.recorded, full))
        else:
            outcome = await work()
        await self.record(key, outcome)
        return outcome

    def _taken(self, recorded: RecordedOutcomes, key: str) -> Any:
        """Return an outcome of another run, and charge what it cost."""
        outcome, charges = recorded.take(self, key)
        for charge in charges:
            self.charge(charge)
        return outcome

    def recorded_winner(self) -> int | None:
        """Return the branch that won the race that is the current node, and charge what the others cost; None: it is not recorded.

        Raises:
            BudgetError: the turns that the others had are more than are left.
        """
        recorded = self.runtime.recorded
        found = recorded.winner(self) if recorded is not None else None
        if found is None:
            return None
        winner, charges = found
        for charge, is_turn in charges:
            if is_turn:
                self.meter.count_turn(self.runtime)
            self.charge(charge)
        return winner

    async def record(self, key: str, outcome: Any) -> None:
        """Record the outcome of an effect that was done."""
        key = self._key(key)
        journal = self.runtime.journal
        if journal is None:
            self.effect_done(key, value=outcome)
        else:
            await journal.effect_done(self, key, outcome)

    async def sleep_until(self, time: datetime) -> None:
        """Sleep until a time, or until the one that is recorded for this sleep.

        Raises:
            TypeError: the time is no datetime.
            ValueError: it has no time zone.
            Suspend: the run is to pause.
        """
        if not isinstance(time, datetime):  # pyright: ignore[reportUnnecessaryIsInstance]  users without a type checker
            raise TypeError(
                f"node {self.node_path!r} sleeps until {kind_of(time)}; "
                "give a datetime, such as datetime.now(UTC) + timedelta(hours=8)"
            )
        if time.utcoffset() is None:
            raise ValueError(
                f"node {self.node_path!r} sleeps until a datetime without a time zone; write datetime.now(UTC) + …, "
                "datetime(…, tzinfo=UTC), or time.astimezone() if it is in the zone of this machine"
            )

        async def given() -> datetime:
            return time

        await self.runtime.sleep_until(await self.once(self.numbered("sleep"), given))

    async def begin_effect(self, key: str) -> None:
        """Record that something is about to be done that must not be begun again without asking if the node is interrupted."""
        if self.runtime.journal is not None:
            await self.runtime.journal.effect_begun(self, key)
        else:
            self.effect_begun(key)

    def was_begun(self, key: str) -> bool:
        """Return whether `begin_effect` recorded a key in this execution."""
        return self.begun is not None and key in self.begun

    def remember_ref(self, ref: StoredRef) -> None:
        """Remember where the journal has a value that this execution has seen."""
        if self.refs is None:
            self.refs = {}
        self.refs[id(ref.value)] = ref

    # ---- the model

    async def request(
        self,
        request: ModelRequest,
        *,
        turn: bool = False,
        key: str = "",
        recorded: bool = True,
        output: ModelOutput = "answer",
        check: Callable[[ModelResponse], object] | None = None,
    ) -> ModelResponse:
        """Ask the model, or return its recorded answer.

        Args:
            request: The messages, and what else the model is sent.
            turn: Whether it is a model turn in the budget.
            key: Identifies the request among the effects of the node; by default its number.
            recorded: Whether the answer is recorded; if not, only what was spent is.
            output: The purpose of the answer, as TextStreamed names it.
            check: Called with a new answer before it is recorded; if it raises, the node asks again when the run is resumed.

        Raises:
            BudgetError: all turns, tokens or money are spent.
            TruncatedError: the answer was cut off at its limit of tokens, and half of it is of no use.
            ModelError: as the model raises it, or its answer was withheld.
        """
        runtime, self.sent = self.runtime, None
        if recorded:
            key = key or self.numbered("model")
            if turn:
                self._count_recorded(key)
            ask = partial(self._respond, request, key, output, turn=turn, check=check)
            response = await self.once(key, ask, like=request)
            return self._answered_by(response, output)
        if runtime.attention:
            runtime.stop_if_due()
        if runtime.recorded is not None:
            runtime.recorded.refuse(self, "it asks a model")
        response = await self._respond(request, key or "request", output, turn=turn)
        if runtime.journal is not None:
            await runtime.journal.usage_counted(self)
        return self._answered_by(response, output)

    async def request_unless(
        self,
        refused: Callable[[ModelRequestError], bool],
        request: ModelRequest,
        *,
        turn: bool = False,
        key: str = "",
        output: ModelOutput = "answer",
    ) -> ModelResponse | None:
        """Ask the model; return None if its server refuses in a way that `refused` knows, which is recorded as an answer is.

        Raises:
            BudgetError, ModelError: as `request` does.
        """
        key, self.sent = key or self.numbered("model"), None
        if turn:
            self._count_recorded(key)

        async def ask() -> ModelResponse | bool:
            try:
                return await self._respond(request, key, output, turn=turn)
            except ModelRequestError as error:
                if refused(error):
                    return False
                raise

        found = await self.once(key, ask)
        return None if isinstance(found, bool) else self._answered_by(found, output)

    def _answered_by(self, response: ModelResponse, output: ModelOutput) -> ModelResponse:
        """Note the answer that a model gave, now or earlier."""
        self.memory.lower("inferred")
        if output == "answer" and self.call is None:
            self.runtime.finish_reason = response.finish_reason
        return response

    def _count_recorded(self, key: str) -> None:
        """Count a model turn whose answer is taken from the outcomes of another run."""
        key, recorded = self._key(key), self.runtime.recorded
        if recorded is None or (self.effects is not None and key in self.effects):
            return
        if recorded.has_outcome(self, key):
            self.meter.count_turn(self.runtime)

    async def _respond(
        self,
        request: ModelRequest,
        key: str,
        output: ModelOutput,
        *,
        turn: bool,
        check: Callable[[ModelResponse], object] | None = None,
    ) -> ModelResponse:
        features = self.runtime.around_model
        # What middleware asks a model itself does not pass through middleware: it would do so without end.
        if features is None or self.prefix.endswith(f"{_AROUND}/"):
            response = await self._answer(request, key, output, turn=turn)
        else:
            answers: list[ModelResponse] = []

            async def proceed(request: ModelRequest) -> ModelResponse:
                self.sent = request
                answers.append(await self._answer(request, key, output, turn=turn))
                return answers[-1]

            context = self.for_middleware(key).context
            response = await pass_through(
                features, "around_model", context, request, proceed, kind=ModelResponse, kept_on=(Suspend,)
            )
            if not any(response.message is each.message for each in answers):
                response = self.runtime.with_ids(response)
        if check is not None:
            check(response)
        return response

    async def _answer(self, request: ModelRequest, key: str, output: ModelOutput, *, turn: bool) -> ModelResponse:
        """Send a request to the model, and return its answer."""
        runtime, node, model = self.runtime, self.node_path, self.asked_model
        output = "tool" if output == "answer" and self.call is not None else output
        for feature in implementing(runtime.features, "check_request"):
            feature.check_request(self.context, request, output)
        self.meter.check_spending(runtime)
        if runtime.parent is not None:
            runtime.parent.check_spending(runtime)
        if turn:
            self.meter.count_turn(runtime)
        on_text = self._stream(node, output) if runtime.streams(output) else None
        partial: PartialOutput | None = None
        if request.output is not None and runtime.streams(output, OutputStreamed):
            partial = PartialOutput(request.output)
            on_text = self._stream_output(node, output, partial, on_text)
        runtime.emit(ModelRequested(runtime.run_id, node, request))
        response = runtime.with_ids(await model.respond(request, on_text))
        self.charge(Charge(node, self._key(key), response.model, response.usage))
        if partial is not None and not response.message.tool_calls:
            self._emit_output(node, output, partial.end(response.message.text))
        for failed in response.failed:
            runtime.emit(ModelRequestFailed(runtime.run_id, node, failed.model, failed.reason))
        runtime.emit(ModelResponded(runtime.run_id, node, response))
        if response.finish_reason == "length":
            runtime.emit(AnswerTruncated(runtime.run_id, node, response.usage.output_tokens, output))
        # Before it is recorded: a run that is resumed with a higher limit asks again.
        check_whole(response, request, half_text=output != "summary")
        return response

    def _stream(self, node: str, output: ModelOutput) -> Callable[[str], None]:
        return lambda text: self.runtime.emit(TextStreamed(self.runtime.run_id, node, text, output))

    def _stream_output(
        self, node: str, output: ModelOutput, partial: PartialOutput, on_text: Callable[[str], None] | None
    ) -> Callable[[str], None]:
        def tell(text: str) -> None:
            if on_text is not None:
                on_text(text)
            self._emit_output(node, output, partial.add(text))

        return tell

    def _emit_output(self, node: str, output: ModelOutput, found: tuple[Any] | None) -> None:
        if found is not None:
            self.runtime.emit(OutputStreamed(self.runtime.run_id, node, found[0], output))

    def spend(self, usage: Usage, what: str = "", model: str = "") -> None:
        """Count tokens and money that the node spent: for what, and by which model, as in the ledger."""
        self.charge(Charge(self.node_path, what, model, usage))

    def charge(self, charge: Charge) -> None:
        """Count what was spent, and add its row to the ledger."""
        runtime = self.runtime
        self.meter.spend(charge.usage)
        runtime.charges.append(charge)
        if runtime.parent is not None:
            runtime.parent.spend(charge.usage)

    # ---- questions

    async def ask(self, question: Question) -> Any:
        """Return the answer to a question, or open the question.

        Raises:
            Suspend: there is no answer yet; the run waits for it.
        """
        answer = await self.answer_to(question)
        if answer is None:
            raise Suspend
        return answer[0]

    async def answer_to(self, question: Question) -> tuple[Any] | None:
        """Return the answer to a question; or open it and return None: the node suspends when nothing is left to do."""
        key, runtime = question.key, self.runtime
        if key == "answer":
            # The journal has one answer for each execution of a node, so another question would be given that of the first.
            asked = runtime.asked_by.setdefault(self.execution, question.id)
            if asked != question.id:
                raise QuestionError(self.node_path, asked, question.id)
        if self.effects is not None and key in self.effects:
            return (self.effects[key].value,)
        if runtime.recorded is not None and runtime.recorded.has_outcome(self, key):
            if runtime.attention:
                runtime.stop_if_due()
            answer = self._taken(runtime.recorded, key)
            if runtime.journal is None:
                self.effect_done(key, value=answer)
            else:
                runtime.journal.resumed(self, [(self, question, answer)])
                await runtime.journal.commit()
            return (answer,)
        runtime.ask(question, self)
        return None


def as_tool(given: Any) -> Tool | ToolServer:
    """Return a tool as it is, an agent as a tool, and a server of tools as it is."""
    return cast(
        "Tool | ToolServer", given if isinstance(given, Tool) or not hasattr(given, "as_tool") else given.as_tool()
    )


def no_model(node: str) -> FeatureError:
    """Return the error of a node that asks a model where there is none, with the line to write."""
    return FeatureError(f"node {node!r} asks a model, and there is none; write Agent(strategy, model=…)")


def missing(kind: type[Any], node: str) -> FeatureError:
    """Return the error of a feature that is missing, with the line to add."""
    return FeatureError(
        f"node {node!r} needs {kind.__name__}, which is not installed; "
        f"add agent.install({kind.__name__}, …) before the first run"
    )
