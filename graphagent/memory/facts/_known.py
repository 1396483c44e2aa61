"""Derives the known facts from the versions of one concept in one scope, now or at another moment.

Versions are added in the order of recording, and a later version overrides earlier ones:

- A SingleFact replaces the known facts while it holds: from `valid_from`, or else from its recording, until `valid_to`. If it is
  untrusted and the known fact is not, both are known. When it ends, an earlier fact with its value that began before ends too, and
  does not return.
- MultipleFacts add their values, from their recording on.
- A Withdrawal takes its values back, from its recording on. An untrusted withdrawal takes back only untrusted values.

A version was recorded at its timestamp, or when a later version was, if that is earlier: clocks may go back, the order does not.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from sys import getsizeof
from typing import TYPE_CHECKING, TypeGuard

from graphagent import _clock
from graphagent.memory.facts._moments import microseconds
from graphagent.memory.facts._types import TRUST_LEVELS, UNTRUSTED, MultipleFacts, SingleFact, Withdrawal
from graphagent.memory.facts._withdrawing import resets

if TYPE_CHECKING:
    from datetime import datetime

    from graphagent.memory.facts._types import Fact, FactVersion

_BITS = {level: 1 << place for place, level in enumerate(TRUST_LEVELS)}
_FACT_SIZE = 1000
"""The approximate bytes of memory of a fact and its concept without its values."""
_VALUE_SIZE = 60
"""The approximate additional bytes of a value in a list."""


def is_plain(version: FactVersion) -> TypeGuard[SingleFact]:
    """Return whether a version hides all earlier ones for good: it has one value, no times and is not untrusted."""
    return (
        isinstance(version, SingleFact)
        and version.valid_from is None
        and version.valid_to is None
        and version.source.trust != UNTRUSTED
    )


def recorded_at(version: FactVersion, following: int) -> int:
    """Return the time of recording of a version, in microseconds; `following` is that of the next version, or the current time."""
    return following if version.timestamp is None else min(version.timestamp * 1000, following)


class Moment:
    """A moment at which facts are requested.

    Args:
        as_of: The moment; None is the current time, by which every version was recorded.
        name: The name of the moment in errors.

    Raises:
        TypeError: the moment is not a datetime.
        ValueError: the moment has no time zone.
    """

    __slots__ = ("_now", "at")

    def __init__(self, as_of: datetime | None, name: str = "as_of=") -> None:
        self._now: int | None = None
        self.at = self.now if as_of is None else microseconds(as_of, name)
        """The moment, in microseconds UTC since 1970."""

    @property
    def now(self) -> int:
        """The current time, in microseconds UTC since 1970."""
        if self._now is None:
            self._now = _clock.now() * 1000
        return self._now

    def has(self, last: FactVersion) -> bool:
        """Return whether the last version of a concept, and so all versions, had been recorded at this moment."""
        return (last.timestamp is not None and self.at >= last.timestamp * 1000) or self.at >= self.now


class _Ended:
    """The facts with one value that, by a later fact, have ended at a moment. The newest fact is read first."""

    __slots__ = ("_at", "_ends", "_found")

    def __init__(self, at: int) -> None:
        self._at = at
        self._ends: dict[tuple[str, bool], int] = {}
        self._found: set[int] = set()

    def read(self, version: FactVersion, *, holds: bool) -> None:
        """Read the version before those already read. An untrusted version does not end one that is not untrusted."""
        if not isinstance(version, SingleFact):
            return
        untrusted = version.source.trust == UNTRUSTED
        if not holds:
            end = None if version.valid_to is None else microseconds(version.valid_to)
            if end is not None and end <= self._at:
                self._ends[version.value, untrusted] = max(end, self._ends.get((version.value, untrusted), end))
        elif self._ends:
            ends = [self._ends.get((version.value, by)) for by in {False, untrusted}]
            begins = None if version.valid_from is None else microseconds(version.valid_from)
            if any(end is not None and (begins is None or begins < end) for end in ends):
                self._found.add(version.version)

    def has(self, version: FactVersion | None) -> bool:
        """Return whether a version has ended."""
        return version is not None and version.version in self._found


class _Fold:
    """The facts of the versions that hold at one moment."""

    __slots__ = ("_beside", "_top", "size", "values")

    def __init__(self) -> None:
        self.values: dict[str, int] = {}
        """Each value with the trust levels of the versions that have it, as bits."""
        self.size = 0
        """About how many bytes of memory the values take."""
        self._top: FactVersion | None = None
        self._beside: SingleFact | None = None

    def copy(self) -> _Fold:
        copied = _Fold()
        copied.values, copied.size, copied._top, copied._beside = dict(self.values), self.size, self._top, self._beside
        return copied

    def end(self, ended: _Ended) -> None:
        """Remove facts with one value that have ended."""
        if ended.has(self._top):
            self.values, self.size = {}, 0
        if ended.has(self._beside):
            self._beside = None

    def read(self, ended: _Ended) -> None:
        """Apply the facts with one value to `ended`."""
        for version in (self._beside, self._top):
            if version is not None:
                ended.read(version, holds=True)

    def add(self, version: FactVersion) -> None:
        untrusted = version.source.trust == UNTRUSTED
        if isinstance(version, SingleFact):
            if untrusted and any(levels != _BITS[UNTRUSTED] for levels in self.values.values()):
                self._beside = version
                return
            self.values, self.size = {}, 0
        elif self._beside is not None:
            self._say(self._beside)
        self._top, self._beside = version, None
        if isinstance(version, Withdrawal):
            if resets(version):
                self.values, self.size = {}, 0
            for value in version.values:
                self._take_back(value, _BITS[UNTRUSTED] if untrusted else ~0)
        else:
            self._say(version)

    def facts(self) -> list[Fact]:
        top, beside = self._top, [self._beside] if self._beside is not None else []
        if top is None or not self.values:
            return list(beside)
        values = tuple(self.values)
        levels = 0
        for each in self.values.values():
            levels |= each
        trust = next(level for level, bit in _BITS.items() if levels & bit)
        if not isinstance(top, Withdrawal) and (values, trust) == (top.values, top.source.trust):
            return [top, *beside]
        source = replace(top.source, trust=trust)
        return [
            MultipleFacts(top.concept, values, top.timestamp, id=top.id, version=top.version, source=source),
            *beside,
        ]

    def _say(self, fact: Fact) -> None:
        for value in fact.values:
            if value not in self.values:
                self.size += _value_size(value)
            self.values[value] = self.values.get(value, 0) | _BITS[fact.source.trust]

    def _take_back(self, value: str, levels: int) -> None:
        left = self.values.get(value, 0) & ~levels
        if left:
            self.values[value] = left
        elif self.values.pop(value, 0):
            self.size -= _value_size(value)


class Known:
    """The known facts about one concept in one scope: the fold of its versions in the order of recording.

    The cost of adding a version does not grow with their number, and facts with many values are built once after each change. Only
    versions with times, and later ones, are kept whole, since their effect changes with the clock.
    """

    __slots__ = ("_facts", "_fold", "_later", "_later_size", "last")

    def __init__(self, first: FactVersion) -> None:
        self._fold = _Fold()
        self._later: list[FactVersion] = []
        self._later_size = 0
        self.add(first)

    @property
    def size(self) -> int:
        """The approximate bytes of memory of this object."""
        return _FACT_SIZE + self._fold.size + self._later_size

    def add(self, version: FactVersion) -> None:
        """Add the next version."""
        if is_plain(version):
            self._later, self._later_size = [], 0
        if self._later or _has_times(version):
            self._later.append(version)
            self._later_size += size_of(version)
        else:
            self._fold.add(version)
        self.last = version
        """The version that was added last."""
        self._facts: tuple[Fact, ...] | None = None

    def facts(self, moment: Moment | None = None) -> Sequence[Fact]:
        """Return the known facts: none, one, or one and another that is trusted less.

        A fact with values of several versions is the last version, with all these values and the lowest trust of their versions.

        Args:
            moment: A moment after the recording of the last version. None is the current time.
        """
        if self._facts is not None:  # no version has times
            return self._facts
        if self._later:
            at = (moment or Moment(None)).at
            holding: list[FactVersion] = []
            ended = _Ended(at)
            for version in reversed(self._later):
                holds = _holds(version, at, at)
                ended.read(version, holds=holds)
                if holds:
                    holding.append(version)
                    if _replaces(version):
                        return _folded(holding, ended)
            return _folded(holding, ended, self._fold.copy())
        self._facts = tuple(self._fold.facts())
        return self._facts


class Newest:
    """The versions of one concept in one scope, added from the newest one backwards, to find the facts that hold at a moment.

    Args:
        last: The newest version.
        moment: The moment.
        before: The known facts of an earlier version and those before it. Used if that version still exists.
    """

    __slots__ = ("_before", "_ended", "_foldable", "_known", "_moment", "_recorded", "_versions", "complete", "last")

    def __init__(self, last: FactVersion, moment: Moment, before: Known | None = None) -> None:
        self.last = last
        self.complete = False
        """Whether earlier versions make no difference."""
        self._moment = moment
        self._ended = _Ended(moment.at)
        self._recorded: int | None = None
        self._known: Known | None = None
        self._foldable = not isinstance(last, SingleFact) and moment.has(last)
        self._before = before if self._foldable else None
        self._versions: list[FactVersion] = [last]
        if is_plain(last) and moment.has(last):
            self.complete = True
        else:
            self._versions.clear()
            self.add(last)

    def add(self, version: FactVersion) -> None:
        """Add the version before the last one that was added."""
        before = self._before
        if before is not None and (before.last.version, before.last.id) == (version.version, version.id):
            self._known, self.complete = before, True
            return
        self._recorded = recorded_at(version, self._moment.now if self._recorded is None else self._recorded)
        if self._foldable:
            self._versions.append(version)
            self.complete = is_plain(version)
            if is_erased(version):
                self._before = None  # it may contain the erased value
            return
        holds = _holds(version, self._moment.at, self._recorded)
        self._ended.read(version, holds=holds)
        if holds:
            self._versions.append(version)
            self.complete = _replaces(version)

    def known(self) -> Known | None:
        """Return the fold of the versions, to which later versions can be added; None if it is unknown, as at a past moment."""
        if self._foldable and self._known is None:
            self._known = Known(self._versions.pop())
        while self._known is not None and self._versions:
            self._known.add(self._versions.pop())
        return self._known

    def facts(self) -> list[Fact]:
        """Return the facts that hold at the moment, after all needed versions were added."""
        last = self.last
        if isinstance(last, SingleFact) and self.complete and len(self._versions) == 1 and self._versions[0] is last:
            return [last]
        known = self.known()
        if known is not None:
            return list(known.facts(self._moment))
        return _folded(self._versions, self._ended)


def known_at(versions: Iterable[FactVersion], moment: Moment) -> tuple[list[Fact], bool]:
    """Return the facts of versions, the newest first, that hold at a moment, and whether earlier versions make no difference."""
    holding: list[FactVersion] = []
    at, recorded, complete = moment.at, moment.now, False
    ended = _Ended(at)
    for version in versions:
        recorded = recorded_at(version, recorded)
        holds = _holds(version, at, recorded)
        ended.read(version, holds=holds)
        if holds:
            holding.append(version)
            if _replaces(version):
                complete = True
                break
    last = holding[0] if complete and len(holding) == 1 and not ended.has(holding[0]) else None
    return ([last] if isinstance(last, SingleFact) else _folded(holding, ended)), complete


def recorded_by(versions: Sequence[FactVersion], moment: Moment | None) -> list[FactVersion]:
    """Return the versions of a concept, the newest first, that were recorded by a moment; with None, all versions."""
    if moment is None:
        return list(versions)
    recorded = moment.now
    for place, version in enumerate(versions):
        recorded = recorded_at(version, recorded)
        if recorded <= moment.at:
            return list(versions[place:])
    return []


def is_erased(version: FactVersion) -> bool:
    """Return whether a version replaces erased values."""
    return isinstance(version, Withdrawal) and not version.values


def _folded(holding: Sequence[FactVersion], ended: _Ended, fold: _Fold | None = None) -> list[Fact]:
    """Return the facts of versions that hold, the newest first, which follow those of a fold."""
    fold = fold or _Fold()
    fold.read(ended)
    for version in reversed(holding):
        fold.add(version)
    fold.end(ended)
    return fold.facts()


def _replaces(version: FactVersion) -> bool:
    """Return whether a version hides all earlier ones while it holds."""
    return isinstance(version, SingleFact) and version.source.trust != UNTRUSTED


def _has_times(version: FactVersion) -> bool:
    return isinstance(version, SingleFact) and (version.valid_from is not None or version.valid_to is not None)


def _holds(version: FactVersion, at: int, recorded: int) -> bool:
    """Return whether a version holds at a moment; `recorded` is the time of its recording."""
    if not isinstance(version, SingleFact):
        return recorded <= at
    begins = recorded if version.valid_from is None else microseconds(version.valid_from)
    return begins <= at and (version.valid_to is None or at < microseconds(version.valid_to))


def size_of(version: FactVersion) -> int:
    """Return the approximate bytes of memory of a version."""
    return _FACT_SIZE + sum(map(_value_size, version.values))


def _value_size(value: str) -> int:
    return _VALUE_SIZE + getsizeof(value)
