"""What notes are made of: records, what is found of them, and what is said of a scope."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any, Literal

Depth = Literal["shallow", "deep", "auto"]
"""How far a recall looks: without a model, with one, or with one where it is needed."""
DEPTHS: tuple[Depth, ...] = ("shallow", "deep", "auto")
INFERRED = ("scope", "categories", "importance", "metadata")
"""What a model infers where it was left out."""

_NEVER = datetime.min.replace(tzinfo=UTC)
_NOTHING: Mapping[str, Any] = MappingProxyType({})
_GLANCE = 200
"""Characters of a note that a notebook shows of each one in a list."""


@dataclass(frozen=True, slots=True)
class Note:
    """A text to be kept, with what is known of it. What is left out is inferred where there is a model, or gets its default."""

    content: str = field(repr=False)
    scope: str | None = None
    categories: Sequence[str] | None = None
    importance: float | None = None
    """From 0 to 1."""
    metadata: Mapping[str, Any] | None = field(default=None, repr=False)
    source: str | None = None
    """Who said it, or where it is from."""
    private: bool = False
    """Whether only its source may see it."""
    at: datetime | None = None
    """When it was said; a time without a zone is UTC."""

    def __repr__(self) -> str:
        return _short(self)


@dataclass(frozen=True, slots=True)
class Turn:
    """What one side said in a conversation."""

    text: str = field(repr=False)
    speaker: str = ""
    role: str = ""
    """`user`, `assistant`, or whatever the roles are."""
    at: datetime | None = None
    source: str | None = None
    """Where it stands, such as `D3:7`."""

    def __repr__(self) -> str:
        return _short(self)


@dataclass(frozen=True, slots=True)
class Record:
    """A note as it is kept. As text, its scope and what it says; its repr, which may get into a log, has no text of it."""

    id: str
    content: str = field(repr=False)
    scope: str = "/"
    categories: tuple[str, ...] = ()
    importance: float = 0.5
    metadata: Mapping[str, Any] = field(default_factory=lambda: _NOTHING, repr=False)
    created_at: datetime = field(default=_NEVER, repr=False)
    """When it was kept first, in UTC."""
    updated_at: datetime = field(default=_NEVER, repr=False)
    """When it was changed last."""
    at: datetime | None = None
    """When it was said, where that is known."""
    owner: str = ""
    source: str = ""
    private: bool = False
    trust: str = ""
    """How far it can be trusted: one of TRUST_LEVELS."""
    run_id: str = ""
    """The run that kept it; empty where a program did."""
    session: str = ""
    """The conversation that it is a turn of."""
    place: int = 0
    """Its place there."""
    speaker: str = ""
    role: str = ""
    version: int = 1
    """One more with each change."""

    def __str__(self) -> str:
        return f"{self.scope} {self.speaker}: {self.content}" if self.speaker else f"{self.scope} {self.content}"

    def __repr__(self) -> str:
        return _short(self, always="scope")

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(_glance(str(self)))


@dataclass(frozen=True, slots=True)
class Match:
    """A record that was found. As text, its score, its scope and what it says; its repr has no text of it."""

    record: Record
    score: float
    """How well it fits, above 0 and up to 1; it means the same from query to query."""
    reasons: tuple[str, ...]
    """Why it was found, the strongest first: `lexical`, `semantic`, `neighbours`, `session`, `speaker`, `date`, …"""
    parts: Mapping[str, float] = field(repr=False)
    """What each of these gave to its rank; `relevance` is the score before recency and importance."""
    gaps: tuple[str, ...] = field(default=(), repr=False)
    """What a deep recall looked for and did not find."""

    def __str__(self) -> str:
        return f"{self.score:.2f} {self.record}"

    def __repr__(self) -> str:
        return f"Match({self.record!r}, score={round(self.score, 4)}, reasons={self.reasons})"

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        printer.text(_glance(str(self)))


@dataclass(frozen=True, slots=True)
class ScopeInfo:
    """What is in a scope, and in those below it."""

    path: str
    record_count: int
    categories: list[str]
    """In alphabetical order."""
    oldest_record: datetime | None
    newest_record: datetime | None
    child_scopes: list[str]
    """The whole paths of those directly below."""


@dataclass(frozen=True, slots=True)
class ScopeTree:
    """A scope with those below it. As text, a line for each, children indented by two spaces."""

    path: str
    record_count: int
    """With those of the scopes below."""
    children: tuple[ScopeTree, ...] = ()

    def __str__(self) -> str:
        return "\n".join(self.lines(""))

    def lines(self, indent: str) -> list[str]:
        """Give the lines of the text, each behind some spaces."""
        count = f"{self.record_count} record{'s' if self.record_count != 1 else ''}"
        return [
            f"{indent}{self.path} ({count})",
            *(line for each in self.children for line in each.lines(indent + "  ")),
        ]


def _short(given: Note | Turn | Record, always: str = "") -> str:
    """Give a repr of the fields that are not as they are by default, and of one that is always told."""
    told = [each for each in fields(given) if each.repr]
    shown = [
        f"{each.name}={value.isoformat() if isinstance(value, datetime) else repr(value)}"
        for each in told
        if (value := getattr(given, each.name)) != each.default or each.name == always
    ]
    return f"{type(given).__name__}({', '.join(shown)})"


def _glance(text: str) -> str:
    """Give as much of a text as fits a line of a list."""
    line = " ".join(text.split())
    return line if len(line) <= _GLANCE else f"{line[: _GLANCE - 1]}…"
