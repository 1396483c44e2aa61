"""The `deps` that a run is passed, and who asks for it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from graphagent._article import a, kind_of
from graphagent.graph import Strategy
from graphagent.graph._internal import is_a, show
from graphagent.run.engine._child_runs import AgentTool, all_tools


@dataclass(frozen=True, slots=True)
class Asked:
    """One who asks for `deps`."""

    who: str
    """Such as `node 'find'`."""
    kind: Any
    """The type of `ctx.deps` there."""


def asking(strategy: Strategy[Any, Any], tools: Sequence[Any], path: str = "") -> Iterator[Asked]:
    """Yield who asks for `deps`: nodes, taps, tests of outlets, tools, and all these in agents that are called as tools."""
    found = [(f"node {path + name!r}", element.context) for name, element in strategy.walk()]
    inside = (element for _, element in strategy.walk() if isinstance(element, Strategy))
    for edge in (edge for each in (strategy, *inside) for edge in each.edges):
        rules = edge.outlet.rules if edge.outlet is not None else ()
        found += [(f"{rule.label!r} of node {path + edge.source.name!r}", rule.context) for rule in rules]
    for each in all_tools(strategy, tools):
        found.append((f"tool {path + each.name!r}", each.context))
        if isinstance(each, AgentTool):
            yield from asking(each.agent.strategy, each.agent.tools, f"{path}{each.name}/")
    for who, context in found:
        kind = _deps_of(context)
        if kind is not None and kind is not type(None):
            yield Asked(who, kind)


def _deps_of(context: Any) -> Any:
    """Return the type of `deps` that an annotation such as `Context[Db]` names; None without one."""
    origin, arguments = get_origin(context), get_args(context)
    if origin in (Union, UnionType, Annotated):
        return next((kind for kind in map(_deps_of, arguments) if kind is not None), None)
    return arguments[0] if arguments and getattr(origin, "__graphagent_context__", False) is True else None


def check_deps(asked: Iterable[Asked], deps: object, call: str) -> None:
    """Check that all who ask for `deps` get what they expect. `call` is the one to write, such as `agent.run(task, deps=…)`.

    Raises:
        TypeError: it is missing, or of another type.
    """
    for each in asked:
        if is_a(deps, each.kind):
            continue
        kind = show(each.kind)
        wrong = "deps= is missing" if deps is None else f"deps= is {kind_of(deps)}"
        raise TypeError(f"{each.who} takes Context[{kind}], and {wrong}; write {call} with {a(kind)}")
