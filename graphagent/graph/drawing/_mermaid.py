"""A strategy as Mermaid text, and the notes that every picture of a node shows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from graphagent._retry import Retry
from graphagent.graph._forks import Each, Parallel, Race
from graphagent.graph._node import END, START, End, Node, Start
from graphagent.graph._policies import Timeout, ToolSelection
from graphagent.graph._strategy import Edge, Element, Strategy

_INDENT = "    "


def to_mermaid(strategy: Strategy[Any, Any]) -> str:
    """Draw a strategy as a Mermaid flowchart: nodes are boxes, taps are rounded, subgraphs and forks are frames."""
    lines = ["flowchart TD", *(_INDENT + line for line in _inside(strategy, ""))]
    lines.append(f"{_INDENT}classDef tap stroke-dasharray: 4 3")
    return "\n".join(lines) + "\n"


def notes(element: Element) -> list[str]:
    """Return short notes about a node: its policies, its limits, the model and tools of a subgraph."""
    said: list[str] = []
    if isinstance(element, Parallel | Each | Race):
        kind = type(element).__name__.lower()
        said += [kind] if element.name != kind else []
        said += [f"limit {element.limit}"] if element.limit is not None else []
        said += ["collect failures"] if element.failures == "collect" and not isinstance(element, Race) else []
    if isinstance(element, Strategy) and element.setting is not None:
        setting = element.setting
        said += ["own model"] if setting.model is not None else []
        if isinstance(setting.tools, ToolSelection):
            said.append("tools that a model selects")
        elif setting.tools is not None:
            said.append("own tools")
        limits = {"nodes": setting.max_nodes, "turns": setting.max_turns, "tokens": setting.max_tokens}
        said += [f"max {limit} {what}" for what, limit in limits.items() if limit is not None]
    for policy in element.policies:
        if isinstance(policy, Retry):
            said.append(f"retry {policy.attempts}")
        elif isinstance(policy, Timeout):
            said.append(f"timeout {policy.seconds:g} s")
        else:
            said.append("cached" if policy.ttl is None else f"cached {policy.ttl:g} s")
    return said


def is_error(edge: Edge) -> bool:
    """Return whether an edge is taken when its node raises."""
    return edge.outlet is not None and any(rule.error is not None for rule in edge.outlet.rules)


def _inside(strategy: Strategy[Any, Any], prefix: str) -> Iterator[str]:
    """Yield the lines of a strategy; the ids of everything in it begin with `prefix`."""
    ids: dict[object, str] = {START: f"{prefix}START", END: f"{prefix}END"}
    text = ("START", "END") if not prefix else (" ", " ")
    yield f'{ids[START]}(("{text[0]}"))'
    for number, element in enumerate(strategy.elements_by_name.values(), start=1):
        ids[element] = f"{prefix}n{number}"
        yield from _element(element, ids[element])
    yield f'{ids[END]}((("{text[1]}")))'
    for edge in strategy.edges:
        arrow = "-.->" if is_error(edge) else "-->"
        label = f'|"{_safe(edge.label)}"|' if edge.label else ""
        yield f"{_leaving(edge.source, ids)} {arrow}{label} {_entering(edge.target, ids)}"


def _element(element: Element, own: str) -> Iterator[str]:
    said = ", ".join(notes(element))
    text = f'"{_safe(element.name)}{f"<br/>{_safe(said)}" if said else ""}"'
    if not isinstance(element, Node):
        yield f"{own}({text}):::tap"
    elif isinstance(element, Strategy):
        yield from _framed(own, text, _inside(element, f"{own}_"))
    elif isinstance(element, Parallel | Each | Race):
        yield from _framed(own, text, _branches(element, f"{own}_"))
    else:
        yield f"{own}[{text}]"


def _branches(fork: Parallel | Each | Race, prefix: str) -> Iterator[str]:
    yield f'{prefix}START((" "))'
    ids: dict[object, str] = {}
    for number, branch in enumerate(fork.branches, start=1):
        ids[branch] = own = f"{prefix}n{number}"
        yield from _element(branch, own)
        yield f"{prefix}START --> {_entering(branch, ids)}"
        yield f"{_leaving(branch, ids)} --> {prefix}END"
    yield f'{prefix}END(((" ")))'


def _framed(own: str, text: str, lines: Iterator[str]) -> Iterator[str]:
    yield f"subgraph {own}[{text}]"
    for line in lines:
        yield _INDENT + line
    yield "end"


def _entering(target: Element | End, ids: dict[object, str]) -> str:
    # An edge to a frame itself cannot be a loop in every version of Mermaid; one to a node inside it can.
    return ids[target] + "_START" * isinstance(target, Strategy | Parallel | Each | Race)


def _leaving(source: Element | Start, ids: dict[object, str]) -> str:
    return ids[source] + "_END" * isinstance(source, Strategy | Parallel | Each | Race)


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
