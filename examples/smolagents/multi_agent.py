"""A manager with a search agent, and what each of them took: smolagents' `inspect_multiagent_run.py`.

    python examples/smolagents/multi_agent.py
    python examples/smolagents/multi_agent.py --model llama3.2 --base-url http://localhost:11434/v1

An agent with a name and a description is a tool of another one. Its run is a run of its own, which is stored beside that of its
manager; the ledger says which model was paid for what.
"""

from __future__ import annotations

import argparse

import anyio

from graphagent import Agent, tool
from graphagent.llm import ToolCall, ToolCalls
from graphagent.llm.openai import OpenAIModel
from graphagent.store import MemoryStore
from graphagent.testing import ScriptedModel
from graphagent_strategies import single_run

PAGES = {"growth": "The economy grew by 2.8 % in 2024.", "doubling": "Time to double: ln 2 / ln(1 + rate)."}


@tool
async def search(query: str) -> list[str]:
    """Search the web, and return what the pages say."""
    return [text for about, text in PAGES.items() if about in query.lower()]


async def main() -> None:
    """Ask the manager, and look into both runs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model")
    parser.add_argument("--base-url")
    options = parser.parse_args()
    script = [
        ToolCall("search_agent", {"task": "What was the growth in 2024?"}),
        ToolCalls([ToolCall("search", {"query": "growth 2024"}), ToolCall("search", {"query": "doubling time"})]),
        "2.8 % in 2024; the time to double is ln 2 / ln(1 + rate).",
        "About 25 years.",
    ]
    model = OpenAIModel(options.model, base_url=options.base_url) if options.model else ScriptedModel(script)
    searcher = Agent(
        single_run(parallel_tools=2), model=model, tools=[search],
        name="search_agent", description="Searches the web, and reports what it found.",
    )  # fmt: skip
    manager = Agent(single_run(), model=model, tools=[searcher], store=MemoryStore())
    result = await manager.run(
        "If growth stays as in 2024, in how many years does the economy double?", run_id="manager"
    )
    print(f"{result.output} ({result.usage.total_tokens} tokens in {result.seconds:.1f} s)")
    print(result.ledger.to_text())
    result.replay()  # the run of the search agent is shown inside


anyio.run(main)
