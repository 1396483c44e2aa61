"""Koog's subgraphs: tools of their own, a transcript of their own, tasks, verification, retries.

python examples/koog/subgraphs.py
python examples/koog/subgraphs.py --model llama3.2 --base-url http://localhost:11434/v1
"""

from __future__ import annotations

from dataclasses import dataclass

from index import agent, clock, show, weather

from graphagent import END, START, Strategy, parallel
from graphagent.graph import select_tools
from graphagent.llm import ToolCall
from graphagent.nodes import Accepted, Rejected, llm_request, task, verify
from graphagent_strategies import single_run, verify_with_retry

CALL = ToolCall("weather", {"city": "Oslo"})
answer = single_run(name="answer")


@dataclass
class Report:
    city: str
    sunny: bool


async def _run(subgraph: Strategy[str, str], *script: object) -> object:
    """Run a subgraph in an agent that has two tools."""
    strategy = Strategy("s", START >> subgraph >> END)
    return (await agent(strategy, *script, tools=[weather, clock]).run("How is Oslo?")).output


async def all_tools() -> object:
    """A strategy that is a node has the tools of its parent, and adds to its transcript."""
    return await _run(answer, CALL, "Sunny.")


async def no_tools() -> object:
    """It has none."""
    return await _run(answer.using(tools=[]), "I cannot know.")


async def listed_tools() -> object:
    """It has these."""
    return await _run(answer.using(tools=[clock]), ToolCall("clock", {"city": "Oslo"}), "It is noon.")


async def selected_tools() -> object:
    """It has those that a model chooses for the input, in one request."""
    return await _run(answer.using(tools=select_tools()), {"value": ["weather"]}, CALL, "Sunny.")


async def own_transcript() -> object:
    """What it says is dropped when it ends; only the output is passed on."""
    alone = parallel(answer, name="alone", transcript="drop")
    report = llm_request(tools=False, name="report")
    strategy = Strategy(
        "s", START >> alone, alone.map(lambda found: f"Say it in Norwegian: {found[0]}") >> report >> END
    )
    result = await agent(strategy, CALL, "Sunny.", "Sol.", tools=[weather]).run("How is Oslo?")
    return result.output


async def with_task() -> object:
    """It works with tools until the model calls `finish` with a value of the type."""
    report = task("Report about {input}.", output=Report)
    finish = ToolCall("finish", {"city": "Oslo", "sunny": True})
    return (await agent(Strategy("s", START >> report >> END), CALL, finish, tools=[weather]).run("Oslo")).output


async def with_verification() -> object:
    """The verdict is a type; the feedback leads back to the model."""
    write, check = llm_request(tools=False, name="write"), verify("It names a city.")
    strategy = Strategy(
        "s",
        START >> write >> check,
        check.on(Accepted).map(lambda found: found.value) >> END,
        check.on(Rejected).map(Rejected.to_prompt) >> write,
    )
    wrong, right = {"feedback": "No city.", "passed": False}, {"feedback": "", "passed": True}
    return (await agent(strategy, "It is sunny.", wrong, "Oslo is sunny.", right).run("How is it?")).output


async def with_retry() -> object:
    """At most so many attempts, each with the feedback on the one before; the outcome is typed."""

    def names_a_city(said: str) -> Accepted | Rejected:
        return Accepted(said) if "Oslo" in said else Rejected(said, "Name the city.")

    return (
        await agent(verify_with_retry(names_a_city, attempts=3), "Sunny.", "Oslo is sunny.").run("How is it?")
    ).output


if __name__ == "__main__":
    show(all_tools, no_tools, listed_tools, selected_tools, own_transcript, with_task, with_verification, with_retry)
