"""Declarations: the origins of nodes. A copy has the declaration of its original, whatever the name of the copy."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property, partial
from types import FunctionType, MethodType
from typing import Any, cast, final

MOST_LEVELS = 60
"""How many strategies, forks and agents may be inside one another: Python ends programs whose calls are nested too deeply, and each level,
with its policies and middleware, takes some of them."""
LEVELS_OF_AGENT = 2
"""The number of levels of an agent besides its strategy, for the calls between the agent and its node or tool."""


@final
class Declaration:
    """The origin of a node and all of its copies.

    Two `@node` of one function are one declaration. Each call of `Node(…)`, and so of a factory of nodes, makes a new
    declaration.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        name: str,
        *,
        whole: bool = False,
        inside: Sequence[Declaration] = (),
        runs: Declaration | None = None,
        levels: int = 0,
    ) -> None:
        self.function = function
        """The function that is executed."""
        self.runs = runs
        """The strategy that is executed, if the declaration is an agent."""
        self.levels = levels
        """The number of nested levels of strategies, forks and agents, including this one; 0 for a function."""
        self._first_name = name
        self._whole = whole
        self._inside = inside

    @classmethod
    def of_function(cls, function: Callable[..., Any], name: str) -> Declaration:
        """Return the declaration of all nodes that execute a function."""
        return cls(function, name, whole=True)

    @classmethod
    def of_frame(cls, kind: Callable[..., Any], name: str, inside: Sequence[Declaration]) -> Declaration:
        """Return the declaration of a strategy or a fork that executes other nodes."""
        return cls(kind, name, inside=inside, levels=1 + max((each.levels for each in inside), default=0))

    def covers(self, other: Declaration) -> bool:
        """Return whether executing the other declaration executes this one: it is a copy, or stands for this one.

        This decides to which nodes a rule applies: in the proof, during execution, and in stored runs.
        """
        if other is self or (other.runs is not None and self.covers(other.runs)):
            return True
        return self._whole and any(is_same(self.function, each) for each in _stands_for(other.function))

    @property
    def agent(self) -> str:
        """The name of the agent; empty if the declaration is not an agent."""
        return self._first_name if self.runs is not None else ""

    @cached_property
    def name(self) -> str:
        """The name in a log: the name of a node and a distinguishing digest, without names of code.

        It is the same in other processes, and stays the same if only the code of the function changes.
        """
        function: Any = self.function
        function = getattr(function, "func", function)  # of a partial
        named = cast("Any", function if hasattr(function, "__qualname__") else type(function))
        texts = [named.__module__, named.__qualname__]
        if self._inside:
            texts += [self._first_name, *(each.name for each in self._inside)]
        elif not self._whole or "<locals>" in named.__qualname__:
            texts += [self._first_name if not self._whole else "", *_texts(self.function)]
        digest = hashlib.blake2b("\0".join(texts).encode("utf-8", "replace"), digest_size=6).hexdigest()
        return f"{named.__name__ if self._whole else self._first_name}:{digest}"


def is_same(one: Callable[..., Any], other: Callable[..., Any]) -> bool:
    """Return whether two functions are the same. A method that is bound twice is two objects."""
    return one is other or (isinstance(one, MethodType) and one == other)


def _stands_for(function: Any, depth: int = 8) -> Iterator[Any]:
    """Yield a function, and the functions inside it as a partial, a bound method, a tool, or a wrapper by `functools.wraps`."""
    yield function
    own: dict[str, Any] = getattr(function, "__dict__", {})
    parts: list[Any] = [own.get("__wrapped__"), own.get("function")]
    if isinstance(function, partial):
        parts += [cast("Any", function).func, *filter(callable, function.args)]
    elif isinstance(function, MethodType):
        tool: Any = function.__self__  # of `tool.call`
        parts += [function.__func__, *([tool, tool.run] if hasattr(tool, "parameters") else ())]
    for part in parts if depth else ():
        if callable(part):
            yield from _stands_for(part, depth - 1)


def _texts(value: object, depth: int = 3) -> Iterator[str]:
    """Yield the texts with which a factory made a function: two questions to a person differ only in these."""
    if isinstance(value, str):
        yield value
    if not depth or isinstance(value, str):
        return
    given, parts = cast("Any", value), list[object]()
    if isinstance(value, type):
        yield value.__qualname__
    elif isinstance(value, partial):
        parts = [given.func, *given.args, *given.keywords.values()]
    elif isinstance(value, FunctionType):
        yield value.__qualname__
        parts = [*value.__code__.co_consts, *value.__code__.co_names, *map(_content, value.__closure__ or ())]
    elif isinstance(value, tuple | frozenset):
        parts = sorted(given, key=repr) if isinstance(value, frozenset) else [*given]
    elif callable(value):
        names = [name for kind in type(given).__mro__ for name in getattr(kind, "__slots__", ())]
        parts = [getattr(value, name, None) for name in names] or [*getattr(value, "__dict__", {}).values()]
    for part in parts:
        yield from _texts(part, depth - 1)


def _content(cell: Any) -> object:
    try:
        return cell.cell_contents
    except ValueError:  # it is not bound yet
        return None
