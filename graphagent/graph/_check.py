"""The check of a new strategy, which reports all problems at once."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Never, get_args

from graphagent._details import Problem
from graphagent.graph import _types
from graphagent.graph._declarations import MOST_LEVELS
from graphagent.graph._forks import Each
from graphagent.graph._node import END, START, End, Node, Rule, Start, Tap, TapOf
from graphagent.graph._strategy import Edge, Element

Point = Element | Start | End


@dataclass(slots=True)
class Report:
    """The problems of a strategy, and its types."""

    problems: list[Problem] = field(default_factory=list[Problem])
    input_type: Any = Any
    """The type of the strategy's input."""
    output_type: Any = Never
    """The type of its output."""
    without_tools: list[Problem] = field(default_factory=list[Problem])
    """The problems that exist only if tools are offered."""


def check(edges: tuple[Edge, ...]) -> Report:
    """Return the problems and the types of a strategy with these edges."""
    report = Report()
    edges_from: dict[Point, list[Edge]] = defaultdict(list)
    for edge in edges:
        edges_from[edge.source].append(edge)
    _check_names(edges, report)
    _check_levels(edges, report)
    _check_reach(edges, report)
    for source, out in edges_from.items():
        _check_edges_of(source, out, report)
    _check_types(edges_from, report)
    order = {place.name: at for at, place in reversed([*enumerate(edge.source for edge in edges)])}
    report.problems.sort(key=lambda problem: order.get(problem.node, len(edges)))
    return report


def _check_names(edges: tuple[Edge, ...], report: Report) -> None:
    seen: dict[str, Point] = {}
    told: set[str] = set()
    for edge in edges:
        for place in (edge.source, edge.target):
            other = seen.setdefault(place.name, place)
            if other is not place and place.name not in told:
                told.add(place.name)
                report.problems.append(Problem(place.name, _same_name(place, other)))


def _check_levels(edges: tuple[Edge, ...], report: Report) -> None:
    inside = [edge.target for edge in edges if not isinstance(edge.target, End)]
    deepest = max(inside, key=lambda element: element.declaration.levels, default=None)
    if deepest is not None and deepest.declaration.levels >= MOST_LEVELS:
        report.problems.append(Problem(deepest.name, too_deep(deepest.declaration.levels)))


def too_deep(levels: int) -> str:
    """Return why an element with so many levels cannot be inside a strategy or an agent."""
    return (
        f"it has {levels} levels of strategies, forks and agents inside one another; together with those around it, the limit is {MOST_LEVELS}, and "
        "an agent counts as three. Put its work into one strategy with a loop, or into functions"
    )


def _same_name(one: Point, other: Point) -> str:
    rename = f"rename one with .named({one.name + '_2'!r})"
    if isinstance(one, Start | End) or isinstance(other, Start | End) or not one.declaration.covers(other.declaration):
        return f"two different nodes have this name; {rename}"
    return f"a policy such as .retry(…) returns a copy, and two are in the paths; use one variable for all, or {rename}"


def _check_reach(edges: tuple[Edge, ...], report: Report) -> None:
    import networkx

    graph: networkx.DiGraph[Point] = networkx.DiGraph((edge.source, edge.target) for edge in edges)
    graph.add_node(END)
    reached = set(networkx.dfs_preorder_nodes(graph, START))
    ending = set(networkx.dfs_preorder_nodes(graph.reverse(copy=False), END))
    for place in graph:
        if place not in reached and place is not END:
            report.problems.append(
                Problem(place.name, "START never reaches it; add a path that leads to it, or remove it")
            )
    for place in graph:
        if place in reached and place not in ending and graph.out_degree(place) == 0:
            report.problems.append(Problem(place.name, f"no edge leaves it; end its path with {place.name} >> END"))
    stuck = graph.subgraph(place for place in graph if place in reached and place not in ending)
    for loop in networkx.strongly_connected_components(stuck):
        names = sorted(place.name for place in loop)
        leaving = min((place.name for place in loop if isinstance(place, Node)), default="node")
        if all(target in loop for place in loop for target in graph[place]) and any(graph[place] for place in loop):
            report.problems.append(
                Problem(
                    names[0],
                    f"no edge leaves the cycle of {', '.join(map(repr, names))}; add one before the plain edge of a node, such as "
                    f"{leaving}.when(…) >> END",
                )
            )


def _check_edges_of(source: Point, out: list[Edge], report: Report) -> None:
    """Check the order and number of the edges of an element."""
    plain: Edge | None = None
    caught: str | None = None
    for edge in out:
        if edge.outlet is None:
            if plain is not None:
                report.problems.append(
                    Problem(
                        source.name,
                        f"it has two plain edges, to {plain.target.name!r} and to {edge.target.name!r}; "
                        f"use parallel(…) for both at once, or outlets such as .on(…) and .when(…) to choose; a second "
                        f"place of the node is a copy: .named({source.name + '_2'!r})",
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
    return edge.outlet is None or not (_on_error(edge) or any(rule.test for rule in edge.outlet.rules))


def _check_types(edges_from: dict[Point, list[Edge]], report: Report) -> None:
    """Follow the types from START, through taps, and compare them edge by edge."""
    begins = edges_from.get(START, [])
    report.input_type = _first_type(edges_from)
    arriving: dict[Point, list[Any]] = defaultdict(list)
    waiting: list[tuple[Edge, Any]] = [(edge, report.input_type) for edge in begins[:1]]
    followed: set[Point] = set()
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
        if edge.source is not START and not _types.fits(kind, target.input_type):
            report.problems.append(_misfit(edge, kind, target))
        elif isinstance(target, Each) and any(part in (str, bytes) for part in _types.members(kind)):
            report.problems.append(
                Problem(
                    edge.source.name,
                    f"its output {_types.show(kind)} is text, of which {target.name!r} would take each character; return a list, or map it "
                    f"to one, such as .map(str.splitlines)",
                )
            )
        if isinstance(target, Tap | TapOf):
            waiting.extend(_passing(target, kind, edges_from.get(target, []), report, first=len(arriving[target]) == 1))
        elif target not in followed:
            followed.add(target)
            waiting.extend(_leaving(target, edges_from.get(target, []), report))
    report.output_type = _types.union(ends)


def _passing(
    tap: Tap | TapOf[Any], kind: Any, out: list[Edge], report: Report, *, first: bool
) -> list[tuple[Edge, Any]]:
    """Return the types that leave a tap along each of its edges: its input, or the result of an error path for it."""
    errors = list[type[Exception]]()
    found: list[tuple[Edge, Any]] = []
    for edge in [*[edge for edge in out if not _on_error(edge)][:1], *filter(_on_error, out)]:
        rules = edge.outlet.rules if edge.outlet else ()
        problem = _error_problem(tap, edge, errors) if _on_error(edge) else None
        if problem is None:
            found.append((edge, next((rule.value for rule in reversed(rules) if rule.change is not None), kind)))
        elif first:
            report.problems.append(problem)
    if first and out and all(map(_on_error, out)):
        report.problems.append(
            Problem(tap.name, f"no edge takes its output, only its errors; continue with {tap.name} >> …")
        )
    return found


def _first_type(edges_from: dict[Point, list[Edge]]) -> Any:
    """Return the input type of a strategy: that of its first element, ignoring taps that take anything."""
    place: Point = START
    seen: set[Point] = set()
    while place not in seen and edges_from.get(place):
        seen.add(place)
        place = edges_from[place][0].target
        if not isinstance(place, Tap | End | Start):
            return place.input_type
    return Any


def _misfit(edge: Edge, kind: Any, target: Element) -> Problem:
    name, after = edge.source.name, f".map(…) >> {target.name}"
    if edge.outlet is not None:
        advice = f", or map it: {name}{''.join(map(_written, edge.outlet.rules))}{after}"
    elif isinstance(edge.source, Node):
        advice = f", or map it: end this path with {name}, and give Strategy one more: {name}{after}"
    else:
        advice = ""
    return Problem(
        edge.source.name,
        f"its output {_types.show(kind)} does not fit the input {_types.show(target.input_type)} of {target.name!r}; change one "
        f"of them{advice}",
    )


def _written(rule: Rule) -> str:
    """Return a condition or change of an outlet as it is written, such as `.on(str)`."""
    if rule.error is not None:
        return f".on_error({rule.error.__name__})"
    return f".{rule.verb}({rule.what or ('' if rule.verb == 'otherwise' else '…')})"


def _leaving(node: Node[Any, Any], out: list[Edge], report: Report) -> list[tuple[Edge, Any]]:
    """Return the types that leave a node along each of its edges, and check that together they take its whole output."""
    every = _types.members(node.output_type)
    rest, caught, errors = every, False, list[type[Exception]]()
    found: list[tuple[Edge, Any]] = []
    for edge in out:
        rules = edge.outlet.rules if edge.outlet else ()
        kind = node.output_type if rest == every or not rest else _types.union(rest)
        if rules and rules[0].error is not None:
            problem, kind = _error_problem(node, edge, errors), rules[0].value
        elif rules and rules[0].kinds:
            kind = _types.union(rules[0].kinds)
            problem = None if caught else _kind_problem(node, edge, kind, every, rest)
        else:
            problem = None
        if problem is not None:
            report.problems.append(problem)
            continue
        if not _on_error(edge):
            rest = _left(rest, edge)
            caught = caught or _catches_all(edge)
        found.append((edge, next((rule.value for rule in reversed(rules) if rule.change is not None), kind)))
    if rest and out and (rest != [Any] or all(map(_on_error, out))):
        missing = _types.show(node.output_type if rest == every else _types.union(rest))
        tried = ", ".join(edge.label for edge in out)
        only_with_tools = all(member in _types.members(node.tool_outputs) for member in rest)
        (report.without_tools if only_with_tools else report.problems).append(
            Problem(node.name, f"no edge takes its output {missing} (there are: {tried}); add .on(…) or .otherwise()")
        )
    found.reverse()
    return found


def _error_problem(node: Element, edge: Edge, before: list[type[Exception]]) -> Problem | None:
    """Return the problem if an earlier edge takes the error of this one; otherwise add this one to `before`."""
    rules = edge.outlet.rules if edge.outlet else ()
    for rule in rules[:1]:
        earlier = next((kind for kind in before if rule.error and issubclass(rule.error, kind)), None)
        if earlier is not None:
            return Problem(
                node.name,
                f"{edge.label} to {edge.target.name!r} is never taken, because on error {earlier.__name__} before it "
                f"takes such errors",
            )
        if rule.error and not any(later.test for later in rules[1:]):
            before.append(rule.error)
    return None


def _kind_problem(node: Node[Any, Any], edge: Edge, wanted: Any, every: list[Any], rest: list[Any]) -> Problem | None:
    """Return the problem if an edge for a type or a value is never taken, or would take more than it says."""
    matching = [member for member in every if member is Any or member is object or _meet(member, wanted)]
    if not matching:
        members = [each for member in every for each in get_args(member) if isinstance(each, Enum)]
        meant = next((f"; write {_types.one_value(each)}" for each in members if each.value in get_args(wanted)), "")
        return Problem(node.name, f"{edge.label} is never taken: its output is {_types.show(node.output_type)}{meant}")
    if not any(member in rest for member in matching):
        return Problem(
            node.name,
            f"{edge.label} to {edge.target.name!r} is never taken, because the edges before it take all of that",
        )
    for member in rest:
        if member is not Any and all(_types.erases(part, member) for part in _types.members(wanted)):
            return Problem(
                node.name,
                f"{edge.label} would also take {_types.show(member)}, since only the class can be seen when the program "
                f"runs; use .when(…) to tell them apart",
            )
    return None


def _left(rest: list[Any], edge: Edge) -> list[Any]:
    """Return the members of an output type that an edge does not take, or not with every value."""
    rules = edge.outlet.rules if edge.outlet else ()
    if any(rule.part or (rule.test is not None and not rule.kinds) for rule in rules):
        return rest
    wanted = _types.union(kind for rule in rules for kind in rule.kinds) if rules and rules[0].kinds else Any
    return [member for member in rest if wanted is not Any and (member is Any or not _types.passes(member, wanted))]


def _meet(member: Any, wanted: Any) -> bool:
    return any(_types.fits(part, member) or _types.passes(member, part) for part in _types.members(wanted))
