"""The `deps` that a run is passed, and who uses it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from types import UnionType
from typing import TYPE_CHECKING, Annotated, Any, Union, get_args, get_origin

from graphagent._article import a, kind_of
from graphagent.graph import Strategy
from graphagent.graph._internal import is_a, show
from graphagent.llm import Tool

if TYPE_CHECKING:
    from graphagent.run._sites import Site


def deps_users(sites: Iterable[Site]) -> Iterator[tuple[str, Any]]:
    """Yield each node, tap, test of an outlet and tool that uses `deps`, as errors name it, with the type that it expects."""
    for who, context in _contexts(sites):
        kind = _deps_of(context)
        if kind is not None and kind is not type(None):
            yield who, kind


def _contexts(sites: Iterable[Site]) -> Iterator[tuple[str, Any]]:
    for site in sites:
        element = site.element
        yield site.node, element.context
        for edge in element.edges if isinstance(element, Strategy) else ():
            for rule in edge.outlet.rules if edge.outlet is not None else ():
                yield f"{rule.label!r} of node {site.below(edge.source.name)!r}", rule.context
        for tool in site.own_tools:
            if isinstance(tool, Tool):
                yield f"tool {site.below(tool.name)!r}", tool.context


def _deps_of(context: Any) -> Any:
    """Return the type of `deps` that an annotation such as `Context[Db]` names; None without one."""
    origin, arguments = get_origin(context), get_args(context)
    if origin in (Union, UnionType, Annotated):
        return next((kind for kind in map(_deps_of, arguments) if kind is not None), None)
    return arguments[0] if arguments and getattr(origin, "__graphagent_context__", False) is True else None


def check_deps(users: Iterable[tuple[str, Any]], deps: object, call: str) -> None:
    """Check that all users of `deps` get what they expect. `call` is what to write, such as `agent.run(task, deps=…)`.

    Raises:
        TypeError: it is missing, or of another type.
    """
    for who, expected in users:
        if is_a(deps, expected):
            continue
        kind = show(expected)
        wrong = "deps= is missing" if deps is None else f"deps= is {kind_of(deps)}"
        raise TypeError(f"{who} takes Context[{kind}], and {wrong}; write {call} with {a(kind)}")
