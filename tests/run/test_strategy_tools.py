"""Strategies as tools: typed parameters, and the model, the tools and the features of the agent that calls them."""

from __future__ import annotations

from dataclasses import dataclass

import anyio
import pytest
from pydantic import BaseModel, Field

from graphagent import END, START, Agent, Context, Strategy, node, tool
from graphagent.errors import AnswerError, BudgetError, FeatureError
from graphagent.graph import StrategyTool
from graphagent.llm import Approve, ToolCall, ToolCalls, ToolResult
from graphagent.memory import AgentMemory
from graphagent.nodes import ask_human, load_all_facts
from graphagent.store import SqliteStore
from graphagent.testing import ScriptedModel
from graphagent_strategies import single_run


@dataclass
class Trip:
    """A trip."""

    city: str
    days: int = 1


class Order(BaseModel):
    item: str
    count: int = Field(ge=1, description="How many.")


@node
async def plan(ctx: Context, trip: Trip) -> str:
    return f"{trip.days} days in {trip.city}"


@node
async def place(ctx: Context, order: Order) -> str:
    return f"{order.count} × {order.item}"


@node
async def shout(ctx: Context, text: str) -> str:
    return text.upper()


def strategy(element, name="helper"):
    return Strategy(name, START >> element >> END)


def agent(*tools, replies=None, calls=(), limit=1, **options):
    model = ScriptedModel([ToolCalls(calls), "done"] if replies is None else replies)
    return Agent(single_run(parallel_tools=limit), model=model, tools=tools, **options)


def results(agent):
    parts = [part for message in agent.model.requests[-1].messages for part in message.parts]
    return [part for part in parts if isinstance(part, ToolResult)]


async def test_the_parameters_are_the_fields_of_what_the_strategy_takes():
    """A dataclass and a pydantic model give a parameter for each field; any other input is the parameter `task`."""
    tools = [
        strategy(plan, "plan").as_tool("Plans a trip."),
        strategy(place, "order").as_tool("Orders something.", name="place_order"),
        strategy(shout, "shout").as_tool("Shouts."),
    ]
    calls = [
        ToolCall("plan", {"city": "Oslo", "days": 3}),
        ToolCall("place_order", {"item": "tea", "count": 2}),
        ToolCall("shout", {"task": "hello"}),
        ToolCall("place_order", {"item": "tea", "count": 0}),
    ]
    running = agent(*tools, calls=calls)
    result = await running.run("go")
    offered = {each.name: each for each in running.model.requests[0].tools}
    assert offered["plan"].description == "Plans a trip."
    assert list(offered["plan"].parameters["properties"]) == ["city", "days"]
    assert offered["plan"].parameters["required"] == ["city"]
    assert offered["place_order"].parameters["properties"]["count"]["description"] == "How many."
    assert list(offered["shout"].parameters["properties"]) == ["task"]
    *fine, wrong = [each.content for each in results(running)]
    assert fine == ["3 days in Oslo", "2 × tea", "HELLO"]
    assert "the arguments of 'place_order' do not fit: count: must be greater than or equal to 1" in wrong
    assert [each.run_id for each in result.children] == [each.run_id for each in results(running)[:3]]


async def test_it_asks_the_model_of_the_caller_and_has_its_tools_but_not_itself():
    """Like a subgraph, it takes what it lacks from the agent; a strategy without an edge for tool calls is offered none."""

    @tool
    def look() -> str:
        """Look."""
        return "seen"

    inner = single_run(name="inner").as_tool("Finds out.")
    running = agent(inner, look, replies=[ToolCall("inner", {"task": "t"}), ToolCall("look"), "found", "done"])
    await running.run("go")
    names = [[each.name for each in request.tools] for request in running.model.requests]
    assert names == [["inner", "look"], ["look"], ["look"], ["inner", "look"]]

    plain = Strategy("plain", START >> shout >> END).as_tool("Shouts.")
    running = agent(plain, look, calls=[ToolCall("plain", {"task": "t"})])
    await running.run("go")
    assert results(running)[0].content == "T"


async def test_using_gives_it_a_model_and_tools_of_its_own():
    """`using` comes before what the caller has, and its budgets hold for each call."""
    own = ScriptedModel([ToolCall("mine"), "found"] * 2)

    @tool
    def mine() -> str:
        """Mine."""
        return "mine"

    inner = single_run(name="inner").using(model=own, tools=[mine], max_turns=1).as_tool("Finds out.")
    running = agent(inner, calls=[ToolCall("inner", {"task": "t"})])
    await running.run("go")
    assert [each.name for each in own.requests[0].tools] == ["mine"]
    assert "budget" in results(running)[0].content


async def test_what_it_spends_counts_in_the_run_that_calls_it():
    """Turns of its model count in its own budget, tokens in that of the caller."""
    inner = single_run(name="inner").as_tool("Finds out.")
    running = agent(inner, replies=[ToolCall("inner", {"task": "t"}), "found", "done"])
    result = await running.run("go")
    [child] = result.children
    assert 0 < child.result.usage.total_tokens < result.usage.total_tokens
    poor = agent(inner, replies=[ToolCall("inner", {"task": "t"}), "found", "done"], max_tokens=1)
    with pytest.raises(BudgetError):
        await poor.run("go")


async def test_it_runs_in_parallel():
    """Calls in one turn are runs of their own, at once; `concurrency=` limits how many."""
    now = most = 0

    @node
    async def wait(ctx: Context, text: str) -> str:
        nonlocal now, most
        now, most = now + 1, max(most, now + 1)
        await anyio.sleep(0.05)
        now -= 1
        return text

    for limit, expected in ((None, 4), (2, 2)):
        most = 0
        waits = strategy(wait).as_tool("Waits.", concurrency=limit)
        running = agent(waits, calls=[ToolCall("helper", {"task": str(n)}) for n in range(4)], limit=4)
        await running.run("go")
        assert [each.content for each in results(running)] == list("0123")
        assert most == expected


async def test_a_question_in_it_suspends_the_whole_run(tmp_path):
    """The run is resumed by another agent, as after the end of its process, and does nothing twice."""
    store, seen = SqliteStore(tmp_path / "runs.db"), []

    @node
    async def count(ctx: Context, text: str) -> str:
        seen.append(text)
        return text

    def made(*replies):
        asks = Strategy("asks", START >> count >> ask_human("Sure?", bool) >> END).as_tool("Asks.")
        return agent(asks, replies=replies, store=store)

    result = await made(ToolCall("asks", {"task": "t"})).run("go", run_id="r")
    assert (result.status, result.pending.question) == ("waiting", "Sure?")
    later = made("done")
    assert (await later.resume("r", answer=True)).output == "done"
    assert results(later)[0].content == "true"
    assert seen == ["t"]
    [child] = (await later.read("r")).result.children
    assert child.run_id.startswith("r/asks/")
    assert child.result.output is True


async def test_it_inherits_tools_after_a_resume_too(tmp_path):
    """A run that waits for a person in a tool of the caller is continued with that tool."""
    store = SqliteStore(tmp_path / "runs.db")

    @tool(approve=True)
    def look() -> str:
        """Look."""
        return "seen"

    def made(*replies):
        return agent(single_run(name="inner").as_tool("Finds."), look, replies=replies, store=store)

    result = await made(ToolCall("inner", {"task": "t"}), ToolCall("look")).run("go", run_id="r")
    assert result.status == "waiting"
    later = made("found", "done")
    assert (await later.resume("r", answer=True)).output == "done"
    assert results(later)[0].content == "found"
    assert [each.name for each in later.model.requests[0].tools] == ["look"]


async def test_its_approval_and_its_fields_are_checked():
    """A person may change the arguments, and only to such as fit."""
    running = agent(
        strategy(plan, "plan").as_tool("Plans.", approve=True), calls=[ToolCall("plan", {"city": "Oslo"}, "c")]
    )
    assert (await running.run("go")).status == "waiting"
    with pytest.raises(AnswerError, match="days: must be a valid integer"):
        running.last.answer(Approve({"city": "Rome", "days": "many"}))
    running.last.answer(Approve({"city": "Rome", "days": 2}))
    await running.last.finish()
    assert results(running)[0].content == "2 days in Rome"


async def test_its_features_are_those_of_the_caller():
    """A node in it that needs a feature finds the caller's, and the error comes before the run otherwise."""
    remembers = Strategy("remembers", START >> load_all_facts() >> shout >> END).as_tool("Remembers.")
    with pytest.raises(FeatureError, match=r"node 'remembers/.*needs AgentMemory"):
        await agent(remembers, calls=[]).run("go")
    running = agent(
        Strategy("remembers", START >> load_all_facts() >> shout >> END).as_tool("Remembers."),
        calls=[ToolCall("remembers", {"task": "t"})],
    )
    running.install(AgentMemory)
    await running.run("go")
    assert results(running)[0].content == "T"


async def test_a_subgraph_has_strategies_as_tools():
    """`using(tools=[strategy.as_tool(…)])` gives a strategy inside another one such a tool."""
    inner = single_run(name="inner").using(tools=[strategy(shout).as_tool("Shouts.")])
    running = Agent(
        Strategy("outer", START >> inner >> END), model=ScriptedModel([ToolCall("helper", {"task": "t"}), "done"])
    )
    await running.run("go")
    assert results(running)[0].content == "T"


def test_one_tool_serves_several_agents():
    """The first agent makes it, and the others have the same one."""
    made = strategy(shout).as_tool("Shouts.")
    with pytest.raises(TypeError, match="becomes a tool in an agent"):
        made.as_tool()
    assert isinstance(made, StrategyTool)
    assert agent(made).tools == agent(made).tools
    assert repr(made) == "<strategy 'helper' as the tool 'helper'>"


def test_what_cannot_be_a_tool_is_refused():
    """A name that models cannot call, and a strategy itself without a description, are errors of the declaration."""
    with pytest.raises(ValueError, match="cannot name a tool"):
        agent(strategy(shout, "a helper").as_tool("Helps."))
    with pytest.raises(TypeError, match=r"write strategy.as_tool\("):
        agent(strategy(shout))
    with pytest.raises(TypeError, match="has no description; write"):
        strategy(shout).as_tool("")
