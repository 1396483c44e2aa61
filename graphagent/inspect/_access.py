"""Access to the pages: a token, which a browser sends once and a program with each request; and the headers of all answers."""

from __future__ import annotations

import hmac
import secrets
from contextlib import aclosing
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, quote

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response

from graphagent._html import tag
from graphagent._web import is_bearer
from graphagent.inspect._forms import refusal
from graphagent.inspect._layout import POLICY, Site, below, page

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

_COOKIE = "graphagent_inspect"
_OPEN = ("/inspect.css", "/inspect.js", "/icon.svg")
"""The files that the page for the token loads."""
_LONGEST = 1024
"""Bytes of a form with a token."""
_HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
"""Headers of all answers. `same-origin`, since without a referrer browsers send no `Origin` with forms."""


class WithHeaders:
    """Adds the headers to all answers, also to errors; an answer can have a policy of its own."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        await self._app(scope, receive, sending)


class Below:
    """Serves an application below a prefix, whether or not the proxy in front of it keeps the prefix in paths."""

    def __init__(self, app: ASGIApp, prefix: str) -> None:
        self._app, self._prefix = app, prefix

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and self._prefix:
            path: str = scope["path"]
            if path != self._prefix and not path.startswith(f"{self._prefix}/"):
                path = self._prefix + path
            scope = {**scope, "path": path, "root_path": self._prefix}
        await self._app(scope, receive, send)


class SignedIn:
    """Lets in requests with the token. The cookie of a browser is valid only for this process, and ends with it."""

    def __init__(self, app: ASGIApp, token: str, name: str) -> None:
        self._app, self._token, self._name = app, token, name
        self._kept = hmac.new(secrets.token_bytes(32), token.encode(), "sha256").hexdigest()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or is_bearer(scope, self._token):
            await self._app(scope, receive, send)
            return
        request = Request(scope, receive)
        path = scope["path"].removeprefix(scope.get("root_path", ""))
        if path == "/sign-in" and request.method == "POST":
            await (await self._sign_in(request))(scope, receive, send)
        elif path in _OPEN or hmac.compare_digest(request.cookies.get(_COOKIE, "").encode(), self._kept.encode()):
            await self._app(scope, receive, send)
        else:
            await self._ask(request, "")(scope, receive, send)

    async def _sign_in(self, request: Request) -> Response:
        body = await sent(request, _LONGEST)
        if body is None:
            return self._ask(request, "That is not a token.")
        given = _field(body, "token")
        if not hmac.compare_digest(given.encode("utf-8", "replace"), self._token.encode()):
            return self._ask(request, "That is not the token.")
        base = quote(request.scope.get("root_path", ""))
        answer = RedirectResponse(f"{base}/runs", 303)
        answer.set_cookie(
            _COOKIE,
            self._kept,
            path=base or "/",
            httponly=True,
            samesite="strict",
            secure=request.url.scheme == "https",
        )
        return answer

    def _ask(self, request: Request, wrong: str) -> Response:
        site = Site(below(quote(request.scope.get("root_path", ""))), self._name)
        field = tag(
            "input",
            type="password",
            name="token",
            required=True,
            autofocus=True,
            autocomplete="current-password",
            id="token",
        )
        form = tag(
            "form", tag("label", "The token of this server", for_="token"), field, tag("button", "Look", type="submit"),
            method="post", action=site.url("sign-in"), class_="sign-in",
        )  # fmt: skip
        return HTMLResponse(page(site, "Token", tag("h1", "A token is needed"), refusal(wrong), form), 401)


async def sent(request: Request, most: int) -> bytes | None:
    """Return the body of a request; None if it has more than `most` bytes."""
    body = b""
    async with aclosing(request.stream()) as parts:
        async for part in parts:
            body += part
            if len(body) > most:
                return None
    return body


def _field(body: bytes, name: str) -> str:
    """Return a field of a form; empty if the form does not have it."""
    return parse_qs(body.decode("utf-8", "replace")).get(name, [""])[0]
