"""A conversation of another library, collected as the steps of a transcript, for all readers of messages."""

from __future__ import annotations

import base64
import binascii
import json
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, cast

from graphagent._article import kind_of
from graphagent.llm import Image, Message, Part, Text, ToolCall, ToolResult, Usage
from graphagent.llm._messages import sendable
from graphagent.llm._wire import read_arguments
from graphagent.memory import ActionStep, MessageStep, RunMemory, Step, TaskStep, Timing
from graphagent.migrate._records import loaded

_log = logging.getLogger("graphagent.migrate")
_MOST_TOKENS = 2**63 - 1
"""The largest number that a log holds."""


class WrongMessage(ValueError):
    """Raised for something that is not a message. The text contains none of its values."""


@dataclass(slots=True)
class _Turn:
    """A model turn whose results come later."""

    parts: list[Part]
    timing: Timing | None
    usage: Usage | None
    results: dict[str, ToolResult] = field(default_factory=dict[str, ToolResult])


class Conversation:
    """Collects a conversation, message by message."""

    def __init__(self, library: str) -> None:
        self.library = library
        self.place = 0
        """The position of the message that is being read."""
        self.rules: list[str] = []
        """The texts of the system prompt."""
        self._steps: list[Step | _Turn] = []
        self._left_out: dict[str, list[int]] = {}
        self._asked: int | None = None

    def read(self, messages: Iterable[object], read: Callable[[Mapping[str, Any]], None]) -> RunMemory:
        """Read messages in order, and return the transcript. Omitted parts are logged.

        Raises:
            ValueError: A message is not one of the library. The text names it and contains none of its values.
        """
        for self.place, message in enumerate(messages):
            try:
                if not isinstance(message, Mapping):
                    raise WrongMessage(f"it is {kind_of(message)}, not an object")
                read(cast("Mapping[str, Any]", message))
            except WrongMessage as error:
                reason = str(error)
            except (AttributeError, LookupError, OverflowError, RecursionError, TypeError, ValueError) as error:
                reason = f"one of its fields is not valid ({type(error).__name__})"
            else:
                continue
            raise ValueError(f"message {self.place} is not a message of {self.library}: {reason}")
        if self._left_out:
            listed = "; ".join(f"{what} ({', '.join(map(str, places))})" for what, places in self._left_out.items())
            _log.warning("left out of a conversation of %s, with the numbers of its messages: %s", self.library, listed)
        turns = 0
        steps: list[Step] = []
        for step in self._steps:
            if isinstance(step, _Turn):
                turns += 1
                steps.append(_action(step, turns))
            else:
                steps.append(step)
        return RunMemory("\n\n".join(filter(None, self.rules)), steps)

    def leave_out(self, what: str) -> None:
        """Record that a part of the message is left out of the transcript."""
        self._left_out.setdefault(what, []).append(self.place)

    def stand_in(self, what: str) -> Text:
        """Record that a part is left out, and return a text to put in its place."""
        self.leave_out(what)
        return Text(f"[{what}: not imported]")

    def system(self, parts: Iterable[Part], at: int | None = None) -> None:
        """Add rules: before anything was said they are the system prompt, and later a message."""
        said = tuple(parts)
        text = "".join(part.text for part in said if isinstance(part, Text))
        if any(not isinstance(part, Text) for part in said):
            self.leave_out("parts other than text in a message of the system")
        if self._steps:
            self._steps.append(MessageStep(Message.system(text), at=at))
        else:
            self.rules.append(sendable(text))

    def user(self, parts: Iterable[Part], at: int | None = None) -> None:
        """Add a message of the user."""
        said = tuple(parts)
        self._asked = at
        text, images = said[:1], said[1:]
        if text and isinstance(text[0], Text) and all(isinstance(part, Image) for part in images):
            self._steps.append(TaskStep(text[0].text, cast("tuple[Image, ...]", images), at=at))
        else:
            self._steps.append(TaskStep(Message("user", said), at=at))

    def told(self, text: str, at: int | None = None) -> None:
        """Add a message that stands in for one of the user."""
        self._asked = at
        self._steps.append(MessageStep(Message.user(text), at=at))

    def assistant(self, parts: Iterable[Part], at: int | None = None, usage: Usage | None = None) -> None:
        """Add a turn of the model, with the time of the request if known."""
        asked = at if self._asked is None or at is None else min(self._asked, at)
        self._steps.append(_Turn([], None if at is None or asked is None else Timing(asked, at), usage))
        for part in parts:
            self._add(part)

    def joined(self, part: Part, at: int | None, *, apart: bool) -> None:
        """Add a part to the last step if that is a model turn without results, and otherwise to a new turn.

        Args:
            part: The part.
            at: The time at which the part was stored.
            apart: Whether to begin a new turn also if the last one already has text.
        """
        last = self._steps[-1] if self._steps else None
        if (
            not isinstance(last, _Turn)
            or last.results
            or (apart and any(isinstance(each, Text) for each in last.parts))
        ):
            self.assistant((), at)
        self._add(part)

    def _add(self, part: Part) -> None:
        """Add a part to the last step, which is a turn. A call without an id, or with that of another call of the turn, gets a new one.

        The new id is always the same, so that a conversation imported again is recognised.
        """
        parts = cast("_Turn", self._steps[-1]).parts
        if isinstance(part, Image):
            part = self.stand_in("an image of the model")
        if isinstance(part, ToolCall) and (not part.id or any(_is_call(each, part.id) for each in parts)):
            part = replace(part, id=f"{part.id or 'call'}-{self.place}-{len(parts)}")
        parts.append(part)

    def answered(self, result: ToolResult, at: int | None = None) -> None:
        """Add the result of a tool call to the last turn with that call and no result for it. Without such a turn, it is left out.

        Raises:
            WrongMessage: The name of the result or the id of its call is not text.
        """
        self._asked = at
        if not isinstance(result.name, str) or not isinstance(result.call_id, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise WrongMessage("the name of a result or the id of its call is not text")
        for turn in reversed(self._steps):
            if isinstance(turn, _Turn) and result.call_id not in turn.results:
                called = next((each for each in turn.parts if _is_call(each, result.call_id)), None)
                if isinstance(called, ToolCall):
                    turn.results[result.call_id] = replace(result, name=result.name or called.name)
                    return
        self.leave_out("a result without its call")


def _is_call(part: Part, id_: str) -> bool:
    return isinstance(part, ToolCall) and part.id == id_


def _action(turn: _Turn, number: int) -> ActionStep:
    message = Message("assistant", tuple(turn.parts))
    results = [turn.results[call.id] for call in message.tool_calls if call.id in turn.results]
    return ActionStep(
        step_number=number, model_output_message=message, results=results, timing=turn.timing, token_usage=turn.usage
    )


# ---- fields


def messages_of(dump: object, remedy: str) -> Sequence[object]:
    """Return the messages of a dump: a list, or its JSON.

    Raises:
        ValueError: The dump is something else. The message ends with the given remedy.
    """
    given = dump
    if isinstance(dump, str | bytes | bytearray):
        try:
            given = loaded(dump)
        except ValueError:  # also text that is not UTF-8
            given = None
    if isinstance(given, Mapping) or not isinstance(given, Sequence):
        raise ValueError(  # noqa: TRY004  it is data from outside
            f"this is not a list of messages, nor all of its JSON; {remedy}; of a file, give path.read_bytes()"
        )
    return cast("Sequence[object]", given)


def time_of(value: object) -> int | None:
    """Return a time as milliseconds UTC; one without a zone is in UTC, as in SQLite.

    Raises:
        WrongMessage: The value is not a time.
    """
    if value is None:
        return None
    try:
        time = value if isinstance(value, datetime) else datetime.fromisoformat(cast("str", value))
    except (TypeError, ValueError):
        raise WrongMessage("its time is not valid") from None
    return round((time if time.tzinfo is not None else time.replace(tzinfo=UTC)).timestamp() * 1000)


def text_of(value: object) -> str:
    """Return text as it is, and anything else as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def call_of(name: object, arguments: object, id_: object) -> ToolCall:
    """Return a tool call. Arguments in a text are parsed as JSON; other values than objects are kept unchanged."""
    if not isinstance(name, str) or not isinstance(id_, str | None):
        raise WrongMessage("a tool call has no name, or an id that is not text")
    given, malformed = read_arguments(arguments)
    return ToolCall(name, given, id_ or "", malformed)


def image_from(*, data: object = None, media_type: object = None, url: object = None) -> Image | None:
    """Return an image of its bytes, of base64 in either of its alphabets, or of a URL; None if that is not one."""
    kind = media_type if isinstance(media_type, str) else ""
    if kind and not kind.startswith("image/"):
        return None
    try:
        if isinstance(data, bytes) and data:
            return Image(data, kind)
        if isinstance(data, str) and data:
            return Image(base64.b64decode(data.replace("-", "+").replace("_", "/"), validate=True), kind)
        return Image(media_type=kind, url=url) if isinstance(url, str) and url else None
    except (binascii.Error, ValueError):
        return None


def usage_of(usage: object, *, cached: object = None, reasoning: object = None) -> Usage | None:
    """Return the tokens of a turn, or None if they were not counted.

    Raises:
        WrongMessage: A count is not valid.
    """
    if not isinstance(usage, Mapping):
        return None
    counted = cast("Mapping[str, object]", usage)
    counts = [counted.get("input_tokens"), counted.get("output_tokens"), cached, reasoning]
    if not all(each is None or (type(each) is int and 0 <= each <= _MOST_TOKENS) for each in counts):
        raise WrongMessage("a number of tokens is not valid")
    read, written, from_cache, thought = (cast("int", each or 0) for each in counts)
    found = Usage(read, written, from_cache, thought)
    return found if found.total_tokens else None
