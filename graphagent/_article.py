"""Names and numbers in sentences, such as the type and the number of things in an error."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from decimal import Decimal


def a(name: str) -> str:
    """Return a name after its article: `a TaskStep`, `an ActionStep`."""
    return f"an {name}" if name[:1] in "AEIOaeio" else f"a {name}"


def counted(number: Decimal | float, what: str) -> str:
    """Return a number of things: `1 run`, `2,000 entries`, `0.5 seconds`."""
    several = f"{what[:-1]}ies" if what.endswith("y") else f"{what}s"
    return f"{number:{',' if isinstance(number, int) else 'g'}} {what if number == 1 else several}"


def kind_of(value: object) -> str:
    """Return the kind of a value for a sentence, without its content: `a str`, `None`, `the class Db`."""
    if value is None:
        return "None"
    return f"the class {value.__name__}" if isinstance(value, type) else a(type(value).__name__)
