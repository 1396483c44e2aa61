"""`chat`: a conversation in one run."""

from __future__ import annotations

from dataclasses import replace

import pytest

from graphagent import Agent, tool
from graphagent.llm import ToolCall
from graphagent.store import MemoryStore
from graphagent.testing import ScriptedModel, record
from graphagent_strategies import chat
from tests.strategies.resuming import left_out, resumed_everywhere


@tool
def weather(city: str) -> str:
    """Give the weather of a city."""
    return f"sunny in {city}"


async def test_a_person_asks_until_they_leave():
    """Each answer is the next question, tools are called in between, and the output is the last answer."""
    model = ScriptedModel([ToolCall("weather", {"city": "Oslo"}), "It is sunny.", "Rain tomorrow."])
    agent = Agent(chat(), model=model, tools=[weather], store=MemoryStore())
    taken = record(agent)
    result = await agent.run("How is Oslo?", run_id="r")
    assert (result.status, result.pending.question) == ("waiting", "It is sunny.")
    result = await agent.resume("r", answer="And tomorrow?")
    assert result.pending.question == "Rain tomorrow."
    assert [message.text for message in model.requests[-1].messages] == [
        "How is Oslo?",
        "",
        "sunny in Oslo",
        "It is sunny.",
        "And tomorrow?",
    ]
    first = replace(taken, nodes=[*taken.nodes], paths=[*taken.paths])
    result = await agent.resume("r", answer=" Bye ")
    assert (result.status, result.output) == ("done", "Rain tomorrow.")
    assert len(model.requests) == 3
    assert left_out(agent.strategy, first, taken) == {("listen", "on None", "last_answer")}


@pytest.mark.parametrize("leaving", [None, "bye", "EXIT", "quit\n"])
async def test_words_and_none_end_a_conversation(leaving):
    """None and the endings, in upper and lower case; nothing else does."""
    agent = Agent(chat(), model=ScriptedModel(["Hello."]), store=MemoryStore())
    taken = record(agent)
    await agent.run("Hi", run_id="r")
    assert (await agent.resume("r", answer=leaving)).output == "Hello."
    way = "on None" if leaving is None else "on str, when is_farewell"
    assert ("listen", way, "last_answer") in taken.paths


async def test_the_endings_are_chosen():
    """With other words, the usual ones are messages as any."""
    agent = Agent(chat(endings=["Tschüss"]), model=ScriptedModel(["Hallo.", "Wie bitte?"]), store=MemoryStore())
    await agent.run("Hallo", run_id="r")
    assert (await agent.resume("r", answer="bye")).pending.question == "Wie bitte?"
    assert (await agent.resume("r", answer="tschüss")).output == "Wie bitte?"


async def test_a_conversation_is_resumed_from_any_commit():
    """Whichever commit was the last one, another process continues to the same end, and nothing is said twice."""

    def reply(request):
        said = [message.text for message in request.messages]
        return f"answer {len([text for text in said if text.startswith('answer')]) + 1}"

    whole = await resumed_everywhere(chat(), reply, answers={"answer 1": "more", "answer 2": "bye"})
    assert whole.output == "answer 2"
