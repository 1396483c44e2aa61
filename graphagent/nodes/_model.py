"""Nodes around the model: ask it, add to what it is sent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, TypeVar, overload

from graphagent import _clock
from graphagent._article import a, kind_of
from graphagent.errors import ModelError, OutputError, TruncatedError
from graphagent.graph import Node, Tap
from graphagent.llm import Message, ModelRequest, OutputFormat, Tool, ToolCalls, ToolResults, Usage
from graphagent.memory import ActionStep, MessageStep, StepFailure, Timing
from graphagent.memory._internal import SentPrompt
from graphagent.nodes._planning import plan_if_due
from graphagent.nodes._prompt_features import ask, before_request, tools_of

if TYPE_CHECKING:
    from graphagent.events import ModelOutput
    from graphagent.llm import ModelResponse
    from graphagent.run import Context

T = TypeVar("T")

Prompt = str | Message | ToolResults
"""What a model can be asked with: text, a message, or the results of its tool calls."""


@dataclass(frozen=True, slots=True)
class LlmRequest:
    """The function of a node that asks the model."""

    tools: bool = True
    force: str | None = None
    required: bool = False
    """Whether the model must call a tool, whichever it likes."""
    output: OutputFormat[Any] | None = None
    parameters: Mapping[str, Any] = field(default_factory=dict[str, Any])
    finish: Tool | None = None
    """Offered besides the tools. If there is one, text alone is no answer: the model ends its work by calling it."""
    purpose: ModelOutput = "answer"
    """The purpose of the answer, as TextStreamed names it. Only for an answer are there plans, and questions after a final check."""

    async def __call__(self, ctx: Context, prompt: Prompt) -> Any:
        check_prompt(prompt, ctx.node)
        ctx.__frame__.begin_adding()
        await ctx.add(*ctx.memory.hear(prompt))
        offered = tools_of(ctx, self.finish) if self.tools else ()
        if self.force is not None and self.force not in {tool.name for tool in offered}:
            names = ", ".join(tool.name for tool in offered) or "none"
            raise ValueError(f"node {ctx.node!r} forces the tool {self.force!r}, which is not there (tools: {names})")
        if self.required and not offered:
            raise ValueError(
                f"node {ctx.node!r} requires a tool call, and no tools are offered; write Agent(…, tools=[…])"
            )
        answers = self.purpose == "answer"
        while True:
            await before_request(ctx, offered)
            if answers:
                await plan_if_due(ctx, offered)
            asked, again = None, False
            while asked is None:
                asked, again = await self._turn(ctx, offered, again=again), True
            turn, value = asked
            if answers:
                runtime = ctx.__frame__.runtime
                runtime.asked = runtime.root.compiled if runtime.root is not None else None
            found = ctx.memory.answer(turn)
            if turn.tool_calls:  # it joins the steps, and is seen, when they have their results
                await ctx.add(*found)
                return value
            turn, veto = await ctx.__frame__.offer(turn)
            if veto is None:
                return value
            turn.error = StepFailure("Veto", veto.reason)
            ctx.memory.refused(prompt)

    async def _turn(self, ctx: Context, offered: tuple[Tool, ...], *, again: bool) -> tuple[ActionStep, Any] | None:
        """Ask once, and once more where the answer is not what was asked for; None: the prompt was too long, and is shorter now."""
        memory = ctx.memory
        derived = tuple(memory.to_messages())
        choice = self.force or ("required" if self.required else "auto")
        request = ModelRequest(derived, offered, choice, self.output, self.parameters)
        started = _clock.now()

        def step(request: ModelRequest, message: Message | None, usage: Usage | None, **rest: Any) -> ActionStep:
            return ActionStep(
                step_number=memory.turns + 1,
                model_output_message=message,
                prompt=SentPrompt.of((ctx.__frame__.sent or request).messages, memory.last_prompt, derived),
                timing=Timing(started, _clock.now()),
                token_usage=usage,
                **rest,
            )

        usage, unrecorded = Usage(), Usage()
        try:
            response = await ask(ctx, request, again=again, tools=offered, output=self.purpose)
            if response is None:
                return None
            message, usage = response.message, response.usage
            try:
                value = self._value(message, offered)
            except OutputError as error:
                said = f"{error}. Answer again{'.' if self.output is None else ' with nothing but JSON that fits.'}"
                more = (*_turn(message), Message.user(said[:1].upper() + said[1:]))
                request = replace(request, messages=request.messages + more)

                def check(response: ModelResponse) -> None:
                    nonlocal unrecorded
                    unrecorded = response.usage
                    self._value(response.message, offered)
                    unrecorded = Usage()

                # Checked before it is recorded: a run that fails with it, and is resumed, asks again.
                response = await ctx.__frame__.request(request, turn=True, output=self.purpose, check=check)
                message, usage = response.message, usage + response.usage
                value = self._value(message, offered)
        except ModelError as error:
            usage += error.usage if isinstance(error, TruncatedError) else unrecorded
            failed = step(request, None, usage, error=StepFailure(type(error).__name__, str(error)))
            memory.sent(failed.prompt)
            await ctx.add(failed, lasting=True)
            raise
        return step(request, message, usage, action_output=None if message.tool_calls else value), value

    def _value(self, message: Message, offered: tuple[Tool, ...]) -> Any:
        """Return the output of the node for a message of the model.

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
        if self.force is not None or self.required or self.finish is not None:
            wanted = "a tool" if self.force is None else f"the tool {self.force!r}"
            hint = "" if self.finish is None else f"; when the task is done, call {self.finish.name!r} with its result"
            raise OutputError(f"{wanted} was to be called, and text came{hint}", output=message.text)
        return message.text if self.output is None else self.output.parse(message.text)


def _turn(message: Message) -> list[Message]:
    """Return a message as it is sent back: with a result for every call."""
    return ActionStep(model_output_message=message).to_messages()


def check_prompt(prompt: object, node: str) -> None:
    """Check that a model can be asked with a prompt.

    Raises:
        TypeError: it cannot.
    """
    if not isinstance(prompt, str | Message | ToolResults):
        raise TypeError(
            f"node {node!r} asks a model with text, a Message or ToolResults, not with {a(type(prompt).__name__)}; "
            f"map it to text before"
        )


@overload
def llm_request(
    *, tools: Literal[True] = True, name: str = ..., parameters: Mapping[str, Any] | None = None
) -> Node[Prompt, str | ToolCalls]: ...
@overload
def llm_request(
    *, tools: Literal["required"], name: str = ..., parameters: Mapping[str, Any] | None = None
) -> Node[Prompt, ToolCalls]: ...
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
    tools: bool | Literal["required"] | None = None,
    force: Tool | str | None = None,
    output: type[Any] | None = None,
    name: str = "llm_request",
    parameters: Mapping[str, Any] | None = None,
) -> Node[Any, Any]:
    """Make a node that asks the model and returns its text, or its tool calls.

    If a reply has both, it returns the calls, which contain the text. The answer is streamed to whoever
    listens to TextStreamed.

    Args:
        tools: Whether the tools are offered; with `output` they are not, unless this says so. With "required" the model must call
            at least one of them; if it answers with text, it is asked once more.
        force: The one tool that the model must call.
        output: The type of the answer: it is asked for as JSON, validated, and asked for once more where it does not fit.
        name: How the node is called.
        parameters: Passed to the model as they are, such as `{"temperature": 0}`.
    """
    required = tools == "required"
    if (force is not None and (tools is False or output is not None)) or (required and output is not None):
        raise TypeError(
            f"{name!r} forces a tool call, so it offers tools and gives no other output; leave the rest out"
        )
    offered = bool(tools) if tools is not None else output is None
    form = OutputFormat.of(output) if output is not None else None
    if force is not None and not isinstance(force, Tool | str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"force= is a tool, or the name of one, not {kind_of(force)}; put @tool on the function")
    forced = force.name if isinstance(force, Tool) else force
    request = LlmRequest(offered, forced, required, form, dict(parameters or {}))
    if forced is not None or required:
        return Node(request, name=name, input_type=Prompt, output_type=ToolCalls, asks_model=True)
    answer: Any = str if output is None else output
    if not offered:
        return Node(request, name=name, input_type=Prompt, output_type=answer, asks_model=True)
    return Node(
        request, name=name, input_type=Prompt, output_type=answer | ToolCalls, tool_outputs=ToolCalls, asks_model=True
    )


@dataclass(frozen=True, slots=True)
class _UpdatePrompt:
    messages: tuple[Message, ...]

    async def __call__(self, ctx: Context, _: Any) -> None:
        ctx.__frame__.begin_adding()
        await ctx.add(*ctx.memory.shut(), *map(MessageStep, self.messages))


def update_prompt(*messages: str | Message, name: str = "update_prompt") -> Tap:
    """Make a tap that adds messages to what the model is sent; plain text is the user's."""
    for each in messages:
        if not isinstance(each, str | Message):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"{name!r} adds text or messages, not {kind_of(each)}; write update_prompt('…')")
    added = tuple(message if isinstance(message, Message) else Message.user(message) for message in messages)
    return Tap(_UpdatePrompt(added), name=name)


def passthrough(kind: type[T], *, name: str = "passthrough") -> Node[T, T]:
    """Make a node that returns its input, as a point from which edges can be chosen.

    Args:
        kind: The type of what passes.
        name: How the node is called.
    """

    async def give(ctx: Context, value: T) -> T:
        return value

    return Node(give, name=name, input_type=kind, output_type=kind)
