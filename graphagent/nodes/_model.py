"""Nodes around the model: ask it, execute the tools that it calls, add to what it is sent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, TypeVar, overload

from graphagent import _clock
from graphagent.errors import OutputError, RunError, ScriptError
from graphagent.events import ToolCalled, ToolReturned
from graphagent.graph import Node, Tap
from graphagent.llm import (
    Message,
    ModelRequest,
    OutputFormat,
    Tool,
    ToolCall,
    ToolCalls,
    ToolResult,
    ToolResults,
    Usage,
    call_tool,
    fresh_ids,
)
from graphagent.memory import ActionStep, MessageStep, SentPrompt, Timing
from graphagent.run import together

if TYPE_CHECKING:
    from graphagent.run import Context

T = TypeVar("T")

Prompt = str | Message | ToolResults
"""What a model can be asked with: text, a message, or the results of its tool calls."""


@dataclass(frozen=True, slots=True)
class _LlmRequest:
    tools: bool
    force: str | None
    output: OutputFormat[Any] | None
    parameters: Mapping[str, Any] = field(default_factory=dict[str, Any])

    async def __call__(self, ctx: Context, prompt: Prompt) -> Any:
        memory = ctx.memory
        _check_prompt(prompt, ctx.node)
        memory.hear(prompt)
        offered = tuple(ctx.tools) if self.tools else ()
        if self.force is not None and self.force not in {tool.name for tool in offered}:
            names = ", ".join(tool.name for tool in offered) or "none"
            raise ValueError(f"node {ctx.node!r} forces the tool {self.force!r}, which is not there (tools: {names})")
        request = ModelRequest(tuple(memory.to_messages()), offered, self.force or "auto", self.output, self.parameters)
        started = _clock.now()
        message, usage = await self._ask(ctx, request)
        try:
            value = self._value(message, offered)
        except OutputError as error:
            said = f"{error}. Answer again{'.' if self.output is None else ' with nothing but JSON that fits.'}"
            again = (*_turn(message), Message.user(said[:1].upper() + said[1:]))
            request = replace(request, messages=request.messages + again)
            message, more = await self._ask(ctx, request)
            usage += more
            value = self._value(message, offered)
        memory.answer(
            ActionStep(
                step_number=memory.turns + 1,
                model_output_message=message,
                prompt=SentPrompt.of(request.messages, memory.last_prompt),
                timing=Timing(started, _clock.now()),
                token_usage=usage,
                action_output=None if message.tool_calls else value,
            )
        )
        return value

    async def _ask(self, ctx: Context, request: ModelRequest) -> tuple[Message, Usage]:
        ctx.meter.check_tokens(ctx.state)
        ctx.meter.count_turn(ctx.state)
        response = await ctx.request(request)
        rest = tuple(part for part in response.message.parts if not isinstance(part, ToolCall))
        return Message("assistant", (*rest, *fresh_ids(response.message.tool_calls))), response.usage

    def _value(self, message: Message, offered: tuple[Tool, ...]) -> Any:
        """Give what the node gives for a model's message.

        Raises:
            OutputError: it is not what was asked for.
        """
        if message.tool_calls:
            if not offered:
                called = ", ".join(repr(call.name) for call in message.tool_calls)
                raise OutputError(f"no tools are offered here, and it called {called}", output=message.text)
            others = [repr(call.name) for call in message.tool_calls if self.force not in (None, call.name)]
            if others:
                called = ", ".join(others)
                raise OutputError(f"the tool {self.force!r} was to be called, and not {called}", output=message.text)
            return ToolCalls(message.tool_calls, message.text)
        if self.force is not None:
            raise OutputError(f"the tool {self.force!r} was to be called, and text came", output=message.text)
        return message.text if self.output is None else self.output.parse(message.text)


def _turn(message: Message) -> list[Message]:
    """Give a message as it is sent back: with a result for every call."""
    return ActionStep(model_output_message=message).to_messages()


def _check_prompt(prompt: object, node: str) -> None:
    if not isinstance(prompt, str | Message | ToolResults):
        raise TypeError(
            f"node {node!r} asks a model with text, a Message or ToolResults, not with a {type(prompt).__name__}; "
            f"map it to text before"
        )


@overload
def llm_request(
    *, tools: Literal[True] = True, name: str = ..., parameters: Mapping[str, Any] | None = None
) -> Node[Prompt, str | ToolCalls]: ...
@overload
def llm_request(
    *, tools: Literal[False], name: str = ..., parameters: Mapping[str, Any] | None = None
) -> Node[Prompt, str]: ...
@overload
def llm_request(
    *, force: Tool | str, name: str = ..., parameters: Mapping[str, Any] | None = None
) -> Node[Prompt, ToolCalls]: ...
@overload
def llm_request(
    *, output: type[T], name: str = ..., parameters: Mapping[str, Any] | None = None
) -> Node[Prompt, T]: ...
@overload
def llm_request(
    *, output: type[T], tools: Literal[True], name: str = ..., parameters: Mapping[str, Any] | None = None
) -> Node[Prompt, T | ToolCalls]: ...
def llm_request(
    *,
    tools: bool | None = None,
    force: Tool | str | None = None,
    output: type[Any] | None = None,
    name: str = "llm_request",
    parameters: Mapping[str, Any] | None = None,
) -> Node[Any, Any]:
    """Make a node that asks the model and gives its text, or the tool calls that it wants.

    Where a reply has text and calls, it gives the calls, with the text beside them. The answer is streamed to whoever
    listens to TextStreamed.

    Args:
        tools: Whether the tools are offered; with `output` they are not, unless this says so.
        force: The one tool that the model must call.
        output: The type of the answer: it is asked for as JSON, validated, and asked for once more where it does not fit.
        name: How the node is called.
        parameters: Passed to the model as they are, such as `{"temperature": 0}`.
    """
    if force is not None and (tools is False or output is not None):
        raise TypeError(
            f"{name!r} forces a tool call, so it offers tools and gives no other output; leave the rest out"
        )
    offered = tools if tools is not None else output is None
    form = OutputFormat.of(output) if output is not None else None
    forced = force.name if isinstance(force, Tool) else force
    request = _LlmRequest(offered, forced, form, dict(parameters or {}))
    if forced is not None:
        return Node(request, name=name, takes=Prompt, gives=ToolCalls)
    answer: Any = str if output is None else output
    if not offered:
        return Node(request, name=name, takes=Prompt, gives=answer)
    return Node(request, name=name, takes=Prompt, gives=answer | ToolCalls, tool_outputs=ToolCalls)


@dataclass(frozen=True, slots=True)
class _ExecuteTools:
    limit: int

    async def __call__(self, ctx: Context, calls: ToolCalls) -> ToolResults:
        if not calls:
            return ToolResults(())
        known = {tool.name: tool for tool in ctx.tools}
        turn = ctx.memory.turn_of(calls)
        if turn is None:
            calls = ToolCalls(fresh_ids(calls), calls.text)
            turn = ActionStep(model_output_message=Message.assistant(calls.text, calls))
            ctx.memory.close()
            ctx.memory.open = turn
        results: dict[int, ToolResult] = {}

        async def execute(number: int) -> None:
            call = calls[number]
            ctx.emit(ToolCalled(ctx.run_id, ctx.node, call))
            result = await call_tool(known.get(call.name), call, known=known, context=ctx)
            if _is_of_run(result.value, ctx.run_id):
                raise result.value
            ctx.emit(ToolReturned(ctx.run_id, ctx.node, result))
            results[number] = result

        if min(self.limit, len(calls)) < 2:
            for number in range(len(calls)):
                await execute(number)
        else:
            await together(execute, len(calls), self.limit)
        given = ToolResults([results[number] for number in range(len(calls))])
        ctx.memory.observe(turn, given)
        return given


def _is_of_run(error: object, run_id: str) -> bool:
    """Say whether a tool met an end of the run itself, such as a used-up budget, which is no answer for the model."""
    return isinstance(error, ScriptError) or (isinstance(error, RunError) and error.run_id == run_id)


def execute_tools(*, limit: int = 1, name: str = "execute_tools") -> Node[ToolCalls, ToolResults]:
    """Make a node that executes the model's tool calls and gives a result for every one, in the order of the calls.

    Unknown tools, arguments that do not validate and errors of a tool become results that the model sees.

    Args:
        limit: How many calls run at once; by default one after the other.
        name: How the node is called.
    """
    if limit < 1:
        raise ValueError(f"{name!r}: limit={limit} would run no call; give 1 or more")
    return Node(_ExecuteTools(limit), name=name, takes=ToolCalls, gives=ToolResults)


@dataclass(frozen=True, slots=True)
class _UpdatePrompt:
    messages: tuple[Message, ...]

    async def __call__(self, ctx: Context, _: Any) -> None:
        ctx.memory.close()
        ctx.memory.steps.extend(MessageStep(message) for message in self.messages)


def update_prompt(*messages: str | Message, name: str = "update_prompt") -> Tap:
    """Make a tap that adds messages to what the model is sent; plain text is the user's."""
    added = tuple(message if isinstance(message, Message) else Message.user(message) for message in messages)
    return Tap(_UpdatePrompt(added), name=name)


def passthrough(kind: type[T], *, name: str = "passthrough") -> Node[T, T]:
    """Make a node that gives what it gets, for a place to choose ways from.

    Args:
        kind: The type of what passes.
        name: How the node is called.
    """

    async def give(ctx: Context, value: T) -> T:
        return value

    return Node(give, name=name, takes=kind, gives=kind)
