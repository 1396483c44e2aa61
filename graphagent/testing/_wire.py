"""The server's side of Chat Completions, embeddings, moderations and reranking: JSON to requests, responses to JSON, whole or in chunks."""

from __future__ import annotations

import base64
import json
import math
import random
import re
import struct
from collections.abc import Awaitable, Iterable, Iterator, Mapping
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
from graphagent.testing._services import Service, check_chat, finish_chat

_DIMENSIONS = 64
_EMPTY: Mapping[str, Any] = {}
_KNOWN = frozenset(("model", "messages", "tools", "tool_choice", "response_format", "stream", "stream_options"))


class ChatCompletions:
    """Chat Completions (https://platform.openai.com/docs/api-reference/chat), as strict as a service if one is given."""

    def __init__(self, strict: Service | None) -> None:
        self._strict: Service | None = strict

    def read(self, body: Mapping[str, Any], key: str) -> ModelRequest:
        """Return the request that a client with that key sent. Its tools have their schema and cannot be run.

        Raises:
            RefusedError: the service would refuse it.
        """
        if self._strict:
            check_chat(self._strict, body, key)
        names: dict[str, str] = {}
        messages: list[Message] = []
        for said in body["messages"]:
            message = _read_message(said, names)
            names.update({call.id: call.name for call in message.tool_calls})
            messages.append(message)
        functions = [each["function"] for each in body.get("tools") or ()]
        tools = tuple(
            Tool(each["name"], each.get("description") or "", each.get("parameters") or {}, run_elsewhere)
            for each in functions
        )
        choice = body.get("tool_choice") or "auto"
        wanted = (body.get("response_format") or _EMPTY).get("json_schema")
        output: OutputFormat[Any] | None = None
        if wanted:
            output = OutputFormat(wanted["name"], wanted["schema"], bool(wanted.get("strict")))
        return ModelRequest(
            tuple(messages),
            tools,
            choice if isinstance(choice, str) else choice["function"]["name"],
            output,
            {name: value for name, value in body.items() if name not in _KNOWN},
        )

    def answer(self, response: ModelResponse, body: Mapping[str, Any], key: str, number: int) -> dict[str, Any]:
        """Return the JSON of a whole response. `number`, which no other has, is in the ids that are made for it."""
        message, reason = response.message, response.finish_reason
        said: dict[str, Any] = {"role": "assistant", "content": message.text or None}
        if reason == "refusal":
            said, reason = {"role": "assistant", "content": None, "refusal": message.text}, "stop"
        if message.reasoning:
            said["reasoning_content"] = message.reasoning
        if message.tool_calls:
            said["tool_calls"] = [
                {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": raw_arguments(call)}}
                for call in message.tool_calls
            ]
        if self._strict:
            finish_chat(self._strict, said, body, number, key)
        return {
            "id": "chatcmpl-test",
            "object": "chat.completion",
            "created": now() // 1_000,
            "model": response.model,
            "choices": [{"index": 0, "message": said, "finish_reason": reason}],
            "usage": _usage(response.usage),
        }

    def events(self, response: dict[str, Any], body: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        """Return the JSON of the chunks of a streamed response: word by word, arguments in pieces."""
        head = {name: response[name] for name in ("id", "object", "created", "model")} | {
            "object": "chat.completion.chunk"
        }

        def chunk(delta: dict[str, Any], finish_reason: str | None = None) -> dict[str, Any]:
            return {**head, "choices": [{"index": 0, "delta": delta, "finish_reason": finish_reason}]}

        [choice] = response["choices"]
        message = choice["message"]
        yield chunk({"role": "assistant", "content": ""})
        for name in ("reasoning_content", "content", "refusal"):
            for piece in words(message.get(name) or ""):
                yield chunk({name: piece})
        for index, call in enumerate(message.get("tool_calls", ())):
            arguments = call["function"]["arguments"]
            begun = {**call, "function": {**call["function"], "arguments": ""}}
            yield chunk({"tool_calls": [{"index": index, **begun}]})
            for start in range(0, len(arguments), 8):
                further = {"index": index, "function": {"arguments": arguments[start : start + 8]}}
                yield chunk({"tool_calls": [further]})
        yield chunk({}, choice["finish_reason"])
        if body.get("stream_options") == {"include_usage": True}:
            yield {**head, "choices": [], "usage": response["usage"]}


def run_elsewhere(arguments: Mapping[str, Any], context: Any) -> Awaitable[Any]:
    """Run a tool of a client, which a server cannot do."""
    raise RuntimeError("a server knows the tools of its clients by their schema only")


def _read_message(said: Mapping[str, Any], names: Mapping[str, str]) -> Message:
    parts = read_content(said.get("content") or "")
    if said["role"] == "tool":
        return Message.tool(result_of(said["tool_call_id"], parts, names))
    thought = said.get("reasoning_content") or said.get("reasoning")
    if thought:
        parts.insert(0, Reasoning(as_text(thought)))
    for call in said.get("tool_calls") or ():
        function = call["function"]
        parts.append(ToolCall(function["name"], json.loads(function["arguments"]), call["id"]))
    role: Role = "system" if said["role"] == "developer" else said["role"]
    return Message(role, tuple(parts))


def read_content(content: str | list[dict[str, Any]]) -> list[Part]:
    """Return the texts and images of a message or a result, in either protocol.

    Raises:
        ValueError: something in it is of another type.
    """
    if isinstance(content, str):
        return [Text(content)] if content else []
    parts: list[Part] = []
    for each in content:
        match each["type"]:
            case "image_url":
                parts.append(_image(each["image_url"]["url"]))
            case "input_image":
                parts.append(_image(each["image_url"]))
            case "text" | "input_text" | "output_text" | "refusal" as kind:
                text = as_text(each["refusal" if kind == "refusal" else "text"])
                parts += [Text(text)] if text else []
            case kind:
                raise ValueError(f"unsupported content of type {kind!r}")
    return parts


def result_of(call_id: str, parts: Iterable[Part], names: Mapping[str, str]) -> ToolResult:
    """Return the result of a call; `names` are those of the tools, by the ids of the calls."""
    message = Message("tool", tuple(parts))
    return ToolResult(call_id, names.get(call_id, ""), message.text, images=message.images)


def as_text(value: object) -> str:
    """Return a value that has to be text.

    Raises:
        TypeError: it is something else.
    """
    if not isinstance(value, str):
        raise TypeError(f"{type(value).__name__} where text belongs")
    return value


def _image(url: str) -> Image:
    if not url.startswith("data:"):
        return Image(url=url)
    kind, _, data = url.removeprefix("data:").partition(";base64,")
    return Image(base64.b64decode(data), kind)


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


def moderations(body: Mapping[str, Any], model: str, flags: Mapping[str, str]) -> dict[str, Any]:
    """Return the response to a request for moderations: a text that has a word of `flags` is flagged with its category."""
    given = body["input"]
    texts: list[str] = [given] if isinstance(given, str) else list(given)
    results: list[dict[str, Any]] = []
    for text in texts:
        found = {flags[word] for word in flags if word in text}
        categories = {category: category in found for category in flags.values()}
        scores = {category: float(flagged) for category, flagged in categories.items()}
        results.append({"flagged": bool(found), "categories": categories, "category_scores": scores})
    return {"id": "modr-test", "model": model, "results": results}


def rerank(body: Mapping[str, Any], model: str) -> dict[str, Any] | list[dict[str, Any]]:
    """Return the response to a request to rerank: a text's score is the share of the question's words that it has.

    If the texts are in `texts`, it is that of text-embeddings-inference, else that of Jina and Cohere.
    """
    is_bare = "texts" in body
    texts: list[str] = body["texts" if is_bare else "documents"]
    asked = _distinct_words(body["query"])
    scores = [len(asked & _distinct_words(text)) / max(len(asked), 1) for text in texts]
    order = sorted(range(len(texts)), key=lambda index: -scores[index])[: body.get("top_n")]
    if is_bare:
        return [{"index": index, "score": scores[index]} for index in order]
    shown = {index: {"document": {"text": texts[index]}} if body.get("return_documents") else {} for index in order}
    results = [{"index": index, "relevance_score": scores[index], **shown[index]} for index in order]
    return {"id": "rerank-test", "model": model, "results": results}


def _distinct_words(text: str) -> set[str]:
    return set(re.findall(r"\w+", text.lower()))


def _vector(text: str, dimensions: int) -> list[float]:
    if not text:
        raise ValueError("an input is empty")
    vector = [0.0] * dimensions
    for word in text.lower().split() or [text]:
        numbers = random.Random(word)
        vector = [value + numbers.gauss(0.0, 1.0) for value in vector]
    length = math.hypot(*vector)
    return [value / length for value in vector]


def raw_arguments(call: ToolCall) -> str:
    """Return the arguments of a call as the text that a model would write."""
    return call.malformed or json.dumps(dict(call.arguments), ensure_ascii=False)


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
