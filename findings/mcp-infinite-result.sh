#!/usr/bin/env bash
# A tool of an MCP server that is declared to return a float, and returns infinity.
# Guess: the client gets the text "inf", or an error of the tool that says so.
# What happens: the server writes null into the structured result, since pydantic does, and sends its own schema, which says number. The
#   client of the same package refuses the answer: RuntimeError, "None is not of type 'number'". Nobody learns which value it was.
# For users: a division by zero or an overflow in a tool is not an error of that tool, but a fault in the protocol.
# In graphagent: it is a ToolServerError of that call, which the model sees (graphagent/mcp/_server.py, tests/mcp/test_faults.py).
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


import math

import anyio
from mcp.client.client import Client
from mcp.server import MCPServer

print("mcp", version("mcp"))
print("guess: a result with the text inf, or with is_error")

server = MCPServer("ratios", log_level="CRITICAL")


@server.tool()
def ratio(a: float, b: float) -> float:
    """Divide."""
    return a / b if b else math.inf


async def main():
    async with Client(server) as client:
        compare("1 / 4", (await client.call_tool("ratio", {"a": 1, "b": 4})).structured_content, {"result": 0.25})
        try:
            found = repr(await client.call_tool("ratio", {"a": 1, "b": 0}))
        except RuntimeError as error:
            found = f"RuntimeError: {str(error).splitlines()[0]}"
        recorded = "RuntimeError: Invalid structured content returned by tool ratio: None is not of type 'number'"
        compare("1 / 0", found, recorded)


anyio.run(main)
PYTHON
venv/bin/python program.py
