"""An agent as a node and as a tool of another one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import is_dataclass, replace
from typing import TYPE_CHECKING, Any, cast

from graphagent.errors import ArgumentsError, ToolError
from graphagent.graph._types import fits
from graphagent.llm import Tool, tool
from graphagent.llm._validation_messages import problems
from graphagent.run._beginning import begin
from graphagent.run._context import Context
from graphagent.run._sites import AgentNode, AgentTool

if TYPE_CHECKING:
    from graphagent._agent import Agent
    from graphagent.run._config import RunConfig


def node_of(agent: Agent[Any, Any], config: Callable[[], RunConfig]) -> AgentNode:
    async def run(ctx: Context[Any], task: Any) -> Any:
        try:
            return await ctx.run_agent(agent, task)
        except ToolError as error:
            told = error
        raise told.__cause__ or told  # a model would be told of it; edges and retries are given what was raised

    return AgentNode(run, agent.name or agent.strategy.name, agent, config)


def tool_of(agent: Agent[Any, Any], config: Callable[[], RunConfig]) -> AgentTool:
    if not agent.name or not agent.description:
        raise TypeError(
            f"the agent of strategy {agent.strategy.name!r} is not a tool yet: a model calls it by a name and knows it by a "
            f"description; write Agent(…, name=…, description=…)"
        )

    async def on_task(task: Any, ctx: Context[Any] | None = None) -> Any:
        return await _called(agent, config, ctx, task)

    async def on_nothing(ctx: Context[Any] | None = None) -> Any:
        return await on_task(None, ctx)

    takes: Any = agent.strategy.input_type
    # A model says a task in words, where the strategy takes words among others.
    on_task.__annotations__ = {"task": str if fits(str, takes) else takes, "ctx": Context | None}
    call: Callable[..., Any] = on_nothing if takes in (None, type(None)) else on_task
    made = tool(name=agent.name, description=agent.description)(call)
    return AgentTool(made.name, made.description, made.parameters, made.run, config=config, agent=agent)


async def _called(agent: Agent[Any, Any], config: Callable[[], RunConfig], ctx: Context[Any] | None, task: Any) -> Any:
    """Return the answer of an agent that is called as a tool: as a part of a run, or as a run of its own if there is none."""
    if ctx is None:
        return (await begin(config(), task, run_id=None, owner="").handle.finish()).output
    return await ctx.run_agent(agent, task)


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
        return await _called(agent, config, ctx, read(arguments))

    return replace(made, parameters=adapter.json_schema(), run=run, read=read, **limits)
