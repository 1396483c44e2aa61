"""How an MCP server is reached: in a process of its own, or over HTTP."""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any, Protocol, TextIO
from urllib.parse import urlsplit

import httpx2
from mcp import MCPError, StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp_types import CONNECTION_CLOSED

Streams = tuple[Any, Any]
"""The stream of messages that a server sends, and the stream of those that it is sent."""

_REPLY = 30
"""Seconds that a server may take to accept a connection, or a request."""
_PAUSE = 300
"""Seconds for which a server may send nothing while it is being waited for: most send a sign of life in between."""
_GOODBYE = 5
"""Seconds that a server may take to end a session: whoever closes the connection waits for it."""
_LARGEST = 64 * 1024 * 1024
"""The largest message over HTTP, in bytes."""
_statuses: ContextVar[list[int] | None] = ContextVar("statuses", default=None)


class Transport(Protocol):
    """How a server is reached."""

    def open(self) -> AbstractAsyncContextManager[Streams]:
        """Open the streams."""
        ...

    def failure(self, error: BaseException | None, status: int | None) -> str:
        """Return why it could not be opened, or ended, without what is secret. `status` is that of the last response over HTTP."""
        ...


class Stdio:
    """A server in a process of its own, which is spoken to over its standard input and output."""

    def __init__(
        self, command: str, arguments: tuple[str, ...], env: Mapping[str, str], cwd: Path | str | None
    ) -> None:
        self.command = command
        if not all(isinstance(each, str) for each in (command, *arguments, *env, *env.values())):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(
                "a command, its arguments and the variables of env= are texts; write str(…)"
            )  # they may be secret
        # Otherwise, a byte that is not UTF-8 ends what reads its output, and nobody hears of it.
        self._parameters = StdioServerParameters(
            command=command, args=list(arguments), env=dict(env), cwd=cwd, encoding_error_handler="replace"
        )

    def open(self) -> AbstractAsyncContextManager[Streams]:
        """Start the process."""
        return stdio_client(self._parameters, errlog=_stderr())

    def failure(self, error: BaseException | None, status: int | None) -> str:
        """Return why the process could not be started, or ended."""
        if isinstance(error, FileNotFoundError | NotADirectoryError):
            return f"cannot be started: there is no program {self.command!r}, or cwd= is no folder"
        if isinstance(error, OSError | ValueError):
            return f"cannot be started ({type(error).__name__}); check the command {self.command!r}, env= and cwd="
        if isinstance(error, MCPError) and error.code != CONNECTION_CLOSED:
            return f"refused the connection (code {error.code}); check that {self.command!r} starts an MCP server"
        return f"ended before it answered; start {self.command!r} by hand to see why (it prints to stderr)"


class Http:
    """A server that is spoken to over streamable HTTP."""

    def __init__(self, url: str, headers: Mapping[str, str]) -> None:
        """Set the address, and headers of each request.

        Raises:
            ValueError: it is no address. It is not shown: it may hold a password.
        """
        try:
            parts = urlsplit(url)
            known = parts.scheme in ("http", "https") and parts.hostname
        except ValueError:
            known = None
        if not known:
            raise ValueError("url is no address such as 'http://localhost:8000/mcp'")
        self.host = known
        self._url = url
        self._headers = dict(headers)

    @asynccontextmanager
    async def open(self) -> AsyncGenerator[Streams]:
        """Open a client of HTTP, which connects with its first request."""
        timeout = httpx2.Timeout(_REPLY, read=_PAUSE)
        hooks = {"response": [_note_status]}
        async with (
            httpx2.AsyncClient(headers=self._headers, timeout=timeout, event_hooks=hooks) as client,
            streamable_http_client(self._url, http_client=client, max_sse_event_size=_LARGEST) as streams,
        ):
            try:
                yield streams
            finally:
                client.timeout = httpx2.Timeout(_GOODBYE)

    def failure(self, error: BaseException | None, status: int | None) -> str:
        """Return why the server could not be reached, or refused."""
        if status is not None and status >= 300:
            return f"at {self.host} answered {status}{advice(status)}"
        if isinstance(error, MCPError):
            return f"at {self.host} refused the connection (code {error.code}); check that the url is that of an MCP server"
        return (
            f"at {self.host} cannot be reached ({type(error).__name__}); check the url, and that the server is running"
        )


def statuses() -> list[int]:
    """Return a new list, to which the statuses of responses to requests of this task are added from now on."""
    found: list[int] = []
    _statuses.set(found)
    return found


async def _note_status(response: Any) -> None:
    found = _statuses.get()  # the client sends each message in the context of the task that made it
    if found is not None:
        found.append(response.status_code)


def advice(status: int) -> str:
    """Return what to do about a status of HTTP."""
    if status in (401, 403):
        return ": check headers=, such as {'Authorization': 'Bearer …'}"
    if status in (404, 405) or 300 <= status < 400:
        return ": check the url (most end in /mcp)"
    return ": the server failed" if status >= 500 else ""


def _stderr() -> TextIO:
    """Return the stderr of this process, for that of a server: a notebook's, or a test's, is no file."""
    return sys.__stderr__ or sys.stderr
