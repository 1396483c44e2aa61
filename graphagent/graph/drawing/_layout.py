"""The positions of the parts of a picture: layers from top to bottom, and how edges pass through them.

The steps are those of Sugiyama, Tagawa and Toda (Methods for Visual Understanding of Hierarchical System Structures, 1981):
reverse the edges that close a cycle, rank by the longest path, give a long edge a bend in every layer that it passes, order
the layers by barycentres, then assign positions. A label is treated as a bend, so it never covers a node.
"""

from __future__ import annotations

import math
from bisect import bisect_right, insort
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

_GAP_ACROSS = 26.0
_GAP_DOWN = 42.0
_GAP_LABEL = 20.0
_PORT = 20.0
_ARROWS_APART = 10.0
_SWEEPS = 16


@dataclass(eq=False, slots=True)
class Box:
    """An item of a layer: a node, a label, or a bend of a long edge."""

    left: float
    """Pixels that it needs to the left of its middle."""
    right: float
    height: float
    paint: Callable[[float, float], str] | None = None
    """Returns its SVG, given its middle and its top; None for a bend."""
    inset: float = 0.0
    """Pixels inside its top and bottom at which its edges begin."""
    on_edge: bool = False
    """Whether it is the label or a bend of an edge."""
    rank: int = 0
    x: float = 0.0
    """Its middle."""
    y: float = 0.0
    """Its top."""
    above: list[Piece] = field(default_factory=list["Piece"])
    below: list[Piece] = field(default_factory=list["Piece"])


@dataclass(eq=False, slots=True)
class Piece:
    """The part of an edge between one layer and the next."""

    upper: Box
    lower: Box
    weight: float
    """How strongly it is pulled straight."""
    main: bool
    """Whether it may begin in the middle of a box's side."""
    upper_port: float = 0.0
    """Where it leaves the upper box, in pixels from the middle of that."""
    lower_port: float = 0.0


@dataclass(eq=False, slots=True)
class Wire:
    """An edge from one box to another, with an optional label."""

    source: Box
    target: Box
    label: Box | None
    main: bool = True
    """Whether it is part of the usual course, which is drawn straight in preference to all else."""
    back: bool = False
    """Whether it closes a cycle, and is therefore laid out in the opposite direction."""
    pieces: list[Piece] = field(default_factory=list[Piece])
    """From top to bottom."""


@dataclass(frozen=True, slots=True)
class Layout:
    """The size of a picture and its layers; boxes and wires hold their own positions."""

    width: float
    height: float
    tops: list[float]
    """The top of each layer."""
    bottoms: list[float]


def lay_out(boxes: list[Box], wires: list[Wire]) -> Layout:
    """Set the positions of boxes and wires. The first box is placed at the top, the last at the bottom."""
    _turn_back_edges(boxes, wires)
    _rank(boxes, wires)
    layers = _bend(boxes, wires)
    _order(layers)
    _spread_ports(layers)
    _place_across(layers)
    tops, bottoms = _place_down(layers)
    left = min(box.x - box.left for layer in layers for box in layer)
    for layer in layers:
        for box in layer:
            box.x -= left
    return Layout(max(box.x + box.right for layer in layers for box in layer), bottoms[-1], tops, bottoms)


def _turn_back_edges(boxes: list[Box], wires: list[Wire]) -> None:
    """Mark the edges that lead back to a box on the way from START to them."""
    out: dict[Box, list[Wire]] = {box: [] for box in boxes}
    for wire in wires:
        out[wire.source].append(wire)
    state: dict[Box, int] = {}
    for root in boxes:
        stack = [(root, iter(out[root]))] if root not in state else []
        state.setdefault(root, 1)
        while stack:
            box, leaving = stack[-1]
            following = next(leaving, None)
            if following is None:
                state[box] = 2
                stack.pop()
            elif following.target not in state:
                state[following.target] = 1
                stack.append((following.target, iter(out[following.target])))
            else:
                following.back = state[following.target] == 1


def _ends(wire: Wire) -> tuple[Box, Box]:
    return (wire.target, wire.source) if wire.back else (wire.source, wire.target)


def _rank(boxes: list[Box], wires: list[Wire]) -> None:
    """Rank every box one layer, or two if there is a label, below the lowest that leads to it; END is at the bottom."""
    below: dict[Box, list[tuple[Box, int]]] = {box: [] for box in boxes}
    waits = dict.fromkeys(boxes, 0)
    for wire in wires:
        upper, lower = _ends(wire)
        below[upper].append((lower, 2 if wire.label else 1))
        waits[lower] += 1
    ready = [box for box in boxes if not waits[box]]
    for box in ready:
        for lower, length in below[box]:
            lower.rank = max(lower.rank, box.rank + length)
            waits[lower] -= 1
            if not waits[lower]:
                ready.append(lower)
    boxes[-1].rank = max(box.rank for box in boxes)


def _bend(boxes: list[Box], wires: list[Wire]) -> list[list[Box]]:
    """Return the layers, with a bend of each edge in every layer that it passes, and its label in the middle one."""
    layers: list[list[Box]] = [[] for _ in range(max(box.rank for box in boxes) + 1)]
    for box in boxes:
        layers[box.rank].append(box)
    for wire in wires:
        upper, lower = _ends(wire)
        between = range(upper.rank + 1, lower.rank)
        for rank in [*between, lower.rank]:
            if rank == lower.rank:
                box = lower
            elif wire.label and rank == between[(len(between) - 1) // 2]:
                box = wire.label
            else:
                box = Box(5, 5, 0, on_edge=True)
            above = wire.pieces[-1].lower if wire.pieces else upper
            straight = (1.0, 2.0, 8.0)[above.on_edge + box.on_edge]
            main = wire.main and not wire.back
            piece = Piece(above, box, 3 * straight if main else straight, main)
            wire.pieces.append(piece)
            above.below.append(piece)
            box.above.append(piece)
            if box is not lower:
                box.rank = rank
                layers[rank].append(box)
    return layers


def _order(layers: list[list[Box]]) -> None:
    """Sort every layer by the mean position of the neighbours of each box, down and up, and keep the best order."""
    at: dict[Box, int] = {}
    for layer in layers:
        at.update((box, place) for place, box in enumerate(layer))
    best, least = [list(layer) for layer in layers], math.inf
    for sweep in range(_SWEEPS):
        down = sweep % 2 == 0
        for layer in layers if down else reversed(layers):
            middles = {box: _middle([at[box]], _places(box, at, down)) for box in layer}
            layer.sort(key=middles.__getitem__)
            at.update((box, place) for place, box in enumerate(layer))
        crossings = sum(_crossings(layer, at) for layer in layers)
        if crossings < least:
            best, least = [list(layer) for layer in layers], crossings
        if not least:
            break
    layers[:] = best


def _places(box: Box, at: dict[Box, int], down: bool) -> list[int]:
    return [at[piece.upper] for piece in box.above] if down else [at[piece.lower] for piece in box.below]


def _middle(otherwise: list[int], places: list[int]) -> float:
    used = places or otherwise
    return sum(used) / len(used)


def _crossings(layer: list[Box], at: dict[Box, int]) -> int:
    """Count the crossings of the pieces below a layer."""
    seen: list[int] = []
    count = 0
    for box in layer:
        ends = sorted(at[piece.lower] for piece in box.below)
        count += sum(len(seen) - bisect_right(seen, end) for end in ends)
        for end in ends:
            insort(seen, end)
    return count


def _spread_ports(layers: list[list[Box]]) -> None:
    """Let the edges on a side of a box begin next to one another, in the order of their other ends; a single main one in the middle."""
    at = {box: place for layer in layers for place, box in enumerate(layer)}
    for box in at:
        above = sorted(box.above, key=lambda piece: at[piece.upper])
        for piece, port in zip(above, _ports(box, above, arrows=True), strict=True):
            piece.lower_port = port
        below = sorted(box.below, key=lambda piece: at[piece.lower])
        for piece, port in zip(below, _ports(box, below, arrows=False), strict=True):
            piece.upper_port = port


def _ports(box: Box, pieces: Sequence[Piece], *, arrows: bool) -> list[float]:
    main = [place for place, piece in enumerate(pieces) if piece.main]
    centre = float(main[0]) if len(main) == 1 else (len(pieces) - 1) / 2
    half = min(box.left, box.right) - 12
    step = min(_PORT, half / max(centre, len(pieces) - 1 - centre, 1))
    if arrows and step < _ARROWS_APART:
        step = 0.0
    return [(place - centre) * step for place in range(len(pieces))]


def _place_across(layers: list[list[Box]]) -> None:
    """Move every box towards where its edges would be straight, as far as its neighbours in the layer allow."""
    for layer in layers:
        _settle(layer, lambda box: [(0.0, 1.0)])
    for sweep in range(_SWEEPS):
        down = sweep % 2 == 0
        for layer in layers if down else reversed(layers):
            _settle(layer, _from_above if down else _from_below)
    for layer in layers:
        _settle(layer, _from_main)


def _from_above(box: Box) -> list[tuple[float, float]]:
    return [(piece.upper.x + piece.upper_port - piece.lower_port, piece.weight) for piece in box.above]


def _from_below(box: Box) -> list[tuple[float, float]]:
    return [(piece.lower.x + piece.lower_port - piece.upper_port, piece.weight) for piece in box.below]


def _from_main(box: Box) -> list[tuple[float, float]]:
    """Return the wish for the middle below the main edges only, so that other edges have no influence."""
    pieces = [piece for piece in box.above if piece.main] or box.above
    return [(piece.upper.x + piece.upper_port - piece.lower_port, 1000.0 if piece.main else 1.0) for piece in pieces]


def _settle(layer: list[Box], wishes: Callable[[Box], list[tuple[float, float]]]) -> None:
    """Set the positions of least squares that keep the order and the gaps of a layer (pool adjacent violators)."""
    pools: list[tuple[float, float, int]] = []
    room = 0.0
    rooms: list[float] = []
    for number, box in enumerate(layer):
        if number:
            room += layer[number - 1].right + _GAP_ACROSS + box.left
        rooms.append(room)
        wished = wishes(box) or [(box.x, 0.1)]
        weight = sum(each for _, each in wished)
        mean, count = sum(place * each for place, each in wished) / weight - room, 1
        while pools and pools[-1][0] > mean:
            other, heavy, more = pools.pop()
            mean = (mean * weight + other * heavy) / (weight + heavy)
            weight, count = weight + heavy, count + more
        pools.append((mean, weight, count))
    means = [mean for mean, _, count in pools for _ in range(count)]
    for box, mean, room in zip(layer, means, rooms, strict=True):
        box.x = mean + room


def _place_down(layers: list[list[Box]]) -> tuple[list[float], list[float]]:
    """Set the top of every box, and return the top and the bottom of every layer."""
    tops: list[float] = []
    bottoms: list[float] = []
    y = 0.0
    for layer in layers:
        if bottoms:
            pieces = [piece for box in layer for piece in box.above]
            slope = max((abs(piece.lower.x - piece.upper.x) for piece in pieces), default=0.0)
            labelled = any(piece.upper.on_edge != piece.lower.on_edge for piece in pieces)
            direct = any(not piece.upper.on_edge and not piece.lower.on_edge for piece in pieces)
            y += (_GAP_LABEL if labelled and not direct else _GAP_DOWN) + min(40.0, slope * 0.06)
        height = max(box.height for box in layer)
        tops.append(y)
        for box in layer:
            box.y = y + (height - box.height) / 2
        y += height
        bottoms.append(y)
    return tops, bottoms
