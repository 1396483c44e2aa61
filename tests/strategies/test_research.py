"""`research`: parts of a question are researched at the same time."""

from __future__ import annotations

import anyio
import pytest

from graphagent import Agent, tool
from graphagent.errors import BudgetError, ModelRequestError, NodeFailedError
from graphagent.llm import Message, ModelResponse, ToolCall
from graphagent.store import MemoryStore
from graphagent.testing import ScriptedModel, record
from graphagent_strategies import research
from tests.strategies.resuming import left_out, resumed_everywhere

PARTS = {"questions": ["Who?", "When?", "Where?"]}


@tool
def search(query: str) -> str:
    """Search."""
    return f"found {query}"


def reply(request):
    """Answer each part after one search, and report what was found."""
    last = request.messages[-1]
    if last.text.startswith("First split"):
        return PARTS
    if last.text.startswith("Write the report"):
        return f"REPORT\n{last.text.partition(chr(10) * 2)[2]}"
    if last.role == "tool":
        return f"answer: {last.text}"
    return ToolCall("search", {"query": last.text}, id=f"c{last.text}")


async def test_the_report_is_written_from_all_findings():
    """Each part is researched with tools; the findings come in the order of the parts; every edge is taken."""
    model = ScriptedModel([reply] * 20)
    agent = Agent(research(), model=model, tools=[search])
    taken = record(agent)
    result = await agent.run("Tell me about the museum.")
    assert result.output == ("REPORT\n1. answer: found Who?\n\n2. answer: found When?\n\n3. answer: found Where?")
    assert left_out(agent.strategy, taken) == set()
    assert result.turns == 8
    sent = [message.text for message in model.requests[-1].messages]
    assert sent[0] == "Tell me about the museum."
    assert not any(text.startswith("found") for text in sent)  # what was searched stays in its part
    assert model.requests[-1].tools == ()


async def test_a_part_that_fails_loses_only_itself():
    """The report says which is missing, and why as far as may be shown."""

    def failing(request):
        if any(message.text == "When?" for message in request.messages):
            return ModelRequestError("model 'x' answered 503")
        return reply(request)

    result = await Agent(research(), model=ScriptedModel([failing] * 20), tools=[search]).run("Tell me.")
    first, second, third = result.output.partition("\n")[2].split("\n\n")
    assert (first, third) == ("1. answer: found Who?", "3. answer: found Where?")
    assert second.startswith("2. (not found out: node 'work/1/part/find/llm_request' failed with ModelRequestError")


async def test_a_part_that_uses_up_its_turns_loses_only_itself():
    """It has a budget of its own."""

    def searching(request):
        if any(message.text == "When?" for message in request.messages) and "report" not in request.messages[-1].text:
            return ToolCall("search", {"query": "more"})
        return reply(request)

    agent = Agent(research(turns=2), model=ScriptedModel([searching] * 20), tools=[search])
    taken = record(agent)
    result = await agent.run("Tell me.")
    assert "2. (not found out: the budget of strategy 'work/1/part/find' of 2 turns is used up" in result.output
    assert any(edge.startswith("on error BudgetError") for _, edge, _ in taken.paths)


async def test_the_budget_of_the_run_ends_the_run():
    """It is not taken for a part's; with more of it the run continues, and nothing is missing."""
    store, model = MemoryStore(), ScriptedModel([reply] * 20)
    with pytest.raises(BudgetError):
        await Agent(research(), model=model, tools=[search], store=store, max_turns=4).run("Tell me.", run_id="r")
    result = await Agent(research(), model=model, tools=[search], store=store, max_turns=20).resume("r")
    assert "not found out" not in result.output
    assert len(model.requests) == 8


async def test_if_every_part_fails_the_run_fails():
    """No report is written from nothing."""

    def failing(request):
        return reply(request) if len(request.messages) == 2 else ModelRequestError("model 'x' answered 503")

    with pytest.raises(NodeFailedError, match="work/0/part/find/llm_request"):
        await Agent(research(), model=ScriptedModel([failing] * 20), tools=[search]).run("Tell me.")


async def test_more_parts_than_allowed_are_left_out():
    """The first ones are researched."""
    agent = Agent(research(questions=2), model=ScriptedModel([reply] * 20), tools=[search])
    assert "Where?" not in (await agent.run("Tell me.")).output


async def test_no_parts_are_asked_for_again():
    """An empty list is an answer that does not fit."""
    model = ScriptedModel([{"questions": []}, {"questions": ["Who?"]}, "Ada.", "Ada did."])
    assert (await Agent(research(), model=model).run("Tell me.")).output == "Ada did."
    assert "name one question or more" in model.requests[1].messages[-1].text


@pytest.mark.every_loop
@pytest.mark.parametrize("limit", [1, 2, 3])
async def test_so_many_parts_are_researched_at_once(limit):
    """No more, and no fewer while there are parts."""
    working, most = 0, 0

    class Slow:
        name = "slow"

        async def respond(self, request, on_text=None):
            nonlocal working, most
            said = reply(request)
            working += 1
            most = max(most, working)
            await anyio.wait_all_tasks_blocked()
            working -= 1
            if isinstance(said, dict):
                return ScriptedModel([said]).answer(request)
            return ModelResponse(Message.assistant("found" if isinstance(said, ToolCall) else said))

    await Agent(research(parallel_questions=limit), model=Slow()).run("Tell me.")
    assert most == limit


async def test_a_run_is_resumed_from_any_commit():
    """Parts that were found out are not researched again."""
    whole = await resumed_everywhere(research(parallel_questions=1), reply, tools=[search])
    assert whole.output.count("answer: found") == 3
