"""Annotations that are evaluated and taken apart, for graphs, the codec and callbacks alike."""

from __future__ import annotations

import collections.abc
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Optional, TypedDict, TypeVar, Union

import pytest
import typing_extensions

from graphagent._annotations import class_of, evaluated, is_typed_dict, plain, union_members
from graphagent.codec._blobs import HeldBlobs
from graphagent.codec._values import decode, encode
from graphagent.graph._types import fits, show

T = TypeVar("T")
Rows = typing_extensions.TypeAliasType("Rows", list[T], type_params=(T,))
Numbers = typing_extensions.TypeAliasType("Numbers", Rows[int] | None)


@dataclass
class Draft:
    text: str


def test_an_alias_stands_for_its_type_with_its_arguments():
    """Also one of an alias, and in a union."""
    assert plain(Rows[str]) == list[str]
    assert plain(Annotated[Numbers, "note"]) == Rows[int] | None
    assert union_members(Numbers) == (list[int], type(None))
    assert show(Rows[str]) == "list[str]"
    assert not fits(Rows[str], list[int])


def test_values_of_an_alias_with_arguments_come_back():
    """The class that is its argument is declared by it."""
    blobs = HeldBlobs()
    drafts = [Draft("a"), Draft("b")]
    assert decode(encode(drafts, blobs, Rows[Draft]), blobs, Rows[Draft]) == drafts


@pytest.mark.parametrize(
    ("kind", "parts"),
    [
        (int, (int,)),
        (None, (type(None),)),
        (Optional[Union[int, str]], (int, str, type(None))),  # noqa: UP007, UP045  the older ways to write it
        (Annotated[int, 1] | Annotated[str, 2], (int, str)),
        (Literal["a", 1], (Literal["a", 1],)),
        (Any, (Any,)),
    ],
)
def test_a_union_is_taken_apart(kind, parts):
    """Whatever it is written with; any other type is its only member."""
    assert union_members(kind) == parts


def test_what_is_not_known_is_left_out():
    """It does not hide the others."""
    written = {"a": "int", "b": "Hidden", "c": list[int], "d": "Annotated[int, 1]", "e": "1 +"}
    found = evaluated(written, globals(), {})
    assert found == {"a": int, "c": list[int], "d": int}
    assert evaluated(written, globals(), {"Hidden": Draft}, extras=True) == {
        "a": int,
        "b": Draft,
        "c": list[int],
        "d": Annotated[int, 1],
    }


def test_both_kinds_of_typed_dicts_are_known():
    """That of typing_extensions is another class."""

    class One(TypedDict):
        a: int

    class Other(typing_extensions.TypedDict):
        a: int

    assert is_typed_dict(One)
    assert is_typed_dict(Other)
    assert not is_typed_dict(dict)


def test_the_class_of_a_type():
    """Where values of it are all of one class."""
    assert class_of(list[int]) is list
    assert class_of(Annotated[Draft, 1]) is Draft
    assert class_of(collections.abc.Callable[..., int]) is collections.abc.Callable
    assert class_of(T) is None
