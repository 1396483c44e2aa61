"""The events of a run, as they happen: frozen, and named in the past tense. `agent.on(Event, handler)` listens."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from graphagent.protocols import ModelOutput as ModelOutput  # noqa: PLC0414, TC001  users import it from here

if TYPE_CHECKING:
    from graphagent.llm import ModelRequest, ModelResponse, ToolCall, ToolResult, Usage
    from graphagent.memory._note_values import Match
    from graphagent.memory.steps._types import Step
    from graphagent.run import Question


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
class RunAnswered(Event):
    """A run has its output, and nothing that follows changes it: only taps, such as those that learn facts, and learning by features.

    The event comes once, before RunFinished: when only taps are left to execute, or else at END. A tap that fails still ends
    the run with its error. If final checks or step callbacks may refuse the answer, the event comes when they have accepted it,
    at END.
    """

    output: Any = field(repr=False)


@dataclass(frozen=True, slots=True)
class RunFinished(Event):
    """A run came to END."""

    output: Any = field(repr=False)
    usage: Usage


@dataclass(frozen=True, slots=True)
class RunFailed(Event):
    """A run ended with an error, which is about to be raised, or was cancelled."""

    error: BaseException = field(repr=False)


@dataclass(frozen=True, slots=True)
class RunSuspended(Event):
    """A run stopped before its end without failing: it waits for answers, sleeps, or was paused."""

    reason: str
    """`waiting` or `sleeping`; or the reason of the pause, as in `run.pause(reason)`, or `paused` if there is none."""
    questions: tuple[Question, ...] = field(default=(), repr=False)


@dataclass(frozen=True, slots=True)
class RunEnded(Event):
    """A run was ended where it was, by `agent.end` or by the next message of its thread."""

    reason: str
    """The reason that was given; may be empty."""


@dataclass(frozen=True, slots=True)
class RunResumed(Event):
    """A run that was stopped continues."""

    strategy: str
    owner: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class StepCommitted(Event):
    """A step was added to the transcript, and to the store if there is one."""

    step: Step = field(repr=False)


@dataclass(frozen=True, slots=True)
class NodeStarted(Event):
    """A node is about to be executed."""

    node: str
    """The path of the node, such as `draft` or `count/words`."""
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
    """An edge of a node was chosen."""

    node: str
    path: str
    """The edge as it is drawn, such as `on ToolCalls`."""
    target: str
    """The name of the next node, or `END`."""


@dataclass(frozen=True, slots=True)
class ModelRequested(Event):
    """A model is about to be asked."""

    node: str
    request: ModelRequest = field(repr=False)


@dataclass(frozen=True, slots=True)
class TextStreamed(Event):
    """A piece of text from a model arrived. Listening to this event makes models stream.

    Without `all_text=True`, listeners hear only the answer of their own run: no plans, summaries and extraction, and no
    sub-agents.
    """

    node: str
    text: str = field(repr=False)
    output: ModelOutput = "answer"
    """The purpose of the request."""


@dataclass(frozen=True, slots=True)
class OutputStreamed(Event):
    """More of a JSON value from a model arrived, as with `llm_request(output=…)`. Listening to this event makes models stream.

    Without `all_text=True`, listeners hear only the answer of their own run, as with TextStreamed. The first events come with
    every piece of text, later ones whenever the text has grown by one thirty-second; the last event has the whole value. If an
    answer does not fit and the model is asked again, the next event begins anew.
    """

    node: str
    partial: Any = field(repr=False)
    """The value so far, as plain JSON, not validated: strings end where the text ends, and fields, items, numbers and literals that have
    not completely arrived are missing."""
    output: ModelOutput = "answer"
    """The purpose of the request."""


@dataclass(frozen=True, slots=True)
class ModelResponded(Event):
    """A model answered."""

    node: str
    response: ModelResponse = field(repr=False)


@dataclass(frozen=True, slots=True)
class ModelRequestFailed(Event):
    """A request to a model failed. Another one may succeed: a later one, one to another model, or one without the refused part.

    The event is delivered when the other answer arrives, or when the last request has failed too; then the node fails, as
    NodeFailed says.
    """

    node: str
    model: str
    """The model that was asked."""
    reason: str
    """The message of the error, without anything that was sent."""


@dataclass(frozen=True, slots=True)
class AnswerTruncated(Event):
    """A model stopped at its limit of tokens in the middle of its answer (`finish_reason` is `length`).

    Incomplete text is used, except in a summary. If JSON or tool calls were cut off, a TruncatedError follows.
    """

    node: str
    output_tokens: int
    """The number of tokens of the answer, as the server counted them."""
    output: ModelOutput = "answer"
    """The purpose of the request that was cut off."""


@dataclass(frozen=True, slots=True)
class ToolCalled(Event):
    """A tool is about to be called."""

    node: str
    call: ToolCall = field(repr=False)


@dataclass(frozen=True, slots=True)
class ToolReturned(Event):
    """A tool call has a result, which may be an error."""

    node: str
    result: ToolResult = field(repr=False)


@dataclass(frozen=True, slots=True)
class ToolFailed(Event):
    """A tool raised in the last attempt of a call. The model is told of it by the result, which ToolReturned has."""

    node: str
    call: ToolCall = field(repr=False)
    error: Exception = field(repr=False)


@dataclass(frozen=True, slots=True)
class ThreadAbandoned(Event):
    """A blocking function was abandoned: a time limit ended, a race was lost, or the run was cancelled.

    The function cannot be stopped. It goes on in its thread, and its result is dropped.
    """

    node: str
    function: str
    """The name of the tool, or of the function of an embedder or a reranker with its module."""
    seconds: float
    """The seconds for which the function has been running."""


@dataclass(frozen=True, slots=True)
class CacheUsed(Event):
    """The output of a node, or the result of a tool call, was found in the store: nothing is executed."""

    node: str
    call: ToolCall | None = field(default=None, repr=False)
    """The tool call; None for the output of a node."""


@dataclass(frozen=True, slots=True)
class ToolProgressed(Event):
    """A tool server reported the progress of a call."""

    node: str
    call: ToolCall = field(repr=False)
    progress: float
    total: float | None
    """The progress at the end, if the server knows it."""
    message: str = field(repr=False)
    """The message of the server; may be empty."""


@dataclass(frozen=True, slots=True)
class ToolServerSkipped(Event):
    """A run continues without a tool server that is not required and whose tools are not available."""

    server: str
    reason: str
    """The reason, with the words of the ToolServerError of a required server."""


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
class HistoryCompressed(Event):
    """A summary replaces steps of the transcript in all further prompts."""

    node: str
    steps: int
    """The number of replaced steps, which the model saw until this event."""


@dataclass(frozen=True, slots=True)
class CompressionFailed(Event):
    """The compression of a transcript failed, and the transcript is unchanged."""

    node: str
    reason: str
    """The reason, without any text of the conversation."""


@dataclass(frozen=True, slots=True)
class ExtractionFailed(Event):
    """Facts were looked for but not kept: the answer had no usable facts, even after asking again, or the model or the memory failed."""

    node: str
    reason: str
    """The reason, without the answer."""


@dataclass(frozen=True, slots=True)
class MemoryQueryStarted(Event):
    """Notes are being searched."""

    query: str = field(repr=False)
    limit: int
    source_type: str = "notes"


@dataclass(frozen=True, slots=True)
class MemoryQueryCompleted(Event):
    """Notes were searched."""

    query: str = field(repr=False)
    results: tuple[Match, ...] = field(repr=False)
    query_time_ms: float
    source_type: str = "notes"


@dataclass(frozen=True, slots=True)
class MemoryQueryFailed(Event):
    """Notes could not be searched."""

    query: str = field(repr=False)
    error: str
    """The type of the error, which is raised."""
    source_type: str = "notes"


@dataclass(frozen=True, slots=True)
class MemorySaveStarted(Event):
    """Something is being kept as notes."""

    value: str = field(repr=False)
    """The text, or the number of texts."""
    metadata: dict[str, Any] = field(repr=False)
    source_type: str = "notes"


@dataclass(frozen=True, slots=True)
class MemorySaveCompleted(Event):
    """Something was kept as notes."""

    value: str = field(repr=False)
    save_time_ms: float
    source_type: str = "notes"


@dataclass(frozen=True, slots=True)
class MemorySaveFailed(Event):
    """Something could not be kept as notes."""

    value: str = field(repr=False)
    error: str
    """The type of the error, which is raised."""
    source_type: str = "notes"


@dataclass(frozen=True, slots=True)
class MemoryRetrievalStarted(Event):
    """Remembered facts and notes are about to be put before a model."""

    task_id: str
    """The node that is about to ask the model."""
    source_type: str = "notes"


@dataclass(frozen=True, slots=True)
class MemoryRetrievalCompleted(Event):
    """Remembered facts and notes were put before a model."""

    task_id: str
    memory_content: str = field(repr=False)
    retrieval_time_ms: float
    source_type: str = "notes"


@dataclass(frozen=True, slots=True)
class InferenceFailed(Event):
    """A model could not be asked about notes, or gave no usable answer. The operation went on as without a model."""

    task: str
    """The purpose of the request: `save`, `extract`, `query`, `consolidate`, `explore` or `learn`."""
    reason: str
    """The reason, without any text of a note."""
