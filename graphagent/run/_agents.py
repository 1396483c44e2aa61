"""What is looked at when an agent is made, and what it is to other agents."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from graphagent.errors import SerializationError, StrategyError
from graphagent.graph import Each, Node, Parallel, Race, Strategy, fits
from graphagent.llm import Tool, tool
from graphagent.run._budgets import check_budgets
from graphagent.run._context import Context, as_tool
from graphagent.run._sub_agents import AgentTool, agent_tools

if TYPE_CHECKING:
    from graphagent.agent import Agent
    from graphagent.run._setup import Setup


def check_kept(agent: Agent[Any, Any], path: str = "") -> None:
    """See that what nodes give can be kept, as far as their declared types tell: those of the agent, and of those it calls.

    Raises:
        SerializationError: it cannot.
    """
    from graphagent.memory.saving import check_type

    strategy = agent.strategy
    kinds = [(name, element.gives) for name, element in strategy.walk() if isinstance(element, Node)]
    for name, kind in [(f"START of {strategy.name}", strategy.takes), *kinds]:
        try:
            check_type(kind)
        except SerializationError as error:
            raise SerializationError(f"node {path + name!r}: {error}") from None
    for each in agent_tools(strategy, agent.tools):
        check_kept(each.agent, f"{path}{each.name}/")


def checked_tools(tools: Sequence[Any]) -> tuple[Tool, ...]:
    found: dict[str, Tool] = {}
    for each in tools:
        given: object = as_tool(each) if callable(getattr(each, "as_tool", None)) else each
        if not isinstance(given, Tool):
            raise TypeError(f"{getattr(given, '__name__', given)!r} is no tool; put @tool on the function")
        if given.name in found:
            raise ValueError(f"two tools are named {given.name!r}; rename one with @tool(name=…)")
        found[given.name] = given
    return tuple(found.values())


def check_ways(node: Node[Any, Any], tools: Sequence[object]) -> None:
    """See that there is a way for tool calls wherever tools are offered.

    Raises:
        StrategyError: there is none.
    """
    inside: Iterable[object] = ()
    if isinstance(node, Strategy):
        if node.setting is not None:
            own = node.setting
            check_budgets(
                max_nodes=own.max_nodes, max_turns=own.max_turns, max_tokens=own.max_tokens, max_cost=own.max_cost
            )
            tools = tools if own.tools is None else checked_tools(own.tools)
        if tools and node.without_tools:
            raise StrategyError(node.name, node.without_tools)
        inside = node.elements_by_name.values()
    elif isinstance(node, Each | Parallel | Race):
        inside = node.branches
    for element in inside:
        if isinstance(element, Node):
            check_ways(element, tools)


def tool_of(agent: Agent[Any, Any], setup: Callable[[], Setup]) -> Tool:
    if not agent.name or not agent.description:
        raise TypeError(
            f"the agent of strategy {agent.strategy.name!r} is no tool yet: a model calls it by a name and knows it by a "
            f"description; write Agent(…, name=…, description=…)"
        )

    async def on_task(task: Any, ctx: Context[Any] | None = None) -> Any:
        from graphagent.run.durable import run_inside

        return await run_inside(agent.name, setup(), ctx, task)

    async def on_nothing(ctx: Context[Any] | None = None) -> Any:
        return await on_task(None, ctx)

    takes: Any = agent.strategy.takes
    # A model says a task in words, where the strategy takes words among others.
    on_task.__annotations__ = {"task": str if fits(str, takes) else takes, "ctx": Context | None}
    call: Callable[..., Any] = on_nothing if takes in (None, type(None)) else on_task
    made = tool(name=agent.name, description=agent.description)(call)
    return AgentTool(made.name, made.description, made.parameters, made.run, setup=setup, agent=agent)
