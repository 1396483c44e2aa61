"""The server's side of Chat Completions: JSON to requests, responses to JSON, whole or in chunks."""

from __future__ import annotations

import base64
import json
import math
import random
import struct
from collections.abc import Awaitable, Iterator, Mapping
from typing import Any

from graphagent._clock import now
from graphagent.llm import (
    Image,
    Message,
    ModelRequest,
    ModelResponse,
    OutputFormat,
    Part,
    Reasoning,
    Role,
    Text,
    Tool,
    ToolCall,
    ToolResult,
    Usage,
)
from graphagent.testing._model import words

_DIMENSIONS = 64


def read_request(body: Mapping[str, Any]) -> ModelRequest:
    """Return the request that a client sent. Its tools have their schema and cannot be run."""
    names: dict[str, str] = {}
    messages: list[Message] = []
    for said in body["messages"]:
        message = _read_message(said, names)
        names.update({call.id: call.name for call in message.tool_calls})
        messages.append(message)
    functions = [each["function"] for each in body.get("tools", ())]
    tools = tuple(
        Tool(each["name"], each.get("description", ""), each.get("parameters", {}), _elsewhere) for each in functions
    )
    choice = body.get("tool_choice", "auto")
    wanted = body.get("response_format", {}).get("json_schema")
    output: OutputFormat[Any] | None = None
    if wanted:
        output = OutputFormat(wanted["name"], wanted["schema"], bool(wanted.get("strict")))
    known = {"model", "messages", "tools", "tool_choice", "response_format", "stream", "stream_options"}
    return ModelRequest(
        tuple(messages),
        tools,
        choice if isinstance(choice, str) else choice["function"]["name"],
        output,
        {name: value for name, value in body.items() if name not in known},
    )


def _elsewhere(arguments: Mapping[str, Any], context: Any) -> Awaitable[Any]:
    raise RuntimeError("a server knows the tools of its clients by their schema only")


def _read_message(said: Mapping[str, Any], names: Mapping[str, str]) -> Message:
    content = said.get("content") or ""
    if said["role"] == "tool":
        identity = said["tool_call_id"]
        return Message.tool(ToolResult(identity, names.get(identity, ""), content))
    parts: list[Part] = []
    pieces: list[dict[str, Any]] = [{"type": "text", "text": content}] if isinstance(content, str) else content
    for each in pieces:
        if each["type"] == "image_url":
            parts.append(_read_image(each["image_url"]["url"]))
        elif each["text"]:
            parts.append(Text(each["text"]))
    for call in said.get("tool_calls", ()):
        function = call["function"]
        parts.append(ToolCall(function["name"], json.loads(function["arguments"]), call["id"]))
    role: Role = "system" if said["role"] == "developer" else said["role"]
    return Message(role, tuple(parts))


def _read_image(url: str) -> Image:
    if not url.startswith("data:"):
        return Image(url=url)
    kind, _, data = url.removeprefix("data:").partition(";base64,")
    return Image(base64.b64decode(data), kind)


def completion(response: ModelResponse) -> dict[str, Any]:
    """Return the JSON of a whole response."""
    message = response.message
    said: dict[str, Any] = {"role": "assistant", "content": message.text or None}
    thought = _thought(message)
    if thought:
        said["reasoning_content"] = thought
    if message.tool_calls:
        said["tool_calls"] = [_call(call) for call in message.tool_calls]
    choice = {"index": 0, "message": said, "finish_reason": response.finish_reason}
    return {**_head(response, "chat.completion"), "choices": [choice], "usage": _usage(response.usage)}


def chunks(response: ModelResponse, *, with_usage: bool) -> Iterator[dict[str, Any]]:
    """Return the JSON of the chunks of a streamed response: word by word, arguments in pieces."""
    head = _head(response, "chat.completion.chunk")

    def chunk(delta: dict[str, Any], finish_reason: str | None = None) -> dict[str, Any]:
        return {**head, "choices": [{"index": 0, "delta": delta, "finish_reason": finish_reason}]}

    yield chunk({"role": "assistant", "content": ""})
    for piece in words(_thought(response.message)):
        yield chunk({"reasoning_content": piece})
    for piece in words(response.message.text):
        yield chunk({"content": piece})
    for index, call in enumerate(response.message.tool_calls):
        whole = _call(call)
        arguments = whole["function"]["arguments"]
        whole["function"]["arguments"] = ""
        yield chunk({"tool_calls": [{"index": index, **whole}]})
        for start in range(0, len(arguments), 8):
            further = {"index": index, "function": {"arguments": arguments[start : start + 8]}}
            yield chunk({"tool_calls": [further]})
    yield chunk({}, response.finish_reason)
    if with_usage:
        yield {**head, "choices": [], "usage": _usage(response.usage)}


def embeddings(body: Mapping[str, Any], model: str) -> dict[str, Any]:
    """Return the response to a request for embeddings: each word adds its own numbers, so texts that share words are near."""
    given = body["input"]
    texts: list[str] = [given] if isinstance(given, str) else list(given)
    vectors = [_vector(text, int(body.get("dimensions") or _DIMENSIONS)) for text in texts]
    if body.get("encoding_format") == "base64":
        shown: list[Any] = [base64.b64encode(struct.pack(f"<{len(each)}f", *each)).decode() for each in vectors]
    else:
        shown = vectors
    data = [{"object": "embedding", "index": index, "embedding": each} for index, each in enumerate(shown)]
    tokens = sum(len(words(text)) for text in texts)
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    return {"object": "list", "model": model, "data": data, "usage": usage}


def _vector(text: str, dimensions: int) -> list[float]:
    if not text:
        raise ValueError("an input is empty")
    vector = [0.0] * dimensions
    for word in text.lower().split() or [text]:
        numbers = random.Random(word)
        vector = [value + numbers.gauss(0.0, 1.0) for value in vector]
    length = math.hypot(*vector)
    return [value / length for value in vector]


def _thought(message: Message) -> str:
    return "".join(part.text for part in message.parts if isinstance(part, Reasoning))


def _head(response: ModelResponse, kind: str) -> dict[str, Any]:
    return {"id": "chatcmpl-test", "object": kind, "created": now() // 1_000, "model": response.model}


def _call(call: ToolCall) -> dict[str, Any]:
    arguments = call.malformed or json.dumps(dict(call.arguments), ensure_ascii=False)
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": arguments}}


def _usage(usage: Usage) -> dict[str, Any]:
    cost = {"cost": float(usage.cost)} if usage.cost else {}
    return {
        **cost,
        "prompt_tokens": usage.input_tokens,
        "completion_tokens": usage.output_tokens,
        "total_tokens": usage.total_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens},
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
    }
