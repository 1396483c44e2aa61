"""What a run executed of what rules name, replayed by whoever reads its log: to continue it, or to check rules after it.

The log has for each node where it is declared, and for each node and each call of a tool when it began and ended. So the rules may be newer
than the run. What follows is the same as while the run is executed: `_executed.py` says what.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from graphagent.log._entries import EffectRecorded, EffectStarted
from graphagent.log._executed import Executed, RuleScope, continues, name_of_agent, name_of_tool, scope_of

if TYPE_CHECKING:
    from graphagent.graph import Outline
    from graphagent.log._log import Applied
    from graphagent.log._state import State
    from graphagent.log._visits import Activation, Frame, Visit

KnownAs: TypeAlias = Mapping[tuple[str, str], frozenset[str]]
"""What rules name: the path of the strategy that has the rules and the name under which it is noted, with all names by which a log may
know it."""


class Begun(NamedTuple):
    """Something that begins: a node, a call of a tool, or the run of an agent."""

    frame: Frame
    """The frame whose node it is, or whose node calls it."""
    visit: Visit
    """The visit of that node."""
    path: str
    """Its path."""
    number: int
    """The entry that led to it, or that it made first."""
    last: int
    """The last entry before it did anything."""
    known_as: frozenset[str] = frozenset()
    """The names by which the log knows a tool or an agent; none for a node."""
    called: str = ""
    """How the tool or the agent is called; empty for a node."""
    within: tuple[tuple[RuleScope, str], ...] = ()
    """What the node, or the call of a tool that runs the agent, is noted as: the agent is a part of that."""


def _declared(begun: Begun, place: str) -> str:
    return begun.frame.agent.declared.get(place, "")


class Replay:
    """Follows a run while its log is read, and notes what it executes of what rules name. Items of an `each` begin with their first entry.

    Args:
        ruled: Returns what rules name in the run of an agent; None if that is not known.
        declared: Returns the name of the declaration of a node that begins, at a place of the strategy of its agent.
        begins: Called when something begins that is named in a visit of a strategy at a path, with these names.
        skipped: Called with the path and the visit of a node that began, and that middleware did not execute.
    """

    def __init__(
        self,
        ruled: Callable[[Activation], KnownAs | None],
        *,
        declared: Callable[[Begun, str], str] = _declared,
        begins: Callable[[Executed, Begun, RuleScope, str, list[str]], None] | None = None,
        skipped: Callable[[str, Visit], None] | None = None,
    ) -> None:
        self.executed: Executed | None = None
        """None before the first entry."""
        self._ruled, self._declared, self._begins, self._skipped = ruled, declared, begins, skipped
        self._ruled_in: dict[str, KnownAs] = {}
        """What rules name, by the paths of the agents."""
        self._places: dict[tuple[str, str], str] = {}
        self._names: dict[str, list[tuple[RuleScope, str]]] = {}
        """The names of what has begun, by its path."""
        self._begun: dict[str, int] = {}
        """The entries with which that began."""
        self._items = set[str]()
        """The frames of items that have no entry yet."""

    def watch(self, applied: Applied) -> None:
        """Note what follows from an entry."""
        entry, number, frame, visit = applied.entry, applied.number, applied.frame, applied.visit
        if self.executed is None:
            self.executed = Executed(applied.state.visit_at)
        item = frame if self._items else None
        while item is not None:
            if item.path in self._items:
                self._begin_node(item, visit if item is frame and visit is not None else item.visit, number, number - 1)
            item = item.parent
        if frame is not None and visit is not None and visit.node:
            path = frame.path + visit.node
            if visit is not frame.visit:
                self._leave(path, visit, number - 1)
            elif isinstance(entry, EffectStarted) and entry.tool:
                known_as = frozenset((name_of_tool(entry.tool), *entry.ruled))
                self._begin(Begun(frame, visit, f"{path}:{entry.key}", number, number - 1, known_as, entry.tool))
            elif isinstance(entry, EffectRecorded) and entry.kind == "tool" and entry.is_ended:
                self._end(f"{path}:{entry.key}", number - 1)
        if frame is not None and frame.activation is not None and frame.activation.status == "done":
            self._end(frame.path.rstrip("/"), number - 1)
        if self.executed.scopes and frame is not None and visit is not None:
            self.executed.take_back(entry.takes_back(frame, visit))
        for each in applied.begun:
            if each.activation is not None and each.parent is not None:
                self._begin_agent(each, each.activation, each.parent, number)
            if each.owns and each.activation is None and each.parent is not None and _is_each(each.parent):
                self._items.add(each.path)
            else:
                self._begin_node(each, each.visit, number, number)

    def begin_items(self, state: State) -> None:
        """Note that the items that have no entry have begun, as they may have."""
        for each in [state.frames[path] for path in self._items if path in state.frames]:
            self._begin_node(each, each.visit, state.number, state.number)

    def _begin_agent(self, inside: Frame, agent: Activation, frame: Frame, number: int) -> None:
        known_as = frozenset({name_of_agent(agent.name), agent.declared.get("", "")} - {""})
        within = self._within(frame.node_path, inside.key.removeprefix("agent "))
        path = inside.path.rstrip("/")
        self._begin(Begun(frame, frame.visit, path, number, number - 1, known_as, agent.name, within))

    def _begin_node(self, frame: Frame, visit: Visit, number: int, last: int) -> None:
        self._items.discard(frame.path)
        if visit.node:
            self._begin(Begun(frame, visit, frame.path + visit.node, number, last))

    def _within(self, node: str, key: str) -> tuple[tuple[RuleScope, str], ...]:
        """Return what a node is noted as, and the calls in which an agent begins under a key."""
        at = f"{node}:{key}"
        around = (path for path in self._names if path == node or at.startswith(f"{path}/"))
        return tuple(each for path in around for each in self._names[path])

    def _begin(self, begun: Begun) -> None:
        frame, visit, path = begun.frame, begun.visit, begun.path
        if continues(self._begun.get(path, 0), path == frame.path + (visit.node or ""), visit):
            return  # a call that waited with the run
        executed = self.executed
        assert executed is not None
        self._begun[path], self._names[path] = begun.last, []
        for around, scope, names in self._named(begun):
            if self._begins is not None:
                self._begins(executed, begun, scope, around, names)
            for name in names:
                self._names[path].append((scope, name))
                executed.begin(scope, name, path, frame.path, visit, begun.last)

    def _named(self, begun: Begun) -> list[tuple[str, RuleScope, list[str]]]:
        """Return the names that rules have for something that begins, with the visits of the strategies and their paths."""
        agent, place = begun.frame.agent, "" if begun.called else self._place(begun.frame, begun.path)
        names = begun.known_as or {self._declared(begun, place)}
        found: list[tuple[str, RuleScope, list[str]]] = []
        each: Frame | None = begun.frame
        while each is not None:
            ruled, scope = self._known_as(each.agent), scope_of(each)
            around = self._place(each, each.path.rstrip("/")) if ruled else ""
            wanted = [
                name
                for (strategy, name), known_as in ruled.items()
                # A sub-agent is at no place of the strategy of its caller.
                if strategy == around
                and ((place and each.agent is agent and place == f"{around}{name}".lstrip("/")) or known_as & names)
                and (scope, name) not in begun.within
            ]
            found += [(around, scope, wanted)] if wanted else []
            each = each.parent
        return found

    def _known_as(self, agent: Activation) -> KnownAs:
        """Return what rules name in the run of an agent. Of one that a node runs by itself, its log says that."""
        if agent.path not in self._ruled_in:
            known = self._ruled(agent)
            self._ruled_in[agent.path] = {each: frozenset(each[1:]) for each in agent.ruled} if known is None else known
        return self._ruled_in[agent.path]

    def _place(self, frame: Frame, path: str) -> str:
        """Return the path in the strategy of its agent of a place in the run."""
        agent = frame.agent
        key = agent.path, path[len(agent.frame.path) :]
        if key not in self._places:
            self._places[key] = place_of(agent.strategy, key[1])
        return self._places[key]

    def _leave(self, path: str, visit: Visit, last: int) -> None:
        """Note that a node was left. It may have been skipped, or have failed though middleware made something of that."""
        if visit.outcome == "ended":
            self._end(path, last)
        elif visit.outcome == "skipped":
            assert self.executed is not None
            for scope, name in self._names.pop(path, ()):
                self.executed.cancel(scope, name, path)
            if self._skipped is not None:
                self._skipped(path, visit)

    def _end(self, path: str, last: int) -> None:
        assert self.executed is not None
        self._begun.pop(path, None)
        for scope, name in self._names.pop(path, ()):
            self.executed.end(scope, name, path, last)


def place_of(strategy: Outline | None, path: str) -> str:
    """Return the path in a strategy of a place in a run; `?` if nothing is there."""
    try:
        return strategy.find(path)[0] if strategy is not None else "?"
    except LookupError:
        return "?"


def _is_each(frame: Frame) -> bool:
    strategy, path = frame.agent.strategy, frame.node_path[len(frame.agent.frame.path) :]
    return strategy is not None and strategy.find(path)[1].kind == "each"
