"""Times, durations, amounts and states, as people read them."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import TYPE_CHECKING

from graphagent import _clock
from graphagent._html import Html, tag
from graphagent.log._header import TITLE

if TYPE_CHECKING:
    from graphagent.run import RunHeader

_UNITS = ((86_400, "d"), (3600, "h"), (60, "min"))
_MARKS = {
    "done": "✓",
    "ended": "■",
    "failed": "✕",
    "damaged": "✕",
    "waiting": "◷",
    "running": "▶",
    "paused": "‖",
    "sleeping": "☾",
    "queued": "…",
    "cancelled": "⊘",
    "interrupted": "⌁",
}
"""A mark beside the word of each state, so that colour is never alone."""
_BEGINNING = re.compile(r"it waits for an answer: |(it )?(failed with (NodeFailedError: )?)?")
"""The beginning of a reason that only repeats the state."""
_TRUST = {
    "trusted": "a person or your code vouches for it",
    "inferred": "a model concluded it",
    "untrusted": "nobody vouches for it: it comes from a tool or a document",
    "": "its source says nothing about it",
}
"""The meaning of each level of trust."""
PROBLEMS = ("failed", "damaged", "interrupted")
"""The states that need the attention of a person."""


def duration(seconds: float) -> str:
    """Return how long something took: `840 ms`, `2.4 s`, `4 h 12 min`."""
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 60:
        return f"{seconds:.1f} s"
    left, parts = round(seconds), list[str]()
    for size, unit in (*_UNITS, (1, "s")):
        if left >= size and len(parts) < 2:
            parts.append(f"{left // size} {unit}")
            left %= size
        elif parts:
            break
    return " ".join(parts)


def amount(number: int) -> str:
    """Return a number with separators; 0 is `–`, since it may also be unknown."""
    return f"{number:,}" if number else "–"


def money(cost: str | Decimal) -> str:
    """Return a cost. It has no currency, since prices have none."""
    value = Decimal(cost)
    return f"{value.quantize(Decimal('0.000001')).normalize():f}" if value else "–"


def moment(milliseconds: int) -> Html:
    """Return a time in the zone of this machine, and for scripts and screen readers in full."""
    if not milliseconds:
        return tag("span", "–")
    then = datetime.fromtimestamp(milliseconds / 1000, UTC).astimezone()
    return tag(
        "time", _local(milliseconds), datetime=then.isoformat(timespec="milliseconds"), title=then.strftime("%A %x %X")
    )


def when(then: datetime) -> Html:
    """Return a time, as `moment` does."""
    return moment(round(then.timestamp() * 1000))


def _local(milliseconds: int) -> str:
    """Return a time in the zone of this machine, without the date where that is today."""
    then, now = (datetime.fromtimestamp(each / 1000, UTC).astimezone() for each in (milliseconds, _clock.now()))
    form = "%H:%M:%S" if then.date() == now.date() else "%d %b %H:%M" if then.year == now.year else "%d %b %Y %H:%M"
    return then.strftime(form)


def beginning(text: str, most: int) -> str:
    """Return the beginning of a text, with a mark where it is cut."""
    return text if len(text) <= most else f"{text[:most]}…"


def title(head: RunHeader) -> str:
    """Return the beginning of the task of a run, with a mark where it is cut, which headers of earlier versions lack."""
    is_cut = len(head.title) == TITLE and not head.title.endswith("…")
    return f"{head.title}…" if is_cut else head.title or "(no text)"


def state(head: RunHeader) -> Html:
    """Return the state of a run, with its mark."""
    return tag(
        "span",
        tag("span", _MARKS.get(head.status, "·"), aria_hidden="true"),
        f" {head.status}",
        class_=f"state {head.status}",
    )


def trust(level: str) -> Html:
    """Return a level of trust; an empty one makes no claim."""
    return tag("span", level or "no claim", class_=f"trust {level or 'unclaimed'}", title=_TRUST.get(level))


def trust_legend() -> Html:
    """Return the meaning of each level of trust."""
    return tag("ul", [tag("li", trust(level), f" {said}") for level, said in _TRUST.items()], class_="legend sub")


def reason(head: RunHeader) -> str:
    """Return the reason for the state of a run, such as its error or its question; empty if the state says it all."""
    if head.damaged:
        return head.damaged
    if head.status == "interrupted":
        return "the process that executed it died"
    if head.status == "sleeping" and head.due:
        return f"until {_local(head.due)}"
    if head.status in ("failed", "waiting", "paused", "ended", "cancelled"):
        return _BEGINNING.sub("", head.reason, count=1)
    return ""


def day(head: RunHeader) -> str:
    """Return the day on which a run was started, in the zone of this machine."""
    return (
        datetime.fromtimestamp(head.started / 1000, UTC).astimezone().strftime("%A, %d %B %Y")
        if head.started
        else "Without a time"
    )


def command(options: Sequence[str], name: str, head: RunHeader, *more: str) -> str:
    """Return the command that does something with a run, with the options that name its store."""
    owner = ["--owner", head.owner] if head.owner else []
    return shlex.join(["graphagent", "runs", name, head.run_id, *more, *owner, *options])
