"""How facts, notes and matches are shown in a notebook. Their reprs, which may get into a log, have no text; here, somebody asked for it."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

from graphagent import _notebook as shown
from graphagent.memory._blocks import FORGOTTEN, day_of
from graphagent.memory.facts._types import Withdrawal
from graphagent.memory.steps._render import value_text

if TYPE_CHECKING:
    from graphagent._html import Html
    from graphagent.memory._blocks import KnownFact
    from graphagent.memory._note_values import Match, Record
    from graphagent.memory.facts._types import FactVersion

_SCORES = ("relevance", "reranker")
"""The parts of a match that are scores, and not what a reason contributed to its rank."""


def record_card(record: Record) -> str:
    """Return the HTML of a note."""
    return shown.card(record.scope, *_of_record(record))


def match_card(match: Match) -> str:
    """Return the HTML of a note that was found, with the parts of its score."""
    gaps = shown.line(f"not found: {', '.join(match.gaps)}") if match.gaps else None
    parts = shown.bars([(name, value) for name, value in match.parts.items() if value and name not in _SCORES])
    scores = [f"{name} {match.parts[name]:.2f}" for name in _SCORES if name in match.parts]
    return shown.card(
        match.record.scope, *_of_record(match.record), parts, gaps, state=f"{match.score:.2f}", about=scores
    )


def _of_record(record: Record) -> list[Html]:
    said = record.at if record.at is not None else record.created_at
    about = (
        record.speaker, f"{said:%Y-%m-%d}" if said.year > 1 else "", f"source {record.source}" if record.source else "",
        "private" if record.private else "", record.trust, ", ".join(record.categories), f"importance {record.importance:g}",
    )  # fmt: skip
    return [shown.text(value_text(record.content), prose=True), shown.line(*about)]


def fact_card(fact: FactVersion, known: KnownFact | None = None) -> str:
    """Return the HTML of a fact or of a withdrawal; of a known fact, also where it is kept."""
    values = [FORGOTTEN] if known is not None and known.forgotten else list(fact.values)
    about = (
        "" if known is None else f"{known.subject.name}, {known.scope.kind.value} {known.scope.name}".rstrip(),
        day_of(fact.timestamp) or "", fact.source.trust, f"version {fact.version}" if fact.version else "",
        *(f"{name} {moment:%Y-%m-%d}" for name, moment in _times(fact)),
        f"saved by {fact.source.origin}" if fact.source.origin else "",
    )  # fmt: skip
    return shown.card(
        fact.concept.keyword, [shown.text(value_text(each), prose=True) for each in values], shown.line(*about),
        state="withdrawn" if isinstance(fact, Withdrawal) else "", about=[fact.concept.description] if fact.concept.description else [],
    )  # fmt: skip


def _times(fact: FactVersion) -> list[tuple[str, datetime]]:
    given = (("from", getattr(fact, "valid_from", None)), ("to", getattr(fact, "valid_to", None)))
    return [(name, moment) for name, moment in given if moment is not None]
