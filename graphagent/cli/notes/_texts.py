"""Notes as text on a terminal, of which nothing is markup and nothing acts on the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from textual.content import Content

from graphagent.cli import _output
from graphagent.cli.notes.show import details
from graphagent.memory._note_values import SCORES

if TYPE_CHECKING:
    from graphagent.memory import FormerNote, Match, Record

_BAR = 20
"""The width of the longest bar, in columns."""


def as_content(text: str) -> Content:
    """Return foreign text without the characters that act on a terminal."""
    return Content(_output.shown(text))


def note_content(record: Record, past: Sequence[FormerNote], match: Match | None) -> Content:
    """Return a whole note: its text, the score of a search and its parts, its metadata, and its earlier versions, the last first."""
    parts: list[Content] = [as_content(f"{record.speaker}: {record.content}" if record.speaker else record.content)]
    if match is not None:
        parts.append(_score(match))
    parts.append(_details(record))
    if past:
        parts.append(_past(record, past))
    return Content("\n\n").join(parts)


def _details(record: Record) -> Content:
    lines = [
        Content.assemble((f"{name:<11} ", "dim"), (_output.shown(value), _style(name, value)))
        for name, value in details(record).items()
        if value
    ]
    return Content("\n").join(lines)


def _style(name: str, value: str) -> str:
    """Return the style of a detail: what a person should notice is in the colour of warnings."""
    return "$text-warning" if (name == "trust" and value != "trusted") or value.endswith("(private)") else ""


def _score(match: Match) -> Content:
    """Return a score and its parts, as a bar for each reason."""
    lines = [Content.assemble(("score       ", "dim"), (f"{match.score:.2f}", "bold"))]
    reasons = {name: value for name, value in match.parts.items() if name not in SCORES}
    most = max(map(abs, reasons.values()), default=0.0)
    for name, value in sorted(match.parts.items(), key=lambda each: (each[0] not in SCORES, -abs(each[1]))):
        bar = round(_BAR * abs(value) / most) if name in reasons and most else 0
        colour = "$success" if value >= 0 else "$error"
        lines.append(Content.assemble((f"  {_output.shown(name):<10}", "dim"), f"{value:>6.2f} ", ("━" * bar, colour)))
    if match.gaps:
        lines.append(Content.assemble(("  not found ", "dim"), _output.shown("; ".join(match.gaps))))
    return Content("\n").join(lines)


def _past(record: Record, past: Sequence[FormerNote]) -> Content:
    """Return the earlier versions of a note."""
    lines = [Content.assemble(("earlier versions", "dim"))]
    for (before, did, at, into), after in zip(past, [record, *(each.record for each in past)], strict=False):
        when = _output.moment(int((at or after.updated_at).timestamp() * 1000))
        more = f" into {into}" if into else ""
        lines.append(
            Content.assemble(
                (_output.shown(f"  {before.version}, {did}{more} {when}: "), "dim"), _output.shown(before.content)
            )
        )
    return Content("\n").join(lines)
