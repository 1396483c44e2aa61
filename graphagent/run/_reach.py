"""Whether a function of a user calls tools or runs agents by itself. Which ones, only a run shows."""

from __future__ import annotations

import inspect
from functools import partial
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from collections.abc import Iterator

_CALLS = frozenset({"call_tool", "run_agent"})
"""The methods of `Context` that execute what no declaration of the caller names."""
_DEPTH = 5
"""Through how many functions one is followed."""


def calls_by_itself(function: Any) -> bool:
    """Return whether a function, or one that it calls, has the name of a method of `Context` that calls a tool or runs an agent.

    Functions of this library are left out: what they call is declared.
    """
    return any(not _CALLS.isdisjoint(_names(code)) for code in _codes(function, _DEPTH, set()))


def _codes(function: Any, depth: int, seen: set[int]) -> Iterator[CodeType]:
    if id(function) in seen or not depth:
        return
    seen.add(id(function))
    owner: Any = None
    if isinstance(function, partial):
        for part in (function.func, *filter(callable, function.args)):
            yield from _codes(part, depth, seen)
        return
    if isinstance(function, MethodType):
        function, owner = function.__func__, function.__self__
    elif not isinstance(function, FunctionType):
        kind: Any = type(cast("object", function))
        function, owner = getattr(kind, "__call__", None), function  # noqa: B004  of an object that is called
    if not isinstance(function, FunctionType) or function.__module__.partition(".")[0] == "graphagent":
        return
    yield function.__code__
    names = _names(function.__code__)
    for part in (*_used(function, names), *_attributes(owner, names)):
        yield from _codes(part, depth - 1, seen)


def _names(code: CodeType) -> frozenset[str]:
    """Return the names that code uses, with that of the functions inside it."""
    inside = (_names(each) for each in code.co_consts if isinstance(each, CodeType))
    return frozenset(code.co_names).union(*inside)


def _used(function: FunctionType, names: frozenset[str]) -> Iterator[Any]:
    """Yield the functions and methods that a function finds around it by its names."""
    enclosed = inspect.getclosurevars(function).nonlocals.values()
    for found in (*enclosed, *(function.__globals__[name] for name in names & function.__globals__.keys())):
        if isinstance(found, FunctionType | MethodType | partial):
            yield found
        elif isinstance(found, ModuleType):
            yield from (vars(found)[name] for name in names & vars(found).keys())
        else:
            yield from _attributes(found, names)


def _attributes(owner: Any, names: frozenset[str]) -> Iterator[Any]:
    """Yield the methods of an object, or of a class, that have one of some names."""
    for name in names if owner is not None else ():
        found: Any = inspect.getattr_static(owner, name, None)
        found = getattr(found, "__func__", found)  # of a static or a class method
        if isinstance(found, FunctionType):
            yield MethodType(found, owner)
