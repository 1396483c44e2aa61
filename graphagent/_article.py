"""The article of a name in a sentence: what an error says of a type."""

from __future__ import annotations


def a(name: str) -> str:
    """Give a name behind its article: `a TaskStep`, `an ActionStep`."""
    return f"an {name}" if name[:1] in "AEIOaeio" else f"a {name}"


def kind_of(value: object) -> str:
    """Return what a value is, for a sentence, and nothing of what is in it: `a str`, `None`, `the class Db`."""
    if value is None:
        return "None"
    return f"the class {value.__name__}" if isinstance(value, type) else a(type(value).__name__)
