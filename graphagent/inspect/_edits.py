"""The parts of a run that can be changed in a fork, as texts: values, arguments and results of tool calls, the text of the last step."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from graphagent.inspect._forms import FormError
from graphagent.inspect._values import as_json
from graphagent.llm import Message, Text, ToolCall, ToolCalls, ToolResult, ToolResults
from graphagent.llm._validation_messages import problems
from graphagent.memory import ActionStep, MessageStep, TaskStep

if TYPE_CHECKING:
    from graphagent.history import Snapshot
    from graphagent.memory import Step


class Editable(NamedTuple):
    """A part of a run that can be changed in a fork, as a field of a form."""

    name: str
    """The name of the field."""
    label: str
    text: str
    """The text of the part. If the field has the same text, the part stays as it is."""
    put: Callable[[Snapshot, str], None]
    """Puts another text into a snapshot."""
    begins_again: bool = False
    """Whether a node that had begun begins again with it, without its results so far."""


def editables(snapshot: Snapshot, *, between: bool) -> list[Editable]:
    """Return the parts that can be changed in a fork.

    Args:
        snapshot: The state at the fork.
        between: Whether the fork is between two nodes. A node that had begun is executed again, and needs its own steps as they were.
    """
    places = snapshot.places if len(snapshot.places) > 1 else {"": snapshot.value}
    found = list(_of_results(snapshot))
    for place, (path, value) in enumerate(places.items()):
        where = path or next(iter(snapshot.places), "")
        kind = snapshot.types.get(path, Any) if path else snapshot.value_type
        of_value = _of_value(f"value.{place}", path, where, value, kind)
        found += [each._replace(begins_again=not between) for each in of_value]
    step = _last_step(snapshot)
    text = None if step is None else _text_of(step)
    if between and step is not None and text is not None and text not in places.values():
        found.append(Editable("step", f"Text of the last step, {_name_of(step)}", text, _put_step))
    return found


def edited(fields: Mapping[str, str], found: Sequence[Editable]) -> Callable[[Snapshot], None] | None:
    """Return the function that edits a fork as a form says; None if the form changes nothing."""
    texts = {each.name: fields.get(each.name, each.text).replace("\r\n", "\n") for each in found}
    changed = [each for each in found if texts[each.name] != each.text.replace("\r\n", "\n")]

    def edit(snapshot: Snapshot) -> None:
        for each in changed:
            each.put(snapshot, texts[each.name])

    return edit if changed else None


def _of_results(snapshot: Snapshot) -> Iterator[Editable]:
    turn = snapshot.memory.open
    calls = [call.id for call in turn.tool_calls] if turn is not None else []
    for id_, result in snapshot.results.items():
        number = f"call {calls.index(id_) + 1}, " if id_ in calls else ""
        yield Editable(f"result.{id_}", f"Result of {number}{result.name}", result.content, partial(_put_result, id_))


def _put_result(id_: str, snapshot: Snapshot, text: str) -> None:
    snapshot.results[id_] = _with_content(snapshot.results[id_], text)


def _with_content(result: ToolResult, text: str) -> ToolResult:
    return replace(result, content=text, full="", seconds=0.0)


def _of_value(name: str, path: str, where: str, value: Any, kind: Any) -> Iterator[Editable]:
    """Yield the fields of the input of a node, or of the output of the strategy."""
    if isinstance(value, ToolCalls):
        for place, call in enumerate(value):
            put = partial(_put_arguments, path, place)
            yield Editable(
                f"{name}.{place}", f"Arguments of call {place + 1}, {call.name}, as JSON", as_json(call.arguments), put
            )
    elif isinstance(value, ToolResults):
        for place, result in enumerate(value):
            put = partial(_put_content, path, place)
            yield Editable(f"{name}.{place}", f"Result of call {place + 1}, {result.name}", result.content, put)
    else:
        label = f"Input of {where}" if where else "Output"
        text = value if isinstance(value, str) else _json_of(value, kind)
        if text is not None:
            shown = label if isinstance(value, str) else f"{label}, as JSON"
            yield Editable(name, shown, text, partial(_put_value, path, kind))


def _json_of(value: object, kind: Any) -> str | None:
    """Return a value as JSON; None if the value cannot be made of the JSON again."""
    from pydantic import PydanticUserError, TypeAdapter
    from pydantic_core import PydanticSerializationError

    try:
        adapter: TypeAdapter[Any] = TypeAdapter(kind)
        text = adapter.dump_json(value, indent=2).decode()
        return text if adapter.validate_json(text) == value else None
    except (PydanticUserError, PydanticSerializationError, ValueError, TypeError, RecursionError):
        return None


def _get(snapshot: Snapshot, path: str) -> Any:
    return snapshot.places[path] if path else snapshot.value


def _set(snapshot: Snapshot, path: str, value: object) -> None:
    if path:
        snapshot.places[path] = value
    else:
        snapshot.value = value


def _put_value(path: str, kind: Any, snapshot: Snapshot, text: str) -> None:
    from pydantic import TypeAdapter, ValidationError

    value = _get(snapshot, path)
    if not isinstance(value, str):
        try:
            _set(snapshot, path, TypeAdapter(kind).validate_json(text))
        except ValidationError as error:
            raise FormError(f"The value does not fit: {'; '.join(problems(error))}") from None
        return
    step = _last_step(snapshot)
    if step is not None and _text_of(step) == value:  # the task, or an answer, which the model sees in the step
        _put_text(step, text)
    _set(snapshot, path, text)


def _put_arguments(path: str, place: int, snapshot: Snapshot, text: str) -> None:
    """Put other arguments into a call, and into the turn that made it."""
    try:
        given: Any = json.loads(text)
    except (ValueError, RecursionError):
        given = None
    calls = cast("ToolCalls", _get(snapshot, path))
    if not isinstance(given, dict):
        raise FormError(f'The arguments of {calls[place].name!r} are a JSON object, such as {{"name": "Ada"}}.')
    call = replace(calls[place], arguments=cast("dict[str, Any]", given), malformed="")
    _set(snapshot, path, ToolCalls([call if each.id == call.id else each for each in calls], calls.text))
    turn = snapshot.memory.open
    if turn is not None and turn.model_output_message is not None:
        message = turn.model_output_message
        turn.model_output_message = replace(
            message,
            parts=tuple(call if isinstance(part, ToolCall) and part.id == call.id else part for part in message.parts),
        )


def _put_content(path: str, place: int, snapshot: Snapshot, text: str) -> None:
    """Put another result into those of a turn, and into its step, which the model sees."""
    results = cast("ToolResults", _get(snapshot, path))
    new = _with_content(results[place], text)
    _set(snapshot, path, ToolResults([new if each.call_id == new.call_id else each for each in results]))
    step = _last_step(snapshot)
    if isinstance(step, ActionStep):
        step.results = tuple(new if each.call_id == new.call_id else each for each in step.results)


def _put_step(snapshot: Snapshot, text: str) -> None:
    step = _last_step(snapshot)
    assert step is not None
    _put_text(step, text)


def _last_step(snapshot: Snapshot) -> Step | None:
    memory = snapshot.memory
    return memory.open or (memory.steps[-1] if memory.steps else None)


def _name_of(step: Step) -> str:
    return f"turn {step.step_number}" if isinstance(step, ActionStep) else step.kind.replace("_", " ")


def _text_of(step: Step) -> str | None:
    """Return the text of a step; None if it has no text that can be changed."""
    match step:
        case TaskStep(task=str() as task):
            return task
        case MessageStep(message=message):
            return message.text or None
        case ActionStep(model_output_message=Message() as message):
            return message.text or None
        case _:
            return None


def _put_text(step: Step, text: str) -> None:
    match step:
        case TaskStep():
            step.task = text
        case MessageStep():
            step.message = _with_text(step.message, text)
        case ActionStep(model_output_message=Message() as message):
            step.model_output_message = _with_text(message, text)
        case _:
            raise AssertionError(step)


def _with_text(message: Message, text: str) -> Message:
    """Return a message with another text in the place of the first one, and no further text."""
    first = next(place for place, part in enumerate(message.parts) if isinstance(part, Text))
    parts = [Text(text) if place == first else part for place, part in enumerate(message.parts)]
    kept = [part for place, part in enumerate(parts) if place == first or not isinstance(part, Text)]
    return replace(message, parts=tuple(kept))
