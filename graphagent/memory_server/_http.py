"""Streamable HTTP for a memory server: the application, with its checks of each request."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from mcp.server.transport_security import TransportSecuritySettings
from starlette.middleware.cors import CORSMiddleware

from graphagent._web import Guard, check_token, is_bearer, refuse

if TYPE_CHECKING:
    from mcp.server import MCPServer
    from starlette.types import ASGIApp, Receive, Scope, Send


def guarded(mcp: MCPServer[Any], token: str | None, hosts: Sequence[str], origins: Sequence[str]) -> ASGIApp:
    """Return an application that checks the header `Host`, the header `Origin` and the token of each request.

    Raises:
        ValueError: the token is too short, or cannot stand in a header.
    """
    check_token(token)
    unchecked = TransportSecuritySettings(enable_dns_rebinding_protection=False)
    app: ASGIApp = Guard(mcp.streamable_http_app(transport_security=unchecked), hosts, origins)
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
        self._app, self._token = app, token

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and not is_bearer(scope, self._token):
            await refuse(send, 401, "A token is needed.", (b"www-authenticate", b"Bearer"))
            return
        await self._app(scope, receive, send)
