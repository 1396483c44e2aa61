"""Streamable HTTP for a memory server: who may connect, from where, and until when it is served."""

from __future__ import annotations

import hmac
import socket
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any

import anyio
import uvicorn
from mcp.server.transport_security import TransportSecuritySettings
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import PlainTextResponse

from graphagent._raised import ungrouped

if TYPE_CHECKING:
    from mcp.server import MCPServer
    from starlette.types import ASGIApp, Receive, Scope, Send

_SHORTEST_TOKEN = 16
_GRACE = 3
"""How many seconds requests have to end when the server is stopped."""
_LOOPBACK = ("127.0.0.1", "localhost", "[::1]")


def guarded(mcp: MCPServer[Any], token: str | None, hosts: Sequence[str], origins: Sequence[str]) -> ASGIApp:
    """Return an application that checks the header `Host`, the header `Origin` and the token of each request.

    Raises:
        ValueError: the token is too short, or cannot stand in a header.
    """
    if token is not None and (len(token) < _SHORTEST_TOKEN or not (token.isascii() and token.isprintable())):
        raise ValueError(
            f"the token must have at least {_SHORTEST_TOKEN} printable ASCII characters; make one with: openssl rand -hex 32"
        )
    own_pages = [f"{scheme}://{host}" for scheme in ("http", "https") for host in hosts]
    security = TransportSecuritySettings(allowed_hosts=[*hosts], allowed_origins=[*own_pages, *origins])
    app: ASGIApp = mcp.streamable_http_app(transport_security=security)
    if token is not None:
        app = _Locked(app, token)
    if origins:
        app = CORSMiddleware(
            app, allow_origins=origins, allow_methods=["GET", "POST", "DELETE"], allow_headers=["*"],
            expose_headers=["Mcp-Session-Id"],
        )  # fmt: skip
    return app


class _Locked:
    """Refuses requests without the token."""

    def __init__(self, app: ASGIApp, token: str) -> None:
        self._app, self._expected = app, f"Bearer {token}".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            given: bytes = dict(scope["headers"]).get(b"authorization", b"")
            if not hmac.compare_digest(given, self._expected):
                refused = PlainTextResponse("A token is needed.", 401, {"WWW-Authenticate": "Bearer"})
                await refused(scope, receive, send)
                return
        await self._app(scope, receive, send)


async def serve(
    mcp: MCPServer[Any],
    host: str,
    port: int,
    token: str | None,
    hosts: Sequence[str],
    origins: Sequence[str],
    on_started: Callable[[str], object] | None,
) -> None:
    """Serve until the task is cancelled; requests that are being answered have some seconds to end.

    Raises:
        ValueError, OSError: as `MemoryServer.serve_http`.
    """
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
        config = uvicorn.Config(
            guarded(mcp, token, accepted, origins), log_config=None, access_log=False, ws="none", server_header=False,
            timeout_graceful_shutdown=_GRACE,
        )  # fmt: skip
        server = _Server(config)

        async def work() -> None:
            with anyio.CancelScope(shield=True):
                await server.serve(sockets=[listening])
            group.cancel_scope.cancel()

        with ungrouped():
            async with anyio.create_task_group() as group:
                group.start_soon(work)
                try:
                    if on_started is not None:
                        on_started(f"http://{shown}:{port}/mcp")
                    await anyio.sleep_forever()
                finally:
                    server.should_exit = True


def is_loopback(host: str) -> bool:
    """Return whether only this machine reaches an address."""
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


class _Server(uvicorn.Server):
    """Leaves signals to whoever calls it."""

    @contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield
