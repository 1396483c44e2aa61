"""A task for a model: it calls tools until the task is done, and returns a value of a type."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar, Unpack, cast, overload

from graphagent.errors import OutputError, ToolError
from graphagent.graph import END, START, Node, Strategy, ToolSelection, type_hints
from graphagent.llm import Message, OutputFormat, Tool, ToolCalls, ToolResults
from graphagent.nodes._model import LlmRequest, Prompt
from graphagent.nodes._tools import ExecuteTools

if TYPE_CHECKING:
    from graphagent.events import ModelOutput
    from graphagent.protocols import Model
    from graphagent.run import Context

T = TypeVar("T")
X = TypeVar("X")

FINISH = "finish"
"""The name of the tool that ends a task."""
_DESCRIPTION = "Ends the task. Call it once, when the task is done, with the whole result: no other text is read."
_FIELD = re.compile(r"\{([A-Za-z_][\w.]*)(?:![rsa])?\}")
"""A field of a text, such as `{city}`; neither JSON nor empty braces."""
_ACCEPTED = "This ends the task, unless another call of the same turn failed."


class WorkOptions(TypedDict, total=False):
    """The options that all forms of `task` and `verify` take."""

    tools: Sequence[Any] | ToolSelection | None
    model: Model | None
    max_turns: int | None
    name: str


class TaskOptions(WorkOptions, total=False):
    """The options that all forms of `task` take."""

    parallel_tools: int


@overload
def task(instruction: None = None, *, output: type[T], **options: Unpack[TaskOptions]) -> Strategy[Prompt, T]: ...
@overload
def task(instruction: str, *, output: type[T], **options: Unpack[TaskOptions]) -> Strategy[str, T]: ...
@overload
def task(
    instruction: Callable[[X], str | Message], *, output: type[T], **options: Unpack[TaskOptions]
) -> Strategy[X, T]: ...
@overload
def task(instruction: None = None, **options: Unpack[TaskOptions]) -> Strategy[Prompt, str]: ...
@overload
def task(instruction: str, **options: Unpack[TaskOptions]) -> Strategy[str, str]: ...
@overload
def task(instruction: Callable[[X], str | Message], **options: Unpack[TaskOptions]) -> Strategy[X, str]: ...
def task(
    instruction: Any = None,
    *,
    output: Any = str,
    tools: Sequence[Any] | ToolSelection | None = None,
    model: Model | None = None,
    max_turns: int | None = None,
    parallel_tools: int = 1,
    name: str = "task",
) -> Strategy[Any, Any]:
    """Make a strategy in which the model works on a task, with tools, until it is done.

    If the output is text, the first answer without tool calls is the result. Otherwise the model is offered a tool `finish`, whose
    arguments are the output, and works until it calls it:

    - Arguments that do not fit are an error that the model sees.
    - Other calls of the same turn are executed too. If one of them fails, the task is not over: the model sees the error, and calls
      `finish` again.
    - If the model answers with text instead, it is asked once more.

    With `tools=[]` there is nothing to call, and the output is asked for as the JSON of one answer.

    Args:
        instruction: The task: text, in which `{input}` stands for the input, or a function that makes it of the input. By default the
            input itself is the task.
        output: The type of the result.
        tools: The tools that are offered; an empty list means none, `select_tools()` those that a model chooses. By default those of the
            parent.
        model: The model that is asked; by default that of the parent.
        max_turns: The largest number of model turns, each time that the task is begun.
        parallel_tools: How many of a turn's tool calls run at once; by default one after the other.
        name: The name of the strategy.

    Raises:
        TypeError: the instruction is an async function, or the type has no JSON form; or as `Strategy.using`.
        ValueError: the instruction has a field other than `{input}`, or `parallel_tools` is less than 1; or as `Strategy.using`.
        OutputError: in a run, the model answered with text, also when it was asked once more, or with JSON that does not fit.
        BudgetError: in a run, the turns were used up.
    """
    return make_task(
        instruction, output, tools=tools, model=model, max_turns=max_turns, parallel_tools=parallel_tools, name=name
    )


def make_task(
    instruction: Any,
    output: Any,
    *,
    tools: Sequence[Any] | ToolSelection | None,
    model: Model | None,
    max_turns: int | None,
    name: str,
    parallel_tools: int = 1,
    purpose: ModelOutput = "answer",
) -> Strategy[Any, Any]:
    """Make the strategy of a task, whose turns have a purpose."""
    if type(parallel_tools) is not int or parallel_tools < 1:
        raise ValueError(f"{name!r}: parallel_tools={parallel_tools!r} would run no call; give 1 or more")
    begin: Any = START if instruction is None else START >> _instruct(instruction, name)
    form: OutputFormat[Any] | None = None if output is str else OutputFormat.of(output)
    if form is not None and tools is not None and not isinstance(tools, ToolSelection) and not tools:
        asked = LlmRequest(tools=False, output=form, purpose=purpose)
        ask = Node[Any, Any](asked, name="llm_request", input_type=Prompt, output_type=output, asks_model=True)
        made = Strategy[Any, Any](name, begin >> ask >> END)
    elif form is None:
        asked = LlmRequest(purpose=purpose)
        ask = Node[Any, Any](
            asked, name="llm_request", input_type=Prompt, output_type=str | ToolCalls, tool_outputs=ToolCalls, asks_model=True
        )  # fmt: skip
        act = Node[Any, Any](
            ExecuteTools(parallel_tools), name="execute_tools", input_type=ToolCalls, output_type=ToolResults
        )
        made = Strategy[Any, Any](name, begin >> ask, ask.on(ToolCalls) >> act >> ask, ask.on(str) >> END)
    else:
        finish = Tool(FINISH, _DESCRIPTION, form.schema, partial(_accept, form))
        asked = LlmRequest(finish=finish, purpose=purpose)
        ask = Node[Any, Any](asked, name="llm_request", input_type=Prompt, output_type=ToolCalls, asks_model=True)
        act = Node[Any, Any](
            ExecuteTools(parallel_tools, finish), name="execute_tools", input_type=ToolCalls, output_type=ToolResults
        )
        end = Node[Any, Any](partial(_finished, form), name=FINISH, input_type=ToolResults, output_type=output)
        made = Strategy[Any, Any](
            name, begin >> ask >> act, act.when(is_finished) >> end >> END, act.otherwise() >> ask
        )
    return made.using(tools=tools, model=model, max_turns=max_turns)


def _instruct(instruction: object, name: str) -> Node[Any, str | Message]:
    """Make the node that turns the input into the task."""
    if isinstance(instruction, str):
        text = instruction
        unfilled = [field for field in _FIELD.findall(text) if field != "input"]
        if unfilled:
            raise ValueError(
                f"nothing fills {{{unfilled[0]}}} in the instruction of {name!r}: {{input}} alone stands for something, the whole input; "
                f"for its parts, and for braces that are text, write a function, such as task(lambda trip: f'Find {{trip.city}}')"
            )

        async def fill(ctx: Context, value: str) -> str:
            return text.replace("{input}", value)

        return Node(fill, name="instruct", input_type=str, output_type=str)
    if not callable(instruction) or inspect.iscoroutinefunction(instruction):
        said = "an async function" if callable(instruction) else repr(instruction)
        raise TypeError(
            f"the instruction of {name!r} is text, or a plain function that makes it of the input, not {said}"
        )
    function = cast("Callable[[Any], str | Message]", instruction)

    async def make(ctx: Context, value: Any) -> str | Message:
        return function(value)

    taken = next(iter(inspect.signature(function).parameters), "")
    given = type_hints(function).get(taken, Any)
    return Node(make, name="instruct", input_type=given, output_type=str | Message)


async def _accept(form: OutputFormat[Any], arguments: Mapping[str, Any], ctx: Any) -> str:
    try:
        form.convert(arguments)
    except OutputError as error:
        raise ToolError(f"{FINISH!r} was not accepted: {error}") from None
    return _ACCEPTED


def is_finished(results: ToolResults) -> bool:
    """Return whether `finish` was called and no call failed."""
    return any(result.name == FINISH for result in results) and not any(result.is_error for result in results)


async def _finished(form: OutputFormat[Any], ctx: Context, results: ToolResults) -> Any:
    """Return the arguments of the last call of `finish`, as they are in the transcript: its result does not have them."""
    turn = ctx.memory.last_turn
    calls = () if turn is None else turn.tool_calls
    found = [call for call in calls if call.name == FINISH]
    if not found:
        raise OutputError(f"the call of {FINISH!r} was removed from the transcript; leave it there", output="")
    return form.convert(found[-1].arguments)
