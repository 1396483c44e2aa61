"""What a node is given beside its input: the run that it is part of."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, TypeVar, cast

from graphagent.errors import FeatureError
from graphagent.events import ModelRequested, ModelResponded, TextStreamed

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from graphagent.events import Event
    from graphagent.graph import Setting
    from graphagent.llm import ModelRequest, ModelResponse, Tool
    from graphagent.memory import RunMemory
    from graphagent.protocols import Feature, Model
    from graphagent.run._plan import Slot
    from graphagent.run._state import Meter, RunState

F = TypeVar("F", bound="Feature")


class Context:
    """A node's view of its run. It is valid while the node is being executed."""

    __slots__ = ("_model", "_prefix", "memory", "meter", "slot", "state", "tools")
    __graphagent_context__: ClassVar[bool] = True  # how a tool's parameter is recognised without importing this room

    def __init__(
        self,
        state: RunState,
        *,
        model: Model | None,
        tools: Sequence[Tool],
        memory: RunMemory,
        meter: Meter,
        prefix: str,
    ) -> None:
        self.state = state
        """The run's own affairs, for the engine."""
        self.memory = memory
        """The transcript: in a branch, that of the branch."""
        self.meter = meter
        """What may be spent here, for the engine."""
        self.tools = tools
        """The tools that a model is offered here."""
        self.slot: Slot | None = None
        """The place in the plan, for the engine."""
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
    def prefix(self) -> str:
        """Where the strategy stands whose node this is: empty, or such as `count/`."""
        return self._prefix

    @property
    def node(self) -> str:
        """The path of the node, such as `draft` or `count/words`."""
        return self._prefix + self.slot.name if self.slot is not None else ""

    @property
    def model(self) -> Model:
        """The model to ask.

        Raises:
            FeatureError: the agent has none.
        """
        if self._model is None:
            raise FeatureError(f"node {self.node!r} asks a model, and there is none; write Agent(strategy, model=…)")
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

    async def request(self, request: ModelRequest) -> ModelResponse:
        """Ask the model. Tokens are counted and events told; no turn is counted and no step made.

        The answer is streamed when someone listens to TextStreamed.

        Raises:
            BudgetError: all tokens are spent.
            ModelError: as the model raises it.
        """
        state, node, model = self.state, self.node, self.model
        self.meter.check_tokens(state)
        on_text = self._stream(node) if TextStreamed in state.handlers else None
        state.emit(ModelRequested(state.run_id, node, request))
        response = await model.respond(request, on_text)
        state.usage += response.usage
        self.meter.count_tokens(response.usage.total_tokens)
        state.emit(ModelResponded(state.run_id, node, response))
        return response

    def _stream(self, node: str) -> Callable[[str], None]:
        return lambda text: self.state.emit(TextStreamed(self.state.run_id, node, text))

    def inside(self, name: str, setting: Setting | None = None, *, memory: RunMemory | None = None) -> Context:
        """Give the context of a strategy or a branch that stands here."""
        prefix = f"{self._prefix}{name}/" if name else self._prefix
        if setting is None:
            return Context(
                self.state,
                model=self._model,
                tools=self.tools,
                memory=memory or self.memory,
                meter=self.meter,
                prefix=prefix,
            )
        from graphagent.run._state import Meter

        limits = (setting.max_nodes, setting.max_turns, setting.max_tokens)
        return Context(
            self.state,
            model=self._model if setting.model is None else setting.model,
            tools=self.tools if setting.tools is None else tuple(cast("Sequence[Tool]", setting.tools)),
            memory=memory or self.memory,
            meter=self.meter if limits == (None, None, None) else Meter(self.meter, *limits, where=prefix[:-1]),
            prefix=prefix,
        )

    def __repr__(self) -> str:
        return f"<context of node {self.node!r} in run {self.run_id!r}>"


def missing(kind: type[Any], node: str) -> FeatureError:
    """Say that a feature is missing, and the line to add."""
    return FeatureError(
        f"node {node!r} needs {kind.__name__}, which is not installed; "
        f"add agent.install({kind.__name__}, …) before the first run"
    )
