"""One agent, any model: smolagents' `agent_from_any_llm.py`.

    python examples/smolagents/any_model.py
    python examples/smolagents/any_model.py --model gpt-5-mini
    python examples/smolagents/any_model.py --model llama3.2 --base-url http://localhost:11434/v1
    python examples/smolagents/any_model.py --model deepseek-chat --base-url https://api.deepseek.com/v1 --key-env DEEPSEEK_API_KEY

Any object with `name` and `respond` is a model, too; the class below is one.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable

from graphagent import Agent, tool
from graphagent.llm import Message, ModelRequest, ModelResponse, ToolCall
from graphagent.llm.openai import OpenAIModel
from graphagent_strategies import single_run


class Forecaster:
    """A model of one's own: it has the weather looked up, and repeats what it was told."""

    name = "forecaster"

    async def respond(self, request: ModelRequest, on_text: Callable[[str], None] | None = None) -> ModelResponse:
        """Answer."""
        last = request.messages[-1]
        if last.role != "tool":
            return ModelResponse(Message.assistant(calls=[ToolCall("get_weather", {"city": "Paris"})]))
        if on_text is not None:
            on_text(last.text)
        return ModelResponse(Message.assistant(last.text))


@tool
def get_weather(city: str) -> str:
    """Return the weather of a city."""
    return f"It is raining in {city}, at 12 degrees."


parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--model")
parser.add_argument("--base-url")
parser.add_argument("--key-env", default="", help="the environment variable that has the key for --base-url")
options = parser.parse_args()

key = os.environ.get(options.key_env)
model = OpenAIModel(options.model, base_url=options.base_url, api_key=key) if options.model else Forecaster()
agent = Agent(single_run(), model=model, tools=[get_weather])
print(f"{model.name}: {agent.run_sync('How is the weather in Paris?').output}")
