"""Phrases that several commands print: results of imports, owners."""

from __future__ import annotations

from collections.abc import Iterable

from graphagent._article import counted


def were_new(added: int, of: int, what: str) -> str:
    """Return the sentence that says how many of the imported things were new."""
    return f"{added:,} of {counted(of, what)} {'was' if added == 1 else 'were'} new."


def whose(owner: str | None) -> str:
    """Return the owner in a sentence; empty without one."""
    return f" of owner {owner!r}" if owner else ""


def others(owners: Iterable[str], but: str | None, what: str) -> str:
    """Return a sentence that names the other owners; empty if there are none with a name."""
    named = ", ".join(repr(each) for each in sorted(owners) if each and each != but)
    return f" Owners with {what}: {named}." if named else ""
