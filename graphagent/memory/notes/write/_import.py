"""Notes from elsewhere: what is not a whole note in every part is refused, before anything is kept."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, cast

from graphagent import _clock
from graphagent.errors import NoteError
from graphagent.memory import TRUST_LEVELS
from graphagent.memory.notes._scopes import ROOT, path_of
from graphagent.memory.notes._types import Record
from graphagent.memory.notes.index import _chunks, _storage
from graphagent.memory.notes.index._storage import moment

_KNOWN = {"type", "history", *(each.name for each in fields(Record))}
_TEXT: Callable[[Any], bool] = lambda value: isinstance(value, str)
_FIT: dict[str, tuple[Callable[[Any], bool], str]] = {
    **dict.fromkeys(("owner", "scope", "source", "run_id", "session", "speaker", "role"), (_TEXT, "a text")),
    **dict.fromkeys(("created_at", "updated_at", "at"), (_TEXT, "a time such as '2026-01-31T12:00:00+00:00'")),
    "id": (lambda value: isinstance(value, str) and value != "", "a text"),
    "trust": (lambda value: value in TRUST_LEVELS, f"one of {', '.join(map(repr, TRUST_LEVELS))}"),
    "categories": (lambda value: _is_list(value, str), "a list of texts"),
    "importance": (lambda value: type(value) in (int, float) and 0 <= value <= 1, "a number from 0 to 1"),
    "private": (lambda value: isinstance(value, bool), "true or false"),
    "place": (lambda value: type(value) is int and value >= 0, "a number from 0 on"),
    "metadata": (lambda value: isinstance(value, dict), "a JSON object"),
    "history": (lambda value: _is_list(value, dict), "a list of objects"),
}
"""What the parts of a note have to be."""


def _is_list(value: list[Any] | None, kind: type) -> bool:
    return isinstance(value, list) and all(isinstance(each, kind) for each in value)


@dataclass(frozen=True, slots=True)
class Imported:
    """A note with what it was."""

    record: Record
    past: tuple[tuple[Record, str], ...] = ()
    """What it was before each change, the first first, with what was done then."""
    place: str = field(default="", compare=False)
    """Where it stands, such as `line 3`."""


def _as_named(owner: str) -> str:
    return owner


class Collected:
    """Notes of plain JSON data, checked, by their owners and ids.

    Args:
        whose: Gives whose a note is to be of the owner that it names, which is empty where it names none. Left out: as it says.
    """

    def __init__(self, whose: Callable[[str], str] = _as_named) -> None:
        self.notes: dict[tuple[str, str], Imported] = {}
        self._whose = whose
        self._now = moment(_clock.now()).isoformat()

    def add(self, place: str, data: Mapping[str, Any]) -> None:
        """Add a note, and where it stands, such as `line 3`.

        Raises:
            ValueError: it is no note; or one of its owner and id is there, and differs.
        """
        try:
            each = self._imported(place, data)
        except (ValueError, NoteError) as error:
            raise ValueError(f"{place} is no note: {error}") from None
        key = (each.record.owner, each.record.id)
        if (first := self.notes.setdefault(key, each)) != each:
            raise ValueError(f"{place} has the id of {first.place}, {each.record.id!r}, but is not the same note")

    def _imported(self, place: str, data: Mapping[str, Any]) -> Imported:
        record = _record(data, self._whose, self._now)
        past: list[tuple[Record, str]] = []
        for old in reversed(data.get("history", [])):
            if not isinstance(old.get("action"), str):
                raise ValueError("its history does not say what was done")  # noqa: TRY004 (it is what was given that is wrong)
            before = _record(old.get("record"), lambda named: self._whose(named) if named else record.owner, self._now)
            if (before.id, before.owner) != (record.id, record.owner):
                raise ValueError("its history is that of another note")
            past.append((before, old["action"]))
        return Imported(record, tuple(past), place)


def _record(data: Any, whose: Callable[[str], str], now: str) -> Record:
    """Give the record of plain JSON data, with the time there is now where it lacks one."""
    if not isinstance(data, Mapping):
        reads = "; from_export(text) reads what stands in a file" if isinstance(data, str | bytes) else ""
        raise ValueError(f"it is no JSON object{reads}")  # noqa: TRY004 (it is what was given that is wrong)
    given: dict[str, Any] = dict(cast("Mapping[str, Any]", data))
    if unknown := sorted(map(str, given.keys() - _KNOWN)):
        raise ValueError(f"no note has {', '.join(map(repr, unknown))}; what has no place belongs into its metadata")
    if missing := [name for name in ("id", "content") if name not in given]:
        raise ValueError(f"it lacks {' and '.join(map(repr, missing))}")
    for name, (fits, what) in _FIT.items():
        if name in given and not fits(given[name]):
            raise ValueError(f"its {name} has to be {what}")
    if given.get("type", "note") != "note":
        raise ValueError(f"it is a {given['type']!r}")
    _chunks.checked(given["content"])
    given["scope"] = path_of(given.get("scope", ROOT))
    given["importance"] = float(given.get("importance", 0.5))
    given.setdefault("created_at", now)
    given.setdefault("updated_at", given["created_at"])
    given["metadata"] = _storage.plain(given.get("metadata", {}))
    record = _storage.from_json(given, _storage.name("owner", whose(given.get("owner", ""))))
    _storage.pack(record)
    return record
