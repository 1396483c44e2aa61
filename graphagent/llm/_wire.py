"""Shared by both protocols of OpenAI: the choice of tools, texts and images, arguments of calls, numbers."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any, TypeVar, cast

from graphagent._details import MONEY
from graphagent.llm._families import is_openai, is_service
from graphagent.llm._images import Image
from graphagent.llm._json_text import read_answer
from graphagent.llm._messages import Part, Text, ToolCall, ToolResult

if TYPE_CHECKING:
    from collections.abc import Set as AbstractSet

    from graphagent.llm._endpoint import WireRequest
    from graphagent.llm._messages import ModelRequest
    from graphagent.llm._output import OutputFormat

T = TypeVar("T")

SCHEMA_REFUSALS = {
    "this schema": "invalid schema",
    "schema": r"response_format|text\.format|json_schema|structured.?output",
}
"""How servers refuse a format for the answer. One that refuses a single schema may accept the next."""
FORCE_REFUSALS = {"required": r"tool.?choice"}
"""How servers refuse to have a tool called."""
STRICT_REFUSALS = {"strict": r"\bstrict\b|schema for function|function_parameters|grammar|schema contains"}
"""How servers refuse to keep to the schema of a tool."""
_CHOICES = ("auto", "none", "required")
_MOST_TOKENS = 10**15
"""The largest number of tokens that is believed; JSON can express infinity."""
_LEAST_MONEY, _MOST_MONEY = Decimal("1e-12"), Decimal("1e15")
"""The amounts that are believed; digits beyond are artefacts of binary fractions."""


def offered(asked: WireRequest, left_out: AbstractSet[str]) -> ModelRequest:
    """Return a request as its server can be made to keep to the tool choice: one tool that must be called is offered alone.

    OpenAI keeps to the name of a tool. Others take it for `auto` in silence, as llama.cpp does, and do call one if that is
    `required`; those that refuse that word are sent the name.
    """
    request = asked.request
    tools = tuple(each for each in request.tools if each.name == request.tool_choice)
    if not tools or request.tool_choice in _CHOICES or is_openai(asked.host):
        return request
    return replace(request, tools=tools, tool_choice=request.tool_choice if "required" in left_out else "required")


def tool_refusals(asked: WireRequest) -> dict[str, str]:
    """Return the parts of a request that concern its tools and can be left out, each with a regular expression for a refusal of it."""
    request = asked.request
    if not request.tools or request.tool_choice in ("auto", "none"):
        return {}
    found = {} if is_service(asked.host) else dict(STRICT_REFUSALS)
    return found if request.tool_choice in _CHOICES or is_openai(asked.host) else found | FORCE_REFUSALS


def schema_instruction(output: OutputFormat[Any]) -> str:
    """Return the instruction for servers without support for JSON schemas."""
    schema = json.dumps(output.schema, ensure_ascii=False)
    return f"Answer with nothing but JSON that fits this schema: {schema}"


def attached(part: Part, family: str) -> Mapping[str, Any]:
    """Return the data that servers of a family attached to a part."""
    provider = None if isinstance(part, Image | ToolResult) else part.provider
    return provider.data if provider is not None and provider.family == family else {}


def content_of(parts: Iterable[Part], text: str, image: Callable[[str], dict[str, Any]]) -> str | list[dict[str, Any]]:
    """Return the JSON of texts and images: only text as a string, else a list.

    Args:
        parts: The parts of a message.
        text: The type of a text within the list.
        image: Return the JSON of an image, given its address, which for bytes is a `data:` URL.
    """
    parts = tuple(parts)
    if not any(isinstance(part, Image) for part in parts):
        return "".join(part.text for part in parts if isinstance(part, Text))
    return [
        image(_image_url(part)) if isinstance(part, Image) else {"type": text, "text": part.text}
        for part in parts
        if isinstance(part, Image | Text)
    ]


def _image_url(image: Image) -> str:
    """Return the address of an image, which for bytes is a `data:` URL."""
    return f"data:{image.media_type};base64,{base64.b64encode(image.data).decode()}" if image.data else image.url


def arguments_text(call: ToolCall) -> str:
    """Return the arguments of a call as JSON. Malformed ones are left out, and infinity, which JSON does not have, is a string.

    Some servers would refuse the whole history because of them, and the tool result reports them to the model.
    """
    try:
        return json.dumps(dict(call.arguments), ensure_ascii=False, allow_nan=False)
    except ValueError:  # recorded before such calls were malformed, or made by a model of the user
        from pydantic_core import to_json

        return to_json(dict(call.arguments), inf_nan_mode="strings").decode()


def read_arguments(given: object) -> tuple[dict[str, Any], str]:
    """Return the arguments of a call, and their text if it is not a JSON object. An object within a JSON string is one, too."""
    if isinstance(given, Mapping):  # not the protocol, but some servers
        given = json.dumps(dict(cast("Mapping[str, Any]", given)), ensure_ascii=False)
    text = str(given or "")
    if not text.strip():
        return {}, ""
    try:
        arguments = read_answer(text)
        if isinstance(arguments, str):
            arguments = read_answer(arguments)
    except ValueError:
        arguments = None
    return (cast("dict[str, Any]", arguments), "") if isinstance(arguments, dict) else ({}, text)


def money(value: object) -> Decimal:
    """Return an amount; 0 for anything else."""
    try:
        found = Decimal(str(value)) if isinstance(value, int | float | str) and value is not True else Decimal(0)
        is_amount = 0 < found < _MOST_MONEY
    except InvalidOperation:  # not a number
        return Decimal(0)
    return found.quantize(_LEAST_MONEY, context=MONEY).normalize(MONEY) if is_amount else Decimal(0)


def number(value: object) -> int:
    """Return a number of tokens; 0 for anything else."""
    return int(value) if isinstance(value, int | float) and 0 < value < _MOST_TOKENS else 0


def mapping(value: object) -> Mapping[str, Any]:
    """Return a JSON object; an empty one for anything else."""
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}


def paired(text: str) -> str:
    """Return a text in which the halves of surrogate pairs that came in two pieces are joined; a half alone becomes U+FFFD."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    return text


def unicode(value: T) -> T:
    """Return JSON in which each text is Unicode, as `paired` makes it: UTF-8 cannot encode anything else, so it could not be sent again."""
    given: Any = value
    if isinstance(given, str):
        given = paired(given)
    elif isinstance(given, dict):
        given = {paired(name): unicode(each) for name, each in cast("dict[str, object]", given).items()}
    elif isinstance(given, list):
        given = [unicode(each) for each in cast("list[object]", given)]
    return cast("T", given)
