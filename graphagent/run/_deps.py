"""What a run opens in this process: the dependencies of its nodes, and the tools of servers.

The tools of servers are known only when the servers are asked: once in a run, which then keeps them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from inspect import signature
from types import UnionType
from typing import TYPE_CHECKING, Annotated, Any, Union, get_args, get_origin

from graphagent._article import a, kind_of
from graphagent._functions import call, name_of
from graphagent._raised import awaited
from graphagent.errors import ToolServerError
from graphagent.events import ToolServerSkipped
from graphagent.graph import Strategy
from graphagent.graph._types import is_a, show
from graphagent.llm import Tool
from graphagent.log._entries import ToolsListed
from graphagent.protocols import ToolServer
from graphagent.run._effects import Effects
from graphagent.run._final_errors import Suspend
from graphagent.run._sites import sites
from graphagent.run._sleep import together

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


SCOPE = "servers"
"""The beginning of the keys of answers to servers that list their tools, for which the node that comes next never looks."""


def tool_servers(sites: Iterable[Site]) -> tuple[ToolServer, ...]:
    """Return the servers among the tools of sites.

    Raises:
        ValueError: two of them have one name.
    """
    found: dict[str, ToolServer] = {}
    for each in (each for site in sites for each in site.own_tools):
        if isinstance(each, ToolServer) and found.setdefault(each.name, each) is not each:
            raise ValueError(
                f"two tool servers are named {each.name!r}, and runs know them by their names; give one name="
            )
    return tuple(found.values())


def take_tools(run: AgentRun) -> Mapping[str, Sequence[Tool]]:
    """Return the tools of the servers that the run has asked, as this process has the servers, and give them to the run.

    Raises:
        ToolServerError: the settings of a server do not fit its tools.
    """
    known, listed = run.activation.listed, dict(run.listed or {})
    for server in run.config.servers:
        if server.name in known and server.name not in listed:
            listed[server.name] = server.tools_from(run.log.take(known[server.name]))
    run.listed = listed
    return listed


async def list_tools(run: AgentRun) -> None:
    """Ask the servers that the run has not asked yet for their tools, all at the same time, and record these.

    A server that is not required and fails is recorded as one without tools.

    Raises:
        ToolServerError: one cannot be reached, or a tool of it is not valid, or has the name of another tool.
        Suspend: one asks a person.
    """
    listed = dict(take_tools(run))
    asked = [server for server in run.config.servers if server.name not in listed]
    answers: dict[str, Sequence[Mapping[str, Any]]] = {}

    async def ask(number: int) -> None:
        server = asked[number]
        try:
            found = await server.list_tools(Effects(run.walk()).within(SCOPE).within(server.name).context())
            listed[server.name] = server.tools_from(found)
        except ToolServerError as error:
            if server.required:
                raise
            run.emit(ToolServerSkipped(run.run_id, server.name, str(error)))
            found = listed[server.name] = ()
        except Suspend:  # the others finish first
            return
        answers[server.name] = found

    await together(ask, len(asked))
    for server in asked:
        if server.name in answers:
            value = run.log.keep(list(answers[server.name]))
            run.log.append(ToolsListed(at=run.frame.path, server=server.name, value=value))
    if len(answers) < len(asked):
        raise Suspend
    run.listed = listed
    of_features = {tool.name for feature in run.features.having("tools") for tool in feature.tools}
    for site in sites(run.config.strategy, run.config.tools):
        _check_names(list(site.own_tools), listed, of_features)


def _check_names(
    declared: Sequence[Tool | ToolServer], listed: Mapping[str, Sequence[Tool]], of_features: Iterable[str]
) -> None:
    own = (*of_features, *(each.name for each in declared if not isinstance(each, ToolServer)))
    taken = dict.fromkeys(own, "the agent")
    for server in declared:
        if isinstance(server, ToolServer):
            for tool in listed[server.name]:
                if tool.name in taken:
                    reason = f"has a tool {tool.name!r}, and so has {taken[tool.name]}; give the server prefix=, rename= or only="
                    raise ToolServerError(server.name, reason)
                taken[tool.name] = f"the tool server {server.name!r}"
