"""A connection to an MCP server: a client in one event loop, owned by a task of its own, since its scopes must not cross tasks."""

from __future__ import annotations

import math
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from contextvars import Context
from typing import TYPE_CHECKING, Any, cast

import anyio
from anyio.abc import ObjectReceiveStream
from mcp import Client, MCPError
from mcp.client.caching import CacheConfig
from mcp_types import CONNECTION_CLOSED, Implementation
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from graphagent._article import counted
from graphagent._concurrency import OwnTask
from graphagent._version import __version__
from graphagent.errors import GraphAgentError, ToolServerError
from graphagent.mcp._answers import fault_of, settled
from graphagent.mcp._transports import Exchange, Streams, Transport, exchange

if TYPE_CHECKING:
    from mcp.client.session import ElicitationFnT
    from mcp_types import CallToolResult

    from graphagent.mcp._auth import Access

_DAY = 24 * 60 * 60 * 1000
"""The longest time, in milliseconds, for which a list of tools is kept: the SDK allows no more."""


class MCPConnection:
    """A connection. It is opened at once, and ends when it is closed, when the server ends it, or with its event loop."""

    def __init__(
        self, server: str, transport: Transport, access: Access | None, start_timeout: float | None, elicit: ElicitationFnT,
        *, legacy: bool,
    ) -> None:  # fmt: skip
        self._server = server
        self._elicit = elicit
        self._transport = transport
        self.is_legacy = legacy or transport.is_legacy
        """Whether the connection uses, or is to use, an earlier version of the protocol."""
        self._access = access
        self._start_timeout = start_timeout
        self._opened, self._over = anyio.Event(), anyio.Event()
        self._client: Client | None = None
        self._failure: BaseException | None = None
        self._exchange = Exchange()
        self._timed_out = self._dismissed = False
        self._rubbish = 0
        self._users = 0
        # A connection outlives the run that opens it, so nothing that it does belongs to the trace of that run.
        self.task = OwnTask(self._own, Context())

    @property
    def is_usable(self) -> bool:
        """Whether the connection is open, or being opened, in the event loop of the caller."""
        return self.task.is_running and self.is_open and not self._dismissed

    @property
    def is_open(self) -> bool:
        """Whether neither side has ended the connection."""
        return not self._over.is_set()

    @asynccontextmanager
    async def client(self) -> AsyncGenerator[Client]:
        """Yield the client. Within the block the connection stays open even if it is dismissed.

        Raises:
            ToolServerError: The connection could not be opened.
        """
        self._users += 1
        try:
            await self._opened.wait()
            if self._client is None:
                noted = self._exchange
                if isinstance(noted.error, GraphAgentError):  # of the store, or of the server of OAuth
                    raise noted.error
                why = self._transport.failure(noted.error or self._failure, noted.status)
                why = self.too_slow("") if self._timed_out else why
                raise ToolServerError(self._server, why, status=noted.status) from noted.refused
            yield self._client
        finally:
            self._users -= 1
            if self._dismissed and not self._users:
                self._over.set()

    async def aclose(self) -> None:
        """Close the connection as soon as it is unused; if it is unused already, return when it is closed."""
        self.dismiss()
        if self._client is None:
            await self.task.stop()
        elif not self._users:
            await self.task.wait()

    def dismiss(self) -> None:
        """Have the connection closed as soon as it is unused. Pending calls finish first, and new ones use another connection."""
        self._dismissed = True
        if not self._users:
            self._over.set()

    def too_slow(self, asked: str) -> str:
        """Return the message that the server did not answer in time."""
        during = "" if self._client is None else f" when {asked}"
        heard = "; its output is not the protocol, whose messages alone belong on stdout" if self._rubbish else ""
        within = counted(self._start_timeout or 0, "second")
        return f"did not answer within {within}{during}{heard}; try again, or give it start_timeout="

    def heard(self, item: object) -> object:
        """Return a message of the server in the form for the request that waits for it; None if no request can get it."""
        try:
            found = settled(item)
        except RecursionError:
            self.ended()  # the receiver is unknown
            return None
        if isinstance(found, Exception):
            self._rubbish += 1  # servers print to their stdout by mistake
            return None
        return found

    def ended(self) -> None:
        """Record that the server ended the connection."""
        if self._client is not None:  # until then, it may be begun in another way
            self._over.set()

    async def _own(self) -> None:
        self._exchange = exchange()
        deadline = anyio.current_time() + (self._start_timeout or math.inf)
        try:
            with anyio.CancelScope(deadline=deadline) as limit:
                try:
                    await self._use("legacy" if self.is_legacy else "auto", limit)
                except Exception as error:
                    # Servers of earlier versions may end at any other message than `initialize`.
                    if self._client is not None or self.is_legacy or not is_end(_first(error)):
                        raise
                    await self._use("legacy", limit)
            self._timed_out = limit.cancelled_caught and self._client is None
        except Exception as error:  # noqa: BLE001  raised where the connection is used, since this task is not awaited
            self._failure = _first(error)
        finally:
            if self._client is None and self._exchange.refused is None:
                self._transport.is_legacy = False
            self._over.set()
            self._opened.set()

    async def _use(self, mode: str, limit: anyio.CancelScope) -> None:
        """Open the connection, and keep it open until it should end."""
        client = Client(
            self._streams(),
            mode=mode,
            client_info=Implementation(name="graphagent", version=__version__),
            elicitation_callback=self._elicit,
            # A list without a time of its own is kept until the server says that it has changed.
            cache=CacheConfig(default_ttl_ms=_DAY),
        )
        async with client:
            client.session.validate_tool_result = _checked_elsewhere  # type: ignore[method-assign]  # an option does not exist
            limit.deadline = math.inf
            # Some servers never answer unknown requests: the next connection does not wait for that again.
            self.is_legacy = self._transport.is_legacy = client.protocol_version not in MODERN_PROTOCOL_VERSIONS
            self._client = client
            self._opened.set()
            async with anyio.create_task_group() as group:
                group.start_soon(_hear_changes, client)
                await self._over.wait()
                group.cancel_scope.cancel()

    @asynccontextmanager
    async def _streams(self) -> AsyncGenerator[Streams]:
        async with self._transport.open(self._access) as (received, sent):
            yield _Received(received, self), sent


async def _checked_elsewhere(name: str, result: CallToolResult) -> None:
    """Leave the check of structured content to the tool: here, it would read patterns as if they were Python's."""


async def _hear_changes(client: Client) -> None:
    """Subscribe the client to changes of the list that it caches. In earlier versions, servers announce them unasked."""
    tools = client.server_capabilities.tools
    if tools is None or not tools.list_changed:
        return
    with suppress(MCPError, RuntimeError, TimeoutError):
        async with client.listen(tools_list_changed=True) as changes:
            async for _ in changes:
                pass  # the client forgets the list before it tells of the change


def _first(error: BaseException | None) -> BaseException | None:
    """Return the first error in the exception groups of task groups."""
    while isinstance(error, BaseExceptionGroup):
        error = cast("BaseExceptionGroup[BaseException]", error).exceptions[0]
    return error


def is_end(error: BaseException | None) -> bool:
    """Return whether an error says that the server ended the connection."""
    return isinstance(error, MCPError) and error.code == CONNECTION_CLOSED and fault_of(error) is None


class _Received(ObjectReceiveStream[Any]):
    """A stream in which every answer, even an unreadable one, reaches the request that waits for it, and no other."""

    def __init__(self, inner: Any, connection: MCPConnection) -> None:
        self._inner = inner
        self._connection = connection

    async def receive(self) -> Any:
        try:
            while (found := self._connection.heard(await self._inner.receive())) is None:
                pass
        except (anyio.EndOfStream, anyio.ClosedResourceError):
            self._connection.ended()
            raise
        return found

    async def aclose(self) -> None:
        await self._inner.aclose()

    def __getattr__(self, name: str) -> Any:  # such as the context of the sender
        return getattr(self._inner, name)
