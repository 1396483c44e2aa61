"""`ContextWindow`, the feature that keeps prompts within a model's context window."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Self

from graphagent._article import counted
from graphagent._options import check_can
from graphagent.errors import ArgumentsError, FeatureError, ModelError, PromptTooLongError, ToolError
from graphagent.events import CompressionFailed
from graphagent.llm import Image, Text, Tool, ToolResult
from graphagent.llm._tool_limits import SHORTEST, shortened
from graphagent.memory.compaction._compression import WholeHistory, compress
from graphagent.memory.compaction._cuts import covered_steps, cuts
from graphagent.memory.compaction._size import estimate, is_turn, largest_part, prompt_size, tools_size
from graphagent.memory.steps._types import ActionStep, MessageStep, Step

if TYPE_CHECKING:
    from graphagent._agent import Agent
    from graphagent.events import ModelOutput
    from graphagent.llm import Message, ModelRequest, OutputFormat
    from graphagent.memory.transcript._memory import RunMemory
    from graphagent.protocols import Compression
    from graphagent.run import Context

_LEAST_FOR_SUMMARIES = 2_000
"""The tokens allowed for a request for a summary even in the smallest window, since its instructions need some of them."""

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
    """Keeps prompts short: `agent.install(ContextWindow, tokens=100_000, observation_chars=8_000, images=2)`.

    All steps of a run stay in its transcript, which also records the content left out of prompts. So prompts are derived from the
    transcript alone, before and after a run is resumed. The system prompt and the task are never left out. Between compressions,
    each prompt begins with the previous prompt, so that a server's cache applies. If a prompt cannot be made to fit, the run
    raises PromptTooLongError and does not send it.

    Without `tokens`, the history is compressed only if the server refuses a prompt as too long; the request is then repeated once.

    Args:
        tokens: The number of tokens of a prompt above which the history is compressed.
        images: How many of the last images the model sees, besides those of the task.
        observation_chars: How many characters of one tool result the model sees: the head and the tail, with a note that says how
            to read the rest. `ToolResult.full` has the whole result, and the model gets a tool `read_result` that reads it.
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
        limits = {"tokens": (tokens, 1), "images": (images, 0), "observation_chars": (observation_chars, SHORTEST)}
        for name, (limit, least) in limits.items():
            if limit is not None and (type(limit) is not int or limit < least):
                raise ValueError(f"{name}={limit!r} is not a limit; give a whole number from {least:,} on, or None")
        check_can("compress", compression, "compression= is a way to compress, such as WholeHistory(keep=3)")
        self.tokens = tokens
        """The number of tokens of a prompt above which the history is compressed."""
        self.images = images
        """How many images the model sees."""
        self.observation_chars = observation_chars
        """How many characters of each tool result the model sees."""
        self.compression = compression
        """How the history is compressed."""
        self.tools: tuple[Tool, ...] = ()
        """The tools that the model gets besides the agent's tools."""
        if observation_chars is not None:
            read = partial(_read_on, most=observation_chars)
            self.tools = (Tool("read_result", _READ, _PARAMETERS, read),)

    def install(self, agent: Agent[Any, Any]) -> None:
        """Check that no tool of the agent has the name of a tool of this feature.

        Raises:
            FeatureError: a tool has such a name.
        """
        taken = {tool.name for tool in agent.tools} & {tool.name for tool in self.tools}
        if taken:
            raise FeatureError(
                f"the agent has a tool {min(taken)!r}, and so has ContextWindow(observation_chars=…); rename the agent's"
            )

    async def begin(self, ctx: Context) -> None:
        """Do nothing: prompts are checked before each request."""

    def bind(self, ctx: Context) -> Self:
        """Return this feature, which has no state of its own for a run."""
        return self

    def shown(self, result: ToolResult) -> ToolResult:
        """Return a tool result as the model sees it."""
        most, text = self.observation_chars, result.full or result.content
        if most is None or len(result.content) <= most or result.name in {tool.name for tool in self.tools}:
            return result

        def note(left: int, start: int) -> str:
            import json

            return _NOTE.format(left=left, total=len(text), id=json.dumps(result.call_id), start=start)

        return replace(result, content=shortened(text, most, note), full=text)

    async def before_request(self, ctx: Context, tools: Sequence[Tool]) -> None:
        """Leave out images, and compress the history if the prompt would be too long.

        Raises:
            PromptTooLongError: the prompt is still too long.
        """
        if self.images is not None:
            _prune(ctx.memory, self.images)
        memory = ctx.memory
        if self.tokens is None or prompt_size(memory, memory.to_messages(), tools) <= self.tokens:
            return
        failure = None
        try:
            await self._compress(ctx, tools, self.tokens)
        except ModelError as error:
            failure = error
            ctx.emit(CompressionFailed(ctx.run_id, ctx.node, str(error)))
        self._check_fits(ctx, memory.to_messages(), tools, failure=failure)

    def check_request(self, ctx: Context, request: ModelRequest, output: ModelOutput) -> None:
        """Check that a request is not too long. Requests for facts are exempt, since their failure does not stop a run.

        Raises:
            PromptTooLongError: the request is too long.
        """
        if output not in ("extraction", "tool"):
            least = _LEAST_FOR_SUMMARIES if output == "summary" else 0
            self._check_fits(ctx, request.messages, request.tools, request.output, least=least)

    def _check_fits(
        self,
        ctx: Context,
        messages: Sequence[Message],
        tools: Sequence[Tool],
        output: OutputFormat[Any] | None = None,
        *,
        least: int = 0,
        failure: ModelError | None = None,
    ) -> None:
        limit = max(self.tokens, least) if self.tokens is not None else None
        size = prompt_size(ctx.memory, messages, tools, output) if limit is not None else 0
        if limit is None or size <= limit:
            return
        largest, most, remedy = largest_part(ctx.memory, messages, tools, output)
        why = "compressing the history failed" if failure is not None else "the history cannot be compressed enough"
        raise PromptTooLongError(
            f"the prompt of node {ctx.node!r} has about {counted(size, 'token')}, and its window {limit:,}; {why}. The largest part, "
            f"about {most:,}, is {largest}: {remedy}, or raise ContextWindow(tokens=…)",
            tokens=size,
            limit=limit,
            largest=largest,
        ) from failure

    async def make_room(self, ctx: Context, tools: Sequence[Tool]) -> bool:
        """Compress the history after a server refused a prompt as too long. Return False if nothing could be compressed."""
        size = prompt_size(ctx.memory, ctx.memory.to_messages(), tools)
        try:
            return await self._compress(ctx, tools, min(size - 1, self.tokens or size - 1))
        except ModelError as error:
            ctx.emit(CompressionFailed(ctx.run_id, ctx.node, str(error)))
            return False

    async def _compress(self, ctx: Context, tools: Sequence[Tool], limit: int) -> bool:
        """Compress all steps but the last ones, which fill half of the window; compress these too if that is not enough."""
        memory, found = ctx.memory, False
        places = cuts(memory, self.compression.keep, measured=self.tokens is not None)
        for cut in _chosen(memory, places, limit, tools):
            if not covered_steps(memory, cut):
                continue
            if await compress(ctx, self.compression, cut=cut) is None:
                break
            found = True
            if prompt_size(memory, memory.to_messages(), tools) <= limit:
                break
        return found

    def __repr__(self) -> str:
        return f"<ContextWindow of {self.tokens or 'as many'} tokens>"


def _chosen(memory: RunMemory, places: Sequence[int], limit: int, tools: Sequence[Tool]) -> list[int]:
    """Return the positions to cut at, in order: the first that leaves few enough steps, then the one that leaves the fewest."""
    steps = memory.steps
    if not places:
        return []
    projection = memory.transcript.projection
    shown = [place for place in projection.places if not projection.stays(place)]
    sizes = {place: estimate(steps[place].to_messages()) for place in shown}
    fixed = estimate(memory.to_messages()) + tools_size(tools) - sum(sizes.values())
    room = min(limit // 2, limit - fixed - limit // 8)
    fits = (cut for cut in places if sum(size for place, size in sizes.items() if place >= cut) <= room)
    return sorted({next(fits, places[-1]), places[-1]})


async def _read_on(arguments: Mapping[str, Any], context: Any, *, most: int) -> str:
    """Return a part of a tool result."""
    given: dict[str, Any] = {"length": most, **arguments}
    kinds = {"call_id": str, "start": int, "length": int}
    problems = [
        f"{name}: is not of type {kind.__name__}" for name, kind in kinds.items() if type(given.get(name)) is not kind
    ]
    if problems:
        raise ArgumentsError("read_result", problems)
    call_id, start, length = str(given["call_id"]), int(given["start"]), int(given["length"])
    text = _full(context.memory, call_id)
    if text is None:
        raise ToolError(
            f"no result of a call {call_id!r} has a part that was left out; the notes in results say the ids"
        )
    if not 0 <= start < len(text):
        raise ToolError(f"that result has the characters 0 to {len(text) - 1:,}, and no character at {start:,}")
    end = min(start + max(min(length, most), 1), len(text))
    more = f"; read on with start {end}" if end < len(text) else ""
    return f"[characters {start:,} to {end:,} of {len(text):,}{more}]\n{text[start:end]}"


def _full(memory: RunMemory, call_id: str) -> str | None:
    steps = itertools.chain([] if memory.open is None else [memory.open], reversed(memory.steps))
    results = (result for step in steps if isinstance(step, ActionStep) for result in step.results)
    return next((result.full for result in results if result.call_id == call_id and result.full), None)


def _prune(memory: RunMemory, most: int) -> None:
    """Leave out all images but the last ones. Do nothing if no image was added since the last turn of this run."""
    since: list[Step] = []
    for step in memory.backwards():
        since.append(step)
        if is_turn(step):
            break
    else:
        since = memory.visible
    if not any(map(_images, since)):
        return
    for step in reversed(memory.visible):
        images = _images(step)
        if len(images) > most:
            _leave(step, images[len(images) - most :] if most else ())
        most = max(most - len(images), 0)


def _images(step: Step) -> tuple[Image, ...]:
    if isinstance(step, ActionStep):
        return step.observations_images
    return step.message.images if isinstance(step, MessageStep) else ()


def _leave(step: Step, images: tuple[Image, ...]) -> None:
    """Leave out all images of a step but the given ones, its last ones."""
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
