"""The values that notes take and return: notes, turns, records, matches, and summaries of scopes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

from graphagent._article import counted
from graphagent._options import check_zone

Depth = Literal["shallow", "deep", "auto"]
"""How a recall searches: without a model, with one, or with one if it is needed."""
Infer = Literal["later", "now", "never"]
"""When a model infers the values left out of a note."""
DEPTHS: tuple[Depth, ...] = ("shallow", "deep", "auto")
INFER: tuple[Infer, ...] = ("now", "later", "never")
INFERRED = ("scope", "categories", "importance", "metadata")
"""The fields that a model infers if they were left out."""

_NEVER = datetime.min.replace(tzinfo=UTC)
_NOTHING: Mapping[str, Any] = MappingProxyType({})
_GLANCE = 200
"""How many characters a notebook shows of each note in a list."""


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


def _short(given: Note | Turn | Record, always: str = "") -> str:
    """Return a repr of the fields that do not have their default values, and of one that is always shown."""
    told = [each for each in fields(given) if each.repr]
    shown = [
        f"{each.name}={value.isoformat() if isinstance(value, datetime) else repr(value)}"
        for each in told
        if (value := getattr(given, each.name)) != each.default or each.name == always
    ]
    return f"{type(given).__name__}({', '.join(shown)})"


def _glance(text: str) -> str:
    """Return the beginning of a text, on one line, for a list."""
    line = " ".join(text.split())
    return line if len(line) <= _GLANCE else f"{line[: _GLANCE - 1]}…"
