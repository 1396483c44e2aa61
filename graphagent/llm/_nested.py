"""Arrays and objects that a model wrote as a text with JSON in it: they are read where a schema demands one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, cast

from graphagent.llm._json_text import read_answer

Schema = Mapping[str, Any]
_KINDS: Mapping[type, str] = {list: "array", dict: "object"}
_MOST = 50
"""The number of schemas that are looked at for one value: references may lead to each other."""


def unnested(value: Any, schema: Schema, root: Schema | None = None) -> Any:
    """Return a JSON value in which each text is read as JSON, where the schema demands an array or an object and the text is one.

    Args:
        value: The value.
        schema: Its schema.
        root: The schema to which references refer; by default this one.
    """
    root = schema if root is None else root
    parts = list(_parts(schema, root))
    if isinstance(value, str):
        value = _read(value, {kind for part in parts for kind in _kinds(part)})
    if isinstance(value, dict):
        # Where several kinds of objects are possible, nothing is known of their properties.
        objects = [part for part in parts if "object" in _kinds(part)]
        if len(objects) == 1:
            return _each_property(cast("dict[str, Any]", value), objects[0], root)
    elif isinstance(value, list):
        arrays = [part for part in parts if "array" in _kinds(part)]
        items = arrays[0].get("items") if len(arrays) == 1 else None
        if isinstance(items, Mapping):
            return [unnested(each, cast("Schema", items), root) for each in cast("list[object]", value)]
    return cast("object", value)


def _each_property(value: dict[str, Any], schema: Schema, root: Schema) -> dict[str, Any]:
    properties, others = schema.get("properties"), schema.get("additionalProperties")
    known: Schema = cast("Schema", properties) if isinstance(properties, Mapping) else {}
    found = {name: known.get(name, others) for name in value}
    return {
        name: unnested(each, cast("Schema", found[name]), root) if isinstance(found[name], Mapping) else each
        for name, each in value.items()
    }


def _read(text: str, kinds: set[str]) -> Any:
    """Return the array or the object that a text is, if one of these kinds is demanded; else the text."""
    if "string" in kinds or not kinds & {"array", "object"}:
        return text
    try:
        value: object = read_answer(text.strip())
    except ValueError:
        return text
    return value if _KINDS.get(type(value)) in kinds else text


def _kinds(schema: Schema) -> set[str]:
    """Return the types that a schema allows; where it does not say, also a string."""
    kinds = schema.get("type", "string")
    return {kinds} if isinstance(kinds, str) else set(cast("list[str]", kinds))


def _parts(schema: Schema, root: Schema) -> Iterator[Schema]:
    """Yield the schemas of which a value fits one, without references."""
    waiting: list[object] = [schema]
    for _ in range(_MOST):
        if not waiting:
            return
        part = waiting.pop()
        if not isinstance(part, Mapping):
            yield {}
            continue
        known = cast("Schema", part)
        others = (
            known.get("anyOf") or known.get("oneOf") or ([_target(known["$ref"], root)] if "$ref" in known else None)
        )
        if isinstance(others, list):
            waiting += cast("list[object]", others)
        else:
            yield known


def _target(reference: object, root: Schema) -> object:
    """Return the schema to which a reference refers; None if it is none of this document."""
    found: object = root
    for name in str(reference).removeprefix("#/").split("/"):
        found = cast("dict[str, object]", found).get(name) if isinstance(found, dict) else None
    return found
