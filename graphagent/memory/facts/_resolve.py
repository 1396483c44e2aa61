"""Resolving several facts to one: the versions of one concept over time, and facts of several subjects and scopes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from sys import getsizeof

from graphagent.memory.facts._types import Fact, MultipleFacts, Scope, SingleFact, Source, Subject, least_trust

Found = tuple[Fact, Subject, Scope]
"""A fact with its subject and scope."""

_FACT_SIZE = 1000
"""About how many bytes of memory a fact and its concept take without its values."""
_VALUE_SIZE = 60
"""About how many more bytes a value in a list takes."""


def resolve(found: Iterable[Found]) -> list[Fact]:
    """Return one fact for each keyword, in the order in which the keywords first occur in `found`.

    A fact ranks before another whose subject has a higher priority number, and then before one with a wider scope. Of single
    facts, the first in this order is returned; of several first ones, that with the highest timestamp; of several of these,
    the earliest in `found`. Of multiple facts, all values are combined in this order, each once; those of one subject and scope
    in the order of saving (by version). If facts of both kinds have one keyword, the first fact decides the kind of the result.

    A fact that need not be combined is returned unchanged. A combined one has no id and no version, the newest timestamp, and
    a source with only the lowest trust.
    """
    return [fact for fact, _ in traced(found)]


def traced(found: Iterable[Found]) -> list[tuple[Fact, list[Found]]]:
    """Return the facts of `resolve`, each with the facts that it was made of, in order."""
    groups: dict[str, list[Found]] = {}
    for each in found:
        groups.setdefault(each[0].concept.keyword, []).append(each)
    return [_resolved(group) for group in groups.values()]


def _resolved(group: list[Found]) -> tuple[Fact, list[Found]]:
    first = min(group, key=lambda each: (*_rank(each), -_learned(each[0])))
    if isinstance(first[0], SingleFact):
        return first[0], [first]
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


class Known:
    """The current fact about one concept in one scope: the fold of its versions in the order of saving.

    A SingleFact replaces all before it; the values of MultipleFacts are added. So the cost of adding a version does not grow
    with their number, and `fact` builds the combined values only once after each change.
    """

    __slots__ = ("_fact", "_trust", "_values", "last", "size")

    def __init__(self, first: Fact) -> None:
        self.last = first
        """The version that was added last."""
        self.size = _size(first.values)
        """About how many bytes of memory this takes."""
        self._values = dict.fromkeys(first.values)
        self._trust = first.source.trust
        self._fact: Fact | None = None

    def add(self, fact: Fact) -> None:
        """Add the next version."""
        if isinstance(fact, SingleFact):
            self._values, self._trust = dict.fromkeys(fact.values), fact.source.trust
            self.size = _size(fact.values)
        else:
            self.size += sum(map(_value_size, (each for each in fact.values if each not in self._values)))
            self._values.update(dict.fromkeys(fact.values))
            self._trust = least_trust((self._trust, fact.source.trust))
        self.last, self._fact = fact, None

    def fact(self) -> Fact:
        """Return the current fact: the last version, with the values of earlier ones if the concept has several values.

        Its trust is the lowest of the versions that it is made of.
        """
        if self._fact is None:
            last, values = self.last, tuple(self._values)
            if values == last.values and self._trust == last.source.trust:
                self._fact = last
            else:
                source = replace(last.source, trust=self._trust)
                self._fact = MultipleFacts(
                    last.concept, values, last.timestamp, id=last.id, version=last.version, source=source
                )
        return self._fact


class Newest:
    """The versions of one concept in one scope, which are added from the newest one backwards.

    Args:
        last: The newest version.
        before: What an earlier version and those before it make. It is used if that version is still there.
    """

    __slots__ = ("_before", "_known", "_versions", "complete", "last")

    def __init__(self, last: Fact, before: Known | None = None) -> None:
        self.last = last
        self.complete = False
        """Whether earlier versions say nothing more."""
        self._before = before
        self._known: Known | None = None
        self._versions: list[Fact] = []
        self.add(last)

    def add(self, fact: Fact) -> None:
        """Add the version before the one that was added last."""
        before = self._before
        if before is not None and (before.last.version, before.last.id) == (fact.version, fact.id):
            self._known, self.complete = before, True
        else:
            self._versions.append(fact)
            self.complete = isinstance(fact, SingleFact)

    def known(self) -> Known:
        """Return what the versions make, once all that are needed were added."""
        known = self._known
        while self._versions:
            fact = self._versions.pop()
            if known is None:
                known = Known(fact)
            else:
                known.add(fact)
        assert known is not None  # there is at least the newest version
        self._known = known
        return known


def _size(values: Iterable[str]) -> int:
    return _FACT_SIZE + sum(map(_value_size, values))


def _value_size(value: str) -> int:
    return _VALUE_SIZE + getsizeof(value)
