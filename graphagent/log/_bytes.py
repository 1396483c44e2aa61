"""Entries as bytes, and back.

A row is what one commit appends: four bytes of CRC-32, and MessagePack of `[time, ran, entries]`. Large payloads are items of
their own, named by a number that the log never uses twice.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias, cast

import msgspec
from msgspec import Raw, structs
from msgspec.msgpack import Decoder, Encoder

from graphagent.codec._errors import DecodeError
from graphagent.codec._values import decode, encode, read_usage, undeclared, usage_json
from graphagent.errors import StoreError
from graphagent.llm import Message, ModelResponse
from graphagent.log._entries import AgentStarted, AgentStopped, AnyEntry, Carried, LibraryObject, Started, Stopped
from graphagent.memory.steps._types import Step
from graphagent.memory.transcript._fields import Source, read_step, write_step
from graphagent.memory.transcript._prompt import Versions
from graphagent.store._items import checked, is_intact

if TYPE_CHECKING:
    from graphagent.log._entries import Entry
    from graphagent.log._state import State

Types: TypeAlias = Callable[[str, str], Any]
"""Returns the declared type of the `input` or `output` of the node at a path; the empty path is the strategy itself."""

_encoder = Encoder()
_rows = Decoder(tuple[int, int, list[AnyEntry]])
_any = Decoder()
_parts = Decoder(tuple[int, int, list[Raw]])
_PLAIN = frozenset((str, int, float, bool, type(None)))


class Payloads:
    """The large payloads of a log, by their numbers."""

    def __init__(self) -> None:
        self.stored: dict[int, bytes] = {}
        """Those that were read."""
        self.new: dict[int, bytes] = {}
        """Those that the next commit stores."""
        self.last = 0
        """The highest number that was used."""
        self._numbers: dict[bytes, int] = {}
        """The numbers of payloads by a hash of their content, which is in memory only."""

    def put(self, data: bytes) -> str:
        """Store bytes with the next commit, unless this process has stored them before, and return their number as text."""
        import hashlib

        name = hashlib.blake2b(data, digest_size=16).digest()
        number = self._numbers.get(name)
        if number is None:
            self.last += 1
            number = self._numbers[name] = self.last
            self.new[number] = checked(data)
        return str(number)

    def get(self, name: str) -> bytes:
        """Return the bytes of a number.

        Raises:
            ValueError: they are missing, or are not what was written.
        """
        number = int(name) if name.isdecimal() else 0
        data = self.new.get(number) or self.stored.get(number)
        if data is None:
            raise DecodeError("a payload is missing")
        if not is_intact(data):
            raise DecodeError("checksum mismatch in a payload")
        return data[4:]

    def read(self, number: int, data: bytes) -> None:
        """Take a payload that was read."""
        self.stored[number] = data
        self.last = max(self.last, number)


@dataclass(slots=True, eq=False)
class EncodedValue:
    """A value of a step as it is stored, which is written again without being read."""

    data: Any


@dataclass(slots=True)
class UnreadStep(Step):
    """A step of a type that this process does not know, which is written again as it is stored."""

    kind: ClassVar[str] = "?"
    data: Any


class EntryCodec:
    """Makes bytes of the entries and values of one log, and reads them again."""

    def __init__(self, types: Types | None = None) -> None:
        self.blobs = Payloads()
        self.versions = Versions()
        """The versions of the steps of the transcript that is written."""
        self.rules: str | None = None
        """The system prompt of that transcript."""
        self.types = types
        self.refers_at: dict[str, Collection[str]] = {"": ()}
        """By the path of the frame of an agent: of which kinds its steps have references instead of texts: `fact`, `note`."""
        self.refers: Collection[str] = ()
        """The same for the steps that are being written."""
        self.keeps_values = False
        """Whether users' values and types of steps are left as they are stored: the steps are only written again."""
        self.source = Source(self.blobs)
        """Where the steps are read from that are being read, with the facts and notes to which they refer."""

    # ---- values of users' types

    def keep(self, value: Any, kind: Any = Any) -> Raw:
        """Return a value as an entry has it."""
        return Raw(
            _encoder.encode(value if type(value) in _PLAIN and _fits(value) else encode(value, self.blobs, kind))
        )

    def take(self, raw: Raw, kind: Any = Any) -> Any:
        """Return a new object of a declared type for a value that an entry has.

        Raises:
            ValueError: the bytes are damaged, or the type does not fit.
        """
        return self.value_of(_any.decode(raw), kind)

    def value_of(self, data: Any, kind: Any = Any) -> Any:
        """Return the same for the data of such a value, which stays as it is.

        Raises:
            ValueError: the data is damaged, or the type does not fit.
        """
        value = data if type(data) in _PLAIN else decode(data, self.blobs, kind)
        if type(value) is str and isinstance(kind, type) and issubclass(kind, BaseException):
            return _error_of(kind, value)
        return value

    def take_if_fits(self, raw: Raw, kind: Any) -> Any:
        """Return the same; if the value is of another type, as plain data."""
        try:
            return self.take(raw, kind)
        except ValueError:
            return self.take_plain(raw)

    def take_plain(self, raw: Raw) -> Any:
        """Return the plain data of a value that an entry has, for a program that has not its type.

        Raises:
            ValueError: the bytes are damaged.
        """
        return decode(undeclared(_any.decode(raw)), self.blobs)

    def take_data(self, raw: Raw) -> Any:
        """Return the data of a value that an entry has, as it is stored."""
        return _any.decode(raw)

    # ---- entries

    def write(self, entry: Entry, state: State) -> tuple[bytes, Entry]:
        """Return the bytes of an entry, and the entry as it is applied: no value in it is an object that somebody else has."""
        names = _OBJECTS.get(type(entry))
        if not names:
            return _encoder.encode(entry), entry
        written: dict[str, Any] = {}
        applied: dict[str, Any] = {}
        frame = state.frames.get(entry.at) or state.root
        self.versions, self.rules = frame.transcript.versions, frame.transcript.rules
        self.refers = self.refers_at.get(frame.agent.frame.path, self.refers_at[""])
        for name in names:
            value = getattr(entry, name)
            if value is None:
                continue
            if isinstance(value, tuple):
                both = [self._written(step, entry, state) for step in cast("Sequence[Step]", value)]
                written[name], applied[name] = [data for data, _ in both], tuple(step for _, step in both)
            elif isinstance(value, LibraryObject):
                written[name] = _write_held(value.value, self)
            else:
                written[name], applied[name] = self._written(value, entry, state)
        return _encoder.encode(structs.replace(entry, **written)), structs.replace(entry, **applied)

    def _written(self, step: Step, entry: Entry, state: State) -> tuple[Any, Step]:
        """Return a step as data, and the step as it is applied: with a value of its own, where it has one of a user's type."""
        if isinstance(step, UnreadStep):
            return step.data, step
        field = _VALUES.get(type(step).kind)
        value: Any = None if field is None else getattr(step, field)
        if field is None or type(value) in _PLAIN:
            return write_step(step, self), step
        if isinstance(value, EncodedValue):
            bare = copy.copy(step)
            object.__setattr__(bare, field, None)
            return {**write_step(bare, self), field: value.data}, step
        kind = self._kind(entry, state, field)
        data, applied = encode(value, self.blobs, kind), copy.copy(step)
        object.__setattr__(applied, field, None)
        found = {**write_step(applied, self), field: data}
        object.__setattr__(applied, field, decode(data, self.blobs, kind))
        return found, applied

    def read(self, row: bytes) -> tuple[int, int, Sequence[Entry]]:
        """Return the time, the duration and the entries of a row. Steps in these are data; `revive` makes them steps.

        Raises:
            ValueError: it is not what was written.
        """
        if not is_intact(row):
            raise DecodeError("checksum mismatch")
        try:
            return _rows.decode(memoryview(row)[4:])
        except msgspec.MsgspecError as error:
            reason = str(error) if isinstance(error, msgspec.ValidationError) else "not MessagePack"
        raise DecodeError(reason)

    def revive(self, entry: Entry, state: State) -> None:
        """Put steps and objects into an entry that was read, in the place of their data.

        Raises:
            ValueError: the data is damaged; as any other error of a wrong value.
            StoreError: a step is of a type that was not imported.
        """
        names = _OBJECTS[type(entry)]
        if not names:
            return
        transcript = (state.frames.get(entry.at) or state.root).transcript
        self.source.versions, self.source.rules = transcript.versions, transcript.rules
        for name in names:
            data = getattr(entry, name)
            if data is None or data == ():
                continue
            if name in ("held", "results"):
                made: Any = LibraryObject(_read_held(data, self))
            elif name == "steps":
                made = tuple([self._step(each, entry, state) for each in data])
            else:
                made = self._step(data, entry, state)
            structs.force_setattr(entry, name, made)

    def _step(self, data: Any, entry: Entry, state: State) -> Step:
        """Return a step of its data."""
        kind = data.get("kind")
        if isinstance(kind, str) and kind not in Step.kinds:
            if self.keeps_values:
                return UnreadStep(data)
            raise StoreError(f"{kind!r} is not a known kind of step; import the module that defines it first")
        field, value = _VALUES.get(kind), None
        if field is not None and isinstance(data.get(field), list | dict):
            value = self._value(data[field], entry, state, field)
            data = {key: each for key, each in data.items() if key != field}
        step = read_step(data, self.source)
        if value is not None and field is not None:
            object.__setattr__(step, field, value)
        return step

    def _value(self, data: Any, entry: Entry, state: State, field: str) -> Any:
        """Return a value in a step by the type that is declared for it; in a program that does not declare it, as plain data."""
        if self.keeps_values:
            return EncodedValue(data)
        try:
            return decode(data, self.blobs, self._kind(entry, state, field))
        except ValueError:
            return decode(undeclared(data), self.blobs)

    def _kind(self, entry: Entry, state: State, field: str) -> Any:
        """Return the declared type of the value in the step of an entry."""
        if self.types is None:
            return Any
        if isinstance(entry, Carried):
            return self.types("", "input" if field == "task" else "output") if field != "action_output" else Any
        if isinstance(entry, Started):
            return self.types("", "input")
        frame = state.frames.get(entry.at)
        if isinstance(entry, Stopped | AgentStopped) and frame is not None:
            return self.types(frame.path, "output")
        if frame is None:
            return Any
        if isinstance(entry, AgentStarted):
            return self.types(f"{frame.node_path}/{entry.name}/0/", "input")
        return self.types(frame.node_path, "output")


_OBJECTS: dict[type[Any], tuple[str, ...]] = {
    kind: tuple(name for name in kind.__struct_fields__ if name in ("step", "steps", "task", "held", "results"))
    for kind in cast("Any", AnyEntry).__args__
}
"""The fields of entries that are steps or objects of the library, which are written as the codec writes these."""
_VALUES = {"task": "task", "action": "action_output", "final_answer": "output"}
"""The fields of steps that have values of users' types, by the kinds of steps."""


def _error_of(kind: type[BaseException], text: str) -> BaseException:
    """Return an error of a class, which could only be stored as its text, without calling its constructor."""
    try:
        error = kind.__new__(kind)
    except TypeError:  # a group cannot be made without its errors
        error = kind.__new__(kind, text, [RuntimeError(text)])
    error.args = (text,)
    return error


def _write_held(value: Any, codec: EntryCodec) -> Any:
    if isinstance(value, ModelResponse):
        message = encode(value.message, codec.blobs)
        return {"$response": [message, usage_json(value.usage), value.finish_reason, value.model]}
    return encode(value, codec.blobs)


def _read_held(data: Any, codec: EntryCodec) -> Any:
    if isinstance(data, dict) and "$response" in data:
        message, usage, finish, model = cast("dict[str, Any]", data)["$response"]
        said = decode(message, codec.blobs)
        if not isinstance(said, Message):
            raise DecodeError("the stored data is not a message")
        return ModelResponse(said, read_usage(usage), finish, model)
    return decode(data, codec.blobs)


def _fits(value: Any) -> bool:
    """Return whether MessagePack has a plain value."""
    if type(value) is int:
        return -(2**63) <= value < 2**64
    return type(value) is not str or (len(value) < 1024 and value.isascii())


def row_of(time: int, ran: int, entries: Sequence[bytes]) -> bytes:
    """Return the row of a commit."""
    return checked(_encoder.encode((time, ran, [Raw(each) for each in entries])))


def may_refer(row: bytes) -> bool:
    """Return whether a row may refer to a fact (`ref`) or a note (`noted`), at a glance: as MessagePack has these texts."""
    return b"\xa3ref" in row or b"\xa5noted" in row


def plain(row: bytes) -> Any:
    """Return the data of a row that was checked, without its types."""
    return _any.decode(memoryview(row)[4:])


def cut(row: bytes, count: int) -> bytes:
    """Return a row with only its first entries."""
    now, ran, entries = _parts.decode(memoryview(row)[4:])
    return row if count >= len(entries) else row_of(now, ran, entries[:count])


def payloads_in(data: Any) -> set[int]:
    """Return the numbers of the payloads to which data refers. No dict of a user is written with a key `$`."""
    found: set[int] = set()
    waiting: list[Any] = [data]
    while waiting:
        each = waiting.pop()
        if isinstance(each, dict):
            parts = cast("dict[str, Any]", each)
            name = parts.get("b") if "$" in parts else None
            if isinstance(name, str) and name.isdecimal():
                found.add(int(name))
            waiting += parts.values()
        elif isinstance(each, list):
            waiting += each  # pyright: ignore[reportUnknownArgumentType]  mypy knows what it is
    return found
