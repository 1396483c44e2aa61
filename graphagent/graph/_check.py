"""Everything that can be wrong with a strategy, found before it exists and told at once."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any, Never

from graphagent.graph import _types
from graphagent.graph._node import END, START, End, Node, Start, Tap, TapOf
from graphagent.graph._strategy import Edge, Element

Place = Element | Start | End


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong with a strategy."""

    node: str
    """The node, tap, START or END that it is about."""
    message: str
    """What is wrong, what exists, and what to do."""

    def __str__(self) -> str:
        return f"{self.node!r}: {self.message}"


@dataclass(slots=True)
class Report:
    """What a check found."""

    problems: list[Problem] = field(default_factory=list[Problem])
    takes: Any = Any
    """The type that the strategy takes."""
    gives: Any = Never
    """The type that it gives."""


def check(edges: tuple[Edge, ...]) -> Report:
    """Check the edges of a strategy."""
    report = Report()
    ways: dict[Place, list[Edge]] = defaultdict(list)
    for edge in edges:
        ways[edge.source].append(edge)
    _check_names(edges, report)
    _check_reach(edges, report)
    for source, out in ways.items():
        _check_ways(source, out, report)
    _check_types(ways, report)
    return report


def _check_names(edges: tuple[Edge, ...], report: Report) -> None:
    seen: dict[str, Place] = {}
    told: set[str] = set()
    for edge in edges:
        for place in (edge.source, edge.target):
            other = seen.setdefault(place.name, place)
            if other is not place and place.name not in told:
                told.add(place.name)
                report.problems.append(
                    Problem(
                        place.name, f"two different nodes have this name; rename one with .named({place.name + '_2'!r})"
                    )
                )


def _check_reach(edges: tuple[Edge, ...], report: Report) -> None:
    import networkx

    graph: networkx.DiGraph[Place] = networkx.DiGraph((edge.source, edge.target) for edge in edges)
    graph.add_node(END)
    reached = networkx.descendants(graph, START) | {START}
    ending = networkx.ancestors(graph, END) | {END}
    for place in graph:
        if place not in reached and place is not END:
            report.problems.append(
                Problem(place.name, "START never reaches it; add a path that leads to it, or remove it")
            )
    for place in graph:
        if place in reached and place not in ending and graph.out_degree(place) == 0:
            report.problems.append(Problem(place.name, f"no path goes on from it; end it with {place.name} >> END"))
    stuck = graph.subgraph(place for place in reached if place not in ending)
    for loop in networkx.strongly_connected_components(stuck):
        names = sorted(place.name for place in loop)
        if len(loop) > 1 or stuck.has_edge(*loop, *loop):
            report.problems.append(
                Problem(
                    names[0], f"the cycle of {', '.join(map(repr, names))} has no way out; add a path that leads to END"
                )
            )


def _check_ways(source: Place, out: list[Edge], report: Report) -> None:
    """Check the order and number of an element's ways on."""
    plain: Edge | None = None
    caught: str | None = None
    for edge in out:
        if edge.outlet is None:
            if plain is not None:
                if plain.target is not edge.target:
                    report.problems.append(
                        Problem(
                            source.name,
                            f"it has two plain edges, to {plain.target.name!r} and to {edge.target.name!r}; "
                            f"use parallel(…) for both at once, or outlets such as .on(…) and .when(…) to choose",
                        )
                    )
                continue
            plain = edge
        if _on_error(edge):
            continue
        if caught is not None:
            shown = edge.label or "the plain edge"
            report.problems.append(
                Problem(
                    source.name,
                    f"{shown} to {edge.target.name!r} is never taken, because {caught} before it takes everything",
                )
            )
        elif edge.outlet is None:
            caught = "the plain edge"
        elif _catches_all(edge):
            caught = edge.label


def _on_error(edge: Edge) -> bool:
    return edge.outlet is not None and any(rule.error for rule in edge.outlet.rules)


def _catches_all(edge: Edge) -> bool:
    return edge.outlet is not None and all(rule.test is None for rule in edge.outlet.rules)


def _check_types(ways: dict[Place, list[Edge]], report: Report) -> None:
    """Follow the types from START, through taps, and compare them edge by edge."""
    begins = ways.get(START, [])
    report.takes = _first_type(ways)
    arriving: dict[Place, list[Any]] = defaultdict(list)
    waiting: list[tuple[Edge, Any]] = [(edge, report.takes) for edge in begins[:1]]
    followed: set[Place] = set()
    ends: list[Any] = []
    while waiting:
        edge, kind = waiting.pop()
        target = edge.target
        if isinstance(target, End):
            ends.append(kind)
            continue
        if kind in arriving[target]:
            continue
        arriving[target].append(kind)
        if edge.source is not START and not _types.fits(kind, target.takes):
            report.problems.append(_misfit(edge, kind, target))
        if isinstance(target, Tap | TapOf):
            waiting.extend((way, kind) for way in ways.get(target, [])[:1])
        elif target not in followed:
            followed.add(target)
            waiting.extend(_leaving(target, ways.get(target, []), report))
    report.gives = _types.union(reversed(ends))


def _first_type(ways: dict[Place, list[Edge]]) -> Any:
    """Give what a strategy takes: the input of what comes first, taps that take anything aside."""
    place: Place = START
    seen: set[Place] = set()
    while place not in seen and ways.get(place):
        seen.add(place)
        place = ways[place][0].target
        if not isinstance(place, Tap | End | Start):
            return place.takes
    return Any


def _misfit(edge: Edge, kind: Any, target: Element) -> Problem:
    return Problem(
        edge.source.name,
        f"its output {_types.show(kind)} does not fit the input {_types.show(target.takes)} of {target.name!r}; "
        f"change one of them, or map it: {edge.source.name}{'.' if edge.outlet is None else '….'}map(…)",
    )


def _leaving(node: Node[Any, Any], out: list[Edge], report: Report) -> list[tuple[Edge, Any]]:
    """Give the types that leave a node along each of its ways, and check that together they take its whole output."""
    rest = _types.members(node.gives)
    found: list[tuple[Edge, Any]] = []
    for edge in out:
        kind, taken, sure = _through(node, edge, rest)
        if taken == [] and not _on_error(edge):
            report.problems.append(
                Problem(node.name, f"{edge.label} is never taken: its output is {_types.show(node.gives)}")
            )
            continue
        found.append((edge, kind))
        if sure:
            rest = [member for member in rest if member not in taken]
    if rest and out and rest != [Any] and any(edge.outlet is not None for edge in out):
        missing = ", ".join(_types.show(member) for member in rest)
        tried = ", ".join(edge.label or "a plain edge" for edge in out)
        report.problems.append(
            Problem(node.name, f"no way on takes its output {missing} (there are: {tried}); add .on(…) or .otherwise()")
        )
    found.reverse()
    return found


def _through(node: Node[Any, Any], edge: Edge, rest: list[Any]) -> tuple[Any, list[Any], bool]:
    """Give the type behind an edge, the members of the output that may take it, and whether those always do."""
    if edge.outlet is None:
        return (_types.union(rest) if rest else node.gives), rest or [node.gives], True
    kind: Any = _types.union(rest) if rest else node.gives
    taken = rest or [node.gives]
    sure = True
    for position, rule in enumerate(edge.outlet.rules):
        if rule.error is not None:
            return _behind_error(edge, position), [], False
        if rule.change is not None:
            kind = rule.value
            if any(later.test for later in edge.outlet.rules[position + 1 :]):
                return kind, taken, False
        elif rule.kinds:
            wanted = _types.union(rule.kinds)
            every = _types.members(node.gives)
            matching = [member for member in every if member is Any or member is object or _meet(member, wanted)]
            taken = [member for member in matching if _types.fits(member, wanted) and member is not Any] or matching
            sure = sure and all(_types.fits(member, wanted) and member is not Any for member in taken)
            kind = wanted
        elif rule.test is not None:
            sure = False
    return kind, taken, sure


def _behind_error(edge: Edge, position: int) -> Any:
    kind: Any = edge.outlet.rules[position].value if edge.outlet else Any
    for rule in edge.outlet.rules[position + 1 :] if edge.outlet else ():
        if rule.change is not None:
            kind = rule.value
    return kind


def _meet(member: Any, wanted: Any) -> bool:
    return any(_types.fits(part, member) or _types.fits(member, part) for part in _types.members(wanted))
