"""Stored values, as people read them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from pydantic_core import to_jsonable_python

from graphagent.inspect._words import beginning
from graphagent.llm import Image, Message, Reasoning, Text, ToolCall, ToolCalls, ToolResult, ToolResults
from graphagent.memory import ActionStep, Step

if TYPE_CHECKING:
    from graphagent.history import Entry, StoredRun
    from graphagent.inspect._errors import Problem

_LINE = 160


def text_of(value: object) -> str:
    """Return a value as text: text as it is, calls with their arguments, other values as JSON."""
    match value:
        case None:
            return ""
        case str():
            return value
        case ToolCall():
            return f"{value.name}({value.malformed or as_json(value.arguments, indent=None)})"
        case ToolCalls():
            return "\n".join(filter(None, (value.text, *map(text_of, value.calls))))
        case ToolResult():
            return f"{value.name}: {value.content}"
        case ToolResults():
            return "\n".join(map(text_of, value))
        case Message():
            return "\n".join(filter(None, map(text_of, value.parts)))
        case Text() | Reasoning():
            return value.text
        case Image():
            return f"[image: {value.media_type}, {len(value.data):,} bytes]" if value.data else f"[image: {value.url}]"
        case Step() if not isinstance(value, ActionStep):
            return "\n".join(map(text_of, value.to_messages())) or as_json(value)
        case _:
            message = getattr(value, "model_output_message", None) or getattr(value, "message", None)
            return text_of(message) if isinstance(message, Message) else as_json(value)


def as_json(value: object, *, indent: int | None = 2) -> str:
    """Return a value as JSON, with texts in the place of values that JSON does not have."""
    plain: Any = to_jsonable_python(value, fallback=str, serialize_unknown=True)
    return json.dumps(plain, ensure_ascii=False, indent=indent, default=str)


def line_of(entry: Entry, problem: Problem | None) -> str:
    """Return an entry as one line, given its error."""
    if problem is not None:
        value: Any = entry.value if entry.effect == "tool" else None
        name = f"{entry.key} {value.name}" if isinstance(value, ToolResult) else entry.data.get("status", entry.key)
        said = ": ".join(filter(None, (name, str(problem))))
    elif entry.kind in ("stopped", "ended"):
        said = ": ".join(filter(None, (entry.data.get("status", ""), entry.data.get("reason", "").removeprefix("it "))))
    else:
        said = f"{entry.key} {text_of(entry.value)}"
    return beginning(" ".join(said.split()), _LINE)


def given(stored: StoredRun, path: str, before: int | None = None) -> Any:
    """Return the input with which a node was begun last, or last before an entry; None if no entry has it."""
    entries = [each for each in stored.entries if path in each.begins and (before is None or each.number < before)]
    if not entries:
        return None
    entry = entries[-1]
    if entry.kind != "branches started":
        return entry.value
    value: Any = given(stored, entry.where, entry.number)
    place = path.removeprefix(f"{entry.where}/").partition("/")[0]
    with suppress(LookupError, TypeError):
        if stored.strategy.find(entry.where)[1].kind == "each":
            return value[int(place)]
    return value


def call_of(entries: Sequence[Entry], entry: Entry) -> ToolCall | None:
    """Return the call that the entry of a tool is about, in the latest turn before it that has one with its id."""
    wanted = entry.key.removeprefix("call:")
    for each in reversed(entries):
        if each.number < entry.number and each.effect == "turn" and isinstance(turn := each.value, ActionStep):
            for call in turn.tool_calls:
                if call.id == wanted:
                    return call
    return None
