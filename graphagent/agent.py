"""An agent: a strategy with a model, tools, features and budgets. It holds nothing of a run, and serves any number."""

from __future__ import annotations

import copy
import inspect
import time
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar, cast, overload

import anyio

from graphagent import _clock
from graphagent.errors import FeatureError, HandlerError, StrategyError
from graphagent.events import Event, RunFailed, RunFinished, RunStarted
from graphagent.graph import Each, Node, Parallel, Race, Strategy, fits, show
from graphagent.llm import Image, Tool
from graphagent.memory import FinalAnswerStep, RunMemory
from graphagent.run import Context, Handler, Meter, RunResult, RunState, missing, outermost, walk

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from graphagent.protocols import Feature, Model
    from graphagent.run import Slot

I = TypeVar("I", contravariant=True)
O = TypeVar("O", covariant=True)
Answer = TypeVar("Answer")
E = TypeVar("E", bound=Event)
F = TypeVar("F", bound="Feature")
P = ParamSpec("P")
_NO_TASK: Any = object()


class Agent(Generic[I, O]):
    """Runs a strategy.

    Args:
        strategy: What it does.
        model: Whom its nodes ask.
        tools: What the model may call, each made by `@tool`.
        system_prompt: The rules that the model is given, in front of everything.
        max_nodes: Node executions a run may take; each attempt counts.
        max_turns: Model turns a run may take.
        max_tokens: Tokens a run may spend, extraction included; None means no limit.
        max_seconds: Wall time a run may take; None means no limit.

    Raises:
        StrategyError: there are tools, and the strategy has no way for tool calls.
    """

    def __init__(
        self,
        strategy: Strategy[I, O],
        *,
        model: Model | None = None,
        tools: Sequence[Tool] = (),
        system_prompt: str = "",
        max_nodes: int | None = 1000,
        max_turns: int | None = 20,
        max_tokens: int | None = None,
        max_seconds: float | None = None,
    ) -> None:
        if not isinstance(strategy, Strategy):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(
                f"an agent runs a Strategy, not a {type(strategy).__name__}; write Strategy(name, START >> … >> END)"
            )
        if model is not None and not callable(getattr(model, "respond", None)):
            raise TypeError(
                f"model= is an object that responds, such as OpenAIModel('gpt-…'), not a {type(model).__name__}"
            )
        self.strategy = strategy
        """What it does."""
        self.model = model
        """Whom its nodes ask."""
        self.tools = _checked_tools(tools)
        """What the model may call."""
        self.system_prompt = system_prompt
        """The rules that the model is given."""
        self._max_seconds = max_seconds
        _check_budgets(max_nodes=max_nodes, max_turns=max_turns, max_tokens=max_tokens, max_seconds=max_seconds)
        self._limits = (max_nodes, max_turns, max_tokens)
        _check_ways(strategy, self.tools)
        self._features: dict[type[Feature], Feature] = {}
        self._listeners: list[tuple[type[Event], Handler]] = []
        self._handlers: dict[type[Event], tuple[Handler, ...]] = {}
        self._first: Slot | None = None

    def install(self, feature: Callable[P, F], /, *args: P.args, **settings: P.kwargs) -> F:
        """Install a feature: `agent.install(AgentMemory, provider=…)`. The settings are those of the feature itself.

        Raises:
            FeatureError: the agent has run already, has this feature, or does not fit it.
            TypeError: the feature has no such setting.
        """
        named = getattr(feature, "__name__", repr(feature))
        if self._first is not None:
            raise FeatureError(f"{named} must be installed before the agent's first run; make a new agent for it")
        made = feature(*args, **settings)
        if type(made) in self._features:
            raise FeatureError(f"{named} is installed already; install it once, with all its settings")
        made.install(self)
        self._features[type(made)] = made
        return made

    def on(self, event: type[E], handler: Callable[[E], None], /) -> None:
        """Call a handler for each event of a type and of the types derived from it; `Event` itself means all.

        Handlers are called in the order of their registration, at once, and must not block. What one raises ends the run with a
        HandlerError.

        Raises:
            TypeError: the handler is async, or the type is no event.
        """
        if not (isinstance(event, type) and issubclass(event, Event)):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"on() listens to an event type of graphagent.events, not to {event!r}")
        if inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(type(handler).__call__):
            raise TypeError(
                f"the handler of {event.__name__} is async; events are told at once, so it must be a plain function"
            )
        self._listeners.append((event, handler))
        self._handlers = _by_type(self._listeners)

    @overload
    async def run(
        self: Agent[None, Answer], *, owner: str = "", run_id: str | None = None, steps: RunMemory | None = None
    ) -> RunResult[Answer]: ...
    @overload
    async def run(
        self,
        task: I,
        *,
        owner: str = "",
        run_id: str | None = None,
        steps: RunMemory | None = None,
        images: Iterable[Image] = (),
    ) -> RunResult[O]: ...
    async def run(
        self,
        task: Any = _NO_TASK,
        *,
        owner: str = "",
        run_id: str | None = None,
        steps: RunMemory | None = None,
        images: Iterable[Image] = (),
    ) -> RunResult[Any]:
        """Run the strategy from START to END.

        Args:
            task: What the strategy takes; left out for strategies that need nothing.
            owner: For whom it runs: a user, a tenant. It stands above everything that is remembered.
            run_id: How the run is called; a fresh id where none is given.
            steps: The transcript of an earlier run, which goes before the task. It is copied.
            images: Shown to the model with the task.

        Raises:
            NodeFailedError: a node raised; the original exception is the cause.
            NoPathError: no way out of a node takes its output.
            BudgetError: a budget is used up; `.result` is what was done so far.
            FeatureError: a node needs a feature that is not installed.
        """
        if task is _NO_TASK:
            task = None
            if not fits(None, self.strategy.takes):
                raise TypeError(f"strategy {self.strategy.name!r} takes {show(self.strategy.takes)}: write run(task)")
        for name, given in (("owner", owner), ("run_id", run_id or "")):
            if not isinstance(given, str):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise TypeError(f"{name}= is text, not a {type(given).__name__}")
        first = self._first or self._prepare()
        memory = RunMemory(self.system_prompt, map(copy.copy, steps.steps) if steps is not None else ())
        memory.begin(task, images)
        state = RunState(
            run_id=run_id or _clock.new_id(), owner=owner, memory=memory, meter=Meter(None, *self._limits),
            features=self._features, handlers=self._handlers, clock=time.monotonic,
        )  # fmt: skip
        ctx = Context(state, model=self.model, tools=self.tools, memory=memory, meter=state.meter, prefix="")
        for feature in self._features.values():
            await feature.begin(ctx)
        state.emit(RunStarted(state.run_id, self.strategy.name, owner))
        try:
            output = await self._walk(first, ctx, task)
        except BaseException as error:
            memory.close()
            state.emit(RunFailed(state.run_id, error))
            raise
        memory.close()
        memory.steps.append(FinalAnswerStep(output))
        state.emit(RunFinished(state.run_id, output, state.usage))
        return state.result(output)

    async def _walk(self, first: Slot, ctx: Context, task: Any) -> Any:
        if self._max_seconds is None:
            return await walk(first, ctx, task)
        with anyio.move_on_after(self._max_seconds):
            return await walk(first, ctx, task)
        raise ctx.state.spent("seconds", self._max_seconds)

    @overload
    def run_sync(
        self: Agent[None, Answer], *, owner: str = "", run_id: str | None = None, steps: RunMemory | None = None
    ) -> RunResult[Answer]: ...
    @overload
    def run_sync(
        self,
        task: I,
        *,
        owner: str = "",
        run_id: str | None = None,
        steps: RunMemory | None = None,
        images: Iterable[Image] = (),
    ) -> RunResult[O]: ...
    def run_sync(self, task: Any = _NO_TASK, **options: Any) -> RunResult[Any]:
        """Run the strategy where nothing is async, such as in a script; otherwise as `run`.

        Raises:
            RuntimeError: an event loop is running here; await `run` instead.
        """
        if _in_event_loop():
            raise RuntimeError("an event loop is running here; write `await agent.run(…)` instead of agent.run_sync(…)")

        async def main() -> RunResult[Any]:
            return await cast("Agent[Any, Any]", self).run(task, **options)

        return anyio.run(main)

    def _prepare(self) -> Slot:
        for path, element in self.strategy.walk():
            for kind in element.needs:
                if kind not in self._features:
                    raise missing(kind, path)
        self._first = outermost(self.strategy)
        return self._first

    def __repr__(self) -> str:
        return f"<agent of {self.strategy!r}>"


def _in_event_loop() -> bool:
    try:
        anyio.get_cancelled_exc_class()
    except RuntimeError:
        return False
    return True


def _checked_tools(tools: Sequence[Any]) -> tuple[Tool, ...]:
    found: dict[str, Tool] = {}
    for tool in tools:
        if not isinstance(tool, Tool):
            raise TypeError(f"{getattr(tool, '__name__', tool)!r} is no tool; put @tool on the function")
        if tool.name in found:
            raise ValueError(f"two tools are named {tool.name!r}; rename one with @tool(name=…)")
        found[tool.name] = tool
    return tuple(found.values())


def _check_budgets(**budgets: float | None) -> None:
    for name, limit in budgets.items():
        if limit is not None and not (isinstance(limit, int | float) and limit >= 0):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ValueError(f"{name}={limit!r} is no budget; give 0 or more, or None for no limit")


def _check_ways(node: Node[Any, Any], tools: Sequence[object]) -> None:
    """See that there is a way for tool calls wherever tools are offered.

    Raises:
        StrategyError: there is none.
    """
    inside: Iterable[object] = ()
    if isinstance(node, Strategy):
        if node.setting is not None:
            own = node.setting
            _check_budgets(max_nodes=own.max_nodes, max_turns=own.max_turns, max_tokens=own.max_tokens)
            tools = tools if own.tools is None else _checked_tools(own.tools)
        if tools and node.without_tools:
            raise StrategyError(node.name, node.without_tools)
        inside = node.elements_by_name.values()
    elif isinstance(node, Each | Parallel | Race):
        inside = node.branches
    for element in inside:
        if isinstance(element, Node):
            _check_ways(element, tools)


def _ending(handler: Handler) -> Handler:
    """Wrap a handler so that what it raises ends the run."""

    def tell(event: Event) -> None:
        try:
            handler(event)
        except Exception as error:
            failed = HandlerError(getattr(handler, "__qualname__", repr(handler)), type(event).__name__, error)
            failed.run_id = event.run_id
            raise failed from error

    return tell


def _by_type(listeners: Sequence[tuple[type[Event], Handler]]) -> dict[type[Event], tuple[Handler, ...]]:
    """Give the handlers of each concrete event type, in the order of their registration."""
    kinds: list[type[Event]] = [Event]
    for kind in kinds:
        kinds.extend(kind.__subclasses__())
    found = {kind: tuple(_ending(told) for event, told in listeners if issubclass(kind, event)) for kind in kinds}
    return {kind: handlers for kind, handlers in found.items() if handlers}
