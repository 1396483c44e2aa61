"""The path of a run in the drawing of its strategy."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from graphagent.history._inspect import StoredRun

_TAKEN = "#4d77d8"
_HERE = {
    "failed": "#d9473e",
    "interrupted": "#d9473e",
    "waiting": "#c1821a",
    "paused": "#c1821a",
    "sleeping": "#c1821a",
}
"""The colour of the node where a run is, by the state of the run; otherwise that of the path."""


def path_rules(stored: StoredRun) -> str:
    """Return the rules for the look of what a run took, where it is, and what it did not reach."""
    return "\n".join(_rules(stored))


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
