"""A server of the package mcp whose tools ask the user in the middle of their work: `python elicits.py stdio` or `http PORT`.

`again` may be called again, `once` may not. Calls are written to the file `$LOG`.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from mcp.server import MCPServer
from mcp.server.mcpserver import Context  # noqa: TC002  the package reads the annotations of tools
from mcp_types import ToolAnnotations
from pydantic import BaseModel

server = MCPServer("elicits", log_level="CRITICAL")


class Sure(BaseModel):
    """What the user is asked."""

    sure: bool


def log(what: str) -> None:
    with Path(os.environ["LOG"]).open("a") as file:
        file.write(f"{what}\n")


async def asked(ctx: Context, name: str) -> str:
    log(name)
    answer = await ctx.elicit("Sure?", Sure)
    return f"{answer.action} {answer.data.sure}" if answer.action == "accept" else answer.action


@server.tool(annotations=ToolAnnotations(idempotent_hint=True))
async def again(ctx: Context) -> str:
    """Ask, and may be called again."""
    return await asked(ctx, "again")


@server.tool()
async def once(ctx: Context) -> str:
    """Ask."""
    return await asked(ctx, "once")


if __name__ == "__main__":
    if sys.argv[1] == "http":
        server.run("streamable-http", host="127.0.0.1", port=int(sys.argv[2]))
    else:
        server.run("stdio")
