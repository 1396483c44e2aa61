"""Estimates of the tokens of a prompt before it is sent, and of its largest part."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from graphagent.llm import Message, Reasoning, Text, Tool, ToolCall, ToolResult
from graphagent.memory.steps._types import (
    ActionStep,
    FactsStep,
    NotesStep,
    PlanningStep,
    Step,
    SummaryStep,
    TaskStep,
)

if TYPE_CHECKING:
    from graphagent.llm import OutputFormat
    from graphagent.memory.transcript._memory import RunMemory

_BYTES_A_TOKEN = 4
_TOKENS_AN_IMAGE = 1_000
_TOKENS_A_MESSAGE = 4


def prompt_size(
    memory: RunMemory, messages: Sequence[Message], tools: Iterable[Tool], output: OutputFormat[Any] | None = None
) -> int:
    """Return the approximate number of tokens of a prompt: the server's count for the last turn, and an estimate of the rest.

    If the prompt does not begin with the last turn's prompt, all of it is estimated, with the tools and the schema of the output.
    """
    turn = memory.last_turn
    if turn is not None and turn.prompt is not None and turn.token_usage and turn.token_usage.input_tokens:
        sent = turn.prompt.messages()
        if tuple(messages[: len(sent)]) == sent:
            usage, rest = turn.token_usage, messages[len(sent) :]
            if rest and rest[0] is turn.model_output_message:
                return usage.total_tokens - usage.reasoning_tokens + estimate(rest[1:])
            return usage.input_tokens + estimate(rest)
    return estimate(messages) + tools_size(tools) + _output_size(output)


def is_turn(step: Step) -> bool:
    """Return whether a step is a model turn of a run, not one made by a program."""
    return isinstance(step, ActionStep) and step.step_number > 0


def estimate(messages: Iterable[Message]) -> int:
    """Return the approximate number of tokens of messages: one for four bytes of text, as in English, and a thousand for an image."""
    return sum(_TOKENS_A_MESSAGE + sum(map(_of_part, message.parts)) for message in messages)


def tools_size(tools: Iterable[Tool]) -> int:
    """Return the approximate number of tokens of the descriptions and schemas of tools."""
    return sum(_of_data(f"{tool.name}{tool.description}", tool.parameters) for tool in tools)


def largest_part(
    memory: RunMemory, messages: Sequence[Message], tools: Iterable[Tool], output: OutputFormat[Any] | None = None
) -> tuple[str, int, str]:
    """Return a name for the largest part of a prompt, its approximate tokens, and how to shorten it; never its text."""
    parts = [(tools_size(tools), "the tools", "offer fewer tools, or describe them more briefly")]
    parts.append((_output_size(output), "the schema of the output", "ask for a simpler type"))
    longest = max(messages, key=lambda message: estimate([message]), default=None)
    if longest is not None:
        parts.append((estimate([longest]), *_named(memory, longest)))
    size, name, remedy = max(parts)
    return name, size, remedy


def _named(memory: RunMemory, message: Message) -> tuple[str, str]:
    """Return a name for a message of a prompt, and the remedy if it is too long."""
    step = next((step for step in reversed(memory.visible) if message in step.to_messages()), None)
    match step:
        case TaskStep():
            return "the task", "shorten it, or have a tool read the long part"
        case FactsStep():
            return "the loaded facts", "load fewer facts"
        case NotesStep():
            return "the recalled notes", "recall fewer notes"
        case PlanningStep():
            return "a plan", "limit its tokens"
        case SummaryStep():
            return "a summary", "choose a compression that says less"
        case ActionStep() if message.role == "tool":
            names = ", ".join(repr(result.name) for result in message.tool_results)
            return f"the result of {names}", "install ContextWindow(observation_chars=…)"
        case ActionStep():
            return f"turn {step.step_number}", "compress earlier, or keep fewer turns"
        case _ if message.role == "system":
            return "the system prompt", "shorten it"
        case _:
            return f"a message of the {message.role}", "shorten it, or have a tool read the long part"


def _output_size(output: OutputFormat[Any] | None) -> int:
    return 0 if output is None else _of_data(output.name, output.schema)


def _of_data(text: str, data: object) -> int:
    import json

    return _tokens(f"{text}{json.dumps(data, default=_plain)}")


def _plain(value: Any) -> Any:
    return dict(value) if hasattr(value, "keys") else str(value)


def _of_part(part: Any) -> int:
    match part:
        case Text():
            return _tokens(part.text)
        case Reasoning():  # sent back only in the form that its server wants
            return 0 if part.provider is None else _tokens(part.text) + _of_data("", part.provider.data)
        case ToolResult():
            return _tokens(part.content) + _TOKENS_AN_IMAGE * len(part.images)
        case ToolCall():
            return _tokens(f"{part.name}{part.malformed or dict(part.arguments)}")
        case _:
            return _TOKENS_AN_IMAGE


def _tokens(text: str) -> int:
    size = len(text) if text.isascii() else len(text.encode("utf-8", "replace"))
    return -(-size // _BYTES_A_TOKEN)
