"""What happens, as it happens: frozen, in the past tense. `agent.on(Event, handler)` listens."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from graphagent.llm import ModelRequest, ModelResponse, ToolCall, ToolResult, Usage
    from graphagent.memory import Step
    from graphagent.memory.notes import Match
    from graphagent.run import Question

ModelOutput = Literal["answer", "draft", "plan", "summary", "extraction", "decision", "tool"]
"""What a model is asked for: `answer` in its turns, `draft` in those before the answer (thoughts, results of steps, texts that may be
refused), `plan` where an agent or a strategy plans, `summary` where the history is compressed,
`extraction` where facts and notes are looked for in what was said, `decision` where it judges, criticises, moderates or chooses, and where it
writes several answers of which one is chosen, `tool` where a tool asks it."""


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
    """A run has its output, and nothing that follows changes it: taps, such as those that learn facts, and what features learn.

    It comes once, before RunFinished: when only taps are left to execute, or else at END. A tap that fails still ends the run with its
    error. Where final checks or step callbacks may refuse the answer, it comes when they have accepted it, at END.
    """

    output: Any = field(repr=False)


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
class RunSuspended(Event):
    """A run stopped before its end without failing: it waits for answers, sleeps, or was paused."""

    reason: str
    """`waiting` or `sleeping`; or why it was paused, as in `run.pause(reason)`, or `paused` if that has no reason."""
    questions: tuple[Question, ...] = field(default=(), repr=False)


@dataclass(frozen=True, slots=True)
class RunEnded(Event):
    """A run was ended where it was, by `agent.end` or by the next message of its thread."""

    reason: str
    """Why, as it was given; may be empty."""


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
    """A piece of what a model says arrived. Listening to this makes models stream.

    Without `all_text=True`, listeners hear the answer of their own run alone: no plans, summaries and extraction, and no sub-agents.
    """

    node: str
    text: str = field(repr=False)
    output: ModelOutput = "answer"
    """What the text belongs to."""


@dataclass(frozen=True, slots=True)
class OutputStreamed(Event):
    """More of a value arrived that a model was asked for as JSON, as with `llm_request(output=…)`. Listening to this makes models stream.

    Without `all_text=True`, listeners hear the answer of their own run alone, as with TextStreamed. The first events come with every
    piece of text, later ones whenever the text has grown by a thirty-second part; the last one has the whole value. If an answer does not
    fit and is asked for once more, the next event begins anew.
    """

    node: str
    partial: Any = field(repr=False)
    """The value so far, as plain JSON, not validated: strings end where the text ends, and fields, items, numbers and literals that have
    not completely arrived are missing."""
    output: ModelOutput = "answer"
    """What the value belongs to."""


@dataclass(frozen=True, slots=True)
class ModelResponded(Event):
    """A model answered."""

    node: str
    response: ModelResponse = field(repr=False)


@dataclass(frozen=True, slots=True)
class ModelRequestFailed(Event):
    """A request to a model failed, whether another one is answered instead or not: later, by another model, or without what was refused.

    It is delivered when that answer arrives, or the last request has failed, too; then the node fails, as NodeFailed says.
    """

    node: str
    model: str
    """The model that was asked."""
    reason: str
    """The text of its error, without anything that was sent."""


@dataclass(frozen=True, slots=True)
class AnswerTruncated(Event):
    """A model stopped at its limit of tokens in the middle of what it said (`finish_reason` is `length`).

    Text is used as far as it goes, except in a summary. Where JSON or tool calls were cut off, a TruncatedError follows.
    """

    node: str
    output_tokens: int
    """How many tokens the answer has, as the server counted them."""
    output: ModelOutput = "answer"
    """What was cut off."""


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
class ThreadAbandoned(Event):
    """Nobody waits any longer for a blocking function: a time limit ended, a race was lost, or the run was cancelled.

    The function cannot be stopped. It goes on in its thread, and what it returns is dropped.
    """

    node: str
    function: str
    """The name of the tool, or of the function of an embedder or a reranker with its module."""
    seconds: float
    """How long it has been running."""


@dataclass(frozen=True, slots=True)
class CacheUsed(Event):
    """The output of a node, or the result of a tool call, was found in the store: nothing is executed."""

    node: str
    call: ToolCall | None = field(default=None, repr=False)
    """The tool call; None where it is the output of the node."""


@dataclass(frozen=True, slots=True)
class ToolProgressed(Event):
    """A tool server reported the progress of a call."""

    node: str
    call: ToolCall = field(repr=False)
    progress: float
    total: float | None
    """The progress at the end, where the server knows it."""
    message: str = field(repr=False)
    """What the server says of it; may be empty."""


@dataclass(frozen=True, slots=True)
class ToolServerSkipped(Event):
    """A run does without a tool server: it is not required, and its tools cannot be had."""

    server: str
    reason: str
    """What went wrong, as the ToolServerError of a server that is required says it."""


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
    """For how many steps that the model saw until now."""


@dataclass(frozen=True, slots=True)
class CompressionFailed(Event):
    """A transcript was to be compressed, and stays as it was."""

    node: str
    reason: str
    """Why, without anything that was said."""


@dataclass(frozen=True, slots=True)
class ExtractionFailed(Event):
    """Facts were looked for and not kept: the answer held none that can be used, even when asked again, or the model or the memory failed."""

    node: str
    reason: str
    """What was wrong, without the answer."""


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
    """The text, or how many there are."""
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
    """What is remembered is being put before a model."""

    task_id: str
    """The node that is about to ask it."""
    source_type: str = "notes"


@dataclass(frozen=True, slots=True)
class MemoryRetrievalCompleted(Event):
    """What is remembered was put before a model."""

    task_id: str
    memory_content: str = field(repr=False)
    retrieval_time_ms: float
    source_type: str = "notes"


@dataclass(frozen=True, slots=True)
class InferenceFailed(Event):
    """A model could not be asked about notes, or gave no usable answer; what was done instead is as without a model."""

    task: str
    """What it was asked for: `save`, `extract`, `query`, `consolidate`, `explore` or `learn`."""
    reason: str
    """What was wrong, without any text of a note."""
