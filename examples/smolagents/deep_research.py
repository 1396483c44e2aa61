"""A question is split, its parts are researched at the same time, and a report is written: smolagents' `open_deep_research`.

    python examples/smolagents/deep_research.py
    python examples/smolagents/deep_research.py --model llama3.2 --base-url http://localhost:11434/v1

smolagents lets a manager write code that calls a search agent, part after part. The ready-made strategy `research` has the parts
in branches with transcripts of their own; a part that fails is missing from the report, and the others are not lost.
"""

from __future__ import annotations

import argparse
import itertools

from graphagent import Agent, tool
from graphagent.events import NodeStarted
from graphagent.llm import ModelRequest, ToolCall
from graphagent.llm.openai import OpenAIModel
from graphagent.testing import Reply, ScriptedModel
from graphagent_strategies import research

PAGES = {"bees": "Bees find their way by the sun.", "birds": "Birds find their way by the earth's magnetic field, too."}


@tool
async def search(query: str) -> list[str]:
    """Search the web, and return what the pages say."""
    return [text for about, text in PAGES.items() if about in query.lower()]


def librarian(request: ModelRequest) -> Reply:
    """Stand in for a model: split, search, find, report."""
    said = request.messages[-1].text
    if request.output is not None:
        return {"questions": ["How do bees find their way?", "How do birds find their way?"]}
    if not request.tools:
        return "Both look at the sky; birds feel the earth's magnetic field, too."
    if request.messages[-1].role == "tool":
        return said.strip('["]')
    return ToolCall("search", {"query": said})


parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--model")
parser.add_argument("--base-url")
options = parser.parse_args()

stand_in = ScriptedModel(itertools.repeat(librarian))
model = OpenAIModel(options.model, base_url=options.base_url) if options.model else stand_in
agent = Agent(research(questions=2, parallel_questions=2), model=model, tools=[search])
agent.on(NodeStarted, lambda event: print(event.node))
print(agent.run_sync("How do bees and birds find their way?").output)
