"""A line chart as a stand-alone SVG picture, both of whose axes are logarithmic. It follows the reader's light or dark."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT = 640.0, 400.0
LEFT, RIGHT, TOP, BOTTOM = 66.0, 192.0, 62.0, 48.0
"""What is left around the lines."""
FACTOR = 1.7
"""How far the axis that goes up reaches beyond what is drawn."""

_COLOURS = {
    "ours": ("#1f7a6c", "#5cc2b1"),
    "first": ("#c2453d", "#ee7d74"),
    "second": ("#3e63b8", "#8fb0f5"),
    "third": ("#8a5d00", "#dcaa4d"),
    "bare": ("#687386", "#9aa4b5"),
}
_STYLE = """
.ga{font:13px ui-sans-serif,system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",Arial,sans-serif}
.ga text{fill:#1d2433}
.ga .title{font-size:15px;font-weight:600}
.ga .small{font-size:12px;fill:#687386}
.ga .grid{stroke:#8993a5;stroke-opacity:.28}
.ga path{fill:none;stroke-width:2;stroke-linejoin:round;stroke-linecap:round}
.ga path.ours{stroke-width:3}
.ga path.third{stroke-dasharray:5 6}
.ga path.bare{stroke-dasharray:1 5}
.ga path.grid,.ga path.lead{stroke-width:1;stroke-dasharray:none}
.ga .name{font-weight:600}
"""
_DARK = ".ga text{fill:#e6e9ef}\n.ga .small{fill:#9aa4b5}\n"


@dataclass(frozen=True, slots=True)
class Line:
    """What is drawn as one line."""

    name: str
    value: str
    """Stands behind the name."""
    note: str
    """Stands under the name; it may be empty."""
    look: str
    """`ours`, `first`, `second`, `third` or `bare`."""
    points: Sequence[tuple[float, float]]


def draw(title: str, note: str, below: str, lines: Sequence[Line], show: Callable[[float], str]) -> str:
    """Draw lines, later ones over earlier ones. `below` names what goes to the right, and `show` writes a number of what goes up."""
    across = sorted({x for line in lines for x, _ in line.points})
    heights = [math.log10(y) for line in lines for _, y in line.points]
    low, high = min(heights) - math.log10(FACTOR), max(heights) + math.log10(FACTOR)

    def place(x: float, y: float) -> tuple[float, float]:
        right, up = math.log(x / across[0]) / math.log(across[-1] / across[0]), (math.log10(y) - low) / (high - low)
        return LEFT + right * (WIDTH - LEFT - RIGHT), HEIGHT - BOTTOM - up * (HEIGHT - TOP - BOTTOM)

    body = [_text(14, 24, title, "title"), _text(14, 43, note, "small")]
    for power in range(math.ceil(low), math.floor(high) + 1):
        _, y = place(across[0], 10.0**power)
        body.append(f'<path class="grid" d="M{_n(LEFT)} {_n(y)}H{_n(WIDTH - RIGHT)}"/>')
        body.append(_text(LEFT - 10, y + 4, show(10.0**power), "small", "end"))
    body += [_text(place(x, 1)[0], HEIGHT - BOTTOM + 20, f"{x:,.0f}", "small", "middle") for x in across]
    body.append(_text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 8, below, "small", "middle"))
    placed = {line.name + line.note: [place(x, y) for x, y in line.points] for line in lines}
    beside = _beside({line.name + line.note: 33.0 if line.note else 19.0 for line in lines}, placed)
    for line in lines:
        points = placed[line.name + line.note]
        body.append(f'<path class="{line.look}" d="M{"L".join(f"{_n(x)} {_n(y)}" for x, y in points)}"/>')
        body += [f'<circle class="{line.look}" cx="{_n(x)}" cy="{_n(y)}" r="3.2"/>' for x, y in points]
        body += _label(line, *points[-1], beside.get(line.name + line.note))
    return _whole(title, "\n".join(body))


def _beside(tall: dict[str, float], placed: dict[str, list[tuple[float, float]]]) -> dict[str, float]:
    """Give the heights of the labels on the right, which are moved upwards from the lowest so that none covers another."""
    right = max(points[-1][0] for points in placed.values())
    found: dict[str, float] = {}
    free = HEIGHT - BOTTOM
    for name, points in sorted(placed.items(), key=lambda each: -each[1][-1][1]):
        x, y = points[-1]
        if x == right:
            found[name] = min(y, free - tall[name] + 9)
            free = found[name] - 9
    return found


def _label(line: Line, x: float, y: float, beside: float | None) -> list[str]:
    if beside is None:  # the line ends inside, and what goes on is drawn to its right
        return [_text(x - 9, y - 9, line.name, "name", "end", line.look, line.value)]
    found = [_text(x + 20, beside + 4, line.name, "name", "start", line.look, line.value)]
    if abs(beside - y) > 4:
        found.append(f'<path class="lead {line.look}" d="M{_n(x + 6)} {_n(y)}L{_n(x + 17)} {_n(beside)}"/>')
    if line.note:
        found.append(_text(x + 20, beside + 18, line.note, "small"))
    return found


def _text(x: float, y: float, text: str, look: str, anchor: str = "start", colour: str = "", more: str = "") -> str:
    shown = f'<tspan class="{look} {colour}">{escape(text)}</tspan> {escape(more)}' if more else escape(text)
    own = "" if more else f' class="{look}"'
    return f'<text{own} x="{_n(x)}" y="{_n(y)}" text-anchor="{anchor}">{shown}</text>'


def _whole(title: str, body: str) -> str:
    light, dark = ("".join(_coloured(look, each[at]) for look, each in _COLOURS.items()) for at in (0, 1))
    style = f"{_STYLE}{light}@media (prefers-color-scheme:dark){{\n{_DARK}{dark}}}\n"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="ga" role="img" width="{_n(WIDTH)}" height="{_n(HEIGHT)}" '
        f'viewBox="0 0 {_n(WIDTH)} {_n(HEIGHT)}"><title>{escape(title)}</title><style>{style}</style>\n{body}\n</svg>\n'
    )


def _coloured(look: str, colour: str) -> str:
    return f".ga path.{look}{{stroke:{colour}}}.ga circle.{look},.ga .name.{look}{{fill:{colour}}}\n"


def _n(number: float) -> str:
    return f"{round(number, 1):g}"
