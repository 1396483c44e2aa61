"""Servers of the Model Context Protocol as sources of tools: `Agent(strategy, tools=[MCPServer.stdio("python", "server.py")])`."""

from __future__ import annotations

from graphagent.mcp._auth import OAuth as OAuth
from graphagent.mcp._server import MCPServer as MCPServer
from graphagent.mcp._server import MCPServerOptions as MCPServerOptions
