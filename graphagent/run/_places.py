"""Where a run stands, as its entries tell."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

_MOVES = frozenset(("start", "node", "recovered", "edit", "failed"))
"""The kinds of entries behind which a strategy, or a branch, stands somewhere else; an edit, if it says where."""

Read = Callable[[int], Mapping[str, Any]]
"""Gives an entry by its number."""


@dataclass(slots=True)
class Place:
    """Where a strategy, or a branch, stands inside its run."""

    number: int
    """The entry that brought it there; 0 where it stands at its beginning."""
    entered: int = 0
    """The entry since which there is what stands inside of it; 0 where that is since it began."""
    effects: dict[str, tuple[int, int]] = field(default_factory=dict[str, "tuple[int, int]"])
    """What was done there, under its keys: the entry, and which of several in it; -1 where it has only one."""
    intents: set[str] = field(default_factory=set[str])
    """What was begun there."""
    attempts: dict[str, int] = field(default_factory=dict[str, int])
    """How often something was begun there that is tried again."""
    own: list[Any] | None = None
    """What the budgets of the strategies around have spent."""


def places(entry: Read, last: int) -> dict[str, Place]:
    """Give where a run stands behind an entry: its own strategy under the empty prefix, and what stands inside of it."""
    number = last
    while number > 1 and not (is_move(entry(number)) and not entry(number).get("in")):
        number -= 1
    found = {"": _moved(entry(number), number)}
    for later in range(number + 1, last + 1):
        _follow(found, entry(later), later)
    return found


def is_move(entry: Mapping[str, Any]) -> bool:
    """Tell whether a strategy, or a branch, stands somewhere else behind an entry."""
    return entry["t"] in _MOVES and (entry["t"] == "failed" or "next" in entry)


def _moved(entry: Mapping[str, Any], number: int) -> Place:
    return Place(number, number, attempts=dict(entry.get("tries", {})), own=entry.get("own"))


def _follow(found: dict[str, Place], entry: Mapping[str, Any], number: int) -> None:
    kind, prefix = entry["t"], entry.get("in", "")
    if kind == "stop":
        # What has failed as often as it may is tried anew when the run goes on.
        for path, place in found.items():
            place.attempts = dict(entry.get("tries", {}).get(path, {}))
        return
    if kind == "resume":
        for answered, each in enumerate(entry.get("answers", ())):
            found.setdefault(each.get("in", ""), Place(0)).effects[each["key"]] = number, answered
        return
    if is_move(entry):
        # Where an edit put it says nothing of the node that it was at.
        _leave(found, f"{prefix}{entry['node']}/" if kind != "edit" else prefix, but=prefix)
        found[prefix] = _moved(entry, number)
        return
    if kind not in ("again", "effect", "intent", "spent"):
        return
    if kind == "again":
        again = entry["node"]
        _leave(found, f"{prefix}{again}/" if again else prefix, but=prefix)
        before = found.get(prefix, Place(0))
        # A strategy that is executed again as a whole begins where the run began.
        found[prefix] = Place(before.number if again else 1, number, own=before.own)
    place = found.setdefault(prefix, Place(0))
    if kind == "effect":
        place.effects[entry["key"]] = number, -1
    elif kind == "intent":
        place.intents.add(entry["key"])
    place.attempts = dict(entry.get("tries", {}))
    place.own = entry.get("own", place.own)


def _leave(found: dict[str, Place], inside: str, *, but: str) -> None:
    """Drop what stands inside of a place that is left."""
    for path in [path for path in found if path.startswith(inside) and path != but]:
        del found[path]
