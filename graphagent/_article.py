"""The article of a name in a sentence: what an error says of a type."""

from __future__ import annotations


def a(name: str) -> str:
    """Return a name after its article: `a TaskStep`, `an ActionStep`."""
    return f"an {name}" if name[:1] in "AEIOaeio" else f"a {name}"


def kind_of(value: object) -> str:
    """Return the kind of a value for a sentence, without its content: `a str`, `None`, `the class Db`."""
    if value is None:
        return "None"
    return f"the class {value.__name__}" if isinstance(value, type) else a(type(value).__name__)
