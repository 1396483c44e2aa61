#!/usr/bin/env bash
# A tool of an MCP server that asks the user something in the middle of its work: `await ctx.elicit(…)`.
# Guess: a client with an elicitation callback answers, in whatever mode it is connected.
# What happens: in the default mode the server cannot ask: NoBackChannelError, and the call fails. The same client with mode="legacy" is
#   asked and answers. A server declares a question in advance to be asked in the default mode.
# For users: a server that asked well with earlier versions of the package fails as soon as client and server both speak the new protocol.
# In graphagent: servers are connected in the default mode; docs/mcp.md, Questions, says which of their ways to ask work.
set -euo pipefail

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv"
"$folder/venv/bin/pip" install --quiet --disable-pip-version-check mcp==2.3.0
cd "$folder"

cat >program.py <<'PYTHON'
import sys
from importlib.metadata import version


def compare(what, seen, recorded):
    print(f"seen: {what}: {seen}")
    if seen != recorded:
        sys.exit(f"CHANGED: it was {recorded}")


import anyio
from mcp import types
from mcp.client.client import Client
from mcp.server.mcpserver import Context, MCPServer
from pydantic import BaseModel

print("mcp", version("mcp"))
print("guess: hello Ada, twice")

server = MCPServer("greetings", log_level="CRITICAL")


class Name(BaseModel):
    name: str


@server.tool()
async def hello(ctx: Context) -> str:
    """Greet the user."""
    answer = await ctx.elicit("Who are you?", Name)
    return f"hello {answer.data.name}"


async def answer(context, params):
    return types.ElicitResult(action="accept", content={"name": "Ada"})


async def main(mode):
    async with Client(server, mode=mode, elicitation_callback=answer) as client:
        try:
            result = await client.call_tool("hello", {})
        except Exception as error:
            return type(error).__name__
        return result.content[0].text


compare("the default mode", anyio.run(main, "auto"), "NoBackChannelError")
compare("mode='legacy'", anyio.run(main, "legacy"), "hello Ada")
PYTHON
venv/bin/python program.py
