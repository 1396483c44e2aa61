"""Steps as data, and the check of their fields, both derived from the annotations of their classes.

A field is declared in one place, the class of the step. In our own types of steps, the annotation decides which values a field
accepts, and how they are written and read; fields of users' types are written as any value of the declared type is.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, cast, get_args, get_origin

from graphagent._annotations import union_members
from graphagent._article import a, kind_of
from graphagent.codec._annotations import hints
from graphagent.codec._errors import DecodeError, as_int, as_list, as_str, readable
from graphagent.codec._typed_objects import defaults_of, made
from graphagent.codec._values import decode, encode, message_json, parse_message, read_usage, usage_json
from graphagent.errors import SerializationError
from graphagent.llm import Image, Message, ToolResult, Usage
from graphagent.memory._blocks import Known, KnownMessage, Reference
from graphagent.memory._references import KINDS, Kind
from graphagent.memory.steps._types import Step, StepFailure, Timing, by_class, fields_of
from graphagent.memory.transcript._prompt import Prompt, Range, Versions

if TYPE_CHECKING:
    from graphagent.codec._blobs import Blobs
    from graphagent.codec._values import Json

_OURS = Step.__module__.rpartition(".")[0]
_UNSET: Any = object()
_EMPTY: Mapping[type, Any] = {int: 0, str: ""}
"""The values of fields without a default that are not written."""


class FieldError(TypeError):
    """A value does not have the type of the step's field to which it is assigned."""


class Target(Protocol):
    """The destination of steps that are written."""

    @property
    def blobs(self) -> Blobs:
        """Stores large payloads."""
        ...

    @property
    def versions(self) -> Versions:
        """The versions of the transcript whose steps are written."""
        ...

    @property
    def rules(self) -> str | None:
        """The system prompt that the reader knows, so that prompts do not repeat it."""
        ...

    @property
    def refers(self) -> Collection[str]:
        """The kinds of values that are written as references to stored data: `fact`, `note`."""
        ...


@dataclass
class Source:
    """The origin of steps that are read."""

    blobs: Blobs
    versions: Versions = dataclasses.field(default_factory=Versions)
    """The versions of the transcript's steps, to which prompts refer."""
    known: Mapping[Reference, Known] = dataclasses.field(default_factory=dict[Reference, Known])
    """The facts and notes to which references refer, as far as they were looked up."""
    rules: str | None = None
    """The system prompt for prompts that do not repeat it."""


class Form(NamedTuple):
    """How values of one type are written and read."""

    write: Callable[[Any, Target], Json]
    read: Callable[[Any, Source], Any]


class Field(NamedTuple):
    """A field of a type of steps."""

    name: str
    form: Form
    start: Any
    """The value that is not written; a new object for a field that is always written."""
    kinds: tuple[type, ...]
    """The types of its values; empty if the field accepts any value."""
    items: type | None
    """The type of the items, for a tuple."""


def _write_prompt(prompt: Prompt, target: Target) -> Json:
    prompt = prompt.within(target.versions)
    rules = None if prompt.rules == target.rules else encode(prompt.rules, target.blobs)
    found: list[Json] = [rules, prompt.as_of, [list(each) for each in prompt.ranges]]
    if prompt.parts is not None:
        found.append(
            [_write_message(part, target) if isinstance(part, Message) else list(part) for part in prompt.parts]
        )
    return found


def _write_message(message: Message, target: Target) -> Json:
    """Return a message as data. Facts and notes that can be looked up again are written as references."""
    if isinstance(message, KnownMessage) and any(known.kept for known in message.known):
        kind = KINDS[type(message.known[0])]
        if kind.name in target.refers:
            written: dict[str, Json] = {kind.list_name: [kind.write(each, values=False) for each in message.known]}
            return {**written, "left_out": message.left_out} if message.left_out else written
    return message_json(message, target.blobs)


def _read_message(data: Json, source: Source) -> Message:
    for kind in KINDS.values():
        if kind.list_name in data:
            known = [kind.read(each, source.known) for each in as_list(data[kind.list_name])]
            return kind.message(known, as_int(data.get("left_out", 0)))
    return parse_message(data, source.blobs)


def _read_prompt(data: Json, source: Source) -> Prompt:
    rules, as_of, ranges, *rest = as_list(data)
    if not -1 <= as_int(as_of) < len(source.versions):
        raise DecodeError("a prompt refers to a step that does not exist")
    spans = tuple([_range(each, as_of) for each in as_list(ranges)])
    parts = (
        None
        if not rest
        else tuple(_span(each) if isinstance(each, list) else _read_message(each, source) for each in as_list(rest[0]))
    )
    known = source.rules if rules is None else decode(rules, source.blobs)
    return Prompt(source.versions, as_str(known), spans, as_of, parts)


def _range(data: Json, as_of: int) -> Range:
    first, last, *version = map(as_int, as_list(data))
    if not 0 <= first <= last <= as_of or (version and (len(version) > 1 or not 0 <= version[0] <= as_of)):
        raise DecodeError("a prompt refers to a step that does not exist")
    return (first, last, *version)  # type: ignore[return-value]  # pyright: ignore[reportReturnType]  # two or three


def _span(data: Json) -> tuple[int, int]:
    first, last = as_list(data)
    if not 0 <= as_int(first) <= as_int(last):
        raise DecodeError("a range in a prompt ends before it begins")
    return first, last


def _known_form(kind: Kind) -> Form:
    return _form(
        lambda known, target: kind.write(known, values=kind.name not in target.refers),
        lambda data, source: kind.read(data, source.known),
    )


def _read_timing(data: Json, _: Source) -> Timing:
    started, ended = data
    return Timing(as_int(started), as_int(ended))


def _read_failure(data: Json, source: Source) -> StepFailure:
    kind, message = data
    return StepFailure(as_str(decode(kind, source.blobs)), as_str(decode(message, source.blobs)))


def _write_any(value: Any, target: Target) -> Json:
    return encode(value, target.blobs)


def _read_any(data: Json, source: Source) -> Any:
    return data if type(data) is str else decode(data, source.blobs)


def _read_as(kind: type[Any]) -> Callable[[Json, Source], Any]:
    def read(data: Json, source: Source) -> Any:
        found = decode(data, source.blobs)
        if not isinstance(found, kind):
            raise DecodeError(f"the stored data is not {a(kind.__name__)}")
        return found

    return read


def _form(write: Callable[[Any, Target], Any], read: Callable[[Any, Source], Any]) -> Form:
    return Form(write, read)


_ANY = Form(_write_any, _read_any)
_FORMS: dict[type, Form] = {
    str: Form(_write_any, _read_as(str)),
    int: _form(lambda number, _: number, lambda data, _: as_int(data)),
    Image: Form(_write_any, _read_as(Image)),
    ToolResult: Form(_write_any, _read_as(ToolResult)),
    Message: Form(_write_message, _read_message),
    **{type_: _known_form(kind) for type_, kind in KINDS.items()},
    Prompt: Form(_write_prompt, _read_prompt),
    StepFailure: _form(
        lambda e, target: [encode(e.type, target.blobs), encode(e.message, target.blobs)], _read_failure
    ),
    Timing: _form(lambda timing, _: [timing.started, timing.ended], _read_timing),
    Usage: _form(lambda usage, _: usage_json(usage), lambda data, _: read_usage(data)),
}


@by_class
def form_of(kind: type[Step]) -> tuple[Field, ...]:
    """Return the fields of a type of steps."""
    owners, declared, defaults = fields_of(kind), hints(kind), _defaults(kind)
    return tuple(
        _own_field(name, declared.get(name, Any), defaults.get(name, _UNSET))
        if owner.__module__.startswith(_OURS)
        else Field(name, _declared(declared.get(name, Any)), _UNSET, (), None)
        for name, owner in owners.items()
    )


@by_class
def _reading(kind: type[Step]) -> tuple[frozenset[str], tuple[tuple[str, Any, Any, tuple[type, ...], Field], ...]]:
    """Return the names that the data of a step may have, and how each field is read: plain tuples are unpacked faster."""
    form = form_of(kind)
    names = frozenset(("kind", *(field.name for field in form)))
    plain = tuple((f.name, f.form.read, f.start, () if f.items else f.kinds, f) for f in form)
    return names, plain


def _defaults(kind: type[Step]) -> dict[str, Any]:
    found = getattr(kind, "__dataclass_fields__", None)
    return {} if found is None else {each.name: each.default for each in fields(kind) if each.default is not MISSING}  # type: ignore[arg-type]


def _own_field(name: str, kind: Any, default: Any) -> Field:
    members = union_members(kind)
    optional = type(None) in members
    one: Any = next((each for each in members if each is not type(None)), Any)
    if one is Any:
        return Field(name, _ANY, None, (), None)
    if get_origin(one) is tuple:
        item = get_args(one)[0]
        inner = _FORMS[item]
        form = _form(
            lambda values, target: [inner.write(each, target) for each in values],
            lambda data, source: tuple(inner.read(each, source) for each in as_list(data)),
        )
        start: Any = None if optional else ()
        kinds: tuple[type, ...] = (tuple, type(None)) if optional else (tuple,)
        return Field(name, form, start, kinds, item)
    if default is _UNSET:
        default = None if optional else _EMPTY.get(one, _UNSET)
    return Field(name, _FORMS[one], default, (one, type(None)) if optional else (one,), None)


def _declared(kind: Any) -> Form:
    return _form(
        lambda value, target: encode(value, target.blobs, kind), lambda data, source: decode(data, source.blobs, kind)
    )


# ---- data


def write_step(step: Step, target: Target) -> dict[str, Json]:
    """Return a step as data: its kind, and each field that differs from its initial value.

    Raises:
        SerializationError: a value of the step cannot be stored; the error names the type of the step and the field.
    """
    kind = type(step)
    form = form_of(kind)
    beside = getattr(step, "__dict__", {}).keys() - {field.name for field in form}
    if beside:
        raise SerializationError(f"{a(kind.__name__)} has an attribute {min(beside)!r} that is not a field; declare it")
    found: dict[str, Json] = {"kind": kind.kind}
    for name, (write, _), start, _, _ in form:
        try:
            value = getattr(step, name)
            if value is None or value is start or (type(value) is type(start) and value == start):
                if value is not start:
                    found[name] = None
            else:
                found[name] = write(value, target)
        except SerializationError as error:
            reason = str(error)
        except AttributeError:
            reason = "it was never set"
        else:
            continue
        raise SerializationError(f"the {name} of {a(kind.__name__)}: {reason}")
    return found


@readable
def read_step(data: Any, source: Source) -> Step:
    """Return the step in data that `write_step` returned.

    Raises:
        ValueError: the data is not a step. The error does not contain its values.
    """
    given: Mapping[str, Json] = cast("Mapping[str, Json]", data) if isinstance(data, dict) else {}
    name = given.get("kind")
    kind = Step.kinds.get(name) if isinstance(name, str) else None
    if kind is None:
        shown = repr(name) if isinstance(name, str) else kind_of(name)
        raise DecodeError(f"{shown} is not a known kind of step; import the module that defines it first")
    names, form = _reading(kind)
    if not given.keys() <= names:
        raise DecodeError(f"{a(kind.__name__)} has no field {min(given.keys() - names)!r}")
    step, put = object.__new__(kind), object.__setattr__
    for name, read, value, kinds, field in form:
        if name in given:
            part = given[name]
            value = None if part is None else read(part, source)
            if type(value) not in kinds:
                try:
                    check_value(kind, field, value)
                except FieldError as error:  # its text has names of types, and no values
                    raise DecodeError(str(error)) from None
        elif value is _UNSET:
            value = made(kind, name, defaults_of(kind))
        put(step, name, value)
    return step


# ---- checks


def check_step(step: Step) -> None:
    """Check that the fields of a step have their declared types.

    Raises:
        TypeError: a field has another type; the error names the field.
    """
    kind = type(step)
    for field in form_of(kind):
        value = getattr(step, field.name, _UNSET)
        if value is not _UNSET:
            check_value(kind, field, value)


def check_field(kind: type[Step], name: str, value: Any) -> None:
    """Check that a value may be assigned to a field of a type of steps.

    Raises:
        TypeError: the value has another type, or the field cannot be assigned.
    """
    for field in form_of(kind):
        if field.name == name:
            check_value(kind, field, value)


def check_value(kind: type[Step], field: Field, value: Any) -> None:
    """Check that a value has the declared type of a field.

    Raises:
        TypeError: the value has another type.
    """
    name, _, _, kinds, inner = field
    if not kinds:
        return
    wrong = value
    if isinstance(value, kinds) and not (int in kinds and isinstance(value, bool)):
        if inner is None or not value:
            return
        wrong = next((each for each in cast("Sequence[object]", value) if not isinstance(each, inner)), _UNSET)
        if wrong is _UNSET:
            return
    what = f"a tuple of {inner.__name__}" if inner is not None else "text" if kinds[0] is str else a(kinds[0].__name__)
    none = " or None" if type(None) in kinds else ""
    found = kind_of(wrong)
    given = f"not {found}" if wrong is value else f"with {found} in it"
    raise FieldError(f"the {name.removeprefix('_')} of {a(kind.__name__)} is {what}{none}, {given}")
