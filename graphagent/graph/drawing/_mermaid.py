"""A strategy as Mermaid text, and the notes that both kinds of drawings show."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from graphagent.graph._outline import Outline

_INDENT = "    "


def to_mermaid(strategy: Outline) -> str:
    """Draw a strategy as a Mermaid flowchart: nodes are boxes, taps are rounded, subgraphs and forks are frames."""
    lines = ["flowchart TD", *(_INDENT + line for line in _inside(strategy, ""))]
    lines.append(f"{_INDENT}classDef tap stroke-dasharray: 4 3")
    return "\n".join(lines) + "\n"


def notes(element: Outline) -> list[str]:
    """Return the lines under the name of a node: the kind of a fork that has another name, policies and limits."""
    is_fork = element.is_frame and element.kind != "strategy"
    return [*([element.kind] if is_fork and element.name != element.kind else []), *element.notes]


def _inside(strategy: Outline, prefix: str) -> Iterator[str]:
    """Yield the lines of a strategy; the ids of everything in it begin with `prefix`."""
    start, end = f"{prefix}START", f"{prefix}END"
    entering, leaving = {"END": end}, {"START": start}
    text = ("START", "END") if not prefix else (" ", " ")
    yield f'{start}(("{text[0]}"))'
    for number, element in enumerate(strategy.inside, start=1):
        own = f"{prefix}n{number}"
        yield from _element(element, own)
        entering[element.name], leaving[element.name] = _ends(element, own)
    yield f'{end}((("{text[1]}")))'
    for edge in strategy.edges:
        arrow = "-.->" if edge.on_error else "-->"
        label = f'|"{_safe(edge.label)}"|' if edge.conditions else ""
        yield f"{leaving[edge.source]} {arrow}{label} {entering[edge.target]}"


def _element(element: Outline, own: str) -> Iterator[str]:
    said = ", ".join(notes(element))
    text = f'"{_safe(element.name)}{f"<br/>{_safe(said)}" if said else ""}"'
    if element.kind == "tap":
        yield f"{own}({text}):::tap"
    elif element.kind == "node":
        yield f"{own}[{text}]"
    else:
        yield f"subgraph {own}[{text}]"
        for line in (_inside if element.kind == "strategy" else _branches)(element, f"{own}_"):
            yield _INDENT + line
        yield "end"


def _branches(fork: Outline, prefix: str) -> Iterator[str]:
    yield f'{prefix}START((" "))'
    for number, branch in enumerate(fork.inside, start=1):
        own = f"{prefix}n{number}"
        entering, leaving = _ends(branch, own)
        yield from _element(branch, own)
        yield f"{prefix}START --> {entering}"
        yield f"{leaving} --> {prefix}END"
    yield f'{prefix}END(((" ")))'


def _ends(element: Outline, own: str) -> tuple[str, str]:
    """Return the ids to which edges lead, and from which they come."""
    # An edge to a frame itself cannot be a loop in every version of Mermaid; one to a node inside it can.
    return (f"{own}_START", f"{own}_END") if element.is_frame else (own, own)


def _safe(text: str) -> str:
    """Return a text with the characters that mean something in Mermaid, Markdown or HTML as character codes."""
    return "".join(
        letter
        if letter.isalnum() or ord(letter) > 127 or letter in " ,|=" or _joins(text, place)
        else f"#{ord(letter)};"
        for place, letter in enumerate(text)
    )


def _joins(text: str, place: int) -> bool:
    before, after = text[max(place - 1, 0) : place], text[place + 1 : place + 2]
    return text[place] in "_.-" and before.isalnum() and after.isalnum()
