"""How a run of which only the header was read is shown in a notebook."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from graphagent import _notebook as shown
from graphagent._article import counted

if TYPE_CHECKING:
    from graphagent._notebook import Mood
    from graphagent.log._header import RunHeader, Status

_MOODS: dict[Status, Mood] = {
    "done": "good", "failed": "bad", "damaged": "bad", "interrupted": "bad", "cancelled": "bad", "waiting": "open", "paused": "open",
    "sleeping": "open",
}  # fmt: skip


def mood_of(status: Status) -> Mood:
    """Return whether a status is good."""
    return _MOODS.get(status, "")


def header_card(head: RunHeader) -> str:
    """Return the HTML of a header."""
    when = datetime.fromtimestamp(head.started / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC") if head.started else ""
    about = (
        head.strategy, when, counted(head.turns, "turn"), counted(head.tokens, "token"), f"cost {head.cost}" if head.cost != "0" else "",
        f"thread {head.thread}" if head.thread else "", f"owner {head.owner}" if head.owner else "",
    )  # fmt: skip
    why = head.damaged or ("" if head.status == "done" else head.reason)
    return shown.card(
        head.title, shown.text(why) if why else None, shown.line(*about),
        state=head.status, mood=mood_of(head.status), about=[f"run {head.run_id}"],
    )  # fmt: skip
