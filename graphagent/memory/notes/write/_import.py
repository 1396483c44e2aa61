"""Importing notes from plain JSON data. All of it is checked before anything is saved."""

from __future__ import annotations

import os
from collections.abc import AsyncIterable, Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from datetime import datetime
from typing import TYPE_CHECKING, Any, cast

from graphagent import _clock
from graphagent._article import kind_of
from graphagent._concurrency import turn
from graphagent.errors import NoteError, NotePermissionError
from graphagent.memory._note_values import ROOT, FormerNote, Record
from graphagent.memory.facts._types import TRUST_LEVELS
from graphagent.memory.notes import _validation
from graphagent.memory.notes._scopes import path_of
from graphagent.memory.notes._validation import moment
from graphagent.memory.notes.index import _storage
from graphagent.memory.notes.write._export import COSTLY

if TYPE_CHECKING:
    from graphagent.memory.notes._visibility import Visibility
    from graphagent.memory.notes.index._repository import NoteRepository

_BATCH = 1000
"""After how many notes progress is reported."""
_NAMED = 5
"""How many owners an error names at most."""
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
"""For each field of a note, a check of its value, and a description of valid values."""


def _is_list(value: list[Any] | None, kind: type) -> bool:
    return isinstance(value, list) and all(isinstance(each, kind) for each in value)


async def import_notes(
    repository: NoteRepository,
    visibility: Visibility,
    records: Iterable[Mapping[str, Any]] | AsyncIterable[Mapping[str, Any]],
    on_progress: Callable[[int, int], object],
) -> int:
    """Save exported notes in one commit, all or none, and return how many were new. Those whose ids are known are skipped.

    Raises:
        ValueError: a record is not valid, or two have one id and differ.
        NoteError: a note is private and has no source.
    """
    visibility.check_writable()
    owner = visibility.owner
    collected = Collected(lambda named: named or owner)
    for number, data in enumerate(await _all_of(records), 1):
        await turn(number * COSTLY)
        collected.add(f"record {number}", data)
    found = list(collected.notes.values())
    _check_owner(owner, found)
    for number, each in enumerate(found, 1):
        await turn(number)
        _check_visible(visibility, each)
    retired = {record.id for record in await repository.retired(owner)}
    new: list[Imported] = []
    for start in range(0, len(found), _BATCH):
        if repository.embedder is None:  # with an embedder, progress counts the vectors, which take longest
            on_progress(start, len(found))
        batch = found[start : start + _BATCH]
        known_ids = await repository.get_many(owner, [each.record.id for each in batch])
        new += [each for each in batch if each.record.id not in retired and each.record.id not in known_ids]
    if new:
        known = len(found) - len(new)
        await repository.add(
            owner,
            [each.record for each in new],
            former={each.record.id: each.past for each in new},
            report=lambda done: on_progress(known + done, len(found)),
        )
    on_progress(len(found), len(found))
    return len(new)


async def _all_of(
    records: Iterable[Mapping[str, Any]] | AsyncIterable[Mapping[str, Any]],
) -> list[Mapping[str, Any]]:
    if isinstance(records, AsyncIterable):
        return [each async for each in records]
    if isinstance(records, str | bytes | os.PathLike | Mapping) or not isinstance(records, Iterable):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(
            f"import_ takes the records that export() gave, not {kind_of(cast('object', records))}; of a file, "
            f"graphagent.migrate.notes.from_export(text) gives them"
        )
    return list(records)


def _check_owner(owner: str, found: Iterable[Imported]) -> None:
    others = sorted({each.record.owner for each in found} - {owner})
    if others:
        named = ", ".join(map(repr, others[:_NAMED])) + (
            f" and {len(others) - _NAMED:,} more" if others[_NAMED:] else ""
        )
        raise NotePermissionError(
            f"there are records of {named}, and these notes are {f'those of {owner!r}' if owner else 'those of no owner'}; "
            f"nothing is imported. Import those of each owner with notes of their own, Notes(store, owner=…): by_owner(records) of "
            f"graphagent.migrate.notes sorts them. Or have all become one owner's: from_export(records, owner=…)"
        )


def _check_visible(visibility: Visibility, each: Imported) -> None:
    for record, when in ((each.record, ""), *((old, " in its history") for old, *_ in each.past)):
        if not visibility.holds(record.scope):
            raise NotePermissionError(
                f"{each.place} has{when} the scope {record.scope!r}, which is outside of this view, which has "
                f"{', '.join(visibility.within)}; nothing is imported. from_export(records, scope=…) puts all of them into a scope"
            )
        try:
            visibility.check_can_save(record)
        except NoteError as error:
            raise type(error)(f"{each.place}{when}: {error}; nothing is imported") from None


@dataclass(frozen=True, slots=True)
class Imported:
    """A note with its former versions."""

    record: Record
    past: tuple[FormerNote, ...] = ()
    """The first first."""
    place: str = field(default="", compare=False)
    """Where it was found, such as `line 3`."""


class Collected:
    """Notes made from plain JSON data, checked, by their owners and ids.

    Args:
        whose: Returns the owner of a note, given the owner that the data name, which is empty if they name none. By default that
            owner.
    """

    def __init__(self, whose: Callable[[str], str] = lambda named: named) -> None:
        self.notes: dict[tuple[str, str], Imported] = {}
        self._whose = whose
        self._now = moment(_clock.now()).isoformat()

    def add(self, place: str, data: Mapping[str, Any]) -> None:
        """Add a note, and where it was found, such as `line 3`.

        Raises:
            ValueError: the record is not a note, or another record has its owner and id.
        """
        try:
            each = self._imported(place, data)
        except (ValueError, NoteError) as error:
            raise ValueError(f"{place} is not a note: {error}") from None
        key = (each.record.owner, each.record.id)
        if (first := self.notes.setdefault(key, each)) != each:
            raise ValueError(f"{place} has the id of {first.place}, {each.record.id!r}, but is not the same note")

    def _imported(self, place: str, data: Mapping[str, Any]) -> Imported:
        record = _record(data, self._whose, self._now)
        former: list[FormerNote] = []
        for old in reversed(data.get("history", [])):
            if not isinstance(old.get("action"), str):
                raise ValueError("its history lacks the kind of a change")  # noqa: TRY004 (the data are wrong, not a type)
            before = _record(old.get("record"), lambda named: self._whose(named) if named else record.owner, self._now)
            if (before.id, before.owner) != (record.id, record.owner):
                raise ValueError("its history is that of another note")
            former.append(FormerNote(before, old["action"], _time_of(old.get("at"))))
        return Imported(record, tuple(former), place)


def _time_of(text: object) -> datetime | None:
    """Return when a change was made.

    Raises:
        ValueError: the data say something else.
    """
    at = datetime.fromisoformat(text) if isinstance(text, str) else None
    if text is not None and (at is None or at.utcoffset() is None):
        raise ValueError("its history does not say when it was changed, with a time zone")
    return at


def _record(data: Any, whose: Callable[[str], str], now: str) -> Record:
    """Return the record of plain JSON data. A time that is missing is `now`."""
    if not isinstance(data, Mapping):
        reads = "; from_export(text) reads the contents of a file" if isinstance(data, str | bytes) else ""
        raise ValueError(f"it is not a JSON object{reads}")  # noqa: TRY004 (the given text is wrong, not its type)
    given: dict[str, Any] = dict(cast("Mapping[str, Any]", data))
    if unknown := sorted(map(str, given.keys() - _KNOWN)):
        raise ValueError(f"no note has {', '.join(map(repr, unknown))}; further fields belong into its metadata")
    if missing := [name for name in ("id", "content") if name not in given]:
        raise ValueError(f"it lacks {' and '.join(map(repr, missing))}")
    for name, (fits, what) in _FIT.items():
        if name in given and not fits(given[name]):
            raise ValueError(f"its {name} has to be {what}")
    if given.get("type", "note") != "note":
        raise ValueError(f"it is a {given['type']!r}")
    _validation.content(given["content"])
    given["scope"] = path_of(given.get("scope", ROOT))
    given["importance"] = float(given.get("importance", 0.5))
    given.setdefault("created_at", now)
    given.setdefault("updated_at", given["created_at"])
    given["metadata"] = _validation.metadata(given.get("metadata", {}))
    record = _storage.from_json(given, _validation.name("owner", whose(given.get("owner", ""))))
    _storage.pack(record)  # refuses values that cannot be stored
    return record
