"""The log of runs: a tool that raised in any case, and the course of runs where the feature `Logging` is installed."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from graphagent._options import check_flag
from graphagent._tracebacks import frames_of
from graphagent.errors import NodeFailedError, ToolError
from graphagent.events import (
    FactsSaved,
    InferenceFailed,
    MemoryQueryCompleted,
    MemorySaveCompleted,
    ModelRequestFailed,
    ModelResponded,
    NodeFailed,
    RunEnded,
    RunFailed,
    RunFinished,
    RunResumed,
    RunStarted,
    RunSuspended,
    ToolReturned,
)
from graphagent.protocols import Feature

if TYPE_CHECKING:
    from graphagent._agent import Agent
    from graphagent.events import Event
    from graphagent.llm import ToolCall
    from graphagent.run._agent_run import AgentRun

_run = logging.getLogger("graphagent.run")
_llm = logging.getLogger("graphagent.llm")
_memory = logging.getLogger("graphagent.memory")


class Logging(Feature):
    """Logs the course of runs: `agent.install(Logging)`.

    Runs and tool calls are records of the logger `graphagent.run`, requests to models of `graphagent.llm`, and facts and notes of
    `graphagent.memory`. Each record has its values as attributes too, such as `run_id`, `node` and `error_type`.

    Args:
        content: Whether records have texts: the messages and the tracebacks of exceptions, and at the level DEBUG the answers of
            models and the results of tools.

    Raises:
        TypeError: `content` is not a bool.
    """

    def __init__(self, *, content: bool = False) -> None:
        check_flag("Logging: content", content)
        self.content = content
        """Whether records have texts."""

    def install(self, agent: Agent[Any, Any]) -> None:
        """Listen to the agent's runs."""
        agent.on(RunStarted, lambda event: self._info("run %r of strategy %r began", event, strategy=event.strategy))
        agent.on(
            RunResumed, lambda event: self._info("run %r of strategy %r continues", event, strategy=event.strategy)
        )
        agent.on(RunFinished, self._finished)
        agent.on(RunSuspended, lambda event: self._info("run %r stopped: %s", event, reason=event.reason))
        agent.on(RunEnded, lambda event: self._info("run %r was ended", event))
        agent.on(RunFailed, self._failed)
        agent.on(NodeFailed, self._node_failed)
        agent.on(ToolReturned, self._tool_returned)
        agent.on(ModelResponded, self._responded)
        agent.on(ModelRequestFailed, self._request_failed)
        agent.on(InferenceFailed, self._inference_failed)
        agent.on(FactsSaved, lambda event: self._remembered("run %r saved facts: %d", event, count=event.count))
        agent.on(
            MemoryQueryCompleted,
            lambda event: self._remembered("run %r found notes: %d", event, count=len(event.results)),
        )
        agent.on(
            MemorySaveCompleted,
            lambda event: self._remembered(
                "run %r saved notes in %d ms", event, milliseconds=round(event.save_time_ms)
            ),
        )

    # ---- runs

    def _info(self, text: str, event: Event, **values: Any) -> None:
        _run.info(text, event.run_id, *values.values(), extra={"run_id": event.run_id, **values})

    def _finished(self, event: RunFinished) -> None:
        self._info("run %r is done: %d tokens", event, tokens=event.usage.total_tokens)

    def _failed(self, event: RunFailed) -> None:
        error = event.error
        while isinstance(error, NodeFailedError) and error.__cause__ is not None:
            error = error.__cause__
        _failed(
            _run,
            logging.ERROR,
            "run %r failed with %s%s",
            (event.run_id,),
            error,
            {"run_id": event.run_id},
            content=self.content,
        )

    def _node_failed(self, event: NodeFailed) -> None:
        told = {"run_id": event.run_id, "node": event.node}
        _failed(_run, logging.INFO, "node %r failed with %s%s", (event.node,), event.error, told, content=self.content)

    def _tool_returned(self, event: ToolReturned) -> None:
        result = event.result
        _run.debug(
            "tool %r returned%s%s", result.name, " an error" if result.is_error else "", f": {result.content}" if self.content else "",
            extra={
                "run_id": event.run_id, "node": event.node, "tool": result.name, "call_id": result.call_id,
                "seconds": result.seconds, "is_error": result.is_error,
            },
        )  # fmt: skip

    # ---- models and memory

    def _responded(self, event: ModelResponded) -> None:
        response = event.response
        _llm.debug(
            "model %r answered: %d tokens, %s%s", response.model, response.usage.total_tokens, response.finish_reason,
            f": {response.message.text}" if self.content else "",
            extra={
                "run_id": event.run_id, "node": event.node, "model": response.model, "finish_reason": response.finish_reason,
                "input_tokens": response.usage.input_tokens, "output_tokens": response.usage.output_tokens,
            },
        )  # fmt: skip

    def _request_failed(self, event: ModelRequestFailed) -> None:
        told = {"run_id": event.run_id, "node": event.node, "model": event.model}
        _llm.warning("a request to model %r failed: %s", event.model, event.reason, extra=told)

    def _inference_failed(self, event: InferenceFailed) -> None:
        told = {"run_id": event.run_id, "task": event.task}
        _memory.warning("a model failed with notes (%s): %s", event.task, event.reason, extra=told)

    def _remembered(self, text: str, event: Event, **values: Any) -> None:
        _memory.debug(text, event.run_id, *values.values(), extra={"run_id": event.run_id, **values})


def log_failed_call(run: AgentRun, node: str, call: ToolCall, error: Exception) -> None:
    """Log the exception of a tool: its type and its frames, and its message if that is asked for. A ToolError is the tool's answer."""
    if isinstance(error, ToolError):
        return
    feature = run.features.get(Logging)
    told = {"run_id": run.run_id, "node": node, "tool": call.name, "call_id": call.id}
    content = isinstance(feature, Logging) and feature.content
    _failed(_run, logging.WARNING, "tool %r raised %s%s", (call.name,), error, told, content=content)


def _failed(
    logger: logging.Logger, level: int, text: str, names: tuple[str, ...], error: BaseException, told: dict[str, Any], *, content: bool,
) -> None:  # fmt: skip
    """Log an exception: its type and its frames, with content also its message and its traceback."""
    if not logger.isEnabledFor(level):
        return
    frames, kind = frames_of(error), type(error).__name__
    where = f" at {frames[-1]}" if frames else ""
    logger.log(
        level, text, *names, kind, where, exc_info=error if content else None,
        extra={**told, "error_type": kind, "frames": frames},
    )  # fmt: skip
