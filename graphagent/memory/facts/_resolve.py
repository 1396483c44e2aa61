"""Resolves facts about one concept from several subjects and scopes."""

from __future__ import annotations

from collections.abc import Iterable

from graphagent.memory.facts._types import (
    UNTRUSTED,
    Fact,
    MultipleFacts,
    Scope,
    SingleFact,
    Source,
    Subject,
    least_trust,
)

Found = tuple[Fact, Subject, Scope]
"""A fact with its subject and scope."""


def resolve(found: Iterable[Found]) -> list[Fact]:
    """Return one fact for each keyword, in the order in which the keywords first occur in `found`; or two that contradict each other.

    A fact ranks before another whose subject has a higher priority number, and then before one with a wider scope. Of single
    facts, the first in this order is returned; of several first ones, that with the highest timestamp; of several of these,
    the earliest in `found`. If that one is untrusted and others are not, it does not hide them: the first of the others is returned
    before it. So is an untrusted fact behind one of the same subject and scope that was saved earlier, as `load` returns the two. Of
    multiple facts, all values are combined in this order, each once; those of one subject and scope in the order of saving (by
    version). If facts of both kinds have one keyword, the first fact decides the kind of the result.

    A fact that need not be combined is returned unchanged. A combined one has no id and no version, the newest timestamp, and
    a source with only the lowest trust.
    """
    return [fact for fact, _ in traced(found)]


def traced(found: Iterable[Found]) -> list[tuple[Fact, list[Found]]]:
    """Return the facts of `resolve`, each with the facts from which it was made, in order."""
    groups: dict[str, list[Found]] = {}
    for each in found:
        groups.setdefault(each[0].concept.keyword, []).append(each)
    return [resolved for group in groups.values() for resolved in _resolved(group)]


def _resolved(group: list[Found]) -> list[tuple[Fact, list[Found]]]:
    first = _first(group)
    if not isinstance(first[0], SingleFact):
        return [_united(group, first)]
    if first[0].source.trust == UNTRUSTED:
        trusted = [each for each in group if each[0].source.trust != UNTRUSTED]
        return [*(_resolved(trusted) if trusted else ()), (first[0], [first])]
    later = [each for each in group if _contradicts(each, first)]
    return [(each[0], [each]) for each in (first, *later)]


def _contradicts(each: Found, first: Found) -> bool:
    """Return whether an untrusted fact of the same subject and scope was saved after another one, whatever their timestamps are."""
    fact, *place = each
    return fact.source.trust == UNTRUSTED and place == [*first[1:]] and fact.version > first[0].version


def _first(group: list[Found]) -> Found:
    return min(group, key=lambda each: (*_rank(each), -_learned(each[0])))


def _united(group: list[Found], first: Found) -> tuple[Fact, list[Found]]:
    places: dict[tuple[Subject, Scope], int] = {}
    for _, subject, scope in group:
        places.setdefault((subject, scope), len(places))
    # Facts of two subjects with the same priority are not mixed, since the versions of different subjects cannot be compared.
    ordered = sorted(group, key=lambda each: (*_rank(each), places[each[1], each[2]], each[0].version))
    facts = [fact for fact, _, _ in ordered]
    values = tuple(dict.fromkeys(value for fact in facts for value in fact.values))
    if isinstance(facts[0], MultipleFacts) and values == facts[0].values:
        return facts[0], ordered[:1]
    times = [fact.timestamp for fact in facts if fact.timestamp is not None]
    trust = least_trust(fact.source.trust for fact in facts)
    return MultipleFacts(first[0].concept, values, max(times, default=None), source=Source(trust=trust)), ordered


def _rank(each: Found) -> tuple[int, int]:
    _, subject, scope = each
    return subject.priority, scope.kind.width


def _learned(fact: Fact) -> float:
    return float("-inf") if fact.timestamp is None else fact.timestamp
