"""The checks of an agent when it is made.

Whether a function of a user calls tools or runs agents by itself can be seen; which ones, only a run shows.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import TYPE_CHECKING, Any, cast

from graphagent._options import check_tools
from graphagent.errors import SerializationError, StrategyError
from graphagent.graph import CachePolicy, Node, Problem, Retry, Strategy
from graphagent.graph._check import too_deep
from graphagent.graph._declarations import LEVELS_OF_AGENT, MOST_LEVELS
from graphagent.graph._rules import is_about, is_tool, name_of
from graphagent.llm import Tool, ToolCalls
from graphagent.memory.steps._types import FinalAnswerStep
from graphagent.protocols import ToolServer
from graphagent.run._context import missing
from graphagent.run._policies import no_store
from graphagent.run._sites import AgentTool, as_tool, sites
from graphagent.run._turns import no_model

if TYPE_CHECKING:
    from graphagent.graph._rules import RuleNode
    from graphagent.run._callbacks import Callback
    from graphagent.run._sites import Site


def check_tool_edges(all_sites: Iterable[Site]) -> None:
    """Check that an edge takes tool calls wherever tools are offered.

    Raises:
        TypeError: the tools of a subgraph are not tools.
        ValueError: a model is to choose the tools of the agent's own strategy.
    """
    for site in all_sites:
        strategy = site.element
        if not isinstance(strategy, Strategy):
            continue
        if site.selection is not None and site.outer is None:
            raise ValueError(
                f"a model selects the tools of {strategy.name!r} when that is entered from another strategy, and here it is the "
                f"agent's own; write Agent(Strategy('outer', START >> {strategy.name}.using(tools=select_tools()) >> END))"
            )
        if site.has_own_tools:
            checked_tools(site.tools)
        if site.tools and strategy.without_tools:
            raise StrategyError(strategy.name, strategy.without_tools)


def check_plans(own: Sequence[Site]) -> None:
    """Check that a node of an agent makes plans."""
    if not any(getattr(getattr(site.element, "function", None), "plans", False) for site in own):
        strategy = cast("Strategy[Any, Any]", own[0].element)
        said = "no node of the strategy would make a plan: llm_request and task do; ask the model with one of them, or leave it out"
        raise StrategyError(strategy.name, [Problem("planning_interval", said)])


def check_levels(own: Sequence[Site]) -> int:
    """Return how many levels of strategies, forks and agents are inside one another in an agent, among its tools too."""
    strategy = cast("Strategy[Any, Any]", own[0].element)
    called = ((name, each.agent.levels) for site in own for name, each in site.agents if isinstance(each, AgentTool))
    name, inside = max(called, key=lambda each: each[1], default=("", -LEVELS_OF_AGENT))
    levels = strategy.declaration.levels + LEVELS_OF_AGENT + inside
    if levels > MOST_LEVELS:
        raise StrategyError(strategy.name, [Problem(name, too_deep(inside + LEVELS_OF_AGENT))])
    return levels


def takes_calls(strategy: Strategy[Any, Any]) -> bool:
    """Return whether a strategy executes tool calls, and has an edge for them wherever tools would be offered."""
    if not any(element.input_type is ToolCalls for _, element in strategy.walk()):
        return False
    with_some = sites(strategy, (None,))
    return not any(
        site.tools and isinstance(site.element, Strategy) and site.element.without_tools for site in with_some
    )


def check_storable(sites: Iterable[Site]) -> None:
    """Check that the task and the outputs of nodes can be stored, by their declared types.

    Raises:
        SerializationError: one cannot.
    """
    from graphagent.codec._values import check_type

    for site in sites:
        element = site.element
        if not isinstance(element, Node):
            continue
        if site.outer is None:
            path, kind = site.below(f"START of {element.name}"), element.input_type
        else:
            path, kind = site.path, element.output_type
        try:
            check_type(kind)
        except SerializationError as error:
            raise SerializationError(f"node {path!r}: {error}") from None


def check_features(sites: Iterable[Site]) -> None:
    """Check that nodes find the features that they need: their agent's own, or those of the agents that call it."""
    for site in sites:
        for kind in site.element.needs:
            if kind not in site.features:
                raise missing(kind, site.path)


def check_models(sites: Iterable[Site]) -> None:
    """Check that there is a model where one is used."""
    for site in sites:
        if site.element.asks_model and site.model is None:
            raise no_model(site.path)


def check_offers(sites: Iterable[Site]) -> None:
    """Check that nodes are offered the tools that they force, where all are known: those of servers are not.

    Raises:
        ValueError: one is not offered.
    """
    for site in sites:
        check = getattr(getattr(site.element, "function", None), "check_tools", None)
        tools = tuple(map(as_tool, site.tools))
        if check is not None and all(isinstance(each, Tool) for each in tools):
            # As when the node is executed, tools of features come beside others alone.
            added = site.features.having("tools") if tools else ()
            check(site.path, (*tools, *(tool for feature in added for tool in feature.tools)))


def check_nothing_cached(sites: Iterable[Site]) -> None:
    """Check that neither nodes nor tools are cached, for an agent without a store."""
    for site in sites:
        if any(isinstance(policy, CachePolicy) for policy in site.element.policies):
            raise no_store(site.node)
        for each in site.own_tools:
            if isinstance(each, Tool) and each.cached is not None:
                raise no_store(f"tool {site.below(each.name)!r}")


def checked_tools(tools: Sequence[Any]) -> tuple[Tool | ToolServer, ...]:
    """Return tools, agents as tools, and servers of tools.

    Raises:
        TypeError: something is none of these.
        ValueError: two tools have one name.
    """
    check_tools(tools)
    found: dict[object, Tool | ToolServer] = {}
    for each in tools:
        if isinstance(each, Strategy):
            raise TypeError(
                f"strategy {each.name!r} is not a tool yet: a model knows a tool by what it does; write strategy.as_tool('…')"
            )
        given: object = as_tool(each)
        if isinstance(given, ToolServer) and not isinstance(given, type):
            found[id(given)] = given
            continue
        if not isinstance(given, Tool):
            raise TypeError(f"{getattr(given, '__name__', given)!r} is not a tool; decorate the function with @tool")
        if given.name in found:
            raise ValueError(f"two tools are named {given.name!r}; rename one with @tool(name=…)")
        found[given.name] = given
    return tuple(found.values())


def check_path_rules(own: Sequence[Site], checks: Sequence[object], callbacks: Sequence[Callback]) -> None:
    """Check that no run breaks a rule in one of the ways that only the agent knows.

    Where a check or a callback may refuse the answer, the model is asked again, in the node that asked it last: a way from END.
    And where a subgraph has tools of its own, its nodes that execute tool calls may call each of them.
    """
    refusable = bool(checks) or any(issubclass(FinalAnswerStep, each.kinds) for each in callbacks)
    for site in own:
        strategy = site.element
        if not isinstance(strategy, Strategy):
            continue
        refused = refusable and site.outer is None and bool(strategy.path_rules)
        calls = partial(_calls_in, site, own)
        if refused or any(calls(node) for rule in strategy.path_rules for node in rule.nodes):
            from graphagent.graph.rules._proof import check_rules

            tried_again = any(isinstance(each, Retry) and each.attempts > 1 for each in strategy.policies)
            problems = check_rules(
                strategy.edges, strategy.path_rules, tried_again=tried_again, refused=refused, calls=calls
            )
            if problems:
                raise StrategyError(strategy.name, problems)


def check_ruled_tools(every: Iterable[Site]) -> None:
    """Check that the tools exist which rules name, unless a function may call them by itself.

    Args:
        every: The sites of an agent and of its sub-agents, with the features that are installed.
    """
    every = list(every)
    ruled = [site.element for site in every if isinstance(site.element, Strategy) and site.element.path_rules]
    named = [(strategy, rule, node) for strategy in ruled for rule in strategy.path_rules for node in rule.nodes]
    wanted = [each for each in named if is_tool(each[2])]
    if not wanted:
        return
    given = [*(tool for site in every for tool in site.tools), *_of_features(every)]
    tools = [tool for tool in map(as_tool, given) if isinstance(tool, Tool)]
    there: list[Any] = [*tools, *(site.element for site in every)]
    unknown = [each for each in wanted if not any(is_about(each[2], other) for other in there)]
    functions = [getattr(each, "function", None) for each in there]
    if not unknown or any(map(calls_by_itself, functions)):
        return
    known = ", ".join(sorted({repr(tool.name) for tool in tools})) or "none"
    strategy = unknown[0][0]
    raise StrategyError(
        strategy.name,
        [
            Problem(
                name_of(node),
                f"the rule {rule} names this tool, and the agent does not have it (there are: {known}); pass it in tools=[…] of the "
                f"agent or of .using(…), or name the node that executes it",
            )
            for of, rule, node in unknown
            if of is strategy
        ],
    )


def _of_features(every: Iterable[Site]) -> Iterator[Tool]:
    """Yield the tools of features."""
    features = {id(feature): feature for site in every for feature in site.features.having("tools")}
    for feature in features.values():
        yield from feature.tools


def _calls_in(around: Site, own: Sequence[Site], called: RuleNode) -> frozenset[str]:
    """Return the paths of the nodes in a strategy that execute calls of tools which a subgraph there has, and which a rule names."""
    found: list[str] = []
    for site in own:
        offers = site.outer if getattr(getattr(site.element, "function", None), "executes_calls", False) else None
        while offers is not None and not offers.has_own_tools:
            offers = offers.outer
        tools = offers.tools if offers is not None and offers.is_inside(around) else ()
        if any(is_about(called, tool) for tool in map(as_tool, tools) if isinstance(tool, Tool)):
            found.append(site.path[len(around.below("")) :])
    return frozenset(found)


_CALLS = frozenset({"call_tool", "run_agent"})
"""The methods of `Context` that execute what no declaration of the caller names."""
_DEPTH = 5
"""Through how many functions one is followed."""


def calls_by_itself(function: Any) -> bool:
    """Return whether a function, or one that it calls, has the name of a method of `Context` that calls a tool or runs an agent.

    Functions of this library are left out: what they call is declared.
    """
    return any(not _CALLS.isdisjoint(_names(code)) for code in _codes(function, _DEPTH, set()))


def _codes(function: Any, depth: int, seen: set[int]) -> Iterator[CodeType]:
    if id(function) in seen or not depth:
        return
    seen.add(id(function))
    owner: Any = None
    if isinstance(function, partial):
        for part in (function.func, *filter(callable, function.args)):
            yield from _codes(part, depth, seen)
        return
    if isinstance(function, MethodType):
        function, owner = function.__func__, function.__self__
    elif not isinstance(function, FunctionType):
        kind: Any = type(cast("object", function))
        function, owner = getattr(kind, "__call__", None), function  # noqa: B004  of an object that is called
    if not isinstance(function, FunctionType) or function.__module__.partition(".")[0] == "graphagent":
        return
    yield function.__code__
    names = _names(function.__code__)
    for part in (*_used(function, names), *_attributes(owner, names)):
        yield from _codes(part, depth - 1, seen)


def _names(code: CodeType) -> frozenset[str]:
    """Return the names that code uses, with that of the functions inside it."""
    inside = (_names(each) for each in code.co_consts if isinstance(each, CodeType))
    return frozenset(code.co_names).union(*inside)


def _used(function: FunctionType, names: frozenset[str]) -> Iterator[Any]:
    """Yield the functions and methods that a function finds around it by its names."""
    enclosed = inspect.getclosurevars(function).nonlocals.values()
    for found in (*enclosed, *(function.__globals__[name] for name in names & function.__globals__.keys())):
        if isinstance(found, FunctionType | MethodType | partial):
            yield found
        elif isinstance(found, ModuleType):
            yield from (vars(found)[name] for name in names & vars(found).keys())
        else:
            yield from _attributes(found, names)


def _attributes(owner: Any, names: frozenset[str]) -> Iterator[Any]:
    """Yield the methods of an object, or of a class, that have one of some names."""
    for name in names if owner is not None else ():
        found: Any = inspect.getattr_static(owner, name, None)
        found = getattr(found, "__func__", found)  # of a static or a class method
        if isinstance(found, FunctionType):
            yield MethodType(found, owner)
