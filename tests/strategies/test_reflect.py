"""`reflect`: draft, criticise, revise."""

from __future__ import annotations

import pytest

from graphagent import Agent, tool
from graphagent.llm import ToolCall
from graphagent.testing import ScriptedModel, record
from graphagent_strategies import reflect
from tests.strategies.resuming import left_out, resumed_everywhere

BETTER = {"improvements": ["shorter", "name the place"]}
FINE = {"improvements": []}


@tool
def search(query: str) -> str:
    """Search."""
    return "Oslo"


async def test_a_draft_is_revised_until_nothing_is_to_be_improved():
    """The model is told each point; the last draft is the output."""
    model = ScriptedModel([ToolCall("search", {"query": "x"}), "Draft 1", BETTER, "Draft 2", FINE])
    agent = Agent(reflect(criteria="brief"), model=model, tools=[search])
    taken = record(agent)
    assert (await agent.run("Write.")).output == "Draft 2"
    assert left_out(agent.strategy, taken) == {("draft", "on str", "last_draft")}
    assert model.requests[0].messages[1].text.endswith("It should be like this: brief")
    assert model.requests[3].messages[-1].text.endswith("Improve this:\n- shorter\n- name the place")
    assert [bool(request.tools) for request in model.requests] == [True, True, False, True, False]


@pytest.mark.parametrize("rounds", [1, 2, 3])
async def test_there_are_so_many_revisions_and_no_more(rounds):
    """The last one is not criticised, so a run takes at most one turn and two for each round."""
    replies = ["Draft 0"]
    for number in range(rounds):
        replies += [BETTER, f"Draft {number + 1}"]
    agent = Agent(reflect(rounds=rounds), model=ScriptedModel(replies))
    taken = record(agent)
    result = await agent.run("Write.")
    assert (result.output, result.turns) == (f"Draft {rounds}", 1 + 2 * rounds)
    assert ("draft", "on str", "last_draft") in taken.paths


async def test_a_thread_counts_the_rounds_of_its_run_alone():
    """What was revised in an earlier run does not count."""
    agent = Agent(reflect(rounds=1), model=ScriptedModel(["a", BETTER, "b", "c", BETTER, "d"]))
    first = await agent.run("Write.")
    assert (await agent.run("Another.", steps=first.memory)).output == "d"


async def test_a_run_is_resumed_from_any_commit():
    """The number of rounds is known in every process."""

    def reply(request):
        return BETTER if request.output is not None else f"draft {len(request.messages)}"

    whole = await resumed_everywhere(reflect(rounds=2), reply)
    assert whole.turns == 5
