"""What a declared type says of a value: the members of a union, the types within containers, the fields of classes."""

from __future__ import annotations

import dataclasses
import enum
import functools
import inspect
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from typing import Annotated, Any, Literal, TypeVar, Union, cast, get_args, get_origin

_T = TypeVar("_T")
_MARKS = {"ClassVar", "Final", "NotRequired", "ReadOnly", "Required"}
_BUILT_IN = (bytearray, bytes, complex, dict, float, frozenset, int, list, set, str, tuple)

CONTAINERS = (list, tuple, dict, set, frozenset)
"""The classes whose objects are written as what is in them."""


def cached(function: Callable[..., _T]) -> Callable[..., _T]:
    """Remember what a function of types gave; those that cannot be hashed are looked at again."""
    held = functools.lru_cache(maxsize=4096)(function)

    @functools.wraps(function)
    def asked(*kinds: Any) -> _T:
        try:
            return held(*kinds)
        except TypeError:
            return function(*kinds)

    return asked


@cached
def members(kind: Any) -> tuple[Any, ...]:
    """Take a type apart into what its values may be, without aliases and marks; nothing where it says nothing."""
    kind = _resolved(kind)
    origin = get_origin(kind)
    if origin is Union or origin is types.UnionType:
        return tuple(dict.fromkeys(part for each in get_args(kind) for part in members(each)))
    if origin is Literal:
        return tuple(dict.fromkeys(map(own_class, get_args(kind))))
    if isinstance(kind, TypeVar):
        bound: Any = kind.__bound__
        limits = kind.__constraints__ or (() if bound is None else (bound,))
        return tuple(part for each in limits for part in members(each))
    return () if kind is Any or kind is object else (kind,)


def own_class(value: object) -> Any:
    """Give the class that a value is of, itself."""
    return type(value)


def _resolved(kind: Any) -> Any:
    while True:
        origin = get_origin(kind)
        if kind is None:
            return type(None)
        if origin is Annotated:
            within = kind.__origin__
            if isinstance(within, type) and shape(within) == "leaf" and _is_hashable(kind):
                return kind  # what is said beside it may be how it is read and written
            kind = within
        elif origin is not None and getattr(origin, "_name", None) in _MARKS:
            kind = get_args(kind)[0]
        elif isinstance(kind, typing.NewType):
            kind = kind.__supertype__
        elif hasattr(kind, "__value__") and not isinstance(kind, type):  # an alias of the `type` statement
            kind = kind.__value__
        elif origin is not None and hasattr(origin, "__value__"):
            kind = origin.__value__[get_args(kind)]
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
    return Union[found] if found else Any  # noqa: UP007


def class_of(part: Any) -> type | None:
    """Give the class that a member of a type stands for, if it stands for one."""
    if get_origin(part) is Annotated:
        part = part.__origin__
    found = get_origin(part) or part
    return found if isinstance(found, type) else None


@cached
def classes(kind: Any) -> dict[str, type | None]:
    """Give the classes that a type names, by their names; None where it names two of one name."""
    found: dict[str, type | None] = {}
    for part in members(kind):
        there = class_of(part)
        if there is not None:
            found[there.__name__] = there if found.get(there.__name__, there) is there else None
    return found


@cached
def shape(kind: Any) -> str:
    """Tell how values of a class are put together: `fields`, `model`, `named`, `enum`, `error`, or `leaf`: none of these."""
    if is_subclass(kind, enum.Enum):
        return "enum"
    if is_subclass(kind, BaseException):
        return "error"
    if hasattr(kind, "__pydantic_fields__") and not dataclasses.is_dataclass(kind):
        return "model"
    if dataclasses.is_dataclass(kind) and not is_subclass(kind, _BUILT_IN):
        return "fields"
    return "named" if is_subclass(kind, tuple) and hasattr(kind, "_fields") else "leaf"


def is_typed_dict(part: Any) -> bool:
    """Tell whether a class is a TypedDict."""
    # There are two, of typing and of typing_extensions, and neither knows the other's.
    return isinstance(part, type) and hasattr(part, "__required_keys__") and hasattr(part, "__optional_keys__")


def is_subclass(form: Any, kind: Any) -> bool:
    """Tell whether values of one class are of another, whatever that is."""
    try:
        return issubclass(form, kind)
    except TypeError:  # no class, a TypedDict, or a protocol that is not to be asked
        return False


def _arguments(kind: Any, form: type) -> list[tuple[Any, tuple[Any, ...]]]:
    """Give the members of a type that a container of some form may be of, as a class and its arguments."""
    found = ((class_of(part), get_args(part)) for part in members(kind) if is_subclass(form, class_of(part)))
    return [(owner, arguments) for owner, arguments in found if arguments]


@cached
def item_kind(kind: Any, form: type) -> Any:
    """Give the declared type of what is in a list, a set or a tuple of any length, or of the keys of a dict."""
    return _joined(arguments[0] for _, arguments in _arguments(kind, form))


@cached
def value_kind(kind: Any) -> Any:
    """Give the declared type of the values of a dict."""
    return _joined(arguments[1] for _, arguments in _arguments(kind, dict) if len(arguments) == 2)


@cached
def key_kinds(kind: Any) -> Mapping[str, Any]:
    """Give the declared types of the values of a dict that a TypedDict names."""
    return _merged(part for part in members(kind) if is_typed_dict(class_of(part)))


@cached
def place_kinds(kind: Any, count: int) -> tuple[Any, ...] | None:
    """Give the declared types of what is in a tuple of so many; None where all are of one, which is `item_kind`."""
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
    """Give the declared types of the fields of a class, as a type that names it has them."""
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
    """Give the annotations of a class and those above it; Any for one that cannot be read."""
    local = {owner.__name__: owner}
    found: dict[str, Any] = {}
    try:
        found = typing.get_type_hints(owner, localns=local, include_extras=True)
    except (NameError, TypeError, AttributeError, SyntaxError):
        # One by one: a name that is imported for type checkers alone must not hide the other types.
        for base in reversed(owner.__mro__):
            known = vars(inspect.getmodule(base) or types.ModuleType(""))
            for name, kind in inspect.get_annotations(base).items():
                written = types.SimpleNamespace(__annotations__={name: kind})
                try:
                    found |= typing.get_type_hints(written, known, local, include_extras=True)
                except (NameError, TypeError, AttributeError, SyntaxError):
                    found[name] = Any
    fields = cast("Mapping[str, Any]", getattr(owner, "__pydantic_fields__", {}))
    for name, field in fields.items():  # pydantic has resolved these itself
        found[name] = Annotated[(field.annotation, *field.metadata)] if field.metadata else field.annotation
    return found
