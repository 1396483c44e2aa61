"""Notes from other memories (crewAI, mem0, the MCP memory server), from the JSON lines of `export`, and from tables and Markdown.

Each function reads the text of a file, or the same data as parsed JSON, and returns records for `notes.import_`. Nothing is lost:
fields that a note lacks go into its metadata, under the name of the library. Only vectors are left out; `reembed` recomputes them.
The ids are always the same, so importing the same data again adds nothing. If a record is invalid, the error names its position, and
nothing is returned.

`Notes` accept only records of their own owner and those without one; `by_owner` groups the records of several:

```
for owner, records in by_owner(from_mem0(text)).items():
    await Notes(store, owner=owner).import_(records)
```
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from graphagent._article import kind_of
from graphagent.memory._note_values import ROOT
from graphagent.memory.notes._scopes import path_of
from graphagent.memory.notes._validation import name as checked_name
from graphagent.memory.notes.index._storage import to_json
from graphagent.memory.notes.write._import import Collected, Imported
from graphagent.migrate._records import loaded, read
from graphagent.migrate._texts import decoded, note_of, rows_of, sections_of

if TYPE_CHECKING:
    from graphagent.memory import Record
    from graphagent.migrate._records import Data, Numbered


def from_export(data: Data, *, scope: str = ROOT, owner: str | None = None) -> list[dict[str, Any]]:
    """Read JSON lines from `notes.export()`, with owners and history.

    Args:
        data: The text of the file, in UTF-8, or the same data as parsed JSON.
        scope: A scope that is put before the scopes of the notes.
        owner: The owner of all notes; None for the owners in the data.

    Raises:
        ValueError: a line is not a note, or two notes have the same id and differ; the text names the line.
        TypeError: the data are neither text nor parsed JSON.
        NoteError: the scope or the owner is not valid.
    """
    return _checked(read(data), dict, scope, owner)


def from_crewai(data: Data, *, scope: str = ROOT, owner: str | None = None) -> list[dict[str, Any]]:
    """Read records of crewAI 1.x: an array, or JSON lines, of `MemoryRecord.model_dump(mode="json")` or of rows of its LanceDB table.

    Times without a zone are in UTC, as in crewAI. `last_accessed` goes into the metadata.

    Args:
        data: The text of the file, in UTF-8, or the same data as parsed JSON.
        scope: A scope that is put before the scopes of the records.
        owner: The owner of all notes; None for the owners in the data.

    Raises:
        ValueError: a record is not of this kind, or two have the same id and differ; the text names it.
        TypeError: the data are neither text nor parsed JSON.
        NoteError: the scope or the owner is not valid.
    """
    return _checked(read(data, "records"), _crewai, scope, owner)


def from_mem0(data: Data, *, scope: str = ROOT, owner: str | None = None) -> list[dict[str, Any]]:
    """Read the result of mem0's `get_all()`, as JSON: `{"results": […]}`, an array, or JSON lines.

    A `user_id` is the owner of its memories, an `agent_id` their source, an `actor_id` the speaker. Relations of a graph become
    notes of the category `relation`.

    Args:
        data: The text of the file, in UTF-8, or the same data as parsed JSON.
        scope: The scope of the notes.
        owner: The owner of all notes; None for the owners in the data.

    Raises:
        ValueError: a record is not a memory, or two have the same id and differ; the text names it.
        TypeError: the data are neither text nor parsed JSON.
        NoteError: the scope or the owner is not valid.
    """
    return _checked(read(data, "results", "memories", "relations", wanted=_MEM0_WANTED), _mem0, scope, owner)


def from_mcp(data: Data, *, scope: str = ROOT, owner: str | None = None) -> list[dict[str, Any]]:
    """Read the file of the MCP memory server, JSON lines of entities and relations, or the result of its tool `read_graph`.

    Each observation becomes a note that begins with the name of its entity and has the entity's type as its category. An entity
    without observations, and each relation, become a note as well.

    Args:
        data: The text of the file, in UTF-8, or the same data as parsed JSON.
        scope: The scope of the notes.
        owner: The owner of all notes; None for the owners in the data.

    Raises:
        ValueError: a record is neither an entity nor a relation; the text names it.
        TypeError: the data are neither text nor parsed JSON.
        NoteError: the scope or the owner is not valid.
    """
    notes: Numbered = []
    for place, each in read(data, "entities", "relations"):
        notes += [(place, note) for note in _each(place, each, _mcp)]
    return _checked(notes, dict, scope, owner)


def from_csv(data: str | bytes, *, scope: str = ROOT, owner: str | None = None) -> list[dict[str, Any]]:
    """Read a table with a header, separated by commas, semicolons or tabs. A row is a note, with its text in the column `content` or `text`.

    The columns `id`, `owner`, `scope`, `categories` (separated by commas or semicolons), `importance`, `source`, `private`, `at`,
    `created_at`, `speaker` and `role` are those of the note, and all others its metadata. Times without a zone are in UTC.

    Args:
        data: The text of the file, in UTF-8.
        scope: A scope that is put before the scopes of the notes.
        owner: The owner of all notes; None for the owners in the data.

    Raises:
        ValueError: The header has no such column, or a row is not a note. The message names the line.
        NoteError: the scope or the owner is not valid.
    """
    return _checked(rows_of(decoded(data)), _plain, scope, owner)


def from_jsonl(data: Data, *, scope: str = ROOT, owner: str | None = None) -> list[dict[str, Any]]:
    """Read JSON lines, or an array, of objects that have the text of a note as `content` or `text`. Their other fields are as in `from_csv`.

    Args:
        data: The text of the file, in UTF-8, or the same data as parsed JSON.
        scope: A scope that is put before the scopes of the notes.
        owner: The owner of all notes; None for the owners in the data.

    Raises:
        ValueError: A record is not a note, or two with the same id differ. The message names the record.
        TypeError: the data are neither text nor parsed JSON.
        NoteError: the scope or the owner is not valid.
    """
    return _checked(read(data), _plain, scope, owner)


def from_markdown(
    files: Mapping[str, str | bytes], *, scope: str = ROOT, owner: str | None = None
) -> list[dict[str, Any]]:
    """Read Markdown files. Each section that has text is a note, which begins with the title of the file and the headings above it.

    The scope of a note is the folder of its file, its source the path of the file, so `notes.forget(source=path)` removes those of a
    file that has changed. Of a front matter, `tags` are categories, `date` is when it was said, and the rest metadata.

    Args:
        files: The texts of the files, in UTF-8, by their paths in the folder, such as `project/plan.md`.
        scope: A scope that is put before the scopes of the notes.
        owner: The owner of all notes.

    Raises:
        ValueError: A file is not text in UTF-8, or a section is not a note. The message names the file.
        TypeError: `files` is not a mapping, or a file is neither text nor bytes.
        NoteError: the scope or the owner is not valid.
    """
    if not isinstance(files, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"files are texts by their paths, such as {{'plan.md': text}}, not {kind_of(files)}")
    notes: Numbered = []
    for path, text in files.items():
        try:
            notes += sections_of(path, decoded(text))
        except ValueError as error:
            raise ValueError(f"{path!r}: {error}") from None
    return _checked(notes, _plain, scope, owner)


def by_owner(records: Iterable[Mapping[str, Any]]) -> dict[str, list[Mapping[str, Any]]]:
    """Return the records grouped by owner; those without an owner are under the empty name.

    Args:
        records: The result of one of these functions, or the records that `notes.export()` yielded.
    """
    found: dict[str, list[Mapping[str, Any]]] = {}
    for record in records:
        found.setdefault(record.get("owner", ""), []).append(record)
    return found


def _plain(data: dict[str, Any]) -> dict[str, Any]:
    """Return a note; one that has no id gets a hash of all that it has, so that it is always the same."""
    note = note_of(data)
    if "id" not in note:
        note["id"] = f"note-{hashlib.sha256(json.dumps(note, sort_keys=True).encode()).hexdigest()[:32]}"
    return note


def _crewai(data: dict[str, Any]) -> dict[str, Any]:
    rest = {name: value for name, value in data.items() if value is not None}
    for name in ("embedding", "vector"):
        rest.pop(name, None)
    for name in ("categories", "metadata"):  # the form of the LanceDB table
        if f"{name}_str" in rest:
            rest.setdefault(name, loaded(rest.pop(f"{name}_str") or "null"))
    metadata: Any = rest.pop("metadata", None) or {}
    taken = ("id", "content", "scope", "categories", "importance", "created_at", "source", "private")
    note = {name: rest.pop(name) for name in taken if rest.get(name) is not None}
    if isinstance(given := note.get("scope"), str) and (path := path_of(given)) != given:
        note["scope"], rest["scope"] = path, given
    return {**note, "metadata": _with_rest(metadata, "crewai", rest)}


_MEM0 = {
    "id": "id", "memory": "content", "created_at": "created_at", "updated_at": "updated_at", "agent_id": "source",
    "run_id": "run_id", "actor_id": "speaker", "role": "role", "categories": "categories",
}  # fmt: skip
"""The fields of mem0, and those of a note."""
_MEM0_WANTED = "pass the result of get_all()"


def _mem0(data: dict[str, Any]) -> dict[str, Any]:
    rest = {name: value for name, value in data.items() if value is not None}
    if "event" in rest and not rest.keys() >= {"memory", "created_at"}:
        raise ValueError(f"it is a result of add() or history(), which is not a whole memory; {_MEM0_WANTED}")
    if "relationship" in rest and "memory" not in rest:
        source, target = rest.get("source"), rest.get("target", rest.get("destination"))
        return _relation("mem0", source, rest["relationship"], target, rest)
    metadata = rest.pop("metadata", {})
    note: dict[str, Any] = {name: rest.pop(theirs) for theirs, name in _MEM0.items() if theirs in rest}
    if "user_id" in rest:
        note["owner"] = rest["user_id"]
    return {**note, "metadata": _with_rest(metadata, "mem0", rest)}


def _mcp(data: dict[str, Any]) -> list[dict[str, Any]]:
    if data.get("type") == "relation" or ("type" not in data and "relationType" in data):
        return [
            _relation("mcp", data.get("from"), data.get("relationType"), data.get("to"), {**data, "type": "relation"})
        ]
    if data.get("type", "entity") != "entity":
        raise ValueError(f"it is a {data['type']!r}, neither an entity nor a relation")
    name, kind, observations = data.get("name"), data.get("entityType"), data.get("observations")
    if not isinstance(name, str) or not isinstance(kind, str) or not _are_texts(observations):
        raise ValueError("an entity has a name, an entityType and observations, which are texts")
    entity = {**data, "type": "entity"}
    del entity["observations"]
    if not observations:
        content = f"{name} ({kind})" if kind else name
        said: dict[str, Any] = {**entity, "observations": []}
        return [_made("mcp", content, [kind] if kind else [], said, "entity", name, kind)]
    return [
        _made("mcp", f"{name}: {each}", [kind] if kind else [], {**entity, "observation": each}, "observation", name, kind, each)
        for each in cast("list[str]", observations)
    ]  # fmt: skip


def _relation(maker: str, source: Any, kind: Any, target: Any, data: dict[str, Any]) -> dict[str, Any]:
    if not _are_texts([source, kind, target]):
        raise ValueError("a relation is from one name to another, and of a type")
    owner = data.get("user_id", "")
    note = _made(
        maker,
        f"{source} {kind.replace('_', ' ')} {target}",
        ["relation"],
        data,
        "relation",
        owner,
        source,
        kind,
        target,
    )
    return {**note, "owner": owner}  # fmt: skip


def _made(maker: str, content: str, categories: list[str], data: dict[str, Any], *what: object) -> dict[str, Any]:
    """Return a note for data without an id: the id is a hash of the content, so that it is always the same."""
    digest = hashlib.sha256(json.dumps(what).encode()).hexdigest()
    return {"id": f"{maker}-{digest[:32]}", "content": content, "categories": categories, "metadata": {maker: data}}


def _with_rest(metadata: Any, maker: str, rest: dict[str, Any]) -> Any:
    """Return the metadata with the fields that a note lacks."""
    if not rest or not isinstance(metadata, dict):
        return metadata  # pyright: ignore[reportUnknownVariableType]
    given: dict[str, Any] = {**metadata}
    return {maker: {**rest, "metadata": given}} if maker in given else {**given, maker: rest}


def _are_texts(values: list[Any] | None) -> bool:
    return isinstance(values, list) and all(isinstance(each, str) for each in values)


def _checked(
    records: Numbered, function: Callable[[dict[str, Any]], dict[str, Any]], scope: str, owner: str | None
) -> list[dict[str, Any]]:
    under = path_of(scope)
    collected = Collected()
    if owner is not None:
        checked_name("owner", owner)
        collected = Collected(lambda _: owner)
    for place, data in records:
        for note in _each(place, data, lambda each: [function(each)]):
            collected.add(place, note)
    return [_exported(each, under) for each in collected.notes.values()]


def _exported(note: Imported, under: str) -> dict[str, Any]:
    def told(record: Record) -> dict[str, Any]:
        return to_json(replace(record, scope=path_of(record.scope, under)))

    history = [
        {"record": told(old), "action": did, **({} if at is None else {"at": at.isoformat()})}
        for old, did, at, _ in reversed(note.past)
    ]
    return {"type": "note", **told(note.record), **({"history": history} if history else {})}


def _each(
    place: str, data: dict[str, Any], function: Callable[[dict[str, Any]], list[dict[str, Any]]]
) -> list[dict[str, Any]]:
    try:
        return function(data)
    except ValueError as error:
        raise ValueError(f"{place}: {error}") from None
