"""Reads the messages of LangChain and LangGraph, as langchain-core 1.x dumps them. LangChain does not have to be installed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from graphagent.llm import Image, Part, Reasoning, Text, ToolResult
from graphagent.migrate._conversation import (
    Conversation,
    WrongMessage,
    call_of,
    image_from,
    messages_of,
    text_of,
    usage_of,
)

if TYPE_CHECKING:
    from graphagent.memory import RunMemory

_REMEDY = "give messages_to_dict(messages), dumpd(messages), or graph.get_state(config).values['messages']"
_ROLES = {"human": "user", "user": "user", "ai": "assistant", "assistant": "assistant", "system": "system", "developer": "system"}  # fmt: skip
_TEXTS = {"text": "text", "text-plain": "text", "input_text": "text", "output_text": "text", "refusal": "refusal"}
"""The types of blocks that are text, and the field that has it."""
_REASONING = {"reasoning": "reasoning", "thinking": "thinking"}
_CALLS = ("tool_call", "tool_use", "function_call", "tool_call_chunk", "invalid_tool_call")
"""The types of blocks that a message has as its tool calls too."""


def load_messages(dump: Sequence[object] | str | bytes) -> RunMemory:
    """Return messages of LangChain as a transcript: to read, to write into a thread with `graphagent.history.import_thread`, or to begin a run with.

    System messages before all others are the system prompt of the transcript, later ones stay in their places. LangChain keeps no
    times, so the steps have none. Content that a message here cannot hold, such as audio, is replaced by a text that says so, and logged as a
    warning together with results whose call is missing. Ids and names of messages, metadata of responses, citations and artifacts
    are not read.

    Args:
        dump: The result of `messages_to_dict` or `dumpd`, or its JSON; or the messages themselves, as LangGraph hands them out.

    Raises:
        ValueError: `dump` is something else. The text names the invalid message and contains none of its values.
    """
    conversation = Conversation("LangChain")
    messages = (_dumped(each) for each in messages_of(dump, _REMEDY))
    return conversation.read(messages, lambda message: _read(conversation, message))


def _dumped(message: object) -> object:
    """Return the data of a message that is an object."""
    dump = getattr(message, "model_dump", None)
    return dump() if callable(dump) else message


def _read(conversation: Conversation, message: Mapping[str, Any]) -> None:
    data: Any = message.get("data", message)
    kind: Any = message.get("type")
    if message.get("lc") == 1:  # as `dumpd` writes it; older releases leave the type out
        data = message.get("kwargs")
        kind = (_field(data, "type") or message["id"][-1]) if kind == "constructor" else None
    if not isinstance(kind, str) or not isinstance(data, Mapping) or "content" not in data:
        raise WrongMessage(f"it has no type and content; {_REMEDY}")
    data = cast("Mapping[str, Any]", data)
    kind = kind.removesuffix("Chunk").removesuffix("Message").casefold()
    role = _ROLES.get(kind)
    if kind == "chat":
        role = _ROLES.get(str(data["role"]).casefold())
        if role is None:
            conversation.leave_out("a role of its own, instead of which it is the user's")
            role = "user"
    if kind in ("tool", "function"):
        _result(conversation, data)
    elif role == "system":
        conversation.system(_parts(conversation, data["content"]))
    elif role == "user":
        conversation.user(_parts(conversation, data["content"]))
    elif role == "assistant":
        _answer(conversation, data)
    else:
        raise WrongMessage("its type is not human, ai, system, tool, function or chat")


def _answer(conversation: Conversation, data: Mapping[str, Any]) -> None:
    calls = [call_of(each.get("name"), each.get("args"), each.get("id")) for each in data.get("tool_calls") or ()]
    calls += [
        call_of(each.get("name") or "", each.get("args"), each.get("id"))
        for each in data.get("invalid_tool_calls") or ()
    ]
    older = _field(data.get("additional_kwargs"), "function_call")
    if older is not None and not calls:
        calls.append(call_of(older["name"], older.get("arguments"), older["name"]))
    used = data.get("usage_metadata")
    cached = _field(_field(used, "input_token_details"), "cache_read")
    reasoning = _field(_field(used, "output_token_details"), "reasoning")
    usage = usage_of(used, cached=cached, reasoning=reasoning)
    conversation.assistant([*_parts(conversation, data["content"]), *calls], usage=usage)


def _field(value: object, name: str) -> Any:
    """Return a field of an object that may be missing."""
    return cast("Mapping[str, Any]", value).get(name) if isinstance(value, Mapping) else None


def _result(conversation: Conversation, data: Mapping[str, Any]) -> None:
    parts = [*_parts(conversation, data["content"])]
    text = "\n".join(part.text for part in parts if isinstance(part, Text))
    images = tuple(part for part in parts if isinstance(part, Image))
    name, failed = str(data.get("name") or ""), data.get("status") == "error"
    id_ = text_of(data.get("tool_call_id", name))
    conversation.answered(ToolResult(id_, name, text, failed, images))


def _parts(conversation: Conversation, content: object) -> Iterator[Part]:
    """Yield the parts of the content of a message."""
    if not isinstance(content, str | list | tuple):
        raise WrongMessage("its content is neither text nor a list")
    for block in [content] if isinstance(content, str) else cast("Sequence[Any]", content):
        if isinstance(block, str):
            if block:
                yield Text(block)
            continue
        kind = block["type"]
        if kind in _TEXTS:
            yield Text(text_of(block[_TEXTS[kind]]))
        elif kind in _REASONING:
            thought = _thought(block, _REASONING[kind])
            if thought:
                yield Reasoning(thought)
            else:
                conversation.leave_out("reasoning without text")
        elif kind in ("image", "image_url", "input_image"):
            yield _image(block) or conversation.stand_in("an image that cannot be read")
        elif kind not in _CALLS:
            yield conversation.stand_in(str(kind))


def _thought(block: Mapping[str, Any], field: str) -> str:
    """Return the text of a block of reasoning, which may be in its summary."""
    summary = block.get("summary")
    if isinstance(summary, list):
        return "\n\n".join(text_of(each["text"]) for each in cast("Iterable[Any]", summary))
    return text_of(block.get(field) or "")


def _image(block: Mapping[str, Any]) -> Image | None:
    """Return an image of any of the forms that LangChain passes on."""
    named: Any = block.get("image_url", block.get("url"))
    source: Any = block.get("source") or {}
    url: Any = cast("Mapping[str, Any]", named).get("url") if isinstance(named, Mapping) else named
    return image_from(
        data=block.get("base64") or block.get("data") or source.get("data"),
        media_type=block.get("mime_type") or source.get("media_type"),
        url=url or source.get("url"),
    )
