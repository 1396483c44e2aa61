"""A real MCP server, over stdio or streamable HTTP: `python server.py [stdio | http PORT]`.

What it does is written to the file `$LOG`. Over HTTP it takes requests with the key `$KEY` alone, if there is one.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import anyio
import uvicorn
from mcp.server import MCPServer
from mcp.server.caching import CacheHint
from mcp.server.mcpserver import Context, Image
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import ToolAnnotations
from pydantic import BaseModel

PIXEL = bytes.fromhex(
    "89504e470d0a1a0a0000000d4948445200000001000000010802000000907753de0000000c4944415408d763f8cfc0000003010100"
    "c9fe92ef0000000049454e44ae426082"
)
server = MCPServer("tests", log_level="CRITICAL", cache_hints={"tools/list": CacheHint(ttl_ms=3_600_000)})


def log(what):
    if "LOG" in os.environ:
        with Path(os.environ["LOG"]).open("a") as file:
            file.write(f"{what}\n")


log("started")


@server.tool(annotations=ToolAnnotations(read_only_hint=True))
def add(a: int, b: int) -> int:
    """Add two numbers."""
    log(f"add {a} {b}")
    return a + b


@server.tool()
def delete(name: str) -> str:
    """Delete something."""
    log(f"delete {name}")
    return f"{name} is gone"


@server.tool(annotations=ToolAnnotations(destructive_hint=False))
def pid() -> str:
    """Return the id of the server's process."""
    return str(os.getpid())


@server.tool()
def die(times: int) -> str:
    """End the process, so many times."""
    log("die")
    if Path(os.environ["LOG"]).read_text().count("die\n") <= times:
        os._exit(3)
    return "alive"


@server.tool()
def text(size: int) -> str:
    """Return a long text."""
    return "x" * size


@server.tool()
def picture() -> list:
    """Return a text and a picture."""
    return ["a pixel", Image(data=PIXEL, format="png")]


class Weather(BaseModel):
    degrees: int


@server.tool()
def weather(city: str) -> Weather:
    """Return the weather."""
    return Weather(degrees=len(city))


@server.tool()
def fail() -> str:
    """Fail."""
    raise ToolError("no such city")


@server.tool()
async def slow(seconds: float, ctx: Context) -> str:
    """Take a while."""
    log("slow")
    await ctx.report_progress(1, 2, "half of it")
    try:
        await anyio.sleep(seconds)
    except anyio.get_cancelled_exc_class():
        log("cancelled")
        raise
    return "done"


@server.tool()
async def grow(ctx: Context) -> str:
    """Have one more tool from now on."""
    server.add_tool(add, name="add_more")
    await ctx.notify_tools_changed()
    return "grown"


def locked(app):
    """Refuse requests without the key."""

    async def checked(scope, receive, send):
        given = dict(scope.get("headers", ())).get(b"authorization", b"").decode()
        if scope["type"] == "http" and os.environ.get("KEY", given) != given:
            await send({"type": "http.response.start", "status": 401, "headers": []})
            await send({"type": "http.response.body", "body": b"no: " + given.encode()})
        else:
            await app(scope, receive, send)

    return checked


if __name__ == "__main__":
    if sys.argv[1] == "stdio":
        server.run("stdio")
    else:
        uvicorn.run(
            locked(server.streamable_http_app(stateless_http=True)), port=int(sys.argv[2]), log_level="critical"
        )
