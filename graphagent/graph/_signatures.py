"""The signatures of functions that become part of a strategy, and the errors of `>>` for objects that cannot be a part of a path."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import FunctionType
from typing import Any, Never

from graphagent._article import kind_of


def is_async(function: Callable[..., Any]) -> bool:
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__)


def plain_arguments(function: Any) -> int:
    """Return the number of arguments that a plain function needs; -1 for anything else."""
    names = needed(function) if callable(function) and not is_async(function) else None
    return -1 if names is None else len(names)


def needed(function: Callable[..., Any]) -> list[str] | None:
    """Return the names of the parameters without a default; None if some of them cannot be passed by position."""
    if isinstance(function, FunctionType) and not vars(function):  # as most are, and ten times as fast
        code, names = function.__code__, function.__code__.co_varnames
        by_position = code.co_argcount
        if set(names[by_position : by_position + code.co_kwonlyargcount]) - (function.__kwdefaults__ or {}).keys():
            return None
        return list(names[: by_position - len(function.__defaults__ or ())])
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return ["value"]  # a builtin without a signature is called with the value
    plain = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    if any(each.kind is inspect.Parameter.KEYWORD_ONLY and each.default is each.empty for each in parameters):
        return None
    return [each.name for each in parameters if each.kind in plain and each.default is each.empty]


def name_of(function: object) -> str:
    return str(getattr(function, "__name__", None) or type(function).__name__)


def function_label(function: object) -> str:
    """Return the name of a function for labels and errors; empty for a lambda."""
    named = name_of(function)
    return "" if named == "<lambda>" else named


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
