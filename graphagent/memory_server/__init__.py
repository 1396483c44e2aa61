"""A memory as a server of the Model Context Protocol, for hosts such as desktop assistants and editors: `graphagent mcp`.

The whole room needs the extra `mcp`.
"""

from __future__ import annotations

from graphagent.memory_server._server import MemoryServer as MemoryServer
