"""The types of a node's input and output: read from annotations, compared, split into their parts, joined, shown."""

from __future__ import annotations

import builtins
import collections.abc
import enum
import functools
import inspect
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal, Never, TypeVar, Union, get_args, get_origin

from graphagent._annotations import (
    evaluated,
    is_opaque_protocol,
    is_protocol,
    is_typed_dict,
    is_union,
    names_around,
    own_class,
    plain,
    union_members,
)

_NUMBERS: dict[Any, tuple[type, ...]] = {float: (int,), complex: (int, float)}
_ONE_ITEM = (
    collections.abc.Iterable, collections.abc.Iterator, collections.abc.Collection, collections.abc.Container,
    collections.abc.Reversible, collections.abc.Sequence, collections.abc.MutableSequence, collections.abc.Set,
    list, set, frozenset, collections.deque,
)  # fmt: skip
_PAIRS = (collections.abc.Mapping, collections.abc.MutableMapping, dict)
_BUILTINS = vars(builtins)
_FEW = 32
"""The largest container whose items `is_a` checks: checking an input must not take longer than processing it."""


def type_hints(function: Callable[..., Any]) -> dict[str, Any]:
    """Return the types of the parameters of a function, by name, and of its result, as "return".

    Unlike `typing.get_type_hints`, it finds types that are local to the function in which this one is defined, and leaves out
    those that are not known when the program runs, such as those imported under TYPE_CHECKING.

    Args:
        function: A function, a method or a callable object.
    """
    annotated = _annotated(function)
    local = names_around(annotated)
    known: dict[str, Any] = getattr(inspect.unwrap(annotated), "__globals__", {})
    found: dict[str, Any] = {}
    for name, kind in getattr(annotated, "__annotations__", {}).items():
        named = local.get(kind, known.get(kind, _BUILTINS.get(kind))) if isinstance(kind, str) else kind
        # Most annotations are a class or the name of one; only the others need to be evaluated, which is slow.
        found |= {name: named} if isinstance(named, type) else evaluated({name: kind}, known, local)
    return found


def _annotated(function: Callable[..., Any]) -> Any:
    return function if inspect.isfunction(function) or inspect.ismethod(function) else type(function).__call__


def check_known(function: Callable[..., Any], found: Mapping[str, Any], what: str, *names: str) -> None:
    """Check that the annotations of some parameters, or of "return", are among those that `type_hints` could evaluate.

    Raises:
        TypeError: an annotation uses a name that is not known when the program runs, so edges cannot be checked by it.
    """
    written: dict[str, Any] = getattr(_annotated(function), "__annotations__", {})
    for name in names:
        if name in written and name not in found:
            of = "its result" if name == "return" else f"{name!r}"
            raise TypeError(
                f"{what} annotates {of} with {written[name]!r}, which is not known when the program runs; import or define it "
                f"above, not only under TYPE_CHECKING"
            )


def fits(source: Any, target: Any) -> bool:
    """Return whether a value declared as `source` may be passed where `target` is declared. True if that cannot be known."""
    try:
        return _fits(source, target)
    except TypeError:  # a form that cannot be hashed or compared: the static checkers know better
        return True


@functools.lru_cache(maxsize=4096)
def _fits(source: Any, target: Any) -> bool:
    source, target = plain(source), plain(target)
    if source is target or Any in (source, target) or target is object or source is Never:
        return True
    if isinstance(source, TypeVar) or isinstance(target, TypeVar):
        return True
    if is_union(source):
        return all(_fits(member, target) for member in get_args(source))
    if get_origin(source) is Literal:
        return all(_value_fits(value, target) for value in get_args(source))
    if is_union(target):
        return any(_fits(source, member) for member in get_args(target)) or _fits_by_members(source, target)
    if get_origin(target) is Literal:
        return _fits_by_members(source, target)
    if isinstance(source, typing.NewType):
        return _fits(source.__supertype__, target)
    if isinstance(target, typing.NewType):
        return False
    return _class_fits(source, target)


def is_a(value: object, kind: Any) -> bool:
    """Return whether a value is of a type. True if that cannot be known. The items of small containers are checked too."""
    if type(value) is kind:  # no items to look at; the task of most runs
        return True
    kind = plain(kind)
    if is_union(kind):
        return any(is_a(value, member) for member in get_args(kind))
    if isinstance(kind, typing.NewType):
        return is_a(value, kind.__supertype__)
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Literal:
        return any(type(value) is type(each) and value == each for each in arguments)
    wanted = origin or kind
    if kind is Any or not isinstance(wanted, type):
        return True
    if is_typed_dict(wanted):
        return isinstance(value, dict)
    if is_opaque_protocol(wanted):
        return value is not None
    try:
        if not isinstance(value, (wanted, *_NUMBERS.get(wanted, ()))):
            return False
    except TypeError:  # its metaclass does not support isinstance
        return True
    return not arguments or _items_fit(value, arguments, wanted)


def plain_classes(kind: Any) -> tuple[type, ...]:
    """Return the classes of the values of a type, if one quick `isinstance` check decides; otherwise none."""
    found: list[type] = []
    for part in union_members(kind):
        while isinstance(part, typing.NewType):
            part = plain(part.__supertype__)
        classes = list(map(own_class, get_args(part))) if get_origin(part) is Literal else [get_origin(part) or part]
        for each in classes:
            if each in (Any, object) or not isinstance(each, type) or each.__module__ == "collections.abc":
                return ()
            if is_typed_dict(each) or is_protocol(each):
                return ()
            found += (each, *_NUMBERS.get(each, ()))
    try:
        isinstance(None, tuple(found))
    except TypeError:  # a metaclass does not support it
        return ()
    return tuple(dict.fromkeys(found))


def _items_fit(value: Any, kinds: tuple[Any, ...], wanted: type) -> bool:
    if type(value) not in (list, tuple, set, frozenset, dict) or len(value) > _FEW:
        return True
    if wanted is tuple and kinds[-1] is not Ellipsis:
        return len(value) == len(kinds) and all(map(is_a, value, kinds))
    if wanted in _PAIRS:
        return all(is_a(key, kinds[0]) and is_a(each, kinds[1]) for key, each in value.items())
    return wanted not in (tuple, *_ONE_ITEM) or all(is_a(each, kinds[0]) for each in value)


def _value_fits(value: Any, target: Any) -> bool:
    parts = members(target)
    return literal(value) in parts or any(
        _fits(own_class(value), part) for part in parts if get_origin(part) is not Literal
    )


def _fits_by_members(source: Any, target: Any) -> bool:
    parts = members(source)
    return parts != [source] and all(_fits(part, target) for part in parts)


def _class_fits(source: Any, target: Any) -> bool:
    given, wanted = get_origin(source) or source, get_origin(target) or target
    if not isinstance(given, type) or not isinstance(wanted, type):
        return True
    if is_typed_dict(wanted) or is_protocol(wanted):
        return True
    if not issubclass(given, wanted):
        return any(issubclass(given, number) for number in _NUMBERS.get(wanted, ()))
    return _arguments_fit(source, given, target, wanted)


def _arguments_fit(source: Any, given: type, target: Any, wanted: type) -> bool:
    asked = get_args(target)
    if not asked:
        return True
    if given is str and wanted in _ONE_ITEM:
        return _fits(str, asked[0])
    have = get_args(source)
    if not have:
        return True
    if given is tuple and wanted is tuple:
        return _tuples_fit(have, asked)
    if wanted in _ONE_ITEM and given is tuple:
        return all(_fits(item, asked[0]) for item in have if item is not Ellipsis)
    if given is wanted or (wanted in _ONE_ITEM and given in _ONE_ITEM):
        return len(have) != len(asked) or all(map(_fits, have, asked))
    return True


def _tuples_fit(have: tuple[Any, ...], asked: tuple[Any, ...]) -> bool:
    if asked[-1] is Ellipsis:
        return all(_fits(item, asked[0]) for item in have if item is not Ellipsis)
    if have[-1] is Ellipsis:
        return False
    return len(have) == len(asked) and all(map(_fits, have, asked))


def members(kind: Any) -> list[Any]:
    """Return the parts of a type: members of a union, values of a Literal, members of an enum, True and False of bool."""
    return [part for member in union_members(kind) for part in _values_of(member)]


def _values_of(kind: Any) -> list[Any]:
    if kind is bool:
        return [literal(True), literal(False)]
    if isinstance(kind, type) and issubclass(kind, enum.Enum) and not issubclass(kind, enum.Flag) and len(kind):
        return [literal(member) for member in kind]
    if get_origin(kind) is Literal:
        return [literal(value) for value in get_args(kind)]
    return [kind]


def union(kinds: Iterable[Any]) -> Any:
    """Return the union of types: Never of none, Any if one is Any, and a bool or an enum if all of its values are given."""
    found = list(dict.fromkeys(plain(kind) for kind in kinds if kind is not Never))
    values = [value for kind in found if get_origin(kind) is Literal for value in get_args(kind)]
    for whole in dict.fromkeys(map(own_class, values)):
        parts = members(whole)
        if parts != [whole] and all(part in found for part in parts):
            found = list(dict.fromkeys(whole if kind in parts else kind for kind in found))
    if not found:
        return Never
    return Any if Any in found else _parametrised(Union, tuple(found))


def distinct(kinds: Sequence[Any]) -> list[Any]:
    """Return each of some types once, in their order; all of them if one cannot be hashed."""
    try:
        return list(dict.fromkeys(kinds))
    except TypeError:
        return list(kinds)


def literal(value: Any) -> Any:
    """Return the type whose only value is this one; its class if a Literal cannot contain it."""
    if value is None:
        return type(None)
    return _parametrised(Literal, value) if isinstance(value, str | bytes | int | enum.Enum) else own_class(value)


def tuple_of(kinds: Iterable[Any]) -> Any:
    """Return the type of a tuple of these types."""
    return _parametrised(tuple, tuple(kinds))


def list_of(kind: Any) -> Any:
    """Return the type of a list of this type."""
    return _parametrised(list, kind)


def iterable_of(kind: Any) -> Any:
    """Return the type of an iterable of this type."""
    return _parametrised(collections.abc.Iterable, kind)


def _parametrised(form: Any, arguments: Any) -> Any:
    return form[arguments]


def one_value(value: object) -> str:
    """Return a value of a Literal or an enum as its author would write it: `True`, `Color.RED`, `'high'`."""
    return f"{type(value).__name__}.{value.name}" if isinstance(value, enum.Enum) else repr(value)


def tester(kinds: Iterable[Any], output: Any) -> Callable[[Any], bool]:
    """Return a test for whether a value of type `output` has one of the given types.

    If the output includes float, an int that no other part includes counts as a float, as in PEP 484.

    Raises:
        TypeError: `isinstance` cannot test for one of the types, such as `Any` or a type variable.
    """
    classes = tuple(found for kind in kinds for found in _runtime_classes(kind))
    parts = members(output)
    numbers = tuple(number for each in classes if each in parts for number in _NUMBERS.get(each, ()))
    if not numbers:
        return lambda value: isinstance(value, classes)
    named = tuple(_runtime_class(part) for part in parts if part is not Any and fits(part, int))
    return lambda value: isinstance(value, classes) or (isinstance(value, numbers) and not isinstance(value, named))


def _runtime_classes(kind: Any) -> list[Any]:
    found: list[Any] = []
    for part in union_members(kind):
        found.append(_runtime_class(part))
        untestable = part is Any or get_origin(part) is Literal or not isinstance(found[-1], type)
        if untestable or is_typed_dict(found[-1]) or is_opaque_protocol(found[-1]):
            raise TypeError(f".on() takes a class or a value, not {show(part)}; use .when(test) for anything else")
    return found


def _runtime_class(kind: Any) -> Any:
    origin = get_origin(kind)
    return own_class(get_args(kind)[0]) if origin is Literal else origin or kind


def passes(member: Any, wanted: Any) -> bool:
    """Return whether every value of a part of an output takes an edge for the type `wanted`, as `tester` decides it."""
    own = _runtime_class(member)
    return any(
        fits(member, part) and (part not in _NUMBERS or (isinstance(own, type) and issubclass(own, part)))
        for part in members(wanted)
    )


def erases(kind: Any, member: Any) -> bool:
    """Return whether `isinstance` cannot tell values of `member` from those of `kind`, such as `list[int]`."""
    classes = [get_origin(each) or each for each in (member, kind)]
    known = all(isinstance(each, type) for each in classes) and bool(get_args(kind))
    return known and issubclass(classes[0], classes[1]) and not fits(member, kind)


def show(kind: Any) -> str:
    """Return a type as its author would write it."""
    kind = plain(kind)
    if kind is type(None):
        return "None"
    if is_union(kind):
        return " | ".join(show(member) for member in get_args(kind))
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Literal:
        return " | ".join(map(one_value, arguments))
    if origin is not None and arguments:
        if isinstance(arguments[0], list):  # of a Callable
            return f"Callable[[{', '.join(map(show, get_args(kind)[0]))}], {show(arguments[1])}]"
        inner = ", ".join("..." if each is Ellipsis else show(each) for each in arguments)
        return f"{getattr(origin, '__name__', str(origin))}[{inner}]"
    return getattr(kind, "__name__", None) or str(kind).removeprefix("typing.")
