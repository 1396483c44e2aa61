"""The `deps` that a run is passed, and who uses it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import replace
from inspect import signature
from types import UnionType
from typing import TYPE_CHECKING, Annotated, Any, Union, get_args, get_origin

from graphagent._article import a, kind_of
from graphagent._functions import call, name_of
from graphagent._raised import awaited
from graphagent.graph import Strategy
from graphagent.graph._types import is_a, show
from graphagent.llm import Tool

if TYPE_CHECKING:
    from graphagent.run._agent_run import AgentRun
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


def deps_maker(function: Callable[..., Any]) -> Callable[[Any], Awaitable[Any]]:
    """Return what makes the `deps` of a run of its handle, by a function of the run or of nothing, async or not.

    Raises:
        TypeError: it is not such a function.
    """
    what = "deps_factory= is a function of nothing, or of the run, such as `async def deps(run: Run) -> Db`"
    if not callable(function):
        raise TypeError(f"{what}, not {kind_of(function)}")
    try:
        parameters = tuple(signature(function).parameters.values())
    except (TypeError, ValueError):  # of a builtin, which does not say
        parameters = ()
    needed = [
        each
        for each in parameters
        if each.default is each.empty and each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)
    ]
    if len(needed) > 1 or any(each.kind is each.KEYWORD_ONLY for each in needed):
        raise TypeError(f"{what}; {name_of(function)!r} needs {', '.join(each.name for each in needed)}")

    async def make(run: Any) -> Any:
        return await call(function, *([run] if needed else []))

    return make


async def make_deps(run: AgentRun) -> None:
    """Make the `deps` of a run that was passed none, if its agent has a function that does, before it is executed here.

    Raises:
        TypeError: they are not of the type that a node or a tool takes.
    """
    config = run.config
    if config.deps is None and config.make_deps is not None:
        made = await awaited(config.make_deps(run.handle), "deps_factory")
        config.check_deps(made, "Agent(…, deps_factory=…)")
        _give(run, made)


def _give(run: AgentRun, deps: object) -> None:
    run.config = replace(run.config, deps=deps)
    for inside in run.session.children.values():  # those that were known when it was read
        _give(inside, deps)


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
