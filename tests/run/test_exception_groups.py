"""Exceptions that task groups have put together: a group of one type is that exception, and a group of several is the group."""

from __future__ import annotations

from functools import partial

import anyio
import pytest

from graphagent import END, START, Agent, Context, Strategy, node, tool
from graphagent.errors import BudgetError, NodeFailedError, ToolError
from graphagent.llm import Message, ModelRequest, ToolCall, ToolResult
from graphagent.testing import ScriptedModel, next_node
from graphagent_strategies import single_run

pytestmark = pytest.mark.every_loop


async def raises(error):
    raise error


async def at_once(*errors):
    """Raise errors in a group in a group, as nested task groups do."""
    async with anyio.create_task_group() as outer:
        outer.start_soon(_in_group, errors)


async def _in_group(errors):
    raise ExceptionGroup("several", errors)


def strategy(errors, taken, *, retried=()):
    tries = []

    @node
    async def step(ctx: Context, said: str) -> str:
        tries.append(1)
        await at_once(*errors)
        return ""

    @node
    async def told(ctx: Context, error: Exception) -> str:
        return f"{type(error).__name__} after {len(tries)}"

    step = step.retry(attempts=2, wait=0, errors=retried) if retried else step
    return Strategy("s", START >> step >> END, step.on_error(taken) >> told >> END)


@pytest.mark.parametrize("number", [1, 3])
async def test_a_group_of_one_type_is_its_first_exception(number):
    """A retry and an error edge take it by its type, also in nested groups; that there were others is noted in it."""
    errors = [ConnectionError(str(each)) for each in range(number)]
    retried = strategy(errors, ConnectionError, retried=ConnectionError)
    assert next_node(retried, "step", ExceptionGroup("several", errors)) == "told"
    agent = Agent(retried)
    assert (await agent.run("x")).output == "ConnectionError after 2"
    with pytest.raises(NodeFailedError, match="failed with ConnectionError") as raised:
        await Agent(strategy(errors, ValueError)).run("x")
    assert raised.value.__cause__ is errors[0]
    noted = getattr(errors[0], "__notes__", [])
    assert bool(noted) == (number > 1)
    assert all(each == f"the first of a group of {number} exceptions of this type" for each in noted)


async def test_a_group_of_several_types_stays_one():
    """An edge takes it as a group, and not as one of its exceptions."""
    errors = [ConnectionError("a"), ValueError("b")]
    assert (await Agent(strategy(errors, ExceptionGroup)).run("x")).output == "ExceptionGroup after 1"
    with pytest.raises(NodeFailedError, match="ExceptionGroup"):
        await Agent(strategy(errors, ConnectionError)).run("x")


async def test_a_tool_error_of_a_task_group_is_shown_to_the_model():
    """The model sees its text alone, and the tool is not tried again."""
    tries = []

    @tool(retry=3)
    async def pay() -> str:
        """Pay."""
        tries.append(1)
        await at_once(ToolError("there is no money"))
        return ""

    agent = Agent(single_run(), model=ScriptedModel([ToolCall("pay"), "done"]), tools=[pay])
    assert (await agent.run("x")).output == "done"
    [result] = [
        part for each in agent.model.requests[-1].messages for part in each.parts if isinstance(part, ToolResult)
    ]
    assert (result.content, result.is_error, len(tries)) == ("Error: there is no money", True, 1)


async def test_the_end_of_a_budget_and_a_question_are_what_they_are_outside_of_a_group():
    """No handler of errors takes the end of a budget out of a node's task group, and a question in one stops the run."""

    async def in_group(work, *beside):
        async with anyio.create_task_group() as group:
            group.start_soon(work)
            for other in beside:
                group.start_soon(other)

    @node
    async def asks(ctx: Context, said: str) -> str:
        await in_group(partial(ctx.turn, ModelRequest((Message.user(said),))))
        return said

    @node
    async def waits(ctx: Context, said: str) -> str:
        await in_group(partial(ctx.ask, "Sure?", bool))
        return said

    @node
    async def told(ctx: Context, error: Exception) -> str:
        return "taken"

    again = asks.named("again")
    twice = Strategy("s", START >> asks >> again >> END, again.on_error(Exception) >> told >> END)
    with pytest.raises(BudgetError):
        await Agent(twice, model=ScriptedModel(["a", "b"]), max_turns=1).run("x")

    @node
    async def mixed(ctx: Context, said: str) -> str:
        await in_group(partial(ctx.turn, ModelRequest((Message.user(said),))), partial(raises, ValueError("also")))
        return said

    first = Strategy("s", START >> asks >> mixed >> END, mixed.on_error(Exception) >> told >> END)
    with pytest.raises(NodeFailedError, match="ExceptionGroup"):
        await Agent(first, model=ScriptedModel(["a", "b"]), max_turns=1).run("x")
    waiting = Agent(Strategy("s", START >> waits >> END, waits.on_error(Exception) >> told >> END))
    assert (await waiting.run("x")).status == "waiting"
