"""What is known of a node's types when the program runs: read from annotations, compared, taken apart, named."""

from __future__ import annotations

import collections.abc
import contextlib
import enum
import functools
import inspect
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal, Never, Protocol, TypeVar, Union, get_args, get_origin

_NUMBERS: dict[Any, tuple[type, ...]] = {float: (int,), complex: (int, float)}
_ONE_ITEM = (
    collections.abc.Iterable, collections.abc.Iterator, collections.abc.Collection, collections.abc.Container,
    collections.abc.Reversible, collections.abc.Sequence, collections.abc.MutableSequence, collections.abc.Set,
    list, set, frozenset, collections.deque,
)  # fmt: skip
_PAIRS = (collections.abc.Mapping, collections.abc.MutableMapping, dict)
_FEW = 32
"""Items that are looked at one by one: a door must not take longer than what is behind it."""


def hints(function: Callable[..., Any], depth: int) -> dict[str, Any]:
    """Read the annotations of a function; what cannot be read is left out.

    `depth` is how many frames above the caller the function was written, so that names local to that place are found.
    """
    seen: Any = function if inspect.isfunction(function) or inspect.ismethod(function) else type(function).__call__
    frame = inspect.currentframe()
    for _ in range(depth + 1):
        frame = frame and frame.f_back
    local: Mapping[str, Any] = frame.f_locals if frame else {}
    known: Mapping[str, Any] = getattr(inspect.unwrap(seen), "__globals__", {})
    found: dict[str, Any] = {}
    for name, kind in getattr(seen, "__annotations__", {}).items():
        plain = local.get(kind, known.get(kind)) if isinstance(kind, str) else kind
        if isinstance(plain, type):
            found[name] = plain  # a class or its name, as most are: nothing is to be evaluated
            continue
        # One by one: a name that is imported for type checkers alone must not hide the other types.
        with contextlib.suppress(NameError, TypeError, AttributeError, SyntaxError):
            written = types.SimpleNamespace(__annotations__={name: kind})
            found |= typing.get_type_hints(written, dict(known), dict(local))
    return found


def check_known(function: Callable[..., Any], found: Mapping[str, Any], what: str, *names: str) -> None:
    """See that annotations were read: what is not known cannot be checked.

    Raises:
        TypeError: one names what is not known where the function was written.
    """
    seen: Any = function if inspect.isfunction(function) or inspect.ismethod(function) else type(function).__call__
    written: dict[str, Any] = getattr(seen, "__annotations__", {})
    for name in names:
        if name in written and name not in found:
            of = "its result" if name == "return" else f"{name!r}"
            raise TypeError(
                f"{what} annotates {of} with {written[name]!r}, which is not known when the program runs; import or define it "
                f"above, not only under TYPE_CHECKING"
            )


def fits(source: Any, target: Any) -> bool:
    """Tell whether a value declared as `source` may go where `target` is declared. True wherever that cannot be known."""
    try:
        return _fits(source, target)
    except TypeError:  # an unhashable or exotic form: the static checkers know better
        return True


@functools.lru_cache(maxsize=4096)
def _fits(source: Any, target: Any) -> bool:
    source, target = _plain(source), _plain(target)
    if source is target or Any in (source, target) or target is object or source is Never:
        return True
    if isinstance(source, TypeVar) or isinstance(target, TypeVar):
        return True
    if _is_union(source):
        return all(_fits(member, target) for member in get_args(source))
    if get_origin(source) is Literal:
        return all(_value_fits(value, target) for value in get_args(source))
    if _is_union(target):
        return any(_fits(source, member) for member in get_args(target)) or _fits_by_members(source, target)
    if get_origin(target) is Literal:
        return _fits_by_members(source, target)
    if isinstance(source, typing.NewType):
        return _fits(source.__supertype__, target)
    if isinstance(target, typing.NewType):
        return False
    return _class_fits(source, target)


def is_a(value: object, kind: Any) -> bool:
    """Tell whether a value is of a type. True wherever that cannot be known; items are looked at where there are few."""
    kind = _plain(kind)
    if _is_union(kind):
        return any(is_a(value, member) for member in get_args(kind))
    if isinstance(kind, typing.NewType):
        return is_a(value, kind.__supertype__)
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Literal:
        return any(type(value) is type(each) and value == each for each in arguments)
    wanted = origin or kind
    if kind is Any or not isinstance(wanted, type):
        return True
    if typing.is_typeddict(wanted):
        return isinstance(value, dict)
    if _is_protocol(wanted) and not _is_runtime_protocol(wanted):
        return value is not None
    try:
        if not isinstance(value, (wanted, *_NUMBERS.get(wanted, ()))):
            return False
    except TypeError:  # its metaclass does not answer that
        return True
    return not arguments or _items_fit(value, arguments, wanted)


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
        _fits(_class_of(value), part) for part in parts if get_origin(part) is not Literal
    )


def _fits_by_members(source: Any, target: Any) -> bool:
    parts = members(source)
    return parts != [source] and all(_fits(part, target) for part in parts)


def _class_fits(source: Any, target: Any) -> bool:
    given, wanted = get_origin(source) or source, get_origin(target) or target
    if not isinstance(given, type) or not isinstance(wanted, type):
        return True
    if typing.is_typeddict(wanted) or _is_protocol(wanted):
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
    """Take a type apart into what its values may be: members of a union, of an enum, the two of bool, literal values."""
    kind = _plain(kind)
    if _is_union(kind):
        return [part for member in get_args(kind) for part in members(member)]
    if kind is bool:
        return [literal(True), literal(False)]
    if isinstance(kind, type) and issubclass(kind, enum.Enum) and not issubclass(kind, enum.Flag) and len(kind):
        return [literal(member) for member in kind]
    if get_origin(kind) is Literal:
        return [literal(value) for value in get_args(kind)]
    return [kind]


def union(kinds: Iterable[Any]) -> Any:
    """Join types into one; Never where there is none, Any where one is Any. All members of a bool or enum make it whole."""
    found = list(dict.fromkeys(_plain(kind) for kind in kinds if kind is not Never))
    values = [value for kind in found if get_origin(kind) is Literal for value in get_args(kind)]
    for whole in dict.fromkeys(map(_class_of, values)):
        parts = members(whole)
        if parts != [whole] and all(part in found for part in parts):
            found = list(dict.fromkeys(whole if kind in parts else kind for kind in found))
    if not found:
        return Never
    return Any if Any in found else _parametrised(Union, tuple(found))


def literal(value: Any) -> Any:
    """Give the type whose only value is this one; its class where it cannot stand in a Literal."""
    if value is None:
        return type(None)
    return _parametrised(Literal, value) if isinstance(value, str | bytes | int | enum.Enum) else _class_of(value)


def tuple_of(kinds: Iterable[Any]) -> Any:
    """Give the type of a tuple of these types."""
    return _parametrised(tuple, tuple(kinds))


def list_of(kind: Any) -> Any:
    """Give the type of a list of this type."""
    return _parametrised(list, kind)


def iterable_of(kind: Any) -> Any:
    """Give the type of an iterable of this type."""
    return _parametrised(collections.abc.Iterable, kind)


def _parametrised(form: Any, arguments: Any) -> Any:
    return form[arguments]


def _class_of(value: object) -> Any:
    return type(value)


def one_value(value: object) -> str:
    """Name a value as its author would write it: `True`, `Color.RED`, `'high'`."""
    return f"{type(value).__name__}.{value.name}" if isinstance(value, enum.Enum) else repr(value)


def tester(kinds: Iterable[Any], output: Any) -> Callable[[Any], bool]:
    """Give the test whether a value, one of an output's, is of one of some types.

    Where the output names float, an int that no other part of it names is a float too, as PEP 484 has it.

    Raises:
        TypeError: `isinstance` cannot test for it, as for `Any` or a type variable.
    """
    classes = tuple(found for kind in kinds for found in _runtime_classes(kind))
    parts = members(output)
    numbers = tuple(number for each in classes if each in parts for number in _NUMBERS.get(each, ()))
    if not numbers:
        return lambda value: isinstance(value, classes)
    named = tuple(_runtime_class(part) for part in parts if part is not Any and fits(part, int))
    return lambda value: isinstance(value, classes) or (isinstance(value, numbers) and not isinstance(value, named))


def _runtime_classes(kind: Any) -> list[Any]:
    kind = _plain(kind)
    if _is_union(kind):
        return [found for member in get_args(kind) for found in _runtime_classes(member)]
    found = _runtime_class(kind)
    open_ = kind is Any or get_origin(kind) is Literal or not isinstance(found, type)
    if open_ or typing.is_typeddict(found) or (_is_protocol(found) and not _is_runtime_protocol(found)):
        raise TypeError(f".on() takes a class or a value, not {show(kind)}; use .when(test) for anything else")
    return [found]


def _runtime_class(kind: Any) -> Any:
    origin = get_origin(kind)
    return _class_of(get_args(kind)[0]) if origin is Literal else origin or kind


def passes(member: Any, wanted: Any) -> bool:
    """Tell whether a part of an output passes an outlet for a type, with every value: as `tester` has it."""
    own = _runtime_class(member)
    return any(
        fits(member, part) and (part not in _NUMBERS or (isinstance(own, type) and issubclass(own, part)))
        for part in members(wanted)
    )


def erases(kind: Any, member: Any) -> bool:
    """Tell whether `isinstance` takes values of `member` for `kind`, though they may be something else: `list[int]`."""
    classes = [get_origin(each) or each for each in (member, kind)]
    known = all(isinstance(each, type) for each in classes) and bool(get_args(kind))
    return known and issubclass(classes[0], classes[1]) and not fits(member, kind)


def is_type(value: object) -> bool:
    """Tell a type (a class, a union, `list[int]`) from a plain value."""
    return isinstance(value, type | types.UnionType | types.GenericAlias) or get_origin(value) is not None


def show(kind: Any) -> str:
    """Name a type as its author would write it."""
    kind = _plain(kind)
    if kind is type(None):
        return "None"
    if _is_union(kind):
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


def _plain(kind: Any) -> Any:
    while True:
        if kind is None:
            return type(None)
        if get_origin(kind) is typing.Annotated:
            kind = get_args(kind)[0]
        elif hasattr(kind, "__value__") and not isinstance(kind, type):  # a type alias of the `type` statement
            kind = kind.__value__
        else:
            return kind


def _is_union(kind: Any) -> bool:
    return get_origin(kind) in (Union, types.UnionType)


def _is_protocol(kind: type) -> bool:
    return Protocol in kind.__bases__ or bool(getattr(kind, "_is_protocol", False))


def _is_runtime_protocol(kind: type) -> bool:
    return bool(getattr(kind, "_is_runtime_protocol", False))
