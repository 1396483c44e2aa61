"""Tools of MCP servers: their descriptions checked, and their results as the model sees them."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache, reduce
from operator import getitem
from typing import TYPE_CHECKING, Any, cast

from jsonschema import SchemaError, ValidationError  # type: ignore[import-untyped]  # the package has no types
from jsonschema.validators import extend, validator_for  # type: ignore[import-untyped]
from mcp_types import AudioContent, BlobResourceContents, ImageContent, ResourceLink, TextContent
from pydantic_core import PydanticSerializationError, to_json
from referencing import Registry
from referencing.exceptions import Unresolvable

from graphagent.errors import ArgumentsError, ToolServerError
from graphagent.llm import Image, Tool, ToolResult
from graphagent.llm._images import image_of

if TYPE_CHECKING:
    from mcp_types import CallToolResult, ContentBlock

_LONGEST = 200
_MOST_CHECKERS = 1_000


@dataclass(frozen=True, eq=False)
class MCPTool(Tool):
    """A tool of an MCP server."""

    server: str = field(kw_only=True)
    """The name of the server."""
    called: str = field(kw_only=True)
    """Its name on the server."""
    annotations: Mapping[str, Any] = field(kw_only=True, repr=False)
    """The server's statements about its effects, such as `readOnlyHint`. Nothing guarantees that this is true."""
    validator: Any = field(kw_only=True, repr=False)
    """Checks arguments by the schema."""
    holds: Callable[[Any], bool] = field(kw_only=True, repr=False)

    def is_held(self, context: Any) -> bool:
        """Return whether a call waits in this process for the answer to a question of the server."""
        return self.holds(context)

    def check(self, arguments: Mapping[str, Any]) -> None:
        """Check that arguments fit the schema of the server, and can be sent."""
        self._fitted(arguments)

    async def call(self, arguments: Mapping[str, Any], context: Any = None) -> Any:
        """Check the arguments, and call the tool of the server, again where `retry` says so.

        Raises:
            ToolServerError: the connection ended, or the answer is not valid.
        """
        return await super().call(self._fitted(arguments), context)

    def _fitted(self, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return arguments as the server takes them: without the nulls that models write for omitted values."""
        try:
            # Half a surrogate pair, such as a model makes of a cut emoji, would end the connection of all calls.
            to_json(arguments)
        except PydanticSerializationError:
            raise ArgumentsError(self.name, ["all of it: is not JSON"]) from None
        errors = mismatches(self.validator, dict(arguments))
        if not errors:
            return arguments
        fitted = deepcopy(dict(arguments))
        for path in (error.absolute_path for error in errors if error.instance is None and error.absolute_path):
            *above, last = path
            holder: Any = reduce(getitem, above, fitted)
            if isinstance(holder, dict):
                cast("dict[str, Any]", holder).pop(last, None)
        if mismatches(self.validator, fitted):  # the null value is required
            raise ArgumentsError(self.name, [problem_of(error) for error in errors])
        return fitted


def mismatches(validator: Any, value: object) -> list[Any]:
    """Return the errors of a value, by the validator of a schema; an empty list if only the server knows the meaning of the schema."""
    try:
        return list(validator.iter_errors(value))
    except (Unresolvable, RecursionError):  # it refers to elsewhere, or to itself
        return []


def problem_of(error: Any) -> str:
    """Return the place and the reason of a mismatch, without the value."""
    place = ".".join(map(str, error.absolute_path)) or "all of it"
    if error.validator in ("required", "additionalProperties"):  # these name properties alone
        return f"{place}: {error.message[:_LONGEST]}"
    return f"{place}: does not fit {error.validator} {json.dumps(error.validator_value)[:_LONGEST]}"


def can_be_called(described: Mapping[str, Any]) -> bool:
    """Return whether a tool can be called at all: it has a name, and does not demand a task, which clients of one call do not make."""
    return bool(described["name"]) and described.get("execution", {}).get("taskSupport") != "required"


def called_as(server: str, name: str, *, prefix: str, rename: Mapping[str, str]) -> str:
    """Return the name by which a model calls a tool of a server.

    Raises:
        ToolServerError: it cannot be called by any such name.
    """
    # The protocol allows points and slashes, and servers of models refuse them.
    found = prefix + rename.get(name, re.sub(r"[./]", "_", name))
    if not re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", found):
        short = f"{found[:80]} …" if len(found) > 80 else found
        reason = f"has a tool {short!r}, and models call tools by 1 to 64 letters, digits, '_' and '-'; give it another name by rename={{…: …}}, or leave it out by only=[…]"
        raise ToolServerError(server, reason)
    return found


def checkers() -> Callable[[Mapping[str, Any]], Any]:
    """Return a `checker_of` that makes its result once for each schema, which takes some milliseconds."""

    @lru_cache(maxsize=_MOST_CHECKERS)
    def made(text: str) -> Any:
        return checker_of(json.loads(text))

    return lambda schema: made(json.dumps(schema))


def validator_of(
    server: str, name: str, schema: Mapping[str, Any], checker_of: Callable[[Mapping[str, Any]], Any]
) -> Any:
    """Return a validator of arguments by the schema of a tool.

    Raises:
        ToolServerError: The schema is not a JSON schema.
    """
    try:
        return checker_of(schema)
    except SchemaError as error:
        where = "/".join(map(str, error.absolute_path))[:_LONGEST]
        reason = (
            f"has a tool {name!r} whose input schema is not a valid JSON schema, at {where!r}; leave it out by only=[…]"
        )
        raise ToolServerError(server, reason) from None


def checker_of(schema: Mapping[str, Any]) -> Any:
    """Return a validator of values by a schema, except for the parts that depend on patterns.

    Raises:
        SchemaError: The schema is not a JSON schema.
    """
    kind: Any = validator_for(schema)
    with suppress(RecursionError):  # deeper than Python can look
        kind.check_schema(schema, format_checker=None)  # which would try to read the patterns

    def others(validator: Any, allowed: Any, instance: Any, schema: Mapping[str, Any]) -> Iterator[Any]:
        if "patternProperties" not in schema:
            yield from kind.VALIDATORS["additionalProperties"](validator, allowed, instance, schema)

    # Patterns are those of ECMA-262, which mean other things to Python, and may take it hours: the server checks them.
    unchecked = dict.fromkeys(("pattern", "patternProperties", "unevaluatedProperties"), _nothing)
    lenient = cast("Any", extend(kind, {**unchecked, "additionalProperties": others, "multipleOf": _multiple}))
    # With a registry of its own, no schema is ever fetched from elsewhere; and a part that names its version is of another class.
    return lenient({key: each for key, each in schema.items() if key != "$schema"}, registry=Registry[Any]())


def fits_output(
    result: CallToolResult, schema: Mapping[str, Any], checker_of: Callable[[Mapping[str, Any]], Any]
) -> bool:
    """Return whether the structured content of a result fits the schema of its tool, as far as that can be checked."""
    if result.is_error:
        return True
    try:
        checker = checker_of(schema)
    except SchemaError:
        return True
    return "structured_content" in result.model_fields_set and not mismatches(checker, result.structured_content)


def _nothing(*_: Any) -> Iterator[Any]:
    yield from ()


def _multiple(validator: Any, step: Any, instance: Any, schema: Mapping[str, Any]) -> Iterator[Any]:
    """Yield an error where a number is not a multiple, as both are written: jsonschema 4.26 divides floats, so 19.99 is none of 0.01."""
    if validator.is_type(instance, "number") and not _is_multiple(instance, step):
        yield ValidationError("it is not a multiple")


def _is_multiple(number: float, step: float) -> bool:
    try:
        return (Fraction(str(number)) / Fraction(str(step))).denominator == 1
    except ValueError:  # infinity
        return False


def result_of(result: CallToolResult) -> ToolResult:
    """Return the result of a call: text and images for the model, and the structured content, if there is any, as its value."""
    structured = result.structured_content
    shown = [each for each in map(_shown, result.content) if each]
    images = tuple(each for each in shown if isinstance(each, Image))
    # The content of a result is its structured content for readers, so the model is not shown both.
    if not shown and structured is not None:
        shown = [json.dumps(structured, ensure_ascii=False)]
    content = "\n".join(each for each in shown if isinstance(each, str))
    value: Any = structured if structured is not None else [content, *images] if images else content
    content = content or ("(an image)" if len(images) == 1 else f"({len(images)} images)" if images else "")
    if result.is_error:
        content = f"Error: {content or 'the tool failed, and its server does not say why'}"
    return ToolResult("", "", content, result.is_error, images, value)


def _shown(block: ContentBlock) -> str | Image:
    if isinstance(block, TextContent):
        return block.text
    if isinstance(block, ResourceLink):
        return f"{block.title or block.name}: {block.uri}"
    if isinstance(block, AudioContent):
        return f"(a sound, {block.mime_type}, which is not shown)"
    if isinstance(block, ImageContent):
        return _image(block.data, f"an image, {block.mime_type}", "")
    inside = block.resource
    if isinstance(inside, BlobResourceContents):
        return _image(inside.blob, f"a file, {inside.mime_type or 'of unknown type'}", f": {inside.uri}")
    return inside.text


def _image(encoded: str, what: str, where: str) -> str | Image:
    """Return an image as models take it; of anything else, a text that names it, since no model could be sent the result."""
    try:
        return image_of(base64.b64decode("".join(encoded.split()), validate=True))
    except ValueError:  # not base64, or of another kind
        return f"({what}, which is not shown{where})"
