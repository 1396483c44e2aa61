"""Responses over HTTP, of servers of MCP and of OAuth: their bodies, and that one refuses a request."""

from __future__ import annotations

from contextlib import aclosing

import httpx2
from mcp.client.auth.utils import extract_field_from_www_auth

LARGEST_BODY = 1024 * 1024
"""The largest body, in bytes, of a response that is not a message."""
OF_BODY = ("content-encoding", "content-length", "transfer-encoding")
"""The headers that say how a body was sent."""


class Refused(Exception):
    """A request was refused, and another token may help."""

    def __init__(self, response: httpx2.Response) -> None:
        super().__init__()
        self.response = response
        self.token = response.request.headers.get("Authorization", "").removeprefix("Bearer ")
        """The token that it carried; empty if it had none."""
        self.more = response.status_code == 403
        """Whether the token is valid and lacks a scope."""


def refused_by(response: httpx2.Response) -> Refused | None:
    """Return the refusal in a response, if another token may help."""
    lacks = response.status_code == 403 and extract_field_from_www_auth(response, "error") == "insufficient_scope"
    return Refused(response) if lacks or response.status_code == 401 else None


async def read(response: httpx2.Response, most: int = LARGEST_BODY) -> httpx2.Response:
    """Return a response with its body, or without it if it exceeds a size in bytes, and close the streamed response."""
    body = b""
    async with aclosing(response):
        if most:
            async with aclosing(response.aiter_bytes()) as pieces:
                async for each in pieces:
                    body += each
                    if len(body) > most:
                        body = b""
                        break
    headers = [each for each in response.headers.multi_items() if each[0] not in OF_BODY]
    found = httpx2.Response(response.status_code, headers=headers, content=body, request=response.request)
    found.next_request = response.next_request
    return found
