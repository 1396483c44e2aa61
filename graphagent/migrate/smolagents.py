"""Reads the steps that smolagents 1.x dumps: `agent.memory.get_full_steps()` and `get_succinct_steps()`.

Its steps have no tag, so their type is recognised by their fields. smolagents does not have to be installed.
"""

from __future__ import annotations

import ast
import base64
import binascii
import io
import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, cast

from graphagent._article import kind_of
from graphagent.llm import Image, Message, Part, Text, ToolCall, Usage
from graphagent.llm._images import image_of
from graphagent.memory import ActionStep, FinalAnswerStep, PlanningStep, RunMemory, Step, StepFailure, TaskStep, Timing
from graphagent.memory.transcript._prompt import Prompt

_log = logging.getLogger("graphagent.migrate")

_ROLES = {"system": "system", "assistant": "assistant", "tool-call": "assistant"}
"""The roles of smolagents, and ours. Any other becomes the user's."""
_CODE = "python_interpreter"
_ANSWER = "final_answer"
_AT_LIMIT = "AgentMaxStepsError"


def load_steps(dump: Sequence[Mapping[str, Any]] | str | bytes) -> RunMemory:
    """Return a dump of smolagents as a transcript, to read, or to begin a run with: `agent.start(task, steps=…)`.

    What the model was sent is included if the dump has it, and the system prompt is taken from there. A step with the final
    answer is followed by a FinalAnswerStep. smolagents writes images as raw pixels without their size, or without any data:
    those that cannot be recovered are left out, and their number is logged.

    Args:
        dump: The result of `get_full_steps()` or `get_succinct_steps()`, or its JSON (made with `default=str`, since not all
            of it is JSON).

    Raises:
        ValueError: `dump` is something else. The text names the invalid step and contains none of its values.
    """
    reader = _Reader()
    given = _parsed(dump) if isinstance(dump, str | bytes) else dump
    if isinstance(given, Mapping) and "steps" in given:  # the form of RunResult.dict()
        given = cast("Mapping[str, Any]", given)["steps"]
    if isinstance(given, Mapping) or not isinstance(given, Sequence):
        raise ValueError("a dump of smolagents is a list of steps; pass the result of agent.memory.get_full_steps()")  # noqa: TRY004  it is data from outside
    steps: list[Step] = []
    for number, data in enumerate(cast("Sequence[object]", given)):
        try:
            steps += reader.step(data)
        except _NoStep as error:
            reason = str(error)
        except (AttributeError, LookupError, OverflowError, TypeError, ValueError) as error:
            reason = f"one of its fields is not valid ({type(error).__name__})"
        else:
            continue
        raise ValueError(f"step {number} is not a step of a dump of smolagents: {reason}")
    if reader.lost:
        _log.warning("%d images of a dump of smolagents were left out: it does not hold their data", reader.lost)
    return RunMemory(reader.system_prompt, steps)


class _NoStep(ValueError):
    """Raised for something that is not a step. The text contains none of its values."""


def _parsed(dump: str | bytes) -> Any:
    with suppress(ValueError):
        return json.loads(dump)  # not orjson: Python writes NaN, and integers of more than 64 bits
    raise ValueError("a dump of smolagents is JSON, made with json.dumps(agent.memory.get_full_steps(), default=str)")


class _Reader:
    """Reads steps in order, since each prompt is stored as the difference to the one before."""

    def __init__(self) -> None:
        self.system_prompt = ""
        self.lost = 0
        """How many images of steps could not be recovered."""
        self._prompt: Prompt | None = None

    def step(self, data: object) -> Iterator[Step]:
        """Yield the steps that correspond to one of smolagents."""
        if not isinstance(data, Mapping):
            raise _NoStep(f"it is {kind_of(data)}, not an object")
        fields = cast("Mapping[str, Any]", data)
        if "kind" in fields:
            raise _NoStep(
                "it is from RunMemory.full_steps(), which is for people; load the result of RunMemory.to_json()"
            )
        if "plan" in fields:
            yield self._plan(fields)
        elif fields.keys() & {"step_number", "step"} and fields.keys() & {"model_output", "observations", "tool_calls"}:
            yield from self._action(fields)
        elif "task" in fields:
            yield TaskStep(_text(fields["task"]), self._images(fields.get("task_images")))
        elif "system_prompt" in fields:
            self.system_prompt = _text(fields["system_prompt"])
        elif set(fields) == {"output"}:
            yield FinalAnswerStep(fields["output"])
        else:
            raise _NoStep("its fields fit no type of step")

    def _plan(self, fields: Mapping[str, Any]) -> PlanningStep:
        known = _text(fields.get("facts"))  # older releases wrote two texts
        plan = "\n\n".join(filter(None, (known, _text(fields["plan"]))))
        said = fields.get("model_output_message")
        return PlanningStep(
            plan,
            _message(said) if said is not None and not isinstance(said, str) else None,
            self._sent(fields, rules=False),
            _timing(fields),
            _usage(fields),
        )

    def _action(self, fields: Mapping[str, Any]) -> Iterator[Step]:
        number = fields.get("step_number", fields.get("step"))
        if number is not None and type(number) is not int:
            raise _NoStep("its number is not valid")
        calls, code = _calls(fields)
        text = _said(fields)
        observations, images = fields.get("observations"), self._images(fields.get("observations_images"))
        output, error = fields.get("action_output"), _failure(fields.get("error"))
        yield ActionStep(
            step_number=number or 0,
            model_output_message=None if text is None and not calls else Message.assistant(text or "", calls),
            observations=None if observations is None else _text(observations),
            observations_images=images or None,
            action_output=output,
            code_action=code,
            error=error,
            timing=_timing(fields),
            token_usage=_usage(fields),
            prompt=self._sent(fields, rules=True),
        )
        answers = [call.arguments for call in calls if call.name == _ANSWER]
        answered = answers or f"{_ANSWER}(" in (code or "")
        # Older releases do not say which step gave the answer. None says so of the answer of a run that hit its limit of steps.
        at_limit = output is not None and error is not None and error.type == _AT_LIMIT
        if at_limit or fields.get("is_final_answer", answered and error is None):
            if output is None:
                output = answers[0].get("answer", observations) if answers else observations
            yield FinalAnswerStep(output)

    def _sent(self, fields: Mapping[str, Any], *, rules: bool) -> Prompt | None:
        sent = fields.get("model_input_messages")
        if not sent:
            return None
        messages = [_message(each) for each in sent]
        self._prompt = Prompt.of(messages)
        if rules and not self.system_prompt and messages[0].role == "system":
            self.system_prompt = messages[0].text
        return self._prompt

    def _images(self, images: Sequence[Any] | None) -> tuple[Image, ...]:
        found = [_image(each) for each in images or ()]
        self.lost += found.count(None)
        return tuple(image for image in found if image is not None)


def _get(data: Any, name: str) -> Any:
    """Return a field of a dict, or of an object, which some releases leave in the dump."""
    if isinstance(data, Mapping):
        return cast("Mapping[str, Any]", data).get(name)
    return getattr(data, name, None)


def _text(value: Any) -> str:
    """Return text in its original form: smolagents parses text that looks like JSON."""
    if value is None or isinstance(value, str):
        return value or ""
    return json.dumps(value, ensure_ascii=False, default=str)


def _said(fields: Mapping[str, Any]) -> str | None:
    output = fields.get("model_output")
    if output is None:
        output = _get(fields.get("model_output_message"), "content")
    if output is None:
        return None
    return "".join(part.text for part in _parts(output) if isinstance(part, Text))


def _calls(fields: Mapping[str, Any]) -> tuple[list[ToolCall], str | None]:
    """Return the tool calls of a step, and the code that it executed."""
    found: list[ToolCall] = []
    code = fields.get("code_action")
    # A call that failed is only in the model's message.
    for call in fields.get("tool_calls") or _get(fields.get("model_output_message"), "tool_calls") or ():
        function = _get(call, "function")
        name, arguments, id_ = str(_get(function, "name")), _get(function, "arguments"), str(_get(call, "id") or "")
        if not id_ or any(each.id == id_ for each in found):
            id_ = f"{id_ or 'call'}-{len(found) + 1}"
        if isinstance(arguments, Mapping):
            found.append(ToolCall(name, dict(cast("Mapping[str, Any]", arguments)), id_))
        elif name == _CODE:
            code = code or _text(arguments)
            found.append(ToolCall(name, {"code": _text(arguments)}, id_))
        else:
            found.append(ToolCall(name, {}, id_, malformed=_text(arguments)))
    return found, None if code is None else _text(code)


def _failure(error: Any) -> StepFailure | None:
    if error is None:
        return None
    if isinstance(error, Mapping):
        return StepFailure(str(_get(error, "type") or "AgentError"), _text(_get(error, "message")))
    return StepFailure("AgentError", _text(str(error)))


def _timing(fields: Mapping[str, Any]) -> Timing | None:
    timing = fields.get("timing") or fields  # older releases wrote the times into the step itself
    started, ended = _get(timing, "start_time"), _get(timing, "end_time")
    return None if started is None or ended is None else Timing(round(started * 1000), round(ended * 1000))


def _usage(fields: Mapping[str, Any]) -> Usage | None:
    usage = fields.get("token_usage")
    return None if usage is None else Usage(int(_get(usage, "input_tokens")), int(_get(usage, "output_tokens")))


def _message(data: Any) -> Message:
    role = _get(data, "role")
    role = _ROLES.get(str(getattr(role, "value", role)), "user")
    parts: list[Part] = list(_parts(_get(data, "content")))
    if role == "assistant":
        parts += _calls({"tool_calls": _get(data, "tool_calls")})[0]
    return Message(cast("Any", role), tuple(parts))


def _parts(content: Any) -> Iterator[Text | Image]:
    """Yield the parts of a message's content: text, a list of parts, or a value that smolagents parsed because it looked like JSON."""
    whole = isinstance(content, list | tuple) and all(
        isinstance(part, Mapping) and "type" in part for part in cast("Sequence[object]", content)
    )
    if not whole:
        if content is not None and content != "":
            yield Text(_text(content))
        return
    for part in cast("Sequence[Mapping[str, Any]]", content):
        kind = part["type"]
        if kind == "text":
            yield Text(_text(part.get("text")))
        elif kind in ("image", "image_url"):
            yield _image(part.get("image") or _get(part.get("image_url"), "url")) or Text(
                "[an image that is not in the dump]"
            )
        else:
            yield Text(_text(part))


def _image(image: Any) -> Image | None:
    """Return an image if its data can be recovered: a PIL image, a file, a URL, or one of these as text."""
    if callable(getattr(image, "save", None)):
        file = io.BytesIO()
        image.save(file, format="PNG")
        return Image(file.getvalue())
    if isinstance(image, bytes):
        if image.startswith(b"\xff\xd8") and not image.rstrip(b"\0").endswith(b"\xff\xd9"):
            return None  # pixels can begin like a JPEG
        try:
            return image_of(image)
        except ValueError:
            return None
    if not isinstance(image, str):
        return None
    if image.startswith(("http://", "https://")):
        return Image(url=image)
    if image.startswith(("b'", 'b"')):
        try:
            return _image(ast.literal_eval(image))
        except (SyntaxError, ValueError):
            return None
    head, _, data = image.rpartition(";base64,")
    try:
        found = _image(base64.b64decode(data, validate=True))
    except binascii.Error:
        return None
    return Image(found.data, head.removeprefix("data:")) if found and head.startswith("data:image/") else found
