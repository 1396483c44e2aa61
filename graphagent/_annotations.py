"""Annotations, evaluated and taken apart, for the checks of a graph, for the codec and for step callbacks."""

from __future__ import annotations

import contextlib
import inspect
import types
import typing
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Protocol, Union, get_args, get_origin

UNKNOWN = (NameError, TypeError, AttributeError, SyntaxError)
"""The exceptions raised by evaluating an annotation that uses a name unknown at run time."""


_FORMS = ("typing", "typing_extensions")
"""The modules that define type forms other than classes, such as Never, a TypeVar, an alias."""


def evaluated(
    annotations: Mapping[str, Any], known: dict[str, Any], local: Mapping[str, Any], *, extras: bool = False
) -> dict[str, Any]:
    """Return annotations as types; leave out annotations that cannot be evaluated.

    Args:
        annotations: Types, or their expressions as text, by name.
        known: The globals in which the expressions are evaluated.
        local: The locals in which they are evaluated.
        extras: Whether to keep `Annotated[T, …]`, which otherwise becomes `T`.
    """
    found: dict[str, Any] = {}
    for name, kind in annotations.items():
        # Each annotation on its own: a name that is imported only under TYPE_CHECKING must not hide the other types.
        with contextlib.suppress(*UNKNOWN):
            written = types.SimpleNamespace(__annotations__={name: kind})
            found |= typing.get_type_hints(written, known, local, include_extras=extras)
    return found


def names_around(function: Callable[..., Any]) -> dict[str, Any]:
    """Return the local names of the functions and classes around the definition of a function, if these are still executing."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    found: dict[str, Any] = {}
    if code is None or "." not in code.co_qualname:
        return found
    frame = inspect.currentframe()
    while frame is not None:
        own = frame.f_code
        if own.co_filename == code.co_filename and code.co_qualname.startswith(f"{own.co_qualname}."):
            found = {**frame.f_locals, **found}
        frame = frame.f_back
    return found


def plain(kind: Any) -> Any:
    """Return a type without aliases and without `Annotated`; the class of None for None."""
    while get_origin(kind := unaliased(kind)) is Annotated:
        kind = kind.__origin__
    return kind


def unaliased(kind: Any) -> Any:
    """Return the type that an alias of the `type` statement names, with its arguments filled in; the class of None for None."""
    while not isinstance(kind, type):
        origin = get_origin(kind)
        # Parametrised aliases first: `Alias[int]` has the `__value__` of `Alias`, in which the argument is still open.
        if hasattr(origin, "__value__"):
            kind = origin.__value__[get_args(kind)]
        elif hasattr(kind, "__value__"):
            kind = kind.__value__
        else:
            return type(None) if kind is None else kind
    return kind


def is_union(kind: Any) -> bool:
    """Return whether a type is a union, written as `Union[…]`, `Optional[…]` or with `|`."""
    return get_origin(kind) in (Union, types.UnionType)


def union_members(kind: Any) -> tuple[Any, ...]:
    """Return the members of a union, including those of nested unions; for any other type, the type alone. All are `plain`."""
    kind = plain(kind)
    return tuple(part for each in get_args(kind) for part in union_members(each)) if is_union(kind) else (kind,)


def class_of(kind: Any) -> type | None:
    """Return the class of the values of a type that is not a union: `list` for `list[int]`; None if it is not known."""
    if get_origin(kind) is Annotated:
        kind = kind.__origin__
    found = get_origin(kind) or kind
    return found if isinstance(found, type) else None


def own_class(value: object) -> Any:
    """Return `type(value)`, with a type that checkers accept as a key and as a type."""
    return type(value)


def is_type(value: object) -> bool:
    """Return whether an object is a type (a class, a union, `list[int]`) rather than a plain value."""
    return isinstance(value, type | types.UnionType | types.GenericAlias) or get_origin(value) is not None


def check_type(what: str, kind: object) -> None:
    """Check that an object is a valid annotation: a type, None, Any, or another form of `typing`.

    Raises:
        TypeError: the object is a value, such as the name of a type.
    """
    if not (is_type(kind) or kind is None or type(kind).__module__ in _FORMS):
        raise TypeError(f"{what} must be a type, such as str or list[str], not {kind!r}")


def is_typed_dict(kind: Any) -> bool:
    """Return whether a class is a TypedDict, of `typing` or of `typing_extensions`, which do not know each other's."""
    return isinstance(kind, type) and hasattr(kind, "__required_keys__") and hasattr(kind, "__optional_keys__")


def is_protocol(kind: type) -> bool:
    """Return whether a class is a protocol."""
    return Protocol in kind.__bases__ or bool(getattr(kind, "_is_protocol", False))


def is_opaque_protocol(kind: type) -> bool:
    """Return whether a class is a protocol that `isinstance` refuses, as it is not `runtime_checkable`."""
    return is_protocol(kind) and not getattr(kind, "_is_runtime_protocol", False)
