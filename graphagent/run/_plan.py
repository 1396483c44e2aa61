"""A strategy, made ready to run: each node becomes a slot that knows how it is executed and what comes next."""

from __future__ import annotations

import copy
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, final

from graphagent.graph import Edge, End, Node, Start, Strategy, Tap, TapOf

if TYPE_CHECKING:
    from graphagent.graph._internal import Element
    from graphagent.run._context import Context

Call = Callable[["Context", Any], Awaitable[Any]]


@final
class Way:
    """One conditional way out of a slot."""

    __slots__ = ("label", "number", "rules", "target")

    def __init__(self, edge: Edge, target: Slot, number: int) -> None:
        self.rules = edge.outlet.rules if edge.outlet is not None else ()
        self.label = edge.label
        self.target = target
        self.number = number
        """Its place among all ways out of the slot."""


@final
class Slot:
    """One place in a plan."""

    __slots__ = ("call", "counts", "element", "errors", "following", "inside", "name", "taps", "ways")

    def __init__(
        self, name: str, call: Call, *, counts: bool, taps: bool, element: Element | None = None, inside: Inside = ()
    ) -> None:
        self.name = name
        self.call = call
        """Executes the node, its policies included."""
        self.counts = counts
        """Whether it is a node execution in the budget: strategies and forks are not, their insides are."""
        self.taps = taps
        """Whether the input goes on, whatever the call gives."""
        self.element = element
        """What it was made of."""
        self.inside = inside
        """The plan of a strategy that stands here, or those of the branches of a fork."""
        self.following: Slot | None = None
        """What comes next, where there is no choice."""
        self.ways: tuple[Way, ...] = ()
        """The ways out, in order, where there is a choice."""
        self.errors: tuple[Way, ...] = ()
        """The ways out for errors, in order."""

    def over(self, given: Any) -> Slot:
        """Give the place as it is behind the call: this only gives what that gave."""

        async def call(ctx: Context, value: Any) -> Any:
            return given

        slot = copy.copy(self)
        slot.call, slot.counts = call, False
        return slot


@final
class Plan:
    """A strategy that is ready to run."""

    __slots__ = ("first", "slots")

    def __init__(self, first: Slot, slots: Mapping[str, Slot]) -> None:
        self.first = first
        """Where it begins."""
        self.slots = slots
        """All places under their names."""

    def slot(self, name: str) -> Slot | None:
        """Give the place of a name; the empty name is the end."""
        return self.slots.get(name) if name else DONE


Inside = Plan | tuple[Slot, ...]


async def _nothing(ctx: Context, value: Any) -> Any:
    return value


DONE: Final = Slot("END", _nothing, counts=False, taps=False)
"""Where a plan ends."""


def plan(strategy: Strategy[Any, Any], slot_of: Callable[[Element], Slot]) -> Plan:
    """Make a strategy ready to run. `slot_of` gives how an element is executed."""
    slots: dict[int, Slot] = {}
    for edge in strategy.edges:
        element = edge.target
        if not isinstance(element, End) and id(element) not in slots:
            slots[id(element)] = slot_of(element)
    first = DONE
    leaving: dict[int, list[Edge]] = {}
    for edge in strategy.edges:
        if isinstance(edge.source, Start):
            first = _target(edge, slots)
        else:
            leaving.setdefault(id(edge.source), []).append(edge)
    for identity, edges in leaving.items():
        _connect(slots[identity], edges, slots)
    return Plan(first, {slot.name: slot for slot in slots.values()})


def counts(element: Element) -> bool:
    """Tell whether executing an element is a node execution in the budget."""
    return isinstance(element, Tap | TapOf) or type(element) is Node


def _target(edge: Edge, slots: Mapping[int, Slot]) -> Slot:
    return DONE if isinstance(edge.target, End) else slots[id(edge.target)]


def _connect(slot: Slot, edges: list[Edge], slots: Mapping[int, Slot]) -> None:
    ways = [Way(edge, _target(edge, slots), number) for number, edge in enumerate(edges)]
    slot.errors = tuple(way for way in ways if any(rule.error for rule in way.rules))
    usual = [way for way in ways if way not in slot.errors]
    if usual and not usual[0].rules:
        slot.following = usual[0].target
    else:
        slot.ways = tuple(usual)
