"""The path of a run in the drawing of its strategy."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

_TAKEN = "#4d77d8"
_HERE = {
    "failed": "#d9473e",
    "interrupted": "#d9473e",
    "waiting": "#c1821a",
    "paused": "#c1821a",
    "sleeping": "#c1821a",
}
"""The colour of the node where a run is, by the state of the run; otherwise that of the path."""


def path_rules(nodes: Iterable[tuple[str, bool, bool]], edges: Iterable[str], status: str) -> str:
    """Return the CSS rules of a path: nodes and edges of the path are strong, and nodes that the run did not reach are pale.

    Args:
        nodes: The path of each node, whether the run came to its end, and whether the run is there.
        edges: The names of the edges that the run took.
        status: The status of the run.
    """
    return "\n".join(_rules([*nodes], edges, _HERE.get(status, _TAKEN)))


def _rules(nodes: list[tuple[str, bool, bool]], edges: Iterable[str], colour: str) -> Iterator[str]:
    reached = [path for path, ended, here in nodes if ended or here]
    for path, ended, here in nodes:
        each = f'[data-node="{_quoted(path)}"]'
        if here:
            yield f".ga {each}>rect{{stroke:{colour};stroke-width:3;stroke-opacity:1}}"
        elif ended:
            yield f".ga {each}>rect{{stroke:{_TAKEN};stroke-width:2;stroke-opacity:1}}"
        elif not any(other.startswith(f"{path}/") for other in reached):
            yield f".ga {each}{{opacity:.45}}"
    for name in edges:
        each = f'[data-edge="{_quoted(name)}"]'
        yield f".ga {each} .edge{{stroke:{_TAKEN};stroke-width:2.4;stroke-opacity:1}}.ga {each} .head{{fill:{_TAKEN};fill-opacity:1}}"


def _quoted(name: str) -> str:
    """Return a name as it may stand in a string of CSS, and in XML."""
    return "".join(each if each.isascii() and each.isalnum() else f"\\{ord(each):x} " for each in name)
