"""Types of values that the tests of what is shown share."""

from __future__ import annotations

import datetime
import enum
from dataclasses import dataclass


class Colour(enum.Enum):
    """A colour."""

    RED = "red"


@dataclass(frozen=True)
class Address:
    """Where a letter goes."""

    street: str
    number: int = 1


@dataclass
class Draft:
    """A letter."""

    title: str
    colour: Colour
    when: datetime.date
    to: tuple[Address, ...]
    also: frozenset[Address]
    by: dict[Address, str]


@dataclass
class Reply:
    """What a person says of a letter."""

    good: bool
    note: str = "none"


def draft_of(number: int) -> Draft:
    """A letter with values of every kind."""
    address = Address("Main Street", number)
    return Draft("Hi", Colour.RED, datetime.date(2026, 1, 2), (address,), frozenset([address]), {address: "Ada"})
