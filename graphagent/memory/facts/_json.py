"""Converts facts to plain JSON data, for stores and exports, and back."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from datetime import datetime
from operator import attrgetter
from typing import Any, TypeVar, cast

from graphagent._concurrency import turn
from graphagent.codec._dataclasses import DataclassCodec
from graphagent.memory.facts._moments import read_moment
from graphagent.memory.facts._types import (
    Concept,
    Fact,
    FactType,
    FactVersion,
    MultipleFacts,
    Scope,
    ScopeKind,
    SingleFact,
    Source,
    Subject,
    Withdrawal,
    checked_owner,
)

Place = tuple[str, Scope, str]
"""Owner, scope and the name of the subject."""

_FACT_KEYS = {"keyword", "values", "type", "description", "timestamp", "version", "source", "id"}
_VALIDITY = ("valid_from", "valid_to")
_WITHDRAWN = "withdrawn"
_OPTIONAL_KEYS = {*_VALIDITY, _WITHDRAWN}
"""Keys that a record has only with a value, so that records without times equal those of builds that did not have times."""
_PLACE_KEYS = {"owner", "scope", "subject"}
_Kind = TypeVar("_Kind", FactType, ScopeKind)

SOURCE = DataclassCodec(Source, always=("run_id", "step", "origin", "trust"))


def fact_record(fact: FactVersion) -> dict[str, object]:
    """Return a saved fact, or a withdrawal, as JSON data."""
    record: dict[str, object] = {
        "keyword": fact.concept.keyword,
        "values": list(fact.values),
        "type": fact.concept.fact_type.value,
        "description": fact.concept.description,
        "timestamp": fact.timestamp,
        "version": fact.version,
        "source": SOURCE.write(fact.source),
        "id": fact.id,
    }
    if isinstance(fact, SingleFact):
        if fact.valid_from is not None:
            record["valid_from"] = fact.valid_from.isoformat()
        if fact.valid_to is not None:
            record["valid_to"] = fact.valid_to.isoformat()
    elif isinstance(fact, Withdrawal):
        record[_WITHDRAWN] = True
    return record


def has_fact_keys(record: object) -> bool:
    """Return whether data has the keys of a fact and no other keys, whatever their values are."""
    return isinstance(record, dict) and cast("dict[str, object]", record).keys() - _OPTIONAL_KEYS == _FACT_KEYS


def place_record(place: Place) -> dict[str, object]:
    """Return an owner, scope and subject as JSON data."""
    owner, scope, subject = place
    return {"owner": owner, "scope": {"kind": scope.kind.value, "name": scope.name}, "subject": subject}


def read_fact(record: object) -> FactVersion:
    """Return the saved fact, or the withdrawal, in data that `fact_record` returned.

    Raises:
        ValueError, TypeError: the data is not exactly such a record. The error does not contain its values.
    """
    fields = _fields(record, _FACT_KEYS, "a fact", _OPTIONAL_KEYS)
    source = SOURCE.read(fields["source"])
    concept = Concept(fields["keyword"], fields["description"], _member(FactType, fields["type"], "the type of a fact"))
    values, timestamp, version, id_ = fields["values"], fields["timestamp"], fields["version"], fields["id"]
    if type(values) is not list or type(timestamp) is not int or type(version) is not int or not version or not id_:
        raise ValueError("a fact must have a list of values, a timestamp, a version and an id")
    if len(fields) == len(_FACT_KEYS):
        return fact_with(concept, cast("list[str]", values), timestamp, id_, version, source)
    validity = validity_of(fields)
    if _WITHDRAWN in fields:
        if fields[_WITHDRAWN] is not True or validity:
            raise ValueError("a withdrawal must be marked by true, and has no times of validity")
        return Withdrawal(concept, cast("list[str]", values), timestamp, id=id_, version=version, source=source)
    return fact_with(concept, cast("list[str]", values), timestamp, id_, version, source, **validity)


def fact_with(
    concept: Concept,
    values: Sequence[str],
    timestamp: int | None,
    id_: str,
    version: int,
    source: Source,
    **validity: datetime | None,
) -> Fact:
    """Return a fact of the kind that the concept has; `validity` may be `valid_from` and `valid_to`.

    Raises:
        ValueError: the concept has one value, and none or several are given; or a part is not valid in a fact.
    """
    if concept.fact_type is FactType.MULTIPLE:
        if validity:
            raise ValueError("a fact of type 'multiple' has no times of validity")
        return MultipleFacts(concept, values, timestamp, id=id_, version=version, source=source)
    if len(values) != 1:
        raise ValueError(f"a fact of type 'single' must have one value, not {len(values)}")
    return SingleFact(concept, values[0], timestamp, id=id_, version=version, source=source, **validity)


def validity_of(record: Mapping[str, object]) -> dict[str, datetime | None]:
    """Return the times of validity in data that `fact_record` returned, if given.

    Raises:
        ValueError: a value is not a time.
    """
    return {name: read_moment(record[name]) for name in _VALIDITY if name in record}


def read_place(record: object) -> Place:
    """Return the place in data that `place_record` returned.

    Raises:
        ValueError, TypeError: the data is not exactly such a record.
    """
    fields = _fields(record, _PLACE_KEYS, "the place of a fact")
    scope = _fields(fields["scope"], {"kind", "name"}, "a scope")
    kind = _member(ScopeKind, scope["kind"], "the kind of a scope")
    return checked_owner(fields["owner"]), Scope(kind, scope["name"]), Subject(fields["subject"]).name


def export_record(place: Place, fact: FactVersion) -> dict[str, object]:
    """Return one record of an export: a saved fact with its owner, scope and subject."""
    return {**place_record(place), **fact_record(fact)}


async def read_export(records: object) -> dict[Place, list[FactVersion]]:
    """Return the facts of an export by their places, each id once, in the order of versions.

    Raises:
        ValueError: a record is not from an export. The error contains the number of the record, but not its values.
    """
    if not isinstance(records, (list, tuple)):
        raise ValueError(f"an export must be a list of records, not {type(records).__name__}")  # noqa: TRY004  it is data from outside
    found: dict[Place, dict[str, FactVersion]] = {}
    for number, record in enumerate(cast("list[object]", records)):
        await turn(number + 1)
        try:
            fields = _fields(record, _PLACE_KEYS | _FACT_KEYS, "a record", _OPTIONAL_KEYS)
            place = read_place({key: fields.pop(key) for key in _PLACE_KEYS})
            fact = read_fact(fields)
        except (ValueError, TypeError) as error:
            raise ValueError(f"record {number} is not one of an export: {error}; nothing was imported") from error
        found.setdefault(place, {}).setdefault(fact.id, fact)
    return {place: sorted(facts.values(), key=attrgetter("version")) for place, facts in found.items()}


def following(facts: Iterable[FactVersion], last_version: Callable[[str], int]) -> Iterator[FactVersion]:
    """Yield facts with versions that follow the stored ones without gaps.

    If no fact about a concept is stored, its first fact keeps its version, so that an imported export equals the original.
    """
    last: dict[str, int] = {}
    for fact in facts:
        keyword = fact.concept.keyword
        before = last.get(keyword) or last_version(keyword)
        last[keyword] = before + 1 if before else fact.version
        yield replace(fact, version=last[keyword])


def _fields(record: object, keys: set[str], what: str, optional: AbstractSet[str] = frozenset()) -> dict[str, Any]:
    if not isinstance(record, Mapping):
        raise TypeError(f"{what} must be an object, not {type(record).__name__}")
    fields = dict(cast("Mapping[str, Any]", record))
    if fields.keys() != keys and fields.keys() - optional != keys:
        raise ValueError(f"{what} must have exactly the keys {', '.join(sorted(keys))}")
    return fields


def _member(kind: type[_Kind], value: object, what: str) -> _Kind:
    for member in kind:
        if member.value == value:
            return member
    raise ValueError(f"{what} must be one of {', '.join(repr(member.value) for member in kind)}")
