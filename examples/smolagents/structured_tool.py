"""A tool of an MCP server that returns structured data: smolagents' `structured_output_tool.py`.

    python examples/smolagents/structured_tool.py
    python examples/smolagents/structured_tool.py --model llama3.2 --base-url http://localhost:11434/v1

It needs the extra `mcp`. The server is this file, started as a process of its own.
"""

from __future__ import annotations

import argparse
import sys

import anyio
from pydantic import BaseModel, Field

from graphagent import Agent
from graphagent.events import ToolReturned
from graphagent.llm import ToolCall
from graphagent.llm.openai import OpenAIModel
from graphagent.mcp import MCPServer
from graphagent.testing import ScriptedModel
from graphagent_strategies import single_run


class Weather(BaseModel):
    """The weather of a place. The server tells its clients this schema."""

    place: str
    temperature: float = Field(description="in degrees Celsius")
    humidity: int = Field(description="in per cent", ge=0, le=100)


def serve() -> None:
    """Serve one tool, on standard input and output."""
    from mcp.server import MCPServer as Server

    server = Server("weather", log_level="ERROR")

    @server.tool()
    def get_weather(city: str) -> Weather:
        """Return the weather of a city."""
        return Weather(place=city, temperature=22.5, humidity=65)

    server.run("stdio")


async def main(options: argparse.Namespace) -> None:
    """Ask a question that needs the tool and some arithmetic."""
    script = [ToolCall("get_weather", {"city": "Tokyo"}), "It is 72.5 degrees Fahrenheit in Tokyo."]
    model = OpenAIModel(options.model, base_url=options.base_url) if options.model else ScriptedModel(script)
    weather = MCPServer.stdio(sys.executable, __file__, "--serve", name="weather")
    async with Agent(single_run(), model=model, tools=[weather]) as agent:
        agent.on(ToolReturned, lambda event: print(event.result.content))
        print((await agent.run("What is the temperature in Tokyo, in degrees Fahrenheit?")).output)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model")
    parser.add_argument("--base-url")
    parser.add_argument("--serve", action="store_true", help="be the server")
    given = parser.parse_args()
    if given.serve:
        serve()
    else:
        anyio.run(main, given)
