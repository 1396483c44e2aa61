"""The keys under which notes are stored, and their bytes.

`("notes", owner, 1, id)` is a note, `("notes", owner, 2, id, n)` its version n before it was changed or consolidated,
`("notes", owner, 3, id)` what a model still has to infer about it, and `("notes", owner, 4, g, id)` its vectors of generation g, in
the form of `_vector_bytes`. `("notes", owner, 0, "changes")` is written with each change of an owner's notes, so its version counts
them; `("notes", owner, 5, n, random)` says which notes one of the last changes was of, about the n-th, in a store of which others have
an index in memory; `("notes", owner, 0, "begun")` tells notes from those that the owner had before all were forgotten, and
`("notes", owner, 0, "learned", run)` that a run was learned from; `("notes", owner, 0, "embedder")` names the embedder of the vectors and the current generation, and
`("notes", owner, 0, "generation", g)` exists while vectors may be added to generation g. An owner's notes are one domain of a sealed
store.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import orjson

from graphagent.errors import DamagedStoreError, NoteError
from graphagent.memory._note_values import FormerNote, Record
from graphagent.memory.notes import _validation
from graphagent.store._items import checked, unchecked

if TYPE_CHECKING:
    from graphagent.store import Item, Key

ROOM = "notes"
STATE, NOTES, HISTORY, PENDING, VECTORS, CHANGED = range(6)
FORMAT = 1
SIMILAR = "similar"
"""The name of the task to compare a note with notes like it, in `Pending.names`."""

NAMED = 500
"""Of how many notes a change says which they are."""

# Keys


def room_of(owner: str) -> Key:
    """Return the prefix of all that a store has of an owner's notes."""
    return (ROOM, owner)


def changes_key(owner: str) -> Key:
    """Return the key that is written with each change of an owner's notes."""
    return (ROOM, owner, STATE, "changes")


def begun_key(owner: str) -> Key:
    """Return the key of random bytes, which are others when an owner has notes again after all were forgotten."""
    return (ROOM, owner, STATE, "begun")


def left_behind(owner: str) -> list[Key]:
    """Return the prefixes of all that an owner's last note leaves behind, but for which runs were learned from."""
    state = [(ROOM, owner, STATE, name) for name in ("begun", "embedder", "generation", "session")]
    return [*state, *((ROOM, owner, part) for part in (NOTES, HISTORY, PENDING, VECTORS, CHANGED))]


def changed_key(owner: str, row: tuple[int, int] | None = None) -> Key:
    """Return the key of the ids of notes that a change was of, given its place and a random number; without, the prefix of all."""
    return (ROOM, owner, CHANGED, *(row or ()))


def embedder_key(owner: str) -> Key:
    """Return the key of the name of the embedder that made the vectors."""
    return (ROOM, owner, STATE, "embedder")


def generation_key(owner: str, generation: int | None = None) -> Key:
    """Return the key that exists while vectors may be added to a generation; without one, the prefix of all these keys."""
    prefix = (ROOM, owner, STATE, "generation")
    return prefix if generation is None else (*prefix, generation)


def session_key(owner: str, session: str) -> Key:
    """Return the key that is written with each turn of a conversation. It contains a hash instead of the session's name."""
    return (ROOM, owner, STATE, "session", hashlib.blake2b(session.encode(), digest_size=16).hexdigest())


def learned_key(owner: str, run_id: str) -> Key:
    """Return the key of the marker set once learning from a run has finished."""
    return (ROOM, owner, STATE, "learned", run_id)


def note_key(owner: str, id_: str) -> Key:
    """Return the key of a note."""
    return (ROOM, owner, NOTES, id_)


def notes_key(owner: str) -> Key:
    """Return the prefix of an owner's notes."""
    return (ROOM, owner, NOTES)


def history_key(owner: str, id_: str) -> Key:
    """Return the prefix of the former versions of a note."""
    return (ROOM, owner, HISTORY, id_)


def histories_key(owner: str) -> Key:
    """Return the prefix of the former versions of all notes."""
    return (ROOM, owner, HISTORY)


def pending_key(owner: str, id_: str) -> Key:
    """Return the key of the pending inference of a note."""
    return (ROOM, owner, PENDING, id_)


def vectors_key(owner: str, generation: int, id_: str | None = None) -> Key:
    """Return the key of a note's vectors; without an id, the prefix of those of all notes."""
    return (ROOM, owner, VECTORS, generation) if id_ is None else (ROOM, owner, VECTORS, generation, id_)


# Changes of others


def pack_changed(ids: Collection[str]) -> bytes:
    """Return the ids of the notes that a change was of, as bytes. Those of many are left out."""
    return checked(orjson.dumps(sorted(ids) if len(ids) <= NAMED else None))


def unpack_changed(item: Item) -> list[str] | None:
    """Return the ids of the notes that a change was of; None if they were too many.

    Raises:
        DamagedStoreError: the bytes are not those of `pack_changed`.
    """
    try:
        found = orjson.loads(unchecked(item.value))
        return None if found is None else [str(each) for each in found]
    except (ValueError, TypeError):
        raise DamagedStoreError("which notes were changed last", "it is not what was written") from None


# Pending tasks of a model


@dataclass(frozen=True, slots=True)
class Pending:
    """The pending tasks of a model for a note that is already saved."""

    names: tuple[str, ...]
    """The fields to infer, and `SIMILAR` if the note is to be compared with notes like it."""
    within: tuple[str, ...]
    """The scopes into which, and below which, the note may be moved: those of the view that saved it."""
    id: str = ""
    version: int = 1
    """The version of the note for which this was stored; a note that was changed since is left as it is."""
    tries: int = 0
    """How often a model gave no usable answer."""


def pack_pending(pending: Pending) -> bytes:
    """Return the pending tasks of a model, as bytes."""
    return checked(
        orjson.dumps(
            {"names": pending.names, "within": pending.within, "version": pending.version, "tries": pending.tries}
        )
    )


def unpack_pending(item: Item) -> Pending:
    """Return the pending tasks of a model for a note.

    Raises:
        DamagedStoreError: the bytes are not those of `pack_pending`.
    """
    id_ = str(item.key[3])
    try:
        data = orjson.loads(unchecked(item.value))
        names, within = map(str, data["names"]), map(str, data["within"])
        return Pending(tuple(names), tuple(within), id_, int(data["version"]), int(data["tries"]))
    except (ValueError, KeyError, TypeError):
        raise DamagedStoreError(f"the pending inference of note {id_!r}", "it is not what was written") from None


# Records

_DEFAULTS = {
    each.name: each.default for each in fields(Record) if each.name not in ("id", "content", "metadata", "version")
}
_NAMES = ("source", "run_id", "session", "speaker", "role")
_TIMES = ("created_at", "updated_at", "at")


def to_json(record: Record) -> dict[str, Any]:
    """Return a record as JSON data, without fields that have their default value."""
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
    """Return the record of JSON data.

    Raises:
        ValueError: they are not those of a record.
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


def pack(record: Record) -> bytes:
    """Return a record as bytes.

    Raises:
        NoteError: it contains something that JSON cannot represent.
    """
    for name in _NAMES:
        if (value := getattr(record, name)) != "":
            _validation.name(name, value)
    try:
        return checked(orjson.dumps({"format": FORMAT, **to_json(record)}))
    except TypeError as error:
        raise NoteError(
            f"the metadata of note {record.id!r} cannot be kept: {error}; give values that JSON can hold"
        ) from None


def unpack(item: Item) -> Record:
    """Return the record of an item.

    Raises:
        DamagedStoreError: the bytes are not those of `pack`.
    """
    owner, id_ = str(item.key[1]), str(item.key[3])
    reason = "it is not what was written"
    try:
        data = orjson.loads(unchecked(item.value))
        if data.get("format") == FORMAT and data.get("id") == id_:
            return from_json(data, owner, item.version)
    except ValueError as error:
        reason = str(error) if type(error) is ValueError else reason
    except AttributeError:
        pass
    raise DamagedStoreError(f"note {id_!r}", reason)


def pack_former(former: FormerNote) -> bytes:
    """Return a former version of a note as bytes."""
    data: dict[str, Any] = {"record": to_json(former.record), "action": former.action}
    if former.at is not None:
        data["at"] = former.at.isoformat()
    return checked(orjson.dumps({**data, "into": former.into} if former.into else data))


def unpack_former(item: Item) -> FormerNote:
    """Return a former version of a note.

    Raises:
        DamagedStoreError: the bytes are not those of `pack_former`.
    """
    try:
        data = orjson.loads(unchecked(item.value))
        record = from_json(data["record"], str(item.key[1]), int(item.key[4]))
        at = datetime.fromisoformat(data["at"]) if "at" in data else None
        return FormerNote(record, str(data["action"]), at, str(data.get("into", "")))
    except (ValueError, KeyError, TypeError):
        raise DamagedStoreError(f"the history of note {item.key[3]!r}", "it is not what was written") from None


def replaced_by(item: Item) -> str | None:
    """Return the id of the note into which a former version was consolidated; None if it was not.

    Raises:
        DamagedStoreError: the bytes are not those of `pack_former`.
    """
    try:
        into = orjson.loads(unchecked(item.value)).get("into")
    except (ValueError, AttributeError):
        raise DamagedStoreError(f"the history of note {item.key[3]!r}", "it is not what was written") from None
    return None if into is None else str(into)
