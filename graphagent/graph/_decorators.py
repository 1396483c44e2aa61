"""The decorators that turn functions into nodes and taps."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Any, Never, NoReturn, TypeVar, cast, get_origin, overload

from graphagent._article import kind_of
from graphagent.graph import _types
from graphagent.graph._declarations import Declaration
from graphagent.graph._node import Node, Tap, TapOf
from graphagent.graph._signatures import is_async, name_of, needed

if TYPE_CHECKING:
    from graphagent.run import Context

A = TypeVar("A")
B = TypeVar("B")


@overload
def node(function: Callable[[Context[Any], A], Awaitable[B]], /) -> Node[A, B]: ...
@overload
def node(
    *, name: str | None = None, needs: Iterable[type[Any]] = ()
) -> Callable[[Callable[[Context[Any], A], Awaitable[B]]], Node[A, B]]: ...
def node(function: Any = None, /, *, name: str | None = None, needs: Iterable[type[Any]] = ()) -> Any:
    """Make a node of an async function `(ctx, input) -> output`; its types are read from the annotations.

    Args:
        function: The function.
        name: The name in the strategy; by default the name of the function.
        needs: The features that the function uses with `ctx.feature`. A run of an agent without them is refused before its first node.

    Raises:
        TypeError: the function is not async, or takes something other than a context and an input; or `needs` is not a list of classes.
    """
    if function is None:

        def named(function: Callable[..., Awaitable[Any]]) -> Node[Any, Any]:
            return _node_of(function, name, needs)

        return named
    return _node_of(function, name, needs)


def _node_of(function: Callable[..., Awaitable[Any]], name: str | None, needs: Iterable[type[Any]]) -> Node[Any, Any]:
    context, input_type, output_type = _read(function, "node")
    made = Node[Any, Any](
        function,
        name=name or name_of(function),
        input_type=input_type,
        output_type=output_type,
        context=context,
        needs=_needed(needs),
    )
    made.declaration = Declaration.of_function(function, made.name)
    return made


# A function that takes anything matches both overloads. The first one wins, and its Tap fits wherever the TapOf would.
@overload
def tap(function: Callable[[Context[Any], object], Awaitable[None]], /) -> Tap: ...  # pyright: ignore[reportOverlappingOverload]
@overload
def tap(function: Callable[[Context[Any], A], Awaitable[None]], /) -> TapOf[A]: ...
@overload
def tap(
    *, name: str | None = None, needs: Iterable[type[Any]] = ()
) -> Callable[[Callable[[Context[Any], A], Awaitable[None]]], TapOf[A]]: ...
def tap(function: Any = None, /, *, name: str | None = None, needs: Iterable[type[Any]] = ()) -> Any:
    """Make a tap of an async function `(ctx, input) -> None`: it does something, and its input is passed on unchanged.

    A tap whose input is annotated as `object` fits before and after any node.

    Args:
        function: The function.
        name: The name in the strategy; by default the name of the function.
        needs: The features that the function uses with `ctx.feature`. A run of an agent without them is refused before its first node.

    Raises:
        TypeError: the function is not async, or takes something other than a context and an input; or `needs` is not a list of classes.
    """
    if function is None:

        def named(function: Callable[..., Awaitable[None]]) -> Tap | TapOf[Any]:
            return _tap_of(function, name, needs)

        return named
    return _tap_of(function, name, needs)


def _tap_of(function: Callable[..., Awaitable[None]], name: str | None, needs: Iterable[type[Any]]) -> Tap | TapOf[Any]:
    context, input_type, returned = _read(function, "tap")
    if returned not in (Any, None, type(None), Never, NoReturn):
        raise TypeError(
            f"@tap {name_of(function)!r} returns {_types.show(returned)}, but a tap passes its input on, and its result is dropped; "
            f"write @node, or let it return None"
        )
    kind = Tap if input_type is object else TapOf[Any]
    made = kind(function, name=name or name_of(function), input_type=input_type, context=context, needs=_needed(needs))
    made.declaration = Declaration.of_function(function, made.name)
    return made


def _needed(needs: object) -> tuple[type[Any], ...]:
    found = (
        tuple(cast("Iterable[object]", needs))
        if isinstance(needs, Iterable) and not isinstance(needs, str)
        else (None,)
    )
    if not all(isinstance(each, type) for each in found):
        raise TypeError("needs= is a list of features, such as needs=[AgentMemory]")
    return cast("tuple[type[Any], ...]", found)


def _read(function: Callable[..., Any], kind: str) -> tuple[Any, Any, Any]:
    """Return the types of the context, the input and the output."""
    _check_function(function, kind)
    named = name_of(function)
    names = needed(function)
    if names is not None and names[:1] in (["self"], ["cls"]):
        raise TypeError(
            f"@{kind} {named!r} is a method, and a {kind} has no object to pass as {names[0]!r}; make it a function outside of the "
            f"class, or a {kind} of the method of an object: {kind}(thing.{named})"
        )
    if names is None or len(names) != 2:
        raise TypeError(f"@{kind} {named!r} takes a context and an input: write `async def {named}(ctx: Context, …)`")
    found = _types.type_hints(function)
    context: Any = getattr(function, "__annotations__", {}).get(names[0], "")
    # Only the type of deps matters in the context: a plain Context may be imported for type checkers alone.
    read = names if isinstance(context, str) and "[" in context else names[1:]
    _types.check_known(function, found, f"@{kind} {named!r}", *read, *(["return"] if kind == "node" else []))
    taken = found.get(names[1])
    if getattr(get_origin(taken) or taken, "__graphagent_context__", False):
        raise TypeError(f"@{kind} {named!r} takes the context first: write `async def {named}(ctx: Context, …)`")
    return found.get(names[0]), found.get(names[1], Any), found.get("return", Any)


def _check_function(function: Any, kind: str) -> None:
    """Check that an object is an async function, or an object that can be called like one."""
    if isinstance(function, str):
        raise TypeError(f"@{kind}({function!r}) takes no name by position; write @{kind}(name={function!r})")
    if isinstance(function, staticmethod | classmethod):
        raise TypeError(f"@{kind} takes a function; put @staticmethod above @{kind}, not below")
    if isinstance(function, type) or not callable(function):
        raise TypeError(f"@{kind} takes an async function, not {kind_of(function)}")
    named = name_of(function)
    if named == "<lambda>":
        raise TypeError(
            f"@{kind} takes an async function, and a lambda cannot be one; write `async def name(ctx: Context, …)`"
        )
    if inspect.isasyncgenfunction(function) or inspect.isgeneratorfunction(function):
        instead = "return the whole output, such as a list" if kind == "node" else "a tap passes on its input"
        raise TypeError(
            f"@{kind} {named!r} is a generator; remove the yield: {instead}. For what others see meanwhile: ctx.emit(…)"
        )
    if not is_async(function):
        raise TypeError(f"@{kind} {named!r} must be async: write `async def {named}(ctx: Context, …)`")
