"""The drawing of the strategy of a run, with the path that it took."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from starlette.responses import Response

if TYPE_CHECKING:
    from starlette.requests import Request

    from graphagent.history import StoredRun
    from graphagent.inspect._inspected import Inspected, Views

_TAKEN = "#4d77d8"
_HERE = {
    "failed": "#d9473e",
    "interrupted": "#d9473e",
    "waiting": "#c1821a",
    "paused": "#c1821a",
    "sleeping": "#c1821a",
}
"""The colour of the node where a run is, by the state of the run; otherwise that of the path."""
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"
"""What the drawing may do: it has its style inside, and no page around it."""


def drawing(stored: StoredRun) -> str:
    """Return the drawing as SVG: the path that was taken strong, what was not reached pale, and where the run is marked."""
    before, end, after = stored.strategy.to_svg().rpartition("</svg>")
    return f"{before}<style>{chr(10).join(_rules(stored))}</style>{end}{after}"


def _rules(stored: StoredRun) -> Iterator[str]:
    here = _HERE.get(stored.head.status, _TAKEN)
    for node in stored.graph:
        each = f'[data-node="{_quoted(node.path)}"]'
        if node.here:
            yield f".ga {each}>rect{{stroke:{here};stroke-width:3;stroke-opacity:1}}"
        elif node.ended:
            yield f".ga {each}>rect{{stroke:{_TAKEN};stroke-width:2;stroke-opacity:1}}"
        elif not any(other.path.startswith(f"{node.path}/") and (other.ended or other.here) for other in stored.graph):
            yield f".ga {each}{{opacity:.45}}"
    for name in stored.taken:
        each = f'[data-edge="{_quoted(name)}"]'
        yield f".ga {each} .edge{{stroke:{_TAKEN};stroke-width:2.4;stroke-opacity:1}}.ga {each} .head{{fill:{_TAKEN};fill-opacity:1}}"


def _quoted(name: str) -> str:
    """Return a name as it may stand in a string of CSS, and in XML."""
    return "".join(each if each.isascii() and each.isalnum() else f"\\{ord(each):x} " for each in name)


async def graph(inspected: Inspected, request: Request) -> Response:
    """Return the drawing of the run that the address names."""
    drawn = drawing(await inspected.read(request))
    return Response(drawn, headers={"Content-Security-Policy": _POLICY}, media_type="image/svg+xml")


VIEWS: Views = (("graph.svg", graph),)
