"""A strategy as a stand-alone SVG picture: the shapes of its parts."""

from __future__ import annotations

import math
import unicodedata
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING
from zlib import crc32

from graphagent.graph.drawing._layout import Box, Layout, Wire, lay_out
from graphagent.graph.drawing._mermaid import notes

if TYPE_CHECKING:
    from graphagent.graph._outline import Outline, OutlineEdge

_ARROW = 8.0
_GAP = 24.0

_COLOURS = """
.ga{color:#1d2433}
@media (prefers-color-scheme:dark){.ga{color:#e6e9ef}}
"""
"""The colour of the text of a picture that stands alone. Everything but errors and taps is made of it."""
_STYLE = """
.ga{font:13px ui-sans-serif,system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",Arial,sans-serif}
.ga text{text-anchor:middle;fill:currentColor}
.ga .small{font-size:11px;fill-opacity:.75}
.ga .label{font-size:11.5px;fill-opacity:.85}
.ga .title{font-weight:600;text-anchor:start}
.ga .more{font-size:11px;text-anchor:end;fill-opacity:.75}
.ga .node{fill:currentColor;fill-opacity:.02;stroke:currentColor;stroke-opacity:.5;stroke-width:1.2}
.ga .tap{fill:#5d9b90;fill-opacity:.12;stroke:#5d9b90;stroke-width:1.2;stroke-dasharray:4 3}
.ga .group{fill:currentColor;fill-opacity:.04;stroke:currentColor;stroke-opacity:.35}
.ga .place{fill:currentColor}
.ga rect.place{fill-opacity:.14}
.ga .ring{fill:none;stroke:currentColor;stroke-width:1.2}
.ga .place+text{font-size:11px;font-weight:600;letter-spacing:.06em}
.ga .edge{fill:none;stroke:currentColor;stroke-opacity:.6;stroke-width:1.3}
.ga .head{fill:currentColor;fill-opacity:.6}
.ga .edge.error{stroke:#d9473e;stroke-opacity:1;stroke-dasharray:5 4}
.ga .head.error{fill:#d9473e;fill-opacity:1}
"""
_IN_PAGE = "graphagent-drawing"
"""The class of a drawing in a page, which no other part of it has."""


@dataclass(frozen=True, slots=True)
class _Picture:
    width: float
    height: float
    body: str


@dataclass(frozen=True, slots=True)
class _Look:
    """The parts of an edge in the drawing besides its course."""

    name: str
    """Its name, with the path of its strategy."""
    lines: list[str]
    """Its label."""
    error: str
    """The class of the drawn parts of an edge for errors, after a space."""

    @staticmethod
    def of(edge: OutlineEdge, path: str) -> _Look:
        return _Look(path + edge.name, [_short(each, 34) for each in edge.labels], " error" * edge.on_error)

    def group(self, body: str) -> str:
        return f'<g data-edge="{_safe(self.name)}">{body}</g>'


def to_svg(strategy: Outline, rules: str = "") -> str:
    """Draw a strategy as a stand-alone SVG picture that follows the reader's light or dark scheme; with further rules for the look of `.ga`."""
    return _svg(strategy, "ga", _COLOURS + _STYLE + rules)


def to_html(strategy: Outline, rules: str = "") -> str:
    """Draw a strategy as a part of a page, in the colour of its text. The rules for its look apply to nothing else in the page."""
    own = f"{_IN_PAGE}-{crc32(rules.encode()):x}" if rules else ""  # other drawings have other rules
    style = _STYLE.replace(".ga", f".{_IN_PAGE}") + rules.replace(".ga", f".{own}")
    return _svg(strategy, f"{_IN_PAGE} {own}".rstrip(), style)


def _svg(strategy: Outline, scope: str, style: str) -> str:
    picture, margin = _strategy(strategy, ""), 12.0
    size = f"{_n(picture.width + 2 * margin)} {_n(picture.height + 2 * margin)}"
    width, height = size.split()
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="{scope}" role="img" width="{width}" height="{height}" '
        f'viewBox="{_n(-margin)} {_n(-margin)} {size}">'
        f"<title>{_safe(strategy.name)}</title><style>{style}</style>\n{picture.body}</svg>\n"
    )


def _strategy(strategy: Outline, path: str) -> _Picture:
    boxes = {"START": _place("START", inner=bool(path))}
    for part, element in strategy.parts():
        boxes[element.name] = _element(element, path + part)
    boxes["END"] = _place("END", inner=bool(path))
    wires: list[tuple[Wire, _Look]] = []
    loops: dict[Box, list[_Look]] = {}
    for edge in strategy.edges:
        source, target, look = boxes[edge.source], boxes[edge.target], _Look.of(edge, path)
        if source is target:
            loops.setdefault(source, []).append(look)
        else:
            label = _label_box(look) if look.lines else None
            wires.append((Wire(source, target, label, main=not look.error), look))
    for box, looks in loops.items():
        _add_loops(box, looks)
    layout = lay_out(list(boxes.values()), [wire for wire, _ in wires])
    named = [wire.label for wire, _ in wires if wire.label]
    body = "".join(_wire(wire, layout, look) for wire, look in wires)
    body += "".join(box.paint(box.x, box.y) for box in [*named, *boxes.values()] if box.paint)
    return _Picture(layout.width, layout.height, body)


# Boxes


def _place(name: str, *, inner: bool) -> Box:
    if inner:
        ring = name == "END"

        def dot(x: float, y: float) -> str:
            rim = f'<circle class="ring" cx="{_n(x)}" cy="{_n(y + 7)}" r="6.5"/>' if ring else ""
            return f'{rim}<circle class="place" cx="{_n(x)}" cy="{_n(y + 7)}" r="{4 if ring else 5.5}"/>\n'

        return Box(7, 7, 14, dot)
    half = _width(name, 11) / 2 + 14

    def pill(x: float, y: float) -> str:
        return _rect("place", x - half, y, 2 * half, 26, 13) + _text(name, x, y + 17, "") + "\n"

    return Box(half, half, 26, pill)


def _element(element: Outline, path: str) -> Box:
    if element.kind == "strategy":
        return _group(element, path, _strategy(element, f"{path}/"))
    if element.is_frame:
        return _group(element, path, _rows([_element(branch, f"{path}/{part}") for part, branch in element.parts()]))
    name, said = _short(element.name, 40), " · ".join(notes(element))
    half = max(_width(name, 13), _width(said, 11), 44) / 2 + 14
    height = 52.0 if said else 36.0

    def paint(x: float, y: float) -> str:
        shape, radius = ("node", 7.0) if element.kind == "node" else ("tap", height / 2)
        extra = _text(said, x, y + 39, "small") if said else ""
        body = _rect(shape, x - half, y, 2 * half, height, radius) + _text(name, x, y + 22.5, "") + extra
        return _titled(element, path, body)

    return Box(half, half, height, paint)


def _group(element: Outline, path: str, inside: _Picture) -> Box:
    name, said = _short(element.name, 40), " · ".join(notes(element))
    width = max(inside.width + 36, _width(name, 14) + _width(said, 11) + 44)
    height = inside.height + 60

    def paint(x: float, y: float) -> str:
        left = x - width / 2
        body = _rect("group", left, y, width, height, 10) + _text(name, left + 14, y + 22, "title")
        body += _text(said, left + width - 14, y + 22, "more") if said else ""
        moved = f"translate({_n(x - inside.width / 2)} {_n(y + 42)})"
        return _titled(element, path, f'{body}\n<g transform="{moved}">\n{inside.body}</g>')

    return Box(width / 2, width / 2, height, paint)


def _rows(boxes: list[Box]) -> _Picture:
    columns = len(boxes) if len(boxes) <= 6 else math.ceil(math.sqrt(2 * len(boxes)))
    rows = [boxes[at : at + columns] for at in range(0, len(boxes), columns)]
    widths = [sum(box.left + box.right for box in row) + _GAP * (len(row) - 1) for row in rows]
    body, y = "", 0.0
    for row, width in zip(rows, widths, strict=True):
        x, height = (max(widths) - width) / 2, max(box.height for box in row)
        for box in row:
            body += box.paint(x + box.left, y + (height - box.height) / 2) if box.paint else ""
            x += box.left + box.right + _GAP
        y += height + _GAP
    return _Picture(max(widths), y - _GAP, body)


def _add_loops(box: Box, looks: list[_Look]) -> None:
    """Draw the edges from a box to itself, on its right side."""
    paint, half, tall = box.paint, box.right, [max(30.0, 14.0 * len(look.lines) + 8) for look in looks]
    inner = box.height
    box.height = max(inner, sum(tall) + 4)
    box.inset = (box.height - inner) / 2
    box.right += 46 + max((_width(line, 11.5) for look in looks for line in look.lines), default=0.0)

    def painted(x: float, y: float) -> str:
        body = paint(x, y + box.inset) if paint else ""
        middle = y + (box.height - sum(tall)) / 2
        spread = min(18.0, (inner - 8) / len(looks))
        for at, (look, height) in enumerate(zip(looks, tall, strict=True)):
            middle += height / 2
            port = y + box.height / 2 + (at - (len(looks) - 1) / 2) * spread
            right, reach = x + half, 34.0
            out, back = port - spread / 3.2, port + spread / 3.2
            arrow = (
                f'<path class="edge{look.error}" d="M{_n(right)} {_n(out)}C{_n(right + reach)} {_n(middle - 13)} '
                f'{_n(right + reach)} {_n(middle + 13)} {_n(right + _ARROW)} {_n(back)}"/>'
                f'<path class="head{look.error}" d="M{_n(right)} {_n(back)}l8 -4v8z"/>'
            )
            body += look.group(arrow + _label(look, right + 32, middle - 7.0 * len(look.lines), "start"))
            middle += height / 2
        return body + "\n"

    box.paint = painted


def _titled(element: Outline, path: str, body: str) -> str:
    tip = f"{element.name}: {element.input_type} → {element.output_type or 'same'}"
    return f'<g data-node="{_safe(path)}"><title>{_safe(tip)}</title>{body}</g>\n'


# Edges


def _wire(wire: Wire, layout: Layout, look: _Look) -> str:
    """Draw an edge: upright inside the layers, bent between them, with a gap for its label."""
    first, last = wire.pieces[0], wire.pieces[-1]
    start, end = first.upper.y + first.upper.height - first.upper.inset, last.lower.y + last.lower.inset
    path = f"M{_n(first.upper.x + first.upper_port)} {_n(start + (_ARROW if wire.back else 0))}"
    for piece in wire.pieces:
        x, to = piece.upper.x + piece.upper_port, piece.lower.x + piece.lower_port
        y, until = layout.bottoms[piece.upper.rank], layout.tops[piece.lower.rank]
        y, until = y + _ARROW * (wire.back and piece is first), until - _ARROW * (not wire.back and piece is last)
        bend = _n((y + until) / 2)
        path += f"V{_n(y)}C{_n(x)} {bend} {_n(to)} {bend} {_n(to)} {_n(until)}" if abs(x - to) > 0.5 else ""
        if piece.lower is wire.label:
            path += f"V{_n(piece.lower.y)}M{_n(to)} {_n(piece.lower.y + piece.lower.height)}"
    path += f"V{_n(end - (0 if wire.back else _ARROW))}"
    x, y, down = (
        (first.upper.x + first.upper_port, start, 8) if wire.back else (last.lower.x + last.lower_port, end, -8)
    )
    head = f"M{_n(x)} {_n(y)}l-4 {down}h8z"
    arrow = f'<path class="edge{look.error}" d="{path}"/><path class="head{look.error}" d="{head}"/>'
    return look.group(arrow) + "\n"


def _label_box(look: _Look) -> Box:
    half = max(_width(line, 11.5) for line in look.lines) / 2 + 2

    def paint(x: float, y: float) -> str:
        return look.group(_label(look, x, y)) + "\n"

    return Box(half, half, 15.0 * len(look.lines) + 2, paint, on_edge=True)


def _label(look: _Look, x: float, y: float, anchor: str = "") -> str:
    lines = enumerate(look.lines)
    return "".join(_text(line, x, y + 12.5 + 15 * at, f"label{look.error}", anchor) for at, line in lines)


def _rect(look: str, x: float, y: float, width: float, height: float, radius: float) -> str:
    return f'<rect class="{look}" x="{_n(x)}" y="{_n(y)}" width="{_n(width)}" height="{_n(height)}" rx="{_n(radius)}"/>'


def _text(text: str, x: float, y: float, look: str, anchor: str = "") -> str:
    shown = (f' class="{look}"' if look else "") + (f' style="text-anchor:{anchor}"' if anchor else "")
    return f'<text x="{_n(x)}" y="{_n(y)}"{shown}>{_safe(text)}</text>'


def _width(text: str, size: float) -> float:
    """Estimate how wide a text is, for the widest of the usual fonts."""
    return size * sum(map(_em, text))


def _em(letter: str) -> float:
    if unicodedata.east_asian_width(letter) in "WF":
        return 1.1
    if letter in "iljI.,:;'|!()[]ftr ":
        return 0.4
    return 0.9 if letter in "mwMW@%—→" else 0.7 if letter.isupper() else 0.62


def _short(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _safe(text: str) -> str:
    # XML 1.0 has no way to write control characters, surrogates and the two non-characters, escaped or not.
    return escape(
        "".join(
            "\ufffd" if ord(each) < 32 or each in "\x7f\ufffe\uffff" or "\ud800" <= each <= "\udfff" else each
            for each in text
        )
    )


def _n(number: float) -> str:
    return f"{round(number, 1):g}"
