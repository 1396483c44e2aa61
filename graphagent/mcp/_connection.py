"""A connection to an MCP server: a client in one event loop, owned by a task of its own, since its scopes must not cross tasks."""

from __future__ import annotations

import math
import sys
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from importlib.metadata import version
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self, TextIO, cast

import anyio
from mcp import Client, MCPError, StdioServerParameters, stdio_client
from mcp.client.caching import CacheConfig
from mcp_types import CONNECTION_CLOSED, Implementation

from graphagent._concurrency import OwnTask
from graphagent.errors import ToolServerError

Streams = tuple[Any, Any]
"""The stream of messages that a server sends, and the stream of those that it is sent."""

_DAY = 24 * 60 * 60 * 1000
"""The longest time, in milliseconds, for which a list of tools is kept: the SDK allows no more."""


class Transport(Protocol):
    """How a server is reached."""

    def open(self) -> AbstractAsyncContextManager[Streams]:
        """Open the streams."""
        ...

    def failure(self, error: BaseException | None) -> str:
        """Return why it could not be opened, or ended, without what is secret."""
        ...


class MCPConnection:
    """A connection, which is opened at once and ends with its event loop, when it is closed, or when the server ends it."""

    def __init__(self, server: str, transport: Transport, start_timeout: float) -> None:
        self._server = server
        self._transport = transport
        self._start_timeout = start_timeout
        self._opened, self._over, self._closed = anyio.Event(), anyio.Event(), anyio.Event()
        self._client: Client | None = None
        self._failure: Exception | None = None
        self._timed_out = self._dismissed = False
        self._rubbish = 0
        self._users = 0
        self.task = OwnTask(self._own)

    @property
    def is_usable(self) -> bool:
        """Whether it is open, or being opened, in the event loop of the caller."""
        return self.task.is_running and not self._over.is_set() and not self._dismissed

    @property
    def is_open(self) -> bool:
        """Whether neither side has ended it."""
        return not self._over.is_set()

    @asynccontextmanager
    async def client(self) -> AsyncGenerator[Client]:
        """Yield the client. Within the block the connection stays open even if it is dismissed.

        Raises:
            ToolServerError: it could not be opened.
        """
        self._users += 1
        try:
            await self._opened.wait()
            if self._client is None:
                raise ToolServerError(self._server, self._why_not())
            yield self._client
        finally:
            self._users -= 1
            if self._dismissed and not self._users:
                self._over.set()

    async def aclose(self) -> None:
        """Close it as soon as nobody uses it; if nobody does, return when it is closed."""
        self._dismissed = True
        if self._client is None:
            await self.task.stop()
        elif not self._users:
            self._over.set()
            await self._closed.wait()

    def ended(self) -> None:
        """Note that the server ended it, or does not know it any more."""
        self._over.set()

    def _why_not(self) -> str:
        if self._timed_out:
            heard = (
                "; what it printed is not the protocol, whose messages alone belong on stdout" if self._rubbish else ""
            )
            return f"did not answer within {self._start_timeout:g} seconds{heard}; try again, or give it start_timeout="
        return self._transport.failure(_first(self._failure))

    async def _own(self) -> None:
        try:
            with anyio.CancelScope(deadline=anyio.current_time() + self._start_timeout) as limit:
                client = Client(
                    _Watched(self._transport.open(), self.ended),
                    message_handler=self._note,
                    client_info=Implementation(name="graphagent", version=version("graphagent")),
                    # A server that asks for input is refused in the first round.
                    input_required_max_rounds=0,
                    # A list without a time of its own is kept until the server says that it has changed.
                    cache=CacheConfig(default_ttl_ms=_DAY),
                )
                async with client:
                    limit.deadline = math.inf
                    self._client = client
                    self._opened.set()
                    await self._over.wait()
            self._timed_out = limit.cancelled_caught and self._client is None
        except Exception as error:  # noqa: BLE001  raised where the connection is used: nobody awaits this task
            self._failure = error
        finally:
            self._over.set()
            self._opened.set()
            self._closed.set()

    async def _note(self, message: object) -> None:
        """Count what is no message: servers print to their stdout by mistake."""
        self._rubbish += isinstance(message, Exception)


def _first(error: BaseException | None) -> BaseException | None:
    """Return the first of the errors that task groups have put together."""
    while isinstance(error, BaseExceptionGroup):
        error = cast("BaseExceptionGroup[BaseException]", error).exceptions[0]
    return error


class _Watched:
    """The streams of a transport, of which the end of the first is noticed: the client has no sign of it but errors of calls."""

    def __init__(self, inner: AbstractAsyncContextManager[Streams], ended: Callable[[], None]) -> None:
        self._inner = inner
        self._ended = ended

    async def __aenter__(self) -> Streams:
        received, sent = await self._inner.__aenter__()
        return _Received(received, self._ended), sent

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        return await self._inner.__aexit__(kind, error, trace)


class _Received:
    """A stream that says when it has ended."""

    def __init__(self, inner: Any, ended: Callable[[], None]) -> None:
        self._inner = inner
        self._ended = ended

    async def receive(self) -> Any:
        try:
            return await self._inner.receive()
        except (anyio.EndOfStream, anyio.ClosedResourceError):
            self._ended()
            raise

    async def aclose(self) -> None:
        await self._inner.aclose()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Any:
        try:
            return await self._inner.__anext__()
        except (StopAsyncIteration, anyio.ClosedResourceError):
            self._ended()
            raise

    def __getattr__(self, name: str) -> Any:  # such as the context of the sender
        return getattr(self._inner, name)

    async def __aenter__(self) -> Self:
        await self._inner.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        return cast("bool | None", await self._inner.__aexit__(kind, error, trace))


class Stdio:
    """A server in a process of its own, which is spoken to over its standard input and output."""

    def __init__(
        self, command: str, arguments: tuple[str, ...], env: Mapping[str, str], cwd: Path | str | None
    ) -> None:
        self.command = command
        # A mapping of its own, so that later changes of the caller's do not matter.
        self._parameters = StdioServerParameters(command=command, args=list(arguments), env=dict(env), cwd=cwd)

    def open(self) -> AbstractAsyncContextManager[Streams]:
        """Start the process."""
        return stdio_client(self._parameters, errlog=_stderr())

    def failure(self, error: BaseException | None) -> str:
        """Return why the process could not be started, or ended."""
        if isinstance(error, FileNotFoundError | NotADirectoryError):
            return f"cannot be started: there is no program {self.command!r}, or cwd= is no folder"
        if isinstance(error, OSError | ValueError):
            return f"cannot be started ({type(error).__name__}); check the command {self.command!r}, env= and cwd="
        if isinstance(error, MCPError) and error.code != CONNECTION_CLOSED:
            return f"refused the connection (code {error.code}); check that {self.command!r} starts an MCP server"
        return f"ended before it answered; start {self.command!r} by hand to see why (it prints to stderr)"


def _stderr() -> TextIO:
    """Return the stderr of this process, for that of a server: a notebook's, or a test's, is no file."""
    return sys.__stderr__ or sys.stderr
