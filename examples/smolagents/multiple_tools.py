"""Several tools, of which the model calls those that it needs, some at once: smolagents' `multiple_tools.py`.

    python examples/smolagents/multiple_tools.py
    python examples/smolagents/multiple_tools.py --model llama3.2 --base-url http://localhost:11434/v1

The services are tables here, so that it runs without them; a real tool would await an HTTP client in their place.
"""

from __future__ import annotations

import argparse
from datetime import UTC, datetime
from typing import Annotated, Literal
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import Field

from graphagent import Agent, tool
from graphagent.errors import ToolError
from graphagent.events import ToolReturned
from graphagent.llm import ToolCall, ToolCalls
from graphagent.llm.openai import OpenAIModel
from graphagent.testing import ScriptedModel
from graphagent_strategies import single_run

EUROS = {"EUR": 1.0, "USD": 0.92, "NOK": 0.087}
WEATHER = {"Oslo": ("snow", -4), "Rome": ("sun", 14)}
JOKES = ["Why did the agent cross the graph? There was an edge."]


@tool
async def get_weather(city: str, unit: Literal["celsius", "fahrenheit"] = "celsius") -> str:
    """Return the present weather of a city."""
    if city not in WEATHER:
        raise ToolError(f"no weather is known for {city!r}, only for {', '.join(WEATHER)}")
    sky, degrees = WEATHER[city]
    return f"{sky}, {degrees if unit == 'celsius' else degrees * 9 / 5 + 32} degrees {unit}"


@tool
async def convert_currency(amount: Annotated[float, Field(gt=0)], source: str, target: str) -> float:
    """Convert an amount of money.

    Args:
        amount: The amount.
        source: The currency that it is in, such as USD.
        target: The currency that it is wanted in, such as EUR.
    """
    return round(amount * EUROS[source] / EUROS[target], 2)


@tool
async def get_time(zone: str) -> str:
    """Return the date and the time in a time zone, such as Europe/Oslo."""
    try:
        return datetime.now(ZoneInfo(zone)).isoformat(timespec="minutes")
    except (ZoneInfoNotFoundError, ValueError):
        raise ToolError(f"{zone!r} is not a time zone; it is {datetime.now(UTC):%H:%M} in UTC") from None


@tool
async def get_joke() -> str:
    """Return a joke."""
    return JOKES[0]


parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--model")
parser.add_argument("--base-url")
options = parser.parse_args()

script = [
    ToolCalls(
        [
            ToolCall("convert_currency", {"amount": 5000, "source": "USD", "target": "EUR"}),
            ToolCall("get_weather", {"city": "Oslo"}),
            ToolCall("get_weather", {"city": "Atlantis"}),
        ]
    ),
    "5000 US dollars are 4600 euros, and it snows in Oslo.",
]
model = OpenAIModel(options.model, base_url=options.base_url) if options.model else ScriptedModel(script)
tools = [get_weather, convert_currency, get_time, get_joke]
agent = Agent(single_run(parallel_tools=len(tools)), model=model, tools=tools)
agent.on(ToolReturned, lambda event: print(f"{event.result.name}: {event.result.content}"))
print(agent.run_sync("How much is 5000 US dollars in euros, and how is the weather in Oslo and in Atlantis?").output)
