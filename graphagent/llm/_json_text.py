"""JSON texts as models and servers write them: whole, incomplete, or nested in a text where a schema demands JSON."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, cast

_LARGE = re.compile(r"[0-9][eE]\+?[0-9]|[0-9]{300}")
"""Matches a JSON text with a number that is too large for a float."""
_HUGE = re.compile(rb"[0-9]{309}")
"""Matches JSON with an integer that is too large for a float."""


_ESCAPE = re.compile(
    r"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|u[dD][89a-fA-F][0-9a-fA-F]{2}|.)", re.DOTALL
)
"""An escape in a JSON string: a surrogate pair, half a pair, or another one."""
_HALF = len(r"\udfff")


def read_json(text: str, **options: Any) -> Any:
    """Read JSON of any size and depth: integers are exact, and a text that no sane server sends is refused quickly.

    A number that is too large for a float is infinity. The options are those of pydantic's `from_json`.

    Raises:
        ValueError: it is not JSON, holds NaN or Infinity, or is nested more than about 200 deep.
    """
    from pydantic_core import from_json

    try:
        return from_json(text, allow_inf_nan=False, **options)
    except TypeError:  # raised by pydantic for half a surrogate pair
        raise ValueError("it holds half a surrogate pair") from None


def read_answer(text: str, **options: Any) -> Any:
    """Read JSON that a model wrote: as `read_json`, with numbers that JSON can write again, and U+FFFD for half a surrogate pair.

    Raises:
        ValueError: as `read_json`, or a number is too large for a float.
    """
    try:
        value = read_json(text, **options)
    except ValueError:
        whole = _ESCAPE.sub(lambda found: r"\ufffd" if len(found[0]) == _HALF else found[0], text)
        if options or whole == text:  # the other half of one at the end may be still to come
            raise
        value = read_json(whole)
    if may_overflow(text) and _has_infinity(value):
        raise ValueError("it contains a number that is too large for a float")
    return value


def may_overflow(text: str) -> bool:
    """Return whether a number in a JSON text may be too large for a float."""
    return _LARGE.search(text) is not None


def check_finite(sent: bytes, made: object, dump: Callable[[Any], Any]) -> None:
    """Check that no integer became infinity where a type demands a float.

    Args:
        sent: The JSON that was validated.
        made: The value that was made of it.
        dump: Returns the plain data of such a value.

    Raises:
        OverflowError: one did.
    """
    if _HUGE.search(sent) and _has_infinity(dump(made)):
        raise OverflowError("it contains a number that is too large for a float")


def _has_infinity(value: object) -> bool:
    if isinstance(value, float):
        return not math.isfinite(value)
    if isinstance(value, dict):
        value = list(cast("dict[object, object]", value).values())
    return isinstance(value, list | tuple | set | frozenset) and any(map(_has_infinity, cast("list[object]", value)))


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
