"""What a node is given beside its input: the run that it is part of."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar, cast

from graphagent._features import implementing
from graphagent.errors import FeatureError, ModelRequestError
from graphagent.events import AnswerTruncated, ModelRequested, ModelResponded, TextStreamed
from graphagent.llm import Tool
from graphagent.llm._internal import check_whole
from graphagent.run._budgets import Meter
from graphagent.run._ledger import Charge
from graphagent.run._suspend import Halt

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from graphagent.errors import VetoError
    from graphagent.events import Event, ModelOutput
    from graphagent.graph._internal import Setting
    from graphagent.llm import ModelRequest, ModelResponse, ToolCall, Usage
    from graphagent.memory import RunMemory, Step
    from graphagent.memory._internal import Mark
    from graphagent.protocols import Model
    from graphagent.run._held import Held
    from graphagent.run._plan import Slot
    from graphagent.run._state import RunState
    from graphagent.run._suspend import Question

F = TypeVar("F")
S = TypeVar("S", bound="Step")
T = TypeVar("T")
if TYPE_CHECKING:
    # Type checkers bring typing_extensions themselves. When the program runs, nobody asks for the default.
    from typing_extensions import TypeVar as Variable

    Deps = Variable("Deps", covariant=True, default=None)
else:
    Deps = TypeVar("Deps", covariant=True)


class Context(Generic[Deps]):
    """A node's view of its run. It is valid while the node is being executed.

    `Context[Db]` is that of a run that was passed `deps=` of the type `Db`; a plain `Context` uses none.
    """

    __graphagent_context__: ClassVar[bool] = True  # how a tool's parameter is recognised without importing this room

    # What most contexts never have stands here: one is made for every run, and for every branch.
    at: tuple[Slot, Any] | None = None
    """Where it stands, with the value that stands there, while it is not being executed. For the engine."""
    attempts: dict[str, int] | None = None
    """How often something was begun here that is tried again, under the numbers of the policies. For the engine."""
    call: ToolCall | None = None
    """The tool call that is being executed, in a tool."""
    effects: dict[str, Any] | None = None
    """What was done already in the node that is being executed. For the engine."""
    entered = 0
    """The number of the entry since which there is what stands inside that node. For the journal."""
    held: Held | None = None
    """The value that stands here, and where the journal has it. For the journal."""
    items: list[Any] | None = None
    """What a fork was given, where it can be looked at only once. For the engine."""
    known: dict[int, Held] | None = None
    """Objects that the journal has already, under their ids. For the journal."""
    mark: Mark | None = None
    """How the transcript was when the node began to add to it. For the engine."""
    number = 0
    """The number of the entry that led to the node that is being executed. For the journal."""
    parts: dict[str, Context] | None = None
    """What stands inside the node that is to go on: a strategy, or branches. For the engine."""
    slot: Slot | None = None
    """The place in the plan, for the engine."""

    def __init__(
        self,
        state: RunState,
        model: Model | None,
        tools: Sequence[Tool],
        memory: RunMemory,
        meter: Meter,
        prefix: str,
        branches: tuple[tuple[str, int], ...] = (),
    ) -> None:
        self.state = state
        """The run's own affairs, for the engine."""
        self.memory = memory
        """The transcript: in a branch, that of the branch."""
        self.meter = meter
        """What may be spent here, for the engine."""
        self.tools = tools
        """The tools that a model is offered here."""
        self.branches = branches
        """The branches around, the outermost first, each with the number of the entry since which it is there. For the engine."""
        self._model = model
        self._prefix = prefix

    @property
    def run_id(self) -> str:
        """The run."""
        return self.state.run_id

    @property
    def owner(self) -> str:
        """For whom it runs; empty where nobody was named."""
        return self.state.owner

    @property
    def deps(self) -> Deps:
        """What `run`, or whatever else executes the run, was passed as `deps=`: clients, connections. None without it."""
        return cast("Deps", self.state.deps)

    @property
    def prefix(self) -> str:
        """Where the strategy stands whose node this is: empty, or such as `count/`."""
        return self._prefix

    @property
    def node(self) -> str:
        """The path of the node, such as `draft` or `count/words`."""
        return self._prefix + self.slot.name if self.slot is not None else ""

    @property
    def branch(self) -> str:
        """The prefix of the branch whose transcript this is; empty for that of the run."""
        return self.branches[-1][0] if self.branches else ""

    @property
    def attempt(self) -> int:
        """How often the node was begun: 1, and more where it is tried again."""
        tried = self.attempts or {}
        return 1 + sum(count - 1 for name, count in tried.items() if name.isdecimal())

    @property
    def execution(self) -> str:
        """Names this execution of the node in its run: the same when it is executed again after a process died."""
        if self.state.journal is not None:
            return f"{self.node}:{self.number}"
        if self.effects is None:
            self.effects = {}
        return f"{self.node}:{self.effects.setdefault('', self.state.meter.nodes)}"

    @property
    def model(self) -> Model:
        """The model to ask.

        Raises:
            FeatureError: the agent has none.
        """
        if self._model is None:
            raise no_model(self.node)
        return self._model

    @property
    def idempotency_key(self) -> str:
        """Names the tool call that is being executed: the same when it is executed again after a process died.

        Hand it to a service that does nothing twice under one key. Outside a tool it names the node.
        """
        return f"{self.run_id}:{self.execution}{f':{self.call.id}' if self.call is not None else ''}"

    @property
    def model_or_none(self) -> Model | None:
        """The model to ask, if there is one."""
        return self._model

    def feature(self, kind: type[F]) -> F:
        """Give an installed feature, speaking for this run.

        Raises:
            FeatureError: it is not installed.
        """
        found = self.state.features.get(kind)
        if found is None:
            raise missing(kind, self.node)
        return cast("F", found.bind(self))

    def emit(self, event: Event) -> None:
        """Tell all who listen to such events."""
        self.state.emit(event)

    def begin_adding(self) -> None:
        """Remember how the transcript is: a node that is broken off and executed again adds to it anew."""
        if self.mark is None:
            self.mark = self.memory.mark()

    async def add(self, *steps: Step, lasting: bool = False) -> None:
        """Add steps to the transcript: callbacks see each one before it stands there.

        A node that is executed again after it was broken off adds them again: that finds them there, and adds nothing.

        Args:
            steps: What happened.
            lasting: Whether it happened once, however often the node is executed: it is not added again, such as an attempt
                that failed.
        """
        for step in steps:
            _, veto = await self._put(step, lasting=lasting)
            if veto is not None:
                self.state.fail(veto)

    @property
    def added_before(self) -> Step | None:
        """What the node added next, where it was broken off behind that and is executed again."""
        mark = self.mark
        return mark.added[mark.place] if mark is not None and mark.place < len(mark.added) else None

    async def offer(self, step: S) -> tuple[S, VetoError | None]:
        """Add a step that callbacks may refuse; give the one that stands there, and their refusal, to deal with."""
        put, veto = await self._put(step)
        if veto is not None and self.mark is not None:
            self.mark.refused[self.mark.place - 1] = veto
        return cast("S", put), veto

    async def shut(self) -> None:
        """Have the open model turn join the transcript, with the results that it has."""
        turn = self.memory.open
        if turn is not None:
            await self.add(turn)
            self.memory.shut()

    async def _put(self, step: Step, *, lasting: bool = False) -> tuple[Step, VetoError | None]:
        mark = self.mark
        if mark is None:
            mark = self.mark = self.memory.mark()
        elif mark.place < len(mark.added) and not lasting:
            mark.place += 1
            return mark.added[mark.place - 1], mark.refused.get(mark.place - 1)
        state, steps = self.state, self.memory.steps
        veto = await state.called_back(step) if state.callbacks is not None else None
        steps.append(step)
        step = steps[-1]
        if not lasting:
            mark.added.append(step)
            mark.place += 1
        state.note(step)
        return step, veto

    async def request(
        self,
        request: ModelRequest,
        *,
        turn: bool = False,
        key: str = "",
        recorded: bool = True,
        output: ModelOutput = "answer",
    ) -> ModelResponse:
        """Ask the model. Tokens are counted and events told; no step is made.

        The answer is streamed if someone listens to TextStreamed of such an output. It is recorded, so that the model is not asked again
        when the run is resumed; with `recorded=False` only what was spent is.

        Args:
            request: What it is asked.
            turn: Whether it is a model turn in the budget.
            key: Names the request among those of the node; by default its number.
            recorded: Whether the answer is recorded.
            output: What it is asked for, as TextStreamed says it.

        Raises:
            BudgetError: all turns, tokens or money are spent.
            TruncatedError: the answer was cut off at its limit of tokens, where half of it is of no use.
            ModelError: as the model raises it, or its answer was withheld.
        """
        if recorded:
            key = key or self.numbered("model")
            if turn:
                self._count_recorded(key)
            response = await self.once(key, partial(self._respond, request, key, output, turn=turn), like=request)
            return self._answered_by(response, output)
        if self.state.attention:
            self.state.go_on()
        if self.state.tape is not None:
            self.state.tape.refuse(self, "it asks a model")
        response = await self._respond(request, key or "request", output, turn=turn)
        if self.state.journal is not None:
            await self.state.journal.spent(self)
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
        """Ask the model; None where its server refuses in a way that `refused` knows, which is recorded as an answer is.

        Raises:
            BudgetError, ModelError: as `request` does.
        """
        key = key or self.numbered("model")
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
        """Take note of the answer that a model gave now or earlier."""
        self.memory.lower("inferred")
        if output == "answer" and self.call is None:
            self.state.finish_reason = response.finish_reason
        return response

    def _count_recorded(self, key: str) -> None:
        """Count a model turn whose answer is taken from another run's recording."""
        key = key if self.call is None else f"{self.call.id}/{key}"
        tape, done = self.state.tape, self.effects
        if tape is not None and (done is None or key not in done) and tape.answers(self, key):
            self.meter.count_turn(self.state)

    async def _respond(self, request: ModelRequest, key: str, output: ModelOutput, *, turn: bool) -> ModelResponse:
        state, node, model = self.state, self.node, self.model
        output = "tool" if output == "answer" and self.call is not None else output
        for feature in implementing(state.features, "check_request"):
            feature.check_request(self, request, output)
        self.meter.check_spending(state)
        if state.around is not None:
            state.around.check_spending(state)
        if turn:
            self.meter.count_turn(state)
        on_text = self._stream(node, output) if state.streams(output) else None
        state.emit(ModelRequested(state.run_id, node, request))
        response = state.with_ids(await model.respond(request, on_text))
        self.spend(response.usage, key if self.call is None else f"{self.call.id}/{key}", response.model)
        state.emit(ModelResponded(state.run_id, node, response))
        if response.finish_reason == "length":
            state.emit(AnswerTruncated(state.run_id, node, response.usage.output_tokens, output))
        # Before it is recorded: who resumes the run with a higher limit has it asked for anew.
        check_whole(response, request, half_text=output != "summary")
        return response

    def numbered(self, what: str) -> str:
        """Name something that the node does by its number: the same when the node is executed again."""
        mark = self.mark = self.mark or self.memory.mark()
        mark.requests += 1
        return f"{what}:{mark.requests}"

    def recorded(self, key: str) -> bool:
        """Tell whether there is something under a key already, so that `once` gives that."""
        key = key if self.call is None else f"{self.call.id}/{key}"
        tape = self.state.tape
        return (self.effects is not None and key in self.effects) or (tape is not None and tape.answers(self, key))

    async def once(self, key: str, work: Callable[[], Awaitable[T]], *, like: object = None) -> T:
        """Do something that must not be done twice, and record what it gave under a key that names it in this node.

        What was recorded before the run was stopped is given without doing it again. What it gives is plain data, a
        ModelResponse or a ToolResult.

        Args:
            key: Names it among what the node does.
            work: Does it.
            like: What it is done with, to compare when recorded results are used again.
        """
        key = key if self.call is None else f"{self.call.id}/{key}"
        if self.effects is not None and key in self.effects:
            return cast("T", self.effects[key])
        state = self.state
        if state.attention:
            state.go_on()
        if state.tape is not None and state.tape.has(self, key, like):
            effect = cast("T", state.tape.take(self, key))
        else:
            effect = await work()
        if self.effects is None:
            self.effects = {}
        self.effects[key] = effect
        if state.journal is not None:
            await state.journal.effect(self, key, effect)
        return effect

    def know(self, held: Held) -> None:
        """Tell the journal where it has a value of this node already."""
        if self.known is None:
            self.known = {}
        self.known[id(held.value)] = held

    def spend(self, usage: Usage, what: str = "", model: str = "", run_id: str = "") -> None:
        """Count tokens and money that were spent: for what, and by which model or sub-agent's run, as the ledger shall show it."""
        state = self.state
        self.meter.spend(usage)
        state.charges.append(Charge(self.node, what, model, usage, run_id))
        if state.around is not None:
            state.around.spend(usage)

    def done(self, key: str) -> Any:
        """Give what was recorded under a key of this node; None where nothing was."""
        return self.effects.get(key) if self.effects is not None else None

    async def intend(self, key: str) -> None:
        """Take note that something is about to be done that must not be done again unasked, when the node is broken off."""
        if self.state.journal is not None:
            await self.state.journal.intent(self, key)
        if self.effects is None:
            self.effects = {}
        self.effects[f"begun:{key}"] = True

    def intended(self, key: str) -> bool:
        """Tell whether it was about to be done already."""
        return self.effects is not None and f"begun:{key}" in self.effects

    async def ask(self, question: Question) -> Any:
        """Give the answer to a question, or open it.

        Raises:
            Halt: there is no answer yet; the run waits for it.
        """
        answer = await self.answer_to(question)
        if answer is None:
            raise Halt
        return answer[0]

    async def answer_to(self, question: Question) -> tuple[Any] | None:
        """Give the answer to a question; or open it and give None: then the node ends with Halt when nothing is left to do."""
        key, tape = question.key, self.state.tape
        if self.effects is not None and key in self.effects:
            return (self.effects[key],)
        if tape is not None and tape.answers(self, key):
            return (await self._answered(question),)
        self.state.ask(question, self)
        return None

    async def _answered(self, question: Question) -> Any:
        """Take an answer from another run's recording, and write it down as one that was given."""
        state = self.state
        assert state.tape is not None
        if state.attention:
            state.go_on()
        answer = state.tape.take(self, question.key)
        if self.effects is None:
            self.effects = {}
        self.effects[question.key] = answer
        if state.journal is not None:
            state.journal.resumed(self, [(self, question.key, *question.kept(answer))])
            await state.journal.commit()
        return answer

    def _stream(self, node: str, output: ModelOutput) -> Callable[[str], None]:
        return lambda text: self.state.emit(TextStreamed(self.state.run_id, node, text, output))

    def inside(
        self, name: str, setting: Setting | None = None, *, memory: RunMemory | None = None, branch: bool = False
    ) -> Context[Deps]:
        """Give the context of a strategy or a branch that stands here."""
        prefix = f"{self._prefix}{name}/" if name else self._prefix
        meter, model, tools = self.meter, self._model, self.tools
        if setting is not None:
            model = model if setting.model is None else setting.model
            tools = tools if setting.tools is None else tuple(map(as_tool, setting.tools))
            if setting.limited:
                meter = Meter(self.meter, setting, where=prefix[:-1])
        branches = (*self.branches, (prefix, self.entered)) if branch else self.branches
        inner: Context[Deps] = Context(self.state, model, tools, memory or self.memory, meter, prefix, branches)
        if self.number:  # there is a journal
            inner.number, inner.entered, inner.held = self.number, self.entered, self.held
        return inner

    def within(self, call: ToolCall) -> Context[Deps]:
        """Give the context that a tool gets."""
        inner = self.inside("")
        if self.effects is None:
            self.effects = {}
        inner.slot, inner.call, inner.effects = self.slot, call, self.effects
        return inner

    def __repr__(self) -> str:
        return f"<context of node {self.node!r} in run {self.run_id!r}>"


def as_tool(given: Any) -> Tool:
    """Give a tool as it is, and an agent as a tool."""
    return given if isinstance(given, Tool) else given.as_tool()


def no_model(node: str) -> FeatureError:
    """Return the error of a node that asks a model where there is none, with what to write."""
    return FeatureError(f"node {node!r} asks a model, and there is none; write Agent(strategy, model=…)")


def missing(kind: type[Any], node: str) -> FeatureError:
    """Say that a feature is missing, and the line to add."""
    return FeatureError(
        f"node {node!r} needs {kind.__name__}, which is not installed; "
        f"add agent.install({kind.__name__}, …) before the first run"
    )
