"""The feature that keeps what a model is sent within its context window: `ContextWindow`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Self

from graphagent._article import kind_of
from graphagent.errors import ArgumentsError, FeatureError, ModelError, ToolError
from graphagent.events import CompressionFailed
from graphagent.llm import Image, Message, Reasoning, Text, Tool, ToolCall, ToolResult
from graphagent.memory._compression import WholeHistory, compress, cut_behind, shortened
from graphagent.memory._step_types import ActionStep, MessageStep, Step

if TYPE_CHECKING:
    from graphagent.agent import Agent
    from graphagent.memory._run_memory import RunMemory
    from graphagent.protocols import Compression
    from graphagent.run import Context

_BYTES_A_TOKEN = 4
_TOKENS_AN_IMAGE = 1_000
_TOKENS_A_MESSAGE = 4
_SHORTEST = 400
"""Characters of a result below which the note about what was left out would be most of it."""

_LATEST_STAY = WholeHistory(keep=3)
_LEFT_OUT = Text("[an image was left out here]")
_NOTE = """
[… {left:,} of {total:,} characters are left out here; to read on, call read_result with call_id {id} and start {start} …]
"""
_READ = "Read on in the result of an earlier tool call of which a part was left out."
_PARAMETERS: Mapping[str, Any] = {
    "type": "object",
    "properties": {
        "call_id": {"type": "string", "description": "The id of that call, as the note in its result says."},
        "start": {"type": "integer", "description": "The character to begin at, counted from 0."},
        "length": {
            "type": "integer",
            "description": "How many characters to read; as many as are shown at once if left out.",
        },
    },
    "required": ["call_id", "start"],
    "additionalProperties": False,
}


class ContextWindow:
    """Keeps what a model is sent small: `agent.install(ContextWindow, tokens=100_000, observation_chars=8_000, images=2)`.

    The steps of a run all stay; what is left out is recorded among them, so that prompts are derived from them alone, before and
    after a run is resumed. The rules and the task always stay. Between compressions each prompt begins as the one before it.

    Without `tokens` the history is compressed only when the server refuses a prompt as too long: then it is asked once more.

    Args:
        tokens: How long a prompt may be before what was said so far is compressed.
        images: How many images the model sees, the last ones, apart from those of the task.
        observation_chars: How many characters of one tool result the model sees: its head and its tail, with a note how to read
            on. `ToolResult.full` has all of it, and the tool `read_result`, which the model is offered then, reads it.
        compression: How the history is compressed.
    """

    def __init__(
        self,
        *,
        tokens: int | None = None,
        images: int | None = None,
        observation_chars: int | None = None,
        compression: Compression = _LATEST_STAY,
    ) -> None:
        limits = {"tokens": (tokens, 1), "images": (images, 0), "observation_chars": (observation_chars, _SHORTEST)}
        for name, (limit, least) in limits.items():
            if limit is not None and (type(limit) is not int or limit < least):
                raise ValueError(f"{name}={limit!r} is no limit; give a whole number from {least:,} on, or None")
        if isinstance(compression, type) or not callable(getattr(compression, "compress", None)):
            raise TypeError(
                f"compression= is a way to compress, such as WholeHistory(keep=3), not {kind_of(compression)}"
            )
        self.tokens = tokens
        """How long a prompt may be."""
        self.images = images
        """How many images the model sees."""
        self.observation_chars = observation_chars
        """How many characters of one tool result the model sees."""
        self.compression = compression
        """How the history is compressed."""
        self.tools: tuple[Tool, ...] = ()
        """What the model is offered beside the agent's tools."""
        if observation_chars is not None:
            read = partial(_read_on, most=observation_chars)
            self.tools = (Tool("read_result", _READ, _PARAMETERS, read),)

    def install(self, agent: Agent[Any, Any]) -> None:
        """See that no tool of the agent has the name of one that comes with this feature.

        Raises:
            FeatureError: one has.
        """
        taken = {tool.name for tool in agent.tools} & {tool.name for tool in self.tools}
        if taken:
            raise FeatureError(
                f"the agent has a tool {min(taken)!r}, and so has ContextWindow(observation_chars=…); rename the agent's"
            )

    async def begin(self, ctx: Context) -> None:
        """Do nothing: what is too much shows when a model is asked."""

    def bind(self, ctx: Context) -> Self:
        """Give this feature."""
        return self

    def shown(self, result: ToolResult) -> ToolResult:
        """Give a result as the model is to see it."""
        most, text = self.observation_chars, result.content
        if most is None or len(text) <= most or result.name in {tool.name for tool in self.tools}:
            return result

        def note(left: int, start: int) -> str:
            import json

            return _NOTE.format(left=left, total=len(text), id=json.dumps(result.call_id), start=start)

        return replace(result, content=shortened(text, most, note), full=result.full or text)

    async def before_request(self, ctx: Context, tools: Sequence[Tool]) -> None:
        """Leave out images, and compress the history where the prompt would be too long.

        Where that fails, an event says so, and the prompt is sent as it is.
        """
        if self.images is not None:
            _prune(ctx.memory, self.images)
        if ctx.added_before is not None:
            await compress(ctx, self.compression)  # the node is executed again, and what it did is decided already
            return
        if self.tokens is None or _size(ctx.memory, tools) <= self.tokens:
            return
        failed = f"window:{len(ctx.memory.steps)}:failed"
        if not ctx.recorded(failed):
            try:
                await self._compress(ctx, self.tokens)
            except ModelError as error:
                ctx.emit(CompressionFailed(ctx.run_id, ctx.node, str(error)))
            else:
                return
        await ctx.once(failed, _noted)

    async def make_room(self, ctx: Context, tools: Sequence[Tool]) -> bool:
        """Compress the history after a server refused a prompt as too long; False: nothing came of it."""
        size = _size(ctx.memory, tools)
        try:
            return await self._compress(ctx, min(size, self.tokens or size))
        except ModelError as error:
            ctx.emit(CompressionFailed(ctx.run_id, ctx.node, str(error)))
            return False

    async def _compress(self, ctx: Context, limit: int) -> bool:
        """Compress what stands before as many of the turns that are to stay as take up half of what there is."""
        steps, keep = ctx.memory.steps, self.compression.keep
        while keep and _estimate(_messages(steps[cut_behind(steps, keep) :])) > limit // 2:
            keep -= 1
        return await compress(ctx, self.compression, keep=keep) is not None

    def __repr__(self) -> str:
        return f"<ContextWindow of {self.tokens or 'as many'} tokens>"


async def _noted() -> bool:
    return True


async def _read_on(arguments: Mapping[str, Any], context: Any, *, most: int) -> str:
    """Give a part of a tool result.

    Raises:
        ToolError: there is no such result, or no such part of it.
    """
    given: dict[str, Any] = {"length": most, **arguments}
    kinds = {"call_id": str, "start": int, "length": int}
    problems = [f"{name}: is no {kind.__name__}" for name, kind in kinds.items() if type(given.get(name)) is not kind]
    if problems:
        raise ArgumentsError("read_result", problems)
    call_id, start, length = str(given["call_id"]), int(given["start"]), int(given["length"])
    text = _full(context.memory, call_id)
    if text is None:
        raise ToolError(
            f"no result of a call {call_id!r} has a part that was left out; the notes in results say their ids"
        )
    if not 0 <= start < len(text):
        raise ToolError(f"that result has the characters 0 to {len(text) - 1:,}, and none at {start:,}")
    end = min(start + max(min(length, most), 1), len(text))
    more = f"; read on with start {end}" if end < len(text) else ""
    return f"[characters {start:,} to {end:,} of {len(text):,}{more}]\n{text[start:end]}"


def _full(memory: RunMemory, call_id: str) -> str | None:
    turns = [step for step in (*memory.steps, *((memory.open,) if memory.open else ())) if isinstance(step, ActionStep)]
    results = (result for turn in reversed(turns) for result in turn.results)
    return next((result.full for result in results if result.call_id == call_id and result.full), None)


# ---- images


def _prune(memory: RunMemory, most: int) -> None:
    """Leave out all images but the last ones. Where none came since the last turn of this run, nothing is to be done."""
    steps = memory.steps
    turn = next((n for n in range(len(steps) - 1, memory.begun - 1, -1) if _is_turn(steps[n])), 0)
    if not any(_images(step) for step in steps[turn:]):
        return
    for step in reversed(steps):
        images = _images(step)
        if len(images) > most:
            _leave(step, images[len(images) - most :] if most else ())
        most = max(most - len(images), 0)


def _is_turn(step: Step) -> bool:
    return isinstance(step, ActionStep) and step.step_number > 0


def _images(step: Step) -> tuple[Image, ...]:
    if isinstance(step, ActionStep):
        return step.observations_images
    return step.message.images if isinstance(step, MessageStep) else ()


def _leave(step: Step, images: tuple[Image, ...]) -> None:
    """Leave only these images, the last ones, in a step."""
    if isinstance(step, ActionStep):
        step.observations_images = images
    elif isinstance(step, MessageStep):
        first = len(step.message.images) - len(images)
        seen = 0
        parts: list[Any] = []
        for part in step.message.parts:
            seen += isinstance(part, Image)
            parts.append(_LEFT_OUT if isinstance(part, Image) and seen <= first else part)
        step.message = replace(step.message, parts=tuple(parts))


# ---- tokens


def _size(memory: RunMemory, tools: Iterable[Tool]) -> int:
    """Estimate the tokens of the next prompt: what the last turn really had, and what came since.

    Where the prompt does not begin as that of the last turn, all of it is estimated, with the tools.
    """
    import json

    messages = memory.to_messages()
    turn = next((step for step in reversed(memory.steps) if _is_turn(step)), None)
    if isinstance(turn, ActionStep) and turn.prompt is not None and turn.token_usage and turn.token_usage.input_tokens:
        sent = turn.prompt.messages()
        if tuple(messages[: len(sent)]) == sent:
            usage, rest = turn.token_usage, messages[len(sent) :]
            if rest and rest[0] is turn.model_output_message:
                return usage.total_tokens - usage.reasoning_tokens + _estimate(rest[1:])
            return usage.input_tokens + _estimate(rest)
    return _estimate(messages) + sum(
        _tokens(f"{tool.name}{tool.description}{json.dumps(dict(tool.parameters), default=str)}") for tool in tools
    )


def _messages(steps: Iterable[Step]) -> list[Message]:
    return [message for step in steps for message in step.to_messages()]


def _estimate(messages: Iterable[Message]) -> int:
    """Estimate tokens: four bytes of text make one, as in English, and an image makes a thousand."""
    return sum(_TOKENS_A_MESSAGE + sum(map(_of_part, message.parts)) for message in messages)


def _of_part(part: Any) -> int:
    match part:
        case Text() | Reasoning():
            return _tokens(part.text) if isinstance(part, Text) else 0
        case ToolResult():
            return _tokens(part.content) + _TOKENS_AN_IMAGE * len(part.images)
        case ToolCall():
            return _tokens(f"{part.name}{part.malformed or dict(part.arguments)}")
        case _:
            return _TOKENS_AN_IMAGE


def _tokens(text: str) -> int:
    size = len(text) if text.isascii() else len(text.encode("utf-8", "replace"))
    return -(-size // _BYTES_A_TOKEN)
