"""Taking back single values of concepts with several values."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from graphagent import _clock
from graphagent.errors import ValueNotFoundError
from graphagent.memory.facts._types import FactType, FactVersion, MultipleFacts, SingleFact, Withdrawal

if TYPE_CHECKING:
    from graphagent.memory.facts._types import Fact


def of_known(withdrawal: Withdrawal, known: Iterable[Fact]) -> Withdrawal:
    """Return a withdrawal with the concept as it is stored.

    Raises:
        ValueError: the concept has one value.
    """
    found = list(known)
    concepts = [fact.concept for fact in found if isinstance(fact, MultipleFacts)]
    if found and not concepts:
        raise ValueError(
            f"{withdrawal.concept.keyword!r} has one value, and values are withdrawn from concepts with several; save the fact again with "
            f"valid_to=, or forget it"
        )
    values = {value for fact in found for value in fact.values}
    if not values.issuperset(withdrawal.values):
        raise ValueNotFoundError(withdrawal.concept.keyword, len(values))
    return replace(withdrawal, concept=concepts[0])


def without_value(versions: Sequence[FactVersion], value: str) -> list[FactVersion]:
    """Return all versions of a concept, the oldest first, without a value, followed by one that records the withdrawal of a value.

    A version without any other value becomes a withdrawal without values, so that versions have no gaps. The list is empty if no
    version has the value.

    Raises:
        ValueError: the concept has one value.
    """
    if not any(value in version.values for version in versions):
        return []
    last = versions[-1]
    if isinstance(last, SingleFact):
        raise ValueError(  # noqa: TRY004  the value is the wrong one, not its type
            f"{last.concept.keyword!r} has one value, so value= does not apply; forget(concept=…) forgets it with its history"
        )
    left = [_without(version, value) if value in version.values else version for version in versions]
    return [*left, Withdrawal(last.concept, (), _clock.now(), id=_clock.new_id(), version=last.version + 1)]


def erased_bytes(versions: int, value: str) -> int:
    """Return the bytes that a value takes in some versions."""
    return versions * (len(value.encode(errors="replace")) + len('""'))


def _without(version: FactVersion, value: str) -> FactVersion:
    left = tuple(each for each in version.values if each != value)
    if left and not isinstance(version, SingleFact):
        return replace(version, values=left)
    return Withdrawal(
        version.concept, (), version.timestamp, id=version.id, version=version.version, source=version.source
    )


def resets(version: Withdrawal) -> bool:
    """Return whether a withdrawal replaces an erased SingleFact, which had hidden all earlier versions."""
    return version.concept.fact_type is FactType.SINGLE
