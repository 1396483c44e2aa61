"""A model behind a server: the real adapter over real HTTP, against a server of this program that follows a script.

    python examples/local_server.py

For Ollama the line is `OpenAIModel("llama3.2", base_url="http://localhost:11434/v1")`; for OpenAI `OpenAIModel("gpt-5-mini")`.
"""

from __future__ import annotations

from dataclasses import dataclass

import anyio

from graphagent import END, START, Agent, Strategy, tool
from graphagent.errors import ModelRequestError
from graphagent.events import TextStreamed
from graphagent.llm import ToolCall
from graphagent.llm.openai import OpenAIModel
from graphagent.nodes import llm_request
from graphagent.testing import openai_server
from graphagent_strategies import single_run


@dataclass
class Plan:
    """A type is all that structured output needs."""

    title: str
    hours: int


@tool
def clock() -> str:
    """Give the time."""
    return "16:20"


async def main() -> None:
    busy = ModelRequestError("busy", status=429, retry_after=0)
    replies = [busy, ToolCall("clock"), "It is twenty past four.", {"title": "Tidy up", "hours": 2}]
    async with (
        openai_server(replies, model="local") as server,
        OpenAIModel("local", base_url=server.base_url, api_key="none") as model,
    ):
        agent = Agent(single_run(), model=model, tools=[clock])
        agent.on(TextStreamed, lambda event: print(event.text, end="|"))
        result = await agent.run("What time is it?")  # the first request is refused, and tried again
        print(f"\n{result.output}")

        planner = Agent(Strategy("planner", START >> llm_request(output=Plan) >> END), model=model)
        plan = (await planner.run("Plan the evening.")).output
        print(plan)
    assert plan == Plan("Tidy up", 2)
    assert [request["messages"][-1]["role"] for request in server.requests] == ["user", "user", "tool", "user"]

    # The same script over OpenAI's own protocol, from a server that refuses what OpenAI refuses: a call whose reasoning is lost.
    async with (
        openai_server([ToolCall("clock"), "It is twenty past four."], strict="openai") as strict,
        OpenAIModel("gpt-5.6", protocol="responses", base_url=strict.base_url, api_key="none") as model,
    ):
        print((await Agent(single_run(), model=model, tools=[clock]).run("What time is it?")).output)
    kinds = [item.get("type", item.get("role")) for item in strict.requests[1]["input"]]
    print("returned:", ", ".join(kinds))
    assert "reasoning" in kinds


anyio.run(main)
