"""Messages as the JSON of Chat Completions, with the data that servers attached to earlier answers and want back."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from graphagent.llm._messages import Message, Part, Reasoning, Text, ToolCall
from graphagent.llm._wire import arguments_text, attached, content_of, unicode

if TYPE_CHECKING:
    from graphagent.llm._families import ModelFamily


def chat_messages(
    messages: Iterable[Message], family: ModelFamily | None = None, *, fill: bool = False
) -> list[dict[str, Any]]:
    """Return the JSON of messages. Images in tool results follow as a message of the user.

    Reasoning is left out, except the data that servers of the given family attached to it and want back.
    """
    after = -1
    if family is not None and family.returned == "tool loop":
        messages = tuple(messages)
        after = max((place for place, message in enumerate(messages) if message.role == "user"), default=-1)
    sent: list[dict[str, Any]] = []
    shown: list[Part] = []
    for place, message in enumerate(messages):
        if message.role != "tool" and shown:
            sent.append({"role": "user", "content": _content(shown)})
            shown = []
        if message.role == "tool":
            for result in message.tool_results:
                sent.append({"role": "tool", "tool_call_id": result.call_id, "content": result.content})
                if result.images:
                    shown += [Text(f"Images that {result.name} gave (call {result.call_id}):"), *result.images]
        elif message.role == "assistant":
            sent.append(_assistant(message, family if place > after else None, fill=fill))
        else:
            sent.append({"role": message.role, "content": _content(message.parts)})
    return [*sent, {"role": "user", "content": _content(shown)}] if shown else sent


def _assistant(message: Message, family: ModelFamily | None, *, fill: bool) -> dict[str, Any]:
    """Return the JSON of an answer, with the data that servers of the family attached to its parts."""
    said: dict[str, Any] = {"role": "assistant", "content": message.text}
    calls: list[dict[str, Any]] = []
    signed = False
    for part in message.parts:
        place: dict[str, Any] = said
        if isinstance(part, ToolCall):
            place = {
                "type": "function",
                "id": part.id,
                "function": {"name": part.name, "arguments": arguments_text(part)},
            }
            calls.append(place)
        data = attached(part, "" if family is None else family.name)
        signed = signed or (bool(data) and not isinstance(part, Text))
        for name, value in data.items():
            # Reasoning text is not stored twice, see `_reasoning`.
            place[name] = part.text if value is None and isinstance(part, Reasoning) else value
    if calls:
        said |= {"content": message.text or None, "tool_calls": calls}
        if family is not None and fill and not signed:
            (calls[0] if family.signature else said).update(family.missing)
    return unicode(said)  # what was recorded before answers were read so, or was said by a model of the user


def shorten_ids(messages: Iterable[dict[str, Any]]) -> None:
    """Replace the ids of calls with nine letters or digits, which every server accepts; the same in each request."""
    for message in messages:
        for holder, name in [(message, "tool_call_id"), *((call, "id") for call in message.get("tool_calls", ()))]:
            identity = holder.get(name)
            if identity is not None and re.fullmatch("[a-zA-Z0-9]{9}", identity) is None:
                holder[name] = hashlib.sha256(identity.encode("utf-8", "replace")).hexdigest()[:9]


def _content(parts: Iterable[Part]) -> str | list[dict[str, Any]]:
    return content_of(parts, "text", _image)


def _image(url: str) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": url}}
