"""The JSON schemas of answers: what a log says of a type that only the code of a node knows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from operator import ge, gt, le, lt
from typing import TYPE_CHECKING, Any, cast

from graphagent._article import counted

if TYPE_CHECKING:
    from graphagent.log._state import QuestionKind

_PLAIN: Mapping[str, Any] = {
    "string": str,
    "integer": int,
    "number": int | float,
    "boolean": bool,
    "null": type(None),
    "object": dict,
    "array": list,
}
_LIMITS: Any = (
    ("minimum", (int, float), ge, "must be at least", ""),
    ("maximum", (int, float), le, "must be at most", ""),
    ("exclusiveMinimum", (int, float), gt, "must be more than", ""),
    ("exclusiveMaximum", (int, float), lt, "must be less than", ""),
    ("minLength", (str,), ge, "must have at least", "character"),
    ("maxLength", (str,), le, "must have at most", "character"),
    ("minItems", (list,), ge, "must have at least", "item"),
    ("maxItems", (list,), le, "must have at most", "item"),
)
"""Of a JSON schema: the name of a limit, which values it is for, the relation to it, and the message where that does not hold."""


def schema_of(kind: QuestionKind, type_: Any) -> dict[str, Any]:
    """Return the JSON schema of an answer; empty where anything may be answered, or the type has none."""
    if kind in ("approval", "in_flight"):
        return {"type": "boolean"}
    if kind == "result" or type_ in (None, Any, object):
        return {}
    from pydantic import PydanticUserError, TypeAdapter

    try:
        return TypeAdapter(type_).json_schema()
    except PydanticUserError:
        return {}


def misfits(value: Any, schema: Mapping[str, Any], known: Mapping[str, Any], place: str = "") -> Iterator[str]:
    """Yield each place where JSON data has not the form of a JSON schema, whose references are to `known` ones, and what must be there.

    Formats, patterns and multiples are not looked at.
    """
    if "$ref" in schema:
        yield from misfits(value, known.get(schema["$ref"].rpartition("/")[2], {}), known, place)
        return
    choices, kind = schema.get("anyOf", schema.get("oneOf")), schema.get("type")
    values = [schema["const"]] if "const" in schema else schema.get("enum")
    wanted = ""
    if choices is not None:
        if all(any(misfits(value, each, known)) for each in choices):
            wanted = "has none of the forms that may be answered"
    elif values is not None:
        if not any(type(value) is type(each) and value == each for each in values):
            wanted = f"must be {' or '.join(map(repr, values))}"
    elif kind == "object" and isinstance(value, dict):
        yield from _of_fields(cast("Mapping[str, Any]", value), schema, known, f"{place}." if place else "")
    elif kind == "array" and isinstance(value, list):
        yield from _of_items(cast("Sequence[Any]", value), schema, known, f"{place}." if place else "")
    elif isinstance(value, bool) and kind in _PLAIN:  # which is an int to Python
        wanted = "" if kind == "boolean" else f"must be of type {kind}"
    elif isinstance(kind, str) and not isinstance(value, _PLAIN.get(kind, object)):
        wanted = f"must be of type {kind}"
    if wanted := wanted or _beyond(value, schema):
        yield f"{place or 'all of it'}: {wanted}"


def _beyond(value: Any, schema: Mapping[str, Any]) -> str:
    """Return which limit a number, the length of a text or that of a list is beyond; empty if none."""
    for name, kinds, holds, said, what in _LIMITS:
        limit = schema.get(name)
        if type(value) in kinds and isinstance(limit, int | float) and not holds(len(value) if what else value, limit):
            return f"{said} {counted(limit, what) if what else limit}"
    return ""


def _of_fields(
    value: Mapping[str, Any], schema: Mapping[str, Any], known: Mapping[str, Any], under: str
) -> Iterator[str]:
    fields, others = schema.get("properties", {}), schema.get("additionalProperties", True)
    yield from (f"{under}{name}: is missing" for name in schema.get("required", ()) if name not in value)
    for name, each in value.items():
        if name in fields or others is not False:
            yield from misfits(each, fields.get(name, {} if others is True else others), known, f"{under}{name}")
        else:
            yield f"{under}{name}: is not asked for"


def _of_items(value: Sequence[Any], schema: Mapping[str, Any], known: Mapping[str, Any], under: str) -> Iterator[str]:
    first = schema.get("prefixItems", [])
    kinds = first + [schema.get("items", {})] * (len(value) - len(first))
    for number, (each, kind) in enumerate(zip(value, kinds, strict=False)):
        yield from misfits(each, kind, known, f"{under}{number}")
