"""What is streamed of the ready-made strategies."""

from __future__ import annotations

import pytest

from graphagent import Agent, tool
from graphagent.events import TextStreamed
from graphagent.llm import ToolCall
from graphagent.nodes import Accepted, Rejected
from graphagent.testing import ScriptedModel
from graphagent_strategies import (
    Expert,
    chat,
    plan_and_execute,
    react,
    reflect,
    research,
    route,
    single_run,
    verify_with_retry,
)

BETTER, FINE = {"improvements": ["more"]}, {"improvements": []}
REFUSED, ACCEPTED = {"feedback": "more", "passed": False}, {"feedback": "", "passed": True}


@tool
def look() -> str:
    """Look."""
    return "seen"


def is_long(answer):
    return Accepted(answer) if len(answer) > 3 else Rejected(answer, "too short")


@pytest.mark.parametrize(
    ("strategy", "replies", "drafts"),
    [
        (single_run(), [ToolCall("look"), "Answer"], 0),
        (chat(), [ToolCall("look"), "Answer"], 0),
        (route({"a": Expert("these", single_run()), "b": Expert("those", single_run())}), ['"b"', "Answer"], 0),
        (reflect(), ["One", BETTER, ToolCall("look"), "Answer", FINE], 2),
        (reflect(rounds=1), ["One", BETTER, "Answer"], 2),
        (plan_and_execute(), [{"steps": ["a"]}, "Found", {"steps": ["b"]}, "More", {"steps": []}, "Answer"], 2),
        (research(questions=2), [{"questions": ["a?", "b?"]}, "Yes", "No", "Answer"], 2),
        (react(), ["I look.", ToolCall("look"), "I know.", "Answer"], 2),
        (verify_with_retry(), ["One", REFUSED, "Answer", ACCEPTED], 2),
        (verify_with_retry(is_long), ["One", "Answer"], 2),
        (verify_with_retry(is_long, attempts=1), ["One"], 1),
    ],
)
async def test_the_answer_alone_is_streamed(strategy, replies, drafts):
    """Plans, thoughts, criticism, results of steps and refused answers come with all_text=True, under what they are."""
    agent = Agent(strategy, model=ScriptedModel(replies), tools=[look])
    heard = "".join([text async for text in agent.stream("Go.").text()])
    assert heard == ("Answer" if replies != ["One"] else "")
    everything = Agent(strategy, model=ScriptedModel(replies), tools=[look]).stream("Go.", all_text=True)
    texts = [event async for event in everything if isinstance(event, TextStreamed)]
    decided = [event.text for event in texts if event.output in ("plan", "decision")]
    assert len([each for each in replies if isinstance(each, dict)]) == "".join(decided).count("{")
    assert len({event.text for event in texts if event.output == "draft"}) >= drafts


@pytest.mark.parametrize("strategy", [reflect(rounds=1), verify_with_retry(is_long)])
async def test_an_answer_that_is_streamed_late_waits_for_final_checks_too(strategy):
    """Whoever listens hears the answer that has passed, and nothing of the one that was refused; the model is asked again."""
    replies = ["Longer", FINE, "Answer", FINE] if strategy.name == "reflect" else ["Longer", "Answer"]
    agent = Agent(strategy, model=ScriptedModel(replies), final_answer_checks=[lambda answer: answer == "Answer"])
    events = [event async for event in agent.stream("Go.") if isinstance(event, TextStreamed)]
    assert [event.text for event in events] == ["Answer"]
