#!/usr/bin/env bash
# A tool of an MCP server with a parameter `text: str | None`, as one declares an optional text, beside one with `text: str`.
# Guess: both get the text that the client sent, as it was sent.
# What happens: texts that are JSON arrays, objects or null are read as JSON before they are checked, unless the annotation is exactly `str`. So
#   the text null arrives as None, without an error, and {"a": 1} or [1] is refused: "Input should be a valid string". Texts that are JSON
#   numbers, strings or booleans arrive as they are. The schema that the server publishes says of both that they are texts.
# For users: a value that is the word null counts as not given, so that "delete only this one" deletes all. An optional text cannot be a file
#   with JSON, or a list in brackets: the model is told that it is not a string, although it is one, and sends it again.
# In graphagent: the tools of the memory server take optional texts as they were sent (graphagent/memory_server/_tools.py;
#   tests/memory_server/test_tools.py::test_a_text_that_is_json_stays_a_text).
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
from mcp.client.client import Client
from mcp.server.mcpserver import MCPServer

print("mcp", version("mcp"))
print("guess: the text, four times in both columns")

server = MCPServer("texts", log_level="CRITICAL")


@server.tool()
def needed(text: str) -> str:
    return f"got {text!r}"


@server.tool()
def optional(text: str | None = None) -> str:
    return f"got {text!r}"


async def main():
    async with Client(server) as client:
        seen = {}
        for text in ("true", "null", "[1]", '{"a": 1}'):
            results = [await client.call_tool(tool, {"text": text}) for tool in ("needed", "optional")]
            seen[text] = ["refused" if each.is_error else each.content[0].text for each in results]
        return seen


seen = anyio.run(main)
compare("the text true", seen["true"], ["got 'true'", "got 'true'"])
compare("the text null", seen["null"], ["got 'null'", "got None"])
compare("the text [1]", seen["[1]"], ["got '[1]'", "refused"])
compare('the text {"a": 1}', seen['{"a": 1}'], ["""got '{"a": 1}'""", "refused"])
PYTHON
venv/bin/python program.py
