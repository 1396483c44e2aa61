"""Dataclasses as JSON objects and back, derived from their fields."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import MISSING
from functools import cached_property
from typing import Any, Concatenate, Generic, Literal, NamedTuple, TypeVar, cast, get_args, get_origin

from graphagent._annotations import is_union, union_members
from graphagent._article import a
from graphagent.codec._annotations import hints
from graphagent.codec._errors import DecodeError, as_bool, as_float, as_int, as_list, as_str, readable
from graphagent.codec._typed_objects import member_of
from graphagent.graph._types import show

_T = TypeVar("_T")
_Function = Callable[..., Any]


class FieldCodec(NamedTuple):
    """How the value of a field is written as JSON data, and how that is read again.

    Both functions are called with the value and with the context that `DataclassCodec.write` or `read` was called with. None
    leaves the value as it is.
    """

    write: Callable[..., Any] | None = None
    read: Callable[..., Any] | None = None


def _as_truth(value: object, _: object) -> bool:
    return bool(value)


_PLAIN = {
    str: FieldCodec(None, as_str),
    int: FieldCodec(None, as_int),
    float: FieldCodec(None, as_float),
    bool: FieldCodec(_as_truth, as_bool),
}


class _Field(NamedTuple):
    name: str
    key: str
    form: FieldCodec
    default: Any
    """The value with which the field is left out; MISSING if it is always written."""
    factory: Callable[[], Any]
    """Makes the value of a field that was left out."""


class DataclassCodec(Generic[_T]):
    """Writes the objects of a dataclass as JSON objects and reads these again.

    It is made once for each class, as a constant:

    ```text
    CHARGE = DataclassCodec(Charge, {"node": "n", "model": "m"}, defaults={"model": "small"})
    CHARGE.write(Charge("ask", "small"))     {"n": "ask"}
    CHARGE.read({"n": "ask"})                Charge("ask", "small")
    CHARGE.read({"n": 5})                    ValueError, and so for {}, {"n": "ask", "x": 1} and "ask"
    ```

    A field that has its default is left out. The annotation decides how another is written, and which values are accepted when it is
    read: text, numbers, bool and Literal are as they are, a member of an enum is its value, a tuple of any length is a list, a
    dataclass is an object of its own fields, and any of these may be None. For any other annotation, and for text that may not
    be Unicode, a form is needed.

    Both functions are compiled when they are first called, as a dataclass compiles its constructor: a loop over the fields takes
    two to three times as long, and they are called for every step of a run.

    Args:
        owner: The dataclass.
        keys: The fields that are stored, with their keys, in the order in which they are written; by default all, in their own
            order, under their names. A field that is not stored has its default when it is read.
        tag: If given, the value of a first key `$`. Reading does not check it, since this codec was chosen by it.
        always: Fields that are written even if they have their default. Like fields without one, they must be there to be read.
        defaults: The values with which fields are left out, if they have no default or another one.
        forms: The forms of fields, by their name or by their annotation.
    """

    def __init__(
        self,
        owner: type[_T],
        keys: Mapping[str, str] | None = None,
        *,
        tag: str = "",
        always: Collection[str] = (),
        defaults: Mapping[str, Any] | None = None,
        forms: Mapping[Any, FieldCodec] | None = None,
    ) -> None:
        self.owner: Any = owner
        self._keys = keys
        self.tag = tag
        self._always = always
        self._defaults = defaults or {}
        self._forms = forms or {}

    @cached_property
    def write(self) -> Callable[Concatenate[_T, ...], dict[str, Any]]:
        """Return an object as a JSON object: `write(value, context=None)`. The context is passed to the forms."""
        lines = [f"found = {{'$': {self.tag!r}}}" if self.tag else "found = {}"]
        names: dict[str, Any] = {}
        for name, key, form, default, _ in self._fields:
            part = f"value.{name}" if form.write is None else f"write_{name}(value.{name}, context)"
            test = "" if default is MISSING else f"if value.{name} != default_{name}: "
            lines.append(f"{test}found[{key!r}] = {part}")
            names |= {f"write_{name}": form.write, f"default_{name}": default}
        return _compiled("value, context=None", [*lines, "return found"], names)

    @cached_property
    def read(self) -> Callable[Concatenate[Any, ...], _T]:
        """Return the object of a JSON object: `read(data, context=None)`. The context is passed to the forms.

        Raises:
            ValueError: The data has other keys than `write` writes, or values of other types. Its text contains none of these.
        """
        return readable(self.parse)

    @cached_property
    def parse(self) -> Callable[Concatenate[Any, ...], _T]:
        """Return the object of a JSON object, as `read` does, but raise any kind of error: for readers within other readers."""
        keys = {field.key for field in self._fields}
        names: dict[str, Any] = {
            "make": self.owner,
            "known": keys | {"$"} if self.tag else keys,
            "refusal": DecodeError,
            "reason": f"the stored value has something else where {a(self.owner.__name__)} belongs",
        }
        lines = ["if not data.keys() <= known: raise refusal(reason)", "return make("]
        for name, key, form, default, factory in self._fields:
            part = f"data[{key!r}]" if form.read is None else f"read_{name}(data[{key!r}], context)"
            otherwise = "" if default is MISSING else f" if {key!r} in data else made_{name}()"
            lines.append(f"    {name}={part}{otherwise},")
            names |= {f"read_{name}": form.read, f"made_{name}": factory}
        return _compiled("data, context=None", [*lines, ")"], names)

    @cached_property
    def _fields(self) -> list[_Field]:
        declared = {each.name: each for each in dataclasses.fields(self.owner) if each.init}
        keys = self._keys or {name: name for name in declared}
        return [self._field(declared[name], key) for name, key in keys.items()]

    def _field(self, field: dataclasses.Field[Any], key: str) -> _Field:
        name, kind = field.name, hints(self.owner).get(field.name, Any)
        form = self._forms.get(name) or _form_of(kind, self._forms)
        if form is None:
            raise TypeError(
                f"the {name} of {a(self.owner.__name__)} is {show(kind)}, which needs a form; add it to forms="
            )
        factory: Any = field.default_factory
        if name in self._defaults or factory is MISSING:
            default = self._defaults.get(name, field.default)
            return _Field(name, key, form, MISSING if name in self._always else default, lambda: default)
        return _Field(name, key, form, MISSING if name in self._always else factory(), factory)


def _compiled(parameters: str, lines: Sequence[str], names: dict[str, Any]) -> Callable[..., Any]:
    text = "\n ".join([f"def function({parameters}):", *lines])
    exec(text, names)  # noqa: S102  its text is made of the names and keys of fields, never of data
    return cast("Callable[..., Any]", names["function"])


def _form_of(kind: Any, forms: Mapping[Any, FieldCodec]) -> FieldCodec | None:
    """Return how values of a declared type are written and read; None if the type does not say it."""
    given = forms.get(kind) or _PLAIN.get(kind)
    if given is not None:
        return given
    if get_origin(kind) is Literal:
        return _one_of(get_args(kind))
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return _enum(kind)
    if isinstance(kind, type) and dataclasses.is_dataclass(kind):
        codec: DataclassCodec[Any] = DataclassCodec(kind, forms=forms)
        return FieldCodec(codec.write, codec.parse)
    members = [each for each in union_members(kind) if each is not type(None)]
    if is_union(kind) and len(members) == 1:
        form = _form_of(members[0], forms)
        return form and _optional(*form)
    if get_args(kind)[1:] == (Ellipsis,) or get_origin(kind) is Sequence:
        form = _form_of(get_args(kind)[0], forms)
        return form and _several(*form)
    return None


def _one_of(values: tuple[Any, ...]) -> FieldCodec:
    def read(data: Any, _: object) -> Any:
        if not any(type(data) is type(each) and data == each for each in values):
            raise DecodeError("the stored value has something else where one of a few values belongs")
        return data

    return FieldCodec(None, read)


def _enum(kind: type[enum.Enum]) -> FieldCodec:
    def write(member: enum.Enum, _: object) -> Any:
        return member.value

    def read(data: Any, _: object) -> enum.Enum:
        return member_of(kind, data)

    return FieldCodec(write, read)


def _optional(write: _Function | None, read: _Function | None) -> FieldCodec:
    def write_it(value: Any, context: Any) -> Any:
        return value if value is None or write is None else write(value, context)

    def read_it(data: Any, context: Any) -> Any:
        return data if data is None or read is None else read(data, context)

    return FieldCodec(write_it, read_it)


def _several(write: _Function | None, read: _Function | None) -> FieldCodec:
    def write_all(items: Sequence[Any], context: Any) -> list[Any]:
        return list(items) if write is None else [write(each, context) for each in items]

    def read_all(data: Any, context: Any) -> tuple[Any, ...]:
        items = as_list(data)
        return tuple(items) if read is None else tuple([read(each, context) for each in items])

    return FieldCodec(write_all, read_all)
