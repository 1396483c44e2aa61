"""What the commands say in the same words: how many there are, whose they are, who else has some."""

from __future__ import annotations

from collections.abc import Iterable


def counted(number: int, what: str) -> str:
    """Say how many of something: `1 run`, `2,000 entries`."""
    several = f"{what[:-1]}ies" if what.endswith("y") else f"{what}s"
    return f"{number:,} {what if number == 1 else several}"


def were_new(added: int, of: int, what: str) -> str:
    """Say how many of those that were imported had not been there."""
    return f"{added:,} of {counted(of, what)} {'was' if added == 1 else 'were'} new."


def whose(owner: str | None) -> str:
    """Say of whom, where that was asked for."""
    return f" of owner {owner!r}" if owner else ""


def others(owners: Iterable[str], but: str | None, what: str) -> str:
    """Say which owners have some, where one who was asked for has none; empty where there are none with a name."""
    named = ", ".join(repr(each) for each in sorted(owners) if each and each != but)
    return f" Owners with {what}: {named}." if named else ""
