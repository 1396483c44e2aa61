"""`plan_and_execute`: a plan, its steps one after the other, and further steps."""

from __future__ import annotations

import pytest

from graphagent import Agent, tool
from graphagent.llm import ToolCall
from graphagent.testing import ScriptedModel, record
from graphagent_strategies import plan_and_execute
from tests.strategies.resuming import left_out, resumed_everywhere


@tool
def search(query: str) -> str:
    """Search."""
    return f"found {query}"


def plan(*steps):
    return {"steps": list(steps)}


def asked(model):
    """What the model was asked last in each request, where that is text."""
    return [request.messages[-1].text for request in model.requests]


async def test_the_steps_are_carried_out_in_order_and_added_to():
    """A review adds a step, the next one none, and the answer is asked for without tools; every edge is taken."""
    model = ScriptedModel(
        [
            plan("look", "count"),
            ToolCall("search", {"query": "x"}),
            "looked",
            "counted",
            plan("check"),
            "checked",
            plan(),
            "3",
        ]
    )
    agent = Agent(plan_and_execute(), model=model, tools=[search])
    taken = record(agent)
    assert (await agent.run("How many?")).output == "3"
    assert left_out(agent.strategy, taken) == set()
    said = asked(model)
    assert said[0].endswith("These tools can be called in a step: search.")
    assert said[1] == "Carry out step 1 of 2, and say what came of it: look"
    assert said[3] == "Carry out step 2 of 2, and say what came of it: count"
    assert said[5] == "Carry out step 1 of 1, and say what came of it: check"
    assert [bool(request.tools) for request in model.requests] == [False, True, True, True, False, True, False, False]


@pytest.mark.parametrize("replans", [0, 1, 3])
async def test_there_are_so_many_reviews_and_no_more(replans):
    """Each adds a step; after the last one the answer is asked for."""
    replies = [plan("a"), "did a"]
    for _ in range(replans):
        replies += [plan("b"), "did b"]
    result = await Agent(plan_and_execute(replans=replans), model=ScriptedModel([*replies, "done"])).run("Go")
    assert (result.output, result.turns) == ("done", 3 + 2 * replans)


async def test_an_empty_plan_is_answered_at_once():
    """Nothing is carried out, and nothing reviewed."""
    model = ScriptedModel([plan(), "Hello."])
    agent = Agent(plan_and_execute(), model=model)
    taken = record(agent)
    assert (await agent.run("Hi")).output == "Hello."
    assert taken.nodes == ["prepare", "plan", "next_step", "answer"]
    assert "tools" not in asked(model)[0]


async def test_another_run_of_a_thread_has_a_plan_of_its_own():
    """Plans and reviews of an earlier run do not count."""
    replies = [plan("a"), "did a", plan(), "first", plan("b", "c"), "did b", "did c", plan(), "second"]
    agent = Agent(plan_and_execute(replans=1), model=ScriptedModel(replies))
    first = await agent.run("Go")
    assert (await agent.run("Go", steps=first.memory)).output == "second"


async def test_a_run_is_resumed_from_any_commit():
    """The place in the plan and the number of reviews are known in every process."""

    def reply(request):
        said = [message.text for message in request.messages]
        if request.output is not None:
            return plan("a", "b") if said[-1].startswith("First") else plan("c")
        return ToolCall("search", {"query": "b"}, id="c1") if said[-1].startswith("Carry out step 2") else said[-1][:20]

    whole = await resumed_everywhere(plan_and_execute(replans=1), reply, tools=[search])
    assert whole.output == "Now give the answer,"
    assert whole.turns == 7
