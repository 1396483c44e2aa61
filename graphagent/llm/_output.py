"""Structured output: a type becomes a JSON schema, and an answer becomes a value of that type."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast, overload

from graphagent._annotations import check_type
from graphagent.errors import OutputError
from graphagent.llm._json_text import check_finite, may_overflow, read_answer, read_json, unnested
from graphagent.llm._validation_messages import no_json_form, problems

if TYPE_CHECKING:
    from pydantic import TypeAdapter

T = TypeVar("T")
X = TypeVar("X")

_MOST_LOOKS = 2_000_000
"""The number of characters examined, including repeats, to find JSON in prose: at worst half a second."""
_WRAP = "value"


@dataclass(frozen=True, slots=True)
class OutputFormat(Generic[T]):
    """The JSON that an answer must be. `OutputFormat.of(T)` makes one from any type that pydantic knows."""

    name: str
    """The name of the format in requests: letters, digits, `_` and `-`."""
    schema: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """The JSON schema of the answer, always an object; a type that is not an object is its property `value`."""
    strict: bool = False
    """Whether the schema is in the subset that servers can enforce: every property required, no others allowed."""
    wrapped: bool = False
    """Whether the answer is the property `value`."""
    adapter: TypeAdapter[T] | None = field(default=None, repr=False, compare=False)
    """Makes the value; without one, the value is the plain JSON."""

    def __post_init__(self) -> None:
        if not isinstance(self.name, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise TypeError(
                f"the name of an output format is text; to make the format of a type, write OutputFormat.of({getattr(self.name, '__name__', '…')})"
            )
        if not self.schema:
            raise TypeError(
                f"output format {self.name!r} has no JSON schema; to make the format of a type, write OutputFormat.of(Type)"
            )

    @overload
    @staticmethod
    def of(kind: type[X], *, name: str | None = None) -> OutputFormat[X]: ...
    @overload
    @staticmethod
    def of(kind: Any, *, name: str | None = None) -> OutputFormat[Any]: ...
    @staticmethod
    def of(kind: Any, *, name: str | None = None) -> OutputFormat[Any]:
        """Make the format of a type: a pydantic model, a dataclass, a TypedDict, `list[int]`, a union and so on.

        Raises:
            TypeError: the output is not a type, or pydantic has no JSON schema for it.
        """
        check_type("output=", kind)
        from pydantic import TypeAdapter
        from pydantic.errors import PydanticSchemaGenerationError, PydanticUserError

        try:
            adapter: TypeAdapter[Any] = TypeAdapter(kind)
            schema = adapter.json_schema()
        except (PydanticSchemaGenerationError, PydanticUserError) as error:
            raise TypeError(
                f"{kind!r} has no JSON form that a model could answer in: {no_json_form(error)}; take text, numbers, lists, a "
                f"dataclass or a pydantic model"
            ) from error
        called = re.sub(r"[^a-zA-Z0-9_-]+", "_", name or getattr(kind, "__name__", "") or "answer")[:64]
        wrapped = _target(schema).get("type") != "object"
        if wrapped:
            definitions = schema.pop("$defs", None)
            schema = {
                "type": "object",
                "properties": {_WRAP: schema},
                "required": [_WRAP],
                "additionalProperties": False,
            }
            if definitions is not None:
                schema["$defs"] = definitions
        elif "$ref" in schema:
            # A recursive type: servers want an object at the top, not a reference.
            schema = {**_target(schema), **{key: value for key, value in schema.items() if key != "$ref"}}
        strict = _strict(schema)
        return OutputFormat(called, schema if strict is None else strict, strict is not None, wrapped, adapter)

    def parse(self, text: str) -> T:
        """Read an answer: plain JSON, fenced JSON, or the first JSON in prose that fits.

        Raises:
            OutputError: no JSON in it fits; the message says why, without the values.
        """
        from pydantic import ValidationError

        reason = "it contains no complete JSON"
        if may_overflow(text):
            reason += " whose numbers a float can hold"
        for index, candidate in enumerate(_candidates(text)):
            try:
                return self._validated(candidate)
            except ValidationError as error:
                # The first one is most likely the one that was meant.
                reason = "; ".join(problems(error)) if index == 0 else reason
            except RecursionError:
                reason = "it is nested too deeply"
            except OverflowError as error:
                reason = str(error) if index == 0 else reason
        raise OutputError(f"the answer is not the JSON that was asked for: {reason}", output=text)

    def convert(self, value: Any) -> T:
        """Make the value of JSON that was read already, such as the arguments of a tool call.

        Raises:
            OutputError: it does not fit; the message says why, without the values.
        """
        from pydantic import ValidationError

        try:
            return self._validated(value)
        except ValidationError as error:
            raise OutputError(f"the value does not fit: {'; '.join(problems(error))}", output="") from None
        except OverflowError as error:
            raise OutputError(f"the value does not fit: {error}", output="") from None

    def _validated(self, value: Any) -> T:
        from pydantic_core import to_json

        wraps = self.wrapped and isinstance(value, dict) and cast("dict[str, Any]", value).keys() == {_WRAP}
        of_value: Mapping[str, Any] = self.schema["properties"][_WRAP] if self.wrapped and not wraps else self.schema
        value = unnested(value, of_value, self.schema)
        if wraps:
            value = value[_WRAP]
        if self.adapter is None:
            return cast("T", value)
        # By way of JSON, so that strict types too are read as JSON has them: a date from text, a tuple from a list.
        sent = to_json(value)
        made = self.adapter.validate_json(sent)
        check_finite(sent, made, self.adapter.dump_python)
        return made


def has_json(text: str) -> bool:
    """Return whether a text contains a JSON value, as answers do, or begins like one."""
    begins = _OPENING.match(text[_end_of_thoughts(text) :].lstrip())
    return begins is not None or next(_candidates(text, read_json), _NOTHING) is not _NOTHING


_NOTHING: Any = object()


def _candidates(text: str, read: Callable[[str], Any] = read_answer) -> Iterator[Any]:
    """Yield the JSON values in a text: the text itself, fenced blocks, then objects and arrays in prose."""
    after = text[_end_of_thoughts(text) :]  # a draft in a model's thoughts is not its answer
    tried: set[str] = set()
    fenced = re.findall(r"```[\w+-]*[ \t]*\n(.*?)```", after, re.DOTALL)
    for piece in (text, after, *fenced):
        if piece.strip() not in tried:
            tried.add(piece.strip())
            try:
                value = read(piece.strip())
            except ValueError:
                continue
            yield value
    position = looked = 0
    while looked < _MOST_LOOKS and (opening := _OPENING.search(after, position)):
        end = _end_of_value(after, opening.start())
        looked += (end or len(after)) - opening.start()
        position = opening.end()
        if end is None:
            continue
        try:
            value = read(after[opening.start() : end])
        except ValueError:
            continue
        position = end
        yield value


def _end_of_thoughts(text: str) -> int:
    """Return the end of the last `</think>` outside of JSON strings; 0 if there is none."""
    end = position = looked = 0
    while looked < _MOST_LOOKS and (found := _THOUGHT_OR_OPENING.search(text, position)):
        position = found.end()
        if found[0] == _THOUGHT:
            end = position
            continue
        closed = _end_of_value(text, found.start())
        looked += (closed or len(text)) - found.start()
        if closed is not None and (_THOUGHT not in text[position:closed] or _is_json(text[found.start() : closed])):
            position = closed
    last = text.rfind(_THOUGHT, position) if looked >= _MOST_LOOKS else -1
    return end if last < 0 else last + len(_THOUGHT)


def _is_json(text: str) -> bool:
    try:
        read_json(text)
    except ValueError:
        return False
    return True


_THOUGHT = "</think>"
_THOUGHT_OR_OPENING = re.compile(r"</think>|[{\[]")
_OPENING = re.compile(r"[{\[]")
# A string without an end reaches to the end of the text, so that no part of it is looked at twice.
_TOKEN = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*(?:"|\\?\Z)|[{}\[\]]', re.DOTALL)


def _end_of_value(text: str, start: int) -> int | None:
    """Return the position at which all brackets opened from `start` are closed, found without recursion."""
    depth = 0
    for token in _TOKEN.finditer(text, start):
        if token[0] in "{[":
            depth += 1
        elif token[0] in "}]":
            depth -= 1
            if depth == 0:
                return token.end()
    return None


def _target(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """Follow the reference at the top of the schema of a recursive type."""
    reference = schema.get("$ref", "")
    return cast("Mapping[str, Any]", schema["$defs"][reference.rpartition("/")[2]]) if reference else schema


# The parts of a schema that servers enforce; others (patterns, `allOf`, open objects) make them refuse the whole schema.
# https://platform.openai.com/docs/guides/structured-outputs#supported-schemas
_ENFORCED = {
    "$defs", "$ref", "additionalProperties", "anyOf", "const", "description", "enum", "items", "properties", "required",
    "title", "type", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "minItems", "maxItems",
    "pattern", "format",
}  # fmt: skip
_FORMATS = {"date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid"}


def _strict(schema: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the variant that servers enforce, or None if the type has none (open dicts, `Any`, tuples …).

    Properties with a default lose it and become required: the answer says each value itself.
    """
    try:
        return _closed(schema)
    except _NotStrictError:
        return None


class _NotStrictError(Exception):
    """The schema has no strict variant."""


def _closed(schema: Any) -> dict[str, Any]:
    if not isinstance(schema, Mapping):
        raise _NotStrictError
    known = dict(cast("Mapping[str, Any]", schema))
    known.pop("default", None)
    known.pop("discriminator", None)
    if "oneOf" in known and "anyOf" not in known:
        known["anyOf"] = known.pop("oneOf")
    if known.keys() - _ENFORCED or not known.keys() & {"type", "anyOf", "$ref", "enum", "const"}:
        raise _NotStrictError
    if known.get("format", "date") not in _FORMATS:
        raise _NotStrictError
    if "$ref" in known:
        known = {"$ref": known["$ref"]} | ({"$defs": known["$defs"]} if "$defs" in known else {})
    if known.get("type") == "object":
        if known.get("additionalProperties", False) is not False or "properties" not in known:
            raise _NotStrictError
        known["properties"] = {name: _closed(each) for name, each in known["properties"].items()}
        known["required"] = list(known["properties"])
        known["additionalProperties"] = False
    if known.get("type") == "array":
        known["items"] = _closed(known.get("items"))
    if "anyOf" in known:
        known["anyOf"] = [_closed(each) for each in known["anyOf"]]
    if "$defs" in known:
        known["$defs"] = {name: _closed(each) for name, each in known["$defs"].items()}
    return known


_NUMBER = re.compile(r"-?[0-9][-+0-9.eE]*\Z")
"""A number at the end, which may go on: of 1871 the value so far is not 18."""
_SHARE = 32
"""The text is read again when it has grown by this part of it, so that all of the reading together takes linear time."""


class PartialOutput:
    """Collects the pieces of an answer and reads them as incomplete JSON."""

    __slots__ = ("_last", "_length", "_next", "_pieces", "_wrapped")

    def __init__(self, output: OutputFormat[Any]) -> None:
        self._wrapped = output.wrapped
        self._pieces: list[str] = []
        self._length = self._next = 0
        self._last: Any = _NOTHING

    def add(self, piece: str) -> tuple[Any] | None:
        """Add a piece, and return the value so far, if it is another one; None if not, or if there is too little new text."""
        self._pieces.append(piece)
        self._length += len(piece)
        if self._length < self._next:
            return None
        self._next = self._length + max(1, self._length // _SHARE)
        text = "".join(self._pieces)
        self._pieces = [text]
        return self._changed(_NUMBER.sub("", text))

    def end(self, text: str) -> tuple[Any] | None:
        """Return the value of the whole answer, if it is another one than the last value."""
        return self._changed(text)

    def _changed(self, text: str) -> tuple[Any] | None:
        value = self._read(text)
        if value is _NOTHING or value == self._last:
            return None
        self._last = value
        return (value,)

    def _read(self, text: str) -> Any:
        thought = text.rfind("</think>")
        if thought < 0 and text.lstrip().startswith("<think>"):
            return _NOTHING
        # Prose and fences may come before the JSON, which is an object, since schemas of answers are.
        start = text.find("{", max(thought, 0))
        if start < 0:
            return _NOTHING
        try:
            value: object = read_answer(text[start:], allow_partial="trailing-strings")
        except ValueError:
            return _NOTHING
        return cast("dict[str, Any]", value).get("value", _NOTHING) if self._wrapped else value
