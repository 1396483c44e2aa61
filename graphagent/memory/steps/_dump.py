"""Steps as plain JSON data for people and their programs: readable whatever the steps contain, and not meant to be loaded."""

from __future__ import annotations

import base64
import dataclasses
import enum
import math
from collections.abc import Callable, Iterable, Mapping
from datetime import date, time, timedelta
from typing import TYPE_CHECKING, Any, cast

from graphagent.llm import Image, Message, Part, ToolCall, ToolCalls, ToolResult, ToolResults, Usage
from graphagent.llm._messages import part_fields
from graphagent.memory._blocks import KnownFact, KnownMessage
from graphagent.memory.steps._types import (
    ActionStep,
    MessageStep,
    PlanningStep,
    Step,
    TaskStep,
    Timing,
    fields_of,
)

if TYPE_CHECKING:
    from graphagent.memory.transcript._prompt import Prompt

Plain = Any
"""None, bool, int, float, str, list, and dict with text keys."""

_DEEPEST = 100
_WIDEST = 1024
"""The most bits of an int that is shown as a number; Python refuses to write much larger ones in decimal digits."""

_SHOWN: dict[type[Step], tuple[str, ...]] = {
    PlanningStep: ("model_input_messages", "model_output_message", "plan", "timing", "token_usage"),
    ActionStep: (
        "step_number", "timing", "model_input_messages", "tool_calls", "results", "error", "model_output_message",
        "model_output", "code_action", "observations", "observations_images", "action_output", "token_usage",
    ),
}  # fmt: skip
"""The fields of types that are shown under other names."""


def plain_steps(steps: Iterable[Step], turn: Step | None = None, *, without: str = "") -> list[dict[str, Plain]]:
    """Return the steps of a transcript as plain JSON data, with its open turn, if any, at the end.

    The fields have smolagents' names, and the field `without` is left out; `kind` is the type. A message that was sent repeatedly
    is one object in all lists.
    """
    writer = _Plainly(without)
    found = [writer.step(step) for step in steps]
    return [*found, {**writer.step(turn), "open": True}] if turn is not None else found


def plain(value: object, room: int = _DEEPEST) -> Plain:
    """Return any value as plain JSON data, as far as JSON can express it."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, enum.Enum):
        return plain(value.value, room - 1)
    if isinstance(value, str):
        return str(value)
    if isinstance(value, int):
        return int(value) if value.bit_length() <= _WIDEST else hex(value)
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else str(value)
    if room <= 0:
        return "…"
    writer = _PLAIN.get(type(value))
    if writer is not None:
        return writer(value)
    if isinstance(value, Mapping):
        pairs = cast("Mapping[object, object]", value).items()
        return {
            key if isinstance(key, str) else str(plain(key, room - 1)): plain(each, room - 1) for key, each in pairs
        }
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(each, room - 1) for each in cast("list[object]", value)]
    return _object(value, room)


def _object(value: object, room: int) -> Plain:
    if isinstance(value, BaseException):
        return {"type": type(value).__name__, "message": _str(value)}
    if isinstance(value, bytes | bytearray):
        return base64.b64encode(value).decode()
    if isinstance(value, date | time):
        return value.isoformat()
    names: list[str] = []
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = [field.name for field in dataclasses.fields(value)]
    elif not isinstance(value, type):
        names = list(cast("Mapping[str, object]", getattr(type(value), "__pydantic_fields__", {})))
    if names:
        return {name: plain(getattr(value, name, None), room - 1) for name in names}
    return _str(value)


def _str(value: object) -> str:
    try:
        return str(value)
    except Exception:  # noqa: BLE001  the text comes from code that is not ours, and is shown to a person
        return f"<{type(value).__name__}>"


def _image(image: Image) -> Plain:
    found: dict[str, Plain] = {"media_type": image.media_type}
    if image.url:
        found["url"] = image.url
    if image.data:
        found["data"] = base64.b64encode(image.data).decode()
    return found


def _call(call: ToolCall) -> Plain:
    arguments = call.malformed or plain(call.arguments)
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": arguments}}


def _result(result: ToolResult) -> Plain:
    found: dict[str, Plain] = {"call_id": result.call_id, "name": result.name, "content": result.content}
    found |= {"is_error": result.is_error, "seconds": result.seconds}
    if result.full:
        found["full"] = result.full
    if result.images:
        found["images"] = [_image(each) for each in result.images]
    return found


def _message(message: Message) -> Plain:
    found: dict[str, Plain] = {"role": message.role, "content": [_part(part) for part in message.parts]}
    calls = message.tool_calls
    if calls:
        found["content"] = [_part(part) for part in message.parts if not isinstance(part, ToolCall)]
        found["tool_calls"] = [_call(each) for each in calls]
    return found


def _part(part: Part) -> Plain:
    found = part_fields(part)
    found.pop("provider", None)
    if "images" in found:
        found["images"] = [_part(each) for each in found["images"]]
    if "data" in found:
        # The step of the image has its data; here the data would be repeated for every turn.
        found["bytes"] = len(found.pop("data"))
    return plain(found)


def _usage(usage: Usage) -> Plain:
    return {
        "input_tokens": usage.input_tokens,
        "output_tokens": usage.output_tokens,
        "total_tokens": usage.total_tokens,
        "cached_tokens": usage.cached_tokens,
        "reasoning_tokens": usage.reasoning_tokens,
        "cost": str(usage.cost),
    }


def _timing(timing: Timing) -> Plain:
    return {"start_time": timing.started / 1000, "end_time": timing.ended / 1000, "duration": timing.duration}


def _fact(known: KnownFact) -> Plain:
    fact = known.fact
    return {
        "concept": fact.concept.keyword,
        "values": list(fact.values),
        "subject": known.subject.name,
        "scope": {"kind": known.scope.kind.value, "name": known.scope.name},
        "forgotten": known.forgotten,
        "id": fact.id,
        "version": fact.version,
        "timestamp": fact.timestamp,
        "trust": fact.source.trust,
    }


_PLAIN: dict[type, Callable[[Any], Plain]] = {
    Image: _image,
    KnownFact: _fact,
    Message: _message,
    KnownMessage: _message,
    Timing: _timing,
    ToolCall: _call,
    ToolCalls: lambda calls: [_call(each) for each in calls],
    ToolResult: _result,
    ToolResults: lambda results: [_result(each) for each in results],
    Usage: _usage,
    timedelta: lambda span: span.total_seconds(),
}


class _Plainly:
    """Turns steps into plain data, each message once."""

    def __init__(self, without: str) -> None:
        self._without = without
        self._messages: dict[int, tuple[Message, Plain]] = {}
        """The messages, kept alive so that no other object gets the id of one of them."""
        self._last: Prompt | None = None
        self._shown: list[Plain] = []
        """The last prompt that was shown, and its messages."""

    def step(self, step: Step) -> dict[str, Plain]:
        found: dict[str, Plain] = {"kind": type(step).kind}
        for name in shown_fields(type(step)):
            if name != self._without and not (
                isinstance(step, TaskStep | MessageStep) and name == "at" and step.at is None
            ):
                found[name] = self._field(step, name)
        return found

    def _field(self, step: Step, name: str) -> Plain:
        if name == "model_input_messages" and isinstance(step, ActionStep | PlanningStep):
            return self._prompt(step.prompt) if step.prompt else []
        return plain(getattr(step, name, None))

    def _prompt(self, prompt: Prompt) -> list[Plain]:
        kept = prompt.kept_of(self._last)
        found = self._shown[:kept] + [self._message(message) for message in prompt.messages()[kept:]]
        self._last, self._shown = prompt, found
        return found

    def _message(self, message: Message) -> Plain:
        found = self._messages.get(id(message))
        if found is None:
            found = self._messages[id(message)] = message, _message(message)
        return found[1]


def shown_fields(kind: type[Step]) -> tuple[str, ...]:
    """Return the names under which the fields of a type of steps are shown."""
    own = next((names for base, names in _SHOWN.items() if issubclass(kind, base)), ())
    more = (name for name, owner in fields_of(kind).items() if owner not in _SHOWN)
    return (*own, *more)
