"""Printing a run while it goes on."""

from __future__ import annotations

import io

import pytest

from graphagent import END, START, Agent, Context, Strategy, node, tool
from graphagent.llm import ToolCall
from graphagent.nodes import ask_human
from graphagent.run import Console
from graphagent.testing import ScriptedModel
from graphagent_strategies import single_run


@tool
def double(number: int) -> int:
    """Double a number."""
    return number * 2


async def printed(level):
    file = io.StringIO()
    model = ScriptedModel([ToolCall("double", {"number": 21}), "It is 42."])
    agent = Agent(single_run(), model=model, tools=[double], system_prompt="Count.")
    agent.install(Console, level=level, file=file)
    await agent.run("What is twice 21?", run_id="r")
    return file.getvalue()


async def test_level_0_prints_the_answer_alone():
    """No step and no heading of a run stands there."""
    said = await printed(0)
    assert "It is 42." in said
    assert "double" not in said
    assert "Run of" not in said


async def test_level_1_prints_the_task_and_each_step():
    """The task, the tool call with its result, the answer and the tokens are there; what the model was sent is not."""
    said = await printed(1)
    for part in ("What is twice 21?", 'double({"number": 21})', "42", "It is 42.", "tokens"):
        assert part in said
    assert "Count." not in said
    assert said.index("What is twice 21?") < said.index("double") < said.index("It is 42.")


async def test_level_2_prints_what_the_model_was_sent_too():
    """The rules and the messages of each prompt are there."""
    said = await printed(2)
    assert said.count("Count.") == 3  # by itself, and in both prompts
    assert "was sent" in said


async def test_a_waiting_run_prints_what_it_asks():
    """The question stands there with its id, and what a failing node raised by its name alone."""

    @node
    async def fail(ctx: Context, answer: bool) -> str:
        raise ValueError("secret")

    file = io.StringIO()
    ask = ask_human("Go on?", bool)
    agent = Agent(Strategy("s", START >> ask >> fail >> END))
    agent.install(Console, file=file)
    run = agent.start("x", run_id="r")
    await run.finish()
    assert "'Go on?'" in file.getvalue()
    run.answer(True)
    with pytest.raises(Exception, match="fail"):
        await run.finish()
    assert "Run failed" in file.getvalue()
    assert "secret" not in file.getvalue()
