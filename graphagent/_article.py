"""The article of a name in a sentence: what an error says of a type."""

from __future__ import annotations


def a(name: str) -> str:
    """Give a name behind its article: `a TaskStep`, `an ActionStep`."""
    return f"an {name}" if name[:1] in "AEIOaeio" else f"a {name}"
