"""The checks of an agent when it is made, and the agent as a tool of another one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import is_dataclass, replace
from typing import TYPE_CHECKING, Any, cast

from graphagent._article import kind_of
from graphagent.errors import ArgumentsError, SerializationError, StrategyError
from graphagent.graph import CachePolicy, Each, Node, Parallel, Race, Retry, Strategy, ToolSelection
from graphagent.graph._internal import fits
from graphagent.llm import Tool, tool
from graphagent.llm._internal import problems
from graphagent.memory import FinalAnswerStep
from graphagent.protocols import ToolServer
from graphagent.run.engine._budgets import check_budgets
from graphagent.run.engine._child_runs import AgentTool, agent_tools, all_tools, run_as_child
from graphagent.run.engine._context import Context, as_tool

if TYPE_CHECKING:
    from decimal import Decimal

    from graphagent.agent import Agent
    from graphagent.graph._internal import Element
    from graphagent.protocols import Model
    from graphagent.run._config import RunConfig
    from graphagent.run.engine._callbacks import Callback


def check_kept(agent: Agent[Any, Any], path: str = "") -> None:
    """Check that the outputs of nodes can be stored, by their declared types: of the agent, and of the agents that it calls.

    Raises:
        SerializationError: one cannot.
    """
    from graphagent.codec._internal import check_type

    strategy = agent.strategy
    kinds = [(name, element.output_type) for name, element in strategy.walk() if isinstance(element, Node)]
    for name, kind in [(f"START of {strategy.name}", strategy.input_type), *kinds]:
        try:
            check_type(kind)
        except SerializationError as error:
            raise SerializationError(f"node {path + name!r}: {error}") from None
    for each in agent_tools(strategy, agent.tools):
        check_kept(each.agent, f"{path}{each.name}/")


def placed(
    strategy: Strategy[Any, Any],
    tools: Sequence[Any],
    model: Model | None,
    limit: Decimal | float | None,
    path: str = "",
) -> Iterator[tuple[str, Element, Model | None, Decimal | float | None]]:
    """Yield every node and tap with its path, the model that it asks, and the budget of money in which that counts.

    The strategy itself comes first; those of agents that are called as tools come last.
    """
    found = {"": _own(strategy, model, limit)}
    yield path, strategy, *found[""]
    for name, element in strategy.walk():
        around = name.rpartition("/")[0]
        while around not in found:  # the number of a branch
            around = around.rpartition("/")[0]
        found[name] = _own(element, *found[around])
        yield path + name, element, *found[name]
        selection = element.setting.tools if isinstance(element, Strategy) and element.setting is not None else None
        if isinstance(selection, ToolSelection) and selection.model is not None:
            yield path + name, element, selection.model, found[around][1]
    models = [each for each, _ in found.values() if each is not None]
    for each in agent_tools(strategy, tools):
        inner, budget = each.agent, each.agent.budgets.max_cost
        asked = next((given for given in (inner.model, *models) if given is not None), None)
        yield from placed(
            inner.strategy, inner.tools, asked, limit if budget is None else budget, f"{path}{each.name}/"
        )


def _own(
    element: Element, model: Model | None, limit: Decimal | float | None
) -> tuple[Model | None, Decimal | float | None]:
    own = element.setting if isinstance(element, Strategy) else None
    if own is None:
        return model, limit
    return model if own.model is None else own.model, limit if own.max_cost is None else own.max_cost


def check_prices(
    strategy: Strategy[Any, Any], tools: Sequence[Any], model: Model | None, limit: Decimal | float | None
) -> None:
    """Check that a budget of money has prices to count with.

    Raises:
        ValueError: a model does not say what its answers cost.
    """
    for _, _, asked, most in placed(strategy, tools, model, limit):
        if most is not None and asked is not None and not getattr(asked, "tells_cost", True):
            raise ValueError(
                f"max_cost={most} would never be used up: the model {asked.name!r} does not say what its answers cost; write "
                f"PricedModel(model, Prices(input=…, output=…)), of graphagent.llm"
            )


def without_model(strategy: Strategy[Any, Any], tools: Sequence[Any], model: Model | None) -> str:
    """Return the path of the first node that asks a model and has none; empty if there is no such node."""
    found = (
        path for path, element, asked, _ in placed(strategy, tools, model, None) if element.asks_model and asked is None
    )
    return next(found, "")


def cached_without_store(strategy: Strategy[Any, Any], tools: Sequence[Any], path: str = "") -> str:
    """Return the first node or tool that is cached, as an error names it; empty if there is none."""
    for name, element in strategy.walk():
        if any(isinstance(policy, CachePolicy) for policy in element.policies):
            return f"node {path + name!r}"
    for each in all_tools(strategy, tools):
        if each.cached is not None:
            return f"tool {path + each.name!r}"
        if isinstance(each, AgentTool):
            found = cached_without_store(each.agent.strategy, each.agent.tools, f"{path}{each.name}/")
            if found:
                return found
    return ""


def checked_tools(tools: Sequence[Any]) -> tuple[Tool | ToolServer, ...]:
    """Return tools, agents as tools, and servers of tools.

    Raises:
        TypeError: something is none of these.
        ValueError: two tools have one name.
    """
    if isinstance(tools, type | Tool | str) or not isinstance(tools, Iterable):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise TypeError(f"tools= is a list, not {kind_of(tools)}; write tools=[tool]")
    found: dict[object, Tool | ToolServer] = {}
    for each in tools:
        if isinstance(each, Strategy):
            raise TypeError(
                f"strategy {each.name!r} is no tool yet: a model knows a tool by what it does; write strategy.as_tool('…')"
            )
        given: object = as_tool(each)
        if isinstance(given, ToolServer) and not isinstance(given, type):
            found[id(given)] = given
            continue
        if not isinstance(given, Tool):
            raise TypeError(f"{getattr(given, '__name__', given)!r} is no tool; put @tool on the function")
        if given.name in found:
            raise ValueError(f"two tools are named {given.name!r}; rename one with @tool(name=…)")
        found[given.name] = given
    return tuple(found.values())


def check_ways(node: Node[Any, Any], tools: Sequence[object], *, inside: bool = False) -> None:
    """Check that an edge takes tool calls wherever tools are offered.

    Raises:
        StrategyError: there is none.
        ValueError: a model is to choose the tools of the agent's own strategy, or a budget is none.
    """
    elements: Iterable[object] = ()
    if isinstance(node, Strategy):
        if node.setting is not None:
            own = node.setting
            if isinstance(own.tools, ToolSelection) and not inside:
                raise ValueError(
                    f"a model selects the tools of {node.name!r} when that is entered from another strategy, and here it is the agent's "
                    f"own; write Agent(Strategy('outer', START >> {node.name}.using(tools=select_tools()) >> END))"
                )
            check_budgets(
                max_nodes=own.max_nodes, max_turns=own.max_turns, max_tokens=own.max_tokens, max_cost=own.max_cost
            )
            tools = tools if own.available is None else checked_tools(own.available)
        if tools and node.without_tools:
            raise StrategyError(node.name, node.without_tools)
        elements = node.elements_by_name.values()
    elif isinstance(node, Each | Parallel | Race):
        elements = node.branches
    for element in elements:
        if isinstance(element, Node):
            check_ways(element, tools, inside=True)


def check_refusals(strategy: Strategy[Any, Any], checks: Sequence[object], callbacks: Sequence[Callback]) -> None:
    """Check that no run breaks a rule of the strategy even if its answer is refused, where a check or a callback may refuse it.

    The model is then asked again, in the node that asked it last: a way from END that only the agent knows.

    Raises:
        StrategyError: a run may break one.
    """
    if not strategy.path_rules or not (checks or any(issubclass(FinalAnswerStep, each.kinds) for each in callbacks)):
        return
    from graphagent.graph.rules._internal import check_rules

    tried_again = any(isinstance(each, Retry) and each.attempts > 1 for each in strategy.policies)
    problems = check_rules(strategy.edges, strategy.path_rules, tried_again=tried_again, refused=True)
    if problems:
        raise StrategyError(strategy.name, problems)


def tool_of(agent: Agent[Any, Any], config: Callable[[], RunConfig]) -> AgentTool:
    if not agent.name or not agent.description:
        raise TypeError(
            f"the agent of strategy {agent.strategy.name!r} is no tool yet: a model calls it by a name and knows it by a "
            f"description; write Agent(…, name=…, description=…)"
        )

    async def on_task(task: Any, ctx: Context[Any] | None = None) -> Any:
        return await run_as_child(agent.name, config(), ctx, task)

    async def on_nothing(ctx: Context[Any] | None = None) -> Any:
        return await on_task(None, ctx)

    takes: Any = agent.strategy.input_type
    # A model says a task in words, where the strategy takes words among others.
    on_task.__annotations__ = {"task": str if fits(str, takes) else takes, "ctx": Context | None}
    call: Callable[..., Any] = on_nothing if takes in (None, type(None)) else on_task
    made = tool(name=agent.name, description=agent.description)(call)
    return AgentTool(made.name, made.description, made.parameters, made.run, config=config, agent=agent)


def tool_with_fields(agent: Agent[Any, Any], config: Callable[[], RunConfig], limits: Mapping[str, Any]) -> Tool:
    """Return an agent as a tool whose parameters are the fields of its task, if that has fields."""
    made = tool_of(agent, config)
    takes: Any = agent.strategy.input_type
    if not (is_dataclass(takes) or hasattr(takes, "model_fields")):
        return replace(made, **limits)
    from pydantic import TypeAdapter, ValidationError
    from pydantic_core import to_json

    adapter: TypeAdapter[Any] = TypeAdapter(cast("Any", takes))

    def read(arguments: Mapping[str, Any]) -> object:
        try:
            return adapter.validate_json(to_json(dict(arguments), fallback=str))
        except ValidationError as error:
            raise ArgumentsError(agent.name, problems(error)) from None

    async def run(arguments: Mapping[str, Any], ctx: Context[Any] | None) -> Any:
        return await run_as_child(agent.name, config(), ctx, read(arguments))

    return replace(made, parameters=adapter.json_schema(), run=run, read=read, **limits)
