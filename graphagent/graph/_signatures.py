"""The signatures of functions that become part of a strategy."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import FunctionType
from typing import Any


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
