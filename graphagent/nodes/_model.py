"""Nodes around the model: ask it, after a plan if one is due, and add to its prompt."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypedDict, TypeVar, Unpack, get_args, overload

from graphagent.errors import OutputError, PromptTooLongError, VetoError
from graphagent.events import ModelOutput
from graphagent.graph import Node, Tap
from graphagent.llm import Message, ModelRequest, OutputFormat, Tool, ToolCalls, ToolResults
from graphagent.memory import ActionStep, MessageStep, PlanningStep, TaskStep

if TYPE_CHECKING:
    from graphagent.run import Context


T = TypeVar("T")

Prompt = str | Message | ToolResults
"""The input with which a model can be asked: text, a message, or the results of its tool calls."""
_UNLESS_OUTPUT: Any = object()
_PLANNED = ("answer", "draft")
"""The purposes of answers before which plans are made."""


@dataclass(frozen=True, slots=True)
class LlmRequest:
    """The function of a node that asks the model."""

    tools: bool = True
    force: str | None = None
    required: bool = False
    """Whether the model must call a tool, any of those offered."""
    output: OutputFormat[Any] | None = None
    parameters: Mapping[str, Any] = field(default_factory=dict[str, Any])
    finish: Tool | None = None
    """A tool offered besides the others. If there is one, text alone is not an answer: the model ends its work by calling it."""
    purpose: ModelOutput = "answer"
    """The purpose of the answer, as TextStreamed names it."""

    @property
    def plans(self) -> bool:
        """Whether plans are made before its turns, as `Agent(planning_interval=…)` says: only before answers and drafts."""
        return self.purpose in _PLANNED

    async def __call__(self, ctx: Context[Any], prompt: Prompt) -> Any:
        tools = tools_of(ctx, self.finish) if self.tools else ()
        self.check_tools(ctx.node, tools)
        await add_prompt(ctx, prompt)
        choice = self.force or ("required" if self.required else "auto")
        while True:
            messages = await ctx.build_prompt(tools)
            if self.purpose in _PLANNED and await plan_if_due(ctx, tools):
                messages = await ctx.build_prompt(tools)
            request = ModelRequest(messages, tools, choice, self.output, self.parameters)
            try:
                turn = await ctx.turn(request, parse=partial(self._value, offered=bool(tools)), purpose=self.purpose)
            except PromptTooLongError:
                if not await ctx.compact(tools):
                    raise
            except VetoError as error:
                if error.step != ActionStep.__name__:  # such as the plan: the run stops
                    raise
                continue  # the reason is in the transcript
            else:
                return ToolCalls(turn.tool_calls, turn.model_output or "") if turn.tool_calls else turn.action_output

    def check_tools(self, node: str, tools: Sequence[Tool]) -> None:
        """Check that a tool is offered if the model must call one: before the run as far as they are known, and when it is asked.

        Raises:
            ValueError: none is, or not the one that is forced.
        """
        if self.force is not None and self.force not in {tool.name for tool in tools}:
            names = ", ".join(tool.name for tool in tools) or "none"
            raise ValueError(
                f"node {node!r} forces the tool {self.force!r}, which is not available (tools: {names}); name one of these, or "
                f"write Agent(…, tools=[…]) with it"
            )
        if self.required and not tools:
            raise ValueError(f"node {node!r} requires a tool call, and no tools are offered; write Agent(…, tools=[…])")

    def _value(self, message: Message, *, offered: bool) -> Any:
        """Return the output of the node for a message of the model; None for tool calls.

        Raises:
            OutputError: the message does not fit the request.
        """
        if message.tool_calls:
            if not offered:
                called = ", ".join(repr(call.name) for call in message.tool_calls)
                raise OutputError(f"no tools are offered here, and it called {called}", output=message.text)
            others = [repr(call.name) for call in message.tool_calls if self.force not in (None, call.name)]
            if others:
                called = ", ".join(others)
                raise OutputError(f"the tool {self.force!r} was to be called, and not {called}", output=message.text)
            return None
        if self.force is not None or self.required or self.finish is not None:
            wanted = "a tool" if self.force is None else f"the tool {self.force!r}"
            hint = "" if self.finish is None else f"; when the task is done, call {self.finish.name!r} with its result"
            raise OutputError(f"{wanted} was to be called, and text came{hint}", output=message.text)
        return message.text if self.output is None else self.output.parse(message.text)


def tools_of(ctx: Context[Any], finish: Tool | None = None) -> tuple[Tool, ...]:
    """Return the tools that a node offers, the one that ends a task last.

    Raises:
        ValueError: another tool has the name of that one.
    """
    if finish is None:
        return ctx.tools
    if any(tool.name == finish.name for tool in ctx.tools):
        raise ValueError(
            f"node {ctx.node!r} offers a tool {finish.name!r} of its own; rename the other one with @tool(name=…)"
        )
    return (*ctx.tools, finish)


async def add_prompt(ctx: Context[Any], prompt: Prompt) -> None:
    """Add a prompt to the transcript, unless it is there and has no answer yet."""
    if isinstance(prompt, ToolResults):
        await ctx.add_results(prompt)
        return
    if not isinstance(prompt, str | Message):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(
            f"node {ctx.node!r} asks a model with text, a Message or ToolResults, not with {type(prompt).__name__}; "
            f"map it to text before"
        )
    message = prompt if isinstance(prompt, Message) else Message.user(prompt)
    for step in ctx.memory.backwards():
        if isinstance(step, ActionStep) and step.model_output_message is not None:
            break
        if (isinstance(step, TaskStep) and step.task == prompt) or (
            isinstance(step, MessageStep) and step.message == message
        ):
            return
    await ctx.add(MessageStep(message))


class RequestOptions(TypedDict, total=False):
    """The options that all forms of `llm_request` take."""

    name: str
    parameters: Mapping[str, Any] | None
    purpose: ModelOutput


@overload
def llm_request(*, tools: Literal[True] = True, **options: Unpack[RequestOptions]) -> Node[Prompt, str | ToolCalls]: ...
@overload
def llm_request(*, tools: Literal["required"], **options: Unpack[RequestOptions]) -> Node[Prompt, ToolCalls]: ...
@overload
def llm_request(*, tools: Literal[False], **options: Unpack[RequestOptions]) -> Node[Prompt, str]: ...
@overload
def llm_request(*, force: Tool | str, **options: Unpack[RequestOptions]) -> Node[Prompt, ToolCalls]: ...
@overload
def llm_request(*, output: type[T], **options: Unpack[RequestOptions]) -> Node[Prompt, T]: ...
@overload
def llm_request(
    *, output: type[T], tools: Literal[True], **options: Unpack[RequestOptions]
) -> Node[Prompt, T | ToolCalls]: ...
def llm_request(
    *,
    tools: bool | Literal["required"] = _UNLESS_OUTPUT,
    force: Tool | str | None = None,
    output: type[Any] | None = None,
    name: str = "llm_request",
    parameters: Mapping[str, Any] | None = None,
    purpose: ModelOutput = "answer",
) -> Node[Any, Any]:
    """Make a node that asks the model and returns its text, or its tool calls.

    If a reply has both, it returns the calls, which contain the text. The answer is streamed to listeners of TextStreamed.

    Args:
        tools: Whether the tools are offered; with `output` they are not, unless this says so. With "required" the model must call
            at least one of them; if it answers with text, it is asked once more.
        force: The one tool that the model must call.
        output: The type of the answer: it is asked for as JSON, validated, and asked for once more where it does not fit.
        name: The name of the node.
        parameters: Passed to the model as they are, such as `{"temperature": 0}`.
        purpose: What it is asked for, as events tell it. Only an `answer` is streamed to who listens to answers. It and a `draft` are planned
            for, and asked for again after a final check.

    Raises:
        TypeError: an argument is not of its type, or two of them contradict each other.
        ValueError: `tools` is neither True, False nor "required", or `purpose` is not one of the words.
    """
    if purpose not in get_args(ModelOutput):
        raise ValueError(f"{name!r}: purpose={purpose!r} is not one of {', '.join(get_args(ModelOutput))}")
    if tools is _UNLESS_OUTPUT:
        tools = output is None
    if not isinstance(tools, bool) and tools != "required":
        raise ValueError(f"{name!r}: tools={tools!r} is not known; there are True, False and 'required'")
    required = tools == "required"
    if (force is not None and (not tools or output is not None)) or (required and output is not None):
        raise TypeError(
            f"{name!r} forces a tool call, so it offers tools and gives no other output; leave the rest out"
        )
    form = OutputFormat.of(output) if output is not None else None
    if force is not None and not isinstance(force, Tool | str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"force= is a tool, or the name of one, not {force!r}; decorate the function with @tool")
    forced = force.name if isinstance(force, Tool) else force
    if forced == "":
        raise ValueError(f"{name!r}: force='' names no tool")
    request = LlmRequest(bool(tools), forced, required, form, checked_parameters(name, parameters), purpose=purpose)
    if forced is not None or required:
        return Node(request, name=name, input_type=Prompt, output_type=ToolCalls, asks_model=True)
    answer: Any = str if output is None else output
    if not tools:
        return Node(request, name=name, input_type=Prompt, output_type=answer, asks_model=True)
    return Node(
        request, name=name, input_type=Prompt, output_type=answer | ToolCalls, tool_outputs=ToolCalls, asks_model=True
    )


def checked_parameters(node: str, given: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return a copy of the parameters that a node passes to the model."""
    if given is not None and not isinstance(given, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"{node!r}: parameters= is a dict, such as {{'temperature': 0}}, not {type(given).__name__}")
    return dict(given or {})


@dataclass(frozen=True, slots=True)
class _UpdatePrompt:
    messages: tuple[Message, ...]

    async def __call__(self, ctx: Context, _: Any) -> None:
        await ctx.add(*map(MessageStep, self.messages))


def update_prompt(*messages: str | Message, name: str = "update_prompt") -> Tap:
    """Make a tap that adds messages to the prompt of the model; plain text becomes a message of the user."""
    if not messages:
        raise TypeError(f"{name!r} adds nothing; write update_prompt('…')")
    for each in messages:
        if not isinstance(each, str | Message):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"{name!r} adds text or messages, not {type(each).__name__}; write update_prompt('…')")
    added = tuple(message if isinstance(message, Message) else Message.user(message) for message in messages)
    return Tap(_UpdatePrompt(added), name=name)


def passthrough(kind: type[T], *, name: str = "passthrough") -> Node[T, T]:
    """Make a node that returns its input, as a point from which edges can be chosen.

    Args:
        kind: The type of the input and output.
        name: The name of the node.
    """

    async def give(ctx: Context, value: T) -> T:
        return value

    return Node(give, name=name, input_type=kind, output_type=kind)


_PLAN = """\
Before you go on, make a plan. Sum up in a few lines what you know and what is still to be found out, then list the next steps, \
one a line. Do not carry out any of them yet.{tools}"""
_TOOLS = " For the steps you have these tools: {names}."


async def plan_if_due(ctx: Context[Any], tools: Sequence[Tool]) -> bool:
    """Let the model make a plan if one is due: before the first turn of the run, and before every n-th turn after it.

    A plan does not count as a turn in the budget; its tokens and its money count. Return whether the transcript changed.
    """
    interval = ctx.planning_interval
    if interval is None:
        return False
    since = 0  # the turns since the last plan: a plan that was taken back is made again
    for step in ctx.memory.backwards():
        if isinstance(step, PlanningStep):
            return False
        since += isinstance(step, ActionStep) and bool(step.step_number)
        if since == interval:
            break
    names = ", ".join(tool.name for tool in tools)
    asked = Message.user(_PLAN.format(tools=_TOOLS.format(names=names) if names else ""))
    for again in (False, True):
        try:
            await ctx.turn(ModelRequest((*ctx.memory.to_messages(), asked)), step=PlanningStep, purpose="plan")
        except PromptTooLongError:
            if again or not await ctx.compact(tools):
                raise
        else:
            break
    return True
