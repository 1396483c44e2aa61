"""Records as bytes, and where they stand in a store.

`("notes", owner, 1, id)` is a note, `("notes", owner, 2, id, n)` how it was in its version n before it was changed or
consolidated away, `("notes", owner, 3, id)` what is still to be inferred of it, and `("notes", owner, 4, g, id)` the vectors of its
texts of the generation g, float32, the lowest byte first. `("notes", owner, 0, "changes")` is put with each change of what an owner
has, so its version counts them; `("notes", owner, 0, "embedder")` says who made the vectors, and which generation counts, and
`("notes", owner, 0, "generation", g)` is there as long as vectors may be added to the generation g. An
owner's notes are one domain of a sealed store.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from datetime import UTC, date, datetime, timedelta
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, cast

import orjson

from graphagent._article import a
from graphagent.errors import DamagedStoreError, NoteError
from graphagent.memory.notes._types import Record

if TYPE_CHECKING:
    from graphagent.store import Item, Key

ROOM = "notes"
STATE, NOTES, HISTORY, PENDING, VECTORS = range(5)
FORMAT = 1


def changes_key(owner: str) -> Key:
    """Give what is put with each change."""
    return (ROOM, owner, STATE, "changes")


def embedder_key(owner: str) -> Key:
    """Give where it stands who made the vectors."""
    return (ROOM, owner, STATE, "embedder")


def generation_key(owner: str, generation: int | None = None) -> Key:
    """Give what is there while vectors may be added to a generation, or the prefix of all of these."""
    prefix = (ROOM, owner, STATE, "generation")
    return prefix if generation is None else (*prefix, generation)


def session_key(owner: str, session: str) -> Key:
    """Give what is put with each turn of a conversation, without the name of it."""
    return (ROOM, owner, STATE, "session", hashlib.blake2b(session.encode(), digest_size=16).hexdigest())


def learned_key(owner: str, run_id: str) -> Key:
    """Give what is there when all was learned from a run that there was to learn."""
    return (ROOM, owner, STATE, "learned", run_id)


def note_key(owner: str, id_: str) -> Key:
    """Give where a note stands."""
    return (ROOM, owner, NOTES, id_)


def notes_key(owner: str) -> Key:
    """Give the prefix of an owner's notes."""
    return (ROOM, owner, NOTES)


def history_key(owner: str, id_: str) -> Key:
    """Give the prefix of what a note was."""
    return (ROOM, owner, HISTORY, id_)


def histories_key(owner: str) -> Key:
    """Give the prefix of what all notes were."""
    return (ROOM, owner, HISTORY)


def pending_key(owner: str, id_: str) -> Key:
    """Give where it stands what is to be inferred of a note."""
    return (ROOM, owner, PENDING, id_)


def vectors_key(owner: str, generation: int, id_: str | None = None) -> Key:
    """Give where the vectors of a note stand, or of all notes."""
    return (ROOM, owner, VECTORS, generation) if id_ is None else (ROOM, owner, VECTORS, generation, id_)


@dataclass(frozen=True, slots=True)
class Pending:
    """What a model is still to do for a note that is kept already."""

    names: tuple[str, ...]
    """What is to be inferred, and SIMILAR where it is to be compared with notes like it."""
    within: tuple[str, ...]
    """The scopes that it may be moved to, with those below: those of the view in which it was kept."""
    id: str = ""
    version: int = 1
    """Of the note for which this holds: one that was changed since is left as it is."""
    tries: int = 0
    """How often a model gave no usable answer."""


SIMILAR = "similar"


def pack_pending(pending: Pending) -> bytes:
    """Give as bytes what is still to be done."""
    return orjson.dumps(
        {"names": pending.names, "within": pending.within, "version": pending.version, "tries": pending.tries}
    )


def unpack_pending(item: Item) -> Pending:
    """Give what is still to be done for a note.

    Raises:
        DamagedStoreError: it is not what was written.
    """
    id_ = str(item.key[3])
    try:
        data = orjson.loads(item.value)
        names, within = map(str, data["names"]), map(str, data["within"])
        return Pending(tuple(names), tuple(within), id_, int(data["version"]), int(data["tries"]))
    except (ValueError, KeyError, TypeError):
        raise DamagedStoreError(f"what is to be inferred of note {id_!r}", "it is not what was written") from None


_DEFAULTS = {
    each.name: each.default for each in fields(Record) if each.name not in ("id", "content", "metadata", "version")
}
_NAMES = ("source", "run_id", "session", "speaker", "role")
_CATEGORIES = 100
_METADATA = 1_000_000
_HALF = "has half of a letter (a lone surrogate); decode the text with errors='replace'"
_KEYS = (str, int, float, type(None))
"""What JSON makes texts of, as keys."""
_DEEPEST = 100
"""How deep metadata are searched for what does not fit."""
_NOTHING: Mapping[str, Any] = MappingProxyType({})
_TIMES = ("created_at", "updated_at", "at")


def to_json(record: Record) -> dict[str, Any]:
    """Give a record as plain JSON data, without what is as usual."""
    found: dict[str, Any] = {"id": record.id, "content": record.content}
    for name, default in _DEFAULTS.items():
        value = getattr(record, name)
        if value != default:
            found[name] = (
                value.astimezone(UTC).isoformat() if name in _TIMES else list(value) if name == "categories" else value
            )
    if record.metadata:
        found["metadata"] = dict(record.metadata)
    return found


def from_json(data: Mapping[str, Any], owner: str, version: int = 1) -> Record:
    """Give the record of plain JSON data.

    Raises:
        ValueError: they are none.
    """
    try:
        given = {name: value for name, value in data.items() if name in _DEFAULTS}
        for name in _TIMES:
            if name in given:
                time = datetime.fromisoformat(given[name])
                given[name] = time.astimezone(UTC) if time.tzinfo is not None else time.replace(tzinfo=UTC)
        given["categories"] = tuple(given.get("categories", ()))
        given["owner"] = owner
        metadata = MappingProxyType(dict(data.get("metadata", {})))
        return Record(id=data["id"], content=data["content"], metadata=metadata, version=version, **given)
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"it lacks something, or has it in another form ({type(error).__name__})") from None


def name(what: str, value: object, longest: int = 1000) -> str:
    """Give a name, such as that of a source.

    Raises:
        NoteError: it is not a text, is too long, or has half letters.
    """
    if not isinstance(value, str):
        raise NoteError(f"{what}={value!r} is not a text")
    if len(value) > longest:
        raise NoteError(f"{what} has {len(value):,} characters, and may have {longest:,}")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise NoteError(f"{what}={value!r} has half of a letter (a lone surrogate)") from None
    return value


def categories(values: Iterable[str] | None) -> tuple[str, ...]:
    """Give categories, each once, without spaces around them.

    Raises:
        NoteError: one is not a text, blank or too long, or there are too many.
    """
    given = [values] if isinstance(values, str) else list(values or ())
    found = tuple(dict.fromkeys(name("category", each, 200).strip() for each in given))
    if "" in found:
        raise NoteError("a category has some text; one of these is blank")
    if len(found) > _CATEGORIES:
        raise NoteError(f"a note has at most {_CATEGORIES} categories, this one has {len(found)}")
    return found


def plain(metadata: Mapping[str, Any]) -> Mapping[str, Any]:
    """Give metadata as they will be read again.

    Raises:
        NoteError: they are not a mapping, or hold something that JSON has no place for, or too much.
    """
    if not isinstance(metadata, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise NoteError(f"metadata= is a dict, such as {{'ticket': 42}}, not {a(type(metadata).__name__)}")
    if not metadata:
        return _NOTHING
    found, data = _read_again(metadata, "metadata", "the metadata of a note cannot be kept")
    if len(data) > _METADATA:
        raise NoteError(
            f"the metadata of a note have at most {_METADATA:,} characters of JSON, these have {len(data):,}"
        )
    return MappingProxyType(found)


def wanted(metadata: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the metadata that a note is to have, as they are read again.

    Raises:
        NoteError: they are not a mapping, or a value is nothing that metadata can have.
    """
    if not isinstance(metadata, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise NoteError(
            f"metadata_filter= is a dict of what the metadata have, such as {{'ticket': 42}}, not "
            f"{a(type(metadata).__name__)}"
        )
    return MappingProxyType(_read_again(metadata, "metadata_filter", "no note has such metadata")[0])


def _read_again(metadata: Mapping[str, Any], name: str, refusal: str) -> tuple[dict[str, Any], str]:
    """Return metadata as they are read again, and their JSON.

    Raises:
        NoteError: they hold something that JSON has no place for; it begins with the refusal.
    """
    try:
        data = json.dumps(dict(metadata), allow_nan=False)
        orjson.dumps(found := json.loads(data))
    except (TypeError, ValueError, RecursionError) as error:
        reason = _misfit(metadata, name, 0) or f"it is nested too deeply, or within itself ({type(error).__name__})"
        raise NoteError(f"{refusal}: {reason}") from None
    return found, data


def _misfit(value: object, place: str, depth: int) -> str:
    """Say which part of metadata JSON has no place for, by its place and type, without its value; empty where none is found."""
    kind = type(value).__name__
    if depth > _DEEPEST:
        return ""
    if isinstance(value, Mapping):
        found = cast("Mapping[object, object]", value)
        for key in found:
            if not isinstance(key, _KEYS):
                return f"a key of {place} is {a(type(key).__name__)}; give a text"
            if isinstance(key, str) and _has_half(key):
                return f"the key {key!r} of {place} {_HALF}"
        parts = ((each, f"{place}[{key!r}]") for key, each in found.items())
        return next(filter(None, (_misfit(each, where, depth + 1) for each, where in parts)), "")
    if isinstance(value, list | tuple):
        parts = ((each, f"{place}[{number}]") for number, each in enumerate(cast("Sequence[object]", value)))
        return next(filter(None, (_misfit(each, where, depth + 1) for each, where in parts)), "")
    if isinstance(value, float) and not math.isfinite(value):
        return f"{place} is a float that is infinite or not a number; give None"
    if isinstance(value, int) and not -(2**63) <= value < 2**64:
        return f"{place} is an int of more than 64 bits; give a text"
    if isinstance(value, str) and _has_half(value):
        return f"{place} {_HALF}"
    if value is None or isinstance(value, str | int | float):
        return ""
    such = {"date": "value.isoformat()", "datetime": "value.isoformat()", "set": "list(value)"}.get(kind, "str(value)")
    return f"{place} is {a(kind)}, for which JSON has no place; give {such}"


def _has_half(text: str) -> bool:
    return any("\ud800" <= each <= "\udfff" for each in text)


def milliseconds(time: datetime) -> int:
    """Give a time in milliseconds UTC; one without a zone is UTC."""
    return round((time if time.tzinfo is not None else time.replace(tzinfo=UTC)).timestamp() * 1000)


def moment(milliseconds: int) -> datetime:
    """Give the time of milliseconds since 1970, in UTC."""
    return datetime.fromtimestamp(milliseconds / 1000, UTC)


def not_a_time(what: str, value: object) -> str:
    """Say that something is not a time, and what would be."""
    such = "datetime.now(UTC) - that" if isinstance(value, timedelta) else "datetime(2025, 3, 4, tzinfo=UTC)"
    if isinstance(value, str):
        try:
            datetime.fromisoformat(value)
        except ValueError:
            pass
        else:
            such = f"datetime.fromisoformat({value!r})"
    given = repr(value) if isinstance(value, str | int | float | date | timedelta) else a(type(value).__name__)
    return f"{what}={given} is not a datetime; give one, such as {such}"


def time(value: datetime, what: str = "at") -> datetime:
    """Give a time in UTC; one without a zone is UTC.

    Raises:
        NoteError: it is not a time, or too far away.
    """
    if not isinstance(value, datetime):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise NoteError(not_a_time(what, value))
    try:
        return value.astimezone(UTC) if value.tzinfo is not None else value.replace(tzinfo=UTC)
    except OverflowError:
        raise NoteError(f"{what}={value!r} is not a year from 1 to 9999 in UTC") from None


def pack(record: Record) -> bytes:
    """Give a record as bytes.

    Raises:
        NoteError: it holds something that JSON has no place for.
    """
    for each in _NAMES:
        name(each, getattr(record, each))
    try:
        return orjson.dumps({"format": FORMAT, **to_json(record)})
    except TypeError as error:
        raise NoteError(
            f"the metadata of note {record.id!r} cannot be kept: {error}; give what JSON has a place for"
        ) from None


def unpack(item: Item) -> Record:
    """Give the record of an item.

    Raises:
        DamagedStoreError: it is none.
    """
    owner, id_ = str(item.key[1]), str(item.key[3])
    reason = "it is not what was written"
    try:
        data = orjson.loads(item.value)
        if data.get("format") == FORMAT and data.get("id") == id_:
            return from_json(data, owner, item.version)
    except ValueError as error:
        reason = str(error) if type(error) is ValueError else reason
    except AttributeError:
        pass
    raise DamagedStoreError(f"note {id_!r}", reason)
