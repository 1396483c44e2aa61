"""The items of Responses: which of their data become a part of a message, and which are kept to be sent back with it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import replace
from typing import Any, cast

from graphagent.llm._messages import Message, Part, ProviderData, Reasoning, Text, ToolCall
from graphagent.llm._wire import arguments_text, attached, content_of, mapping, read_arguments, unicode

_REASONED = "reasoned"
"""Marks, in the data kept with a part, an item that came of reasoning."""
_LEFT = ("apply_patch_call", "computer_call", "custom_tool_call", "local_shell_call", "shell_call", "tool_search_call")
"""Items that a server may leave to its client to execute; they have a `call_id` then."""
_TEXTS = ("text", "refusal")
"""The fields of a piece of a message that have its text."""


def part_of(item: Mapping[str, Any], family: str, *, reasoned: bool) -> Part:
    """Return the part for an item, with the item as it came; what the part holds itself is None in it."""
    kept = {**item, _REASONED: True} if reasoned else dict(item)
    match item.get("type"):
        case "message":
            text = "".join(map(text_of, pieces_of(item.get("content"))))
            kept["content"] = _without_text(item.get("content"), text)
            return Text(text, provider=ProviderData(family, kept))
        case "function_call":
            arguments, malformed = read_arguments(item.get("arguments"))
            name, identity = str(item.get("name") or ""), str(item.get("call_id") or item.get("id") or "")
            call = ToolCall(name, arguments, identity, malformed)
            came = item.get("arguments")
            sent = arguments_text(call)
            # An object that is read as it came; an escape may be half a surrogate pair.
            if isinstance(came, str) and came.lstrip().startswith("{") and "\\ud" not in came.lower() and not malformed:
                sent = came
            kept |= {"name": None, "call_id": None, "arguments": None if sent == _compact(arguments) else sent}
            return replace(call, provider=ProviderData(family, kept))
        case "reasoning":
            text = "\n\n".join(
                filter(None, map(text_of, [*pieces_of(item.get("summary")), *pieces_of(item.get("content"))]))
            )
            # By its id alone the server would not find it, since it stores nothing. Its status is refused.
            returnable = item.get("encrypted_content") or item.get("content")
            data = {name: value for name, value in item.items() if name != "status"}
            return Reasoning(text, provider=ProviderData(family, data) if returnable else None)
        case _:
            # Calls of tools that the server executes itself, their results, and whatever else it is to be returned.
            return Reasoning("", provider=ProviderData(family, kept))


def _without_text(content: object, text: str) -> object:
    """Return the content of a message, without its text if that is all in one piece."""
    if content == text:
        return None
    pieces = pieces_of(content)
    if len(pieces) != 1:
        return content
    return [{name: None if name in _TEXTS and value == text else value for name, value in mapping(pieces[0]).items()}]


def pieces_of(content: object) -> list[object]:
    """Return the pieces of an item; some servers send a text instead."""
    if isinstance(content, str):
        return [{"text": content}]
    return cast("list[object]", content) if isinstance(content, list) else []


def text_of(piece: object) -> str:
    """Return the text of a piece, also that of a refusal."""
    said = mapping(piece)
    return str(said.get("text") or said.get("refusal") or "")


def input_items(messages: Iterable[Message], family: str, *, reasoning: bool = True) -> list[dict[str, Any]]:
    """Return the JSON of messages, with the data that servers of the family attached to them."""
    messages = tuple(messages)
    kept = (attached(part, family) for message in messages for part in message.parts)
    results = {data.get("call_id") for data in kept if str(data.get("type")).endswith("_output")}
    items: list[dict[str, Any]] = []
    for message in messages:
        if message.role == "assistant":
            items.extend(_answer_items(message, family, results, reasoning=reasoning))
        elif message.role == "tool":
            items.extend(
                {
                    "type": "function_call_output",
                    "call_id": part.call_id,
                    "output": _content((Text(part.content), *part.images)),
                }
                for part in message.tool_results
            )
        else:
            items.append({"role": message.role, "content": _content(message.parts)})
    return items


def _answer_items(message: Message, family: str, results: AbstractSet[Any], *, reasoning: bool) -> list[dict[str, Any]]:
    """Return the items of an answer, verbatim if this family produced them.

    A server refuses reasoning without the item that came of it, items by their id without their reasoning, and calls without their
    result. So reasoning is sent only together with what follows it, ids of what came of reasoning only after reasoning, and calls
    that a server left to its client only if their result is in `results`.
    """
    items: list[dict[str, Any]] = []
    thoughts: list[dict[str, Any]] = []
    reasoned = False
    for part in message.parts:
        data = dict(attached(part, family))
        missing = data.pop(_REASONED, False) and not (reasoned or thoughts)
        if isinstance(part, Reasoning):
            of_reasoning = data.get("type") == "reasoning"
            if not data or missing or (not reasoning and (of_reasoning or data.get("encrypted_content"))):
                continue
            if of_reasoning:
                thoughts.append(data)
                continue
            if data.get("type") in _LEFT and data.get("call_id") is not None and data["call_id"] not in results:
                continue
            item = data
        elif isinstance(part, Text) and (part.text or data):
            item = _said(part.text, data, with_id=not missing)
        elif isinstance(part, ToolCall):
            if missing:
                data.pop("id", None)
            called = {"call_id": part.id, "name": part.name, "arguments": _arguments(part, data)}
            item = (data or {"type": "function_call"}) | called
        else:
            continue
        reasoned = reasoned or bool(thoughts)
        items += [*thoughts, item]
        thoughts = []
    return unicode(items)


def _said(text: str, data: Mapping[str, Any], *, with_id: bool) -> dict[str, Any]:
    if not with_id:
        data = {name: value for name, value in data.items() if name not in ("id", "type", "role", "status", "content")}
    content = data.get("content", text)
    if isinstance(content, list):
        content = [
            {name: text if value is None and name in _TEXTS else value for name, value in piece.items()}
            for piece in map(mapping, cast("list[object]", content))
        ]
        if "".join(map(text_of, content)) != text:  # made anew
            content = text
    # Without its type, llama.cpp takes a message for one of the user, and refuses it.
    item = dict(data) if "role" in data else {"type": "message", "role": "assistant", **data}
    return item | {"content": text if content is None else content}


def _arguments(call: ToolCall, data: Mapping[str, Any]) -> str:
    """Return the arguments of a call as the server wrote them, unless they were changed."""
    text = arguments_text(call)
    if "arguments" not in data:
        return text
    came = data["arguments"]
    if came is None:
        return _compact(call.arguments)
    arguments, _ = read_arguments(came)
    return came if json.dumps(arguments, ensure_ascii=False) == text else text


def _compact(arguments: Mapping[str, Any]) -> str:
    return json.dumps(dict(arguments), ensure_ascii=False, separators=(",", ":"))


def _content(parts: Iterable[Part]) -> str | list[dict[str, Any]]:
    return content_of(parts, "input_text", _image)


def _image(url: str) -> dict[str, Any]:
    return {"type": "input_image", "image_url": url, "detail": "auto"}
