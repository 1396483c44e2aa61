"""What happens, as it happens: frozen, in the past tense. `agent.on(Event, handler)` listens."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from graphagent.llm import ModelRequest, ModelResponse, ToolCall, ToolResult, Usage


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened in a run. Listening to `Event` itself hears everything."""

    run_id: str


@dataclass(frozen=True, slots=True)
class RunStarted(Event):
    """A run began; nothing has been executed yet."""

    strategy: str
    owner: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class RunFinished(Event):
    """A run came to END."""

    output: Any = field(repr=False)
    usage: Usage


@dataclass(frozen=True, slots=True)
class RunFailed(Event):
    """A run ended with an error, which is about to be raised. Cancelled runs say so here too."""

    error: BaseException = field(repr=False)


@dataclass(frozen=True, slots=True)
class NodeStarted(Event):
    """A node is about to be executed."""

    node: str
    """Its path, such as `draft` or `count/words`."""
    input: Any = field(repr=False)


@dataclass(frozen=True, slots=True)
class NodeFinished(Event):
    """A node was executed."""

    node: str
    output: Any = field(repr=False)


@dataclass(frozen=True, slots=True)
class NodeFailed(Event):
    """A node raised; an error path or a retry may still save the run."""

    node: str
    error: Exception = field(repr=False)


@dataclass(frozen=True, slots=True)
class PathTaken(Event):
    """A way out of a node was chosen."""

    node: str
    path: str
    """The way out as it is drawn, such as `on ToolCalls`."""
    target: str
    """The name of the next node, or `END`."""


@dataclass(frozen=True, slots=True)
class ModelRequested(Event):
    """A model is about to be asked."""

    node: str
    request: ModelRequest = field(repr=False)


@dataclass(frozen=True, slots=True)
class TextStreamed(Event):
    """A piece of a model's answer arrived. Listening to this makes model turns stream."""

    node: str
    text: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class ModelResponded(Event):
    """A model answered."""

    node: str
    response: ModelResponse = field(repr=False)


@dataclass(frozen=True, slots=True)
class ToolCalled(Event):
    """A tool is about to be called."""

    node: str
    call: ToolCall = field(repr=False)


@dataclass(frozen=True, slots=True)
class ToolReturned(Event):
    """A tool call has its result, which may be an error."""

    node: str
    result: ToolResult = field(repr=False)


@dataclass(frozen=True, slots=True)
class FactsLoaded(Event):
    """Facts were put before the model."""

    node: str
    count: int


@dataclass(frozen=True, slots=True)
class FactsSaved(Event):
    """Facts were kept."""

    node: str
    count: int


@dataclass(frozen=True, slots=True)
class ExtractionFailed(Event):
    """A model's answer held no usable facts, even when asked again; nothing was kept."""

    node: str
    reason: str
    """What was wrong with the answer, without the answer."""
