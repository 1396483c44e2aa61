"""A strategy as it is executed: each node knows how it is called, and which edges leave it."""

from __future__ import annotations

import copy
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, final

from graphagent.graph import Edge, End, Node, Start, Strategy, Tap, TapOf

if TYPE_CHECKING:
    from graphagent.graph._internal import Element

Call = Callable[[Any, Any], Awaitable[Any]]
"""Executes a node: `async (ctx, input) -> output`."""


@final
class CompiledEdge:
    """A conditional edge that leaves a node."""

    __slots__ = ("label", "number", "rules", "target")

    def __init__(self, edge: Edge, target: CompiledNode) -> None:
        self.rules = edge.outlet.rules if edge.outlet is not None else ()
        self.label = edge.label
        self.target = target
        self.number = edge.number
        """Its number among all edges that leave the node, in the order of their declaration."""

    @property
    def changes(self) -> bool:
        """Whether it passes on something else than the output of the node."""
        return any(rule.change for rule in self.rules)

    @property
    def value_type(self) -> Any:
        """The declared type of the value that its last change returns; Any where it changes nothing."""
        return next((rule.value for rule in reversed(self.rules) if rule.change is not None), Any)

    @property
    def errors(self) -> tuple[type[Exception], ...]:
        """The types of errors that it takes; none for an edge that takes outputs."""
        return tuple(rule.error for rule in self.rules if rule.error is not None)


@final
class CompiledNode:
    """A node, or a tap, in its place in a strategy."""

    __slots__ = ("call", "counts", "edges", "element", "error_edges", "following", "inside", "name", "passes_input")

    def __init__(
        self,
        name: str,
        call: Call,
        *,
        counts: bool,
        passes_input: bool,
        element: Element | None = None,
        inside: Inside = (),
    ) -> None:
        self.name = name
        """Its name in the strategy; empty for END."""
        self.call = call
        """Executes it, with its policies."""
        self.counts = counts
        """Whether its execution counts in the budget of nodes: that of strategies and forks does not, since their insides do."""
        self.passes_input = passes_input
        """Whether it is a tap: its input is passed on, whatever the call returns."""
        self.element = element
        """Its declaration."""
        self.inside = inside
        """The compiled strategy that is executed here, or the branches of a fork."""
        self.following: CompiledNode | None = None
        """The next node, where there is no choice."""
        self.edges: tuple[CompiledEdge, ...] = ()
        """The edges for outputs, in order, where there is a choice."""
        self.error_edges: tuple[CompiledEdge, ...] = ()
        """The edges for errors, in order."""

    def ended_with(self, output: Any) -> CompiledNode:
        """Return the node as it is after its call: to execute it is to return that output."""

        async def call(ctx: Any, value: Any) -> Any:
            return output

        node = copy.copy(self)
        node.call, node.counts = call, False
        return node

    def __repr__(self) -> str:
        return f"<compiled node {self.name!r}>"


@final
class CompiledStrategy:
    """A strategy that is ready to be executed."""

    __slots__ = ("first", "nodes")

    def __init__(self, first: CompiledNode, nodes: Mapping[str, CompiledNode]) -> None:
        self.first = first
        """The node to which START leads."""
        self.nodes = nodes
        """All nodes by their names."""

    def node(self, name: str) -> CompiledNode | None:
        """Return the node of a name, or None; the empty name is END."""
        return self.nodes.get(name) if name else DONE

    def find(self, path: str) -> CompiledNode | None:
        """Return the node at a path, such as `count/words` or `parallel/0/double`; None: there is no such node.

        Raises:
            LookupError: the path leads into a node that has nothing inside.
        """
        *around, name = path.split("/")
        inside = self.inside(around)
        return inside.node(name) if isinstance(inside, CompiledStrategy) else None

    def inside(self, parts: Sequence[str]) -> Inside:
        """Return the strategy, or the branches, inside the node to which the parts of a path lead.

        Raises:
            LookupError: they lead into a node that has nothing inside.
        """
        at: Inside = self
        for part in parts:
            if not isinstance(at, CompiledStrategy) and part.isdecimal() and at:
                # A branch is like a strategy of one node. An `each` has one branch for all its items.
                branch = at[min(int(part), len(at) - 1)]
                at = CompiledStrategy(branch, {branch.name: branch})
                continue
            node = at.node(part) if isinstance(at, CompiledStrategy) else None
            if node is None or not node.inside:
                raise LookupError("/".join(parts))
            at = node.inside
        return at


Inside = CompiledStrategy | tuple[CompiledNode, ...]


async def _nothing(ctx: Any, value: Any) -> Any:
    return value


DONE: Final = CompiledNode("", _nothing, counts=False, passes_input=False)
"""The END of every strategy."""


def compile_strategy(strategy: Strategy[Any, Any], compile_node: Callable[[Element], CompiledNode]) -> CompiledStrategy:
    """Return a strategy that is ready to be executed; `compile_node` compiles each of its nodes."""
    nodes: dict[int, CompiledNode] = {}
    leaving: dict[int, list[Edge]] = {}
    first = DONE
    for edge in strategy.edges:
        element = edge.target
        if not isinstance(element, End) and id(element) not in nodes:
            nodes[id(element)] = compile_node(element)
    for edge in strategy.edges:
        if isinstance(edge.source, Start):
            first = _target(edge, nodes)
        else:
            leaving.setdefault(id(edge.source), []).append(edge)
    for identity, edges in leaving.items():
        _connect(nodes[identity], edges, nodes)
    return CompiledStrategy(first, {node.name: node for node in nodes.values()})


def counts(element: Element) -> bool:
    """Return whether executing an element counts in the budget of nodes."""
    return isinstance(element, Tap | TapOf) or type(element) is Node


def _target(edge: Edge, nodes: Mapping[int, CompiledNode]) -> CompiledNode:
    return DONE if isinstance(edge.target, End) else nodes[id(edge.target)]


def _connect(node: CompiledNode, edges: list[Edge], nodes: Mapping[int, CompiledNode]) -> None:
    compiled = [CompiledEdge(edge, _target(edge, nodes)) for edge in edges]
    node.error_edges = tuple(edge for edge in compiled if edge.errors)
    usual = [edge for edge in compiled if not edge.errors]
    if usual and not usual[0].rules:
        node.following = usual[0].target
    else:
        node.edges = tuple(usual)
