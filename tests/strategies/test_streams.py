"""What is streamed of the ready-made strategies."""

from __future__ import annotations

import pytest

from graphagent import Agent
from graphagent.events import TextStreamed
from graphagent.testing import ScriptedModel
from graphagent_strategies import plan_and_execute, reflect, research


@pytest.mark.parametrize(
    ("strategy", "replies", "heard"),
    [
        (reflect(), ["One", {"improvements": ["secret"]}, "Two", {"improvements": []}], "OneTwo"),
        (
            plan_and_execute(),
            [{"steps": ["secret"]}, "Found", {"steps": ["more secret"]}, "Found more", {"steps": []}, "Done"],
            "FoundFound moreDone",
        ),
        (research(questions=1), [{"questions": ["secret?"]}, "Yes", "Report"], "YesReport"),
    ],
)
async def test_plans_and_criticism_are_not_streamed_as_answers(strategy, replies, heard):
    """Who streams the answer hears text for people alone; with all_text=True, the rest comes under what it is."""
    stream = Agent(strategy, model=ScriptedModel(replies)).stream("Go.")
    assert "".join([text async for text in stream.text()]).replace("\n", "") == heard
    everything = Agent(strategy, model=ScriptedModel(replies)).stream("Go.", all_text=True)
    texts = [event async for event in everything if isinstance(event, TextStreamed)]
    others = [event.text for event in texts if event.output in ("plan", "decision")]
    assert len([each for each in replies if isinstance(each, dict)]) == "".join(others).count("{")
