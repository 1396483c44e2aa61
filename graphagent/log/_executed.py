"""What a run has executed of the declarations that rules name: followed as the run is executed, or as its log is read.

There is something only where a strategy with rules is executed, and only of what these name. It is kept for each execution of such a
strategy by itself: for that of the run, and for each entry into a subgraph that has rules.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, TypeAlias, final

from graphagent.graph._rules import declaration_of, is_tool

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from graphagent.graph._rules import RuleNode
    from graphagent.log._visits import Frame, Visit

RuleScope: TypeAlias = tuple[str, int]
"""One visit of a strategy that has rules: the path of its frame, and the entry with which it was entered."""
_CALLED = "()"


class Standing(NamedTuple):
    """What was executed of one declaration, as it matters to what begins then."""

    node: str
    """The path of what began last."""
    over: int
    """The last entry at which one was running or over."""
    latest: int
    """The entry with which the last that came to its end began; 0 if none did."""


class Running(NamedTuple):
    """Something that began, and has not ended."""

    at: str
    """The path of the frame."""
    node: str | None
    """The node that the frame executed."""
    since: int
    """The entry with which it began, or the last one before it."""
    before: dict[str, Standing]
    """What had been executed by then."""


@final
class Occurrences:
    """What was executed of one declaration."""

    __slots__ = ("ended", "latest", "node", "over", "running")

    def __init__(self) -> None:
        self.node = ""
        """The path of that of its nodes that began last; for a tool call that of the node that makes it, and the tool."""
        self.over = 0
        """The last entry at which one was known to be over."""
        self.latest = 0
        """The entry with which the last of those began that came to their end; 0 if none did."""
        self.running: dict[str, Running] = {}
        """Those that began and have not ended, by their paths."""
        self.ended: dict[str, tuple[int, int]] = {}
        """Those that came to their end, by their paths: with which entry the first of them began, and the last."""


@final
class Executed:
    """What a run has executed of what rules name, by the visits of the strategies that have the rules, and by names."""

    def __init__(self, visit_at: Callable[[str], Visit | None]) -> None:
        self._visit_at = visit_at
        """Returns the visit of the frame at a path, if that is there."""
        self.scopes: dict[RuleScope, dict[str, Occurrences]] = {}

    def begin(self, scope: RuleScope, name: str, path: str, at: str, visit: Visit, number: int) -> None:
        """Note that something begins, or continues: that began when it did.

        Args:
            scope: The visit of the strategy that has the rule.
            name: How the rule names it.
            path: Its path.
            at: The path of the frame whose node it is, or whose node calls it.
            visit: The visit of that node.
            number: The last entry.
        """
        found = self.scopes.get(scope)
        if found is None:
            for other in [each for each in self.scopes if each[0] == scope[0]]:
                del self.scopes[other]  # an earlier entry into the same subgraph
            found = self.scopes[scope] = {}
        for each in found.values():
            for place in [
                other for other, known in each.running.items() if other != path and not self._is_running(known)
            ]:
                del each.running[place]
                each.over = number - 1
        before, since, node = self.standing(scope, number), number, at + (visit.node or "")
        if (known := _continuing(found, path, node, visit)) is not None:
            since, before = known.since, known.before
        own = found.setdefault(name, Occurrences())
        is_call = name.endswith(_CALLED) and not name.startswith("/") and path != node
        own.node = f"{node}: {name.removesuffix(_CALLED)}" if is_call else path
        own.running[path] = Running(at, visit.node, since, before)

    def cancel(self, scope: RuleScope, name: str, path: str) -> None:
        """Note that something was not executed, although its turn had come."""
        own = self.scopes[scope][name]
        del own.running[path]
        if not own.running and not own.over:
            del self.scopes[scope][name]

    def end(self, scope: RuleScope, name: str, path: str, number: int) -> None:
        """Note that something came to its end, after an entry."""
        own = self.scopes[scope][name]
        since = own.running.pop(path).since
        own.over, own.latest = number, max(own.latest, since)
        own.ended[path] = own.ended.get(path, (since, since))[0], since

    def take_back(self, attempts: Iterable[tuple[str, int]]) -> None:
        """Forget the ends of everything below paths since entries: it was rolled back, or lost its race."""
        for around, since in attempts:
            for each in [each for found in self.scopes.values() for each in found.values()]:
                for path, (first, last) in [*each.ended.items()]:
                    if path.startswith(around) and last >= since:
                        del each.ended[path]
                        if first < since:
                            each.ended[path] = first, first
                each.latest = max((last for _, last in each.ended.values()), default=0)

    def standing(self, scope: RuleScope, number: int) -> dict[str, Standing]:
        """Return how things stand after an entry, for something that begins."""
        return {
            # One that is still noted as running was left since the last of what began, or is running.
            name: Standing(each.node, number if each.running else each.over, each.latest)
            for name, each in self.scopes.get(scope, {}).items()
        }

    def stood(self, scope: RuleScope, path: str, node: str, visit: Visit) -> dict[str, Standing] | None:
        """Return how things stood when something began at a path, in a visit of a node; None if it begins.

        If it was interrupted it is begun again, and what it had executed itself by then was not before it.
        """
        known = _continuing(self.scopes.get(scope, {}), path, node, visit)
        return None if known is None else known.before

    def is_inside(self, scope: RuleScope, name: str, path: str, node: str, visit: Visit) -> bool:
        """Return whether an element at a path is part of an execution under a name: of a node, or of its call of a tool."""
        known = self.scopes.get(scope, {}).get(name)
        return known is not None and any(
            (each == node or path.startswith(f"{each}/")) and continues(running.since, each == node, visit)
            for each, running in known.running.items()
        )

    def _is_running(self, known: Running) -> bool:
        visit = self._visit_at(known.at)
        return visit is not None and visit.node == known.node and visit.entered <= known.since


def name_of_tool(tool: str) -> str:
    """Return the name under which calls of a tool are noted. A path begins with a slash, and a declaration ends with a digest."""
    return f"{tool}{_CALLED}"


def name_of_agent(agent: str) -> str:
    """Return the name by which a log knows the runs of a sub-agent."""
    return f"{agent}/"


def known_as(node: RuleNode) -> frozenset[str]:
    """Return the names by which a log knows what a rule names, wherever it is executed. Of a path, that is its place alone."""
    if isinstance(node, str):
        return frozenset()
    declaration, found = declaration_of(node), set[str]()
    found.add(declaration.name)
    if is_tool(node):
        found.add(name_of_tool(node.name))
    if declaration.agent:
        found.add(name_of_agent(declaration.agent))
    return frozenset(found)


def scope_of(frame: Frame) -> RuleScope:
    """Return the visit of the strategy of a frame. A subgraph that is tried again is still being executed."""
    parent = frame.parent
    return frame.path, frame.born if parent is None or frame.activation is not None else parent.visit.entered


def violation(found: Mapping[str, Standing], first: str, between: str) -> str | None:
    """Return the path of the node that makes something forbidden: `first`, with `between` not executed since, each of which may be empty.

    Without `first` that is the beginning of the strategy, which is the empty path. None: the rule allows it.
    """
    latest = found[between].latest if between in found else 0
    if not first:
        return None if latest else ""
    return found[first].node if first in found and latest <= found[first].over else None


def continues(number: int, is_node: bool, visit: Visit) -> bool:
    """Return whether what began with an entry is still being executed: the node of a visit, or a call in its attempt."""
    return number >= (visit.entered if is_node else visit.since)


def _continuing(found: Mapping[str, Occurrences], path: str, node: str, visit: Visit) -> Running | None:
    known = next((each.running[path] for each in found.values() if path in each.running), None)
    return known if known is not None and continues(known.since, path == node, visit) else None
