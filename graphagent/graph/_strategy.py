"""A strategy: paths from START to END, checked when it is made. A strategy is itself a node.

The file is long because it describes the class for users, and has the functions that yield the elements of a strategy.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Self, TypeVar, cast, overload

from graphagent._options import check_budgets, check_flag, check_model, check_text, check_tools, cost_limit
from graphagent._policies import Retry
from graphagent.errors import StrategyError
from graphagent.graph._declarations import Declaration
from graphagent.graph._forks import Each, Parallel, Race
from graphagent.graph._node import START, Chain, End, First, I, Node, O, Outlet, PathPart, Start, Tap, TapOf
from graphagent.graph._outline import Kind, Outline, OutlineEdge
from graphagent.graph._policies import Policy, Setting, Timeout, ToolSelection
from graphagent.graph._signatures import misplaced
from graphagent.graph._types import show

if TYPE_CHECKING:
    from graphagent._details import Problem
    from graphagent.graph._rules import PathRule
    from graphagent.protocols import Model

X = TypeVar("X")
A = TypeVar("A")
B = TypeVar("B")
C = TypeVar("C")
D = TypeVar("D")
E = TypeVar("E")
F = TypeVar("F")
G = TypeVar("G")
H = TypeVar("H")

Element = Node[Any, Any] | Tap | TapOf[Any]
"""A part of a strategy that is executed."""


@dataclass(frozen=True, slots=True, eq=False)
class Edge:
    """A connection from one element of a strategy to another."""

    source: Element | Start
    outlet: Outlet[Any, Any] | None
    """Its conditions and changes; None for a plain edge."""
    target: Element | End
    number: int
    """Its number among the edges that leave its source, in the order of the paths."""

    @property
    def label(self) -> str:
        """The conditions and changes as they are drawn, such as `on str, when long`; empty for a plain edge."""
        return ", ".join(rule.label for rule in self.outlet.rules) if self.outlet else ""


class Strategy(Node[I, O]):
    """A graph of nodes that an agent runs. It is checked when it is made; a wrong strategy cannot exist.

    ```text
    shout = Strategy("shout", START >> read >> upper >> END)
    ```

    The first path begins at START. Every other path begins at a node or at one of its outlets. If several
    paths begin at one node, the first whose conditions hold is taken. For more than eight paths, annotate the types:
    `Strategy[str, str](…)`.

    `rules=` are rules for all of its runs, such as `precedes(approve, send)`; see `precedes`, `never_together` and `guarded`.

    Raises:
        StrategyError: the strategy is wrong, or a run could break a rule; `problems` lists everything that is wrong.
    """

    __slots__ = ("_declarations", "_outline", "edges", "elements_by_name", "path_rules", "setting", "without_tools")

    @overload
    def __init__(self, name: str, first: First[I, O], /, *, rules: Sequence[PathRule] = ()) -> None: ...
    @overload
    def __init__(
        self: Strategy[X, A | B], name: str, first: First[X, A], b: PathPart[B], /, *, rules: Sequence[PathRule] = ()
    ) -> None: ...
    @overload
    def __init__(
        self: Strategy[X, A | B | C],
        name: str,
        first: First[X, A],
        b: PathPart[B],
        c: PathPart[C],
        /,
        *,
        rules: Sequence[PathRule] = (),
    ) -> None: ...
    @overload
    def __init__(
        self: Strategy[X, A | B | C | D],
        name: str,
        first: First[X, A],
        b: PathPart[B],
        c: PathPart[C],
        d: PathPart[D],
        /,
        *,
        rules: Sequence[PathRule] = (),
    ) -> None: ...
    @overload
    def __init__(
        self: Strategy[X, A | B | C | D | E],
        name: str,
        first: First[X, A],
        b: PathPart[B],
        c: PathPart[C],
        d: PathPart[D],
        e: PathPart[E],
        /,
        *,
        rules: Sequence[PathRule] = (),
    ) -> None: ...
    @overload
    def __init__(
        self: Strategy[X, A | B | C | D | E | F],
        name: str,
        first: First[X, A],
        b: PathPart[B],
        c: PathPart[C],
        d: PathPart[D],
        e: PathPart[E],
        f: PathPart[F],
        /,
        *,
        rules: Sequence[PathRule] = (),
    ) -> None: ...
    @overload
    def __init__(
        self: Strategy[X, A | B | C | D | E | F | G],
        name: str,
        first: First[X, A],
        b: PathPart[B],
        c: PathPart[C],
        d: PathPart[D],
        e: PathPart[E],
        f: PathPart[F],
        g: PathPart[G],
        /,
        *,
        rules: Sequence[PathRule] = (),
    ) -> None: ...
    @overload
    def __init__(
        self: Strategy[X, A | B | C | D | E | F | G | H],
        name: str,
        first: First[X, A],
        b: PathPart[B],
        c: PathPart[C],
        d: PathPart[D],
        e: PathPart[E],
        f: PathPart[F],
        g: PathPart[G],
        h: PathPart[H],
        /,
        *,
        rules: Sequence[PathRule] = (),
    ) -> None: ...
    @overload
    def __init__(
        self, name: str, first: First[I, O], /, *rest: PathPart[O], rules: Sequence[PathRule] = ()
    ) -> None: ...
    def __init__(self, name: str, first: Any = None, /, *rest: Any, rules: Sequence[PathRule] = ()) -> None:
        from graphagent.graph._check import check

        if not isinstance(name, str) or first is None:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError("a strategy has a name and then its paths: Strategy('name', START >> … >> END, …)")
        edges = _edges(name, (first, *rest))
        report = check(edges)
        if rules:
            from graphagent.graph.rules._proof import check_rules

            report.problems += check_rules(edges, rules)
        if report.problems:
            raise StrategyError(name, report.problems)
        super().__init__(_engine_only, name=name, input_type=report.input_type, output_type=report.output_type)
        self.edges: tuple[Edge, ...] = edges
        """Its edges, in the order of the paths; those from START first. `outline.edges` has them as plain data."""
        self.elements_by_name: dict[str, Element] = {
            edge.target.name: edge.target for edge in edges if not isinstance(edge.target, End)
        }
        """Its nodes and taps under their names, in the order of the paths."""
        self.declaration = Declaration.of_frame(
            type(self), name, [each.declaration for each in self.elements_by_name.values()]
        )
        self.without_tools: tuple[Problem, ...] = tuple(report.without_tools)
        """Problems that exist only if tools are offered: an agent with tools refuses the strategy."""
        self.setting: Setting | None = None
        """The strategy's own model, tools and budgets, when it is used as a node."""
        self.path_rules: tuple[PathRule, ...] = tuple(rules)
        """The rules that no execution of the strategy can break, from START to END."""
        self._outline: Outline | None = None
        self._declarations: Mapping[str, str] | None = None

    def using(
        self,
        *,
        model: Model | None = None,
        tools: Sequence[Any] | ToolSelection | None = None,
        max_nodes: int | None = None,
        max_turns: int | None = None,
        max_tokens: int | None = None,
        max_cost: Decimal | str | float | None = None,
        max_seconds: float | None = None,
    ) -> Self:
        """Return the same strategy with a model, tools and budgets of its own.

        Arguments that are None change nothing: at first, the strategy shares everything with its parent.

        Args:
            model: The model that its nodes ask.
            tools: The tools that they offer to it; an empty list means none, and `select_tools()` those that a model chooses.
            max_nodes: The largest number of node executions, each time that it is entered.
            max_turns: The largest number of model turns, likewise.
            max_tokens: The largest number of tokens, likewise.
            max_cost: The largest cost, likewise, in the currency of the prices.
            max_seconds: The longest time that it is executed, likewise.

        Raises:
            TypeError: the model is not a model, or `tools` is not a list.
            ValueError: a budget is not valid.
        """
        if model is not None:
            check_model(model)
        if tools is not None and not isinstance(tools, ToolSelection):
            check_tools(tools)
        max_cost = cost_limit(max_cost)
        check_budgets(
            max_nodes=max_nodes, max_turns=max_turns, max_tokens=max_tokens, max_cost=max_cost, max_seconds=max_seconds
        )
        given: dict[str, Any] = {
            "model": model, "tools": tools, "max_nodes": max_nodes, "max_turns": max_turns, "max_tokens": max_tokens,
            "max_cost": max_cost, "max_seconds": max_seconds,
        }  # fmt: skip
        own = self._copy()
        own.setting = replace(
            self.setting or Setting(), **{name: each for name, each in given.items() if each is not None}
        )
        # Unless it brings its own model, the choice of tools needs one.
        own.asks_model = self.asks_model or (isinstance(tools, ToolSelection) and tools.model is None)
        return own

    @property
    def asker(self) -> str:
        """The path of the node in it that asks a person; empty if there is none."""
        found = (each.asker for each in self.elements_by_name.values() if isinstance(each, Node) and each.asker)
        first = next(found, "")
        return first and f"{self.name}/{first}"

    def _copy(self) -> Self:
        own = super()._copy()
        own._outline = None  # noqa: SLF001  the outline is about to change
        return own

    def _with(self, policy: Policy) -> Self:
        """Return a copy with one more policy. If the strategy is tried again as a whole, its rules apply to all attempts together."""
        if self.path_rules and isinstance(policy, Retry) and policy.attempts > 1:
            from graphagent.graph.rules._proof import check_rules

            problems = check_rules(self.edges, self.path_rules, tried_again=True)
            if problems:
                raise StrategyError(self.name, problems)
        return super()._with(policy)

    def as_tool(
        self,
        description: str,
        *,
        name: str = "",
        approve: bool = False,
        timeout: float | None = None,
        retry: Retry | int | None = None,
        concurrency: int | None = None,
        max_size: int | None = None,
    ) -> StrategyTool:
        """Return the strategy as a tool: `Agent(…, tools=[strategy.as_tool("Finds …")])`.

        A dataclass or a pydantic model that it takes gives the tool a parameter for each of its fields; any other input is the
        parameter `task`. Each call is a run of its own, a part of the run that calls it. It asks the model that the caller asks,
        has its features, and its tools if there is an edge for tool calls wherever these are needed; `.using(…)` gives it others.

        Args:
            description: Its purpose and when to use it, for the model.
            name: The name by which the model calls the tool; by default the name of the strategy.
            approve: Whether a person is asked before each call.
            timeout: Seconds that a call may take; by default any time.
            retry: The maximum number of attempts of a call that takes too long.
            concurrency: The maximum number of simultaneous calls, by all runs of one event loop; by default any number.
            max_size: The number of characters of the answer that the model sees; by default all.

        Raises:
            TypeError: the description is missing, or an argument is not of its type.
        """
        if not isinstance(description, str) or not description:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(
                f"strategy {self.name!r} as a tool has no description; write as_tool('Finds …'), for the model"
            )
        check_flag("approve", approve)
        check_text("name=", name)
        again = Retry(retry) if type(retry) is int else retry
        limits = {
            "approve": approve,
            "timeout": timeout,
            "retry": again,
            "concurrency": concurrency,
            "max_size": max_size,
        }
        return StrategyTool(self, name or self.name, description, limits)

    def walk(self) -> Iterator[tuple[str, Element]]:
        """Yield each node and tap with its path, including branches and the nodes of subgraphs."""
        return walk(self, "")

    @property
    def outline(self) -> Outline:
        """The strategy as plain data, as runs store it and drawings show it."""
        if self._outline is None:
            self._outline = _outline(self)
        return self._outline

    @property
    def declarations(self) -> Mapping[str, str]:
        """The names of the declarations of its nodes, taps and forks by their paths, as runs store them."""
        if self._declarations is None:
            self._declarations = names_of_declarations(self)
        return self._declarations

    def to_mermaid(self) -> str:
        """Draw it as Mermaid text."""
        return self.outline.to_mermaid()

    def to_svg(self) -> str:
        """Draw it as an SVG picture; no system program is needed."""
        return self.outline.to_svg()

    def _repr_svg_(self) -> str:
        return self.to_svg()

    def _repr_html_(self) -> str:
        from graphagent.graph.drawing._svg import to_html

        return to_html(self.outline)

    def __repr__(self) -> str:
        return super().__repr__().replace("<node", "<strategy", 1)


class StrategyTool:
    """A strategy as a tool, which `Strategy.as_tool` returns and an agent takes in `tools=`."""

    made: Any = None
    """The tool, made by the first agent that has it, since this room does not know tools or agents."""

    def __init__(self, strategy: Strategy[Any, Any], name: str, description: str, limits: Mapping[str, Any]) -> None:
        self.strategy = strategy
        """The strategy that a call executes."""
        self.name = name
        """How the model calls it."""
        self.description = description
        """Its description for the model."""
        self.limits = limits
        """The settings of the tool."""

    @property
    def parameters(self) -> Mapping[str, Any]:
        """The JSON schema of its arguments; empty before an agent has it."""
        return {} if self.made is None else self.made.parameters

    @property
    def run(self) -> Callable[..., Any]:
        """The declaration that a call executes, once an agent has the tool."""
        return self.as_tool if self.made is None else self.made.run

    @property
    def declaration(self) -> Declaration:
        """The declaration of the strategy, shared by all of its tools."""
        return self.strategy.declaration

    def as_tool(self) -> Any:
        """Return the tool.

        Raises:
            TypeError: no agent has it yet.
        """
        if self.made is None:
            raise TypeError(
                f"the strategy {self.strategy.name!r} becomes a tool in an agent; write Agent(…, tools=[…]) with a list"
            )
        return self.made

    def __repr__(self) -> str:
        return f"<strategy {self.strategy.name!r} as the tool {self.name!r}>"


async def _engine_only(ctx: Any, value: Any) -> Any:
    raise TypeError("a strategy has no function of its own; run it with Agent(strategy).run(…)")


def walk(node: Element, prefix: str) -> Iterator[tuple[str, Element]]:
    """Yield each node and tap inside a strategy or a fork with its path, which begins with `prefix`."""
    for name, element in inside(node):
        yield f"{prefix}{name}", element
        yield from walk(element, f"{prefix}{name}/")


def names_of_declarations(strategy: Strategy[Any, Any]) -> dict[str, str]:
    """Return the names of the declarations in a strategy by paths. Different ones of the same name are numbered."""
    known: dict[str, list[Declaration]] = {}
    found: dict[str, str] = {}
    for path, element in walk(strategy, ""):
        own = element.declaration
        same = known.setdefault(own.name, [])
        number = next((number for number, each in enumerate(same) if each.covers(own) and own.covers(each)), len(same))
        if number == len(same):
            same.append(own)
        found[path] = f"{own.name}#{number + 1}" if number else own.name
    return found


def inside(node: Element) -> Iterable[tuple[str, Element]]:
    """Return the nodes and taps directly inside a strategy or a fork, with their paths there; nothing for others."""
    if isinstance(node, Strategy):
        return node.elements_by_name.items()
    if isinstance(node, Each):
        return ((node.branches[0].name, node.branches[0]),)
    if isinstance(node, Parallel | Race):
        return ((f"{number}/{branch.name}", branch) for number, branch in enumerate(node.branches))
    return ()


def _outline(element: Element) -> Outline:
    """Return a node, tap, strategy or fork as plain data."""
    edges = element.edges if isinstance(element, Strategy) else ()
    return Outline(
        _KINDS.get(type(element), "node"),
        element.name,
        show(element.input_type),
        show(element.output_type) if isinstance(element, Node) else "",
        tuple(_outline(nested) for _, nested in inside(element)),
        tuple(_outline_edge(edge) for edge in edges),
        retried=any(isinstance(policy, Retry) for policy in element.policies),
        notes=tuple(_notes(element)),
    )


_KINDS: dict[type, Kind] = {
    Tap: "tap", TapOf: "tap", Strategy: "strategy", Parallel: "parallel", Each: "each", Race: "race",
}  # fmt: skip


def _outline_edge(edge: Edge) -> OutlineEdge:
    rules = edge.outlet.rules if edge.outlet is not None else ()
    conditions = tuple((rule.verb, rule.what) for rule in rules)
    return OutlineEdge(edge.source.name, edge.target.name, edge.number, conditions)


def _notes(element: Element) -> Iterator[str]:
    """Yield the notes of a drawing about an element: policies, limits, a model or tools of its own."""
    if isinstance(element, Parallel | Each | Race):
        if element.limit is not None:
            yield f"limit {element.limit}"
        if element.failures == "collect" and not isinstance(element, Race):
            yield "collect failures"
    if isinstance(element, Strategy) and element.setting is not None:
        setting = element.setting
        if setting.model is not None:
            yield "own model"
        if setting.tools is not None:
            yield "tools that a model selects" if isinstance(setting.tools, ToolSelection) else "own tools"
        limits = {
            "nodes": setting.max_nodes,
            "turns": setting.max_turns,
            "tokens": setting.max_tokens,
            "seconds": setting.max_seconds,
        }
        yield from (f"max {limit} {what}" for what, limit in limits.items() if limit is not None)
    for policy in element.policies:
        if isinstance(policy, Retry):
            yield f"retry {policy.attempts}"
        elif isinstance(policy, Timeout):
            yield f"timeout {policy.seconds:g} s"
        else:
            yield "cached" if policy.ttl is None else f"cached {policy.ttl:g} s"


def _edges(name: str, paths: tuple[object, ...]) -> tuple[Edge, ...]:
    leaving: dict[Element | Start, list[Edge]] = defaultdict(list)
    found: list[Edge] = []
    for number, path in enumerate(paths):
        if not isinstance(path, Chain):
            given = "START alone" if path is START else misplaced(path)
            raise TypeError(f"strategy {name!r}, path {number + 1}: a path is nodes joined with >>, not {given}")
        elements = path.elements()
        if (elements[0] is START) != (number == 0):
            where = "begin the first path at START" if number == 0 else "only the first path begins at START"
            raise TypeError(f"strategy {name!r}, path {number + 1}: {where}")
        if len(elements) < 2:
            raise TypeError(f"strategy {name!r}, path {number + 1}: it leads nowhere; continue it with >>, up to END")
        for head, target in itertools.pairwise(elements):
            outlet = head if isinstance(head, Outlet) and head.node is not head else None
            out = leaving[source := cast(Element | Start, outlet.node if outlet else head)]
            if outlet is None and any(edge.outlet is None and edge.target is target for edge in out):
                continue  # paths may share a plain edge
            out.append(Edge(source, outlet, cast(Element | End, target), len(out)))
            found.append(out[-1])
    return tuple(found)
