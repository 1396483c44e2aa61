"""The outline of a strategy: the strategy as plain data, to be stored with a run, compared, inspected and drawn."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from functools import cached_property
from typing import Literal

import msgspec

Kind = Literal["node", "tap", "strategy", "parallel", "each", "race"]
_CALLS = ("when", "map")
"""The conditions and changes that call a function. Stored runs do not depend on the name of the function."""


class OutlineEdge(msgspec.Struct, frozen=True, omit_defaults=True):
    """An edge of a strategy, as plain data."""

    source: str
    """The name of the node or tap that the edge leaves, or `START`."""
    target: str
    """The name of the node or tap that the edge leads to, or `END`."""
    number: int = 0
    """The number of the edge among those that leave its source, in the order of the paths."""
    conditions: tuple[tuple[str, str], ...] = ()
    """Its conditions and changes, such as `("on", "ToolCalls")` or `("when", "is_long")`; empty for a plain edge."""

    @property
    def name(self) -> str:
        """Its name within the strategy, such as `ask:1`: its source and its number."""
        return f"{self.source}:{self.number}"

    @property
    def labels(self) -> list[str]:
        """The conditions and changes as they are drawn, such as `on ToolCalls`."""
        return [" ".join(filter(None, condition)) for condition in self.conditions]

    @property
    def label(self) -> str:
        """The same in one text, such as `on str, when is_long`; empty for a plain edge."""
        return ", ".join(self.labels)

    @property
    def on_error(self) -> bool:
        """Whether the edge is taken when its source raises."""
        return any(verb == "on error" for verb, _ in self.conditions)


class Outline(msgspec.Struct, frozen=True, omit_defaults=True, dict=True):
    """A strategy as plain data; also each node, tap, strategy and fork inside it.

    An outline describes the declarations, without functions, models and tools. `Strategy.outline` returns it, and every run
    stores the outline with which it began.
    """

    kind: Kind
    """`node`, `tap`, `strategy`, `parallel`, `each` or `race`."""
    name: str
    input_type: str = ""
    """The declared type of its input, as its author would write it."""
    output_type: str = ""
    """The declared type of its output; empty for a tap, which has none."""
    inside: tuple[Outline, ...] = ()
    """The nodes and taps of a strategy in the order of its paths, or the branches of a fork."""
    edges: tuple[OutlineEdge, ...] = ()
    """The edges of a strategy; the one from START comes first."""
    retried: bool = False
    """Whether it has a retry policy."""
    notes: tuple[str, ...] = ()
    """The notes of a drawing about it: policies, limits, a model or tools of its own."""

    @cached_property
    def digest(self) -> str:
        """Identifies the names, kinds, declared types and edges. Policies, limits and the names of functions do not count."""
        return hashlib.blake2b(msgspec.msgpack.encode(_essence(self)), digest_size=12).hexdigest()

    @property
    def is_frame(self) -> bool:
        """Whether other nodes are executed inside it."""
        return self.kind not in ("node", "tap")

    @property
    def type(self) -> str:
        """The declared types, such as `str -> int`; for a tap, that of its input."""
        return f"{self.input_type} -> {self.output_type}" if self.output_type else self.input_type

    @property
    def first(self) -> str:
        """The name of the node that START leads to; empty for END, and if this is not a strategy."""
        return next((edge.target for edge in self.edges[:1] if edge.target != "END"), "")

    @cached_property
    def named(self) -> dict[str, Outline]:
        """The elements directly inside this one, by their paths from here."""
        return dict(self.parts())

    def parts(self) -> Iterator[tuple[str, Outline]]:
        """Yield the elements directly inside, with their paths from here: a branch of a `parallel` or a `race` has its number before it."""
        for number, each in enumerate(self.inside):
            yield f"{number}/{each.name}" if self.kind in ("parallel", "race") else each.name, each

    def walk(self) -> Iterator[tuple[str, Outline]]:
        """Yield each node, tap, strategy and fork inside it with its path, as `Strategy.walk` does."""
        for path, each in self.parts():
            yield path, each
            for inner, element in each.walk():
                yield f"{path}/{inner}", element

    def find(self, path: str) -> tuple[str, Outline]:
        """Return the element at a path of a run, and its path in the strategy: `each/send` for `each/3/send`.

        The empty path leads to the strategy itself.

        Raises:
            LookupError: the strategy has nothing there.
        """
        at, place, names = self, list[str](), path.split("/") if path else []
        while names:
            part = names.pop(0)
            if (
                at.kind in ("parallel", "each", "race") and part.isdecimal() and names
            ):  # a branch: its number, then its name
                part = names.pop(0) if at.kind == "each" else f"{part}/{names.pop(0)}"
            found = at.named.get(part)
            if found is None:
                raise LookupError(path)
            place.append(part)
            at = found
        return "/".join(place), at

    def begins(self, path: str) -> list[str]:
        """Return the paths of the elements that begin when a run begins the element at a path. The items of an `each` are not known.

        Raises:
            LookupError: the strategy has nothing there.
        """
        at, prefix = self.find(path)[1], f"{path}/" if path else ""
        if at.kind in ("parallel", "race"):
            return [prefix + part for part, _ in at.parts()]
        return [prefix + at.first] if at.first else []

    def to_mermaid(self) -> str:
        """Draw it as Mermaid text."""
        from graphagent.graph.drawing._mermaid import to_mermaid

        return to_mermaid(self)

    def to_svg(self) -> str:
        """Draw it as an SVG picture, in which each node has its path as `data-node`, and each edge its name as `data-edge`."""
        from graphagent.graph.drawing._svg import to_svg

        return to_svg(self)

    def _repr_svg_(self) -> str:
        return self.to_svg()

    def _repr_html_(self) -> str:
        from graphagent.graph.drawing._svg import to_html

        return to_html(self)


def differences(before: Outline, after: Outline) -> list[str]:
    """Return the differences of two strategies: parts of the first alone (`- …`) and of the second alone (`+ …`); empty if a run can change over."""
    if before.digest == after.digest:
        return []
    old, new = _parts(_essence(before)), _parts(_essence(after))
    gone = [f"- {each}" for each in old if each not in new]
    return [*gone, *(f"+ {each}" for each in new if each not in old)] or ["the order of its paths"]


def _parts(strategy: Outline) -> dict[str, None]:
    """Return a strategy, each node and each edge as a line of text, for people."""
    places = [(strategy.name, "", strategy), *((path, f"{path}/", each) for path, each in strategy.walk())]
    nodes = [f"{each.kind} {path}: {each.type}" for path, _, each in places]
    edges = [
        f"edge {prefix}{edge.source} -> {prefix}{edge.target} {edge.label}".rstrip()
        for _, prefix, each in places
        for edge in each.edges
    ]
    return dict.fromkeys([*nodes, *edges])


def _essence(outline: Outline) -> Outline:
    """Return an outline without the parts that may change between two executions of a run."""
    edges = (
        OutlineEdge(edge.source, edge.target, edge.number, tuple(map(_without_function, edge.conditions)))
        for edge in outline.edges
    )
    inside = tuple(map(_essence, outline.inside))
    return Outline(outline.kind, outline.name, outline.input_type, outline.output_type, inside, tuple(edges))


def _without_function(condition: tuple[str, str]) -> tuple[str, str]:
    return (condition[0], "") if condition[0] in _CALLS else condition
