"""Matches ordered by a reranker, which reads the question and the notes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING

from graphagent.rerank._scores import scores_of

if TYPE_CHECKING:
    from graphagent.memory._note_values import Match, Record
    from graphagent.protocols import Reranker

_LONGEST = 2_000
"""How many characters of a note a reranker is shown; few read more than 512 tokens."""


async def reranked(reranker: Reranker, query: str, matches: Sequence[Match]) -> list[Match]:
    """Return the matches by a reranker's scores, the highest first, with `reranker` as first reason. Equal scores keep their order."""
    if not matches:
        return []
    scores = await scores_of(reranker, query, [_shown(match.record) for match in matches])
    scored = [
        replace(match, reasons=("reranker", *match.reasons), parts=MappingProxyType({"reranker": score, **match.parts}))
        for match, score in zip(matches, scores, strict=True)
    ]
    return sorted(scored, key=lambda match: match.parts["reranker"], reverse=True)


def _shown(record: Record) -> str:
    """Return a note in the form of a quotation, such as `Ana, 4 March 2025: We ship on Monday.`, as far as that is known."""
    said = [record.speaker] if record.speaker else []
    if record.at is not None:
        said.append(f"{record.at.day} {record.at:%B %Y}")
    text = record.content[:_LONGEST]
    return f"{', '.join(said)}: {text}" if said else text
