"""Objects of declared classes as plain JSON data and back: by their fields, without calling their constructors.

Such an object is `{"$": "typed", "t": "Draft", "v": {…}}`. The name only chooses among the declared classes; no class is ever
imported because data names it. Objects without fields, such as a Path, are written and read by pydantic.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Never, NoReturn, cast, get_args

from graphagent._annotations import class_of, is_typed_dict, own_class
from graphagent._article import a
from graphagent.codec._annotations import (
    CONTAINERS,
    cached,
    classes,
    field_kinds,
    is_subclass,
    key_kinds,
    members,
    shape,
)
from graphagent.codec._errors import DecodeError
from graphagent.errors import SerializationError
from graphagent.graph._types import show

if TYPE_CHECKING:
    from pydantic import TypeAdapter

Inner = Callable[[Any, Any], Any]
"""Writes or reads a value within an object, called with the value and its declared type."""
_Fields = dict[str, Any]

_NOTHING = object()


class TooDeepError(SerializationError):
    """A value has too many levels."""


def write_object(value: object, kind: Any, inner: Inner) -> dict[str, Any]:
    """Return an object as JSON data.

    Raises:
        SerializationError: its class is not declared, or a value in it cannot be stored.
    """
    owner = own_class(value)
    name = owner.__name__
    form = shape(owner)
    known = classes(kind)
    if form == "error":
        return _write_error(cast("BaseException", value), kind, inner)
    if form == "leaf":
        return _write_leaf(value, kind, inner)
    if name in known and known[name] is None:
        raise _two_of(name)
    if known.get(name) is not owner:
        raise _undeclared(value, kind)
    if isinstance(value, enum.Enum):
        # A combination of flags has no name of its own.
        return {"$": "typed", "t": name, "v": inner(value.value if isinstance(value, enum.Flag) else value.name, Any)}
    kinds = field_kinds(kind, owner)
    if form == "model":
        return {"$": "typed", "t": name, **_model_parts(value, kinds, inner)}
    found: dict[str, Any] = {"$": "typed", "t": name, "v": {}}
    for field in _names(owner):
        part = getattr(value, field, _NOTHING)
        if part is _NOTHING:
            raise SerializationError(f"the {field} of {a(name)} was never set")
        found["v"][field] = _within(name, field, part, kinds, inner)
    extra = _extra(value, owner)
    if extra:
        found["x"] = {field: _within(name, field, part, kinds, inner) for field, part in extra.items()}
    return found


def _within(name: str, field: str, value: object, kinds: Mapping[str, Any], inner: Inner) -> Any:
    try:
        return inner(value, kinds.get(field, Any))
    except TooDeepError:  # the whole path would be hundreds of fields
        raise
    except SerializationError as error:
        text = str(error)
    raise SerializationError(f"the {field} of {a(name)}: {text}")


@cached
def _names(owner: Any) -> tuple[str, ...]:
    """Return the names of the fields of a dataclass or named tuple."""
    return owner._fields if is_subclass(owner, tuple) else tuple(field.name for field in dataclasses.fields(owner))


def _extra(value: object, owner: Any) -> _Fields:
    """Return the attributes of an object that are not fields, without cached properties, which can be computed again."""
    held: _Fields | None = getattr(value, "__dict__", None)
    if not held:
        return {}
    fields = set(_names(owner))
    return {
        name: part
        for name, part in held.items()
        if name not in fields and not isinstance(getattr(owner, name, None), functools.cached_property)
    }


def _model_parts(value: Any, kinds: Mapping[str, Any], inner: Inner) -> _Fields:
    owner = own_class(value)
    name, fields = owner.__name__, owner.__pydantic_fields__
    state = cast("_Fields", vars(value))
    held = {field: part for field, part in state.items() if field in fields}
    found: _Fields = {"v": {field: _within(name, field, part, kinds, inner) for field, part in held.items()}}
    if value.model_fields_set != set(held):
        found["set"] = sorted(value.model_fields_set)
    for key, parts in (("x", value.__pydantic_extra__), ("p", value.__pydantic_private__)):
        if parts is not None:
            found[key] = {field: _within(name, field, part, kinds, inner) for field, part in parts.items()}
    return found


def _write_error(error: BaseException, kind: Any, inner: Inner) -> dict[str, Any]:
    """Return an exception as an object of the nearest declared class, with those of its attributes that are plain data."""
    known = classes(kind)
    owner = next((each for each in type(error).__mro__ if known.get(each.__name__) is each), None)
    if owner is None or not issubclass(owner, BaseException):
        raise _undeclared(error, kind)
    plain = functools.partial(_plain_part, inner=inner)
    given, args = error.args, [plain(each) for each in error.args]
    if _NOTHING in args:
        given = (str(error),)
        args = [plain(given[0])]
    try:
        _bare_error(owner, given)
    except TypeError:  # an ExceptionGroup without its exceptions, or a constructor of its own
        raise SerializationError(
            f"an object of type {type(error).__name__} cannot be kept: none can be made of its text"
        ) from None
    parts = {name: plain(part) for name, part in vars(error).items()}
    return {
        "$": "typed",
        "t": owner.__name__,
        "a": args,
        "v": {name: part for name, part in parts.items() if part is not _NOTHING},
    }


def _plain_part(value: object, inner: Inner) -> Any:
    try:
        return inner(value, Any)
    except SerializationError:
        return _NOTHING


def _write_leaf(value: object, kind: Any, inner: Inner) -> dict[str, Any]:
    from pydantic_core import PydanticSerializationError

    part = next((part for part in members(kind) if _is_instance(value, class_of(part))), None)
    owner = class_of(part)
    if owner is None:
        raise _undeclared(value, kind)
    name = type(value).__name__
    if classes(kind)[owner.__name__] is None:
        raise _two_of(owner.__name__)
    try:
        data = adapter(part).dump_python(value, mode="json", warnings="error", by_alias=True, round_trip=True)
        again = _read_leaf(data, part)
    except (PydanticSerializationError, DecodeError):
        again = None
    else:
        if type(again) is type(value) and _is_equal(again, value):
            return {"$": "typed", "t": owner.__name__, "v": inner(data, Any)}
    raise SerializationError(
        f"an object of type {name} cannot be kept: it does not come back from JSON as it was; {_INSTEAD}"
    )


def _is_instance(value: object, owner: type | None) -> bool:
    try:
        return owner is not None and isinstance(value, owner)
    except TypeError:  # a TypedDict, or a protocol that is not runtime_checkable
        return False


def _is_equal(one: object, other: object) -> bool:
    try:
        return bool(one == other)
    except (TypeError, ValueError):  # numpy and similar libraries return an array
        return False


_INSTEAD = "give a dataclass, a pydantic model or a type of the standard library instead"


def _two_of(name: str) -> SerializationError:
    return SerializationError(
        f"an object of type {name} cannot be kept: two types of that name are declared; rename one"
    )


def _undeclared(value: object, kind: Any) -> SerializationError:
    name = type(value).__name__
    if not members(kind):
        return SerializationError(
            f"an object of type {name} cannot be kept, since no type is declared for it; annotate it with a dataclass, a pydantic model or "
            f"a type of the standard library"
        )
    above = next((part for part in members(kind) if _is_instance(value, class_of(part))), None)
    why = f"; it would come back as {show(above)}, so declare {name} itself" if above is not None else ""
    return SerializationError(f"an object of type {name} cannot be kept where {show(kind)} is declared{why}")


def read_object(fields: Mapping[str, Any], kind: Any, inner: Inner) -> Any:
    """Return the object of data that `write_object` returned.

    Raises:
        ValueError, LookupError, TypeError: the data is damaged, or of a class that is not declared.
    """
    owner: Any = classes(kind).get(fields["t"])
    if owner is None:
        raise DecodeError(f"a value was kept as another type than is declared, which is {show(kind)}")
    form, data = shape(owner), fields["v"]
    if form == "error":
        return _read_error(owner, fields, inner)
    if form == "leaf":
        part = next(part for part in members(kind) if class_of(part) is owner)
        return _read_leaf(inner(data, Any), part)
    if form == "enum":
        # A member of an enum is stored by its name, a flag by its value.
        return (
            member_of(owner, inner(data, Any))
            if is_subclass(owner, enum.Flag)
            else member_of(owner, data, by_name=True)
        )
    kinds = field_kinds(kind, owner)
    held = {name: inner(part, kinds.get(name, Any)) for name, part in data.items()}
    extra = _inside(fields, "x", kinds, inner)
    if form == "model":
        return _read_model(owner, held, extra, _inside(fields, "p", kinds, inner), fields.get("set"))
    names = _names(owner)
    if held.keys() != set(names):
        if not held.keys() <= set(names):
            raise DecodeError(f"{a(owner.__name__)} was kept with other fields than it has")
        defaults = defaults_of(owner)
        held |= {name: made(owner, name, defaults) for name in names if name not in held}
    if is_subclass(owner, tuple):
        return cast("Any", tuple).__new__(owner, [held[name] for name in names])
    again = object.__new__(owner)
    for name, part in (held | extra if extra else held).items():
        object.__setattr__(again, name, part)
    return again


def member_of(owner: type[enum.Enum], data: Any, *, by_name: bool = False) -> enum.Enum:
    """Return the member of an enum that has a value, or a name.

    Raises:
        ValueError: it has no such member.
    """
    try:
        return owner[data] if by_name else owner(data)
    except (KeyError, TypeError, ValueError):
        pass
    names = ", ".join(each.name or str(each.value) for each in owner)
    raise DecodeError(
        f"the stored value is a member of {owner.__name__} that it does not have; there are {names or 'none'}"
    )


def _inside(fields: Mapping[str, Any], key: str, kinds: Mapping[str, Any], inner: Inner) -> _Fields | None:
    parts = fields.get(key)
    return None if parts is None else {name: inner(part, kinds.get(name, Any)) for name, part in parts.items()}


@cached
def defaults_of(owner: Any) -> dict[str, Callable[[], Any]]:
    """Return, for each field of a dataclass or named tuple that has a default, a function that makes it."""
    if is_subclass(owner, tuple):
        given = cast("_Fields", getattr(owner, "_field_defaults", {}))
        return {name: functools.partial(_same, value) for name, value in given.items()}
    found: dict[str, Callable[[], Any]] = {}
    for field in dataclasses.fields(owner) if dataclasses.is_dataclass(owner) else ():
        if field.default is not dataclasses.MISSING:
            found[field.name] = functools.partial(_same, field.default)
        elif field.default_factory is not dataclasses.MISSING:
            found[field.name] = field.default_factory
    return found


def _same(value: object) -> object:
    return value


def made(owner: type, name: str, defaults: Mapping[str, Callable[[], Any]]) -> Any:
    """Return the default of a field that the class did not have yet when an object was stored.

    Raises:
        ValueError: it has no default, or making the default fails.
    """
    if name not in defaults:
        raise DecodeError(f"{a(owner.__name__)} was kept without {name!r}, which has no default")
    try:
        return defaults[name]()
    except Exception as error:  # noqa: BLE001  a default is made by the user's code
        reason = type(error).__name__
    raise DecodeError(f"the default of {name!r} of {a(owner.__name__)} cannot be made ({reason})")


def _read_model(owner: Any, held: _Fields, extra: _Fields | None, private: _Fields | None, given: Any) -> Any:
    fields = owner.__pydantic_fields__
    if not held.keys() <= set(fields):
        raise DecodeError(f"{a(owner.__name__)} was kept with other fields than it has")
    named = set(held) if given is None else {str(name) for name in given}
    makers = {
        name: functools.partial(field.get_default, call_default_factory=True, validated_data=held)
        for name, field in fields.items()
        if not field.is_required()
    }
    whole = {name: held[name] if name in held else made(owner, name, makers) for name in fields}
    again = owner.__new__(owner)
    again.__setstate__(
        {
            "__dict__": whole,
            "__pydantic_fields_set__": named,
            "__pydantic_extra__": extra,
            "__pydantic_private__": private,
        }
    )
    return again


def _read_error(owner: Any, fields: Mapping[str, Any], inner: Inner) -> BaseException:
    args = tuple(inner(each, Any) for each in fields["a"])
    held = {name: inner(part, Any) for name, part in fields["v"].items()}
    error = _bare_error(owner, args)
    vars(error).update(held)
    return error


def _bare_error(owner: Any, args: tuple[Any, ...]) -> BaseException:
    error: BaseException = owner.__new__(owner, *args)
    error.args = args
    return error


def _read_leaf(data: object, part: Any) -> Any:
    from pydantic_core import to_json

    try:
        return adapter(part).validate_json(to_json(data), by_alias=True, by_name=True)
    except Exception as error:  # noqa: BLE001  it is read by the user's code
        reason = type(error).__name__
    raise DecodeError(f"a value does not fit {show(part)} any more ({reason})")


@functools.lru_cache(maxsize=1024)
def _adapter(part: Any) -> TypeAdapter[Any]:
    from pydantic import TypeAdapter

    return TypeAdapter(part)


def adapter(part: Any) -> TypeAdapter[Any]:
    """Return the pydantic adapter that reads and writes a type.

    Raises:
        SerializationError: pydantic does not support the type.
    """
    from pydantic.errors import PydanticSchemaGenerationError, PydanticUserError

    try:
        return _adapter(part)
    except (PydanticSchemaGenerationError, PydanticUserError, NameError, TypeError):
        pass
    raise SerializationError(f"an object of type {show(part)} cannot be kept; {_INSTEAD}")


def check_type(kind: Any, plain: frozenset[type]) -> None:
    """Check that values of a declared type can be stored, as far as the type says. Those of `plain` classes always can.

    Raises:
        SerializationError: they cannot.
    """
    seen: set[Any] = {Never, NoReturn}
    for part in members(kind):
        _check(part, plain, seen)


def _check(part: Any, plain: frozenset[type], seen: set[Any]) -> None:
    owner = class_of(part)
    if part in seen or owner in plain:
        return
    seen.add(part)
    form = shape(owner) if owner else "leaf"
    within: list[tuple[str, Any]] = []
    if owner and form in ("fields", "model", "named"):
        within = [(f"the {name} of {a(owner.__name__)}", each) for name, each in field_kinds(part, owner).items()]
    elif owner and (is_typed_dict(owner) or any(is_subclass(each, owner) for each in CONTAINERS)):
        kinds = [*key_kinds(part).values(), *(each for each in get_args(part) if each is not Ellipsis)]
        within = [(f"in {a(show(part))}", each) for each in kinds]
    elif form == "leaf":
        adapter(part)
    for place, kind in within:
        _check_within(place, kind, plain, seen)


def outline(kind: Any) -> list[str]:
    """Return a declared type as lines: the type, and each class within it with its fields. They change with the form of its values."""
    found: dict[str, None] = {show(kind): None}
    todo, seen = [kind], set[Any]()
    for each in todo:
        for part in members(each):
            owner = class_of(part)
            if owner is None or part in seen:
                continue
            seen.add(part)
            form = shape(owner)
            fields: Mapping[str, Any] = {}
            if form in ("fields", "model", "named"):
                fields = field_kinds(part, owner)
            elif issubclass(owner, enum.Enum):
                found[f"{show(part)}: {', '.join(owner.__members__)}"] = None
            elif is_typed_dict(owner) or any(is_subclass(form, owner) for form in CONTAINERS):
                fields = key_kinds(part)
                todo += [each for each in get_args(part) if each is not Ellipsis]
            if fields:
                lines = ", ".join(f"{name} {show(within)}" for name, within in fields.items())
                found[f"{show(part)}: {lines}"] = None
                todo += fields.values()
    return list(found)


def _check_within(place: str, kind: Any, plain: frozenset[type], seen: set[Any]) -> None:
    """Check that values of at least one member of a type can be stored: a field that may be None may always be None."""
    text = ""
    for part in members(kind):
        try:
            _check(part, plain, seen)
        except SerializationError as error:
            text = text or str(error)
        else:
            return
    if text:
        raise SerializationError(f"{place}: {text}")
