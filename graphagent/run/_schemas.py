"""The JSON schemas of answers: what a log says of a type that only the code of a node knows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from graphagent.log._internal import QuestionKind

_PLAIN: Mapping[str, Any] = {
    "string": str,
    "integer": int,
    "number": int | float,
    "boolean": bool,
    "null": type(None),
}


def schema_of(kind: QuestionKind, type_: Any) -> dict[str, Any]:
    """Return the JSON schema of an answer; empty where anything may be answered, or the type has none."""
    if kind in ("approval", "in_flight"):
        return {"anyOf": [{"type": "boolean"}, {"type": "string"}]}
    if kind == "result" or type_ in (None, Any, object):
        return {}
    from pydantic import PydanticUserError, TypeAdapter

    try:
        return TypeAdapter(type_).json_schema()
    except PydanticUserError:
        return {}


def fits_schema(value: Any, schema: Mapping[str, Any], known: Mapping[str, Any]) -> bool:
    """Return whether JSON data has the form of a JSON schema, whose references are to `known` ones.

    What a schema demands of texts and numbers, such as a format or a limit, is not looked at.
    """
    if "$ref" in schema:
        return fits_schema(value, known.get(schema["$ref"].rpartition("/")[2], {}), known)
    choices = schema.get("anyOf", schema.get("oneOf"))
    if choices is not None:
        return any(fits_schema(value, each, known) for each in choices)
    values = [schema["const"]] if "const" in schema else schema.get("enum")
    if values is not None:
        return any(type(value) is type(each) and value == each for each in values)
    kind = schema.get("type")
    if kind == "object":
        return isinstance(value, dict) and _fields_fit(cast("Mapping[str, Any]", value), schema, known)
    if kind == "array":
        return isinstance(value, list) and _items_fit(cast("Sequence[Any]", value), schema, known)
    if isinstance(value, bool) and kind in _PLAIN:  # which is an int to Python
        return kind == "boolean"
    return isinstance(value, _PLAIN.get(kind, object)) if isinstance(kind, str) else True


def _fields_fit(value: Mapping[str, Any], schema: Mapping[str, Any], known: Mapping[str, Any]) -> bool:
    fields, others = schema.get("properties", {}), schema.get("additionalProperties", True)
    if not value.keys() >= set(schema.get("required", ())) or (others is False and not value.keys() <= fields.keys()):
        return False
    rest: Any = {} if isinstance(others, bool) else others
    return all(fits_schema(each, fields.get(name, rest), known) for name, each in value.items())


def _items_fit(value: Sequence[Any], schema: Mapping[str, Any], known: Mapping[str, Any]) -> bool:
    first = schema.get("prefixItems", [])
    kinds = first + [schema.get("items", {})] * (len(value) - len(first))
    return len(value) >= len(first) and all(map(lambda each, kind: fits_schema(each, kind, known), value, kinds))
