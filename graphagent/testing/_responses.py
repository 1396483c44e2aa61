"""The server's side of Responses: JSON to requests, responses to JSON, whole or as events."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import count, groupby
from typing import Any, cast

from graphagent._clock import now
from graphagent.llm import (
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
)
from graphagent.testing._model import words
from graphagent.testing._services import RefusedError, Service, check_responses, not_found, seal
from graphagent.testing._wire import as_text, raw_arguments, read_content, result_of, run_elsewhere

_KNOWN = frozenset(
    [
        "model",
        "input",
        "instructions",
        "tools",
        "tool_choice",
        "text",
        "stream",
        "stream_options",
        "store",
        "include",
        "previous_response_id",
    ]
)
_EMPTY: Mapping[str, Any] = {}
_ECHOED: dict[str, type[Any]] = {"reasoning": dict, "text": dict, "metadata": dict, "include": list}
_INCOMPLETE = {"length": "max_output_tokens", "content_filter": "content_filter"}
"""Finish reasons that make a response incomplete, and their names in the protocol."""
_NOT_BEGUN: dict[str, dict[str, Any]] = {
    "message": {"content": []},
    "reasoning": {"summary": []},
    "function_call": {"arguments": ""},
}
"""The fields of items of a type when they are announced in a stream."""


class Responses:
    """Responses (https://platform.openai.com/docs/api-reference/responses), strict as OpenAI's if that is the service.

    Items stored by clients live as long as this object.
    """

    def __init__(self, strict: Service | None) -> None:
        self._strict = strict == "openai"
        self._items: dict[str, dict[str, Any]] = {}
        self._conversations: dict[str, list[dict[str, Any]]] = {}
        self._thoughts: dict[str, str] = {}

    def read(self, body: Mapping[str, Any], key: str) -> ModelRequest:
        """Return the request that a client with that key sent. Its tools have their schema and cannot be run.

        Raises:
            RefusedError: it refers to something that is not stored, or the service would refuse it.
        """
        items = self._input(body)
        for name, kind in _ECHOED.items():
            if not isinstance(body.get(name) or kind(), kind):
                raise TypeError(f"the {name} of a request is a {kind.__name__}")
        if self._strict:
            check_responses(body, items, self._items, self._thoughts, key)
        messages: list[Message] = []
        if body.get("instructions"):
            messages.append(Message.system(as_text(body["instructions"])))
        names: dict[str, str] = {}
        for item in items:
            kind = item.get("type", "message")
            if kind == "function_call_output":
                messages.append(Message.tool(result_of(item["call_id"], read_content(item["output"]), names)))
                continue
            role, parts = _read_item(kind, item)
            names.update({part.id: part.name for part in parts if isinstance(part, ToolCall)})
            # The items of one answer are one message, as on Chat Completions: reasoning, text, calls.
            if role == "assistant" and messages and messages[-1].role == "assistant" and _continues(kind, messages[-1]):
                messages[-1] = Message("assistant", messages[-1].parts + parts)
            elif parts or role != "assistant":
                messages.append(Message(role, parts))
        for tool in body.get("tools") or ():
            if tool["type"] != "function":
                raise ValueError(f"this server has no tool of type {tool['type']!r}; it knows functions only")
        tools = tuple(
            Tool(each["name"], each.get("description") or "", each.get("parameters") or {}, run_elsewhere)
            for each in body.get("tools") or ()
        )
        choice = body.get("tool_choice") or "auto"
        wanted: Mapping[str, Any] | None = (body.get("text") or _EMPTY).get("format")
        output: OutputFormat[Any] | None = None
        if wanted and wanted["type"] == "json_schema":
            output = OutputFormat(wanted["name"], wanted["schema"], bool(wanted.get("strict")))
        return ModelRequest(
            tuple(messages),
            tools,
            choice if isinstance(choice, str) else choice["name"],
            output,
            {name: value for name, value in body.items() if name not in _KNOWN},
        )

    def answer(self, response: ModelResponse, body: Mapping[str, Any], key: str, number: int) -> dict[str, Any]:
        """Return the JSON of a whole response. `number`, which no other has, is in the ids of its items."""
        reason = response.finish_reason
        if self._strict:
            response = _as_openai_thinks(response, body.get("reasoning") or _EMPTY)
        status = "incomplete" if reason in _INCOMPLETE else "failed" if reason == "failed" else "completed"
        output = _output(response, number)
        thought = ""
        for item in output:
            if item["type"] == "reasoning":
                thought = item["id"]
                if "reasoning.encrypted_content" in (body.get("include") or ()):
                    item["encrypted_content"] = seal(thought, key)
            elif thought:
                self._thoughts.update({item["id"]: thought, item.get("call_id", item["id"]): thought})
        if status == "incomplete" and output and "status" in output[-1]:
            output[-1]["status"] = "incomplete"
        usage = response.usage
        whole: dict[str, Any] = {
            **{name: body.get(name) for name in ("instructions", "max_output_tokens", "previous_response_id", "user")},
            "id": f"resp_{number:06d}",
            "object": "response",
            "created_at": now() // 1_000,
            "completed_at": now() // 1_000 if status == "completed" else None,
            "status": status,
            "background": False,
            "error": {"code": "server_error", "message": "The server failed."} if status == "failed" else None,
            "incomplete_details": {"reason": _INCOMPLETE[reason]} if status == "incomplete" else None,
            "metadata": body.get("metadata") or _EMPTY,
            "model": response.model,
            "output": output,
            "parallel_tool_calls": body.get("parallel_tool_calls", True),
            "reasoning": {"effort": None, "summary": None, **(body.get("reasoning") or _EMPTY)},
            "service_tier": "default",
            "store": body.get("store") is not False,
            "temperature": body.get("temperature", 1.0),
            "text": {"format": {"type": "text"}, **(body.get("text") or _EMPTY)},
            "tool_choice": body.get("tool_choice") or "auto",
            "tools": [
                {"description": None, "parameters": None, "strict": True, **each} for each in body.get("tools") or ()
            ],
            "top_p": body.get("top_p", 1.0),
            "truncation": body.get("truncation", "disabled"),
            "usage": {
                **({"cost": float(usage.cost)} if usage.cost else {}),
                "input_tokens": usage.input_tokens,
                "input_tokens_details": {"cached_tokens": usage.cached_tokens, "cache_write_tokens": 0},
                "output_tokens": usage.output_tokens,
                "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
                "total_tokens": usage.total_tokens,
            },
        }
        if whole["store"]:
            self._conversations[whole["id"]] = [*self._input(body), *output]
            self._items.update({item["id"]: item for item in output})
        return whole

    def events(self, response: dict[str, Any], body: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        """Return the JSON of the events of a streamed response: word by word, arguments in pieces."""
        numbers = count()

        def event(kind: str, **fields: Any) -> dict[str, Any]:
            return {"type": f"response.{kind}", "sequence_number": next(numbers), **fields}

        unfinished = dict.fromkeys(("usage", "completed_at", "incomplete_details", "error"))
        begun: dict[str, Any] = {**response, **unfinished, "status": "in_progress", "output": []}
        yield event("created", response=begun)
        yield event("in_progress", response=begun)
        for index, item in enumerate(response["output"]):
            announced = {name: value for name, value in item.items() if name != "encrypted_content"}
            if "status" in item:
                announced["status"] = "in_progress"
            yield event("output_item.added", output_index=index, item=announced | _NOT_BEGUN[item["type"]])
            place = {"output_index": index, "item_id": item["id"]}
            for at, part in enumerate(item.get("content", ())):
                kind, field = ("refusal", "refusal") if part["type"] == "refusal" else ("output_text", "text")
                place["content_index"] = at
                more: dict[str, Any] = {} if kind == "refusal" else {"logprobs": []}
                yield event("content_part.added", **place, part={**part, field: ""})
                for piece in words(part[field]):
                    yield event(f"{kind}.delta", **place, **more, delta=piece)
                yield event(f"{kind}.done", **place, **more, **{field: part[field]})
                yield event("content_part.done", **place, part=part)
            for at, part in enumerate(item.get("summary", ())):
                place["summary_index"] = at
                yield event("reasoning_summary_part.added", **place, part={**part, "text": ""})
                for piece in words(part["text"]):
                    yield event("reasoning_summary_text.delta", **place, delta=piece)
                yield event("reasoning_summary_text.done", **place, text=part["text"])
                yield event("reasoning_summary_part.done", **place, part=part)
            if item["type"] == "function_call":
                arguments = item["arguments"]
                for start in range(0, len(arguments), 8):
                    yield event("function_call_arguments.delta", **place, delta=arguments[start : start + 8])
                yield event("function_call_arguments.done", **place, arguments=arguments)
            yield event("output_item.done", output_index=index, item=item)
        yield event(response["status"], response=response)

    def _input(self, body: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Return the items of a request, including those to which it refers.

        Raises:
            RefusedError: it refers to something that is not stored.
        """
        given = body["input"]
        items: list[dict[str, Any]] = [{"role": "user", "content": given}] if isinstance(given, str) else list(given)
        before = body.get("previous_response_id")
        if before is not None and before not in self._conversations:
            raise RefusedError(
                f"Previous response with id '{before}' not found.",
                param="previous_response_id",
                code="previous_response_not_found",
            )
        found = list(self._conversations[before]) if before else []
        for item in items:
            found.append(self._item(item["id"]) if item.get("type") == "item_reference" else item)
        return found

    def _item(self, identity: str) -> dict[str, Any]:
        """Return the item of an id.

        Raises:
            RefusedError: it is not stored.
        """
        if identity not in self._items:
            raise not_found(identity)
        return self._items[identity]


def _as_openai_thinks(response: ModelResponse, reasoning: Mapping[str, Any]) -> ModelResponse:
    """Return the response with reasoning if the model was to think, and with its text only if a summary was asked for."""
    parts = response.message.parts
    if reasoning.get("effort") == "none":
        parts = tuple(part for part in parts if not isinstance(part, Reasoning))
    elif not any(isinstance(part, Reasoning) for part in parts):
        parts = (Reasoning(""), *parts)
    if not reasoning.get("summary"):
        parts = tuple(Reasoning("") if isinstance(part, Reasoning) else part for part in parts)
    return replace(response, message=Message("assistant", parts))


def _continues(kind: str, message: Message) -> bool:
    return kind == "function_call" or all(isinstance(part, Reasoning) for part in message.parts)


def _read_item(kind: str, item: Mapping[str, Any]) -> tuple[Role, tuple[Part, ...]]:
    if kind == "function_call":
        return "assistant", (ToolCall(item["name"], json.loads(item["arguments"]), item["call_id"]),)
    if kind == "reasoning":
        thought = "\n\n".join(each["text"] for each in (*item["summary"], *(item.get("content") or ())))
        return "assistant", (Reasoning(thought),) if thought else ()
    if kind == "message":
        role: Role = "system" if item["role"] == "developer" else item["role"]
        return role, tuple(read_content(item["content"]))
    raise ValueError(f"this server knows no item of type {kind!r}")


def _output(response: ModelResponse, number: int) -> list[dict[str, Any]]:
    items: list[dict[str, Any]] = []

    def add(prefix: str, **fields: Any) -> None:
        items.append({"id": f"{prefix}_{number:06d}{len(items):02d}", **fields})

    for kind, same in groupby(response.message.parts, type):
        if kind is Text:
            text = "".join(part.text for part in cast("Iterator[Text]", same))
            said: dict[str, Any] = {"type": "output_text", "annotations": [], "logprobs": [], "text": text}
            if response.finish_reason == "refusal":
                said = {"type": "refusal", "refusal": text}
            add("msg", type="message", status="completed", role="assistant", content=[said])
            continue
        for part in same:
            if isinstance(part, Reasoning):
                summary = [{"type": "summary_text", "text": part.text}] if part.text else []
                add("rs", type="reasoning", summary=summary)
            elif isinstance(part, ToolCall):
                # The protocol's own client cannot read calls that share an id.
                call_id = part.id or f"call_{number:06d}{len(items):02d}"
                called = {"call_id": call_id, "name": part.name, "arguments": raw_arguments(part)}
                add("fc", type="function_call", status="completed", **called)
    return items
