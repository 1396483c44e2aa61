"""A visit: one execution of one node, and what it has done so far.

A run is a tree of visits, and its log is how they came about. A frame is at one visit at a time; entries of the log change that visit, and
put the next one in its place when the node ends or is tried again. So whoever has kept a visit knows by `visit is frame.visit` whether it
is still being executed.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

import msgspec
from msgspec import structs

if TYPE_CHECKING:
    from graphagent.log._state import Frame

K = TypeVar("K")
V = TypeVar("V")

UNSET: Any = object()
"""The input of a visit that its caller passes: that of the enclosing node, or an item of it."""

UNDONE_BY_RETRY = frozenset(("add", "decision", "edit", "out", "results", "settle", "sleep", "turn"))
"""The kinds of effects that a retry of the node discards. All others are kept, and the next attempt finds them."""

_NAMES_OF_KINDS = {"turn": "model", "tool": "call"}
_NONE: Mapping[Any, Any] = MappingProxyType({})
"""Shared by all visits that have nothing of a kind, as most have: a visit is made for every node."""


def name_of_effect(kind: str, key: str) -> str:
    """Return what an effect is called in histories and errors, such as `model:1` or `call:<id>`; users name an effect that is done once."""
    return key if kind == "once" else f"{_NAMES_OF_KINDS.get(kind, kind)}:{key}"


class Source(NamedTuple):
    """The origin of a value, by which its declared type is found."""

    path: str
    """The path of the node that returned it; empty for the task."""
    edge: int | None = None
    """The number of the edge that passed it on, where there was a choice."""


TASK = Source("")
PLACED = -1
"""The edge of a value that came along none: an entry `Placed` put it before a node, or at the end of a strategy."""


class Effect(NamedTuple):
    """The recorded outcome of an effect."""

    number: int
    """The entry that has it."""
    value: Any = None
    """The outcome: an object without a store, and its bytes with one. Of a turn the id of its step."""
    error: tuple[str, str] | None = None
    """The type and the text of the error that is the outcome."""


class Visit(msgspec.Struct, eq=False):
    """One execution of one node, in one attempt: the next attempt is another visit."""

    node: str | None
    """The name of the node; empty at END; None before the first one."""
    input: Any
    """Its input, as a stored value."""
    source: Source
    """The origin of that value."""
    entered: int
    """The entry with which the node was entered, in its first attempt."""
    since: int
    """The entry with which this attempt began."""
    latest: int
    """The last entry with an effect of the visit. A node that is executed again has passed its effects when it has come to it."""
    effects: Mapping[tuple[str, str], Effect] = _NONE
    """What it has done, by kind and key, with what the attempts before it did that stays done."""
    started: Mapping[tuple[str, str], int] = _NONE
    """How often each effect that has no outcome yet was begun, by kind and key."""
    inside: Mapping[str, list[Frame]] = _NONE
    """The frames inside the node: `branches` of a fork or a subgraph, and `agent <key>` of a sub-agent."""
    attempts: Mapping[str, int] = _NONE
    """How often something was begun here that is being retried, by the names of the policies."""

    @property
    def attempt(self) -> int:
        """The number of this attempt of the node."""
        return 1 + sum(count for name, count in self.attempts.items() if name.isdecimal())

    @property
    def is_new(self) -> bool:
        """Whether it has done nothing."""
        return not (self.effects or self.started or self.inside or self.attempts)

    def start(self, kind: str, key: str, number: int) -> None:
        """Note that an effect was begun."""
        place = kind, key
        self.started = _with(self.started, place, self.started.get(place, 0) + 1)
        self.latest = number

    def record(self, kind: str, key: str, effect: Effect, *, lasting: bool = False) -> None:
        """Note the outcome of an effect. A node that is executed again never looks for one that is lasting, and does not wait for it."""
        place = kind, key
        self.effects = _with(self.effects, place, effect)
        if place in self.started:
            self.started = {each: times for each, times in self.started.items() if each != place}
        if not lasting:
            self.latest = effect.number

    def add_inside(self, key: str, *frames: Frame) -> list[Frame]:
        """Add frames inside the node, and return all under the key."""
        beside = self.inside.get(key)
        if beside is None:
            self.inside = _with(self.inside, key, beside := [])
        beside += frames
        return beside

    def leave_inside(self) -> None:
        """Forget the frames inside the node and the effects that were begun: the node was left before its end."""
        self.inside = self.started = _NONE

    def forget_errors(self) -> None:
        """Forget the outcomes that are errors: what failed is done again."""
        self.effects = {place: effect for place, effect in self.effects.items() if effect.error is None}

    def again(self, number: int, policy: str) -> Visit:
        """Return the next attempt, which one of the policies of the node makes."""
        kept = {place: effect for place, effect in self.effects.items() if place[0] not in UNDONE_BY_RETRY}
        attempts = {**self.attempts, policy: self.attempts.get(policy, 0) + 1}
        return structs.replace(self, effects=kept, inside=_NONE, since=number, latest=number, attempts=attempts)

    def begun_again(self, number: int) -> Visit:
        """Return this visit as it begins after the callbacks have seen the task."""
        return structs.replace(self, effects=_NONE, since=number, latest=number)


def _with(known: Mapping[K, V], key: K, value: V) -> Mapping[K, V]:
    """Put a value into a mapping of a visit, or into a new one in the place of that which all visits share."""
    own = {} if known is _NONE else cast("dict[K, V]", known)
    own[key] = value
    return own
