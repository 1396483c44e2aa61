"""One promise of a contract."""

from __future__ import annotations


def promise(kept: bool, text: str) -> None:
    """Raise an AssertionError with the text of a promise that is not kept."""
    if not kept:
        raise AssertionError(text)
