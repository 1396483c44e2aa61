"""A strategy as it is executed: each node knows how it is called, and which edges leave it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Union, cast, final, get_args, get_origin

from graphagent._article import kind_of
from graphagent.errors import NodeTypeError
from graphagent.graph import Node, Strategy, Tap, TapOf
from graphagent.graph._forks import Each, Parallel, Race
from graphagent.graph._node import End, Start
from graphagent.graph._types import plain_classes, show

if TYPE_CHECKING:
    from graphagent.graph._node import Rule
    from graphagent.graph._strategy import Edge, Element
    from graphagent.log._replay import KnownAs
    from graphagent.run._ruled import Ruled, Within

Call = Callable[[Any, Any], Awaitable[Any]]
"""Executes a node: `async (walk, input) -> output`."""
Function = Callable[[Any, Any], Awaitable[Any]]
"""A user's function: `async (ctx, input) -> output`."""


def stored_type(element: Element | Start | None) -> Any:
    """Return the type by which the output of an element is stored.

    It is the declared one. An edge without annotations leaves that of the whole open, where the parts still declare theirs.
    """
    if isinstance(element, Strategy):
        return _any_of(_arriving(element)) if _is_open(element.output_type) else element.output_type
    if isinstance(element, Parallel | Each | Race):
        parts = [stored_type(branch) for branch in element.branches]
        if parts != [branch.output_type for branch in element.branches]:
            whole = tuple[tuple(parts)] if isinstance(element, Parallel) else _any_of(parts)  # type: ignore[misc]
            return list[whole] if isinstance(element, Each) else whole  # type: ignore[valid-type]
    return getattr(element, "output_type", Any)


def _arriving(strategy: Strategy[Any, Any]) -> list[Any]:
    """Return the types that arrive at END."""
    waiting, found = [edge for edge in strategy.edges if isinstance(edge.target, End)], list[Any]()
    for edge in waiting:
        if isinstance(edge.source, Start):
            found.append(strategy.input_type)
        elif isinstance(edge.source, Tap | TapOf) and not any(rule.change for rule in _rules(edge)):
            # It passes on what arrives there.
            waiting += [each for each in strategy.edges if each.target is edge.source and each not in waiting]
        else:
            found.append(passed_type(edge))
    return found


def passed_type(edge: Edge) -> Any:
    """Return the type by which the value that an edge passes on is stored, which its last change or the next node declares.

    Where neither does, the value may still be what the edge was given, or a part of that.
    """
    given, kind = stored_type(edge.source), None
    for rule in _rules(edge):
        if rule.error is not None and isinstance(edge.source, Node):
            given = rule.error
        if rule.change is not None:
            kind = rule.value
    if kind is None:
        return given
    kind = getattr(edge.target, "input_type", Any) if kind is Any else kind
    return _any_of([kind, given]) if kind in (Any, object) else kind


def _rules(edge: Edge) -> tuple[Rule, ...]:
    return edge.outlet.rules if edge.outlet is not None else ()


def _is_open(kind: Any) -> bool:
    """Return whether a type leaves open what a value, or a part of it, is."""
    return kind is Any or any(map(_is_open, get_args(kind)))


def _any_of(kinds: Sequence[Any]) -> Any:
    """Return the union of types, which still names those beside Any."""
    return cast("Any", Union)[tuple(kinds)]


@final
class CompiledEdge:
    """A conditional edge that leaves a node."""

    __slots__ = ("changes", "errors", "label", "number", "rules", "target", "test", "value_type")

    def __init__(self, edge: Edge, target: CompiledNode) -> None:
        declared = _rules(edge)
        self.rules = tuple(rule for rule in declared if rule.test is not None or rule.change is not None)
        """Those that decide, or change the value."""
        alone = self.rules[0] if len(self.rules) == 1 else None
        self.test = None if alone is None or alone.takes_context else alone.test
        """Its only condition, where that needs the output alone."""
        self.errors = tuple(rule.error for rule in declared if rule.error is not None)
        """The types of errors that it takes; none for an edge that takes outputs."""
        self.label = edge.label
        self.target = target
        self.number = edge.number
        """Its number among all edges that leave the node, in the order of their declaration."""
        self.changes = any(rule.change for rule in self.rules)
        """Whether it passes on something else than the output of the node."""
        self.value_type = passed_type(edge)
        """The type by which the value that it passes on is stored."""


@final
class CompiledNode:
    """A node, or a tap, in its place in a strategy."""

    __slots__ = (
        "call", "counts", "declared", "edges", "element", "error_edges", "following", "function", "inside", "kind", "kinds", "learn", "name",
        "only_taps", "output_type", "passes_input", "rules", "within",
    )  # fmt: skip

    def __init__(
        self,
        name: str,
        call: Call,
        *,
        counts: int,
        passes_input: bool,
        element: Element | None = None,
        inside: Inside = (),
        function: Function | None = None,
        rules: Sequence[Ruled] = (),
        within: Sequence[Within] = (),
        learn: Call | None = None,
    ) -> None:
        self.name = name
        """Its name in the strategy; empty for END."""
        self.call = call
        """Executes it, with its policies."""
        self.learn = learn
        """Executes a tap that learns after the end of the run, when nothing but a budget keeps it from failing."""
        self.function = function
        """The user's function, where there is nothing around it: then the loop calls it without `call` in between."""
        self.counts = counts
        """How many executions it counts as in the budget of nodes: strategies and forks count as 0, since their insides do."""
        self.output_type = stored_type(element)
        """The type by which its output is stored."""
        self.declared: Any = element.output_type if function is not None and isinstance(element, Node) else Any
        """The type of which its output must be where that is stored; Any where nothing is declared, or the call checks it."""
        self.kinds = plain_classes(self.declared)
        """The classes of which its output must be in any case; none where that takes more than an `isinstance`."""
        self.kind = self.kinds[0] if self.kinds else None
        """The class of most outputs."""
        self.passes_input = passes_input
        """Whether it is a tap: its input is passed on, whatever the call returns."""
        self.element = element
        """Its declaration."""
        self.inside = inside
        """The compiled strategy that is executed here, or the branches of a fork."""
        self.rules = rules
        """What rules say of it; nothing if none names it."""
        self.within = within
        """The strategies with rules around it, whose rules hold for tools and sub-agents that are called here."""
        self.following: CompiledNode | None = None
        """The next node, where only one edge leaves the node."""
        self.edges: tuple[CompiledEdge, ...] = ()
        """The edges for outputs, in order, where there is a choice."""
        self.error_edges: tuple[CompiledEdge, ...] = ()
        """The edges for errors, in order."""
        self.only_taps = False
        """Whether it and all that follows are taps, which pass on to END what it is given."""


@final
@dataclass(slots=True, eq=False)
class CompiledStrategy:
    """A strategy that is ready to be executed."""

    first: CompiledNode
    """The node to which START leads."""
    nodes: Mapping[str, CompiledNode]
    """All nodes by their names."""
    known_as: KnownAs | None = None
    """What rules name here and inside, if there are rules."""

    @property
    def ruled(self) -> tuple[tuple[str, str], ...]:
        """What rules name, as the log has it: the path of the strategy that has the rules, and the name."""
        return tuple(self.known_as or ())

    @staticmethod
    def of_branch(branch: CompiledNode) -> CompiledStrategy:
        """Return the branch of a fork, which is like a strategy of one node."""
        return CompiledStrategy(branch, {branch.name: branch})

    def node(self, name: str) -> CompiledNode | None:
        """Return the node of a name, or None; the empty name is END."""
        return self.nodes.get(name) if name else DONE

    def find(self, path: str) -> CompiledNode | None:
        """Return the node at a path, such as `count/words` or `parallel/0/double`; None: the node does not exist.

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
                at = CompiledStrategy.of_branch(at[min(int(part), len(at) - 1)])  # an `each` has one for all its items
                continue
            node = at.node(part) if isinstance(at, CompiledStrategy) else None
            if node is None or not node.inside:
                raise LookupError("/".join(parts))
            at = node.inside
        return at


Inside = CompiledStrategy | tuple[CompiledNode, ...]


async def _nothing(ctx: Any, value: Any) -> Any:
    return value


DONE: Final = CompiledNode("", _nothing, counts=0, passes_input=False)
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
    for each in nodes.values():
        node = each
        while node.passes_input and node.following is not None and not node.error_edges:
            node = node.following
        each.only_taps = node is DONE
    return CompiledStrategy(first, {node.name: node for node in nodes.values()})


def wrong_output(declared: Any, returned: object) -> NodeTypeError:
    """Return the error of a node that returned a value of another type than it declares."""
    shown = kind_of(returned)
    origin = get_origin(declared)
    if isinstance(origin, type) and isinstance(returned, origin):
        shown += " with other items"
    return NodeTypeError(
        f"it returned {shown}, and declares {show(declared)}; return the declared type, or declare the returned one"
    )


def items_of(values: Any) -> list[Any]:
    """Return the items for the branches of an `each`, in an order that is the same in every process."""
    # That of a set is not. Equal items may be written in several ways, so their text decides.
    return sorted(cast("set[Any]", values), key=repr) if isinstance(values, set | frozenset) else list(values)


def counts(element: Element) -> int:
    """Return how many executions an element counts as in the budget of nodes."""
    return 0 if isinstance(element, Strategy | Each | Parallel | Race) else 1


def _target(edge: Edge, nodes: Mapping[int, CompiledNode]) -> CompiledNode:
    return DONE if isinstance(edge.target, End) else nodes[id(edge.target)]


def _connect(node: CompiledNode, edges: list[Edge], nodes: Mapping[int, CompiledNode]) -> None:
    compiled = [(edge, CompiledEdge(edge, _target(edge, nodes))) for edge in edges]
    node.error_edges = tuple(found for _, found in compiled if found.errors)
    usual = [(edge, found) for edge, found in compiled if not found.errors]
    if usual and not _rules(usual[0][0]):
        node.following = usual[0][1].target
    else:
        node.edges = tuple(found for _, found in usual)
