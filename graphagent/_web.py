"""What servers over HTTP share: who may connect, from where, and until when it is served. Nothing here needs an extra but `serve`."""

from __future__ import annotations

import hmac
import socket
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from ipaddress import ip_address
from typing import TYPE_CHECKING

import anyio
from anyio.lowlevel import checkpoint

from graphagent._raised import ungrouped

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

_SHORTEST_TOKEN = 16
_GRACE = 3
"""How many seconds requests have to end when a server is stopped."""
_LAST_WORD = 1
"""How many seconds a client has to receive the answer that the server is being stopped."""
_LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
OF_THIS_MACHINE = tuple(f"{name}:*" for name in _LOOPBACK)
"""The values of the header `Host` by which browsers and clients on this machine name it, at any port."""


def check_token(token: str | None) -> None:
    """Check a token, if there is one.

    Raises:
        ValueError: it is too short, or cannot stand in a header.
    """
    if token is not None and (len(token) < _SHORTEST_TOKEN or not (token.isascii() and token.isprintable())):
        raise ValueError(
            f"the token must have at least {_SHORTEST_TOKEN} printable ASCII characters; make one with: openssl rand -hex 32"
        )


def is_bearer(scope: Scope, token: str) -> bool:
    """Return whether a request has a token in its header `Authorization`."""
    return hmac.compare_digest(header(scope, b"authorization"), f"Bearer {token}".encode())


def header(scope: Scope, name: bytes) -> bytes:
    """Return a header of a request; of several, the last one."""
    found: bytes = dict(scope["headers"]).get(name, b"")
    return found


async def refuse(send: Send, status: int, reason: str, *headers: tuple[bytes, bytes]) -> None:
    """Answer a request with the reason why nothing is done for it."""
    given = [(b"content-type", b"text/plain; charset=utf-8"), *headers]
    await send({"type": "http.response.start", "status": status, "headers": given})
    await send({"type": "http.response.body", "body": reason.encode()})


class Guard:
    """Refuses requests that were sent to another name than those of the server, or by pages of other sites.

    A web page can lead a browser to a server on its own machine, under a name of the page's choice; the two headers tell.

    Args:
        app: The application to guard.
        hosts: The values of the header `Host` that are accepted; `:*` stands for any port.
        origins: Other sites whose pages may send requests.
    """

    def __init__(self, app: ASGIApp, hosts: Sequence[str], origins: Sequence[str] = ()) -> None:
        self._app, self._hosts = app, hosts
        self._origins = [*(f"{scheme}://{host}" for scheme in ("http", "https") for host in hosts), *origins]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            host, origin = (header(scope, name).decode("latin-1") for name in (b"host", b"origin"))
            if not _fits(host, self._hosts):
                await refuse(send, 421, "This server is not known by this name.")
                return
            if origin and not _fits(origin, self._origins):
                await refuse(send, 403, "Pages of other sites may not use this server.")
                return
        await self._app(scope, receive, send)


class Ending:
    """Ends the open requests when a server is stopped: streams of news at once, all others after a time of grace.

    A request whose client leaves before all of it came is not answered.

    Args:
        app: The application that answers the requests.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._answering: dict[anyio.CancelScope, bool] = {}
        """The open requests, and whether each is answered with a stream of news."""
        self._stopped = anyio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        is_whole = is_started = is_complete = False

        async def receiving() -> Message:
            nonlocal is_whole
            message = await receive()
            if message["type"] == "http.disconnect" and not is_whole:
                answering.cancel()
                await checkpoint()
            is_whole = not message.get("more_body", False)
            return message

        async def sending(message: Message) -> None:
            nonlocal is_started, is_complete
            if message["type"] == "http.response.start":
                is_started = True
                kind = dict(message.get("headers", ())).get(b"content-type", b"")
                self._answering[answering] = scope["method"] == "GET" and kind.startswith(b"text/event-stream")
            await send(message)
            is_complete = message["type"] == "http.response.body" and not message.get("more_body", False)

        with anyio.CancelScope() as answering:
            self._answering[answering] = False
            try:
                await self._app(scope, receiving, sending)
            finally:
                del self._answering[answering]
        if answering.cancelled_caught and not is_complete:
            with anyio.move_on_after(_LAST_WORD):
                if is_started:
                    await send({"type": "http.response.body", "body": b""})
                else:
                    await refuse(send, 503, "The server is being stopped.")

    def stop(self) -> None:
        """Have all open requests end."""
        self._stopped.set()

    async def stopping(self) -> None:
        """Wait for `stop`, and end the open requests."""
        await self._stopped.wait()
        for answering in [each for each, is_stream in self._answering.items() if is_stream]:
            answering.cancel()
        await anyio.sleep(_GRACE)
        for answering in self._answering:
            answering.cancel()


def _fits(given: str, accepted: Sequence[str]) -> bool:
    name, colon, port = given.rpartition(":")
    return given in accepted or (bool(colon) and port.isdecimal() and f"{name}:*" in accepted)


async def serve(
    app_for: Callable[[Sequence[str]], ASGIApp],
    host: str,
    port: int,
    *,
    token: str | None,
    hosts: Sequence[str],
    on_started: Callable[[str], object],
) -> None:
    """Serve until the task is cancelled; requests that are being answered have some seconds to end.

    Args:
        app_for: Returns the application for the values of the header `Host` that it accepts.
        host: The address to listen at.
        port: The port to listen at; 0 takes a free one.
        token: Without one, the address must be of this machine alone.
        hosts: Further names of the server.
        on_started: Called with the URL of the server once it listens.

    Raises:
        ValueError: the address can be reached by other machines, without a token; or it stands for all addresses, and no
            `hosts` are named.
        OSError: the address cannot be listened at.
    """
    import uvicorn

    class Server(uvicorn.Server):
        """Leaves signals to whoever calls it."""

        @contextmanager
        def capture_signals(self) -> Generator[None, None, None]:
            yield

    own = is_loopback(host)
    if not own and token is None:
        raise ValueError(f"other machines can reach {host!r}; give a token, or listen at 127.0.0.1")
    if not hosts and host in ("", "0.0.0.0", "::"):  # noqa: S104  it is refused
        raise ValueError(
            f"{host!r} is every address of this machine; name the hosts by which clients reach it: memory.example.org"
        )
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.create_server((host, port), family=family) as listening:
        port = listening.getsockname()[1]
        shown = f"[{host}]" if ":" in host else host
        names = [*(_LOOPBACK if own else (shown,)), *hosts]
        accepted = [each for name in names for each in (name, f"{name}:{port}")]
        app = Ending(app_for(accepted))
        config = uvicorn.Config(
            app, log_config=None, access_log=False, ws="none", server_header=False, timeout_graceful_shutdown=_GRACE + 2 * _LAST_WORD,
        )  # fmt: skip
        server = Server(config)

        async def work() -> None:
            with anyio.CancelScope(shield=True):
                async with anyio.create_task_group() as stopping:
                    stopping.start_soon(app.stopping)
                    await server.serve(sockets=[listening])
                    stopping.cancel_scope.cancel()
            group.cancel_scope.cancel()

        with ungrouped():
            async with anyio.create_task_group() as group:
                group.start_soon(work)
                try:
                    on_started(f"http://{shown}:{port}")
                    await anyio.sleep_forever()
                finally:
                    server.should_exit = True
                    app.stop()


def is_loopback(host: str) -> bool:
    """Return whether only this machine reaches an address."""
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False
