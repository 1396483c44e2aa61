"""A question goes to the expert that it is for: smolagents' `agentic_patterns/router_pattern.py`.

    python examples/smolagents/router.py
    python examples/smolagents/router.py --model llama3.2 --base-url http://localhost:11434/v1

There the router is an agent that answers with a name, and nothing calls the agent of that name. Here the names are the only answers
that the server allows, the question arrives at the expert as it was asked, and each expert has tools and a budget of its own.
"""

from __future__ import annotations

import argparse

import anyio

from graphagent import END, START, Agent, Strategy, tool
from graphagent.llm import ToolCall
from graphagent.llm.openai import OpenAIModel
from graphagent.nodes import update_prompt
from graphagent.testing import ScriptedModel, record
from graphagent_strategies import Expert, route, single_run


@tool
def compound_interest(amount: float, rate: float, years: int, times_a_year: int = 1) -> float:
    """Return what an amount grows to."""
    return round(amount * (1 + rate / times_a_year) ** (years * times_a_year), 2)


@tool
def search(query: str) -> str:
    """Search the web."""
    return f"Two pages about {query}."


coder = Strategy("coder", START >> update_prompt("Answer with code alone.") >> single_run() >> END)
strategy = route(
    {
        "maths": Expert("problems of mathematics", single_run().using(tools=[compound_interest], max_turns=5)),
        "research": Expert("facts and news", single_run().using(tools=[search], max_turns=5)),
        "code": Expert("writing and debugging code", coder.using(tools=[], max_turns=2)),
    },
    default="research",
)


async def main() -> None:
    """Ask three questions, and print who answered each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model")
    parser.add_argument("--base-url")
    options = parser.parse_args()
    numbers = {"amount": 10_000, "rate": 0.08, "years": 5, "times_a_year": 4}
    script = [
        {"value": "maths"}, ToolCall("compound_interest", numbers), "14,859.47 dollars.",
        {"value": "research"}, ToolCall("search", {"query": "quantum computing"}), "There are two pages about it.",
        {"value": "code"}, "print('hello')",
    ]  # fmt: skip
    model = OpenAIModel(options.model, base_url=options.base_url) if options.model else ScriptedModel(script)
    agent = Agent(strategy, model=model)
    taken = record(agent)
    for question in (
        "What do 10,000 dollars become in 5 years, at 8 % a year, compounded quarterly?",
        "What is new in quantum computing?",
        "Write a program that says hello.",
    ):
        result = await agent.run(question)
        print(f"{taken.nodes[1]}: {result.output}")


anyio.run(main)
