"""Spans and metrics of runs for OpenTelemetry: `agent.install(OpenTelemetry)`, with the extra `otel`.

The names are those of the semantic conventions for generative AI.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Iterable, Mapping
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass
from time import time_ns
from typing import TYPE_CHECKING, Any

from graphagent import _clock
from graphagent._conventions import (
    AGENT,
    ANSWERED,
    CONVENTIONS,
    CONVERSATION,
    DIMENSIONS,
    ERROR,
    INPUT,
    MODEL,
    NODE,
    OPERATION,
    OUTCOME,
    OUTPUT,
    SERVER,
    TEXTS,
    TOOL,
    Instruments,
    embedder_attributes,
    is_content_wanted,
    json_text,
    message_part,
    model_attributes,
    request_attributes,
    response_attributes,
)
from graphagent._options import check_flag
from graphagent._tracebacks import error_text
from graphagent._version import __version__
from graphagent.embed._observed import observer
from graphagent.errors import MissingExtraError, NodeFailedError
from graphagent.events import (
    FactsLoaded,
    FactsSaved,
    MemoryQueryCompleted,
    MemoryQueryFailed,
    MemoryQueryStarted,
    MemorySaveCompleted,
    MemorySaveFailed,
    MemorySaveStarted,
)
from graphagent.llm._messages import sendable
from graphagent.protocols import Feature
from graphagent.run._final_errors import Suspend

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import Link, Span, TracerProvider

    from graphagent._agent import Agent
    from graphagent.events import Event
    from graphagent.llm import Message, ModelRequest, ModelResponse, Tool, ToolCall, ToolResult
    from graphagent.protocols import Embedder
    from graphagent.run import Context

try:
    from opentelemetry import metrics, trace
    from opentelemetry.trace import SpanKind, Status, StatusCode
    from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
except ImportError:
    raise MissingExtraError("OpenTelemetry", "otel") from None

_SCOPE = {"graphagent.conventions": CONVENTIONS}
_KEPT = "OpenTelemetry"
"""The name under which a run keeps the place of its last span."""
_PLACES = TraceContextTextMapPropagator()


@dataclass(slots=True, eq=False)
class _Active:
    """The run of an agent to which everything in the current context belongs."""

    telemetry: OpenTelemetry
    run_id: str
    agent: str
    conversation: str
    inference_calls: int = 0
    tool_calls: int = 0

    def told(self, ctx: Context[Any]) -> dict[str, Any]:
        return {AGENT: self.agent, CONVERSATION: self.conversation, NODE: ctx.node}


_ACTIVE: ContextVar[_Active | None] = ContextVar("graphagent_telemetry", default=None)
_QUERY: ContextVar[int] = ContextVar("graphagent_telemetry_query", default=0)
"""When the search for notes began that goes on in this context, in nanoseconds UTC."""
_SAVE: ContextVar[int] = ContextVar("graphagent_telemetry_save", default=0)


class OpenTelemetry(Feature):
    """Reports runs, requests to models, tool calls and memory as spans and metrics.

    Without an SDK of OpenTelemetry in the program, nothing is reported, and nearly nothing is spent on it.

    Args:
        content: Whether spans have texts: prompts, answers, arguments and results of tools, questions to the memory, and the
            messages of exceptions. By default, the environment variable
            `OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT` decides, and without it there are none.
        clip: The maximum number of characters of one attribute with texts. Of longer prompts, the last messages are kept.
        tracer_provider: The provider of the tracer; by default the provider that is set for the program.
        meter_provider: The provider of the meter; by default the provider that is set for the program.

    Raises:
        TypeError: `content` is neither a bool nor None.
        ValueError: `clip` is not a whole number above 0.
    """

    changes_answers = False

    def __init__(
        self,
        *,
        content: bool | None = None,
        clip: int = 10_000,
        tracer_provider: TracerProvider | None = None,
        meter_provider: MeterProvider | None = None,
    ) -> None:
        if content is not None:
            check_flag("OpenTelemetry: content", content)
        if type(clip) is not int or clip < 1:
            raise ValueError(f"OpenTelemetry: clip={clip!r} is a number of characters; pass an integer above 0")
        self.content = is_content_wanted() if content is None else content
        """Whether spans have texts."""
        self.clip = clip
        """The maximum number of characters of one attribute with texts."""
        self._provider, self._meter_provider = tracer_provider, meter_provider
        self._tracer = trace.get_tracer("graphagent", __version__, tracer_provider, attributes=_SCOPE)
        self._instruments = Instruments(metrics.get_meter("graphagent", __version__, meter_provider))

    def install(self, agent: Agent[Any, Any]) -> None:
        """Listen to the events of memory."""
        agent.on(MemoryQueryStarted, _began)
        agent.on(MemorySaveStarted, _began)
        agent.on(MemoryQueryCompleted, self._searched)
        agent.on(MemoryQueryFailed, self._searched)
        agent.on(MemorySaveCompleted, self._saved)
        agent.on(MemorySaveFailed, self._saved)
        agent.on(FactsLoaded, self._loaded)
        agent.on(FactsSaved, self._saved)

    # ---- runs

    @property
    def is_idle(self) -> bool:
        """Whether no provider reports anything: those of the API do not."""
        providers = (
            self._provider or trace.get_tracer_provider(), self._meter_provider or metrics.get_meter_provider()
        )  # fmt: skip
        return all(
            type(each).__module__.startswith(("opentelemetry.trace", "opentelemetry.metrics")) for each in providers
        )

    async def around_run(self, ctx: Context[Any], proceed: Callable[[], Awaitable[None]]) -> None:
        """Execute a run within a span, which is linked to that of the run before it was resumed."""
        around = _ACTIVE.get()
        is_part = around is not None and ctx.run_id.startswith(f"{around.run_id}/")
        conversation = around.conversation if around is not None and is_part else ctx.thread or ctx.run_id
        active = _Active(self, ctx.run_id, ctx.agent, conversation)
        operation = "invoke_agent" if ctx.model is not None else "invoke_workflow"
        told = {OPERATION: operation, AGENT: active.agent, CONVERSATION: active.conversation}
        span = self._tracer.start_span(
            f"{operation} {active.agent}", kind=SpanKind.INTERNAL, attributes={**told, "graphagent.run.id": ctx.run_id},
            links=_links(ctx.kept(_KEPT)),
        )  # fmt: skip
        place: dict[str, str] = {}
        if span.get_span_context().is_valid:
            _PLACES.inject(place, trace.set_span_in_context(span))
            ctx.keep(_KEPT, place)
        began, token, embedding = _clock.ticks(), _ACTIVE.set(active), observer.set(self._embedding)
        try:
            with _current(span):
                await proceed()
            span.set_attribute(OUTCOME, "done")
        except BaseException as error:
            span.set_attribute(OUTCOME, _outcome_of(error))
            if isinstance(error, Exception):
                told[ERROR] = self._fail(span, error)
            raise
        finally:
            observer.reset(embedding)
            _ACTIVE.reset(token)
            span.end()
            self._instruments.count_run(_clock.seconds_since(began), told, active.inference_calls, active.tool_calls)

    # ---- models

    async def around_model(
        self, ctx: Context[Any], request: ModelRequest, proceed: Callable[[ModelRequest], Awaitable[ModelResponse]]
    ) -> ModelResponse:
        """Ask a model within a span; for a plan, that span is within another."""
        if ctx.purpose != "plan":
            return await self._chat(ctx, request, proceed)
        active = self._active(ctx)
        span = self._tracer.start_span(
            f"plan {active.agent}", kind=SpanKind.INTERNAL, attributes={OPERATION: "plan", **active.told(ctx)}
        )
        try:
            with _current(span):
                return await self._chat(ctx, request, proceed)
        except Exception as error:
            self._fail(span, error)
            raise
        finally:
            span.end()

    async def _chat(
        self, ctx: Context[Any], request: ModelRequest, proceed: Callable[[ModelRequest], Awaitable[ModelResponse]]
    ) -> ModelResponse:
        active, told = self._active(ctx), model_attributes(ctx.model)
        span = self._tracer.start_span(
            f"chat {told.get(MODEL, '')}".rstrip(), kind=SpanKind.CLIENT, attributes={**told, **active.told(ctx)}
        )
        if span.is_recording():
            span.set_attributes(request_attributes(ctx.model, request))
            if self.content:
                self._set_messages(span, INPUT, request.messages)
        active.inference_calls += 1
        began = _clock.ticks()
        try:
            with _current(span):
                response = await proceed(request)
            told[ANSWERED] = response.model or told.get(MODEL, "")
            if span.is_recording():
                span.set_attributes({ANSWERED: told[ANSWERED], **response_attributes(response)})
                if self.content:
                    self._set_messages(span, OUTPUT, (response.message,), finish=response.finish_reason)
            self._instruments.count_tokens(response, told)
        except Exception as error:
            told[ERROR] = self._fail(span, error)
            raise
        finally:
            span.end()
            self._instruments.inference.record(_clock.seconds_since(began), told)
        return response

    @contextmanager
    def _embedding(self, embedder: Embedder, texts: int) -> Generator[Callable[[int], None]]:
        """Return the block in which an embedder is asked in a run, with its span."""
        active, told = _ACTIVE.get(), embedder_attributes(embedder)
        whose = {} if active is None else {AGENT: active.agent, CONVERSATION: active.conversation}
        span = self._tracer.start_span(
            f"embeddings {told[MODEL]}", kind=SpanKind.CLIENT if SERVER in told else SpanKind.INTERNAL,
            attributes={**told, **whose, TEXTS: texts},
        )  # fmt: skip
        began = _clock.ticks()
        try:
            with _current(span):
                yield lambda dimensions: span.set_attribute(DIMENSIONS, dimensions)
        except Exception as error:
            told[ERROR] = self._fail(span, error)
            raise
        finally:
            span.end()
            self._instruments.embeddings.record(_clock.seconds_since(began), told)

    # ---- tools

    async def around_tool(
        self, ctx: Context[Any], call: ToolCall, proceed: Callable[[ToolCall], Awaitable[ToolResult]]
    ) -> ToolResult:
        """Call a tool within a span. The SDK of MCP makes one for the tools of its servers."""
        active = self._active(ctx)
        tool = next((each for each in ctx.tools if each.name == call.name), None)
        told: dict[str, Any] = {OPERATION: "execute_tool", TOOL: call.name, "gen_ai.tool.type": "function"}
        by_mcp = self._is_told_by_mcp(tool)
        span = trace.INVALID_SPAN if by_mcp else self._tool_span(tool, call, told, active, ctx)
        active.tool_calls += 1
        began = _clock.ticks()
        try:
            with nullcontext() if by_mcp else _current(span):
                result = await proceed(call)
            if result.is_error:
                told[ERROR] = self._fail(span, result.value)
            if span.is_recording() and self.content:
                span.set_attribute("gen_ai.tool.call.result", self._clipped(result.content))
        except BaseException as error:
            if isinstance(error, Exception):
                told[ERROR] = self._fail(span, error)
            elif isinstance(error, Suspend):  # the call is made again when the run continues
                span.set_attribute("graphagent.tool.suspended", value=True)
                active.tool_calls -= 1
            raise
        else:
            self._instruments.tool.record(_clock.seconds_since(began), told)
        finally:
            span.end()
        return result

    def _tool_span(
        self, tool: Tool | None, call: ToolCall, told: Mapping[str, Any], active: _Active, ctx: Context[Any]
    ) -> Span:
        span = self._tracer.start_span(
            f"execute_tool {call.name}", kind=SpanKind.INTERNAL, attributes={**told, **active.told(ctx)}
        )
        if span.is_recording():
            span.set_attribute("gen_ai.tool.call.id", call.id)
            if tool is not None:
                span.set_attribute("gen_ai.tool.description", tool.description)
            if self.content:
                span.set_attribute("gen_ai.tool.call.arguments", self._clipped(json_text(call.arguments)))
        return span

    def _is_told_by_mcp(self, tool: Tool | None) -> bool:
        """Return whether the SDK of MCP reports the calls of a tool to the same provider."""
        own = self._provider is None or self._provider is trace.get_tracer_provider()
        return own and bool(getattr(tool, "server", ""))

    # ---- memory

    def _searched(self, event: MemoryQueryCompleted | MemoryQueryFailed) -> None:
        told: dict[str, Any] = {"gen_ai.memory.store.id": event.source_type}
        if isinstance(event, MemoryQueryCompleted):
            told["gen_ai.memory.record.count"] = len(event.results)
            if self.content:
                found = (
                    {"id": each.record.id, "content": each.record.content, "score": each.score}
                    for each in event.results
                )
                told["gen_ai.memory.records"] = self._json_list(found)
        if self.content:
            told["gen_ai.memory.query.text"] = self._clipped(event.query)
        self._remember("search_memory", event, _QUERY.get(), told, getattr(event, "error", ""))

    def _loaded(self, event: FactsLoaded) -> None:
        told = {"gen_ai.memory.store.id": "facts", "gen_ai.memory.record.count": event.count}
        self._remember("search_memory", event, 0, told)

    def _saved(self, event: MemorySaveCompleted | MemorySaveFailed | FactsSaved) -> None:
        if isinstance(event, FactsSaved):
            told: dict[str, Any] = {"gen_ai.memory.store.id": "facts", "gen_ai.memory.record.count": event.count}
            self._remember("upsert_memory", event, 0, told)
            return
        told = {"gen_ai.memory.store.id": event.source_type}
        if self.content:
            told["gen_ai.memory.records"] = self._json_list([{"content": event.value}])
        self._remember("upsert_memory", event, _SAVE.get(), told, getattr(event, "error", ""))

    def _remember(self, operation: str, event: Event, began: int, told: Mapping[str, Any], error: str = "") -> None:
        """Report an operation of memory: it has ended when its event comes, so the span is never current."""
        active = _ACTIVE.get()
        if active is not None and active.telemetry is not self:  # that of the agent itself reports it
            return
        whose = {} if active is None else {AGENT: active.agent, CONVERSATION: active.conversation}
        span = self._tracer.start_span(
            operation, kind=SpanKind.INTERNAL, start_time=began or None,
            attributes={OPERATION: operation, "graphagent.run.id": event.run_id, **whose, **told},
        )  # fmt: skip
        if error:
            span.set_attribute(ERROR, error)
            span.set_status(StatusCode.ERROR)
        span.end()

    # ---- texts

    def _active(self, ctx: Context[Any]) -> _Active:
        """Return the run to which a request or a call belongs; a separate one for learning after the end of a run."""
        active = _ACTIVE.get()
        return _Active(self, ctx.run_id, ctx.agent, ctx.thread or ctx.run_id) if active is None else active

    def _fail(self, span: Span, error: object) -> str:
        """Mark a span as failed, and return the type of the error. Its message is content, and so is its traceback."""
        while isinstance(error, NodeFailedError) and error.__cause__ is not None:
            error = error.__cause__
        name = type(error).__name__ if isinstance(error, BaseException) else "tool_error"
        if span.is_recording():
            told = self._clipped(error_text(error)) if self.content and isinstance(error, Exception) else None
            span.set_status(Status(StatusCode.ERROR, told))
            span.set_attribute(ERROR, name)
            if self.content and isinstance(error, BaseException):
                span.record_exception(error, {"exception.message": told or ""})
        return name

    def _clipped(self, text: str) -> str:
        return sendable(text if len(text) <= self.clip else f"{text[: self.clip]}…")

    def _json_list(self, values: Iterable[Mapping[str, Any]]) -> str:
        """Return values as JSON: the first ones, with texts that are clipped."""
        left, told = self.clip, list[Any]()
        for each in values:
            if left <= 0:
                break
            content = sendable(str(each["content"])[:left])
            left -= len(content)
            told.append({**each, "content": content})
        return json_text(told)

    def _set_messages(self, span: Span, name: str, messages: tuple[Message, ...], *, finish: str = "") -> None:
        """Set messages as an attribute, the last ones if not all have room."""
        left, told = self.clip, list[dict[str, Any]]()
        for message in reversed(messages):
            if left <= 0:
                span.set_attribute(f"graphagent.{name.split('.')[1]}.left_out", len(messages) - len(told))
                break
            parts = list[dict[str, Any]]()
            for part in message.parts:
                made, size = message_part(part, max(left, 0))
                left -= size
                parts.append(made)
            told.append({"role": message.role, "parts": parts} | ({"finish_reason": finish} if finish else {}))
        span.set_attribute(name, json_text(told[::-1]))


def _began(event: MemoryQueryStarted | MemorySaveStarted) -> None:
    (_QUERY if isinstance(event, MemoryQueryStarted) else _SAVE).set(time_ns())


def _current(span: Span) -> Any:
    """Return a block in which a span is the current one, and which leaves alone how it ends."""
    return trace.use_span(span, end_on_exit=False, record_exception=False, set_status_on_exception=False)


def _links(place: Any) -> list[Link]:
    """Return the link to a span that is kept with a run."""
    if not place:
        return []
    span = trace.get_current_span(_PLACES.extract(place)).get_span_context()
    return [trace.Link(span)] if span.is_valid else []


def _outcome_of(error: BaseException) -> str:
    if isinstance(error, Exception):
        return "failed"
    return "suspended" if isinstance(error, Suspend) else "cancelled"
