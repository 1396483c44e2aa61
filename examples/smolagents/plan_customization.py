"""A person reads the plan and changes it before it is carried out: smolagents' `plan_customization`.

    python examples/smolagents/plan_customization.py
    python examples/smolagents/plan_customization.py --model llama3.2 --base-url http://localhost:11434/v1

smolagents interrupts the agent from a callback, and keeps the process waiting at the keyboard. Here the run stops at `ask_human`
and is stored; another process may continue it with the answer, days later. This program is both.
"""

from __future__ import annotations

import argparse

import anyio

from graphagent import END, START, Agent, Context, Strategy, node, tool
from graphagent.llm import ToolCall, ToolCalls
from graphagent.llm.openai import OpenAIModel
from graphagent.nodes import ask_human, execute_tools, llm_request
from graphagent.store import MemoryStore
from graphagent.testing import ScriptedModel


@tool
async def search(query: str) -> str:
    """Search the web."""
    return f"Three pages about {query}."


@node
async def ask_for_plan(ctx: Context, task: str) -> str:
    """Ask for a plan in a few lines."""
    return f"{task}\n\nMake a plan of a few lines for this. Carry out nothing yet."


@node
async def approved(ctx: Context, plan: str) -> str:
    """Pass on the plan, as the person left it."""
    return f"Carry out this plan:\n{plan}"


plan = llm_request(tools=False, name="plan")
review = ask_human(
    lambda text: f"Is this plan right? Answer with the plan as it shall be.\n\n{text}", str, name="review"
)
work, act = llm_request(name="work"), execute_tools()
strategy = Strategy(
    "reviewed",
    START >> ask_for_plan >> plan >> review >> approved >> work,
    work.on(ToolCalls) >> act >> work,
    work.on(str) >> END,
)


async def main() -> None:
    """Begin the run, show the plan, and continue with another one."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model")
    parser.add_argument("--base-url")
    options = parser.parse_args()
    script = [
        "1. Search for recent work.\n2. Read all of it.\n3. Report.",
        ToolCall("search", {"query": "agents with memory"}),
        "Agents with memory are what people write about.",
    ]
    model = OpenAIModel(options.model, base_url=options.base_url) if options.model else ScriptedModel(script)
    agent = Agent(strategy, model=model, tools=[search], store=MemoryStore())
    waiting = await agent.run("What is new about AI agents?", run_id="news")
    assert waiting.pending is not None
    print(f"{waiting.pending.question}\n")
    ended = await agent.resume("news", answer="1. Search for recent work.\n2. Report.")
    print(ended.output)


anyio.run(main)
