"""What a run has executed of the declarations that rules name: a part of its state.

There is something only where a strategy with rules is executed, and only of what these name. It is kept for each execution of such a
strategy by itself: for that of the run, and for each entry into a subgraph that has rules. Whoever reads a log replays the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from graphagent.graph._rules import declaration_of, is_tool
from graphagent.log._state import Occurrences, Standing

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from graphagent.graph._rules import RuleNode
    from graphagent.log._state import RuleScope
    from graphagent.log._visits import Frame

_CALLED = "()"


class Tracked(Protocol):
    """A run of which is noted what rules name: its state, or a reader that follows it."""

    number: int
    """The number of the last entry."""
    frames: dict[str, Frame]
    """The frames by their paths."""
    executed: dict[RuleScope, dict[str, Occurrences]]
    """What was executed, by its names."""


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


def began(state: Tracked, scope: RuleScope, name: str, path: str, frame: Frame) -> None:
    """Note that something began, or continues: that began when it did."""
    found = state.executed.get(scope)
    if found is None:
        for other in [each for each in state.executed if each[0] == scope[0]]:
            del state.executed[other]  # an earlier entry into the same subgraph
        found = state.executed[scope] = {}
    for each in found.values():
        for place in [
            place for place, known in each.running.items() if place != path and not _is_running(state, known)
        ]:
            del each.running[place]
            each.over = state.number - 1
    before, since = standing(state, scope), state.number
    if (known := _continuing(found, path, frame)) is not None:
        since, before = known[2:]
    own = found.setdefault(name, Occurrences())
    is_call = name.endswith(_CALLED) and not name.startswith("/") and path != frame.node_path
    own.node = f"{frame.node_path}: {name.removesuffix(_CALLED)}" if is_call else path
    own.running[path] = frame.path, frame.visit.node or "", since, before


def never_began(state: Tracked, scope: RuleScope, name: str, path: str) -> None:
    """Note that it was not executed, although its turn had come."""
    own = state.executed[scope][name]
    del own.running[path]
    if not own.running and not own.over:
        del state.executed[scope][name]


def ended(state: Tracked, scope: RuleScope, name: str, path: str) -> None:
    """Note that it came to its end."""
    own = state.executed[scope][name]
    number = own.running.pop(path)[2]
    own.over = state.number
    first, _ = own.ended.get(path, (number, number))
    own.latest = max(own.latest, number)
    own.ended[path] = first, number


def take_back(state: Tracked, attempts: Iterable[tuple[str, int]]) -> None:
    """Note that what was executed below paths, since entries, was taken back, or its branch lost: that it ended does not count."""
    for around, since in attempts:
        for each in [each for found in state.executed.values() for each in found.values()]:
            for path, (first, last) in [*each.ended.items()]:
                if path.startswith(around) and last >= since:
                    del each.ended[path]
                    if first < since:
                        each.ended[path] = first, first
                    vars(each).pop("latest", None)


def standing(state: Tracked, scope: RuleScope, path: str = "", frame: Frame | None = None) -> dict[str, Standing]:
    """Return how things stand for what begins; or how they stood when it began, if it only continues at a path.

    One that was interrupted is begun again, and what it had executed itself by then was not before it.
    """
    found: Mapping[str, Occurrences] = state.executed.get(scope, {})
    known = None if frame is None else _continuing(found, path, frame)
    if known is not None:
        return known[3]
    return {
        # One that is still noted as running was left since the last of what began, or is running.
        name: (each.node, state.number if each.running else each.over, each.latest)
        for name, each in found.items()
    }  # fmt: skip


def violation(found: Mapping[str, Standing], first: frozenset[str], between: frozenset[str]) -> str | None:
    """Return the path of the node that makes something forbidden: one of `first`, with none of `between` executed since.

    Without `first` that is the beginning of the strategy, which is the empty path. None: the rule allows it.
    """
    latest = max((found[name][2] for name in between if name in found), default=0)
    if not first:
        return None if latest else ""
    return next((found[name][0] for name in sorted(first & found.keys()) if latest <= found[name][1]), None)


def continues(number: int, path: str, frame: Frame) -> bool:
    """Return whether what began at a path with an entry is still being executed: a node, or a tool call in an attempt of one."""
    return number >= (frame.visit.entered if path == frame.node_path else frame.visit.since)


def _continuing(
    found: Mapping[str, Occurrences], path: str, frame: Frame
) -> tuple[str, str, int, dict[str, Standing]] | None:
    known = next((each.running[path] for each in found.values() if path in each.running), None)
    return known if known is not None and continues(known[2], path, frame) else None


def _is_running(state: Tracked, known: tuple[str, str, int, dict[str, Standing]]) -> bool:
    at, node, number, _ = known
    frame = state.frames.get(at)
    return frame is not None and frame.visit.node == node and frame.visit.entered <= number
