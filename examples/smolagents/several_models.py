"""Another model is asked when one fails: smolagents' `multi_llm_agent.py`.

    python examples/smolagents/several_models.py
    python examples/smolagents/several_models.py --model llama3.2 --base-url http://localhost:11434/v1

smolagents leaves it to a router of LiteLLM. Here models are wrapped: one that fails too often is limited, another one stands by.
"""

from __future__ import annotations

import argparse

from graphagent import Agent, tool
from graphagent.errors import ModelRequestError
from graphagent.events import ModelRequestFailed
from graphagent.llm import FallbackModel, LimitedModel, ToolCall
from graphagent.llm.openai import OpenAIModel
from graphagent.testing import ScriptedModel
from graphagent_strategies import single_run


@tool
async def search(query: str) -> str:
    """Search the web."""
    return "A leopard runs at 16 m/s. The Pont des Arts is 155 m long."


parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--model")
parser.add_argument("--base-url")
options = parser.parse_args()

busy = ModelRequestError("the server answered 503", status=503)
large = ScriptedModel([busy, busy, busy], name="large")  # stands in for one that is overloaded
script = [ToolCall("search", {"query": "leopard speed, length of Pont des Arts"}), "About 10 seconds."]
small = OpenAIModel(options.model, base_url=options.base_url) if options.model else ScriptedModel(script, name="small")

model = LimitedModel(FallbackModel(large, small), concurrency=4)
agent = Agent(single_run(), model=model, tools=[search])
agent.on(ModelRequestFailed, lambda event: print(f"{event.model}: {event.reason}"))
result = agent.run_sync("How many seconds does a leopard need at full speed for the Pont des Arts?")
print(result.output)
print(result.ledger.to_text())
