"""Requests and responses as JSON that a person can read, for caches and for recordings of tests."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable, Mapping
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any, cast

import orjson

from graphagent._details import Usage
from graphagent.errors import SerializationError
from graphagent.llm._images import Image
from graphagent.llm._messages import (
    PART_KINDS,
    Message,
    ModelRequest,
    ModelResponse,
    Part,
    ProviderData,
    Text,
    ToolResult,
    part_fields,
)

if TYPE_CHECKING:
    from graphagent.protocols import Model

Json = Any
_SECRET = frozenset(("api_key", "authorization", "headers", "extra_headers"))
"""Parameters that are never written."""
_STRICT = orjson.OPT_PASSTHROUGH_DATACLASS | orjson.OPT_PASSTHROUGH_DATETIME | orjson.OPT_PASSTHROUGH_SUBCLASS
"""Refuse the same values as the standard library's json."""
_NOTHING = Usage()
_COUNTS = ("input_tokens", "output_tokens", "cached_tokens", "reasoning_tokens")


def request_json(request: ModelRequest) -> dict[str, Json]:
    """Return all parts of a request that a model sees, as JSON data; empty parts are left out.

    Images and data of providers are named by their hash. Ids of tool calls are numbers in the order of the calls: they differ from
    run to run, and mean nothing else.
    """
    ids: dict[str, int] = {}
    found: dict[str, Json] = {
        "messages": [
            {"role": message.role, "parts": [_sent(part, ids) for part in message.parts]}
            for message in request.messages
        ]
    }
    if request.tools:
        found["tools"] = [
            {"name": each.name, "description": each.description, "parameters": each.parameters}
            for each in request.tools
        ]
        found["tool_choice"] = request.tool_choice
    if request.output is not None:
        output = request.output
        found["output"] = {"name": output.name, "schema": output.schema, "strict": output.strict}
    if request.parameters and (parameters := _without_secrets(request.parameters)):
        found["parameters"] = parameters
    return found


def model_json(model: Model) -> Json:
    """Return the properties that determine a model's answers: name, server and own parameters. For a wrapper, those of the models in it."""
    inner: Any = getattr(model, "models", None)
    if isinstance(inner, tuple):
        return [model_json(each) for each in cast("tuple[Model, ...]", inner)]
    inner = getattr(model, "model", None)
    if callable(getattr(inner, "respond", None)):
        return model_json(inner)
    given = getattr(model, "parameters", None)
    parameters = _without_secrets(cast("Mapping[str, Any]", given)) if isinstance(given, Mapping) else {}
    return {"name": model.name, "base_url": str(getattr(model, "base_url", "")), "parameters": parameters}


def response_json(response: ModelResponse) -> dict[str, Json]:
    """Return a response as JSON data, without loss except for the failures that it reports."""
    usage = response.usage
    spent = {name: getattr(usage, name) for name in _COUNTS if getattr(usage, name)}
    if usage.cost:
        spent["cost"] = str(usage.cost)
    return {
        "model": response.model,
        "parts": [_said(part) for part in response.message.parts],
        "finish_reason": response.finish_reason,
        "usage": spent,
    }


def read_response(data: Json) -> ModelResponse:
    """Return the response of data that `response_json` returned.

    Raises:
        ValueError: the data is something else.
    """
    try:
        parts = tuple([_read(part) for part in data["parts"]])
        return ModelResponse(
            Message("assistant", parts), _usage(data["usage"]), _text(data["finish_reason"]), _text(data["model"])
        )
    except (KeyError, TypeError, AttributeError, InvalidOperation) as error:
        raise ValueError(f"not a model response ({type(error).__name__})") from None


def dumps(data: Json, *, indent: int | None = None) -> bytes:
    """Return JSON data as UTF-8. Half a surrogate pair, which UTF-8 cannot express, makes all of it ASCII."""
    separators = None if indent else (",", ":")
    try:
        text = json.dumps(data, ensure_ascii=False, indent=indent, separators=separators, default=_plain)
        try:
            return text.encode()
        except UnicodeEncodeError:
            return json.dumps(data, indent=indent, separators=separators, default=_plain).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise SerializationError(
            f"a request with a value that is not JSON cannot be stored or compared: {error}"
        ) from None


def digest_of(*parts: Json) -> str:
    """Return the SHA-256 of JSON data, in hexadecimal digits."""
    try:
        content = orjson.dumps(parts, _plain, _STRICT)
    except TypeError:  # half a surrogate pair, or a number of more than 64 bits
        content = dumps(parts)
    return hashlib.sha256(content).hexdigest()


def _plain(value: object) -> Json:
    if isinstance(value, Mapping):
        return dict(cast("Mapping[str, Any]", value))
    raise TypeError(f"an object of type {type(value).__name__} is not JSON")


def _without_secrets(parameters: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in parameters.items() if name.lower() not in _SECRET}


def _digest(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def _sent(part: Part, ids: dict[str, int]) -> Json:
    """Return a part of a request."""

    def plain(name: str, value: Any) -> Json:
        if name in ("id", "call_id"):
            return ids.setdefault(value, len(ids) + 1)
        if name == "images":
            return [_sent(each, ids) for each in value]
        if isinstance(value, ProviderData):
            return {"family": value.family, "data": _digest(dumps(value.data))}
        return _digest(value) if isinstance(value, bytes) else value

    found = {name: plain(name, value) for name, value in part_fields(part).items()}
    if "data" in found:  # a server is not sent the address of an image besides its data
        found.pop("url", None)
    return _short(found)


def _said(part: Part) -> Json:
    """Return a part of a response, as `_read` reads it."""
    if isinstance(part, ToolResult):
        raise SerializationError("a response that contains the result of a tool cannot be stored")

    def plain(value: Any) -> Json:
        if isinstance(value, ProviderData):
            return {"family": value.family, "data": dict(value.data)}
        return base64.b64encode(value).decode() if isinstance(value, bytes) else value

    return _short({name: plain(value) for name, value in part_fields(part).items()})


def _short(found: dict[str, Json]) -> Json:
    """Return the JSON of a part, for plain text as a string."""
    return found["text"] if found.keys() == {"type", "text"} and found["type"] == "text" else found


def _read(data: Json) -> Part:
    if isinstance(data, str):
        return Text(data)
    values = {name: _read_field(name, value) for name, value in data.items() if name != "type"}
    make: Callable[..., Part] = PART_KINDS[data["type"]]
    return make(**values) if make is not Image else Image.restored(**values)


def _read_field(name: str, value: Json) -> Any:
    if name == "arguments":
        return value
    if name == "data":
        return base64.b64decode(value, validate=True)
    if name == "provider":
        if not isinstance(value["data"], dict):
            raise TypeError("data of a provider must be an object")
        return ProviderData(_text(value["family"]), value["data"])
    return _text(value)


def _usage(data: dict[str, Json]) -> Usage:
    if not data:
        return _NOTHING
    counts = [data.get(name, 0) for name in _COUNTS]
    if not all(type(each) is int for each in counts):
        raise TypeError("a token count must be an integer")
    sent, said, cached, reasoning = counts
    return Usage(sent, said, cached, reasoning, Decimal(data.get("cost", "0")))


def _text(value: Json) -> str:
    if not isinstance(value, str):
        raise TypeError("text is expected")
    return value
