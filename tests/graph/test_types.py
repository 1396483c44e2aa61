"""What is known of types when the program runs."""

# The older ways to write a type are under test, and so is a name that only type checkers know.
# ruff: noqa: UP007, UP045, PYI061, TC004

from __future__ import annotations

import enum
import functools
import typing
from collections import abc
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Literal, NamedTuple, Never, NewType, Optional, Protocol, TypedDict, TypeVar, Union

import pytest
from hypothesis import given
from hypothesis import strategies as st
from inline_snapshot import snapshot

from graphagent import Context
from graphagent.graph import Node, Tap, _types, node, tap, type_hints
from graphagent.graph._types import is_a
from tests.graph.parts import step

if typing.TYPE_CHECKING:
    from nowhere import Hidden


class Animal: ...


class Dog(Animal): ...


class Colour(enum.Enum):
    RED = 1
    BLUE = 2


class Speed(enum.IntEnum):
    SLOW = 1


class Rights(enum.Flag):
    READ = 1
    WRITE = 2


class Barks(Protocol):
    def bark(self) -> None: ...


@typing.runtime_checkable
class Sized(Protocol):
    def __len__(self) -> int: ...


class Film(TypedDict):
    title: str


class Point(NamedTuple):
    x: int


class Box(typing.Generic[typing.TypeVar("X")]): ...


UserId = NewType("UserId", str)
T = TypeVar("T")

FITS = [
    (str, str), (Dog, Animal), (bool, int), (int, object), (Any, str), (str, Any), (Never, str), (None, None),
    (None, type(None)), (int, float), (bool, float), (int, complex), (float, complex), (Speed, int), (Speed, float),
    (str, str | None), (None, Optional[str]), (str | int, int | str), (Dog | None, Animal | None), (str | bool, object),
    (str | int, Union[int, str, bytes]), (int | bool, float),
    (Literal["a"], str), (Literal["a"], Literal["a", "b"]), (Literal[True], bool), (bool, Literal[True, False]),
    (Literal["a", 1], str | int), (Colour, Literal[Colour.RED, Colour.BLUE]), (Literal[Colour.RED], Colour),
    (Literal[None], None), (Literal["a"], Literal["a"] | int),
    (UserId, str), (UserId, UserId), (UserId, str | None),
    (list[int], list[int]), (list[int], list), (list, list[int]), (list[Dog], abc.Sequence[Animal]),
    (list[int], abc.Iterable[float]), (list[str], abc.Iterable[str | None]), (str, abc.Iterable[str]),
    (str, abc.Sequence[str]), (tuple[int, str], tuple[int, str]), (tuple[int, str], tuple[float, object]),
    (tuple[int, ...], tuple[float, ...]), (tuple[int, bool], tuple[int, ...]), (tuple[int, ...], abc.Iterable[int]),
    (tuple[int, str], abc.Sequence[int | str]), (tuple, tuple[int, str]), (dict[str, int], abc.Mapping[str, int]),
    (dict[str, Any], dict[str, int]), (set[int], abc.Collection[int]), (dict[str, int], dict),
    (Film, Film), (dict, Film), (Film, dict), (Dog, Barks), (str, Sized), (Point, tuple), (Point, tuple[int]),
    (T, str), (str, T), (list[T], list[int]), (Box[int], Box[int]), (type[Dog], type[Animal]),
    (abc.Callable[[int], str], abc.Callable[[int], str]), (Annotated[str, 1], str), (str, Annotated[str, 1]),
    (bytes, abc.Iterable[int]), (abc.Generator[int, None, None], abc.Iterable[int]),
]  # fmt: skip
MISFITS = [
    (str, int), (Animal, Dog), (int, bool), (object, str), (float, int), (complex, float), (None, str), (str, None),
    (str | None, str), (str | int, str), (str | int, str | bytes), (Optional[Dog], Animal),
    (str, Literal["a"]), (Literal["a"], int), (Literal["a", 1], str), (Literal[1], Literal[True]),
    (Literal[True], Literal[1]), (bool, Literal[True]), (Colour, Literal[Colour.RED]), (Colour, int),
    (str, UserId), (UserId, int), (list[int], list[str]), (list[str], abc.Iterable[int]), (str, abc.Iterable[int]),
    (str, list[str]), (tuple[int, str], tuple[int, int]), (tuple[int], tuple[int, int]),
    (tuple[int, ...], tuple[int, int]), (tuple[int, str], tuple[int, ...]), (tuple[int, str], abc.Iterable[int]),
    (dict[str, int], dict[str, str]), (dict[str, int], dict[int, int]), (list[int], tuple[int, ...]),
    (abc.Iterable[int], list[int]), (Box[int], Box[str]), (Film, str), (Point, list), (int, abc.Iterable[int]),
    (list[str | None], list[str]), (list[list[int]], list[list[str]]),
]  # fmt: skip


@pytest.mark.parametrize(("source", "target"), FITS, ids=lambda kind: _types.show(kind))
def test_a_type_fits(source, target):
    """A value of the first type may go where the second is declared."""
    assert _types.fits(source, target)


@pytest.mark.parametrize(("source", "target"), MISFITS, ids=lambda kind: _types.show(kind))
def test_a_type_does_not_fit(source, target):
    """A value of the first type may not go where the second is declared."""
    assert not _types.fits(source, target)


KINDS = st.sampled_from(
    [str, int, bool, float, None, Animal, Dog, Colour, UserId, list[int], Literal["a"], Literal[Colour.RED], Any]
)


@given(st.lists(KINDS, min_size=1), st.lists(KINDS))
def test_a_union_takes_its_members(kinds, more):
    """What is a member of a union fits it, and a union fits every larger one."""
    whole = _types.union([*kinds, *more])
    assert all(_types.fits(kind, whole) for kind in kinds)
    assert _types.fits(_types.union(kinds), whole)


@given(st.lists(KINDS))
def test_a_union_of_members_is_the_union(kinds):
    """Taking a union apart and joining it again gives a type of the same values."""
    whole = _types.union(kinds)
    again = _types.union(_types.members(whole))
    assert set(_types.members(again)) == set(_types.members(whole))


def test_members_are_what_values_may_be():
    """Unions, bool, enums and literals come apart; flags and classes do not."""
    kinds = [str | None, bool, Colour, Literal["a", 1], Optional[bool], Rights, Animal, Annotated[bool, "note"]]
    assert [[_types.show(part) for part in _types.members(kind)] for kind in kinds] == snapshot(
        [
            ["str", "None"],
            ["True", "False"],
            ["Colour.RED", "Colour.BLUE"],
            ["'a'", "1"],
            ["True", "False", "None"],
            ["Rights"],
            ["Animal"],
            ["True", "False"],
        ]
    )


def test_types_are_shown_as_they_are_written():
    """The name of a type is what its author would write."""
    kinds = [
        None, str, str | None, Optional[int], Literal["a", True, Colour.RED], list[int | None], tuple[int, ...],
        dict[str, list[int]], abc.Iterable[str], abc.Callable[[int, str], bool], abc.Callable[..., None], UserId, T, Any,
        Never, Film, Annotated[str, 1], list[int], type[Dog], tuple[()],
    ]  # fmt: skip
    assert [_types.show(kind) for kind in kinds] == snapshot(
        [
            "None",
            "str",
            "str | None",
            "int | None",
            "'a' | True | Colour.RED",
            "list[int | None]",
            "tuple[int, ...]",
            "dict[str, list[int]]",
            "Iterable[str]",
            "Callable[[int, str], bool]",
            "Callable[..., None]",
            "UserId",
            "T",
            "Any",
            "Never",
            "Film",
            "str",
            "list[int]",
            "type[Dog]",
            "tuple",
        ]
    )


def test_annotations_are_read_one_by_one():
    """A context that only type checkers know does not hide the other types; local names are found."""

    class Local: ...

    @node
    async def first(ctx: Hidden, value: Local) -> list[Local]: ...

    @node(name="other")
    async def third(ctx: Any, value: Local): ...

    assert (first.input_type, first.output_type) == (Local, list[Local])
    assert (third.input_type, third.output_type) == (Local, Any)


def test_annotations_that_are_not_known_are_refused():
    """The error names the function, the annotation and the way out: an edge could not be checked by it."""
    known = "import or define it above, not only under TYPE_CHECKING"
    with pytest.raises(TypeError, match=f"@node 'second' annotates 'value' with 'Hidden', .*{known}"):

        @node
        async def second(ctx: Any, value: Hidden) -> int: ...

    with pytest.raises(TypeError, match=r"@node 'third' annotates its result with 'list\[Hidden\]'"):

        @node
        async def third(ctx: Any, value: int) -> list[Hidden]: ...

    with pytest.raises(TypeError, match=r"@node 'fourth' annotates 'ctx' with 'Context\[Hidden\]'"):

        @node
        async def fourth(ctx: Context[Hidden], value: int) -> int: ...

    with pytest.raises(TypeError, match="@tap 'fifth' annotates 'value' with 'Hidden'"):

        @tap
        async def fifth(ctx: Any, value: Hidden) -> None: ...

    class Called:
        async def __call__(self, ctx: Any, value: Hidden) -> int: ...

    with pytest.raises(TypeError, match="@node 'Called' annotates 'value' with 'Hidden'"):
        node(Called())

    def changed(value: int) -> Hidden: ...

    with pytest.raises(TypeError, match=r"\.map changed annotates its result with 'Hidden'"):
        step("number", output_type=int).map(changed)


@pytest.mark.parametrize(
    ("kind", "fitting", "others"),
    [
        (str, ["a"], [1, None, ["a"], str]),
        (float, [1.0, 1], ["1"]),
        (int, [1, True], [1.0]),
        (None, [None], [0]),
        (str | None, ["a", None], [1]),
        (Any, [1, None], []),
        (object, [1, None], []),
        (list[str], [["a"], [], ["a"] * 100, [1] * 100], [["a", 1], ("a",), "a"]),
        (Sequence[str], [["a"], ("a",), "a"], [[1]]),
        (dict[str, int], [{"a": 1}], [{"a": "b"}, {1: 1}, []]),
        (tuple[int, str], [(1, "a")], [(1,), ("a", 1), (1, "a", 2)]),
        (tuple[int, ...], [(), (1, 2)], [("a",)]),
        (Literal["a", 1], ["a", 1], ["b", True]),
        (UserId, ["a"], [1]),
        (Film, [{"title": "a"}], ["a"]),
        (Callable[..., None], [print], [1]),
        (type[Dog], [Dog], [1]),
        (T, [1], []),
    ],
    ids=str,
)
def test_values_are_of_a_type_as_far_as_that_can_be_known(kind, fitting, others):
    """Items are looked at where there are few; what cannot be tested passes."""
    assert [value for value in fitting if not is_a(value, kind)] == []
    assert [value for value in others if is_a(value, kind)] == []


def test_annotations_of_wrapped_functions_and_callables_are_read():
    """Decorated functions, methods and objects that can be called keep their types."""

    async def plain(ctx: Any, value: int) -> str: ...

    @functools.wraps(plain)
    async def wrapped(ctx, value): ...

    class Thing:
        async def method(self, ctx: Any, value: Dog) -> Animal: ...

        async def __call__(self, ctx: Any, value: bytes) -> None: ...

    assert (node(wrapped).input_type, node(wrapped).output_type) == (int, str)
    assert (node(Thing().method).input_type, node(Thing().method).output_type) == (Dog, Animal)
    assert (node(Thing()).input_type, node(Thing()).output_type, node(Thing()).name) == (bytes, type(None), "Thing")


def test_the_types_of_a_function_are_found_where_it_was_defined():
    """Also if they are local to a function or a class around it, whoever asks; what type checkers alone know is left out."""

    class Local: ...

    class Around:
        class Inner: ...

        def method(self, value: Local, other: list[Inner]) -> Hidden: ...

    def function(value: dict[str, Local], dog: Dog, hidden: Hidden) -> Local: ...

    @functools.wraps(function)
    def wrapper(*arguments): ...

    def asked_elsewhere(function):
        Dog = int  # noqa: F841  not the one that is meant
        return type_hints(function)

    local = {"value": dict[str, Local], "dog": Dog, "return": Local}
    assert [asked_elsewhere(each) for each in (function, wrapper)] == [local, local]
    assert asked_elsewhere(Around().method) == {"value": Local}
    assert [type_hints(each) for each in (len, functools.partial(function), 3)] == [{}, {}, {}]


@pytest.mark.parametrize("make", [Node, Tap])
def test_a_value_is_no_type_of_a_node(make):
    """The name of a type and True are refused when the node is made; whatever an annotation may be is not."""
    for wrong in ("Animal", True, 3, [Animal], len):
        with pytest.raises(TypeError, match="the input type of 'x' must be a type, such as str or list\\[str\\], not"):
            make(None, name="x", input_type=wrong)
    for right in (
        None,
        Any,
        Never,
        T,
        UserId,
        Animal,
        list[int],
        str | None,
        Optional[int],
        Literal["a"],
        Annotated[str, 1],
    ):
        assert make(None, name="x", input_type=right).input_type is right
    with pytest.raises(TypeError, match="the output type of 'x' must be a type"):
        Node(None, name="x", output_type="Animal")
