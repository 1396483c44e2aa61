"""A crew with a manager who delegates: crewAI's `Process.hierarchical`.

    python examples/crewai/hierarchical.py
    python examples/crewai/hierarchical.py --model llama3.2 --base-url http://localhost:11434/v1

The members are agents with a name and a description, and tools of the manager. Each has a model, tools and budgets of its own;
the ledger says who took what. What the manager delegates is in the journal, so nothing is delegated twice after a crash.
"""

from __future__ import annotations

import argparse

import anyio

from graphagent import Agent, tool
from graphagent.llm import ToolCall
from graphagent.llm.openai import OpenAIModel
from graphagent.store import MemoryStore
from graphagent.testing import Reply, ScriptedModel
from graphagent_strategies import single_run

FOUND = "PostgreSQL takes 10,000 connections, MySQL 5,000."


@tool
async def search(query: str) -> str:
    """Search the web, and return what the pages say."""
    return FOUND if "connections" in query else "nothing"


async def main() -> None:
    """Kick the crew off, and look at who did what."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model")
    parser.add_argument("--base-url")
    options = parser.parse_args()
    script: list[Reply] = [
        ToolCall("researcher", {"task": "How many connections do databases take?"}),
        ToolCall("search", {"query": "connections of databases"}),
        FOUND,
        ToolCall("writer", {"task": f"Write one sentence: {FOUND}"}),
        "PostgreSQL takes twice as many connections as MySQL.",
        "Report: PostgreSQL takes twice as many connections as MySQL.",
    ]
    model = OpenAIModel(options.model, base_url=options.base_url) if options.model else ScriptedModel(script)

    researcher = Agent(
        single_run(), tools=[search], max_turns=5, name="researcher", description="Finds and analyses information.",
        system_prompt="You are a researcher with attention to detail.",
    )  # fmt: skip
    writer = Agent(
        single_run(), name="writer", description="Writes clear, well-structured texts.",
        system_prompt="You are a technical writer.",
    )  # fmt: skip
    manager = Agent(
        single_run(), model=model, tools=[researcher, writer], store=MemoryStore(),
        system_prompt="You manage a crew. Delegate the work, check what comes back, and answer with the final report.",
    )  # fmt: skip

    result = await manager.run("Compare the connections of databases.", run_id="report")
    print(result.output)
    for child in result.children:
        print(child.run_id, "|", child.result.output)
    print(result.ledger.to_text())


if __name__ == "__main__":
    anyio.run(main)
