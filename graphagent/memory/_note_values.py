"""The values that notes take and return: notes, turns, records, matches, filters, and summaries of scopes."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any, NamedTuple, cast

from graphagent._article import counted
from graphagent._options import check_zone

ROOT = "/"
"""The scope that contains all others."""
_NEVER = datetime.min.replace(tzinfo=UTC)
_NOTHING: Mapping[str, Any] = MappingProxyType({})
_GLANCE = 200
"""How many characters a notebook shows of each note in a list."""
SCORES = ("relevance", "reranker")
"""The parts of a match that are scores. The other parts add up to the sum that ranks it."""


@dataclass(frozen=True, slots=True)
class Note:
    """A text to save. Fields that are left out are inferred if there is a model, or get their defaults."""

    content: str = field(repr=False)
    scope: str | None = None
    categories: Sequence[str] | None = None
    importance: float | None = None
    """From 0 to 1."""
    metadata: Mapping[str, Any] | None = field(default=None, repr=False)
    source: str | None = None
    """Who said it, or where it comes from."""
    private: bool = False
    """Whether only its source sees it."""
    at: datetime | None = None
    """When it was said, with a time zone."""

    def __post_init__(self) -> None:
        if isinstance(self.at, datetime):
            check_zone("at", self.at)

    def __repr__(self) -> str:
        return _short(self)


@dataclass(frozen=True, slots=True)
class Turn:
    """What one participant said in a conversation."""

    text: str = field(repr=False)
    speaker: str = ""
    role: str = ""
    """Such as `user` or `assistant`."""
    at: datetime | None = None
    """When it was said, with a time zone."""
    source: str | None = None
    """Where it comes from, such as `D3:7`."""

    def __post_init__(self) -> None:
        if isinstance(self.at, datetime):
            check_zone("at", self.at)

    def __repr__(self) -> str:
        return _short(self)


@dataclass(frozen=True, slots=True)
class Record:
    """A saved note. `str()` returns its scope and text; the repr, which may get into a log, has no text."""

    id: str
    content: str = field(repr=False)
    scope: str = "/"
    categories: tuple[str, ...] = ()
    importance: float = 0.5
    metadata: Mapping[str, Any] = field(default_factory=lambda: _NOTHING, repr=False)
    created_at: datetime = field(default=_NEVER, repr=False)
    """When the note was first saved, in UTC."""
    updated_at: datetime = field(default=_NEVER, repr=False)
    """When the note was last changed, in UTC."""
    at: datetime | None = None
    """When the note was said, in UTC, if known."""
    owner: str = ""
    source: str = ""
    private: bool = False
    trust: str = ""
    """How far the note can be trusted: one of TRUST_LEVELS, or empty if unspecified."""
    run_id: str = ""
    """The run that saved the note; empty outside a run."""
    session: str = ""
    """The conversation that contains this turn."""
    place: int = 0
    """Its number in the conversation, from 1."""
    speaker: str = ""
    role: str = ""
    version: int = 1
    """1, and one more with each change."""

    def __str__(self) -> str:
        return f"{self.scope} {self.speaker}: {self.content}" if self.speaker else f"{self.scope} {self.content}"

    def __repr__(self) -> str:
        return _short(self, always="scope")

    def _repr_html_(self) -> str:
        from graphagent import _notebook as shown

        return shown.card(self.scope, shown.text(self.content, prose=True), shown.line(*_about(self)))

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(_glance(str(self)))


class FormerNote(NamedTuple):
    """A note before a change."""

    record: Record
    """The note as it was."""
    action: str
    """The change, such as `updated`, or `consolidated: …` with the model's reason."""
    at: datetime | None = None
    """The time of the change, in UTC; None if it was not recorded."""
    into: str = ""
    """The id of the note that replaced it, if it was consolidated into another one."""


@dataclass(frozen=True, slots=True)
class Match:
    """A record that was found. `str()` returns its score, scope and text; the repr has no text."""

    record: Record
    score: float
    """How well the note fits, above 0 and up to 1. Scores of different queries can be compared."""
    reasons: tuple[str, ...]
    """Why it was found, the strongest reason first: `lexical`, `semantic`, `neighbours`, `session`, `speaker`, `date`, …; before them
    `reranker`, if a reranker was shown it."""
    parts: Mapping[str, float] = field(repr=False)
    """What each reason contributed to its rank; `relevance` is the score before recency and importance, and `reranker` the reranker's
    own score, by which it was ranked."""
    gaps: tuple[str, ...] = field(default=(), repr=False)
    """The information that a deep recall searched for and did not find."""

    def __str__(self) -> str:
        return f"{self.score:.2f} {self.record}"

    def __repr__(self) -> str:
        return f"Match({self.record!r}, score={round(self.score, 4)}, reasons={self.reasons})"

    def _repr_html_(self) -> str:
        from graphagent import _notebook as shown

        record, parts = self.record, self.parts
        return shown.card(
            record.scope, shown.text(record.content, prose=True), shown.line(*_about(record)),
            shown.bars([(name, part) for name, part in parts.items() if part and name not in SCORES]),
            shown.line(f"not found: {', '.join(self.gaps)}") if self.gaps else None,
            state=f"{self.score:.2f}", about=[f"{name} {parts[name]:.2f}" for name in SCORES if name in parts],
        )  # fmt: skip

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(_glance(str(self)))


@dataclass(frozen=True, slots=True)
class ScopeInfo:
    """A summary of a scope and the scopes below it."""

    path: str
    record_count: int
    categories: list[str]
    """In alphabetical order."""
    oldest_record: datetime | None
    newest_record: datetime | None
    child_scopes: list[str]
    """The whole paths of the scopes directly below."""


@dataclass(frozen=True, slots=True)
class ScopeTree:
    """A scope with those below it. `str()` returns a line for each, children indented by two spaces."""

    path: str
    record_count: int
    """Including those of the scopes below."""
    children: tuple[ScopeTree, ...] = ()

    def __str__(self) -> str:
        return "\n".join(self.lines(""))

    def lines(self, indent: str) -> list[str]:
        """Return the lines of the text, each after an indent."""
        return [
            f"{indent}{self.path} ({counted(self.record_count, 'record')})",
            *(line for each in self.children for line in each.lines(indent + "  ")),
        ]


@dataclass(frozen=True, slots=True)
class Filter:
    """Which notes an operation may find."""

    owner: str
    scopes: tuple[str, ...] = (ROOT,)
    """With all scopes below them. None of them is within another; without any, nothing fits."""
    categories: tuple[frozenset[str], ...] = ()
    """A record fits if it has at least one category of each of these sets."""
    asker: str | None = None
    """Who asks: of the private records, only those of this source fit."""
    source: str | None = None
    """Only records of this source fit."""
    since: int | None = None
    until: int | None = None
    """Only records that were said, or else saved, between these times fit; in milliseconds UTC, both included."""
    saved_since: int | None = None
    """Only records that were saved at this time or later fit; in milliseconds UTC."""
    private: bool = False
    """Whether private records of all sources fit."""
    metadata: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Only records whose metadata have each of these keys with an equal value fit. The values are as JSON returns them."""

    @property
    def is_whole(self) -> bool:
        """Whether all records of the owner fit, except private ones."""
        unbounded = (self.source, self.since, self.until, self.saved_since) == (None,) * 4
        return self.scopes == (ROOT,) and unbounded and not self.categories and not self.metadata

    def matches(self, record: Record) -> bool:
        """Return whether a record fits."""
        return (
            record.owner == self.owner
            and any(is_within(record.scope, scope) for scope in self.scopes)
            and (not record.private or self.private or record.source == self.asker)
            and (self.source is None or record.source == self.source)
            and not any(some.isdisjoint(record.categories) for some in self.categories)
            and ((self.since is None and self.until is None) or self._is_timely(record))
            and (self.saved_since is None or milliseconds(record.created_at) >= self.saved_since)
            and (not self.metadata or self._has_metadata(record))
        )

    def _is_timely(self, record: Record) -> bool:
        first, last = stretch(self)
        return first <= milliseconds(record.created_at if record.at is None else record.at) <= last

    def _has_metadata(self, record: Record) -> bool:
        return all(
            name in record.metadata and entry_text(name, record.metadata[name]) == entry_text(name, value)
            for name, value in self.metadata.items()
        )


def is_within(path: str, scope: str) -> bool:
    """Return whether a path is a scope or below it."""
    return path == scope or scope == ROOT or path.startswith(scope + "/")


def stretch(fits: Filter) -> tuple[int, int]:
    """Return the first and the last moment that fit."""
    return fits.since if fits.since is not None else -(2**62), fits.until if fits.until is not None else 2**62


def milliseconds(time: datetime) -> int:
    """Return a time in milliseconds UTC since 1970."""
    return round(time.timestamp() * 1000)


def entry_text(name: str, value: object) -> str:
    """Return an entry of metadata as a text that is the same for equal values.

    Numbers are equal by value, so 1 equals 1.0. The truth values are not numbers, as in JSON.
    """
    return json.dumps([name, _comparable(value)], sort_keys=True)


def _comparable(value: object) -> object:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, list):
        return [_comparable(each) for each in cast("list[object]", value)]
    if isinstance(value, dict):
        return {name: _comparable(each) for name, each in cast("dict[str, object]", value).items()}
    return value


def _short(given: Note | Turn | Record, always: str = "") -> str:
    """Return a repr of the fields that do not have their default values, and of one that is always shown."""
    told = [each for each in fields(given) if each.repr]
    shown = [
        f"{each.name}={value.isoformat() if isinstance(value, datetime) else repr(value)}"
        for each in told
        if (value := getattr(given, each.name)) != each.default or each.name == always
    ]
    return f"{type(given).__name__}({', '.join(shown)})"


def _about(record: Record) -> list[str]:
    """Return the details of a note beside its text."""
    said = record.created_at if record.at is None else record.at
    return [
        record.speaker, f"{said:%Y-%m-%d}" if said != _NEVER else "", f"source {record.source}" if record.source else "",
        "private" if record.private else "", record.trust, ", ".join(record.categories), f"importance {record.importance:g}",
    ]  # fmt: skip


def _glance(text: str) -> str:
    """Return the beginning of a text, on one line, for a list."""
    line = " ".join(text.split())
    return line if len(line) <= _GLANCE else f"{line[: _GLANCE - 1]}…"
