"""Scopes as a tree, counted."""

from __future__ import annotations

from collections.abc import Mapping

from graphagent.memory.notes._scopes import is_within, lineage
from graphagent.memory.notes._types import ScopeTree


def child_of(path: str, scope: str) -> str | None:
    """Give the scope directly below another that a path is, or is in; None where there is none."""
    if path == scope or not is_within(path, scope):
        return None
    return lineage(path)[len(lineage(scope))]


def tree_of(top: str, counts: Mapping[str, int], max_depth: int | None) -> ScopeTree:
    """Give a scope with those below it.

    Args:
        top: The scope.
        counts: How many records each scope has of its own.
        max_depth: How many levels below it are shown; None: all.
    """
    below: dict[str, dict[str, int]] = {}
    for path, count in counts.items():
        child = child_of(path, top)
        if child is not None:
            below.setdefault(child, {})[path] = count
    whole = sum(count for path, count in counts.items() if is_within(path, top))
    deeper = None if max_depth is None else max_depth - 1
    children = () if max_depth == 0 else tuple(tree_of(child, below[child], deeper) for child in sorted(below))
    return ScopeTree(top, whole, children)
