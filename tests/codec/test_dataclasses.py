"""DataclassCodec: objects of dataclasses as JSON objects and back, derived from their fields."""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from graphagent.codec._dataclasses import DataclassCodec, FieldCodec


class Colour(enum.Enum):
    RED = "red"
    BLUE = "blue"


@dataclass(frozen=True)
class Spot:
    x: int
    y: int = 0


@dataclass
class Drawing:
    name: str
    number: int = 1
    scale: float = 1.0
    shown: bool = False
    colour: Colour = Colour.RED
    mode: Literal["draft", "final"] = "draft"
    spot: Spot | None = None
    spots: tuple[Spot, ...] = ()
    words: Sequence[str] = field(default_factory=list)
    made: float = field(default=0.5, init=False)


DRAWING = DataclassCodec(Drawing)
FULL = Drawing("a", 2, 2.5, True, Colour.BLUE, "final", Spot(1), (Spot(1, 2), Spot(3)), ["b", "c"])
STORED = {
    "name": "a", "number": 2, "scale": 2.5, "shown": True, "colour": "blue", "mode": "final", "spot": {"x": 1},
    "spots": [{"x": 1, "y": 2}, {"x": 3}], "words": ["b", "c"],
}  # fmt: skip


def test_fields_are_written_in_their_order_and_read_again():
    """Each by its annotation; one that the constructor does not take is not stored."""
    assert list(DRAWING.write(FULL).items()) == list(STORED.items())
    again = DRAWING.read(orjson.loads(orjson.dumps(STORED)))
    assert DRAWING.write(again) == STORED
    assert (again.spot, again.spots, tuple(again.words)) == (Spot(1), (Spot(1, 2), Spot(3)), ("b", "c"))
    assert again.colour is Colour.BLUE


def test_a_field_with_its_default_is_left_out():
    """It has it again when it is read, made anew if the class makes it anew."""
    assert DRAWING.write(Drawing("a")) == {"name": "a"}
    one, other = DRAWING.read({"name": "a"}), DRAWING.read({"name": "a"})
    assert one == Drawing("a")
    assert one.words is not other.words


def test_keys_order_and_what_is_written_always_can_be_chosen():
    """A field that is not stored has its default again."""
    codec = DataclassCodec(
        Drawing, {"number": "n", "name": "t"}, tag="drawing", always=("number",), defaults={"name": "?"}
    )
    assert list(codec.write(Drawing("a", shown=True)).items()) == [("$", "drawing"), ("n", 1), ("t", "a")]
    assert codec.write(Drawing("?", 2)) == {"$": "drawing", "n": 2}
    assert codec.read({"$": "drawing", "n": 2}) == Drawing("?", 2)
    with pytest.raises(ValueError, match="KeyError"):
        codec.read({"t": "a"})


def test_a_form_writes_and_reads_with_the_context():
    """By the name of a field, or by its type, also within others."""

    @dataclass
    class Kept:
        name: str
        others: tuple[str, ...] = ()
        more: str | None = None
        data: Any = None

    text = FieldCodec(lambda value, offset: value + offset, lambda data, offset: data.removesuffix(offset))
    codec = DataclassCodec(Kept, forms={str: text, "data": FieldCodec()})
    stored = {"name": "a!", "others": ["b!"], "more": "c!", "data": [1]}
    assert codec.write(Kept("a", ("b",), "c", [1]), "!") == stored
    assert codec.read(stored, "!") == Kept("a", ("b",), "c", [1])


def test_a_type_that_says_nothing_needs_a_form():
    """The error names the field, when the codec is first used."""

    @dataclass
    class Kept:
        data: Mapping[str, int]

    with pytest.raises(TypeError, match=r"the data of a Kept is Mapping\[str, int\], which needs a form"):
        DataclassCodec(Kept).write(Kept({}))


DAMAGED = [
    {}, {"name": 5}, {"name": None}, {"name": "a", "secret": 1}, "secret", None, ["name"], 7,
    *({"name": "a", **each} for each in (
        {"number": "secret"}, {"number": True}, {"number": 1.5}, {"scale": "secret"}, {"scale": True}, {"shown": 1},
        {"colour": "secret"}, {"colour": []}, {"mode": "secret"}, {"mode": None}, {"spot": "secret"}, {"spot": {"y": 1}},
        {"spot": {"x": 1, "z": 2}}, {"spots": {"x": 1}}, {"spots": [None]}, {"words": "secret"}, {"words": [5]},
    )),
]  # fmt: skip


@pytest.mark.parametrize("data", DAMAGED, ids=str)
def test_whatever_was_not_written_is_refused(data):
    """As a ValueError that shows nothing of it."""
    with pytest.raises(ValueError, match="the stored value") as raised:
        DRAWING.read(data)
    assert "secret" not in f"{raised.value} {raised.value.__context__}"


texts = st.text(max_size=3)
spots = st.builds(Spot, st.integers(), st.integers())


@given(
    st.builds(
        Drawing, texts, st.integers(), st.floats(allow_nan=False), st.booleans(), st.sampled_from(Colour),
        st.sampled_from(["draft", "final"]), st.none() | spots, st.lists(spots).map(tuple), st.lists(texts).map(tuple),
    )
)  # fmt: skip
def test_every_object_comes_back(drawing):
    """Equal, of the same types, and written alike again."""
    stored = DRAWING.write(drawing)
    again = DRAWING.read(stored)
    assert repr(again).replace("[]", "()") == repr(drawing).replace("[]", "()")
    assert DRAWING.write(again) == stored
