"""A first agent: ask a model, run the tool that it calls, ask again, answer.

    python examples/first_agent.py

The model follows a script, so that no key is needed; `OpenAIModel("gpt-5-mini")` of graphagent.llm.openai takes its place.
"""

from __future__ import annotations

from graphagent import END, START, Agent, Strategy, tool
from graphagent.llm import ToolCall, ToolCalls
from graphagent.nodes import execute_tools, llm_request
from graphagent.testing import ScriptedModel


@tool
def weather(city: str) -> str:
    """Give the weather of a city."""
    return f"{city}: 4 °C and rain"


ask, act = llm_request(), execute_tools()
strategy = Strategy(
    "first",
    START >> ask,
    ask.on(ToolCalls) >> act >> ask,
    ask.on(str) >> END,
)

model = ScriptedModel([ToolCall("weather", {"city": "Bergen"}), "It rains in Bergen, so take a coat."])
result = Agent(strategy, model=model, tools=[weather]).run_sync("Do I need a coat in Bergen?")

print(strategy.to_mermaid())
print(result.output)
print(f"{result.turns} model turns, {result.nodes} nodes executed")
assert result.output == "It rains in Bergen, so take a coat."
