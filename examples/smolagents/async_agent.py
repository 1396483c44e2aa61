"""Many requests, one agent, one event loop: smolagents' `async_agent` and `server`, without a thread for each run.

    python examples/smolagents/async_agent.py
    python examples/smolagents/async_agent.py --model llama3.2 --base-url http://localhost:11434/v1

smolagents' agents are synchronous and hold the state of their run, so its service sends each request to a thread. A run here is
a coroutine, and an agent has any number of them. The recipe "Chat with memory" makes this a web service.
"""

from __future__ import annotations

import argparse
import itertools

import anyio

from graphagent import Agent, tool
from graphagent.llm import ModelRequest, ToolCall
from graphagent.llm.openai import OpenAIModel
from graphagent.testing import Reply, ScriptedModel
from graphagent_strategies import single_run


@tool
async def count_letters(word: str) -> int:
    """Return how many letters a word has."""
    await anyio.sleep(0.01)  # a service that takes its time holds up nobody else
    return len(word)


def counter(request: ModelRequest) -> Reply:
    """Stand in for a model."""
    last = request.messages[-1]
    return f"It has {last.text} letters." if last.role == "tool" else ToolCall("count_letters", {"word": last.text})


async def main() -> None:
    """Answer a hundred requests at once."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model")
    parser.add_argument("--base-url")
    options = parser.parse_args()
    stand_in = ScriptedModel(itertools.repeat(counter))
    model = OpenAIModel(options.model, base_url=options.base_url) if options.model else stand_in
    agent = Agent(single_run(), model=model, tools=[count_letters])
    answers: dict[str, str] = {}

    async def answer(task: str) -> None:
        answers[task] = (await agent.run(task)).output

    words = ["graph", "agent"] if options.model else ["graph" + "s" * number for number in range(100)]
    async with anyio.create_task_group() as group:
        for word in words:
            group.start_soon(answer, word)
    print(f"{len(answers)} answers, such as: {answers[words[-1]]}")


anyio.run(main)
