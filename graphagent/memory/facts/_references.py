"""Facts in runs: a journal stores references to versions of facts instead of their values."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import orjson

from graphagent.memory._blocks import FORGOTTEN, UNREAD, KnownFact, Reference
from graphagent.memory.facts._json import SOURCE, fact_record, fact_with, validity_of
from graphagent.memory.facts._known import Moment, known_at
from graphagent.memory.facts._resolve import resolve
from graphagent.memory.facts._types import (
    Concept,
    Fact,
    FactType,
    FactVersion,
    Scope,
    ScopeKind,
    SingleFact,
    Source,
    Subject,
)
from graphagent.protocols import FactProvider, KeepingProvider

if TYPE_CHECKING:
    from graphagent.codec._values import Json
    from graphagent.memory.facts._resolve import Found


def fact_reference(known: KnownFact) -> Reference:
    """Return the reference to a version of a fact."""
    fact, scope = known.fact, known.scope
    return Reference(
        "fact", (fact.concept.keyword, known.subject.name, scope.kind.value, scope.name, fact.id), fact.version
    )


def with_value(known: KnownFact, fact: Fact | None) -> KnownFact:
    """Return a fact with the value that was found; None means that it was forgotten."""
    if fact is None:
        return replace(known, fact=filled(known.fact, FORGOTTEN), forgotten=True)
    return replace(known, fact=fact, forgotten=False)


def united(known: KnownFact, parts: tuple[KnownFact, ...]) -> KnownFact:
    """Return a fact combined from others, some of which may have been forgotten. Its identity is unchanged."""
    fact = resolve((part.fact, part.subject, part.scope) for part in parts)[0]
    was = known.fact
    fact = replace(fact, timestamp=was.timestamp, id=was.id, version=was.version, source=was.source)
    return replace(known, fact=fact, parts=parts, forgotten=all(part.forgotten for part in parts))


def filled(fact: Fact, value: str) -> Fact:
    """Return a fact with a text instead of its values."""
    return replace(fact, value=value) if isinstance(fact, SingleFact) else replace(fact, values=(value,))


def known_fact(fact: Fact, parts: Sequence[Found], *, kept: bool) -> KnownFact:
    """Return a fact with its subject and scope, and with the facts from which it was combined."""
    first, subject, scope = parts[0]
    several = tuple(KnownFact(*part, kept=kept) for part in parts) if fact is not first else ()
    return KnownFact(fact, subject, scope, kept=kept, parts=several)


async def looked_up(provider: KeepingProvider, facts: Sequence[KnownFact], owner: str) -> list[KnownFact]:
    """Return facts as they were when a model saw them, as far as the provider still has them.

    Raises:
        StoreError: the facts could not be read.
    """
    options: dict[str, Any] = {"owner": owner} if owner else {}
    histories: dict[tuple[str, Subject, Scope], Sequence[FactVersion]] = {}

    async def look_up(known: KnownFact) -> KnownFact:
        if not known.kept:
            return known
        if known.parts:
            return united(known, tuple([await look_up(part) for part in known.parts]))
        concept, place = known.fact.concept, (known.fact.concept.keyword, known.subject, known.scope)
        if place not in histories:
            histories[place] = await provider.history(concept, known.subject, known.scope, **options)
        return with_value(known, _as_known(histories[place], known.fact.id))

    return [await look_up(known) for known in facts]


def _as_known(history: Sequence[FactVersion], id_: str) -> Fact | None:
    """Return the fact about a concept when the version with this id was the last; None if this version was forgotten."""
    place = next((place for place, version in enumerate(history) if version.id == id_), None)
    if place is None:
        return None
    last = history[place]
    if isinstance(last, SingleFact):
        return last
    found, _ = known_at(history[place:], Moment(None))
    return found[0] if found else None


Saved = tuple[FactVersion, Subject, Scope]
"""A fact or a withdrawal with its subject and scope."""


def saved_id(named: str, concept: Concept, subject: Subject, scope: Scope) -> str:
    """Return the id of a fact that a node saves: the same id when the node is executed again, and independent of the value."""
    from hashlib import blake2b

    names = (named, concept.keyword, subject.name, scope.kind.value, scope.name)
    return blake2b(orjson.dumps(names), digest_size=16).hexdigest()


async def kept_version(
    provider: FactProvider, fact: FactVersion, subject: Subject, scope: Scope, owner: str = ""
) -> int | None:
    """Return the version under which a provider stores a fact or a withdrawal; None if it is not stored.

    Raises:
        StoreError: the facts could not be read.
    """
    options: dict[str, Any] = {"owner": owner} if owner else {}
    found: Sequence[FactVersion] = await provider.load(fact.concept, subject, scope, **options)
    if isinstance(provider, KeepingProvider) and all(each.id != fact.id for each in found):
        found = await provider.history(fact.concept, subject, scope, **options)
    return next((each.version for each in found if each.id == fact.id), None)


def reference(found: Saved) -> list[str | int]:
    """Return the name of a saved fact, without its value, as JSON data."""
    fact, subject, scope = found
    return [
        fact.concept.keyword, fact.concept.fact_type.value, subject.name, scope.kind.value, scope.name, fact.id,
        fact.version,
    ]  # fmt: skip


async def found_again(provider: FactProvider, references: Iterable[Sequence[Any]], owner: str) -> list[Saved]:
    """Return the facts and withdrawals of references, as far as the provider still has them.

    Raises:
        StoreError: the facts could not be read.
    """
    options: dict[str, Any] = {"owner": owner} if owner else {}
    found: list[Saved] = []
    for keyword, form, name, kind, within, id_, _ in references:
        concept, subject, scope = (
            Concept(keyword, fact_type=FactType(form)),
            Subject(name),
            Scope(ScopeKind(kind), within),
        )
        versions: Sequence[FactVersion] = (
            await provider.history(concept, subject, scope, **options)
            if isinstance(provider, KeepingProvider)
            else await provider.load(concept, subject, scope, **options)
        )
        found += [(fact, subject, scope) for fact in versions if fact.id == id_]
    return found


def fact_json(known: KnownFact, *, values: bool) -> Json:
    """Return a fact with its place as JSON data: as a reference if its provider can find it again, unless `values` are wanted.

    A reference contains neither the value nor the description of the concept, which may reveal as much.
    """
    fact, subject, scope = known.fact, known.subject, known.scope
    found: dict[str, Json] = {
        "place": [subject.name, subject.description, subject.priority, scope.kind.value, scope.name]
    }
    if values or not known.kept:
        found["fact"] = {**fact_record(fact), **({"forgotten": True} if known.forgotten else {})}
        if known.kept:
            found["kept"] = True
    else:
        source = fact.source
        found["ref"] = [fact.id, fact.version]
        found["concept"] = [fact.concept.keyword, fact.concept.fact_type.value]
        found["source"] = [source.run_id, source.step, source.origin, source.trust]
        found["at"] = fact.timestamp
    if known.parts:
        found["parts"] = [fact_json(part, values=values) for part in known.parts]
    return found


def read_fact_json(data: Mapping[str, Json], found: Mapping[Reference, KnownFact] | None = None) -> KnownFact:
    """Return the fact in data that `fact_json` returned. The values of references are taken from `found`."""
    known = _read(data)
    parts = tuple(read_fact_json(part, found) for part in data.get("parts", ()))
    if "ref" not in data:
        return replace(known, parts=parts)
    if parts:
        return united(known, parts)
    return (found or {}).get(fact_reference(known), known)


def is_fact_reference(data: Mapping[str, Json]) -> bool:
    """Return whether JSON data is a reference to one fact; a combined fact has the references to its parts."""
    return "ref" in data and "place" in data and "parts" not in data


def _read(data: Mapping[str, Json]) -> KnownFact:
    name, description, priority, kind, scope = data["place"]
    subject, where = Subject(name, description, priority), Scope(ScopeKind(kind), scope)
    if "ref" in data:
        keyword, form = data["concept"]
        id_, version = data["ref"]
        concept = Concept(keyword, fact_type=FactType(form))
        return KnownFact(
            fact_with(concept, (UNREAD,), data["at"], id_, version, Source(*data["source"])), subject, where, kept=True
        )
    record: Mapping[str, Any] = data["fact"]
    concept = Concept(record["keyword"], record["description"], FactType(record["type"]))
    source = SOURCE.read(record["source"])
    fact = fact_with(
        concept, tuple(record["values"]), record["timestamp"], record["id"], record["version"], source,
        **validity_of(record),
    )  # fmt: skip
    return KnownFact(fact, subject, where, forgotten=record.get("forgotten") is True, kept=data.get("kept") is True)
