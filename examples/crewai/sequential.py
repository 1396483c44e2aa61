"""A crew whose tasks follow each other: crewAI's `Process.sequential`, with a guardrail, knowledge, and a person at the end.

    python examples/crewai/sequential.py
    python examples/crewai/sequential.py --model llama3.2 --base-url http://localhost:11434/v1

A task is a subgraph, an edge leads to the next. The guardrail is a node: what it refuses goes back to the task that wrote it.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass

import anyio

from graphagent import END, START, Agent, Context, Strategy, node, tool
from graphagent.events import NodeStarted
from graphagent.llm import ToolCall
from graphagent.llm.openai import OpenAIModel
from graphagent.memory import NoteMemory, Notes
from graphagent.nodes import Rejected, ask_human, task
from graphagent.store import MemoryStore
from graphagent.testing import Reply, ScriptedModel

PAGES = ["PostgreSQL takes 10,000 connections with a pooler.", "MySQL takes 5,000 connections."]
HOUSE_STYLE = "Reports of databases have a title and at least two points."


@dataclass(frozen=True)
class Report:
    """What the crew makes: crewAI's `output_pydantic`."""

    title: str
    points: list[str]


@tool
async def search(query: str) -> list[str]:
    """Search the web, and return what the pages say."""
    return [text for text in PAGES if any(word in text.lower() for word in query.lower().split())]


@node
async def guardrail(ctx: Context, report: Report) -> Report | Rejected[Report]:
    """Return the report if it is long enough: crewAI's `(True, value)` and `(False, "why")`."""
    return report if len(report.points) > 1 else Rejected(report, "a report has at least two points")


@node
async def publish(ctx: Context, approved: bool) -> str:
    """Say what became of the report."""
    return "published" if approved else "dropped"


research = task("You are a researcher. Find out what there is to know about {input}.", tools=[search], name="research")
write = task(output=Report, tools=[], name="write")
review = ask_human(lambda report: f"Publish {report.title!r} with {len(report.points)} points?", bool, name="review")

crew = Strategy(
    "crew",
    START >> research,
    research.map("You are a writer. Write a report of this: {}".format) >> write >> guardrail,
    guardrail.on(Rejected[Report]).map(Rejected.to_prompt) >> write,
    guardrail.on(Report) >> review >> publish >> END,
)


async def main() -> None:
    """Kick the crew off, answer its question, and look at the order of its tasks."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model")
    parser.add_argument("--base-url")
    options = parser.parse_args()
    script: list[Reply] = [
        ToolCall("search", {"query": "connections"}),
        " ".join(PAGES),
        {"title": "Connections", "points": PAGES[:1]},
        {"title": "Connections", "points": PAGES},
    ]
    model = OpenAIModel(options.model, base_url=options.base_url) if options.model else ScriptedModel(script)

    async with Notes(MemoryStore()) as knowledge:
        await knowledge.remember(HOUSE_STYLE)
        agent = Agent(crew, model=model, store=MemoryStore())
        agent.install(NoteMemory, notes=knowledge, learn=False)
        nodes: list[str] = []
        agent.on(NodeStarted, lambda event: nodes.append(event.node))

        result = await agent.run("connections of databases", run_id="report")
        if result.pending is None:
            raise SystemExit("the crew asked nobody")
        print(result.pending.question)
        result = await agent.resume("report", answer=True)
        print(result.output, "after", [name for name in nodes if "/" not in name])


if __name__ == "__main__":
    anyio.run(main)
