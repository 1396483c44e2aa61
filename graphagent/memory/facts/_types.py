"""The values that facts consist of: concepts, subjects, scopes, sources, and the two kinds of facts. All are immutable.

The file is long because it describes each of these values and their fields for users.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from dataclasses import KW_ONLY, dataclass, field, replace
from datetime import datetime
from enum import Enum
from functools import total_ordering
from typing import TypeVar

from graphagent import _clock
from graphagent._article import counted
from graphagent.memory.facts._moments import checked_moment, day_of

_LONGEST_NAME = 1_000
_LONGEST_TEXT = 1_048_576
_LARGEST = 2**63 - 1
_LOWEST_PRIORITY = 2**31 - 1
_EVERYTHING = "everything"


def checked_name(name: str, what: str) -> str:
    """Return a name in Unicode form NFC, so that two encodings of one name are the same.

    Raises:
        TypeError: the name is not text.
        ValueError: the name is empty, longer than 1,000 characters, or not Unicode text.
    """
    if not isinstance(name, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"{what} must be text, not {type(name).__name__}")
    if not name.isascii():
        _encodable(name, what)
        name = unicodedata.normalize("NFC", name)
    if not 0 < len(name) <= _LONGEST_NAME:
        raise ValueError(f"{what} must have 1 to {_LONGEST_NAME:,} characters, not {len(name):,}")
    return name


def folded(text: str) -> str:
    """Return a text for comparisons that ignore case and the form of Unicode."""
    return text.casefold() if text.isascii() else unicodedata.normalize("NFC", text.casefold())


def checked_owner(owner: str) -> str:
    """Return the name of an owner in form NFC; it may be empty.

    Raises:
        TypeError, ValueError: as for any name.
    """
    return "" if owner == "" else checked_name(owner, "the name of an owner")


def _checked_text(text: str, what: str) -> None:
    # The text may be a fact's value, so the errors do not show it.
    if not isinstance(text, str):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"{what} must be text, not {type(text).__name__}")
    size = len(text) if text.isascii() else _encodable(text, what)
    if size > _LONGEST_TEXT:
        raise ValueError(f"{what} must have at most {_LONGEST_TEXT:,} bytes as UTF-8, not {size:,}")


def _encodable(text: str, what: str) -> int:
    try:
        return len(text.encode())
    except UnicodeEncodeError as error:
        place = error.start
    raise ValueError(f"{what} must be Unicode text; there is a lone surrogate at character {place}")


def _checked_int(number: int, what: str, lowest: int, highest: int = _LARGEST) -> None:
    if type(number) is not int:
        raise TypeError(f"{what} must be an int, not {type(number).__name__}")
    if not lowest <= number <= highest:
        raise ValueError(f"{what} must be from {lowest} to {highest}, not {number}")


class FactType(Enum):
    """The number of values that a concept has at a time."""

    SINGLE = "single"
    """One: a new fact replaces the last."""
    MULTIPLE = "multiple"
    """Several: a new fact adds its values to the others."""


@dataclass(frozen=True, slots=True)
class Concept:
    """What a fact is about, such as `ide-theme`.

    Facts are found by the keyword alone, and two concepts with one keyword are equal: the description and the type describe
    a concept, but do not identify it. The keyword has 1 to 1,000 characters, in Unicode form NFC.

    Raises:
        ValueError: the keyword is empty or too long, or the description larger than 1 MiB.
    """

    keyword: str
    """The name that identifies the concept."""
    description: str = field(default="", compare=False, repr=False)
    """Its meaning, for people and for models."""
    fact_type: FactType = field(default=FactType.SINGLE, compare=False)
    """Whether it has one value or several."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "keyword", checked_name(self.keyword, "the keyword of a concept"))
        _checked_text(self.description, f"the description of concept {self.keyword!r}")
        if not isinstance(self.fact_type, FactType):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"the fact_type of concept {self.keyword!r} must be FactType.SINGLE or FactType.MULTIPLE")


@dataclass(frozen=True, slots=True)
class Subject:
    """The person or thing that facts are about, such as the user. Subjects with the same name are equal.

    Raises:
        ValueError: the name is empty or longer than 1,000 characters, or the priority is out of range.
    """

    name: str
    """The name that identifies the subject, in Unicode form NFC."""
    description: str = field(default="", compare=False, repr=False)
    """Its description, for people and for models."""
    priority: int = field(default=1, compare=False)
    """The rank of its facts if several subjects have some: lower numbers come first. From 0 to 2,147,483,646."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", checked_name(self.name, "the name of a subject"))
        _checked_text(self.description, f"the description of subject {self.name!r}")
        if self.name == _EVERYTHING:  # however it is made, it comes after every other subject
            object.__setattr__(self, "priority", _LOWEST_PRIORITY)
        else:
            _checked_int(self.priority, f"the priority of subject {self.name!r}", 0, _LOWEST_PRIORITY - 1)


EVERYTHING = Subject(_EVERYTHING, "all that concerns no subject in particular", priority=_LOWEST_PRIORITY)
"""The subject of facts that are about no other subject. Every other subject ranks before it."""


@total_ordering
class ScopeKind(Enum):
    """The kind of a scope. Kinds are ordered from the narrowest to the widest."""

    AGENT = "agent"
    """One agent."""
    FEATURE = "feature"
    """One feature of a product."""
    PRODUCT = "product"
    """One product."""
    CROSS_PRODUCT = "cross_product"
    """All products of an organization."""

    @property
    def width(self) -> int:
        """The position in the order of kinds: 0 is the narrowest."""
        return _WIDTHS[self]

    def __lt__(self, other: object) -> bool:
        return self.width < other.width if isinstance(other, ScopeKind) else NotImplemented


_WIDTHS = {kind: width for width, kind in enumerate(ScopeKind)}


@dataclass(frozen=True, slots=True)
class Scope:
    """The range in which a fact holds: a kind, and a name of 1 to 1,000 characters in Unicode form NFC.

    Raises:
        ValueError: the name is empty or too long.
    """

    kind: ScopeKind
    """The kind of the scope."""
    name: str
    """The name of the agent, feature, product or organization."""

    def __post_init__(self) -> None:
        if not isinstance(self.kind, ScopeKind):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(f"the kind of a scope must be a ScopeKind, not {type(self.kind).__name__}")
        object.__setattr__(self, "name", checked_name(self.name, f"the name of a scope of kind {self.kind.value!r}"))

    @classmethod
    def agent(cls, name: str) -> Scope:
        """Return the scope of one agent."""
        return cls(ScopeKind.AGENT, name)

    @classmethod
    def feature(cls, name: str) -> Scope:
        """Return the scope of one feature of a product."""
        return cls(ScopeKind.FEATURE, name)

    @classmethod
    def product(cls, name: str) -> Scope:
        """Return the scope of one product."""
        return cls(ScopeKind.PRODUCT, name)

    @classmethod
    def cross_product(cls, name: str) -> Scope:
        """Return the scope of all products of an organization."""
        return cls(ScopeKind.CROSS_PRODUCT, name)


TRUST_LEVELS = ("untrusted", "inferred", "", "trusted")
"""The levels of trust, from the lowest to the highest.

`untrusted`: from outside, such as from a tool, a page or a document. `inferred`: found by a model in a conversation. Empty:
nothing is claimed, as when a program saves a fact outside a run. `trusted`: a person or a program vouches for it.
"""


UNTRUSTED = TRUST_LEVELS[0]
"""The level of trust whose facts do not hide facts that are trusted more."""


def least_trust(levels: Iterable[str]) -> str:
    """Return the lowest of some levels of trust, the level of anything made from such parts."""
    return min(levels, key=TRUST_LEVELS.index)


@dataclass(frozen=True, slots=True)
class Source:
    """The origin of a fact. In a run, the run sets it, and a model cannot; outside a run, it is empty.

    Raises:
        ValueError: the trust is not one of TRUST_LEVELS, or the step is negative.
    """

    run_id: str = ""
    """The run that saved the fact."""
    step: int | None = None
    """The number of the step in that run, from 0."""
    origin: str = ""
    """The part of the program that saved it, such as the name of a node."""
    trust: str = ""
    """Its level of trust: one of TRUST_LEVELS."""

    def __post_init__(self) -> None:
        _checked_text(self.run_id, "the run_id of a source")
        _checked_text(self.origin, "the origin of a source")
        if self.step is not None:
            _checked_int(self.step, "the step of a source", 0)
        if self.trust not in TRUST_LEVELS:
            raise ValueError(f"the trust of a source must be one of {', '.join(map(repr, TRUST_LEVELS))}")


_NO_SOURCE = Source()


@dataclass(frozen=True, slots=True, repr=False)
class SingleFact:
    """A fact with one value. `str()` returns the value; `repr()`, which may be logged, does not contain it.

    A fact holds from `valid_from`, or else from when it was recorded, until `valid_to`, or else until a later one says otherwise. Both
    times may be in the future. They are kept with their offset from UTC, and without the name of their zone.

    Raises:
        ValueError: the concept has several values; the value has more than 1 MiB or a lone surrogate; a time has no zone; or the fact
            ends before it begins, or at the same moment.
        TypeError: a time is not a datetime.
    """

    concept: Concept
    """The concept that it is about."""
    value: str
    """The value: any text of at most 1 MiB as UTF-8."""
    timestamp: int | None = None
    """When it was learned, in milliseconds UTC since 1970. If None, it is set when the fact is saved."""
    _: KW_ONLY
    id: str = ""
    """Identifies the fact. Each save sets a new id, unless the fact has an id and no version yet."""
    version: int = 0
    """1, 2, 3 … in the order of saving, for each owner, scope, subject and keyword; 0 before it is saved."""
    source: Source = _NO_SOURCE
    """Its origin."""
    valid_from: datetime | None = None
    """The first moment at which it holds, with a time zone. If None, that is when it was recorded."""
    valid_to: datetime | None = None
    """The moment from which it no longer holds, with a time zone. If None, it has no end of its own."""

    def __post_init__(self) -> None:
        _checked_text(self.value, f"the value of a fact about {_keyword(self.concept, FactType.SINGLE)!r}")
        _check_stamps(self)
        if self.valid_from is not None:
            object.__setattr__(self, "valid_from", checked_moment("valid_from=", self.valid_from))
        if self.valid_to is not None:
            object.__setattr__(self, "valid_to", checked_moment("valid_to=", self.valid_to))
            if self.valid_from is not None and self.valid_from >= self.valid_to:
                raise ValueError(
                    f"valid_to= of a fact about {self.concept.keyword!r} must be after valid_from=: it is the moment from which "
                    f"the fact no longer holds"
                )

    @property
    def values(self) -> tuple[str, ...]:
        """The value, as the only one."""
        return (self.value,)

    def __str__(self) -> str:
        return self.value

    def _repr_html_(self) -> str:
        return fact_card(self)

    def __repr__(self) -> str:
        return f"SingleFact({self.concept.keyword!r}, version={self.version})"


@dataclass(frozen=True, slots=True, init=False, repr=False)
class MultipleFacts:
    """A fact with one or more values, in order. `str()` returns them; `repr()`, which may be logged, does not contain them.

    Raises:
        ValueError: the concept has only one value; no values are given; or a value has more than 1 MiB or a lone surrogate.
        TypeError: the values are a single text.
    """

    concept: Concept
    """The concept that it is about."""
    values: tuple[str, ...]
    """The values: texts of at most 1 MiB each as UTF-8."""
    timestamp: int | None
    """When it was learned, in milliseconds UTC since 1970. If None, it is set when the fact is saved."""
    id: str
    """Identifies the fact. Each save sets a new id, unless the fact has an id and no version yet."""
    version: int
    """1, 2, 3 … in the order of saving, for each owner, scope, subject and keyword; 0 before it is saved."""
    source: Source
    """Its origin."""

    def __init__(
        self,
        concept: Concept,
        values: Iterable[str],
        timestamp: int | None = None,
        *,
        id: str = "",
        version: int = 0,
        source: Source = _NO_SOURCE,
    ) -> None:
        keyword = _keyword(concept, FactType.MULTIPLE)
        given = _checked_values(
            values, f"the values of a fact about {keyword!r}", f"a value of a fact about {keyword!r}"
        )
        if not given:
            raise ValueError(f"a fact about {keyword!r} must have at least one value")
        _set(self, concept=concept, values=given, timestamp=timestamp, id=id, version=version, source=source)
        _check_stamps(self)

    @property
    def value(self) -> str:
        """The value, if there is exactly one.

        Raises:
            ValueError: there are several.
        """
        return _only(self)

    def __str__(self) -> str:
        return ", ".join(self.values)

    def _repr_html_(self) -> str:
        return fact_card(self)

    def __repr__(self) -> str:
        return f"MultipleFacts({self.concept.keyword!r}, version={self.version})"


Fact = SingleFact | MultipleFacts
"""A fact with one value or several."""


@dataclass(frozen=True, slots=True, init=False, repr=False)
class Withdrawal:
    """A version that takes back values of a concept with several values: from then on, they are not known any more.

    Earlier versions still have them. `str()` returns the values; `repr()`, which may be logged, does not contain them. A withdrawal
    without values stands where values were erased by `forget(…, value=)`; none is made by hand.

    Raises:
        ValueError: the concept has only one value; no values are given; or a value has more than 1 MiB or a lone surrogate.
        TypeError: the values are a single text.
    """

    concept: Concept
    """The concept that it is about."""
    values: tuple[str, ...]
    """The values that it takes back; empty if they were erased."""
    timestamp: int | None
    """When they were withdrawn, in milliseconds UTC since 1970. If None, it is set when the withdrawal is recorded."""
    id: str
    """Identifies the withdrawal, as the id of a fact does."""
    version: int
    """Its place among the versions of the facts about the concept; 0 before it is recorded."""
    source: Source
    """Its origin."""

    def __init__(
        self,
        concept: Concept,
        values: Iterable[str],
        timestamp: int | None = None,
        *,
        id: str = "",
        version: int = 0,
        source: Source = _NO_SOURCE,
    ) -> None:
        given = _checked_values(values, "the values to withdraw", "a value to withdraw")
        if given or not version:
            keyword = _withdrawable(concept)
            if not given:
                raise ValueError(f"a withdrawal from {keyword!r} must have at least one value")
        _set(self, concept=concept, values=given, timestamp=timestamp, id=id, version=version, source=source)
        _check_stamps(self)

    @property
    def value(self) -> str:
        """The value, if there is exactly one.

        Raises:
            ValueError: there are several, or it was erased.
        """
        return _only(self)

    def __str__(self) -> str:
        return ", ".join(self.values)

    def _repr_html_(self) -> str:
        return fact_card(self)

    def __repr__(self) -> str:
        return f"Withdrawal({self.concept.keyword!r}, version={self.version})"


FactVersion = SingleFact | MultipleFacts | Withdrawal
"""One version in the history of a concept: a fact, or the withdrawal of values."""


def fact_card(fact: FactVersion, where: str = "") -> str:
    """Return the HTML of a fact or of a withdrawal, for a notebook; `where` says where it is kept."""
    from graphagent import _notebook as shown

    times = [(name, getattr(fact, f"valid_{name}", None)) for name in ("from", "to")]
    about = (
        where, day_of(fact.timestamp) or "", fact.source.trust, f"version {fact.version}" if fact.version else "",
        *(f"{name} {moment:%Y-%m-%d}" for name, moment in times if moment is not None),
        f"saved by {fact.source.origin}" if fact.source.origin else "",
    )  # fmt: skip
    return shown.card(
        fact.concept.keyword, [shown.text(each, prose=True) for each in fact.values], shown.line(*about),
        state="withdrawn" if isinstance(fact, Withdrawal) else "", about=[fact.concept.description] if fact.concept.description else [],
    )  # fmt: skip


_Version = TypeVar("_Version", bound=FactVersion)


def stamped(fact: _Version, version: int) -> _Version:
    """Return a fact or a withdrawal as it is stored: with its version, and with an id and the time if it has none.

    A fact that was saved before becomes another fact, with a new id.
    """
    timestamp = _clock.now() if fact.timestamp is None else fact.timestamp
    id_ = fact.id if fact.id and not fact.version else _clock.new_id()
    return replace(fact, id=id_, version=version, timestamp=timestamp)


def _set(made: object, **parts: object) -> None:
    for name, part in parts.items():
        object.__setattr__(made, name, part)


def _checked_values(values: Iterable[str], all_of_them: str, one: str) -> tuple[str, ...]:
    if isinstance(values, (str, bytes)):
        raise TypeError(f"{all_of_them} must be several texts, not one; put it in a list")
    given = tuple(values)
    for value in given:
        _checked_text(value, one)
    return given


def _only(several: MultipleFacts | Withdrawal) -> str:
    if len(several.values) != 1:
        what = "fact about" if isinstance(several, MultipleFacts) else "withdrawal from"
        raise ValueError(
            f"the {what} {several.concept.keyword!r} has {counted(len(several.values), 'value')}; take .values"
        )
    return several.values[0]


def _withdrawable(concept: Concept) -> str:
    if isinstance(concept, Concept) and concept.fact_type is FactType.SINGLE:  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ValueError(
            f"concept {concept.keyword!r} is FactType.SINGLE, and values are withdrawn from FactType.MULTIPLE; save the fact again "
            f"with valid_to=, or forget it"
        )
    return _keyword(concept, FactType.MULTIPLE)


def _keyword(concept: Concept, kind: FactType) -> str:
    if not isinstance(concept, Concept):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"a fact must be about a Concept, not about {type(concept).__name__}")
    if concept.fact_type is not kind:
        fits = "SingleFact" if concept.fact_type is FactType.SINGLE else "MultipleFacts"
        raise ValueError(f"concept {concept.keyword!r} is FactType.{concept.fact_type.name}; make a {fits} of it")
    return concept.keyword


def _check_stamps(fact: FactVersion) -> None:
    if fact.timestamp is not None:
        _checked_int(fact.timestamp, "the timestamp of a fact, in milliseconds,", -_LARGEST)
    _checked_text(fact.id, "the id of a fact")
    _checked_int(fact.version, "the version of a fact", 0)
    if not isinstance(fact.source, Source):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"the source of a fact must be a Source, not {type(fact.source).__name__}")
