"""Values as JSON data and back: of every kind, of declared types, damaged, and what cannot be kept."""

from __future__ import annotations

import collections
import dataclasses
import enum
import math
import re
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, time, timedelta, timezone
from decimal import Decimal
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Generic, Literal, NamedTuple, Never, NewType, NotRequired, TypedDict, TypeVar
from zoneinfo import ZoneInfo

import orjson
import pydantic
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from graphagent.codec._blobs import HeldBlobs, hash_of
from graphagent.codec._values import check_type, decode, encode, message_json, read_message, read_usage, usage_json
from graphagent.errors import NodeFailedError, SerializationError
from graphagent.llm import (
    Image,
    Message,
    ProviderData,
    Reasoning,
    Text,
    ToolCall,
    ToolCalls,
    ToolResult,
    ToolResults,
    Usage,
)
from tests.thorough import examples

T = TypeVar("T")
UserId = NewType("UserId", str)


class Colour(enum.Enum):
    RED = "red"
    BLUE = ("b", 1)


class Level(enum.IntEnum):
    LOW = 1


class Right(enum.Flag):
    READ = 1
    WRITE = 2


@dataclasses.dataclass
class Draft:
    text: str
    images: list[Image] = dataclasses.field(default_factory=list)
    message: Message | None = None
    anything: Any = None


@dataclasses.dataclass(frozen=True, slots=True)
class Review:
    text: str


@dataclasses.dataclass
class Longer(Draft):
    more: int = 0


@dataclasses.dataclass
class Node:
    """Refers to itself."""

    name: str
    children: list[Node] = dataclasses.field(default_factory=list)


@dataclasses.dataclass
class Box(Generic[T]):
    inside: T


@dataclasses.dataclass
class Careful:
    """Its constructor changes what it is given, and is not to be called again."""

    price: int
    taxed: int = dataclasses.field(init=False)

    def __post_init__(self):
        self.price = self.price * 2
        self.taxed = self.price + 1
        self.note = ("beside", self.price)

    @cached_property
    def dear(self):
        return self.price > 10


class Page(pydantic.BaseModel):
    model_config = pydantic.ConfigDict(extra="allow")

    title: str
    when: datetime | None = None
    parts: list[Page] = []
    either: Draft | Review | None = None
    scan: bytes = b""
    where: Path | None = pydantic.Field(default=None, alias="place")
    _seen: int = pydantic.PrivateAttr(default=0)

    @pydantic.field_validator("title")
    @classmethod
    def _louder(cls, title):
        return f"{title}!"


class Point(NamedTuple):
    x: int
    y: Draft | None = None


class Row(TypedDict):
    draft: Draft
    review: NotRequired[Review | None]


Alias = list[Draft | Review] | None


def again(value, kind=Any):
    """What comes back of a value, by way of bytes."""
    blobs = HeldBlobs()
    data = orjson.loads(orjson.dumps(encode(value, blobs, kind)))
    return decode(data, HeldBlobs(blobs.held), kind)


def same(one, other):
    """Equal and of one type, all the way down; not a number is itself."""
    if type(one) is not type(other):
        return False
    if isinstance(one, float) and math.isnan(one):
        return math.isnan(other)
    if isinstance(one, Decimal):
        return str(one) == str(other)
    if dataclasses.is_dataclass(one):
        compared = [field.name for field in dataclasses.fields(one) if field.compare]
        return all(same(getattr(one, name), getattr(other, name)) for name in compared)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    if isinstance(one, dict):
        return same(list(one.items()), list(other.items()))
    if isinstance(one, NodeFailedError):
        return (str(one), one.node, one.run_id) == (str(other), other.node, other.run_id)
    return one == other


texts = (
    some.text(some.characters(exclude_categories=()))
    | some.sampled_from(["$", "$at", "\ud800"])
    | some.sampled_from(["a", "é", "\ud800"]).map(lambda character: character * 20_000)
)
scalars = (
    some.none() | some.booleans() | some.integers() | some.sampled_from([2**63, 2**64 - 1, 2**64, -(2**63) - 1])
    | some.floats() | texts | some.binary() | some.just(b"x" * 600) | some.complex_numbers(allow_nan=False)
    | some.decimals() | some.dates() | some.timedeltas() | some.datetimes(timezones=some.none() | some.timezones())
    | some.times(timezones=some.none() | some.just(UTC))
)  # fmt: skip
keys = scalars.filter(
    lambda key: not (isinstance(key, float) and math.isnan(key)) and not (isinstance(key, Decimal) and key.is_nan())
)
images = some.builds(Image, some.binary(min_size=1, max_size=900), some.just("image/gif"), texts)
provided = some.none() | some.builds(ProviderData, texts, some.dictionaries(texts, scalars, max_size=3))
calls = some.builds(ToolCall, texts, some.dictionaries(texts, scalars, max_size=3), texts, texts, provider=provided)
results = some.builds(
    ToolResult, texts, texts, texts, some.booleans(), some.lists(images, max_size=2).map(tuple), full=texts,
    seconds=some.floats(0, 9),
)  # fmt: skip
parts = (
    some.builds(Text, texts, provider=provided)
    | some.builds(Reasoning, texts, provider=provided)
    | images
    | calls
    | results
)
messages = some.builds(
    Message, some.sampled_from(["system", "user", "assistant", "tool"]), some.lists(parts, max_size=4).map(tuple)
)
usages = some.builds(
    Usage, some.integers(0, 10**12), some.integers(0, 9), some.integers(0, 9), some.integers(0, 9),
    cost=some.decimals(0, 9, places=6),
)  # fmt: skip
failures = some.builds(NodeFailedError, texts, some.just(KeyError("x")))
ours = (
    messages | parts | usages | failures | some.builds(ToolCalls, some.lists(calls, max_size=3), texts)
    | some.builds(ToolResults, some.lists(results, max_size=3))
)  # fmt: skip
values = some.recursive(
    scalars | ours,
    lambda inner: (
        some.lists(inner, max_size=4) | some.lists(inner, max_size=4).map(tuple)
        | some.dictionaries(texts, inner, max_size=4)
        | some.dictionaries(some.tuples(keys, keys) | keys, inner, max_size=4)
        | some.frozensets(keys, max_size=4) | some.sets(some.frozensets(keys, max_size=2) | keys, max_size=4)
    ),
    max_leaves=12,
)  # fmt: skip


@settings(deadline=None)
@given(values)
def test_every_value_comes_back_as_it_was(value):
    """What is plain, and what is ours, is equal and of the same type afterwards, without any declaration."""
    assert same(again(value), value)


@settings(deadline=None)
@given(messages, usages)
def test_messages_and_usage_come_back_as_they_were(message, usage):
    """They have forms of their own, which a message's name is made of."""
    blobs = HeldBlobs()
    assert same(read_message(orjson.loads(orjson.dumps(message_json(message, blobs))), blobs), message)
    assert same(read_usage(orjson.loads(orjson.dumps(usage_json(usage)))), usage)


@pytest.mark.parametrize("number", [10**6000, -(10**6000)], ids=["above", "below"])
def test_numbers_of_any_size_come_back(number):
    """Python would refuse to write these in decimal digits."""
    assert again(number) == number


def test_what_json_has_stands_as_it_is():
    """A person who reads the data sees the values."""
    value = {"a": [1, 2.5, "x", None, True], "b": {"c": "d"}}
    assert encode(value, HeldBlobs()) == value


def test_equal_sets_are_written_alike():
    """The order in which a set gives its members differs from process to process, and does not show."""
    assert encode({"b", "a"}, HeldBlobs()) == encode({"a", "b"}, HeldBlobs()) == {"$": "set", "v": ["a", "b"]}


def test_a_set_takes_little_more_memory_than_its_members():
    """Writing a hundred thousand numbers needs some tens of megabytes, not hundreds."""
    program = """
import resource
from graphagent.codec._blobs import HeldBlobs
from graphagent.codec._values import encode
members, before = set(range(100_000)), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
encode(members, HeldBlobs())
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=120)
    kilobyte = 1 if sys.platform != "darwin" else 1024
    assert int(ended.stdout) < 100_000 * kilobyte


def test_large_payloads_stand_apart_once():
    """A text and an image that come up twice are kept once, under their hashes."""
    blobs, image = HeldBlobs(), Image(b"x" * 600)
    data = encode([image, image, "t" * 20_000, "t" * 20_000], blobs)
    assert len(orjson.dumps(data)) < 300
    assert {hash_of(b"x" * 600), hash_of(b"t" * 20_000)} == blobs.held.keys()


@pytest.mark.parametrize(
    "moment",
    [
        datetime(2024, 10, 27, 2, 30, tzinfo=ZoneInfo("Europe/Oslo"), fold=1),
        datetime.fromisoformat("2024-10-27T02:30").replace(fold=1),
        datetime(2024, 1, 1, tzinfo=timezone(timedelta(hours=5, minutes=45))),
        datetime(1900, 1, 1, tzinfo=timezone(timedelta(minutes=19, seconds=32))),  # JSON writers round it to minutes
        time(1, 2, 3, 4, tzinfo=ZoneInfo("Europe/Oslo")),
    ],
)
def test_times_keep_their_zones(moment):
    """The zone comes back by its name, and so does which of two equal hours it was."""
    back = again(moment)
    assert (back, back.tzinfo, back.fold) == (moment, moment.tzinfo, moment.fold)


# ---- declared types


DECLARED = [
    (Draft("x", [Image(b"\xff")], Message("assistant", (Reasoning("r"), Text("t")))), Draft),
    (Draft("x", anything=({"tuple"}, b"\xff", 10**30)), Draft),
    (Review("x"), Draft | Review),
    (None, Draft | None),
    ([Review("a"), Draft("b")], list[Draft | Review]),
    ([Review("a")], list[Draft] | list[Review]),
    ([Review("a"), Draft("b")], Alias),
    ({"a": Draft("x"), "$b": Draft("y")}, dict[str, Draft]),
    ({Review("k"): {Review("v")}, Colour.RED: set()}, dict[Review | Colour, set[Review]]),
    (({Review("v")}, frozenset({Colour.BLUE})), tuple[set[Review], frozenset[Colour]]),
    ((Review("a"), 1, "x"), tuple[Review, int, str]),
    ((Review("a"), Review("b")), tuple[Review, ...]),
    ((Draft("a"), 1), tuple[Review] | tuple[Draft, int]),
    ([Draft("a")], Sequence[Draft]),
    ({"a": (Draft("a"),)}, Mapping[str, Sequence[Draft]]),
    (Node("a", [Node("b"), Node("c", [Node("d")])]), Node),
    (Box(Box([Review("x")])), Box[Box[list[Review]]]),
    (Box(Review("x")), Box[Draft] | Box[Review]),
    (Point(1, Draft("x")), Point),
    ({"draft": Draft("x"), "review": Review("y")}, Row),
    ({"draft": Draft("x")}, Row),
    (
        Page(title="a", place=Path("/a"), parts=[Page(title="b", either=Review("c"))], scan=b"\xff\x00", extra=(1,)),
        Page,
    ),
    (Colour.BLUE, Colour),
    (Level.LOW, Level),
    (Right.READ | Right.WRITE, Right),
    ([Colour.RED, "a", 1, None], list[Literal[Colour.RED, "a", 1] | None]),
    ("ann", UserId),
    (Draft("x"), Annotated[Draft, "a note"]),
    ([Draft("x")], Annotated[list[Draft], ["an unhashable note"]]),
    (uuid.UUID(int=5), uuid.UUID),
    (Path("/a/b"), Path | None),
    (Fraction(1, 3), Fraction),
    (collections.deque([1, 2], maxlen=None), collections.deque[int]),
    (collections.OrderedDict(b=1, a=2), collections.OrderedDict[str, int]),
    (1, float),
    ("not an int", int),
    ({"a": [1, (2,)]}, Any),
    ({"a": [1, (2,)]}, object),
    ([ToolCalls([ToolCall("f", {}, "1")]), Usage(1)], list[ToolCalls | Usage]),
]


@pytest.mark.parametrize(("value", "kind"), DECLARED, ids=lambda part: re.sub(r" at 0x\w+", "", str(part))[:40])
def test_a_declared_type_gives_its_values_back(value, kind):
    """Dataclasses, models, enums, named tuples, dicts of declared keys, and what is made of them, come back as they were."""
    check_type(kind)
    assert same(again(value, kind), value)


drafts = some.builds(Draft, texts, some.lists(images, max_size=2), some.none() | messages, values)
declared = drafts | some.builds(Review, texts)
held = declared | some.lists(declared, max_size=3) | some.dictionaries(texts, declared, max_size=3)
deep = held | some.lists(held, max_size=3) | some.dictionaries(texts, held, max_size=3)
Held = Draft | Review | list[Draft | Review] | dict[str, Draft | Review]
Deep = Held | list[Held] | dict[str, Held]


@settings(deadline=None, max_examples=examples(50))
@given(deep)
def test_declared_types_take_any_values(value):
    """Whatever stands in the fields, and however deep they stand, comes back."""
    assert same(again(value, Deep), value)


def test_an_object_is_restored_without_its_constructor():
    """Neither `__post_init__` nor a validator runs again; what was set beside the fields is there, what was computed is not."""
    value = Careful(5)
    assert value.dear is False
    back = again(value, Careful)
    assert (back, back.note, back.taxed) == (value, ("beside", 10), 11)
    assert "dear" not in vars(back)
    page = Page(title="a")
    page._seen = 7
    back = again(page, Page)
    assert (back, back._seen, back.title, back.model_fields_set) == (page, 7, "a!", {"title"})


@pytest.mark.parametrize(
    ("value", "kind", "form"),
    [
        (FileNotFoundError(2, "gone"), OSError, FileNotFoundError),
        (ValueError("x", threading.Lock()), ValueError, ValueError),
    ],
)
def test_an_exception_comes_back_as_a_declared_class_with_its_text(value, kind, form):
    """What it holds that is plain is kept, and its cause and traceback are not."""
    value.code = 5
    value.lock = threading.Lock()
    back = again(value, kind)
    assert isinstance(back, form)
    assert str(back) == str(value) or back.args == (str(value),)
    assert (back.code, hasattr(back, "lock")) == (5, False)


def test_a_class_may_have_got_fields_with_defaults():
    """What was kept before a field was there is read with the field's default; what has no default cannot be."""

    def kept(kind):
        return encode(kind, HeldBlobs(), type(kind))

    @dataclasses.dataclass
    class Before:
        a: int

    @dataclasses.dataclass
    class After:
        a: int
        b: list[int] = dataclasses.field(default_factory=list)
        c: str = "c"

    @dataclasses.dataclass
    class Never:
        a: int
        d: str

    class Model(pydantic.BaseModel):
        a: int

    class Grown(pydantic.BaseModel):
        a: int
        b: list[int] = pydantic.Field(default_factory=list)

    def read(data, kind):
        return decode({**data, "t": kind.__name__}, HeldBlobs(), kind)

    assert read(kept(Before(1)), After) == After(1, [], "c")
    assert read(kept(Model(a=1)), Grown) == Grown(a=1)
    with pytest.raises(ValueError, match="a Never was kept without 'd', which has no default"):
        read(kept(Before(1)), Never)
    for smaller in (Before, Model):
        with pytest.raises(ValueError, match="was kept with other fields than it has"):
            read(kept(After(1)), smaller)


def test_another_class_than_was_kept_is_not_taken_for_it():
    """A type of the same shape, or of another name, is not what was written."""
    data = encode(Review("x"), HeldBlobs(), Review)
    for kind in (Draft, Any, int, list[Review]):
        with pytest.raises(ValueError, match="kept as another type than is declared"):
            decode(data, HeldBlobs(), kind)


# ---- what cannot be kept


def _nested(depth):
    value = []
    for _ in range(depth):
        value = [value]
    return value


def _looped():
    value = {}
    value["again"] = [value]
    return value


def _twins():
    def twin():
        @dataclasses.dataclass
        class Twin:
            a: int

        return Twin

    one, other = twin(), twin()
    return one(1), one | other


@pytest.mark.parametrize(
    ("value", "kind", "said"),
    [
        (Draft("secret"), Any, "type Draft cannot be kept, since no type is declared"),
        ([Draft("secret")], list[Any], "type Draft cannot be kept, since no type is declared"),
        (Draft("secret"), Review, "type Draft cannot be kept where Review is declared"),
        (Longer("secret"), Draft, "it would come back as Draft, so declare Longer itself"),
        (Colour.RED, str, "type Colour cannot be kept where str is declared"),
        (Level.LOW, int, "it would come back as int, so declare Level itself"),
        (threading.Lock(), Any, "type lock cannot be kept"),
        (Draft("secret", anything=threading.Lock()), Draft, "the anything of a Draft: an object of type lock"),
        (Page(title="secret", extra=threading.Lock()), Page, "the extra of a Page: an object of type lock"),
        (print, Callable[..., None], "it does not come back from JSON as it was"),
        (pydantic.SecretStr("secret"), pydantic.SecretStr, "it does not come back from JSON as it was"),
        (ExceptionGroup("secret", [ValueError()]), ExceptionGroup, "none can be made of its text"),
        (KeyError("secret"), ValueError, "type KeyError cannot be kept where ValueError is declared"),
        (_nested(250), Any, "has more than 200 levels"),
        (_looped(), Any, "a value that holds itself"),
        (*_twins(), "two types of that name are declared"),
    ],
)
def test_what_cannot_be_kept_is_named_without_its_value(value, kind, said):
    """The error says of which type it is and why, and what stood in it nowhere."""
    with pytest.raises(SerializationError, match=said) as raised:
        encode(value, HeldBlobs(), kind)
    assert "secret" not in str(raised.value)


def test_whatever_is_encoded_can_be_written():
    """Values as deep as they are taken can be written by orjson, with room for an entry around them."""
    for depth in range(150, 260):
        try:
            data = encode(_nested(depth), HeldBlobs())
        except SerializationError:
            break
        around = {"a": [{"b": [data]}]}
        assert decode(orjson.loads(orjson.dumps(around))["a"][0]["b"][0], HeldBlobs()) == _nested(depth)
    else:
        pytest.fail("there is no limit")
    tuples = ()
    for _ in range(depth // 2 - 2):
        tuples = (tuples,)
    assert again(tuples) == tuples


@pytest.mark.parametrize(
    "kind",
    [int, None, Any, Never, Draft, Page, Point, Row, Node, Box[int], Colour, list[Draft | None], Sequence[Review], Path,
     ValueError, Draft | Review, dict[str, Alias], UserId, T],
)  # fmt: skip
def test_types_that_can_be_kept_pass(kind):
    """All that the values of which can be kept passes the check that is made before a run."""
    check_type(kind)


@dataclasses.dataclass
class Locked:
    name: str
    lock: threading.Event


@dataclasses.dataclass
class Maybe:
    lock: threading.Event | None = None


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        (threading.Event, "type Event cannot be kept"),
        (int | threading.Event, "type Event cannot be kept"),
        (Locked, "the lock of a Locked: an object of type Event"),
        (list[dict[str, Locked]], r"in a list\[dict\[str, Locked\]\]: in a dict\[str, Locked\]: the lock of a Locked"),
    ],
)
def test_types_that_cannot_be_kept_are_refused_before_a_run(kind, said):
    """The error says where in the type; a field that may be None, or something else, is let pass."""
    check_type(Maybe)
    with pytest.raises(SerializationError, match=said):
        check_type(kind)


# ---- damage


def _damaged(data, draw):
    """The data with something in it put in the place of something else, or removed."""
    places = []

    def walk(at, path):
        places.append(path)
        for key, each in at.items() if isinstance(at, dict) else enumerate(at) if isinstance(at, list) else ():
            walk(each, (*path, key))

    walk(data, ())
    path = draw(some.sampled_from(places))
    junk = draw(
        some.sampled_from(
            ["secret", -1, 1.5, None, True, [], ["secret"], {}, {"$": "secret"}, {"secret": 1}, {"$": ["secret"]}]
        )
        | some.sampled_from(["tuple", "set", "dict", "image", "typed", "str", "bytes", "datetime", "int"]).map(
            lambda tag: {"$": tag, "v": "secret", "t": "Draft", "b": "secret"}
        )
    )
    if not path:
        return junk
    at = data
    for key in path[:-1]:
        at = at[key]
    if draw(some.booleans()):
        at[path[-1]] = junk
    else:
        del at[path[-1]]
    return data


EVERY_KIND = tuple[Draft | Page | Point | Row | Colour | Right | Path | Node | OSError | Review, ...]


@settings(deadline=None, max_examples=examples(400))
@given(some.data(), values | some.sampled_from([value for value, _ in DECLARED]))
def test_damaged_data_is_a_value_error_that_shows_nothing(data, value):
    """Whatever was changed in it, decoding gives some value or raises ValueError, and what stands in the data shows nowhere."""
    blobs = HeldBlobs()
    kind = Any
    try:
        kept = encode(value, blobs)
    except SerializationError:
        kind = next(each for known, each in DECLARED if known is value)
        kept = encode(value, blobs, kind)
    kept = orjson.loads(orjson.dumps([kept]))
    for _ in range(data.draw(some.integers(1, 3))):
        kept = _damaged(kept, data.draw)
    for each in (kept[0] if isinstance(kept, list) and kept else kept, {"$": "tuple", "v": kept}):
        for declared in (kind, EVERY_KIND, Any):
            try:
                decode(each, blobs, declared)
            except ValueError as error:
                told = [str(error), str(error.__context__)]
            else:
                told = []
            assert "secret" not in "".join(told)


@pytest.mark.parametrize(
    "read", [decode, read_message, lambda data, blobs: read_usage(data)], ids=["value", "message", "usage"]
)
@pytest.mark.parametrize(
    "data",
    [{"$": "secret"}, {"$": "tuple"}, {"$": "int", "v": "secret"}, {"$": "decimal", "v": "secret"}, {"role": "user"},
     {"role": "secret", "parts": []}, {"role": "user", "parts": [5]}, {"$": "str", "b": "secret"},
     {"$": "date", "v": "secret"}, {"$": "set", "v": [[]]}, {"$": "datetime", "v": "2024-01-01", "zone": "secret"},
     {"$": "call", "name": "f", "arguments": []}, {"$": "image", "type": "a", "v": "!"}, {"$": "timedelta", "v": [10**10, 0, 0]},
     {"$": "surrogates", "v": "////"}],
    ids=str,
)  # fmt: skip
def test_each_form_of_damage_is_told(read, data):
    """What lacks something, or has something else in its place, is refused without being shown."""
    if read is decode and "$" not in data:
        assert decode(data, HeldBlobs()) == data
        return
    with pytest.raises(ValueError, match=r"stored value|payload") as raised:
        read(data, HeldBlobs())
    assert "secret" not in str(raised.value)


def test_data_nested_without_end_is_a_value_error():
    """Data that nobody wrote cannot exhaust the stack."""
    data = []
    for _ in range(100_000):
        data = [data]
    with pytest.raises(ValueError, match="RecursionError"):
        decode(data, HeldBlobs())
    while data:  # taken apart here, since the interpreter would do it by recursion
        data = data.pop()


def test_payloads_that_stand_apart_are_checked():
    """One that is missing, or is another, is not taken for what was kept."""
    blobs = HeldBlobs()
    data = encode("t" * 20_000, blobs)
    with pytest.raises(ValueError, match="a payload that stands apart is missing"):
        decode(data, HeldBlobs())
    with pytest.raises(ValueError, match="a payload that is stored apart has changed"):
        decode(data, HeldBlobs(dict.fromkeys(blobs.held, b"other")))


def test_failures_of_what_holds_the_payloads_are_its_own():
    """That a store cannot be read is no damage of the value."""

    class Gone(HeldBlobs):
        def get(self, name):
            raise OSError("the disk is gone")

    with pytest.raises(OSError, match="the disk is gone"):
        decode(encode("t" * 20_000, HeldBlobs()), Gone())
