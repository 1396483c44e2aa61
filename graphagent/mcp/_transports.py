"""How an MCP server is reached, and all of it that concerns HTTP."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, cast
from urllib.parse import urlsplit

import anyio
import httpx2
from mcp import MCPError
from mcp.client.streamable_http import streamable_http_client

from graphagent.mcp._responses import LARGEST_BODY, OF_BODY, Refused, read, refused_by

if TYPE_CHECKING:
    from anyio.abc import TaskGroup

    from graphagent.mcp._auth import Access

Streams = tuple[Any, Any]
"""The stream of messages from a server, and the stream of messages to it."""

LARGEST = 64 * 1024 * 1024
"""The largest message of a server, in bytes."""
_NOTICE = 5
"""Seconds that a server may take to accept a message without an answer, and to end a session: others wait for that."""
_IN_ONE_LINE = bytes.maketrans(b"\r\n", b"  ")
_EVENTS = {"content-type": "text/event-stream"}


class Transport(Protocol):
    """How a server is reached."""

    is_legacy: bool
    """Whether it was found to speak an earlier version of the protocol, which begins with `initialize`."""

    def open(self, access: Access | None) -> AbstractAsyncContextManager[Streams]:
        """Open the streams, over HTTP with the access of an owner."""
        ...

    def failure(self, error: BaseException | None, status: int) -> str:
        """Return why the connection could not be opened, or ended, without secrets. `status` is that of the last response over HTTP."""
        ...


@dataclass
class Exchange:
    """The outcome of the last request of a task over HTTP."""

    status: int = 0
    """The status of the response; 0 if there was none."""
    is_answer: bool = True
    """Whether the response answers the request. Otherwise it is one of the web, or of a server that did not read the request."""
    words: str = ""
    """The error of a response that is not an answer."""
    is_lost: bool = False
    """Whether the server does not know the session any more, and so did nothing."""
    error: Exception | None = None
    """Why there was no response."""
    refused: Refused | None = None
    """That it was refused, if another token may help."""
    is_given_up: bool = False
    """Whether no request waits for the answer any more."""


_exchange: ContextVar[Exchange | None] = ContextVar("exchange", default=None)


def exchange() -> Exchange:
    """Return a new exchange, which has the outcome of the requests of this task from now on."""
    found = Exchange()
    _exchange.set(found)  # the client sends each message in the context of the task that made it
    return found


class Http:
    """A server that is spoken to over streamable HTTP."""

    def __init__(self, url: str, headers: Mapping[str, str], timeout: float | None) -> None:
        """Set the address, headers of each request, and the seconds that a call may take.

        Raises:
            ValueError: `url` is not an address. The error does not contain it, since it may hold a password.
        """
        try:
            parts = urlsplit(url)
            known = parts.scheme in ("http", "https") and parts.hostname
        except ValueError:
            known = None
        if not known:
            raise ValueError("url is not an address such as 'http://localhost:8000/mcp'")
        self.host = known
        self.url = url
        self._headers = dict(headers)
        self._timeout = timeout
        self.is_legacy = False

    @asynccontextmanager
    async def open(self, access: Access | None) -> AsyncGenerator[Streams]:
        """Open a client of HTTP, which connects with its first request."""
        # The wait for its answer limits the time of a request. Calls that hang must not keep others from being made.
        timeout, limits = httpx2.Timeout(None, read=self._timeout), httpx2.Limits(max_keepalive_connections=20)
        async with (
            _Client(headers=self._headers, auth=access, timeout=timeout, limits=limits) as client,
            streamable_http_client(self.url, http_client=client, max_sse_event_size=LARGEST) as streams,
            anyio.create_task_group() as group,
        ):
            client.group, client.access = group, access
            try:
                yield streams
            finally:
                group.cancel_scope.cancel()
                client.timeout = httpx2.Timeout(_NOTICE)

    def failure(self, error: BaseException | None, status: int) -> str:
        """Return why the server could not be reached, or refused."""
        if status >= 300:
            return f"at {self.host} answered {status}{advice(status)}"
        if isinstance(error, MCPError):
            return f"at {self.host} refused the connection (code {error.code}); check that the url is that of an MCP server"
        return (
            f"at {self.host} cannot be reached ({type(error).__name__}); check the url, and that the server is running"
        )


class _Client(httpx2.AsyncClient):
    """A client of HTTP in which no request ends the others: one that fails has a response without an answer."""

    group: TaskGroup
    access: Access | None

    async def send(self, request: httpx2.Request, **options: Any) -> httpx2.Response:
        """Send a request, and note its outcome."""
        noted = _exchange.get() or Exchange()
        if request.method != "POST":
            if request.method == "GET" and "last-event-id" not in request.headers:
                _wait(request)  # for messages that a server sends by itself
            elif request.method == "GET" and noted.is_given_up:
                raise httpx2.RequestError("no request waits for the rest of the answer")
            return await super().send(request, **options)
        message = json.loads(request.content)
        try:
            if message.get("method") == "notifications/cancelled":
                noted.is_given_up = True
                self.group.start_soon(self._tell, request)
                return httpx2.Response(202, request=request)
            if message.get("method") != "tools/call":
                _wait(request)
            # Later messages wait for those without an answer.
            with anyio.move_on_after(None if "method" in message and "id" in message else _NOTICE):
                noted.error = None
                response = await self._allowed(request, noted, **options)
                return await _answered(response, message, noted)
        except Exception as error:  # noqa: BLE001  it is noted; raised, it would end the requests of all
            noted.error = error
        return httpx2.Response(200, headers=_EVENTS, request=request)

    async def _allowed(self, request: httpx2.Request, noted: Exchange, **options: Any) -> httpx2.Response:
        """Send a request, again if the token that it carried was refused and there is another one, or can be got without the owner."""
        response = await super().send(request, **options)
        if self.access is None or (refused := refused_by(response)) is None:
            return response
        noted.refused, response = refused, await read(response)  # it stays noted if the client tries earlier versions
        if refused.token and not refused.more and await self.access.refreshed(refused.token):
            response = await super().send(request, **options)
            noted.refused = refused_by(response)
        return response

    async def _tell(self, request: httpx2.Request) -> None:
        """Tell a server which request it need not answer."""
        with suppress(Exception), anyio.move_on_after(_NOTICE):  # raised, it would end the requests of all
            await (await super().send(request, stream=True)).aclose()


def _wait(request: httpx2.Request) -> None:
    """Let a server be silent for any time before it answers a request."""
    request.extensions["timeout"] = {**request.extensions["timeout"], "read": None}


async def _answered(response: httpx2.Response, message: Mapping[str, Any], noted: Exchange) -> httpx2.Response:
    """Note the kind of a response, and return one with the same answer, in a form that the client reads to its end in any case."""
    status, request = response.status_code, response.request
    kind = response.headers.get("content-type", "").lower()
    is_json = kind.startswith("application/json")
    if not (response.is_error and noted.status in (401, 403)):  # a client that is refused tries earlier versions, too
        noted.status = status
    noted.is_answer, noted.is_lost, noted.words = True, False, ""
    if response.is_success and (is_json or kind.startswith("text/event-stream")):
        events = _Events(response, noted, is_json)
        headers = {name: value for name, value in response.headers.items() if name not in OF_BODY}
        return httpx2.Response(status, headers=headers | _EVENTS, stream=events, request=request)
    if response.is_success:
        return response
    found = await read(response, LARGEST_BODY if response.is_error and is_json else 0)
    body = found.content
    said = _object(_object(body).get("error"))
    noted.is_answer = bool(said) and _object(body).get("id") == message.get("id")
    noted.words = str(said.get("message", ""))
    noted.is_lost = status in (400, 404) and not noted.is_answer and "mcp-session-id" in request.headers
    return found


def _object(given: object) -> Mapping[str, Any]:
    """Return a JSON object, given as it is or as bytes; an empty one if it is none."""
    if isinstance(given, bytes):
        try:
            given = json.loads(given)
        except ValueError:
            return {}
    return cast("dict[str, Any]", given) if isinstance(given, dict) else {}


class _Events(httpx2.AsyncByteStream):
    """The body of a response as a stream of events, which ends when no request waits for it any more.

    A body in JSON is one event: so it has the same limit, answers the request whose response it is, whatever id it has, and is
    an error of that request alone if it breaks off.
    """

    def __init__(self, response: httpx2.Response, noted: Exchange, is_json: bool) -> None:
        self._response = response
        self._noted = noted
        self._is_json = is_json
        self._pieces = self._read()

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self._pieces

    async def aclose(self) -> None:
        await self._pieces.aclose()
        await self._response.aclose()

    async def _read(self) -> AsyncGenerator[bytes]:
        begin, end = (b"data: ", b"\n\n") if self._is_json else (b"", b"")
        yield begin
        async with aclosing(self._response.aiter_bytes()) as pieces:
            async for each in pieces:
                if self._noted.is_given_up:
                    return
                yield each.translate(_IN_ONE_LINE) if self._is_json else each
        yield end


def advice(status: int) -> str:
    """Return the remedy for a status of HTTP."""
    if status in (401, 403):
        return ": check headers=, such as {'Authorization': 'Bearer …'}, or give auth=OAuth()"
    if status in (404, 405) or 300 <= status < 400:
        return ": check the url (most end in /mcp)"
    return ": the server failed" if status >= 500 else ""
