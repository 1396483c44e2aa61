"""Python values as plain JSON data and back, without loss.

Values that JSON has are written unchanged. Any other value is an object with a key `$` that names its form, such as
`{"$": "tuple", "v": […]}`. Objects of users' classes, such as a dataclass or a pydantic model, are read by the type that is
declared for them; see `_typed_objects`. Large texts and the bytes of images are stored as blobs, under their hash.

The file is long because how each form is written stands beside how it is read.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Callable, Mapping
from dataclasses import fields
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any, TypeVar, cast

import orjson

from graphagent._annotations import own_class
from graphagent.codec import _typed_objects
from graphagent.codec._annotations import CONTAINERS, item_kind, key_kinds, place_kinds, value_kind
from graphagent.codec._dataclasses import DataclassCodec, FieldCodec
from graphagent.codec._errors import DecodeError, as_int, as_list, as_str, readable
from graphagent.codec._typed_objects import TooDeepError, read_object, write_object
from graphagent.errors import NodeFailedError
from graphagent.llm import (
    Approve,
    Deny,
    Image,
    Message,
    ProviderData,
    Text,
    ToolCalls,
    ToolResults,
    Usage,
)
from graphagent.llm._messages import PART_KINDS

if TYPE_CHECKING:
    from graphagent.codec._blobs import Blobs

Json = Any
"""JSON data, as orjson writes and reads it: None, bool, int, float, str, list, dict with text keys."""

_APART = 16_384
"""Texts of at least this many characters are stored as blobs."""
_APART_BYTES = 512
_DEEPEST = 200
"""Levels of JSON within one value. orjson writes at most 254, and some are needed for the step and the entry around a value."""
_ROLES = ("system", "user", "assistant", "tool")
_PART_TYPES: frozenset[type] = frozenset(PART_KINDS.values())


def encode(value: Any, blobs: Blobs, kind: Any = Any) -> Json:
    """Return a value as JSON data; `kind` is its declared type, if one is known.

    Raises:
        SerializationError: it is, or contains, an object of a class that is neither built in nor declared.
    """
    return _Writer(blobs).value(value, kind, _DEEPEST)


def check_type(kind: Any) -> None:
    """Check that values of a declared type can be stored, as far as the type says.

    Raises:
        SerializationError: they cannot.
    """
    _typed_objects.check_type(kind, _PLAIN)


@readable
def decode(data: Json, blobs: Blobs, kind: Any = Any) -> Any:
    """Return the value of JSON data that `encode` returned; `kind` is the type that is declared for the value.

    Raises:
        ValueError: the data is damaged, or `kind` does not fit it.
    """
    return _read(data, blobs, kind)


@readable
def item_data(data: Json, kind: Any) -> list[tuple[Json, Any]] | None:
    """Return the data of the items of a list or a tuple, each with its declared type; None for any other value.

    Raises:
        ValueError: the data is damaged, or `kind` does not fit it.
    """
    fields = cast("dict[str, Json]", data) if isinstance(data, dict) else {}
    is_tuple = fields.get("$") == "tuple"
    if not is_tuple and not isinstance(data, list):
        return None
    items = as_list(fields["v"] if is_tuple else data)
    places = None if kind is Any or not is_tuple else place_kinds(kind, len(items))
    if places is not None:
        return list(zip(items, places, strict=True))
    part = kind if kind is Any else item_kind(kind, tuple if is_tuple else list)
    return [(each, part) for each in items]


def message_json(message: Message, blobs: Blobs) -> Json:
    """Return a message as JSON data: `{"role": …, "parts": […]}`, in which a part that is only text is a string."""
    return _Writer(blobs).message(message)


@readable
def read_message(data: Json, blobs: Blobs) -> Message:
    """Return the message of data that `message_json` returned.

    Raises:
        ValueError: the data is damaged.
    """
    return parse_message(data, blobs)


def usage_json(usage: Usage) -> Json:
    """Return usage as JSON data: input, output, cached and reasoning tokens, and the cost as text."""
    return [usage.input_tokens, usage.output_tokens, usage.cached_tokens, usage.reasoning_tokens, str(usage.cost)]


@readable
def read_usage(data: Json) -> Usage:
    """Return the usage of data that `usage_json` returned.

    Raises:
        ValueError: the data is damaged.
    """
    sent, given, cached, reasoning, cost = data
    return Usage(as_int(sent), as_int(given), as_int(cached), as_int(reasoning), Decimal(as_str(cost)))


class _Writer:
    """Writes values. `room` is the number of levels of JSON that a value may have."""

    __slots__ = ("blobs",)

    def __init__(self, blobs: Blobs) -> None:
        self.blobs = blobs

    def value(self, value: Any, kind: Any, room: int) -> Json:
        form = own_class(value)
        if form is str:
            return self.text(value)
        if value is None or form is bool:
            return value
        if form is int:
            return value if -(2**63) <= value < 2**64 else {"$": "int", "v": hex(value)}
        if form is float:
            return value if math.isfinite(value) else {"$": "float", "v": repr(value)}
        if room <= 0:
            raise TooDeepError(
                f"a value that holds itself, or has more than {_DEEPEST} levels, cannot be kept: each dict in it takes one, and each "
                f"list, tuple, set, dataclass or model two"
            )
        if form in CONTAINERS:
            return self.container(value, form, kind, room)
        codec = _CODEC_OF.get(form)
        if codec is not None:
            return codec.write(value, (self, room))
        writer = _WRITERS.get(form) or _WRITERS.get(getattr(form, "__stored_as__", form))
        if writer is not None:
            return writer(self, value, room)
        return write_object(value, kind, lambda part, declared: self.value(part, declared, room - 2))

    def container(self, value: Any, form: type, kind: Any, room: int) -> Json:
        if form is dict:
            return self.mapping(value, kind, room)
        places = None if kind is Any or form is not tuple else place_kinds(kind, len(value))
        if places is not None:
            found = [self.value(each, part, room - 2) for each, part in zip(value, places, strict=True)]
        else:
            part = kind if kind is Any else item_kind(kind, form)
            found = [self.value(each, part, room - 2) for each in value]
        if form is list:
            return found
        return {"$": form.__name__, "v": found if form is tuple else sorted(found, key=_order)}

    def mapping(self, value: dict[Any, Any], kind: Any, room: int) -> Json:
        every = named = keys = kind
        if kind is not Any:
            every, named, keys = value_kind(kind), key_kinds(kind), item_kind(kind, dict)
        if all(type(key) is str and key[:1] != "$" and _is_unicode(key) for key in value):
            if kind is Any or not named:
                return {key: self.value(each, every, room - 1) for key, each in value.items()}
            return {key: self.value(each, named.get(key, every), room - 1) for key, each in value.items()}
        pairs = [[self.value(key, keys, room - 3), self.value(each, every, room - 3)] for key, each in value.items()]
        return {"$": "dict", "v": pairs}

    def text(self, text: str) -> Json:
        if len(text) < _APART:
            if text.isascii() or _is_unicode(text):
                return text
            return {"$": "surrogates", "v": base64.b64encode(text.encode("utf-8", "surrogatepass")).decode()}
        return {"$": "str", "b": self.blobs.put(text.encode("utf-8", "surrogatepass"))}

    def data(self, data: bytes) -> dict[str, Json]:
        if len(data) >= _APART_BYTES:
            return {"b": self.blobs.put(data)}
        return {"v": base64.b64encode(data).decode()}

    def message(self, message: Message, room: int = _DEEPEST) -> dict[str, Json]:
        parts = [self.part(part, room - 2) for part in message.parts]
        return {"role": message.role, "parts": parts}

    def part(self, part: Any, room: int) -> Json:
        if type(part) is Text and part.provider is None:
            text = self.text(part.text)
            return text if isinstance(text, str) else {"$": "text", "text": text}
        return self.value(part, Any, room)

    def image(self, image: Image) -> dict[str, Json]:
        found: dict[str, Json] = {"$": "image", "type": self.text(image.media_type)}
        if image.url:
            found["url"] = self.text(image.url)
        return {**found, **self.data(image.data)} if image.data else found

    def failed(self, error: NodeFailedError) -> dict[str, Json]:
        return {
            "$": "failed", "node": self.text(error.node), "v": self.text(str(error)), "run": self.text(error.run_id),
            "reason": self.text(error.reason),
        }  # fmt: skip

    def moment(self, tag: str, moment: datetime | time) -> dict[str, Json]:
        """Return a date with a time, or a time. A time zone is written by its name if it has one, otherwise as its offset."""
        found: dict[str, Json] = {"$": tag, "v": moment.isoformat()}
        if moment.tzinfo is not None:
            from zoneinfo import ZoneInfo

            if isinstance(moment.tzinfo, ZoneInfo) and moment.tzinfo.key:
                found = {"$": tag, "v": moment.replace(tzinfo=None).isoformat(), "zone": moment.tzinfo.key}
        return {**found, "fold": 1} if moment.fold else found


def _order(data: Json) -> str:
    """Return the key by which the members of a set are sorted: its order differs from process to process, and its bytes must not.

    It is text since the bytes of orjson occupy 1 kB and more for as long as they exist, however few they are.
    """
    return orjson.dumps(data).decode()


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


_WRITERS: dict[type, Callable[[_Writer, Any, int], Json]] = {
    Image: lambda writer, image, _: writer.image(image),
    Message: lambda writer, message, room: {"$": "message", **writer.message(message, room)},
    Usage: lambda _, usage, __: {"$": "usage", "v": usage_json(usage)},
    NodeFailedError: lambda writer, error, _: writer.failed(error),
    bytes: lambda writer, data, _: {"$": "bytes", **writer.data(data)},
    complex: lambda _, number, __: {"$": "complex", "v": [repr(number.real), repr(number.imag)]},
    Decimal: lambda _, number, __: {"$": "decimal", "v": str(number)},
    datetime: lambda writer, moment, _: writer.moment("datetime", moment),
    time: lambda writer, moment, _: writer.moment("time", moment),
    date: lambda _, day, __: {"$": "date", "v": day.isoformat()},
    timedelta: lambda _, span, __: {"$": "timedelta", "v": [span.days, span.seconds, span.microseconds]},
}  # fmt: skip


def undeclared(data: Json) -> Json:
    """Return encoded data without the declared classes in it, so that `decode` reads it in a program that lacks them.

    A dataclass or a model becomes a dict of its fields, a member of an enum its name, an error the name of its class with its text.
    """
    if isinstance(data, list):
        return [undeclared(each) for each in as_list(data)]
    if not isinstance(data, dict):
        return data
    fields = cast("dict[str, Json]", data)
    tag = fields.get("$")
    if tag == "typed":
        if "a" in fields:
            said = ", ".join(each if isinstance(each, str) else str(each) for each in as_list(undeclared(fields["a"])))
            return f"{fields['t']}: {said}" if said else str(fields["t"])
        return undeclared(fields.get("v"))
    if tag in ("set", "frozenset"):  # its items may have become dicts, which no set can contain
        return undeclared(fields["v"])
    if tag == "dict":
        pairs = [as_list(undeclared(pair)) for pair in as_list(fields["v"])]
        return {**fields, "v": [[_as_key(key), value] for key, value in pairs]}
    return {name: undeclared(each) for name, each in fields.items()}


def _as_key(data: Json) -> Json:
    """Return data whose value can be a key of a dict: for a dict or a list, its text."""
    fields = cast("dict[str, Json]", data) if isinstance(data, dict) else None
    if isinstance(data, list) or (fields is not None and "$" not in fields):
        return str(cast("object", data))
    return cast("Json", data)


def _read(data: Json, blobs: Blobs, kind: Any) -> Any:
    if isinstance(data, list):
        part = kind if kind is Any else item_kind(kind, list)
        return [_read(each, blobs, part) for each in as_list(data)]
    if not isinstance(data, dict):
        return data
    fields = cast("dict[str, Json]", data)
    tag = fields.get("$")
    if tag is None:
        return _read_dict(fields, blobs, kind)
    if tag == "typed":
        return read_object(fields, kind, lambda part, declared: _read(part, blobs, declared))
    codec = _CODEC_TAGGED.get(tag)
    if codec is not None:
        return codec.parse(fields, blobs)
    reader = _READERS.get(tag)
    if reader is None:
        raise DecodeError("the stored value has a form that is not known here")
    return reader(fields, blobs, kind)


def _read_dict(fields: Mapping[str, Json], blobs: Blobs, kind: Any) -> dict[Any, Any]:
    if kind is Any:
        return {key: _read(each, blobs, Any) for key, each in fields.items()}
    every, named = value_kind(kind), key_kinds(kind)
    return {key: _read(each, blobs, named.get(key, every)) for key, each in fields.items()}


def _read_pairs(fields: Mapping[str, Json], blobs: Blobs, kind: Any) -> dict[Any, Any]:
    keys = every = kind
    if kind is not Any:
        keys, every = item_kind(kind, dict), value_kind(kind)
    return {_read(key, blobs, keys): _read(each, blobs, every) for key, each in fields["v"]}


def _read_tuple(fields: Mapping[str, Json], blobs: Blobs, kind: Any) -> tuple[Any, ...]:
    data = as_list(fields["v"])
    places = None if kind is Any else place_kinds(kind, len(data))
    if places is not None:
        return tuple(_read(each, blobs, part) for each, part in zip(data, places, strict=True))
    part = kind if kind is Any else item_kind(kind, tuple)
    return tuple(_read(each, blobs, part) for each in data)


def _read_items(fields: Mapping[str, Json], blobs: Blobs, kind: Any, form: type) -> list[Any]:
    part = kind if kind is Any else item_kind(kind, form)
    return [_read(each, blobs, part) for each in as_list(fields["v"])]


def _text(data: Json, blobs: Blobs) -> str:
    return data if isinstance(data, str) else as_str(_read(data, blobs, Any))


def _bytes(fields: Mapping[str, Json], blobs: Blobs) -> bytes:
    return (
        blobs.get(as_str(fields["b"]))
        if "b" in fields
        else base64.b64decode(as_str(fields.get("v", "")), validate=True)
    )


def parse_message(data: Json, blobs: Blobs, _: Any = Any) -> Message:
    """Return a message, as `read_message` does, but raise any kind of error: for readers within other readers."""
    role, parts = data["role"], as_list(data["parts"])
    if len(parts) == 1 and type(parts[0]) is str and role in _ROLES:  # as most are
        return Message(role, (Text(parts[0]),))
    parts = [Text(each) if isinstance(each, str) else _read(each, blobs, Any) for each in parts]
    if role not in _ROLES or not _PART_TYPES.issuperset(map(type, parts)):
        raise DecodeError("the stored value has something else where a message belongs")
    return Message(role, tuple(parts))


def _read_image(fields: Mapping[str, Json], blobs: Blobs) -> Image:
    return Image.restored(_bytes(fields, blobs), _text(fields["type"], blobs), _text(fields.get("url", ""), blobs))


def _read_failed(fields: Mapping[str, Json], blobs: Blobs) -> NodeFailedError:
    error = NodeFailedError.__new__(NodeFailedError, _text(fields["v"], blobs))
    error.node, error.run_id, error.reason = (_text(fields[name], blobs) for name in ("node", "run", "reason"))
    return error


_Context = tuple[_Writer, int]
"""The context with which parts of messages are written: the writer, and the levels of JSON that are left. They are read with the
blobs as context."""


def _write_text(text: str, context: _Context) -> Json:
    return text if len(text) < _APART and text.isascii() else context[0].text(text)


def _write_number(number: float, context: _Context) -> Json:
    return context[0].value(number, Any, 1)


def _read_number(data: Json, blobs: Blobs) -> float:
    return float(_read(data, blobs, Any))


def _write_moment(moment: datetime, context: _Context) -> Json:
    return context[0].value(moment, Any, 2)


def _read_datetime(data: Json, blobs: Blobs) -> datetime:
    moment = _read(data, blobs, Any)
    if not isinstance(moment, datetime):
        raise DecodeError("the stored value has something else where a time belongs")
    return moment


def _write_image(image: Image, context: _Context) -> Json:
    return context[0].image(image)


def _write_arguments(arguments: Mapping[str, Any], context: _Context) -> Json:
    writer, room = context
    return writer.value(dict(arguments), Any, room - 1)


def _read_arguments(data: Json, blobs: Blobs) -> dict[str, Any]:
    arguments = _read(data, blobs, Any)
    if not isinstance(arguments, dict):
        raise DecodeError("the stored value has something else where the arguments of a tool call belong")
    return cast("dict[str, Any]", arguments)


def _write_provider(provider: ProviderData, context: _Context) -> Json:
    return {
        "family": _write_text(provider.family, context),
        "data": _write_arguments(provider.data, (context[0], context[1] - 1)),
    }


def _read_provider(data: Json, blobs: Blobs) -> ProviderData:
    return ProviderData(_text(data["family"], blobs), _read_arguments(data["data"], blobs))


def _within_list(codec: DataclassCodec[Any]) -> FieldCodec:
    def write(part: Any, context: _Context) -> Json:
        writer, room = context
        return codec.write(part, (writer, room - 2))

    def read(data: Json, blobs: Blobs) -> Any:
        return codec.parse(data, blobs)

    return FieldCodec(write, read)


_FORMS: Mapping[Any, FieldCodec] = {
    str: FieldCodec(_write_text, _text),
    float: FieldCodec(_write_number, _read_number),
    datetime: FieldCodec(_write_moment, _read_datetime),
    Image: FieldCodec(_write_image, _read_image),
    Mapping[str, Any]: FieldCodec(_write_arguments, _read_arguments),
    ProviderData: FieldCodec(_write_provider, _read_provider),
}
# The result of a tool (`value`) exists in its own process only.
_PARTS: dict[type, DataclassCodec[Any]] = {
    kind: DataclassCodec(
        kind, {each.name: each.name for each in fields(kind) if each.name != "value"}, tag=tag, forms=_FORMS
    )
    for tag, kind in PART_KINDS.items()
    if kind is not Image
}
_WITHIN: Mapping[Any, FieldCodec] = {kind: _within_list(codec) for kind, codec in _PARTS.items()}
_CODECS = (
    *_PARTS.values(),
    DataclassCodec(ToolCalls, {"calls": "v", "text": "text"}, tag="calls", always=("text",), forms={**_FORMS, **_WITHIN}),
    DataclassCodec(ToolResults, {"results": "v"}, tag="results", forms=_WITHIN),
    DataclassCodec(Approve, {"arguments": "v", "by": "by", "at": "at"}, tag="approve", forms=_FORMS),
    DataclassCodec(Deny, {"reason": "v", "by": "by", "at": "at"}, tag="deny", always=("reason",), forms=_FORMS),
)  # fmt: skip
_CODEC_OF: dict[type, DataclassCodec[Any]] = {codec.owner: codec for codec in _CODECS}
_CODEC_TAGGED: dict[str, DataclassCodec[Any]] = {codec.tag: codec for codec in _CODECS}
_PLAIN = frozenset({*_WRITERS, *_CODEC_OF, str, type(None), bool, int, float})

_Moment = TypeVar("_Moment", datetime, time)


def _read_moment(fields: Mapping[str, Json], form: type[_Moment]) -> _Moment:
    moment = form.fromisoformat(fields["v"])
    if "zone" in fields:
        from zoneinfo import ZoneInfo

        moment = moment.replace(tzinfo=ZoneInfo(fields["zone"]))
    return moment.replace(fold=as_int(fields.get("fold", 0)))


_READERS: dict[str, Callable[[Mapping[str, Json], Blobs, Any], Any]] = {
    "int": lambda fields, _, __: int(fields["v"], 16),
    "float": lambda fields, _, __: float(as_str(fields["v"])),
    "str": lambda fields, blobs, _: blobs.get(as_str(fields["b"])).decode("utf-8", "surrogatepass"),
    "surrogates": lambda fields, _, __: base64.b64decode(fields["v"], validate=True).decode("utf-8", "surrogatepass"),
    "dict": _read_pairs,
    "tuple": _read_tuple,
    "set": lambda fields, blobs, kind: set(_read_items(fields, blobs, kind, set)),
    "frozenset": lambda fields, blobs, kind: frozenset(_read_items(fields, blobs, kind, frozenset)),
    "image": lambda fields, blobs, _: _read_image(fields, blobs),
    "message": parse_message,
    "usage": lambda fields, _, __: read_usage(fields["v"]),
    "failed": lambda fields, blobs, _: _read_failed(fields, blobs),
    "bytes": lambda fields, blobs, _: _bytes(fields, blobs),
    "complex": lambda fields, _, __: complex(float(as_str(fields["v"][0])), float(as_str(fields["v"][1]))),
    "decimal": lambda fields, _, __: Decimal(as_str(fields["v"])),
    "datetime": lambda fields, _, __: _read_moment(fields, datetime),
    "time": lambda fields, _, __: _read_moment(fields, time),
    "date": lambda fields, _, __: date.fromisoformat(fields["v"]),
    "timedelta": lambda fields, _, __: timedelta(*map(as_int, fields["v"])),
}
