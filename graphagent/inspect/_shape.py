"""The shape of a run: its work over time, as small bars."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from starlette.responses import Response

from graphagent._html import tag
from graphagent.inspect._inspected import number
from graphagent.inspect._spans import WAITS, Span, spans_of_run
from graphagent.inspect._time import Scale, now_of

if TYPE_CHECKING:
    from starlette.requests import Request

    from graphagent.inspect._inspected import Inspected, Views

_COLOURS = {
    "node": "#8491a6",
    "memory": "#3f9f66",
    "model": "#8465ea",
    "tool": "#12989f",
    "agent": "#12989f",
    "person": "#c1821a",
    "sleep": "#c1821a",
}
"""Colours that are visible on light and on dark grounds, since the picture does not know the ground."""
_FAILED = "#d9473e"
_LANES = 4
_HEIGHT = 16
_BARS = 400
"""Of more bars than these, neighbours in a lane are drawn as one."""
_KEPT = 1000
"""Shapes that are kept, each of some kB at most."""


def shape(spans: Sequence[Span]) -> str:
    """Return the picture of the shape. It has no text of the run, no style and no script, and loads nothing."""
    scale, lanes = Scale(spans), list[int]()
    bars: list[tuple[int, float, float, str]] = []
    for span in spans:
        if span.inside:
            continue
        lane = next((n for n, free in enumerate(lanes) if free <= span.began), len(lanes))
        if lane == len(lanes) < _LANES:
            lanes.append(0)
        lane = min(lane, _LANES - 1)
        lanes[lane] = max(lanes[lane], span.ended)
        bars += [
            (lane, *scale.bar(part, 1.5), _FAILED if part.problem else _COLOURS[span.kind]) for part in span.attempts
        ]
    height = _HEIGHT / max(len(lanes), 2)
    above = (_HEIGHT - height * max(len(lanes), 1)) / 2
    drawn = [
        tag("rect", x=f"{x}%", width=f"{width}%", y=round(above + lane * height + 0.5, 2), height=round(height - 1, 2), rx=1, fill=colour,
            fill_opacity="0.55" if colour == _COLOURS[WAITS[0]] else None)
        for lane, x, width, colour in _merged(bars)
    ]  # fmt: skip
    ground = tag("rect", width="100%", y=above, height=_HEIGHT - 2 * above, rx=2, fill=_COLOURS["node"], fill_opacity="0.2")  # fmt: skip
    return tag("svg", ground, drawn, xmlns="http://www.w3.org/2000/svg", width=148, height=_HEIGHT).text


def _merged(bars: list[tuple[int, float, float, str]]) -> list[tuple[int, float, float, str]]:
    if len(bars) <= _BARS:
        return bars
    found: dict[tuple[int, int], tuple[int, float, float, str]] = {}
    for bar in bars:
        place = bar[0], round(bar[1])
        if place not in found or bar[3] == _FAILED:  # a failure is not hidden by its neighbours
            found[place] = bar
    return list(found.values())


async def shape_of(inspected: Inspected, request: Request) -> Response:
    """Return the shape of the run that the address names. The shape of a running run is drawn again after each entry."""
    query = request.query_params
    key = query.get("owner", ""), query.get("id", ""), number(query.get("at"))
    drawn = inspected.shapes.get(key)
    if drawn is None:
        stored = await inspected.read(request)
        drawn = inspected.shapes[key] = shape(spans_of_run(stored, now_of(stored)))
        if len(inspected.shapes) > _KEPT:
            inspected.shapes.popitem(last=False)
    return Response(drawn, media_type="image/svg+xml")


VIEWS: Views = (("shape.svg", shape_of),)
