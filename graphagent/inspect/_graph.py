"""The drawing of the strategy of a run, with the path that it took."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.responses import Response

if TYPE_CHECKING:
    from starlette.requests import Request

    from graphagent.inspect._inspected import Inspected, Views

_POLICY = "default-src 'none'; style-src 'unsafe-inline'"
"""The drawing has its style inside, and no page around it."""


async def graph(inspected: Inspected, request: Request) -> Response:
    """Return the drawing of the run that the address names."""
    drawn = (await inspected.read(request)).to_svg()
    return Response(drawn, headers={"Content-Security-Policy": _POLICY}, media_type="image/svg+xml")


VIEWS: Views = (("graph.svg", graph),)
