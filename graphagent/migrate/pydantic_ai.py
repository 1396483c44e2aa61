"""Reads the histories of pydantic-ai 1.x and 2.x, as `ModelMessagesTypeAdapter` dumps them. pydantic-ai does not have to be installed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, cast

from graphagent.llm import Image, Part, Reasoning, Text, ToolResult
from graphagent.llm._messages import sendable
from graphagent.memory import RunMemory, SystemPromptStep
from graphagent.migrate._conversation import (
    Conversation,
    WrongMessage,
    call_of,
    image_from,
    messages_of,
    text_of,
    time_of,
    usage_of,
)

_REMEDY = "give the result of ModelMessagesTypeAdapter.dump_json(messages) or result.all_messages_json()"
_UNSENT = ("cache-point",)
"""The kinds of parts that are for a server, not for the model."""


def load_messages(dump: Sequence[Mapping[str, Any]] | str | bytes) -> RunMemory:
    """Return a history of pydantic-ai as a transcript: to read, to write into a thread with `graphagent.history.import_thread`, or to begin a run with.

    System prompts before all other parts, and the last instructions, are the system prompt of the transcript; later system prompts
    stay in their places. The steps have the times of the parts and responses. Calls of tools of a provider, and their results, are
    those of any tool. Feedback that asks for another answer is said by the user. Content that a message here cannot hold, such as documents,
    is replaced by a text that says so, and logged as a warning together with results whose call is missing. Signatures, metadata,
    citations and costs are not read.

    Args:
        dump: The result of `ModelMessagesTypeAdapter.dump_json`, or the same data as parsed JSON.

    Raises:
        ValueError: `dump` is something else. The text names the invalid message and contains none of its values.
    """
    conversation = Conversation("pydantic-ai")
    instructions: list[str] = []
    memory = conversation.read(messages_of(dump, _REMEDY), lambda message: _read(conversation, message, instructions))
    if instructions:
        rules = (memory.system_prompt.system_prompt, instructions[-1])
        memory.system_prompt = SystemPromptStep("\n\n".join(filter(None, rules)))
    return memory


def _read(conversation: Conversation, message: Mapping[str, Any], instructions: list[str]) -> None:
    kind, parts = message.get("kind"), message.get("parts")
    if not isinstance(parts, list) or kind not in ("request", "response"):
        raise WrongMessage(f"it is neither a request nor a response with parts; {_REMEDY}")
    given, at = cast("list[Mapping[str, Any]]", parts), time_of(message.get("timestamp"))
    if kind == "request":
        if isinstance(message.get("instructions"), str):
            instructions.append(sendable(message["instructions"]))
        for part in given:
            _asked(conversation, part, at)
        return
    used: Any = message.get("usage") or {}
    cached, thought = used.get("cache_read_tokens"), used.get("output_reasoning_tokens")
    usage = usage_of(used, cached=cached, reasoning=thought)
    conversation.assistant(_said(conversation, given), at, usage)
    for part in given:  # of tools that the provider executed
        if part["part_kind"] == "builtin-tool-return":
            _returned(conversation, part, at)


def _asked(conversation: Conversation, part: Mapping[str, Any], sent: int | None) -> None:
    """Add a part of a request."""
    kind, content = part["part_kind"], part.get("content")
    at = time_of(part.get("timestamp")) or sent
    if kind == "system-prompt":
        conversation.system([Text(text_of(content))], at)
    elif kind == "user-prompt":
        conversation.user(_content(conversation, content), at)
    elif kind == "tool-return" or (kind == "retry-prompt" and part.get("tool_name")):
        _returned(conversation, part, at)
    elif kind in ("retry-prompt", "retry-feedback") or (kind == "compaction" and content):
        conversation.told(text_of(content), at)
    elif kind == "speech":
        conversation.user([_speech(conversation, part)], at)
    else:
        conversation.leave_out(str(kind))


def _said(conversation: Conversation, parts: Iterable[Mapping[str, Any]]) -> Iterator[Part]:
    """Yield the parts of a response, without the results of tools."""
    for part in parts:
        kind, content = part["part_kind"], part.get("content")
        if kind == "text" or (kind == "compaction" and content):
            yield Text(text_of(content))
        elif kind == "thinking":
            if content:
                yield Reasoning(text_of(content))
            else:
                conversation.leave_out("reasoning without text")
        elif kind in ("tool-call", "builtin-tool-call"):
            yield call_of(part["tool_name"], part.get("args"), part.get("tool_call_id"))
        elif kind == "speech":
            yield _speech(conversation, part)
        elif kind == "file":
            yield _file(conversation, cast("Mapping[str, Any]", content))
        elif kind != "builtin-tool-return":
            yield conversation.stand_in(str(kind))


def _speech(conversation: Conversation, part: Mapping[str, Any]) -> Text:
    """Return the transcript of speech, as far as there is one."""
    transcript = part.get("transcript")
    if transcript is None:
        return conversation.stand_in("speech without a transcript")
    if part.get("audio") is not None:
        conversation.leave_out("audio of speech with a transcript")
    return Text(text_of(transcript))


def _returned(conversation: Conversation, part: Mapping[str, Any], at: int | None) -> None:
    """Add the result of a tool."""
    content: object = part.get("content")
    items = cast("list[object]", content if isinstance(content, list) else [content])
    files = [cast("Mapping[str, Any]", each) for each in items if _is_file(each)]
    data = [each for each in items if not _is_file(each)]
    shown = [_file(conversation, each) for each in files]
    texts = (
        [text_of(part.get("content"))] if not files else [text_of(data[0] if len(data) == 1 else data)] if data else []
    )
    text = "\n".join([*texts, *(each.text for each in shown if isinstance(each, Text))])
    images = tuple(each for each in shown if isinstance(each, Image))
    failed = part["part_kind"] == "retry-prompt" or part.get("outcome", "success") != "success"
    conversation.answered(ToolResult(part["tool_call_id"], part["tool_name"], text, failed, images), at)


def _content(conversation: Conversation, content: object) -> Iterator[Part]:
    """Yield the parts of a message of the user."""
    if not isinstance(content, str | list):
        raise WrongMessage("the content of a prompt is neither text nor a list")
    for item in [content] if isinstance(content, str) else cast("Iterable[Any]", content):
        if isinstance(item, str):
            yield Text(item)
        elif item["kind"] in ("text-content", "structured-content"):
            yield Text(text_of(item["content"]))
        elif item["kind"] not in _UNSENT:
            yield _file(conversation, item)


def _is_file(value: object) -> bool:
    """Return whether a value in the result of a tool is a file, and not an object of the tool itself."""
    if not isinstance(value, Mapping):
        return False
    kind = cast("Mapping[str, Any]", value).get("kind")
    return kind in ("binary", "uploaded-file") or str(kind).endswith("-url")


def _file(conversation: Conversation, file: Mapping[str, Any]) -> Text | Image:
    """Return an image, or the replacement of any other file."""
    kind, media_type = str(file["kind"]), file.get("media_type")
    image = None
    if kind == "binary":
        image = image_from(data=file.get("data"), media_type=media_type)
        kind = text_of(media_type)
    elif kind == "image-url":
        image = image_from(media_type=media_type, url=file.get("url"))
    return image or conversation.stand_in(kind)
