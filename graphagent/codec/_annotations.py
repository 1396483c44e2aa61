"""Declared types of values: the members of a union, the types of items in containers and of the fields of classes."""

from __future__ import annotations

import dataclasses
import enum
import functools
import inspect
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, Any, Literal, TypeVar, Union, cast, get_args, get_origin

from graphagent._annotations import UNKNOWN, class_of, evaluated, is_typed_dict, is_union, own_class, unaliased

_T = TypeVar("_T")
_QUALIFIERS = {"ClassVar", "Final", "NotRequired", "ReadOnly", "Required"}
_BUILT_IN = (bytearray, bytes, complex, dict, float, frozenset, int, list, set, str, tuple)

CONTAINERS = (list, tuple, dict, set, frozenset)
"""The classes whose objects are written as their items."""


def cached(function: Callable[..., _T]) -> Callable[..., _T]:
    """Cache a function of types. For types that cannot be hashed, it is called each time."""
    cache = functools.lru_cache(maxsize=4096)(function)

    @functools.wraps(function)
    def call(*kinds: Any) -> _T:
        try:
            return cache(*kinds)
        except TypeError:
            return function(*kinds)

    return call


@cached
def members(kind: Any) -> tuple[Any, ...]:
    """Return the types that a value of a declared type may be of, without aliases and qualifiers; nothing for Any and object."""
    kind = _resolved(kind)
    if is_union(kind):
        return tuple(dict.fromkeys(part for each in get_args(kind) for part in members(each)))
    if get_origin(kind) is Literal:
        return tuple(dict.fromkeys(map(own_class, get_args(kind))))
    if isinstance(kind, TypeVar):
        bound: Any = kind.__bound__
        limits = kind.__constraints__ or (() if bound is None else (bound,))
        return tuple(part for each in limits for part in members(each))
    return () if kind is Any or kind is object else (kind,)


def _resolved(kind: Any) -> Any:
    while True:
        kind = unaliased(kind)
        origin = get_origin(kind)
        if origin is Annotated:
            within = kind.__origin__
            if isinstance(within, type) and shape(within) == "leaf" and _is_hashable(kind):
                return kind  # its metadata may say how pydantic reads and writes it
            kind = within
        elif origin is not None and getattr(origin, "_name", None) in _QUALIFIERS:
            kind = get_args(kind)[0]
        elif isinstance(kind, typing.NewType):
            kind = kind.__supertype__
        else:
            return kind


def _is_hashable(kind: Any) -> bool:
    try:
        hash(kind)
    except TypeError:
        return False
    return True


def _joined(kinds: Iterable[Any]) -> Any:
    found = tuple(kinds)
    return Union[found] if found else Any  # noqa: UP007  `|` joins two types, not a tuple of them


@cached
def classes(kind: Any) -> dict[str, type | None]:
    """Return the classes in a declared type by name; None for a name that two of them have."""
    found: dict[str, type | None] = {}
    for part in members(kind):
        owner = class_of(part)
        if owner is not None:
            found[owner.__name__] = owner if found.get(owner.__name__, owner) is owner else None
    return found


@cached
def shape(kind: Any) -> str:
    """Return the kind of a class: `fields` (a dataclass), `model`, `named` (a named tuple), `enum`, `error`, or `leaf` for others."""
    if is_subclass(kind, enum.Enum):
        return "enum"
    if is_subclass(kind, BaseException):
        return "error"
    if hasattr(kind, "__pydantic_fields__") and not dataclasses.is_dataclass(kind):
        return "model"
    if dataclasses.is_dataclass(kind) and not is_subclass(kind, _BUILT_IN):
        return "fields"
    return "named" if is_subclass(kind, tuple) and hasattr(kind, "_fields") else "leaf"


def is_subclass(form: Any, kind: Any) -> bool:
    """Return `issubclass(form, kind)`; False for anything that `issubclass` refuses."""
    try:
        return issubclass(form, kind)
    except TypeError:  # no class, a TypedDict, or a protocol that is not runtime_checkable
        return False


def _arguments(kind: Any, form: type) -> list[tuple[Any, tuple[Any, ...]]]:
    """Return the parametrised members of a type that a container of class `form` fits, each as its class and arguments."""
    found = ((class_of(part), get_args(part)) for part in members(kind) if is_subclass(form, class_of(part)))
    return [(owner, arguments) for owner, arguments in found if arguments]


@cached
def item_kind(kind: Any, form: type) -> Any:
    """Return the declared type of the items of a list, a set or a tuple of any length, or of the keys of a dict."""
    return _joined(arguments[0] for _, arguments in _arguments(kind, form))


@cached
def value_kind(kind: Any) -> Any:
    """Return the declared type of the values of a dict."""
    return _joined(arguments[1] for _, arguments in _arguments(kind, dict) if len(arguments) == 2)


@cached
def key_kinds(kind: Any) -> Mapping[str, Any]:
    """Return the declared types of the values of a TypedDict, by key."""
    return _merged(part for part in members(kind) if is_typed_dict(class_of(part)))


@cached
def place_kinds(kind: Any, count: int) -> tuple[Any, ...] | None:
    """Return the declared types of the `count` items of a tuple; None if all have the same type, which `item_kind` returns."""
    fixed: list[tuple[Any, ...]] = []
    rest: list[tuple[Any, ...]] = []
    for owner, arguments in _arguments(kind, tuple):
        if owner is tuple and arguments[-1] is not Ellipsis:
            fixed.append(arguments)
        else:
            rest.append((arguments[0],) * count)
    rows = [*(row for row in fixed if len(row) == count), *rest]
    return tuple(_joined(row[place] for row in rows) for place in range(count)) if fixed else None


@cached
def field_kinds(kind: Any, owner: type) -> Mapping[str, Any]:
    """Return the declared types of the fields of a class, with the arguments that a declared type gives to it filled in."""
    return _merged(part for part in members(kind) if class_of(part) is owner)


def _merged(parts: Iterable[Any]) -> dict[str, Any]:
    found: dict[str, list[Any]] = {}
    for part in parts:
        owner = class_of(part) or object
        given = dict(zip(getattr(owner, "__parameters__", ()), get_args(part), strict=False))
        for name, each in hints(owner).items():
            found.setdefault(name, []).append(_filled(each, given) if given else each)
    return {name: _joined(kinds) for name, kinds in found.items()}


def _filled(kind: Any, given: Mapping[Any, Any]) -> Any:
    if isinstance(kind, TypeVar):
        return given.get(kind, kind)
    parameters = getattr(kind, "__parameters__", ())
    if not parameters or isinstance(kind, type):
        return kind
    return kind[tuple(given.get(each, each) for each in parameters)]


@cached
def hints(owner: type) -> dict[str, Any]:
    """Return the annotations of a class and its bases as types; Any for one that cannot be evaluated."""
    local = {owner.__name__: owner}
    found: dict[str, Any] = {}
    try:
        found = typing.get_type_hints(owner, localns=local, include_extras=True)
    except UNKNOWN:
        for base in reversed(owner.__mro__):
            known = vars(inspect.getmodule(base) or types.ModuleType(""))
            written = inspect.get_annotations(base)
            found |= dict.fromkeys(written, Any) | evaluated(written, known, local, extras=True)
    fields = cast("Mapping[str, Any]", getattr(owner, "__pydantic_fields__", {}))
    for name, field in fields.items():  # pydantic has evaluated these itself
        found[name] = Annotated[(field.annotation, *field.metadata)] if field.metadata else field.annotation
    return found
