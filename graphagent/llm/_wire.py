"""Chat Completions, the form that every compatible server speaks: requests to JSON, JSON to responses.

The format is that of https://platform.openai.com/docs/api-reference/chat, with what common servers do otherwise.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any, cast

from graphagent.errors import ModelRequestError
from graphagent.llm._images import Image
from graphagent.llm._messages import (
    MONEY,
    Message,
    ModelRequest,
    ModelResponse,
    Part,
    Reasoning,
    Text,
    ToolCall,
    ToolResult,
    Usage,
)
from graphagent.llm._output import read_json

if TYPE_CHECKING:
    from graphagent.llm._output import OutputFormat

_LEAST_MONEY, _MOST_MONEY = Decimal("1e-12"), Decimal("1e15")
"""What is taken for an amount: further digits come of binary fractions."""


def to_body(request: ModelRequest, model: str, *, schema_in_prompt: bool = False) -> dict[str, Any]:
    """Return the JSON of a request. With `schema_in_prompt` the output format is put into the prompt, and not sent as a setting."""
    messages = chat_messages(request.messages)
    body: dict[str, Any] = {"model": model, "messages": messages}
    if request.tools:
        body["tools"] = [
            {
                "type": "function",
                "function": {"name": each.name, "description": each.description, "parameters": dict(each.parameters)},
            }
            for each in request.tools
        ]
        if request.tool_choice in ("none", "required"):
            body["tool_choice"] = request.tool_choice
        elif request.tool_choice != "auto":
            body["tool_choice"] = {"type": "function", "function": {"name": request.tool_choice}}
    if request.output is not None and schema_in_prompt:
        _tell_schema(messages, request.output)
    elif request.output is not None:
        output = request.output
        described = {"name": output.name, "schema": dict(output.schema), "strict": output.strict}
        body["response_format"] = {"type": "json_schema", "json_schema": described}
    return body


def _tell_schema(messages: list[dict[str, Any]], output: OutputFormat[Any]) -> None:
    schema = json.dumps(output.schema, ensure_ascii=False)
    told = f"Answer with nothing but JSON that fits this schema: {schema}"
    # In the system message at the front: many servers refuse one elsewhere, and two messages of one role in a row.
    if messages and messages[0]["role"] == "system":
        messages[0] = {"role": "system", "content": f"{messages[0]['content']}\n\n{told}"}
    else:
        messages.insert(0, {"role": "system", "content": told})


def chat_messages(messages: Iterable[Message]) -> list[dict[str, Any]]:
    """Return the JSON of messages, without reasoning. Images in tool results follow as a message of the user."""
    sent: list[dict[str, Any]] = []
    shown: list[dict[str, Any]] = []
    for message in messages:
        if message.role != "tool" and shown:
            sent.append({"role": "user", "content": shown})
            shown = []
        if message.role == "tool":
            for result in (part for part in message.parts if isinstance(part, ToolResult)):
                sent.append({"role": "tool", "tool_call_id": result.call_id, "content": result.content})
                if result.images:
                    shown.append({"type": "text", "text": f"Images that {result.name} gave (call {result.call_id}):"})
                    shown.extend(_image(each) for each in result.images)
        elif message.role == "assistant":
            sent.append(_assistant(message))
        else:
            sent.append({"role": message.role, "content": _content(message.parts)})
    return [*sent, {"role": "user", "content": shown}] if shown else sent


def _assistant(message: Message) -> dict[str, Any]:
    calls = [
        {
            "type": "function",
            "id": call.id,
            # Arguments that are no JSON make some servers refuse the whole history; the model learns of them from the result.
            "function": {"name": call.name, "arguments": json.dumps(dict(call.arguments), ensure_ascii=False)},
        }
        for call in message.tool_calls
    ]
    if not calls:
        return {"role": "assistant", "content": message.text}
    return {"role": "assistant", "content": message.text or None, "tool_calls": calls}


def _content(parts: Sequence[Part]) -> str | list[dict[str, Any]]:
    if not any(isinstance(part, Image) for part in parts):
        return "".join(part.text for part in parts if isinstance(part, Text))
    return [
        _image(part) if isinstance(part, Image) else {"type": "text", "text": part.text}
        for part in parts
        if isinstance(part, Image | Text)
    ]


def _image(image: Image) -> dict[str, Any]:
    url = f"data:{image.media_type};base64,{base64.b64encode(image.data).decode()}" if image.data else image.url
    return {"type": "image_url", "image_url": {"url": url}}


def from_body(data: object, server: str) -> ModelResponse:
    """Read a server's JSON answer; `server` says in errors who answered.

    Raises:
        ModelRequestError: it is an error, or is not the protocol.
    """
    body = _mapping(data)
    choices = body.get("choices")
    if not isinstance(choices, list) or not choices:
        raise _without_choices(body, server)
    choice = _mapping(cast("list[object]", choices)[0])
    said = choice.get("message")
    if not isinstance(said, Mapping):
        raise ModelRequestError(
            f"{server} answered with a choice that has no message; is it an OpenAI-compatible server?"
        )
    message = _message(_mapping(cast("object", said)))
    reason = str(choice.get("finish_reason") or "stop")
    if message.tool_calls and reason in ("stop", "function_call"):
        reason = "tool_calls"
    return ModelResponse(message, read_usage(body.get("usage")), reason, str(body.get("model") or ""))


def _without_choices(body: Mapping[str, Any], server: str) -> ModelRequestError:
    if body.get("error"):
        error = _mapping(body["error"])
        code = error.get("code")
        status = code if isinstance(code, int) and 400 <= code < 600 else None
        detail = str(error.get("message") or body["error"])[:2_000]
        return ModelRequestError(f"{server} answered with an error", status=status, detail=detail)
    return ModelRequestError(
        f"{server} answered without a choice; it gave no answer, or is no OpenAI-compatible server"
    )


def _message(said: Mapping[str, Any]) -> Message:
    text, thought = _read_content(said.get("content") or said.get("refusal") or "")
    thought = str(said.get("reasoning_content") or said.get("reasoning") or "") + thought
    parts: list[Part] = []
    if thought:
        parts.append(Reasoning(thought))
    if text:
        parts.append(Text(text))
    calls = said.get("tool_calls")
    if isinstance(calls, list):
        parts.extend(_call(_mapping(each)) for each in cast("list[object]", calls))
    return Message("assistant", tuple(parts))


def _read_content(content: object) -> tuple[str, str]:
    """Return text and reasoning; some servers send a list of chunks instead of a string."""
    if not isinstance(content, list):
        return str(content), ""
    text, thought = "", ""
    for each in map(_mapping, cast("list[object]", content)):
        if each.get("type") == "thinking":
            thought += "".join(_read_content(each.get("thinking") or ""))
        else:
            text += str(each.get("text") or "")
    return text, thought


def _call(said: Mapping[str, Any]) -> ToolCall:
    function = _mapping(said.get("function"))
    name, identity = str(function.get("name") or ""), str(said.get("id") or "")
    given = function.get("arguments")
    if isinstance(given, Mapping):  # not the protocol, but some servers
        return ToolCall(name, dict(cast("Mapping[str, Any]", given)), identity)
    text = str(given or "")
    if not text.strip():
        return ToolCall(name, {}, identity)
    try:
        arguments = read_json(text)
    except ValueError:
        arguments = None
    if not isinstance(arguments, dict):
        return ToolCall(name, {}, identity, malformed=text)
    return ToolCall(name, cast("dict[str, Any]", arguments), identity)


def read_usage(said: object) -> Usage:
    """Read the tokens that a server counted; what it does not say is 0.

    OpenRouter says under `cost` what they cost (https://openrouter.ai/docs/use-cases/usage-accounting).
    """
    usage = _mapping(said)
    return Usage(
        _number(usage.get("prompt_tokens")),
        _number(usage.get("completion_tokens")),
        _number(_mapping(usage.get("prompt_tokens_details")).get("cached_tokens")),
        _number(_mapping(usage.get("completion_tokens_details")).get("reasoning_tokens")),
        _money(usage.get("cost")),
    )


def _money(value: object) -> Decimal:
    try:
        found = Decimal(str(value)) if isinstance(value, int | float | str) and value is not True else Decimal(0)
        is_amount = 0 < found < _MOST_MONEY
    except InvalidOperation:  # it is no number
        return Decimal(0)
    return found.quantize(_LEAST_MONEY, context=MONEY).normalize(MONEY) if is_amount else Decimal(0)


def _number(value: object) -> int:
    return int(value) if isinstance(value, int | float) and value > 0 else 0


def _mapping(value: object) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}


class Events:
    """Server-sent events (https://html.spec.whatwg.org/multipage/server-sent-events.html): bytes go in, data comes out."""

    def __init__(self) -> None:
        self._line: list[bytes] = []
        self._data: list[bytes] = []

    def add(self, piece: bytes | None) -> list[bytes]:
        """Accept some bytes, or None at the end, and return the data of the events that they complete."""
        if piece is None:
            piece = b"\n\n"
        # Only at line feeds: JSON may hold other characters that str.splitlines() takes for line ends.
        first, *others = piece.split(b"\n")
        self._line.append(first)
        found: list[bytes] = []
        for other in others:
            line = b"".join(self._line).removesuffix(b"\r")
            self._line = [other]
            if line.startswith(b"data:"):
                self._data.append(line[5:].strip())
            elif not line and self._data:
                found.append(b"\n".join(self._data))
                self._data = []
        return found


class Chunks:
    """A streamed answer: chunks go in as they come, and it becomes the JSON of a whole answer."""

    def __init__(self) -> None:
        self.finished = False
        """Whether the server said that the answer is at its end."""
        self._body: dict[str, Any] = {}
        self._finish_reason = ""
        self._texts: dict[str, list[str]] = {"content": [], "refusal": [], "reasoning_content": []}
        self._calls: list[dict[str, Any]] = []
        self._arguments: list[list[str]] = []
        self._at_index: dict[object, int] = {}

    def add(self, chunk: object, server: str) -> str:
        """Accept one chunk, and return the text in it.

        Raises:
            ModelRequestError: it is an error.
        """
        data = _mapping(chunk)
        if data.get("error"):
            raise _without_choices(data, server)
        self._body.update({key: data[key] for key in ("model", "usage") if data.get(key)})
        choices = data.get("choices")
        if not isinstance(choices, list) or not choices:
            return ""
        choice = _mapping(cast("list[object]", choices)[0])
        if choice.get("finish_reason"):
            self.finished, self._finish_reason = True, str(choice["finish_reason"])
        delta = _mapping(choice.get("delta"))
        text, thought = _read_content(delta.get("content") or "")
        refusal = str(delta.get("refusal") or "")
        self._texts["content"].append(text)
        self._texts["refusal"].append(refusal)
        self._texts["reasoning_content"].append(
            thought or str(delta.get("reasoning_content") or delta.get("reasoning") or "")
        )
        calls = delta.get("tool_calls")
        for each in cast("list[object]", calls) if isinstance(calls, list) else []:
            self._add_call(_mapping(each))
        return text or refusal

    def _add_call(self, said: Mapping[str, Any]) -> None:
        function = _mapping(said.get("function"))
        index, identity, name = said.get("index"), said.get("id"), function.get("name")
        at = self._at_index.get(index)
        # Some servers leave the index out, or give every call the same: then a new id with a name begins a call.
        known = self._calls[at]["id"] if at is not None else ""
        if at is None or (identity and name and identity != known):
            at = self._at_index[index] = len(self._calls)
            self._calls.append({"id": identity or "", "function": {"name": name or "", "arguments": ""}})
            self._arguments.append([])
        elif identity and not known:
            self._calls[at]["id"] = identity
        given = function.get("arguments")
        if isinstance(given, Mapping):
            given = json.dumps(given, ensure_ascii=False)
        self._arguments[at].append(str(given or ""))

    def body(self) -> dict[str, Any]:
        """Return the whole response, as if it had not been streamed."""
        message: dict[str, Any] = {key: "".join(pieces) for key, pieces in self._texts.items()}
        for call, pieces in zip(self._calls, self._arguments, strict=True):
            call["function"]["arguments"] = "".join(pieces)
        message["tool_calls"] = self._calls
        return {**self._body, "choices": [{"message": message, "finish_reason": self._finish_reason}]}
