"""The records in a file of another library, each with its position for errors."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn, cast

from graphagent._article import kind_of

Data = str | bytes | Mapping[str, Any] | Sequence[Mapping[str, Any]]
"""The text of a file, or the same data as parsed JSON."""
Numbered = list[tuple[str, dict[str, Any]]]
"""Records, each with its position, such as `line 3`."""
_MARKS: Mapping[str, tuple[set[str], ...]] = {
    "mem0": ({"memory"}, {"relationship"}),
    "mcp": ({"entityType"}, {"relationType"}),
    "crewai": ({"content", "last_accessed"}, {"content", "categories_str"}),
    "graphagent": ({"type", "content"},),
}
"""The fields by which a record is recognised: all of one of these sets."""


def origin_of(data: Data) -> str | None:
    """Guess from the first record which library wrote the data: `graphagent`, `crewai`, `mem0` or `mcp`; None if that cannot be told.

    Raises:
        TypeError: the data are neither text nor parsed JSON.
    """
    try:
        records = read(data, "results", "memories", "records", "entities", "relations")
    except ValueError:
        return None
    keys = records[0][1].keys() if records else set[str]()
    return next((origin for origin, marks in _MARKS.items() if any(mark <= keys for mark in marks)), None)


def read(data: Data, *lists: str, wanted: str = "") -> Numbered:
    """Return the records of JSON lines, of an array, or of an object that has them in lists with these names."""
    if isinstance(data, str | bytes):
        return _read_text(data, lists, wanted)
    if isinstance(data, Mapping) and not any(name in data for name in lists):
        return [("record 1", dict(data))]
    if not isinstance(data, Mapping | Sequence):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(
            f"this reads the text of a file, or the same as parsed JSON, not {kind_of(data)}; of a path, give "
            f"path.read_bytes()"
        )
    return _listed(data, lists, wanted)


def _read_text(text: str | bytes, lists: tuple[str, ...], wanted: str) -> Numbered:
    if isinstance(text, bytes):
        try:
            text = text.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            line = error.object[: error.start].count(b"\n") + 1
            raise ValueError(f"line {line} is not text in UTF-8") from None
    lines = [(number, line) for number, line in enumerate(text.split("\n"), 1) if line.strip()]
    if not lines:
        return []
    if len(lines) > 1 and _is_json(lines[0][1]):
        return [(f"line {number}", _object(f"line {number}", line)) for number, line in lines]
    try:
        whole = loaded(text)
    except ValueError as error:
        place = f"line {getattr(error, 'lineno', lines[0][0])}"
        raise ValueError(f"{place} is not JSON: {getattr(error, 'msg', error)}") from None
    if isinstance(whole, dict) and not any(name in whole for name in lists):
        return [(f"line {lines[0][0]}", cast("dict[str, Any]", whole))]
    return _listed(whole, lists, wanted)


def _is_json(line: str) -> bool:
    try:
        loaded(line)
    except ValueError:
        return False
    return True


def _listed(whole: Any, lists: tuple[str, ...], wanted: str) -> Numbered:
    parts: dict[str, Any] = {"line 1": whole}
    if isinstance(whole, Mapping):
        parts = {repr(name): whole[name] for name in lists if name in whole}
    records: list[Any] = []
    for name, part in parts.items():
        if not isinstance(part, list | tuple | None):
            raise ValueError(f"{name} does not begin an array of records{wanted and f'; {wanted}'}")  # noqa: TRY004  wrong data, not a wrong type of argument
        records += part or ()
    for number, each in enumerate(records, 1):
        if not isinstance(each, Mapping):
            raise ValueError(f"record {number} is not a JSON object")  # noqa: TRY004  wrong data, not a wrong type of argument
    return [(f"record {number}", dict(cast("Mapping[str, Any]", each))) for number, each in enumerate(records, 1)]


def _object(place: str, line: str) -> dict[str, Any]:
    try:
        data = loaded(line)
    except ValueError as error:
        raise ValueError(f"{place} is not JSON: {getattr(error, 'msg', error)}") from None
    if not isinstance(data, dict):
        raise ValueError(f"{place} is not a JSON object")  # noqa: TRY004  wrong data, not a wrong type of argument
    return cast("dict[str, Any]", data)


def loaded(text: Any) -> Any:
    """Return parsed JSON. Infinite numbers and NaN are refused."""
    try:
        return json.loads(text, parse_constant=_no_number)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _no_number(name: str) -> NoReturn:
    raise ValueError(f"JSON has no {name}")
