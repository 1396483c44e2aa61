"""The errors of `>>` for objects that cannot be a part of a path."""

from __future__ import annotations

import inspect
from typing import Never

from graphagent._article import kind_of
from graphagent.graph._signatures import is_async, name_of


def misplaced(given: object) -> str:
    """Describe an object that cannot be a part of a path, and say what to write instead."""
    if inspect.isfunction(given) or inspect.ismethod(given) or inspect.isbuiltin(given):
        named = name_of(given)
        if named == "<lambda>":
            return "a lambda; to change a value, write .map(…) after the node before"
        if is_async(given):
            return f"the function {named}; put @node on it"
        return f"the function {named}; call it if it makes a node: {named}(…), or make it async and put @node on it"
    if isinstance(given, str):
        return "a name; write the node itself"
    if type(given) in (list, tuple, set):
        return f"{kind_of(given)}; nodes that are executed at the same time are parallel(a, b)"
    if hasattr(given, "run_sync"):
        return f"{kind_of(given)}; write agent.as_node(), or its strategy as a part of this one"
    return f"{kind_of(given)}; see @node"


def past_end(self: object, other: object) -> Never:
    """Refuse an object after END."""
    raise TypeError("a path ends at END, and nothing comes after it; for another path, give Strategy one more argument")


def before_path(self: object, other: object) -> Never:
    """Refuse an object before a path that does not have its own `>>`."""
    raise TypeError(f"a path begins at START, a node or an outlet, not at {misplaced(other)}")
